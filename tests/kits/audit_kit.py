"""Audits drawn by hand, and pages with answers put straight into the database."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from mitl.core.arrays import pack_ids
from mitl.db.models import Assignment, Hit, HitItemRow, JudgementRow, Worker
from mitl.db.store import audits
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.records import (
    AuditPurpose,
    Decision,
    Environment,
    HitState,
    JudgementSource,
    Label,
    Outcome,
    PairRole,
)
from mitl.records.audits import AUDITED, LISTED, AuditDesign, Stratum
from mitl.records.frames import frame

SANDBOX = Environment.SANDBOX
NOW = dt.datetime(2024, 11, 23, 6, tzinfo=dt.UTC)
"""Before anybody who runs tests answers anything."""


def some_pairs(session: Session, n: int) -> np.ndarray:
    """Packed pairs of the data set's first image with its first captions."""
    dataset = item_store.dataset(session).id
    captions = [caption.id for caption in item_store.captions(session, dataset)][:n]
    image = item_store.captions(session, dataset)[0].image_id
    return pack_ids(np.full(len(captions), image), np.array(captions))


def add_audit(
    session: Session,
    pairs: Sequence[int] | np.ndarray,
    *,
    recheck: Sequence[bool] | None = None,
    purpose: AuditPurpose = AuditPurpose.RECALL,
    seed: int = 0,
    now: dt.datetime = NOW,
) -> audits.AuditRow:
    """These pairs as a sample of one stratum, in this order of drawing."""
    n = len(pairs)
    design = AuditDesign(purpose, seed, (Stratum("all pairs", 10 * n, n, 0.0, 0.01),), simple=True)
    drawn = frame(
        {name: AUDITED[name] for name in ("pair", "place", "stratum", "inclusion", "recheck", "known")},
        {
            "pair": pairs,
            "place": np.arange(1, n + 1),
            "stratum": np.zeros(n),
            "inclusion": np.full(n, 0.1),
            "recheck": recheck or [False] * n,
            "known": np.zeros(n, np.bool_),
        },
    )
    return audits.add_audit(session, SANDBOX, design, nothing_listed(), drawn, now)


def nothing_listed() -> pd.DataFrame:
    """A pool whose pairs are all in the last stratum."""
    return frame(LISTED, dict.fromkeys(LISTED, ()))


def add_page(
    session: Session,
    roles: Mapping[int, PairRole],
    *,
    state: HitState = HitState.CLOSED,
    assignments: int = 1,
) -> int:
    """A HIT with these packed pairs on it, in order; returns its row."""
    batch = (
        hit_store.batches(session, SANDBOX)
        or [
            hit_store.add_batch(
                session,
                hit_store.NewBatch(
                    round_id=hit_store.open_round(session, item_store.dataset(session).id, SANDBOX, NOW),
                    environment=SANDBOX,
                    direction="both",
                    template="pairs-plain",
                    reward_cents=10,
                    assignments=1,
                    seed=0,
                    planned_at=NOW,
                ),
            )
        ]
    )[0]
    number = (session.scalar(select(func.max(Hit.number))) or 0) + 1
    hit = Hit(
        batch_id=batch.id,
        number=number,
        attempt=1,
        replaces_id=None,
        assignments=assignments,
        state=state,
        mturk_hit_id=f"H{number}",
        token=f"t{number}",
    )
    session.add(hit)
    session.flush()
    rows = audits.pair_rows(session, np.array(list(roles), np.int64)).tolist()
    for place, (row, role) in enumerate(zip(rows, roles.values(), strict=True), start=1):
        session.add(HitItemRow(hit_id=hit.id, place=place, pair_id=row, role=role))
    session.flush()
    return hit.id


def submit(
    session: Session,
    hit_id: int,
    worker: str,
    labels: Sequence[Label | None],
    *,
    minute: int = 0,
    decision: Decision = Decision.PASS,
) -> int:
    """A worker's submission of a page; None skips the pair. What keeps answers makes them usable."""
    person = session.scalar(
        select(Worker).where(Worker.environment == SANDBOX, Worker.mturk_worker_id == worker)
    )
    if person is None:
        person = Worker(environment=SANDBOX, mturk_worker_id=worker)
        session.add(person)
        session.flush()
    n = session.scalar(select(func.count(Assignment.id))) or 0
    given = Assignment(
        hit_id=hit_id,
        worker_id=person.id,
        mturk_assignment_id=f"A{n + 1}",
        submitted_at=NOW + dt.timedelta(minutes=minute),
        status="Approved",
        decision=decision,
        raw_xml="",
    )
    session.add(given)
    session.flush()
    items = session.scalars(select(HitItemRow).where(HitItemRow.hit_id == hit_id).order_by(HitItemRow.place))
    for item, label in zip(items, labels, strict=True):
        session.add(
            JudgementRow(
                assignment_id=given.id,
                place=item.place,
                pair_id=item.pair_id,
                outcome=Outcome.SKIPPED if label is None else Outcome.ANSWERED,
                label=label,
                active_ms=1000,
                usable=decision.keeps_answers and label is not None,
                source=JudgementSource.CROWD,
            )
        )
    session.flush()
    return given.id
