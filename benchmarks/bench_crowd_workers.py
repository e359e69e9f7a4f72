"""The crowd server on several processes: a thousand people in one instant, beside a bare server that asks the same SQL.

Each person opens an invitation, gets the list, accepts, gets the page and its frame, submits and is thanked. The bare
server (``crowd_replay.py``) sends the recorded statements of that path from as many processes, and nothing else. Both
have a fresh copy of one database in each round, the load is a process of its own, and the best rounds are compared.

    python benchmarks/bench_crowd_workers.py                  # 1,000 people at once, 2 processes, best of 3
    python benchmarks/bench_crowd_workers.py --arrive 10      # over ten seconds
    python benchmarks/bench_crowd_workers.py --kills 50       # SIGKILL of random processes under load
    python benchmarks/bench_crowd_workers.py --costs          # queries, CPU and bytes of each kind of page
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crowd_books import faults, submissions
from crowd_kills import end_with, told_trial
from crowd_replay import measure, record, spread_ids, write
from crowd_servers import (
    Generator,
    Process,
    children_cpu_s,
    database,
    free_port,
    invite,
    post_hits,
    prepare,
    start_replay,
    start_server,
)
from sqlalchemy import Engine, text
from sqlalchemy.engine import make_url

from mitl.crowd_server.app import create_app
from mitl.crowd_server.serving import RunningServer
from mitl.db.engine import make_engine

PLACES = 5
KINDS = ("page", "accept", "submit")
Round = dict[str, Any]


def main() -> None:
    """Print what was measured; exit with 1 where anything was lost, doubled or refused."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--people", type=int, default=1000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--arrive", type=float, default=0.0, help="seconds within which people arrive")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--kills", type=int, default=0, help="kill so many processes, and measure nothing else"
    )
    parser.add_argument("--costs", action="store_true", help="what a page costs, and nothing else")
    options = parser.parse_args()
    with database("postgresql") as url:
        if options.kills:
            wrong = told_trial(url, options.kills, 0, options.processes)
        elif options.costs:
            wrong = _costs(url, options)
        else:
            wrong = _compare(url, options)
    end_with(wrong)


def _costs(url: str, options: argparse.Namespace) -> list[str]:
    engine = prepare(url)
    links = _fill(engine, options.people)
    steward = _steward(engine)
    before = children_cpu_s(steward)
    print(
        f"{'request':8} {'queries':>8} {'transactions':>13} {'CPU ms':>8} {'bytes':>8}   medians of {options.people}"
    )
    for kind, cost in measure(engine, links).items():
        print(f"{kind:8} {cost.queries:8} {cost.transactions:13} {cost.cpu_ms:8.2f} {cost.size:8}")
    used_ms = (children_cpu_s(steward) - before) / len(links) * 1000
    print(f"PostgreSQL's own CPU, all seven requests together: {used_ms:.1f} ms")
    with engine.connect() as connection:
        for table in ("hit", "hit_question", "assignment", "worker", "invitation", "ledger"):
            rows, size = connection.execute(
                text(f"SELECT count(*), pg_total_relation_size('{table}') FROM {table}")
            ).one()
            print(f"{table:14} {rows:7} rows, {size / max(1, rows):8.0f} bytes each with indexes")
    engine.dispose()
    return []


def _steward(engine: Engine) -> int:
    """The process of which PostgreSQL's others are children."""
    with engine.connect() as connection:
        backend = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    return int(Path(f"/proc/{backend}/stat").read_text().rpartition(")")[2].split()[1])


