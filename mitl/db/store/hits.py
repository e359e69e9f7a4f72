"""Rounds, batches, HITs and what stands on them."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from sqlalchemy import bindparam, func, or_, select, update
from sqlalchemy.orm import Session

from mitl.db.base import columns, values
from mitl.db.models import Assignment, Batch, Hit, HitItemRow, PairRow, Round
from mitl.db.store.proposals import ensure_pairs
from mitl.db.store.statements import add_rows, change_among, query_hits, rows_among
from mitl.records import (
    BatchKind,
    Decision,
    Environment,
    HitItem,
    HitState,
    JudgementSource,
    Page,
    Pair,
    PairRole,
)

UNPOSTED = (HitState.PLANNED, HitState.SENDING)
LIVE_STATES = (*UNPOSTED, HitState.POSTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTerms:
    """What a batch asks, and under which terms."""

    environment: Environment
    direction: str
    template: str
    reward_cents: int
    assignments: int
    seed: int
    pilot: bool = False
    server_id: str | None = None
    source: JudgementSource = JudgementSource.CROWD
    """``import`` for past work from a file: nothing of it was posted from here."""
    estimate_s: int | None = None
    """Seconds expected of a HIT when it was priced; None takes the template's."""
    kind: str = BatchKind.PAIRS


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow(BatchTerms):
    """A batch as stored."""

    id: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatch(BatchTerms):
    """A batch to insert."""

    round_id: int
    planned_at: dt.datetime


@dataclass(frozen=True, slots=True)
class StoredHit:
    """A HIT as stored, with its batch's name."""

    id: int
    batch_id: int
    batch: str
    number: int
    attempt: int
    assignments: int
    state: HitState
    mturk_hit_id: str | None
    token: str

    @property
    def key(self) -> str:
        """Names the HIT in the journal and in the annotation: batch:number:attempt."""
        return f"{self.batch}:{self.number}:{self.attempt}"


@dataclass(frozen=True, slots=True)
class NewHit:
    """A page to be stored as a planned HIT."""

    page: Page[Any]
    attempt: int
    replaces_id: int | None
    assignments: int
    token: str


_HIT = columns(StoredHit, Hit, batch=Batch.name)
_BATCH = columns(BatchRow, Batch)


def open_round(session: Session, dataset_id: int, environment: Environment | None, now: dt.datetime) -> int:
    """The id of the round to which a new batch belongs: the environment's open one, where `mitl round` opened one,
    else the one that asks every proposal, which is opened where there is none.

    Args:
        environment: None for the latter.
    """
    round_id = session.scalars(
        select(Round.id)
        .where(
            Round.dataset_id == dataset_id,
            Round.closed_at.is_(None),
            or_(Round.environment == environment, Round.environment.is_(None)),
        )
        # Both engines then have what chose before what did not.
        .order_by(Round.environment.is_(None), Round.number)
    ).first()
    if round_id is not None:
        return round_id
    row = Round(
        dataset_id=dataset_id,
        number=next_round(session, dataset_id),
        strategy="top-k",
        opened_at=now,
    )
    session.add(row)
    session.flush()
    return row.id


def next_round(session: Session, dataset_id: int) -> int:
    """The number of a round that is opened now."""
    return (session.scalar(select(func.max(Round.number)).where(Round.dataset_id == dataset_id)) or 0) + 1


def add_batch(session: Session, new: NewBatch, after: int = 0) -> BatchRow:
    """Insert a batch, named b1, b2, … in order and beyond b``after``, which the server may know from elsewhere."""
    row = Batch(name=next_batch_name(session, after), **asdict(new))
    session.add(row)
    session.flush()
    return batch(session, row.id)


def add_batch_like(session: Session, batch_id: int, after: int = 0, **changes: Any) -> BatchRow:
    """Insert a batch that asks again what another one asked, on other terms; it is no pilot."""
    old = session.get_one(Batch, batch_id)
    same = {field.name: getattr(old, field.name) for field in fields(NewBatch)}
    return add_batch(session, NewBatch(**{**same, "pilot": False, **changes}), after)


def next_batch_name(session: Session, after: int = 0, ahead: int = 0) -> str:
    """The name of the batch that is inserted next, beyond b``after``, or of a later one that goes ``ahead`` of it."""
    numbers = [int(name[1:]) for name in session.scalars(select(Batch.name)) if name[1:].isdigit()]
    return f"b{max([after, *numbers]) + 1 + ahead}"


