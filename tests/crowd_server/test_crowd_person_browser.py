"""A person's whole path in a real browser: invited, twenty pairs answered, sent, on to the next."""

from __future__ import annotations

import pytest
from browser_fixtures import becomes_true, enter_the_hit
from town_kit import MISSING, PLACES

from mitl.records import Concept, Label, Outcome, Shortcoming

pytest_plugins = ("crowd_fixtures", "browser_fixtures", "town_fixtures")
pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
LABELS = list(Label)


@pytest.fixture
def posted(town):
    """Posts HITs that are gone again after the test."""
    hits: list[str] = []

    def post(template: str, count: int = 1, **options: int) -> list[str]:
        hits.extend(town.post(template, count, **options))
        return hits

    yield post
    town.close(hits)


def label_of(place):
    """The answer that these people give at a place."""
    return LABELS[place % 4]


@pytest.mark.thorough
def test_by_mouse(town, posted, new_page):
    """List, preview, accept, instructions, large view, twenty answers, submit, next HIT, return."""
    hit, _ = posted("pairs-plain", 2)
    page = new_page(viewport={"width": 1280, "height": 900})

    page.goto(town.link())
    page.get_by_role("link", name="Preview").click()
    preview = page.frame_locator("iframe")
    preview.get_by_text("This is a preview.").wait_for()
    assert preview.locator("#send").is_disabled()
    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()
    frame = page.frame_locator("#hit")
    frame.get_by_role("button", name="Instructions").click()
    frame.get_by_role("button", name="Close").click()
    frame.locator("#p01 img").click()
    frame.get_by_role("button", name="Close").click()
    for place in range(1, PLACES + 1):
        frame.locator(f"label:has([name=p{place:02d}_label][value={label_of(place)}])").click()
    assert frame.locator("#count").inner_text() == "20 of 20"
    frame.get_by_role("button", name="Submit all answers").click()
    page.get_by_text("Submitted. Thank you!").wait_for()

    parsed = town.answers(hit, rationale=False)
    assert parsed.findings == ()
    assert [answer.label for answer in parsed.answers] == [label_of(place) for place in range(1, PLACES + 1)]
    assert sum(answer.active_ms or 0 for answer in parsed.answers) > 0
    page.get_by_role("button", name="Accept the next one").click()
    page.wait_for_load_state()
    page.frame_locator("#hit").get_by_text("0 of 20", exact=True).wait_for()
    page.get_by_role("button", name="Return this HIT").click()
    page.get_by_text("You returned the HIT").wait_for()


def test_by_keyboard_alone(town, posted, new_page):
    """Tab and Enter to the HIT, single keys through it, reasons by Space, Enter to send and to go on."""
    first, _ = posted("pairs-rationale", 2)
    page = new_page(viewport={"width": 1280, "height": 900})
    focus = "(e => e.id || e.textContent)(document.activeElement)"

    def tab_to(name: str) -> None:
        for _ in range(30):
            if page.evaluate(focus) == name:
                return
            page.keyboard.press("Tab")
        raise AssertionError(f"Tab never comes to {name}")

    page.goto(town.link())
    tab_to("Accept one")
    page.keyboard.press("Enter")
    frame = page.frame_locator("#hit")
    frame.get_by_text("0 of 20", exact=True).wait_for()
    enter_the_hit(page)
    page.keyboard.press("?")
    page.keyboard.press("Escape")
    for place in range(1, PLACES + 1):
        page.keyboard.press(str(1 + place % 4))
        if label_of(place).startswith("weak"):
            keys = ["Tab", "Tab", "Space", "Tab", "Tab", "Space", "n"]  # described_wrongly, quantity
            for key in keys if place % 8 < 4 else ["7", "a", "Enter"]:
                page.keyboard.press(key)
        # As a person would, look before the next key: a busy machine shows an answer late.
        frame.get_by_text(f"{place} of 20", exact=True).wait_for()
    page.keyboard.press("Enter")
    page.get_by_text("Submitted. Thank you!").wait_for()
    page.locator("button:focus", has_text="Accept the next one").wait_for()

    parsed = town.answers(first, rationale=True)
    assert parsed.findings == ()
    for answer in parsed.answers:
        wrong = label_of(answer.place).startswith("weak")
        assert answer.label == label_of(answer.place)
        assert answer.shortcomings == ((Shortcoming.DESCRIBED_WRONGLY,) if wrong else ())
        assert answer.concepts == ((Concept.QUANTITY,) if wrong else ())
    page.keyboard.press("Enter")
    page.frame_locator("#hit").get_by_text("0 of 20", exact=True).wait_for()


def test_by_thumb_on_a_phone(town, posted, new_page):
    """390 pixels, taps alone: nothing lies off the screen, and the whole HIT can be done and sent."""
    [hit] = posted("pairs-rationale")
    page = new_page(**PHONE)

    page.goto(town.link())
    page.get_by_role("button", name="Accept one").tap()
    page.wait_for_load_state()
    frame = page.frame_locator("#hit")
    frame.locator("#p01 img").tap()
    frame.get_by_role("button", name="Close").tap()
    for place in range(1, PLACES + 1):
        frame.locator(f"label:has([name=p{place:02d}_label][value={label_of(place)}])").tap()
        if label_of(place).startswith("weak"):
            frame.locator(f"label:has([name=p{place:02d}_shortcoming][value=grammar])").tap()
    widths = [
        page.evaluate("document.documentElement.scrollWidth"),
        page.frames[1].evaluate("document.documentElement.scrollWidth"),
    ]
    frame.get_by_role("button", name="To the end").tap()
    frame.get_by_role("button", name="Submit all answers").tap()
    page.get_by_text("Submitted. Thank you!").wait_for()
    page.wait_for_load_state()  # words can be read before the style sheet has come

    parsed = town.answers(hit, rationale=True)
    assert max(widths) <= 390
    assert parsed.findings == () and len(parsed.answers) == PLACES
    assert page.get_by_role("link", name="Back to the list").bounding_box()["height"] >= 44


