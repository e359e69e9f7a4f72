"""Encoded items as artifacts: kept by the chunk while a network works, read back as memory maps.

A row belongs to one item, known by its key, under one annotator's fingerprint, which stands for its weights,
preprocessing and settings. A key is 64 bits of a hash over the external id and the content (the item's texts, the
picture file's bytes): of a million items two share one with a probability of 3e-8. So a changed caption, picture or
weights file is encoded again and nothing else is: items that are added, removed or put in another order leave the
rows of the others as they are.

    <folder>/<annotator>-<fingerprint>/images/<part>/{embedding.npy, item_keys.npy, part.json}

Once all items are there, one part in their order takes the place of the chunks. Everything below the folder can be
deleted at any time; what is needed is made again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from annotators.base import (
    Annotator,
    Encoded,
    Modality,
    encoding_fingerprint,
    reads_pictures,
    scores_pairs,
    searches_itself,
)
from mitl.core.whole_files import folder_bytes, one_clear_line, remove_dead_parts, whole_file
from mitl.errors import AnnotatorError, RetrievalError
from mitl.progress import Progress, no_progress
from mitl.records import CaptionItem, ImageItem
from mitl.retrieval.encoding_shelf import Keys, Shelf, part_name, row_bytes, shapes_of, split, write_part
from mitl.retrieval.vectors import VECTOR_KINDS, Vectors

Items = Sequence[ImageItem] | Sequence[CaptionItem]
Chunk = tuple[int, Items]
"""A chunk's number and its items."""
Encode = Callable[[Iterable[Chunk]], Iterator[tuple[int, Encoded]]]
"""Encodes chunks one by one, in any order of completion."""

CHUNK_ITEMS: dict[Modality, int] = {"image": 256, "caption": 4096}
"""Items that are kept together, at least: what a kill may cost. Captions of one length go through a network together,
so that small chunks of them would leave its batches half empty."""
_MOST_CHUNKS = 512
"""Of many items chunks are larger."""
_SETTLED_NS = 2_000_000_000
"""A file changed less than this before it was read may change again without its times showing it."""
_SAVE_EVERY = 4096
"""Files read between two savings of the index."""
_READERS = 4

Stamp = tuple[int, int, int]
"""Size in bytes, time of modification and time of status change in nanoseconds."""


