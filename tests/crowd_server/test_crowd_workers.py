"""A server of several processes: one state between them, one parent that watches them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from cli_kit import fails
from crowd_kit import ManualClock, running_crowd
from crowd_operator_kit import Operator, operator_of
from guarded_kit import guarded_crowd
from hypothesis import given
from hypothesis import strategies as st

from mitl.crowd_server import admin
from mitl.crowd_server.middleware.callers import DrawnTokens, RequestRate
from mitl.crowd_server.middleware.limits import CallerRates
from mitl.crowd_server.middleware.meter import Meter
from mitl.crowd_server.serving import MAX_CONNECTIONS
from mitl.crowd_server.store.allowances import SharedAllowance
from mitl.db.engine import make_engine

PATIENCE_S = 60


@pytest.fixture
def postgres_engine(postgres_crowd_url):
    """A prepared crowd database on PostgreSQL."""
    engine = make_engine(postgres_crowd_url)
    admin.prepare(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def serve(start_program):
    """Starts ``mitl serve`` in a process of its own: that, and what it says once it can be reached or ends."""

    def start(*options):
        words = ["serve", "--port", "0", "--json", *options]
        server = start_program(
            [sys.executable, "-c", "from mitl.cli import main; main()", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return server, json.loads(server.stdout.readline())

    return start


def children(pid):
    """The living children of a process."""
    stats = [path.read_text().rpartition(")") for path in Path("/proc").glob("[0-9]*/stat")]
    alive = [(int(name.split()[0]), rest.split()) for name, _, rest in stats]
    return {own for own, (state, parent, *_) in alive if int(parent) == pid and state != "Z"}


def wait_for(reached):
    """Whether it came true in time."""
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        if reached():
            return True
        time.sleep(0.02)
    return False


def get(url, **options):
    """One request by a connection of its own, which any of the processes may take."""
    return httpx.get(url, trust_env=False, timeout=PATIENCE_S, **options)


def counted(url):
    """Requests that the server says it answered under /w."""
    found = re.findall(r'mitl_http_requests_total{kind="/w",.*} (\d+)', get(url + "/metrics").text)
    return sum(map(int, found))


@pytest.mark.postgres
def test_a_crew_serves_is_watched_and_ends(postgres_crowd_url, postgres_engine, serve, tmp_path):
    """A killed process comes back, nothing that was counted is forgotten, SIGTERM ends all; the log names them.

    A form that is half sent when SIGTERM comes is taken whole.
    """
    server, told = serve("--crowd-db", postgres_crowd_url, "--workers", "2", "--project", str(tmp_path), "-v")
    url, first = told["counts"]["url"], children(server.pid)
    for _ in range(8):
        assert get(url + "/w").status_code == 403
    before = counted(url)
    os.kill(min(first), signal.SIGKILL)

    came_back = wait_for(lambda: len(children(server.pid)) == 2 and children(server.pid) != first)
    whole = wait_for(lambda: get(url + "/healthz").json()["workers"] == 2)
    after = counted(url)
    with half_sent(url) as (replies, go_on):
        server.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        go_on()
    log = server.communicate(timeout=PATIENCE_S)[1]

    assert told["counts"]["workers"] == 2 and len(first) == 2
    assert came_back and whole
    assert (before, after) == (8, 8)
    assert [reply.status_code for reply in replies] == [403]
    assert server.returncode == -signal.SIGTERM
    with pytest.raises(httpx.TransportError):
        get(url + "/healthz")
    assert re.search("worker-[12] INFO", log)  # one of them may have taken all requests
    assert "died (by SIGKILL) and is started again" in log


@contextmanager
def half_sent(url):
    """A form of which half was sent: the replies to come, and what sends the rest; ends when it is answered."""
    sent, may_go_on, replies = threading.Event(), threading.Event(), []

    def body():
        yield b"token="
        sent.set()
        may_go_on.wait(PATIENCE_S)
        yield b"guess"

    def ask():
        headers = {"Origin": url, "Content-Type": "application/x-www-form-urlencoded"}
        address = url + "/operator/sign-in"
        replies.append(
            httpx.post(address, content=body(), headers=headers, trust_env=False, timeout=PATIENCE_S)
        )

    asking = threading.Thread(target=ask)
    asking.start()
    assert sent.wait(PATIENCE_S)
    time.sleep(0.2)  # until the half that was sent is read, and not only on its way
    yield replies, may_go_on.set
    asking.join(PATIENCE_S)


def test_a_server_may_open_as_many_files_as_connections():
    """Also where the shell allows few."""
    script = """
