"""Pages that others wrote for Mechanical Turk, posted by boto3 and answered in a real browser."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from axe_kit import violations
from browser_fixtures import compose
from crowd_kit import post_hit, question
from foreign_kit import (
    AMTI,
    BOOTSTRAP,
    BOOTSTRAP_PAGE,
    CROWD,
    HELPER,
    JQUERY,
    JQUERY_PAGE,
    SAMPLE,
    library,
    open_crowd,
    vendor,
)

from mitl.crowd_server import admin
from mitl.crowd_server.protocol.html_page import AllowedSources
from mitl.protocol.answer_xml import answer_fields
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures", "browser_fixtures")
pytestmark = pytest.mark.browser

SHOTS = os.environ.get("MITL_SHOTS")
"""A folder for pictures of these pages, as docs/images shows them."""


@pytest.fixture
def crowd(crowd_engine, tmp_path):
    """A server with a copy of jQuery that allows the host of Bootstrap."""
    vendor(tmp_path / "vendored", JQUERY, library("jquery"))
    with open_crowd(crowd_engine, AllowedSources(("cdn.jsdelivr.net",), tmp_path / "vendored")) as server:
        yield server


class Stand:
    """One HIT of a page, and a worker's window before it."""

    def __init__(self, crowd, new_page, page, **window):
        self.crowd = crowd
        self.client = crowd.boto()
        self.question = question(page) if page.lstrip()[:12] != "<ExternalQue" else page
        self.hit = post_hit(self.client, Question=self.question)
        [invitation] = admin.invite(crowd.engine, Environment.SANDBOX, clock=crowd.clock)
        self.window = new_page(**({"viewport": {"width": 900, "height": 640}} | window))
        self.window.context.route("https://**", lambda route: route.abort())
        self.window.context.route(
            BOOTSTRAP, lambda route: route.fulfill(body=library("bootstrap"), content_type="text/css")
        )
        self.window.goto(crowd.url + invitation.path)

    def preview(self):
        """The HIT before it is accepted."""
        self.window.get_by_role("link", name="Preview").click()
        self.settled()
        return self.window.frame_locator("iframe")

    def accept(self):
        """The HIT at work."""
        button = self.window.get_by_role("button", name="Accept one")
        (button if button.count() else self.window.get_by_role("button", name="Accept")).first.click()
        self.settled()
        return self.window.frame_locator("#hit")

    def settled(self):
        """Wait until the frame's page has begun, and return the frame."""
        self.window.locator("iframe").wait_for()
        frame = self.window.frames[1]
        frame.wait_for_load_state("load")
        self.window.wait_for_timeout(50)
        return frame

    def kept(self, text):
        """Wait until the draft holds a text."""
        for _ in range(200):
            if text in self.window.evaluate("Object.values(localStorage).join()"):
                return
            self.window.wait_for_timeout(25)
        raise AssertionError(f"{text!r} never came into the draft")

    def shot(self, name):
        """A picture of the window, where a folder for them is named."""
        if SHOTS:
            self.window.screenshot(path=str(Path(SHOTS) / f"{name}.png"))

    def answer(self):
        """The fields of the one submission, as ListAssignmentsForHIT gives them; the question is as it was posted."""
        self.window.get_by_text("Submitted. Thank you!").wait_for()
        listed = self.client.list_assignments_for_hit(HITId=self.hit["HITId"])["Assignments"]
        assert len(listed) == 1
        assert self.client.get_hit(HITId=self.hit["HITId"])["HIT"]["Question"] == self.question
        return answer_fields(listed[0]["Answer"])


def test_a_page_as_amtis_example(crowd, new_page):
    """The helper script is answered here, the preview says what to do, and the sentence arrives."""
    stand = Stand(crowd, new_page, AMTI)
    preview = stand.preview()
    assert preview.locator("#submitButton").is_disabled()
    assert preview.locator("#submitButton").input_value() == "Accept the HIT to submit it"
    assert preview.locator("textarea").is_disabled()

    frame = stand.accept()
    assert frame.locator("#assignmentId").input_value().startswith("3")
    frame.locator("textarea").fill("The lighthouse & its <keeper> sleep.")
    stand.shot("foreign-amti-before")
    frame.get_by_role("button", name="Send").click()

    assert stand.answer() == [("sentence", "The lighthouse & its <keeper> sleep.")]
    stand.shot("foreign-amti-after")


