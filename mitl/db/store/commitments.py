"""What is promised and not done: work that is out or undecided, calls that are planned and not made, whole plans."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from sqlalchemy import ColumnElement, and_, bindparam, case, func, or_, select
from sqlalchemy.orm import Session

from mitl.core.pricing import fee_cents
from mitl.db.models import Assignment, Batch, Hit, Journal, Worker
from mitl.db.store import journal
from mitl.db.store.answers import stored_counts
from mitl.db.store.hits import LIVE_STATES, StoredHit, batches, hits
from mitl.db.store.statements import query_hits
from mitl.records import Environment, HitState, JournalState, JudgementSource

COST = "cost_cents"
"""Where the request of a journalled call keeps what the call will cost in all, its fee included."""
_BONUS, EXTEND, DELETE = "bonus", "extend", "delete"
"""How the journal calls bonuses, what asks more workers or gives HITs more time, and deletions on the server."""
UNTIL = "until"
"""Stands in the key of an extension that gives time, after its HIT's."""

PLAN = "plan"
"""Kind of the journal's rows that keep what one run of a publishing command planned."""

SUBMITTED, _REJECTED, _OVERRIDE = "Submitted", "Rejected", "override"


@dataclass(frozen=True, slots=True)
class OpenPromise:
    """Assignments of one price that are not settled: still to come, undecided, or decided and not yet paid."""

    reward_cents: int
    hit_assignments: int
    """Different workers that each of their HITs asks; the fee's rule depends on it."""
    count: int

    def cents(self, *, charges_fee: bool) -> int:
        """What they cost, with the fee where the endpoint takes one."""
        fee = fee_cents(self.reward_cents, self.hit_assignments) if charges_fee else 0
        return self.count * (self.reward_cents + fee)


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """What one run of a publishing command planned and promised, written down with its HITs."""

    environment: Environment
    words: Mapping[str, object]
    """What the command asked for; two runs of the same words are the same command."""
    limited: bool
    """Whether it ran under a limit of its own, in pairs, comparisons or HITs."""
    batch: str | None
    """Its new batch, of which it planned the first attempts."""
    again: Sequence[str]
    """Keys of its HITs that replace others."""
    asked: int
    """Pairs or comparisons, controls and second opinions of new pairs left out."""
    hits: int
    cents: int
    """The bill that was confirmed."""
    round: int | None = None
    """Row of the round that was under way, whose budget pays; None outside rounds."""

    @property
    def key(self) -> str:
        """Of its journal row: its first HIT."""
        return self.again[0] if self.batch is None else f"{self.batch}:1:1"

    @property
    def name(self) -> str:
        """Its new batch, else those whose HITs it replaces."""
        return self.batch or ", ".join(dict.fromkeys(key.partition(":")[0] for key in self.again))

    def holds_any(self, keys: Collection[str]) -> bool:
        """Whether one of these HITs, by ``batch:number:attempt``, is of this plan."""
        return not set(self.again).isdisjoint(keys) or any(
            key.startswith(f"{self.batch}:") and key.endswith(":1") for key in keys
        )


def add_plan(session: Session, plan: StoredPlan, now: dt.datetime) -> None:
    """Write a plan down beside its HITs, in their transaction; commits nothing.

    Its row is done when a command has told how it ended, see :func:`mark_told`.
    """
    journal.plan(session, PLAN, [(plan.key, None, json.dumps(asdict(plan)))], now)


def untold_plans(session: Session, environment: Environment, kind: str) -> list[StoredPlan]:
    """The plans whose command was interrupted before it told what it did, posted whole or not; oldest first."""
    plans = _plans(session, Journal.state != JournalState.DONE)
    return [plan for plan in plans if plan.environment == environment and plan.words["kind"] == kind]


def mark_told(session: Session, environment: Environment, kind: str, now: dt.datetime) -> None:
    """The user knows how these plans ended: the same words are a new command from here on; commits."""
    keys = [plan.key for plan in untold_plans(session, environment, kind)]
    journal.mark(session, PLAN, keys, JournalState.DONE, now)
    session.commit()


def limited_plans_out(
    session: Session, environment: Environment, words: Mapping[str, object]
) -> list[StoredPlan]:
    """What runs of these words posted under a limit and is out: a plan is until its last HIT is closed."""
    live = {hit.key for hit in hits(session, environment, LIVE_STATES)}
    plans = [plan for plan in _plans(session) if plan.environment == environment and plan.words == words]
    return [plan for plan in plans if plan.limited and plan.holds_any(live)]


def _plans(session: Session, *conditions: ColumnElement[bool]) -> list[StoredPlan]:
    rows = select(Journal.request).where(Journal.kind == PLAN, *conditions).order_by(Journal.id)
    return [StoredPlan(**json.loads(row)) for row in session.scalars(rows)]


