"""The HIT page in a real browser: keyboard, follow-ups, submission, preview, drafts, phones."""

from __future__ import annotations

import pytest
from browser_fixtures import becomes_true
from hit_page_kit import chosen, press_before_views

from mitl.crowd.answers import parse_answers
from mitl.hits.templates import template_names
from mitl.protocol.answer_xml import answers_xml
from mitl.protocol.pages import bind_submission
from mitl.records import Concept, Label, Outcome, PlaceAnswer, Shortcoming
from mitl.records.questions import RATIONALE, given_answers

pytest_plugins = ("browser_fixtures", "hit_page_fixtures")
pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 390, "height": 664}, "is_mobile": True, "has_touch": True}

PARENT = """<!doctype html><title>around</title><script>
const drafts = [];
addEventListener("message", event => {
  const frame = document.querySelector("iframe");
  if (event.data.type === "mitl-draft") drafts.push(event.data.fields);
  if (event.data.type === "mitl-ready" && window.kept)
    frame.contentWindow.postMessage({type: "mitl-restore", fields: window.kept}, "*");
});
</script>
<iframe sandbox="allow-forms allow-scripts" style="width:100%;height:700px" src="PAGE"></iframe>"""


def test_the_whole_page_by_keyboard(open_page, site):
    """1 to 4 answer and go on, S skips, Tab and Space tick reasons, J moves; the post holds it all."""
    page = open_page(site.show("pairs-rationale", 5) + site.query())

    for key in ["1", "2"]:
        page.keyboard.press(key)
    for key in ["Tab", "Tab", "Space", "Tab", "Tab", "Tab", "Space"]:  # on to described_wrongly, color
        page.keyboard.press(key)
    page.keyboard.press("j")
    page.keyboard.press("s")
    page.keyboard.press("4")
    page.keyboard.press("k")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("1")
    assert page.evaluate("document.activeElement.id") == "send"
    page.keyboard.press("Enter")
    page.wait_for_selector("#thanks")

    ((path, fields),) = site.posted
    parsed = parse_answers(answers_xml(fields), places=range(1, 6), questions=RATIONALE)
    assert path == "/s/T/mturk/externalSubmit" and ("assignmentId", "A1") in fields
    assert parsed.findings == ()
    wrong = (Shortcoming.DESCRIBED_WRONGLY,), (Concept.COLOR,)
    assert [(a.place, a.outcome, a.label, a.shortcomings, a.concepts) for a in parsed.answers] == [
        (1, Outcome.ANSWERED, Label.YES, (), ()),
        (2, Outcome.ANSWERED, Label.WEAK_YES, *wrong),
        (3, Outcome.SKIPPED, None, (), ()),
        (4, Outcome.ANSWERED, Label.NO, (), ()),
        (5, Outcome.ANSWERED, Label.YES, (), ()),
    ]


def test_keys_pressed_before_a_view_is_drawn_answer_the_pairs_they_led_to(open_page, site):
    """What is told late of a view that is gone leads nobody back to a pair that has its answer."""
    page = open_page(site.show("pairs-plain", 9) + site.query())
    page.locator(".now").wait_for()

    press_before_views(page, "12", "34", "12", "34")

    answers = [chosen(page, place) for place in range(1, 10)]
    assert answers == ["yes", "weak_yes", "weak_no", "no"] * 2 + [None]


def test_shortcuts_can_be_switched_off_and_leave_typing_alone(open_page, site):
    """Single keys get in the way of speech input; and a 1 typed into a text is a 1."""
    page = open_page(site.show("pairs-rationale") + site.query())

    page.keyboard.press("2")
    page.locator("#p01 [name=p01_text]").type("1 j s")
    assert (chosen(page, 1), page.input_value("[name=p01_text]")) == ("weak_yes", "1 j s")
    page.click("#help")
    page.uncheck("#keys")
    page.keyboard.press("Escape")
    page.keyboard.press("4")
    page.keyboard.press("?")

    assert chosen(page, 1) == "weak_yes"
    assert not page.is_visible("#box")


