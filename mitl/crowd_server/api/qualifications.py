"""Operations on qualifications and on workers' requests for them."""

from __future__ import annotations

from typing import Any

from mitl.crowd_server.api import notifications
from mitl.crowd_server.api.notifications import tell
from mitl.crowd_server.api.qualification_types import INT32, find_type
from mitl.crowd_server.api.registry import Call, operation, paged
from mitl.crowd_server.api.shapes import qualification, qualification_request
from mitl.crowd_server.protocol.errors import absent, invalid, turk
from mitl.crowd_server.store import qualifications, requests
from mitl.crowd_server.store.models import RequestState
from mitl.crowd_server.store.qualifications import QualificationRow
from mitl.crowd_server.store.requests import RequestRow
from mitl.crowd_server.store.workers import WorkerRow


@operation("AssociateQualificationWithWorker", writes=True)
def associate_qualification(call: Call) -> dict[str, Any]:
    """Give a worker a qualification, or change its value; requests that wait are left alone."""
    notify = call.params.flag("SendNotification", True)
    own, worker = find_type(call), find_worker(call)
    value = call.params.integer("IntegerValue", -INT32, INT32, 1)
    qualifications.grant(call.connection, own.id, worker.id, value, call.now)
    if notify:
        tell(call, worker.id, notifications.granted(own.name, value))
    return {}


@operation("DisassociateQualificationFromWorker", writes=True)
def disassociate_qualification(call: Call) -> dict[str, Any]:
    """Take a qualification away; where there is a reason, the worker is told."""
    reason = call.params.text("Reason", longest=1024)
    own, worker = find_type(call), find_worker(call)
    held = _granted(call)
    qualifications.revoke(call.connection, held.id, call.now)
    if reason:
        tell(call, worker.id, notifications.revoked(own.name, reason))
    return {}


@operation("GetQualificationScore", writes=False)
def get_qualification_score(call: Call) -> dict[str, Any]:
    """What a worker holds of a type; what was taken back has no score, and MTurk's clients wait for this error."""
    return {"Qualification": qualification(_granted(call))}


@operation("ListWorkersWithQualificationType", writes=False)
def list_workers_with_qualification_type(call: Call) -> dict[str, Any]:
    """Who holds a type, or whose was revoked."""
    own = find_type(call)
    status = call.params.choice("Status", ("Granted", "Revoked"), "Granted")
    after, size = call.page()
    rows = qualifications.list_holders(
        call.connection, own.id, granted=status == "Granted", after=after, limit=size + 1
    )
    return paged(call, rows, size, "Qualifications", qualification)


def find_worker(call: Call) -> WorkerRow:
    """The worker whom a call names; TurkError InvalidParameterValue where nobody here has this id."""
    mturk_id = call.params.worker("WorkerId")
    worker = qualifications.find_worker(call.connection, call.environment, mturk_id)
    if worker is None:
        raise invalid("WorkerId", f"no worker {mturk_id} has joined this server in this environment")
    return worker


def _granted(call: Call) -> QualificationRow:
    held = qualifications.find(call.connection, find_type(call).id, find_worker(call).id)
    if held is None:
        raise turk("QualificationDoesNotExist", "You requested a Qualification that does not exist.")
    if held.revoked_at is not None:
        raise turk(
            "InvalidQualificationState",
            "This Qualification is currently in the state 'Revoked'. "
            "This operation can be called with a status of: Granted.",
        )
    return held


_NAMES = {
    RequestState.TESTING: "Testing",
    RequestState.PENDING: "Submitted",
    RequestState.GRANTED: "Granted",
    RequestState.REJECTED: "Rejected",
}


@operation("ListQualificationRequests", writes=False)
def list_qualification_requests(call: Call) -> dict[str, Any]:
    """Requests that wait for a decision, of one type or of all."""
    own = find_type(call) if call.params.has("QualificationTypeId") else None
    after, size = call.page()
    rows = requests.list_pending(
        call.connection,
        call.environment,
        type_id=None if own is None else own.id,
        after=after,
        limit=size + 1,
    )
    tests = requests.tests_of(call.connection, [row.type_id for row in rows])
    return paged(
        call,
        rows,
        size,
        "QualificationRequests",
        lambda row: qualification_request(row, tests.get(row.type_id)),
    )


@operation("AcceptQualificationRequest", writes=True)
def accept_qualification_request(call: Call) -> dict[str, Any]:
    """Grant what a worker asked for, with a value or without."""
    value = None
    if call.params.has("IntegerValue"):
        value = call.params.integer("IntegerValue", -INT32, INT32)
    own = _pending(call)
    qualifications.grant(call.connection, own.type_id, own.worker_id, value, call.now)
    requests.decide(call.connection, own.id, RequestState.GRANTED, call.now)
    tell(call, own.worker_id, notifications.granted(own.name, value))
    return {}


@operation("RejectQualificationRequest", writes=True)
def reject_qualification_request(call: Call) -> dict[str, Any]:
    """Refuse what a worker asked for; the reason is shown to them."""
    reason = call.params.text("Reason", longest=1024)
    own = _pending(call)
    requests.decide(call.connection, own.id, RequestState.REJECTED, call.now, reason=reason)
    tell(call, own.worker_id, notifications.refused(own.name, reason))
    return {}


def _pending(call: Call) -> RequestRow:
    mturk_id = call.params.text("QualificationRequestId", required=True)
    own = requests.find(call.connection, call.environment, mturk_id)
    if own is None:
        raise absent("QualificationRequest", "QualificationRequestDoesNotExist", mturk_id[:64])
    if own.state is not RequestState.PENDING:
        raise turk(
            "InvalidQualificationRequestState",
            f"This QualificationRequest is currently in the state '{_NAMES[own.state]}'. "
            "This operation can be called with a status of: Submitted.",
        )
    return own
