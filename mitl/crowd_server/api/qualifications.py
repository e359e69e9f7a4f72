"""Operations on qualification types; only requesters grant them, there are no tests and no requests."""

from __future__ import annotations

from typing import Any

from mitl.crowd_server.api import shapes
from mitl.crowd_server.api.registry import Call, operation, paged
from mitl.crowd_server.errors import absent, invalid, turk
from mitl.crowd_server.store import qualifications
from mitl.crowd_server.store.qualifications import QualificationRow, QualificationTypeRow
from mitl.crowd_server.store.workers import WorkerRow

_INT32 = 2**31 - 1


@operation("CreateQualificationType", writes=True)
def create_qualification_type(call: Call) -> dict[str, Any]:
    """A new type; names are unique in an environment."""
    params = call.params
    for name in ("Test", "AnswerKey", "TestDurationInSeconds", "RetryDelayInSeconds", "AutoGrantedValue"):
        if params.has(name):
            raise invalid(name, "this server has no qualification tests or requests; grant qualifications")
    if params.flag("AutoGranted"):
        raise invalid("AutoGranted", "this server takes no requests for qualifications; grant them")
    name = params.text("Name", longest=200, required=True)
    row = qualifications.add_type(
        call.connection,
        call.environment,
        name=name,
        description=params.text("Description", longest=2000, required=True),
        keywords=params.text("Keywords", longest=1000),
        active=params.choice("QualificationTypeStatus", ("Active", "Inactive")) == "Active",
        now=call.now,
    )
    if row is None:
        raise turk(
            "QualificationTypeAlreadyExists",
            "You have already created a QualificationType with this name. A QualificationType's name must be "
            "unique among those of one requester.",
        )
    return {"QualificationType": shapes.qualification_type(row)}


@operation("GetQualificationType", writes=False)
def get_qualification_type(call: Call) -> dict[str, Any]:
    """A type by its id."""
    return {"QualificationType": shapes.qualification_type(_type(call))}


@operation("ListQualificationTypes", writes=False)
def list_qualification_types(call: Call) -> dict[str, Any]:
    """Types whose name or keywords hold the query; none is requestable here."""
    params = call.params
    call.params.flag("MustBeOwnedByCaller")
    if params.raw("MustBeRequestable") is True:
        return {"NumResults": 0, "QualificationTypes": []}
    after, size = params.page()
    rows = qualifications.list_types(
        call.connection,
        call.environment,
        query=params.text("Query", longest=200),
        after=after,
        limit=size + 1,
    )
    return paged(rows, size, "QualificationTypes", shapes.qualification_type)


@operation("AssociateQualificationWithWorker", writes=True)
def associate_qualification(call: Call) -> dict[str, Any]:
    """Give a worker a qualification, or change its value; this server sends no mails."""
    call.params.flag("SendNotification", True)
    own, worker = _type(call), _worker(call)
    value = call.params.integer("IntegerValue", -_INT32, _INT32, 1)
    qualifications.grant(call.connection, own.id, worker.id, value, call.now)
    return {}


@operation("DisassociateQualificationFromWorker", writes=True)
def disassociate_qualification(call: Call) -> dict[str, Any]:
    """Take a qualification away."""
    call.params.text("Reason", longest=1024)
    found = _held(call)
    if found.revoked_at is not None:
        raise turk(
            "InvalidQualificationState",
            "This Qualification is currently in the state 'Revoked'. "
            "This operation can be called with a status of: Granted.",
        )
    qualifications.revoke(call.connection, found.id, call.now)
    return {}


@operation("GetQualificationScore", writes=False)
def get_qualification_score(call: Call) -> dict[str, Any]:
    """What a worker holds, or held, of a type."""
    return {"Qualification": shapes.qualification(_held(call))}


@operation("ListWorkersWithQualificationType", writes=False)
def list_workers_with_qualification_type(call: Call) -> dict[str, Any]:
    """Who holds a type, or whose was revoked."""
    own = _type(call)
    status = call.params.choice("Status", ("Granted", "Revoked"), "Granted")
    after, size = call.params.page()
    rows = qualifications.list_holders(
        call.connection, own.id, granted=status == "Granted", after=after, limit=size + 1
    )
    return paged(rows, size, "Qualifications", shapes.qualification)


def _type(call: Call) -> QualificationTypeRow:
    mturk_id = call.params.entity("QualificationTypeId")
    found = qualifications.find_type(call.connection, call.environment, mturk_id)
    if found is None:
        raise absent("QualificationType", "QualificationTypeDoesNotExist", mturk_id)
    return found


def _worker(call: Call) -> WorkerRow:
    mturk_id = call.params.worker("WorkerId")
    found = qualifications.find_worker(call.connection, call.environment, mturk_id)
    if found is None:
        raise invalid("WorkerId", f"no worker {mturk_id} has joined this server in this environment")
    return found


def _held(call: Call) -> QualificationRow:
    found = qualifications.find(call.connection, _type(call).id, _worker(call).id)
    if found is None:
        raise turk("QualificationDoesNotExist", "You requested a Qualification that does not exist.")
    return found
