"""The runner of calls that cost or bind: journalled before, booked once after, whatever happens between."""

from __future__ import annotations

import datetime as dt
import threading
import uuid
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mitl.crowd.calls import THREADS, WINDOW, Call, Operation, make_calls, plan_calls
from mitl.crowd.context import Context
from mitl.db.session import open_database
from mitl.db.store import journal
from mitl.errors import CrowdError, FundsError
from mitl.progress import no_progress
from mitl.records import Environment, JournalState
from mitl.settings import Settings

KIND = "test"
DONE, FAILED, SENDING, PLANNED = (
    JournalState.DONE,
    JournalState.FAILED,
    JournalState.SENDING,
    JournalState.PLANNED,
)


@pytest.fixture
def session(project_url):
    """A session on a new pipeline database, once on each engine."""
    with open_database(project_url, create=True) as one:
        yield one


@pytest.fixture(scope="module")
def one_session(tmp_path_factory):
    """A session on SQLite that many examples share."""
    url = f"sqlite:///{tmp_path_factory.mktemp('calls') / 'mitl.db'}"
    with open_database(url, create=True) as one:
        yield one


def context(session, progress=no_progress):
    """What the calls are made with."""
    return Context(session, Settings(Path(), "sqlite://", "sqlite://", "p"), Environment.SANDBOX, progress)


def numbered(count: int, first: int = 0) -> list[Call[int]]:
    """Calls whose subject is their number."""
    return [Call(f"k{n}", n, {"n": n}, f"t{n}") for n in range(first, first + count)]


class Service:
    """Remembers what was called and booked; numbers in ``wrong`` fail with their error."""

    def __init__(self, wrong=None):
        self.called: list[int] = []
        self.booked: list[int] = []
        self.wrong = wrong or {}
        self.lock = threading.Lock()

    def call(self, number: int) -> dict[str, int]:
        """Take effect, or fail."""
        with self.lock:
            self.called.append(number)
        if number in self.wrong:
            raise self.wrong[number]
        return {"reply": number}

    def book(self, made: list[tuple[int, dict[str, int]]]) -> None:
        """Keep the replies' numbers."""
        assert all(reply == {"reply": number} for number, reply in made)
        self.booked += [number for number, _ in made]

    def run(self, session, calls, **options) -> int:
        """Make the calls."""
        hooks = {name: options.pop(name) for name in ("before_window", "not_made") if name in options}
        progress = options.pop("progress", no_progress)
        return make_calls(
            context(session, progress), Operation(KIND, self.call, self.book, **hooks), calls, **options
        )


def unclear(text: str) -> CrowdError:
    """An error whose call may have had its effect."""
    error = CrowdError(text)
    error.unclear = True
    return error


def of_the_server(error: CrowdError) -> CrowdError:
    """With a code of MTurk's: the server understood the call."""
    error.code = "AWS.MechanicalTurk.RequestError"
    return error


def states(session) -> dict[str, JournalState]:
    """Key → state of all calls, freshly read."""
    found = journal.states(session, KIND)
    session.rollback()
    return found


def test_calls_are_made_once_and_booked_once(session):
    """More than two windows: each is called, booked and journalled with its reply; a second run makes none."""
    service, calls = Service(), numbered(2 * WINDOW + 3)

    assert service.run(session, calls) == len(calls)
    assert service.run(session, calls) == 0

    assert sorted(service.called) == service.booked == list(range(len(calls)))
    row = journal.find(session, KIND, "k7")
    assert (row.state, row.token, row.request, row.reply) == (DONE, "t7", '{"n": 7}', '{"reply": 7}')
    assert row.first_sent_at is not None and row.error is None


def test_a_call_that_another_process_has_booked_meanwhile_is_not_counted(session):
    """A harvest beside ours may have seen its effect first."""

    def book(made):
        journal.mark_done(session, KIND, {"k0": "{}"}, dt.datetime.now(dt.UTC))

    assert make_calls(context(session), Operation(KIND, Service().call, book), numbered(3)) == 2


