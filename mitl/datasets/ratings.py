"""Folders of ratings in CxC's layout: CxC's own, and releases of graded similarity with any ids and splits.

A folder holds ``sts_<split>.csv``, ``sis_<split>.csv`` and ``sits_<split>.csv``; any of the three may be missing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd

from mitl.datasets.cxc import COLUMNS, bare_id, is_cxc_name, read_scored
from mitl.datasets.files import read_rows
from mitl.errors import DatasetError, UsageError
from mitl.records.similarity import Likeness

PREFERRED = ("test", "val")
"""CxC's splits, in the order in which one is taken where none is named."""
RAW_FILE = "ratings.parquet"
"""Every single rating, where a release holds them."""
_FILE = re.compile(r"(sts|sis|sits)_([\w.-]+)\.csv")


def splits_of(folder: Path) -> dict[str, tuple[Likeness, ...]]:
    """Split → the tasks that it has files of, by the splits' names.

    Raises:
        DatasetError: there is no such folder, or it holds no file of ratings.
    """
    layout = "sts_<split>.csv, sis_<split>.csv or sits_<split>.csv, as CxC has them"
    if not folder.is_dir():
        raise DatasetError(f"there is no folder {str(folder)!r}; it should hold {layout}")
    present: dict[str, set[str]] = {}
    for path in folder.iterdir():
        match = _FILE.fullmatch(path.name)
        if match is not None and path.is_file():
            present.setdefault(match[2], set()).add(match[1])
    if not present:
        raise DatasetError(f"{str(folder)!r} is not a folder of ratings; it should hold {layout}")
    return {split: tuple(task for task in Likeness if task in present[split]) for split in sorted(present)}


def choose_split(folder: Path, wanted: str | None = None) -> str:
    """The split that is wanted; else ``test``, else ``val``, else the only one.

    Raises:
        DatasetError: see :func:`splits_of`.
        UsageError: the folder lacks the split, or holds several and none of them is CxC's.
    """
    splits = splits_of(folder)
    if wanted is not None:
        if wanted not in splits:
            raise UsageError(f"{str(folder)!r} has no split {wanted!r}; it holds {', '.join(splits)}")
        return wanted
    usual = next((split for split in PREFERRED if split in splits), None)
    if usual is not None:
        return usual
    if len(splits) > 1:
        raise UsageError(f"{str(folder)!r} holds the splits {', '.join(splits)}; name one with --split")
    return next(iter(splits))


def is_coco_named(folder: Path, split: str) -> bool:
    """Whether the first item of a split is called as CxC calls COCO's images and captions."""
    task = splits_of(folder)[split][0]
    column = COLUMNS[task][0]
    rows = read_rows(rated_file(folder, task, split), "ratings in CxC's layout", (column,))
    return bool(rows) and is_cxc_name(task.sides[0], str(rows[0][column]))


def rated_file(folder: Path, task: Likeness, split: str) -> Path:
    """The file of a task and a split."""
    return folder / f"{task.value}_{split}.csv"


def read_split(
    folder: Path, split: str, wanted: Collection[Likeness] = tuple(Likeness)
) -> dict[Likeness, pd.DataFrame]:
    """Task → its rated pairs (``SCORED``), of the tasks wanted that have a file of this split.

    Raises:
        DatasetError: a file is malformed or holds no rows.
    """
    return {
        task: read_scored(rated_file(folder, task, split), task)
        for task in splits_of(folder)[split]
        if task in wanted
    }


def read_raw_deviations(folder: Path, task: Likeness, scored: pd.DataFrame) -> np.ndarray:
    """(pairs,) the standard deviation of each pair's single ratings, with n - 1 below; NaN where they are not known.

    They stand in ``ratings.parquet``, either way round, where a release holds them; CxC's single ratings are not out.

    Args:
        scored: the pairs of the task, ``SCORED``.

    Raises:
        DatasetError: the file cannot be read.
    """
    path = folder / RAW_FILE
    if not path.is_file():
        return np.full(len(scored), np.nan)
    rows = read_rows(path, "single ratings", ("task", "first", "second", "score"), ("counted",))
    ratings = [
        row
        for row in rows
        if row["task"] == task.value and row["score"] is not None and row.get("counted", True)
    ]
    ids = [
        [bare_id(side, str(row[column])) for row in ratings]
        for column, side in zip(("first", "second"), task.sides, strict=True)
    ]
    within = task.sides[0] == task.sides[1]
    by_pair: dict[tuple[str, str], list[float]] = {}
    for first, second, row in zip(*ids, ratings, strict=True):
        if not isinstance(row["score"], (int, float)) or not math.isfinite(row["score"]):
            raise DatasetError(
                f"{str(path)!r} gives {first!r} and {second!r} the score {row['score']!r}; write scores as numbers"
            )
        by_pair.setdefault(_pair(first, second, within=within), []).append(float(row["score"]))
    sd = {pair: float(np.std(scores, ddof=1)) for pair, scores in by_pair.items() if len(scores) > 1}
    pairs = zip(scored["first"], scored["second"], strict=True)
    return np.array([sd.get(_pair(*pair, within=within), np.nan) for pair in pairs], np.float64)


def _pair(first: str, second: str, *, within: bool) -> tuple[str, str]:
    """The pair whichever way round, where both items are of one side."""
    return (second, first) if within and second < first else (first, second)
