"""The pages of ratings in a real browser: drafts, lost images, refusals, previews, no scripts, accessibility."""

from __future__ import annotations

import pytest
from axe_kit import violations
from browser_fixtures import becomes_true, compose
from hit_page_kit import press_before_views
from similarity_page_kit import (
    IMAGES,
    MIXED,
    NAMES,
    PHONE,
    SIZES,
    TEXTS,
    click_at,
    item,
    score,
    sent,
    show,
    template,
    thumb,
)

from mitl.campaign.kinds.similarity.packing import render_similarity
from mitl.protocol.pages import bind_submission

pytest_plugins = ("browser_fixtures", "hit_page_fixtures")
pytestmark = pytest.mark.browser


AROUND = """<!doctype html><title>around</title><script>
const drafts = [], options = [];
addEventListener("message", event => {
  if (event.data.type === "mitl-draft") drafts.push(event.data.fields);
  if (event.data.type === "mitl-options") options.push(event.data.options);
  if (event.data.type === "mitl-ready" && window.kept)
    document.querySelector("iframe").contentWindow.postMessage({type: "mitl-restore", fields: window.kept}, "*");
});
</script><iframe sandbox="allow-forms allow-scripts" style="width:100%;height:800px" src="PAGE"></iframe>"""


def test_skipping_takes_the_answer_back_and_answering_the_skip(open_page, site):
    """A pair is one or the other, whichever came last; a skipped one has no thumb."""
    page = open_page(show(site, IMAGES, 2) + site.query())

    click_at(page, 1, 3)
    page.check("#p01 [value=image_failed]")
    page.check("#p02 [value=skipped]")
    assert not thumb(page, 1)
    assert page.inner_text("#count").startswith("2 of 2")
    click_at(page, 2, 1)
    page.click("#send")
    page.wait_for_selector("#thanks")

    fields = sent(site)
    assert (fields["p01_score"], fields["p01_outcome"]) == ("", "image_failed")
    assert fields["p02_outcome"] == "answered" and float(fields["p02_score"]) == pytest.approx(1, abs=0.02)


def test_keys_pressed_before_a_view_is_drawn_rate_the_pairs_they_led_to(open_page, site):
    """What is told late of a view that is gone leads nobody back to a pair that has its rating."""
    page = open_page(show(site, TEXTS, 9) + site.query())
    page.locator(".now").wait_for()

    press_before_views(page, "1j", "2j", "3j", "4j", "5j")

    assert [score(page, place) for place in range(1, 7)] == ["1.00", "2.00", "3.00", "4.00", "5.00", ""]


@pytest.mark.parametrize("name", NAMES)
def test_submitting_is_refused_until_everything_has_an_answer(open_page, site, name):
    """It names the pairs, leads to the first that has none, and counts what is done; then it goes through."""
    page = open_page(show(site, name, 4) + site.query(), viewport={"width": 1000, "height": 600})

    click_at(page, 2, 2)
    page.click("#send")

    assert site.posted == []
    assert "pair 1, 3, 4. Move the slider or skip" in page.inner_text("#note")
    assert page.evaluate("document.activeElement.id") == "p01"
    assert "please answer this one" in page.inner_text("#p01 h2")
    top, bar = page.evaluate(
        "[p01.getBoundingClientRect().top, document.querySelector('#bar').getBoundingClientRect().bottom]"
    )
    assert bar <= top < 300
    assert page.inner_text("#count").startswith("1 of 4") and page.evaluate("meter.value") == 1
    for place in (1, 3, 4):
        click_at(page, place, 4)
    assert not page.is_visible("#note") and page.inner_text("#count").startswith("4 of 4")
    page.click("#send")
    page.wait_for_selector("#thanks")
    assert len(site.posted) == 1


