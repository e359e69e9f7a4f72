"""Operations on qualifications: who holds which, with what value."""

from __future__ import annotations

from typing import Any

from mitl.crowd_server.api.qualification_shapes import qualification
from mitl.crowd_server.api.qualification_terms import INT32
from mitl.crowd_server.api.qualification_types import find_type
from mitl.crowd_server.api.registry import Call, operation, paged
from mitl.crowd_server.errors import invalid, turk
from mitl.crowd_server.store import messages, qualifications
from mitl.crowd_server.store.qualifications import QualificationRow
from mitl.crowd_server.store.workers import WorkerRow
from mitl.crowd_server.work import letters
from mitl.crowd_server.work.letters import Letter


@operation("AssociateQualificationWithWorker", writes=True)
def associate_qualification(call: Call) -> dict[str, Any]:
    """Give a worker a qualification, or change its value; requests that wait are left alone."""
    notify = call.params.flag("SendNotification", True)
    own, worker = find_type(call), find_worker(call)
    value = call.params.integer("IntegerValue", -INT32, INT32, 1)
    qualifications.grant(call.connection, own.id, worker.id, value, call.now)
    if notify:
        tell(call, worker.id, letters.granted(own.name, value))
    return {}


@operation("DisassociateQualificationFromWorker", writes=True)
def disassociate_qualification(call: Call) -> dict[str, Any]:
    """Take a qualification away; where there is a reason, the worker is told."""
    reason = call.params.text("Reason", longest=1024)
    own, worker = find_type(call), find_worker(call)
    found = _granted(call)
    qualifications.revoke(call.connection, found.id, call.now)
    if reason:
        tell(call, worker.id, letters.revoked(own.name, reason))
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
    found = qualifications.find_worker(call.connection, call.environment, mturk_id)
    if found is None:
        raise invalid("WorkerId", f"no worker {mturk_id} has joined this server in this environment")
    return found


def tell(call: Call, worker_id: int, letter: Letter) -> None:
    """Write a letter to a worker."""
    messages.tell(
        call.connection,
        call.environment,
        worker_id,
        subject=letter.subject,
        text=letter.text,
        now=call.now,
    )


def _granted(call: Call) -> QualificationRow:
    found = qualifications.find(call.connection, find_type(call).id, find_worker(call).id)
    if found is None:
        raise turk("QualificationDoesNotExist", "You requested a Qualification that does not exist.")
    if found.revoked_at is not None:
        raise turk(
            "InvalidQualificationState",
            "This Qualification is currently in the state 'Revoked'. "
            "This operation can be called with a status of: Granted.",
        )
    return found
