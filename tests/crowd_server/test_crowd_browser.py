"""A worker's way through the pages in a real browser: join, accept, fill, reload, submit, go on."""

from __future__ import annotations

from base64 import b64decode
from contextlib import suppress

import pytest
from browser_fixtures import TWICE_THE_TEXT, becomes_true, enter_the_hit
from crowd_kit import TYPE, accept_one, post_hit, question
from form_kit import FORM
from hit_page_kit import later
from similarity_page_kit import TEXTS, items, template

from mitl.campaign.kinds.similarity.packing import render_similarity
from mitl.crowd.answers import parse_answers
from mitl.crowd_server import admin
from mitl.hits.rendering import PagePair, question_xml, render_page
from mitl.hits.templates import load_template
from mitl.records import Environment, Label

pytest_plugins = ("browser_fixtures", "crowd_fixtures")
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser(isolating_browser):
    """As people have it."""
    return isolating_browser


@pytest.fixture
def page(new_page):
    """A new window without cookies; errors on its console fail the test."""
    return new_page(viewport={"width": 1100, "height": 800})


PIXEL = "R0lGODlhAQABAIAAAP///wAAACwAAAAAAQABAAACAkQBADs="


def pairs_page(places: int = 3) -> str:
    """A real HIT with pictures inlined, so that nothing is fetched."""
    dot = "https://127.0.0.1:1/none.png"
    pairs = [PagePair(place, dot, f"A description, number {place}.") for place in range(1, places + 1)]
    html = render_page(load_template("pairs-plain"), pairs)
    return question_xml(html.replace(dot, f"data:image/gif;base64,{PIXEL}"))


def test_a_worker_joins_fills_reloads_submits_and_goes_on(crowd, page):
    """The sandboxed frame posts without a cookie; a draft survives a reload; the next HIT is one click away.

    In this module a HIT's frame has a process of its own.
    """
    client = crowd.boto()
    hit_type = client.create_hit_type(**TYPE)["HITTypeId"]
    first, _ = (post_hit(client, hit_type, Question=pairs_page())["HITId"] for _ in range(2))
    frame = accept_one(crowd, page)
    for place in (1, 2):
        frame.locator(f"[name=p0{place}_label][value=weak_yes]").check()
    becomes_true(page, "Object.values(localStorage).join().includes('p02_label')")
    targets = page.context.browser.new_browser_cdp_session().send("Target.getTargets")["targetInfos"]
    assert "iframe" in {target["type"] for target in targets}
    page.reload()
    frame.locator("[name=p02_label][value=weak_yes]:checked").wait_for(state="attached")
    frame.locator("[name=p03_label][value=no]").check()
    frame.locator("#send").click()
    page.get_by_role("heading", name="Submitted. Thank you!").wait_for()

    becomes_true(page, "Object.keys(localStorage).length === 0")
    assert page.get_by_text("thank you").count() == 1 and page.locator("iframe").count() == 0
    assert page.get_by_text("You get $1.00 practice money when they are approved").count() == 1
    [own] = client.list_assignments_for_hit(HITId=first)["Assignments"]
    answers = parse_answers(own["Answer"], places=[1, 2, 3], questions=()).answers
    assert [answer.label for answer in answers] == [Label.WEAK_YES, Label.WEAK_YES, Label.NO]
    page.get_by_role("button", name="Accept the next one").click()
    page.wait_for_load_state()
    page.frame_locator("#hit").locator("#send").wait_for()
    page.get_by_role("button", name="Return this HIT").click()
    page.get_by_text("You returned the HIT").wait_for()
    assert page.get_by_text("No HITs are open for you").count() == 1


@pytest.mark.thorough
def test_what_was_entered_is_not_returned_by_a_slip(crowd, page):
    """One press asks first, after a reload too; a no keeps the HIT and its answers, a yes gives both up."""
    post_hit(crowd.boto(), Question=pairs_page())
    accept_one(crowd, page)
    page.frame_locator("#hit").locator("[name=p01_label][value=no]").check()
    becomes_true(page, "Object.keys(localStorage).length > 0")
    asked = []

    def say(answer):
        page.once("dialog", lambda dialog: (asked.append(dialog.message), getattr(dialog, answer)()))
        page.get_by_role("button", name="Return this HIT").click()

    say("dismiss")
    page.reload()
    page.frame_locator("#hit").locator("[name=p01_label][value=no]:checked").wait_for(state="attached")
    say("dismiss")
    say("accept")

    page.get_by_text("You returned the HIT").wait_for()
    assert len(asked) == 3 and "will not be sent" in asked[0]


