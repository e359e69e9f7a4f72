"""What helps people on the HIT page, in a real browser: progress, keys, instructions, the large view."""

from __future__ import annotations

import pytest
from browser_fixtures import becomes_true
from hit_page_kit import chosen, later

from mitl.hits.rendering import PagePair, render_page
from mitl.hits.templates import load_template, template_names

pytest_plugins = ("browser_fixtures", "hit_page_fixtures")
pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
OPEN = "document.querySelector('#box').open"
FOCUS = "document.activeElement.id || document.activeElement.textContent"


STOP = """() => {
  const at = document.activeElement, bar = document.querySelector("#bar"), box = at.getBoundingClientRect();
  if (at === document.body) return [true, true];
  const cover = bar.getBoundingClientRect(), over = box.top < cover.bottom - 1 && box.bottom > cover.top + 1;
  const seen = box.top >= -1 && box.bottom <= innerHeight + 1 && (bar.contains(at) || !over);
  return [getComputedStyle(at).outlineStyle !== "none", seen];
}"""


def states(page):
    """The words beside the pairs' numbers."""
    return [text.strip() for text in page.locator("h2 span").all_text_contents()]


def test_progress_is_told_and_the_next_open_pair_is_one_click_away(open_page, site):
    """13 of 20, in words; the button begins at the first, looks from here on, then from the top, then at the end."""
    page = open_page(site.show("pairs-plain", 20) + site.query())

    for expected in ("p01", "p02"):
        page.click("#jump")
        assert page.evaluate(FOCUS) == expected
    page.keyboard.press("k")
    for key in ["1"] * 5 + ["j"] * 2 + ["4"] * 8:
        page.keyboard.press(key)
    assert page.inner_text("#count") == "13 of 20"
    assert page.evaluate("document.querySelector('#meter').value") == 13
    page.click("#jump")
    assert page.evaluate(FOCUS) == "p17"
    page.keyboard.press("k")
    for _ in range(5):
        page.keyboard.press("2")
    assert page.evaluate(FOCUS) == "p06"
    page.keyboard.press("n")
    page.keyboard.press("3")
    page.keyboard.press("n")
    assert (page.evaluate(FOCUS), page.inner_text("#count")) == ("p06", "19 of 20")
    page.keyboard.press("3")

    assert (page.inner_text("#jump"), page.inner_text("#count")) == ("To the end", "20 of 20")
    page.click("#jump")
    assert page.evaluate(FOCUS) == "send"


def test_a_state_is_told_in_words(open_page, site):
    """Answered, skipped, not loaded, still to do: never by color alone."""
    page = open_page(site.show("pairs-plain", 4) + site.query())

    for key in "1si":
        page.keyboard.press(key)
    assert states(page) == ["✓ answered", "✓ skipped", "✓ image did not load", ""]
    page.click("#send")

    assert states(page)[3] == "– please finish this one"
    assert page.locator("#p04").get_attribute("aria-label") == "Pair 4"


def test_a_held_key_answers_once_and_enter_sends_nothing(open_page, site):
    """A key that repeats, or Enter in a radio button, would otherwise answer or send unread pairs."""
    page = open_page(site.show("pairs-plain", 4) + site.query())

    page.keyboard.down("1")
    for _ in range(3):
        page.keyboard.down("1")
    page.keyboard.up("1")
    assert page.inner_text("#count") == "1 of 4"
    for place in (2, 3, 4):
        page.check(f"[name=p{place:02d}_label][value=no]")
    page.focus("[name=p04_label][value=no]")
    page.keyboard.press("Enter")

    assert site.posted == []


def test_arrows_move_between_pairs_and_leave_answers_alone(open_page, site):
    """After a click on an answer, left and right go to other pairs; up and down choose, as they do anywhere."""
    page = open_page(site.show("pairs-plain", 3) + site.query())

    page.check("[name=p01_label][value=weak_yes]")
    page.keyboard.press("ArrowRight")
    assert (page.evaluate(FOCUS), chosen(page, 1)) == ("p02", "weak_yes")
    page.keyboard.press("ArrowLeft")
    page.focus("[name=p01_label][value=weak_yes]")
    page.keyboard.press("ArrowDown")

    assert chosen(page, 1) == "weak_no"


