"""A mistaken reward is corrected: what ended unanswered is asked again at the reward that is given, else at its own."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
from books import assert_answers_are_kept_once, assert_each_hit_is_there_once, server_rows
from cli_kit import ok
from prefer_kit import prepared, study
from publish_kit import proposed
from similarity_kit import rate, sampled
from world_kit import SANDBOX

from mitl.campaign.bill import committed_cents
from mitl.campaign.kinds.pairs.planning import Campaign
from mitl.campaign.kinds.rankings.scores import Method, score_votes
from mitl.campaign.kinds.similarity.planning import RatePairs
from mitl.campaign.publish import publish
from mitl.db.session import open_database
from mitl.db.store import comparisons, hits
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.ending import expire
from mitl.stages.hits.simulate import simulate
from mitl.stages.operating.backup import verify
from mitl.stages.paying.check import check_pay
from mitl.stages.reporting.status import status

CENTS = (
    """SELECT h.annotation, t.reward_cents FROM hit h JOIN hit_type t ON t.id = h.hit_type_id ORDER BY h.id"""
)


def post(settings, request, **how):
    """Post to the sandbox; the result, and the bill's lines."""
    bill = []
    return publish(settings, request, confirm=lambda total: True, announce=bill.append, **how), "\n".join(
        bill
    )


def nobody_came(settings):
    """Every HIT ends without an answer."""
    expire(settings, [], SANDBOX)
    harvest(settings, SANDBOX)


def on_server(settings):
    """The HITs of the server by their names, with what they pay."""
    return [(name.split(":", 2)[2], cents) for name, cents in server_rows(settings, CENTS)]


def committed(settings):
    with open_database(settings.db_url, read_only=True) as session:
        return committed_cents(session, SANDBOX, charges_fee=False)


@contextmanager
def killed(label, total):
    """Killed once a HIT is out."""

    def advance(count):
        raise KeyboardInterrupt

    yield advance if label == "post" else lambda count: None


def test_pairs_are_asked_again_at_the_reward_that_is_given(tmp_path):
    """The bill, the server, what is promised and what is paid say the same; the HITs that ended keep their price."""
    settings = proposed(tmp_path / "p")
    post(settings, Campaign(SANDBOX, limit=36, overlap=0.5, reward_cents=2))
    nobody_came(settings)
    assert committed(settings) == 0

    dry, _ = post(settings, Campaign(SANDBOX, limit=54, reward_cents=20), dry_run=True, to=tmp_path / "dry")
    posted, bill = post(settings, Campaign(SANDBOX, limit=54, reward_cents=20))
    again, _ = post(settings, Campaign(SANDBOX, limit=54, reward_cents=50))

    assert "(as when it was planned; asked again at --reward, no longer at $0.02)" in bill
    assert dry.counts["total_cents"] == posted.counts["total_cents"] == committed(settings) == 60
    assert posted.lines[1] == "what is asked again at another reward is of batch b2"
    assert again.status == "nothing_to_do"
    old = [(f"b1:{number}:1", 2) for number in (1, 2, 3)]
    assert on_server(settings) == old + [(f"b2:{number}:2", 20) for number in (1, 2, 3)]
    written = [
        json.loads(path.read_text("utf-8")) for path in sorted((tmp_path / "dry" / "requests").iterdir())
    ]
    assert [asked["Reward"] for asked in written if "Reward" in asked] == ["0.20"]
    names = [asked["RequesterAnnotation"] for asked in written if "RequesterAnnotation" in asked]
    assert [name.split(":", 2)[2] for name in names] == [name for name, _ in on_server(settings)[3:]]
    simulate(settings, SANDBOX, population="careful")
    harvest(settings, SANDBOX)
    assert_each_hit_is_there_once(settings)
    assert_answers_are_kept_once(settings)
    assert committed(settings) == 60 and check_pay(settings, SANDBOX).refusal is None
    assert verify(settings).refusal is None