def batch(session: Session, batch_id: int) -> BatchRow:
    """One batch."""
    return BatchRow(**session.execute(select(*_BATCH).where(Batch.id == batch_id)).mappings().one())


def batches(session: Session, environment: Environment | None = None) -> list[BatchRow]:
    """The batches of an environment, or of both, oldest first."""
    query = select(*_BATCH).order_by(Batch.id)
    if environment is not None:
        query = query.where(Batch.environment == environment)
    return [BatchRow(**row) for row in session.execute(query).mappings()]


def posted_batches(session: Session) -> list[BatchRow]:
    """The batches that were planned here, of both environments, oldest first; past work from files is no such."""
    return [batch for batch in batches(session) if batch.source is JudgementSource.CROWD]


def insert_hits(session: Session, batch_id: int, new: Sequence[NewHit]) -> dict[int, Sequence[Any]]:
    """Insert planned HITs without what stands on them; returns that, by their rows."""
    add_rows(
        session,
        Hit,
        (
            values(
                Hit,
                hit,
                batch_id=batch_id,
                number=hit.page.number,
                state=HitState.PLANNED,
                mturk_hit_id=None,
            )
            for hit in new
        ),
    )
    ids = dict(session.execute(select(Hit.token, Hit.id).where(Hit.batch_id == batch_id)).all())
    return {ids[hit.token]: hit.page.items for hit in new}


def add_items(session: Session, items: Mapping[int, Sequence[HitItem]]) -> None:
    """Write down which pairs stand on these HITs, by their rows."""
    ids = ensure_pairs(session, {item.pair for page in items.values() for item in page})
    add_rows(
        session,
        HitItemRow,
        (
            values(HitItemRow, item, hit_id=hit_id, pair_id=ids[item.pair])
            for hit_id, page in items.items()
            for item in page
        ),
    )


def hits(
    session: Session,
    environment: Environment,
    states: Sequence[HitState] = tuple(HitState),
    kind: str | None = None,
) -> list[StoredHit]:
    """The HITs of an environment in these states, oldest batch first, by number and attempt.

    Args:
        kind: those that ask this; None takes all.
    """
    query = (
        query_hits(environment, *_HIT)
        .where(Hit.state.in_(list(states)))
        .order_by(Hit.batch_id, Hit.number, Hit.attempt)
    )
    if kind is not None:
        query = query.where(Batch.kind == kind)
    return [StoredHit(*row) for row in session.execute(query)]


def latest_hits(
    session: Session,
    environment: Environment,
    states: Sequence[HitState] = tuple(HitState),
    kind: str | None = None,
) -> list[StoredHit]:
    """Those of `hits` that no other has replaced."""
    replaced = set(session.scalars(select(Hit.replaces_id).where(Hit.replaces_id.is_not(None))))
    return [hit for hit in hits(session, environment, states, kind) if hit.id not in replaced]


def replaced_by(session: Session) -> dict[int, list[int]]:
    """HIT that replaces others and that none replaces → these, latest first."""
    query = select(Hit.id, Hit.replaces_id).where(Hit.replaces_id.is_not(None))
    replaced = {hit: int(replaces or 0) for hit, replaces in session.execute(query)}
    earlier: dict[int, list[int]] = {}
    for last in replaced.keys() - replaced.values():
        hit, earlier[last] = last, []
        while hit in replaced:
            hit = replaced[hit]
            earlier[last].append(hit)
    return earlier


def other_kinds(session: Session, environment: Environment) -> dict[int, str]:
    """HIT → what it asks, of the HITs of an environment that ask for something else than pairs."""
    query = query_hits(environment, Hit.id, Batch.kind).where(Batch.kind != BatchKind.PAIRS)
    return dict(session.execute(query).all())


def hits_of(session: Session, hit_ids: Sequence[int]) -> list[StoredHit]:
    """These HITs, oldest batch first, by number and attempt."""
    query = select(*_HIT).join(Batch, Batch.id == Hit.batch_id)
    stored = [StoredHit(*row) for row in rows_among(session, query, Hit.id, hit_ids)]
    return sorted(stored, key=lambda hit: (hit.batch_id, hit.number, hit.attempt))


