"""``kill -9`` of the crowd server at random moments while people work and a requester posts and pays."""

from __future__ import annotations

import os
import random
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from botocore.exceptions import BotoCoreError, ClientError
from crowd_books import faults, submissions
from crowd_child import ForkedServer, fork_server
from crowd_servers import (
    TYPE,
    Generator,
    boto,
    free_port,
    invite,
    prepare,
    question,
)

WORKERS = 24
FIRST = 8
PATIENCE_S = 60.0
HITS = 400
_KEEP_ON = {"connect_timeout": 5, "read_timeout": 20, "retries": {"total_max_attempts": 1}}


@dataclass
class Requester:
    """Posts HITs and approves what arrives until told to stop; asks again whenever nobody answers."""

    client: Any
    hit_type: str
    places: int
    question: str
    posted: dict[str, str] = field(default_factory=dict)
    """HIT ids that the server confirmed, by annotation."""
    approved: set[str] = field(default_factory=set)
    """Assignments whose approval the server confirmed."""
    stop: threading.Event = field(default_factory=threading.Event)
    trouble: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Until told to stop."""
        number = 0
        while not self.stop.is_set():
            self.post(number)
            number += 1
            for assignment in self._waiting():
                if self.stop.is_set():
                    return
                self._approve(assignment)

    def post(self, number: int) -> None:
        """One HIT, once, however often it has to be asked for."""
        reply = self._ask(
            "create_hit_with_hit_type",
            HITTypeId=self.hit_type,
            LifetimeInSeconds=86400,
            MaxAssignments=self.places,
            Question=self.question,
            RequesterAnnotation=f"post-{number}",
            UniqueRequestToken=f"post-{number}",
        )
        if reply is not None:
            self.posted[f"post-{number}"] = reply["HIT"]["HITId"]

    def _waiting(self) -> list[str]:
        if not self.posted:
            return []
        # People take the HITs in the order in which they were posted.
        hit = random.choice(list(self.posted.values())[:FIRST])
        reply = self._ask(
            "list_assignments_for_hit", HITId=hit, AssignmentStatuses=["Submitted"], MaxResults=100
        )
        return [] if reply is None else [own["AssignmentId"] for own in reply["Assignments"]]

    def _approve(self, assignment: str) -> None:
        if self._ask("approve_assignment", AssignmentId=assignment) is not None:
            self.approved.add(assignment)

    def _ask(self, operation: str, **values: Any) -> Any:
        while not self.stop.is_set():
            try:
                reply = getattr(self.client, operation)(**values)
                if not _was_cut(reply):
                    return reply
            except ClientError as error:
                code = error.response["Error"].get("Code", "")
                told = error.response.get("TurkErrorCode", code)
                if "HitAlreadyExists" in told or operation == "approve_assignment":
                    # The reply was lost, but not the work.
                    return _already(error, operation)
                self.trouble.append(f"{operation}: {told} {error}")
                return None
            except BotoCoreError:
                time.sleep(0.05)
        return None


def _was_cut(reply: Any) -> bool:
    """Whether the connection broke between a reply's headers and its body, which boto3 takes for an empty success."""
    length = reply["ResponseMetadata"]["HTTPHeaders"].get("content-length", "0")
    return set(reply) <= {"ResponseMetadata"} and int(length) > len("{}")


def _already(error: ClientError, operation: str) -> Any:
    if operation == "approve_assignment":
        return {}
    for piece in str(error).replace(",", " ").replace(".", " ").split():
        if len(piece) == 30 and piece.isalnum():
            return {"HIT": {"HITId": piece}}
    raise AssertionError(f"the refusal names no HIT: {error}")


@dataclass
class Outcome:
    """What became of one trial."""

    kills: int
    confirmed: int
    kept: int
    approved: int
    posted: int
    reconnected: int
    restart_s: list[float]
    faults: list[str]


