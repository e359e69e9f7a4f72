"""Tables of qualifications."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from mitl.crowd_server.models.base import Base, RequestState
from mitl.db.base import int_pk
from mitl.records import Environment


class QualificationType(Base):
    """A requester's own qualification."""

    __tablename__ = "qualification_type"
    __table_args__ = (UniqueConstraint("environment", "name"),)

    id: Mapped[int_pk]
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


class Qualification(Base):
    """A qualification that a worker holds, or held until it was revoked."""

    __tablename__ = "qualification"
    __table_args__ = (UniqueConstraint("worker_id", "qualification_type_id"),)

    id: Mapped[int_pk]
    qualification_type_id: Mapped[int] = mapped_column(ForeignKey("qualification_type.id"), index=True)
    worker_id: Mapped[int] = mapped_column(ForeignKey("worker.id"))
    value: Mapped[int | None]
    granted_at: Mapped[dt.datetime]
    revoked_at: Mapped[dt.datetime | None]


class QualificationRequest(Base):
    """A worker's request for a qualification, with the answers to its test where it has one."""

    __tablename__ = "qualification_request"

    id: Mapped[int_pk]
    mturk_id: Mapped[str] = mapped_column(unique=True)
    environment: Mapped[Environment]
    type_id: Mapped[int] = mapped_column(ForeignKey("qualification_type.id"), index=True)
    worker_id: Mapped[int] = mapped_column(ForeignKey("worker.id"), index=True)
    state: Mapped[RequestState]
    answer: Mapped[str]
    """QuestionFormAnswers XML; empty without a test."""
    started_at: Mapped[dt.datetime]
    submitted_at: Mapped[dt.datetime | None]
    decided_at: Mapped[dt.datetime | None]
    reason: Mapped[str]
