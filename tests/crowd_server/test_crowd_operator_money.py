"""The operator's files: the ledger, panels' payments, late answers; every cent in its place."""

from __future__ import annotations

import datetime as dt

import pytest
from crowd_kit import TYPE, post_hit
from crowd_operator_kit import (
    add_late_answer,
    add_panel,
    add_visit,
    name_worker,
    operator_of,
    worker_row,
)
from sqlalchemy import event, func, select, update

from mitl.crowd_server import admin
from mitl.crowd_server.store import accounts, panels
from mitl.crowd_server.store.models import (
    AssignmentState,
    CrowdAssignment,
    CrowdHit,
    PanelIdentity,
    VisitState,
)
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)

SANDBOX, LIVE = Environment.SANDBOX, Environment.LIVE


def test_late_answers_are_listed_for_payment(crowd, client, operator, hit_type):
    """With the reward that they would have earned, on the page and as a file."""
    assert "None came." in operator.get("/operator/late").text
    worker = crowd.worker()
    worker.accept(hit_type)
    add_late_answer(crowd)
    name_worker(crowd, worker_row(crowd, worker.id), "=cmd()")

    assert operator.state()["late"] == "1"
    assert worker.id in operator.get("/operator/late").text
    header, row = operator.csv("/operator/late.csv")
    found = dict(zip(header, row, strict=True))
    assert (found["worker"], found["reward"], found["title"]) == (worker.id, "1.00", TYPE["Title"])
    assert found["panel_id"] == "'=cmd()"


def test_no_work_is_paid_by_hand_twice(either_crowd):
    """Of late answers to one assignment the last has the reward, and none where the worker submitted it since."""
    crowd = either_crowd
    operator, own = operator_of(crowd), post_hit(crowd.boto(), MaxAssignments=2)["HITTypeId"]
    one, two = crowd.worker(), crowd.worker()
    tasks = [one.accept(own), two.accept(own)]
    crowd.clock.advance(hours=1)
    for task in tasks:
        assert [task.submit(p01_label=label).status_code for label in ("yes", "no")] == [410, 410]
    again = two.accept(own)
    assert again is not None and again.submit(p01_label="no").status_code == 200

    header, *rows = operator.csv("/operator/late.csv")

    found = sorted(tuple(row[header.index(name)] for name in ("worker", "counted", "reward")) for row in rows)
    wanted = [
        (one.id, "", "1.00"),
        (one.id, "sent again", "0.00"),
        *[(two.id, "submitted since", "0.00")] * 2,
    ]
    assert found == sorted(wanted)
    assert "submitted since" in operator.get("/operator/late").text
    told = [worker.get("/w/work").text for worker in (one, two)]
    assert [page.count("$1.00 · arrived") for page in told] == [1, 0]
    assert [page.count("so nothing is due for it · arrived") for page in told] == [1, 2]


def test_a_panels_work_is_paid_by_its_own_file(crowd, operator):
    """One participant of two panels: each file has the work of that panel's visits, approved work alone."""
    admin.set_budget(crowd.engine, LIVE, 10_000)
    client = crowd.boto(LIVE)
    own = post_hit(client, MaxAssignments=1)["HITTypeId"]
    for _ in range(3):
        post_hit(client, own)
    first, second = add_panel(crowd, "first"), add_panel(crowd, "second", "connect")
    worker = crowd.worker(LIVE)
    starts = []
    for _ in range(3):
        crowd.clock.advance(minutes=1)
        starts.append(crowd.clock())
        worker.do(own)
    crowd.clock.advance(minutes=1)
    row = worker_row(crowd, worker.id)
    add_visit(crowd, first, row, starts[0])
    add_visit(crowd, second, row, starts[1])
    name_worker(crowd, row, "5f" * 12)
    done = [
        one
        for hit in client.list_hits(MaxResults=100)["HITs"]
        for one in client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    ]
    for one in done[:2]:
        client.approve_assignment(AssignmentId=one["AssignmentId"])
    client.send_bonus(
        WorkerId=worker.id, AssignmentId=done[2]["AssignmentId"], BonusAmount="0.25", Reason="care"
    )

    page = operator.get("/operator/payments/live").text

    path = "/operator/panels/{}/payments.csv?format={}&pay={}&part=1"
    assert operator.csv(path.format("first", "prolific", "all")) == [["5f" * 12, "1.00"]]
    assert operator.csv(path.format("second", "connect", "all"))[1][:2] == ["5f" * 12, "1.25"]
    assert operator.csv(path.format("second", "connect", "bonuses"))[1][:2] == ["5f" * 12, "0.25"]
    assert operator.csv(path.format("second", "generic", "all"))[1][2:6] == ["1", "1.00", "0.25", "1.25"]
    assert operator.get(path.format("first", "prolific", "bonuses")).status_code == 404
    assert "$2.25" in page and page.count("payments.csv?format=") == 6
    assert "payments.csv?format=" not in operator.get("/operator/payments/sandbox").text
    with crowd.engine.begin() as connection:
        connection.execute(PanelIdentity.__table__.delete())
    assert operator.get(path.format("first", "prolific", "all")).status_code == 404
    assert operator.csv(path.format("first", "generic", "all"))[1][0] == ""


