"""What is open: pairs to ask, HITs to ask again, work that is out and the money it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Select, case, func, select
from sqlalchemy.orm import Session, aliased

from mitl.db.models import Assignment, Batch, Hit, HitItem, Judgement, Pair, Worker
from mitl.db.store.answer_columns import AnswerColumns
from mitl.db.store.bulk import chunks
from mitl.db.store.hits import LIVE_STATES, HitRow, batches, hit_items, hits_of
from mitl.db.store.packed_rows import number_columns
from mitl.proposals.packed import distinct
from mitl.records import Decision, Environment, HitState, JudgementSource, PairRole
from mitl.records import Pair as PairRecord


@dataclass(frozen=True, slots=True)
class Barren:
    """A closed HIT that leaves something to be asked again."""

    hit: HitRow
    pairs: list[PairRecord]
    missing: int
    """Workers whose usable answers are still wanted."""


@dataclass(frozen=True, slots=True)
class OpenWork:
    """What is out with the crowd."""

    hits: int
    """Posted HITs that still wait for a worker."""
    assignments: int
    """Submissions that are still to come."""
    held_cents: int
    """Rewards promised for what is not decided yet."""


@dataclass(frozen=True, slots=True)
class PairCounts:
    """How many pairs there are and where they stand, counted by the database."""

    candidates: int
    """Proposed by any annotator, in any direction."""
    open: int
    """Those that are on no live HIT and have no usable judgement."""
    judged: int
    """Pairs with a usable judgement, past work included."""


def pair_counts(session: Session, environment: Environment, answers: AnswerColumns) -> PairCounts:
    """The sizes of `candidate_pairs`, of those that `asked_pairs` lacks, and of `usable_workers`.

    Args:
        answers: those of this environment.
    """
    live = (
        select(HitItem.pair_id)
        .join(Hit, Hit.id == HitItem.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .where(
            Batch.environment == environment,
            Hit.state.in_(list(LIVE_STATES)),
            HitItem.role == PairRole.CANDIDATE,
        )
    )
    n_pairs = session.scalar(select(func.count()).select_from(Pair)) or 0
    unproposed = number_columns(session, "SELECT id FROM pair WHERE NOT proposed", 1)[0]
    judged = distinct(answers.pair[answers.usable & ~answers.is_gold])
    out = np.fromiter(session.scalars(live), np.int64)
    asked = distinct(np.concatenate([judged, out]))
    candidates = n_pairs - len(unproposed)
    n_asked = len(asked) - int(np.isin(asked, unproposed).sum())
    return PairCounts(candidates, candidates - n_asked, len(judged))


def live_pairs(
    session: Session, environment: Environment, *, of_hits: Sequence[int] | None = None
) -> set[PairRecord]:
    """The candidates on HITs that are planned, on their way or out; of all pairs, or of those asked on some HITs."""
    query = (
        select(Pair.image_id, Pair.caption_id)
        .join(HitItem, HitItem.pair_id == Pair.id)
        .join(Hit, Hit.id == HitItem.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .where(
            Batch.environment == environment,
            Hit.state.in_(list(LIVE_STATES)),
            HitItem.role == PairRole.CANDIDATE,
        )
    )
    return {PairRecord(*row) for part in _narrowed(query, of_hits) for row in session.execute(part)}


def _narrowed(
    query: Select[*tuple[Any, ...]], of_hits: Sequence[int] | None
) -> Iterator[Select[*tuple[Any, ...]]]:
    """The query itself, or for so many HITs at a time the same of pairs that stand on them."""
    if of_hits is None:
        yield query
        return
    for chunk in chunks(of_hits):
        stands = aliased(HitItem)
        asked = stands.role.in_([PairRole.CANDIDATE, PairRole.OVERLAP])  # controls stand on many others too
        yield query.where(Pair.id.in_(select(stands.pair_id).where(stands.hit_id.in_(chunk), asked)))


def usable_workers(
    session: Session, environment: Environment, *, of_hits: Sequence[int] | None = None
) -> dict[PairRecord, int]:
    """How many different workers have judged each pair usably, of all pairs or of those asked on some HITs.

    Answers on controls do not count.
    """
    query = (
        select(Pair.image_id, Pair.caption_id, func.count(Assignment.worker_id.distinct()))
        .join(Judgement, Judgement.pair_id == Pair.id)
        .join(Assignment, Assignment.id == Judgement.assignment_id)
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .join(HitItem, (HitItem.hit_id == Hit.id) & (HitItem.place == Judgement.place))
        .where(
            Batch.environment == environment,
            Judgement.usable.is_(True),
            HitItem.role.in_([PairRole.CANDIDATE, PairRole.REPEAT, PairRole.OVERLAP]),
        )
        .group_by(Pair.image_id, Pair.caption_id)
    )
    return {
        PairRecord(image, caption): count
        for part in _narrowed(query, of_hits)
        for image, caption, count in session.execute(part)
    }


def asked_pairs(session: Session, environment: Environment) -> set[PairRecord]:
    """The pairs that need not be asked anew: on a HIT that is not closed, or with a usable judgement."""
    return live_pairs(session, environment) | usable_workers(session, environment).keys()


def barren_hits(session: Session, environment: Environment) -> list[Barren]:
    """Closed HITs without a successor that leave something to be asked again; past work from files is never.

    A HIT of candidates counts where fewer of its submissions were usable than workers were wanted, for those of its
    pairs that lack usable answers and are on no other HIT. A HIT of overlaps counts for the pairs that no second
    worker has judged usably: a second opinion of the first worker is none.
    """
    wanted = {
        row.id: row.assignments
        for row in batches(session, environment)
        if row.source is not JudgementSource.IMPORT
    }
    overlaps = _overlap_hits(session, environment)
    usable = _usable_submissions(session, environment)
    lacking = [
        id_
        for id_, batch, assignments in _closed_hits(session, environment)
        if batch in wanted and (id_ in overlaps or usable.get(id_, 0) < assignments)
    ]
    closed = hits_of(session, lacking)
    if not closed:
        return []
    ids = [hit.id for hit in closed]
    items = hit_items(session, ids)
    workers = usable_workers(session, environment, of_hits=ids)
    live = live_pairs(session, environment, of_hits=ids)
    second = _second_opinions(session, environment) if overlaps else set()
    found = []
    taken: set[PairRecord] = set()
    for hit in closed:
        asking = PairRole.OVERLAP if hit.id in overlaps else PairRole.CANDIDATE
        asked = [item.pair for item in items.get(hit.id, ()) if item.role is asking]
        if asking is PairRole.OVERLAP:
            pairs, missing = [pair for pair in asked if pair not in second], 1
        else:
            missing = hit.assignments - usable.get(hit.id, 0)
            enough = wanted[hit.batch_id]
            pairs = [
                pair
                for pair in asked
                if workers.get(pair, 0) < enough and pair not in live and pair not in taken
            ]
        if pairs and missing > 0:
            taken.update(pairs)
            found.append(Barren(hit, pairs, missing))
    return found


def _closed_hits(session: Session, environment: Environment) -> list[tuple[int, int, int]]:
    """Row, batch and wanted workers of each closed HIT that none replaces."""
    later = aliased(Hit)
    query = (
        select(Hit.id, Hit.batch_id, Hit.assignments)
        .join(Batch, Batch.id == Hit.batch_id)
        .where(Batch.environment == environment, Hit.state == HitState.CLOSED)
        .where(Hit.id.not_in(select(later.replaces_id).where(later.replaces_id.is_not(None))))
    )
    return [(id_, batch, assignments) for id_, batch, assignments in session.execute(query)]


def _usable_submissions(session: Session, environment: Environment) -> dict[int, int]:
    """Per HIT, how many submissions gave a usable judgement on a candidate.

    The first such judgement of a submission is enough, so most of them are never looked at.
    """
    first = (
        select(Judgement.id)
        .join(HitItem, (HitItem.hit_id == Assignment.hit_id) & (HitItem.place == Judgement.place))
        .where(
            Judgement.assignment_id == Assignment.id,
            Judgement.usable.is_(True),
            HitItem.role == PairRole.CANDIDATE,
        )
        .limit(1)
        .correlate(Assignment)
        .scalar_subquery()
    )
    query = (
        select(Assignment.hit_id, func.count())
        .join(Worker, Worker.id == Assignment.worker_id)
        .where(Worker.environment == environment, first.is_not(None))
        .group_by(Assignment.hit_id)
    )
    return dict(session.execute(query).all())


def _second_opinions(session: Session, environment: Environment) -> set[PairRecord]:
    """Pairs that a second worker has judged usably on a HIT of overlaps."""
    query = (
        select(Pair.image_id, Pair.caption_id)
        .join(Judgement, Judgement.pair_id == Pair.id)
        .join(Assignment, Assignment.id == Judgement.assignment_id)
        .join(Hit, Hit.id == Assignment.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .join(HitItem, (HitItem.hit_id == Hit.id) & (HitItem.place == Judgement.place))
        .where(Batch.environment == environment, Judgement.usable.is_(True), HitItem.role == PairRole.OVERLAP)
    )
    return {PairRecord(*row) for row in session.execute(query)}


def _overlap_hits(session: Session, environment: Environment) -> set[int]:
    query = (
        select(HitItem.hit_id)
        .join(Hit, Hit.id == HitItem.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .where(Batch.environment == environment, HitItem.role == PairRole.OVERLAP)
        .distinct()
    )
    return set(session.scalars(query))


def open_work(session: Session, environment: Environment) -> OpenWork:
    """What is out: per posted HIT, the workers that are wanted less those who submitted or were decided about."""
    undecided = (Decision.NONE, Decision.QUEUED)
    query = (
        select(Hit.assignments, Batch.reward_cents, func.count(Assignment.id), _decided(undecided))
        .join(Batch, Batch.id == Hit.batch_id)
        .outerjoin(Assignment, Assignment.hit_id == Hit.id)
        .where(Batch.environment == environment, Hit.state == HitState.POSTED)
        .group_by(Hit.id, Hit.assignments, Batch.reward_cents)
    )
    waiting = to_come = held = 0
    for assignments, reward, submitted, decided in session.execute(query):
        missing = max(assignments - submitted, 0)
        waiting += missing > 0
        to_come += missing
        held += max(assignments - (decided or 0), 0) * reward
    return OpenWork(waiting, to_come, held)


def _decided(undecided: Sequence[Decision]) -> ColumnElement[int]:
    return func.sum(case((Assignment.id.is_(None), 0), (Assignment.decision.in_(undecided), 0), else_=1))
