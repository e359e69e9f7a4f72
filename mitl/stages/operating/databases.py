"""Which databases a project has, opening them at whatever revision they are, and bringing them to the newest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypedDict, cast

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from mitl.core.whole_files import remove_dead_parts
from mitl.db import migrate
from mitl.db.engine import open_engine, parse_url
from mitl.db.explain import cannot_use
from mitl.db.migrate import Line
from mitl.db.session import describe
from mitl.db.store import answer_sheets, standings, worker_tallies
from mitl.errors import StoreError
from mitl.records import StageResult, Table, several
from mitl.records.results import printed_by
from mitl.settings import Settings


@dataclass(frozen=True, slots=True)
class Place:
    """One of the project's two databases."""

    line: Line
    url: str

    @property
    def name(self) -> str:
        """For messages; without a password."""
        return describe(self.url)

    @property
    def file(self) -> Path | None:
        """The SQLite file; None on PostgreSQL."""
        parsed = parse_url(self.url)
        return Path(parsed.database or ":memory:") if parsed.get_backend_name() == "sqlite" else None

    def exists(self) -> bool:
        """Whether there is such a file; of a PostgreSQL server that is found out by asking."""
        return self.file is None or self.file.exists()


def places(settings: Settings) -> tuple[Place, ...]:
    """The pipeline's database and the crowd server's."""
    return (Place("pipeline", settings.db_url), Place("crowd", settings.crowd_db_url))


def existing(settings: Settings, only: Line | None = None) -> list[Place]:
    """Those that exist.

    Raises:
        StoreError: there is none.
    """
    existing_places = [place for place in places(settings) if only in (None, place.line) and place.exists()]
    if not existing_places:
        what = "database" if only is None else f"{only} database"
        raise StoreError(
            f"there is no {what} in {settings.project}; run `mitl init` first, or name --project"
        )
    return existing_places


@contextmanager
def opened(place: Place, *, read_only: bool = False) -> Iterator[Engine]:
    """An engine on the database, for the block; StoreError in one line for what its driver says.

    Args:
        read_only: nothing will be written, and this user need not be able to.
    """
    if place.file is not None and not read_only:
        remove_dead_parts(place.file.parent)
    with open_engine(place.url, read_only=read_only) as engine:
        try:
            yield engine
        except DBAPIError as error:
            raise StoreError(cannot_use(error, engine.url)) from error


def write_sheets(connection: Connection) -> int:
    """What the pipeline's answers say, at hand: part of an upgrade or a restore; how many were missing."""
    with Session(connection, close_resets_only=False) as session:
        missing = answer_sheets.fill(session)
        worker_tallies.fill(session)
        standings.forget(connection)
        session.commit()
    return missing


@contextmanager
def one_moment(engine: Engine) -> Iterator[Connection]:
    """A transaction that sees the database as it is now, whoever writes meanwhile, and waits for nobody."""
    options: dict[str, object] = {"mitl_write": False}
    if engine.dialect.name == "postgresql":
        options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    with engine.execution_options(**options).connect() as connection, connection.begin():
        migrate.revision_of(connection)  # SQLite's transaction begins with its first read
        yield connection


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
            at = migrate.current(engine) or "empty"
        rows.append((place.name, place.line, at, migrate.head(place.line)))
    behind = any(at != newest for _, _, at, newest in rows)
    return StageResult(
        counts=cast(CurrentCounts, {line: revision for _, line, revision, _ in rows}),
        tables=(Table("", ("database", "line", "revision", "newest"), tuple(rows)),),
        next="mitl db upgrade" if behind else "",
    )