def test_reasons_have_keys_of_their_own(open_page, site):
    """5 to 8 and letters tick what is wrong, W leads to the own words, Enter to the next pair; 1 to 4 still answer."""
    page = open_page(site.show("pairs-rationale", 2) + site.query())

    for key in ["a", "6", "3", "5", "7", "a", "m", "5", "w"]:  # before there are reasons, a and 6 do nothing
        page.keyboard.press(key)
    page.keyboard.type("7 a w")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "p02"
    for key in ["2", "8", "4", "2"]:
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.id") == "send"
    signs = page.eval_on_selector_all(
        "#p01 [data-key]", "all => all.map(label => label.dataset.key).join('')"
    )
    page.keyboard.press("Enter")
    page.wait_for_selector("#thanks")

    parsed = parse_answers(answers_xml(site.posted[0][1]), places=[1, 2], questions=RATIONALE)
    assert signs == "12345678ABCDEFGHLMW"
    assert parsed.findings == ()
    first, second = parsed.answers
    assert (first.label, first.shortcomings) == (Label.WEAK_NO, (Shortcoming.DESCRIBED_WRONGLY,))
    assert (first.concepts, first.text) == ((Concept.QUANTITY, Concept.OTHER), "7 a w")
    assert (second.label, second.shortcomings) == (Label.WEAK_YES, (Shortcoming.GRAMMAR,))


def test_enter_held_down_sends_nothing(open_page, site):
    """After the last reason it leads to the button, which a key that repeats would press."""
    page = open_page(site.show("pairs-rationale", 1) + site.query())

    for key in ["2", "5"]:
        page.keyboard.press(key)
    for _ in range(4):
        page.keyboard.down("Enter")

    assert page.evaluate("document.activeElement.id") == "send"
    assert site.posted == []


def test_choosing_an_answer_moves_no_other(open_page, site):
    """A chosen label breaks its lines as before, however wide it is: whoever aims at another one meets it."""
    page = open_page(site.show("pairs-rationale", 2) + site.query())
    heights = page.evaluate(
        """() => {
            const answers = document.querySelector("#p01 p+fieldset"), labels = [...answers.querySelectorAll("label")];
            const measured = () => labels.map(label => label.getBoundingClientRect().height).join();
            return Array.from({length: 150}, (_, n) => {
                answers.style.width = `${220 + 2 * n}px`;
                const before = measured();
                return labels.map(label => { label.click(); return [before, measured()]; });
            }).flat();
        }"""
    )

    assert len(heights) == 600 and len({before for before, _ in heights}) > 1
    assert [pair for pair in heights if pair[0] != pair[1]] == []


@pytest.mark.parametrize("by", ["key", "tap"])
def test_a_pair_in_the_middle_that_is_answered_last_leads_to_the_end(open_page, site, by):
    """All is done then, so the button to send is next, not a pair that has its answer."""
    page = open_page(site.show("pairs-plain", 4) + site.query(), has_touch=True)

    for key in ["1", "j", "4", "4"]:
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.id") == "p02"
    if by == "key":
        page.keyboard.press("3")
    else:
        page.tap("#p02 label:has([value=weak_no])")

    page.locator("#send:focus").wait_for()
    assert page.locator("#send").bounding_box()["y"] < page.viewport_size["height"]


def test_a_tap_goes_on_as_a_key_does(open_page, site):
    """After an answer in between to its reasons, in view; else to the next pair. A double tap answers one pair."""
    page = open_page(site.show("pairs-rationale", 3) + site.query(), clock=True, **PHONE)

    page.tap("#p01 label:has([value=weak_yes])")
    page.clock.run_for(400)
    page.locator("#p01 .why input:focus").first.wait_for()
    shown = page.locator("#p01 .why > legend").bounding_box()
    page.tap("#p01 label:has([value=grammar])")
    page.tap("#p01 label:has([value=yes])")
    page.tap("#p01 label:has([value=yes])")
    page.clock.run_for(400)
    page.locator("#p02:focus").wait_for()

    assert 0 < shown["y"] < PHONE["viewport"]["height"]
    assert page.inner_text("#count").startswith("1 of 3")
    page.tap("#p02 label:has([value=skipped])")
    page.clock.run_for(400)
    page.locator("#p03:focus").wait_for()


def test_going_on_by_itself_can_be_switched_off_and_arrows_never_do(open_page, site):
    """Whoever wants to look again stays; keys go on all the same, and so does nobody who chooses by arrows."""
    page = open_page(site.show("pairs-plain", 3) + site.query(), clock=True, **PHONE)

    page.tap("#how")
    page.get_by_label("go on by itself").uncheck()
    page.tap("#shut")
    page.tap("#p01 label:has([value=yes])")
    page.clock.run_for(600)
    assert page.evaluate("document.activeElement.closest('section').id") == "p01"
    page.tap("#how")
    page.get_by_label("go on by itself").check()
    page.tap("#shut")
    page.focus("[name=p01_label][value=yes]")
    page.keyboard.press("ArrowDown")
    page.clock.run_for(600)

    assert page.evaluate("document.activeElement.closest('section').id") == "p01"
    page.keyboard.press("1")
    assert page.evaluate("document.activeElement.id") == "p02"


