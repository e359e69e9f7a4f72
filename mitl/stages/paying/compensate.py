"""A bonus that a person decides on: for work that could not be submitted, or for whatever else went wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypedDict

from sqlalchemy.orm import Session

from mitl.core.pricing import format_dollars
from mitl.crowd.context import open_context, require_same_server
from mitl.crowd.endpoint import open_endpoint
from mitl.db.locks import PAY, only_one
from mitl.db.session import reading
from mitl.db.store import journal, ledger
from mitl.db.store.ledger import BONUS, COMPENSATE, SettledWork
from mitl.errors import StoreError, UsageError
from mitl.progress import Progress, no_progress
from mitl.records import Environment, JournalState, StageResult
from mitl.records.results import printed_by
from mitl.settings import Settings
from mitl.stages.paying.bonuses import BonusSender, PlannedBonus, cost_of, unsent
from mitl.stages.reviewing.decisions import MIN_REASON

MAX_REASON = 1900
"""Characters; the API takes 2,000, and the reference needs some."""
_WHAT = "the bonus with its fee"


@printed_by("pay compensate")
class CompensateCounts(TypedDict):
    """What a single bonus counts."""

    environment: Annotated[str, "sandbox or live"]
    worker: Annotated[str, "who gets it"]
    sent: Annotated[int, "1, or 0 where it was sent before"]
    bonuses_cents: Annotated[int, "what the worker gets by this run"]
    fees_cents: Annotated[int, "the fee on top"]
    total_cents: Annotated[int, "both"]


@dataclass(frozen=True, slots=True)
class Gift:
    """What somebody is to get."""

    worker: str
    """Their id on the requester API."""
    cents: int
    reason: str
    """They read it."""


def compensate(
    settings: Settings,
    gift: Gift,
    environment: Environment | None = None,
    *,
    confirm: Callable[[Environment, int], bool],
    progress: Progress = no_progress,
) -> StageResult:
    """Send a worker a bonus once; the same worker, amount and reason again send nothing.

    It is attached to the worker's latest submission, whatever became of that, for the API takes no bonus without one.
    It does not count when the pay of the submitted work is compared with the wage floor.

    Args:
        confirm: is given the environment and the total in cents, the fee included; says whether to go on.

    Raises:
        UsageError: no amount, no reason that the worker can understand, or the total was not confirmed.
        StoreError: the worker has submitted nothing, or another `mitl pay` is at work.
        FundsError: the balance or the ceiling does not allow it.
        CrowdError: the call failed; run again, it is sent once.
    """
    _check(gift)
    with (
        open_context(settings, environment, progress=progress) as context,
        only_one(settings.db_url, PAY),
    ):
        session, chosen = context.session, context.environment
        key = _key(chosen, gift)
        with reading(session):
            row = _latest(session, chosen, gift.worker)
            known = journal.find(session, BONUS, key)
        if known is not None and known.state is JournalState.DONE:
            return StageResult(
                status="nothing_to_do",
                counts=_counts(chosen, gift.worker),
                lines=(
                    f"nothing to do: {gift.worker} was sent {format_dollars(gift.cents)} for this reason on "
                    f"{known.at:%Y-%m-%d %H:%M} UTC; give another reason to pay once more",
                ),
            )
        with open_endpoint(settings, chosen) as endpoint:
            with reading(session):
                require_same_server(session, endpoint, chosen)
            sender = BonusSender(context, endpoint)
            with reading(session):
                waiting = [bonus for bonus in unsent(session, chosen) if bonus.key == key]
            if not waiting:
                waiting = [sender.bonus(key, row, gift.cents, gift.reason)]
                sender.check(waiting, _WHAT)
                if not confirm(chosen, cost_of(waiting)):
                    raise UsageError("the total was not confirmed; nothing was sent")
                sender.plan(waiting, _WHAT)
            sender.send(waiting)
            [sent] = sender.sent.values()
    fee = f" (fee {format_dollars(sent.fee_cents)})" if sent.fee_cents else ""
    return StageResult(
        counts=_counts(chosen, gift.worker, sent),
        lines=(f"sent {sent.worker} a bonus of {format_dollars(sent.cents)}{fee}",),
        next="mitl pay",
    )


def _check(gift: Gift) -> None:
    if gift.cents < 1:
        raise UsageError("a bonus of $0.00 is none; --amount is at least 0.01")
    if not MIN_REASON <= len(gift.reason.strip()) <= MAX_REASON:
        raise UsageError(
            f"--reason has {len(gift.reason.strip()):,} characters; {MIN_REASON} to {MAX_REASON:,} are right, and the "
            "worker reads them"
        )


def _latest(session: Session, environment: Environment, worker: str) -> SettledWork:
    """The worker's latest submission."""
    work = [row for row in ledger.settled_work(session, environment) if row.worker == worker]
    if not work:
        raise StoreError(
            f"nobody of id {worker!r} has submitted work on {environment}, and a bonus needs a submission; let them "
            "submit a HIT first, or pay them outside and note it"
        )
    return work[-1]


def _key(environment: Environment, gift: Gift) -> str:
    what = hashlib.sha256(f"{gift.cents}:{gift.reason}".encode()).hexdigest()[:16]
    return f"{COMPENSATE}:{environment}:{gift.worker}:{what}"


def _counts(environment: Environment, worker: str, sent: PlannedBonus | None = None) -> CompensateCounts:
    return {
        "environment": environment.value,
        "worker": worker,
        "sent": 0 if sent is None else 1,
        "bonuses_cents": 0 if sent is None else sent.cents,
        "fees_cents": 0 if sent is None else sent.fee_cents,
        "total_cents": 0 if sent is None else sent.cost_cents,
    }