EXTERNAL = (
    '<ExternalQuestion xmlns="http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/2006-07-14/'
    'ExternalQuestion.xsd"><ExternalURL>https://lab.example/task</ExternalURL><FrameHeight>400</FrameHeight>'
    "</ExternalQuestion>"
)


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.thorough(but=("True",))
def test_returning_asks_first_for_forms_and_for_pages_of_other_sites(crowd, new_page, external):
    """A form says what was entered, as the templates do; another site's page does not, so that is always asked."""
    post_hit(crowd.boto(), Question=EXTERNAL if external else FORM)
    [link] = admin.invite(crowd.engine, Environment.SANDBOX, clock=crowd.clock)
    page = new_page()
    page.context.route(
        "https://lab.example/**",
        lambda route: route.fulfill(body="<title>T</title><input>", content_type="text/html"),
    )
    page.goto(crowd.url + link.path)
    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()
    if not external:
        page.frame_locator("#hit").get_by_label("Why?").fill("so")
        becomes_true(page, "Object.values(localStorage).join().includes('so')")
        page.reload()
    # Nobody is faster than the page's script, which leads the keyboard into the frame; a test's click may be.
    becomes_true(page, "document.activeElement.id === 'hit'")
    asked = []
    page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept()))
    page.get_by_role("button", name="Return this HIT").click()

    page.get_by_text("You returned the HIT").wait_for()
    assert len(asked) == 1
    assert not page.get_by_text("still has what you entered").is_visible()


@pytest.mark.parametrize("stands", ["Date.now", "performance.now"])
def test_the_time_that_is_left_runs_though_one_clock_stands(crowd, page, stands):
    """One is set back, or stops while a computer sleeps."""
    post_hit(crowd.boto(), Question=pairs_page())
    page.clock.install()
    accept_one(crowd, page)
    timer = page.locator("#timer")
    before = timer.inner_text()
    page.evaluate(f"() => {{ const now = {stands}(); {stands} = () => now - 5000; }}")
    page.clock.run_for(2000)
    becomes_true(page, "before => document.getElementById('timer').textContent !== before", before)

    assert timer.inner_text().endswith(" left")
    assert not page.locator("#over").is_visible()


@pytest.mark.parametrize("form", [False, True])
@pytest.mark.thorough(but=("True",))
def test_a_draft_can_be_sent_after_the_time_is_over(crowd, new_page, form):
    """The list leads back to it, but only where the browser holds one; sent, it is kept as a late answer."""
    post_hit(crowd.boto(), Question=FORM if form else pairs_page())
    [link] = admin.invite(crowd.engine, Environment.SANDBOX, clock=crowd.clock)
    page = new_page(tolerate="410")
    page.goto(crowd.url + link.path)
    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()
    frame = page.frame_locator("#hit")
    places = ("q1",) if form else ("p01_label", "p02_label", "p03_label")
    for name in places:
        frame.locator(f"[name={name}]").first.check()
    becomes_true(page, "name => Object.values(localStorage).join().includes(name)", places[-1])
    crowd.clock.advance(hours=2)
    address = page.url
    page.goto(crowd.url + "/w")
    page.get_by_role("link", name="Look whether it can still be sent").wait_for()
    elsewhere = new_page(tolerate="410")
    elsewhere.goto(crowd.url + link.path)
    assert not elsewhere.get_by_text("still has what you entered").is_visible()
    elsewhere.goto(address)
    assert not elsewhere.get_by_text("still has what you entered").is_visible()

    page.get_by_role("link", name="Look whether it can still be sent").click()
    page.get_by_role("heading", name="The time for this HIT is over").wait_for()
    page.get_by_role("link", name="Go back to it").click()
    frame.locator(f"[name={places[-1]}]:checked").wait_for(state="attached")
    frame.get_by_role("button", name="Submit").click()

    page.get_by_text("has arrived and is kept").wait_for()
    assert not page.get_by_text("still has what you entered").is_visible()
    becomes_true(page, "Object.keys(localStorage).length === 0")