def test_a_failure_is_raised_after_what_succeeded_was_booked(session):
    """Refused means failed, without a reply means that it may have had its effect; later windows do not start."""
    service = Service({3: CrowdError("refused"), 5: unclear("no reply")})
    calls = numbered(2 * WINDOW)

    with pytest.raises(CrowdError, match="refused"):
        service.run(session, calls)

    assert service.booked == [n for n in range(WINDOW) if n not in (3, 5)]
    found = states(session)
    assert (found["k3"], found["k5"], found["k4"]) == (FAILED, SENDING, DONE)
    assert set(found) == {f"k{n}" for n in range(WINDOW)}
    assert journal.find(session, KIND, "k5").error == "no reply"


def test_a_refusal_that_the_caller_takes_holds_up_no_other_call(session):
    """Of the first window or of a later one; it is handed over under its key, and failed in the journal."""
    service = Service(
        {3: of_the_server(CrowdError("no such HIT")), WINDOW + 1: of_the_server(CrowdError("gone"))}
    )
    refusals: dict[str, CrowdError] = {}

    assert service.run(session, numbered(3 * WINDOW), refusals=refusals) == 3 * WINDOW - 2

    assert {key: str(refusal) for key, refusal in refusals.items()} == {
        "k3": "no such HIT",
        f"k{WINDOW + 1}": "gone",
    }
    assert {key for key, state in states(session).items() if state is not DONE} == set(refusals)
    assert states(session)["k3"] is FAILED


@pytest.mark.parametrize(
    "fault", [unclear("no reply"), FundsError("no money"), CrowdError("a wrong key")], ids=str
)
def test_what_says_nothing_of_the_call_alone_is_raised_whoever_takes_refusals(session, fault):
    """A lost reply, want of money, a refusal that is not MTurk's: later windows do not start."""
    refusals: dict[str, CrowdError] = {}
    with_code = fault if str(fault) == "a wrong key" else of_the_server(fault)

    with pytest.raises(CrowdError, match=str(fault)):
        Service({3: with_code}).run(session, numbered(2 * WINDOW), refusals=refusals)

    assert refusals == {} and len(states(session)) == WINDOW


def test_the_next_run_makes_what_failed_and_what_is_unclear_again(session):
    """Under the same key, and the time of the first try is kept."""
    calls = numbered(6)
    with pytest.raises(CrowdError):
        Service({3: CrowdError("refused"), 5: unclear("no reply")}).run(session, calls)
    first = journal.find(session, KIND, "k5").first_sent_at
    service = Service()

    assert service.run(session, calls) == 2

    assert sorted(service.called) == [3, 5]
    row = journal.find(session, KIND, "k5")
    assert (row.state, row.error, row.first_sent_at) == (DONE, None, first)


def test_a_bug_in_a_call_is_raised_and_its_effect_is_called_unclear(session):
    """What is not a refusal may have come after the effect."""
    with pytest.raises(ZeroDivisionError):
        Service({0: ZeroDivisionError("bug")}).run(session, numbered(2))

    assert states(session) == {"k0": SENDING, "k1": DONE}


def test_a_window_may_be_refused_before_it_is_journalled(session):
    """Money may have ended meanwhile: the windows before are booked, nothing of this one is written."""
    service, shown = Service(), []

    def before(window):
        shown.append([one.subject for one in window])
        if len(shown) == 2:
            raise FundsError("the ceiling is passed")

    with pytest.raises(FundsError):
        service.run(session, numbered(WINDOW + 5), before_window=before)

    assert shown == [list(range(WINDOW)), list(range(WINDOW, WINDOW + 5))]
    assert len(states(session)) == len(service.booked) == WINDOW


def test_planned_calls_keep_their_request_and_token(session):
    """What was written down first is what counts; the run adds only what is missing."""
    plan_calls(context(session), KIND, [Call("k0", 0, {"amount": 7}, "kept")])
    session.commit()

    Service().run(session, numbered(2))

    row = journal.find(session, KIND, "k0")
    assert (row.request, row.token, row.state) == ('{"amount": 7}', "kept", DONE)


