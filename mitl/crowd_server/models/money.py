"""Tables of the server itself and of its money."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from mitl.crowd_server.models.base import Base, Cents, LedgerKind
from mitl.db.base import int_pk
from mitl.records import Environment


class Setting(Base):
    """A value that belongs to this server as a whole: its id and its secrets."""

    __tablename__ = "setting"

    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]


class Account(Base):
    """One environment's key pair and money; the sums are those of its ledger rows."""

    __tablename__ = "account"

    environment: Mapped[Environment] = mapped_column(primary_key=True)
    access_key: Mapped[str] = mapped_column(unique=True)
    secret_key: Mapped[str]
    budget_cents: Mapped[Cents]
    held_cents: Mapped[Cents]
    spent_cents: Mapped[Cents]
    """Rewards and bonuses."""


class RequestToken(Base):
    """A UniqueRequestToken and what its request made; forgotten 24 hours after ``used_at``."""

    __tablename__ = "request_token"
    __table_args__ = (UniqueConstraint("environment", "kind", "token"),)

    id: Mapped[int_pk]
    environment: Mapped[Environment]
    kind: Mapped[str]
    """``hit``, ``extend``, ``bonus`` or ``expire``."""
    token: Mapped[str]
    result: Mapped[str]
    """The HIT id, or the id of the earlier request."""
    used_at: Mapped[dt.datetime]


class Bonus(Base):
    """A bonus granted to a worker for one assignment."""

    __tablename__ = "bonus"

    id: Mapped[int_pk]
    environment: Mapped[Environment]
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignment.id"), index=True)
    cents: Mapped[Cents]
    reason: Mapped[str]
    granted_at: Mapped[dt.datetime]


class LedgerEntry(Base):
    """One movement of money; rows are only ever added."""

    __tablename__ = "ledger"

    id: Mapped[int_pk]
    environment: Mapped[Environment]
    kind: Mapped[LedgerKind]
    hit_id: Mapped[int | None] = mapped_column(ForeignKey("hit.id"))
    assignment_id: Mapped[int | None] = mapped_column(ForeignKey("assignment.id"))
    cents: Mapped[Cents]
    at: Mapped[dt.datetime]