def test_the_draft_of_who_no_longer_takes_part_is_deleted(crowd, page):
    """And no other worker's; who agrees again finds an empty page."""
    post_hit(crowd.boto(), Question=pairs_page())
    admin.change_study(crowd.engine, Environment.SANDBOX, {"consent": "I take part."}, clock=crowd.clock)
    [link] = admin.invite(crowd.engine, Environment.SANDBOX, clock=crowd.clock)

    def take_part():
        page.get_by_role("button", name="I agree and take part").click()
        page.get_by_role("button", name="Accept one").click()
        page.wait_for_load_state()
        page.frame_locator("#hit").get_by_role("button", name="Submit").wait_for()
        becomes_true(page, "document.activeElement.id === 'hit'")

    page.goto(crowd.url + link.path)
    take_part()
    page.frame_locator("#hit").locator("[name=p01_label]").first.check()
    becomes_true(page, "Object.values(localStorage).join().includes('p01_label')")
    others = '`{"at": ${Date.now()}, "fields": [], "worker": "another"}`'
    page.evaluate(f"localStorage.setItem('mitl-draft:9-x', {others})")

    page.goto(crowd.url + "/w/study")
    page.get_by_role("button", name="I no longer take part").click()
    page.get_by_role("heading", name="You do not take part").wait_for()
    becomes_true(page, "Object.keys(localStorage).join() === 'mitl-draft:9-x'")
    page.get_by_role("link", name="I changed my mind").click()
    take_part()

    assert page.frame_locator("#hit").locator("[name=p01_label]:checked").count() == 0


@pytest.mark.parametrize("returned", [False, True])
@pytest.mark.thorough
def test_who_takes_a_hit_again_finds_what_they_entered(crowd, new_page, returned):
    """When its time ran out, and not when they gave it back."""
    client = crowd.boto()
    hit = post_hit(client, Question=pairs_page())["HITId"]
    page = new_page()
    frame = accept_one(crowd, page)
    frame.locator("[name=p01_label][value=no]").check()
    becomes_true(page, "Object.keys(localStorage).length > 0")
    before = page.url
    if returned:
        page.once("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Return this HIT").click()
        page.get_by_text("You returned the HIT").wait_for()
    crowd.clock.advance(hours=2)
    page.goto(crowd.url + "/w")
    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()
    frame.get_by_role("button", name="Submit").wait_for()
    becomes_true(page, "document.activeElement.id === 'hit'")

    assert page.url != before
    assert not page.get_by_text("still has what you entered").is_visible()
    if returned:
        assert frame.locator("[name=p01_label]:checked").count() == 0
        return
    frame.locator("[name=p01_label][value=no]:checked").wait_for(state="attached")
    for place in ("p02", "p03"):
        frame.locator(f"[name={place}_label][value=no]").check()
    frame.get_by_role("button", name="Submit").click()
    becomes_true(page, "Object.keys(localStorage).length === 0")
    [own] = client.list_assignments_for_hit(HITId=hit)["Assignments"]
    labels = [answer.label for answer in parse_answers(own["Answer"], places=[1, 2, 3], questions=()).answers]
    assert labels == [Label.NO] * 3


@pytest.mark.parametrize("kind", ["own", "foreign", "form"])
@pytest.mark.thorough(but=("own",))
def test_answers_that_could_not_be_sent_are_led_back_to(crowd, new_page, kind):
    """Without a connection the browser shows an empty page; the one around says that all is kept, until it is sent."""
    client = crowd.boto()
    foreign = question("<form><input name=note><button>Submit</button></form>")
    html = {"own": pairs_page(), "foreign": foreign, "form": FORM}[kind]
    hit = post_hit(client, Question=html)["HITId"]
    page = new_page(tolerate="ERR_INTERNET_DISCONNECTED")
    page.clock.install()
    frame = accept_one(crowd, page)
    if kind != "own":
        becomes_true(page, "document.activeElement.id === 'hit'")
        frame.locator("[name=note], [name=q2]").fill("no")
        if kind == "form":
            frame.locator("[name=q1]").first.check()
    else:
        for place in ("p01", "p02", "p03"):
            frame.locator(f"[name={place}_label][value=no]").check()
    becomes_true(page, "Object.keys(localStorage).length > 0")
    send, lost = frame.get_by_role("button", name="Submit"), page.get_by_text("this browser has kept them")

    page.context.set_offline(True)
    send.click()
    later(page, lost)
    page.context.set_offline(False)
    page.get_by_role("link", name="Go back to your answers").click()
    send.wait_for()
    becomes_true(page, "document.activeElement.id === 'hit'")
    send.click()

    page.get_by_text("Submitted. Thank you!").wait_for()
    [own] = client.list_assignments_for_hit(HITId=hit)["Assignments"]
    assert own["Answer"].count(">no<") == (3 if kind == "own" else 1)


