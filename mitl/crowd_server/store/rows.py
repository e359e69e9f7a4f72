"""Small things about rows that every store file needs."""

from __future__ import annotations

from typing import Any, TypeAlias

from sqlalchemy import CursorResult, Select

Wide: TypeAlias = Select[*tuple[Any, ...]]
"""A select of more columns than the type checker counts."""


def new_id(result: CursorResult[Any]) -> int:
    """The key of the row just inserted."""
    key = result.inserted_primary_key
    assert key is not None
    return int(key[0])
