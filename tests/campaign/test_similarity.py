"""A campaign of graded similarity from its plan to its pay: five people a pair, nothing asked twice, nothing lost."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from books import assert_each_hit_is_there_once, server_rows
from cli_kit import fails
from harvest_kit import in_pipeline
from similarity_kit import asked, likeness, pages_of, rate, rated, run_rate, sample_pairs, sampled
from world_kit import SANDBOX, killed_at_posting, make_world, run_propose, run_publish

from mitl.campaign.kinds import kind_names
from mitl.campaign.kinds.similarity.planning import RatePairs
from mitl.campaign.kinds.similarity.scores import score_ratings
from mitl.campaign.publish import publish, reconcile
from mitl.crowd.endpoint import open_endpoint
from mitl.crowd_server import admin
from mitl.db.engine import make_engine
from mitl.db.session import open_database
from mitl.db.store import answers, hits, items, journal, ledger, rating_pages, similarity
from mitl.errors import FundsError, ProposalError, ReleaseError, StoreError, TemplateError, UsageError
from mitl.records import Decision, Environment, HitState
from mitl.records.similarity import SIMILARITY_ROLES, SimilarityRole
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.ending import expire
from mitl.stages.hits.extend import ExtensionWish, extend
from mitl.stages.hits.scope import list_hits
from mitl.stages.operating.backup import verify
from mitl.stages.paying.check import check_pay
from mitl.stages.paying.report import pay_report
from mitl.stages.releasing.build_dataset import build_dataset
from mitl.stages.releasing.originals import exclude
from mitl.stages.reporting.status import status
from mitl.stages.reviewing import review
from mitl.stages.reviewing.review import Ruling, queue, rule, settle
from mitl.stages.reviewing.show import show

LIVE = Environment.LIVE
ASKED = SIMILARITY_ROLES.index(SimilarityRole.ASKED)


@pytest.fixture
def settings(tmp_path):
    """A project with 16 pairs of each task sampled."""
    return sampled(tmp_path / "p")


@pytest.fixture
def posted(tmp_path):
    """The same, and those of texts are out on three HITs."""
    return asked(tmp_path / "posted")


@pytest.fixture
def answered(tmp_path):
    """The same with the work of five careful raters harvested."""
    return rated(tmp_path / "answered")


@pytest.fixture
def doubted(tmp_path):
    """The same where one of the five was careless."""
    return rated(tmp_path / "doubted", fifth=careless)


def ratings_of(settings):
    with open_database(settings.db_url, read_only=True) as session:
        return similarity.ratings(session, SANDBOX)


def raters_of(settings):
    """Task and pair → how many different people rated it usably."""
    with open_database(settings.db_url, read_only=True) as session:
        return rating_pages.usable_raters(session, SANDBOX)


def asked_on(pages):
    return [item.pair for page in pages.values() for item in page if item.role is SimilarityRole.ASKED]


def careless(worker, item):
    """One number for everything."""
    return 3.0


def test_five_people_rate_every_pair_of_each_task_and_every_step_says_so_the_second_time(settings):
    """Post, rate over HTTP, harvest: each pair that was asked has five ratings, and nothing is left to do.

    A pair takes 37, 17 and 17 seconds; the fullest page, its controls included, pays 12.00 an hour.
    """
    for task, pairs, seconds, cents in (("sts", 16, 333, 115), ("sis", 6, 153, 55), ("sits", 6, 153, 55)):
        first, again = (run_rate(settings, task, limit=pairs) for _ in range(2))
        assert (first.status, again.status) == ("done", "nothing_to_do")
        assert first.counts["task"] == [task] and first.counts["pairs"] == pairs
        assert first.counts["hits_posted"] == (pairs + 5) // 6
        assert (first.counts["estimate_s"], first.counts["reward_cents"]) == (seconds, cents)
        assert cents * 3600 >= 1200 * seconds
    submitted = rate(settings)
    harvested = harvest(settings, SANDBOX)

    assert submitted == harvested.counts["fetched"] == harvested.counts["approved"] == 25
    assert harvest(settings, SANDBOX).status == run_rate(settings).status == "nothing_to_do"
    table = ratings_of(settings)
    counted = table[table["usable"] & (table["role"] == ASKED)]
    raters = counted.groupby(["task", "pair"])["worker"].nunique()
    assert set(raters) == {5} and raters.groupby("task").size().tolist() == [16, 6, 6]
    assert set(raters_of(settings).values()) == {5}
    assert_each_hit_is_there_once(settings)
    assert harvested.next == "mitl rate scores for ratings"


def test_the_server_asks_five_different_workers_and_learns_no_role(posted):
    """boto3 reads the HITs back as they were posted; the pages name neither pairs nor controls."""
    with open_endpoint(posted, SANDBOX) as endpoint:
        listed = [hit.max_assignments for hit in endpoint.client().list_hits()]
    assert listed == [5, 5, 5]
    (questions,) = zip(*server_rows(posted, "SELECT xml FROM hit_question"), strict=True)
    for question in questions:
        assert not [
            role for role in ("identical", "random", "repeated", "control") if role in question.lower()
        ]


def test_a_pair_is_asked_once_whichever_order_sampled_it(posted):
    """One of the sixteen was sampled both ways round; every page has one control of each kind."""
    pages = pages_of(posted)
    assert max(Counter(asked_on(pages)).values()) == 1 and len(asked_on(pages)) == 16
    for page in pages.values():
        roles = Counter(item.role for item in page)
        assert [roles[role] for role in SimilarityRole][1:] == [1, 1, 1]
    swapped = [item.swapped for page in pages.values() for item in page if item.role is SimilarityRole.ASKED]
    assert sum(swapped) == 8


def test_new_samples_add_to_what_was_asked(posted):
    """Only what is new is posted, in a batch of its own; another task waits for nothing."""
    before = pages_of(posted)
    sample_pairs(posted, n=20)
    more = run_rate(posted)
    after = pages_of(posted)
    assert (more.counts["batch"], more.counts["pairs"]) == ("b2", 4)
    assert {key: after[key] for key in before} == before
    assert max(Counter(asked_on(after)).values()) == 1
    met = [
        {item.pair for page in pages for item in page if item.role is SimilarityRole.IDENTICAL}
        for pages in (before.values(), [after[key] for key in after if key not in before])
    ]
    assert not met[0] & met[1]  # new pages take controls that nobody was shown yet
    assert run_rate(posted, "sis").counts["pairs"] == 20


def test_an_original_that_a_list_refuses_is_no_control(settings):
    """Of all images but one the captions are not to be trusted, so one alone stands for what is alike."""
    with open_database(settings.db_url, read_only=True) as session:
        names, _ = items.names(session, items.dataset(session).id)
    (kept, *others) = names
    exclude(settings, [names[image] for image in others])

    run_rate(settings, "sits", per_hit=20)

    alike = [
        item for page in pages_of(settings).values() for item in page if item.role is SimilarityRole.IDENTICAL
    ]
    assert alike and {item.left for item in alike} == {kept}


def test_who_fails_the_controls_waits_for_a_person_who_sees_why(doubted, monkeypatch):
    """Nothing is rejected by a machine; findings, the table, the rule and the rater's conduct are shown."""
    rows = queue(doubted, SANDBOX).tables[0].rows
    assert [row[3] for row in rows] == [None] * 3  # nobody met a gold control of pairs
    assert (
        score_ratings(doubted, environment=SANDBOX).next
        == "mitl review --sandbox, for what waits for a person"
    )
    monkeypatch.setattr(review, "SHOWN", 2)
    short = queue(doubted, SANDBOX)
    assert short.tables[0].rows == rows[:2]
    assert short.tables[0].title == "3 submissions waiting for a person, the first 2; `mitl desk` shows all"
    assert short.counts["submissions"] == [row[0] for row in rows]
    seen = show(doubted, int(str(rows[0][0])), SANDBOX)
    table = seen.tables[0]
    assert table.columns == ("place", "role", "score", "expected", "s", "own words", "first", "second")
    expected = {row[1]: row[3] for row in table.rows}
    assert expected["identical"] == "an identical pair has 4 or more"
    assert expected["random"] == "a random pair has 2 or less"
    assert expected["repeated"].startswith("a repeated pair is within 1 of place ")
    assert {row[2] for row in table.rows} == {"3.00"}
    assert any(line.startswith("rule: an identical pair has 4 or more") for line in seen.lines)
    assert not any(
        word in line for line in seen.lines for word in ("gold controls", "pass rate", "a pair takes")
    )
    assert any(
        line.startswith("the rater: 100 % of 16 scores lie within 0.05 of 3.00") for line in seen.lines
    )
    with open_database(doubted.db_url, read_only=True) as session:
        counts = answers.decision_counts(session, SANDBOX)
        findings = answers.finding_counts(session, SANDBOX)
    assert counts == {Decision.PASS: 12, Decision.QUEUED: 3}
    assert set(findings) == {"similarity_control_failed", "one_number"}
    assert not set(ratings_of(doubted).query("not usable")["worker"]) & set(
        ratings_of(doubted).query("usable")["worker"]
    )


