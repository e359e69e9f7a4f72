"""The bill, what is committed, and that no call passes the ceiling, whoever else spends meanwhile."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace

import pytest
from publish_kit import proposed
from sqlalchemy import text
from world_kit import SANDBOX, make_world, run_propose, run_publish

from mitl.db.session import open_database
from mitl.db.store import commitments, hits, journal
from mitl.errors import FundsError, UsageError
from mitl.hits.pricing import bill, fee_cents
from mitl.progress import no_progress
from mitl.records import Environment, HitState, JournalState
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.publishing.bill import NEW, Part, Quote
from mitl.stages.publishing.bill_text import part_lines
from mitl.stages.publishing.publish import Campaign, publish
from mitl.stages.publishing.purse import Purse, committed_cents
from mitl.stages.reviewing.review import settle
from mitl.stages.simulate import simulate


@pytest.fixture
def world(tmp_path, tmp_path_factory):
    """A project with proposals."""
    return proposed(tmp_path / "p", tmp_path_factory)


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

    text = "\n".join(part_lines(Part(NEW, quote, "by hand"), charges_fee=charges))

    assert all(words in text for words in said), text


def test_what_was_planned_before_is_not_promised_twice():
    """Of 5 HITs that 3 workers are asked, 2 were planned by an earlier run: 3 are new."""
    quote = Quote(
        (Part("b1", bill(5, assignments=3, reward_cents=50, estimate_s=60, charges_fee=True), "", 2),)
    )

    assert quote.total_cents == 5 * 3 * 60
    assert quote.new_cents == 3 * 3 * 60


@pytest.mark.slow
def test_committed_money_is_what_is_paid_and_what_is_out(tmp_path, engine_url):
    """From planning to the last decision nothing is forgotten and nothing counts twice, on both engines."""
    settings = make_world(tmp_path / "p", n_images=20, db_url=engine_url)
    run_propose(settings)
    total = run_publish(settings, assignments=2, reward_cents=30, limit=72).counts["total_cents"]
    n_hits = total // 60
    assert committed(settings) == total
    assert committed(settings, charges_fee=True) == total + 2 * n_hits * fee_cents(30, 2)

    simulate(settings, SANDBOX, population="random", max_hits=5)
    harvest(settings, SANDBOX)
    assert committed(settings) == total
    settle(settings, SANDBOX)
    harvest(settings, SANDBOX)
    assert committed(settings) == total
    assert committed(settings, Environment.LIVE) == 0

    promise_elsewhere(settings, 70)
    promise_elsewhere(settings, 25, "extend", JournalState.SENDING)
    promise_elsewhere(settings, 1000, environment="live")
    promise_elsewhere(settings, 500, "approve")
    assert committed(settings) == total + 95
    assert committed(settings, Environment.LIVE) == 1000


def test_refused_work_and_ended_hits_promise_nothing(world):
    """What is rejected is not paid; a closed HIT waits for nobody; an undecided submission on one may be paid."""
    run_publish(world, reward_cents=30, limit=72)
    simulate(world, SANDBOX, max_hits=3)
    harvest(world, SANDBOX)
    assert committed(world) == 4 * 30
    with open_database(world.db_url) as session:
        session.execute(text("DELETE FROM ledger"))
        session.execute(text("UPDATE hit SET state = 'closed'"))
        session.execute(text("UPDATE assignment SET status = 'Submitted', decision = 'queued'"))
        session.commit()
    assert committed(world) == 3 * 30
    with open_database(world.db_url) as session:
        session.execute(text("UPDATE assignment SET status = 'Rejected', decision = 'reject'"))
        session.commit()
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
    with pytest.raises(FundsError, match=r"above the ceiling of \$500\.00"):
        run_publish(replace(world, ceiling_cents=50_000))
    assert run_publish(replace(world, ceiling_cents=200_000)).counts["hits_posted"] == planned


def test_a_purse_without_ceiling_says_yes(world):
    """None is no limit."""
    with open_database(world.db_url) as session:
        purse = Purse(session, world, SANDBOX, charges_fee=False)
        purse.require(10**9, "the bill")
        purse.recheck()

        assert (purse.left(), purse.committed()) == (None, 0)


def test_ten_workers_a_hit_pay_the_higher_fee(world):
    """The rule is on the bill, and 40 % of each reward in the total."""
    ten = bill(4, assignments=10, reward_cents=100, estimate_s=300, charges_fee=True)

    assert ten.fees_cents == 4 * 10 * 40
    assert "40 % of each reward" in "\n".join(part_lines(Part(NEW, ten, ""), charges_fee=True))
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
        run_publish(rich, limit=18, reward_cents=100)
