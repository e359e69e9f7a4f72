"""Inserting many rows with few statements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import insert
from sqlalchemy.orm import Session

CHUNK = 10_000


def add_rows(session: Session, model: type, rows: Iterable[Mapping[str, Any]]) -> int:
    """Insert the rows in chunks, so that memory stays bounded; returns how many."""
    count = 0
    chunk: list[Mapping[str, Any]] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == CHUNK:
            count += _flush(session, model, chunk)
            chunk = []
    return count + _flush(session, model, chunk)


def _flush(session: Session, model: type, chunk: list[Mapping[str, Any]]) -> int:
    if chunk:
        session.connection().execute(insert(model), chunk)
    return len(chunk)
