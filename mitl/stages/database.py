"""Migrating the project's two databases."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.engine import make_url

from mitl.db import migrate
from mitl.db.engine import make_engine
from mitl.db.migrate import Line
from mitl.db.session import describe
from mitl.errors import StoreError
from mitl.records import StageResult, Table
from mitl.settings import Settings


def upgrade(settings: Settings) -> StageResult:
    """Bring the databases that exist to the newest revision; StoreError for one of a newer version."""
    moved = []
    for line, url in _existing(settings):
        engine = make_engine(url)
        try:
            found = migrate.current(engine)
            if found == migrate.head(line):
                continue
            migrate.require_upgradable(line, engine, describe(url))
            migrate.upgrade(line, engine)
            moved.append((describe(url), found, migrate.head(line)))
        finally:
            engine.dispose()
    lines = tuple(f"{name}: {old} → {new}" for name, old, new in moved)
    return StageResult(
        status="done" if moved else "nothing_to_do",
        counts={"upgraded": len(moved)},
        lines=lines or ("nothing to do: the databases are at their newest revision",),
    )


def current(settings: Settings) -> StageResult:
    """The revision of each database that exists."""
    rows = []
    for line, url in _existing(settings):
        engine = make_engine(url)
        try:
            rows.append((describe(url), line, migrate.current(engine) or "empty", migrate.head(line)))
        finally:
            engine.dispose()
    return StageResult(
        counts={line: revision for _, line, revision, _ in rows},
        tables=(Table("", ("database", "line", "revision", "newest"), tuple(rows)),),
    )


def _existing(settings: Settings) -> list[tuple[Line, str]]:
    lines: list[tuple[Line, str]] = [("pipeline", settings.db_url), ("crowd", settings.crowd_db_url)]
    found = [(line, url) for line, url in lines if _exists(url)]
    if not found:
        raise StoreError(
            f"there is no database in {settings.project}; run `mitl init` first, or name --project"
        )
    return found


def _exists(url: str) -> bool:
    parsed = make_url(url)
    return parsed.get_backend_name() != "sqlite" or Path(parsed.database or "").exists()