def test_pairs_that_lack_a_rater_are_asked_again_of_as_many(doubted):
    """A dropped submission is paid, and leaves its page's pairs to one more worker, with other controls."""
    numbers = [int(str(row[0])) for row in queue(doubted, SANDBOX).tables[0].rows]
    ruled = rule(doubted, [Ruling(number, Decision.DROP) for number in numbers], SANDBOX)
    assert ruled.counts["hits_to_ask_again"] == 3
    assert ruled.next == "mitl rate publish --sandbox, which asks again what could not be used"
    assert status(doubted, SANDBOX).next == "mitl rate publish --sandbox"
    assert set(raters_of(doubted).values()) == {4}

    again = run_rate(doubted)

    assert (again.counts["hits_again"], again.counts["assignments"], again.counts["batch"]) == (3, 3, None)
    pages = pages_of(doubted)
    for number in (1, 2, 3):
        before, after = pages[f"b1:{number}:1"], pages[f"b1:{number}:2"]
        assert sorted(asked_on({"": after})) == sorted(asked_on({"": before}))
        checks = [
            {item.pair for item in page if item.role in (SimilarityRole.IDENTICAL, SimilarityRole.RANDOM)}
            for page in (before, after)
        ]
        assert not checks[0] & checks[1]
    assert run_rate(doubted).status == "nothing_to_do"
    rate(doubted, [likeness])
    assert harvest(doubted, SANDBOX).counts["approved"] == 3
    assert run_rate(doubted).status == "nothing_to_do"
    assert set(raters_of(doubted).values()) == {5}
    assert check_pay(doubted, SANDBOX).refusal is None


