"""Putting a dump back: into new databases of either engine, or in place of what is there."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, NotRequired, TypedDict, cast

from sqlalchemy import Connection, func, select

from mitl.core.whole_files import whole_file
from mitl.db import migrate
from mitl.db.dumps.reading import TRAINED, Dump, open_dump
from mitl.db.dumps.restoring import restore_database, write_database
from mitl.db.engine import make_engine
from mitl.db.migrate import Line, changing, keep_copy
from mitl.db.tables import reflected
from mitl.errors import StoreError
from mitl.progress import Progress, no_progress
from mitl.records import StageResult, Table, several
from mitl.records.results import printed_by
from mitl.settings import Settings, sqlite_url
from mitl.stages.operating.databases import Place, opened, places, write_sheets


@printed_by("db restore")
class RestoreCounts(TypedDict):
    """What a restoration counts; a database that it leaves out is not there."""

    pipeline: NotRequired[Annotated[int, "rows put into mitl.db"]]
    crowd: NotRequired[Annotated[int, "rows put into crowd.db"]]
    copies: Annotated[list[str], "copies of SQLite files as they were before (`--replace`)"]


def restore(
    settings: Settings,
    source: Path,
    *,
    only: Line | None = None,
    replace: bool = False,
    progress: Progress = no_progress,
) -> StageResult:
    """Fill the project's databases from a dump: at its revision first, then brought to the newest.

    Everything is checked before anything is kept, and both databases are kept at the end; an SQLite file that is
    replaced is copied before. A database that holds the dump already is left alone, so that a restore which was killed
    between the two is completed by the same words.

    Raises:
        StoreError: the dump is damaged or of a newer mitl, a database holds something and ``replace`` is false, other
            weights lie under a name of the dump's, or a database cannot be written; all is as it was then.
    """
    rows: list[tuple[str, str, str, str, int]] = []
    copies: list[str] = []
    left_alone, learnt = 0, 0
    with open_dump(source) as dump, ExitStack() as stack:
        targets = _wanted(settings, dump, only)
        dump.check(tuple(place.line for place in targets))
        for place in targets:
            connection = stack.enter_context(_changing(place))
            part = dump.manifest.databases[place.line]
            if (
                replace
                and place.file is not None
                and (revision := migrate.revision_of(connection)) is not None
            ):
                copies.append(str(keep_copy(place.file, revision)))
            if not replace and _holds(place.line, connection, dump):
                left_alone += 1
            else:
                restore_database(place.line, connection, dump, place.name, replace=replace, progress=progress)
            if place.line == "pipeline":
                write_sheets(connection)
                learnt = _put_trained(dump, settings.project / TRAINED)
            rows.append((place.name, place.line, part.revision, migrate.head(place.line), part.rows))
    columns = ("database", "line", "dump's revision", "revision now", "rows")
    kept = tuple(f"as it was before: {copy}" for copy in copies)
    counts = cast(RestoreCounts, {line: count for _, line, _, _, count in rows} | {"copies": copies})
    if learnt:
        kept = (*kept, f"put back: {several(learnt, 'file')} of {TRAINED}/")
    if left_alone == len(targets) and not learnt:
        return StageResult.nothing("the databases hold this very dump", counts, "mitl db verify")
    return StageResult(
        counts=counts,
        tables=(Table(f"restored from {source}", columns, tuple(rows)),),
        lines=(*kept, "a server or desk that runs on these databases must be started again"),
        next="mitl db verify",
    )


def _wanted(settings: Settings, dump: Dump, only: Line | None) -> list[Place]:
    restorable = [
        place
        for place in places(settings)
        if place.line in dump.manifest.databases and only in (None, place.line)
    ]
    if not restorable:
        held = ", ".join(dump.manifest.databases) or "none"
        raise StoreError(f"{dump.where} holds no {only or 'database'}; it holds: {held}")
    return restorable


def _put_trained(dump: Dump, folder: Path) -> int:
    """Write the files of what learnt that are not there; how many. StoreError, and none, where another has the name."""
    missing = []
    for name, mark in dump.manifest.trained.items():
        path = folder / name
        if not path.is_file():
            missing.append(name)
            continue
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != mark:
                raise StoreError(
                    f"{path} is another file than the dump's of that name; move it away, then restore again"
                )
    for name in missing:
        with dump.trained(name) as file, whole_file(folder / name) as sink:
            shutil.copyfileobj(file, sink)
    return len(missing)


def _holds(line: Line, connection: Connection, dump: Dump) -> bool:
    """Whether a database's rows are those of the dump, brought to the newest revision."""
    if migrate.revision_of(connection) != migrate.head(line):
        return False
    tables = {table.name: table for table in reflected(connection)}
    for name, part in dump.manifest.databases[line].tables.items():
        table = tables.get(name)  # a later revision may have put others in its place
        if table is not None and connection.scalar(select(func.count()).select_from(table)) != part.rows:
            return False  # known without building anything
    with rehearsed(line, dump) as fresh, tempfile.TemporaryDirectory(prefix="mitl-restore-") as folder:
        (Path(folder) / "there").mkdir()
        (Path(folder) / "fresh").mkdir()
        written = write_database(line, connection, Path(folder) / "there")
        return written == write_database(line, fresh, Path(folder) / "fresh")


@contextmanager
def rehearsed(line: Line, dump: Dump, progress: Progress = no_progress) -> Iterator[Connection]:
    """A transaction in which the dump was restored into a new SQLite file, of which nothing stays."""
    with tempfile.TemporaryDirectory(prefix="mitl-rehearsal-") as folder:
        engine = make_engine(sqlite_url(Path(folder) / "rehearsal.db"))
        try:
            with changing(engine) as connection:
                restore_database(line, connection, dump, "the rehearsal", progress=progress)
                yield connection
        finally:
            engine.dispose()


@contextmanager
def _changing(place: Place) -> Iterator[Connection]:
    """A transaction on the database; a file that it makes goes again where the transaction fails."""
    is_new = not place.exists()
    try:
        with opened(place) as engine, changing(engine) as connection:
            yield connection
    except BaseException:
        if is_new and place.file is not None:
            place.file.unlink(missing_ok=True)
        raise
