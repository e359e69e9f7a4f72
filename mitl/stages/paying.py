"""Calls that bind: approve, reject, exclude. Each is journalled before it is made and booked once after."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.crowd.client import MTurkClient
from mitl.db.store import answers as answer_store
from mitl.db.store import hits as hit_store
from mitl.db.store import journal
from mitl.db.store.answers import AssignmentRow
from mitl.errors import CrowdError
from mitl.hits.pricing import fee_cents
from mitl.progress import Progress
from mitl.records import Decision, Environment, JournalState
from mitl.settings import Settings
from mitl.stages.exclusion import exclusion_qualification

APPROVE, REJECT, EXCLUDE = "approve", "reject", "qualification"

SUBMITTED = "Submitted"
"""The API's status of work that was neither approved nor rejected."""

_PAID = (Decision.PASS, Decision.APPROVE, Decision.APPROVE_EXCLUDE, Decision.DROP)
_WINDOW = 16
_THREADS = 4


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """How many calls of each kind were made."""

    approved: int
    rejected: int
    excluded: int


def plan_rejection(session: Session, row: AssignmentRow, reason: str) -> None:
    """Keep the reason of a rejection with its intent, so that a killed run can still carry it out."""
    request = json.dumps({"assignment": row.mturk_assignment_id, "reason": reason})
    journal.plan(session, REJECT, [(row.key, None, request)], _now())


def has_open_calls(session: Session, environment: Environment) -> bool:
    """Whether something was decided that the server has not heard of."""
    decided = answer_store.assignments(session, environment, (*_PAID, Decision.REJECT))
    return any(row.status == SUBMITTED or _is_to_exclude(row) for row in decided)


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

    def book_payment(row: AssignmentRow) -> None:
        batch = batches[row.batch]
        answer_store.set_status(session, row.id, "Approved")
        journal.add_ledger(session, row.id, "reward", f"reward:{row.key}", batch.reward_cents)
        fee = fee_cents(batch.reward_cents, batch.assignments) if charges_fee else 0
        if fee:
            journal.add_ledger(session, row.id, "fee", f"fee:{row.key}", fee)

    approved = _call_all(
        session,
        APPROVE,
        [row for row in paid if row.status == SUBMITTED],
        call=lambda row: client.approve(row.mturk_assignment_id),
        book=book_payment,
        progress=progress,
    )
    to_reject = [row for row in refused if row.status == SUBMITTED]
    reasons = {row.key: _reason(session, row) for row in to_reject}
    rejected = _call_all(
        session,
        REJECT,
        to_reject,
        call=lambda row: client.reject(row.mturk_assignment_id, reasons[row.key]),
        book=lambda row: answer_store.set_status(session, row.id, "Rejected"),
        progress=progress,
    )
    leaving = {row.worker: row for row in paid if _is_to_exclude(row)}
    for row in leaving.values():
        _exclude(session, client, settings.project_id, row)
    return CarriedOut(approved, rejected, len(leaving))


def _is_to_exclude(row: AssignmentRow) -> bool:
    return row.decision is Decision.APPROVE_EXCLUDE and not row.excluded


def _reason(session: Session, row: AssignmentRow) -> str:
    found = journal.find(session, REJECT, row.key)
    assert found is not None, f"submission {row.id} is to be rejected without a journalled reason"
    return str(json.loads(found.request)["reason"])


def _exclude(session: Session, client: MTurkClient, project_id: str, row: AssignmentRow) -> None:
    """Keep a worker from further HITs by the project's own qualification."""
    qualification = exclusion_qualification(client, project_id)
    key = f"exclude:{row.worker}"
    request = json.dumps({"worker": row.worker, "qualification": qualification})
    journal.plan(session, EXCLUDE, [(key, None, request)], _now())
    journal.mark(session, EXCLUDE, [key], JournalState.SENDING, _now())
    session.commit()
    client.associate_qualification(qualification, row.worker)
    answer_store.exclude_worker(session, row.worker_id, f"submission {row.id}", _now())
    journal.mark(session, EXCLUDE, [key], JournalState.DONE, _now())
    session.commit()


def _call_all(
    session: Session,
    kind: str,
    rows: Sequence[AssignmentRow],
    *,
    call: Callable[[AssignmentRow], object],
    book: Callable[[AssignmentRow], None],
    progress: Progress,
) -> int:
    done = 0
    if not rows:
        return 0
    with (
        progress(kind, len(rows)) as advance,
        ThreadPoolExecutor(_THREADS, thread_name_prefix=kind) as pool,
    ):
        for start in range(0, len(rows), _WINDOW):
            window = rows[start : start + _WINDOW]
            requests = [
                (row.key, None, json.dumps({"assignment": row.mturk_assignment_id})) for row in window
            ]
            journal.plan(session, kind, requests, _now())
            journal.mark(session, kind, [row.key for row in window], JournalState.SENDING, _now())
            session.commit()
            futures = [(row, pool.submit(call, row)) for row in window]
            failure: CrowdError | None = None
            for row, future in futures:
                try:
                    future.result()
                except CrowdError as error:
                    failure = failure or error
                    journal.mark(session, kind, [row.key], JournalState.FAILED, _now(), error=str(error))
                    continue
                book(row)
                journal.mark(session, kind, [row.key], JournalState.DONE, _now())
                done += 1
                advance(1)
            session.commit()
            if failure is not None:
                raise failure
    return done


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