def test_keys_are_listed_on_a_question_mark(open_page, site):
    """The panel holds the focus, gives it back, closes by Esc, and no key answers behind it."""
    page = open_page(site.show("pairs-plain", 3) + site.query())

    page.keyboard.press("j")
    page.keyboard.press("?")
    assert page.get_by_role("dialog", name="Keys").is_visible()
    assert page.inner_text("#box h2") == "Keys"
    seen = []
    for press in ["Tab", "Tab", "Tab", "Shift+Tab"]:
        page.keyboard.press(press)
        seen.append(page.evaluate("document.activeElement.id"))
    page.keyboard.press("1")
    page.keyboard.press("Escape")

    assert seen == ["keys", "auto", "shut", "auto"]
    assert (page.evaluate(OPEN), page.evaluate(FOCUS), chosen(page, 2)) == (False, "p02", None)


OWN = """<p><a id="link" href="#">Rules</a> <select id="off" disabled></select> <textarea id="words"></textarea>
  <details><summary id="more">More</summary><a id="folded" href="#">Rest</a></details>"""


def test_the_tab_key_reaches_all_of_a_dialog(open_page, site):
    """Also what instructions of one's own have, but for what is switched off or folded up; then it begins again."""
    page = open_page(site.show("pairs-plain", 3) + site.query())
    page.evaluate(f"document.querySelector('details').insertAdjacentHTML('beforeend', `{OWN}`)")
    page.click("#how")

    seen = []
    for press in ["Tab"] * 5 + ["Shift+Tab"] * 2 + ["Enter", "Tab"]:
        page.keyboard.press(press)
        seen.append(page.evaluate("document.activeElement.id"))

    assert seen == ["link", "words", "more", "auto", "shut", "auto", "more", "more", "folded"]


@pytest.mark.parametrize("name", template_names())
def test_instructions_with_examples_are_one_click_away(open_page, site, name):
    """From the last pair: the same text, an example for each answer, and then back where one was."""
    page = open_page(site.show(name, 20) + site.query(), viewport={"width": 1000, "height": 700})
    page.locator("#p20").scroll_into_view_if_needed()
    before = page.evaluate("scrollY")

    page.click("#how")
    dialog = page.get_by_role("dialog", name="Instructions")
    assert dialog.locator("q").count() == dialog.locator("dt").count() == 4
    assert dialog.get_by_role("img").count() == 1
    assert ("tick names things not in the image" in dialog.inner_text()) == (name == "pairs-rationale")
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUS) == "auto"
    page.click("#shut")

    assert (page.evaluate(OPEN), page.evaluate(FOCUS), page.evaluate("scrollY")) == (False, "how", before)
    page.click("#how")
    page.mouse.click(5, 5)
    assert not page.evaluate(OPEN)


def test_the_image_is_enlarged_by_mouse_and_keys(open_page, site):
    """Click, button, Enter and Z; the description stays in view; Esc closes; a click in it doubles the size."""
    page = open_page(site.show("pairs-plain", 3) + site.query())
    pan = page.locator(".pan img")

    becomes_true(page, "[...document.images].every(image => image.naturalWidth)")
    page.click("#p02 img")
    small = page.locator("#p02 img").bounding_box()["width"]
    fit = pan.bounding_box()["width"]
    assert page.inner_text("#box p") == "Description 2."
    pan.click()
    assert pan.bounding_box()["width"] == pytest.approx(2 * fit, rel=0.05)
    page.keyboard.press("Escape")
    assert not page.evaluate(OPEN)
    page.keyboard.press("j")
    ways = []
    for press in ["z", "Enter"]:
        page.keyboard.press(press)
        ways.append((page.evaluate(OPEN), page.inner_text("#box p")))
        page.keyboard.press("Escape")
        ways.append(page.evaluate(FOCUS))
    page.get_by_role("button", name="Enlarge image 1", exact=True).click()

    assert fit > 1.8 * small
    assert ways == [(True, "Description 3."), "p03"] * 2
    assert (page.inner_text("#box p"), site.posted) == ("Description 1.", [])