def test_single_pairs_that_lack_raters_share_a_page(posted):
    """Every rater of one page could not see one pair: it is not a page of its own that asks for it again."""
    chosen = {page[0].pair for page in pages_of(posted).values() if page[0].role is SimilarityRole.ASKED}

    def skips(worker, item):
        return None if item.pair in chosen else likeness(worker, item)

    first_pages = {item.pair for page in pages_of(posted).values() for item in page[:1]}
    chosen |= {pair for pair in asked_on(pages_of(posted)) if pair not in first_pages and len(chosen) < 1}
    assert chosen
    rate(posted, [skips] * 5)
    harvest(posted, SANDBOX)
    in_pipeline(
        posted, "UPDATE assignment SET decision = 'pass' WHERE decision = 'queued'"
    )  # one repeated pair may be among those that were left out
    in_pipeline(posted, "UPDATE hit SET state = 'closed'")

    again = run_rate(posted)

    assert (again.counts["hits_again"], again.counts["assignments"]) == (1, 5)
    assert again.counts["pairs"] == len(chosen)
    (page,) = (page for key, page in pages_of(posted).items() if key.endswith(":2"))
    assert set(asked_on({"": page})) == chosen
    rate(posted)
    harvest(posted, SANDBOX)
    assert run_rate(posted).status == "nothing_to_do"
    assert set(raters_of(posted).values()) == {5}

    # One rater of each first page is lost afterwards, whether or not the page was asked again.
    firsts = "SELECT min(id) FROM assignment WHERE hit_id <= 3 GROUP BY hit_id"
    in_pipeline(posted, f"UPDATE assignment SET decision = 'drop' WHERE id IN ({firsts})")
    assert run_rate(posted).counts["pairs"] == sum(n < 5 for n in raters_of(posted).values()) > 0
    rate(posted)
    harvest(posted, SANDBOX)
    assert set(raters_of(posted).values()) == {5}


