"""A preference study from its plan to its scores: nothing is asked twice, nothing is lost, and pages of pairs go on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from books import assert_each_hit_is_there_once, server_rows
from harvest_kit import in_pipeline
from prefer_kit import answered, asked, guesses, prepared, run_study, study, write_guesses
from sqlalchemy import text
from world_kit import SANDBOX, killed_at_posting, make_world, run_propose, run_publish

from mitl.campaign.kinds.rankings.controls import distrusted, known
from mitl.campaign.kinds.rankings.kind import KIND, StudyPlan
from mitl.campaign.kinds.rankings.scores import Method, score_votes
from mitl.campaign.kinds.rankings.systems import PreferenceStudy
from mitl.campaign.publish import publish
from mitl.db.session import open_database
from mitl.db.store import answers, comparisons, hits, items, ledger, proposals
from mitl.errors import (
    AnnotatorError,
    FundsError,
    MetricError,
    ProposalError,
    ReleaseError,
    RetrievalError,
    TemplateError,
    UsageError,
)
from mitl.records import (
    BatchKind,
    ComparisonRole,
    Decision,
    Direction,
    Environment,
    HitState,
    Preference,
    System,
)
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.ending import expire
from mitl.stages.hits.scope import list_hits
from mitl.stages.hits.simulate import simulate
from mitl.stages.paying.check import check_pay
from mitl.stages.paying.report import pay_report
from mitl.stages.releasing.originals import exclude
from mitl.stages.reporting.methods import STDOUT, methods
from mitl.stages.reporting.status import status
from mitl.stages.reviewing.desk_submission import strips
from mitl.stages.reviewing.review import Ruling, queue, rule, settle
from mitl.stages.reviewing.show import show
from mitl.stages.reviewing.workers import workers


@pytest.fixture
def done(tmp_path):
    """The same with an answered study."""
    return answered(tmp_path / "done")


@pytest.fixture
def posted(tmp_path):
    """The same with a study posted."""
    return asked(tmp_path / "posted")


@pytest.fixture
def settings(tmp_path):
    """A project with three ranking systems."""
    return prepared(tmp_path / "p")


def posted_pages(settings):
    """What stands on every HIT that asks for preferences, by the HIT's key."""
    with open_database(settings.db_url, read_only=True) as session:
        rows = hits.hits(session, SANDBOX, kind=BatchKind.RANKINGS)
        pages = comparisons.comparisons(session, [hit.id for hit in rows])
    return {hit.key: pages[hit.id] for hit in rows}


def test_people_prefer_the_better_system_and_every_step_says_so_the_second_time(settings, done):
    """Post, answer, harvest, score: random lists come last, near the truth comes first; then nothing is left to do."""
    direction = Direction.I2T
    wish = {
        "direction": direction,
        "queries": 8,
        "files": (("guess", guesses(settings, direction)),),
    }
    first = run_study(settings, **wish)
    again = run_study(settings, **wish)
    simulated = simulate(settings, SANDBOX)
    harvested = harvest(settings, SANDBOX)

    assert (first.status, again.status) == ("done", "nothing_to_do")
    assert first.counts["hits_posted"] * 3 == simulated.counts["submitted"] == harvested.counts["fetched"]
    assert "for pairs" not in harvested.next, "pairs are proposed here, and nobody was asked about any"
    assert run_study(done).status == "nothing_to_do"  # which asked in the other direction
    for finished in (settings, done):
        assert harvest(finished, SANDBOX).status == simulate(finished, SANDBOX).status == "nothing_to_do"
        scored = score_votes(finished, method=Method(prior=0.5))
        single = score_votes(finished, method=Method(prior=0.5, by_worker=False))
        assert list(scored.counts["systems"])[-1] == "guess"
        assert single.counts["preferred"] == scored.counts["preferred"]
        assert single.counts["equal"] == scored.counts["equal"]
        assert scored.counts["votes"] == scored.counts["ties"] + sum(
            system["wins"] for system in scored.counts["systems"].values()
        )
        assert sum(system["score"] for system in scored.counts["systems"].values()) == pytest.approx(100)
        assert_each_hit_is_there_once(finished)
        assert len(workers(finished).tables) == 1, "nobody answered pairs, so no table of dashes tells how"


