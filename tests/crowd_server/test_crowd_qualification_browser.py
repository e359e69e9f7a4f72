"""A qualification's test in a real browser: what its script says early, its clock, and the keyboard."""

from __future__ import annotations

import pytest
from axe_kit import violations
from browser_fixtures import becomes_true
from crowd_kit import post_hit
from hit_page_kit import later
from qualification_kit import choice, form, free, key, question

from mitl.crowd_server import admin
from mitl.records import Environment

pytest_plugins = ("browser_fixtures", "crowd_fixtures")
pytestmark = pytest.mark.browser

NEW = {"Name": "Colours", "Description": "d", "QualificationTypeStatus": "Active"}


@pytest.fixture(scope="module")
def browser(isolating_browser):
    """As people have it."""
    return isolating_browser


@pytest.fixture
def page(new_page, crowd):
    """A worker's window on a phone; errors on its console fail the test."""
    # A form that comes back with its problems has the status 422, which Chromium notes as an error.
    page = new_page(tolerate="422", viewport={"width": 390, "height": 844})
    [link] = admin.invite(crowd.engine, Environment.SANDBOX, clock=crowd.clock)
    page.goto(crowd.url + link.path)
    return page


def invalid(page):
    """What the browser says of the first field that it would not send."""
    field = page.locator("form#test input:invalid, form#test select:invalid").first
    return field.evaluate("field => field.validationMessage")


def test_a_test_by_keyboard_alone(crowd, page):
    """Tab, arrows, space and Enter go all the way to the result."""
    test = form(
        question("colour", choice("red", "green")),
        question("shapes", choice("round", "flat", style="checkbox")),
    )
    own = crowd.boto().create_qualification_type(
        **NEW,
        Test=test,
        AnswerKey=key({"colour": [(["green"], 1)], "shapes": [(["flat"], 2)]}),
        TestDurationInSeconds=600,
    )["QualificationType"]

    page.goto(f"{crowd.url}/w/qualifications/{own['QualificationTypeId']}")
    page.get_by_role("button", name="Start the test").focus()
    page.keyboard.press("Enter")
    page.get_by_role("radio", name="red").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    page.get_by_text("Its value is 3.").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_script_says_early_what_the_server_would_refuse(crowd, page):
    """A pattern in the requester's words, and how many may be chosen; answers survive a reload."""
    pattern = '<AnswerFormatRegex regex="^[0-9]+$" errorText="Digits only."/><AnswerFormatRegex regex="("/>'
    test = form(
        question("year", free(pattern)),
        question("shapes", choice("round", "flat", "tall", style="checkbox", least=2, most=2)),
    )
    own = crowd.boto().create_qualification_type(**NEW, Test=test, TestDurationInSeconds=600)[
        "QualificationType"
    ]
    page.goto(f"{crowd.url}/w/qualifications/{own['QualificationTypeId']}")
    page.get_by_role("button", name="Start the test").click()

    page.locator("[name=q1]").fill("last year")
    assert invalid(page) == "Digits only."
    page.locator("[name=q1]").fill("2026")
    page.get_by_role("checkbox", name="round").check()
    assert "at least 2" in invalid(page)
    for name in ("flat", "tall"):
        page.get_by_role("checkbox", name=name).check()
    assert "at most 2" in invalid(page)
    page.get_by_role("checkbox", name="tall").uncheck()
    page.reload()
    assert page.locator("[name=q1]").input_value() == "2026"
    assert page.get_by_role("checkbox", name="flat").is_checked()
    assert not page.get_by_role("checkbox", name="tall").is_checked()
    page.get_by_role("button", name="Send my answers").click()

    page.get_by_role("heading", name="Your answers arrived").wait_for()
    becomes_true(page, "Object.keys(localStorage).length === 0")
    assert crowd.boto().list_qualification_requests()["NumResults"] == 1


NUMBERS = free(
    '<IsNumeric minValue="1" maxValue="9"/><AnswerFormatRegex regex="^[^ ]+$" errorText="No spaces."/>'
)