def test_a_pair_that_three_pages_asked_in_vain_is_asked_no_more(posted):
    """Its picture may be broken; the others have all their ratings, and nothing is left to ask."""
    places = Counter(item.pair for page in pages_of(posted).values() for item in page)
    unseen = next(pair for pair in asked_on(pages_of(posted)) if places[pair] == 1)  # which repeats none

    def skips(worker, item):
        return math.nan if item.pair == unseen else likeness(worker, item)

    asked_again = []
    for _ in range(3):
        rate(posted, [skips] * 5)
        harvest(posted, SANDBOX)
        settle(posted, SANDBOX)  # which keeps no page that asks this pair alone
        asked_again.append(run_rate(posted).counts.get("pairs", 0))

    assert asked_again == [1, 1, 0]
    assert sorted(raters_of(posted).values()) == [5] * 15
    assert status(posted, SANDBOX).next.startswith("mitl rate scores")


@pytest.mark.parametrize("wish", [{"per_hit": 5}, {"controls": False}])
def test_a_page_that_asks_again_holds_no_more_than_its_reward_pays(settings, wish):
    """Whatever the command says now, it pays what the batch paid: for its fullest page."""
    run_rate(settings, **wish)
    fullest = max(map(len, pages_of(settings).values()))
    expire(settings, [], SANDBOX)
    harvest(settings, SANDBOX)

    run_rate(settings)

    again = {key: page for key, page in pages_of(settings).items() if key.endswith(":2")}
    assert len(asked_on(again)) == 16
    assert max(map(len, again.values())) <= fullest


def test_a_slider_that_nobody_touched_is_a_missing_answer(posted):
    """The page is stored, nothing of it counts, and a person looks at it."""
    rate(posted, [lambda worker, item: None], hits_each=1)
    harvested = harvest(posted, SANDBOX)
    assert set(harvested.counts["findings"]) == {"missing_answer", "no_rating"}
    assert harvested.counts["queued"] == 1
    assert len(ratings_of(posted)) == 0


def test_one_workers_second_rating_of_a_pair_does_not_count(answered):
    """It could be met again where a page is asked again; five raters are five people."""
    in_pipeline(answered, "UPDATE assignment SET worker_id = 1")

    table = ratings_of(answered)
    assert set(raters_of(answered).values()) == {1}
    counted = table[table["usable"] & (table["role"] == ASKED)]
    assert len(counted) == counted["pair"].nunique() == 16
    assert run_rate(answered).counts["assignments"] == 3 * 4


def test_an_excluded_workers_ratings_do_not_count(answered):
    """Paid, not used; the pairs are asked of one more."""
    in_pipeline(answered, "UPDATE worker SET excluded_at = '2026-01-01 00:00:00.000000' WHERE id = 1")
    assert set(raters_of(answered).values()) == {4}
    assert run_rate(answered).counts["assignments"] == 3


def test_the_pilots_median_time_prices_the_rest_of_its_task(settings):
    """The rest of the task waits for it; another task does not."""
    pilot = run_rate(settings, pilot=1)
    assert (pilot.counts["hits_posted"], pilot.counts["pairs"], pilot.counts["pilot"]) == (1, 7, True)
    assert pilot.next.endswith("and mitl rate publish again, which prices the rest by the pilot's times")
    assert "pilot b1 is out, 1 of its 1 HITs" in run_rate(settings, pilot=1).lines[0]
    with pytest.raises(
        UsageError, match=r"pilot b1 of template 'similarity-texts' is out: .*--no-wait-for-pilot$"
    ):
        run_rate(settings)
    assert run_rate(settings, "sis", limit=1).counts["estimate_s"] == 4 * 17
    rate(settings, ms=20_000)
    harvest(settings, SANDBOX)
    bill: list[str] = []

    rest = publish(settings, RatePairs(SANDBOX, "sts"), confirm=lambda total: True, announce=bill.append)

    # Nine pairs are left: five and four on two pages, each with three controls.
    assert (rest.counts["pairs"], rest.counts["estimate_s"]) == (9, 8 * 20)
    assert any("median of 5 submissions of pilot b1; the wording says 296 s" in line for line in bill)


def test_a_limit_leaves_the_rest_to_the_next_run(settings):
    """As with pairs of other kinds."""
    assert run_rate(settings, limit=5).counts["pairs"] == 5
    assert (
        run_rate(settings, limit=5)
        .lines[0]
        .startswith("nothing to do: 5 pairs of b1 are out, and --limit 5 counts them")
    )
    assert run_rate(settings).counts["pairs"] == 11
    assert max(Counter(asked_on(pages_of(settings))).values()) == 1


