"""The pages of ratings where people meet them: in the crowd server's frame, under its policy, with its drafts."""

from __future__ import annotations

import pytest
from axe_kit import violations
from browser_fixtures import becomes_true
from crowd_kit import TYPE, post_hit
from similarity_page_kit import IMAGES, MIXED, NAMES, TEXTS, item, template

from mitl.campaign.kinds.similarity.answers import parse_ratings
from mitl.campaign.kinds.similarity.packing import render_similarity
from mitl.hits.rendering import question_xml
from mitl.records import Outcome

pytest_plugins = ("crowd_fixtures", "browser_fixtures", "town_fixtures")
pytestmark = pytest.mark.browser

DESK = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"}
PHONE = {
    "viewport": {"width": 390, "height": 844},
    "is_mobile": True,
    "has_touch": True,
    "reduced_motion": "reduce",
}


def post(town, name):
    """A HIT of three pairs; its id."""
    addresses = [f"/i/{place:032x}.png" for place in range(1, 7)]
    texts = [f"A description, number {place}." for place in range(1, 7)]
    page = [
        item(
            name,
            place,
            (texts if name == TEXTS else addresses)[place],
            (addresses if name == IMAGES else texts)[place + 2],
        )
        for place in (1, 2, 3)
    ]
    wording = template(name)
    html = render_similarity(wording, page, contact="lab@example.org", estimate_s=60)
    kind = TYPE | {"Title": wording.title, "Description": wording.description}
    hit_type = town.client.create_hit_type(**kind)["HITTypeId"]
    return post_hit(town.client, hit_type, Question=question_xml(html))["HITId"]


@pytest.mark.parametrize("size", [pytest.param(DESK, id="1280"), pytest.param(PHONE, id="390")])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.thorough(but=("similarity-mixed-390",))
def test_a_worker_rates_reloads_and_submits(town, new_page, name, size):
    """Answers survive a reload of the page around; the requester reads the scores, the comment and the times."""
    hit = post(town, name)
    page = new_page(**size)
    page.goto(town.link())
    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()
    frame = page.frame_locator("#hit")

    frame.locator("#p01 [type=range]").focus()
    page.keyboard.press("4")
    page.keyboard.press("ArrowLeft")
    line = frame.locator("#p02 .slide")
    width = line.bounding_box()["width"]
    (line.tap if size is PHONE else line.click)(position={"x": width * 0.3, "y": 24})
    frame.locator("[name=p02_text]").fill("both by the sea")
    becomes_true(page, "Object.values(localStorage).join().includes('by the sea')")
    page.reload()
    frame.locator("#p02.done").wait_for()
    assert frame.locator("#count").inner_text().startswith("2 of 3")
    assert not frame.locator("#p03 .slide i").is_visible()
    assert violations(page) + violations(page, page.frames[1]) == []
    frame.get_by_label("Skip").nth(2).check()
    frame.get_by_role("button", name="Submit all answers").click()
    page.get_by_text("Submitted. Thank you!").wait_for()

    [own] = town.client.list_assignments_for_hit(HITId=hit)["Assignments"]
    parsed = parse_ratings(own["Answer"], places=[1, 2, 3])
    assert parsed.findings == ()
    first, second, third = parsed.answers
    assert (first.score, third.score, third.outcome) == (3.9, None, Outcome.SKIPPED)
    assert second.score == pytest.approx(1.5, abs=0.03) and second.text == "both by the sea"
    assert sum(answer.active_ms or 0 for answer in parsed.answers) > 0


def test_a_preview_shows_the_words_of_the_levels(town, new_page):
    """Before anybody accepts it; nothing can be rated."""
    hit = post(town, MIXED)
    page = new_page(**DESK)
    page.goto(town.link())
    page.get_by_role("link", name="Preview").first.click()
    frame = page.frame_locator("iframe")
    frame.get_by_text("This is a preview.").wait_for()

    frame.locator("#p01 .marks button").nth(5).click()

    assert frame.locator("#p01 .tip").inner_text().startswith("5: It fits in every respect")
    assert frame.locator("#p01 [type=range]").is_disabled()
    town.close([hit])
