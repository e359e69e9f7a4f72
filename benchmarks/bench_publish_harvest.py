"""Publishing and harvesting 2,580 HITs, and a harvest with nothing new, against the crowd server's own raw rate.

The server runs in a process of its own, as `mitl serve`. The baseline are plain boto3 threads in this process that
make the same calls with the same documents to a server over a copy of the same database, and keep nothing: the
question XML that mitl rendered, the answers that were submitted, an approval for each. So the ratio is what planning,
journal, raw documents, parsing, judging and the ledger cost on top. Processor time is this process's alone: the
server's, the same for both, comes on top. The collector of garbage is set as the command line sets it.

    python benchmarks/bench_publish_harvest.py                 # 2,580 HITs, SQLite: about 3 min on two cores
    python benchmarks/bench_publish_harvest.py --hits 200 --rounds 3    # the best of three
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from crowd_servers import TYPE, boto, free_port, prepare, start_server
from loop_project import SANDBOX, answer_all, make_project
from sqlalchemy import select

from mitl.campaign.kinds.pairs.planning import Campaign
from mitl.campaign.publish import publish
from mitl.crowd_server import admin
from mitl.crowd_server.store.models import CrowdHit, HitQuestion
from mitl.db.engine import make_engine
from mitl.settings import Settings
from mitl.stages.harvesting.harvest import harvest

WANTED_S = {"post": 30.0, "harvest": 20.0, "nothing new, all out": 1.0, "nothing new, one out": 1.0}
THREADS = 4
Taken = tuple[float, float]
"""Seconds by the clock, and of processor time."""


def main() -> None:
    """Print the table; exit with 1 where a step is slower than is wanted of 2,580 HITs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hits", type=int, default=2580)
    parser.add_argument("--template", default="pairs-rationale")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    gc.set_threshold(50_000)
    rounds = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="mitl-loop-") as folder:
            rounds.append(measure(Path(folder), options.hits, options.template))
    own, raw = (
        {step: least(of[step] for of in side) for step in WANTED_S} for side in zip(*rounds, strict=True)
    )
    print(
        f"{options.hits:,} HITs of 20 pairs, {options.template}; seconds, best of {options.rounds}; baseline: boto3 on "
        f"{THREADS} threads; by the clock, then of processor time"
    )
    print(f"{'step':30} {'wanted':>7}" + 2 * f"  {'mitl':>7} {'baseline':>9} {'ratio':>6}")
    for step, taken in own.items():
        sides = (f"{a:7.2f} {b:9.2f} {a / b:6.2f}" for a, b in zip(taken, raw[step], strict=True))
        print(f"{step:30} {WANTED_S[step]:7.2f}  {'  '.join(sides)}")
    slow = [step for step, (clock, _) in own.items() if clock > WANTED_S[step]]
    if slow:
        raise SystemExit(f"slower than wanted: {', '.join(slow)}")


def measure(folder: Path, hits: int, template: str) -> tuple[dict[str, Taken], dict[str, Taken]]:
    """What each step took, by mitl and by the baseline."""
    own: dict[str, Taken] = {}
    raw: dict[str, Taken] = {}
    project, other = folder / "project", folder / "baseline"
    project.mkdir()
    other.mkdir()
    with served(project) as (engine, url):
        settings = make_project(project, hits, template=template, url=url)
        campaign = Campaign(SANDBOX, template=template, probes=0)  # the addresses are made up
        own["post"] = seconds(lambda: publish(settings, campaign, confirm=lambda cents: True))
        own["nothing new, all out"] = best(lambda: harvest(settings, SANDBOX))
        with engine.connect() as connection:
            questions = list(connection.execute(select(HitQuestion.xml, CrowdHit.annotation).join(CrowdHit)))
    with served(other) as (engine, url):
        raw["post"] = seconds(lambda: post(engine, url, questions))
        raw["nothing new, all out"] = best(lambda: list_hits(engine, url))
    # One HIT stays out, so that there is something to look after.
    engine = prepare(f"sqlite:///{project / 'crowd.db'}")
    answered = answer_all(engine, settings, share=(hits - 1) / hits)
    engine.dispose()
    shutil.copytree(project, folder / "answered")
    with served(folder / "answered") as (engine, url):
        raw["harvest"] = seconds(lambda: fetch_and_approve(engine, url, answered))
        raw["nothing new, one out"] = best(lambda: list_hits(engine, url))
    with served(project) as (engine, url):
        settings = at(settings, url)
        own["harvest"] = seconds(lambda: check(harvest(settings, SANDBOX).counts, answered))
        own["nothing new, one out"] = best(lambda: harvest(settings, SANDBOX))
    order = ("post", "harvest", "nothing new, all out", "nothing new, one out")
    return {step: own[step] for step in order}, raw


