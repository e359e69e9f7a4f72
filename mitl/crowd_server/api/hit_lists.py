"""Listings of HITs: oldest first, ten to a page unless told, without their questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mitl.crowd_server.api import hit_types, requirements, shapes
from mitl.crowd_server.api.registry import Call, operation, paged
from mitl.crowd_server.errors import absent
from mitl.crowd_server.qualifications import qualifying
from mitl.crowd_server.store import hit_lists, qualifications
from mitl.crowd_server.store.hits import HitRow


@operation("ListHITs", writes=False)
def list_hits(call: Call) -> dict[str, Any]:
    """All HITs that are not deleted."""
    after, size = call.page()
    rows = hit_lists.list_hits(call.connection, call.environment, after=after, limit=size + 1, now=call.now)
    return _listed(call, rows, size)


@operation("ListReviewableHITs", writes=False)
def list_reviewable_hits(call: Call) -> dict[str, Any]:
    """HITs on which no further work will come, marked Reviewing or not."""
    after, size = call.page()
    status = call.params.choice("Status", ("Reviewable", "Reviewing"), "Reviewable")
    rows = hit_lists.list_reviewable(
        call.connection,
        call.environment,
        hit_type_id=hit_types.existing(call).id if call.params.has("HITTypeId") else None,
        reviewing=status == "Reviewing",
        after=after,
        limit=size + 1,
        now=call.now,
    )
    return _listed(call, rows, size)


@operation("ListHITsForQualificationType", writes=False)
def list_hits_for_qualification_type(call: Call) -> dict[str, Any]:
    """HITs whose type has a requirement on a qualification type, one of MTurk's own included."""
    type_id = call.params.entity("QualificationTypeId")
    if type_id not in qualifying.SYSTEM_TYPES:
        found = qualifications.find_type(call.connection, call.environment, type_id)
        if found is None:
            raise absent("QualificationType", "QualificationTypeDoesNotExist", type_id)
    after, size = call.page()
    rows = hit_lists.list_requiring(
        call.connection,
        call.environment,
        requirements.mention(type_id),
        after=after,
        limit=size + 1,
        now=call.now,
    )
    return _listed(call, rows, size)


def _listed(call: Call, rows: Sequence[HitRow], size: int) -> dict[str, Any]:
    return paged(call, rows, size, "HITs", lambda row: shapes.hit(row, call.now))
