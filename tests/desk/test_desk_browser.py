"""A person at the desk in a real browser: by keyboard and by mouse, while others decide too."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from browser_fixtures import TWICE_THE_TEXT, becomes_true
from desk_kit import REASON, OpenDesk
from world_kit import SANDBOX

from mitl.desk import worker_pages
from mitl.records import Decision
from mitl.stages.reviewing.review import Ruling, rule

pytest_plugins = ("browser_fixtures", "desk_fixtures")
pytestmark = pytest.mark.browser


@pytest.fixture
def page(new_page: Callable[..., Any], opened: OpenDesk) -> Any:
    """A window on the desk, opened by its link, whose clock the test moves; errors on its console fail the test."""
    page = new_page(viewport={"width": 1280, "height": 900})
    page.clock.install()
    page.goto(f"{opened.url}/?token={opened.desk.access.token}")
    page.get_by_role("heading", name="Overview").wait_for()
    page.wait_for_load_state()
    return page


def test_a_queue_is_worked_off_by_keyboard_alone(opened, page):
    """To the queue, to and fro, approve, pay and exclude, reject with a reason: each reaches the server."""
    first, second, third, fourth, *_ = opened.rows(Decision.QUEUED)

    page.keyboard.press("q")
    heading(page, first.id)
    page.keyboard.press("j")
    heading(page, second.id)
    page.keyboard.press("ArrowRight")
    heading(page, third.id)
    page.keyboard.press("k")
    heading(page, second.id)
    page.keyboard.press("ArrowLeft")
    heading(page, first.id)
    page.keyboard.press("a")
    heading(page, second.id)
    page.keyboard.press("e")
    heading(page, third.id)
    page.keyboard.press("r")
    page.keyboard.type(f"{REASON} aej?")
    page.keyboard.press("Control+Enter")
    heading(page, fourth.id)
    opened.settle()

    rows = {row.id: row for row in opened.rows()}
    assert [rows[one.id].decision for one in (first, second, third, fourth)] == [
        Decision.APPROVE,
        Decision.APPROVE_EXCLUDE,
        Decision.REJECT,
        Decision.QUEUED,
    ]
    assert [rows[one.id].status for one in (first, second, third)] == ["Approved", "Approved", "Rejected"]
    assert rows[second.id].excluded
    assert "aej?" in opened.get(f"/queue/{third.id}").text


def heading(page: Any, number: int) -> None:
    """Wait for a submission's page and its keys, until it takes decisions."""
    page.get_by_role("heading", name=f"Submission {number}", exact=True).wait_for()
    page.wait_for_load_state()
    page.clock.fast_forward(500)
    becomes_true(page, "!sent")


def test_a_rejection_without_a_reason_stays_on_the_page(opened, page):
    """The field asks for one; Escape leaves it, and the keys work again."""
    first = opened.rows(Decision.QUEUED)[0]
    page.goto(f"{opened.url}/queue/{first.id}")

    page.keyboard.press("r")
    page.keyboard.type("bad")
    page.keyboard.press("Control+Enter")
    page.keyboard.press("Escape")
    page.keyboard.press("?")

    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("a")
    page.keyboard.press("Escape")
    assert not page.get_by_role("dialog").is_visible()
    heading(page, first.id)
    assert opened.row(first.id).decision is Decision.QUEUED


@pytest.mark.thorough
def test_a_second_press_decides_about_nothing_that_was_not_seen(opened, page):
    """The next submission is there before the second press: it takes none until somebody could have looked at it."""
    first, second, *_ = opened.rows(Decision.QUEUED)
    page.add_init_script(
        """addEventListener("DOMContentLoaded", () =>
          document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "a", bubbles: true})))"""
    )

    page.goto(f"{opened.url}/queue/{first.id}")
    heading(page, first.id)
    page.keyboard.press("a")
    heading(page, second.id)

    assert [opened.row(one.id).decision for one in (first, second)] == [Decision.APPROVE, Decision.QUEUED]


