"""What the requester API lists, as records: HITs and submitted assignments."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mitl.crowd.amounts import cents


@dataclass(frozen=True, slots=True)
class CreatedHit:
    """A HIT on the server, and whether an earlier request with the same token had made it."""

    hit_id: str
    existed: bool


@dataclass(frozen=True, slots=True)
class ListedHit:
    """A HIT as listed, numbers of assignments at that moment."""

    hit_id: str
    status: str
    annotation: str | None
    expires_at: dt.datetime
    max_assignments: int
    n_pending: int
    """Accepted and not yet submitted."""
    n_available: int
    n_completed: int
    """Approved or rejected."""

    @property
    def n_submitted(self) -> int:
        """Submitted, decided or not."""
        return self.max_assignments - self.n_pending - self.n_available

    @property
    def n_undecided(self) -> int:
        """Submitted and waiting for a decision."""
        return self.n_submitted - self.n_completed


@dataclass(frozen=True, slots=True)
class ListedAssignment:
    """A submitted assignment with its raw answer."""

    assignment_id: str
    worker_id: str
    hit_id: str
    status: str
    """Submitted, Approved or Rejected."""
    accepted_at: dt.datetime
    submitted_at: dt.datetime
    answer_xml: str


@dataclass(frozen=True, slots=True)
class ListedBonus:
    """A bonus that was granted."""

    assignment_id: str
    worker_id: str
    cents: int
    reason: str
    granted_at: dt.datetime


def listed_hit(shape: Mapping[str, Any]) -> ListedHit:
    """A HIT from the API's structure."""
    return ListedHit(
        hit_id=shape["HITId"],
        status=shape["HITStatus"],
        annotation=shape.get("RequesterAnnotation"),
        expires_at=_utc(shape["Expiration"]),
        max_assignments=shape["MaxAssignments"],
        n_pending=shape["NumberOfAssignmentsPending"],
        n_available=shape["NumberOfAssignmentsAvailable"],
        n_completed=shape["NumberOfAssignmentsCompleted"],
    )


def listed_assignment(shape: Mapping[str, Any]) -> ListedAssignment:
    """A submitted assignment from the API's structure."""
    return ListedAssignment(
        assignment_id=shape["AssignmentId"],
        worker_id=shape["WorkerId"],
        hit_id=shape["HITId"],
        status=shape["AssignmentStatus"],
        accepted_at=_utc(shape["AcceptTime"]),
        submitted_at=_utc(shape["SubmitTime"]),
        answer_xml=shape.get("Answer", ""),
    )


def listed_bonus(shape: Mapping[str, Any]) -> ListedBonus:
    """A bonus from the API's structure."""
    return ListedBonus(
        assignment_id=shape["AssignmentId"],
        worker_id=shape["WorkerId"],
        cents=cents(shape["BonusAmount"]),
        reason=shape.get("Reason", ""),
        granted_at=_utc(shape["GrantTime"]),
    )


def _utc(time: dt.datetime) -> dt.datetime:
    return time.astimezone(dt.UTC)
