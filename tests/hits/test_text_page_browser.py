"""The page of a text beside a text in a real browser: keyboard, folded texts, a phone, what axe says."""

from __future__ import annotations

import pytest
from axe_kit import violations
from browser_fixtures import becomes_true
from hit_page_kit import chosen, send_four_by_keyboard

from mitl.hits.rendering import FOLDED_FROM, PagePair, render_page
from mitl.hits.templates import load_template

pytest_plugins = ("browser_fixtures", "hit_page_fixtures")
pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 390, "height": 664}, "is_mobile": True, "has_touch": True}
LONG = "The first paragraph.\n\n" + "A sentence about tides and the moon. " * 60 + "The very last words."
PAIRS = [
    PagePair(1, "", "What are tides?", ("Tides <b>of</b> the sea", LONG)),
    PagePair(2, "", "מהי גאות?", ("גאות ושפל הם שינויים במפלס הים.",)),
    PagePair(3, "", "donaudampfschifffahrt" * 8, ("", "x" * (FOLDED_FROM + 1))),
    PagePair(4, "", "Why does bread rise?", ("Bread", "Yeast.")),
]


@pytest.fixture
def shown(open_page, site):
    """Opens the page of four pairs."""

    def opened(query="", **options):
        site.pages["/texts"] = render_page(load_template("pairs-texts"), PAIRS)
        return open_page("/texts" + (query or site.query()), **options)

    return opened


def test_the_whole_page_by_keyboard(shown, site):
    """O opens the rest of the text in view, 1 to 4 answer and go on, S skips; the post is read like any other."""
    page = shown()

    assert not page.locator("#p01 details p").is_visible()
    page.keyboard.press("o")
    assert page.locator("#p01 details p").inner_text().endswith("The very last words.")

    send_four_by_keyboard(page, site)


def test_the_rest_of_a_text_opens_by_tab_and_enter_without_the_short_cuts(shown):
    page = shown()
    page.locator("#p01 summary").focus()
    page.keyboard.press("Enter")

    assert page.locator("#p01 details p").is_visible()


def test_words_are_found_in_folded_texts_too_and_are_no_answer(shown, site):
    """The stroke goes to the field, Enter from place to place, Escape back; what is looked for is never sent."""
    page = shown()
    page.keyboard.press("/")
    page.keyboard.type("VERY last.")
    assert page.locator("#places").inner_text() == "1 found"
    page.keyboard.type(" (")
    assert page.locator("#places").inner_text() == "1 found"
    page.locator("#find").fill("very שינויים")
    assert page.locator("#places").inner_text() == "2 found"
    assert page.evaluate("[...CSS.highlights.get('find')].map(String)") == ["very", "שינויים"]

    page.keyboard.press("Enter")
    assert page.locator("#p01 details p").is_visible()
    assert page.locator("#places").inner_text() == "1 of 2"
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "p02"

    page.keyboard.press("4")
    assert chosen(page, 2) == "no"
    assert page.evaluate("[...new FormData(mturk_form).values()].join().includes('very')") is False


def test_a_page_without_folded_texts_has_nothing_to_find(open_page, site):
    site.pages["/short"] = render_page(load_template("pairs-texts"), PAIRS[3:])

    assert open_page("/short" + site.query()).locator("#find").count() == 0


def test_texts_are_shown_as_they_are_whatever_they_hold(shown):
    """Markup is words, each text has its own direction, and together both parts are the whole text."""
    page = shown()
    page.locator("#p01 summary").click()

    assert page.locator("#p01 h3").inner_text() == "Tides <b>of</b> the sea"
    parts = page.locator("#p01 .found p").all_inner_texts()
    assert " ".join(" ".join(parts).split()) == " ".join(LONG.split())
    assert page.evaluate("getComputedStyle(document.querySelector('#p02 .found p')).direction") == "rtl"
    assert page.locator("#p02 details, #p04 details").count() == 0


@pytest.mark.parametrize(
    "options", [{"viewport": {"width": 1280, "height": 800}}, PHONE], ids=["desk", "phone"]
)
@pytest.mark.thorough(but=("phone",))
def test_nothing_is_cut_off_and_axe_finds_nothing_wrong(shown, options):
    page = shown(**options)
    page.locator("#p01 summary").click()

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    query, text, answers = (
        page.locator(f"#p01 {part}").bounding_box() for part in (".asked", ".found", ".said")
    )
    if "is_mobile" in options:
        assert query["y"] < text["y"] < answers["y"]
        smallest = min(
            box["height"] for box in (one.bounding_box() for one in page.locator("#p01 .pick label").all())
        )
        assert smallest >= 44
    else:
        assert query["y"] < answers["y"] and text["x"] > answers["x"] + answers["width"] - 1
    assert violations(page) == []


def test_unfinished_pairs_are_named_and_a_tap_goes_on(shown):
    page = shown(**PHONE)
    page.locator("#p01 .pick label").nth(2).tap()
    becomes_true(page, "document.activeElement.id === 'p02'")
    page.locator("#send").tap()

    assert chosen(page, 1) == "weak_no"
    assert page.locator("#note").inner_text().startswith("Not finished yet: pair 2, 3, 4.")


def test_a_preview_shows_texts_and_takes_no_answers(shown, site):
    page = shown("?assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE")
    page.locator("#p01 summary").click()

    assert page.locator("#p01 details p").is_visible()
    assert page.locator("#preview").is_visible() and page.locator("#send").is_disabled()
    page.keyboard.press("1")
    assert chosen(page, 1) is None


def test_without_scripts_the_page_is_whole(shown, site):
    page = shown(java_script_enabled=False)
    page.locator("#p01 summary").click()

    assert page.locator("#p01 details p").is_visible()
    assert page.locator("#send").is_enabled()
