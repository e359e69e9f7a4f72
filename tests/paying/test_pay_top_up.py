"""Bonuses up to the wage floor: the right amounts, each sent once, whatever happened to an earlier run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from books import server_rows
from crowd_kit import give_keys
from harvest_kit import in_pipeline, on_server
from pay_kit import (
    BUDGET_CENTS,
    LIVE,
    REWARD_CENTS,
    copy_of,
    granted,
    kept_project,
    paid_project,
    take_long,
    topped_up,
    workers,
)
from sqlalchemy import text

from mitl.campaign.bill import committed_cents
from mitl.crowd import calls
from mitl.crowd.client import MTurkClient
from mitl.crowd.paying import payment
from mitl.crowd_server.app import create_app
from mitl.crowd_server.serving import RunningServer
from mitl.db.engine import make_engine
from mitl.db.locks import PAY, only_one
from mitl.db.models import Base
from mitl.db.session import open_database
from mitl.db.store import hits, ledger
from mitl.errors import CrowdError, FundsError, StoreError, UsageError
from mitl.records import Environment, StageResult
from mitl.settings import Settings
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.paying.bonuses import unsent
from mitl.stages.paying.check import check_pay
from mitl.stages.paying.report import pay_report
from mitl.stages.paying.top_up import TopUpTerms, top_up

SLOW, UNTIMED = 150, 67
"""Cents that they are short of $12.00 an hour; the pay kit says why."""


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A project whose workers are paid; never changed."""
    return kept_project(tmp_path_factory)


@pytest.fixture
def settings(project, tmp_path) -> Settings:
    """A copy of it."""
    return copy_of(project, tmp_path / "p")


@pytest.fixture
def topped(tmp_path_factory, tmp_path) -> Settings:
    """The same after a top-up."""
    return topped_up(tmp_path_factory, tmp_path / "topped")


def run(settings: Settings, confirm: Callable[[int], bool] = lambda total: True, **terms: Any) -> StageResult:
    given = {name: terms.pop(name) for name in ("progress", "announce") if name in terms}
    return top_up(settings, LIVE, TopUpTerms(**terms), confirm=lambda _, total: confirm(total), **given)


def booked(settings: Settings, kind: str = "bonus") -> list[int]:
    with open_database(settings.db_url, read_only=True) as session:
        rows = session.execute(
            text("SELECT cents FROM ledger WHERE kind = :kind AND key LIKE '%topup%'"), {"kind": kind}
        )
        return sorted(rows.scalars())


class Interrupted:
    """A bar at whose opening somebody presses Ctrl-C."""

    def __call__(self, label: str, total: int):
        raise KeyboardInterrupt


def test_everyone_short_of_the_floor_gets_what_is_missing_and_the_second_run_nothing(settings):
    """To the cent, on the latest submission, booked once; who earned the floor gets nothing."""
    asked = []
    result = run(settings, lambda total: asked.append(total) or True)

    assert asked == [SLOW + UNTIMED]
    assert granted(settings) == {"slow": [SLOW], "untimed": [UNTIMED]}
    assert booked(settings) == [UNTIMED, SLOW]
    assert (result.counts["sent"], result.counts["total_cents"]) == (2, SLOW + UNTIMED)
    assert any("measured no active time" in warning for warning in result.warnings)
    latest = """SELECT count(*) FROM bonus b JOIN assignment a ON a.id = b.assignment_id WHERE a.submitted_at =
        (SELECT max(o.submitted_at) FROM assignment o WHERE o.worker_id = a.worker_id)"""
    assert server_rows(settings, latest) == [(2,)]

    assert run(settings, lambda total: pytest.fail("nothing to confirm")).status == "nothing_to_do"
    assert granted(settings) == {"slow": [SLOW], "untimed": [UNTIMED]}
    assert check_pay(settings, LIVE).refusal is None


