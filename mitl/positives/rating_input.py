"""Everything that a release of ratings of similarity is made of, and its figures.

These are counted once for the manifest, the datasheet and the command.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypedDict

import numpy as np
import pandas as pd

from mitl.datasets.cxc import cxc_name, is_cxc_name
from mitl.errors import ReleaseError
from mitl.judgements.rater_model import RaterModel
from mitl.judgements.similarity import ENOUGH, Aggregation, RaterAgreement
from mitl.positives.release_input import MadeOf
from mitl.records.frames import Schema
from mitl.records.similarity import METHODS, SIMILARITY_ROLES, TASKS, Likeness, SamplingMethod, SimilarityRole

SHOWN_ROLES = (SimilarityRole.ASKED, SimilarityRole.REPEATED)
"""Ratings of identical and of random pairs are left out: they check workers, and would tell later ones how."""

GIVEN: Schema = {
    "pair": ("int64", "row of the pair in the database"),
    "worker": ("category", "id on the requester API"),
    "score": ("float64", "0 to 5; NaN unless answered"),
    "outcome": ("int8", "place in Outcome"),
    "role": ("int8", "place in SimilarityRole, one of ``SHOWN_ROLES``"),
    "swapped": ("bool", "whether the right item of the pair was shown first"),
    "active_ms": ("int64", "milliseconds; 0 where nothing was measured"),
    "usable": ("bool", "whether it may count"),
    "counted": ("bool", "whether it is part of the pair's score"),
    "text": (
        "category",
        "in the worker's own words, missing where there are none; the column may be missing too",
    ),
}
"""The ratings that a release shows, in no order that matters."""

_SPLIT = re.compile(r"[\w-]+(\.[\w-]+)*")
_COCO_FILE = re.compile(r"COCO_([a-z]+20\d\d)_\d{12}\b")


@dataclass(frozen=True, slots=True)
class AskedWording:
    """In what words a task was put to people."""

    template: str
    title: str
    levels: tuple[str, ...] = ()
    """What 0, 1, … 5 mean; empty where the template says it in another way."""


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """How ratings of one kind of control came out."""

    role: SimilarityRole
    ratings: int
    figure: float | None
    """Mean score; of repeated pairs the mean distance from the worker's first rating. None without ratings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingInput(MadeOf):
    """What a release of ratings is made of."""

    split: str
    """Part of the files' names."""
    names: Mapping[str, Mapping[int, str]]
    """Side → number → what the item is called in the files."""
    listed: pd.DataFrame
    """``LISTED``."""
    given: pd.DataFrame
    """``GIVEN``."""
    method: Aggregation = Aggregation.MEAN
    min_ratings: int = ENOUGH
    agreements: Mapping[Likeness, RaterAgreement] = field(default_factory=dict)
    fits: Mapping[Likeness, RaterModel] = field(default_factory=dict)
    encoders: Mapping[SamplingMethod, Mapping[str, int]] = field(default_factory=dict)
    """Whose similarities chose pairs, and how many each."""
    asked: Mapping[Likeness, tuple[AskedWording, ...]] = field(default_factory=dict)
    controls: tuple[ControlRecord, ...] = ()
    rule: str = ""
    """Which ratings of controls send a page to a person, in words."""

    @property
    def complete(self) -> pd.DataFrame:
        """The rows of ``listed`` with enough ratings."""
        return self.listed[self.listed["n_ratings"] >= self.min_ratings]

    @property
    def incomplete(self) -> pd.DataFrame:
        """The rows of ``listed`` with too few."""
        return self.listed[self.listed["n_ratings"] < self.min_ratings]


def check_split(split: str) -> None:
    """ReleaseError where the name of a split cannot be part of a file's."""
    if not _SPLIT.fullmatch(split):
        raise ReleaseError(
            f"the split {split!r} would be part of file names; use letters, digits, '-', '_' and single dots"
        )


def own_names(side: str, external_ids: Mapping[int, str]) -> dict[int, str]:
    """Items by their own ids.

    Raises:
        ReleaseError: one is written as CxC writes COCO's, so that readers would take it for another item.
    """
    for external in external_ids.values():
        if is_cxc_name(side, external):
            raise ReleaseError(
                f"the {side} id {external!r} is written as CxC names COCO's items, whose numbers alone are their ids; "
                "load the data set under COCO's own ids (`mitl init --dataset coco`), or give its items other ones"
            )
    return dict(external_ids)


