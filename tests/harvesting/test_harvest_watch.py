"""`mitl harvest --watch`: looks until nobody works any more, rarely while nothing comes, and says how far it is."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from cli_kit import fails, ok
from crowd_kit import give_keys
from harvest_kit import add_live_batch, answered_project, asked_project, fail_controls, posted, submissions
from hypothesis import given
from hypothesis import strategies as st
from world_kit import SANDBOX

from mitl.crowd_server.app import create_app
from mitl.crowd_server.serving import RunningServer
from mitl.db.engine import make_engine
from mitl.errors import EndpointError
from mitl.settings import Settings
from mitl.stages.harvesting import watching
from mitl.stages.harvesting.watching import SLOWEST, forecast, watch
from mitl.stages.hits.simulate import simulate

NOW = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)


@pytest.fixture
def asked(tmp_path) -> Settings:
    """A project whose HITs are out."""
    return asked_project(tmp_path / "p")


@pytest.fixture
def answered(tmp_path) -> Settings:
    """The same, answered by careful people."""
    return answered_project(tmp_path / "p")


def test_a_watch_ends_with_one_result_when_the_work_is_done(asked):
    """It pays on the way, waits longer while nothing comes, and sums up all its looks."""
    told, waits = [], []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            simulate(asked, SANDBOX, max_hits=4)
        if len(waits) == 4:
            simulate(asked, SANDBOX)

    result = watch(asked, SANDBOX, every_s=10, tell=told.append, pause=pause)

    assert waits == [10, 20, 40, 10]
    assert result.status == "done"
    assert (result.counts["fetched"], result.counts["looks"], result.counts["hits_out"]) == (6, 5, 0)
    assert result.counts["approved"] == 6 - int(str(result.counts["queued"])) > 0
    assert "nobody works any more" in result.lines[0]
    assert "0 submissions are in, 6 to come; 0 waiting for a person; looking again in 10 s" in told[0]
    assert "4 submissions are in, 2 to come, about" in told[3]


def test_a_watch_stays_where_it_began_when_live_work_is_posted_meanwhile(asked):
    """Named or not, its environment is that of its first look."""

    def pause(seconds: float) -> None:
        add_live_batch(asked)
        simulate(asked, SANDBOX)

    result = watch(asked, every_s=1, pause=pause)

    assert (result.counts["environment"], result.counts["fetched"], result.counts["looks"]) == (
        "sandbox",
        6,
        2,
    )


def test_the_looks_become_no_rarer_than_sixteen_times_the_interval(asked):
    """A quiet night costs few calls, and the morning's answers are not missed for long."""
    waits = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(asked, SANDBOX, every_s=2, pause=pause)

    assert waits == [2, 4, 8, 16, 32, 32, 32]
    assert waits[-1] == 2 * SLOWEST
    assert len(posted(asked)) == 3


def test_a_watch_does_not_wait_for_people_who_decide(answered):
    """Work that waits for a review holds its HIT open, but nobody can answer it any more: the watch ends."""
    fail_controls(answered)

    result = watch(answered, SANDBOX, pause=lambda seconds: pytest.fail("it waited"))

    assert result.counts["queued"] == 6
    assert result.next == "mitl review"


@pytest.fixture
def remote(asked, monkeypatch) -> Iterator[tuple[Settings, contextlib.ExitStack, Callable[[], None]]]:
    """The project with its server at an address of its own: settings, what stops it, and what starts it again."""
    engine = make_engine(asked.crowd_db_url)
    give_keys(engine, monkeypatch)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(contextlib.ExitStack())
        url = server.enter_context(RunningServer(create_app(engine))).url
        port = int(url.rpartition(":")[2])

        def start() -> None:
            server.enter_context(RunningServer(create_app(engine), port=port))

        yield replace(asked, endpoint=url, endpoint_environment=SANDBOX), server, start
    engine.dispose()


def test_a_watch_outlives_a_server_that_is_gone_for_a_while(asked, remote):
    """Where nothing answers it looks again, ever more rarely, and goes on when the server is back."""
    settings, server, start = remote
    told: list[str] = []

    def pause(seconds: float) -> None:
        if len(told) == 1:
            server.close()
        elif len(told) == 2:
            simulate(asked, SANDBOX)
            start()

    result = watch(settings, SANDBOX, every_s=1, tell=told.append, pause=pause)

    assert "nothing answers at" in told[1]
    assert "looking again in 2.0 s" in told[1]
    assert (result.counts["fetched"], result.counts["looks"]) == (6, 2)


@pytest.mark.parametrize("name", ["mitl.db", "crowd.db"])
def test_a_watch_outlives_a_database_that_is_down_for_a_while(asked, name):
    """The project's own or the crowd server's, which the line names."""
    told: list[str] = []
    file = asked.project / name

    def pause(seconds: float) -> None:
        if len(told) == 1:
            simulate(asked, SANDBOX)
            file.rename(file.with_suffix(".whole"))
            file.write_bytes(b"no database any more" * 10)
        else:
            file.with_suffix(".whole").rename(file)

    result = watch(asked, SANDBOX, every_s=1, tell=told.append, pause=pause)

    assert f"cannot use {name}: file is not a database" in told[1]
    assert "looking again in 2.0 s" in told[1]
    assert (result.counts["fetched"], result.counts["looks"]) == (6, 2)


def test_a_watch_gives_up_where_nothing_answers_for_long(remote, monkeypatch):
    """After many looks in vain it ends with the error; one that never saw the server ends at once."""
    monkeypatch.setattr(watching, "MAX_FAILURES", 3)
    settings, server, _ = remote
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        server.close()

    with pytest.raises(EndpointError, match="nothing answers"):
        watch(settings, SANDBOX, every_s=1, pause=pause)
    assert waits == [1, 2, 4]
    with pytest.raises(EndpointError, match="nothing answers"):
        watch(settings, SANDBOX, pause=lambda seconds: pytest.fail("it waited"))


def test_the_command_watches_until_nothing_is_out(answered, monkeypatch):
    """One JSON object at the end; a second run has nothing to do."""
    monkeypatch.chdir(answered.project)

    first = ok("harvest", "--watch", "--every", "0.5", "--json").json
    second = ok("harvest", "--watch", "--json").json

    assert (first["status"], first["counts"]["fetched"], first["counts"]["looks"]) == ("done", 6, 1)
    assert second["status"] == "nothing_to_do"
    assert len(submissions(answered)) == 6


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--every", "5"), "add --watch"),
        (("--watch", "--reparse"), "fetch nothing"),
        (("--watch", "--every", "0"), "'--every'"),
        (("--watch", "--every", "soon"), "'--every'"),
    ],
)
def test_a_watch_that_cannot_be_meant_is_one_line(words, told):
    """Options that contradict each other are refused before anything is opened."""
    assert told in fails(2, "harvest", *words)


@given(
    seconds=st.lists(st.integers(0, 10**6), max_size=50).map(sorted),
    submissions=st.integers(0, 10**4),
    to_come=st.integers(0, 10**4),
)
def test_the_forecast_is_the_recent_rate_carried_on(seconds, submissions, to_come):
    """As many submissions as lie in the recent ones take as long again; nothing recent gives no forecast."""
    newest = [NOW - dt.timedelta(seconds=age) for age in seconds]

    found = forecast(newest, submissions, to_come, NOW)

    if not newest or not to_come:
        assert found.remaining is None
    else:
        assert found.remaining is not None
        wanted = seconds[-1] * to_come / len(seconds)
        assert abs(found.remaining.total_seconds() - wanted) <= 1e-6 * to_come
    assert f"{submissions:,} submissions are in, {to_come:,} to come" in found.text
