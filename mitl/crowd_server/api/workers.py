"""Operations on workers: qualifications, requests for them, messages to many, and blocks.

A qualification that HITs exclude is kinder than a block.
"""

from __future__ import annotations

from functools import partial

from mitl.crowd_server.api import notifications
from mitl.crowd_server.api.qualification_types import INT32, find_type
from mitl.crowd_server.api.registry import ApiCall, Reply, operation
from mitl.crowd_server.api.shapes import qualification, qualification_request, worker_block
from mitl.crowd_server.protocol.errors import invalid, present, turk, wrong_state
from mitl.crowd_server.store import qualifications, workers
from mitl.crowd_server.store.models import RequestState
from mitl.crowd_server.store.qualifications import QualificationRow, RequestRow
from mitl.crowd_server.store.workers import WorkerRow


@operation("AssociateQualificationWithWorker", writes=True)
def associate_qualification(call: ApiCall) -> None:
    """Grant a worker a qualification, or change its value; pending requests are not affected."""
    notify = call.params.flag("SendNotification", True)
    own, worker = find_type(call), find_worker(call)
    value = call.params.integer("IntegerValue", -INT32, INT32, 1)
    qualifications.grant(call, own.id, worker.id, value)
    if notify:
        workers.tell(call, worker.id, *notifications.granted(own.name, value))


@operation("DisassociateQualificationFromWorker", writes=True)
def disassociate_qualification(call: ApiCall) -> None:
    """Revoke a worker's qualification; the worker is told only if you give a reason."""
    reason = call.params.text("Reason", longest=1024)
    own, worker = find_type(call), find_worker(call)
    held = _granted(call)
    qualifications.revoke(call, held.id)
    if reason:
        workers.tell(call, worker.id, *notifications.revoked(own.name, reason))


@operation("GetQualificationScore", writes=False)
def get_qualification_score(call: ApiCall) -> Reply:
    """Return a worker's qualification of a type; if it was revoked, return MTurk's error instead."""
    return {"Qualification": qualification(_granted(call))}


@operation("ListWorkersWithQualificationType", writes=False)
def list_workers_with_qualification_type(call: ApiCall) -> Reply:
    """List the workers who hold a type, or those from whom it was revoked."""
    own = find_type(call)
    status = call.params.choice("Status", ("Granted", "Revoked"), "Granted")
    rows_of = partial(qualifications.list_holders, call.connection, own.id, granted=status == "Granted")
    return call.listed("Qualifications", rows_of, qualification)


def find_worker(call: ApiCall) -> WorkerRow:
    """The worker whom a call names; TurkError InvalidParameterValue where nobody here has this id."""
    mturk_id = call.params.worker("WorkerId")
    worker = workers.known_worker(call, mturk_id)
    if worker is None:
        raise invalid("WorkerId", f"no worker {mturk_id} has joined this server in this environment")
    return worker


def _granted(call: ApiCall) -> QualificationRow:
    held = qualifications.find(call.connection, find_type(call).id, find_worker(call).id)
    if held is None:
        raise turk("QualificationDoesNotExist", "You requested a Qualification that does not exist.")
    if held.revoked_at is not None:
        raise wrong_state("Qualification", "Revoked", "Granted")
    return held


_NAMES = {
    RequestState.TESTING: "Testing",
    RequestState.PENDING: "Submitted",
    RequestState.GRANTED: "Granted",
    RequestState.REJECTED: "Rejected",
}


@operation("ListQualificationRequests", writes=False)
def list_qualification_requests(call: ApiCall) -> Reply:
    """List the pending requests for one type or for all types."""
    type_id = find_type(call).id if call.params.has("QualificationTypeId") else None
    rows_of = partial(qualifications.list_requests, call, type_id=type_id)
    return call.listed("QualificationRequests", rows_of, qualification_request)


@operation("AcceptQualificationRequest", writes=True)
def accept_qualification_request(call: ApiCall) -> None:
    """Accept a qualification request, with or without a value."""
    value = None
    if call.params.has("IntegerValue"):
        value = call.params.integer("IntegerValue", -INT32, INT32)
    own = _pending(call)
    qualifications.grant(call, own.type_id, own.worker_id, value)
    qualifications.decide_request(call, own.id, RequestState.GRANTED)
    workers.tell(call, own.worker_id, *notifications.granted(own.name, value))


@operation("RejectQualificationRequest", writes=True)
def reject_qualification_request(call: ApiCall) -> None:
    """Reject a qualification request; the worker sees the reason."""
    reason = call.params.text("Reason", longest=1024)
    own = _pending(call)
    qualifications.decide_request(call, own.id, RequestState.REJECTED, reason)
    workers.tell(call, own.worker_id, *notifications.refused(own.name, reason))


def _pending(call: ApiCall) -> RequestRow:
    mturk_id = call.params.text("QualificationRequestId", required=True)
    found = qualifications.find_request(call, mturk_id)
    own = present(found, "QualificationRequest", "QualificationRequestDoesNotExist", mturk_id[:64])
    if own.state is not RequestState.PENDING:
        raise wrong_state("QualificationRequest", _NAMES[own.state], "Submitted")
    return own


MAX_WORKERS = 100


@operation("NotifyWorkers", writes=True)
def notify_workers(call: ApiCall) -> Reply:
    """Send a message to workers whose work was approved or rejected; the reply lists those not reached."""
    subject = call.params.text("Subject", longest=200, required=True)
    text = call.params.text("MessageText", longest=4096, required=True)
    wanted = call.params.workers("WorkerIds", longest=MAX_WORKERS)
    known = workers.acquaintances(call, wanted)
    failures: list[dict[str, str]] = []
    for mturk_id in wanted:
        own_id, decided, waits = known.get(mturk_id, (0, False, False))
        if decided:
            workers.tell(call, own_id, subject, text)
        else:
            failures.append(_failure(mturk_id, joined=mturk_id in known, waits=waits))
    return {"NotifyWorkersFailureStatuses": failures}


def _failure(mturk_id: str, *, joined: bool, waits: bool) -> dict[str, str]:
    """Soft where trying later can help."""
    if not joined:
        message = f"No worker {mturk_id} has joined this server in this environment."
    elif waits:
        message = f"You have not approved or rejected work of worker {mturk_id} yet."
    else:
        message = f"Worker {mturk_id} has no work that you approved or rejected."
    return {
        "NotifyWorkersFailureCode": "SoftFailure" if waits else "HardFailure",
        "NotifyWorkersFailureMessage": message,
        "WorkerId": mturk_id,
    }


@operation("CreateWorkerBlock", writes=True)
def create_worker_block(call: ApiCall) -> None:
    """Block a worker from all HITs; the worker is told about the block, but not the reason."""
    worker = find_worker(call)
    reason = call.params.text("Reason", longest=1024, required=True)
    if workers.block(call, worker, reason):
        workers.tell(call, worker.id, *notifications.BLOCKED)


@operation("DeleteWorkerBlock", writes=True)
def delete_worker_block(call: ApiCall) -> None:
    """Unblock a worker; if the worker is not blocked, nothing happens."""
    worker = find_worker(call)
    call.params.text("Reason", longest=1024)
    if workers.unblock(call, worker.id):
        workers.tell(call, worker.id, *notifications.UNBLOCKED)


@operation("ListWorkerBlocks", writes=False)
def list_worker_blocks(call: ApiCall) -> Reply:
    """List the blocked workers with the reasons."""
    return call.listed("WorkerBlocks", partial(workers.list_blocks, call), worker_block)