def _fill(engine: Engine, people: int) -> list[str]:
    """HITs and invitations for so many people, and one more."""
    spread_ids(engine)
    with RunningServer(create_app(engine)) as server:
        post_hits(engine, server.url, -(-people * 3 // 2 // PLACES), PLACES)
    return [
        link for first in range(0, people + 1, 1000) for link in invite(engine, min(1000, people + 1 - first))
    ]


def _compare(url: str, options: argparse.Namespace) -> list[str]:
    engine = prepare(url)
    links = _fill(engine, options.people)
    wrong: list[str] = []
    rounds: dict[str, list[Round]] = {"mitl": [], "bare": []}
    with tempfile.TemporaryDirectory(prefix="mitl-workers-") as folder:
        project, recorded = Path(folder), Path(folder) / "recorded.json"
        (project / "public").mkdir()
        write(record(engine, links[0]), recorded)
        steward = _steward(engine)
        engine.dispose()
        for number in range(options.rounds):
            for name in rounds:
                with _copy(url, f"{name}_{number}") as copy:
                    port = free_port()
                    if name == "mitl":
                        server = start_server(copy, port, project, "--workers", str(options.processes))
                    else:
                        server = start_replay(copy, port, recorded, options.processes)
                    rounds[name].append(_load(server, steward, port, links[1:], options))
                    if name == "mitl":
                        wrong += _check(copy, rounds[name][-1], options)
    print(
        f"{options.people} people within {options.arrive:g} s, {options.processes} processes, best of {options.rounds}"
    )
    for name, of in rounds.items():
        best = min(of, key=lambda one: one["seconds"])
        each = ", ".join(f"{one['seconds']:.1f}" for one in of)
        print(
            f"{name}: {best['seconds']:.1f} s ({each}), CPU of its processes {best['cpu_s']:.1f} s, of PostgreSQL "
            f"{best['postgres_cpu_s']:.1f} s, of the load {best['load_cpu_s']:.1f} s"
        )
        for kind in KINDS:
            times = sorted(best["times_ms"][kind])
            low, high = (times[min(len(times) - 1, int(share * len(times)))] for share in (0.5, 0.99))
            print(
                f"    {kind:7} {len(times):6}  p50 {low:7.0f} ms  p99 {high:7.0f} ms  max {times[-1]:7.0f} ms"
            )
    seconds, cpu_s = (
        [min(one[what] for one in of) for of in rounds.values()] for what in ("seconds", "cpu_s")
    )
    print(
        f"ratio of the best times {seconds[0] / seconds[1]:.2f}, of CPU {cpu_s[0] / cpu_s[1]:.2f}", flush=True
    )
    return wrong


def _load(server: Process, steward: int, port: int, links: list[str], options: argparse.Namespace) -> Round:
    plan = {
        "kind": "workers",
        "base": f"http://127.0.0.1:{port}",
        "links": links,
        "hits": 1,
        "think_s": [0, 0],
        "arrive_s": options.arrive,
        "images": False,
        "seed": 0,
    }
    try:
        before, of_postgres = server.cpu_s(), children_cpu_s(steward)
        found = Generator(plan).finish()
        return found | {
            "cpu_s": server.cpu_s() - before,
            "postgres_cpu_s": children_cpu_s(steward) - of_postgres,
            "load_cpu_s": found["cpu_s"],
        }
    finally:
        server.stop()


def _check(url: str, found: Round, options: argparse.Namespace) -> list[str]:
    engine = make_engine(url)
    wrong = list(found["refused"]) + faults(engine, found["confirmed"])
    # One more is the recorded worker's.
    for name, count in (("confirmed", len(found["confirmed"])), ("kept", submissions(engine) - 1)):
        if count != options.people:
            wrong.append(f"{count} answers were {name}, not {options.people}")
    if found["reconnected"]:
        wrong.append(f"{found['reconnected']} connections were refused or cut")
    engine.dispose()
    return wrong


@contextmanager
def _copy(url: str, name: str) -> Iterator[str]:
    """A copy of the database for the block; nobody may be connected to it."""
    own = make_url(url)
    steward = make_engine(own.set(database="template1").render_as_string(hide_password=False))
    at_once = steward.execution_options(isolation_level="AUTOCOMMIT")
    with at_once.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {own.database}")
    try:
        yield own.set(database=name).render_as_string(hide_password=False)
    finally:
        with at_once.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
        steward.dispose()


if __name__ == "__main__":
    main()
