"""Pages of graded similarity: what stands on them, what workers gave there, and what is to be asked again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from mitl.db.base import values
from mitl.db.models import Assignment, Batch, Hit, PairRow, SimilarityAnswer, SimilarityItem, Worker
from mitl.db.store.hits import LIVE_STATES, StoredHit, hits, replaced_by
from mitl.db.store.parses import Submissions
from mitl.db.store.similarity import ensure_similarity_pairs
from mitl.db.store.statements import KEPT, Wide, add_rows, at_place, query_by_worker, query_hits, rows_among
from mitl.records import Environment, HitState
from mitl.records.questions import MOST_TRIES
from mitl.records.similarity import SIMILARITY, GivenRating, Likeness, SimilarityQuestion, SimilarityRole

TwoItems = tuple[int, int]
"""The numbers of a pair's items, left and right."""


@dataclass(frozen=True, slots=True)
class LackingHit:
    """A closed HIT without a successor, with those pairs that too few workers have rated of its page, or of the page
    that was asked first where it asks again."""

    hit: StoredHit
    missing: int
    """Workers whose usable ratings are still wanted; of the pair that lacks most."""
    questions: tuple[SimilarityQuestion, ...]
    """As they stand on that page, by place."""
    most: int
    """Places of that batch's fullest page, which is what its reward pays."""


def add_items(session: Session, items: Mapping[int, Sequence[SimilarityQuestion]]) -> None:
    """Write down what stands on these HITs, by their rows; controls' pairs are made where they are not there yet."""
    of_task: dict[Likeness, set[TwoItems]] = defaultdict(set)
    for page in items.values():
        for item in page:
            of_task[item.task].add(item.pair)
    rows: dict[tuple[Likeness, TwoItems], int] = {}
    for task, asked in of_task.items():
        pairs = sorted(asked)
        numbers = np.array(pairs, np.int64)
        ids, _ = ensure_similarity_pairs(session, task, numbers[:, 0], numbers[:, 1])
        rows |= {(task, pair): row for pair, row in zip(pairs, ids.tolist(), strict=True)}
    add_rows(
        session,
        SimilarityItem,
        (
            values(SimilarityItem, item, hit_id=hit_id, pair_id=rows[item.task, item.pair])
            for hit_id, page in items.items()
            for item in page
        ),
    )


def questions(session: Session, hit_ids: Sequence[int]) -> dict[int, list[SimilarityQuestion]]:
    """What stands on these HITs, by place; nothing on a HIT that asks something else."""
    by_hit: dict[int, list[SimilarityQuestion]] = {hit_id: [] for hit_id in hit_ids}
    query = (
        select(
            SimilarityItem.hit_id,
            SimilarityItem.place,
            SimilarityItem.task,
            SimilarityItem.role,
            PairRow.left_id,
            PairRow.right_id,
            SimilarityItem.swapped,
        )
        .join(PairRow, PairRow.id == SimilarityItem.pair_id)
        .order_by(SimilarityItem.hit_id, SimilarityItem.place)
    )
    for row in rows_among(session, query, SimilarityItem.hit_id, hit_ids):
        by_hit[row[0]].append(SimilarityQuestion(*row[1:]))
    return by_hit


def pairs_on_pages(
    session: Session,
    environment: Environment,
    task: Likeness,
    roles: Sequence[SimilarityRole] = (SimilarityRole.ASKED,),
) -> set[TwoItems]:
    """The pairs of a task that stand on HITs of an environment in these roles; also where the HIT is closed."""
    query = (
        query_hits(environment, PairRow.left_id, PairRow.right_id)
        .join(SimilarityItem, SimilarityItem.hit_id == Hit.id)
        .join(PairRow, PairRow.id == SimilarityItem.pair_id)
        .where(SimilarityItem.role.in_(roles), SimilarityItem.task == task)
        .distinct()
    )
    return {(left, right) for left, right in session.execute(query)}


STORED = Submissions(SIMILARITY, SimilarityItem, SimilarityAnswer)


def answers(session: Session, assignment_ids: Sequence[int]) -> dict[int, list[GivenRating]]:
    """What these submissions say, by place."""
    return {
        id_: [GivenRating(row.place, row.outcome, row.score, row.text or "", row.active_ms) for row in rows]
        for id_, rows in STORED.rows(session, assignment_ids).items()
    }


Rated = tuple[Likeness, TwoItems]
"""A pair of a task."""


