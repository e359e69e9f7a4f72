"""The pages of sounds, videos and composed queries in a real browser: playing, keyboard, a phone, what axe says."""

from __future__ import annotations

import pytest
from axe_kit import violations
from browser_fixtures import becomes_true
from hit_page_kit import chosen, later, send_four_by_keyboard
from media_kit import clip, tone

from mitl.crowd.answers import parse_answers
from mitl.hits.rendering import PagePair, render_page
from mitl.hits.templates import load_template
from mitl.protocol.answer_xml import answers_xml
from mitl.records import Label, Outcome
from mitl.records.questions import PLAYED

pytest_plugins = ("browser_fixtures", "hit_page_fixtures")
pytestmark = pytest.mark.browser

DESK = {"viewport": {"width": 1280, "height": 800}}
PHONE = {"viewport": {"width": 390, "height": 664}, "is_mobile": True, "has_touch": True}
SCREENS = pytest.mark.parametrize("options", [DESK, PHONE], ids=["desk", "phone"])
KINDS = pytest.mark.parametrize("kind", ["sounds", "videos"])
LOST = "Failed to load resource"
"""What Chromium's console says of a file that is not there."""


@pytest.fixture
def shown(open_page, site):
    """Opens a page of four pairs: a long medium, then short ones."""

    def opened(kind, query="", *, missing=0, **options):
        short, long = (tone(0.5), tone(20.0)) if kind == "sounds" else (clip(0.5), clip(20.0))
        told = "audio/wav" if kind == "sounds" else "video/webm"
        site.files |= {"/i/long": (told, long), "/i/short": (told, short), "/i/missing": (told, short)}
        texts = ["A dog barks.", "גשם יורד", "<b>Bells</b> ring.", "A train passes."]
        pairs = [
            PagePair(n, "/i/missing" if n == missing else "/i/long" if n == 1 else "/i/short", text)
            for n, text in enumerate(texts, 1)
        ]
        site.pages["/media"] = render_page(load_template(f"pairs-{kind}"), pairs)
        tolerate = LOST if missing else None
        page = open_page("/media" + (query or site.query()), tolerate=tolerate, **options)
        becomes_true(page, "[...document.querySelectorAll('audio,video')].some(m => m.readyState > 0)")
        return page

    return opened


def playing(page):
    """The places whose medium plays."""
    return page.evaluate(
        "[...document.querySelectorAll('section')].filter(s => !s.querySelector('audio,video').paused).map(s => s.id)"
    )


def heard(page, place):
    return page.evaluate(f"document.forms[0].elements.p{place:02d}_played.value")


@KINDS
def test_the_whole_page_by_keyboard(shown, site, kind):
    """P and Space play and pause, one medium at a time; what was played to its end, in part or not at all is sent."""
    page = shown(kind)

    page.keyboard.press(" ")
    becomes_true(page, "document.querySelector('#p01 audio, #p01 video').currentTime > 0.3")
    assert playing(page) == ["p01"]
    page.keyboard.press("j")
    assert playing(page) == []
    page.keyboard.press("p")
    becomes_true(page, "document.forms[0].elements.p02_played.value === '100'")
    assert page.locator("#p02 .heard").inner_text() == "✓ Played to the end"
    page.keyboard.press("k")

    answers = send_four_by_keyboard(page, site, [PLAYED])

    assert [a.given.get("played") for a in answers] == [("1",), ("100",), ("0",), ("0",)]


@KINDS
def test_one_medium_plays_at_a_time_also_by_its_own_controls(shown, kind):
    page = shown(kind)
    page.evaluate("document.querySelector('#p01 audio, #p01 video').play()")
    becomes_true(page, "!document.querySelector('#p01 audio, #p01 video').paused")
    page.evaluate("document.querySelector('#p03 audio, #p03 video').play()")

    becomes_true(page, "document.querySelector('#p01 audio, #p01 video').paused")


def test_who_only_listens_is_at_work(shown):
    """Paid is the time at which somebody is there: while a sound plays, nobody has to touch anything."""
    page = shown("sounds", clock=True)
    page.keyboard.press("p")
    for seconds in (0.3, 0.6, 0.9, 1.2):
        becomes_true(page, f"document.querySelector('#p01 audio').currentTime > {seconds}")
        page.clock.run_for(40_000)

    assert int(page.input_value("[name=p01_ms]")) > 120_000


def test_a_jump_to_the_end_is_not_played_to_the_end(shown):
    """Only what was played counts, not where the player stands."""
    page = shown("sounds")
    page.evaluate("document.querySelector('#p01 audio').currentTime = 19.5")
    page.keyboard.press("p")
    becomes_true(page, "document.querySelector('#p01 audio').ended")

    assert heard(page, 1) == "1"
    assert page.locator("#p01 .heard").inner_text() == "Played: under 10 %"


