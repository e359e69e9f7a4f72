"""Inserting many rows with few statements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import insert
from sqlalchemy.orm import Session

CHUNK = 10_000

IN_LIST = 1000
"""Values in one ``IN (…)``; both engines take so many."""

T = TypeVar("T")


def chunks(values: Sequence[T], size: int = IN_LIST) -> Iterator[list[T]]:
    """The values in lists that a statement can take."""
    for start in range(0, len(values), size):
        yield list(values[start : start + size])


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