def test_drafts_go_to_the_page_around_and_come_back(open_page, site):
    """In a sandboxed frame of opaque origin, at once: answers, skips, comments and times survive a reload."""
    site.pages["/around"] = AROUND.replace("PAGE", show(site, MIXED, 3) + site.query())
    page = open_page("/around")
    frame = page.frame_locator("iframe")

    frame.locator("#p02 [type=range]").focus()
    for key in ["3", "ArrowRight"]:
        page.keyboard.press(key)
    becomes_true(page, "drafts.length && drafts.at(-1).some(([, value]) => value === '3.10')")
    told = page.evaluate("drafts.at(-1)")
    frame.locator("[name=p02_text]").fill("a boat")
    frame.locator("#p03 [value=skipped]").check()
    becomes_true(page, "drafts.at(-1).some(([, value]) => value === 'skipped')")
    fields = page.evaluate("drafts.at(-1)")
    with page.expect_event("framenavigated"):
        page.evaluate(
            "kept => { window.kept = kept; document.querySelector('iframe').src += '&again' }", fields
        )
    frame.locator("#p02.done").wait_for()

    assert ["p02_score", "3.10"] in told and "assignmentId" not in dict(fields)
    assert frame.locator("[name=p02_score]").input_value() == "3.10"
    assert frame.locator("#p02 .slide i").is_visible()
    assert frame.locator("[name=p02_text]").input_value() == "a boat"
    assert frame.locator("#p03 [value=skipped]").is_checked()
    assert not frame.locator("#p01 .slide i").is_visible()
    assert frame.locator("#count").inner_text().startswith("2 of 3")
    frame.locator("#help").click()
    frame.locator("#keys").uncheck()
    becomes_true(page, "options.length")
    assert page.evaluate("options.at(-1)") == [["keys", False]]


def test_a_draft_with_an_impossible_score_restores_no_answer(open_page, site):
    """What the page around kept may be from another page, or mended by hand."""
    site.pages["/around"] = AROUND.replace("PAGE", show(site, TEXTS, 4) + site.query()).replace(
        "const drafts",
        'var kept = [["p01_score", "7"], ["p02_score", "x"], ["p03_score", "-1"], ["p04_score", "4.5"]]; const drafts',
    )
    page = open_page("/around")
    frame = page.frame_locator("iframe")
    frame.locator("#p04.done").wait_for()

    assert [frame.locator(f"[name=p{place:02d}_score]").input_value() for place in range(1, 5)] == [
        "",
        "",
        "",
        "4.50",
    ]


def test_active_time_counts_for_the_pair_at_hand(open_page, site):
    """Time passes on the pair that was touched and not on the others."""
    page = open_page(show(site, MIXED) + site.query(), viewport={"width": 1000, "height": 700})

    page.click("#p02 h2")
    before = page.input_value("[name=p01_ms]")
    becomes_true(page, "+document.forms[0].p02_ms.value > 400")

    assert page.input_value("[name=p03_ms]") == ""
    assert page.input_value("[name=p01_ms]") == before


def test_an_enter_that_takes_a_word_goes_nowhere(open_page, site):
    """With an input method the first Enter takes what was composed, so the worker is still writing."""
    page = open_page(show(site, TEXTS, 2) + site.query())
    page.keyboard.press("3")
    page.focus("[name=p01_text]")

    compose(page, "ねこ")

    assert page.evaluate("document.activeElement.name") == "p01_text"
    assert page.input_value("[name=p01_text]") == "ねこ"


def test_a_lost_image_can_be_tried_again_or_marked(open_page, site):
    """After three tries the page says so; marking it is an outcome, and leads on."""
    page = open_page(show(site, IMAGES, 2, missing=True) + site.query(), tolerate="404")
    page.wait_for_selector("#p01 .gone:not([hidden])")
    assert site.missed >= 3 and "An image did not load." in page.inner_text("#p01 .gone")
    page.click("text=Mark this and go on")
    assert page.is_checked("#p01 [value=image_failed]")
    assert page.evaluate("document.activeElement.id") == "p02"

    site.mended = True
    page.click("text=Try again")
    page.wait_for_selector("#p01 .gone", state="hidden")


