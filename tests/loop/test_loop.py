"""The whole loop, stage by stage, on both database engines: what it does, and that a second run does nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text
from world_kit import SANDBOX, copy_of, make_world, run_build, run_propose, run_publish, work_until_done

from mitl.campaign.kinds.pairs.planning import Campaign
from mitl.campaign.publish import publish
from mitl.db.engine import make_engine
from mitl.db.session import open_database
from mitl.db.store import answers, hits, journal, judgements, open_work, parses
from mitl.errors import DatasetError, FundsError, RetrievalError, UsageError
from mitl.positives.loading import read_release
from mitl.records import Decision, Direction, Environment, Finding, HitState, PairRole
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate
from mitl.stages.reporting.report import report
from mitl.stages.reporting.status import status
from mitl.stages.reviewing.review import Ruling, queue, rule, settle


@pytest.fixture(scope="module")
def positives_of_the_first():
    """The positives of whichever engine's release came first; a list of one."""
    return []


@pytest.mark.slow
@pytest.mark.thorough(but=("postgresql",))
def test_the_loop_ends_with_the_same_release_and_every_stage_says_so_the_second_time(
    tmp_path, engine_url, positives_of_the_first
):
    """Propose, publish, answer, harvest, build and report, each twice, on SQLite and on PostgreSQL."""
    # Tokens and pages derive from the project's id, which is random: make it the same here.
    settings = replace(make_world(tmp_path / "p", db_url=engine_url), project_id="same-0000")

    assert run_propose(settings).status == "done"
    assert run_propose(settings).status == "nothing_to_do"
    work_until_done(settings)
    assert run_publish(settings).status == "nothing_to_do"
    assert simulate(settings, SANDBOX).status == "nothing_to_do"
    assert harvest(settings, SANDBOX).status == "nothing_to_do"
    assert status(settings, SANDBOX).next == "mitl build-dataset --out DIR"
    assert run_build(settings).status == "done"
    assert run_build(settings).status == "nothing_to_do"
    positives = read_release(settings.project / "release").by_query
    positives_of_the_first.append(positives)
    assert positives and positives == positives_of_the_first[0]
    page = settings.project / "report.html"
    assert report(settings, page, SANDBOX).status == "done"
    assert report(settings, page, SANDBOX).status == "nothing_to_do"

    now = status(settings, SANDBOX)
    assert now.next == "mitl report, or mitl build-dataset --out DIR again where more was judged since"
    counts = now.counts
    assert counts["pairs_open"] == 0
    assert counts["pairs_judged"] == counts["pairs"]
    assert counts["held_cents"] == 0


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """One project as it stood after each step, by the step's name; never changed.

    Failed: answered at random, so that much waits for a person. Answered: with care. Released: nothing is left to ask.
    """
    folder = tmp_path_factory.mktemp("worlds")
    made = {"proposed": make_world(folder / "proposed")}
    run_propose(made["proposed"])

    def after(base, name):
        made[name] = copy_of(made[base], folder / name)
        return made[name]

    run_publish(after("proposed", "posted"))
    settings = after("posted", "failed")
    simulate(settings, SANDBOX, population="random")
    harvest(settings, SANDBOX)
    settle(after("failed", "settled"), SANDBOX)
    settings = after("posted", "answered")
    simulate(settings, SANDBOX)
    harvest(settings, SANDBOX)
    settings = after("answered", "released")
    work_until_done(settings)
    run_build(settings)
    return made


@pytest.fixture
def world(worlds, tmp_path: Path):
    """A copy of the project as it stood after a step."""
    return lambda name: copy_of(worlds[name], tmp_path / name)


@pytest.fixture
def proposed(world):
    """A project whose candidate pairs nobody was asked about."""
    return world("proposed")


@pytest.fixture
def asked(world):
    """A project whose candidate pairs are on posted HITs."""
    return world("posted")


