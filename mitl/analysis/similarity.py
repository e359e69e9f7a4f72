"""Graded similarity looked at: how scores lie by sampling method, positives of a query, words against ratings.

Source: Parekh et al., Crisscrossed Captions, EACL 2021, figures 3 to 5, and table 1 and figure 2 of its appendix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from mitl.core.arrays import Floats
from mitl.records.frames import Schema
from mitl.records.similarity import TASKS, Likeness

RATED: Schema = {
    "split": ("category", "which part of the data set, or which environment the ratings come of"),
    "task": ("int8", "place in Likeness"),
    "first": ("str", "id of the first item; of SITS the image"),
    "second": ("str", "id of the second item; of SITS the caption"),
    "score": ("float64", "0 to 5"),
    "method": ("str", "how the pair came to be rated"),
    "sd": ("float64", "standard deviation of its single ratings; NaN where these are not known"),
}
"""Rated pairs, a row for each order in which a pair was sampled."""

EDGES: Floats = np.linspace(0.0, 5.0, 21)
"""Of the bins of scores: a quarter of a point each."""
DEVIATION_EDGES: Floats = np.linspace(0.0, 2.5, 26)
"""Of the bins of standard deviations; the largest that ratings from 0 to 5 can have is 2.5, or 2.74 of five."""
EVERY_METHOD, EVERY_SPLIT = "all", "all"
RETRIEVAL = {"i2t": Likeness.SITS, "t2i": Likeness.SITS, "t2t": Likeness.STS, "i2i": Likeness.SIS}
"""Retrieval task → the ratings that make its positives."""
SAMPLE = 1000
"""Pairs drawn in figure 5."""


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The scores of one split, task and sampling method, or of all methods together."""

    split: str
    task: Likeness
    method: str
    pairs: int
    unordered: int
    """Pairs whichever order sampled them."""
    mean: float
    positives: int
    """Pairs from the task's threshold on."""
    histogram: tuple[int, ...]
    """Pairs by bins of ``EDGES``."""
    sd: float | None
    """Mean standard deviation of a pair's ratings; None where single ratings are not known."""
    deviations: tuple[int, ...]
    """Pairs by bins of ``DEVIATION_EDGES``; empty where single ratings are not known."""


@dataclass(frozen=True, slots=True)
class QueryPositives:
    """How many rated positives the queries of a retrieval task have, over the queries with a rated pair."""

    split: str
    task: str
    queries: int
    mean: float
    most: int
    histogram: tuple[int, ...]
    """Queries by their number of positives, from 0."""


@dataclass(frozen=True, slots=True, eq=False)
class WordLikeness:
    """The likeness of two captions' words against their rating."""

    split: str
    pairs: int
    pearson: float
    spearman: float
    slope: float
    intercept: float
    """Of the line of best fit over the sample: rating = intercept + slope x likeness."""
    likeness: Floats
    """(n,) cosines of the sample."""
    scores: Floats
    """(n,) ratings of the sample."""


def score_tables(rated: pd.DataFrame) -> list[Scores]:
    """By split and task, each sampling method and then all; splits together at the end where there are several."""
    tables = [table for split, of_split in _by_split(rated) for table in _of_split(split, of_split)]
    if len(dict.fromkeys(table.split for table in tables)) > 1:
        tables += _of_split(EVERY_SPLIT, rated)
    return tables


