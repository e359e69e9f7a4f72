"""The metadata, the states and the column types of ``crowd.db``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from sqlalchemy import BigInteger, MetaData
from sqlalchemy.orm import DeclarativeBase, mapped_column

from mitl.db.base import NAMING, TYPES, enum_type
from mitl.records import Environment


class AssignmentState(StrEnum):
    """Where one worker's go at one HIT stands; a lease that ran out is ``accepted`` with its deadline past."""

    ACCEPTED = "accepted"
    RETURNED = "returned"
    SUBMITTED = "submitted"
    APPROVED = "approved"
    REJECTED = "rejected"


DONE_STATES = (AssignmentState.SUBMITTED, AssignmentState.APPROVED, AssignmentState.REJECTED)
"""The states that the requester API shows; in the others nothing was submitted."""


class LedgerKind(StrEnum):
    """Why money moved. Held money is neither available nor owed; rewards and bonuses are owed to a worker."""

    BUDGET = "budget"
    """The operator raised (or lowered) what may be spent."""
    HOLD = "hold"
    """Set aside for assignments that can still be done."""
    RELEASE = "release"
    """No longer set aside: rejected, expired or paid (then with a reward row beside it)."""
    REWARD = "reward"
    BONUS = "bonus"


class RequestState(StrEnum):
    """Where a worker's request for a qualification stands."""

    TESTING = "testing"
    """The test was opened and not yet sent."""
    PENDING = "pending"
    GRANTED = "granted"
    REJECTED = "rejected"


class VisitState(StrEnum):
    """Where a panel participant's visit stands; each end has its own way back to the panel."""

    OPEN = "open"
    COMPLETED = "completed"
    NO_CONSENT = "no_consent"
    NOTHING_LEFT = "nothing_left"


Cents = Annotated[int, mapped_column(BigInteger)]
"""Money; 32 bits would end at 21 million dollars, which a mistyped MaxAssignments reaches."""


class Base(DeclarativeBase):
    """The crowd server's own metadata."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = TYPES | {
        Environment: enum_type(Environment),
        AssignmentState: enum_type(AssignmentState),
        LedgerKind: enum_type(LedgerKind),
        RequestState: enum_type(RequestState),
        VisitState: enum_type(VisitState),
    }