@pytest.mark.thorough
def test_answers_are_not_called_lost_while_they_are_on_their_way(crowd, page):
    """Though the HIT itself was there only just before, with its last picture."""
    post_hit(crowd.boto(), Question=pairs_page())
    [link] = admin.invite(crowd.engine, Environment.SANDBOX, clock=crowd.clock)
    answers = []
    page.route(
        "**/mturk/externalSubmit", lambda route: answers.append(route)
    )  # playwright marks the function
    page.goto(crowd.url + link.path)
    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()
    frame = page.frame_locator("#hit")
    for place in ("p01", "p02", "p03"):
        frame.locator(f"[name={place}_label][value=no]").check()

    # The load of the HIT once more, as it is told where a picture was slow, and then at once the click.
    page.evaluate("document.getElementById('hit').dispatchEvent(new Event('load'))")
    frame.locator("#send").click(no_wait_after=True)
    while not answers:
        page.wait_for_timeout(50)
    page.wait_for_timeout(2_000)
    said = page.get_by_text("this browser has kept them").is_visible()
    answers[0].continue_()

    page.get_by_text("Submitted. Thank you!").wait_for()
    assert not said


@pytest.mark.thorough
def test_a_picture_that_comes_after_a_form_was_held_back_says_nothing_of_lost_answers(crowd, page):
    """The page was about to send and then asked for more: what is loaded then is the page itself."""
    picture = f"{crowd.url}/i/slow.gif"
    form = (
        f"<form><img src='{picture}' alt=''><input name=note><button>Submit</button></form><script>"
        "document.forms[0].onsubmit = () => document.forms[0].note.value.length > 1;</script>"
    )
    post_hit(crowd.boto(), Question=question(form))
    [link] = admin.invite(crowd.engine, Environment.SANDBOX, clock=crowd.clock)
    pictures = []
    page.route(picture, lambda route: pictures.append(route))
    page.goto(crowd.url + link.path, wait_until="commit")
    page.get_by_role("button", name="Accept one").click(no_wait_after=True)
    frame = page.frame_locator("#hit")
    frame.locator("[name=note]").fill("n")
    becomes_true(page, "Object.keys(localStorage).length > 0")
    page.evaluate("document.getElementById('hit').addEventListener('load', () => { window.loads = true; })")

    frame.get_by_role("button", name="Submit").click()
    pictures[0].fulfill(body=b64decode(PIXEL), content_type="image/gif")
    becomes_true(page, "window.loads === true")
    page.wait_for_timeout(2_000)

    assert page.get_by_text("this browser has kept them").is_hidden()
    frame.locator("[name=note]").fill("no")
    frame.get_by_role("button", name="Submit").click()
    page.get_by_text("Submitted. Thank you!").wait_for()


def first_key(page, key, shown):
    """Press it without a click; twice at most, as a browser short of time may lose it while a frame takes the focus.

    A press is over once the page has heard it: what is not shown soon was lost.
    """
    from playwright.sync_api import TimeoutError as NotShownError

    enter_the_hit(page)
    page.keyboard.press(key)
    with suppress(NotShownError):
        shown.wait_for(timeout=4_000)
        return
    page.keyboard.press(key)
    shown.wait_for()


