"""The bill, what is committed, and that no call passes the ceiling, whoever else spends meanwhile."""

from __future__ import annotations

import datetime as dt
import json
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest
from harvest_kit import in_pipeline
from publish_kit import proposed
from sqlalchemy import text
from world_kit import SANDBOX, copied_once, make_world, run_propose, run_publish

from mitl.campaign.bill import (
    NEW,
    BillPart,
    Quote,
    SpendingLimit,
    check_money,
    committed_cents,
    part_lines,
    require_confirmed,
)
from mitl.campaign.kinds.pairs.planning import Campaign
from mitl.campaign.publish import publish, reconcile
from mitl.core.pricing import bill, fee_cents
from mitl.crowd.client import MTurkClient
from mitl.db.session import open_database
from mitl.db.store import commitments, hits, journal
from mitl.errors import CrowdError, FundsError, UsageError
from mitl.progress import no_progress
from mitl.records import Environment, HitState, JournalState
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate
from mitl.stages.reviewing.review import settle


@pytest.fixture
def world(tmp_path):
    """A project with proposals."""
    return proposed(tmp_path / "p")


def committed(settings, environment=SANDBOX, *, charges_fee=False):
    """Cents spent and promised."""
    with open_database(settings.db_url, read_only=True) as session:
        return committed_cents(session, environment, charges_fee=charges_fee)


def promise_elsewhere(settings, cents, kind="bonus", state=JournalState.PLANNED, environment="sandbox"):
    """What another command would do: journal a call that costs."""
    with open_database(settings.db_url) as session:
        now = dt.datetime.now(dt.UTC)
        request = json.dumps({"environment": environment, commitments.COST: cents})
        journal.plan(session, kind, [(f"{kind}:{cents}:{environment}", None, request)], now)
        journal.mark(session, kind, [f"{kind}:{cents}:{environment}"], state, now)
        session.commit()


@pytest.mark.parametrize(
    ("reward", "charges", "said"),
    [
        (65, False, ["2,580", "$0.65", "$7.80 at 300 s", "$1,677.00", "$0.00 (this endpoint charges none)"]),
        (
            65,
            True,
            ["2,580", "$0.65", "$1,677.00", "$335.40 (20 % of each reward, at least 1 cent: $0.13 each)"],
        ),
        (
            140,
            False,
            ["2,580", "$1.40", "$16.80 at 300 s", "$3,612.00", "$0.00 (this endpoint charges none)"],
        ),
        (
            140,
            True,
            ["2,580", "$1.40", "$3,612.00", "$722.40 (20 % of each reward, at least 1 cent: $0.28 each)"],
        ),
    ],
)
def test_the_printed_bill_of_2580_hits(reward, charges, said):
    """What a person reads is the hand calculation, to the cent."""
    quote = bill(2580, assignments=1, reward_cents=reward, estimate_s=300, charges_fee=charges)

    text = "\n".join(part_lines(BillPart(NEW, quote, "by hand"), charges_fee=charges))

    assert all(words in text for words in said), text


def test_what_was_planned_before_is_not_promised_twice():
    """Of 5 HITs that 3 workers are asked, 2 were planned by an earlier run: 3 are new."""
    quote = Quote(
        (BillPart("b1", bill(5, assignments=3, reward_cents=50, estimate_s=60, charges_fee=True), "", 2),)
    )

    assert quote.total_cents == 5 * 3 * 60
    assert quote.new_cents == 3 * 3 * 60


@pytest.mark.slow
@pytest.mark.thorough(but=("sqlite",))
def test_committed_money_is_what_is_paid_and_what_is_out(tmp_path, project_url):
    """From planning to the last decision nothing is forgotten and nothing counts twice, on both engines."""
    settings = make_world(tmp_path / "p", n_images=12, db_url=project_url)
    run_propose(settings)
    total = run_publish(settings, assignments=2, reward_cents=30, limit=36).counts["total_cents"]
    n_hits = total // 60
    assert committed(settings) == total
    assert committed(settings, charges_fee=True) == total + 2 * n_hits * fee_cents(30, 2)

    simulate(settings, SANDBOX, population="random", max_hits=3)
    harvest(settings, SANDBOX)
    assert committed(settings) == total
    settle(settings, SANDBOX)
    harvest(settings, SANDBOX)
    assert committed(settings) == total
    assert committed(settings, Environment.LIVE) == 0

    promise_elsewhere(settings, 70)
    promise_elsewhere(settings, 25, state=JournalState.SENDING)
    promise_elsewhere(settings, 1000, environment="live")
    promise_elsewhere(settings, 500, "approve")
    assert committed(settings) == total + 95
    assert committed(settings, Environment.LIVE) == 1000