def test_a_hits_numbers_are_checked_where_they_are_given(crowd, page):
    """A decimal comma, a bound, the requester's pattern; a number that may be left out can be."""
    client = crowd.boto()
    hit = post_hit(client, Question=form(question("years", NUMBERS, required=False)))
    page.goto(crowd.url + "/w")
    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()
    frame = page.frame_locator("#hit")
    field = frame.locator("[name=q1]")

    said = []
    for text in ("3,5", "0.5", "9.5", "3 5", "3.5", ""):
        field.fill(text)
        said.append(field.evaluate("field => field.validationMessage"))
    frame.get_by_role("button", name="Submit").click()

    page.get_by_role("heading", name="Submitted").wait_for()
    bounds = ["Please write a number of at least 1.", "Please write a number of at most 9."]
    assert said == ["Please write a number, such as 2.5.", *bounds, "No spaces.", "", ""]
    assert client.list_assignments_for_hit(HITId=hit["HITId"])["NumResults"] == 1


def test_a_reload_chooses_what_was_chosen_last(crowd, page):
    """A HIT's draft comes back as it was left: with a text beside Other, and with what was chosen in its place."""
    post_hit(crowd.boto(), Question=form(question("age", choice("young", "old", other="<OtherSelection/>"))))
    page.goto(crowd.url + "/w")
    page.get_by_role("button", name="Accept one").click()
    page.wait_for_load_state()
    frame = page.frame_locator("#hit")

    frame.get_by_role("radio", name="young").check()
    frame.locator("[name=q1_other]").fill("seven")
    for chosen, value in (("Other:", "other"), ("old", "2")):
        frame.get_by_role("radio", name=chosen).check()
        becomes_true(page, f"""Object.values(localStorage).join().includes('["q1","{value}"]')""")
        page.reload()
        frame.get_by_role("radio", name=chosen, checked=True).wait_for()
        assert frame.locator("[name=q1_other]").input_value() == "seven"


def begin(crowd, page, test):
    """Start a test as a worker."""
    own = crowd.boto().create_qualification_type(**NEW, Test=test, TestDurationInSeconds=600)
    page.goto(f"{crowd.url}/w/qualifications/{own['QualificationType']['QualificationTypeId']}")
    page.get_by_role("button", name="Start the test").click()
    page.wait_for_load_state()


def test_a_tests_numbers_are_checked_early_and_may_be_left_out(crowd, page):
    """Bounds hold for decimals, and for a draft that comes back; the pattern is about what was written."""
    begin(crowd, page, form(question("years", NUMBERS, required=False)))

    said = []
    for text in ("9.01", "9.", "0.99"):
        page.locator("[name=q1]").fill(text)
        said.append(page.locator("[name=q1]").evaluate("field => field.validationMessage"))
    page.reload()
    said.append(invalid(page))
    page.locator("[name=q1]").fill("")
    page.get_by_role("button", name="Send my answers").click()

    page.get_by_role("heading", name="Your answers arrived").wait_for()
    low, high = "Please write a number of at least 1.", "Please write a number of at most 9."
    assert said == [high, "", low, low]


def test_another_answer_that_was_typed_and_then_not_chosen_holds_nobody_up(crowd, page):
    """The server does not look at it; chosen again, it is checked again."""
    rules = '<IsNumeric minValue="1"/><Length minLength="3"/>'
    other = f"<OtherSelection><Constraints>{rules}</Constraints></OtherSelection>"
    begin(crowd, page, form(question("age", choice("young", "old", other=other))))

    page.locator("[name=q1_other]").press_sequentially("x")
    assert "a number" in invalid(page)
    page.get_by_role("radio", name="old").check()
    assert page.locator("form#test input:invalid").count() == 0
    page.get_by_role("radio", name="Other:").check()
    assert page.locator("form#test input:invalid").count() == 1
    page.get_by_role("radio", name="old").check()
    page.get_by_role("button", name="Send my answers").click()

    page.get_by_role("heading", name="Your answers arrived").wait_for()


