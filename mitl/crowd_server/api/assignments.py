"""Operations on assignments, bonuses and the balance."""

from __future__ import annotations

import datetime as dt
from functools import cache, partial

from mitl.core.pricing import amount
from mitl.crowd_server.api import notifications, shapes
from mitl.crowd_server.api.hits import fresh_token, key
from mitl.crowd_server.api.registry import ApiCall, Reply, operation
from mitl.crowd_server.pages import questions
from mitl.crowd_server.protocol.errors import invalid, missing, out_of_range, present, turk, wrong_state
from mitl.crowd_server.protocol.question_form import QuestionForm
from mitl.crowd_server.store import accounts, assignments, hits, workers
from mitl.crowd_server.store.assignments import AssignmentRow
from mitl.crowd_server.store.hits import HitRow
from mitl.crowd_server.store.models import DONE_STATES, AssignmentState
from mitl.records import Environment

OVERRIDABLE_FOR = dt.timedelta(days=30)
_OVERRIDING = "A rejection can be overridden only within 30 days of submission and while the HIT exists"
_BY_STATUS = {name: state for state, name in shapes.STATUS.items()}


@operation("ListAssignmentsForHIT", writes=False)
def list_assignments(call: ApiCall) -> Reply:
    """List the submitted assignments of a HIT with their answers, whatever the HIT's status."""
    hit_id = key(call)
    statuses = call.params.choices("AssignmentStatuses", tuple(_BY_STATUS))
    states = [_BY_STATUS[status] for status in statuses] or DONE_STATES
    rows_of = partial(assignments.list_of_hit, call.connection, hit_id, states)
    form = cache(lambda: questions.form_of(hits.form(call.connection, hit_id)))  # asked for by the first row
    return call.listed("Assignments", rows_of, lambda own: _shape(own, form()))


@operation("GetAssignment", writes=False)
def get_assignment(call: ApiCall) -> Reply:
    """Return a submitted assignment together with its HIT, including the question."""
    assignment = _find(call)
    hit = _hit(call, assignment)
    question = hits.question(call.connection, hit.id)
    return {
        "Assignment": _shape(assignment, questions.form_of(question)),
        "HIT": shapes.hit(hit, call.now, question),
    }


@operation("ApproveAssignment", writes=True)
def approve_assignment(call: ApiCall) -> None:
    """Approve a submitted assignment, or with OverrideRejection a rejected one up to 30 days after submission."""
    assignment = _find(call)
    feedback = call.params.text("RequesterFeedback", longest=1024)
    override = call.params.flag("OverrideRejection")
    if assignment.state is AssignmentState.REJECTED and override:
        if _hit(call, assignment).deleted_at is not None:
            raise turk("InvalidAssignmentState", f"{_OVERRIDING}, but the HIT {assignment.hit} was deleted.")
        if assignment.submitted_at + OVERRIDABLE_FOR < call.now:
            raise turk(
                "InvalidAssignmentState",
                f"{_OVERRIDING}, but this one was submitted on {assignment.submitted_at:%Y-%m-%d %H:%M} UTC.",
            )
    elif assignment.state is not AssignmentState.SUBMITTED:
        allowed = "Submitted, Rejected" if override else "Submitted"
        raise wrong_state("Assignment", shapes.STATUS[assignment.state], allowed)
    assignments.approve(call, assignment, feedback)
    if assignment.state is AssignmentState.REJECTED:
        workers.tell(call, assignment.worker_id, *notifications.reversal(assignment.title, feedback))


@operation("RejectAssignment", writes=True)
def reject_assignment(call: ApiCall) -> None:
    """Reject a submitted assignment and tell the worker why."""
    assignment = _find(call)
    feedback = call.params.text("RequesterFeedback", longest=1024, required=True)
    if assignment.state is not AssignmentState.SUBMITTED:
        raise wrong_state("Assignment", shapes.STATUS[assignment.state], "Submitted")
    assignments.reject(call, assignment, feedback)
    workers.tell(call, assignment.worker_id, *notifications.rejection(assignment.title, feedback))


@operation("SendBonus", writes=True)
def send_bonus(call: ApiCall) -> None:
    """Grant a worker a bonus for an assignment they submitted."""
    assignment = _find(call)
    worker = call.params.worker("WorkerId")
    cents = call.params.cents("BonusAmount")
    reason = call.params.text("Reason", longest=2000, required=True)
    token = fresh_token(call, "bonus", "BonusAlreadyGranted", "Bonuses", "request")
    if worker != assignment.worker:
        raise invalid("WorkerId", f"assignment {assignment.mturk_id} was not submitted by {worker}")
    if cents < 1:
        raise out_of_range("BonusAmount", amount(cents), "at least 0.01")
    assignments.add_bonus(call, assignment, cents=cents, reason=reason)
    accounts.remember(call, "bonus", token, call.request_id)
    letter = notifications.bonus(f"${amount(cents)}", assignment.title, reason)
    workers.tell(call, assignment.worker_id, *letter)


@operation("ListBonusPayments", writes=False)
def list_bonus_payments(call: ApiCall) -> Reply:
    """List the bonuses granted for a HIT or an assignment."""
    params = call.params
    if not params.has("HITId") and not params.has("AssignmentId"):
        raise missing("HITId or AssignmentId")
    hit_id = key(call) if params.has("HITId") else None
    own_id = _find(call).id if params.has("AssignmentId") else None
    rows_of = partial(assignments.list_bonuses, call, hit_id=hit_id, assignment_id=own_id)
    return call.listed("BonusPayments", rows_of, shapes.bonus)


@operation("GetAccountBalance", writes=False)
def get_account_balance(call: ApiCall) -> Reply:
    """Return the available balance; in the sandbox it is always 10,000.00."""
    balance = accounts.balance(call.connection, call.environment)
    reply = {"AvailableBalance": amount(max(0, balance.available))}
    if balance.held and call.environment is Environment.LIVE:
        reply["OnHoldBalance"] = amount(balance.held)
    return reply


def _find(call: ApiCall) -> AssignmentRow:
    mturk_id = call.params.entity("AssignmentId")
    assignment = assignments.find(call, mturk_id)
    if assignment is None and assignments.is_known(call, mturk_id):
        raise turk(
            "InvalidAssignmentState",
            f"Nobody has submitted the assignment {mturk_id}: a worker has accepted it or gave it back. "
            "This operation can be called with a status of: Submitted, Approved, Rejected.",
        )
    return present(assignment, "Assignment", "AssignmentDoesNotExist", mturk_id)


def _hit(call: ApiCall, own: AssignmentRow) -> HitRow:
    hit = hits.find_hit(call, own.hit)
    assert hit is not None
    return hit


def _shape(own: AssignmentRow, form: QuestionForm | None) -> Reply:
    """An assignment, its answer in the terms of its question's form where it has one."""
    shape = shapes.assignment(own)
    if form is not None:
        shape["Answer"] = questions.answer_xml(form, own.answer)
    return shape
