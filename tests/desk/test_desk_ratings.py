"""Pages that ask something else than pairs, on the desk: their answers, their rule, and what a person decides."""

from __future__ import annotations

from html import escape

import pytest
from desk_kit import open_desk, written
from harvest_kit import in_pipeline, submissions
from prefer_kit import answered
from similarity_kit import likeness, rate, run_rate, sampled
from sqlalchemy import text
from world_kit import SANDBOX

from mitl.db.session import open_database
from mitl.records import Decision
from mitl.stages.harvesting.harvest import harvest


@pytest.fixture
def opened(tmp_path):
    """The desk over ratings of four careful people and one who gives one number for everything."""
    settings = sampled(tmp_path / "p")
    in_pipeline(settings, "UPDATE part SET text = '<b>' || text WHERE text IS NOT NULL")
    run_rate(settings)
    rate(settings, [likeness] * 4 + [lambda worker, item: 3.0])
    harvest(settings, SANDBOX)
    with open_desk(settings) as desk:
        yield desk


def test_a_submission_of_ratings_says_why_it_waits_and_a_person_decides_as_about_pairs(opened):
    """The page shows what each place got and should have got, captions escaped; what is dropped is paid.

    Its pairs wait to be asked again then.
    """
    row, *others = opened.rows(Decision.QUEUED)
    page = opened.get("/queue")
    said = written(page)
    assert page.url.path == f"/queue/{row.id}"
    assert "All pairs were rated with one number" in said
    assert "Failed a control: the score is not what its pair must have" in said
    assert "a random pair has 2 or less" in said
    assert "The rater: 100 % of 16 scores lie within 0.05 of 3.00" in said
    for pairs_alone in ("could not be read", "unproven", "Longest run"):
        assert pairs_alone not in said
    assert "<b>" not in page.text and escape("<b>") in page.text

    assert opened.post(f"/queue/{row.id}/decide", {"decision": "drop"}).status_code == 200
    opened.settle()
    assert opened.row(row.id).decision is Decision.DROP
    for other in others:
        opened.post(f"/queue/{other.id}/decide", {"decision": "drop"})
    opened.settle()
    assert "3 pages have to be asked again: mitl rate publish --sandbox" in written(opened.get("/"))


def test_images_that_were_compared_are_shown(tmp_path):
    """Beside their names; one that neither a file nor an address leads to has its name alone."""
    settings = sampled(tmp_path / "p")
    run_rate(settings, "sis")
    rate(settings, [lambda worker, item: 3.0])
    harvest(settings, SANDBOX)
    in_pipeline(settings, "UPDATE part SET file = NULL, url = 'https://lab.example/' || item_id || '.png'")

    with open_desk(settings) as desk:
        row = desk.rows(Decision.QUEUED)[0]
        shown = desk.get(f"/queue/{row.id}").text
        in_pipeline(settings, "UPDATE part SET url = NULL")
        bare = desk.get(f"/queue/{row.id}").text

    assert shown.count('<img src="https://lab.example/') == 2 * shown.count('data-label="place"') > 0
    assert "<img" not in bare and bare.count('data-label="first"') == shown.count('data-label="first"')


def test_what_was_searched_for_is_told_in_words(tmp_path):
    """A reviewer of preferences reads the description, not its number."""
    settings = answered(tmp_path / "p")
    with open_database(settings.db_url, read_only=True) as session:
        texts = set(session.scalars(text("SELECT text FROM part WHERE text IS NOT NULL")))

    with open_desk(settings) as desk:
        said = desk.get(f"/queue/{submissions(settings)[0].id}").text

    assert any(escape(one) in said for one in texts)
