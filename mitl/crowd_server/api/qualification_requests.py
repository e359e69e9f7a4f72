"""Operations on workers' requests for qualifications."""

from __future__ import annotations

from typing import Any

from mitl.crowd_server.api.qualification_shapes import qualification_request
from mitl.crowd_server.api.qualification_terms import INT32
from mitl.crowd_server.api.qualification_types import find_type
from mitl.crowd_server.api.qualifications import tell
from mitl.crowd_server.api.registry import Call, operation, paged
from mitl.crowd_server.errors import absent, turk
from mitl.crowd_server.models import RequestState
from mitl.crowd_server.store import qualifications, requests
from mitl.crowd_server.store.requests import RequestRow
from mitl.crowd_server.work import letters

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
    tell(call, own.worker_id, letters.granted(own.name, value))
    return {}


@operation("RejectQualificationRequest", writes=True)
def reject_qualification_request(call: Call) -> dict[str, Any]:
    """Refuse what a worker asked for; the reason is shown to them."""
    reason = call.params.text("Reason", longest=1024)
    own = _pending(call)
    requests.decide(call.connection, own.id, RequestState.REJECTED, call.now, reason=reason)
    tell(call, own.worker_id, letters.refused(own.name, reason))
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