def test_refused_work_and_ended_hits_promise_nothing(world):
    """What is rejected is not paid; a closed HIT waits for nobody; an undecided submission on one may be paid."""
    run_publish(world, reward_cents=30, limit=36)
    simulate(world, SANDBOX, max_hits=1)
    harvest(world, SANDBOX)
    assert committed(world) == 2 * 30
    in_pipeline(
        world,
        "DELETE FROM ledger",
        "UPDATE hit SET state = 'closed'",
        "UPDATE assignment SET status = 'Submitted', decision = 'queued'",
    )
    assert committed(world) == 30
    in_pipeline(world, "UPDATE assignment SET status = 'Rejected', decision = 'reject'")
    assert committed(world) == 0
    with open_database(world.db_url) as session:
        row = session.execute(
            text(
                "SELECT mturk_assignment_id, mturk_worker_id FROM assignment "
                "JOIN worker ON worker.id = assignment.worker_id"
            )
        ).first()
        journal.plan(session, "override", [(f"{row[0]}:{row[1]}", None, "{}")], dt.datetime.now(dt.UTC))
        session.commit()
    assert committed(world) == 30


def test_the_ceiling_refuses_a_bill_before_anything_is_stored(world):
    """The line has the bill, what is committed, the ceiling and what it leaves; the same bill fits a higher one."""
    promise_elsewhere(world, 150)
    poor = replace(world, ceiling_cents=200)

    with pytest.raises(FundsError, match=r"\$1\.50 of the ceiling of \$2\.00 on sandbox .* leaves \$0\.50"):
        run_publish(poor)

    assert committed(world) == 150
    total = run_publish(replace(world, ceiling_cents=1_000_000)).counts["total_cents"]
    assert committed(world) == 150 + total


def test_the_bill_says_what_the_ceiling_leaves(world):
    """Committed before, and left after."""
    promise_elsewhere(world, 150)
    lines = []

    result = publish(
        replace(world, ceiling_cents=5000),
        Campaign(SANDBOX, limit=18, reward_cents=100),
        confirm=lambda total: True,
        announce=lines.append,
    )

    assert lines[-1].split() == [
        "ceiling",
        "$50.00",
        "left",
        "then",
        "$47.50",
        "($1.50",
        "spent",
        "or",
        "promised",
        "before)",
    ]
    assert result.counts["committed_cents"] == 250


def test_money_promised_while_the_question_stood_open_is_not_overlooked(world):
    """The bill fitted when it was shown; another command spent before the answer: nothing is stored."""

    def slow_yes(total):
        promise_elsewhere(world, 4900)
        return True

    with pytest.raises(FundsError, match="the ceiling"):
        publish(replace(world, ceiling_cents=5000), Campaign(SANDBOX), confirm=slow_yes)

    assert committed(world) == 4900


def test_a_window_that_would_pass_the_ceiling_is_not_sent(world):
    """Another command spends during posting: the next window is not sent, and goes out once the ceiling allows."""
    spent = []

    def spending(label, total):
        if label == "post" and not spent:
            spent.append(promise_elsewhere(world, 100_000))
        return no_progress(label, total)

    with pytest.raises(FundsError, match="no further call is made"):
        publish(
            replace(world, ceiling_cents=50_000),
            Campaign(SANDBOX),
            confirm=lambda total: True,
            progress=spending,
        )

    with open_database(world.db_url, read_only=True) as session:
        states = hits.state_counts(session, SANDBOX)
    assert states[HitState.POSTED] == 0
    planned = states[HitState.PLANNED]
    poor = replace(world, ceiling_cents=50_000)
    with pytest.raises(FundsError, match=r"above the ceiling of \$500\.00"):
        publish(poor, Campaign(SANDBOX), confirm=lambda total: pytest.fail("nothing could be posted"))
    assert run_publish(replace(world, ceiling_cents=200_000)).counts["hits_posted"] == planned


def test_a_purse_without_ceiling_says_yes(world):
    """None is not a limit."""
    with open_database(world.db_url) as session:
        purse = SpendingLimit(session, world, SANDBOX, charges_fee=False)
        purse.require(10**9, "the bill")
        purse.recheck()

        assert (purse.left(), purse.committed()) == (None, 0)


@contextmanager
def limited_to(settings, cents):
    """The money of the sandbox under such a ceiling."""
    with open_database(settings.db_url, read_only=True) as session:
        yield SpendingLimit(session, replace(settings, ceiling_cents=cents), SANDBOX, charges_fee=False)


