"""The tables of ``crowd.db``: one class per noun. Nothing here knows pairs, golds or judgements."""

from mitl.crowd_server.models.base import (
    DONE_STATES,
    AssignmentState,
    Base,
    Cents,
    LedgerKind,
    RequestState,
    VisitState,
)
from mitl.crowd_server.models.hits import Hit, HitQuestion, HitType
from mitl.crowd_server.models.money import Account, Bonus, LedgerEntry, RequestToken, Setting
from mitl.crowd_server.models.people import (
    Consent,
    Invitation,
    Message,
    Panel,
    PanelIdentity,
    PanelVisit,
    Study,
    Worker,
    WorkerBlock,
)
from mitl.crowd_server.models.qualifications import Qualification, QualificationRequest, QualificationType
from mitl.crowd_server.models.work import Assignment, LateAnswer

__all__ = [
    "DONE_STATES",
    "Account",
    "Assignment",
    "AssignmentState",
    "Base",
    "Bonus",
    "Cents",
    "Consent",
    "Hit",
    "HitQuestion",
    "HitType",
    "Invitation",
    "LateAnswer",
    "LedgerEntry",
    "LedgerKind",
    "Message",
    "Panel",
    "PanelIdentity",
    "PanelVisit",
    "Qualification",
    "QualificationRequest",
    "QualificationType",
    "RequestState",
    "RequestToken",
    "Setting",
    "Study",
    "VisitState",
    "Worker",
    "WorkerBlock",
]
