"""Calls that bind: approve, reject, exclude. Each is journalled before it is made and booked once after."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.core.pricing import fee_cents
from mitl.crowd.calls import Call, make_calls
from mitl.crowd.client import MTurkClient
from mitl.crowd.worker_calls import exclusion_qualification
from mitl.db.store import answers as answer_store
from mitl.db.store import desk as desk_store
from mitl.db.store import hits as hit_store
from mitl.db.store import journal
from mitl.db.store.answers import AssignmentRow
from mitl.db.store.hits import BatchRow
from mitl.errors import CrowdError
from mitl.progress import Progress
from mitl.records import Decision, Environment, Finding
from mitl.settings import Settings

APPROVE, REJECT, EXCLUDE, OVERRIDE = "approve", "reject", "qualification", "override"

SUBMITTED, APPROVED, REJECTED = "Submitted", "Approved", "Rejected"
"""The API's words for work that waits for a decision, is paid, and is refused."""

APPROVED_BEFORE_REJECTION = "approved_before_rejection"

_PAID = (Decision.PASS, Decision.APPROVE, Decision.APPROVE_EXCLUDE, Decision.DROP)


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """How many calls of each kind were made."""

    approved: int
    rejected: int
    excluded: int
    too_late: int = 0
    """Rejections that found the work approved already, by itself after its delay: it is paid and not used."""


def plan_rejection(session: Session, row: AssignmentRow, reason: str) -> None:
    """Keep the reason of a rejection with its intent, so that a killed run can still carry it out."""
    request = json.dumps({"assignment": row.mturk_assignment_id, "reason": reason})
    journal.plan(session, REJECT, [(row.key, None, request)], _now())


def book_payment(
    session: Session,
    assignment_id: int,
    key: str,
    batch: BatchRow,
    *,
    charges_fee: bool,
    wanted: int | None = None,
) -> None:
    """Book an approved submission's reward, and the fee where the endpoint takes one; never twice.

    Args:
        wanted: workers whom the submission's HIT asks for; looked up where it is not given.
    """
    journal.add_ledger(session, assignment_id, "reward", f"reward:{key}", batch.reward_cents)
    if charges_fee:
        wanted = answer_store.workers_wanted(session, assignment_id) if wanted is None else wanted
        journal.add_ledger(session, assignment_id, "fee", f"fee:{key}", fee_cents(batch.reward_cents, wanted))


def has_open_calls(session: Session, environment: Environment) -> bool:
    """Whether something was decided that the server has not heard of."""
    decided = answer_store.assignments(session, environment, (*_PAID, Decision.REJECT))
    if any(row.status == SUBMITTED or _is_to_exclude(row) for row in decided):
        return True
    return bool(_to_override(session, decided))


def carry_out(
    session: Session,
    client: MTurkClient,
    settings: Settings,
    environment: Environment,
    *,
    charges_fee: bool,
    progress: Progress,
) -> CarriedOut:
    """Make the calls that stored decisions ask for and that were not made yet, by this run or an earlier one."""
    paid = answer_store.assignments(session, environment, _PAID)
    refused = answer_store.assignments(session, environment, (Decision.REJECT,))
    batches = {batch.name: batch for batch in hit_store.batches(session, environment)}
    session.rollback()

    def book_approval(row: AssignmentRow, _: bool) -> None:
        answer_store.set_status(session, row.id, APPROVED)
        batch = batches[row.batch]
        book_payment(session, row.id, row.key, batch, charges_fee=charges_fee, wanted=row.wanted)

    approved = make_calls(
        session,
        APPROVE,
        _calls([row for row in paid if row.status == SUBMITTED]),
        call=lambda row: client.approve(row.mturk_assignment_id),
        book=book_approval,
        progress=progress,
    )
    approved += make_calls(
        session,
        OVERRIDE,
        _calls(_to_override(session, paid)),
        call=lambda row: client.approve(row.mturk_assignment_id, override_rejection=True),
        book=book_approval,
        progress=progress,
    )
    to_reject = [row for row in refused if row.status == SUBMITTED]
    reasons = {row.key: _reason(session, row) for row in to_reject}
    too_late: set[int] = set()

    def book_rejection(row: AssignmentRow, rejected: bool) -> None:
        if rejected:
            answer_store.set_status(session, row.id, REJECTED)
            return
        book_approval(row, True)
        answer_store.set_decision(session, [row.id], Decision.DROP)
        finding = Finding(APPROVED_BEFORE_REJECTION, "the work had been approved by itself")
        answer_store.add_findings(session, row.id, [finding])
        too_late.add(row.id)

    rejected = make_calls(
        session,
        REJECT,
        _calls(to_reject),
        call=lambda row: _reject(client, row, reasons[row.key]),
        book=book_rejection,
        progress=progress,
    )
    leaving = [row for row in paid if _is_to_exclude(row)]
    excluded = _exclude(session, client, settings, environment, leaving, progress)
    return CarriedOut(approved, rejected - len(too_late), excluded, len(too_late))


def _reject(client: MTurkClient, row: AssignmentRow, reason: str) -> bool:
    """Refuse a submission; False where it had been approved by itself before."""
    try:
        client.reject(row.mturk_assignment_id, reason)
    except CrowdError:
        assert row.mturk_hit_id is not None
        found = client.list_assignments(row.mturk_hit_id)
        now = {(one.assignment_id, one.worker_id): one.status for one in found}
        if now.get((row.mturk_assignment_id, row.worker)) != APPROVED:
            raise
        return False
    return True


def _to_override(session: Session, rows: Sequence[AssignmentRow]) -> list[AssignmentRow]:
    """Rejected work that a person decided to pay after all; never work that somebody else rejected elsewhere."""
    rejected = [row for row in rows if row.status == REJECTED and row.decision is not Decision.REJECT]
    if not rejected:
        return []
    planned = desk_store.open_keys(session, OVERRIDE)
    return [row for row in rejected if row.key in planned]


def _is_to_exclude(row: AssignmentRow) -> bool:
    return row.decision is Decision.APPROVE_EXCLUDE and not row.excluded


def _reason(session: Session, row: AssignmentRow) -> str:
    found = journal.find(session, REJECT, row.key)
    assert found is not None, f"submission {row.id} is to be rejected without a journalled reason"
    return str(json.loads(found.request)["reason"])


def _exclude(
    session: Session,
    client: MTurkClient,
    settings: Settings,
    environment: Environment,
    rows: Sequence[AssignmentRow],
    progress: Progress,
) -> int:
    """Keep the workers of these submissions from further HITs by the project's own qualification."""
    leaving = {row.worker: row for row in rows}
    if not leaving:
        return 0
    session.rollback()
    qualification = exclusion_qualification(client, settings.project_id)

    def call(row: AssignmentRow) -> None:
        client.associate_qualification(qualification, row.worker)

    calls = [
        Call(f"exclude:{environment}:{worker}", row, {"worker": worker, "qualification": qualification})
        for worker, row in leaving.items()
    ]
    return make_calls(
        session,
        EXCLUDE,
        calls,
        call=call,
        book=lambda row, _: answer_store.exclude_worker(
            session, row.worker_id, f"submission {row.id}", _now()
        ),
        progress=progress,
    )


def _calls(rows: Sequence[AssignmentRow]) -> list[Call[AssignmentRow]]:
    return [Call(row.key, row, {"assignment": row.mturk_assignment_id}) for row in rows]


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