def test_a_bonus_goes_on_work_that_was_paid(settings):
    """The slow one's latest page waits for a decision: the other page alone is 600 s for $1.00, and has the bonus."""
    slow = workers(settings)["slow"]
    with open_database(settings.db_url, read_only=True) as session:
        paid, waits = [row for row in ledger.settled_work(session, LIVE) if row.worker == slow]
    in_pipeline(
        settings,
        f"UPDATE assignment SET status = 'Submitted', decision = 'queued' WHERE id = {waits.id}",
        f"DELETE FROM ledger WHERE assignment_id = {waits.id}",
    )

    sent = {row["worker"]: row for row in run(settings).counts["bonuses"]}
    assert sent[slow] == {"worker": slow, "assignment": paid.mturk_assignment_id, "cents": 100}


def test_a_higher_floor_later_pays_the_difference(topped):
    """What a worker got before counts, bonuses included; each bonus has a key and a reference of its own."""
    run(topped, floor_cents=2400)

    assert granted(topped)["slow"] == [SLOW, 350]
    assert granted(topped)["fair"] == [200]
    assert len({reason for (reason,) in server_rows(topped, "SELECT reason FROM bonus")}) == 5


def test_what_was_confirmed_and_not_sent_goes_first_and_is_not_asked_about_again(settings):
    """Ctrl-C after the confirmation: the amounts stand as confirmed, though the floor is another by now."""
    with pytest.raises(KeyboardInterrupt):
        run(settings, progress=Interrupted())
    assert granted(settings) == {}
    assert pay_report(settings, LIVE).counts["unsent_cents"] == SLOW + UNTIMED
    with open_database(settings.db_url, read_only=True) as session:
        promised = committed_cents(session, LIVE, charges_fee=False)
    assert promised == 600 + SLOW + UNTIMED

    result = run(settings, lambda total: pytest.fail("it was confirmed before"), floor_cents=600)

    assert (result.counts["sent"], result.counts["resumed"]) == (2, 2)
    assert granted(settings) == {"slow": [SLOW], "untimed": [UNTIMED]}


def test_what_an_interrupted_run_left_is_completed_alone(settings):
    """Its maximum holds for all its runs together: who is short besides is proposed a bonus by the next run."""
    with pytest.raises(KeyboardInterrupt):
        run(settings, max_cost_cents=SLOW + UNTIMED, progress=Interrupted())
    with pytest.raises(UsageError, match="above --max-cost"):
        run(settings, max_cost_cents=SLOW + UNTIMED - 1)
    assert granted(settings) == {}

    said = []

    again = run(
        settings,
        max_cost_cents=SLOW + UNTIMED + 200,
        floor_cents=2400,
        announce=lambda tables, lines: said.extend(lines),
    )

    assert granted(settings) == {"slow": [SLOW], "untimed": [UNTIMED]}
    assert said[0].endswith(", confirmed by an earlier run: sent first")
    assert again.lines[1].endswith("the next run proposes bonuses to 3 workers short of the floor besides")
    assert run(settings, floor_cents=2400).counts["resumed"] == 0
    assert granted(settings)["fair"] == [200]


@pytest.mark.parametrize("remembers", [True, False])
def test_a_bonus_whose_reply_was_lost_is_found_and_not_sent_twice(topped, remembers):
    """By its token within 24 hours, by its reference among the server's bonuses after that."""
    in_pipeline(
        topped,
        "UPDATE journal SET state = 'sending', reply = NULL WHERE kind = 'bonus'",
        "DELETE FROM ledger WHERE kind = 'bonus'",
    )
    if not remembers:
        on_server(topped, "DELETE FROM request_token")

    assert run(topped).counts["resumed"] == 2
    assert granted(topped) == {"slow": [SLOW], "untimed": [UNTIMED]}
    assert booked(topped) == [UNTIMED, SLOW]


def test_a_database_restored_from_before_the_top_up_pays_nobody_twice(topped):
    """The same proposals get the same references, so that the server's bonuses are recognised and booked."""
    in_pipeline(topped, "DELETE FROM journal WHERE kind = 'bonus'", "DELETE FROM ledger WHERE kind = 'bonus'")
    on_server(topped, "DELETE FROM request_token")

    assert run(topped).counts["sent"] == 2
    assert granted(topped) == {"slow": [SLOW], "untimed": [UNTIMED]}
    assert booked(topped) == [UNTIMED, SLOW]
    assert run(topped).status == "nothing_to_do"


