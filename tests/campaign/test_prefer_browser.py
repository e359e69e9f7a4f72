"""The page of rankings in a real browser: keyboard, reasons, drafts, lost images, phones, no scripts, accessibility."""

from __future__ import annotations

import pytest
from axe_kit import violations
from browser_fixtures import becomes_true, compose
from hit_page_kit import press_before_views

from mitl.crowd.answers import parse_comparisons
from mitl.hits.rendering import PageComparison, PageResult, question_xml, render_rankings
from mitl.hits.templates import load_template, template_names
from mitl.protocol.answer_xml import answers_xml
from mitl.protocol.pages import bind_submission
from mitl.records import BatchKind, Outcome, Preference
from mitl.records.questions import TEXT

pytest_plugins = ("browser_fixtures", "hit_page_fixtures")
pytestmark = pytest.mark.browser

NAMES = template_names(asks=BatchKind.RANKINGS)
WORDS = "A rather long description of what somebody saw on a day by the sea, number"


def show(site, name="rankings-plain", count=3, *, of_images=True, missing=False):
    """Serve a page of this many comparisons; its path."""

    def results(place, side):
        return tuple(
            PageResult(
                "",
                f"/i/{'missing' if missing and place == 1 and rank == 2 else f'{place}{side}{rank}'}.png",
                rank == 1,
            )
            if of_images
            else PageResult(f"{WORDS} {rank}.", "", rank == 1)
            for rank in range(1, 6)
        )

    page = [
        PageComparison(
            place,
            f"{WORDS} {place}." if of_images else "",
            "" if of_images else f"/i/{place}.png",
            results(place, "l"),
            results(place, "r"),
        )
        for place in range(1, count + 1)
    ]
    path = f"/{name}-{of_images}"
    site.pages[path] = render_rankings(load_template(name), page, contact=None, estimate_s=60)
    return path


def parsed(site, count, *, rationale=False):
    """What the one post holds."""
    ((_, fields),) = site.posted
    found = parse_comparisons(
        answers_xml(fields), places=range(1, count + 1), questions=(TEXT,) if rationale else ()
    )
    assert found.findings == ()
    return [(answer.outcome, answer.answer, answer.text) for answer in found.answers]


def test_an_enter_that_takes_a_word_goes_nowhere(open_page, site):
    """With an input method the first Enter takes what was composed, so the worker is still writing."""
    page = open_page(show(site, "rankings-reasons") + site.query())
    page.keyboard.press("1")

    compose(page, "ねこ")

    assert page.evaluate("document.activeElement.name") == "p01_text"
    assert page.input_value("[name=p01_text]") == "ねこ"


def test_the_whole_page_by_keyboard(open_page, site):
    """1, 2, 3 and their letters answer and go on, S skips; the post holds it all, with times."""
    page = open_page(show(site, count=5) + site.query())

    for key in ["1", "2", "r", "s", "k", "j", "e"]:
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    page.wait_for_selector("#thanks")

    assert site.posted[0][0] == "/s/T/mturk/externalSubmit"
    assert parsed(site, 5) == [
        (Outcome.ANSWERED, Preference.LEFT, ""),
        (Outcome.ANSWERED, Preference.EQUAL, ""),
        (Outcome.ANSWERED, Preference.RIGHT, ""),
        (Outcome.SKIPPED, None, ""),
        (Outcome.ANSWERED, Preference.EQUAL, ""),
    ]


def test_keys_pressed_before_a_view_is_drawn_answer_the_searches_they_led_to(open_page, site):
    """What is told late of a view that is gone leads nobody back to a search that has its answer."""
    page = open_page(show(site, count=7) + site.query())
    page.locator(".now").wait_for()

    press_before_views(page, "12", "31", "23")

    answers = page.eval_on_selector_all("[name$=_prefer]:checked", "all => all.map(({value}) => value)")
    assert answers == ["left", "equal", "right"] * 2


def test_reasons_are_typed_after_the_answer_and_enter_goes_on(open_page, site):
    """Keys are letters there, and Enter does not send the form."""
    page = open_page(show(site, "rankings-reasons", 2) + site.query())

    page.keyboard.press("3")
    page.keyboard.type("1 more boat")
    page.keyboard.press("Enter")
    page.keyboard.press("1")
    page.keyboard.press("Enter")
    assert site.posted == [] and page.evaluate("document.activeElement.id") == "send"
    page.keyboard.press("Enter")
    page.wait_for_selector("#thanks")

    assert parsed(site, 2, rationale=True) == [
        (Outcome.ANSWERED, Preference.RIGHT, "1 more boat"),
        (Outcome.ANSWERED, Preference.LEFT, ""),
    ]


def test_a_tap_goes_on_and_what_was_left_out_leads_to_the_end(open_page, site):
    """As on pages of pairs: by tap as by key, the last answer in the middle leads to the button."""
    page = open_page(show(site) + site.query(), has_touch=True)

    page.tap("#p01 label:has([value=left])")
    page.locator("#p02:focus").wait_for()
    page.keyboard.press("j")
    page.keyboard.press("3")
    page.locator("#p02:focus").wait_for()
    page.tap("#p02 label:has([value=equal])")

    page.locator("#send:focus").wait_for()


