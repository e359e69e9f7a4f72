"""A pilot first: as many HITs as it says, then the rest at what its times are worth."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest
from harvest_kit import in_pipeline
from hypothesis import given
from hypothesis import strategies as st
from publish_kit import proposed
from sqlalchemy import text
from world_kit import SANDBOX, copied_once, killed_at_posting, make_world, run_propose, run_publish

from mitl.campaign.kinds.pairs.planning import PAIRS_PER_HIT, Campaign
from mitl.campaign.pilots import PilotBatch, estimate_of, find_pilots, pilot_out
from mitl.campaign.publish import publish
from mitl.core.pricing import reward_for_floor
from mitl.db.session import open_database
from mitl.db.store import hits
from mitl.errors import UsageError
from mitl.hits.templates import load_template
from mitl.records import Environment, HitState, PairRole
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate

PLAIN = load_template("pairs-plain")


@pytest.fixture
def world(tmp_path):
    """A project with proposals."""
    return proposed(tmp_path / "p")


def posted_batches(settings):
    """The batches, oldest first."""
    with open_database(settings.db_url, read_only=True) as session:
        return hits.batches(session, SANDBOX)


def test_a_pilot_is_as_many_hits_as_it_says(world):
    """Full pages of random open pairs, marked as a pilot; running it again does nothing while it is out."""
    result = run_publish(world, pilot=2)

    assert (result.counts["hits_posted"], result.counts["pilot"]) == (2, True)
    (batch,) = posted_batches(world)
    assert batch.pilot and batch.estimate_s is None
    with open_database(world.db_url, read_only=True) as session:
        pages = hits.hit_items(session, [hit.id for hit in hits.hits(session, SANDBOX)])
    asked = [item.pair for page in pages.values() for item in page if item.role is PairRole.CANDIDATE]
    assert len(asked) == 36
    assert {pair.image_id for pair in asked} != set(range(1, 1 + len({pair.image_id for pair in asked})))
    again = run_publish(world, pilot=2)
    assert again.status == "nothing_to_do"
    assert "pilot b1 is out, 2 of its 2 HITs" in again.lines[0]


def test_the_rest_waits_for_the_pilot(world):
    """Until it is harvested, posting more is refused with what to do; another wording's pilot is no matter."""
    run_publish(world, pilot=1)

    with pytest.raises(
        UsageError, match="pilot b1 of template 'pairs-plain' is out: 1 of its 1 HITs"
    ) as raised:
        run_publish(world)
    assert "mitl harvest" in str(raised.value) and str(raised.value).endswith("--no-wait-for-pilot")
    assert len(posted_batches(world)) == 1
    assert run_publish(world, template="pairs-rationale", limit=18).counts["batch"] == "b2"
    assert run_publish(world, wait_for_pilot=False).counts["batch"] == "b3"


@pytest.mark.slow
@pytest.mark.thorough(but=("sqlite",))
def test_the_pilots_median_time_prices_the_rest(tmp_path, project_url):
    """The estimate, the reward and the next batch's row come from what the pilot's pages measured, on both engines."""
    world = make_world(tmp_path / "p", n_images=12, db_url=project_url)
    run_propose(world)
    run_publish(world, pilot=2)
    simulate(world, SANDBOX)
    harvest(world, SANDBOX)
    with open_database(world.db_url, read_only=True) as session:
        rows = session.execute(
            text("SELECT assignment_id, SUM(active_ms), COUNT(*) FROM judgement GROUP BY assignment_id")
        ).all()
    median = statistics.median(ms / 1000 / places * 20 for _, ms, places in rows)
    lines = []

    result = publish(world, Campaign(SANDBOX), confirm=lambda total: True, announce=lines.append)

    estimate = result.counts["estimate_s"]
    assert len(rows) == 2 and median <= estimate < median + 1
    assert result.counts["reward_cents"] == reward_for_floor(1200, estimate) != 100
    assert any(f"at {estimate} s a HIT (median of 2 submissions of pilot b1;" in line for line in lines)
    batch = posted_batches(world)[1]
    assert (batch.pilot, batch.estimate_s, batch.reward_cents) == (
        False,
        estimate,
        result.counts["reward_cents"],
    )


@pytest.fixture
def piloted(tmp_path):
    """A project whose pilot of two HITs was answered and harvested."""

    def make(new):
        settings = proposed(new)
        run_publish(settings, pilot=2)
        simulate(settings, SANDBOX)
        harvest(settings, SANDBOX)

    return copied_once("piloted", make, tmp_path / "piloted")


def test_a_reward_of_ones_own_is_held_against_the_measured_time(piloted):
    """--reward still wins, but the hourly wage is that of the measured time, and the floor refuses it."""
    with pytest.raises(UsageError, match="below the wage floor of") as raised:
        run_publish(replace(piloted, wage_floor_cents=1200), reward_cents=10)

    (found,) = (pilot for pilot in _pilots(piloted))
    assert f"at {estimate_of([found], PLAIN, PAIRS_PER_HIT).seconds} s a HIT" in str(raised.value)


