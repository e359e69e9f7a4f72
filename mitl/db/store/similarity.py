"""Graded similarity: which pairs were sampled to be rated, and every rating that people gave."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from mitl.db.models import (
    Assignment,
    Hit,
    PairRow,
    SimilarityAnswer,
    SimilarityItem,
    SimilaritySample,
    Worker,
)
from mitl.db.store.items import pair_sides
from mitl.db.store.proposals import ensure_pairs
from mitl.db.store.statements import KEPT, add_rows, at_place, chunks, query_by_worker, query_hits, table_of
from mitl.records import Environment, Outcome, Pair
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


def sides_of(session: Session, task: Likeness) -> tuple[int, int]:
    """The rows of the sides of the first and of the second item."""
    image, caption = pair_sides(session)
    side_of = {"image": image, "caption": caption}
    first, second = task.sides
    return side_of[first], side_of[second]


def ensure_similarity_pairs(
    session: Session, task: Likeness, first: np.ndarray, second: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of these pairs, made where they are not there yet, and whether each is kept the other way round.

    Two items of one side are one pair, the smaller number left; an image stands left of a caption.

    Args:
        first, second: (P,) numbers of items within their sides.

    Returns:
        (P,) rows of pairs, and (P,) whether the first item is the pair's right one.
    """
    swapped = first > second if task.sides[0] == task.sides[1] else np.zeros(len(first), np.bool_)
    left, right = np.where(swapped, second, first).tolist(), np.where(swapped, first, second).tolist()
    pairs = [Pair(*pair) for pair in zip(left, right, strict=True)]
    rows = ensure_pairs(session, pairs, sides_of(session, task))
    return np.array([rows[pair] for pair in pairs], np.int64), swapped


def add_samples(session: Session, samples: pd.DataFrame) -> int:
    """Write down what was sampled and is not there yet; returns how many rows are new.

    Args:
        samples: ``SAMPLES`` without ``pair``.
    """
    query = select(
        SimilaritySample.pair_id, SimilaritySample.swapped, SimilaritySample.method, SimilaritySample.encoder
    )
    stored = {
        (pair, swapped, method.value, encoder) for pair, swapped, method, encoder in session.execute(query)
    }
    n_new = 0
    for place, of_task in samples.groupby("task", sort=True):
        pairs, swapped = ensure_similarity_pairs(
            session, TASKS[int(str(place))], of_task["first"].to_numpy(), of_task["second"].to_numpy()
        )
        columns = (of_task[name].tolist() for name in ("method", "encoder", "rank", "similarity"))
        rows = zip(pairs.tolist(), swapped.tolist(), *columns, strict=True)
        n_new += add_rows(
            session,
            SimilaritySample,
            (
                {
                    "pair_id": pair,
                    "swapped": turned,
                    "method": METHODS[method],
                    "encoder": encoder,
                    "rank": rank or None,
                    "similarity": None if np.isnan(similarity) else similarity,
                }
                for pair, turned, method, encoder, rank, similarity in rows
                if (pair, turned, METHODS[method].value, encoder) not in stored
            ),
        )
    return n_new


def samples(session: Session) -> pd.DataFrame:
    """All that was sampled (``SAMPLES``), in the order in which it was."""
    query = (
        select(SimilaritySample.__table__, PairRow.left_id, PairRow.right_id)
        .join(PairRow, PairRow.id == SimilaritySample.pair_id)
        .order_by(SimilaritySample.id)
    )
    rows = table_of(session, query)
    swapped = rows["swapped"].to_numpy(np.bool_)
    methods = [SamplingMethod(method) for method in rows["method"]]
    return frame(
        SAMPLES,
        {
            "pair": rows["pair_id"],
            "task": [TASKS.index(method.task) for method in methods],
            "first": np.where(swapped, rows["right_id"], rows["left_id"]),
            "second": np.where(swapped, rows["left_id"], rows["right_id"]),
            "method": [METHODS.index(method) for method in methods],
            "encoder": rows["encoder"],
            "rank": rows["rank"].fillna(0).astype("int32"),
            "similarity": rows["similarity"].astype("float64"),
        },
    )


def ratings(session: Session, environment: Environment) -> pd.DataFrame:
    """Every answer of an environment (``RATINGS``), controls among them, by submission and place."""
    return _ratings(session, Worker.environment == environment)