def test_follow_ups_open_only_when_asked_for(open_page, site):
    """Reasons at the answers in between, concepts only where things are described wrongly; closed ones are not sent."""
    page = open_page(site.show("pairs-rationale", 1) + site.query())
    why, how = page.locator(".why > legend"), page.locator(".why fieldset")

    assert not why.is_visible()
    for value, shown in [("yes", False), ("weak_yes", True), ("no", False), ("weak_no", True)]:
        page.check(f"[name=p01_label][value={value}]")
        assert why.is_visible() == shown
    assert not how.is_visible()
    page.check("[value=described_wrongly]")
    page.check("[value=orientation]")
    assert how.is_visible()
    page.check("[name=p01_label][value=yes]")
    page.click("#send")
    page.wait_for_selector("#thanks")

    names = [name for name, _ in site.posted[0][1]]
    assert names == ["assignmentId", "p01_label", "p01_outcome", "p01_ms"]


def test_reasons_that_were_closed_come_back_when_reopened(open_page, site):
    """Changing one's mind twice loses nothing."""
    page = open_page(site.show("pairs-rationale", 1) + site.query())

    page.check("[name=p01_label][value=weak_no]")
    page.check("[value=not_described]")
    page.check("[name=p01_label][value=no]")
    page.check("[name=p01_label][value=weak_no]")

    assert page.is_checked("[value=not_described]")


@pytest.mark.parametrize("name", template_names())
def test_missing_answers_are_asked_for_and_nothing_is_lost(open_page, site, name):
    """Submitting early leads to the first open pair and names all; what was given stays."""
    page = open_page(site.show(name, 4) + site.query(), viewport={"width": 1000, "height": 600})

    page.check("#p02 [value=no]")
    page.click("#send")

    assert site.posted == []
    assert "pair 1, 3, 4." in page.inner_text("#note")
    assert page.evaluate("document.activeElement.id") == "p01"
    top = page.evaluate("document.querySelector('#p01').getBoundingClientRect().top")
    bar = page.evaluate("document.querySelector('#bar').getBoundingClientRect().bottom")
    assert bar <= top < 300
    for place in (1, 3, 4):
        page.check(f"#p{place:02d} [value=yes]")
    assert (chosen(page, 2), page.is_visible("#note"), page.inner_text("#count")) == (
        "no",
        False,
        "4 of 4",
    )
    page.click("#send")
    page.wait_for_selector("#thanks")
    assert len(site.posted) == 1


def test_a_half_answer_without_a_reason_is_not_finished(open_page, site):
    """With the follow-up questions, an answer in between needs a tick."""
    page = open_page(site.show("pairs-rationale", 1) + site.query())

    page.check("[name=p01_label][value=weak_yes]")
    page.click("#send")
    assert site.posted == [] and page.is_visible("#note")
    page.check("[value=grammar]")
    page.click("#send")
    page.wait_for_selector("#thanks")

    assert ("p01_shortcoming", "grammar") in site.posted[0][1]


def test_skipping_takes_the_answer_back_and_answering_the_skip(open_page, site):
    """A pair is one or the other, whichever came last."""
    page = open_page(site.show("pairs-plain", 2) + site.query())

    page.check("#p01 [value=yes]")
    page.check("#p01 [value=image_failed]")
    page.check("#p02 [value=skipped]")
    page.check("#p02 [value=weak_no]")
    page.click("#send")
    page.wait_for_selector("#thanks")

    parsed = parse_answers(answers_xml(site.posted[0][1]), places=[1, 2], questions=())
    assert parsed.findings == ()
    assert [(a.outcome, a.label) for a in parsed.answers] == [
        (Outcome.IMAGE_FAILED, None),
        (Outcome.ANSWERED, Label.WEAK_NO),
    ]


def test_a_preview_is_switched_off(open_page, site):
    """Without an assignment nothing can be entered or sent, and the page says why."""
    page = open_page(site.show("pairs-rationale", 2) + site.query("ASSIGNMENT_ID_NOT_AVAILABLE"))

    page.keyboard.press("1")

    assert page.is_visible("#preview")
    assert chosen(page, 1) is None
    assert page.evaluate("[...document.forms[0].elements].every(e => e.disabled || e.type === 'button')")
    assert page.is_disabled("#send")


