"""Migrating the project's two databases."""

from __future__ import annotations

from typing import Annotated, TypedDict, cast

from mitl.db import migrate
from mitl.records import StageResult, Table, several
from mitl.records.results import printed_by
from mitl.settings import Settings
from mitl.stages.operating.databases import existing, opened, write_sheets


@printed_by("db upgrade")
class UpgradeCounts(TypedDict):
    """What an upgrade counts."""

    upgraded: Annotated[int, "databases moved to a newer revision"]
    copies: Annotated[list[str], "copies of SQLite files as they were before"]


@printed_by("db current")
class CurrentCounts(TypedDict, total=False):
    """The databases that exist."""

    pipeline: Annotated[str, "revision of mitl.db"]
    crowd: Annotated[str, "revision of crowd.db"]


def upgrade(settings: Settings) -> StageResult:
    """Bring the databases that exist to the newest revision; an SQLite file is copied before.

    Raises:
        StoreError: one is of a newer version, or cannot be changed; it is as it was then.
    """
    moved, lines = [], []
    for place in existing(settings):
        with opened(place) as engine:
            done = migrate.upgrade(place.line, engine, write_sheets if place.line == "pipeline" else None)
        if done.before != done.after:
            moved.append((place, done))
            lines.append(f"{place.name}: {done.before or 'empty'} → {done.after}")
        elif done.finished:
            lines.append(
                f"{place.name}: answers of {several(done.finished, 'submission')} written in one value each"
            )
    copies = [str(done.copy) for _, done in moved if done.copy is not None]
    lines += [f"as it was before: {copy}" for copy in copies]
    counts: UpgradeCounts = {"upgraded": len(moved), "copies": copies}
    return StageResult(
        status="done" if lines else "nothing_to_do",
        counts=counts,
        lines=tuple(lines) or ("nothing to do: the databases are at their newest revision",),
    )


def current(settings: Settings) -> StageResult:
    """The revision of each database that exists."""
    rows = []
    for place in existing(settings):
        with opened(place, read_only=True) as engine:
            found = migrate.current(engine) or "empty"
        rows.append((place.name, place.line, found, migrate.head(place.line)))
    behind = any(found != newest for _, _, found, newest in rows)
    return StageResult(
        counts=cast(CurrentCounts, {line: revision for _, line, revision, _ in rows}),
        tables=(Table("", ("database", "line", "revision", "newest"), tuple(rows)),),
        next="mitl db upgrade" if behind else "",
    )
