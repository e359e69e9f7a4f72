"""The tables of ``crowd.db``, one class per noun, and what must hold of them. No pairs, golds or judgements here."""

from __future__ import annotations

import datetime as dt
from enum import StrEnum
from typing import Annotated

from sqlalchemy import BigInteger, ForeignKey, Index, MetaData, UniqueConstraint, and_, bindparam, text
from sqlalchemy.orm import DeclarativeBase, Mapped, join, mapped_column

from mitl.db.base import NAMING, TYPES, int_pk
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


class CrowdBase(DeclarativeBase):
    """The crowd server's own metadata."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = TYPES


class NumberedRow(CrowdBase):
    """A table whose rows are numbered in the order in which they came."""

    __abstract__ = True
    id: Mapped[int_pk]


_IS_OPEN = text("slots_left > 0")
"""The next HIT for a worker is the first entry of this index that is free, however many were done before."""


class HitType(NumberedRow):
    """What HITs of one group share; the same values give the same type."""

    __tablename__ = "hit_type"
    __table_args__ = (UniqueConstraint("environment", "digest"),)

    environment: Mapped[Environment]
    mturk_id: Mapped[str] = mapped_column(unique=True)
    group_id: Mapped[str]
    digest: Mapped[str]
    """SHA-256 of the values below."""
    title: Mapped[str]
    description: Mapped[str]
    keywords: Mapped[str]
    reward_cents: Mapped[Cents]
    duration_s: Mapped[int]
    auto_approval_s: Mapped[int]
    requirements: Mapped[str]
    """QualificationRequirements as a JSON list, as given."""
    created_at: Mapped[dt.datetime]
    paused_at: Mapped[dt.datetime | None]
    """Since when the operator gives out no more of its HITs; those that people hold may be finished."""


class CrowdHit(NumberedRow):
    """A HIT; its question is kept apart so that listing never reads it."""

    __tablename__ = "hit"
    __table_args__ = (
        Index("ix_hit_open", "hit_type_id", "id", sqlite_where=_IS_OPEN),
        Index("ix_hit_listing", "environment", "id"),
        Index("ix_hit_settling", "environment", "settle_at"),
    )

    environment: Mapped[Environment]
    mturk_id: Mapped[str] = mapped_column(unique=True)
    hit_type_id: Mapped[int] = mapped_column(ForeignKey("hit_type.id"))
    annotation: Mapped[str]
    max_assignments: Mapped[int]
    slots_left: Mapped[int]
    """``max_assignments`` less what was submitted; leases do not count here."""
    held_slots: Mapped[int]
    """For how many assignments the reward is set aside."""
    reviewing: Mapped[bool]
    """The requester's own marker."""
    created_at: Mapped[dt.datetime]
    expires_at: Mapped[dt.datetime]
    settle_at: Mapped[dt.datetime | None]
    """When held money of this HIT may next have to be released; None when never by itself."""
    deleted_at: Mapped[dt.datetime | None]


class HitQuestion(CrowdBase):
    """The question XML of a HIT, as posted."""

    __tablename__ = "hit_question"

    hit_id: Mapped[int] = mapped_column(ForeignKey("hit.id"), primary_key=True)
    xml: Mapped[str]


class CrowdAssignment(NumberedRow):
    """One worker's go at one HIT, renewed when the worker takes the HIT again after a return."""

    __tablename__ = "assignment"
    __table_args__ = (
        UniqueConstraint("hit_id", "worker_id"),
        UniqueConstraint("mturk_id", "worker_id"),
        Index("ix_assignment_worker", "worker_id", "state"),
        Index("ix_assignment_auto_approval", "environment", "state", "auto_approve_at"),
    )

    environment: Mapped[Environment]
    hit_id: Mapped[int] = mapped_column(ForeignKey("hit.id"))
    worker_id: Mapped[int] = mapped_column(ForeignKey("worker.id"))
    mturk_id: Mapped[str]
    """May come again for another worker after a return, as on MTurk."""
    state: Mapped[AssignmentState]
    accepted_at: Mapped[dt.datetime]
    deadline_at: Mapped[dt.datetime]
    submitted_at: Mapped[dt.datetime | None]
    auto_approve_at: Mapped[dt.datetime | None]
    decided_at: Mapped[dt.datetime | None]
    feedback: Mapped[str]
    answer: Mapped[str]
    """QuestionFormAnswers XML, as submitted."""


class LateAnswer(NumberedRow):
    """What arrived after an assignment's time, kept so that the person can be paid by hand; it is not a submission."""

    __tablename__ = "late_answer"

    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignment.id"), index=True)
    answer: Mapped[str]
    received_at: Mapped[dt.datetime]


