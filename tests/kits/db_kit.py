"""What a database holds, whatever its engine and revision, and databases as older versions left them."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from old_dumps import dump_of
from sqlalchemy import Connection, Engine, create_engine, event, make_url, select, text
from sqlalchemy.orm import Session

from mitl.db.dumps.reading import open_dump
from mitl.db.dumps.restoring import fill_database
from mitl.db.engine import make_engine
from mitl.db.migrate import Line, changing, head, require_whole
from mitl.db.models import PairRow
from mitl.db.store.items import pair_sides
from mitl.db.tables import reflected
from mitl.records import Pair

Content = dict[str, list[dict[str, Any]]]


def content(url: str) -> Content:
    """Every row of every table, by key."""
    engine = make_engine(url)
    try:
        with engine.execution_options(mitl_write=False).connect() as connection:
            found = {}
            for table in reflected(connection):
                rows = [dict(row._mapping) for row in connection.execute(select(table))]
                keys = [column.name for column in table.primary_key]
                found[table.name] = sorted(rows, key=lambda row, keys=keys: [row[key] for key in keys])
            return found
    finally:
        engine.dispose()


_PAIRED = {"image_id": "left_id", "caption_id": "right_id"}
_RENAMED = {
    "pair": _PAIRED,
    "rating": _PAIRED,
    "exclusion": _PAIRED,
    "original_verdict": {"caption_id": "item_id"},
}
"""Columns that p0007 gave another name."""


def kept(before: Content, after: Content) -> bool:
    """Whether every row of before is there after, in the columns that it had, whatever they are called now."""
    before, after = in_the_words_of_p0007(before), in_the_words_of_p0007(after)
    for table, rows in before.items():
        now = after[table]
        assert len(now) == len(rows), table
        for old, new in zip(rows, now, strict=True):
            assert {name: new[name] for name in old} == old, table
    return True


def in_the_words_of_p0007(content: Content) -> Content:
    """The same content with images and captions as items of two sides, each with one part."""
    if "image" not in content:
        return content
    found = {
        table: [
            {_RENAMED.get(table, {}).get(name, name): value for name, value in row.items()} for row in rows
        ]
        for table, rows in content.items()
        if table not in ("image", "caption")
    }
    images, captions = content["image"], content["caption"]
    found["item"] = [{"side_id": 1, "group_id": None} | _only(row, "id", "external_id") for row in images] + [
        {"side_id": 2, "group_id": row["image_id"]} | _only(row, "id", "external_id") for row in captions
    ]
    found["part"] = [
        {"side_id": 1, "item_id": row["id"], "place": 1, "kind": "image"}
        | _only(row, "file", "url", "width", "height", "sha256")
        for row in images
    ] + [
        {"side_id": 2, "item_id": row["id"], "place": 1, "kind": "text"} | _only(row, "text")
        for row in captions
    ]
    return found


def _only(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names}


def old_database(line: Line, revision: str, url: str) -> Content:
    """Make the database of a revision at ``url`` from its dump, as a file once a process; what it holds."""
    path = url.removeprefix("sqlite:///")
    if path == url:
        _fill(line, revision, url)
    else:
        shutil.copy(_old_file(line, revision), path)
    return content(url)


@cache
def _old_file(line: Line, revision: str) -> Path:
    file = Path(tempfile.mkdtemp(prefix="mitl-old-")) / "old.db"
    _fill(line, revision, sqlite_url(file))
    return file


def _fill(line: Line, revision: str, url: str) -> None:
    engine = make_engine(url)
    with open_dump(dump_of(revision)) as dump, changing(engine) as connection:
        fill_database(line, connection, dump, "the test's database")
        require_whole(connection, "the test's database")
    engine.dispose()


def killed_at(url: str, number: int, work: Callable[[Engine], object]) -> bool:
    """Do the work in a process of its own that is killed before its statement of this number; whether it was."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            engine, count = make_engine(url), 0

            def die(*arguments: object) -> None:
                nonlocal count
                count += 1
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)

            event.listen(engine, "before_cursor_execute", die)
            work(engine)
            engine.dispose()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert status == 0
    return False


