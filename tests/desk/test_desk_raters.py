"""Who gives one number, drifts or straight-lines shows on the desk and in `mitl workers`; honest raters stay plain."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace

import pytest
from axe_kit import violations
from cli_kit import ok
from desk_kit import open_desk, written
from similarity_kit import rate, run_rate, sample_pairs
from world_kit import SANDBOX, make_world

from mitl.cli.reference import COUNTS
from mitl.db.session import open_database
from mitl.db.store.desk import submission_groups, worker_submissions
from mitl.desk import worker_pages
from mitl.judgements.gold_records import GoldRecord, GoldState
from mitl.records.similarity import SimilarityRole
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.reviewing.desk_submission import waiting
from mitl.stages.reviewing.evidence import crowd, habits
from mitl.stages.reviewing.workers import workers

pytest_plugins = ("browser_fixtures",)
N = 40
STYLES = (*["honest"] * 5, "one number", "drift", "line")


@pytest.fixture(scope="module")
def rated(tmp_path_factory):
    """A project whose forty pairs of captions eight people have rated, each in their own way."""
    settings = make_world(tmp_path_factory.mktemp("raters") / "p", n_images=N)
    sample_pairs(settings, n=N)
    run_rate(settings, "sts", assignments=len(STYLES))
    rng = random.Random(4)
    done: Counter[int] = Counter()

    def truth(item):
        known = {SimilarityRole.IDENTICAL: 4.8, SimilarityRole.RANDOM: 0.3}
        return known.get(item.role, 1 + (7 * item.left + 3 * item.right) % 30 / 10)

    def rater(worker, item):
        at = done[worker]
        done[worker] += 1
        score = {
            "honest": truth(item) + rng.gauss(0, 0.3),
            "one number": 3 + rng.uniform(-0.04, 0.04),
            "drift": 0.4 * truth(item) + at / 57 * 2.5 + rng.gauss(0, 0.2),
            "line": at // 10 * 37 % 11 / 2,
        }[STYLES[worker]]
        return round(min(max(score, 0), 5), 2)

    rate(settings, [rater] * len(STYLES), ms=9000)
    harvest(settings, SANDBOX)
    return settings


@pytest.fixture
def raters(rated):
    """As `mitl workers` counts them, by what was noticed first."""
    return workers(rated).counts["raters"]


def noticed(rater):
    """Codes."""
    return {finding["code"] for finding in rater["findings"]}


def test_each_habit_is_noticed_and_nobody_honest(raters):
    """One number, drift and straight line each on one rater, with figures."""
    by_code = {
        code: [rater for rater in raters if code in noticed(rater)]
        for code in ("one_number_rater", "straight_line", "drift")
    }
    ((one,), (line,)) = by_code["one_number_rater"], by_code["straight_line"]
    (drifting,) = (
        rater for rater in by_code["drift"] if rater is not line
    )  # lines of rising height drift too

    assert len([rater for rater in raters if not noticed(rater)]) == STYLES.count("honest")
    assert one["one_number_share"] == 1 and one["spread"] < 0.05
    assert line["repeats_longest"] >= 9 and drifting["drift_low"] > 0.5
    assert all(rater["ratings"] == N and rater["seconds_a_pair"] == 9 for rater in raters)


def test_workers_tells_them_in_a_table_and_in_words(rated, raters):
    """A row for each rater, a sentence for each finding, and documented keys of --json."""
    odd = [rater for rater in raters if rater["findings"]]

    said = ok("workers", "--project", rated.project).out
    printed = ok("workers", "--project", rated.project, "--json").json

    assert f"raters of likeness: {len(STYLES)}" in said
    words = re.sub(r"\s+", " ", said)
    assert "0 of 0" not in words and "0.50 (" not in words, "nobody met a gold control of pairs"
    for rater in odd:
        for finding in rater["findings"]:
            assert f"{rater['worker']}: {finding['detail']}" in words
    assert printed["counts"]["raters"] == raters
    documented = str(COUNTS["workers"]["raters"])
    assert [key for key in raters[0] if key not in documented] == []


def test_the_overview_counts_what_raters_sent(rated):
    """Submissions of every kind, by the hour; answers on pairs are none."""
    with open_desk(rated) as desk:
        page = desk.get("/")

    text = re.sub(r"\s+", " ", written(page))
    assert re.search(r"In the last hour ([1-9][0-9]*) of \1 submissions", text)
    assert "Submissions in each of the last 24 hours" in page.text
    assert "answers on pairs" not in text


def test_a_poor_record_on_pairs_sets_no_ratings_aside(rated):
    """What a worker rated stays used; exclusion sets it aside."""
    with open_database(rated.db_url, read_only=True) as session:
        known = habits(session, SANDBOX, rated.gold_rule)
        one = max(crowd(session, SANDBOX, known).workers, key=lambda worker: worker.used)
        poor = GoldState({one.worker: GoldRecord(0, 8)}, frozenset())
        judged = crowd(session, SANDBOX, replace(known, golds=poor)).find(one.id)
        (work, *_) = worker_submissions(session, submission_groups(session, SANDBOX))

    assert judged.standing == "poor"
    assert judged.used == judged.approved == one.used > 0
    assert replace(work, excluded=True).used(GoldRecord(0, 8)) == 0


def test_the_workers_page_lists_raters_the_odd_first(rated, raters):
    """In words, with a link to the panel that says how."""
    with open_desk(rated) as desk:
        page = desk.get("/workers")

    text = written(page)
    odd, plain = text.index("one number"), text.rindex("nothing")
    assert odd < plain and "Raters of likeness" in text
    for word in ("drift", "answers repeat", "poor on controls"):
        assert word in text
    assert len(re.findall(r'href="/workers/\d+#ratings"', page.text)) == len(STYLES)


def test_many_raters_stand_on_several_pages(rated, monkeypatch):
    """Each once; of people who only rate, no table above says what is known of answers on pairs alone."""
    monkeypatch.setattr(worker_pages, "A_PAGE", 2)
    seen, pages = [], range(1, 1 + -(-len(STYLES) // 2))
    with open_desk(rated) as desk:
        for page in pages:
            text = desk.get(f"/workers?raters={page}").text
            assert "unproven" not in text and "Gold record" not in text
            seen += re.findall(r'href="/workers/(\d+)#ratings"', text)
            assert (f"raters={page + 1}#raters-title" in text) == (page < pages[-1])

    assert len(seen) == len(set(seen)) == len(STYLES)


def test_a_raters_page_shows_what_was_noticed_and_the_scores(rated, raters):
    """Findings in sentences, two drawings with words for who cannot see them, and scores in place of labels."""
    with open_desk(rated) as desk:
        with desk.desk.reading() as context:
            known = desk.desk.crowd(context, desk.desk.frame(context)).workers
        numbers = {one.worker: one.id for one in known}
        for rater in raters:
            page = desk.get(f"/workers/{numbers[rater['worker']]}")
            text = written(page)
            for finding in rater["findings"]:
                assert finding["detail"][1:] in text.replace("&#39;", "'")
            assert ("Nothing odd" in text) == (not rater["findings"])
            assert page.text.count('role="img" aria-label="S') >= 2
            assert page.text.count('class="cell score"') >= N
            assert not re.search("unreadable|unproven|control passed", text)  # which is said of pairs alone


def test_who_decides_about_ratings_sees_the_raters_record(rated, raters):
    """Beside a submission that waits: controls of ratings, what others gave, what was noticed."""
    [poor] = (rater for rater in raters if "one_number_rater" in noticed(rater))
    with open_desk(rated) as desk:
        with desk.desk.reading() as context:
            [number] = [row.id for row in waiting(context.session, SANDBOX) if row.worker == poor["worker"]][
                :1
            ]
        text = re.sub(r"\s+", " ", written(desk.get(f"/queue/{number}")))

    assert f"Controls {poor['controls_passed']} of {poor['controls']} of ratings" in text
    assert "Noticed one number" in text


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("path", ["", *(f"/{number}" for number in range(1, len(STYLES) + 1))])
@pytest.mark.thorough(but=("-390", "/1-390", f"/{len(STYLES)}-390"))
def test_the_pages_are_accessible_and_fit(rated, new_page, path, width):
    """axe finds nothing wrong in either color scheme; nothing is wider than the screen."""
    with open_desk(rated) as desk:
        page = new_page(viewport={"width": width, "height": 900})
        page.goto(f"{desk.url}/?token={desk.desk.access.token}")
        page.get_by_role("heading", name="Overview").wait_for()
        page.goto(f"{desk.url}/workers{path}")
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") == width