def promises(session: Session, environment: Environment, *, round_id: int | None = None) -> list[OpenPromise]:
    """What the HITs of an environment may still cost, those that are planned and not posted included.

    A HIT that is not closed promises every assignment that is neither paid nor refused; a closed one those that
    were submitted and are not settled, and the refused ones that a person decided to pay after all.

    Args:
        round_id: of the HITs that this round pays for; None takes all.
    """
    of_round = () if round_id is None else (paid_by(session, environment, round_id),)
    unsettled = case((Assignment.status == SUBMITTED, 1), (_to_override(), 1), else_=0)
    per_hit = (
        query_hits(
            environment,
            Batch.reward_cents.label("reward"),
            Hit.assignments.label("wanted"),
            (Hit.state != HitState.CLOSED).label("live"),
            func.count(Assignment.id).label("submitted"),
            func.coalesce(func.sum(unsettled), 0).label("unsettled"),
        )
        .outerjoin(Assignment, Assignment.hit_id == Hit.id)
        .outerjoin(Worker, Worker.id == Assignment.worker_id)
        .where(Batch.source == JudgementSource.CROWD, *of_round)
        .group_by(Hit.id, Hit.assignments, Hit.state, Batch.reward_cents)
        .subquery()
    )
    open_hits: dict[tuple[int, int], int] = {}
    rows = session.execute(select(per_hit, func.count().label("hits")).group_by(*per_hit.c))
    for reward, assignments, live, submitted, waiting, count in rows:
        to_come = max(assignments - submitted, 0) if live else 0
        key = (reward, assignments)
        open_hits[key] = open_hits.get(key, 0) + count * (to_come + int(waiting))
    return [OpenPromise(*key, count) for key, count in sorted(open_hits.items()) if count]


def paid_by(session: Session, environment: Environment, round_id: int) -> ColumnElement[bool]:
    """Which HITs, joined with their batches, a round pays for: its own, and those of others that it asked again."""
    payer = {
        key: plan.round
        for plan in _plans(session)
        if plan.environment == environment and plan.round is not None
        for key in plan.again
    }
    query = query_hits(environment, Hit.id, Batch.round_id, Batch.name, Hit.number, Hit.attempt).where(
        Hit.attempt > 1
    )
    taken: list[int] = []
    elsewhere: list[int] = []
    for hit, batch_round, *key in session.execute(query):
        round_ = payer.get(":".join(map(str, key)), batch_round)
        if batch_round != round_:
            (taken if round_ == round_id else elsewhere if batch_round == round_id else []).append(hit)
    # In the statement's text, for it takes no more values than 32,766 (SQLite) or 65,535 (PostgreSQL).
    among = partial(bindparam, None, expanding=True, literal_execute=True)
    return or_(and_(Batch.round_id == round_id, Hit.id.not_in(among(elsewhere))), Hit.id.in_(among(taken)))


def promised_bonus_cents(session: Session, environment: Environment) -> int:
    """What planned bonuses will cost, fees included."""
    requests = [json.loads(call.request) for call in journal.open_calls(session, _BONUS)]
    return sum(
        int(request.get(COST, 0)) for request in requests if request.get("environment") == environment.value
    )


def open_extensions(session: Session, environment: Environment) -> dict[StoredHit, int]:
    """HIT → the most workers that a confirmed extension, not known to be carried out, asks of it beyond its own.

    No run extends a HIT that was replaced or deleted. But a call whose reply was lost may have had its effect on one
    before it was replaced.
    """
    query = select(Journal.key, Journal.state).where(
        Journal.kind == EXTEND, Journal.state != JournalState.DONE, Journal.key.not_like(f"%:{UNTIL}:%")
    )
    rows = [(*key.rpartition(":")[::2], state) for key, state in session.execute(query)]
    if not rows:
        return {}
    known = {hit.key: hit for hit in hits(session, environment)}
    replaced = set(session.scalars(select(Hit.replaces_id)))
    deleted = journal.done_keys(session, DELETE, [key for key, _, _ in rows])
    asked: dict[StoredHit, int] = {}
    for key, workers, state in rows:
        hit = known.get(key)
        if hit is None or key in deleted or (hit.id in replaced and state is not JournalState.SENDING):
            continue
        if int(workers) > hit.assignments:
            asked[hit] = max(int(workers), asked.get(hit, 0))
    return asked


def extension_promises(
    session: Session, environment: Environment, *, round_id: int | None = None
) -> list[OpenPromise]:
    """What `open_extensions` may cost beyond `promises` of the same round: of a closed HIT all not submitted."""
    extended = open_extensions(session, environment)
    if extended and round_id is not None:
        paid = query_hits(environment, Hit.id).where(paid_by(session, environment, round_id))
        ids = set(session.scalars(paid))
        extended = {hit: workers for hit, workers in extended.items() if hit.id in ids}
    if not extended:
        return []
    rewards = {batch.id: batch.reward_cents for batch in batches(session)}
    stored = stored_counts(session, environment)
    found = []
    for hit, workers in extended.items():
        counted = max(stored.get(hit.id, 0), 0 if hit.state is HitState.CLOSED else hit.assignments)
        found.append(OpenPromise(rewards[hit.batch_id], workers, max(workers - counted, 0)))
    return found


def _to_override() -> ColumnElement[bool]:
    """A refused submission whose refusal is planned to be taken back."""
    planned = (
        select(Journal.id)
        .where(
            Journal.kind == _OVERRIDE,
            Journal.state != JournalState.DONE,
            Journal.key == Assignment.mturk_assignment_id + ":" + Worker.mturk_worker_id,
        )
        .exists()
    )
    return and_(Assignment.status == _REJECTED, planned)