class EncodingStore:
    """The encodings of one project's items, by annotator and modality."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.computed: Counter[Modality] = Counter()
        """Items that had to be encoded since this store was opened."""
        self._pictures = PictureHashes(folder / "pictures.json")
        self._keys: dict[tuple[Modality, bool], tuple[Items, Keys]] = {}

    @property
    def size_bytes(self) -> int:
        """What lies in the folder."""
        return folder_bytes(self.folder)

    def encoded(
        self,
        annotator: Annotator,
        modality: Modality,
        items: Items,
        encode: Encode | None = None,
        *,
        progress: Progress = no_progress,
    ) -> Encoded:
        """All items encoded, as memory maps; only what is missing is computed, and kept as it comes.

        Args:
            items: in ascending id order.
            encode: who encodes the chunks; the annotator itself, here, by default.

        Raises:
            AnnotatorError: an item cannot be encoded, or its encoding is not finite.
            RetrievalError: nothing can be written, on a full disk for example; finished chunks stay.
        """
        folder = self.folder / f"{annotator.name}-{encoding_fingerprint(annotator)[:16]}" / f"{modality}s"
        keys = self.keys(annotator, modality, items, progress)
        side = _Side(annotator, modality, items, keys, folder)
        with one_clear_line(folder, "what was encoded before is kept"):
            remove_dead_parts(self.folder)
            remove_dead_parts(folder)
        arrays = None
        while arrays is None:
            shelf = Shelf(folder)
            missing = np.flatnonzero(shelf.places(keys) < 0)
            if len(missing):
                self._encode(side, missing, encode or partial(encode_chunks, annotator, modality), progress)
                continue
            with one_clear_line(folder, f"all {len(items):,} {modality}s are encoded and kept in chunks"):
                arrays = shelf.assembled(keys)
        return Encoded(modality, np.array([item.id for item in items], np.int64), arrays)

    def keys(
        self, annotator: object, modality: Modality, items: Items, progress: Progress = no_progress
    ) -> Keys:
        """The items' keys, made once for all annotators; of images without their files for those that read none.

        Such annotators set the class attribute ``reads_pictures`` to False.
        """
        with_files = modality == "image" and reads_pictures(annotator, unsaid=True)
        keyed_items, keys = self._keys.get((modality, with_files), (None, None))
        if keys is None or keyed_items is not items:
            if modality == "caption":
                keys = caption_keys(cast(Sequence[CaptionItem], items))
            else:
                keys = image_keys(
                    cast(Sequence[ImageItem], items), self._pictures if with_files else None, progress
                )
            self._keys[modality, with_files] = (items, keys)
        return keys

    def _encode(self, side: _Side, missing: NDArray[np.int64], encode: Encode, progress: Progress) -> None:
        """Compute and keep the missing items, a chunk at a time."""
        chunks = _chunks(side, missing)
        with progress(f"encode {side.annotator.name} {side.modality}s", total=len(missing)) as advance:
            for number, encoded in encode(_unfinished(side, chunks, advance)):
                rows = chunks[number]
                check_encoded(side.annotator, encoded, side.some(rows))
                kept = f"the {self.computed[side.modality]:,} {side.modality}s that this run has encoded are kept"
                with one_clear_line(side.folder, kept):
                    write_part(side.place(rows), side.keys[rows], [encoded.arrays])
                self.computed[side.modality] += len(rows)
                advance(len(rows))


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """One annotator's view of the images or of the captions."""

    annotator: Annotator
    modality: Modality
    items: Items
    keys: Keys
    folder: Path

    def some(self, rows: NDArray[np.int64]) -> Items:
        """The items in these places."""
        return cast(Items, [self.items[row] for row in rows])

    def place(self, rows: NDArray[np.int64]) -> Path:
        """Where the chunk of these items belongs."""
        return self.folder / part_name(self.keys[rows])


def check_encoded(annotator: Annotator, encoded: Encoded, items: Items) -> None:
    """AnnotatorError where items are left out, or what the search cannot use would be kept."""
    said = f"annotator {annotator.name!r}"
    if encoded.ids.tolist() != [item.id for item in items]:
        raise AnnotatorError(
            f"{said} gives {len(encoded)} encodings for {len(items)} {encoded.modality}s, or not in "
            "their order; it must give one for each"
        )
    for name, array in encoded.arrays.items():
        if not isinstance(array, np.ndarray):
            raise AnnotatorError(
                f"{said} gives {name!r} of {encoded.modality}s as a {type(array).__name__}; make it an array of NumPy"
            )
    if annotator.kind in VECTOR_KINDS and not searches_itself(annotator) and not scores_pairs(annotator):
        try:
            Vectors(encoded)
        except RetrievalError as error:
            raise AnnotatorError(f"{said}: {error}") from error
    for name, array in encoded.arrays.items():
        for rows in split(len(array), row_bytes(shapes_of({name: array}))) if array.dtype.kind == "f" else ():
            block = array[rows]
            bad = np.flatnonzero(~np.isfinite(block).reshape(len(block), -1).all(axis=1))
            if len(bad):
                raise AnnotatorError(
                    f"{name!r} of {encoded.modality} {items[rows.start + int(bad[0])].external_id!r} by "
                    f"{said} is not finite; check the annotator's weights or files and that item"
                )


def encode_chunks(
    annotator: Annotator, modality: Modality, chunks: Iterable[Chunk]
) -> Iterator[tuple[int, Encoded]]:
    """One chunk after the other, in this process."""
    for number, items in chunks:
        yield number, encode_items(annotator, modality, items)


def encode_items(annotator: Annotator, modality: Modality, items: Items) -> Encoded:
    """``encode_images`` or ``encode_captions``, by the modality."""
    if modality == "image":
        return annotator.encode_images(cast(Sequence[ImageItem], items))
    return annotator.encode_captions(cast(Sequence[CaptionItem], items))