@pytest.mark.thorough
def test_a_reason_outlives_the_session(opened, new_page):
    """The desk was started anew and refuses what its old page sends: by the new link the reason is there again."""
    first, second, *_ = opened.rows(Decision.QUEUED)
    link = f"{opened.url}/?token={opened.desk.access.token}"
    page = new_page(tolerate="403 (Forbidden)")
    page.goto(link)
    page.get_by_role("heading", name="Overview").wait_for()
    page.goto(f"{opened.url}/queue/{first.id}")
    heading(page, first.id)
    page.keyboard.press("r")
    page.keyboard.type(REASON)
    page.context.clear_cookies()
    page.keyboard.press("Control+Enter")
    page.get_by_role("heading", name="Open the desk's own link").wait_for()

    page.goto(link)
    page.get_by_role("heading", name="Overview").wait_for()
    page.goto(f"{opened.url}/queue/{second.id}")
    assert page.locator("#reason").input_value() == ""
    page.goto(f"{opened.url}/queue/{first.id}")
    heading(page, first.id)
    assert page.locator("#reason").input_value() == REASON
    page.keyboard.press("a")
    heading(page, second.id)

    assert page.evaluate("localStorage.length") == 0


@pytest.mark.thorough
def test_a_message_outlives_the_session(opened, new_page):
    """Its subject and its text, on this worker's page alone, until it is sent."""
    first, second, *_ = opened.rows(Decision.QUEUED)
    opened.post(f"/queue/{first.id}/decide", {"decision": "approve"})
    opened.settle()
    link = f"{opened.url}/?token={opened.desk.access.token}"
    page = new_page(tolerate="403 (Forbidden)")
    page.goto(link)
    page.get_by_role("heading", name="Overview").wait_for()
    page.goto(f"{opened.url}/workers/{first.worker_id}")
    becomes_true(page, "!sent")
    page.locator("#subject").fill("Thank you")
    page.locator("#text").fill("Two lines,\nhalf writ")
    page.context.clear_cookies()
    page.keyboard.press("Control+Enter")
    page.get_by_role("heading", name="Open the desk's own link").wait_for()

    page.goto(link)
    page.get_by_role("heading", name="Overview").wait_for()
    page.goto(f"{opened.url}/workers/{second.worker_id}")
    assert (page.locator("#subject").input_value(), page.locator("#text").input_value()) == ("", "")
    page.goto(f"{opened.url}/workers/{first.worker_id}")
    assert page.locator("#text").input_value() == "Two lines,\nhalf writ"
    becomes_true(page, "!sent")
    page.locator("#text").focus()
    page.keyboard.press("Control+Enter")

    page.locator(".message").get_by_text("half writ").wait_for()
    page.wait_for_load_state()
    assert (page.locator("#subject").input_value(), page.locator("#text").input_value()) == ("", "")
    assert page.evaluate("localStorage.length") == 0


def test_a_message_on_its_way_is_told(opened, page):
    """Starting a server within the desk takes seconds, in which nothing else on the page would move."""
    page.goto(f"{opened.url}/workers/{opened.rows()[0].worker_id}")
    page.evaluate(
        "document.addEventListener('submit', event => event.preventDefault())"
    )  # as if no reply came
    line = page.get_by_text("Sending…")
    assert line.is_hidden()
    page.locator("#subject").fill("Thank you")
    page.locator("#text").fill("For your work.")
    becomes_true(page, "!sent")
    page.get_by_role("button", name="Send the message").click()

    assert line.is_visible()


@pytest.mark.thorough
def test_everything_goes_by_mouse_too(opened, page):
    """Links and buttons for the queue, the decisions, the reason and the worker's page."""
    first, second, *_ = opened.rows(Decision.QUEUED)

    page.get_by_role("link", name="Review the queue").click()
    heading(page, first.id)
    page.get_by_role("button", name="Approve").click()
    heading(page, second.id)
    page.get_by_label("Reason, for the worker to read").fill(REASON)
    page.get_by_role("button", name="Reject").click()
    page.get_by_role("status").filter(has_text="rejected: not paid").wait_for()
    opened.settle()
    page.goto(f"{opened.url}/queue/{second.id}")
    heading(page, second.id)
    page.get_by_role("button", name="Pay after all, drop the answers").click()
    page.get_by_text("Paid, not used.").wait_for()
    page.locator("#go-worker").click()
    page.get_by_role("link", name=f"Back to submission {second.id}").wait_for()
    opened.settle()

    assert opened.row(first.id).decision is Decision.APPROVE
    assert (opened.row(second.id).decision, opened.row(second.id).status) == (Decision.DROP, "Approved")


