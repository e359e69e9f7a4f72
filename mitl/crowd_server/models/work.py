"""Tables of what workers do."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from mitl.crowd_server.models.base import AssignmentState, Base
from mitl.db.base import int_pk
from mitl.records import Environment


class Assignment(Base):
    """One worker's go at one HIT, renewed when the worker takes the HIT again after a return."""

    __tablename__ = "assignment"
    __table_args__ = (
        UniqueConstraint("hit_id", "worker_id"),
        UniqueConstraint("mturk_id", "worker_id"),
        Index("ix_assignment_worker", "worker_id", "state"),
        Index("ix_assignment_auto_approval", "environment", "state", "auto_approve_at"),
    )

    id: Mapped[int_pk]
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


class LateAnswer(Base):
    """What arrived after an assignment's time, kept so that the person can be paid by hand; it is no submission."""

    __tablename__ = "late_answer"

    id: Mapped[int_pk]
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignment.id"), index=True)
    answer: Mapped[str]
    received_at: Mapped[dt.datetime]