def new_project(folder: Path) -> Path:
    """A project whose pipeline database is of the newest revision."""
    folder.mkdir()
    old_database("pipeline", head("pipeline"), sqlite_url(folder / "mitl.db"))
    return folder


def unprivileged() -> list[str]:
    """The words before a program for which permissions bind, even where the tests run as root."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("tests run as root, and setpriv (util-linux) is missing to take its rights away")
    return ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]


@contextmanager
def guest(url: str, *rights: str) -> Iterator[str]:
    """The URL of a user of a PostgreSQL database who has these rights and no more."""
    name, admin = f"guest_{uuid.uuid4().hex[:8]}", make_engine(url)
    with admin.begin() as connection:
        connection.execute(text(f"CREATE ROLE {name} LOGIN"))
        for right in rights:
            connection.execute(text(right.format(user=name)))
    try:
        yield admin.url.set(username=name).render_as_string(hide_password=False)
    finally:
        with admin.begin() as connection:
            connection.execute(text(f"DROP OWNED BY {name}"))
            connection.execute(text(f"DROP ROLE {name}"))
        admin.dispose()


_administrators: dict[str, Engine] = {}


@contextmanager
def administered(server: str) -> Iterator[Engine]:
    """Databases of this server are made by one connection, which has in memory what a new one has to read first."""
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    _administrators[server] = engine
    yield engine
    del _administrators[server]
    engine.dispose()


@contextmanager
def postgres_database(server: str, like: str | None = None, locale: str = "") -> Iterator[str]:
    """The URL of a database on this server, dropped afterwards: empty, or a copy of one that nobody uses now.

    Args:
        server: one that is `administered`.
        locale: that of an empty one, by which it sorts texts.
    """
    name = f"t_{uuid.uuid4().hex[:12]}"
    template = make_url(like).database if like else f"template0 LOCALE '{locale}'" if locale else "template1"
    admin = _administrators[server]
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template}"))
    try:
        yield make_url(server).set(database=name).render_as_string(hide_password=False)
    finally:
        with admin.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


def pair_rows(session: Session, sides: tuple[int, int] | None = None) -> dict[Pair, int]:
    """The row of every pair of these sides; of images and captions where none are named."""
    left, right = sides or pair_sides(session)
    query = select(PairRow.left_id, PairRow.right_id, PairRow.id).filter_by(
        left_side_id=left, right_side_id=right
    )
    return {Pair(*items): row for *items, row in session.execute(query)}


def sqlite_url(path: Path) -> str:
    """The URL of a file."""
    return f"sqlite:///{path}"


def cut_connections(url: str) -> None:
    """End all connections to a database of PostgreSQL, as a restart of it does, and wait until they are gone."""
    engine = make_engine(url)
    with engine.connect() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
    engine.dispose()


def steps(folder: Path, work: Callable[[], object], kill_at: str | None = None) -> list[str] | None:
    """Do the work in a process of its own, and name its steps; None where it was killed at one.

    A step is a statement that writes, the moment before and the one after a commit, and each name below ``folder``
    that is made, moved or removed.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            names: list[str] = []
            _watch(folder, names, kill_at)
            work()
            with os.fdopen(writing, "w") as pipe:
                pipe.write("\n".join(names))
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        names = pipe.read().splitlines()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return None
    assert status == 0
    return names


_NAMES = ("os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir")


def _watch(folder: Path, names: list[str], kill_at: str | None) -> None:
    counts: Counter[str] = Counter()

    def reach(step: str) -> None:
        counts[step] += 1
        names.append(f"{step} {counts[step]}")
        if names[-1] == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def heard(name: str, arguments: tuple[object, ...]) -> None:
        made = name == "open" and "x" in str(arguments[1])
        if (made or name in _NAMES) and str(arguments[0]).startswith(str(folder)):
            reach(name)

    def write(connection: Connection, cursor: object, statement: str, *more: object) -> None:
        if not statement.lstrip().startswith(("SELECT", "PRAGMA", "WITH")):
            reach("statement")

    def commit(connection: Connection) -> None:
        reach("before commit")
        whole(connection)
        reach("after commit")

    whole = Connection._commit_impl
    Connection._commit_impl = commit  # type: ignore[method-assign]
    event.listen(Engine, "before_cursor_execute", write)
    sys.addaudithook(heard)
