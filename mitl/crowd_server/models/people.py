"""Tables of workers and of the ways by which they come."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from mitl.crowd_server.models.base import Base, VisitState
from mitl.db.base import int_pk
from mitl.records import Environment


class Invitation(Base):
    """A link by which people become workers; only its token's hash is kept."""

    __tablename__ = "invitation"

    id: Mapped[int_pk]
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


class Worker(Base):
    """A person (or a script) who came by an invitation; nothing personal is kept."""

    __tablename__ = "worker"

    id: Mapped[int_pk]
    environment: Mapped[Environment]
    mturk_id: Mapped[str] = mapped_column(unique=True)
    invitation_id: Mapped[int] = mapped_column(ForeignKey("invitation.id"), index=True)
    created_at: Mapped[dt.datetime]


class Study(Base):
    """What people are told before their first HIT of an environment, and whether they are asked to consent."""

    __tablename__ = "study"

    environment: Mapped[Environment] = mapped_column(primary_key=True)
    version: Mapped[int]
    """Counts up with each change of the text; people consent to a version."""
    title: Mapped[str]
    information: Mapped[str]
    """Paragraphs of plain text, parted by empty lines."""
    contact: Mapped[str]
    warning: Mapped[str]
    consent: Mapped[str]
    """The sentence that people agree to; empty where nobody is asked."""
    changed_at: Mapped[dt.datetime]


class Consent(Base):
    """A worker's answer to one version of the study's information."""

    __tablename__ = "consent"
    __table_args__ = (UniqueConstraint("worker_id", "version"),)

    id: Mapped[int_pk]
    worker_id: Mapped[int] = mapped_column(ForeignKey("worker.id"))
    version: Mapped[int]
    given: Mapped[bool]
    at: Mapped[dt.datetime]


class Panel(Base):
    """A study link given to a panel, whose participants arrive with ids in the address."""

    __tablename__ = "panel"

    id: Mapped[int_pk]
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


class PanelIdentity(Base):
    """Which worker a panel's participant is; apart, so that it can be deleted when the study is over."""

    __tablename__ = "panel_identity"
    __table_args__ = (UniqueConstraint("environment", "profile", "external_id"),)

    id: Mapped[int_pk]
    environment: Mapped[Environment]
    profile: Mapped[str]
    external_id: Mapped[str]
    worker_id: Mapped[int] = mapped_column(ForeignKey("worker.id"), index=True)


class PanelVisit(Base):
    """One arrival of a participant; a reload is the same visit."""

    __tablename__ = "panel_visit"
    __table_args__ = (UniqueConstraint("panel_id", "session"),)

    id: Mapped[int_pk]
    panel_id: Mapped[int] = mapped_column(ForeignKey("panel.id"))
    worker_id: Mapped[int] = mapped_column(ForeignKey("worker.id"), index=True)
    session: Mapped[str]
    """The panel's session id, or the participant's id where it gives none."""
    study: Mapped[str]
    state: Mapped[VisitState]
    hits_done: Mapped[int]
    started_at: Mapped[dt.datetime]
    ended_at: Mapped[dt.datetime | None]


class WorkerBlock(Base):
    """A worker whom a requester keeps from all of their HITs."""

    __tablename__ = "worker_block"

    worker_id: Mapped[int] = mapped_column(ForeignKey("worker.id"), primary_key=True)
    environment: Mapped[Environment]
    reason: Mapped[str]
    blocked_at: Mapped[dt.datetime]


class Message(Base):
    """Something a requester told a worker, shown on the worker's page."""

    __tablename__ = "message"

    id: Mapped[int_pk]
    environment: Mapped[Environment]
    worker_id: Mapped[int] = mapped_column(ForeignKey("worker.id"), index=True)
    subject: Mapped[str]
    text: Mapped[str]
    sent_at: Mapped[dt.datetime]
    read_at: Mapped[dt.datetime | None]