class Setting(CrowdBase):
    """A value that belongs to this server as a whole: its id and its secrets."""

    __tablename__ = "setting"

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class Account(CrowdBase):
    """One environment's key pair and money; the sums are those of its ledger rows."""

    __tablename__ = "account"

    environment: Mapped[Environment] = mapped_column(primary_key=True)
    access_key: Mapped[str] = mapped_column(unique=True)
    secret_key: Mapped[str]
    budget_cents: Mapped[Cents]
    held_cents: Mapped[Cents]
    spent_cents: Mapped[Cents]
    """Rewards and bonuses."""


class RequestToken(NumberedRow):
    """A UniqueRequestToken and what its request made; forgotten 24 hours after ``used_at``."""

    __tablename__ = "request_token"
    __table_args__ = (UniqueConstraint("environment", "kind", "token"),)

    environment: Mapped[Environment]
    kind: Mapped[str]
    """``hit``, ``extend``, ``bonus`` or ``expire``."""
    token: Mapped[str]
    result: Mapped[str]
    """The HIT id, or the id of the earlier request."""
    used_at: Mapped[dt.datetime]


class Bonus(NumberedRow):
    """A bonus granted to a worker for one assignment."""

    __tablename__ = "bonus"

    environment: Mapped[Environment]
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignment.id"), index=True)
    cents: Mapped[Cents]
    reason: Mapped[str]
    granted_at: Mapped[dt.datetime]


class LedgerEntry(NumberedRow):
    """One movement of money; rows are only ever added."""

    __tablename__ = "ledger"

    environment: Mapped[Environment]
    kind: Mapped[LedgerKind]
    hit_id: Mapped[int | None] = mapped_column(ForeignKey("hit.id"))
    assignment_id: Mapped[int | None] = mapped_column(ForeignKey("assignment.id"))
    cents: Mapped[Cents]
    at: Mapped[dt.datetime]


class Invitation(NumberedRow):
    """A link by which people become workers; only its token's hash is kept."""

    __tablename__ = "invitation"

    environment: Mapped[Environment]
    token_sha256: Mapped[str] = mapped_column(unique=True)
    label: Mapped[str]
    personal: Mapped[bool]
    """A personal link always leads to the one worker whom it made; another makes a worker at each use."""
    max_uses: Mapped[int | None]
    uses: Mapped[int]
    created_at: Mapped[dt.datetime]
    expires_at: Mapped[dt.datetime]
    revoked_at: Mapped[dt.datetime | None]


class CrowdWorker(NumberedRow):
    """A person (or a script) who came by an invitation; nothing personal is kept."""

    __tablename__ = "worker"

    environment: Mapped[Environment]
    mturk_id: Mapped[str] = mapped_column(unique=True)
    invitation_id: Mapped[int] = mapped_column(ForeignKey("invitation.id"), index=True)
    created_at: Mapped[dt.datetime]


class Study(CrowdBase):
    """What people are told before their first HIT of an environment, and whether they are asked to consent."""

    __tablename__ = "study"

    environment: Mapped[Environment] = mapped_column(primary_key=True)
    version: Mapped[int]
    """Counts up with each change of the text; people consent to a version."""
    title: Mapped[str]
    information: Mapped[str]
    """Paragraphs of plain text, separated by empty lines."""
    contact: Mapped[str]
    warning: Mapped[str]
    consent: Mapped[str]
    """The sentence that people agree to; empty where nobody is asked."""
    changed_at: Mapped[dt.datetime]


class Consent(NumberedRow):
    """A worker's answer to one version of the study's information."""

    __tablename__ = "consent"
    __table_args__ = (UniqueConstraint("worker_id", "version"),)

    worker_id: Mapped[int] = mapped_column(ForeignKey("worker.id"))
    version: Mapped[int]
    given: Mapped[bool]
    at: Mapped[dt.datetime]


class Panel(NumberedRow):
    """A study link given to a panel, whose participants arrive with ids in the address."""

    __tablename__ = "panel"

    environment: Mapped[Environment]
    slug: Mapped[str] = mapped_column(unique=True)
    """The last part of the study link."""
    profile: Mapped[str]
    """prolific, connect, sona or generic."""
    invitation_id: Mapped[int] = mapped_column(ForeignKey("invitation.id"))
    """Workers of a panel belong to an invitation of its own, whose link nobody knows."""
    worker_parameter: Mapped[str]
    study_parameter: Mapped[str]
    session_parameter: Mapped[str]
    """Names in the query string; empty where the panel gives none."""
    hits_per_visit: Mapped[int]
    ends: Mapped[str]
    """JSON: for each end (completed, no_consent, nothing_left) its ``url`` and ``code``."""
    created_at: Mapped[dt.datetime]
    closed_at: Mapped[dt.datetime | None]


