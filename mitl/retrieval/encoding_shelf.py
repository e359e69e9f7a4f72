"""Where encoded items lie: by the part, a folder with one ``.npy`` file an array, the items' keys and checksums.

``numpy.load(folder / "embedding.npy", mmap_mode="r")`` opens an array for anybody. Rows are checked in blocks, so
that a damaged sector costs its block and not the part. A shelf holds the parts of one annotator's images or captions,
and puts them into one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from mitl.core.arrays import places
from mitl.core.whole_files import remove_folder, to_disk, whole_folder
from mitl.errors import RetrievalError

logger = logging.getLogger(__name__)

Keys = NDArray[np.uint64]
"""What items are known by, see ``mitl.retrieval.encodings``."""
Arrays = Mapping[str, NDArray[Any]]
Shapes = Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]
"""Of each array: its type, and its shape without the first axis."""

BLOCK_ROWS = 64
"""Rows under one checksum."""
_COPIED_BYTES = 64 << 20
"""Memory for rows on their way from file to file."""
_PRIVATE_BYTES = 4 << 30
_ABOUT = "part.json"
_KEYS = "item_keys"


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPart:
    """What one folder holds: ``keys`` (N,), arrays of N rows, and which rows are undamaged."""

    folder: Path
    keys: Keys
    shapes: Shapes
    sound: NDArray[np.bool_]

    @property
    def is_sound(self) -> bool:
        """Whether every row is as it was written."""
        return bool(self.sound.all())

    def open(self) -> dict[str, NDArray[Any]]:
        """The arrays as memory maps, each of which takes an open file; FileNotFoundError where they have moved."""
        return {name: _mapped(self.folder / f"{name}.npy") for name in self.shapes}


def write_part(folder: Path, keys: Keys, blocks: Iterable[Arrays]) -> None:
    """Write a part whole or not at all; one that is there already stays.

    Args:
        keys: (N,), a key a row.
        blocks: the rows in order, by array name; a multiple of ``BLOCK_ROWS`` but in the last block.

    Raises:
        RetrievalError: arrays of another shape or type than in the block before, or not of plain numbers.
        OSError: the file system refuses, a full disk among others.
    """
    with whole_folder(folder) as part:
        files = _Files(part, len(keys))
        try:
            for block in blocks:
                files.append(block)
            files.append({_KEYS: keys})
            files.finish()
        finally:
            files.close()
        about = {"rows": len(keys), "crc32": files.checksums}
        with (part / _ABOUT).open("wb") as sink:
            sink.write(json.dumps(about).encode())
            to_disk(sink)


def split(rows: int, row_bytes: int) -> Iterator[slice]:
    """Rows by the block: as many as memory is good for, a multiple of ``BLOCK_ROWS``."""
    step = max(1, _COPIED_BYTES // max(1, row_bytes * BLOCK_ROWS)) * BLOCK_ROWS
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def shapes_of(arrays: Arrays) -> Shapes:
    """Types and shapes of arrays."""
    return {name: (array.dtype, array.shape[1:]) for name, array in arrays.items()}


def row_bytes(shapes: Shapes) -> int:
    """What one row of all arrays takes."""
    return sum(dtype.itemsize * int(np.prod(shape)) for dtype, shape in shapes.values())


def read_part(folder: Path) -> EncodedPart | None:
    """The part in a folder; None where nothing of it can be used. Damage is told as a warning in the log."""
    try:
        about = json.loads((folder / _ABOUT).read_bytes())
        rows, checksums = int(about["rows"]), about["crc32"]
        keys = np.load(folder / f"{_KEYS}.npy", allow_pickle=False)
        arrays = {name: _mapped(folder / f"{name}.npy") for name in checksums if name != _KEYS}
        if {len(keys), *map(len, arrays.values())} != {rows} or keys.dtype != np.uint64:
            raise ValueError(f"its arrays do not all have {rows} rows")
        if not _sound_rows(keys, checksums[_KEYS]).all():
            raise ValueError("its keys are not those that were written")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError) as error:
        if folder.exists():  # else another run has put its rows elsewhere
            logger.warning("%s is damaged: %s; its items are encoded again", folder, _line(error))
        return None
    sound = np.ones(rows, bool)
    for name, array in arrays.items():
        sound &= _sound_rows(array, checksums[name])
    if not sound.all():
        logger.warning("%s: %d of %d items are damaged and are encoded again", folder, (~sound).sum(), rows)
    return EncodedPart(folder, keys, shapes_of(arrays), sound)


def _mapped(path: Path) -> NDArray[Any]:
    # "c" is private to this process and unlike "r" no memory that torch warns of; but systems refuse to promise that
    # much more than they have could be written to.
    small = path.stat().st_size < _PRIVATE_BYTES
    array: NDArray[Any] = np.load(path, mmap_mode="c" if small else "r", allow_pickle=False)
    return array


def _line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _sound_rows(array: NDArray[Any], checksums: list[int]) -> NDArray[np.bool_]:
    sound = np.zeros(len(array), bool)
    for place, start in enumerate(range(0, len(array), BLOCK_ROWS)):
        block = slice(start, start + BLOCK_ROWS)
        sound[block] = place < len(checksums) and zlib.crc32(_bytes(array[block])) == checksums[place]
    return sound


def _bytes(array: NDArray[Any]) -> memoryview:
    # zlib takes no memory of zero bytes that is not flat.
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class _Files:
    """The array files of a part while they are written."""

    def __init__(self, folder: Path, rows: int) -> None:
        self._folder, self._rows = folder, rows
        self._sinks: dict[str, BinaryIO] = {}
        self._like: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        self.checksums: dict[str, list[int]] = {}

    def append(self, block: Arrays) -> None:
        """Write the next rows of some arrays."""
        for name, array in block.items():
            like = (array.shape[1:], array.dtype)
            if self._like.setdefault(name, like) != like:
                raise RetrievalError(
                    f"the encoded array {name!r} is {like[1]} {like[0]} an item, but {self._like[name][1]} "
                    f"{self._like[name][0]} for the items before; all items must have arrays of one shape"
                )
            sink = self._sinks.get(name) or self._begin(name, array)
            for start in range(0, len(array), BLOCK_ROWS):
                content = _bytes(array[start : start + BLOCK_ROWS])
                self.checksums[name].append(zlib.crc32(content))
                sink.write(content)

    def finish(self) -> None:
        """See everything to the disk."""
        for sink in self._sinks.values():
            to_disk(sink)

    def close(self) -> None:
        """Close the files, as far as they got."""
        with ExitStack() as stack:  # each is closed, though another may fail
            for sink in self._sinks.values():
                stack.callback(sink.close)

    def _begin(self, name: str, array: NDArray[Any]) -> BinaryIO:
        if array.dtype.hasobject or not name.isidentifier():
            raise RetrievalError(f"the encoded array {name!r} of {array.dtype} cannot be kept as a file")
        sink = self._sinks[name] = (self._folder / f"{name}.npy").open("wb")
        header = {
            "descr": np.lib.format.dtype_to_descr(array.dtype),
            "fortran_order": False,
            "shape": (self._rows, *array.shape[1:]),
        }
        np.lib.format.write_array_header_1_0(sink, header)
        self.checksums[name] = []
        return sink


def part_name(keys: Keys) -> str:
    """The folder of the part that holds exactly these items in this order."""
    return hashlib.sha256(keys.astype("<u8").tobytes()).hexdigest()[:20]


class Shelf:
    """All parts of one annotator's images or captions, as they lay when it was opened."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts = _read_parts(folder)
        counts = [len(part.keys) for part in self._parts]
        sound = np.concatenate([np.empty(0, bool), *(part.sound for part in self._parts)])
        keys = np.concatenate([np.empty(0, np.uint64), *(part.keys for part in self._parts)])
        self._starts = np.cumsum([0, *counts])
        order = np.argsort(keys, kind="stable")
        order = order[sound[order]]
        self._order, self._sorted = order, keys[order]

    def places(self, keys: Keys) -> NDArray[np.int64]:
        """Where each item's row lies, counted through all parts; -1 where it is not there."""
        at = places(self._sorted, keys)
        return np.where(at >= 0, self._order[at], -1) if len(self._order) else at

    def assembled(self, keys: Keys) -> Arrays | None:
        """The rows of these items in this order, from one part; such a part is made where there is none.

        None where another run has moved rows meanwhile: open the shelf again.
        """
        try:
            for part in self._parts:
                if part.is_sound and np.array_equal(part.keys, keys):
                    arrays = part.open()
                    self._remove_covered(part)
                    return arrays
            _check_alike(self._parts)
            path = self._folder / part_name(keys)
            while path.exists():  # damaged: its sound rows are needed still
                path = path.with_name(f"{path.name}x")
            write_part(path, keys, self._blocks(self.places(keys)))
        except FileNotFoundError:
            pass
        return None

    def _blocks(self, wanted: NDArray[np.int64]) -> Iterator[Arrays]:
        assert (wanted >= 0).all(), "all items are encoded by now"
        for rows in split(len(wanted), row_bytes(self._parts[0].shapes)):
            yield self._rows(wanted[rows])

    def _rows(self, wanted: NDArray[np.int64]) -> Arrays:
        """Rows gathered from the parts they lie in."""
        owners = np.searchsorted(self._starts, wanted, side="right") - 1
        gathered: dict[str, NDArray[np.generic]] = {}
        for owner in np.flatnonzero(np.bincount(owners)):
            mine = np.flatnonzero(owners == owner)
            for name, array in self._parts[owner].open().items():
                rows = array[wanted[mine] - self._starts[owner]]
                if name not in gathered:
                    gathered[name] = np.empty((len(wanted), *rows.shape[1:]), rows.dtype)
                gathered[name][mine] = rows
        return gathered

    def _remove_covered(self, whole: EncodedPart) -> None:
        """Remove the parts whose every item is in this one too."""
        rising = np.sort(whole.keys)  # np.isin would hash all of them again for each part
        for part in self._parts:
            if part.folder != whole.folder and (places(rising, part.keys) >= 0).all():
                remove_folder(part.folder)


def _check_alike(parts: Sequence[EncodedPart]) -> None:
    other = next((part.shapes for part in parts if part.shapes != parts[0].shapes), None)
    if other is not None:
        raise RetrievalError(
            f"encoded items in {str(parts[0].folder.parent)!r} are {parts[0].shapes} and {other}, but all items must "
            "have arrays of one shape; the annotator must not set reusable_encodings"
        )


def _read_parts(folder: Path) -> list[EncodedPart]:
    """The usable parts; what is damaged through and through is removed, so that its place is free."""
    while True:
        folders = sorted(path for path in folder.glob("[!.]*") if path.is_dir()) if folder.is_dir() else []
        parts = {path: read_part(path) for path in folders}
        vanished = [path for path, part in parts.items() if part is None and not path.exists()]
        for path, part in parts.items():
            if path not in vanished and (part is None or not part.sound.any()):
                remove_folder(path)
        if not vanished:  # else another run has just put its rows elsewhere: look there
            return [part for part in parts.values() if part is not None and part.sound.any()]
