"""Releases and the secrets of their pseudonyms."""

from __future__ import annotations

import secrets

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from mitl.db.models import Release


def salt(session: Session, name: str) -> bytes:
    """The pseudonyms' secret of a release, made at its first build and kept for its rebuilds."""
    found = session.scalar(select(Release.salt).where(Release.name == name))
    if found is None:
        found = secrets.token_hex(32)
        session.add(Release(name=name, manifest_sha256=None, salt=found))
        session.flush()
    return bytes.fromhex(found)


def set_manifest(session: Session, name: str, sha256: str) -> None:
    """Remember what was released under a name."""
    session.execute(update(Release).where(Release.name == name).values(manifest_sha256=sha256))


def releases(session: Session) -> list[tuple[str, str | None]]:
    """Names and manifest hashes, oldest first."""
    query = select(Release.name, Release.manifest_sha256).order_by(Release.id)
    return [(name, sha256) for name, sha256 in session.execute(query)]