def test_counts_renew_themselves_and_what_is_being_written_stays(opened, page):
    """Another decides about another submission: the number in the head falls, the reason being written is kept."""
    first, second, *_ = opened.rows(Decision.QUEUED)
    queued = len(opened.rows(Decision.QUEUED))
    page.goto(f"{opened.url}/queue/{first.id}")
    page.keyboard.press("r")
    page.keyboard.type("half a reason")

    rule(opened.settings, [Ruling(second.id, Decision.DROP)], SANDBOX)
    page.clock.fast_forward(3000)

    page.locator("#queue-link .number", has_text=str(queued - 1)).wait_for()
    page.locator("#position", has_text=f"1 of {queued - 1}").wait_for()
    assert page.locator("#reason").input_value() == "half a reason"
    assert page.evaluate("document.activeElement.id") == "reason"
    assert not page.locator("#conflict").is_visible()


def test_a_submission_that_somebody_else_decided_is_not_swapped_but_closed(opened, page):
    """The page stays, says what was decided, and takes no decision any more."""
    first = opened.rows(Decision.QUEUED)[0]
    page.goto(f"{opened.url}/queue/{first.id}")

    rule(opened.settings, [Ruling(first.id, Decision.DROP)], SANDBOX)
    page.clock.fast_forward(3000)

    page.get_by_text("Somebody else decided about this submission meanwhile: paid, not used").wait_for()
    heading(page, first.id)
    page.keyboard.press("a")
    assert page.get_by_role("button", name="Approve").is_disabled()
    assert opened.row(first.id).decision is Decision.DROP


def test_one_s_own_decision_is_not_called_somebody_else_s(opened, page):
    """The page was asking whether it is still true when the decision went out."""
    first = opened.rows(Decision.QUEUED)[0]
    page.goto(f"{opened.url}/queue/{first.id}")
    held = []
    page.route(re.compile("/state|/decide"), lambda route: held.append(route))
    with page.expect_request(re.compile("/state")):
        page.clock.fast_forward(3000)
    page.evaluate("setTimeout(() => document.querySelector('[data-key=a]').click())")
    page.wait_for_timeout(300)
    asking, deciding = held

    rule(
        opened.settings, [Ruling(first.id, Decision.APPROVE)], SANDBOX
    )  # as the form does, whose answer is slow
    with page.expect_response(re.compile("/state")):
        asking.continue_()
    page.wait_for_timeout(300)
    deciding.abort("aborted")

    assert page.locator("#conflict").is_hidden()


def test_the_table_of_workers_is_sorted_and_walked_by_keyboard(opened, page):
    """Digits sort and turn round, J and K walk, Enter opens."""
    page.keyboard.press("w")
    page.get_by_role("heading", name="Workers").wait_for()
    page.wait_for_load_state()
    page.keyboard.press("1")
    page.locator("th[aria-sort=ascending]", has_text="Worker").wait_for()
    page.wait_for_load_state()
    rising = page.locator("tbody th a").all_inner_texts()
    page.keyboard.press("1")
    page.locator("th[aria-sort=descending]", has_text="Worker").wait_for()
    page.wait_for_load_state()
    falling = page.locator("tbody th a").all_inner_texts()
    for key in "jjk":
        page.keyboard.press(key)
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=falling[0]).wait_for()

    assert rising == sorted(rising) == falling[::-1]
    assert len(rising) == len({row.worker_id for row in opened.rows()})


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.thorough(but=("390",))
def test_pages_of_workers_are_turned_by_keys_and_links(opened, page, monkeypatch, width):
    """N and B turn them, a new order begins at the first page, and the way back from a worker leads to theirs."""
    monkeypatch.setattr(worker_pages, "A_PAGE", 1)
    page.set_viewport_size({"width": width, "height": 800})
    turn = page.get_by_role("navigation", name="More workers").locator("span")
    page.keyboard.press("w")
    turn.filter(has_text="page 1 of").wait_for()
    for key, number in (("n", 2), ("n", 3), ("b", 2)):
        page.wait_for_load_state()
        page.keyboard.press(key)
        turn.filter(has_text=f"page {number} of").wait_for()
    page.wait_for_load_state()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator("tbody th a").first.click()
    page.get_by_role("heading", name="Submissions").wait_for()
    page.go_back()
    turn.filter(has_text="page 2 of").wait_for()
    page.locator("#by-worker").click()
    turn.filter(has_text="page 1 of").wait_for()


