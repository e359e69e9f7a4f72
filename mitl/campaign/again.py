"""Asking again: which of the HITs to replace a limit holds, and what makes their new pages differ from the old."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from mitl.db.store.hits import HitRow

T = TypeVar("T")


def within(pages: Iterable[T], limit: int | None, size: Callable[[T], int]) -> Iterator[T]:
    """The first of these whose questions a limit holds; all of them without one."""
    for page in pages:
        limit = None if limit is None else limit - size(page)
        if limit is not None and limit < 0:
            return
        yield page


def rotated(values: Sequence[T], turn: int) -> list[T]:
    """The values from one's turn on, those before it last."""
    start = turn % len(values) if values else 0
    return [*values[start:], *values[:start]]


def seed_of(seed: int, hit: HitRow) -> int:
    """The seed of the page that asks a HIT again.

    It is named by the page, not the project, so that the same data and seed make the same pages anywhere.
    """
    name = f"{seed}:{hit.batch}:{hit.number}:{hit.attempt + 1}"
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)