@pytest.mark.parametrize("has_declined", [False, True], ids=["open", "declined"])
def test_work_is_paid_by_the_panel_whose_visit_counted_it(either_crowd, has_declined):
    """A HIT accepted on one panel's visit and sent on another's counts for the newer visit that was open."""
    crowd = either_crowd
    operator, client, worker = operator_of(crowd), crowd.boto(), crowd.worker()
    row = worker_row(crowd, worker.id)
    name_worker(crowd, row, "5f" * 12)

    def visit(slug):
        panel = add_panel(crowd, slug, environment=SANDBOX)
        with crowd.engine.begin() as connection:
            return panels.add_visit(connection, panel, row, f"session-{slug}", "study", crowd.clock())

    of = {"first": visit("first")}
    task = worker.accept(post_hit(client)["HITTypeId"])
    crowd.clock.advance(minutes=1)
    of["second"] = visit("second")
    if has_declined:
        with crowd.engine.begin() as connection:
            panels.set_state(connection, of["second"], VisitState.NO_CONSENT, crowd.clock())
    crowd.clock.advance(minutes=1)
    task.submit(p01_label="yes")

    client.approve_assignment(AssignmentId=task.query["assignmentId"])

    counted, other = ("first", "second") if has_declined else ("second", "first")
    with crowd.engine.connect() as connection:
        done = [panels.visit(connection, of[slug]).hits_done for slug in (counted, other)]
    assert done == [1, 0]
    path = "/operator/panels/{}/payments.csv?format=prolific&pay=all"
    assert operator.csv(path.format(counted)) == [["5f" * 12, "1.00"]]
    assert operator.get(path.format(other)).status_code == 404


def test_work_accepted_after_the_clock_was_set_back_is_in_its_panels_file(either_crowd):
    """By its time it came before the visit on which it was done; nobody else's file would pay it."""
    crowd = either_crowd
    operator, client, worker = operator_of(crowd), crowd.boto(), crowd.worker()
    first = add_panel(crowd, "first", environment=SANDBOX)
    second = add_panel(crowd, "second", "connect", SANDBOX)
    task, row = worker.do(post_hit(client)["HITTypeId"]), worker_row(crowd, worker.id)
    name_worker(crowd, row, "5f" * 12)
    add_visit(crowd, first, row, crowd.clock() + dt.timedelta(seconds=1))
    add_visit(crowd, second, row, crowd.clock() + dt.timedelta(days=1))

    client.approve_assignment(AssignmentId=task.query["assignmentId"])

    path = "/operator/panels/{}/payments.csv?format={}&pay=all"
    assert operator.csv(path.format("first", "prolific")) == [["5f" * 12, "1.00"]]
    assert operator.get(path.format("second", "connect")).status_code == 404


def test_every_page_and_file_tells_what_fell_due_by_the_clock_alone(crowd, client, operator):
    """Work that nobody decided about is approved when its time has come, whoever looks first."""
    soon = client.create_hit_type(**TYPE | {"AutoApprovalDelayInSeconds": 60})["HITTypeId"]
    worker = crowd.worker()

    def approved():
        with crowd.engine.connect() as connection:
            query = select(CrowdAssignment.id).where(CrowdAssignment.state == AssignmentState.APPROVED)
            return len(connection.execute(query).all())

    for n, path in enumerate(
        (
            "",
            "/state",
            "/ledger/sandbox.csv",
            "/payments/sandbox.csv",
            "/payments/sandbox",
            "/panels/first/payments.csv?format=generic&pay=all",
            "/groups/{type}",
            "/hits/{hit}",
            "/submissions/{n}",
        ),
        1,
    ):
        hit = post_hit(client, soon, MaxAssignments=1)["HITId"]
        worker.do(soon)
        crowd.clock.advance(seconds=60)
        before = approved()
        operator.get("/operator" + path.format(type=soon, hit=hit, n=n))
        assert (before, approved()) == (n - 1, n), path