def ratings_beside(session: Session, worker_id: int) -> pd.DataFrame:
    """A worker's answers and those of all others on the same pairs (``RATINGS``)."""
    pairs = (
        select(SimilarityItem.pair_id)
        .join(Assignment, Assignment.hit_id == SimilarityItem.hit_id)
        .where(Assignment.worker_id == worker_id)
    )
    environment = select(Worker.environment).where(Worker.id == worker_id).scalar_subquery()
    return _ratings(session, Worker.environment == environment, SimilarityItem.pair_id.in_(pairs))


def ratings_of(session: Session, environment: Environment, hit_ids: Sequence[int]) -> pd.DataFrame:
    """All answers on these HITs, and on others of the environment that have one of their random pairs (``RATINGS``)."""
    random = SimilarityItem.role == SimilarityRole.RANDOM
    query = query_hits(environment, SimilarityItem.hit_id).join(
        SimilarityItem, SimilarityItem.hit_id == Hit.id
    )
    hits = set(hit_ids)
    for chunk in chunks(hit_ids):
        pairs = select(SimilarityItem.pair_id).where(SimilarityItem.hit_id.in_(chunk), random)
        hits.update(session.scalars(query.where(random, SimilarityItem.pair_id.in_(pairs))))
    parts = [
        _ratings(session, SimilarityItem.hit_id.in_(chunk), Worker.excluded_at.is_(None))
        for chunk in chunks(sorted(hits))
    ]
    return pd.concat(parts, ignore_index=True) if parts else frame(RATINGS, dict.fromkeys(RATINGS, ()))


def _ratings(session: Session, *conditions: ColumnElement[bool]) -> pd.DataFrame:
    query = (
        select(
            SimilarityItem.pair_id,
            SimilarityItem.task,
            Worker.mturk_worker_id,
            SimilarityAnswer.score,
            SimilarityAnswer.outcome,
            SimilarityItem.role,
            SimilarityItem.swapped,
            SimilarityItem.hit_id,
            SimilarityAnswer.assignment_id,
            SimilarityAnswer.place,
            SimilarityAnswer.active_ms,
            Assignment.decision,
            Worker.excluded_at,
        )
        .join(Assignment, Assignment.id == SimilarityAnswer.assignment_id)
        .join(Worker, Worker.id == Assignment.worker_id)
        .join(SimilarityItem, at_place(SimilarityItem, SimilarityAnswer))
        .where(*conditions)
        .order_by(SimilarityAnswer.assignment_id, SimilarityAnswer.place)
    )
    rows = table_of(session, query)
    if rows.empty:
        return frame(RATINGS, dict.fromkeys(RATINGS, ()))
    outcomes = tuple(Outcome)
    answered = frame(
        RATINGS,
        {
            "pair": rows["pair_id"],
            "task": [TASKS.index(task) for task in rows["task"]],
            "worker": rows["mturk_worker_id"],
            "score": rows["score"].astype("float64"),
            "outcome": [outcomes.index(outcome) for outcome in rows["outcome"]],
            "role": [SIMILARITY_ROLES.index(role) for role in rows["role"]],
            "swapped": rows["swapped"].astype("bool"),
            "hit": rows["hit_id"],
            "assignment": rows["assignment_id"],
            "place": rows["place"],
            "active_ms": rows["active_ms"].fillna(0).astype("int64"),
            # A column of times and of nothing holds NaT for nothing.
            "usable": rows["decision"].isin(KEPT) & rows["excluded_at"].isna(),
        },
    )
    # Where a page is asked again, a worker may meet a pair once more; five raters are five people.
    counts = (
        answered["usable"]
        & answered["score"].notna()
        & (answered["role"] == SIMILARITY_ROLES.index(SimilarityRole.ASKED))
    )
    answered.loc[answered[counts].duplicated(["worker", "pair"]).loc[lambda later: later].index, "usable"] = (
        False
    )
    return answered


def comments(session: Session, environment: Environment) -> pd.DataFrame:
    """What workers wrote beside their ratings: ``assignment``, ``place`` and ``text``, which is never empty."""
    query = (
        query_by_worker(
            environment, SimilarityAnswer.assignment_id, SimilarityAnswer.place, SimilarityAnswer.text
        )
        .join(SimilarityAnswer, SimilarityAnswer.assignment_id == Assignment.id)
        .where(SimilarityAnswer.text.is_not(None), SimilarityAnswer.text != "")
        .order_by(SimilarityAnswer.assignment_id, SimilarityAnswer.place)
    )
    return table_of(session, query).rename(columns={"assignment_id": "assignment"})
