"""The HIT page in a real browser when things happen in an order that nobody planned."""

from __future__ import annotations

import pytest
from browser_fixtures import becomes_true, compose
from hit_page_kit import chosen
from media_kit import tone

from mitl.hits.rendering import PagePair, render_page
from mitl.hits.templates import load_template

pytest_plugins = ("browser_fixtures", "hit_page_fixtures")
pytestmark = pytest.mark.browser

DESK = {"viewport": {"width": 1000, "height": 700}}
AROUND = """<!doctype html><title>around</title><button>Elsewhere</button>
<iframe sandbox="allow-forms allow-scripts" style="width:100%;height:600px" src="PAGE"></iframe>
<script>
const drafts = [], frame = document.querySelector("iframe");
addEventListener("message", event => { if (event.data.type === "mitl-draft") drafts.push(event.data.fields); });
const restore = fields => frame.contentWindow.postMessage({type: "mitl-restore", fields}, "*");
</script>"""


def scroll_to(page, frame, place):
    """Turn the wheel until the pair at a place is at hand."""
    page.mouse.move(400, 300)
    for _ in range(60):
        if frame.locator(f"#p{place:02d}.now").count():
            return
        page.mouse.wheel(0, 150)
        page.wait_for_timeout(100)
    raise AssertionError("the wheel led nowhere")


def test_keys_after_the_wheel_change_no_answer_that_is_out_of_view(open_page, site):
    """An arrow meant to scroll on would choose another answer where the last one was clicked."""
    page = open_page(site.show("pairs-plain", 6) + site.query(), **DESK)
    page.locator("#auto").evaluate("auto => { auto.checked = false; }")
    page.click("#p01 [value=yes]")

    scroll_to(page, page, 4)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("4")

    assert [chosen(page, place) for place in range(1, 6)] == ["yes", None, None, "no", None]


def test_a_closed_dialog_leads_nobody_back_to_a_pair_that_was_left(open_page, site):
    """The wheel, a look at the keys, an answer: it is for the pair in view, not for the one that had the focus."""
    page = open_page(site.show("pairs-plain", 6) + site.query(), **DESK)
    page.keyboard.press("1")

    scroll_to(page, page, 4)
    page.keyboard.press("?")
    page.keyboard.press("Escape")
    page.keyboard.press("4")

    assert [chosen(page, place) for place in range(1, 6)] == ["yes", None, None, "no", None]


def test_a_sound_that_starts_late_leads_nobody_back(open_page, site):
    """Played and left at once: what its player tells afterwards changes neither the pair at hand nor what plays now."""
    site.files["/i/long"] = ("audio/wav", tone(20.0))
    pairs = [PagePair(place, "/i/long", "A dog barks.") for place in range(1, 5)]
    site.pages["/media"] = render_page(load_template("pairs-sounds"), pairs)
    page = open_page("/media" + site.query())
    becomes_true(page, "[...document.querySelectorAll('audio')].every(one => one.readyState > 0)")

    page.evaluate(
        """async () => {
          const first = document.querySelector("audio");
          const told = new Promise(done => first.addEventListener("play", done));
          const press = key => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
          press("p");
          press("1");
          await told;
          press("2");
        }"""
    )

    assert [chosen(page, place) for place in range(1, 4)] == ["yes", "weak_yes", None]


def test_an_enter_that_takes_a_word_goes_nowhere(open_page, site):
    """With an input method the first Enter takes what was composed, so the worker is still writing."""
    page = open_page(site.show("pairs-rationale", 2) + site.query())
    for key in "25w":
        page.keyboard.press(key)

    compose(page, "ねこ")

    assert page.evaluate("document.activeElement.name") == "p01_text"
    assert page.input_value("[name=p01_text]") == "ねこ"


def test_a_tap_elsewhere_stays_there(open_page, site):
    """An answer and its reason tapped at once: nothing goes on under a third tap."""
    page = open_page(site.show("pairs-rationale", 3) + site.query(), clock=True, **DESK)

    page.click("#p01 label:has([value=weak_yes])")
    page.click("#p01 label:has([value=grammar])")
    page.clock.run_for(600)

    assert page.evaluate("document.activeElement.closest('section').id") == "p01"


def test_a_draft_that_comes_after_the_first_answer_is_not_lost(open_page, site):
    """The page around may hear late: what it has kept stays, but for the pairs that were answered meanwhile."""
    site.pages["/around"] = AROUND.replace("PAGE", site.show("pairs-rationale", 4) + site.query())
    page = open_page("/around")
    frame = page.frame_locator("iframe")
    frame.locator("#p01 [value=no]").first.check()
    becomes_true(page, "drafts.length")

    page.evaluate(
        """restore([["p01_label", "weak_yes"], ["p01_shortcoming", "grammar"], ["p01_outcome", "answered"],
          ["p02_label", "weak_no"], ["p02_shortcoming", "grammar"], ["p02_outcome", "answered"], ["p02_text", "mine"],
          ["p03_outcome", "skipped"], ["p03_ms", "500"], ["p04_outcome", "answered"]])"""
    )

    becomes_true(page, "drafts.at(-1).some(([name]) => name === 'p02_text')")
    kept = dict(page.evaluate("drafts.at(-1)"))
    assert (kept["p01_label"], kept.get("p01_shortcoming")) == ("no", None)
    assert (kept["p02_label"], kept["p02_shortcoming"], kept["p02_text"]) == ("weak_no", "grammar", "mine")
    assert (kept["p03_outcome"], kept["p04_outcome"]) == ("skipped", "answered")
