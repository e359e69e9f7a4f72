"""Migrating the project's two databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import DatabaseError

from mitl.db import migrate
from mitl.db.engine import make_engine, parse_url
from mitl.db.migrate import Line
from mitl.db.session import describe
from mitl.errors import StoreError
from mitl.records import StageResult, Table
from mitl.settings import Settings


def upgrade(settings: Settings) -> StageResult:
    """Bring the databases that exist to the newest revision; StoreError for one of a newer version."""
    moved = []
    for line, url in _existing(settings):
        with _opened(url) as engine:
            found = migrate.current(engine)
            if found == migrate.head(line):
                continue
            migrate.require_upgradable(line, engine, describe(url))
            migrate.upgrade(line, engine)
            moved.append((describe(url), found, migrate.head(line)))
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
        with _opened(url) as engine:
            rows.append((describe(url), line, migrate.current(engine) or "empty", migrate.head(line)))
    return StageResult(
        counts={line: revision for _, line, revision, _ in rows},
        tables=(Table("", ("database", "line", "revision", "newest"), tuple(rows)),),
    )


@contextmanager
def _opened(url: str) -> Iterator[Engine]:
    engine = make_engine(url)
    try:
        yield engine
    except DatabaseError as error:
        raise StoreError(f"cannot use {describe(url)}: {' '.join(str(error.orig).split())}") from error
    finally:
        engine.dispose()


def _existing(settings: Settings) -> list[tuple[Line, str]]:
    lines: list[tuple[Line, str]] = [("pipeline", settings.db_url), ("crowd", settings.crowd_db_url)]
    found = [(line, url) for line, url in lines if _exists(url)]
    if not found:
        raise StoreError(
            f"there is no database in {settings.project}; run `mitl init` first, or name --project"
        )
    return found


def _exists(url: str) -> bool:
    parsed = parse_url(url)
    return parsed.get_backend_name() != "sqlite" or Path(parsed.database or "").exists()