def test_what_is_posted_already_keeps_its_reward_through_a_kill(tmp_path):
    """A plan is completed at the price that it was confirmed at, whatever the command says the next time."""
    settings = proposed(tmp_path / "p")
    post(settings, Campaign(SANDBOX, limit=36, reward_cents=2))
    nobody_came(settings)
    with pytest.raises(KeyboardInterrupt):
        post(settings, Campaign(SANDBOX, reward_cents=20, limit=36), progress=killed)

    _, bill = post(settings, Campaign(SANDBOX, reward_cents=50, limit=36))

    assert "--reward is for what is planned after it" in bill
    assert on_server(settings)[2:] == [("b2:1:2", 20), ("b2:2:2", 20)]
    assert committed(settings) == 40
    nobody_came(settings)
    post(settings, Campaign(SANDBOX, limit=18))
    assert on_server(settings)[4:] == [("b2:1:3", 20)]
    nobody_came(settings)
    post(settings, Campaign(SANDBOX, reward_cents=50, limit=36))
    assert on_server(settings)[5:] == [("b3:1:4", 50), ("b3:2:3", 50)]
    assert_each_hit_is_there_once(settings)
    assert status(settings, SANDBOX).counts["hits"]["posted"] == 2


@pytest.mark.parametrize("kind", ["rankings", "ratings"])
def test_other_kinds_are_asked_again_at_the_reward_that_is_given(kind, tmp_path):
    """By as many workers as before; a page is in place of the one that ended."""
    if kind == "rankings":
        settings = prepared(tmp_path / "p")
        first, second = study(settings, queries=8, reward_cents=2), study(settings, reward_cents=20)
    else:
        settings = sampled(tmp_path / "p")
        first, second = (RatePairs(SANDBOX, "sts", reward_cents=cents) for cents in (2, 20))
    post(settings, first)
    nobody_came(settings)

    posted, _ = post(settings, second)

    before = [name for name, cents in on_server(settings) if cents == 2]
    fresh = posted.counts["batch"]
    moved = "b2" if fresh is None else "b3"
    assert posted.counts["hits_again"] == len(before) and {cents for _, cents in on_server(settings)} == {
        2,
        20,
    }
    names = {name for name, cents in on_server(settings) if cents == 20}
    assert {f"{moved}{name[2:-1]}2" for name in before} == {name for name in names if name.startswith(moved)}
    assert post(settings, second)[0].status == "nothing_to_do"
    if kind == "rankings":
        simulate(settings, SANDBOX)
        with open_database(settings.db_url, read_only=True) as session:
            systems = comparisons.systems(session, SANDBOX)
        assert systems["b3"] == systems["b1"]
    else:
        rate(settings)
    assert harvest(settings, SANDBOX).counts["fetched"] > 0
    if kind == "rankings":
        assert score_votes(settings, batches=["b1"]).status == "nothing_to_do"
        assert score_votes(settings, batches=["b1", "b3"], method=Method(prior=0.5)).counts["votes"] > 0
    assert_each_hit_is_there_once(settings)
    assert_answers_are_kept_once(settings)
    assert verify(settings).refusal is None


def test_a_round_asks_again_at_its_own_reward_within_its_budget(tmp_path, monkeypatch):
    """Where it names one; what it asks again of an earlier batch is paid by its budget at that price."""
    settings = proposed(tmp_path / "p")
    monkeypatch.chdir(settings.project)
    ok("publish", "--sandbox", "--limit", "36", "--reward", "0.02")
    nobody_came(settings)
    budget = ("--budget", "90.00", "--strategy", "exhaustive", "--reward", "0.50")

    ok("round", "next", "--sandbox", *budget)
    ok("round", "next", "--sandbox", *budget)

    posted = on_server(settings)[2:]
    assert {cents for _, cents in posted} == {50}
    assert len([name for name, _ in posted if name.endswith(":2")]) == 2
    shown = ok("round", "show", "--json").json["counts"]["rounds"][-1]
    assert shown["promised_cents"] == 50 * len(posted) == committed(settings)
    with open_database(settings.db_url, read_only=True) as session:
        assert len(hits.hits(session, SANDBOX, hits.LIVE_STATES)) == len(posted)


def test_a_round_reckons_with_what_an_earlier_batch_pays(tmp_path, monkeypatch):
    """Without a reward of its own it asks again at the old price, and plans no more of it than its budget pays."""
    settings = proposed(tmp_path / "p")
    monkeypatch.chdir(settings.project)
    ok("publish", "--sandbox", "--reward", "2.00", "--assignments", "2")
    nobody_came(settings)

    ok("round", "next", "--sandbox", "--budget", "9.00", "--strategy", "random")

    ended = {f"b1:{number}:1" for number in range(1, 100)}
    assert {cents for name, cents in on_server(settings) if name not in ended} == {100, 200}
    assert 0 < committed(settings) <= 900
