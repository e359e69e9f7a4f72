"""Many at once, on both engines: no assignment is given twice, no cent is spent twice, no token works twice."""

from __future__ import annotations

import datetime as dt
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from at_once_kit import at_once
from botocore.exceptions import ClientError
from crowd_kit import TYPE, post_hit, running_crowd
from sqlalchemy import text

from mitl.core.clock import utc_now
from mitl.crowd_server import admin
from mitl.crowd_server.pages.panels import End
from mitl.crowd_server.store import leases, workers
from mitl.crowd_server.store.database import Books, Database
from mitl.crowd_server.store.models import VisitState
from mitl.db.engine import make_engine
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)

LIVE = Environment.LIVE


def test_the_last_hits_are_given_once(either_crowd):
    """Eight workers reach for five assignments: five get one each."""
    client = either_crowd.boto()
    hit_type = client.create_hit_type(**TYPE)["HITTypeId"]
    for _ in range(5):
        post_hit(client, hit_type)
    workers = [either_crowd.worker() for _ in range(8)]

    tasks = [task for task in at_once(lambda worker: worker.accept(hit_type), workers) if task is not None]

    assert len(tasks) == 5
    assert len({task.query["hitId"] for task in tasks}) == 5


def test_a_double_click_submits_once(either_crowd):
    """The same form sent eight times at once is kept once."""
    client = either_crowd.boto()
    hit = post_hit(client, MaxAssignments=3)
    task = either_crowd.worker().accept(hit["HITTypeId"])

    replies = at_once(lambda number: task.submit(p01_label=str(number)).status_code, range(8))

    assert replies == [200] * 8
    assert client.list_assignments_for_hit(HITId=hit["HITId"])["NumResults"] == 1
    assert client.get_hit(HITId=hit["HITId"])["HIT"]["NumberOfAssignmentsAvailable"] == 2


def test_money_for_three_hits_makes_three(either_crowd):
    """Eight calls at once against a budget of three rewards."""
    admin.set_budget(either_crowd.engine, LIVE, 300)
    client = either_crowd.boto(LIVE)
    hit_type = client.create_hit_type(**TYPE)["HITTypeId"]

    def create(number):
        try:
            return post_hit(client, hit_type)["HITId"]
        except ClientError as error:
            return error.response["TurkErrorCode"]

    results = at_once(create, range(8))

    assert results.count("AWS.MechanicalTurk.InsufficientFunds") == 5
    assert client.list_hits()["NumResults"] == 3
    assert client.get_account_balance()["AvailableBalance"] == "0.00"


def test_one_token_makes_one_hit(either_crowd):
    """Eight calls at once with one token: one creates, seven are told of it."""
    client = either_crowd.boto()
    hit_type = client.create_hit_type(**TYPE)["HITTypeId"]

    def create(number):
        try:
            return post_hit(client, hit_type, UniqueRequestToken="t")["HITId"]
        except ClientError as error:
            return error.response["TurkErrorCode"]

    results = at_once(create, range(8))

    assert results.count("AWS.MechanicalTurk.HitAlreadyExists") == 7
    assert client.list_hits()["NumResults"] == 1


def invited(engine):
    """A new worker of the sandbox as a page finds them, and the number of their invitation."""
    [link] = admin.invite(engine, Environment.SANDBOX, lasts=dt.timedelta(days=1))
    with Database(engine).write(Environment.SANDBOX) as connection:
        worker = workers.add_worker(connection, workers.invitation(connection, link.id), utc_now())
    return worker, link.id


@pytest.mark.parametrize("change", ["revoked", "withdrawn"])
def test_who_was_shut_out_since_the_page_was_asked_for_takes_no_hit(either_crowd, change):
    """The invitation or the consent ends between the look at who asks and the acceptance: no HIT is given out."""
    engine, environment = either_crowd.engine, Environment.SANDBOX
    hit_type = post_hit(either_crowd.boto())["HITTypeId"]
    study, _ = admin.change_study(engine, environment, {"consent": "I take part."})
    worker, invitation = invited(engine)
    if change == "revoked":
        admin.revoke(engine, invitation)
    else:
        with Database(engine).write(environment) as connection:
            workers.record_consent(connection, worker.id, study.version, False, utc_now())

    with Database(engine).write(environment) as connection:
        leased = leases.accept(Books(connection, environment, utc_now()), worker, hit_type)

    assert leased is None


@pytest.mark.postgres
def test_revoking_waits_for_who_is_just_accepting(postgres_crowd_url):
    """A HIT that is being taken by another process while its worker is shut out is returned with the others."""
    engine = make_engine(postgres_crowd_url)
    admin.prepare(engine)
    with running_crowd(engine) as crowd, ThreadPoolExecutor(1) as pool:
        hit_type = post_hit(crowd.boto())["HITTypeId"]
        worker, invitation = invited(engine)
        with Database(engine).write(worker.environment) as connection:
            leased = leases.accept(Books(connection, worker.environment, utc_now()), worker, hit_type)
            revoking = pool.submit(admin.revoke, engine, invitation)
            while not revoking.done() and not is_one_waiting(engine):
                time.sleep(0.01)
        revoking.result()
        with Database(engine).read() as connection:
            lease = leases.find(connection, leased[0])
    engine.dispose()

    assert not lease.is_live(utc_now())


@pytest.mark.postgres
def test_who_sends_in_time_is_not_late_for_others_before_them(postgres_crowd_url):
    """A submission waits its turn to be written; its time is that of its arrival."""
    engine = make_engine(postgres_crowd_url)
    admin.prepare(engine)
    with running_crowd(engine) as crowd, ThreadPoolExecutor(1) as pool:
        task = crowd.worker().accept(post_hit(crowd.boto())["HITTypeId"])
        with Database(engine).write(Environment.SANDBOX):
            sending = pool.submit(task.submit, p01_label="yes")
            while not sending.done() and not is_one_waiting(engine):
                time.sleep(0.01)
            crowd.clock.advance(seconds=TYPE["AssignmentDurationInSeconds"])
        sent = sending.result()
    engine.dispose()

    assert sent.status_code == 200


@pytest.mark.postgres
@pytest.mark.parametrize(
    "act",
    [
        lambda engine: admin.close_panel(engine, "p"),
        lambda engine: admin.change_panel(engine, "p", {VisitState.COMPLETED: End("", "C2")}),
        lambda engine: admin.forget(engine, Environment, "somebody"),
    ],
    ids=["close", "change", "forget"],
)
def test_what_changes_a_panel_waits_for_who_is_just_arriving(postgres_crowd_url, act):
    """Arrivals write in turn, and what the operator does to a panel or its people takes its own turn among them."""
    engine = make_engine(postgres_crowd_url)
    admin.prepare(engine)
    ends = {VisitState.COMPLETED: End("", "C1")}
    admin.add_panel(engine, LIVE, admin.PanelPlan("generic", "p", ends=ends))
    with ThreadPoolExecutor(1) as pool:
        with Database(engine).write(LIVE):
            acting = pool.submit(act, engine)
            while not acting.done() and not is_one_waiting(engine):
                time.sleep(0.01)
            waited = not acting.done()
        acting.result()
    engine.dispose()

    assert waited


def is_one_waiting(engine):
    """Whether a connection of PostgreSQL waits for what another holds."""
    with engine.connect() as connection:
        wanted = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        return connection.execute(text(wanted)).scalar_one() > 0