def test_the_first_key_is_the_hits(crowd, page):
    """After a click on Accept nothing has to be clicked or tabbed to; on the next HIT, and after a reload, neither."""
    client = crowd.boto()
    hit_type = client.create_hit_type(**TYPE)["HITTypeId"]
    for _ in range(2):
        post_hit(client, hit_type, Question=pairs_page())
    frame = accept_one(crowd, page)
    frame.get_by_text("0 of 3").wait_for()
    first_key(page, "1", frame.get_by_text("1 of 3"))
    page.reload()
    frame.get_by_text("1 of 3").wait_for()
    # The browser may have scrolled to where the worker was: then the second pair is the one at hand, else the first.
    first_key(page, "2", frame.locator("section:has([value=weak_yes]:checked)"))
    for key in "44":
        page.keyboard.press(key)
    frame.get_by_text("3 of 3").wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Submitted. Thank you!").wait_for()
    page.locator("button:focus").wait_for()
    page.keyboard.press("Enter")
    frame.get_by_text("0 of 3").wait_for()

    first_key(page, "1", frame.get_by_text("1 of 3"))


def test_a_key_before_the_window_closes_is_kept(crowd, page):
    """Nothing waits to be kept: the window is closed right after the last key, and opened again."""
    post_hit(crowd.boto(), Question=pairs_page())
    accept_one(crowd, page)
    enter_the_hit(page)

    page.on("dialog", lambda dialog: dialog.accept())
    for key in "12":
        page.keyboard.press(key)
    with page.expect_event("close"):
        page.close(run_before_unload=True)
    again = page.context.new_page()
    again.goto(crowd.url + "/w")
    again.get_by_role("link", name="Go on with it").click()

    again.frame_locator("#hit").get_by_text("2 of 3").wait_for()
    assert again.frame_locator("#hit").locator("[name=p02_label][value=weak_yes]").is_checked()


@pytest.mark.thorough
def test_a_draft_outlives_an_answer_given_before_the_page_around_listens(crowd, page):
    """On a slow line the HIT is there first: its first answer joins what was kept, and does not replace it."""
    post_hit(crowd.boto(), Question=pairs_page())
    frame = accept_one(crowd, page)
    frame.locator("[name=p01_label][value=yes]").check()
    frame.locator("[name=p02_label][value=no]").check()
    becomes_true(page, "Object.values(localStorage).join().includes('p02_label')")

    held = []
    page.route("**/worker.js", lambda route: held.append(route))
    page.reload(wait_until="commit")
    frame.locator("[name=p01_label][value=weak_no]").check()
    page.wait_for_timeout(200)
    held[0].continue_()

    frame.get_by_text("2 of 3").wait_for()
    assert frame.locator("[name=p01_label][value=weak_no]").is_checked()
    kept = "Object.values(localStorage).join()"
    becomes_true(page, f"""{kept}.includes('["p01_label","weak_no"]')""")
    assert '["p02_label","no"]' in page.evaluate(kept)


def test_a_hit_in_two_windows_says_so_and_is_sent_once(crowd, page):
    """The window that is behind tells of the other, and follows when that has sent."""
    post_hit(crowd.boto(), Question=pairs_page())
    accept_one(crowd, page)
    page.frame_locator("#hit").get_by_text("0 of 3").wait_for()
    other = page.context.new_page()
    other.goto(page.url)
    for place in (1, 2, 3):
        other.frame_locator("#hit").locator(f"[name=p0{place}_label][value=no]").check()

    page.get_by_text("open in another window too").wait_for()
    assert not other.get_by_text("open in another window too").is_visible()
    other.frame_locator("#hit").locator("#send").press("Enter")

    for window in (other, page):
        window.get_by_role("heading", name="Submitted. Thank you!").wait_for()


def test_what_a_worker_sets_holds_for_the_next_hit(crowd, page):
    """Going on by itself is switched off once, not on every page; so are the keys, which all kinds of pages have."""
    client = crowd.boto()
    post_hit(client, Question=pairs_page())
    frame = accept_one(crowd, page)
    frame.get_by_role("button", name="Keys").click()
    for option in ("#keys", "#auto"):
        frame.locator(option).uncheck()
    ratings = render_similarity(template(TEXTS), items(TEXTS, 2), contact=None, estimate_s=60)
    for html in (question_xml(ratings), pairs_page()):
        page.get_by_role("button", name="Return this HIT").click()
        page.get_by_text("You returned the HIT").wait_for()
        post_hit(client, Question=html)
        page.get_by_role("link", name="HITs", exact=True).click()
        page.get_by_role("button", name="Accept one").last.click()
        page.wait_for_load_state()
        frame.get_by_role("button", name="Keys").click()
        if html != pairs_page():
            frame.locator("#keys:not(:checked)").check()

    frame.locator("#auto:not(:checked)").wait_for()
    assert frame.locator("#keys").is_checked()