def kill_trial(url: str, *, kills: int, seed: int, workers: int = WORKERS, processes: int = 1) -> Outcome:
    """Kill the server ``kills`` times and compare the database with what people saw.

    A server of one process is started again each time; of several, one at random is killed, and comes back by itself.
    """
    rng = random.Random(seed)
    random.seed(seed)
    engine = prepare(url)
    with tempfile.TemporaryDirectory(prefix="mitl-kill-") as folder, fork_server() as context:
        project, port = Path(folder), free_port()
        (project / "public").mkdir()
        base = f"http://127.0.0.1:{port}"
        server = ForkedServer(context, url, port, project, processes)
        try:
            client = boto(engine, base, **_KEEP_ON)
            requester = Requester(client, client.create_hit_type(**TYPE)["HITTypeId"], workers, question())
            for number in range(FIRST):
                requester.post(-1 - number)
            thread = threading.Thread(target=requester.run, daemon=True)
            thread.start()
            load = Generator(_plan(base, invite(engine, workers), seed))
            _await(lambda: submissions(engine) > 0)
            restarts = []
            for _ in range(kills):
                time.sleep(rng.uniform(0.2, 1.2))
                began = time.perf_counter()
                if processes > 1:
                    _kill_one(server, base, processes, rng)
                else:
                    server.kill()
                    server = ForkedServer(context, url, port, project)
                restarts.append(time.perf_counter() - began)
            before = submissions(engine)
            went_on = _await(lambda: submissions(engine) > before and bool(requester.approved))
            found = load.finish(stop=True, within_s=120)
            requester.stop.set()
            thread.join(60)
            client.close()
        finally:
            server.kill()
    wrong = faults(engine, found["confirmed"]) + found["refused"] + requester.trouble
    wrong += _unposted(engine, requester) + ([] if went_on else ["nobody went on after the last restart"])
    kept = submissions(engine)
    engine.dispose()
    return Outcome(
        kills=kills,
        confirmed=len(found["confirmed"]),
        kept=kept,
        approved=len(requester.approved),
        posted=len(requester.posted),
        reconnected=found["reconnected"],
        restart_s=restarts,
        faults=wrong,
    )


def _kill_one(server: ForkedServer, base: str, processes: int, rng: random.Random) -> None:
    """Kill one process of the server, and wait until there are as many as before."""
    before = server.workers()
    os.kill(rng.choice(before), signal.SIGKILL)

    def is_whole() -> bool:
        try:
            told = httpx.get(f"{base}/healthz", trust_env=False, timeout=10).json()
        except httpx.TransportError:
            return False  # the one that was killed had this connection
        return set(server.workers()) != set(before) and told["workers"] == processes

    if not _await(is_whole):
        raise RuntimeError("the killed process did not come back")


def _await(reached: Callable[[], bool]) -> bool:
    """Whether it came true in time."""
    give_up = time.monotonic() + PATIENCE_S
    while not reached():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.05)
    return True


def _plan(base: str, links: list[str], seed: int) -> dict[str, Any]:
    return {
        "kind": "workers",
        "base": base,
        "links": links,
        "hits": None,
        "think_s": [0.02, 0.2],
        "arrive_s": 0.2,
        "images": False,
        "seed": seed,
    }


def _unposted(engine: Any, requester: Requester) -> list[str]:
    """Each confirmed HIT is there once under the id that was told, and each confirmed approval holds."""
    from sqlalchemy import select

    from mitl.crowd_server.store.models import AssignmentState, CrowdAssignment, CrowdHit

    with engine.execution_options(mitl_write=False).connect() as connection:
        hits = connection.execute(select(CrowdHit.annotation, CrowdHit.mturk_id)).all()
        paid = set(
            connection.execute(
                select(CrowdAssignment.mturk_id).where(CrowdAssignment.state == AssignmentState.APPROVED)
            ).scalars()
        )
    known = dict(hits)
    found = [f"{len(hits) - len(known)} HITs are there twice"] if len(hits) > len(known) else []
    found += [f"the HIT {name} was lost" for name, own in requester.posted.items() if known.get(name) != own]
    return found + [f"the approval of {own} was lost" for own in requester.approved - paid]


def told_trial(url: str, kills: int, seed: int, processes: int = 1) -> list[str]:
    """The faults of a ``kill_trial``, of which a line is printed."""
    began = time.perf_counter()
    outcome = kill_trial(url, kills=kills, seed=seed, processes=processes)
    print(
        f"{outcome.kills} kills of one of {processes} processes in {time.perf_counter() - began:.0f} s: "
        f"{outcome.confirmed} answers confirmed, {outcome.kept} kept, {outcome.approved} approvals and "
        f"{outcome.posted} HITs confirmed, {outcome.reconnected} requests asked again, back after "
        f"{statistics.median(outcome.restart_s):.2f} s (median), {len(outcome.faults)} faults",
        flush=True,
    )
    return outcome.faults


def end_with(faults: list[str]) -> None:
    """Leave with the first of them, where there are any."""
    if faults:
        print("\n".join(faults[:20]))
        raise SystemExit(f"{len(faults)} faults")