def coco_names(
    image_ids: Mapping[int, str],
    caption_ids: Mapping[int, str],
    image_of: Mapping[int, int],
    places: Mapping[int, str],
) -> dict[str, dict[int, str]]:
    """COCO's items as CxC names them, by side.

    Args:
        image_of: caption → its image.
        places: image → its file's path or address, which tells the folder of COCO's that it is in; where it does not,
            val2014 stands for it, where CxC's are.
    """
    folders = {image: match[1] for image, place in places.items() if (match := _COCO_FILE.search(place))}
    captions = {
        number: cxc_name("caption", external, folders.get(image_of.get(number, -1), "val2014"))
        for number, external in caption_ids.items()
    }
    images = {
        number: cxc_name("image", external, folders.get(number, "val2014"))
        for number, external in image_ids.items()
    }
    return {"image": images, "caption": captions}


class RatingSummaryCounts(TypedDict):
    """What a release of ratings holds."""

    tasks: Annotated[
        dict[str, dict[str, Any]],
        "sts, sis, sits → rows (of its CSV), pairs, mean, positive_from, positive_share, sd (mean standard deviation "
        "of a pair's ratings), by_method (rows, mean); incomplete (pairs with too few ratings), of them unrated; "
        "agreement (icc1, icc1k, icc2, icc2k, icc3, icc3k, alpha: value, low, high; null where there is none)",
    ]
    ratings: Annotated[int, "ratings in ratings.parquet"]
    ratings_counted: Annotated[int, "those that count towards a pair's score, of pairs left out too"]
    ratings_repeated: Annotated[int, "those of a pair that its page showed once more; they never count"]
    workers: Annotated[int, "workers with ratings in the release"]
    texts: Annotated[
        dict[str, Any] | None,
        "with `--with-texts`: texts released, texts_changed, removed (by kind); null without it",
    ]


@dataclass(frozen=True, slots=True)
class RatingSummary:
    """What a release holds."""

    counts: RatingSummaryCounts
    median_active_s: float | None
    """Of a rating."""
    largest_share: float | None
    """Of the ratings that the busiest worker gave."""


def summarise_ratings(data: RatingInput) -> RatingSummary:
    """Count it."""
    listed = set(data.listed["pair"].tolist())
    given = data.given[[pair in listed for pair in data.given["pair"].tolist()]]
    times = given.loc[given["active_ms"] > 0, "active_ms"]
    by_worker = given["worker"].value_counts(sort=False)
    counts = RatingSummaryCounts(
        tasks={task.value: _of_task(data, task) for task in TASKS if _rows(data.listed, task).size},
        ratings=len(given),
        ratings_counted=int(given["counted"].sum()),
        ratings_repeated=int((given["role"] == SIMILARITY_ROLES.index(SimilarityRole.REPEATED)).sum()),
        workers=int((by_worker > 0).sum()),
        texts=None if data.texts is None else data.texts.as_json(),
    )
    return RatingSummary(
        counts,
        float(times.median()) / 1000 if len(times) else None,
        float(by_worker.max() / by_worker.sum()) if len(given) else None,
    )


def _of_task(data: RatingInput, task: Likeness) -> dict[str, Any]:
    rows, lacking = _rows(data.complete, task), _rows(data.incomplete, task).drop_duplicates("pair")
    pairs = rows.drop_duplicates("pair")
    agreed = data.agreements.get(task)
    return {
        "rows": len(rows),
        "pairs": len(pairs),
        "mean": _rounded(pairs["score"].mean()),
        "sd": _rounded(pairs["sd"].mean()),
        "positive_from": task.positive_from,
        "positive_share": _rounded(positive_share(pairs, task)),
        "by_method": {
            METHODS[int(str(place))].value: {"rows": len(some), "mean": _rounded(some["score"].mean())}
            for place, some in rows.groupby("method", sort=True)
        },
        "incomplete": len(lacking),
        "unrated": int((lacking["n_ratings"] == 0).sum()),
        "agreement": None if agreed is None else _agreement(agreed),
    }


def as_released(score: float) -> float:
    """To two decimals, as CxC's."""
    return round(score, 2)


def positive_share(rows: pd.DataFrame, task: Likeness) -> float:
    """The share of the rows whose score is a match as released; NaN without rows."""
    return float((rows["score"].map(as_released) >= task.positive_from).mean())


def _rows(listed: pd.DataFrame, task: Likeness) -> pd.DataFrame:
    return listed[listed["task"] == TASKS.index(task)]


def _agreement(agreed: RaterAgreement) -> dict[str, dict[str, float | None] | None]:
    return {
        name: None
        if estimate.value is None
        else {
            "value": _rounded(estimate.value),
            "low": _rounded(estimate.low),
            "high": _rounded(estimate.high),
        }
        for name, estimate in agreed.estimates.items()
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else round(float(value), 4)
