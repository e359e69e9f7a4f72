"""Folders of ratings in CxC's layout: CxC's own, and releases of graded similarity with any ids and splits.

A folder holds ``sts_<split>.csv``, ``sis_<split>.csv`` and ``sits_<split>.csv``; any of the three may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mitl.datasets.assembling import check_unique
from mitl.datasets.files import read_rows
from mitl.errors import DatasetError, UsageError
from mitl.records.frames import Schema, frame
from mitl.records.similarity import Likeness

RATED: Schema = {
    "first": ("str", "id of the first item as the file writes it; of SITS the image"),
    "second": ("str", "id of the second item; of SITS the caption"),
    "score": ("float64", "mean of the raters, 0 to 5"),
    "method": ("category", "how the pair came to be rated; empty where the file does not say"),
}
"""The rated pairs of one task and split, in the file's order."""

RAW_FILE = "ratings.parquet"
"""Every single rating, where a release holds them."""
COLUMNS: Mapping[Likeness, tuple[str, str]] = {
    Likeness.STS: ("caption1", "caption2"),
    Likeness.SIS: ("image1", "image2"),
    Likeness.SITS: ("image", "caption"),
}
"""Of the first and of the second item."""
SCORE, METHOD = "agg_score", "sampling_method"
PREFERRED = ("test", "val")
"""CxC's splits, in the order in which one is taken where none is named."""
_FILE = re.compile(r"(sts|sis|sits)_([\w.-]+)\.csv")
_COCO = (re.compile(r"COCO_\w+:sentid:([0-9]+)"), re.compile(r"COCO_\w+_([0-9]{12})\.\w+"))


def bare_id(name: str) -> str:
    """COCO's number in a name as CxC writes it; any other name as it is."""
    for pattern in _COCO:
        match = pattern.fullmatch(name)
        if match is not None:
            return str(int(match[1]))
    return name


def splits_of(folder: Path) -> dict[str, tuple[Likeness, ...]]:
    """Split → the tasks that it has files of, by the splits' names.

    Raises:
        DatasetError: there is no such folder, or it holds no file of ratings.
    """
    wanted = "sts_<split>.csv, sis_<split>.csv or sits_<split>.csv, as CxC has them"
    if not folder.is_dir():
        raise DatasetError(f"there is no folder {str(folder)!r}; it should hold {wanted}")
    present: dict[str, set[str]] = {}
    for path in folder.iterdir():
        match = _FILE.fullmatch(path.name)
        if match is not None and path.is_file():
            present.setdefault(match[2], set()).add(match[1])
    if not present:
        raise DatasetError(f"{str(folder)!r} is not a folder of ratings; it should hold {wanted}")
    return {split: tuple(task for task in Likeness if task in present[split]) for split in sorted(present)}


def choose_split(folder: Path, wanted: str | None = None) -> str:
    """The split that is wanted; else ``test``, else ``val``, else the only one.

    Raises:
        DatasetError: see :func:`splits_of`.
        UsageError: the folder lacks the split, or holds several and none of them is CxC's.
    """
    known = splits_of(folder)
    if wanted is not None:
        if wanted not in known:
            raise UsageError(f"{str(folder)!r} has no split {wanted!r}; it holds {', '.join(known)}")
        return wanted
    usual = next((split for split in PREFERRED if split in known), None)
    if usual is not None:
        return usual
    if len(known) > 1:
        raise UsageError(f"{str(folder)!r} holds the splits {', '.join(known)}; name one with --split")
    return next(iter(known))


def is_coco_named(folder: Path, split: str) -> bool:
    """Whether the first item of a split is called as CxC calls COCO's images and captions."""
    task = splits_of(folder)[split][0]
    rows = read_rows(rated_file(folder, task, split), "ratings in CxC's layout", COLUMNS[task])
    return bool(rows) and any(pattern.fullmatch(str(rows[0][COLUMNS[task][0]])) for pattern in _COCO)


def rated_file(folder: Path, task: Likeness, split: str) -> Path:
    """The file of a task and a split."""
    return folder / f"{task.value}_{split}.csv"


def read_rated(path: Path, task: Likeness) -> pd.DataFrame:
    """The rated pairs of a file (``RATED``).

    Raises:
        DatasetError: the file is missing, malformed, empty or of another task, an id is empty, a score is not from 0 to
            5, or a pair is rated twice in the same order.
    """
    what = f"{task.value.upper()} ratings in CxC's layout"
    rows = read_rows(path, what, (*COLUMNS[task], SCORE), (METHOD,))
    if not rows:
        raise DatasetError(f"{str(path)!r} holds no rows; it should hold {what}")
    ids = [[str(row[column]).strip() for row in rows] for column in COLUMNS[task]]
    for column, names in zip(COLUMNS[task], ids, strict=True):
        empty = next((number for number, name in enumerate(names, start=1) if not name), None)
        if empty is not None:
            raise DatasetError(f"row {empty} of {str(path)!r} names no {column}")
    check_unique("pair", [f"{one} × {other}" for one, other in zip(*ids, strict=True)], path)
    return frame(
        RATED,
        {
            "first": ids[0],
            "second": ids[1],
            "score": _scores([row[SCORE] for row in rows], path),
            "method": [str(row.get(METHOD) or "") for row in rows],
        },
    )


def read_split(
    folder: Path, split: str, wanted: Collection[Likeness] = tuple(Likeness)
) -> dict[Likeness, pd.DataFrame]:
    """Task → its rated pairs, of the tasks wanted that have a file of this split."""
    return {
        task: read_rated(rated_file(folder, task, split), task)
        for task in splits_of(folder)[split]
        if task in wanted
    }


def _scores(cells: Sequence[Any], path: Path) -> np.ndarray:
    scores = pd.to_numeric(pd.Series(cells, dtype=object), errors="coerce").to_numpy(np.float64)
    strange = np.flatnonzero(~((scores >= 0) & (scores <= 5)))
    if len(strange):
        row = int(strange[0])
        raise DatasetError(
            f"row {row + 1} of {str(path)!r} has the score {cells[row]!r}, but scores go from 0 to 5"
        )
    return scores
