"""The figures of a release of ratings, counted once for the manifest, the datasheet and the command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import numpy as np
import pandas as pd

from mitl.judgements.similarity import RaterAgreement
from mitl.positives.rating_input import RatingInput
from mitl.records.similarity import METHODS, SIMILARITY_ROLES, TASKS, Likeness, SimilarityRole


class RatingSummaryCounts(TypedDict):
    """What a release of ratings holds."""

    tasks: Annotated[
        dict[str, dict[str, Any]],
        "sts, sis, sits → rows (of its CSV), pairs, mean, positive_from, positive_share, sd (mean standard deviation "
        "of a pair's ratings), by_method (rows, mean); incomplete (pairs with too few ratings), of them unrated; "
        "agreement (icc1, icc1k, icc2, icc2k, icc3, icc3k, alpha: value, low, high; null where there is none)",
    ]
    ratings: Annotated[int, "ratings in ratings.parquet"]
    ratings_counted: Annotated[int, "those that are part of a pair's score"]
    ratings_repeated: Annotated[int, "those of a pair that its page showed once more; they never count"]
    workers: Annotated[int, "workers in the release"]
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
        "positive_share": _rounded((pairs["score"] >= task.positive_from).mean()),
        "by_method": {
            METHODS[int(str(place))].value: {"rows": len(some), "mean": _rounded(some["score"].mean())}
            for place, some in rows.groupby("method", sort=True)
        },
        "incomplete": len(lacking),
        "unrated": int((lacking["n_ratings"] == 0).sum()),
        "agreement": None if agreed is None else _agreement(agreed),
    }


def _rows(listed: pd.DataFrame, task: Likeness) -> pd.DataFrame:
    return listed[listed["task"] == TASKS.index(task)]


def _agreement(agreed: RaterAgreement) -> dict[str, dict[str, float | None] | None]:
    return {
        name: None
        if found.value is None
        else {"value": _rounded(found.value), "low": _rounded(found.low), "high": _rounded(found.high)}
        for name, found in agreed.estimates.items()
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else round(float(value), 4)
