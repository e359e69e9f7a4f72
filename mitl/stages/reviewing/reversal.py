"""Paying after all for work that was rejected, while the server still allows it."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.crowd.environment import choose_environment
from mitl.crowd.paying import OVERRIDE, REJECT, REJECTED
from mitl.db.session import open_database
from mitl.db.store import answers as answer_store
from mitl.db.store import hits as hit_store
from mitl.db.store import journal
from mitl.db.store.answers import AssignmentRow
from mitl.errors import StoreError, UsageError
from mitl.progress import Progress, no_progress
from mitl.records import Decision, Environment, JournalState, JudgementSource, StageResult
from mitl.settings import Settings
from mitl.stages.harvesting.deadlines import reversible_until, utc
from mitl.stages.reviewing.decisions import carry_out_kept, find_submission

CHOICES = (Decision.APPROVE, Decision.DROP)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A rejection and what can still be done about it."""

    reason: str
    sent: bool
    """Whether the server has been told."""
    until: dt.datetime | None
    """When it can no longer be reversed; None where the time of submission is unknown."""


def rejection_of(session: Session, row: AssignmentRow) -> Rejection | None:
    """Why a submission was rejected; None where it was not."""
    if row.decision is not Decision.REJECT:
        return None
    found = journal.find(session, REJECT, row.key)
    reason = "" if found is None else str(json.loads(found.request).get("reason", ""))
    return Rejection(reason, row.status == REJECTED, reversible_until(row))


def is_imported(session: Session, row: AssignmentRow) -> bool:
    """Whether a submission came from a file of past work, so that no server of this project knows it."""
    sources = {batch.name: batch.source for batch in hit_store.batches(session)}
    return sources[row.batch] is JudgementSource.IMPORT


def keep_reversal(
    settings: Settings,
    number: int,
    decision: Decision,
    environment: Environment | None = None,
    *,
    now: dt.datetime,
) -> bool:
    """Store that a rejected submission is to be paid after all; False where that is stored already.

    The call is made with the next that are.

    Args:
        decision: ``APPROVE`` uses its answers, ``DROP`` does not.

    Raises:
        UsageError: another decision.
        StoreError: there is no such submission, it was not rejected, the server has not heard of the rejection
            yet, the time is over, or it came from a file of past work.
    """
    if decision not in CHOICES:
        raise UsageError(f"a rejection is reversed to approve or drop, not to {decision.value!r}")
    with open_database(settings.db_url) as session:
        chosen = choose_environment(session, environment)
        row = find_submission(session, chosen, number)
        if row.decision is decision and journal.find(session, OVERRIDE, row.key) is not None:
            return False  # by an earlier run, whose call may still have to be made
        _check(row, now)
        if is_imported(session, row):
            raise StoreError(
                f"submission {row.id} came from a file of past work, so its rejection cannot be reversed from here"
            )
        request = json.dumps({"assignment": row.mturk_assignment_id, "was": "rejected"})
        journal.plan(session, OVERRIDE, [(row.key, None, request)], now)
        journal.mark(session, OVERRIDE, [row.key], JournalState.PLANNED, now)
        answer_store.set_decision(session, [row.id], decision)
        session.commit()
    return True


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
    new = [
        number
        for number in numbers
        if keep_reversal(settings, number, decision, chosen, now=dt.datetime.now(dt.UTC))
    ]
    done = carry_out_kept(settings, chosen, progress=progress)
    if not new and not done.approved:
        return StageResult(
            status="nothing_to_do",
            counts={"environment": chosen.value, "reversed": 0, "approved": 0},
            lines=("nothing to do: that is reversed already",),
            next="mitl status",
        )
    use = "used" if decision is Decision.APPROVE else "not used"
    return StageResult(
        counts={"environment": chosen.value, "reversed": len(numbers), "approved": done.approved},
        lines=(f"rejections reversed: {len(numbers):,}; the work is paid and its answers are {use}",),
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
            f"the rejection of submission {row.id} could be reversed until {utc(until)}; "
            "pay its worker with `mitl pay compensate` instead"
        )