def test_a_page_as_amazons_sample(crowd, new_page):
    """Its address of Amazon's leads here; what was entered is there again after a reload."""
    stand = Stand(crowd, new_page, SAMPLE)
    assert stand.preview().locator("[name=sky]").is_disabled()

    frame = stand.accept()
    frame.locator("[name=rain][value=no]").check()
    frame.locator("[name=sky]").fill("grey")
    stand.kept("grey")
    stand.window.reload()
    stand.settled()
    frame.locator("[name=rain][value=no]:checked").wait_for()
    assert frame.locator("[name=sky]").input_value() == "grey"
    stand.shot("foreign-sample-before")
    frame.get_by_role("button", name="Submit").click()

    assert stand.answer() == [("sky", "grey"), ("rain", "no")]
    stand.shot("foreign-sample-after")


def fill_crowd_form(frame, window):
    """Answer the page by keyboard and pointer, as a person would."""
    frame.get_by_label("Dog").check()
    frame.get_by_text("Say why").click()
    frame.locator("crowd-image-classifier textarea").fill("It barks.")
    frame.get_by_label("glad").check()
    frame.get_by_label("A bird that you like").fill("robin")
    frame.get_by_role("radio", name="It is small").focus()
    window.keyboard.press("Space")
    window.keyboard.press("ArrowDown")
    frame.get_by_text("It sings").click()
    frame.get_by_role("checkbox", name="It flies").focus()
    window.keyboard.press("Space")
    frame.get_by_role("slider").focus()
    window.keyboard.press("ArrowRight")
    window.keyboard.press("ArrowRight")
    frame.get_by_label("A few lines on it").fill("Line one\nline two")
    frame.get_by_label("Your country").fill("Iceland")
    frame.get_by_label("old").check()


CROWD_ANSWER = {
    "age": {"old": True, "young": False},
    "bird": "robin",
    "country": "Iceland",
    "essay": "Line one\nline two",
    "flies": {"on": True},
    "kind": {"label": "Dog", "workerComment": "It barks."},
    "large": {"Large": True},
    "mood": {"label": "glad"},
    "much": 3,
    "small": {"Small": False},
    "traits": {"sings": True, "swims": False},
}


def test_a_page_of_crowd_elements(crowd, new_page):
    """Each element answers in MTurk's shape, all within one field; what is required holds the form back."""
    stand = Stand(crowd, new_page, CROWD, viewport={"width": 900, "height": 1100})
    preview = stand.preview()
    assert preview.get_by_role("button", name="Send it").is_disabled()
    assert preview.get_by_label("A bird that you like").is_disabled()

    frame = stand.accept()
    frame.get_by_role("button", name="Send it").click()
    stand.window.wait_for_timeout(100)
    assert frame.locator("crowd-image-classifier:focus-within").count() == 1  # the first that lacks an answer
    fill_crowd_form(frame, stand.window)
    stand.kept("Iceland")
    stand.window.reload()
    stand.settled()
    frame.locator("crowd-radio-button[aria-checked=true]").wait_for()
    stand.shot("foreign-crowd-before")
    frame.get_by_role("button", name="Send it").click()

    fields = stand.answer()
    assert [name for name, _ in fields] == ["taskAnswers"]
    assert json.loads(fields[0][1]) == [CROWD_ANSWER]
    assert list(json.loads(fields[0][1])[0]) == sorted(CROWD_ANSWER)
    stand.shot("foreign-crowd-after")


def test_crowd_elements_are_accessible(crowd, new_page):
    """axe finds nothing in the elements, opened and with an error shown."""
    stand = Stand(crowd, new_page, f'<html lang="en"><title>Birds</title><main>{CROWD}</main></html>')
    stand.accept()
    frame = stand.window.frames[1]
    for summary in frame.locator("summary").all():
        if summary.is_visible():
            summary.click()
    frame.get_by_label("A bird that you like").fill("x")
    frame.get_by_label("A bird that you like").fill("")
    frame.get_by_label("Another one").focus()

    assert violations(stand.window, frame) == []