def test_a_narrow_image_is_enlarged_no_further_than_it_can_be_read(open_page, site):
    """Sixty pixels by four thousand: six windows high, in the middle, not two hundred."""
    page = open_page(site.show("pairs-plain", 2) + site.query())
    page.evaluate(
        """async () => {
          const narrow = Object.assign(document.createElement("canvas"), {width: 60, height: 4000});
          const image = document.querySelector("#p01 img");
          image.src = narrow.toDataURL();
          await image.decode();
        }"""
    )

    page.click("#p01 img")
    page.click(".pan")
    box, pan = (page.locator(name).bounding_box() for name in (".pan img", ".pan"))

    assert box["height"] == 6 * page.evaluate("innerHeight")
    assert box["x"] + box["width"] / 2 == pytest.approx(pan["x"] + pan["width"] / 2, abs=20)


def test_the_image_is_enlarged_by_touch(open_page, site):
    """A phone already shows it as wide as it is, so a tap shows it at twice that, and it can be moved."""
    page = open_page(site.show("pairs-plain", 2) + site.query(), **PHONE)

    becomes_true(page, "document.images[0].naturalWidth")
    page.tap("#p01 img")
    pan = page.locator(".pan")
    wide = pan.evaluate("e => [e.scrollWidth / e.clientWidth, e.scrollLeft > 0]")
    page.tap("#shut")

    assert wide == [2, True]
    assert not page.evaluate(OPEN)
    assert page.is_hidden("#help")


def test_a_preview_can_be_read_to_the_end(open_page, site):
    """Instructions, keys and the large view work before the task is accepted; answering does not."""
    page = open_page(site.show("pairs-rationale", 2) + site.query("ASSIGNMENT_ID_NOT_AVAILABLE"))

    becomes_true(page, "document.images[0].naturalWidth")
    opened = []
    for press in ["z", "?"]:
        page.keyboard.press(press)
        opened.append(page.evaluate(OPEN))
        page.keyboard.press("Escape")
    page.click("#how")
    opened.append(page.evaluate(OPEN))
    page.click("#shut")
    page.keyboard.press("2")

    assert opened == [True] * 3
    assert (chosen(page, 1), page.inner_text("#count")) == (None, "0 of 2")


def test_an_image_that_fails_is_tried_again_then_marked(open_page, site):
    """Three tries, then plain words and two buttons: one marks it and goes on, the other brings it at last."""
    page = open_page(
        site.show("pairs-plain", 2, missing=1) + site.query(), clock=True, tolerate="Failed to load resource"
    )

    later(page, page.get_by_text("This image did not load."))
    assert site.missed == 3
    assert page.get_attribute("#p01 img", "alt") == "Image 1"
    page.keyboard.press("z")
    assert not page.evaluate(OPEN)
    page.click("text=Mark this and go on")
    assert (states(page), page.evaluate(FOCUS)) == (["✓ image did not load", ""], "p02")
    site.mended = True
    page.click("text=Try again")
    page.locator("#p01 .lost").wait_for(state="hidden")

    assert page.evaluate("document.images[0].naturalWidth") == 64
    assert states(page) == ["✓ image did not load", ""]