def _by_split(rated: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """In the order in which the frame names them."""
    return [(str(split), rated[rated["split"] == split]) for split in rated["split"].unique()]


def _of_split(split: str, rated: pd.DataFrame) -> list[Scores]:
    tables = []
    for place, task in enumerate(TASKS):
        of_task = rated[rated["task"] == place]
        methods = sorted(of_task["method"].unique())
        tables += [_scores((split, task, method), of_task[of_task["method"] == method]) for method in methods]
        if len(methods) > 1:
            tables.append(_scores((split, task, EVERY_METHOD), of_task))
    return tables


def _scores(of: tuple[str, Likeness, str], rows: pd.DataFrame) -> Scores:
    split, task, method = of
    score, sd = rows["score"].to_numpy(np.float64), rows["sd"].to_numpy(np.float64)
    deviations = sd[~np.isnan(sd)]
    return Scores(
        split,
        task,
        method,
        pairs=len(rows),
        unordered=_unordered(rows, task),
        mean=float(score.mean()),
        positives=int((score >= task.positive_from).sum()),
        histogram=_counts(score, EDGES),
        sd=float(deviations.mean()) if len(deviations) else None,
        deviations=_counts(deviations, DEVIATION_EDGES) if len(deviations) else (),
    )


def _unordered(rows: pd.DataFrame, task: Likeness) -> int:
    first, second = rows["first"], rows["second"]
    if task.sides[0] == task.sides[1]:
        turned = first > second
        first, second = first.where(~turned, second), second.where(~turned, first)
    pairs = pd.DataFrame({"split": rows["split"], "one": first, "other": second})
    return len(pairs.drop_duplicates())


def _counts(values: Floats, edges: Floats) -> tuple[int, ...]:
    """How many values lie in each bin; those beyond the last edge in the last bin."""
    # A score such as 2.4 is a hair off in binary: what stands on an edge belongs above it.
    counts, _ = np.histogram(np.clip(np.round(values, 9), edges[0], edges[-1]), edges)
    return tuple(counts.tolist())


def positives_of_queries(rated: pd.DataFrame) -> list[QueryPositives]:
    """Figure 4, by split and retrieval task; within a side a pair counts for both of its items, and once."""
    per_task = []
    for split, of_split in _by_split(rated):
        for task, likeness in RETRIEVAL.items():
            rows = of_split[of_split["task"] == TASKS.index(likeness)]
            if not len(rows):
                continue
            query, item = ("second", "first") if task == "t2i" else ("first", "second")
            pairs = rows[[query, item, "score"]].set_axis(["query", "item", "score"], axis=1)
            if likeness.sides[0] == likeness.sides[1]:
                turned = pairs.rename(columns={"query": "item", "item": "query"})
                pairs = pd.concat([pairs, turned[["query", "item", "score"]]])
            is_positive = pairs["score"] >= likeness.positive_from
            positives = pairs[is_positive].drop_duplicates(["query", "item"])["query"].value_counts()
            counts = positives.reindex(pairs["query"].unique(), fill_value=0).to_numpy(np.int64)
            per_task.append(
                QueryPositives(
                    split,
                    task,
                    len(counts),
                    float(counts.mean()),
                    int(counts.max()),
                    tuple(np.bincount(counts).tolist()),
                )
            )
    return per_task


def word_likeness(rated: pd.DataFrame, likeness: Floats) -> list[WordLikeness]:
    """Figure 5, by split.

    Args:
        rated: rows of two captions.
        likeness: (rows,) cosines of their words; NaN where a text is not known.
    """
    fits = []
    for split, rows in _by_split(rated.assign(likeness=likeness)):
        measured = rows[rows["likeness"].notna()]
        if len(measured) < 3 or measured["likeness"].nunique() < 2 or measured["score"].nunique() < 2:
            continue
        drawn = measured.sample(min(SAMPLE, len(measured)), random_state=0)
        near, score = drawn["likeness"].to_numpy(np.float64), drawn["score"].to_numpy(np.float64)
        slope, intercept = np.polyfit(near, score, 1) if len(np.unique(near)) > 1 else (0.0, score.mean())
        fits.append(
            WordLikeness(
                split,
                len(measured),
                float(measured["likeness"].corr(measured["score"])),
                float(measured["likeness"].corr(measured["score"], method="spearman")),
                float(slope),
                float(intercept),
                near,
                score,
            )
        )
    return fits