@pytest.mark.parametrize("known", [0, 1])
def test_a_bonus_that_only_the_server_knows_on_other_work_is_adopted_before_more_is_sent(settings, known):
    """A database restored from before the last top-up, whose worker's latest work is another one by now."""
    slow = workers(settings)["slow"]
    with open_database(settings.db_url, read_only=True) as session:
        _, latest = [row for row in ledger.settled_work(session, LIVE) if row.worker == slow]
    in_pipeline(
        settings,
        f"UPDATE assignment SET status = 'Submitted', decision = 'queued' WHERE id = {latest.id}",
        f"DELETE FROM ledger WHERE assignment_id = {latest.id}",
    )
    for floor in (1200, 2400)[1 - known :]:
        run(settings, floor_cents=floor)
    sent = granted(settings)
    in_pipeline(
        settings,
        f"DELETE FROM journal WHERE kind = 'bonus' AND key LIKE '%{slow}:{known + 1}'",
        f"DELETE FROM ledger WHERE kind = 'bonus' AND key LIKE '%{slow}:{known + 1}'",
        f"UPDATE assignment SET status = 'Approved', decision = 'pass' WHERE id = {latest.id}",
        "INSERT INTO ledger (assignment_id, kind, key, cents) "
        f"VALUES ({latest.id}, 'reward', 'reward:{latest.key}', {REWARD_CENTS})",
    )
    on_server(settings, "DELETE FROM request_token")

    for dry_run in (True, False):
        with pytest.raises(StoreError, match=f"{slow}.*`mitl pay check --adopt`"):
            run(settings, floor_cents=2400, dry_run=dry_run)
    assert granted(settings) == sent
    assert check_pay(settings, LIVE, adopt=True).refusal is None
    run(settings, floor_cents=2400)
    assert sum(granted(settings)["slow"]) == 1050 * 2400 // 3600 - 2 * REWARD_CENTS


def test_a_bonus_that_only_the_server_knows_on_work_that_is_not_fetched_again_is_found_too(settings):
    """A database restored from before the work came in, which the next harvest fetches again."""
    slow = workers(settings)["slow"]
    run(settings, floor_cents=2400)
    sent = granted(settings)
    with open_database(settings.db_url) as session:
        _, latest = [row for row in ledger.settled_work(session, LIVE) if row.worker == slow]
        session.execute(text(f"UPDATE hit SET state = 'posted' WHERE mturk_hit_id = '{latest.mturk_hit_id}'"))
        session.execute(text("DELETE FROM journal WHERE kind = 'bonus'"))
        session.execute(text("DELETE FROM ledger WHERE kind = 'bonus'"))
        of_work = [table for table in Base.metadata.tables.values() if "assignment_id" in table.c]
        for table in of_work:
            session.execute(table.delete().where(table.c.assignment_id == latest.id))
        session.execute(text(f"DELETE FROM assignment WHERE id = {latest.id}"))
        session.commit()
    on_server(settings, "DELETE FROM request_token")

    with pytest.raises(StoreError, match=f"{slow}.*`mitl harvest`.*`mitl pay check --adopt`"):
        run(settings, floor_cents=2400)
    assert granted(settings) == sent
    harvest(settings, LIVE)
    take_long(settings)
    assert check_pay(settings, LIVE, adopt=True).refusal is None
    assert run(settings, floor_cents=2400).status == "nothing_to_do"
    assert granted(settings) == sent


def test_a_bonus_on_a_hit_that_only_the_server_knows_is_found_too(settings):
    """A database restored from before the HIT was posted: no harvest brings it in, so the worker is left out."""
    slow = workers(settings)["slow"]
    run(settings, floor_cents=2400)
    sent = granted(settings)
    with open_database(settings.db_url) as session:
        _, latest = [row for row in ledger.settled_work(session, LIVE) if row.worker == slow]
        hit = session.scalar(text(f"SELECT id FROM hit WHERE mturk_hit_id = '{latest.mturk_hit_id}'"))
        gone = f"(SELECT id FROM assignment WHERE hit_id = {hit})"
        session.execute(text("DELETE FROM journal WHERE kind = 'bonus'"))
        session.execute(text("DELETE FROM ledger WHERE kind = 'bonus'"))
        for table in reversed(Base.metadata.sorted_tables):
            if "assignment_id" in table.c:
                session.execute(text(f"DELETE FROM {table.name} WHERE assignment_id IN {gone}"))
            elif "hit_id" in table.c:
                session.execute(text(f"DELETE FROM {table.name} WHERE hit_id = {hit}"))
        session.execute(text(f"DELETE FROM hit WHERE id = {hit}"))
        session.commit()
    on_server(settings, "DELETE FROM request_token")

    with pytest.raises(StoreError, match=r"sent this bonus already.*restore the newer database.*--skip"):
        run(settings, floor_cents=2400)
    assert granted(settings) == sent