def test_a_crowd_form_that_flattens_and_is_sent_by_its_script(crowd, new_page):
    """``answer-format`` gives a field for each value; the page's own check and its own button are heard."""
    page = (
        CROWD.replace("<crowd-form>", '<crowd-form answer-format="flatten-objects">')
        .replace('<crowd-button form-action="submit" variant="primary">Send it</crowd-button>', "")
        .replace("required", "")
        + """<button id="own">Send it</button><script>
        document.querySelector("crowd-form").onsubmit = function (event) {
          if (![...document.querySelectorAll("crowd-radio-button")].some(button => button.checked)) {
            event.preventDefault();
            alert("Please answer all.");
          }
        };
        document.getElementById("own").onclick = () => document.querySelector("crowd-form").submit();
        </script>"""
    )
    stand = Stand(crowd, new_page, page)
    frame = stand.accept()
    frame.get_by_label("Cat").check()
    frame.get_by_label("sad").check()
    frame.locator("#own").click()
    frame.get_by_role("dialog").get_by_text("Please answer all.").wait_for()
    frame.get_by_role("button", name="OK").click()
    frame.get_by_text("It is large").click()
    frame.get_by_role("button", name="Submit").wait_for()  # added, as on Mechanical Turk
    frame.locator("#own").click()

    fields = dict(stand.answer())
    assert fields["kind.label"] == "Cat" and fields["mood.label"] == "sad"
    assert (fields["small.Small"], fields["large.Large"]) == ("false", "true")
    assert (fields["traits.sings"], fields["age.old"], fields["much"]) == ("false", "false", "1")
    assert "bird" not in fields


@pytest.mark.thorough
def test_a_page_with_jquery(crowd, new_page):
    """A vendored copy answers for the address; the form that the library makes, changes and sends arrives."""
    stand = Stand(crowd, new_page, JQUERY_PAGE)
    frame = stand.accept()
    frame.get_by_role("button", name="Done").click()
    frame.get_by_role("dialog").get_by_text("Please choose.").wait_for()
    frame.get_by_role("button", name="OK").click()
    frame.get_by_label("more").check()
    frame.get_by_label("one", exact=True).check()
    stand.shot("foreign-jquery-before")
    frame.get_by_role("button", name="Done").click()

    assert stand.answer() == [("windows", "one"), ("clicks", "2")]
    stand.shot("foreign-jquery-after")


def test_a_page_with_bootstrap(crowd, new_page):
    """The style comes from the allowed host, and the answer stays within the frame."""
    stand = Stand(crowd, new_page, BOOTSTRAP_PAGE)
    frame = stand.accept()
    shown = "getComputedStyle(document.querySelector('.btn-primary')).backgroundColor"
    assert stand.window.frames[1].evaluate(shown) not in ("rgb(239, 239, 239)", "rgba(0, 0, 0, 0)")
    frame.get_by_label("It fits").select_option("badly")
    frame.get_by_label("Something is odd").check()
    stand.shot("foreign-bootstrap-before")
    frame.get_by_role("button", name="Submit").click()

    assert stand.answer() == [("fit", "badly"), ("odd", "yes")]
    stand.shot("foreign-bootstrap-after")


@pytest.mark.parametrize("page", [AMTI, SAMPLE, BOOTSTRAP_PAGE], ids=["amti", "sample", "bootstrap"])
@pytest.mark.thorough(but=("amti",))
def test_without_scripts_such_a_form_arrives_all_the_same(crowd, new_page, page):
    """The page is bound before it is sent to the browser, not by its scripts alone."""
    stand = Stand(crowd, new_page, page, java_script_enabled=False)
    frame = stand.accept()
    frame.locator("textarea, [name=sky], [name=odd]").first.wait_for()
    if page is BOOTSTRAP_PAGE:
        frame.locator("[name=odd]").check()
    else:
        frame.locator("textarea, [name=sky]").fill("typed")
    frame.locator("[type=submit], button").click()
    frame.get_by_text("Thank you, your answers arrived").wait_for()

    [own] = stand.client.list_assignments_for_hit(HITId=stand.hit["HITId"])["Assignments"]
    assert {"typed", "yes"} & {value for _, value in answer_fields(own["Answer"])}