import os, resource
from mitl.crowd_server.serving import serve
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
serve(None, port=0, ready=lambda url: (print(*resource.getrlimit(resource.RLIMIT_NOFILE), flush=True), os._exit(0)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S)

    soft, hard = map(int, done.stdout.split())
    assert soft == hard or soft > MAX_CONNECTIONS


@pytest.mark.postgres
def test_workers_end_when_their_parent_was_killed(postgres_crowd_url, postgres_engine, serve, tmp_path):
    """They do not hold the port for ever."""
    server, told = serve("--crowd-db", postgres_crowd_url, "--workers", "2", "--project", str(tmp_path))
    workers = children(server.pid)

    server.kill()
    server.communicate(timeout=PATIENCE_S)

    def is_over():
        try:
            get(told["counts"]["url"] + "/healthz")
        except httpx.TransportError:
            return True
        return False

    assert len(workers) == 2
    assert wait_for(is_over)


@pytest.mark.parametrize(
    ("dies", "words"),
    [
        ("os._exit(5)", "do not start: 6 in a row died before they answered, the last one with status 5"),
        ("(reached(), time.sleep(0.05), os.kill(os.getpid(), 9))", "keep dying: 20 within 10 s"),
    ],
)
def test_workers_that_keep_dying_end_the_server(dies, words):
    """With one line that says how, and not with success; a supervisor outside may then do what it does."""
    script = f"""
import os, time
from mitl.crowd_server import supervising
supervising.RETRY_S = 0.0
try:
    supervising.Supervisor(
        supervising.Crew(2), lambda reached, alive: {dies}
    ).run(lambda: None, lambda: print("closed"))
except supervising.EndpointError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S)

    closed, line = done.stdout.splitlines()
    assert closed == "closed" and words in line
    assert done.returncode == 0, done.stderr


def test_a_crew_on_sqlite_is_refused(tmp_path):
    """One line that names the way out; nothing listens."""
    told = fails(1, "serve", "--port", "0", "--workers", "2", "--project", tmp_path)

    assert "--workers 2 needs PostgreSQL" in told and "--crowd-db postgresql://" in told


@pytest.mark.postgres
def test_more_processes_than_the_database_has_room_for_are_refused(
    postgres_crowd_url, postgres_engine, tmp_path
):
    """Told before anybody comes, and not by failing pages under load."""
    words = ("--port", "0", "--crowd-db", postgres_crowd_url, "--workers", "64", "--project", tmp_path)

    told = fails(1, "serve", *words)

    assert "may open 512 connections" in told and "max_connections to 532" in told


@pytest.mark.postgres
def test_rates_hold_over_all_processes(postgres_engine):
    """Two servers on one database grant together what one would."""
    rates = CallerRates(pages=RequestRate(1 / 60, 3))
    with (
        guarded_crowd(postgres_engine, rates=rates) as one,
        guarded_crowd(postgres_engine, rates=rates) as two,
    ):
        codes = [get(crowd.url + "/w").status_code for crowd in (one, two, one, two, one, one)]

    assert codes == [403, 403, 403, 429, 429, 429]


@pytest.mark.postgres
def test_a_database_that_does_not_count_stops_nobody(postgres_engine):
    """Pages that need no database are answered without it."""
    with guarded_crowd(postgres_engine, rates=CallerRates(files=RequestRate(1 / 60, 1))) as crowd:
        assert get(crowd.url + "/w/static/style.css").status_code == 200
        with postgres_engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE allowance")
        codes = [get(crowd.url + "/w/static/style.css").status_code for _ in range(2)]

    assert codes == [200, 200]


def test_an_operator_signed_out_in_one_process_is_out_in_all(crowd_url):
    """And wrong tokens are counted wherever they were given."""
    engine = make_engine(crowd_url)
    admin.prepare(engine)
    with running_crowd(engine) as one, running_crowd(engine) as two:
        operator = operator_of(one)
        elsewhere = Operator(two, one.browser())
        elsewhere.browser.cookies.update(dict(operator.browser.cookies))
        assert elsewhere.get().status_code == 200
        operator.post("/operator/sign-out")
        signed_out = elsewhere.get().status_code

        for crowd in (one, two, one, two, one):
            Operator(crowd, crowd.browser()).post("/operator/sign-in", {"token": "guess"})
        waiting = Operator(two, two.browser()).post("/operator/sign-in", {"token": "guess"}).status_code
    engine.dispose()

    assert signed_out == 403
    assert waiting == 429


@pytest.mark.postgres
def test_a_shared_bucket_fills_up_and_never_over(postgres_engine):
    """Tokens flow in by the time that the processes tell; one whose clock lags takes none from the others."""
    bucket, clock = SharedAllowance(postgres_engine, "pages", 2.0, 10), ManualClock()

    taken = [bucket.draw("a", 4, clock())[0] for _ in range(4)]
    clock.advance(seconds=1.25)
    refilled = bucket.draw("a", 4, clock())
    clock.advance(seconds=-60)
    lagging = bucket.draw("a", 4, clock())
    clock.advance(hours=1)
    rested = [bucket.draw("a", 10, clock())[0] for _ in range(2)]

    assert taken == [4, 4, 2, 0]
    assert refilled == (2, pytest.approx(0.5))
    assert lagging == (0, pytest.approx(0.5))
    assert rested == [10, 0]


@pytest.mark.postgres
def test_a_shared_bucket_of_a_clock_that_ran_ahead_is_forgotten(postgres_engine):
    """Once the clock is set right, callers are not kept out until that time comes."""
    bucket, clock = SharedAllowance(postgres_engine, "pages", 2.0, 10), ManualClock()
    clock.advance(days=1)
    taken = [bucket.draw("a", 10, clock())[0] for _ in range(2)]
    clock.advance(days=-1)

    assert taken == [10, 0]
    assert bucket.draw("a", 4, clock())[0] == 4


@given(
    st.lists(st.tuples(st.integers(0, 2), st.floats(0, 3)), min_size=1, max_size=120),
    st.floats(0.2, 10),
    st.integers(1, 90),
)
def test_processes_that_draw_grant_no_more_than_one_would(asked, per_second, burst):
    """However requests fall on them, and whatever a process drew and did not use."""
    now, bucket = 0.0, [float(burst), 0.0]

    def draw(key, wanted):
        full = min(float(burst), bucket[0] + (now - bucket[1]) * per_second)
        drawn = int(min(wanted, full))
        bucket[:] = full - drawn, now
        return drawn, full - drawn

    processes = [DrawnTokens(RequestRate(per_second, burst), draw, clock=lambda: now) for _ in range(3)]
    granted = 0
    for process, gap in asked:
        now += gap
        wait = asyncio.run(processes[process].take("one"))
        granted += wait == 0
        assert granted <= burst + per_second * now + 1e-6
        assert 0 <= wait <= 1 / per_second + 1e-9


def test_the_parts_of_a_meter_are_added_up():
    """Whoever takes a dead process's place counts on; what the dead one still answered is running no more."""
    meter = Meter(["/w"], 2)
    for place in (0, 1):
        meter.be(place)
        meter.begin()
        meter.end("/w", "GET", 200, 0.02)
    meter.begin()
    meter.leave(1)
    one_left = meter.workers
    meter.be(1)
    meter.begin()
    meter.end("/w", "GET", 503, 0.02)

    found = dict(line.rsplit(" ", 1) for line in meter.text().splitlines())
    total = 'mitl_http_requests_total{kind="/w",method="GET",status='
    assert (one_left, meter.workers, meter.wanted) == (1, 2, 2)
    assert (found[f'{total}"200"}}'], found[f'{total}"503"}}']) == ("2", "1")
    assert found["mitl_http_requests_running"] == "0"
    assert found['mitl_http_request_duration_seconds_bucket{kind="/w",le="+Inf"}'] == "3"