@KINDS
@SCREENS
@pytest.mark.thorough(but=("phone-*",))
def test_nothing_is_cut_off_and_axe_finds_nothing_wrong(shown, kind, options):
    """Players have names; on a phone the description and the answers stand below, large enough for a thumb."""
    page = shown(kind, **options)
    medium, text, answer = (
        page.locator(f"#p01 {part}").first.bounding_box()
        for part in ("audio, #p01 video", "h2+p", "fieldset label")
    )

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("#p02 h2+p").inner_text() == "גשם יורד"
    assert page.locator("#p01").get_by_label("Video 1" if kind == "videos" else "Sound 1").count() == 1
    if "is_mobile" in options:
        assert medium["y"] < text["y"] < answer["y"] and answer["height"] >= 44
        assert answer["y"] + 2 * answer["height"] - medium["y"] < 664
    else:
        assert medium["x"] + medium["width"] < text["x"]
    assert violations(page) == []


@KINDS
@pytest.mark.thorough(but=("videos",))
def test_what_does_not_play_is_tried_again_and_can_be_marked(shown, site, kind):
    """After three tries the page says so; "try again" brings it back, "mark this" answers the pair."""
    page = shown(kind, missing=2, clock=True)
    later(page, page.locator("#p02 .lost"))
    assert site.missed >= 3
    noun = kind.removesuffix("s")
    assert page.locator("#p02 .lost b").inner_text() == f"This {noun} did not play."

    site.mended = True
    page.get_by_role("button", name="Try again").click()
    page.locator("#p02 .lost").wait_for(state="hidden")
    page.locator("#p02").focus()
    page.keyboard.press("i")

    assert page.locator("#p02 h2").inner_text() == f"Pair 2 ✓ {noun} did not play"


def test_a_preview_plays_and_takes_no_answers(shown):
    page = shown("sounds", "?assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE")
    page.keyboard.press(" ")

    becomes_true(page, "!document.querySelector('#p01 audio').paused")
    assert page.locator("#send").is_disabled()
    page.keyboard.press("1")
    assert chosen(page, 1) is None


def test_without_scripts_the_page_is_whole(open_page, site):
    site.files["/i/a.wav"] = ("audio/wav", tone(0.5))
    site.pages["/media"] = render_page(load_template("pairs-sounds"), [PagePair(1, "/i/a.wav", "A bell.")])
    page = open_page("/media" + site.query(), java_script_enabled=False)

    assert page.locator("#p01 audio[controls]").is_visible()
    assert page.locator("#send").is_enabled()


@pytest.fixture
def composed(open_page, site):
    """Opens a page of three composed queries."""

    def opened(**options):
        pairs = [
            PagePair(n, f"/i/{n}.png", text, reference_src=f"/i/{n + 10}.png")
            for n, text in enumerate(["with a <b>sail</b>", "at night, " * 20, "two of them"], 1)
        ]
        site.pages["/composed"] = render_page(load_template("pairs-composed"), pairs)
        return open_page("/composed" + site.query(), **options)

    return opened


@SCREENS
def test_a_composed_query_stands_beside_the_image_found(composed, site, options):
    """First image and change beside what was found, the answers below both; on a phone all below each other."""
    page = composed(**options)
    first, change, found, answer = (
        page.locator(f"#p01 {part}").first.bounding_box()
        for part in (".asked figure", ".asked > p", ".found figure", ".pick label")
    )

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert first["y"] < change["y"] < answer["y"] and answer["height"] >= 44
    if "is_mobile" in options:
        assert change["y"] < found["y"] < answer["y"]
    else:
        assert first["x"] + first["width"] < found["x"] and abs(first["y"] - found["y"]) < 2
    assert page.locator("#p01 .asked > p").inner_text() == "with a <b>sail</b>"
    assert violations(page) == []


def test_both_images_fill_their_columns_on_a_phone_that_lies_on_its_side(composed):
    """There, and at 200 % on a desk, a smaller box would cut off what is said of an image that did not load."""
    page = composed(viewport={"width": 664, "height": 390})
    shares = "figures => figures.map(figure => figure.offsetWidth / figure.parentNode.offsetWidth)"

    assert page.eval_on_selector_all("#p01 figure", shares) == [1, 1]


def test_a_composed_query_by_keyboard(composed, site):
    """Z enlarges the image found, with the change below it; 1 to 4 answer and go on."""
    page = composed()
    page.keyboard.press("z")
    assert page.locator("#box img").get_attribute("src") == "/i/1.png"
    assert page.locator("#box p").inner_text() == "with a <b>sail</b>"
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Enlarge first image 1").click()
    assert page.locator("#box img").get_attribute("src") == "/i/11.png"
    page.keyboard.press("Escape")
    page.locator("#p01").focus()
    for key in "14i":
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    page.wait_for_selector("#thanks")

    ((_, fields),) = site.posted
    parsed = parse_answers(answers_xml(fields), places=range(1, 4), questions=())
    assert [(a.outcome, a.label) for a in parsed.answers] == [
        (Outcome.ANSWERED, Label.YES),
        (Outcome.ANSWERED, Label.NO),
        (Outcome.IMAGE_FAILED, None),
    ]