@pytest.mark.parametrize(
    ("form", "script"),
    [
        ('<form><input name="q"><button>Go</button></form>', ""),
        ('<form action="#" target="_top"><input name="q"><button>Go</button></form>', ""),
        (
            '<form action="other"><input name="q"><button formaction="/mturk/externalSubmit">Go</button></form>',
            "",
        ),
        (
            '<div><input name="q"><button type="button">Go</button></div>',
            """document.querySelector("button").onclick = () => {
              const form = document.createElement("form"), field = document.createElement("input");
              form.action = turkGetSubmitToHost() + "/mturk/externalSubmit"; form.method = "POST";
              field.name = "q"; field.value = document.querySelector("input").value;
              form.append(field); document.body.append(form); form.submit(); };""",
        ),
        (
            '<form action="x"><input name="q"><button>Go</button></form>',
            """document.querySelector("form").onsubmit = event => { event.stopPropagation();
              localStorage.setItem("sent", document.cookie);
              document.querySelector("form").action = "https://www.mturk.com/mturk/externalSubmit?sandbox=1";
              event.preventDefault(); document.querySelector("form").submit(); };""",
        ),
    ],
    ids=["none", "nowhere", "button", "made", "changed"],
)
@pytest.mark.thorough(but=("changed",))
def test_however_a_page_sends_to_mturk_it_arrives(crowd, new_page, form, script):
    """No action, a button's own, a form that a script makes, one that it changes while it is sent."""
    page = f'<!doctype html><script src="{HELPER}"></script><title>T</title>{form}<script>{script}</script>'
    stand = Stand(crowd, new_page, page)
    frame = stand.accept()
    frame.locator("[name=q]").fill("typed")
    frame.get_by_role("button", name="Go").click()

    assert stand.answer() == [("q", "typed")]


def test_a_draft_waits_for_a_page_around_that_listens_late(crowd, new_page):
    """What is typed meanwhile stays, the rest comes back, and both are kept."""
    stand = Stand(crowd, new_page, SAMPLE)
    frame = stand.accept()
    frame.locator("[name=sky]").fill("grey")
    frame.locator("[name=rain][value=no]").check()
    stand.kept("rain")
    held = []
    stand.window.route("**/worker.js", lambda route: held.append(route))
    stand.window.reload(wait_until="commit")
    frame.locator("[name=sky]").wait_for()
    stand.window.wait_for_timeout(200)
    frame.locator("[name=sky]").fill("blue")
    held[0].continue_()

    frame.locator("[name=rain][value=no]:checked").wait_for()
    stand.kept("blue")
    assert frame.locator("[name=sky]").input_value() == "blue"
    assert '["rain","no"]' in stand.window.evaluate("Object.values(localStorage).join()")


def test_a_marked_page_may_use_crowd_elements(crowd, new_page):
    """The policy lets the server's own script run, and the form takes the element's answer."""
    page = """<form data-mitl-submit method="post" action="about:blank">
    <input data-mitl-assignment type="hidden" name="assignmentId" value="">
    <crowd-input name="q" label="Words"></crowd-input><button>Go</button></form>"""
    stand = Stand(crowd, new_page, page)
    frame = stand.accept()
    frame.get_by_label("Words").fill("typed")
    frame.get_by_role("button", name="Go").click()

    assert stand.answer() == [("q", "typed")]


def test_an_enter_that_takes_a_word_sends_no_crowd_form(crowd, new_page):
    """With an input method the first Enter takes what was composed; the next one sends it."""
    stand = Stand(
        crowd, new_page, '<crowd-form><crowd-input name="q" label="Words"></crowd-input></crowd-form>'
    )
    frame = stand.accept()
    frame.get_by_label("Words").focus()
    compose(stand.window, "ねこ")
    stand.window.wait_for_timeout(300)
    assert frame.get_by_label("Words").input_value() == "ねこ"
    frame.get_by_label("Words").press("Enter")

    assert json.loads(dict(stand.answer())["taskAnswers"]) == [{"q": "ねこ"}]


@pytest.mark.thorough
def test_a_page_on_another_site_sends_to_where_it_is_told(crowd, new_page):
    """An ExternalQuestion cannot be changed: the helper from here and ``turkSubmitTo`` are all that it needs."""
    external = (
        '<ExternalQuestion xmlns="http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/2006-07-14/'
        'ExternalQuestion.xsd"><ExternalURL>https://lab.example/task?id=7</ExternalURL><FrameHeight>400</FrameHeight>'
        "</ExternalQuestion>"
    )
    stand = Stand(crowd, new_page, external)
    helper = stand.crowd.browser().get(f"{crowd.url}/mturk-public/externalHIT_v1.js").text
    elsewhere = (
        f"<!doctype html><title>T</title><script>{helper}</script><form id=mturk_form><input name=q>"
        "<input type=submit id=submitButton></form><script>turkSetAssignmentID()</script>"
    )
    stand.window.context.route(
        "https://lab.example/**", lambda route: route.fulfill(body=elsewhere, content_type="text/html")
    )
    assert stand.preview().locator("#submitButton").is_disabled()
    frame = stand.accept()
    frame.locator("[name=q]").fill("from afar")
    frame.locator("#submitButton").click()

    assert stand.answer() == [("q", "from afar")]
