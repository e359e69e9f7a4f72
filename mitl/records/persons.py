"""What is held about one person, in parts that go into a file for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class HeldPart:
    """Rows of one kind, and what they are."""

    name: str
    """Of its file, without folder and ending."""
    means: str
    """For the person, who knows none of our words."""
    rows: Iterable[Mapping[str, Any]]
    """Read once; values are of JSON, or times, which become ISO 8601."""


@dataclass(frozen=True, slots=True)
class HeldData:
    """All parts that one database holds of one worker."""

    folder: str
    title: str
    """Which database, and under which id."""
    parts: Iterable[HeldPart]