@pytest.mark.thorough
def test_instructions_are_folded_once_they_were_worked_by(crowd, page):
    """Open on a worker's first page of a kind, closed on the next, one click away; open again once they changed."""
    client = crowd.boto()
    hit_type = client.create_hit_type(**TYPE)["HITTypeId"]
    for places in (3, 2):
        post_hit(client, hit_type, Question=pairs_page(places))
    post_hit(client, hit_type, Question=pairs_page(2).replace("Small slips", "Large slips"))
    [link] = admin.invite(crowd.engine, Environment.SANDBOX, clock=crowd.clock)
    frame = page.frame_locator("#hit")
    opened = []

    page.goto(crowd.url + link.path)
    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()
    for places in (3, 2, 2):
        frame.locator(f"#p0{places}").wait_for()
        opened.append(frame.get_by_text("Please look for yourself").is_visible())
        frame.locator("summary").click()
        opened.append(frame.get_by_text("Please look for yourself").is_visible())
        page.locator("#hit").focus()
        for place in range(1, places + 1):
            frame.locator(f"[name=p0{place}_label][value=no]").check()
        frame.locator("#send").click()
        page.get_by_role("heading", name="Submitted. Thank you!").wait_for()
        if page.get_by_role("button", name="Accept the next one").count():
            page.get_by_role("button", name="Accept the next one").click()
            page.wait_for_load_state()

    assert opened == [True, False, False, True, True, False]
    assert page.get_by_text("That was the last HIT for you").count() == 1
    page.locator("a:focus", has_text="Back to the list").wait_for()
    page.keyboard.press("Enter")
    page.get_by_text("No HITs are open for you").wait_for()


@pytest.mark.thorough
def test_a_page_that_only_claims_to_be_sent_is_believed_once(crowd, page):
    """The server's page says what became of a HIT; one that claims more is shown again, and not for ever."""
    claim = "setInterval(() => parent.postMessage({type: 'mitl-submitted'}, '*'), 20)"
    html = f"<form data-mitl-submit method=post></form><script>{claim}</script>"
    post_hit(crowd.boto(), Question=question_xml(html))
    [link] = admin.invite(crowd.engine, Environment.SANDBOX, clock=crowd.clock)
    loads = []
    page.on("load", lambda: loads.append(page.url))
    page.goto(crowd.url + link.path)

    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()
    page.wait_for_url("**?sent=1")
    page.wait_for_timeout(300)

    assert len([url for url in loads if "/w/a/" in url]) <= 2
    assert page.get_by_role("button", name="Return this HIT").count() == 1


@pytest.mark.thorough
def test_after_a_false_claim_what_is_truly_sent_leads_on(crowd, page):
    """The page around offers the way to the thanks, since the frame's word was wrong before."""
    html = """<form data-mitl-submit method="post" action="about:blank">
    <input data-mitl-assignment type="hidden" name="assignmentId" value=""><input name="q"><button>Send</button></form>
    <script>parent.postMessage({type: "mitl-submitted"}, "*");
    setInterval(() => parent.postMessage({type: "mitl-submitted"}, "*"), 300)</script>"""
    post_hit(crowd.boto(), Question=question_xml(html))
    accept_one(crowd, page)
    page.wait_for_url("**?sent=1")
    way_on = page.get_by_role("link", name="go on here")
    way_on.wait_for()

    page.frame_locator("#hit").locator("[name=q]").fill("typed")
    # By key: the notice has moved the frame, and Chromium without a window may go on sending clicks to where it was.
    page.frame_locator("#hit").get_by_role("button", name="Send").press("Enter")
    page.frame_locator("#hit").get_by_text("Thank you, your answers arrived").wait_for()
    way_on.click()

    page.get_by_role("heading", name="Submitted. Thank you!").wait_for()