def test_every_candidate_is_on_exactly_one_hit_with_both_controls(asked):
    """18 candidates and two controls a page; the last page is filled with repeats; nothing is asked twice."""
    with open_database(asked.db_url, read_only=True) as session:
        out = hits.hits(session, SANDBOX, (HitState.POSTED,))
        pages = hits.hit_items(session, [hit.id for hit in out])
    candidates = [item.pair for page in pages.values() for item in page if item.role is PairRole.CANDIDATE]

    assert len(out) == -(-len(candidates) // 18)
    assert len(set(candidates)) == len(candidates) == status(asked, SANDBOX).counts["pairs"]
    for page in pages.values():
        roles = [item.role for item in page]
        assert len(page) == 20 and len({item.pair for item in page}) == 20
        assert roles.count(PairRole.GOLD_POSITIVE) == roles.count(PairRole.GOLD_NEGATIVE) == 1


def test_a_hit_whose_reply_was_lost_is_adopted_and_not_posted_twice(asked):
    """A kill between the call and its booking leaves `sending`; the next run finds the HIT by its annotation."""
    with open_database(asked.db_url) as session:
        before = {hit.key: hit.mturk_hit_id for hit in hits.hits(session, SANDBOX)}
        session.execute(text("UPDATE hit SET state = 'sending', mturk_hit_id = NULL"))
        session.execute(text("UPDATE journal SET state = 'sending', reply = NULL WHERE kind = 'create'"))
        session.commit()

    result = run_publish(asked)

    with open_database(asked.db_url, read_only=True) as session:
        after = {hit.key: hit.mturk_hit_id for hit in hits.hits(session, SANDBOX, (HitState.POSTED,))}
    assert result.counts["hits_adopted"] == len(before)
    assert after == before
    assert _hits_on_server(asked) == len(before)


def test_a_hit_that_an_older_database_calls_planned_is_adopted_and_not_posted_twice(asked):
    """A restored backup knows less than the server, even when the server has forgotten the request's token."""
    with open_database(asked.db_url) as session:
        first = hits.hits(session, SANDBOX)[0]
        session.execute(
            text("UPDATE hit SET state = 'planned', mturk_hit_id = NULL WHERE id = :id"), {"id": first.id}
        )
        session.execute(text("UPDATE journal SET state = 'planned' WHERE key = :key"), {"key": first.key})
        session.commit()
        total = len(hits.hits(session, SANDBOX))

    result = run_publish(asked)

    assert (result.counts["hits_posted"], result.counts["hits_adopted"]) == (0, 1)
    assert _hits_on_server(asked) == total


def _hits_on_server(settings) -> int:
    engine = make_engine(settings.crowd_db_url)
    with engine.connect() as connection:
        count = connection.execute(text("SELECT count(*) FROM hit")).scalar_one()
    engine.dispose()
    return int(count)


def test_every_posted_hit_has_a_journal_row_that_is_done(asked):
    """The journal knows each call that cost money, by the HIT's key."""
    with open_database(asked.db_url, read_only=True) as session:
        keys = [hit.key for hit in hits.hits(session, SANDBOX)]
        rows = [journal.find(session, "create", key) for key in keys]

    assert all(row is not None and row.state == "done" for row in rows)
    assert journal_tokens_are_unique(rows)


def journal_tokens_are_unique(rows) -> bool:
    """No two HITs share a request token."""
    return len({row.token for row in rows}) == len(rows)


def test_failed_controls_queue_the_work_and_never_reject_it(world):
    """Random workers fail controls: their pages wait for a person, nobody is refused pay."""
    failed = world("failed")
    with open_database(failed.db_url, read_only=True) as session:
        decisions = answers.decision_counts(session, SANDBOX)
    assert decisions[Decision.QUEUED] > 0
    assert Decision.REJECT not in decisions
    assert queue(failed, SANDBOX).counts["queued"] == decisions[Decision.QUEUED]


def test_settling_pays_everyone_and_asks_the_pairs_again(world):
    """After `settle` all work is paid, none of the failed answers count, and new attempts are posted."""
    settled = world("settled")
    again = run_publish(settled)

    with open_database(settled.db_url, read_only=True) as session:
        rows = answers.assignments(session, SANDBOX)
        attempts = {hit.attempt for hit in hits.hits(session, SANDBOX)}
        usable = [row for row in judgements.judgements(session, SANDBOX) if row.record.usable]
        spent = journal.spent(session, SANDBOX)
        reward = hits.batches(session, SANDBOX)[0].reward_cents
    kept = {row.id for row in rows if row.decision.keeps_answers}
    assert all(row.status == "Approved" for row in rows)
    assert spent == {"reward": reward * len(rows)}
    assert {row.assignment_id for row in usable} <= kept
    assert attempts == {1, 2} and again.counts["hits_again"] > 0


def test_an_excluded_worker_gets_no_further_hit(asked):
    """Exclusion is a qualification that new HIT types ask for; the excluded worker finds nothing to do."""
    simulate(asked, SANDBOX, population="random", hits_per_worker=100)
    harvest(asked, SANDBOX)
    with open_database(asked.db_url, read_only=True) as session:
        waiting = answers.assignments(session, SANDBOX, (Decision.QUEUED,))

    rule(asked, [Ruling(row.id, Decision.APPROVE_EXCLUDE) for row in waiting], SANDBOX)

    engine = make_engine(asked.crowd_db_url)
    with engine.connect() as connection:
        granted = connection.execute(text("SELECT count(*) FROM qualification")).scalar_one()
    engine.dispose()
    with open_database(asked.db_url, read_only=True) as session:
        assert granted == len({row.worker for row in waiting})
        assert all(row.excluded for row in answers.assignments(session, SANDBOX, (Decision.APPROVE_EXCLUDE,)))
        assert not any(row.record.usable for row in judgements.judgements(session, SANDBOX))


def test_a_rejection_needs_a_reason_that_its_worker_can_understand(world):
    """A word is no reason; with one, the server knows the rejection and nothing is paid for it."""
    failed = world("failed")
    with open_database(failed.db_url, read_only=True) as session:
        (first, *_) = answers.assignments(session, SANDBOX, (Decision.QUEUED,))

    with pytest.raises(UsageError, match="20 to 1,024 are right"):
        rule(failed, [Ruling(first.id, Decision.REJECT, "bad")], SANDBOX)
    rule(
        failed,
        [Ruling(first.id, Decision.REJECT, "every place was answered 100% NO within two seconds")],
        SANDBOX,
    )

    with open_database(failed.db_url, read_only=True) as session:
        (row,) = answers.assignments(session, SANDBOX, (Decision.REJECT,))
        paid = len(answers.assignments(session, SANDBOX, (Decision.PASS,)))
        reward = hits.batches(session, SANDBOX)[0].reward_cents
        assert row.status == "Rejected"
        assert journal.spent(session, SANDBOX).get("reward", 0) == paid * reward


def test_a_decision_of_a_killed_review_is_carried_out_by_the_next_harvest(world):
    """The decision is stored before the call: a kill in between loses neither the pay nor the rejection."""
    failed = world("failed")
    with open_database(failed.db_url) as session:
        first, second, *_ = answers.assignments(session, SANDBOX, (Decision.QUEUED,))
        from mitl.crowd.paying import plan_rejection

        plan_rejection(session, first, "answered every place within two seconds")
        answers.set_decision(session, [first.id], Decision.REJECT)
        answers.set_decision(session, [second.id], Decision.DROP)
        session.commit()

    harvest(failed, SANDBOX)

    with open_database(failed.db_url, read_only=True) as session:
        statuses = {row.id: row.status for row in answers.assignments(session, SANDBOX)}
    assert statuses[first.id] == "Rejected"
    assert statuses[second.id] == "Approved"


def test_reparsing_the_raw_answers_changes_nothing(world):
    """What was parsed at harvest comes out of the raw documents again, usable marks included.

    What an earlier parser noticed goes.
    """
    answered = world("answered")
    with open_database(answered.db_url) as session:
        before = [row.record for row in judgements.judgements(session, SANDBOX)]
        noted = answers.finding_counts(session, SANDBOX)
        ids = [row.id for row in answers.assignments(session, SANDBOX)]
        parses.add_all_findings(session, {id_: [Finding("unknown_field", "'x'")] for id_ in ids})
        session.commit()

    harvest(answered, SANDBOX, reparse=True)

    with open_database(answered.db_url, read_only=True) as session:
        assert [row.record for row in judgements.judgements(session, SANDBOX)] == before
        assert answers.finding_counts(session, SANDBOX) == noted
    assert any(record.usable for record in before)


def test_a_simulation_that_was_cut_short_goes_on(asked):
    """`--max-hits` leaves the rest open; the next call answers just those."""
    total = status(asked, SANDBOX).counts["hits"]["posted"]
    simulate(asked, SANDBOX, max_hits=2)
    harvest(asked, SANDBOX)

    rest = simulate(asked, SANDBOX)

    assert rest.counts["submitted"] == total - 2


def test_a_bill_above_the_maximum_posts_nothing(proposed):
    """--max-cost stops before anything is stored or sent."""
    with pytest.raises(UsageError, match="above --max-cost"):
        run_publish(proposed, max_cost_cents=1)

    assert sum(status(proposed, SANDBOX).counts["hits"].values()) == 0


def test_live_money_needs_a_budget_and_the_floor(proposed):
    """A new server's live budget is nothing, and a reward below the floor is refused on live."""
    with pytest.raises(FundsError, match="mitl crowd budget"):
        publish(proposed, Campaign(Environment.LIVE), confirm=lambda total: True)
    with pytest.raises(UsageError, match="wage floor"):
        publish(proposed, Campaign(Environment.LIVE, reward_cents=10), confirm=lambda total: True)


def test_an_unconfirmed_total_posts_nothing(proposed):
    """Saying no to the bill leaves the project as it was."""
    with pytest.raises(UsageError, match="not confirmed"):
        publish(proposed, Campaign(SANDBOX), confirm=lambda total: False)

    assert sum(status(proposed, SANDBOX).counts["hits"].values()) == 0


def test_a_dry_run_stores_nothing(proposed):
    """Everything is rendered and priced, nothing is kept."""
    result = publish(proposed, Campaign(SANDBOX), confirm=lambda total: True, dry_run=True)

    assert result.counts["hits"] > 0 and 0 < result.counts["largest_question_bytes"] <= 65_535
    assert sum(status(proposed, SANDBOX).counts["hits"].values()) == 0
    assert not proposed.public.exists()


def test_one_directions_campaign_asks_its_own_pairs_only(proposed):
    """`--direction i2t` asks what image queries found; the other campaign asks the rest, with its own template."""
    pairs = status(proposed, SANDBOX).counts["pairs"]

    first = run_publish(proposed, direction="i2t", template="pairs-rationale")
    second = run_publish(proposed, direction="t2i")

    assert first.counts["pairs"] > 0 and second.counts["pairs"] > 0
    assert first.counts["pairs"] + second.counts["pairs"] == pairs


def test_top_k_above_the_gallery_is_refused(tmp_path):
    """Five of a gallery of four cannot be had; the message names the gallery."""
    settings = make_world(tmp_path / "p", n_images=12)
    from mitl.stages.proposing.propose import ProposeRequest, QueryChoice, propose

    with pytest.raises(RetrievalError, match="--top-k is 50, but the gallery of t2i has 12 items"):
        propose(
            settings,
            ProposeRequest(
                annotators=("near",), top_k=50, depth=50, images=QueryChoice(3), captions=QueryChoice(3)
            ),
        )


def test_an_interrupted_propose_resumes_with_the_rankings_it_has(tmp_path):
    """Ranking files that are there are not computed again; a damaged one is."""
    settings = make_world(tmp_path / "p")
    first = run_propose(settings)
    folder = Path(first.paths["rankings"])
    damaged, kept = sorted(folder.iterdir())[:2]
    stamp = kept.stat().st_mtime_ns
    damaged.write_bytes(damaged.read_bytes()[:200])
    sorted(folder.iterdir())[2].unlink()

    second = run_propose(settings)

    assert first.counts["rankings_computed"] == 4
    assert second.counts["rankings_computed"] == 2
    assert kept.stat().st_mtime_ns == stamp


def test_another_data_set_in_the_same_project_is_refused(tmp_path):
    """A project holds one data set; the message says to make another folder."""
    from mitl.stages.setup.init import init
    from mitl.stages.setup.loading import DatasetSources, load

    settings = make_world(tmp_path / "p", n_images=12)
    other = load(DatasetSources("scenes", n_images=13), tmp_path / "other")

    with pytest.raises(DatasetError, match="make another project folder"):
        init(settings, other)


def test_sandbox_and_live_answers_never_mix(world):
    """What the sandbox judged is open on live."""
    answered = world("answered")
    live = status(answered, Environment.LIVE).counts

    assert live["pairs_open"] == live["pairs"] and live["submissions"] == 0


def test_the_release_lists_the_runs_queries_only(world):
    """Positives of items that did not search are incomplete, so the JSONs leave them out."""
    released = world("released")
    from mitl.db.store import items, proposals

    release = read_release(released.project / "release")
    with open_database(released.db_url, read_only=True) as session:
        queries = proposals.queries(session)
        dataset = items.dataset(session)
        names = {i.id: i.external_id for i in items.images(session, dataset.id, released.project)}
    assert set(release.by_query[Direction.I2T]) <= {names[query] for query in queries[Direction.I2T]}
    assert release.by_query[Direction.I2T]


def test_an_overlap_asks_its_share_of_a_second_worker(proposed):
    """A quarter of the pairs stands on further pages; where two workers answered, agreement can be measured."""

    posted = run_publish(proposed, overlap=0.25)
    work_until_done(proposed)

    with open_database(proposed.db_url, read_only=True) as session:
        rows = [row.record for row in judgements.judgements(session, SANDBOX)]
    second = [row for row in rows if row.role is PairRole.OVERLAP and row.usable]
    assert posted.counts["overlap"] == math.ceil(0.25 * posted.counts["pairs"])
    assert len({row.pair for row in second}) == posted.counts["overlap"]
    for row in second:
        same_pair = [first for first in rows if first.pair == row.pair and not first.role.is_gold]
        others = {first.worker for first in same_pair if first.usable and first != row}
        assert others and row.worker not in others


def test_a_page_that_cannot_be_shown_is_never_planned(world):
    """Every page is rendered before anything is stored: a lost picture stops the run and wedges nothing."""
    settled = world("settled")
    before = status(settled, SANDBOX).counts["hits"]
    for folder in (settled.project / "dataset" / "images", settled.public / "i"):
        for picture in folder.iterdir():
            picture.rename(picture.with_suffix(".away"))

    with pytest.raises(
        DatasetError, match=r"^\d+ of \d+ images cannot be shown: (image '.*?; ){4}image '.*? and \d+ more; "
    ):
        run_publish(settled)

    assert status(settled, SANDBOX).counts["hits"] == before
    for picture in (settled.project / "dataset" / "images").iterdir():
        picture.rename(picture.with_suffix(".png"))
    assert run_publish(settled).counts["hits_again"] > 0


def test_with_several_workers_only_those_whose_answers_failed_are_replaced(proposed):
    """Two workers a HIT: where one submission was dropped, one more worker is asked, not two."""
    run_publish(proposed, assignments=2)
    simulate(proposed, SANDBOX)
    harvest(proposed, SANDBOX)
    settle(proposed, SANDBOX)
    with open_database(proposed.db_url) as session:
        kept = answers.assignments(session, SANDBOX, (Decision.PASS,))
        per_hit = {row.hit_id: [other for other in kept if other.hit_id == row.hit_id] for row in kept}
        victim = next(rows[0] for rows in per_hit.values() if len(rows) == 2)
        answers.set_decision(session, [victim.id], Decision.DROP)
        session.commit()
    settle(proposed, SANDBOX)

    run_publish(proposed)

    with open_database(proposed.db_url, read_only=True) as session:
        again = [
            hit for hit in hits.hits(session, SANDBOX) if hit.number == victim.number and hit.attempt == 2
        ]
        work = open_work.open_work(session, SANDBOX)
    assert [hit.assignments for hit in again] == [1]
    assert work.assignments == sum(hit.assignments for hit in _posted(proposed))
    assert status(proposed, SANDBOX).counts["held_cents"] == work.held_cents > 0


def _posted(settings):
    with open_database(settings.db_url, read_only=True) as session:
        return hits.hits(session, SANDBOX, (HitState.POSTED,))


def test_a_limit_covers_what_is_asked_again(world):
    """`--limit` bounds all candidates of a run, those asked again first."""
    settled = world("settled")
    limited = run_publish(settled, limit=20)

    assert 0 < limited.counts["pairs"] <= 20


def test_naming_more_at_a_second_init_adds_it(tmp_path):
    """Exclusions and ratings given later are added once; the same again is nothing to do."""
    from mitl.records import Exclusion, ExclusionKind, Rating
    from mitl.stages.setup.init import init
    from mitl.stages.setup.loading import DatasetSources, Loaded, load

    settings = make_world(tmp_path / "p", n_images=12)
    data = load(DatasetSources("scenes", n_images=12), settings.project).data
    ratings = [Rating("1", "1", 4.9, "c2i_original")]
    exclusions = [Exclusion(ExclusionKind.CAPTION, None, "2", "meaningless", "me")]

    first = init(settings, Loaded(data, ratings, exclusions))
    second = init(settings, Loaded(data, ratings, exclusions))

    assert (first.status, first.counts["ratings"], first.counts["exclusions"]) == ("done", 1, 1)
    assert (second.status, second.counts["ratings"], second.counts["exclusions"]) == ("nothing_to_do", 0, 0)


def test_a_second_run_repeats_no_row_of_the_release(world):
    """Two runs propose many of the same pairs; the CSV holds one row per judgement, annotator and direction."""
    released = world("released")
    run_propose(released, image_queries=8, caption_queries=10)
    work_until_done(released)
    run_build(released, "again")

    rows = (released.project / "again" / "mturk_parsed.csv").read_text().splitlines()[1:]
    assert rows
    keys = [tuple(row.split(",")[column] for column in (0, 3, 4)) for row in rows]
    directions = 2
    assert max(keys.count(key) for key in set(keys)) <= directions


def test_scores_of_other_sets_are_kept(world):
    """Scoring the originals after a release keeps the release's scores for the report."""
    released = world("released")
    import json

    from mitl.stages.evaluating.evaluate import evaluate

    evaluate(released, release=released.project / "release")
    evaluate(released)

    kept = json.loads((released.runs / "evaluation" / "scores.json").read_text())
    assert set(kept) == {"original", "release"}
    assert {one.get("environment") for one in kept["release"].values()} == {"sandbox"}
    assert {one.get("environment") for one in kept["original"].values()} == {None}
    with pytest.raises(UsageError, match="COCO's"):
        evaluate(released, official=("eccv",))
