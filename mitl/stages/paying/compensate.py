"""A bonus that a person decides on: for work that could not be submitted, or for whatever else went wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.core.pricing import format_dollars
from mitl.crowd.endpoint import open_endpoint
from mitl.crowd.environment import choose_environment, require_same_server
from mitl.db.locks import PAY, only_one
from mitl.db.session import open_database, reading
from mitl.db.store import journal, ledger
from mitl.db.store.ledger import BONUS, COMPENSATE, SettledWork
from mitl.errors import StoreError, UsageError
from mitl.progress import Progress, no_progress
from mitl.records import Environment, JournalState, StageResult
from mitl.settings import Settings
from mitl.stages.paying.bonuses import BonusSender, Planned, cost_of, plan_bonus, unsent
from mitl.stages.reviewing.decisions import MIN_REASON

MAX_REASON = 1900
"""Characters; the API takes 2,000, and the reference needs some."""
_WHAT = "the bonus with its fee"


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
    It does not count when the pay of the submitted work is held against the wage floor.

    Args:
        confirm: is given the environment and the total in cents, the fee included; says whether to go on.

    Raises:
        UsageError: no amount, no reason that the worker can understand, or the total was not confirmed.
        StoreError: the worker has submitted nothing, or another `mitl pay` is at work.
        FundsError: the balance or the ceiling does not allow it.
        CrowdError: the call failed; run again, it is sent once.
    """
    _check(gift)
    with open_database(settings.db_url) as session, only_one(settings.db_url, PAY):
        with reading(session):
            chosen = choose_environment(session, environment)
            row = _latest(session, chosen, gift.worker)
            known = journal.find(session, BONUS, _key(chosen, gift))
        if known is not None and known.state is JournalState.DONE:
            return _sent_before(chosen, gift, f"{known.at:%Y-%m-%d %H:%M} UTC")
        with open_endpoint(settings, chosen) as endpoint:
            with reading(session):
                require_same_server(session, endpoint, chosen)
            sender = BonusSender(session, settings, chosen, endpoint, progress)
            with reading(session):
                waiting = [one for one in unsent(session, chosen) if one.key == _key(chosen, gift)]
            if not waiting:
                waiting = [
                    plan_bonus(
                        settings.project_id,
                        chosen,
                        _key(chosen, gift),
                        row,
                        gift.cents,
                        gift.reason,
                        charges_fee=endpoint.charges_fee,
                    )
                ]
                sender.check(waiting, _WHAT)
                if not confirm(chosen, cost_of(waiting)):
                    raise UsageError("the total was not confirmed; nothing was sent")
                sender.plan(waiting, _WHAT)
            sender.send(waiting)
            [sent] = sender.sent.values()
    return _result(chosen, sent)


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
    found = [row for row in ledger.settled_work(session, environment) if row.worker == worker]
    if not found:
        raise StoreError(
            f"nobody of id {worker!r} has submitted work on {environment}, and a bonus needs a submission; let them "
            "submit a HIT first, or pay them outside and note it"
        )
    return found[-1]


def _key(environment: Environment, gift: Gift) -> str:
    what = hashlib.sha256(f"{gift.cents}:{gift.reason}".encode()).hexdigest()[:16]
    return f"{COMPENSATE}:{environment}:{gift.worker}:{what}"


def _result(environment: Environment, sent: Planned) -> StageResult:
    fee = f" (fee {format_dollars(sent.fee_cents)})" if sent.fee_cents else ""
    return StageResult(
        counts=_counts(environment, sent.worker, sent.cents, sent.fee_cents, n_sent=1),
        lines=(f"sent {sent.worker} a bonus of {format_dollars(sent.cents)}{fee}",),
        next="mitl pay",
    )


def _sent_before(environment: Environment, gift: Gift, when: str) -> StageResult:
    return StageResult(
        status="nothing_to_do",
        counts=_counts(environment, gift.worker, 0, 0, n_sent=0),
        lines=(
            f"nothing to do: {gift.worker} was sent {format_dollars(gift.cents)} for this reason on {when}; give "
            "another reason to pay once more",
        ),
    )


def _counts(environment: Environment, worker: str, cents: int, fee: int, *, n_sent: int) -> dict[str, object]:
    return {
        "environment": environment.value,
        "worker": worker,
        "sent": n_sent,
        "bonuses_cents": cents,
        "fees_cents": fee,
        "total_cents": cents + fee,
    }