def _pilots(settings, environment=SANDBOX):
    with open_database(settings.db_url, read_only=True) as session:
        return find_pilots(session, environment, "pairs-plain", PAIRS_PER_HIT)


def test_a_pilot_without_answers_says_so_and_changes_nothing(world):
    """Its HITs ended without a submission: the wording's own estimate is used, and the bill says why."""
    run_publish(world, pilot=1)
    in_pipeline(world, "UPDATE hit SET state = 'closed'")
    lines = []

    result = publish(world, Campaign(SANDBOX), confirm=lambda total: True, announce=lines.append)

    assert result.counts["estimate_s"] == 300
    assert any("since pilot b1 gave no usable times" in line for line in lines)
    assert posted_batches(world)[-1].estimate_s is None


def test_asking_a_pilots_pairs_again_does_not_make_it_wait_once_more(world):
    """What replaces a pilot's HITs goes out with the rest, and the next publish is not refused for it."""
    run_publish(world, pilot=1)
    in_pipeline(world, "UPDATE hit SET state = 'closed'")
    assert run_publish(world, limit=36).counts["hits_again"] == 1

    assert pilot_out(_pilots(world)) is None
    assert run_publish(world).counts["hits_posted"] > 0


def test_a_killed_pilot_is_finished_and_the_rest_still_waits(world):
    """Its HITs are planned and not posted: publishing again posts just those."""

    with pytest.raises(KeyboardInterrupt):
        publish(world, Campaign(SANDBOX, pilot=2), confirm=lambda total: True, progress=killed_at_posting)

    assert run_publish(world).counts["hits_posted"] == 2
    assert [batch.pilot for batch in posted_batches(world)] == [True]


def test_a_pilot_beside_another_is_not_repeated(world):
    """With `--no-wait-for-pilot` too, the same command posts as many HITs as it says, however often it is run."""
    assert run_publish(world, pilot=2, wait_for_pilot=False).counts["hits_posted"] == 2

    again = run_publish(world, pilot=2, wait_for_pilot=False)

    assert "2 HITs of pilot b1 are out, and --pilot 2 counts them" in again.lines[0]
    assert run_publish(world, pilot=3, wait_for_pilot=False).counts["hits_posted"] == 1


def test_a_pilot_whose_replies_were_lost_is_recognised(world):
    """The server has its HITs: they are adopted, and the rest waits without an error."""
    run_publish(world, pilot=2)
    in_pipeline(world, "UPDATE hit SET state = 'sending', mturk_hit_id = NULL")

    result = run_publish(world)

    assert (result.status, result.counts["hits_adopted"]) == ("done", 2)
    assert "recognised 2 HITs that had reached the server; pilot b1 is out" in result.lines[0]
    assert len(posted_batches(world)) == 1


def test_with_real_money_a_claimed_time_is_cut_to_what_passed(piloted):
    """Scripted workers claim minutes and answer in no time: practice believes them, real money does not."""
    (practice,) = _pilots(piloted)
    in_pipeline(
        piloted,
        "UPDATE batch SET environment = 'live'",
        "UPDATE worker SET environment = 'live'",
        "UPDATE assignment SET submitted_at = accepted_at + 30000000",
    )

    (real,) = _pilots(piloted, Environment.LIVE)

    assert min(practice.seconds) > 60
    assert max(real.seconds) <= 30


@given(st.lists(st.floats(0.1, 3600), min_size=1, max_size=9))
def test_the_estimate_is_the_median_rounded_up(seconds):
    """Of the latest pilot that is done and measured something."""
    done = PilotBatch("b2", 3, 0, tuple(seconds))
    others = [PilotBatch("b1", 1, 0, (9999.0,)), done, PilotBatch("b3", 2, 0), PilotBatch("b4", 2, 1, (1.0,))]

    found = estimate_of(others, PLAIN, PAIRS_PER_HIT)

    assert found.pilot == "b2"
    assert 0 <= found.seconds - statistics.median(seconds) < 1 or found.seconds == 1


def test_a_pilot_takes_no_overlap():
    """It is as many HITs as it says."""
    with pytest.raises(UsageError, match="--overlap does not go with --pilot"):
        Campaign(SANDBOX, pilot=2, overlap=0.1)


def test_a_pilot_leaves_what_asks_again_to_the_rest(world):
    """Closed HITs without usable answers are asked again with the campaign, not with the pilot."""
    run_publish(world, limit=18)
    in_pipeline(world, "UPDATE hit SET state = 'closed'")

    assert run_publish(world, pilot=1).counts["hits_again"] == 0
    with open_database(world.db_url, read_only=True) as session:
        assert len(hits.hits(session, SANDBOX, (HitState.POSTED,))) == 1