def hit_items(session: Session, hit_ids: Sequence[int]) -> dict[int, list[HitItem]]:
    """What stands on these HITs, by place."""
    by_hit: dict[int, list[HitItem]] = {hit_id: [] for hit_id in hit_ids}
    query = (
        select(HitItemRow.hit_id, HitItemRow.place, PairRow.left_id, PairRow.right_id, HitItemRow.role)
        .join(PairRow, PairRow.id == HitItemRow.pair_id)
        .order_by(HitItemRow.hit_id, HitItemRow.place)
    )
    for hit_id, place, image, caption, role in rows_among(session, query, HitItemRow.hit_id, hit_ids):
        by_hit[hit_id].append(HitItem(place, Pair(image, caption), role))
    return by_hit


def roles(session: Session, environment: Environment) -> dict[int, Counter[PairRole]]:
    """Batch → how many places of its pages stand in each role."""
    query = query_hits(environment, Hit.batch_id, HitItemRow.role, func.count())
    by_batch: dict[int, Counter[PairRole]] = defaultdict(Counter)
    for batch, role, places in session.execute(
        query.join(HitItemRow, HitItemRow.hit_id == Hit.id).group_by(Hit.batch_id, HitItemRow.role)
    ):
        by_batch[batch][role] = places
    return by_batch


def set_state(session: Session, hit_ids: Sequence[int], state: HitState) -> None:
    """Move these HITs to a state."""
    change_among(session, update(Hit).values(state=state), Hit.id, hit_ids)


def set_wanted(session: Session, hit_id: int, assignments: int) -> None:
    """The HIT asks for so many workers in all, and is out."""
    session.execute(
        update(Hit).where(Hit.id == hit_id).values(assignments=assignments, state=HitState.POSTED)
    )


def set_batch_wanted(session: Session, batch_id: int, assignments: int) -> None:
    """Pages of the batch that are asked again want so many workers too."""
    session.execute(update(Batch).where(Batch.id == batch_id).values(assignments=assignments))


def decided(session: Session, environment: Environment) -> list[int]:
    """Posted HITs of which every assignment that was paid for is decided."""
    query = (
        query_hits(environment, Hit.id)
        .join(Assignment, Assignment.hit_id == Hit.id)
        .where(Hit.state == HitState.POSTED, Assignment.decision.not_in([Decision.NONE, Decision.QUEUED]))
        .group_by(Hit.id, Hit.assignments)
        .having(func.count() >= Hit.assignments)
    )
    return list(session.scalars(query))


def set_posted(session: Session, mturk_ids: Mapping[int, str]) -> None:
    """These HITs, by their rows, are known to be on the server under these ids."""
    if mturk_ids:
        rows = [{"row": row, "server_id": mturk_id} for row, mturk_id in mturk_ids.items()]
        session.connection().execute(_POSTED, rows)


_POSTED = (
    update(Hit.__table__)  # type: ignore[arg-type]
    .where(Hit.id == bindparam("row"))
    .values(state=HitState.POSTED, mturk_hit_id=bindparam("server_id"))
)


def gold_use(session: Session, environment: Environment) -> Counter[Pair]:
    """How many HITs of an environment each gold control stands on."""
    query = (
        query_hits(environment, PairRow.left_id, PairRow.right_id, func.count())
        .join(HitItemRow, HitItemRow.hit_id == Hit.id)
        .join(PairRow, PairRow.id == HitItemRow.pair_id)
        .where(HitItemRow.role.in_([PairRole.GOLD_POSITIVE, PairRole.GOLD_NEGATIVE]))
        .group_by(PairRow.left_id, PairRow.right_id)
    )
    return Counter({Pair(image, caption): count for image, caption, count in session.execute(query)})


def state_counts(session: Session, environment: Environment) -> dict[HitState, int]:
    """How many HITs are in each state."""
    query = query_hits(environment, Hit.state, func.count()).group_by(Hit.state)
    counts: dict[HitState, int] = defaultdict(int)
    counts.update(dict(session.execute(query).all()))
    return counts


def environments(session: Session) -> list[Environment]:
    """The environments that hold batches, sandbox first."""
    posted_to = set(session.scalars(select(Batch.environment).distinct()))
    return [environment for environment in Environment if environment in posted_to]