def usable_raters(session: Session, environment: Environment) -> dict[Rated, int]:
    """How many different workers have rated each pair usably; ratings of controls do not count."""
    return _counted(session, _given(environment, Assignment.worker_id, *_IS_USABLE))


def raters_of(
    session: Session, environment: Environment, pairs: Collection[Rated]
) -> dict[Rated, frozenset[str]]:
    """Those of these pairs that were rated usably → the workers, by their ids on the requester API."""
    raters: dict[Rated, set[str]] = defaultdict(set)
    query = _given(environment, Worker.mturk_worker_id, *_IS_USABLE)
    for task, left, right, worker in rows_among(
        session, query, PairRow.left_id, {left for _, (left, _) in pairs}
    ):
        raters[task, (left, right)].add(worker)
    return {pair: frozenset(raters[pair]) for pair in pairs if pair in raters}


def tries_in_vain(session: Session, environment: Environment) -> dict[Rated, int]:
    """On how many HITs somebody skipped each pair or could not see it; a page that asks nothing else is rarely kept."""
    return _counted(session, _given(environment, Assignment.hit_id, SimilarityAnswer.score.is_(None)))


_IS_USABLE = Assignment.decision.in_(KEPT), SimilarityAnswer.score.is_not(None)


def _given(environment: Environment, column: Any, *where: ColumnElement[bool]) -> Wide:
    """Task and items of each pair, with a value beside every answer on it for which this holds, those of excluded
    workers left out."""
    return (
        query_by_worker(environment, SimilarityItem.task, PairRow.left_id, PairRow.right_id, column)
        .join(SimilarityAnswer, SimilarityAnswer.assignment_id == Assignment.id)
        .join(SimilarityItem, at_place(SimilarityItem, SimilarityAnswer))
        .join(PairRow, PairRow.id == SimilarityItem.pair_id)
        .where(Worker.excluded_at.is_(None), SimilarityItem.role == SimilarityRole.ASKED, *where)
        .distinct()
    )


def _counted(session: Session, given: Wide) -> dict[Rated, int]:
    task, left, right, _ = given.subquery().c
    query = select(task, left, right, func.count()).group_by(task, left, right)
    return {(task, (left, right)): count for task, left, right, count in session.execute(query)}


def lacking_hits(session: Session, environment: Environment) -> list[LackingHit]:
    """What is to be asked again: closed HITs of which pairs lack ratings and are on no HIT that is planned or out.

    As many different workers are wanted for a pair as its batch was posted for, unless that was tried in vain
    ``MOST_TRIES`` times. They are listed by batch and number, and a pair is named once.
    """
    closed = {hit.id: hit for hit in hits(session, environment, (HitState.CLOSED,), SIMILARITY)}
    if not closed:
        return []
    before = replaced_by(session)
    replaced = {id_ for earlier in before.values() for id_ in earlier}
    assignments = dict(session.execute(select(Batch.id, Batch.assignments)).all())
    raters = usable_raters(session, environment)
    live = [hit.id for hit in hits(session, environment, LIVE_STATES, SIMILARITY)]
    taken = {
        (item.task, item.pair)
        for page in questions(session, live).values()
        for item in page
        if item.role is SimilarityRole.ASKED
    }
    tries = tries_in_vain(session, environment)
    taken.update(pair for pair, count in tries.items() if count >= MOST_TRIES)
    pages = questions(session, list(closed))
    fullest = select(Hit.batch_id, func.max(SimilarityItem.place)).join(Hit, Hit.id == SimilarityItem.hit_id)
    most = dict(session.execute(fullest.group_by(Hit.batch_id)).all())
    lacking = []
    for hit in closed.values():
        if hit.id in replaced:
            continue
        # Pages that ask again share pairs of several; each pair was asked first on one page.
        first = closed[before.get(hit.id, [hit.id])[-1]]
        lacks: dict[SimilarityQuestion, int] = {}
        for item in pages[first.id]:
            missing = assignments[hit.batch_id] - raters.get((item.task, item.pair), 0)
            if item.role is SimilarityRole.ASKED and missing > 0 and (item.task, item.pair) not in taken:
                lacks[item] = missing
        if lacks:
            taken.update((item.task, item.pair) for item in lacks)
            lacking.append(LackingHit(hit, max(lacks.values()), tuple(lacks), most[first.batch_id]))
    return lacking
