"""Paying after all for work that was rejected, while the server still allows it."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.db.session import open_database
from mitl.db.store import answers as answer_store
from mitl.db.store import journal
from mitl.db.store.answers import AssignmentRow
from mitl.errors import StoreError, UsageError
from mitl.progress import Progress, no_progress
from mitl.records import Decision, Environment, JournalState, StageResult
from mitl.settings import Settings
from mitl.stages.decisions import carry_out_kept
from mitl.stages.environment import choose_environment
from mitl.stages.paying import OVERRIDE, REJECT, REJECTED

WITHIN = dt.timedelta(days=30)
"""From submission on; MTurk's rule, and this server's."""
CHOICES = (Decision.APPROVE, Decision.DROP)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A rejection and what can still be done about it."""

    reason: str
    sent: bool
    """Whether the server has been told."""
    until: dt.datetime | None
    """When it can no longer be reversed; None where the time of submission is unknown."""


def reversible_until(row: AssignmentRow) -> dt.datetime | None:
    """The last moment at which a rejection of this submission can be reversed."""
    return None if row.submitted_at is None else row.submitted_at + WITHIN


def rejection_of(session: Session, row: AssignmentRow) -> Rejection | None:
    """Why a submission was rejected; None where it was not."""
    if row.decision is not Decision.REJECT:
        return None
    found = journal.find(session, REJECT, row.key)
    reason = "" if found is None else str(json.loads(found.request).get("reason", ""))
    return Rejection(reason, row.status == REJECTED, reversible_until(row))


def keep_reversal(
    settings: Settings,
    number: int,
    decision: Decision,
    environment: Environment | None = None,
    *,
    now: dt.datetime,
) -> None:
    """Store that a rejected submission is to be paid after all; the call is made with the next that are.

    Args:
        decision: ``APPROVE`` uses its answers, ``DROP`` does not.

    Raises:
        UsageError: another decision.
        StoreError: there is no such submission, it was not rejected, the server has not heard of the rejection
            yet, or the time is over.
    """
    if decision not in CHOICES:
        raise UsageError(f"a rejection is reversed to approve or drop, not to {decision.value!r}")
    with open_database(settings.db_url) as session:
        chosen = choose_environment(session, environment)
        row = next((one for one in answer_store.assignments(session, chosen) if one.id == number), None)
        if row is None:
            raise StoreError(f"there is no submission {number} on {chosen}")
        _check(row, now)
        request = json.dumps({"assignment": row.mturk_assignment_id, "was": "rejected"})
        journal.plan(session, OVERRIDE, [(row.key, None, request)], now)
        journal.mark(session, OVERRIDE, [row.key], JournalState.PLANNED, now)
        answer_store.set_decision(session, [row.id], decision)
        session.commit()


def reverse(
    settings: Settings,
    numbers: Sequence[int],
    decision: Decision,
    environment: Environment | None = None,
    *,
    progress: Progress = no_progress,
) -> StageResult:
    """Pay these rejected submissions after all, and tell the server.

    Raises:
        StoreError: as in `keep_reversal`; those named before the one at fault are reversed all the same.
    """
    with open_database(settings.db_url, read_only=True) as session:
        chosen = choose_environment(session, environment)
    for number in numbers:
        keep_reversal(settings, number, decision, chosen, now=dt.datetime.now(dt.UTC))
    done = carry_out_kept(settings, chosen, progress=progress)
    use = "used" if decision is Decision.APPROVE else "not used"
    return StageResult(
        counts={"environment": chosen.value, "reversed": len(numbers), "approved": done.approved},
        lines=(f"{len(numbers)} rejections reversed: the work is paid and its answers are {use}",),
        next="mitl status",
    )


def _check(row: AssignmentRow, now: dt.datetime) -> None:
    if row.decision is not Decision.REJECT:
        raise StoreError(f"submission {row.id} is not rejected, so there is nothing to reverse")
    if row.status != REJECTED:
        raise StoreError(
            f"the server has not heard of the rejection of submission {row.id} yet; reverse it when it has"
        )
    until = reversible_until(row)
    if until is not None and now > until:
        raise StoreError(
            f"the rejection of submission {row.id} could be reversed until {until:%Y-%m-%d %H:%M} UTC; "
            "pay its worker by a bonus instead"
        )