@pytest.mark.parametrize(("width", "height"), [(1280, 700), (390, 664)])
@pytest.mark.thorough(but=("390-*",))
def test_the_decision_stays_in_view_under_forty_findings(opened, page, width, height):
    """They are folded by kind and stand by their numbers; unfolded or not, wherever one reads, Approve is at hand."""
    first = opened.rows(Decision.QUEUED)[0]
    for place in [*range(40, 0, -1)]:
        note(opened, first.id, "missing_answer", f"place {place} has no usable answer")
    for code in ("unknown_field", "unasked_rationale", "label_ignored", "duplicate_field", "unknown_place"):
        for number in (10, 9):
            note(opened, first.id, code, f"p{number}_label came twice, and a word of 80 letters {'x' * 80}")
    page.set_viewport_size({"width": width, "height": height})
    page.goto(f"{opened.url}/queue/{first.id}")

    def approve_is_in_view():
        box = page.get_by_role("button", name="Approve").bounding_box()
        return box["y"] >= 0 and box["y"] + box["height"] <= height

    seen = [approve_is_in_view()]
    page.get_by_text("A pair has no answer: 40 times.").locator("summary").click()
    seen.append(approve_is_in_view())
    for where in ("0", "document.body.scrollHeight / 2"):
        page.evaluate(f"scrollTo(0, {where})")
        seen.append(approve_is_in_view())

    details = page.get_by_text("A pair has no answer: 40 times.").locator("li").all_inner_texts()
    assert seen == [True] * 4
    assert details == [f"place {place} has no usable answer" for place in range(1, 41)]
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_mark_of_a_control_stands_beside_its_number(opened, page):
    """Also on a phone, where cells have no room to spare."""
    first = opened.rows(Decision.QUEUED)[0]
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{opened.url}/queue/{first.id}")

    numbers = page.locator(".pairs tr.control > :first-child")

    assert numbers.count() == 2
    assert all(
        numbers.nth(at).evaluate("cell => parseFloat(getComputedStyle(cell).paddingLeft)") > 4
        for at in (0, 1)
    )


def test_printed_pages_hold_every_column_and_no_buttons(opened, page):
    """On paper nothing can be pressed or scrolled to: the table of workers fits A4; colours are those of the screen."""
    first = opened.rows(Decision.QUEUED)[0]
    page.set_viewport_size({"width": 730, "height": 1000})
    page.emulate_media(media="print")
    page.goto(f"{opened.url}/workers")
    table = page.locator(".scroll").first
    fits = table.evaluate(
        "box => box.scrollWidth <= box.clientWidth && getComputedStyle(box).overflowX === 'visible'"
    )
    page.goto(f"{opened.url}/queue/{first.id}")

    assert fits
    assert page.locator("main button:visible, main kbd:visible, .top button:visible").count() == 0
    assert page.locator(".chip").first.evaluate("chip => getComputedStyle(chip).printColorAdjust") == "exact"


def note(opened: OpenDesk, submission: int, code: str, detail: str) -> None:
    """Something noticed about a submission."""
    statement = "INSERT INTO finding (assignment_id, code, detail) VALUES (:id, :code, :detail)"
    opened.sql(statement, id=submission, code=code, detail=detail)


def test_nothing_hangs_over_the_edge(opened, page):
    """Wide tables scroll inside their own box, on a phone as on a desk."""
    first = opened.rows(Decision.QUEUED)[0]
    for path in ("/", "/workers", f"/workers/{first.worker_id}", f"/queue/{first.id}"):
        page.goto(opened.url + path)
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(opened.url)
    page.evaluate(TWICE_THE_TEXT)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_screen_reader_s_list_of_tables_names_each(opened, page):
    """By the heading that sighted people read above it."""
    first = opened.rows(Decision.QUEUED)[0]
    names = {}
    for path in ("/", "/workers", f"/workers/{first.worker_id}", f"/queue/{first.id}"):
        page.goto(opened.url + path)
        tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
        tables = [node for node in tree if node.get("role", {}).get("value") == "table"]
        names[path] = [node["name"]["value"] for node in tables]

    assert list(names.values()) == [
        ["What became of the work", "Workers"],
        ["Workers"],
        ["Submissions, newest first"],
        ["All answers, in the page's order"],
    ]


def test_no_page_breaks_a_rule_of_accessibility(opened, page, monkeypatch):
    """axe-core finds nothing on any page by day, nor by night where other parts in other colours stand."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is missing"
    )
    monkeypatch.setattr(worker_pages, "A_PAGE", 2)
    first = opened.rows(Decision.QUEUED)[0]
    for path, schemes in (
        ("/", ("light",)),
        ("/workers", ("light", "dark")),
        (f"/workers/{first.worker_id}", ("light",)),
        (f"/queue/{first.id}", ("light", "dark")),
    ):
        page.goto(opened.url + path)
        for scheme in schemes:
            page.emulate_media(color_scheme=scheme)
            found = axe.Axe().run(page)
            assert found.violations_count == 0, found.generate_report()