FIT = """() => {
  const box = part => document.querySelector(part).getBoundingClientRect();
  const figure = box("#p02 figure"), bar = box("#bar");
  const heights = [...document.querySelectorAll("#p02 label, button")].map(target => target.offsetHeight);
  return {bar: bar.height, top: figure.top - bar.bottom, high: figure.height,
    left: innerHeight - box("#p02 fieldset").bottom, least: Math.min(...heights.filter(height => height))};
}"""


@pytest.mark.parametrize("words", [73, 250])
@pytest.mark.thorough
def test_a_pair_fits_a_phone_at_once(town, posted, new_page, words):
    """After a tap the picture, its description and the four answers lie in view; the bars take a sixth of a phone."""
    posted("pairs-rationale", 1, words=words)
    link = town.link()

    # On its side a phone holds a short description only.
    for width, height in [(390, 664), (375, 667), (360, 640), (412, 732), (664, 390)][
        : 5 if words < 100 else 4
    ]:
        page = new_page(**PHONE | {"viewport": {"width": width, "height": height}})
        page.goto(link)
        page.locator(".button, .actions button").first.tap()
        frame = page.frame_locator("#hit")
        frame.locator("#p01 label:has([value=no])").tap()
        frame.locator("#p02:focus").wait_for()
        fit = page.frames[1].evaluate(FIT)
        outer = page.evaluate("innerHeight - document.querySelector('#hit').offsetHeight")

        assert fit["top"] >= 0 and fit["left"] >= 0 and fit["high"] >= 130 and fit["least"] >= 44, (
            height,
            fit,
        )
        assert outer + fit["bar"] < (height / 6 if height > width else 110), (height, outer, fit)
        assert page.evaluate("document.documentElement.scrollHeight") == height


@pytest.mark.thorough
def test_with_an_image_that_fails(town, posted, new_page):
    """It is tried again, marked in one click, and the other nineteen answers arrive beside it."""
    [hit] = posted("pairs-plain", missing=True)
    page = new_page(viewport={"width": 1280, "height": 900}, tolerate="Failed to load resource")

    page.goto(town.link())
    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()
    frame = page.frame_locator("#hit")
    frame.locator(f"#p{MISSING:02d}").scroll_into_view_if_needed()
    frame.get_by_text("This image did not load.").wait_for()
    frame.get_by_role("button", name="Mark this and go on").click()
    for place in range(1, PLACES + 1):
        if place != MISSING:
            frame.locator(f"label:has([name=p{place:02d}_label][value=yes])").click()
    frame.get_by_role("button", name="Submit all answers").click()
    page.get_by_text("Submitted. Thank you!").wait_for()

    parsed = town.answers(hit, rationale=False)
    assert parsed.findings == ()
    outcomes = {answer.place: answer.outcome for answer in parsed.answers}
    assert outcomes.pop(MISSING) == Outcome.IMAGE_FAILED
    assert set(outcomes.values()) == {Outcome.ANSWERED} and len(outcomes) == PLACES - 1


@pytest.mark.thorough
def test_with_a_reload_in_the_middle(town, posted, new_page):
    """Answers, reasons, words and times come back; the rest is answered and all of it is sent."""
    [hit] = posted("pairs-rationale")
    page = new_page(viewport={"width": 1280, "height": 900})

    page.goto(town.link())
    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()
    frame = page.frame_locator("#hit")
    frame.locator("label:has([name=p01_label][value=weak_no])").click()
    frame.locator("#p01 [value=described_wrongly]").check()
    frame.locator("#p01 [value=location]").check()
    frame.locator("[name=p01_text]").fill("indoors, not “outdoors”")
    for place in range(2, 14):
        frame.locator(f"label:has([name=p{place:02d}_label][value=no])").click()
    becomes_true(page, "Object.values(localStorage).join().includes('p13_label')")
    page.reload()
    frame.get_by_text("13 of 20", exact=True).wait_for()
    for place in range(14, PLACES + 1):
        frame.locator(f"label:has([name=p{place:02d}_label][value=yes])").click()
    frame.get_by_role("button", name="Submit all answers").click()
    page.get_by_text("Submitted. Thank you!").wait_for()

    parsed = town.answers(hit, rationale=True)
    first = parsed.answers[0]
    assert parsed.findings == () and len(parsed.answers) == PLACES
    assert (first.label, first.concepts) == (Label.WEAK_NO, (Concept.LOCATION,))
    assert first.text == "indoors, not “outdoors”"
    becomes_true(page, "!Object.keys(localStorage).some(key => key.startsWith('mitl-draft'))")


def test_without_scripts(town, posted, new_page):
    """Links and forms alone: the answers arrive, reasons from a list included."""
    [hit] = posted("pairs-rationale", places=2)
    page = new_page(java_script_enabled=False)

    page.goto(town.link())
    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()
    frame = page.frame_locator("#hit")
    frame.locator("[name=p01_label][value=yes]").check()
    frame.locator("[name=p02_label][value=weak_yes]").check()
    frame.locator("#p02 [value=described_wrongly]").check()
    frame.locator("[name=p02_concept]").select_option(["age", "action"])
    frame.get_by_role("button", name="Submit all answers").click()
    frame.get_by_text("Thank you, your answers arrived").wait_for()

    parsed = town.answers(hit, rationale=True, places=2)
    assert parsed.findings == ()
    assert [answer.concepts for answer in parsed.answers] == [(), (Concept.AGE, Concept.ACTION)]