def test_bonuses_are_looked_for_on_no_work_from_before_the_last_one(topped, monkeypatch):
    """Of a worker's HITs only those are listed on which a bonus can stand that the database lost."""
    asked = []
    listing = MTurkClient.list_bonuses
    monkeypatch.setattr(
        MTurkClient, "list_bonuses", lambda client, **of: asked.append(of) or listing(client, **of)
    )
    run(topped, floor_cents=2400, dry_run=True, skip=frozenset({workers(topped)["fair"]}))
    assert asked == []
    run(topped, floor_cents=2400, dry_run=True)
    assert len(asked) == 1  # the other HIT of the one who got none before


def test_a_refused_bonus_keeps_no_other_from_being_sent(settings):
    """It fails with one line, comes last in the next run, and --skip goes on without it."""
    slow = workers(settings)["slow"]
    on_server(
        settings,
        "UPDATE assignment SET mturk_id = 'X' || id WHERE worker_id = "
        f"(SELECT id FROM worker WHERE mturk_id = '{slow}')",
    )

    for _ in range(2):
        with pytest.raises(CrowdError, match="AssignmentDoesNotExist"):
            run(settings)
        assert granted(settings) == {"untimed": [UNTIMED]}
    assert run(settings, skip=frozenset({slow})).status == "nothing_to_do"
    with pytest.raises(UsageError, match=r"is \$1\.97, above --max-cost"):  # what is tried again counts, too
        run(settings, floor_cents=1320, max_cost_cents=SLOW + 40)
    with pytest.raises(CrowdError, match="AssignmentDoesNotExist"):
        run(settings, floor_cents=1320)
    assert granted(settings) == {"untimed": [UNTIMED, 27], "fair": [20]}
    with open_database(settings.db_url, read_only=True) as session:
        assert [bonus.worker for bonus in unsent(session, LIVE)] == [slow]  # nobody is planned two
        assert unsent(session, Environment.SANDBOX) == []


def test_a_bonus_that_may_have_been_sent_is_not_withdrawn_because_nobody_can_look_for_it(topped):
    """Its reply was lost and its HIT is gone from the server since: it may have had its effect, and stays promised."""
    slow = workers(topped)["slow"]
    in_pipeline(
        topped,
        f"UPDATE journal SET state = 'sending', reply = NULL WHERE kind = 'bonus' AND key LIKE '%{slow}%'",
        f"DELETE FROM ledger WHERE kind = 'bonus' AND key LIKE '%{slow}%'",
    )
    of_slow = f"worker_id = (SELECT id FROM worker WHERE mturk_id = '{slow}')"
    on_server(topped, f"UPDATE assignment SET mturk_id = 'X' || id WHERE {of_slow}")

    for _ in range(2):
        with pytest.raises(
            CrowdError, match=f"AssignmentDoesNotExist.*`mitl pay top-up --skip {slow} --live` leaves"
        ):
            run(topped, floor_cents=1320)
        with pytest.raises(UsageError, match="the server refused no bonus"):
            run(topped, withdraw=frozenset({slow}))
        assert granted(topped) == {"slow": [SLOW], "untimed": [UNTIMED, 27], "fair": [20]}
    assert run(topped, floor_cents=1320, skip=frozenset({slow})).status == "nothing_to_do"
    with open_database(topped.db_url, read_only=True) as session:
        assert [bonus.worker for bonus in unsent(session, LIVE)] == [slow]


