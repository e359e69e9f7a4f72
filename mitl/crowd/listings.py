"""What the requester API replies, read member by member: HITs, submitted assignments, bonuses, ids and amounts.

A member that is missing, null or of another type is a ReplyError, which ``Transport.call`` takes for a lost reply.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard, TypeVar

from mitl.errors import CrowdError, FundsError, UntraceableError

_AMOUNT = re.compile(r"([0-9]+)\.?([0-9]{0,2})0*")


def cents(amount: str) -> int:
    """Cents of a CurrencyAmount; ValueError where it is none, as one below 0 or with parts of a cent."""
    match = _AMOUNT.fullmatch(amount)
    if match is None:
        raise ValueError(f"{amount!r} is not an amount")
    return int(match[1] + match[2].ljust(2, "0"))


def is_code(error: CrowdError, *names: str) -> bool:
    """Whether this is one of MTurk's errors of these names; old clients saw other capitals."""
    return error.code is not None and error.code.lower().rpartition(".")[2] in {
        name.lower() for name in names
    }


def is_refusal(error: BaseException) -> TypeGuard[CrowdError]:
    """Whether the server refuses just this call: not for a key or want of money, and surely without an effect.

    Or with one that it cannot tell of any more, which holds up no other call either.
    """
    if isinstance(error, UntraceableError):
        return True
    if not isinstance(error, CrowdError) or isinstance(error, FundsError) or error.unclear:
        return False
    return (error.code or "").startswith("AWS.MechanicalTurk.")


T = TypeVar("T")
HIT_STATUSES = ("Assignable", "Unassignable", "Reviewable", "Reviewing", "Disposed")
ASSIGNMENT_STATUSES = ("Submitted", "Approved", "Rejected")


class ReplyError(Exception):
    """A reply lacks a member that its reader needs, or it is of another type; says which."""


def member(shape: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """A member of a structure of the API.

    Raises:
        ReplyError: it is missing, null, an empty text or of another type.
    """
    value = shape.get(name)
    if not isinstance(value, kind) or isinstance(value, bool) or value == "":
        raise ReplyError(f"it has no {name}" if value in (None, "") else f"its {name} is {value!r:.80}")
    return value


def optional(shape: Mapping[str, Any], name: str) -> str | None:
    """A text that may be left out, or empty.

    Raises:
        ReplyError: it is of another type.
    """
    return member(shape, name, str) if shape.get(name) else None


def nothing(reply: Mapping[str, Any]) -> None:
    """Of a reply that says no more than that the call was done."""


def amount(shape: Mapping[str, Any], name: str) -> int:
    """A CurrencyAmount in cents.

    Raises:
        ReplyError: it is missing, or no amount.
    """
    text = member(shape, name, str)
    try:
        return cents(text)
    except ValueError as error:
        raise ReplyError(f"its {name} is {text!r}, which is not an amount") from error


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
        hit_id=member(shape, "HITId", str),
        status=_status(shape, "HITStatus", HIT_STATUSES),
        annotation=optional(shape, "RequesterAnnotation"),
        expires_at=_time(shape, "Expiration"),
        max_assignments=member(shape, "MaxAssignments", int),
        n_pending=member(shape, "NumberOfAssignmentsPending", int),
        n_available=member(shape, "NumberOfAssignmentsAvailable", int),
        n_completed=member(shape, "NumberOfAssignmentsCompleted", int),
    )


def listed_assignment(shape: Mapping[str, Any]) -> ListedAssignment:
    """A submitted assignment from the API's structure."""
    return ListedAssignment(
        assignment_id=member(shape, "AssignmentId", str),
        worker_id=member(shape, "WorkerId", str),
        hit_id=member(shape, "HITId", str),
        status=assignment_status(shape),
        accepted_at=_time(shape, "AcceptTime"),
        submitted_at=_time(shape, "SubmitTime"),
        answer_xml=member(shape, "Answer", str),
    )


def listed_bonus(shape: Mapping[str, Any]) -> ListedBonus:
    """A bonus from the API's structure."""
    return ListedBonus(
        assignment_id=member(shape, "AssignmentId", str),
        worker_id=member(shape, "WorkerId", str),
        cents=amount(shape, "BonusAmount"),
        reason=optional(shape, "Reason") or "",
        granted_at=_time(shape, "GrantTime"),
    )


def assignment_status(shape: Mapping[str, Any]) -> str:
    """Submitted, Approved or Rejected."""
    return _status(shape, "AssignmentStatus", ASSIGNMENT_STATUSES)


def _status(shape: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str:
    status = member(shape, name, str)
    if status not in known:
        raise ReplyError(f"its {name} is {status!r}, not one of {', '.join(known)}")
    return status


def _time(shape: Mapping[str, Any], name: str) -> dt.datetime:
    return member(shape, name, dt.datetime).astimezone(dt.UTC)
