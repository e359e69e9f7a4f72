"""Rounds, batches and HITs, and which pair stands where."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import ForeignKey, Index, String, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from mitl.db.base import int_pk
from mitl.db.models.base import Base
from mitl.records import Environment, HitState, JudgementSource, PairRole

_IS_OVERLAP = text("role = 'overlap'")
"""Few items are; to find out which HITs hold them would take a look at every item."""


class Round(Base):
    """One turn of the loop: propose, ask, learn."""

    __tablename__ = "round"
    __table_args__ = (UniqueConstraint("dataset_id", "number"),)
    id: Mapped[int_pk]
    dataset_id: Mapped[int] = mapped_column(ForeignKey("dataset.id"))
    number: Mapped[int]
    strategy: Mapped[str]
    opened_at: Mapped[dt.datetime]
    closed_at: Mapped[dt.datetime | None]


class Batch(Base):
    """HITs that were planned together: one template, one reward."""

    __tablename__ = "batch"
    id: Mapped[int_pk]
    name: Mapped[str] = mapped_column(unique=True)
    round_id: Mapped[int] = mapped_column(ForeignKey("round.id"))
    environment: Mapped[Environment]
    kind: Mapped[str] = mapped_column(String(32))
    """``pairs`` stand in ``hit_item``, ``rankings`` in ``comparison``, other kinds where they say."""
    direction: Mapped[str]
    """``i2t``, ``t2i`` or ``both``."""
    template: Mapped[str]
    reward_cents: Mapped[int]
    assignments: Mapped[int]
    seed: Mapped[int]
    pilot: Mapped[bool]
    """Whether it was posted to find out how long the work takes."""
    source: Mapped[JudgementSource]
    """``crowd`` for what was posted from here, ``import`` for past work that was read from a file."""
    estimate_s: Mapped[int | None]
    """Seconds that a HIT was expected to take when it was priced; None takes the template's own estimate."""
    server_id: Mapped[str | None]
    """Which server it was posted to, as its ``/healthz`` says; None for one that says nothing."""
    planned_at: Mapped[dt.datetime]


class Hit(Base):
    """One page of pairs on its way to the crowd and back."""

    __tablename__ = "hit"
    __table_args__ = (UniqueConstraint("batch_id", "number", "attempt"), Index("ix_hit_state", "state"))
    id: Mapped[int_pk]
    batch_id: Mapped[int] = mapped_column(ForeignKey("batch.id"))
    number: Mapped[int]
    attempt: Mapped[int]
    """From 1; asking the same page's pairs again makes a new HIT with the next attempt."""
    replaces_id: Mapped[int | None] = mapped_column(ForeignKey("hit.id"))
    assignments: Mapped[int]
    """Different workers wanted; a HIT that replaces another asks for those who are missing."""
    state: Mapped[HitState]
    mturk_hit_id: Mapped[str | None] = mapped_column(unique=True)
    token: Mapped[str] = mapped_column(unique=True)
    """``UniqueRequestToken``: derived from project, batch, number and attempt."""


class HitItem(Base):
    """Which pair stands at which place of a HIT; the crowd server never learns it."""

    __tablename__ = "hit_item"
    __table_args__ = (
        UniqueConstraint("hit_id", "place"),
        Index("ix_hit_item_overlap", "hit_id", sqlite_where=_IS_OVERLAP, postgresql_where=_IS_OVERLAP),
    )
    id: Mapped[int_pk]
    hit_id: Mapped[int] = mapped_column(ForeignKey("hit.id"))
    place: Mapped[int]
    pair_id: Mapped[int] = mapped_column(ForeignKey("pair.id"), index=True)
    role: Mapped[PairRole]
