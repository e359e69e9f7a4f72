"""Operations on qualification types."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mitl.crowd_server.api import qualification_terms
from mitl.crowd_server.api.qualification_shapes import qualification_type
from mitl.crowd_server.api.registry import Call, operation, paged
from mitl.crowd_server.errors import absent, missing, turk
from mitl.crowd_server.store import messages, qualifications, requests
from mitl.crowd_server.store.qualifications import QualificationTypeRow
from mitl.crowd_server.work import letters

MAX_DESCRIPTION = 2000
_STATUSES = ("Active", "Inactive")
_DELETED = "The qualification does not exist any more."


@operation("CreateQualificationType", writes=True)
def create_qualification_type(call: Call) -> dict[str, Any]:
    """A new type, with a test, granted by itself, or decided by its owner; names are unique in an environment."""
    params = call.params
    row = qualifications.add_type(
        call.connection,
        call.environment,
        name=params.text("Name", longest=200, required=True),
        description=params.text("Description", longest=MAX_DESCRIPTION, required=True),
        keywords=params.text("Keywords", longest=1000),
        active=params.choice("QualificationTypeStatus", _STATUSES) == "Active",
        terms=qualification_terms.created(params),
        now=call.now,
    )
    if row is None:
        raise turk(
            "QualificationTypeAlreadyExists",
            "You have already created a QualificationType with this name. A QualificationType's name must be "
            "unique among those of one requester.",
        )
    return {"QualificationType": qualification_type(row)}


@operation("UpdateQualificationType", writes=True)
def update_qualification_type(call: Call) -> dict[str, Any]:
    """Change a type; its name and keywords stay, and a new test replaces the old one with its key."""
    params = call.params
    own = find_type(call)
    changed = replace(
        own,
        description=params.text("Description", longest=MAX_DESCRIPTION) or own.description,
        active=params.choice("QualificationTypeStatus", _STATUSES, _STATUSES[not own.active]) == "Active",
        terms=qualification_terms.updated(params, own.terms),
    )
    qualifications.update_type(call.connection, changed)
    return {"QualificationType": qualification_type(changed)}


@operation("DeleteQualificationType", writes=True)
def delete_qualification_type(call: Call) -> dict[str, Any]:
    """Take a type out of use; requests for it are rejected, and those who hold it keep it for open HITs."""
    own = find_type(call)
    letter = letters.refused(own.name, _DELETED)
    for worker_id in requests.reject_undecided(call.connection, own.id, _DELETED, call.now):
        messages.tell(
            call.connection,
            call.environment,
            worker_id,
            subject=letter.subject,
            text=letter.text,
            now=call.now,
        )
    qualifications.delete_type(call.connection, own)
    return {}


@operation("GetQualificationType", writes=False)
def get_qualification_type(call: Call) -> dict[str, Any]:
    """A type by its id, with its test and its key."""
    return {"QualificationType": qualification_type(find_type(call))}


@operation("ListQualificationTypes", writes=False)
def list_qualification_types(call: Call) -> dict[str, Any]:
    """Types whose name, description or keywords hold the query.

    All types of an environment belong to its one requester, so MustBeOwnedByCaller leaves nothing out.
    """
    params = call.params
    if not params.has("MustBeRequestable"):
        raise missing("MustBeRequestable")
    params.flag("MustBeOwnedByCaller")
    requestable, query = params.flag("MustBeRequestable"), params.text("Query")
    after, size = call.page()
    rows: list[QualificationTypeRow] = []
    # Nothing holds a longer text, and SQLite refuses patterns of more than 50,000 bytes.
    if len(query) <= MAX_DESCRIPTION:
        rows = qualifications.list_types(
            call.connection,
            call.environment,
            query=query,
            requestable=requestable,
            after=after,
            limit=size + 1,
        )
    return paged(call, rows, size, "QualificationTypes", qualification_type)


def find_type(call: Call) -> QualificationTypeRow:
    """The type that a call names; TurkError QualificationTypeDoesNotExist where there is none."""
    mturk_id = call.params.entity("QualificationTypeId")
    found = qualifications.find_type(call.connection, call.environment, mturk_id)
    if found is None:
        raise absent("QualificationType", "QualificationTypeDoesNotExist", mturk_id)
    return found