def test_another_answer_that_was_typed_before_the_script_came_is_chosen(crowd, page):
    """On a slow line; unless something else was chosen since."""
    fields = [question(name, choice("young", "old", other="<OtherSelection/>")) for name in ("age", "size")]
    own = crowd.boto().create_qualification_type(**NEW, Test=form(*fields), TestDurationInSeconds=600)
    page.goto(f"{crowd.url}/w/qualifications/{own['QualificationType']['QualificationTypeId']}")
    late = []
    page.route("**/form_rules.js", lambda route: late.append(route))
    page.get_by_role("button", name="Start the test").click()

    for name in ("q1_other", "q2_other"):
        page.locator(f"[name={name}]").press_sequentially("x")
    page.locator("[name=q2]").first.check()
    late[0].continue_()
    page.wait_for_load_state()

    assert [page.locator(f"#{name}_else").is_checked() for name in ("q1", "q2")] == [True, False]


def test_a_list_and_a_text_beside_it_are_held_to_one_answer_early(crowd, page):
    """In the server's words, which is told of neither by a mark of its own."""
    xml = form(question("device", choice("phone", "tablet", style="dropdown", other="<OtherSelection/>")))
    begin(crowd, page, xml)
    listed, written = page.locator("[name=q1]"), page.locator("[name=q1_other]")

    said = [listed.evaluate("field => field.validationMessage")]
    for place, text in (("1", "a watch"), ("", "a watch"), ("2", " ")):
        listed.select_option(place)
        written.fill(text)
        said.append(listed.evaluate("field => field.validationMessage"))
    page.get_by_role("button", name="Send my answers").click()

    page.get_by_role("heading", name="Your answers arrived").wait_for()
    assert said == ["Please choose an answer.", "Please choose one answer only.", "", ""]


def test_the_clock_runs_out_on_the_page(crowd, page):
    """At the end nothing can be sent any more, which the button shows, and the page says what to do."""
    own = crowd.boto().create_qualification_type(
        **NEW, Test=form(question("a", free())), TestDurationInSeconds=1
    )
    page.goto(f"{crowd.url}/w/qualifications/{own['QualificationType']['QualificationTypeId']}")
    page.clock.install()
    page.get_by_role("button", name="Start the test").click()

    later(page, page.get_by_text("The time of this test is over"))

    send = page.get_by_role("button", name="Send my answers")
    assert send.is_disabled() and send.evaluate("button => getComputedStyle(button).opacity") < "1"


def test_the_pages_have_no_accessibility_violation(crowd, page):
    """The list, a qualification, its test, the test with problems, the result, the messages."""
    client = crowd.boto()
    test = form(
        question("colour", choice("red", "green")),
        question("shapes", choice("round", "flat", style="checkbox", other="<OtherSelection/>")),
        question("device", choice("phone", "tablet", style="dropdown", other="<OtherSelection/>")),
        question(
            "why", free('<Length minLength="3"/>', "<NumberOfLinesSuggestion>3</NumberOfLinesSuggestion>")
        ),
        question("years", free("<IsNumeric/>"), required=False),
        overview="<Title>How to</Title><Text>t</Text><List><ListItem>i</ListItem></List>",
    )
    own = client.create_qualification_type(**NEW, Test=test, TestDurationInSeconds=600)["QualificationType"]
    client.create_qualification_type(**NEW | {"Name": "b"}, AutoGranted=True)

    def scan(path=None):
        if path is not None:
            page.goto(crowd.url + path)
        assert violations(page) == []

    scan("/w/qualifications")
    scan(f"/w/qualifications/{own['QualificationTypeId']}")
    page.get_by_role("button", name="Start the test").click()
    page.locator("#send").wait_for()
    scan()
    page.locator("[name=q4]").fill("a reason")
    page.locator("form#test").evaluate("form => { form.noValidate = true; form.requestSubmit(); }")
    page.get_by_text("Please look again at questions").wait_for()
    scan()
    page.get_by_role("radio", name="red").check()
    page.locator("#q2_other").fill("a cone")
    page.locator("[name=q3]").select_option("2")
    page.get_by_role("button", name="Send my answers").click()
    page.get_by_role("heading", name="Your answers arrived").wait_for()
    scan()
    [request] = client.list_qualification_requests()["QualificationRequests"]
    assert "<OtherSelectionText>a cone</OtherSelectionText>" in request["Answer"]
    client.reject_qualification_request(QualificationRequestId=request["QualificationRequestId"], Reason="no")
    scan("/w/messages")
    scan("/w/qualifications")