ALLOWED = {
    "https://workersandbox.mturk.com": "https://workersandbox.mturk.com/mturk/externalSubmit",
    "https://www.mturk.com/": "https://www.mturk.com/mturk/externalSubmit",
    "http://localhost:9/s/T?x%23y": "http://localhost:9/s/T/mturk/externalSubmit",
    "http://127.0.0.1:9": "http://127.0.0.1:9/mturk/externalSubmit",
}
REFUSED = [
    "https://evil.example",
    "https://mturk.com.evil.example",
    "https://notmturk.com",
    "http://www.mturk.com",
    "http://127.0.0.1.evil.example",
    "javascript:alert(1)//mturk.com",
    "//evil.example",
    "",
]


def test_answers_go_only_where_they_may(open_page, site):
    """The page is not a relay: an address that is neither MTurk's, loopback nor its own server's is not taken."""
    path = site.show("pairs-plain", 1)
    page = open_page(path)

    def action(submit_to: str) -> str:
        page.goto(f"{site.url}{path}?assignmentId=A1&turkSubmitTo={submit_to}")
        return str(page.evaluate("document.forms[0].action"))

    assert {submit_to: action(submit_to) for submit_to in ALLOWED} == ALLOWED
    assert {action(submit_to) for submit_to in REFUSED} == {"https://www.mturk.com/mturk/externalSubmit"}


def test_the_form_works_without_scripts(open_page, site):
    """Everything is visible, and the bound page posts what was chosen."""
    path = site.show("pairs-rationale", 2)
    site.pages[path] = bind_submission(site.pages[path], site.url + "/s/T/mturk/externalSubmit", "A9")
    page = open_page(path, java_script_enabled=False)

    assert page.locator("form input:not([type=hidden]):visible").count() == 2 * 12
    assert page.locator("select:visible").count() == 2
    assert page.locator("button:visible").all_inner_texts() == ["Submit all answers"]
    page.check("#p01 [value=yes]")
    page.check("#p02 [value=weak_no]")
    page.check("#p02 [value=described_wrongly]")
    page.select_option("[name=p02_concept]", ["age", "gender"])
    page.fill("#p02 [name=p02_text]", "older")
    page.click("#send")
    page.wait_for_selector("#thanks")

    ((_, fields),) = site.posted
    parsed = parse_answers(answers_xml(fields), places=[1, 2], questions=RATIONALE)
    assert ("assignmentId", "A9") in fields and parsed.findings == ()
    assert parsed.answers[1] == PlaceAnswer(
        2,
        Outcome.ANSWERED,
        Label.WEAK_NO,
        given_answers(
            shortcoming=(Shortcoming.DESCRIBED_WRONGLY,), concept=(Concept.GENDER, Concept.AGE), text="older"
        ),
    )


def test_drafts_go_to_the_page_around_and_come_back(open_page, site):
    """In a sandboxed frame of opaque origin: the draft survives a reload, reasons and times included."""
    site.pages["/around"] = PARENT.replace("PAGE", site.show("pairs-rationale", 2) + site.query())
    page = open_page("/around")
    frame = page.frame_locator("iframe")

    frame.locator("#p02 [name=p02_label][value=weak_yes]").check()
    frame.locator("#p02 [value=described_wrongly]").check()
    frame.locator("#p02 [value=gender]").check()
    frame.locator("[name=p02_text]").fill("a woman")
    becomes_true(page, "drafts.length && drafts.at(-1).some(([, value]) => value === 'a woman')")
    fields = page.evaluate("drafts.at(-1)")
    with page.expect_event("framenavigated"):
        page.evaluate(
            "fields => { window.kept = fields; document.querySelector('iframe').src += '&again' }", fields
        )
    frame.locator("#p02.done").wait_for()

    assert "assignmentId" not in dict(fields)
    assert frame.locator("[name=p02_label][value=weak_yes]").is_checked()
    assert (
        frame.locator("#p02 [value=gender]").is_checked()
        and frame.locator("#p02 [value=gender]").is_visible()
    )
    assert frame.locator("[name=p02_text]").input_value() == "a woman"
    frame.locator("#p01 [name=p01_label][value=no]").check()
    frame.locator("#send").click()
    frame.locator("#thanks").wait_for()
    path, posted = site.posted[0]
    assert path == "/s/T/mturk/externalSubmit"
    assert {"p01_label": "no", "p02_concept": "gender", "assignmentId": "A1"}.items() <= dict(posted).items()