@pytest.mark.thorough
def test_a_file_is_refused_with_words_and_the_way_back_to_the_answers(crowd, new_page, tmp_path):
    """Nothing is submitted, the HIT is held, what was written stands there again, and without the file it is taken."""
    from playwright.sync_api import expect

    client = crowd.boto()
    html = """<form data-mitl-submit method="post" enctype="multipart/form-data" action="about:blank">
    <input data-mitl-assignment type="hidden" name="assignmentId" value="">
    <label>Words <input name="words"></label> <label>Picture <input type="file" name="picture"></label>
    <button>Send</button></form>"""
    hit = post_hit(client, Question=question_xml(html))
    [link] = admin.invite(crowd.engine, Environment.SANDBOX, clock=crowd.clock)
    (tmp_path / "cat.png").write_bytes(b"\x89PNG")
    # Its console rightly reports the status of what was refused.
    page = new_page(tolerate="status of 4", viewport={"width": 390, "height": 664})

    page.goto(crowd.url + link.path)
    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()
    frame = page.frame_locator("#hit")
    frame.get_by_label("Words").fill("a cat")
    frame.get_by_label("Picture").set_input_files(tmp_path / "cat.png")
    frame.get_by_role("button", name="Send").click()
    frame.get_by_role("heading", name="Files cannot be sent here.").wait_for()
    frame.get_by_role("link", name="Back to the HIT").click()
    expect(frame.get_by_label("Words")).to_have_value("a cat", timeout=30_000)
    frame.get_by_label("Picture").set_input_files([])
    frame.get_by_label("Words").fill("a cat on a mat")
    frame.get_by_role("button", name="Send").click()
    page.get_by_text("Submitted. Thank you!").wait_for()

    [own] = client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    assert "a cat on a mat" in own["Answer"]


def test_a_hits_script_cannot_reach_the_worker_or_the_server(crowd, page):
    """Hostile HTML in a HIT has no cookie, no storage, no parent, and no way to other pages of the server."""
    hostile = """<form data-mitl-submit method="post" action="about:blank">
    <input data-mitl-assignment type="hidden" name="assignmentId" value=""><input id="out" name="out"></form>
    <script>
    const tried = {};
    const attempt = (name, action) => {
      try { tried[name] = String(action()); } catch (error) { tried[name] = "refused"; }
    };
    attempt("cookie", () => document.cookie);
    attempt("storage", () => localStorage.length);
    attempt("parent", () => parent.document.title);
    attempt("top", () => { top.location = "https://example.org"; return "went"; });
    fetch("/w").then(() => "read", () => "refused").then(word => {
      tried.fetch = word;
      document.getElementById("out").value = JSON.stringify(tried);
      document.forms[0].submit();
    });
    </script>"""
    client = crowd.boto()
    hit = post_hit(client, Question=question_xml(hostile))
    [link] = admin.invite(crowd.engine, Environment.SANDBOX, clock=crowd.clock)
    # A window of its own, because its console rightly reports what was refused.
    quiet = page.context.new_page()

    quiet.goto(crowd.url + link.path)
    quiet.get_by_role("button", name="Accept one").click()
    quiet.wait_for_load_state()
    quiet.get_by_text("Submitted. Thank you!").wait_for()

    [own] = client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    assert quiet.url.startswith(crowd.url)
    for name in ("cookie", "storage", "parent", "top", "fetch"):
        assert f'"{name}":"refused"' in own["Answer"]


def test_the_list_fits_a_phone_on_which_text_is_twice_as_large(crowd, page):
    """Its search and its order among it."""
    for title in ("One kind", "Another kind"):
        kind = crowd.boto().create_hit_type(**TYPE | {"Title": title})["HITTypeId"]
        post_hit(crowd.boto(), kind, Question=question())
    [link] = admin.invite(crowd.engine, Environment.SANDBOX, clock=crowd.clock)
    page.set_viewport_size({"width": 360, "height": 740})

    page.goto(crowd.url + link.path)
    page.get_by_role("search").wait_for()
    page.evaluate(TWICE_THE_TEXT)

    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_a_preview_takes_no_input(crowd, page):
    """Everything shows, nothing can be filled in or sent."""
    client = crowd.boto()
    post_hit(client, Question=pairs_page())
    [link] = admin.invite(crowd.engine, Environment.SANDBOX, clock=crowd.clock)

    page.goto(crowd.url + link.path)
    page.get_by_role("link", name="Preview").click()
    frame = page.frame_locator("iframe")
    frame.locator("#send").wait_for()

    assert frame.locator("#send").is_disabled()
    assert frame.locator("[name=p01_label]").first.is_disabled()
    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()
    assert page.frame_locator("#hit").locator("[name=p01_label]").first.is_enabled()
