"""The pages that collect in a real browser: by keyboard, refusals, drafts, no scripts, accessibility."""

from __future__ import annotations

import pytest
from axe_kit import violations

from mitl.campaign.kinds import wording_of
from mitl.campaign.kinds.texts.answers import LANGUAGE, check_text, words_of
from mitl.campaign.kinds.texts.packing import ShownItem, render_texts
from mitl.protocol.pages import bind_submission
from mitl.records import CollectionRole
from mitl.records.collection import EXAMPLES, TextRules

pytest_plugins = ("browser_fixtures", "hit_page_fixtures")
pytestmark = pytest.mark.browser

SIZES = [
    pytest.param({"viewport": {"width": 1280, "height": 900}}, id="1280"),
    pytest.param({"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}, id="390"),
]
TASKS = ("write", "pick", "review")
SENTENCE = "A brown dog runs over wet grass"
RULES = TextRules()


def show(site, task, count=3, texts=(), rules=RULES):
    """Serve a page of this task, with these texts at its first places; its path."""
    shown = [*texts, *[SENTENCE] * count]
    items = [
        ShownItem(
            place,
            "" if task == "pick" else f"/i/{place}.png",
            "" if task == "write" else f"{shown[place - 1]}, number {place}",
            tuple(f"/i/{place}{n}.png" for n in range(6)) if task == "pick" else (),
        )
        for place in range(1, count + 1)
    ]
    page = render_texts(
        wording_of("texts", f"texts-{task}", None),
        items,
        CollectionRole(task),
        rules if task == "write" else None,
        contact=None,
        estimate_s=60,
    )
    site.pages[f"/{task}"] = page
    return f"/{task}"


def test_texts_are_written_by_keyboard_alone(open_page, site):
    """Enter goes on to the next one and at last to the button; what is typed is what is sent."""
    page = open_page(show(site, "write") + site.query())
    page.locator("#p01_text").focus()
    for number in ("one", "two", "three"):
        page.keyboard.type(f"{SENTENCE} {number}")
        page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "send"
    assert page.locator("#count").inner_text() == "3 of 3"
    page.keyboard.press("Enter")
    page.wait_for_url("**/mturk/externalSubmit")
    ((_, fields),) = site.posted
    sent = dict(fields)
    assert [sent[f"p0{n}_text"] for n in (1, 2, 3)] == [f"{SENTENCE} {n}" for n in ("one", "two", "three")]
    assert sent["p01_outcome"] == "answered"


def test_the_page_tells_what_a_text_lacks_and_does_not_send_it(open_page, site):
    """Beside the text, in words; a skipped one may be sent, and sends none."""
    page = open_page(show(site, "write", 2) + site.query())
    page.fill("#p02_text", SENTENCE)
    for text, told in (
        ("A dog", "2 of at least 4 words."),
        ("There is a dog on the grass", "do not begin with “there is”"),
        (EXAMPLES[0], "This is an example"),
        (
            "Ein Hund rennt über nasses Gras",
            "This does not read as English: please write a whole sentence, with words such as “a” or “the”.",
        ),
        (f"{SENTENCE}!", "You wrote the same for another image."),
    ):
        page.fill("#p01_text", text)
        page.click("#send")
        assert told in page.locator("#p01_told").inner_text()
        assert "Not finished yet: 1" in page.locator("#note").inner_text() and site.posted == []
    page.check("[name=p01_outcome][value=skipped]")
    page.click("#send")
    page.wait_for_url("**/mturk/externalSubmit")
    sent = dict(site.posted[0][1])
    assert (sent["p01_outcome"], sent["p01_text"], sent["p02_text"]) == ("skipped", "", SENTENCE)


def test_a_text_that_is_no_longer_given_twice_is_told_so(open_page, site):
    """Whichever of the two is changed, both say what is true now."""
    page = open_page(show(site, "write", 2) + site.query())
    told = page.locator(".told")
    page.fill("#p01_text", SENTENCE)
    page.fill("#p02_text", SENTENCE)
    page.focus("#p01_text")
    assert told.all_inner_texts() == ["You wrote the same for another image."] * 2

    page.fill("#p01_text", f"{SENTENCE} again")

    assert told.all_inner_texts() == ["8 words", "7 words"]
    assert page.locator("#p02").get_attribute("class") == "done"


@pytest.mark.parametrize("language", ["en", "de", "any"])
def test_the_page_and_the_check_of_what_comes_in_tell_language_and_words_alike(open_page, site, language):
    """Whole sentences of another language, another alphabet, letters struck at random; none where any will do."""
    rules = TextRules(language=language, forbidden_starts=())
    page = open_page(show(site, "write", 1, rules=rules) + site.query())
    for text in (
        SENTENCE,
        "Ein Hund rennt über nasses Gras hinweg",
        "Собака бежит по мокрой траве",
        "qwer asdf zxcv uiop hjkl bnmq",
        "1234 5678 9012 3456",
        "Red car parked outside",
        "Red car parked outside small house",
        "一只狗在草地上奔跑。",
        "カヌーの犬",
        "𠮷野家・ラーメン、2杯",
    ):
        page.fill("#p01_text", text)
        told = page.locator("#p01_told").inner_text()
        assert language != "any" or told.startswith(f"{len(words_of(text))} word")
        refused = "This does not read as" in told
        assert refused is (LANGUAGE in [finding.code for finding in check_text(text, rules)]), text


@pytest.mark.parametrize(("task", "field", "value"), [("pick", "pick", "0"), ("review", "label", "weak_no")])
def test_choices_are_made_by_keyboard_and_sent(open_page, site, task, field, value):
    """Each place sends the choice that was made."""
    page = open_page(show(site, task, 2) + site.query())
    for place in (1, 2):
        page.focus(f"[name=p0{place}_{field}][value='{value}']")
        page.keyboard.press("Space")
    page.click("#send")
    page.wait_for_url("**/mturk/externalSubmit")
    sent = dict(site.posted[0][1])
    assert [sent[f"p0{place}_{field}"] for place in (1, 2)] == [value, value]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.thorough(but=("390-*",))
def test_axe_finds_nothing_wrong_and_nothing_is_cut_off(open_page, site, task, size, tmp_path):
    """At both widths, light and dark; the page is not wider than its window."""
    page = open_page(show(site, task) + site.query(), **size)
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.screenshot(path=tmp_path / f"{task}.png", full_page=True)


HEBREW = "דוב חום עומד ליד העץ הירוק"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("task", ["pick", "review"])
@pytest.mark.thorough(but=("*-390",))
def test_a_text_of_any_kind_is_shown_as_it_is_written(open_page, site, task, size):
    """From right to left, with marks of a page, or in one endless word: it is read as text and stays in its card."""
    texts = {
        HEBREW: "rtl",
        f"{HEBREW} and an English end": "rtl",
        "<script>alert(1)</script><img src=x onerror=alert(2)> \u202e turned": "ltr",
        "wordswithoutanyspace" * 40: "ltr",
    }
    page = open_page(show(site, task, len(texts), texts) + site.query(), **size)
    for said, (text, direction) in zip(page.locator(".said").all(), texts.items(), strict=True):
        assert said.inner_text().startswith(text) and said.locator("*").count() == 0
        assert said.evaluate("one => getComputedStyle(one).direction") == direction
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert violations(page) == []


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.thorough(but=("write",))
def test_a_lost_image_is_tried_again_before_somebody_is_paid_for_nothing(open_page, site, task):
    """Twice by itself; then the page says so at its place and tries once more on demand. What was answered stays."""
    path = show(site, task)
    lost = "/i/10.png" if task == "pick" else "/i/1.png"
    site.pages[path] = site.pages[path].replace(lost, "/i/missing.png")
    page = open_page(path + site.query(), tolerate="404")
    notice = page.locator("#p01 .note", has_text="Images that did not load: 1.")
    notice.wait_for()
    assert site.missed >= 3 and page.locator("main .note:visible").count() == 1

    site.mended = True
    notice.get_by_role("button", name="Try again").click()
    notice.wait_for(state="hidden")
    assert page.is_checked("#p01 [value=answered]") and site.posted == []


def test_a_text_is_typed_from_the_side_of_its_letters(open_page, site):
    """As soon as there are some."""
    page = open_page(show(site, "write", 1) + site.query())
    for text, direction in ((HEBREW, "rtl"), (SENTENCE, "ltr")):
        page.fill("#p01_text", text)
        assert page.evaluate("getComputedStyle(document.getElementById('p01_text')).direction") == direction


@pytest.mark.parametrize("task", TASKS)
def test_a_page_works_without_scripts_and_a_preview_cannot_be_answered(open_page, site, task):
    """The form is complete by itself; before it is accepted everything is off."""
    page = open_page(show(site, task) + site.query("ASSIGNMENT_ID_NOT_AVAILABLE"))
    assert page.locator("#preview").is_visible() and page.locator("#send").is_disabled()
    bound = bind_submission(site.pages[f"/{task}"], "/mturk/externalSubmit", "A1")
    site.pages["/bound"] = bound
    plain = open_page("/bound", java_script_enabled=False)
    if task == "write":
        plain.fill("#p01_text", SENTENCE)
    plain.click("#send")
    assert dict(site.posted[-1][1])["assignmentId"] == "A1"
