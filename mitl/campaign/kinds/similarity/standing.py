"""What was sampled and rated in an environment, taken together; and as a table for people's own programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mitl.core.formats import csv_bytes
from mitl.crowd.context import Context
from mitl.db.store import items as item_store
from mitl.db.store import similarity as similarity_store
from mitl.judgements.similarity import AggregatedRatings, Aggregation, aggregate, counting, listed
from mitl.records.similarity import METHODS, TASKS, Likeness

COLUMNS = ("task", "first", "second", "sampling_method", "score", "sd", "ratings")
"""Of the CSV: a row for each sampled order, those without ratings with an empty score."""


@dataclass(frozen=True, slots=True)
class TaskStanding:
    """What was sampled and rated in an environment."""

    samples: pd.DataFrame
    """``SAMPLES``."""
    ratings: pd.DataFrame
    """``RATINGS``."""
    counted: pd.DataFrame
    """The rows of ``RATINGS`` that count."""
    aggregated: AggregatedRatings
    listed: pd.DataFrame
    """``LISTED``: every sampled order with its score."""
    names: Mapping[str, Mapping[int, str]]
    """Side → number → external id."""

    def of(self, task: Likeness) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The ratings that count and the sampled orders of a task."""
        place = TASKS.index(task)
        return self.counted[self.counted["task"] == place], self.listed[self.listed["task"] == place]

    def named(self, task: Likeness, rows: pd.DataFrame) -> list[tuple[str, str]]:
        """The external ids of first and second items of some rows of ``listed``."""
        first, second = (self.names[side] for side in task.sides)
        return [
            (first[one], second[other])
            for one, other in zip(rows["first"].tolist(), rows["second"].tolist(), strict=True)
        ]


def standing(context: Context, method: Aggregation = Aggregation.MEAN) -> TaskStanding:
    """Read what was sampled and rated, and take it together."""
    session = context.session
    samples = similarity_store.samples(session)
    ratings = similarity_store.ratings(session, context.environment)
    counted = counting(ratings)
    aggregated = aggregate(counted, method)
    sides = item_store.id_maps(session, item_store.dataset(session).id)
    return TaskStanding(
        samples,
        ratings,
        counted,
        aggregated,
        listed(samples, aggregated.scores),
        {
            side: {number: name for name, number in ids.items()}
            for side, ids in zip(("image", "caption"), sides, strict=True)
        },
    )


def scores_csv(known: TaskStanding, tasks: Sequence[Likeness]) -> bytes:
    """The sampled orders of these tasks with their scores (``COLUMNS``), unrounded but for the fourth decimal."""
    rows: list[Sequence[object]] = [COLUMNS]
    for task in tasks:
        orders = known.of(task)[1]
        values = (orders[name].tolist() for name in ("method", "score", "sd", "n_ratings"))
        for names, method, score, sd, count in zip(known.named(task, orders), *values, strict=True):
            numbers = ("" if np.isnan(value) else f"{value:.4f}" for value in (score, sd))
            rows.append((task.value, *names, METHODS[method].value, *numbers, count))
    return csv_bytes(rows)