def _chunks(side: _Side, missing: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The missing items' places, chunk by chunk; captions by length, which fills the networks' batches."""
    size = max(CHUNK_ITEMS[side.modality], len(missing) // _MOST_CHUNKS)
    if side.modality == "caption" and len(missing) > size:
        lengths = [len(caption.text) for caption in cast(Sequence[CaptionItem], side.some(missing))]
        missing = missing[np.argsort(lengths, kind="stable")]
    chunks = [missing[start : start + size] for start in range(0, len(missing), size)]
    return [np.sort(chunk) for chunk in chunks]  # annotators expect rising ids


def _unfinished(
    side: _Side, chunks: Sequence[NDArray[np.int64]], advance: Callable[[int], None]
) -> Iterator[Chunk]:
    """The chunks that no other run has finished by the time they are begun."""
    for number, rows in enumerate(chunks):
        if side.place(rows).exists():
            advance(len(rows))
        else:
            yield number, side.some(rows)


def caption_keys(items: Sequence[CaptionItem]) -> Keys:
    """(N,) keys of captions: of their ids and texts."""
    return np.array([_key("caption", item.external_id, item.text) for item in items], np.uint64)


def image_keys(
    items: Sequence[ImageItem], pictures: PictureHashes | None, progress: Progress = no_progress
) -> Keys:
    """(N,) keys of images: of their ids, their own texts and, unless ``pictures`` is None, their files."""
    content = [""] * len(items)
    if pictures is not None:
        content = pictures.sha256([item.path for item in items], progress)
    return np.array(
        [
            _key("image", item.external_id, sha256, *item.texts)
            for item, sha256 in zip(items, content, strict=True)
        ],
        np.uint64,
    )


def _key(*parts: str) -> int:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        encoded = part.encode(errors="surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return int.from_bytes(digest.digest(), "little")


class PictureHashes:
    """SHA-256 of picture files; a file is read again only where its size or its times are other ones."""

    def __init__(self, index: Path) -> None:
        """``index``: the JSON file that keeps what was found; made when there is something to keep."""
        self._index = index
        self._known = _read_index(index)

    def sha256(self, paths: Sequence[Path | None], progress: Progress = no_progress) -> list[str]:
        """The hash of each file, as hex; empty where there is no file to read."""
        stamps = {path: _stamp(path) for path in paths if path is not None}
        hashes = {path: known for path, stamp in stamps.items() if (known := self._known_hash(path, stamp))}
        unread = [path for path in stamps if path not in hashes]
        if unread:
            with progress("read pictures", total=len(unread)) as advance:
                for start in range(0, len(unread), _SAVE_EVERY):
                    part = unread[start : start + _SAVE_EVERY]
                    hashes.update(self._read(part, stamps))
                    advance(len(part))
        return ["" if path is None else hashes[path] for path in paths]

    def _known_hash(self, path: Path, stamp: Stamp | None) -> str | None:
        known_stamp, sha256 = self._known.get(str(path), (None, None))
        return sha256 if stamp is not None and known_stamp == stamp else None

    def _read(self, paths: Sequence[Path], stamps: dict[Path, Stamp | None]) -> dict[Path, str]:
        with ThreadPoolExecutor(_READERS) as pool:
            hashes = dict(zip(paths, pool.map(_sha256, paths), strict=True))
        now = time.time_ns()
        for path in paths:
            stamp = stamps[path]
            if stamp is not None and max(stamp[1:]) + _SETTLED_NS < now and stamp == _stamp(path):
                self._known[str(path)] = (stamp, hashes[path])
        with one_clear_line(self._index, "nothing is lost"), whole_file(self._index) as sink:
            sink.write(json.dumps(self._known).encode())
        return hashes


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""  # the annotator that needs it says what is wrong with it


def _read_index(path: Path) -> dict[str, tuple[Stamp, str]]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: ((int(size), int(modified), int(changed)), str(sha256))
            for name, ((size, modified, changed), sha256) in entries.items()
        }
    except (OSError, ValueError, AttributeError, TypeError):
        return {}  # nothing is lost with it but time
