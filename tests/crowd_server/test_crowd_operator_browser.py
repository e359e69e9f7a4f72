"""The operator's page in a real browser: it stays true without a reload, and says when it cannot."""

from __future__ import annotations

import pytest
from axe_kit import violations
from browser_fixtures import TWICE_THE_TEXT
from crowd_kit import TYPE, post_hit
from crowd_operator_kit import add_late_answer, add_panel

from mitl.crowd_server import admin
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures", "browser_fixtures")
pytestmark = pytest.mark.browser


@pytest.fixture
def page(new_page):
    """A new window whose clock the test moves; errors on its console fail the test."""
    page = new_page(viewport={"width": 1280, "height": 900})
    page.clock.install()
    return page


def test_numbers_and_rows_change_without_a_reload(crowd, page):
    """A submission, a new group and a new invitation appear; the focus and a half-filled form stay."""
    client = crowd.boto()
    own = client.create_hit_type(**TYPE)["HITTypeId"]
    for _ in range(2):
        post_hit(client, own)
    worker = crowd.worker()
    page.goto(f"{crowd.url}/operator?token={admin.operator_token(crowd.engine)}")
    page.get_by_text("live, ").wait_for()
    done = page.locator(f"[data-live='{own}.done']")
    assert done.text_content() == "0"
    page.evaluate("window.stayed = true")
    page.locator("summary", has_text="Invite people").click()
    page.get_by_label("Label, for you alone").fill("half")
    page.get_by_role("button", name="Pause").focus()

    worker.do(own)
    page.clock.fast_forward(5000)
    page.locator(f"[data-live='{own}.done']", has_text="1").wait_for()
    post_hit(client, client.create_hit_type(**TYPE | {"Title": "Another group"})["HITTypeId"])
    admin.invite(crowd.engine, Environment.LIVE, label="by the command line", clock=crowd.clock)
    page.clock.fast_forward(5000)
    page.get_by_role("rowheader", name="Another group").wait_for()

    assert page.get_by_role("rowheader", name="by the command line").count() == 1
    assert page.evaluate("window.stayed") is True
    assert page.get_by_label("Label, for you alone").input_value() == "half"
    assert page.evaluate("document.activeElement.id") == f"pause-{own}"
    assert page.locator(f"[data-bar='{own}']").evaluate("bar => [bar.value, bar.max]") == [1, 2]


def test_a_lost_connection_is_said_and_found_again(crowd, new_page):
    """The old numbers stay; the page goes on asking; a session that ended is another thing."""
    page = new_page(tolerate="Failed to load resource")
    page.clock.install()
    page.goto(f"{crowd.url}/operator?token={admin.operator_token(crowd.engine)}")
    page.get_by_text("live, ").wait_for()

    page.context.set_offline(True)
    page.clock.fast_forward(5000)
    page.get_by_text("connection lost, trying again").wait_for()
    page.context.set_offline(False)
    page.clock.fast_forward(5000)
    page.get_by_text("live, ").wait_for()
    crowd.clock.advance(hours=13)
    page.clock.fast_forward(5000)
    page.get_by_text("signed out").wait_for()


def test_the_operator_signs_in_invites_and_expires_by_keyboard(crowd, new_page):
    """Every action can be reached and done without a mouse, and asked about first where it cannot be undone."""
    client = crowd.boto()
    post_hit(client)
    page = new_page(tolerate="403 (Forbidden)")

    page.goto(f"{crowd.url}/operator")
    # The field has it before the first frame is drawn, which a test may outrun.
    page.locator("#token:focus").wait_for()
    page.keyboard.insert_text(admin.operator_token(crowd.engine))
    page.keyboard.press("Enter")
    page.locator("summary", has_text="Invite people").wait_for()
    page.get_by_label("Environment").select_option("sandbox")
    page.get_by_role("button", name="Make the links").press("Enter")
    link = page.get_by_label("Link 1").input_value()
    page.get_by_role("link", name="Back to the operator's page").press("Enter")
    page.get_by_role("link", name="Expire…").press("Enter")
    page.get_by_role("button", name="Expire the group").press("Enter")
    page.get_by_text("Expired. Nobody gets").wait_for()
    page.get_by_text("live, ").wait_for()

    assert crowd.browser().get(link).status_code == 200
    assert client.list_hits()["HITs"][0]["HITStatus"] == "Reviewable"
    assert page.url == f"{crowd.url}/operator"
    assert page.locator(".state.expired").count() == 1


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
@pytest.mark.thorough(but=("1280-light",))
def test_it_fits_and_is_accessible(crowd, new_page, width, scheme):
    """Nothing runs out of the screen, a phone's included, and axe finds no fault with rows of every kind."""
    client = crowd.boto()
    long = "Does this caption fit the picture? " * 3
    own = post_hit(client, client.create_hit_type(**TYPE | {"Title": long})["HITTypeId"])["HITTypeId"]
    crowd.worker().accept(own)
    add_late_answer(crowd)
    add_panel(crowd, "study-of-november")
    admin.invite(crowd.engine, Environment.SANDBOX, label="x" * 90, clock=crowd.clock)
    page = new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)

    page.goto(f"{crowd.url}/operator?token={admin.operator_token(crowd.engine)}")
    for path in ("/late", "/active", f"/groups/{own}/expire", "/payments/live", ""):
        page.goto(crowd.url + "/operator" + path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    assert violations(page) == []
    page.set_viewport_size({"width": 390, "height": 844})
    page.evaluate(TWICE_THE_TEXT)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
