"""The pages of ratings in a real browser: the slider by key, mouse and finger, and the words for its levels."""

from __future__ import annotations

import re

import pytest
from browser_fixtures import becomes_true
from similarity_page_kit import (
    DESK,
    IMAGES,
    MIXED,
    NAMES,
    PHONE,
    SIZES,
    TEXTS,
    click_at,
    score,
    sent,
    show,
    thumb,
)

pytest_plugins = ("browser_fixtures", "hit_page_fixtures")
pytestmark = pytest.mark.browser


def valuetext(page, place):
    """What a screen reader says of the slider's position."""
    return page.get_attribute(f"#p{place:02d} [type=range]", "aria-valuetext")


@pytest.mark.parametrize("name", NAMES)
def test_the_whole_page_by_keyboard(open_page, site, name):
    """Digits and arrows rate, Enter and J go on, K back, S skips, N to what is left; the post holds it all."""
    page = open_page(show(site, name, 4) + site.query())

    for key in ["3", "ArrowRight", "ArrowRight", "Shift+ArrowLeft", "Enter"]:
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.id") == "p02"
    for key in ["s", "j", "5", "k", "k", "n"]:
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.id") == "p03"
    for key in ["ArrowLeft", "ArrowLeft"]:
        page.keyboard.press(key)
    page.focus("[name=p03_text]")
    page.keyboard.type("3 seas")
    page.keyboard.press("Enter")
    assert site.posted == [] and page.evaluate("document.activeElement.id") == "send"
    page.keyboard.press("Enter")
    page.wait_for_selector("#thanks")

    answered = {"outcome": "answered", "text": ""}
    expected = [
        {**answered, "score": "3.19"},
        {"outcome": "skipped", "text": "", "score": ""},
        {**answered, "score": "2.40", "text": "3 seas"},
        {**answered, "score": "5.00"},
    ]
    assert site.posted[0][0] == "/s/T/mturk/externalSubmit"
    assert sent(site) == {"assignmentId": "A1"} | {
        f"p{place:02d}_{field}": value
        for place, fields in enumerate(expected, 1)
        for field, value in fields.items()
    }


def test_tab_alone_reaches_everything(open_page, site):
    """Who uses no single keys comes to each slider, the numbers' words, the comment and the button."""
    page = open_page(show(site, MIXED, 1) + site.query())
    page.click("#help")
    page.uncheck("#keys")
    page.keyboard.press("Escape")
    page.focus("#help")
    stops = []
    for _ in range(6):
        page.keyboard.press("Tab")
        stops.append(
            page.evaluate("""() => {
            const at = document.activeElement;
            return at.id || at.name || at.type === "range" && "slider" || at.className || at.textContent;
            }""")
        )
        if stops[-1] == "slider":
            page.keyboard.press("4")
            page.keyboard.press("PageDown")

    assert stops == ["larger", "slider", "0", "p01_text", "p01_outcome", "send"]
    assert score(page, 1) == "3.50"


def test_a_slider_has_no_answer_until_it_is_touched(open_page, site):
    """No thumb, nothing in the field, and words that say so; focus alone answers nothing."""
    page = open_page(show(site, TEXTS) + site.query())

    page.focus("#p01 [type=range]")

    assert (score(page, 1), thumb(page, 1), valuetext(page, 1)) == ("", False, "Not answered yet")
    assert "not answered yet" in page.inner_text("#p01 h2")
    page.keyboard.press("ArrowRight")
    assert (score(page, 1), thumb(page, 1), thumb(page, 2)) == ("2.50", True, False)
    assert page.inner_text("#p01 h2") == "Pair 1 ✓ answered"


def test_a_click_anywhere_on_the_line_answers(open_page, site):
    """Also in the middle, where the browser's own slider rests, and at both ends."""
    page = open_page(show(site, TEXTS, 5) + site.query())

    for place, value in enumerate([0, 2.5, 4.2, 5], 2):
        click_at(page, place, min(max(value, 0.005), 4.995))

        assert float(score(page, place)) == pytest.approx(value, abs=0.02)
        assert thumb(page, place) and score(page, 1) == ""