def test_where_the_first_of_many_bonuses_is_refused_all_others_are_sent(settings, monkeypatch):
    """Those of later windows of calls too."""
    monkeypatch.setattr(calls, "WINDOW", 1)
    monkeypatch.setattr(calls, "_IN_FLIGHT", 0)
    first = min(workers(settings)[name] for name in ("slow", "untimed", "fair"))
    on_server(
        settings,
        "UPDATE assignment SET mturk_id = 'X' || id WHERE worker_id = "
        f"(SELECT id FROM worker WHERE mturk_id = '{first}')",
    )

    with pytest.raises(CrowdError, match="AssignmentDoesNotExist"):
        run(settings, floor_cents=1320)

    assert sum(map(len, granted(settings).values())) == 2
    with open_database(settings.db_url, read_only=True) as session:
        assert [bonus.worker for bonus in unsent(session, LIVE)] == [first]


def test_a_bonus_that_is_refused_for_ever_can_be_withdrawn(settings):
    """It is promised no more; what is due is proposed anew where the server takes it. What was not refused stays."""
    slow = workers(settings)["slow"]
    of_slow = f"WHERE worker_id = (SELECT id FROM worker WHERE mturk_id = '{slow}')"
    on_server(settings, f"UPDATE assignment SET mturk_id = 'X' || mturk_id {of_slow}")
    with pytest.raises(CrowdError, match="AssignmentDoesNotExist"):
        run(settings)
    with pytest.raises(UsageError, match="refused no bonus to 'nobody'"):
        run(settings, withdraw=frozenset({slow, "nobody"}))
    gone = {"withdraw": frozenset({slow}), "skip": frozenset({slow})}

    assert f"refused those to {slow}" in "".join(pay_report(settings, LIVE).lines)
    assert run(settings, dry_run=True, **gone).lines[1].startswith("would withdraw: 1 bonus of $1.50")
    assert pay_report(settings, LIVE).counts["unsent_cents"] == SLOW
    withdrawn = run(settings, **gone)
    assert withdrawn.lines[1] == "withdrawn: 1 bonus of $1.50, which the server had refused"
    assert (withdrawn.status, withdrawn.next) == ("done", "")
    assert pay_report(settings, LIVE).counts["unsent_cents"] == 0
    on_server(settings, f"UPDATE assignment SET mturk_id = substr(mturk_id, 2) {of_slow}")
    assert run(settings).counts["sent"] == 1
    assert granted(settings) == {"slow": [SLOW], "untimed": [UNTIMED]}


def test_money_is_refused_before_the_call_that_would_pass_a_limit(settings):
    """The maximum of the run, the project's ceiling, the balance: one line each, and nothing is sent or planned."""
    with pytest.raises(UsageError, match=r"\$2\.17, above --max-cost \$2\.16"):
        run(settings, max_cost_cents=216)
    with pytest.raises(FundsError, match=r"leaves \$2\.16"):
        run(replace(settings, ceiling_cents=816), lambda total: pytest.fail("asked to confirm"))
    on_server(settings, "UPDATE account SET budget_cents = 816 WHERE environment = 'live'")
    with pytest.raises(FundsError, match=r"the balance is \$2\.16"):
        run(settings)
    with pytest.raises(UsageError, match="not confirmed"):
        on_server(settings, f"UPDATE account SET budget_cents = {BUDGET_CENTS} WHERE environment = 'live'")
        run(settings, lambda total: False)

    assert granted(settings) == {}
    assert pay_report(settings, LIVE).counts["unsent_cents"] == 0


def test_what_others_spend_while_the_total_is_confirmed_counts(settings):
    """The ceiling is asked again before anything is planned."""

    def spend(total: int) -> bool:
        in_pipeline(settings, "UPDATE ledger SET cents = cents + 1 WHERE id = (SELECT min(id) FROM ledger)")
        return True

    with pytest.raises(FundsError, match=r"leaves \$2\.16"):
        run(replace(settings, ceiling_cents=817), spend)

    assert granted(settings) == {}
    assert pay_report(settings, LIVE).counts["unsent_cents"] == 0


def test_a_ceiling_that_was_lowered_stops_what_was_planned_too(settings):
    """The check before each window of calls sees it; the plan is kept."""
    with pytest.raises(KeyboardInterrupt):
        run(settings, progress=Interrupted())
    with pytest.raises(FundsError, match="above the ceiling"):
        run(replace(settings, ceiling_cents=700))

    assert granted(settings) == {}
    assert pay_report(settings, LIVE).counts["unsent_cents"] == SLOW + UNTIMED


