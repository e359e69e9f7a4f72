"""Calls that cost or bind, and what they cost."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from mitl.db.base import int_pk
from mitl.db.models.base import Base
from mitl.records import JournalState


class Journal(Base):
    """One row for every call that costs or binds, written before the call."""

    __tablename__ = "journal"
    __table_args__ = (UniqueConstraint("kind", "key"),)
    id: Mapped[int_pk]
    kind: Mapped[str]
    """create, approve, reject, override, bonus, expire, extend, delete, qualification, message."""
    key: Mapped[str]
    state: Mapped[JournalState]
    token: Mapped[str | None]
    request: Mapped[str]
    """JSON."""
    reply: Mapped[str | None]
    error: Mapped[str | None]
    at: Mapped[dt.datetime]
    """When the state was entered."""
    first_sent_at: Mapped[dt.datetime | None]
    """When the call was first made; a server remembers its token for 24 hours from then."""


class Ledger(Base):
    """Money that an assignment has cost."""

    __tablename__ = "ledger"
    id: Mapped[int_pk]
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignment.id"), index=True)
    kind: Mapped[str]
    """reward, fee or bonus."""
    key: Mapped[str] = mapped_column(unique=True)
    cents: Mapped[int]