def test_the_ceiling_holds_to_the_cent(world):
    """What just fits may be promised and posted; a cent more is refused; what costs nothing new never is."""
    promise_elsewhere(world, 300)
    with limited_to(world, 500) as limit:
        limit.require(200, "the bill")
        with pytest.raises(FundsError, match=r"the bill is \$2\.01, .* leaves \$2\.00"):
            limit.require(201, "the bill")
        assert limit.left() == 200
    with limited_to(world, 300) as limit:
        limit.recheck()
    with limited_to(world, 299) as limit:
        with pytest.raises(FundsError, match=r"\$3\.00 are spent or promised on sandbox, above"):
            limit.recheck()
        limit.require(0, "the bill")
        with pytest.raises(FundsError, match=r"leaves \$0\.00"):
            limit.require(1, "the bill")
        assert limit.left() == 0


def test_the_balance_pays_for_the_last_cent_of_a_bill(world):
    """The same bill against its very total, and against a cent less."""
    quote = Quote(
        (BillPart(NEW, bill(2, assignments=1, reward_cents=100, estimate_s=300, charges_fee=False), ""),)
    )
    with limited_to(world, None) as limit:
        check_money(world, Campaign(SANDBOX, max_cost_cents=200), quote, 200, limit)
        with pytest.raises(FundsError, match=r"balance is \$1\.99 of practice money, always;"):
            check_money(world, Campaign(SANDBOX), quote, 199, limit)


@pytest.mark.parametrize(
    ("posted_cents", "repeats", "asked"),
    [(100, True, []), (100, False, [200]), (0, True, [200])],
)
def test_only_the_whole_bill_of_an_interrupted_run_confirms_its_rest(posted_cents, repeats, asked):
    """Where nothing of it was posted, or the words are of another bill, the rest is asked about as any total is."""
    part = BillPart(NEW, bill(2, assignments=1, reward_cents=100, estimate_s=300, charges_fee=False), "")
    shown = []

    def refuse(total):
        shown.append(total)
        return False

    with nullcontext() if not asked else pytest.raises(UsageError, match="not confirmed"):
        require_confirmed(
            Quote((part,), posted_cents), refuse, lambda whole: repeats and whole == 200 + posted_cents
        )
    assert shown == asked


def test_ten_workers_a_hit_pay_the_higher_fee(world):
    """The rule is on the bill, and 40 % of each reward in the total."""
    ten = bill(4, assignments=10, reward_cents=100, estimate_s=300, charges_fee=True)

    assert ten.fees_cents == 4 * 10 * 40
    assert "40 % of each reward" in "\n".join(part_lines(BillPart(NEW, ten, ""), charges_fee=True))
    assert run_publish(world, assignments=10, limit=18).counts["assignments"] == 10


def test_a_maximum_refuses_the_whole_bill(world):
    """--max-cost is the bill's own limit; at the very total it passes."""
    with pytest.raises(UsageError, match=r"the bill is \$1\.00, above --max-cost \$0\.99"):
        run_publish(world, reward_cents=50, limit=36, max_cost_cents=99)

    assert run_publish(world, reward_cents=50, limit=36, max_cost_cents=100).counts["total_cents"] == 100


def test_the_floor_prices_and_refuses(world):
    """A configured floor above 12.00 an hour raises the proposed reward; a lower reward is refused."""
    rich = replace(world, wage_floor_cents=1800)

    assert run_publish(rich, limit=18).counts["reward_cents"] == 150
    with pytest.raises(UsageError, match=r"\$12\.00 an hour, below the wage floor of \$18\.00"):
        run_publish(rich, limit=36, reward_cents=100)


def interrupted(settings, campaign, *, posted):
    """Ctrl-C while HITs are posted, after so many."""

    @contextmanager
    def bar(label, total):
        def advance(count):
            nonlocal posted
            posted -= count
            if posted <= 0:
                raise KeyboardInterrupt

        yield advance if label == "post" else lambda count: None

    with pytest.raises(KeyboardInterrupt):
        publish(settings, campaign, confirm=lambda total: True, progress=bar)


def untold(settings, campaign):
    """All HITs are posted and booked, and the command is killed before it says so."""

    def killed(result):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(settings, campaign, confirm=lambda total: True, tell=killed)


def open_all(settings):
    """Every HIT is over without an answer, so that what it asks is open again."""
    in_pipeline(settings, "UPDATE hit SET state = 'closed'")


