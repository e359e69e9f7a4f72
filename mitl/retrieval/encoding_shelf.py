"""Where encoded items lie: the parts of one annotator's images or captions, and putting them into one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mitl.errors import RetrievalError
from mitl.retrieval.item_keys import Keys
from mitl.retrieval.parts import Arrays, Part, read_part, row_bytes, split, write_part
from mitl.retrieval.whole_files import remove_folder


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
        if not len(self._sorted):
            return np.full(len(keys), -1, np.int64)
        found = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        return np.where(self._sorted[found] == keys, self._order[found], -1)

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

    def _blocks(self, places: NDArray[np.int64]) -> Iterator[Arrays]:
        assert (places >= 0).all(), "all items are encoded by now"
        for rows in split(len(places), row_bytes(self._parts[0].shapes)):
            yield self._rows(places[rows])

    def _rows(self, places: NDArray[np.int64]) -> Arrays:
        """Rows gathered from the parts they lie in."""
        owners = np.searchsorted(self._starts, places, side="right") - 1
        gathered: dict[str, NDArray[np.generic]] = {}
        for owner in np.flatnonzero(np.bincount(owners)):
            wanted = np.flatnonzero(owners == owner)
            for name, array in self._parts[owner].open().items():
                rows = array[places[wanted] - self._starts[owner]]
                if name not in gathered:
                    gathered[name] = np.empty((len(places), *rows.shape[1:]), rows.dtype)
                gathered[name][wanted] = rows
        return gathered

    def _remove_covered(self, whole: Part) -> None:
        """Remove the parts whose every item is in this one too."""
        rising = np.sort(whole.keys)  # np.isin would hash all of them again for each part
        for part in self._parts:
            place = np.minimum(np.searchsorted(rising, part.keys), len(rising) - 1)
            if part.folder != whole.folder and np.array_equal(rising[place], part.keys):
                remove_folder(part.folder)


def _check_alike(parts: Sequence[Part]) -> None:
    other = next((part.shapes for part in parts if part.shapes != parts[0].shapes), None)
    if other is not None:
        raise RetrievalError(
            f"encoded items in {str(parts[0].folder.parent)!r} are {parts[0].shapes} and {other}, but all items must "
            "have arrays of one shape; the annotator must not set reusable_encodings"
        )


def _read_parts(folder: Path) -> list[Part]:
    """The usable parts; what is damaged through and through is removed, so that its place is free."""
    while True:
        found = sorted(path for path in folder.glob("[!.]*") if path.is_dir()) if folder.is_dir() else []
        parts = {path: read_part(path) for path in found}
        vanished = [path for path, part in parts.items() if part is None and not path.exists()]
        for path, part in parts.items():
            if path not in vanished and (part is None or not part.sound.any()):
                remove_folder(path)
        if not vanished:  # else another run has just put its rows elsewhere: look there
            return [part for part in parts.values() if part is not None and part.sound.any()]
