"""A panel's participant in a real browser: on a phone, without scripts; drafts that outlive the browser."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from axe_kit import violations
from browser_fixtures import EXECUTABLE, becomes_true
from crowd_kit import HTML, TYPE, post_hit, question

from mitl.crowd_server import admin
from mitl.crowd_server import admin as panel_admin
from mitl.crowd_server.admin import PanelPlan
from mitl.crowd_server.pages.panels import End
from mitl.crowd_server.store.models import VisitState
from mitl.hits.rendering import PagePair, question_xml, render_page
from mitl.hits.templates import load_template
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures", "browser_fixtures")
pytestmark = pytest.mark.browser

SANDBOX = Environment.SANDBOX
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
DOT = "https://127.0.0.1:1/none.png"
PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAP///wAAACwAAAAAAQABAAACAkQBADs="


def real_page(template="pairs-plain"):
    """A real HIT of two pairs with pictures inlined, so that nothing is fetched."""
    pairs = [PagePair(place, DOT, f"A description, number {place}.") for place in (1, 2)]
    return question_xml(render_page(load_template(template), pairs).replace(DOT, PIXEL))


def study(crowd, hits=1):
    """A described study with a panel on it."""
    ends = {
        VisitState.COMPLETED: End("", "C1DONE7"),
        VisitState.NO_CONSENT: End("", "C1NONE2"),
        VisitState.NOTHING_LEFT: End("", "C1FULL9"),
    }
    panel_admin.add_panel(crowd.engine, SANDBOX, PanelPlan("prolific", "pairs", None, hits, ends))
    texts = {
        "title": "Do captions fit?",
        "information": "You see photographs.\n\nYou may stop at any time.",
        "contact": "captions@lab.example",
        "warning": "A few photographs may be upsetting.",
        "consent": "I am 18 or older and take part.",
    }
    panel_admin.change_study(crowd.engine, SANDBOX, texts)


def link(crowd, pid=1):
    """The study link of this participant."""
    query = {"PROLIFIC_PID": f"{pid:024x}", "STUDY_ID": "st", "SESSION_ID": f"s{pid}"}
    return f"{crowd.url}/p/pairs?{urlencode(query)}"


def post(crowd, count, xml):
    """HITs of one type on the sandbox."""
    client = crowd.boto()
    hit_type = client.create_hit_type(**TYPE)["HITTypeId"]
    for _ in range(count):
        post_hit(client, hit_type, Question=xml)
    return client


def submitted(client):
    """How many assignments were submitted."""
    return sum(
        client.list_assignments_for_hit(HITId=hit["HITId"])["NumResults"]
        for hit in client.list_hits()["HITs"]
    )


@pytest.mark.thorough
def test_a_whole_visit_on_a_phone(crowd, new_page):
    """Declined, reconsidered, a HIT, a look between, another, the end: nothing scrolls sideways, axe is content."""
    study(crowd, hits=2)
    client = post(crowd, 2, real_page())
    page = new_page(color_scheme="dark", **PHONE)
    faults = {}

    def look(name):
        faults[name] = violations(page)
        if page.evaluate("document.documentElement.scrollWidth") > 390:
            faults[name].append("scrolls sideways")

    def answer():
        frame = page.frame_locator("#hit")
        for place in ("p01", "p02"):
            frame.locator(f"label:has([name={place}_label][value=yes])").tap()
        frame.get_by_role("button", name="Submit all answers").tap()
        page.get_by_role("heading", name="hank you").wait_for()

    page.goto(link(crowd))
    look("study")
    page.get_by_role("button", name="I do not take part").tap()
    page.get_by_text("C1NONE2", exact=True).wait_for()
    look("no consent")
    page.get_by_role("link", name="I changed my mind").tap()
    page.get_by_role("button", name="I agree and take part").tap()
    page.locator("summary", has_text="More").tap()
    look("HIT")
    answer()
    look("sent")
    page.get_by_role("link", name="Your visit").first.tap()
    page.get_by_role("button", name="Start the next HIT").wait_for()
    look("between")
    page.get_by_role("button", name="Start the next HIT").tap()
    answer()
    page.get_by_text("C1DONE7", exact=True).wait_for()
    look("complete")
    page.goto(link(crowd, 2))
    page.get_by_role("button", name="I agree and take part").tap()
    page.get_by_text("C1FULL9", exact=True).wait_for()
    look("nothing left")

    assert submitted(client) == 2
    assert faults == {name: [] for name in faults}


@pytest.mark.thorough
def test_a_visit_without_scripts(crowd, new_page):
    """Study, HIT, sent, on, next, end: by links, forms and buttons alone."""
    study(crowd, hits=2)
    client = post(crowd, 2, question(HTML))
    page = new_page(java_script_enabled=False)

    page.goto(link(crowd))
    page.get_by_role("button", name="I agree and take part").click()
    for onward in ("Accept the next one", ""):
        frame = page.frame_locator("#hit")
        frame.get_by_label("yes").check()
        frame.get_by_role("button", name="Send").click()
        frame.get_by_text("Thank you, your answers arrived").wait_for()
        page.get_by_role("link", name="go on here").click()
        if onward:
            page.get_by_text("Submitted. Thank you!").wait_for()
            page.get_by_text(onward, exact=True).click()

    page.get_by_text("C1DONE7", exact=True).wait_for()
    assert submitted(client) == 2


@pytest.mark.thorough
def test_the_list_without_scripts(crowd, new_page):
    """An invited worker accepts, sends and takes the next one."""
    client = post(crowd, 2, question(HTML))
    [invitation] = admin.invite(crowd.engine, SANDBOX, clock=crowd.clock)
    page = new_page(java_script_enabled=False)

    page.goto(crowd.url + invitation.path)
    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()
    for onward in ("Accept the next one", "Back to the list"):
        frame = page.frame_locator("#hit")
        frame.get_by_role("button", name="Send").click()
        frame.get_by_text("Thank you, your answers arrived").wait_for()
        page.get_by_role("link", name="go on here").click()
        page.get_by_text(onward, exact=True).click()

    page.get_by_text("No HITs are open for you").wait_for()
    assert submitted(client) == 2


def test_a_draft_outlives_the_browser_and_goes_with_the_submission(crowd, browser, tmp_path):
    """Closed and opened again, the HIT has its answers; once sent, nothing of them is left in the browser."""
    post(crowd, 1, real_page())
    [invitation] = admin.invite(crowd.engine, SANDBOX, clock=crowd.clock)

    def start():
        return browser.browser_type.launch_persistent_context(
            str(tmp_path / "profile"), executable_path=str(EXECUTABLE), args=["--no-sandbox"]
        )

    first = start()
    page = first.new_page()
    page.goto(crowd.url + invitation.path)
    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()
    page.frame_locator("#hit").locator("label:has([name=p01_label][value=weak_no])").click()
    for _ in range(200):
        if "weak_no" in page.evaluate("Object.values(localStorage).join()"):
            break
        page.wait_for_timeout(50)
    first.close()

    second = start()
    page = second.new_page()
    page.goto(crowd.url + "/w")
    page.get_by_role("link", name="Go on with it").click()
    frame = page.frame_locator("#hit")
    frame.locator("[name=p01_label][value=weak_no]:checked").wait_for(state="attached")
    frame.locator("label:has([name=p02_label][value=no])").click()
    frame.get_by_role("button", name="Submit all answers").click()
    page.get_by_text("Submitted. Thank you!").wait_for()
    becomes_true(page, "Object.keys(localStorage).length === 0")
    second.close()


@pytest.mark.thorough
def test_too_much_text_is_not_lost(crowd, new_page):
    """Refused for its length, it is back in its field by one click, to be shortened and sent."""
    client = post(crowd, 1, real_page("pairs-rationale"))
    [invitation] = admin.invite(crowd.engine, SANDBOX, clock=crowd.clock)
    page = new_page(tolerate="413")
    page.goto(crowd.url + invitation.path)
    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()
    frame = page.frame_locator("#hit")
    frame.locator("label:has([name=p02_label][value=yes])").click()
    frame.locator("label:has([name=p01_label][value=weak_yes])").click()
    frame.locator("label:has([name=p01_shortcoming][value=not_in_image])").click()
    # The page itself keeps people from typing as much.
    frame.locator("[name=p01_text]").evaluate(
        """box => {
          box.removeAttribute("maxlength");
          box.value = "x".repeat(600000);
          box.dispatchEvent(new Event("input", {bubbles: true}));
        }"""
    )
    for _ in range(200):
        if page.evaluate("Object.values(localStorage).join().length") > 600_000:
            break
        page.wait_for_timeout(50)

    frame.get_by_role("button", name="Submit all answers").click()
    page.get_by_text("too long, and was not taken").wait_for()
    page.get_by_role("link", name="Go back to your answers").click()
    frame.locator("[name=p01_label][value=weak_yes]:checked").wait_for(state="attached")

    assert submitted(client) == 0
    assert frame.locator("[name=p01_text]").evaluate("box => box.value.length") == 600_000


def test_late_answers_show_that_they_are_kept(crowd, new_page):
    """The page says so in the frame, and the list of one's work says it later."""
    post(crowd, 1, question(HTML))
    [invitation] = admin.invite(crowd.engine, SANDBOX, clock=crowd.clock)
    page = new_page(tolerate="410")
    page.goto(crowd.url + invitation.path)
    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()
    send = page.frame_locator("#hit").get_by_role("button", name="Send")
    send.wait_for()
    crowd.clock.advance(hours=2)

    send.click()
    page.get_by_text("has arrived and is kept").wait_for()
    assert page.locator("iframe").count() == 0
    page.get_by_role("link", name="Back to the list").click()
    page.get_by_role("link", name="See each HIT that you sent").click()

    page.get_by_text("Came too late, but kept").wait_for()