def test_a_draft_from_elsewhere_is_ignored(open_page, site):
    """Only the page around may restore; a message from the page itself changes nothing."""
    page = open_page(site.show("pairs-plain", 1) + site.query())
    frame_fields = [["p01_label", "no"]]

    page.evaluate(
        "f => new Promise(done => { addEventListener('message', done, {once: true});"
        " const w = document.createElement('iframe'); document.body.append(w);"
        " w.contentWindow.eval(`parent.postMessage({type: 'mitl-restore', fields: ${JSON.stringify(f)}}, '*')`) })",
        frame_fields,
    )

    assert chosen(page, 1) is None


def test_active_time_counts_for_the_pair_at_hand(open_page, site):
    """Time passes on the pair that was touched and not on the others."""
    page = open_page(site.show("pairs-plain", 3) + site.query(), viewport={"width": 1000, "height": 700})

    page.click("#p02 h2")
    before = page.input_value("[name=p01_ms]")
    becomes_true(page, "+document.forms[0].p02_ms.value > 400")

    assert page.input_value("[name=p03_ms]") == ""
    assert page.input_value("[name=p01_ms]") == before


def test_a_clock_that_is_set_back_takes_no_time_away(open_page, site):
    """A machine may correct its clock while somebody works; the time of a pair still only grows."""
    page = open_page(site.show("pairs-plain", 1) + site.query())
    becomes_true(page, "+document.forms[0].p01_ms.value > 400")
    before = int(page.input_value("[name=p01_ms]"))

    page.evaluate("const now = Date.now; Date.now = () => now() - 3600000")
    becomes_true(page, f"+document.forms[0].p01_ms.value !== {before}")

    assert int(page.input_value("[name=p01_ms]")) > before


def test_a_second_click_sends_nothing_more(open_page, site):
    """The button is off while the answers are on their way."""
    page = open_page(site.show("pairs-plain", 1) + site.query())
    page.check("[name=p01_label][value=yes]")

    page.evaluate("send => { const b = document.querySelector('#send'); b.click(); b.click(); b.click() }")
    page.wait_for_selector("#thanks")

    assert len(site.posted) == 1


@pytest.mark.parametrize("name", template_names())
def test_a_phone_and_a_window_enlarged_to_the_utmost_show_it_all_without_scrolling_sideways(
    open_page, site, name
):
    """In both schemes a phone has image above description above answers, and targets that a thumb can hit.

    A desk's window at 400 % is 320 pixels wide and wider than high: one column, too.
    """
    path = site.show(name, 3) + site.query()
    page = open_page(path, viewport={"width": 360, "height": 700}, is_mobile=True, has_touch=True)
    page.tap("#p01 label:has([value=weak_yes])")

    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        figure, caption, answers = page.evaluate(
            """["figure", "h2 + p", "fieldset"].map(part =>
            document.querySelector("#p01 " + part).getBoundingClientRect().toJSON())"""
        )
        assert figure["bottom"] <= caption["top"] <= answers["top"]
        heights = page.eval_on_selector_all(
            "#p01 label, button", "all => all.filter(l => l.offsetHeight).map(l => l.offsetHeight)"
        )
        assert min(heights) >= 44

    desk = open_page(path, viewport={"width": 320, "height": 256})
    desk.locator(".now").wait_for()
    assert desk.evaluate("document.documentElement.scrollWidth") == 320


def test_text_stands_out_from_its_ground(open_page, site):
    """Every colored text keeps a contrast of at least 4.5 to 1, in both schemes."""
    page = open_page(site.show("pairs-rationale", 1) + site.query())
    page.check("[name=p01_label][value=weak_yes]")
    page.click("#send")

    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        worst = page.evaluate(CONTRAST)
        assert worst["ratio"] >= 4.5, worst


CONTRAST = """() => {
  const numbers = color => color.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(c => (c /= 255) <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const ground = node => { for (; node; node = node.parentElement) {
    const color = numbers(getComputedStyle(node).backgroundColor);
    if (color.length < 4 || color[3] === 1) return color; } return [255, 255, 255]; };
  let worst = {ratio: 99};
  for (const node of document.querySelectorAll("body *")) {
    const text = [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim());
    if (!text || !node.offsetHeight || node.matches("script, style")) continue;
    const [a, b] = [light(numbers(getComputedStyle(node).color)), light(ground(node))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < worst.ratio) worst = {ratio, text: node.textContent.trim().slice(0, 60)};
  }
  return worst;
}"""
