"""Operations on assignments, bonuses and the balance."""

from __future__ import annotations

import datetime as dt
from typing import Any

from mitl.crowd_server.api import shapes
from mitl.crowd_server.api.hits import already, key
from mitl.crowd_server.api.registry import Call, operation, paged
from mitl.crowd_server.errors import TurkError, absent, invalid, missing, out_of_range, turk
from mitl.crowd_server.models import DONE_STATES, AssignmentState
from mitl.crowd_server.store import accounts, assignments, hits, tokens
from mitl.crowd_server.store.assignments import AssignmentRow
from mitl.records import Environment

OVERRIDABLE_FOR = dt.timedelta(days=30)
_BY_STATUS = {name: state for state, name in shapes.STATUS.items()}


@operation("ListAssignmentsForHIT", writes=False)
def list_assignments(call: Call) -> dict[str, Any]:
    """A HIT's submitted assignments with their answers, in any state of the HIT."""
    hit_id = key(call)
    after, size = call.params.page()
    rows = assignments.list_of_hit(call.connection, hit_id, states=_states(call), after=after, limit=size + 1)
    return paged(rows, size, "Assignments", shapes.assignment)


@operation("GetAssignment", writes=False)
def get_assignment(call: Call) -> dict[str, Any]:
    """A submitted assignment with its HIT."""
    own = _find(call)
    hit = hits.find_hit(call.connection, call.environment, own.hit, call.now)
    assert hit is not None
    return {"Assignment": shapes.assignment(own), "HIT": shapes.hit(hit, call.now)}


@operation("ApproveAssignment", writes=True)
def approve_assignment(call: Call) -> dict[str, Any]:
    """Pay a submitted assignment, or with OverrideRejection one rejected within 30 days of its submission."""
    own = _find(call)
    feedback = call.params.text("RequesterFeedback", longest=1024)
    override = call.params.flag("OverrideRejection")
    if own.state is AssignmentState.REJECTED and override:
        hit = hits.find_hit(call.connection, call.environment, own.hit, call.now)
        assert hit is not None
        if hit.deleted_at is not None or own.submitted_at + OVERRIDABLE_FOR < call.now:
            raise turk(
                "InvalidAssignmentState",
                "A rejection can be overridden only within 30 days of submission and while the HIT exists.",
            )
    elif own.state is not AssignmentState.SUBMITTED:
        raise _wrong_state(own, "Submitted, Rejected" if override else "Submitted")
    assignments.approve(call.connection, call.environment, own, feedback=feedback, now=call.now)
    return {}


@operation("RejectAssignment", writes=True)
def reject_assignment(call: Call) -> dict[str, Any]:
    """Refuse a submitted assignment, with the reason for the worker."""
    own = _find(call)
    feedback = call.params.text("RequesterFeedback", longest=1024, required=True)
    if own.state is not AssignmentState.SUBMITTED:
        raise _wrong_state(own, "Submitted")
    assignments.reject(call.connection, call.environment, own, feedback=feedback, now=call.now)
    return {}


@operation("SendBonus", writes=True)
def send_bonus(call: Call) -> dict[str, Any]:
    """Owe a worker a bonus for an assignment that they submitted."""
    own = _find(call)
    worker = call.params.worker("WorkerId")
    cents = call.params.cents("BonusAmount")
    reason = call.params.text("Reason", longest=2000, required=True)
    token = call.params.token()
    if token:
        earlier = tokens.recall(call.connection, call.environment, "bonus", token, call.now)
        if earlier is not None:
            raise already("BonusAlreadyGranted", "Bonuses", "request", earlier)
    if worker != own.worker:
        raise invalid("WorkerId", f"assignment {own.mturk_id} was not submitted by {worker}")
    if cents < 1:
        raise out_of_range("BonusAmount", shapes.dollars(cents), "at least 0.01")
    assignments.add_bonus(call.connection, call.environment, own, cents=cents, reason=reason, now=call.now)
    if token:
        tokens.remember(call.connection, call.environment, "bonus", token, call.request_id, call.now)
    return {}


@operation("ListBonusPayments", writes=False)
def list_bonus_payments(call: Call) -> dict[str, Any]:
    """The bonuses of a HIT or of an assignment."""
    params = call.params
    if params.has("HITId") == params.has("AssignmentId"):
        raise missing("HITId or AssignmentId (exactly one of them)")
    if params.has("HITId"):
        key(call)
    after, size = params.page()
    rows = assignments.list_bonuses(
        call.connection,
        call.environment,
        hit=params.entity("HITId") if params.has("HITId") else None,
        assignment=params.entity("AssignmentId") if params.has("AssignmentId") else None,
        after=after,
        limit=size + 1,
    )
    return paged(rows, size, "BonusPayments", shapes.bonus)


@operation("GetAccountBalance", writes=False)
def get_account_balance(call: Call) -> dict[str, Any]:
    """What may be spent; in the sandbox always 10,000.00."""
    found = accounts.balance(call.connection, call.environment)
    if call.environment is Environment.SANDBOX:
        return {"AvailableBalance": shapes.dollars(accounts.SANDBOX_CENTS)}
    reply = {"AvailableBalance": shapes.dollars(max(0, found.available))}
    if found.held:
        reply["OnHoldBalance"] = shapes.dollars(found.held)
    return reply


def _find(call: Call) -> AssignmentRow:
    mturk_id = call.params.entity("AssignmentId")
    own = assignments.find(call.connection, call.environment, mturk_id)
    if own is None:
        raise absent("Assignment", "AssignmentDoesNotExist", mturk_id)
    return own


def _states(call: Call) -> list[AssignmentState]:
    given = call.params.raw("AssignmentStatuses")
    if not given:
        return list(DONE_STATES)
    if not isinstance(given, list) or any(status not in _BY_STATUS for status in given):
        raise invalid("AssignmentStatuses", f"it must be a list of {', '.join(_BY_STATUS)}")
    return [_BY_STATUS[status] for status in given]


def _wrong_state(own: AssignmentRow, allowed: str) -> TurkError:
    return turk(
        "InvalidAssignmentState",
        f"This Assignment is currently in the state '{shapes.STATUS[own.state]}'. "
        f"This operation can be called with a status of: {allowed}.",
    )