def test_a_file_that_is_not_there_is_a_clear_page(crowd, operator):
    """Unknown panels, formats, parts and environments."""
    add_panel(crowd, "first")
    file = "/operator/panels/first/payments.csv"

    for path in (
        "/operator/panels/none/payments.csv?format=generic&pay=all",
        f"{file}?format=connect&pay=all",
        f"{file}?format=prolific&pay=most",
        f"{file}?format=prolific&pay=all&part=0",
        f"{file}?format=prolific&pay=all&part=99999999999999999999",
        file,
        "/operator/ledger/moon.csv",
        "/operator/payments/moon.csv",
        "/operator/payments/moon",
    ):
        assert operator.get(path).status_code == 404, path


def test_the_ledger_file_adds_up(crowd, client, operator, hit_type, monkeypatch):
    """Row by row to the account's own sums, in however many portions it is read."""
    from mitl.crowd_server.store import reports

    monkeypatch.setattr(reports, "LEDGER_PORTION", 2)
    worker = crowd.worker()
    worker.do(hit_type)
    [own] = [
        one
        for hit in client.list_hits()["HITs"]
        for one in client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    ]
    client.approve_assignment(AssignmentId=own["AssignmentId"])

    header, *rows = operator.csv("/operator/ledger/sandbox.csv")

    sums: dict[str, float] = {}
    for row in rows:
        found = dict(zip(header, row, strict=True))
        sums[found["kind"]] = sums.get(found["kind"], 0) + float(found["amount"])
    assert sums == {"budget": 10_000, "hold": 3, "release": 1, "reward": 1}
    assert rows[-1][header.index("worker")] == worker.id
    assert operator.csv("/operator/payments/sandbox.csv")[1] == [
        worker.id,
        "1",
        "1.00",
        "0.00",
        "1.00",
        "USD",
    ]


def test_a_budget_that_was_lowered_is_a_number_in_the_ledger(crowd, operator):
    """A spreadsheet adds up what it reads as numbers alone."""
    for cents in (10_000, 500, 0):
        admin.set_budget(crowd.engine, LIVE, cents)

    header, *rows = operator.csv("/operator/ledger/live.csv")

    amounts = [row[header.index("amount")] for row in rows]
    assert amounts == ["0.00", "100.00", "-95.00", "-5.00"]


def test_an_account_that_does_not_balance_is_shouted(crowd, operator):
    """A row changed behind the server's back is the first thing to see."""
    from mitl.crowd_server.store.models import Account

    with crowd.engine.begin() as connection:
        connection.execute(update(Account).where(Account.environment == LIVE).values(held_cents=5))

    assert "DOES NOT BALANCE" in operator.get().text


@pytest.mark.parametrize("reads", [True, False], ids=["read", "write"])
def test_what_falls_due_at_once_is_settled_in_portions_and_told_whole(crowd, client, monkeypatch, reads):
    """Others get their turn between two transactions; the call that settled sees everything."""
    monkeypatch.setattr(accounts, "PORTION", 2)
    soon = client.create_hit_type(**TYPE | {"AutoApprovalDelayInSeconds": 60})["HITTypeId"]
    hits = [post_hit(client, soon)["HITId"] for _ in range(5)]
    worker = crowd.worker()
    for _ in range(3):
        worker.do(soon)
    crowd.clock.advance(days=10)
    left = []

    @event.listens_for(crowd.engine, "commit")
    def count(connection):
        undecided = CrowdAssignment.state == AssignmentState.SUBMITTED
        held = CrowdHit.held_slots > 0
        left.append(
            tuple(
                connection.execute(select(func.count()).select_from(of).where(is_open)).scalar_one()
                for of, is_open in ((CrowdAssignment, undecided), (CrowdHit, held))
            )
        )

    if reads:
        client.get_account_balance()
    else:
        client.update_expiration_for_hit(HITId=hits[0], ExpireAt=crowd.clock())

    event.remove(crowd.engine, "commit", count)
    assert [after for after in left if after != (3, 5)][:2] == [(1, 3), (0, 2)]
    assert left[-1] == (0, 0)
