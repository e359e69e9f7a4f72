"""Ids of a model's rows: read from arrays or lists, always as texts, each once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mitl.errors import MetricError


def listed_ids(path: Path) -> list[str]:
    """The ids of a .npy file, else of a text with one a line."""
    if not path.is_file():
        raise MetricError(f"there is no file {str(path)!r}; it should hold ids, one a line or as .npy")
    if path.suffix == ".npy":
        try:
            return id_texts(path, np.load(path, allow_pickle=False))
        except (ValueError, OSError, EOFError) as error:
            raise MetricError(
                f"{str(path)!r} is not readable as numpy data without pickles: {error}"
            ) from error
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise MetricError(f"{str(path)!r} is not readable as a list of ids: {error}") from error


def ids_beside(path: Path, what: str) -> Path:
    """The file of ids that lies beside ``path``; MetricError where there is none."""
    arrays, lines = path.with_suffix(f".{what}.npy"), path.with_suffix(f".{what}.txt")
    found = next((one for one in (arrays, lines) if one.is_file()), None)
    if found is None:
        option = f"--{what.replace('_', '-')}"
        raise MetricError(
            f"{str(path)!r} has no ids beside it; write them to {lines.name!r}, one a line, or give {option} FILE"
        )
    return found


def id_texts(path: Path, ids: object) -> list[str]:
    """One array of integers or texts as texts; MetricError where it is anything else."""
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iuU":
        found = f"{ids.dtype} of shape {ids.shape}" if isinstance(ids, np.ndarray) else "no array"
        raise MetricError(f"ids in {str(path)!r} are {found}; they should be one list of integers or texts")
    return [str(value) for value in ids.tolist()]


def checked_ids(path: Path, ids: Sequence[str], modality: str) -> dict[str, int]:
    """Place of each id; MetricError where one stands there twice."""
    place_of: dict[str, int] = {}
    for place, one in enumerate(ids):
        if place_of.setdefault(one, place) != place:
            raise MetricError(f"{str(path)!r} has the {modality} id {one!r} twice; keep one row of it")
    return place_of