def test_workers_can_be_left_out(settings):
    """Those named by --skip get nothing and are said; an unknown id is a slip."""
    slow, fair = (workers(settings)[name] for name in ("slow", "fair"))
    result = run(settings, skip=frozenset({slow, fair}))

    assert granted(settings) == {"untimed": [UNTIMED]}
    assert result.counts["left_out"] == 1 and f"left out by --skip: {slow}" in result.lines
    with pytest.raises(UsageError, match="'A999'"):
        run(settings, skip=frozenset({"A999"}))


def test_a_dry_run_sends_and_stores_nothing(settings):
    """It says what would be sent."""
    result = run(settings, dry_run=True)
    assert (result.counts["bonuses_cents"], result.next) == (SLOW + UNTIMED, "")
    assert granted(settings) == {}
    assert pay_report(settings, LIVE).counts["unsent_cents"] == 0


def test_without_a_floor_there_is_nothing_to_lift_to(settings):
    """It says how to name one."""
    result = run(replace(settings, wage_floor_cents=0))

    assert result.status == "nothing_to_do"
    assert "--floor 12.00" in result.lines[0]


def test_two_at_once_are_refused(settings):
    """A second one would propose what the first is about to send."""
    with only_one(settings.db_url, PAY), pytest.raises(StoreError, match="another `mitl pay`"):
        run(settings)


def test_claimed_time_that_cannot_have_passed_is_not_paid_for(settings):
    """Ten minutes of active time in an assignment of 250 seconds count as 250 seconds."""
    take_long(settings, seconds=250)
    result = run(settings)

    assert result.status == "nothing_to_do"
    assert any("the shorter time counts" in warning for warning in result.warnings)


@contextmanager
def charging(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """The project at an explicit endpoint that does not say that it charges no fee."""
    engine = make_engine(settings.crowd_db_url)
    app = create_app(engine)

    async def without_health(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") == "/healthz":
            scope = {**scope, "path": "/nothing"}
        await app(scope, receive, send)

    give_keys(engine, monkeypatch, LIVE)
    with RunningServer(without_health) as server:
        yield replace(settings, endpoint=server.url, endpoint_environment=LIVE)
    engine.dispose()


def test_an_endpoint_that_charges_takes_a_fifth_of_each_bonus(settings, monkeypatch):
    """20 % of 1.50 and of 0.67, half a cent up: 30 and 13 cents, in the total, the ledger and the promise."""
    asked = []
    with charging(settings, monkeypatch) as there:
        result = run(there, lambda total: asked.append(total) or True)
        assert run(there).status == "nothing_to_do"

    assert asked == [SLOW + UNTIMED + 30 + 13]
    assert result.counts["fees_cents"] == 43
    assert booked(settings, "fee") == [13, 30]
    assert booked(settings) == [UNTIMED, SLOW]


def test_an_endpoint_that_charges_takes_a_fifth_of_each_reward(settings):
    """Each approval is booked with the fee for as many workers as its HIT asks for."""
    with open_database(settings.db_url, read_only=True) as session:
        [batch] = hits.batches(session, LIVE)
        paid = ledger.settled_work(session, LIVE)[0]
        reward, fee = payment(session, paid.id, paid.key, batch, charges_fee=True)

    assert reward == (paid.id, "reward", f"reward:{paid.key}", REWARD_CENTS)
    assert fee == (paid.id, "fee", f"fee:{paid.key}", REWARD_CENTS // 5)


@pytest.mark.postgres
def test_on_postgresql_too(tmp_path, postgres_project_url):
    """The same amounts, once, and the ledger is the server's."""
    settings = paid_project(tmp_path / "p", db_url=postgres_project_url)

    assert run(settings).counts["bonuses_cents"] == SLOW + UNTIMED
    assert run(settings).status == "nothing_to_do"
    assert check_pay(settings, LIVE).refusal is None
    assert pay_report(settings, LIVE).counts["bonuses_cents"] == SLOW + UNTIMED
