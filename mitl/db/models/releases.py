"""Releases that were built."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from mitl.db.base import int_pk
from mitl.db.models.base import Base


class Release(Base):
    """A release that was built, with the secret of its pseudonyms."""

    __tablename__ = "release"
    id: Mapped[int_pk]
    name: Mapped[str] = mapped_column(unique=True)
    manifest_sha256: Mapped[str | None]
    rules: Mapped[str | None]
    """JSON: how its sources were merged."""
    salt: Mapped[str]