class PanelIdentity(NumberedRow):
    """Which worker a panel's participant is; apart, so that it can be deleted when the study is over."""

    __tablename__ = "panel_identity"
    __table_args__ = (UniqueConstraint("environment", "profile", "external_id"),)

    environment: Mapped[Environment]
    profile: Mapped[str]
    external_id: Mapped[str]
    worker_id: Mapped[int] = mapped_column(ForeignKey("worker.id"), index=True)


class PanelVisit(NumberedRow):
    """One arrival of a participant; a reload is the same visit."""

    __tablename__ = "panel_visit"
    __table_args__ = (UniqueConstraint("panel_id", "session"),)

    panel_id: Mapped[int] = mapped_column(ForeignKey("panel.id"))
    worker_id: Mapped[int] = mapped_column(ForeignKey("worker.id"), index=True)
    session: Mapped[str]
    """The panel's session id, or the participant's id where it gives none."""
    study: Mapped[str]
    state: Mapped[VisitState]
    hits_done: Mapped[int]
    started_at: Mapped[dt.datetime]
    ended_at: Mapped[dt.datetime | None]


class WorkerBlock(CrowdBase):
    """A worker whom a requester keeps from all of their HITs."""

    __tablename__ = "worker_block"

    worker_id: Mapped[int] = mapped_column(ForeignKey("worker.id"), primary_key=True)
    environment: Mapped[Environment]
    reason: Mapped[str]
    blocked_at: Mapped[dt.datetime]


class Message(NumberedRow):
    """Something a requester told a worker, shown on the worker's page."""

    __tablename__ = "message"

    environment: Mapped[Environment]
    worker_id: Mapped[int] = mapped_column(ForeignKey("worker.id"), index=True)
    subject: Mapped[str]
    text: Mapped[str]
    sent_at: Mapped[dt.datetime]
    read_at: Mapped[dt.datetime | None]


class QualificationType(NumberedRow):
    """A requester's own qualification."""

    __tablename__ = "qualification_type"
    __table_args__ = (UniqueConstraint("environment", "name"),)

    environment: Mapped[Environment]
    mturk_id: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    description: Mapped[str]
    keywords: Mapped[str]
    active: Mapped[bool]
    created_at: Mapped[dt.datetime]
    test: Mapped[str | None]
    """QuestionForm XML, as given; None where there is no test."""
    answer_key: Mapped[str | None]
    test_duration_s: Mapped[int | None]
    retry_delay_s: Mapped[int | None]
    """None: a worker may ask once."""
    auto_granted_value: Mapped[int | None]
    """None: not granted by itself."""


class Qualification(NumberedRow):
    """A qualification that a worker holds, or held until it was revoked."""

    __tablename__ = "qualification"
    __table_args__ = (UniqueConstraint("worker_id", "qualification_type_id"),)

    qualification_type_id: Mapped[int] = mapped_column(ForeignKey("qualification_type.id"), index=True)
    worker_id: Mapped[int] = mapped_column(ForeignKey("worker.id"))
    value: Mapped[int | None]
    granted_at: Mapped[dt.datetime]
    revoked_at: Mapped[dt.datetime | None]


class QualificationRequest(NumberedRow):
    """A worker's request for a qualification, with the answers to its test where it has one."""

    __tablename__ = "qualification_request"

    mturk_id: Mapped[str] = mapped_column(unique=True)
    environment: Mapped[Environment]
    type_id: Mapped[int] = mapped_column(ForeignKey("qualification_type.id"), index=True)
    worker_id: Mapped[int] = mapped_column(ForeignKey("worker.id"), index=True)
    state: Mapped[RequestState]
    answer: Mapped[str]
    """QuestionFormAnswers XML; empty without a test."""
    test: Mapped[str | None]
    """QuestionForm XML as it was given, whatever the type's test is by now; None where there was none."""
    test_duration_s: Mapped[int | None]
    started_at: Mapped[dt.datetime]
    submitted_at: Mapped[dt.datetime | None]
    decided_at: Mapped[dt.datetime | None]
    reason: Mapped[str]


class SignIn(CrowdBase):
    """The wrong tokens that one caller gave on the operator's page; forgotten with the right one, or an hour later."""

    __tablename__ = "sign_in"

    caller: Mapped[str] = mapped_column(primary_key=True)
    """A keyed hash of the address."""
    failed: Mapped[int]
    last_at: Mapped[dt.datetime]