def test_a_draft_is_told_at_once_and_options_with_it(open_page, site):
    """The page around hears of each change before anything else can happen."""
    path = show(site, "rankings-reasons", 1)
    site.pages["/around"] = f"""<!doctype html><title>around</title><script>
    const heard = [];
    addEventListener("message", event => heard.push(event.data));
    </script><iframe sandbox="allow-forms allow-scripts" src="{path + site.query()}"></iframe>"""
    page = open_page("/around")
    frame = page.frame_locator("iframe")

    def last(kind: str) -> dict[str, object]:
        """The frame is another process, so what it has told already may still be on its way."""
        becomes_true(page, "kind => heard.some(({type}) => type === kind)", arg=kind)
        return page.evaluate("kind => heard.filter(({type}) => type === kind).at(-1)", kind)

    frame.locator("[value=right]").check()
    told = last("mitl-draft")["fields"]
    frame.locator("#how").click()
    frame.get_by_label("go on by itself").uncheck()
    options = last("mitl-options")["options"]

    assert ["p01_prefer", "right"] in told
    assert options == [["keys", True], ["auto", False]]


def test_an_unfinished_page_says_what_is_missing(open_page, site):
    """It names the searches, leads to the first, and sends nothing."""
    page = open_page(show(site) + site.query())
    page.keyboard.press("1")

    page.click("#send")

    assert "search 2, 3" in page.inner_text("#note")
    assert page.evaluate("document.activeElement.id") == "p02"
    assert site.posted == []


def test_a_lost_image_can_be_tried_again_or_marked(open_page, site):
    """After three tries the page says so; marking it is an answer."""
    page = open_page(show(site, count=2, missing=True) + site.query(), tolerate="404")
    page.wait_for_selector("#p01 .gone:not([hidden])")
    assert site.missed >= 3
    page.click("text=Mark this and go on")
    assert page.is_checked("#p01 [value=image_failed]")

    site.mended = True
    page.click("text=Try again")
    page.wait_for_selector("#p01 .gone", state="hidden")


def test_lists_can_be_enlarged_by_key_and_by_click(open_page, site):
    """Both lists in one dialog, or one image; Esc closes it and the answer is still to come."""
    page = open_page(show(site) + site.query())

    page.keyboard.press("z")
    assert page.locator("#box img").count() == 10
    page.keyboard.press("Escape")
    page.click("#p02 .pics img >> nth=3")
    assert page.get_attribute("#box img", "alt") == "Left, result 4"
    page.keyboard.press("Escape")

    assert not page.is_visible("#box")
    assert page.locator("[name$=_prefer]:checked").count() == 0


def test_a_page_works_without_scripts(open_page, site):
    """The crowd server binds it to the assignment; radios and the button do the rest."""
    path = show(site, count=1)
    site.pages[path] = bind_submission(site.pages[path], f"{site.url}/s/T", "A1")
    page = open_page(path, java_script_enabled=False)

    page.check("[value=right]")
    page.click("#send")

    assert parsed(site, 1) == [(Outcome.ANSWERED, Preference.RIGHT, "")]


def test_a_preview_can_be_read_and_not_answered(open_page, site):
    """As on pages of pairs."""
    page = open_page(show(site) + "?assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE")
    page.keyboard.press("1")

    assert page.is_visible("#preview") and page.is_disabled("#send")
    assert page.locator("[name$=_prefer]:checked").count() == 0


@pytest.mark.parametrize("of_images", [True, False])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.thorough(but=("rankings-plain-*",))
def test_pages_fit_a_phone_with_both_lists_side_by_side(open_page, site, name, of_images):
    """Nothing is wider than the screen, rank stands beside rank, and choices are large enough for a thumb."""
    page = open_page(
        show(site, name, of_images=of_images) + site.query(),
        viewport={"width": 390, "height": 844},
        has_touch=True,
        is_mobile=True,
    )

    assert page.evaluate("document.documentElement.scrollWidth") == 390
    left, right = (page.locator(f"#p01 .side:nth-child({place})").bounding_box() for place in (1, 2))
    assert left["y"] == right["y"] and left["x"] + left["width"] <= right["x"]
    assert page.locator("#p01 .pick label >> nth=0").bounding_box()["height"] >= 44


@pytest.mark.parametrize("of_images", [True, False])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.thorough(but=("rankings-reasons-True",))
def test_axe_finds_nothing_wrong(open_page, site, name, of_images):
    """In light and dark colors, with a side chosen."""
    page = open_page(show(site, name, of_images=of_images) + site.query())
    page.check("#p02 [value=left]")

    assert violations(page) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_full_page_keeps_within_the_limit_of_a_question(site, name):
    """Twenty comparisons of five images or long captions a side, under addresses as a project has them."""
    for of_images in (True, False):
        path = show(site, name, 20, of_images=of_images)
        page = site.pages[path].replace("/i/", "/i/0123456789abcdef0123456789ab")

        assert len(question_xml(page).encode()) < 65_535
