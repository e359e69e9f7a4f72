"""CxC's human scores of the likeness of texts (STS), of images (SIS) and of both (SITS), from its official CSVs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mitl.datasets.assembling import check_unique
from mitl.datasets.files import Row, read_rows
from mitl.errors import DatasetError, MetricError
from mitl.records import Rating
from mitl.records.similarity import Likeness

Ids = NDArray[np.int64]

WHAT = "CxC SITS ratings"
COLUMNS = ("caption", "image", "agg_score", "sampling_method")
POSITIVE_FROM = 3.0
"""From this score on CxC counts a pair as a match (Parekh et al., Crisscrossed Captions, figure 4)."""
_CAPTION = (re.compile(r"COCO_\w+:sentid:([0-9]+)"), "captions as 'COCO_val2014:sentid:<id>'")
_IMAGE = (re.compile(r"COCO_\w+_([0-9]{12})\.\w+"), "images as 'COCO_val2014_<12 digits>.jpg'")
_SCORE = "agg_score"


def read_sits(path: Path) -> list[Rating]:
    """Ratings in the file's order, under COCO's image and caption ids.

    Raises:
        DatasetError: the file is missing or malformed, a name is not in CxC's form, a score is not from 0 to
            5, or a pair is rated twice.
    """
    rows = read_rows(path, WHAT, COLUMNS)
    ratings = []
    for number, row in enumerate(rows, start=1):
        caption, image = _CAPTION[0].fullmatch(str(row["caption"])), _IMAGE[0].fullmatch(str(row["image"]))
        if caption is None or image is None:
            name = row["caption"] if caption is None else row["image"]
            raise DatasetError(
                f"row {number} of {str(path)!r} names {name!r}; CxC writes captions as "
                "'COCO_val2014:sentid:<id>' and images as 'COCO_val2014_<12 digits>.jpg'"
            )
        score = _score(row, number, path)
        ratings.append(Rating(str(int(image[1])), str(int(caption[1])), score, row["sampling_method"]))
    pairs = [f"{rating.image_external_id} × {rating.caption_external_id}" for rating in ratings]
    check_unique("pair", pairs, path)
    return ratings


def positives(ratings: Iterable[Rating], threshold: float = POSITIVE_FROM) -> list[tuple[str, str]]:
    """(image id, caption id) of every pair rated at or above the threshold, in tie order."""
    pairs = {
        (int(rating.image_external_id), int(rating.caption_external_id))
        for rating in ratings
        if rating.score >= threshold
    }
    return [(str(image_id), str(caption_id)) for image_id, caption_id in sorted(pairs)]


@dataclass(frozen=True, slots=True, eq=False)
class RatedPairs:
    """CxC's scores of pairs, all (P,). For SITS the first item is the image, the second the caption.

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


_SIDES = {
    Likeness.STS: (("caption1", _CAPTION), ("caption2", _CAPTION)),
    Likeness.SIS: (("image1", _IMAGE), ("image2", _IMAGE)),
    Likeness.SITS: (("image", _IMAGE), ("caption", _CAPTION)),
}


def read_rated_pairs(path: Path, kind: Likeness) -> RatedPairs:
    """The scores in the file's order, under COCO's image and caption ids.

    Args:
        kind: what the file holds: ``sts_test.csv`` STS, and so on.

    Raises:
        DatasetError: the file is missing or malformed or of another kind, a name is not in CxC's form, a score is not
            from 0 to 5, or a pair is rated twice in the same order.
    """
    (first, first_form), (second, second_form) = _SIDES[kind]
    rows = read_rows(path, f"CxC {kind.upper()} scores", (first, second, _SCORE))
    if not rows:
        raise DatasetError(f"{str(path)!r} holds no rows; it should hold CxC {kind.upper()} scores")
    ids = [
        np.array([_id(row, n, column, form, path) for n, row in enumerate(rows, start=1)], dtype=np.int64)
        for column, form in ((first, first_form), (second, second_form))
    ]
    scores = np.array([_score(row, n, path) for n, row in enumerate(rows, start=1)])
    check_unique(
        "pair",
        [f"{one} × {other}" for one, other in zip(*(side.tolist() for side in ids), strict=True)],
        path,
    )
    return RatedPairs(kind, ids[0], ids[1], scores)


def _id(row: Row, number: int, column: str, form: tuple[re.Pattern[str], str], path: Path) -> int:
    pattern, wanted = form
    found = pattern.fullmatch(str(row[column]))
    if found is None:
        raise DatasetError(
            f"row {number} of {str(path)!r} names {row[column]!r} as its {column}; CxC writes {wanted}"
        )
    return int(found[1])


def _score(row: Row, number: int, path: Path) -> float:
    try:
        score = float(row[_SCORE])
    except ValueError:
        score = float("nan")
    if not 0 <= score <= 5:
        raise DatasetError(
            f"row {number} of {str(path)!r} has the score {row[_SCORE]!r}, but scores go from 0 to 5"
        )
    return score
