"""CxC's human scores of the likeness of two texts, two images, or an image and a text, from its official CSVs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from mitl.datasets.assembling import check_unique
from mitl.datasets.files import Row, read_rows
from mitl.errors import DatasetError
from mitl.metrics.crisscrossed import Likeness, RatedPairs

_CAPTION = (re.compile(r"COCO_\w+:sentid:([0-9]+)"), "captions as 'COCO_val2014:sentid:<id>'")
_IMAGE = (re.compile(r"COCO_\w+_([0-9]{12})\.\w+"), "images as 'COCO_val2014_<12 digits>.jpg'")
_SCORE = "agg_score"
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