def test_an_interrupted_run_posts_its_own_hits_and_no_more(settings):
    """Completed by the same command under the same maximum, also where it was killed before its last word."""

    def untold(result):
        raise KeyboardInterrupt

    wish = RatePairs(SANDBOX, "sts", limit=14, max_cost_cents=2000)
    with pytest.raises(KeyboardInterrupt):
        publish(settings, wish, confirm=lambda total: True, progress=killed_at_posting)
    planned = pages_of(settings)
    assert reconcile(settings, SANDBOX).next == (
        f"mitl rate publish --sandbox, which posts the {len(planned)} HITs that it planned"
    )
    with pytest.raises(KeyboardInterrupt):
        publish(settings, wish, confirm=lambda total: True, tell=untold)
    assert pages_of(settings) == planned
    completing = publish(settings, wish, confirm=lambda total: pytest.fail("there is no bill"))
    assert "that completes an interrupted run" in completing.lines[0]
    assert publish(settings, wish, confirm=lambda total: True).status == "nothing_to_do"
    in_pipeline(
        settings,
        "UPDATE hit SET state = 'sending', mturk_hit_id = NULL WHERE number = 2",
        "UPDATE journal SET state = 'sending', reply = NULL WHERE key = 'b1:2:1'",
    )
    resumed = run_rate(settings, limit=14)
    assert (resumed.counts["hits_adopted"], resumed.counts["hits_posted"]) == (1, 0)
    assert pages_of(settings) == planned
    assert_each_hit_is_there_once(settings)


def test_a_dry_run_posts_and_plans_nothing(settings):
    """It writes the bill, the requests and pages to look at."""
    folder = settings.project / "look"
    result = publish(
        settings, RatePairs(SANDBOX, "sits"), confirm=lambda total: False, dry_run=True, to=folder
    )
    assert pages_of(settings) == {}
    assert server_rows(settings, "SELECT count(*) FROM hit") == [(0,)]
    assert len(list((folder / "pages").glob("*.html"))) == result.counts["hits"] == 3
    assert result.counts["controls"] == 9 and 0 < result.counts["largest_question_bytes"] < 65_535
    bill = (folder / "bill.txt").read_text(encoding="utf-8")
    assert "similarity sits · template similarity-mixed" in bill
    assert "8 to 9 a HIT, 3 of them controls" in bill


def test_pages_can_go_without_controls(settings):
    """Then ten pairs fit, and only who gives one number for all is told."""
    assert run_rate(settings, controls=False).counts["controls"] == 0
    assert {len(page) for page in pages_of(settings).values()} == {8}
    rate(settings, [likeness] * 4 + [careless])
    assert harvest(settings, SANDBOX).counts["findings"] == {"one_number": 2}


