"""Releases and the secrets of their pseudonyms."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from mitl.db.models import StoredRelease


def salt(session: Session, name: str) -> bytes:
    """The pseudonyms' secret of a release, made at its first build and kept for its rebuilds."""
    found = session.scalar(select(StoredRelease.salt).where(StoredRelease.name == name))
    if found is None:
        found = secrets.token_hex(32)
        session.add(StoredRelease(name=name, manifest_sha256=None, rules=None, salt=found))
        session.flush()
    return bytes.fromhex(found)


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """A release that was built."""

    name: str
    manifest_sha256: str
    rules: str
    """JSON: how its sources were merged."""


def set_built(session: Session, name: str, sha256: str, rules: str) -> None:
    """Remember what was released under a name, and by which rules."""
    session.execute(
        update(StoredRelease).where(StoredRelease.name == name).values(manifest_sha256=sha256, rules=rules)
    )


def built(session: Session) -> list[ReleaseRow]:
    """The releases that were built, oldest first."""
    query = select(StoredRelease.name, StoredRelease.manifest_sha256, StoredRelease.rules).order_by(
        StoredRelease.id
    )
    return [
        ReleaseRow(name, sha256, rules)
        for name, sha256, rules in session.execute(query)
        if sha256 is not None and rules is not None
    ]