def at(settings: Settings, url: str) -> Settings:
    """The settings with another address of the server."""
    return replace(settings, endpoint=url)


@contextmanager
def served(folder: Path) -> Iterator[tuple[Any, str]]:
    """``mitl serve`` over this folder's ``crowd.db``: an engine of it, and the address."""
    url, port = f"sqlite:///{folder / 'crowd.db'}", free_port()
    engine = prepare(url)
    access, secret = admin.keys(engine)[SANDBOX]
    os.environ |= {"AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret}
    server = start_server(url, port, folder)
    try:
        yield make_engine(url), f"http://127.0.0.1:{port}"
    finally:
        server.stop()
        engine.dispose()


def post(engine: Any, url: str, questions: list[Any]) -> None:
    """Make these HITs by boto3."""
    client = boto(engine, url, retries={"total_max_attempts": 1}, max_pool_connections=THREADS)
    hit_type = client.create_hit_type(**TYPE)["HITTypeId"]

    def create(number: int) -> None:
        xml, annotation = questions[number]
        client.create_hit_with_hit_type(
            HITTypeId=hit_type,
            Question=xml,
            MaxAssignments=1,
            LifetimeInSeconds=7 * 86400,
            RequesterAnnotation=annotation,
            UniqueRequestToken=f"raw-{number}",
        )

    in_threads(create, range(len(questions)))
    client.close()


def list_hits(engine: Any, url: str) -> list[Any]:
    """One sweep by boto3."""
    client = boto(engine, url, retries={"total_max_attempts": 1})
    pages = client.get_paginator("list_hits").paginate(PaginationConfig={"PageSize": 100})
    found = [hit for page in pages for hit in page["HITs"]]
    client.close()
    return found


def fetch_and_approve(engine: Any, url: str, answered: int) -> None:
    """List every HIT's assignments and approve them, by boto3."""
    client = boto(engine, url, retries={"total_max_attempts": 1}, max_pool_connections=THREADS)
    hits = [hit["HITId"] for hit in list_hits(engine, url) if not hit["NumberOfAssignmentsAvailable"]]

    def fetch(hit: str) -> list[Any]:
        found: list[Any] = client.list_assignments_for_hit(HITId=hit, MaxResults=100)["Assignments"]
        return found

    assignments = [one["AssignmentId"] for found in in_threads(fetch, hits) for one in found]
    in_threads(lambda one: client.approve_assignment(AssignmentId=one), assignments)
    client.close()
    check({"fetched": len(assignments), "approved": len(assignments)}, answered)


def in_threads(work: Callable[[Any], Any], given: Any) -> list[Any]:
    """What the work gives for each, made on four threads."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, given))


def check(counts: dict[str, object], answered: int) -> None:
    """Fail where a step did less than it should have."""
    if (counts["fetched"], counts["approved"]) != (answered, answered):
        raise SystemExit(f"{answered} submissions were to be fetched and approved, but {counts}")


def seconds(work: Callable[[], Any]) -> Taken:
    """How long it takes."""
    began = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began[0], time.process_time() - began[1]


def best(work: Callable[[], Any], times: int = 3) -> Taken:
    """The least of a few goes."""
    return least(seconds(work) for _ in range(times))


def least(taken: Iterable[Taken]) -> Taken:
    """The least of each clock."""
    clock, processor = zip(*taken, strict=True)
    return min(clock), min(processor)


if __name__ == "__main__":
    main()
