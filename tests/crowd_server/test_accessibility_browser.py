"""axe-core finds nothing wrong on any page that a person meets, in both color schemes, on a desk and in a hand."""

from __future__ import annotations

import datetime as dt

import pytest
from axe_kit import violations

from mitl.crowd_server import admin
from mitl.crowd_server.store import workers
from mitl.crowd_server.store.workers import StudyRow
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures", "browser_fixtures", "hit_page_fixtures", "town_fixtures")
pytestmark = pytest.mark.browser

STILL = {"reduced_motion": "reduce"}
"""A color on its way to another is neither."""
OTHERS = ("work", "qualifications", "messages")
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


@pytest.mark.parametrize("name", ["pairs-plain", "pairs-rationale"])
@pytest.mark.thorough
def test_the_hit_page(open_page, site, name):
    """As it comes, with all states and follow-ups shown, and with each of its panels open."""
    page = open_page(site.show(name, 5, missing=5) + site.query(), tolerate="Failed to load resource")

    found = violations(page)
    for key in "1s2":
        page.keyboard.press(key)
    if name == "pairs-rationale":
        page.check("#p03 [value=described_wrongly]")
    page.locator("#p05").scroll_into_view_if_needed()
    page.get_by_text("This image did not load.").wait_for()
    page.click("#send")
    found += violations(page)
    for opener in ["#how", "#help", "#p01 img"]:
        page.click(opener)
        found += violations(page)
        page.keyboard.press("Escape")

    assert found == []


def test_the_hit_page_on_a_phone_and_as_a_preview(open_page, site):
    """One column, the large view by touch, and everything switched off."""
    page = open_page(site.show("pairs-rationale", 3) + site.query(), **PHONE)

    page.tap("#p01 label:has([value=weak_yes])")
    found = violations(page)
    page.tap("#p01 img")
    found += violations(page)
    page.goto(f"{site.url}/pairs-rationale{site.query('ASSIGNMENT_ID_NOT_AVAILABLE')}")
    found += violations(page)

    assert found == []


def test_the_pages_around_the_hit(town, new_page):
    """List, preview, HIT in its frame, sent, the same again later, their work: page by page and frame by frame."""
    town.post("pairs-plain", 2, places=1)
    page = new_page(**STILL)
    found: dict[str, list[str]] = {}

    page.goto(town.link())
    found["list"] = violations(page)
    page.get_by_role("link", name="Preview").click()
    page.frame_locator("iframe").get_by_text("This is a preview.").wait_for()
    found["preview"] = violations(page) + violations(page, page.frames[1])
    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()
    frame = page.frame_locator("#hit")
    frame.locator("label:has([name=p01_label][value=yes])").click()
    found["HIT"] = violations(page) + violations(page, page.frames[1])
    here = page.url
    frame.get_by_role("button", name="Submit all answers").click()
    page.get_by_text("Submitted. Thank you!").wait_for()
    found["sent"] = violations(page)
    for name, address in [("submitted", here), *((name, f"{town.crowd.url}/w/{name}") for name in OTHERS)]:
        page.goto(address)
        found[name] = violations(page)

    assert found == {name: [] for name in found}


@pytest.mark.thorough
def test_study_information_and_the_operators_page(crowd, new_page):
    """What people are asked before the first HIT, and what the operator sees, signed out and in."""
    study = StudyRow(
        environment=Environment.SANDBOX,
        version=1,
        title="A study of captions",
        information="You will see images.\n\nYou are paid for each HIT.",
        contact="lab@example.org",
        warning="A few images may be upsetting.",
        consent="I am 18 or older.",
        changed_at=dt.datetime(2026, 11, 1, tzinfo=dt.UTC),
    )
    with crowd.engine.begin() as connection:
        workers.save_study(connection, study)
    [invitation] = admin.invite(crowd.engine, Environment.SANDBOX, clock=crowd.clock)
    page = new_page(tolerate="403", **STILL)
    found: dict[str, list[str]] = {}

    page.goto(crowd.url + invitation.path)
    page.get_by_role("button", name="I agree").wait_for()
    found["study"] = violations(page)
    page.get_by_role("button", name="I do not take part").click()
    found["declined"] = violations(page)
    page.goto(crowd.url + "/operator")
    found["sign-in"] = violations(page)
    page.goto(f"{crowd.url}/operator?token={admin.operator_token(crowd.engine)}")
    found["operator"] = violations(page)

    assert found == {name: [] for name in found}
