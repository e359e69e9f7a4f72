"""Pages that ask something else than pairs, on the desk: their answers, their rule, and what a person decides."""

from __future__ import annotations

from html import escape

import pytest
from desk_kit import open_desk, written
from harvest_kit import in_pipeline
from similarity_kit import likeness, rate, run_rate, sampled
from world_kit import SANDBOX

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
    assert "The rater: 100% of 16 scores lie within 0.05 of 3.00" in said
    assert "could not be read" not in said
    assert "<b>" not in page.text and escape("<b>") in page.text

    assert opened.post(f"/queue/{row.id}/decide", {"decision": "drop"}).status_code == 200
    opened.settle()
    assert opened.row(row.id).decision is Decision.DROP
    for other in others:
        opened.post(f"/queue/{other.id}/decide", {"decision": "drop"})
    opened.settle()
    assert "3 pages have to be asked again: mitl rate publish --sandbox" in written(opened.get("/"))
