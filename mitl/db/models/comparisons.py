"""Preference studies: which rankings were compared, where they stood, and what people preferred."""

from __future__ import annotations

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from mitl.db.base import int_pk
from mitl.db.models.base import Base
from mitl.records import ComparisonRole, Direction, Outcome, Preference


class RankingSystem(Base):
    """One of the ranking systems that a batch compares."""

    __tablename__ = "ranking_system"
    __table_args__ = (UniqueConstraint("batch_id", "name"),)
    id: Mapped[int_pk]
    batch_id: Mapped[int] = mapped_column(ForeignKey("batch.id"))
    name: Mapped[str]
    origin: Mapped[str]
    """Where its rankings come from: ``run <hash>``, or a file's name and hash."""


class Comparison(Base):
    """Two rankings of one query at one place of a HIT; the crowd server never learns whose they are."""

    __tablename__ = "comparison"
    __table_args__ = (UniqueConstraint("hit_id", "place"),)
    id: Mapped[int_pk]
    hit_id: Mapped[int] = mapped_column(ForeignKey("hit.id"))
    place: Mapped[int]
    role: Mapped[ComparisonRole]
    direction: Mapped[Direction]
    query_id: Mapped[int]
    """``image.id`` for i2t, ``caption.id`` for t2i."""
    left_system: Mapped[str]
    """Its name."""
    right_system: Mapped[str]
    left_items: Mapped[str]
    """JSON: rows of captions (i2t) or images (t2i), best first."""
    right_items: Mapped[str]
    expected: Mapped[Preference | None]
    """The right answer of a control."""


class PreferenceAnswer(Base):
    """One worker's answer on one comparison, as given."""

    __tablename__ = "preference"
    __table_args__ = (UniqueConstraint("assignment_id", "place"),)
    id: Mapped[int_pk]
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignment.id"))
    place: Mapped[int]
    outcome: Mapped[Outcome]
    answer: Mapped[Preference | None]
    """None unless answered."""
    text: Mapped[str | None]
    """The worker's own words."""
    active_ms: Mapped[int | None]
