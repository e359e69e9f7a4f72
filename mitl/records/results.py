"""What a stage did, for people and for machines."""

from __future__ import annotations

from dataclasses import dataclass, field


def several(count: int, noun: str, nouns: str = "") -> str:
    """``1 page``, ``2,000 pages``; ``nouns`` is the plural that is not made by an s."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows for people to read; numbers stay numbers until they are printed."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


@dataclass(frozen=True, slots=True)
class StageResult:
    """What one run of a stage did, for people and for ``--json``."""

    status: str = "done"
    """done, nothing_to_do or error."""
    counts: dict[str, object] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    """For people; never part of ``--json``."""
    lines: tuple[str, ...] = ()
    """For people, printed after the tables."""
    next: str = ""
    """What a person would do next."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found, and in one line why it will not do; None where it will."""

    result: StageResult
    refusal: str | None = None
