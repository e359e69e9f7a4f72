"""Human scores of the likeness of texts (STS), of images (SIS) and of both (SITS), in the layout of CxC's CSVs.

CxC names COCO's captions and images in a form of its own. A release of other items (`mitl rate release`) names them by
their data set's own ids, in the same columns; both are read. A folder holds ``sts_<split>.csv``, ``sis_<split>.csv``
and ``sits_<split>.csv`` of CxC's splits or of others; any of the three may be missing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mitl.datasets.assembling import by_id, chosen_split, id_kind, is_integer_id, tie_key
from mitl.datasets.files import Row, read_rows
from mitl.errors import DatasetError, MetricError
from mitl.records import Rating
from mitl.records.similarity import Likeness

if TYPE_CHECKING:
    import pandas as pd  # metrics, which take RatedPairs, do without it

    from mitl.records.frames import Schema

Ids = NDArray[Any]
"""int64 where all are whole numbers, else text."""

METHOD = "sampling_method"
POSITIVE_FROM = 3.0
"""From this score on CxC counts a pair as a match (Parekh et al., Crisscrossed Captions, figure 4)."""
_CAPTION = (re.compile(r"COCO_\w+:sentid:([0-9]{1,18})"), "captions as 'COCO_val2014:sentid:<id>'")
_IMAGE = (re.compile(r"COCO_\w+_([0-9]{12})\.\w+"), "images as 'COCO_val2014_<12 digits>.jpg'")
_FORMS = {"caption": _CAPTION, "image": _IMAGE}
_SCORE = "agg_score"
COLUMNS = {
    Likeness.STS: ("caption1", "caption2"),
    Likeness.SIS: ("image1", "image2"),
    Likeness.SITS: ("image", "caption"),
}
"""The columns of the first and of the second item."""
LAYOUT = {kind: (*sorted(columns), _SCORE, METHOD) for kind, columns in COLUMNS.items()}
"""The columns as the files have them; those of images and captions name the caption first."""

SCORED: Schema = {
    "first": ("str", "id of the first item; of SITS the image"),
    "second": ("str", "id of the second item; of SITS the caption"),
    "score": ("float64", "0 to 5"),
    "method": ("str", "how the pair was sampled, as the file has it; empty where it says nothing"),
}
"""A row for each of a file's, in its order; no two of the same items in the same order."""


def is_cxc_name(side: str, name: str) -> bool:
    """Whether an image or a caption is named in CxC's form."""
    return _FORMS[side][0].fullmatch(name) is not None


def bare_id(side: str, name: str) -> str:
    """COCO's id of an image or a caption that is named in CxC's form; any other name as it is."""
    match = _FORMS[side][0].fullmatch(name)
    return name if match is None else str(int(match[1]))


def cxc_name(side: str, external_id: str, split: str = "val2014") -> str:
    """CxC's name of one of COCO's images or captions.

    Args:
        split: the folder of COCO's images that the image is in.
    """
    return (
        f"COCO_{split}_{int(external_id):012d}.jpg"
        if side == "image"
        else f"COCO_{split}:sentid:{external_id}"
    )


def read_scored(path: Path, kind: Likeness, *, required: Sequence[str] = ()) -> pd.DataFrame:
    """The rows of a file (``SCORED``), items by COCO's ids where they are named in CxC's form, else as they are named.

    Args:
        kind: what the file holds: ``sts_test.csv`` STS, and so on.
        required: further columns that must be there.

    Raises:
        DatasetError: the file is missing, malformed, empty or of another kind, some names are in CxC's form and others
            are not, a score is not from 0 to 5, or a pair is rated twice in the same order.
    """
    import pandas as pd

    what = f"CxC {kind.upper()} scores"
    rows = read_rows(path, what, (*LAYOUT[kind][:3], *required), (METHOD,))
    if not rows:
        raise DatasetError(f"{str(path)!r} holds no rows; it should hold {what}")
    first, second = _ids(rows, kind, path)
    by_id("pair", ((f"{one} × {other}", None) for one, other in zip(first, second, strict=True)), path)
    return pd.DataFrame(
        {
            "first": first,
            "second": second,
            "score": np.array([_score(row, n, path) for n, row in enumerate(rows, start=1)], np.float64),
            "method": [str(row.get(METHOD) or "") for row in rows],
        }
    )


