"""CxC's human scores of image-caption pairs (semantic image-text similarity, SITS), from its official CSV."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from mitl.datasets.assembling import check_unique
from mitl.datasets.files import read_rows
from mitl.errors import DatasetError
from mitl.records import Rating

WHAT = "CxC SITS ratings"
COLUMNS = ("caption", "image", "agg_score", "sampling_method")
POSITIVE_FROM = 3.0
"""From this score on CxC counts a pair as a match (Parekh et al., Crisscrossed Captions, figure 4)."""
_CAPTION = re.compile(r"COCO_\w+:sentid:([0-9]+)")
_IMAGE = re.compile(r"COCO_\w+_([0-9]{12})\.\w+")


def read_sits(path: Path) -> list[Rating]:
    """Ratings in the file's order, under COCO's image and caption ids.

    Raises:
        DatasetError: the file is missing or malformed, a name is not in CxC's form, a score is not from 0 to
            5, or a pair is rated twice.
    """
    rows = read_rows(path, WHAT, COLUMNS)
    ratings = []
    for number, row in enumerate(rows, start=1):
        caption, image = _CAPTION.fullmatch(str(row["caption"])), _IMAGE.fullmatch(str(row["image"]))
        if caption is None or image is None:
            name = row["caption"] if caption is None else row["image"]
            raise DatasetError(
                f"row {number} of {str(path)!r} names {name!r}; CxC writes captions as "
                "'COCO_val2014:sentid:<id>' and images as 'COCO_val2014_<12 digits>.jpg'"
            )
        score = _score(row["agg_score"])
        if score is None:
            raise DatasetError(
                f"row {number} of {str(path)!r} has the score {row['agg_score']!r}, but scores go from 0 to 5"
            )
        method = row["sampling_method"]
        ratings.append(Rating(str(int(image[1])), str(int(caption[1])), score, method))
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


def _score(text: str) -> float | None:
    try:
        score = float(text)
    except ValueError:
        return None
    return score if 0 <= score <= 5 else None