def states(settings):
    """How many HITs are in each state."""
    with open_database(settings.db_url, read_only=True) as session:
        return dict(hits.state_counts(session, SANDBOX))


LIMITED = Campaign(SANDBOX, limit=72, reward_cents=100, max_cost_cents=400)
"""Four HITs for four dollars, of a world that has more."""


def test_a_limited_command_that_was_interrupted_completes_its_own_hits_and_no_more(world):
    """However often it is run: the limit, the maximum and the ceiling hold for all its runs together."""
    bounded = replace(world, ceiling_cents=400)
    interrupted(bounded, LIMITED, posted=1)
    assert sum(states(world).values()) == 4 and states(world)[HitState.POSTED] < 4
    lines = []

    again = publish(bounded, LIMITED, confirm=lambda total: True, announce=lines.append)

    before = 4 - again.counts["hits_posted"]
    assert states(world) == {HitState.POSTED: 4} and 0 < before < 4
    assert committed(world) == 400
    assert again.counts["total_cents"] == 400 - before * 100
    assert "that completes an interrupted run" in again.lines[1]
    assert any(
        line.split()[:6] == ["posted", "before", f"${before}.00", "whole", "bill", "$4.00"] for line in lines
    )
    third = publish(bounded, LIMITED, confirm=lambda total: pytest.fail("there is nothing to confirm"))
    assert third.status == "nothing_to_do"
    assert third.lines[0].startswith("nothing to do: 72 pairs of b1 are out, and --limit 72 counts them")


@pytest.fixture
def cut(tmp_path):
    """A project whose limited command was interrupted after the first HIT."""
    make = lambda new: interrupted(proposed(new), LIMITED, posted=1)  # noqa: E731
    return copied_once("cut", make, tmp_path / "cut")


def test_work_that_came_back_meanwhile_opens_no_room_for_more(cut):
    """HITs of the interrupted run that are answered and closed count against its limit as those that are out do."""
    simulate(cut, SANDBOX)
    harvest(cut, SANDBOX)
    assert states(cut)[HitState.CLOSED] > 0

    for expected in ("done", "nothing_to_do"):
        assert publish(cut, LIMITED, confirm=lambda total: True).status == expected
        assert sum(states(cut).values()) == 4


def test_the_total_of_an_interrupted_command_confirms_it_again(cut):
    """`--yes-total` names the whole bill, as before; another amount is asked about as any total is."""
    shown = []

    with pytest.raises(UsageError, match="not confirmed"):
        publish(cut, LIMITED, confirm=lambda total: shown.append(total), repeats=lambda whole: whole == 300)
    result = publish(
        cut, LIMITED, confirm=lambda total: pytest.fail("confirmed"), repeats=lambda whole: whole == 400
    )

    assert shown == [result.counts["total_cents"]] and 0 < shown[0] < 400
    assert committed(cut) == 400


def test_the_maximum_counts_what_an_interrupted_run_has_posted(cut):
    """Less than the whole bill is refused though the rest would fit, and nothing further is posted."""
    out = states(cut)

    with pytest.raises(
        UsageError, match=r"the bill is \$4\.00 in all, with what an interrupted run posted of it, above"
    ):
        publish(cut, replace(LIMITED, max_cost_cents=399), confirm=lambda total: True)

    assert states(cut) == out


def test_what_opened_since_is_left_to_the_run_after(world):
    """An interrupted plan is completed alone, whatever the command that finds it asks for."""
    interrupted(world, Campaign(SANDBOX, direction="t2i", limit=54, reward_cents=100), posted=0)
    left = states(world)

    completing = run_publish(world, direction="i2t", max_cost_cents=300)

    assert completing.counts["batch"] is None
    assert completing.counts["hits_posted"] == sum(left.values()) - left[HitState.POSTED]
    assert states(world) == {HitState.POSTED: 3}
    assert run_publish(world, direction="i2t").counts["batch"] == "b2"


def test_a_plan_of_which_only_the_replies_were_lost_is_completed_alone_too(world):
    """Killed after the last call and before booking: what opened since has a bill of its own."""
    untold(world, Campaign(SANDBOX, direction="t2i", limit=54, max_cost_cents=300))
    in_pipeline(
        world,
        "UPDATE hit SET state = 'sending', mturk_hit_id = NULL",
        "UPDATE journal SET state = 'sending', reply = NULL WHERE kind = 'create'",
    )
    before = committed(world)

    completing = publish(
        world, Campaign(SANDBOX, max_cost_cents=9000), confirm=lambda total: pytest.fail("nothing is new")
    )

    assert (completing.status, completing.counts["hits_adopted"], completing.counts["hits_posted"]) == (
        "done",
        3,
        0,
    )
    assert completing.lines == (
        "recognised 3 HITs that had reached the server; 3 HITs of b1, $3.00, all posted; that completes an interrupted "
        "run, and nothing was planned beside it",
    )
    assert (states(world), committed(world)) == ({HitState.POSTED: 3}, before)
    assert run_publish(world).counts["batch"] == "b2"