def test_only_a_query_whose_positives_are_known_is_a_control(settings):
    """Where nothing says what fits, as of an image without a caption to trust, no list is known to be better."""
    with open_database(settings.db_url, read_only=True) as session:
        names, _ = items.names(session, items.dataset(session).id)
        proposed = proposals.queries(session)[Direction.I2T]
    exclude(settings, [names[image] for image in proposed[2:]])

    run_study(
        settings, direction=Direction.I2T, queries=8, files=(("guess", guesses(settings, Direction.I2T)),)
    )

    pages = [c for page in posted_pages(settings).values() for c in page]
    asked = {c.query_id for c in pages if c.role is ComparisonRole.ASKED}
    assert len(asked) == 8 > len(proposed[:2])
    assert {c.query_id for c in pages if c.role is ComparisonRole.CONTROL} == set(proposed[:2])


def test_pages_name_no_system_and_ask_each_comparison_once(settings):
    """Three systems on twelve queries; the server never learns whose lists it shows."""
    result = run_study(settings)

    asked = [c for page in posted_pages(settings).values() for c in page if c.role is ComparisonRole.ASKED]
    assert result.counts["comparisons"] == len(asked) == 36 - result.counts["alike"]
    assert max(Counter((c.query_id, frozenset((c.left, c.right))) for c in asked).values()) == 1
    (questions,) = zip(*server_rows(settings, "SELECT xml FROM hit_question"), strict=True)
    assert len(questions) == result.counts["hits_posted"]
    for question in questions:
        assert not [
            word for word in ("near", "far", "guess", "originals", "control") if f">{word}" in question
        ]
        assert "guess" not in question


def test_more_queries_add_to_what_was_asked(settings):
    """A larger sample holds the smaller one, so only what is new is posted, in a batch of its own."""
    run_study(settings, queries=5)
    before = posted_pages(settings)
    more = run_study(settings, queries=9)

    after = posted_pages(settings)
    assert more.counts["batch"] == "b2"
    assert {key: after[key] for key in before} == before
    asked = [c for page in after.values() for c in page if c.role is ComparisonRole.ASKED]
    assert max(Counter((c.query_id, frozenset((c.left, c.right))) for c in asked).values()) == 1
    assert len({c.query_id for c in asked}) == 9
    controls = [
        {c.query_id for key in keys for c in after[key] if c.role is ComparisonRole.CONTROL}
        for keys in (before, after.keys() - before)
    ]
    assert not controls[0] & controls[1]  # new pages take controls that nobody was shown yet


def test_a_limit_leaves_the_rest_to_the_next_run(settings):
    """As with pairs."""
    assert run_study(settings, limit=10).counts["comparisons"] == 10
    again = run_study(settings, limit=10)
    rest = run_study(settings)

    assert again.lines[0].startswith(
        "nothing to do: 10 comparisons of b1 are out, and --limit 10 counts them"
    )
    assert rest.counts["comparisons"] == 26 - rest.counts["alike"]


def test_an_interrupted_study_with_a_limit_posts_its_own_hits_and_no_more(settings):
    """Completed by the same command, under the same maximum; what is asked again counts against the limit too."""

    wish = study(settings, limit=6, reward_cents=100, max_cost_cents=300)
    with pytest.raises(KeyboardInterrupt):
        publish(settings, wish, confirm=lambda total: True, progress=killed_at_posting)
    away = settings.runs.rename(settings.project / "away")  # what was planned stands in the database
    assert publish(settings, wish, confirm=lambda total: True).status == "done"
    away.rename(settings.runs)
    assert publish(settings, wish, confirm=lambda total: True).status == "nothing_to_do"
    assert len(posted_pages(settings)) == 1
    in_pipeline(settings, "UPDATE hit SET state = 'closed'")

    assert publish(settings, wish, confirm=lambda total: True).counts["hits_again"] == 1
    assert publish(settings, wish, confirm=lambda total: True).status == "nothing_to_do"