def test_a_hostile_description_stays_text_in_the_large_view_too(open_page, site):
    """Markup and script are shown as written, on the page and enlarged; the label of the image knows none of it."""
    hostile = "<img src=x onerror=alert(1)></p><script>document.title = 'taken'</script>"
    template = load_template("pairs-plain")
    site.pages["/hostile"] = render_page(template, [PagePair(1, "/i/1.png", hostile)])
    page = open_page("/hostile" + site.query())

    becomes_true(page, "document.images[0].naturalWidth")
    page.keyboard.press("z")

    assert page.inner_text("#box p") == page.inner_text("section h2+p") == hostile
    assert page.title() == template.title
    assert page.evaluate("[...document.images].map(image => image.alt)") == ["Image 1"] * 2


def test_a_description_from_right_to_left_is_so_in_the_large_view_too(open_page, site):
    """Its full stop stands at its end, to the left."""
    site.pages["/hebrew"] = render_page(load_template("pairs-plain"), [PagePair(1, "/i/1.png", "גשם יורד.")])
    page = open_page("/hebrew" + site.query())

    becomes_true(page, "document.images[0].naturalWidth")
    page.keyboard.press("z")

    assert page.locator("#box p").evaluate("text => getComputedStyle(text).direction") == "rtl"


@pytest.mark.parametrize("name", template_names())
def test_the_focus_is_seen_wherever_it_goes(open_page, site, name):
    """Tab through a pair: each stop has an outline, lies in the window, and not under the bar."""
    page = open_page(site.show(name, 3) + site.query(), viewport={"width": 1000, "height": 500})

    page.keyboard.press("2")
    page.click("#p02 h2")
    for press in ["Tab"] * 9 + ["Shift+Tab"] * 16:
        page.keyboard.press(press)
        assert page.evaluate(STOP) == [True, True]


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_nothing_moves_by_itself(open_page, site, motion):
    """No animation, no gliding; a wording that adds some is overruled where people ask for less."""
    path = site.show("pairs-rationale", 1)
    added = "<style>html{scroll-behavior:smooth}h2{animation:x 1s;transition:all 1s}</style></head>"
    site.pages["/moving"] = site.pages[path].replace("</head>", added)
    page = open_page((path if motion == "no-preference" else "/moving") + site.query(), reduced_motion=motion)

    moving = page.evaluate(
        """[...document.querySelectorAll("*")].filter(e => { const s = getComputedStyle(e);
        return s.animationName !== "none" || s.transitionDuration !== "0s" || s.scrollBehavior !== "auto" }).length"""
    )

    assert moving == 0


LATE_PARENT = """<!doctype html><title>around</title><iframe sandbox="allow-forms allow-scripts" src="PAGE"></iframe>
<script>
const restore = () => document.querySelector("iframe").contentWindow.postMessage(
  {type: "mitl-restore", fields: [["p01_label", "no"], ["p02_label", "yes"]]}, "*");
const listen = () => addEventListener("message", event => { if (event.data.type === "mitl-ready") restore(); });
</script>"""


def test_a_draft_comes_back_though_the_page_around_is_slow(open_page, site):
    """The page asks for its draft until it is heard."""
    site.pages["/late"] = LATE_PARENT.replace("PAGE", site.show("pairs-plain", 2) + site.query())
    page = open_page("/late")
    frame = page.frame_locator("iframe")

    frame.get_by_text("0 of 2", exact=True).wait_for()
    page.evaluate("listen()")
    frame.get_by_text("2 of 2", exact=True).wait_for()

    assert frame.locator("[name=p01_label]:checked").get_attribute("value") == "no"


def test_a_draft_never_lies_over_newer_answers(open_page, site):
    """What was answered before the draft came stays; where nothing was, the draft comes back all the same."""
    site.pages["/late"] = LATE_PARENT.replace("PAGE", site.show("pairs-plain", 2) + site.query())
    page = open_page("/late")
    frame = page.frame_locator("iframe")

    frame.locator("[name=p01_label][value=yes]").check()
    page.evaluate("restore()")
    frame.get_by_text("2 of 2", exact=True).wait_for()

    assert frame.locator("[name=p01_label]:checked").get_attribute("value") == "yes"