@pytest.mark.parametrize("meanwhile", ["nothing", "reconciled", "harvested"])
def test_a_plan_that_was_posted_whole_and_not_told_is_completed_too(world, meanwhile):
    """Killed between its last call and its last word: the same words ask nothing more until that word was said."""
    bounded = Campaign(SANDBOX, direction="t2i", max_cost_cents=9000)
    untold(world, bounded)
    before = states(world)
    if meanwhile == "reconciled":
        reconcile(world, SANDBOX)
    if meanwhile == "harvested":
        harvest(world, SANDBOX)
    open_all(world)  # every pair of the plan waits to be asked again
    told = []

    dry = publish(world, bounded, confirm=lambda total: True, dry_run=True)
    repeated = publish(world, bounded, confirm=lambda total: pytest.fail("no bill"), tell=told.append)

    assert dry.lines == repeated.lines and told == [repeated]
    assert repeated.lines[0].endswith(
        "all posted; that completes an interrupted run, and nothing was planned beside it"
    )
    assert repeated.counts["hits_posted"] == 0 and sum(states(world).values()) == sum(before.values())
    assert publish(world, bounded, confirm=lambda total: True).counts["hits_again"] == sum(before.values())


def test_a_plan_whose_balance_could_not_be_told_is_completed(world, monkeypatch):
    """The last call of a run may fail although all HITs are out; its repetition posts no more."""
    calls = []

    def balance(client):
        calls.append(client)
        if len(calls) == 2:
            raise CrowdError("the connection was cut")
        return 1_000_000

    monkeypatch.setattr(MTurkClient, "balance", balance)
    with pytest.raises(CrowdError, match="cut"):
        run_publish(world, direction="t2i", max_cost_cents=9000)
    out = states(world)
    open_all(world)

    assert run_publish(world, direction="t2i", max_cost_cents=9000).counts["hits_posted"] == 0
    assert sum(states(world).values()) == sum(out.values())


def test_a_limit_counts_the_runs_of_its_own_words(world):
    """A higher limit posts the difference; other directions, wordings and unlimited runs have limits of their own."""
    run_publish(world, direction="t2i", limit=18)

    assert run_publish(world, direction="t2i", limit=18).status == "nothing_to_do"
    assert run_publish(world, direction="t2i", limit=30).counts["pairs"] == 12
    assert run_publish(world, direction="i2t", limit=18).counts["pairs"] == 18
    assert run_publish(world, template="pairs-rationale", direction="t2i", limit=3).counts["pairs"] == 3


def test_a_limit_begins_anew_when_the_work_is_done(world):
    """A plan counts whole until its last HIT is closed; then the same command asks the next pairs."""
    run_publish(world, limit=36)
    simulate(world, SANDBOX, max_hits=1)
    harvest(world, SANDBOX)
    assert states(world) == {HitState.POSTED: 1, HitState.CLOSED: 1}
    assert run_publish(world, limit=36).status == "nothing_to_do"

    simulate(world, SANDBOX)
    harvest(world, SANDBOX)

    assert run_publish(world, limit=36).counts["pairs"] == 36


def test_what_asks_again_counts_against_the_limit_until_it_is_done(world):
    """A run that only asks again is a plan too: its repetition posts no more."""
    run_publish(world, limit=36)
    in_pipeline(world, "UPDATE hit SET state = 'closed'")

    assert run_publish(world, limit=18, max_cost_cents=100).counts["hits_again"] == 1
    assert run_publish(world, limit=18, max_cost_cents=100).status == "nothing_to_do"
    assert run_publish(world, limit=36).counts["hits_again"] == 1


def test_what_comes_next_names_the_environment_where_the_commands_would_mean_the_other(world):
    """Beside live work `mitl harvest` alone means that."""
    first = run_publish(world, limit=18)
    in_pipeline(world, "UPDATE batch SET environment = 'live'")

    second = run_publish(world, limit=18)

    assert first.next == "mitl serve for people, or mitl simulate; then mitl harvest"
    assert second.next == ("mitl serve for people, or mitl simulate --sandbox; then mitl harvest --sandbox")
