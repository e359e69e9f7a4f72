"""Writing a plan down, all of it or nothing, before its first call is made."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Protocol

from sqlalchemy.orm import Session

from mitl.db.store import commitments
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store.commitments import StoredPlan
from mitl.db.store.hits import NewHit
from mitl.records import BatchKind, Environment, StageResult
from mitl.settings import Settings
from mitl.stages.publishing.bill import Planned, Quote, Terms
from mitl.stages.publishing.campaign import Campaign
from mitl.stages.publishing.planning import Plan, token
from mitl.stages.publishing.purse import Purse


def store_plan(
    session: Session,
    settings: Settings,
    campaign: Campaign,
    plan: Plan,
    terms: Terms,
    quote: Quote,
    purse: Purse,
    *,
    server_id: str | None,
    after: int,
) -> str | None:
    """Promise the money and write the plan down in one transaction; returns the name of the new batch.

    Args:
        after: the highest number of a batch that the server knows of this project, lost here or not.

    Raises:
        FundsError: another command has promised meanwhile what the plan would cost; nothing is stored.
    """
    try:
        purse.require(quote.new_cents, "the bill")
        now = dt.datetime.now(dt.UTC)
        name = None
        if plan.fresh:
            name = _store_fresh(session, settings, campaign, plan, terms, server_id, after, now)
        for replacement in plan.again:
            old = replacement.replaces
            key = token(settings.project_id, old.batch, old.number, replacement.attempt)
            new = NewHit(replacement.page, replacement.attempt, old.id, replacement.assignments, key)
            hit_store.add_hits(session, old.batch_id, [new])
        if not plan.leftover:
            commitments.add_plan(session, plan_to_keep(campaign, plan, quote, name), now)
        session.commit()
    except BaseException:
        session.rollback()
        raise
    return name


class Asking(Protocol):
    """What a command that posts was asked for, pairs or comparisons."""

    @property
    def environment(self) -> Environment:
        """Where it posts."""

    @property
    def words(self) -> dict[str, object]:
        """By what a repetition of the command is known."""

    @property
    def limited(self) -> bool:
        """Whether it says how much may be out."""


def plan_to_keep(asking: Asking, plan: Planned, quote: Quote, batch: str | None) -> StoredPlan:
    """What is written down of a plan beside its HITs, so that a repeated run knows its bounds.

    Args:
        batch: the new one, if any.
    """
    return StoredPlan(
        environment=asking.environment,
        words=asking.words,
        limited=asking.limited,
        batch=batch,
        again=[f"{one.replaces.batch}:{one.replaces.number}:{one.attempt}" for one in plan.again],
        asked=plan.n_limited,
        hits=len(plan.fresh) + len(plan.again),
        cents=quote.total_cents,
    )


def conclude(
    session: Session,
    asking: Asking,
    kind: BatchKind,
    result: StageResult,
    tell: Callable[[StageResult], None] | None,
    *,
    dry_run: bool,
) -> None:
    """Tell how a command ended, and only then end its plan: after a kill in between, it is completed once more."""
    if tell is not None:
        tell(result)
    if not dry_run:
        commitments.mark_told(session, asking.environment, kind, dt.datetime.now(dt.UTC))


def _store_fresh(
    session: Session,
    settings: Settings,
    campaign: Campaign,
    plan: Plan,
    terms: Terms,
    server_id: str | None,
    after: int,
    now: dt.datetime,
) -> str:
    dataset = item_store.dataset(session)
    batch = hit_store.add_batch(
        session,
        round_id=hit_store.open_round(session, dataset.id, now),
        environment=campaign.environment,
        direction=campaign.direction,
        template=terms.template.name,
        reward_cents=terms.reward_cents,
        assignments=terms.assignments,
        seed=settings.seed,
        server_id=server_id,
        now=now,
        pilot=campaign.pilot is not None,
        estimate_s=None if terms.estimate.pilot is None else terms.estimate.seconds,
        after=after,
    )
    rows = [
        NewHit(page, 1, None, terms.assignments, token(settings.project_id, batch.name, page.number, 1))
        for page in plan.fresh
    ]
    hit_store.add_hits(session, batch.id, rows)
    return batch.name