def read_sits(path: Path) -> list[Rating]:
    """Ratings of images and captions in the file's order, under COCO's ids or the data set's own.

    Raises:
        DatasetError: see ``read_scored``.
    """
    scored = read_scored(path, Likeness.SITS, required=(METHOD,))
    columns = (scored[name].tolist() for name in SCORED)
    return [Rating(*row) for row in zip(*columns, strict=True)]


def positives(ratings: Iterable[Rating], threshold: float = POSITIVE_FROM) -> list[tuple[str, str]]:
    """(image id, caption id) of every pair rated at or above the threshold, in tie order."""
    pairs = {
        (rating.image_external_id, rating.caption_external_id)
        for rating in ratings
        if rating.score >= threshold
    }
    key = tie_key(id_kind(id_ for pair in pairs for id_ in pair))
    return sorted(pairs, key=lambda pair: (key(pair[0]), key(pair[1])))


@dataclass(frozen=True, slots=True, eq=False)
class RatedPairs:
    """Scores of pairs, all (P,). For SITS the first item is the image, the second the caption.

    CxC chose the pairs of a modality from each first item's nearest, so that the first item is the query. For SITS the
    paper does not say which item is; its standard deviations (1.3 to 1.5) are those of samples of half of 5,000 images,
    not of half of 25,000 captions.
    """

    kind: Likeness
    first: Ids
    second: Ids
    scores: NDArray[np.float64]

    def __post_init__(self) -> None:
        if not len(self.first) == len(self.second) == len(self.scores):
            raise MetricError(
                f"{len(self.first)} first items, {len(self.second)} second ones and {len(self.scores)} scores; "
                "a rated pair has one of each"
            )
        strange = np.flatnonzero(~((self.scores >= 0) & (self.scores <= 5)))
        if len(strange):
            raise MetricError(
                f"pair {self.first[strange[0]]} × {self.second[strange[0]]} has the score "
                f"{self.scores[strange[0]]:g}, but scores go from 0 to 5"
            )

    def __len__(self) -> int:
        return len(self.scores)

    def pairs(self, threshold: float | None = None) -> tuple[Ids, Ids]:
        """First and second items of the pairs scored at ``threshold`` or above; CxC's own where None."""
        high = self.scores >= (self.kind.positive_from if threshold is None else threshold)
        return self.first[high], self.second[high]


def read_rated_pairs(path: Path, kind: Likeness) -> RatedPairs:
    """The scores in the file's order, under COCO's image and caption ids or the data set's own.

    Raises:
        DatasetError: see ``read_scored``.
    """
    scored = read_scored(path, kind)
    first, second = (_array(scored[name].tolist()) for name in ("first", "second"))
    return RatedPairs(kind, first, second, scored["score"].to_numpy())


def _array(ids: list[str]) -> Ids:
    return np.array(ids, np.int64) if all(map(is_integer_id, ids)) else np.array(ids)


def _ids(rows: Sequence[Row], kind: Likeness, path: Path) -> list[list[str]]:
    """The ids of first and of second items."""
    forms = [_FORMS[side] for side in kind.sides]
    names = [["" if row[column] is None else str(row[column]) for row in rows] for column in COLUMNS[kind]]
    by_name = [
        [pattern.fullmatch(name) for name in side] for (pattern, _), side in zip(forms, names, strict=True)
    ]
    if not any(any(side) for side in by_name):
        for column, side in zip(COLUMNS[kind], names, strict=True):
            for number, name in enumerate(side, start=1):
                if not name.strip():
                    raise DatasetError(f"row {number} of {str(path)!r} names nothing as its {column}")
        return names
    for number in range(len(rows)):
        for column, (_, form), side, matches in zip(COLUMNS[kind], forms, names, by_name, strict=True):
            if matches[number] is None:
                raise DatasetError(
                    f"row {number + 1} of {str(path)!r} names {side[number]!r} as its {column}; CxC writes {form}"
                )
    return [[str(int(match[1])) for match in side if match is not None] for side in by_name]


def _score(row: Row, number: int, path: Path) -> float:
    try:
        score = float(row[_SCORE])
    except (ValueError, TypeError):
        score = float("nan")
    if not 0 <= score <= 5:
        raise DatasetError(
            f"row {number} of {str(path)!r} has the score {row[_SCORE]!r}, but scores go from 0 to 5"
        )
    return score


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
    usual = next((split for split in PREFERRED if split in splits), None)
    return chosen_split(folder, splits, usual if wanted is None else wanted)


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
