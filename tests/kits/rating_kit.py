"""Ratings of similarity as frames, from workers with known ways."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mitl.records import Outcome
from mitl.records.frames import frame
from mitl.records.similarity import RATINGS, SIMILARITY_ROLES, TASKS, Likeness, SimilarityRole

ANSWERED, SKIPPED = Outcome.ANSWERED, Outcome.SKIPPED


def rating_frame(rows, task=Likeness.STS):
    """``RATINGS`` of dictionaries with at least ``pair``, ``worker`` and ``score``, as they came in."""
    outcomes = list(Outcome)
    return frame(
        RATINGS,
        {
            "pair": [row["pair"] for row in rows],
            "task": [TASKS.index(row.get("task", task)) for row in rows],
            "worker": [row["worker"] for row in rows],
            "score": [row["score"] for row in rows],
            "outcome": [outcomes.index(row.get("outcome", ANSWERED)) for row in rows],
            "role": [SIMILARITY_ROLES.index(row.get("role", SimilarityRole.ASKED)) for row in rows],
            "swapped": [False for _ in rows],
            "hit": [row.get("hit", 1) for row in rows],
            "assignment": [row.get("assignment", n) for n, row in enumerate(rows)],
            "place": [row.get("place", 1) for row in rows],
            "active_ms": [row.get("active_ms", 0) for row in rows],
            "usable": [row.get("usable", True) for row in rows],
        },
    )


def plain_ratings(table, task=Likeness.STS):
    """``RATINGS`` of a (pairs, workers) table; NaN where a worker did not rate a pair."""
    return rating_frame(
        [
            {"pair": pair, "worker": f"W{worker:03}", "score": float(score), "task": task}
            for pair, row in enumerate(table, start=1)
            for worker, score in enumerate(row)
            if not np.isnan(score)
        ]
    )


def planted(n_pages=60, n_raters=30, *, seed=0, noise=0.5, per_page=10, raters_of_page=5):
    """Pages of pairs rated by people with offsets and scales of their own.

    Returns:
        (I,) true scores, (R,) offsets, (R,) scales, (I, R) ratings with NaN where there is none.
    """
    rng = np.random.default_rng(seed)
    true = np.clip(rng.normal(2.4, 1.3, n_pages * per_page), 0, 5)
    offsets, scales = rng.normal(0, 0.5, n_raters), np.exp(rng.normal(0, 0.25, n_raters))
    table = np.full((len(true), n_raters), np.nan)
    for page in range(n_pages):
        rows = slice(page * per_page, (page + 1) * per_page)
        for rater in rng.choice(n_raters, raters_of_page, replace=False):
            said = 2.4 + offsets[rater] + scales[rater] * (true[rows] - 2.4) + rng.normal(0, noise, per_page)
            table[rows, rater] = np.round(np.clip(said, 0, 5), 2)
    return true, offsets, scales, table


def shuffled_frame(ratings: pd.DataFrame, seed: int) -> pd.DataFrame:
    """The same rows in another order."""
    return ratings.iloc[np.random.default_rng(seed).permutation(len(ratings))]