class Pressed:
    """A bar on which somebody presses Ctrl-C after so many units."""

    def __init__(self, after: int):
        self.left = after

    @contextmanager
    def __call__(self, label, total):
        def advance(units):
            self.left -= units
            if self.left <= 0:
                self.left = 10**9
                raise KeyboardInterrupt

        yield advance


@pytest.mark.parametrize("after", [1, WINDOW, WINDOW + 3])
def test_ctrl_c_starts_no_further_call_and_books_those_in_flight(session, after):
    """No call is made and not booked, none is left running, and what was not sent is planned again."""
    service, calls, taken_back = Service(), numbered(3 * WINDOW), []

    with pytest.raises(KeyboardInterrupt):
        service.run(session, calls, progress=Pressed(after), not_made=taken_back.append)

    assert set(taken_back) == {
        int(key[1:]) for key, state in journal.states(session, KIND).items() if state is PLANNED
    }
    assert sorted(service.called) == sorted(service.booked)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(KIND) and _busy(thread)]
    found = states(session)
    assert {n for n in range(len(calls)) if found.get(f"k{n}") is DONE} == set(service.booked)
    assert {state for key, state in found.items() if int(key[1:]) not in service.booked} <= {PLANNED}
    rest = Service()
    assert rest.run(session, calls) == len(calls) - len(service.booked)
    assert sorted(service.booked + rest.booked) == list(range(len(calls)))


def _busy(thread: threading.Thread) -> bool:
    thread.join(5)
    return thread.is_alive()


def test_ctrl_c_while_booking_books_the_window_anew(session):
    """The half-booked transaction is rolled back, so that nothing is booked twice in the database."""
    pressed = []

    def book(made):
        for number, _ in made:
            if number == 4 and not pressed:
                pressed.append(number)
                raise KeyboardInterrupt
            journal.plan(session, "booked", [(str(number), None, "{}")], dt.datetime.now(dt.UTC))

    with pytest.raises(KeyboardInterrupt):
        make_calls(context(session), Operation(KIND, Service().call, book), numbered(8))

    assert set(journal.states(session, "booked")) == {str(n) for n in range(8)}
    assert set(states(session).values()) == {DONE}


def test_calls_of_a_server_in_this_process_are_made_in_order(session):
    """One after the other, as listed."""
    service = Service()

    service.run(session, numbered(WINDOW + 9), in_order=True)

    assert service.called == list(range(WINDOW + 9))


def test_calls_are_made_side_by_side(session):
    """As many as there are threads are in flight at once."""
    meeting = threading.Barrier(THREADS, timeout=20)

    meet = Operation(KIND, lambda number: meeting.wait() >= 0)
    made = make_calls(context(session), meet, numbered(THREADS))

    assert made == THREADS


def test_the_server_need_not_wait_until_a_window_is_written_down(session):
    """The first call of a window is made while the last one of the window before it still is."""
    begun, booked = threading.Event(), []

    def call(number: int) -> bool:
        if number == WINDOW:
            begun.set()
        return number != WINDOW - 1 or begun.wait(20)

    make_calls(context(session), Operation(KIND, call, booked.extend), numbered(WINDOW + 1))

    assert booked == [(number, True) for number in range(WINDOW + 1)]


@given(data=st.data())
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_fails_each_call_is_booked_once_in_the_end(one_session, data):
    """Runs whose calls fail at random, repeated until none does: every number is booked exactly once."""
    count = data.draw(st.integers(1, 40))
    key = uuid.uuid4()
    calls = [Call(f"{key}:{n}", n, {}) for n in range(count)]
    service = Service()
    for _ in range(3):
        wrong = data.draw(st.dictionaries(st.integers(0, count), st.booleans(), max_size=4))
        service.wrong = {n: unclear("lost") if lost else CrowdError("no") for n, lost in wrong.items()}
        try:
            service.run(one_session, calls)
        except CrowdError:
            continue
    service.wrong = {}
    service.run(one_session, calls)

    assert sorted(service.booked) == list(range(count))
