"""NumPy's own files, and lists of ids, that were made elsewhere; nothing in them is unpickled."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mitl.errors import AnnotatorError

_BROKEN = (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error)


def load_numpy(path: Path, mmap_mode: Literal["r"] | None = None) -> Any:
    """What `np.load` makes of a file; AnnotatorError where it cannot be read."""
    try:
        return np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    except _BROKEN as error:
        raise AnnotatorError(
            f"{str(path)!r} is not readable as numpy data without pickles, as np.save and np.savez write it: "
            f"{str(error).partition('. ')[0]}"
        ) from error


def read_archive(path: Path, *names: str) -> dict[str, NDArray[Any]]:
    """The arrays of a .npz that are named, else all of them; AnnotatorError where one is missing or unreadable."""
    archive = load_numpy(path)
    if isinstance(archive, np.ndarray):
        raise AnnotatorError(f"{str(path)!r} holds one array, not an archive; call it .npy")
    with archive:
        missing = next((name for name in names if name not in archive), None)
        if missing is not None:
            raise AnnotatorError(
                f"{str(path)!r} lacks the array {missing!r}; it holds {', '.join(archive.files) or 'none'}"
            )
        try:
            return {name: archive[name] for name in names or archive.files}
        except _BROKEN as error:
            raise AnnotatorError(f"{str(path)!r} is not readable without pickles: {error}") from error


def ids_beside(path: Path, what: str = "ids") -> Path | None:
    """The file of ids that lies beside another: arrays, else a text with one a line; None where there is none."""
    files = (path.with_suffix(f".{what}.{end}") for end in ("npy", "txt"))
    return next((file for file in files if file.is_file()), None)


def listed_ids(path: Path) -> list[str]:
    """The ids of a .npy, else of a text with one a line; AnnotatorError where they cannot be read."""
    if not path.is_file():
        raise AnnotatorError(f"there is no file {str(path)!r}; it should hold ids, one a line or as .npy")
    if path.suffix == ".npy":
        return id_texts(path, load_numpy(path))
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise AnnotatorError(f"{str(path)!r} is not readable as a list of ids: {error}") from error


def id_texts(path: Path, ids: object) -> list[str]:
    """One array of integers or texts as texts; AnnotatorError where it is anything else."""
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iuU":
        held = f"{ids.dtype} of shape {ids.shape}" if isinstance(ids, np.ndarray) else "an archive"
        raise AnnotatorError(f"ids in {str(path)!r} are {held}; they should be a list of integers or texts")
    return [str(value) for value in ids.tolist()]