@pytest.mark.parametrize(
    ("wish", "error", "message"),
    [
        ({"per_hit": 3}, UsageError, "--per-hit 3 leaves no pair to ask beside its 3 controls"),
        ({"per_hit": 21}, UsageError, "or is too many; give 4 to 20"),
        (
            {"template": "pairs-plain"},
            TemplateError,
            "'pairs-plain' asks for pairs, not similarity; known: sim",
        ),
        ({"template": "nope"}, TemplateError, "no HIT template called 'nope'; known: similarity-images"),
        ({"max_cost_cents": 10}, UsageError, "above --max-cost"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_posts_nothing(settings, wish, error, message):
    """Numbers, names and money."""
    with pytest.raises(error, match=message) as caught:
        run_rate(settings, **wish)
    assert "\n" not in str(caught.value)
    assert pages_of(settings) == {}


def test_money_has_its_bounds(settings):
    """A reward below the floor, and a ceiling that the bill would pass."""
    with pytest.raises(UsageError, match="below the wage floor"):
        run_rate(replace(settings, wage_floor_cents=1200), reward_cents=1)
    with pytest.raises(FundsError, match="the bill is"):
        run_rate(replace(settings, ceiling_cents=100))
    assert pages_of(settings) == {}


def test_nothing_sampled_says_what_comes_first(tmp_path):
    """Two texts are sampled at once; an image and a text need the ratings of the others."""
    made = make_world(tmp_path / "p", n_images=30)
    with pytest.raises(
        StoreError, match="no pairs were sampled for sts yet; run `mitl propose --scheme crisscross`"
    ):
        run_rate(made)
    with pytest.raises(StoreError, match=r"no pairs were sampled for sits yet; .* harvest these first"):
        run_rate(made, "sits")


def test_too_few_items_for_controls_is_one_line(tmp_path):
    """All images were sampled with each other, so none is random."""
    made = make_world(tmp_path / "p", n_images=5)
    sample_pairs(made, n=3, all_images=True)
    with pytest.raises(ProposalError, match=r"no two items of sis are unrelated: .* --controls none"):
        run_rate(made, "sis")
    assert run_rate(made, "sis", controls=False).counts["pairs"] == 10


def test_work_is_paid_listed_and_ended_as_that_of_other_kinds(posted):
    """Wages from active time, one row a batch, more time and workers, expiry, a database that is whole."""
    rate(posted, [likeness] * 2, ms=9000)
    harvest(posted, SANDBOX)
    assert check_pay(posted, SANDBOX).refusal is None
    paid = pay_report(posted, SANDBOX)
    assert paid.status == "done"
    with open_database(posted.db_url, read_only=True) as session:
        work = ledger.settled_work(session, SANDBOX)
        counts = {
            hit.id: len(page)
            for hit, page in zip(hits.hits(session, SANDBOX), pages_of(posted).values(), strict=True)
        }
    assert sorted(row.active_ms for row in work) == sorted(
        9000 * n for n in counts.values() for _ in range(2)
    )
    (row,) = list_hits(posted).counts["rows"]
    assert row["template"] == "similarity-texts"
    wish = ExtensionWish("b1", assignments=6, days=2)
    assert extend(posted, wish, SANDBOX, confirm=lambda environment, total: True).status == "done"
    expire(posted, ["b1"], SANDBOX)
    harvest(posted, SANDBOX)
    with open_database(posted.db_url, read_only=True) as session:
        assert {hit.state for hit in hits.hits(session, SANDBOX)} == {HitState.CLOSED}
    again = run_rate(posted)
    assert (again.counts["hits_again"], again.counts["assignments"]) == (3, 12)
    assert verify(posted).refusal is None


@pytest.mark.slow
def test_pairs_and_ratings_are_harvested_together_and_do_not_mix(posted):
    """One sweep; each answer is stored as what it is, and reading the documents again changes nothing."""
    run_propose(posted)
    run_publish(posted, limit=18)
    rate(posted)
    harvest(posted, SANDBOX)
    before = ratings_of(posted)
    assert harvest(posted, SANDBOX, reparse=True).counts["reparsed"] == 15
    assert ratings_of(posted).equals(before)
    shown = status(posted, SANDBOX)
    assert shown.counts["submissions"] == 15
    assert shown.counts["other_kinds"] == {"similarity": {"hits": 3, "submissions": 15, "kept": 15}}
    assert ("similarity", "3 HITs, 15 submissions, 15 kept") in shown.tables[0].rows


@pytest.mark.slow
@pytest.mark.thorough
def test_the_campaign_goes_on_postgresql_as_on_sqlite(tmp_path, postgres_project_url):
    """The same pages and ratings from either database, asked again and read again."""
    found = []
    for name, url in (("sqlite", None), ("postgres", postgres_project_url)):
        made = replace(make_world(tmp_path / name, n_images=20, db_url=url), project_id="same-0000")
        sample_pairs(made, n=8)
        run_rate(made, pilot=1)
        rate(made)
        harvest(made, SANDBOX)
        priced = run_rate(made)
        rate(made, [likeness] * 4 + [careless])
        harvest(made, SANDBOX)
        rows = queue(made, SANDBOX).tables[0].rows
        rule(made, [Ruling(int(str(row[0])), Decision.DROP) for row in rows], SANDBOX)
        again = run_rate(made)
        harvest(made, SANDBOX, reparse=True)
        table = ratings_of(made)
        shown = show(made, 1, SANDBOX).tables
        found.append(
            (
                priced.counts["estimate_s"],
                again.counts["hits_again"],
                pages_of(made),
                table.drop(columns=["worker"]).to_dict("list"),
                shown,
            )
        )
    for one, other in zip(*found, strict=True):
        assert one == other


def test_the_kind_is_registered_by_its_folder():
    """Nothing names it but its folder and its command."""
    assert kind_names() == ["pairs", "rankings", "similarity", "texts"]


def test_real_money_is_held_paid_and_counted(settings):
    """On live: the budget bounds the bill, what passes is paid, what a person rejects is asked of another worker."""
    engine = make_engine(settings.crowd_db_url)
    admin.prepare(engine)
    admin.set_budget(engine, LIVE, 900)
    engine.dispose()
    wish = RatePairs(LIVE, "sis", limit=7, probes=0)
    with pytest.raises(FundsError, match="the balance is"):
        publish(settings, replace(wish, reward_cents=200), confirm=lambda total: True)
    posted = publish(settings, wish, confirm=lambda total: total == 300)
    assert (posted.counts["hits_posted"], posted.counts["reward_cents"]) == (1, 60)
    rate(settings, [likeness] * 4 + [careless], environment=LIVE)
    assert harvest(settings, LIVE).counts["queued"] == 1
    with open_database(settings.db_url, read_only=True) as session:
        assert sum(journal.spent(session, LIVE).values()) == 240
    (row,) = queue(settings, LIVE).tables[0].rows
    rule(settings, [Ruling(int(str(row[0])), Decision.REJECT, "every pair has the same score")], LIVE)
    assert status(settings, LIVE).counts["paid_cents"] == 240
    again = publish(settings, RatePairs(LIVE, "sis", limit=7, probes=0), confirm=lambda total: total == 60)
    assert (again.counts["hits_again"], again.counts["assignments"]) == (1, 1)
    rate(settings, [likeness], environment=LIVE)
    assert harvest(settings, LIVE).counts["approved"] == 1
    assert check_pay(settings, LIVE).refusal is None
    with open_database(settings.db_url, read_only=True) as session:
        assert sum(journal.spent(session, LIVE).values()) == 300


def test_a_cap_counts_hits_of_ratings_too(posted):
    """Whoever has done as many as one may takes no more."""
    rate(posted, [likeness] * 2)
    assert harvest(replace(posted, max_hits_per_worker=2), SANDBOX).counts["capped"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--sandbox", "--task", "sas"), "'sas' is not one of 'sts', 'sis', 'sits'"),
        (("--task", "sts"), "say where to post: --sandbox is practice"),
        (
            ("--sandbox", "--task", "sts", "--per-hit", "3"),
            "--per-hit 3 leaves no pair to ask beside its 3 controls",
        ),
        (("--sandbox", "--task", "sts", "--out", "x"), "--out says where a dry run is written"),
        (("--sandbox", "--task", "sts", "--pilot", "0"), "0 is not in the range x>=1"),
    ],
)
def test_words_that_cannot_be_meant_are_one_line(settings, words, message):
    """Usage errors, told before anything is read."""
    assert message in fails(2, "rate", "publish", *words, "--project", settings.project)


def test_a_random_pair_that_careful_raters_find_alike_is_no_control(posted):
    """Two wait for a person; a third one clears them, and nobody's record keeps it."""

    def alike(worker, item):
        return 3.4 if item.role is SimilarityRole.RANDOM else likeness(worker, item)

    rate(posted, [alike] * 2)
    before = harvest(posted, SANDBOX).counts
    rate(posted, [alike, likeness, alike])
    after = harvest(posted, SANDBOX).counts

    assert (before["approved"], before["queued"]) == (0, 6)
    assert (after["approved"], after["queued"]) == (15, 0)
    with open_database(posted.db_url, read_only=True) as session:
        counts = answers.decision_counts(session, SANDBOX)
    assert counts == {Decision.PASS: 15}


def test_a_random_pair_that_is_no_control_is_none_on_any_page(posted):
    """A small set has few: who meets it on a second page waits for nobody."""
    in_pipeline(
        posted,
        "UPDATE similarity_item SET pair_id = (SELECT min(pair_id) FROM similarity_item WHERE role = 'random') "
        "WHERE role = 'random'",
    )

    def alike(worker, item):
        return 3.4 if item.role is SimilarityRole.RANDOM else likeness(worker, item)

    rate(posted, [alike] * 5, hits_each=1)
    harvest(posted, SANDBOX)
    rate(posted, [alike], hits_each=1)

    assert (harvest(posted, SANDBOX).counts["approved"], len(pages_of(posted))) == (1, 3)


def test_a_release_of_pairs_names_that_of_ratings(answered, tmp_path):
    """Where nobody judged a pair."""
    with pytest.raises(ReleaseError, match="`mitl rate release` releases the ratings of similarity"):
        build_dataset(answered, tmp_path / "release", SANDBOX)