def test_a_drag_moves_on_to_where_it_ends(open_page, site):
    """Past the end of the line too; taking hold of the thumb beside its middle moves nothing."""
    page = open_page(show(site, TEXTS) + site.query())
    page.locator("#p01").scroll_into_view_if_needed()
    line = page.locator("#p01 .slide").bounding_box()
    x, y = line["x"], line["y"] + 24

    page.mouse.move(x + line["width"] * 0.2, y)
    page.mouse.down()
    page.mouse.move(x + line["width"] * 0.5, y + 60)
    page.mouse.move(x + line["width"] * 0.7, y)
    page.mouse.up()
    assert float(score(page, 1)) == pytest.approx(3.5, abs=0.02)
    before = score(page, 1)
    page.mouse.click(x + line["width"] * 0.7 + 9, y)
    assert score(page, 1) == before
    page.mouse.down()
    page.mouse.move(x + line["width"] + 300, y)
    page.mouse.up()

    assert score(page, 1) == "5.00"


def test_scores_have_two_decimals_and_reach_a_hundredth(open_page, site):
    """Shift and arrow move by the smallest step; both ends hold."""
    page = open_page(show(site, TEXTS) + site.query())

    given = []
    for key in ["0", "Shift+ArrowRight", "ArrowLeft", "5", "Shift+ArrowLeft", "ArrowRight", "Home", "End"]:
        page.keyboard.press(key)
        given.append(score(page, 1))

    assert given == ["0.00", "0.01", "0.00", "5.00", "4.99", "5.00", "0.00", "5.00"]


@pytest.mark.parametrize("name", NAMES)
def test_the_number_is_neither_shown_nor_said(open_page, site, name):
    """Only words for it, other ones on both sides of each level and in between; the page's text stays as it was."""
    page = open_page(show(site, name, 1) + site.query())
    page.keyboard.press("2")
    levels = page.inner_text("#p01 .marks"), page.inner_text("#p01 h2")

    said = page.evaluate("""() => {
      const range = document.querySelector("[type=range]"), said = [];
      for (let cents = 0; cents <= 500; cents++) {
        range.value = cents / 100;
        range.dispatchEvent(new Event("input", {bubbles: true}));
        said.push([range.ariaValueText, document.querySelector("#p01").innerText]);
      }
      return said;
    }""")

    texts = [text for text, _ in said]
    assert not any(re.search(r"\d", text) for text in texts)
    runs = [text for at, text in enumerate(texts) if at == 0 or text != texts[at - 1]]
    assert len(runs) == len(set(runs)) == 6 + 5 * 5
    assert not any(re.search(r"\d[.,]\d", shown) for _, shown in said)
    assert levels == (page.inner_text("#p01 .marks"), page.inner_text("#p01 h2"))
    assert score(page, 1) == "5.00"


def test_a_screen_reader_meets_a_named_slider_with_words(open_page, site):
    """Pair, question and position, in what the browser tells assistive technology."""
    page = open_page(show(site, TEXTS, 1) + site.query())
    page.keyboard.press("5")

    tree = page.locator("#p01").aria_snapshot()

    assert 'group "Pair 1"' in tree and 'heading "Pair 1 ✓ answered"' in tree
    assert 'slider "How close in meaning are these two sentences?"' in tree
    assert valuetext(page, 1) == "The same, even if in other words"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [TEXTS, IMAGES])
def test_levels_stand_along_the_line(open_page, site, name, size):
    """All six for every pair without a touch; at a desk each below its place on the line."""
    page = open_page(show(site, name, 2) + site.query(), **size)

    words = page.locator("#p02 .rate li")
    assert words.count() == 6 and all(words.nth(at).is_visible() for at in range(6))
    line = page.locator("#p02 .slide").bounding_box()
    for at in range(6):
        mark = page.locator("#p02 .marks > *").nth(at).bounding_box()
        middle = line["x"] + line["width"] * at / 5
        assert mark["x"] + mark["width"] / 2 == pytest.approx(middle, abs=1)
        if size is DESK:
            word = words.nth(at).bounding_box()
            assert word["x"] + word["width"] / 2 == pytest.approx(middle, abs=1)
    page.locator("#p02 [type=range]").focus()
    page.keyboard.press("4")
    assert page.locator("#p02 .near").all_inner_texts() == [words.nth(4).inner_text()]


