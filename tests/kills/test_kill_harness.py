"""The harness itself: it dies where it is told to, the proxy spoils what it says, and what is doubled is seen."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import fault_kinds
import httpx
import pytest
from fault_proxy import FaultProxy
from fault_trials import DISORDERS, SPOILINGS
from kill_books import differences
from kill_child import KILLED
from kill_scenarios import SCENARIOS, Bases, named
from kill_stand import Stand
from kill_table import FAULTS, KILLS, KINDS, told
from kill_trials import Trial, kill_at

pytest_plugins = ("kill_fixtures",)

PUBLISH = named("publish")


def test_a_client_that_forgets_what_it_sent_is_found_out(stand: Stand, bases: Bases):
    """Were the journal lost and the names and tokens drawn again, HITs would be posted twice: the books show it."""
    with stand.project(bases.start(PUBLISH)) as project:
        commands = PUBLISH.commands(project.settings)
        killed = project.run(commands, kill_at="after CreateHITWithHITType 3")
        with closing(sqlite3.connect(project.folder / "mitl.db")) as database, database:
            database.execute("DELETE FROM journal")
            database.execute("UPDATE batch SET name = 'drawn'")
            database.execute("UPDATE hit SET state = 'planned', token = 'drawn-' || id")
        project.must(commands)
        found = differences(project.state(), bases.state(PUBLISH))

    assert killed.exit_status == KILLED
    assert killed.points == ()  # there was nobody left to tell them
    assert any(line.startswith("the server's HITs: ") for line in found)


def test_an_answer_or_a_bonus_too_many_is_found_out(stand: Stand, bases: Bases):
    """A row more on either side is a difference, as is one that links to another's."""
    harvest = named("harvest")
    with stand.project(bases.start(harvest)) as project:
        project.must(harvest.commands(project.settings))
        assert differences(project.state(), bases.state(harvest)) == []
        with closing(sqlite3.connect(project.folder / "mitl.db")) as database, database:
            database.execute(
                "INSERT INTO ledger SELECT NULL, assignment_id, 'bonus', 'x', 1 FROM ledger LIMIT 1"
            )
            database.execute("UPDATE assignment SET raw_xml = raw_xml || ' ' WHERE id = 1")
        found = differences(project.state(), bases.state(harvest))

    assert [line.partition(":")[0] for line in found] == ["submissions", "ledger"]


def test_a_point_that_is_not_reached_is_no_success(stand: Stand, bases: Bases):
    """A command that makes fewer calls than were counted does not pass as killed."""
    trial = kill_at(stand, bases, PUBLISH, "before CreateHITWithHITType 6")

    assert "was not reached" in trial.result
    assert str(trial).startswith("publish, before CreateHITWithHITType 6: ")
    assert isinstance(trial, Trial)


class _Counting(BaseHTTPRequestHandler):
    """Answers with how many requests it has had."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.count += 1  # type: ignore[attr-defined]
        body = json.dumps({"count": self.server.count}).encode()  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def upstream() -> Iterator[HTTPServer]:
    """A server that counts what reaches it."""
    server = HTTPServer(("127.0.0.1", 0), _Counting)
    server.count = 0  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def ask(proxy: FaultProxy, patience_s: float = 60) -> str:
    """What a client gets for one call: a status, or how its connection failed."""
    try:
        url = f"http://127.0.0.1:{proxy.port}/"
        headers = {"X-Amz-Target": "MTurk.CreateHIT"}
        reply = httpx.post(url, headers=headers, content=b"{}", timeout=patience_s, trust_env=False)
        return str(reply.status_code)
    except httpx.HTTPError as error:
        return type(error).__name__


@pytest.mark.parametrize(
    ("fault", "got", "reached"),
    [
        (fault_kinds.request_lost, "RemoteProtocolError", 0),
        (fault_kinds.reply_lost, "RemoteProtocolError", 1),
        (fault_kinds.reply_cut, "RemoteProtocolError", 1),
        (fault_kinds.reply_late, "ReadTimeout", 1),
        (fault_kinds.request_late, "RemoteProtocolError", 0),
        (fault_kinds.throttled, "400", 0),
        (fault_kinds.failed, "500", 0),
        (fault_kinds.failed_after, "500", 1),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_fault_does_what_it_says(upstream: HTTPServer, fault: fault_kinds.Fault, got: str, reached: int):
    """It reaches the second call only, whether or not the request reaches the server."""
    is_late = fault is fault_kinds.reply_late
    with FaultProxy(upstream.server_address[1], late_s=5) as proxy:
        proxy.spoil(fault, "CreateHIT 2")
        statuses = [ask(proxy, 1 if is_late and number == 2 else 60) for number in (1, 2, 3)]
        count = upstream.count  # type: ignore[attr-defined]
        late = proxy.release()

    assert statuses == ["200", got, "200"]
    assert count == 2 + reached
    assert late == (fault is fault_kinds.request_late)
    assert upstream.count == count + late  # type: ignore[attr-defined]


def test_a_lasting_fault_meets_all_that_follows(upstream: HTTPServer):
    """From the call on nothing comes back, until the proxy is told otherwise."""
    with FaultProxy(upstream.server_address[1]) as proxy:
        proxy.spoil(fault_kinds.failed, "CreateHIT 2", lasting=True)
        spoilt = [ask(proxy) for _ in range(3)]
        proxy.clear()
        after = ask(proxy)

    assert (spoilt, after) == (["200", "500", "500"], "200")


def test_disordered_listings_hold_the_same_rows():
    """Repeated and reordered pages neither lose nor invent a row."""
    rows = list(range(5))

    assert fault_kinds.repeated(rows, 2) == [[0, 1], [0, 1], [2, 3], [2, 3], [4], [4]]
    assert fault_kinds.reordered(rows, 2) == [[4, 3], [2, 1], [0]]
    assert fault_kinds.repeated([], 2) == [[], []]


def test_the_table_names_every_fault_and_every_command():
    """No kind of fault is tried and not told, and the document has nothing that is not tried."""
    names = {f"`{scenario.name}`" for scenario in SCENARIOS}

    assert [row[0] for row in told(KINDS)] == [*DISORDERS, *(spoiling.name for spoiling in SPOILINGS)]
    assert {row[0] for row in told(KILLS)} == names
    assert {row[0] for row in told(FAULTS)} == names - {"`harvest --from`"}, "which makes no call"