def test_a_study_that_was_posted_whole_and_not_told_is_completed_alone(settings):
    """Killed before its last word: what could not be used meanwhile is asked again by the run after."""

    def killed(result):
        raise KeyboardInterrupt

    wish = study(settings, max_cost_cents=9000)
    with pytest.raises(KeyboardInterrupt):
        publish(settings, wish, confirm=lambda total: True, tell=killed)
    count = len(posted_pages(settings))
    in_pipeline(settings, "UPDATE hit SET state = 'closed'")

    completing = publish(settings, wish, confirm=lambda total: pytest.fail("there is no bill"))

    assert completing.counts["hits_posted"] == 0 and len(posted_pages(settings)) == count
    assert publish(settings, wish, confirm=lambda total: True).counts["hits_again"] == count


def test_a_dry_run_posts_and_plans_nothing(settings):
    """It writes the bill, the requests and pages to look at."""
    folder = settings.project / "look"
    result = publish(settings, study(settings), confirm=lambda total: False, dry_run=True, to=folder)

    assert posted_pages(settings) == {}
    assert server_rows(settings, "SELECT count(*) FROM hit") == [(0,)]
    assert len(list((folder / "pages").glob("*.html"))) == result.counts["hits"]
    assert "systems        far, guess, near" in (folder / "bill.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("wish", "error", "message"),
    [
        ({"systems": ("near", "fair")}, UsageError, "'fair' is not an annotator of the latest run"),
        ({"systems": ("near",), "files": ()}, UsageError, "compares two systems or more, but 1 is given"),
        ({"systems": ("near", "near")}, UsageError, "'near' is named twice"),
        ({"queries": 13}, ProposalError, "have 12 in common in the direction t2i, so ask for --queries 12"),
        ({"top_k": 11, "files": ()}, RetrievalError, "is 10 deep, but --top-k is 11; ask for 10 at most"),
        ({"top_k": 9}, AnnotatorError, "guess.t2i.parquet"),
        ({"per_hit": 2, "controls": 2}, UsageError, "leaves no comparison to ask"),
        (
            {"template": "pairs-plain"},
            TemplateError,
            "'pairs-plain' asks for pairs, not rankings; known: rankings-",
        ),
        ({"max_cost_cents": 10}, UsageError, "above --max-cost"),
        ({"reward_cents": 1}, None, ""),
        (
            {"files": (("x", Path("nope.parquet")),)},
            RetrievalError,
            "no file 'nope.parquet'; --rankings NAME=FILE",
        ),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_posts_nothing(settings, wish, error, message):
    """Names, depths, numbers and money."""
    if error is None:
        settings = replace(settings, wage_floor_cents=1200)
        error, message = UsageError, "below the wage floor"
    with pytest.raises(error, match=message) as caught:
        run_study(settings, **wish)

    assert "\n" not in str(caught.value)
    assert posted_pages(settings) == {}


def test_a_file_of_the_other_direction_is_not_compared_though_its_ids_are_known(settings):
    """Images and captions are both numbered from 1; what `mitl propose` wrote says which of them it ranks."""
    files = tuple((name, next(settings.runs.glob(f"*/{name}.t2i.parquet"))) for name in ("near", "far"))

    with pytest.raises(AnnotatorError, match="says that it ranks in the direction t2i, not i2t"):
        run_study(settings, direction=Direction.I2T, queries=1, systems=(), files=files)

    assert posted_pages(settings) == {}


def test_a_file_that_is_none_of_rankings_is_told_in_one_line(settings, tmp_path):
    """Whatever stands in its metadata, or as its queries."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ranked = pq.read_table(guesses(settings))
    strange = (
        ranked.replace_schema_metadata({b"dataset_sha256": b"\xff"}),
        pa.table({"query_id": pa.array([10**18], pa.timestamp("us"))}),
    )
    for table in strange:
        pq.write_table(table, tmp_path / "x.parquet")
        with pytest.raises(RetrievalError, match=r"x\.parquet' is not a Parquet file with the columns"):
            run_study(settings, files=(("x", tmp_path / "x.parquet"),))


def test_systems_that_rank_alike_are_said_to_leave_nothing_to_prefer(settings):
    """One file under two names; it is not said that people were asked."""
    twice = {"systems": (), "files": (("x", guesses(settings)), ("y", guesses(settings)))}

    result = run_study(settings, **twice)

    assert result.status == "nothing_to_do"
    assert "give the same list on every query" in result.lines[0]


def test_systems_without_a_common_query_are_told_no_number_of_queries(settings):
    """A file of other queries than those that were proposed."""
    import pyarrow.parquet as pq

    with open_database(settings.db_url, read_only=True) as session:
        _, names = items.names(session, items.dataset(session).id)
        proposed = {int(names[query]) for query in proposals.queries(session)[Direction.T2I]}
    ranked = pq.read_table(guesses(settings))
    pq.write_table(
        ranked.filter([query not in proposed for query in ranked["query_id"].to_pylist()]), guesses(settings)
    )

    with pytest.raises(
        ProposalError, match="have 0 in common in the direction t2i, so give the other --direction"
    ):
        run_study(settings)


def test_a_ceiling_stops_a_study_before_anything_is_posted(settings):
    """What pages of pairs have promised counts too."""
    run_publish(settings)
    with pytest.raises(FundsError, match="the bill is"):
        run_study(replace(settings, ceiling_cents=1000))

    assert posted_pages(settings) == {}


def test_an_interrupted_study_is_posted_whole_by_the_next_run(posted):
    """HITs that were planned, and one whose reply was lost: none is doubled, none is lost."""
    in_pipeline(
        posted,
        "UPDATE hit SET state = 'sending', mturk_hit_id = NULL WHERE number = 2",
        "UPDATE journal SET state = 'sending', reply = NULL WHERE key = 'b1:2:1'",
    )
    count = len(posted_pages(posted))

    resumed = run_study(posted)

    assert (resumed.counts["hits_adopted"], resumed.counts["hits_posted"]) == (1, 0)
    assert len(posted_pages(posted)) == count
    assert_each_hit_is_there_once(posted)


def test_a_study_of_which_only_the_replies_were_lost_is_completed_alone(settings):
    """More queries come with the next run; pages of pairs are no part of the study, and wait for nothing."""
    lost = (
        "UPDATE hit SET state = 'sending', mturk_hit_id = NULL",
        "UPDATE journal SET state = 'sending', reply = NULL WHERE kind = 'create'",
    )

    def killed(result):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(settings, study(settings, queries=6), confirm=lambda total: True, tell=killed)
    count = len(posted_pages(settings))
    in_pipeline(settings, *lost)

    completing = run_study(settings)

    assert (completing.counts["hits_adopted"], completing.counts["hits_posted"]) == (count, 0)
    assert completing.lines[0].endswith(
        "that completes an interrupted run, and nothing was planned beside it"
    )
    assert len(posted_pages(settings)) == count
    assert run_study(settings).counts["hits_posted"] > 0
    in_pipeline(settings, *lost)
    pairs = run_publish(settings, limit=18)
    assert pairs.counts["hits_adopted"] > count and pairs.counts["hits_posted"] == 1
    assert_each_hit_is_there_once(settings)


@pytest.mark.slow
def test_planned_hits_are_posted_by_their_own_command_alone(posted):
    """`mitl publish` leaves a study's planned HITs, and the other way round."""
    in_pipeline(posted, "UPDATE hit SET state = 'planned', mturk_hit_id = NULL, token = token || 'x'")
    in_pipeline(posted, "UPDATE journal SET state = 'planned', token = token || 'x'")
    in_pipeline(posted, "UPDATE batch SET name = 'b7'")
    planned = len(posted_pages(posted))

    pairs = run_publish(posted)
    rankings = run_study(posted)

    assert pairs.counts["hits_posted"] == len(
        [key for key in _keys(posted) if key.startswith(f"{pairs.counts['batch']}:")]
    )
    assert rankings.counts["hits_posted"] == planned


def _keys(settings):
    with open_database(settings.db_url, read_only=True) as session:
        return [hit.key for hit in hits.hits(session, SANDBOX)]


@pytest.mark.slow
def test_pairs_and_preferences_are_harvested_together_and_do_not_mix(posted):
    """One sweep; each answer is stored as what it is, each page is decided by its own controls."""
    run_publish(posted, limit=18)
    simulate(posted, SANDBOX)

    harvested = harvest(posted, SANDBOX)

    with open_database(posted.db_url, read_only=True) as session:
        of_rankings = {hit.id for hit in hits.hits(session, SANDBOX, kind=BatchKind.RANKINGS)}
        rows = answers.assignments(session, SANDBOX)
        judged = set(
            session.scalars(text("SELECT DISTINCT assignment_id FROM judgement"))  # type: ignore[call-overload]
        )
        preferred = set(session.scalars(text("SELECT DISTINCT assignment_id FROM preference")))  # type: ignore[call-overload]
    assert harvested.counts["fetched"] == len(rows)
    assert preferred == {row.id for row in rows if row.hit_id in of_rankings}
    assert judged == {row.id for row in rows if row.hit_id not in of_rankings}
    assert all(row.decision in (Decision.PASS, Decision.QUEUED) for row in rows)
    assert harvest(posted, SANDBOX, reparse=True).counts["reparsed"] == len(rows)
    assert status(posted, SANDBOX).counts["pairs_judged"] > 0


def test_who_fails_a_control_waits_for_a_person_and_does_not_count(posted):
    """Nothing is rejected; the queue lists them with what they failed."""
    simulate(posted, SANDBOX, population="random")
    harvest(posted, SANDBOX)

    with open_database(posted.db_url, read_only=True) as session:
        decisions = answers.decision_counts(session, SANDBOX)
        found = answers.finding_counts(session, SANDBOX)
        votes = comparisons.votes(session, SANDBOX)
    assert decisions[Decision.QUEUED] > decisions.get(Decision.PASS, 0)
    assert set(found) <= {"comparison_control_failed", "comparison_control_missing"}
    assert len(queue(posted, SANDBOX).tables[0].rows) == decisions[Decision.QUEUED]
    assert len(votes) < 60
    number = queue(posted, SANDBOX).tables[0].rows[0][0]
    assert show(posted, int(str(number)), SANDBOX).status == "done"
    assert settle(posted, SANDBOX).status == "done"


def test_what_could_not_be_used_is_asked_again_of_so_many_workers(done):
    """A dropped submission leaves its page to one more worker; the same comparisons, other controls."""
    in_pipeline(
        done,
        "UPDATE assignment SET decision = 'queued', status = 'Submitted' WHERE id = 1",
        "DELETE FROM ledger WHERE assignment_id = 1",
        "DELETE FROM journal WHERE kind = 'approve'",
    )
    rule(done, [Ruling(1, Decision.DROP)], SANDBOX)

    again = run_study(done)

    pages = posted_pages(done)
    (new,) = [key for key in pages if key.endswith(":2")]
    assert (again.counts["hits_again"], again.counts["assignments"], again.counts["batch"]) == (1, 1, None)
    before = pages[new.removesuffix(":2") + ":1"]
    for old, item in zip(before, pages[new], strict=True):
        assert item.role is old.role and (item == old) is (item.role is ComparisonRole.ASKED)
    queries = [
        [item.query_id for item in page if item.role is ComparisonRole.CONTROL]
        for page in (before, pages[new])
    ]
    assert len({query for of_page in queries for query in of_page}) == 4
    simulate(done, SANDBOX)
    harvest(done, SANDBOX)
    assert run_study(done).status == "nothing_to_do"
    took = "UPDATE assignment SET worker_id = (SELECT worker_id FROM assignment WHERE id = 2) WHERE hit_id = "
    in_pipeline(done, took + "(SELECT id FROM hit WHERE attempt = 2)")
    of_another = run_study(done).counts  # who had answered the page before has no second vote
    assert (of_another["hits_again"], of_another["assignments"]) == (1, 1)


def test_a_control_that_good_workers_fail_is_set_aside(posted):
    """Its page passes at the next harvest, and a page that asks again does not take it."""
    wrong, *_ = posted_pages(posted).values()
    place = next(item.place for item in wrong if item.role is ComparisonRole.CONTROL)
    turned = f"CASE expected WHEN 'left' THEN 'right' ELSE 'left' END WHERE hit_id = 1 AND place = {place}"
    in_pipeline(posted, f"UPDATE comparison SET expected = {turned}")
    simulate(posted, SANDBOX)

    harvest(posted, SANDBOX)

    with open_database(posted.db_url, read_only=True) as session:
        (bad,) = distrusted(session, SANDBOX)
        decided = [row.decision for row in answers.assignments(session, SANDBOX) if row.hit_id == 1]
    assert bad.query_id == wrong[place - 1].query_id
    assert decided == [Decision.PASS] * 3
    in_pipeline(posted, "UPDATE assignment SET decision = 'drop'")
    run_study(posted)
    again = [page for key, page in posted_pages(posted).items() if key.endswith(":2")]
    assert len(again) > 1
    assert not any(known(item) == bad for page in again for item in page)


def test_what_asks_again_asks_nothing_new_and_needs_no_words_of_the_study(posted):
    """What review, harvest and status name is typed as it is, also where other queries and annotators are open."""
    expire(posted, ["b1"], SANDBOX)
    harvested = harvest(posted, SANDBOX)
    n_pages = len(posted_pages(posted))

    again = publish(posted, PreferenceStudy(SANDBOX, again=True), confirm=lambda total: True)

    assert harvested.next == "mitl prefer publish --again --sandbox, which asks again what could not be used"
    assert (again.counts["hits_posted"], again.counts["hits_again"]) == (n_pages, n_pages)
    assert again.counts["systems"] == ["far", "guess", "near"]
    repeated = publish(posted, PreferenceStudy(SANDBOX, again=True), confirm=lambda total: True)
    assert repeated.lines == ("nothing to do: no page of a study is to be asked again",)
    with pytest.raises(UsageError, match="--again asks pages of earlier studies as they were"):
        study(posted, again=True)


def test_what_waits_is_told_of_the_batches_and_the_direction_that_are_scored(done):
    """Another batch's submissions are nothing that these scores would gain from."""
    in_pipeline(done, "UPDATE assignment SET decision = CASE id WHEN 1 THEN 'queued' ELSE 'approve' END")
    way = Direction.I2T
    run_study(done, direction=way, queries=4, files=(("guess", guesses(done, way)),))

    waiting = {
        "b1": score_votes(done, batches=("b1",), method=Method(prior=0.5)).counts["queued"],
        "b2": score_votes(done, batches=("b2",)).counts["queued"],
        "i2t": score_votes(done, direction=way).counts["queued"],
    }

    assert waiting == {"b1": 1, "b2": 0, "i2t": 0}


def test_preferences_of_both_directions_are_told_to_be_so(done):
    """Scored together unless one is named."""
    in_pipeline(
        done, "UPDATE comparison SET direction = 'i2t' WHERE hit_id = (SELECT max(hit_id) FROM comparison)"
    )

    told = [score_votes(done, direction=way, method=Method(prior=0.5)).lines for way in (None, Direction.T2I)]

    assert ["they are of both directions; see --direction for either" in lines for lines in told] == [
        True,
        False,
    ]


def test_one_workers_second_vote_on_the_same_comparison_does_not_count(done):
    """It could be met again where a page is asked again."""
    before = score_votes(done, method=Method(prior=0.5)).counts
    in_pipeline(done, "UPDATE assignment SET worker_id = 1")

    after = score_votes(done, method=Method(prior=0.5)).counts

    assert after["workers"] == 1
    assert after["votes"] == 36 < before["votes"]


def test_a_methods_section_of_preferences_alone_is_refused_with_what_tells_of_them(done):
    """No release holds them, so no section tells of them."""
    with pytest.raises(ReleaseError, match=r"no methods section to write; `mitl prefer scores` scores"):
        methods(done, STDOUT, SANDBOX)


def test_work_is_paid_and_its_time_is_known(done):
    """The ledger is the server's, and the wage report knows how long the pages took."""

    assert check_pay(done, SANDBOX).refusal is None
    with open_database(done.db_url, read_only=True) as session:
        work = ledger.settled_work(session, SANDBOX)
        (shown, *_) = strips(session, SANDBOX, 1, done.gold_rule)
        measured = session.execute(
            text("SELECT assignment_id, sum(active_ms) FROM preference GROUP BY assignment_id")
        ).all()
    assert {row.id: row.active_ms for row in work} == {id_: int(ms) for id_, ms in measured}
    assert shown.active_s == dict(measured)[shown.row.id] / 1000  # as the desk's page of the worker says
    assert pay_report(done, SANDBOX).status == "done"


def test_hits_are_listed_and_ended_as_those_of_pairs(posted):
    """One row a batch with its wording; after expiry and a harvest, the page is asked again."""
    assert list_hits(posted).counts["rows"][0]["template"] == "rankings-plain"
    expire(posted, ["b1"], SANDBOX)
    harvest(posted, SANDBOX)

    with open_database(posted.db_url, read_only=True) as session:
        assert {hit.state for hit in hits.hits(session, SANDBOX)} == {HitState.CLOSED}
    assert run_study(posted).counts["hits_again"] == len(posted_pages(posted)) / 2


@pytest.mark.slow
def test_names_that_stand_for_different_rankings_are_not_scored_together(settings):
    """A file was replaced under its name: the error says which batches, and one of them can be scored."""
    run_study(settings, queries=2)
    write_guesses(settings, Direction.T2I, depth=6)
    run_study(settings, queries=3)
    simulate(settings, SANDBOX)
    harvest(settings, SANDBOX)

    with pytest.raises(UsageError, match=r"'guess' stands for different rankings \(.* in b1, .* in b2\)"):
        score_votes(settings)
    assert score_votes(settings, batches=["b1"], method=Method(prior=0.5)).counts["queries"] == 2
    with pytest.raises(UsageError, match="no preference batch 'b9' on sandbox; known: b1, b2"):
        score_votes(settings, batches=["b1", "b9"])


def test_what_later_proposals_add_to_a_study_is_scored_with_it(settings):
    """A run of more queries is another run, but of the same annotators."""
    run_study(settings, queries=2)
    run_propose(settings, image_queries=8, caption_queries=13)
    more = run_study(settings, queries=3)
    simulate(settings, SANDBOX)
    harvest(settings, SANDBOX)

    assert more.counts["comparisons"] < 9  # of three queries
    assert score_votes(settings, method=Method(prior=0.5)).counts["queries"] == 3


def test_scores_without_answers_say_what_to_do(settings, posted, done):
    """Nothing posted, nothing harvested, and nobody ever preferred to another."""
    assert score_votes(settings, SANDBOX).next == "mitl prefer publish --sandbox"
    assert score_votes(posted, SANDBOX).next == "mitl harvest"
    assert score_votes(posted, SANDBOX, direction=Direction.T2I).next == "mitl harvest"
    other = score_votes(posted, SANDBOX, direction=Direction.I2T)
    assert other.lines == (
        "nothing to score: no preference study was posted in the direction i2t on sandbox",
    )
    assert other.next == "mitl prefer publish --sandbox --direction i2t"
    in_pipeline(
        done,
        "UPDATE preference SET answer = (SELECT CASE WHEN c.left_system = 'guess' THEN 'right' ELSE 'left' END "
        "FROM comparison c JOIN assignment a ON a.hit_id = c.hit_id "
        "WHERE a.id = preference.assignment_id AND c.place = preference.place)",
    )

    with pytest.raises(MetricError, match="'guess' was never preferred to any of 'far', 'near'"):
        score_votes(done, SANDBOX)


def test_the_votes_are_those_of_the_answers_as_stored(done):
    """Left and right are mapped to the systems that stood there."""

    counts = score_votes(done, SANDBOX, method=Method(prior=0.5)).counts

    with open_database(done.db_url, read_only=True) as session:
        votes = comparisons.votes(session, SANDBOX)
    won = Counter(
        (v.comparison.left, v.comparison.right)
        if v.answer is Preference.LEFT
        else (v.comparison.right, v.comparison.left)
        for v in votes
        if v.answer is not Preference.EQUAL
    )
    assert {(a, b): n for a, row in counts["preferred"].items() for b, n in row.items() if n} == dict(won)
    assert score_votes(done, Environment.LIVE).status == "nothing_to_do"


@pytest.mark.slow
def test_the_papers_five_rankings_are_preferred_in_the_papers_order(settings):
    """Made of the known truth; who looks at how much is right, and then where, finds A to E's order at both ends."""
    wish = {"systems": (), "files": (), "designed": "scenes", "queries": 6}
    run_study(settings, **wish)
    simulate(settings, SANDBOX)
    harvest(settings, SANDBOX)

    found = list(score_votes(settings, SANDBOX, method=Method(prior=0.5)).counts["systems"])

    assert (found[0], found[1], found[-1]) == ("only-1-wrong", "only-1-right", "all-wrong")
    assert run_study(settings, **wish).counts.get("comparisons", 0) == 0
    for wrong, message in (
        (
            {**wish, "designed": "nobody"},
            "no positives called 'nobody'; known: scenes, official, release:DIR",
        ),
        ({**wish, "systems": ("near",)}, "leave --system and --rankings out"),
    ):
        with pytest.raises(UsageError, match=message):
            run_study(settings, **wrong)
    with pytest.raises(
        ProposalError, match=r"have 5 to 8 positives by 'scenes'; ask for --queries \d+ at most"
    ):
        run_study(settings, **{**wish, "queries": 150})


@pytest.mark.slow
@pytest.mark.thorough
def test_a_study_goes_on_postgresql_as_on_sqlite(tmp_path, postgres_project_url):
    """The same queries, pages and scores from either database."""
    found = []
    for name, url in (("sqlite", None), ("postgres", postgres_project_url)):
        made = replace(make_world(tmp_path / name, n_images=20, db_url=url), project_id="same-0000")
        run_propose(made, image_queries=2, caption_queries=8)
        write_guesses(made, Direction.T2I)
        run_study(made, queries=6)
        simulate(made, SANDBOX, population="careful:0.5,random:0.5")
        harvest(made, SANDBOX)
        settle(made, SANDBOX)
        again = run_study(made, queries=6).counts["hits_again"]
        assert again > 0
        simulate(made, SANDBOX)
        harvest(made, SANDBOX)
        harvest(made, SANDBOX, reparse=True)
        found.append(
            (again, posted_pages(made), score_votes(made, method=Method(prior=0.5)).counts["systems"])
        )

    for one, other in zip(*found, strict=True):
        assert one == other


def test_a_bill_names_a_system_once_whose_rankings_changed_between_two_studies():
    """Pages of both studies may be asked again in one run."""
    plan = StudyPlan(systems=(System("near", "run 1"), System("near", "run 2"), System("far", "run 1")))

    assert KIND.facts(plan)["systems"] == ["near", "far"]
