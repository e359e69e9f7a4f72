"""Ratings of similarity as frames, from workers with known ways."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mitl.judgements.similarity import LISTED, aggregate, agreement, counting, listed
from mitl.positives.rating_input import GIVEN, RatingInput
from mitl.records import Environment, IdKind, Outcome
from mitl.records.frames import frame
from mitl.records.similarity import (
    METHODS,
    RATINGS,
    SAMPLES,
    SIMILARITY_ROLES,
    TASKS,
    Likeness,
    SamplingMethod,
    SimilarityRole,
)

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


SALT = b"0123456789abcdef"
NAMES = {
    "image": {n: f"img {n}, left.jpg" for n in range(1, 9)},
    "caption": {n: f"{n}" for n in range(1, 31)},
}
"""Images with ids that a CSV has to quote."""


def sample_frame(rows):
    """``SAMPLES`` of (pair, first, second, method)."""
    return frame(
        SAMPLES,
        {
            "pair": [row[0] for row in rows],
            "task": [TASKS.index(row[3].task) for row in rows],
            "first": [row[1] for row in rows],
            "second": [row[2] for row in rows],
            "method": [METHODS.index(row[3]) for row in rows],
            "encoder": ["words" if row[3].phase == 1 else "" for row in rows],
            "rank": [1 for _ in rows],
            "similarity": [0.5 for _ in rows],
        },
    )


def rated_world(seed=0, *, raters=5, shuffle=0, **changes):
    """A release of twelve pairs of captions, six of images and eight across, of which the last pair lacks two ratings.

    Args:
        shuffle: of the order in which the rows come; the release must not show it.
    """
    rng = np.random.default_rng(seed)
    rows = [(n, n, n + 12, SamplingMethod.C2C_ISIM) for n in range(1, 13)]
    rows.append((1, 13, 1, SamplingMethod.C2C_ISIM))
    rows += [(20 + n, n, n + 1, SamplingMethod.I2I_CSIM) for n in range(1, 7)]
    rows += [(30 + n, n, 2 * n, SamplingMethod.C2I_ORIGINAL) for n in range(1, 9)]
    given = []
    for row in [rows[n] for n in range(len(rows)) if n != 12]:
        true = rng.uniform(0, 5)
        for worker in range(raters if row[0] != 38 else raters - 2):
            score = round(float(np.clip(true + rng.normal(0, 0.4), 0, 5)), 2)
            given.append(
                {
                    "pair": row[0],
                    "task": row[3].task,
                    "worker": f"AWORKER{worker}",
                    "score": score,
                    "active_ms": int(rng.integers(2_000, 40_000)),
                    "text": "the same dog" if worker == 1 else None,
                }
            )
    given.append(given[0] | {"role": SimilarityRole.REPEATED, "place": 4})
    given.append(given[1] | {"worker": "AWORKER9", "outcome": SKIPPED, "score": np.nan, "active_ms": 0})
    given.append(given[2] | {"worker": "AWORKER8", "usable": False})
    ratings = rating_frame(given).assign(text=pd.Categorical([row["text"] for row in given]))
    counted = counting(ratings)
    scored = aggregate(counted)
    kept = set(zip(counted["assignment"], counted["place"], strict=True))
    shown = ratings.assign(
        counted=[key in kept for key in zip(ratings["assignment"], ratings["place"], strict=True)]
    )[list(GIVEN)]
    orders = listed(sample_frame(rows), scored.scores)
    if shuffle:
        shown = shuffled_frame(shown, shuffle)
    fields = {
        "name": "ratings",
        "dataset": "town",
        "dataset_sha256": "7" * 64,
        "environment": Environment.SANDBOX,
        "id_kind": IdKind.STRING,
        "split": "test",
        "names": NAMES,
        "listed": orders[list(LISTED)],
        "given": shown,
        "salt": SALT,
        "agreements": {
            task: agreement(counted[counted["task"] == place])
            for place, task in enumerate(TASKS)
            if (counted["task"] == place).any()
        },
        "encoders": {SamplingMethod.C2C_ISIM: {"words": 12}, SamplingMethod.I2I_CSIM: {"words": 6}},
    }
    return RatingInput(**(fields | changes))