def test_levels_of_image_and_sentence_are_shown_on_hover_focus_and_tap(open_page, site):
    """Nothing of it answers; leaving brings back what was there, and the page does not move."""
    page = open_page(show(site, MIXED, 2) + site.query())
    tip, marks = page.locator("#p01 .tip"), page.locator("#p01 .marks button")
    height = page.locator("#p01").bounding_box()["height"]
    first = tip.inner_text()

    assert "tap it to read" in first
    marks.nth(5).hover()
    assert tip.inner_text().startswith("5: It fits in every respect")
    page.mouse.move(2, 2)
    assert tip.inner_text() == first
    marks.nth(0).focus()
    assert tip.inner_text().startswith("0: Not at all")
    page.keyboard.press("ArrowRight")
    assert tip.inner_text().startswith("1: It does not fit; only the theme")
    assert marks.nth(1).get_attribute("aria-label") == tip.inner_text()
    page.keyboard.press("Tab")
    assert tip.inner_text() == first
    page.locator("#p01 .slide").hover(position={"x": 3, "y": 24})
    assert tip.inner_text() == "Not at all: sentence and image have nothing to do with each other."
    assert page.locator("#p01").bounding_box()["height"] == height
    assert score(page, 1) == ""


def test_levels_are_read_by_tap_on_a_phone_and_while_the_slider_moves(open_page, site):
    """A tap on a number shows its words and answers nothing; a tap on the line answers and shows the nearest level."""
    page = open_page(show(site, MIXED, 2) + site.query(), **PHONE)
    tip = page.locator("#p01 .tip")

    page.locator("#p01 .marks button").nth(2).tap()
    assert tip.inner_text().startswith("2: ") and score(page, 1) == ""
    click_at(page, 1, 3.9, tap=True)

    assert tip.inner_text() == page.locator("#p01 .marks button").nth(4).get_attribute("aria-label")[3:]
    assert float(score(page, 1)) == pytest.approx(3.9, abs=0.03)


@pytest.mark.parametrize("name", NAMES)
def test_a_thumb_can_set_the_slider_on_a_phone(open_page, site, name):
    """Nothing is wider than the screen; whatever is tapped is 44 pixels high; a drag by touch moves the thumb."""
    page = open_page(show(site, name, 2) + site.query(), **PHONE)
    page.locator("#p01 .slide").scroll_into_view_if_needed()

    assert page.evaluate("document.documentElement.scrollWidth") == 390
    heights = page.eval_on_selector_all(
        "#p01 .slide, #p01 button, #p01 .out label, [name$=_text], nav button, #send",
        "all => all.filter(part => part.offsetHeight).map(part => part.offsetHeight)",
    )
    assert min(heights) >= 44
    assert page.locator("#p01 .slide").bounding_box()["width"] >= 300
    touch(page, 1, [(0.3, 0), (0.5, 2), (0.8, 5)])

    assert float(score(page, 1)) == pytest.approx(4, abs=0.03)


def touch(page, place, way):
    """A finger on a line, from the first of these to the last, each a share of the line and pixels down."""
    line = page.locator(f"#p{place:02d} .slide").bounding_box()
    session = page.context.new_cdp_session(page)
    points = [{"x": line["x"] + line["width"] * share, "y": line["y"] + 24 + down} for share, down in way]
    session.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": points[:1]})
    for point in points[1:]:
        session.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [point]})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def test_a_finger_that_scrolls_answers_nothing(open_page, site):
    """Beginning on a line, up the page: untouched stays untouched, and an answer stays as it was."""
    page = open_page(show(site, TEXTS, 4) + site.query(), **PHONE)
    page.locator("#p02 .slide").scroll_into_view_if_needed()
    before = page.evaluate("scrollY")

    touch(page, 2, [(0.5, -10 * step) for step in range(20)])
    becomes_true(page, "before => scrollY > before + 50", arg=before)

    assert score(page, 2) == ""
    page.locator("#p02 [type=range]").focus()
    page.keyboard.press("4")
    touch(page, 2, [(0.2, -10 * step) for step in range(20)])
    assert score(page, 2) == "4.00"


def test_single_keys_can_be_switched_off(open_page, site):
    """They get in the way of speech input; the slider keeps its own once it has the focus."""
    page = open_page(show(site, TEXTS) + site.query())
    page.click("#help")
    page.uncheck("#keys")
    page.keyboard.press("Escape")

    page.focus("#p01")
    for key in ["3", "s", "j", "?"]:
        page.keyboard.press(key)
    assert score(page, 1) == "" and not page.is_visible("#box")
    page.focus("#p01 [type=range]")
    page.keyboard.press("3")

    assert score(page, 1) == "3.00"