def test_pairs_can_be_enlarged_and_help_is_at_hand(open_page, site):
    """By key and by click; Esc closes it, and no answer was given by it."""
    page = open_page(show(site, IMAGES) + site.query())

    page.keyboard.press("z")
    assert page.locator("#box img").count() == 2
    page.keyboard.press("Escape")
    page.click("#p02 img >> nth=1")
    assert page.locator("#box h2").inner_text().startswith("Pair 2")
    page.keyboard.press("Escape")
    page.click("#how")
    assert page.locator("#box svg").count() == 7
    page.keyboard.press("4")
    page.keyboard.press("Escape")

    assert not page.is_visible("#box")
    assert [score(page, place) for place in (1, 2, 3)] == ["", "", ""]


def test_on_a_phone_the_instructions_of_the_bar_take_the_width_they_have(open_page, site):
    """A drawing beside the levels left them less than half of the dialog."""
    page = open_page(show(site, MIXED, 2) + site.query(), **PHONE)

    page.click("#how")

    assert page.evaluate("document.querySelector('#inner dl').offsetWidth / inner.offsetWidth") > 0.9


@pytest.mark.parametrize("name", NAMES)
def test_a_page_works_without_scripts(open_page, site, name):
    """The crowd server binds it to the assignment; a number is typed, and all levels are printed."""
    path = show(site, name, 2)
    site.pages[path] = bind_submission(site.pages[path], f"{site.url}/s/T", "A1")
    page = open_page(path, java_script_enabled=False)

    assert page.locator("#p02 .rate li:visible").count() == 6
    page.fill("[name=p01_score]", "3.25")
    page.check("#p02 [value=skipped]")
    page.click("#send")

    fields = sent(site)
    assert (fields["p01_score"], fields["p02_score"], fields["p02_outcome"]) == ("3.25", "", "skipped")


def test_a_preview_can_be_read_and_not_answered(open_page, site):
    """As on pages of pairs; the levels' words are to be read all the same."""
    page = open_page(show(site, MIXED) + "?assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE")
    page.keyboard.press("1")
    page.locator("#p01 .slide").click(position={"x": 50, "y": 20}, force=True)
    page.locator("#p01 .marks button").nth(3).click()

    assert page.is_visible("#preview") and page.is_disabled("#send")
    assert score(page, 1) == "" and not thumb(page, 1)
    assert page.inner_text("#p01 .tip").startswith("3: ")


def test_hostile_captions_are_shown_as_they_are(open_page, site):
    """Tags, entities and very long words: text, within its box."""
    text = "<img src=x onerror=alert(1)>]]>&lt;b&gt;" + "W" * 400
    site.pages["/hostile"] = render_similarity(
        template(TEXTS),
        [item(TEXTS, 1, text, "</section><script>alert(1)</script>")],
        contact=None,
        estimate_s=9,
    )
    page = open_page("/hostile" + site.query(), **PHONE)

    assert page.locator("#p01 .two p").all_text_contents() == [text, "</section><script>alert(1)</script>"]
    assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.thorough(but=("similarity-texts-1280",))
def test_axe_finds_nothing_wrong(open_page, site, name, size):
    """In light and dark colors: untouched, rated, skipped, missing, and with each dialog open."""
    page = open_page(show(site, name, 4, missing=name != TEXTS) + site.query(), tolerate="404", **size)

    found = violations(page)
    page.locator("#p02 [type=range]").focus()
    page.keyboard.press("3")
    page.check("#p03 [value=skipped]")
    page.click("#send")
    if name != TEXTS:
        page.wait_for_selector("#p01 .gone:not([hidden])")
    found += violations(page)
    for opener in ["#how", "#help"] + ([] if name == TEXTS else ["#p02 img >> nth=0"]):
        if page.locator(opener).is_visible():
            page.click(opener)
            found += violations(page)
            page.keyboard.press("Escape")
    page.goto(f"{site.url}/{name}{site.query('ASSIGNMENT_ID_NOT_AVAILABLE')}")
    found += violations(page)

    assert found == []
