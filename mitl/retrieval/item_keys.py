"""Keys of items by what they are: an item that changes gets another key, whatever its place or surrogate id.

A key is 64 bits of a hash over the external id and the content (the caption's text, the picture file's bytes). Two
of a million items share one with a probability of 3e-8.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mitl.core.whole_files import one_clear_line, whole_file
from mitl.progress import Progress, no_progress
from mitl.records import CaptionItem, ImageItem

Keys = NDArray[np.uint64]

_SETTLED_NS = 2_000_000_000
"""A file changed less than this before it was read may change again without its times showing it."""
_SAVE_EVERY = 4096
"""Files read between two savings of the index."""
_READERS = 4

Stamp = tuple[int, int, int]
"""Size in bytes, time of modification and time of status change in nanoseconds."""


def caption_keys(items: Sequence[CaptionItem]) -> Keys:
    """(N,) keys of captions: of their ids and texts."""
    return np.array([_key("caption", item.external_id, item.text) for item in items], np.uint64)


def image_keys(
    items: Sequence[ImageItem], pictures: PictureHashes | None, progress: Progress = no_progress
) -> Keys:
    """(N,) keys of images: of their ids and picture files; of the ids alone where ``pictures`` is None."""
    content = [""] * len(items)
    if pictures is not None:
        content = pictures.sha256([item.path for item in items], progress)
    return np.array(
        [_key("image", item.external_id, found) for item, found in zip(items, content, strict=True)],
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
        found = {path: known for path, stamp in stamps.items() if (known := self._known_hash(path, stamp))}
        unread = [path for path in stamps if path not in found]
        if unread:
            with progress("read pictures", total=len(unread)) as advance:
                for start in range(0, len(unread), _SAVE_EVERY):
                    part = unread[start : start + _SAVE_EVERY]
                    found.update(self._read(part, stamps))
                    advance(len(part))
        return ["" if path is None else found[path] for path in paths]

    def _known_hash(self, path: Path, stamp: Stamp | None) -> str | None:
        known, sha256 = self._known.get(str(path), (None, None))
        return sha256 if stamp is not None and known == stamp else None

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
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


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