class EndedSession(CrowdBase):
    """An operator's session that was signed out before its time."""

    __tablename__ = "ended_session"

    session: Mapped[str] = mapped_column(primary_key=True)
    """Without its seal, so that it opens nothing."""
    ends_at: Mapped[dt.datetime]


class Allowance(CrowdBase):
    """How many more requests of one kind a caller may make: a bucket of tokens that the processes of a server share.

    On PostgreSQL the table is not logged: a crash of the database fills all buckets. No dump holds it.
    """

    __tablename__ = "allowance"

    kind: Mapped[str] = mapped_column(primary_key=True)
    caller: Mapped[str] = mapped_column(primary_key=True)
    """A keyed hash of the address or the session."""
    tokens: Mapped[float]
    """At ``at``; they flow in steadily since."""
    drawn: Mapped[int]
    """What was taken last, which the statement that takes it returns."""
    at: Mapped[dt.datetime]


WORK = join(CrowdAssignment, CrowdHit).join(HitType)
"""Every assignment with its HIT and its HIT type, to select from."""

IS_LIVE = and_(
    CrowdAssignment.state == AssignmentState.ACCEPTED, CrowdAssignment.deadline_at > bindparam("now")
)
"""Whether a worker holds the assignment just now and may still submit it."""

RULES: dict[str, str] = {
    "accounts differ from what their ledger adds up to": """
        SELECT count(*) FROM account a LEFT JOIN (
            SELECT environment,
                sum(CASE WHEN kind = 'budget' THEN cents ELSE 0 END) AS budget,
                sum(CASE WHEN kind = 'hold' THEN cents WHEN kind = 'release' THEN -cents ELSE 0 END) AS held,
                sum(CASE WHEN kind IN ('reward', 'bonus') THEN cents ELSE 0 END) AS spent
            FROM ledger GROUP BY environment
        ) AS l ON l.environment = a.environment
        WHERE a.budget_cents <> coalesce(l.budget, 0) OR a.held_cents <> coalesce(l.held, 0)
            OR a.spent_cents <> coalesce(l.spent, 0)""",
    "accounts hold another sum than their HITs need": """
        SELECT count(*) FROM account a LEFT JOIN (
            SELECT h.environment, sum(h.held_slots * t.reward_cents) AS held
            FROM hit h JOIN hit_type t ON t.id = h.hit_type_id GROUP BY h.environment
        ) AS n ON n.environment = a.environment
        WHERE a.held_cents <> coalesce(n.held, 0)""",
    "HITs hold less than nothing": "SELECT count(*) FROM hit WHERE held_slots < 0",
    "HITs have another number of free places than their submissions leave": """
        SELECT count(*) FROM hit h LEFT JOIN (
            SELECT hit_id, count(*) AS n FROM assignment WHERE state IN ('submitted', 'approved', 'rejected')
            GROUP BY hit_id
        ) AS done ON done.hit_id = h.id
        WHERE h.slots_left <> h.max_assignments - coalesce(done.n, 0)""",
    "approved submissions are not paid once": """
        SELECT count(*) FROM assignment a LEFT JOIN (
            SELECT assignment_id, count(*) AS n FROM ledger WHERE kind = 'reward' GROUP BY assignment_id
        ) AS paid ON paid.assignment_id = a.id
        WHERE a.state = 'approved' AND coalesce(paid.n, 0) <> 1""",
    "submissions are paid that are not approved": """
        SELECT count(*) FROM ledger l JOIN assignment a ON a.id = l.assignment_id
        WHERE l.kind = 'reward' AND a.state <> 'approved'""",
    "assignments are of another environment than their HIT or their worker": """
        SELECT count(*) FROM assignment a JOIN hit h ON h.id = a.hit_id JOIN worker w ON w.id = a.worker_id
        WHERE a.environment <> h.environment OR a.environment <> w.environment""",
    "bonuses granted and bonuses booked are not the same sum": """
        SELECT count(*) FROM account a
        WHERE (SELECT coalesce(sum(b.cents), 0) FROM bonus b WHERE b.environment = a.environment)
            <> (SELECT coalesce(sum(l.cents), 0) FROM ledger l
                WHERE l.environment = a.environment AND l.kind = 'bonus')""",
    "HITs have no question": """
        SELECT count(*) FROM hit h WHERE h.deleted_at IS NULL
            AND NOT EXISTS (SELECT 1 FROM hit_question q WHERE q.hit_id = h.id)""",
}
