"""Tables of HIT types and HITs."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from mitl.crowd_server.models.base import Base, Cents
from mitl.db.base import int_pk
from mitl.records import Environment

_IS_OPEN = text("slots_left > 0")
"""The next HIT for a worker is the first entry of this index that is free, however many were done before."""


class HitType(Base):
    """What HITs of one group share; the same values give the same type."""

    __tablename__ = "hit_type"
    __table_args__ = (UniqueConstraint("environment", "digest"),)

    id: Mapped[int_pk]
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


class Hit(Base):
    """A HIT; its question is kept apart so that listing never reads it."""

    __tablename__ = "hit"
    __table_args__ = (
        Index("ix_hit_open", "hit_type_id", "id", sqlite_where=_IS_OPEN, postgresql_where=_IS_OPEN),
        Index("ix_hit_listing", "environment", "id"),
        Index("ix_hit_settling", "environment", "settle_at"),
    )

    id: Mapped[int_pk]
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


class HitQuestion(Base):
    """The question XML of a HIT, as posted."""

    __tablename__ = "hit_question"

    hit_id: Mapped[int] = mapped_column(ForeignKey("hit.id"), primary_key=True)
    xml: Mapped[str]
