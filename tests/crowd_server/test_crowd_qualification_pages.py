"""Workers' way to a qualification: ask, take the test in its time, read the result, see the HITs it opens."""

from __future__ import annotations

import datetime as dt
import re
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from crowd_kit import TYPE, post_hit
from qualification_kit import TWO, TWO_KEY, ask, choice, form, free, made, question

from mitl.crowd_server.store import workers
from mitl.crowd_server.store.database import Database
from mitl.crowd_server.store.models import RequestState
from mitl.crowd_server.store.qualifications import (
    QualificationRow,
    QualificationTerms,
    QualificationTypeRow,
    RequestRow,
)
from mitl.crowd_server.store.workers import StudyRow
from mitl.crowd_server.work.qualifications import is_shown, standing
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)

TESTED = {"Test": TWO, "AnswerKey": TWO_KEY, "TestDurationInSeconds": 600}
RIGHT = {"q1": "1", "q2": ["1", "3"]}
WRONG = {"q1": "2", "q2": ["2"]}


def send(worker, page, **fields):
    """Send a test's page with these answers."""
    version = re.search(r'name="version" value="([0-9a-f.]+)"', page.text)[1]
    return worker.post(page.url.path, {"version": version, **fields})


def score(client, worker, type_id):
    """What the worker holds."""
    return client.get_qualification_score(QualificationTypeId=type_id, WorkerId=worker.id)["Qualification"]


def holders(client, type_id):
    """How many hold a type."""
    return client.list_workers_with_qualification_type(QualificationTypeId=type_id)["NumResults"]


def test_a_worker_passes_a_test_and_sees_the_hits_it_opens(either_crowd):
    """Request, test, grade, list: the guarded HIT is there at once and only for who passed."""
    client = either_crowd.boto()
    type_id = made(client, **TESTED)
    guard = {
        "QualificationTypeId": type_id,
        "Comparator": "GreaterThanOrEqualTo",
        "IntegerValues": [80],
        "ActionsGuarded": "DiscoverPreviewAndAccept",
    }
    hit_type = client.create_hit_type(**TYPE, QualificationRequirements=[guard])["HITTypeId"]
    post_hit(client, hit_type, MaxAssignments=2)
    good, bad = either_crowd.worker(), either_crowd.worker()
    assert TYPE["Title"] not in good.get("/w").text

    listed = good.get("/w/qualifications").text
    assert f"/w/qualifications/{type_id}" in listed
    about = good.get(f"/w/qualifications/{type_id}").text
    assert "Sees &lt;colours&gt;." in about
    assert "<b>2</b> questions" in about
    page = ask(good, type_id)
    assert "Look &lt;well&gt;." in page.text
    result = send(good, page, **RIGHT)
    send(bad, ask(bad, type_id), **WRONG)

    assert 'Its value is <b class="value">100</b>' in result.text
    assert score(client, good, type_id)["IntegerValue"] == 100
    assert score(client, bad, type_id)["IntegerValue"] == 0
    assert TYPE["Title"] in good.get("/w").text
    assert TYPE["Title"] not in bad.get("/w").text
    assert good.accept(hit_type) is not None
    assert bad.accept(hit_type) is None


def test_answers_after_the_time_are_not_taken(crowd, client):
    """The server's clock counts, with a few seconds for the way; the try is used."""
    type_id, worker = made(client, **TESTED), crowd.worker()
    page = ask(worker, type_id)
    crowd.clock.advance(seconds=606)

    result = send(worker, page, **RIGHT)

    assert "The time of the test is over" in result.text
    assert holders(client, type_id) == 0
    assert "ran out" in worker.get("/w/qualifications").text
    assert "only once" in ask(worker, type_id).text


def test_answers_on_their_way_at_the_end_are_taken(crowd, client):
    """Five seconds are given for the network."""
    type_id, worker = made(client, **TESTED), crowd.worker()
    page = ask(worker, type_id)
    crowd.clock.advance(seconds=604)

    send(worker, page, **RIGHT)

    assert holders(client, type_id) == 1


def test_a_second_submission_changes_nothing(crowd, client):
    """A double click, a reload or the back button shows the first result."""
    type_id, worker = made(client, **TESTED), crowd.worker()
    page = ask(worker, type_id)
    send(worker, page, **RIGHT)

    again = send(worker, page, **WRONG)

    assert again.status_code == 200
    assert "your result" in again.text
    assert score(client, worker, type_id)["IntegerValue"] == 100


def test_two_submissions_at_once_are_one(crowd, client):
    """Whichever comes first counts."""
    worker = crowd.worker()
    type_id = made(client, **TESTED | {"AnswerKey": ""})
    page = ask(worker, type_id)
    cookies = dict(worker.browser.cookies)
    version = re.search(r'name="version" value="([0-9a-f.]+)"', page.text)[1]

    def once(_):
        data = {"version": version, **RIGHT}
        headers = {"Origin": crowd.url}
        return httpx.post(
            str(page.url), data=data, cookies=cookies, headers=headers, trust_env=False
        ).status_code

    with ThreadPoolExecutor(4) as pool:
        codes = set(pool.map(once, range(4)))

    assert codes == {303}
    assert client.list_qualification_requests()["NumResults"] == 1


def test_pressing_the_button_twice_starts_one_test(crowd, client):
    """The second press leads to the test in hand, whose clock runs on."""
    type_id, worker = made(client, **TESTED), crowd.worker()

    first = ask(worker, type_id)
    crowd.clock.advance(seconds=100)
    second = ask(worker, type_id)

    assert first.url == second.url
    assert 'data-seconds="600"' in first.text
    assert 'data-seconds="500"' in second.text


def test_a_test_belongs_to_who_started_it(crowd, client):
    """Another worker, one of the other environment, and nobody at all find nothing there."""
    type_id, owner = made(client, **TESTED), crowd.worker()
    page = ask(owner, type_id)
    path = page.url.path

    for other in (crowd.worker(), crowd.worker(Environment.LIVE)):
        assert other.get(path).status_code == 404
        assert send(other, page, **RIGHT).status_code == 404
    assert crowd.browser().get(crowd.url + path).status_code == 403
    assert holders(client, type_id) == 0
    assert send(owner, page, **RIGHT).status_code == 200
    assert holders(client, type_id) == 1


def test_another_site_cannot_send_the_forms(crowd, client):
    """Neither the request nor the answers."""
    type_id, worker = made(client, **TESTED), crowd.worker()
    page = ask(worker, type_id)

    for path in (page.url.path, f"/w/qualifications/{type_id}/request"):
        assert worker.post(path, RIGHT, Origin="https://evil.example").status_code == 403
    assert holders(client, type_id) == 0


def test_missing_answers_come_back_with_what_was_given(crowd, client):
    """Nothing is lost, each question says what it lacks, and the clock runs on."""
    test = form(question("colour", choice("red", "green")), question("why", free()), question("x", free()))
    type_id = made(client, Test=test, TestDurationInSeconds=60)
    worker = crowd.worker()

    page = send(worker, ask(worker, type_id), q1="2", q2='<i>"since"</i>', q3="")

    assert page.status_code == 422
    assert "Nothing was sent yet" in page.text
    assert page.text.count('class="problem"') == 1
    assert "&lt;i&gt;&#34;since&#34;&lt;/i&gt;" in page.text
    assert re.search(r'value="2" checked', page.text)
    assert send(worker, page, q1="2", q2="since", q3="y").status_code == 200
    assert client.list_qualification_requests()["NumResults"] == 1


def test_a_test_that_changed_meanwhile_starts_again(crowd, client):
    """Answers are never read against other questions; the worker gets the whole time of the new test."""
    type_id, worker = made(client, **TESTED), crowd.worker()
    page = ask(worker, type_id)
    crowd.clock.advance(seconds=500)
    changed = TESTED | {"Test": TWO.replace("Look", "Gaze")}
    client.update_qualification_type(QualificationTypeId=type_id, **changed)

    again = send(worker, page, **RIGHT)

    assert "The requester changed this test" in again.text
    assert "Gaze" in again.text
    assert 'data-seconds="600"' in again.text
    assert holders(client, type_id) == 0
    send(worker, again, **RIGHT)
    assert holders(client, type_id) == 1


def test_a_changed_test_that_is_opened_again_has_its_full_time(crowd, client):
    """Also a shorter one, and with more of the old time gone than the new test has."""
    type_id, worker = made(client, **TESTED), crowd.worker()
    path = ask(worker, type_id).url.path
    crowd.clock.advance(seconds=500)
    changed = TESTED | {"Test": TWO.replace("Look", "Gaze"), "TestDurationInSeconds": 60}
    client.update_qualification_type(QualificationTypeId=type_id, **changed)

    page = worker.get(path)

    assert "The requester changed this test" in page.text
    assert 'data-seconds="60"' in page.text
    send(worker, page, **RIGHT)
    assert holders(client, type_id) == 1


def test_a_running_test_keeps_the_time_that_it_was_started_with(crowd, client):
    """A shorter time counts for who starts from then on; without a retry delay the try would be lost."""
    type_id, early, late = made(client, **TESTED), crowd.worker(), crowd.worker()
    page = ask(early, type_id)
    client.update_qualification_type(QualificationTypeId=type_id, TestDurationInSeconds=60)
    too_late = ask(late, type_id)
    crowd.clock.advance(seconds=500)

    assert 'data-seconds="100"' in early.get(page.url.path).text
    send(early, page, **RIGHT)
    send(late, too_late, **RIGHT)

    assert score(client, early, type_id)["IntegerValue"] == 100
    assert holders(client, type_id) == 1


def test_nobody_gains_time_by_answers_to_another_text(crowd, client):
    """A version that this test never had, or that it had before its clock started anew, starts no clock."""
    type_id, worker = made(client, **TESTED), crowd.worker()
    page = ask(worker, type_id)
    crowd.clock.advance(seconds=500)

    for odd in ("", "0", "0" * 16 + "." + "0" * 40):
        shown = worker.post(page.url.path, {"version": odd, **RIGHT})
        assert 'data-seconds="100"' in shown.text and "changed this test" not in shown.text

    client.update_qualification_type(
        QualificationTypeId=type_id, **TESTED | {"Test": TWO.replace("Look", "Gaze")}
    )
    assert 'data-seconds="600"' in send(worker, page, **RIGHT).text
    crowd.clock.advance(seconds=500)
    assert 'data-seconds="100"' in send(worker, page, **RIGHT).text
    assert holders(client, type_id) == 0


def test_a_megabyte_of_answers_is_refused_and_the_test_stays_open(crowd, client):
    """Too much text is told; what follows is taken."""
    worker = crowd.worker()
    type_id = made(client, Test=form(question("why", free())), TestDurationInSeconds=60)
    page = ask(worker, type_id)

    assert send(worker, page, q1="x" * 1_000_000).status_code == 413
    assert send(worker, page, q1="x" * 20_001).status_code == 422
    assert client.list_qualification_requests()["NumResults"] == 0
    assert send(worker, page, q1="x" * 20_000).status_code == 200
    assert client.list_qualification_requests()["NumResults"] == 1


def test_a_hostile_test_stays_text(crowd, client):
    """Identifiers, names, options and patterns are the requester's words, never the page's markup."""
    evil = '"><script>alert(1)</script>'
    pattern = '<AnswerFormatRegex regex="&quot;&gt;&lt;script&gt;" errorText="&lt;script&gt;"/>'
    test = form(question(evil, choice(evil, f"{evil}2")), question("b", free(pattern)))
    type_id = made(client, Name=evil, Test=test, TestDurationInSeconds=60)
    worker = crowd.worker()

    texts = [worker.get("/w/qualifications").text, worker.get(f"/w/qualifications/{type_id}").text]
    page = ask(worker, type_id)
    texts += [page.text, send(worker, page, q1="1", q2=evil).text]

    assert all("<script>alert" not in text and "<script>&" not in text for text in texts)
    assert page.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")


def test_only_the_tests_own_picture_hosts_are_opened(crowd, client):
    """And only on the page of the test."""
    shown = (
        "<Binary><MimeType><Type>image</Type></MimeType><DataURL>https://pics.example/a.png</DataURL>"
        "<AltText>a cat</AltText></Binary>"
    )
    type_id = made(client, Test=form(question("a", free(), content=shown)), TestDurationInSeconds=60)
    worker = crowd.worker()

    page = ask(worker, type_id)

    assert "img-src https://pics.example 'self' data:;" in page.headers["content-security-policy"]
    assert '<img class="shown" src="https://pics.example/a.png" alt="a cat"' in page.text
    other = worker.get("/w/qualifications")
    assert "pics.example" not in other.headers["content-security-policy"]


def test_a_type_that_grants_itself_is_held_at_once(crowd, client):
    """With its value, and it opens HITs; taken back, its page still tells when it was granted."""
    type_id, worker = made(client, AutoGranted=True, AutoGrantedValue=7), crowd.worker()

    page = ask(worker, type_id)

    assert "The qualification is yours." in page.text
    assert '<b class="value">7</b>' in page.text
    assert score(client, worker, type_id)["IntegerValue"] == 7
    client.disassociate_qualification_from_worker(QualificationTypeId=type_id, WorkerId=worker.id)
    assert re.search(
        "Granted</b> <time [^>]+>[^<]+</time>, and taken back", worker.get("/w/qualifications").text
    )


def test_the_retry_delay_counts_from_the_request(crowd, client):
    """Before it nothing starts; after it the new result counts."""
    type_id, worker = made(client, **TESTED, RetryDelayInSeconds=3600), crowd.worker()
    send(worker, ask(worker, type_id), **WRONG)
    assert score(client, worker, type_id)["IntegerValue"] == 0

    crowd.clock.advance(seconds=3599)
    early = ask(worker, type_id)
    crowd.clock.advance(seconds=1)
    send(worker, ask(worker, type_id), **RIGHT)

    assert "You can ask again from" in early.text
    assert score(client, worker, type_id)["IntegerValue"] == 100


def test_without_a_delay_a_type_can_be_asked_for_once(crowd, client):
    """Also after a rejection, as on MTurk."""
    type_id, worker = made(client), crowd.worker()
    ask(worker, type_id)
    [request] = client.list_qualification_requests()["QualificationRequests"]
    client.reject_qualification_request(QualificationRequestId=request["QualificationRequestId"], Reason="no")
    crowd.clock.advance(days=400)

    page = ask(worker, type_id)

    assert "only once" in page.text
    assert client.list_qualification_requests()["NumResults"] == 0


def test_inactive_and_unknown_types_cannot_be_asked_for(crowd, client):
    """Nor those of the other environment."""
    inactive = made(client, QualificationTypeStatus="Inactive")
    live = made(crowd.boto(Environment.LIVE))
    worker = crowd.worker()

    assert "cannot be asked for just now" in ask(worker, inactive).text
    assert ask(worker, live).status_code == 404
    assert ask(worker, "3NONE").status_code == 404
    assert worker.get("/w/qualifications/3NONE").status_code == 404
    assert worker.get("/w/qualifications/requests/3NONE").status_code == 404


def test_the_list_offers_what_leads_somewhere(crowd, client):
    """Tests, what grants itself, and what a HIT asks for; not a requester's own marks on workers."""
    offered = [made(client, **TESTED), made(client, Name="b", AutoGranted=True), made(client, Name="c")]
    hidden = [made(client, Name="excluded"), made(client, Name="mark")]
    needs = [
        {"QualificationTypeId": offered[2], "Comparator": "Exists"},
        {"QualificationTypeId": hidden[0], "Comparator": "DoesNotExist"},
    ]
    post_hit(client, client.create_hit_type(**TYPE, QualificationRequirements=needs)["HITTypeId"])
    worker = crowd.worker()

    page = worker.get("/w/qualifications").text

    assert all(one in page for one in offered)
    assert not any(one in page for one in hidden)
    client.associate_qualification_with_worker(QualificationTypeId=hidden[1], WorkerId=worker.id)
    assert hidden[1] in worker.get("/w/qualifications").text


def test_nobody_without_a_session_sees_anything(crowd, client):
    """The pages need an invitation."""
    type_id = made(client)
    browser = crowd.browser()

    for path in ("", f"/{type_id}", "/requests/3X"):
        assert browser.get(f"{crowd.url}/w/qualifications{path}").status_code == 403
    headers = {"Origin": crowd.url}
    reply = browser.post(f"{crowd.url}/w/qualifications/{type_id}/request", headers=headers)
    assert reply.status_code == 403
    assert browser.get(f"{crowd.url}/w/static/qualification.js").status_code == 200
    assert browser.get(f"{crowd.url}/w/static/base.html.j2").status_code == 404


def test_who_has_not_agreed_to_the_study_is_asked_first(crowd, client):
    """Nothing can be asked for before; a test in hand is still taken, and messages are open to everybody."""
    type_id, eager, late = made(client, **TESTED), crowd.worker(), crowd.worker()
    page = ask(eager, type_id)
    study = StudyRow(Environment.SANDBOX, 1, "A study", "", "", "", "I agree to take part.", crowd.clock())
    with Database(crowd.engine).write(Environment.SANDBOX) as connection:
        workers.save_study(connection, study)

    for reply in (
        late.get("/w/qualifications"),
        late.get(f"/w/qualifications/{type_id}"),
        ask(late, type_id),
    ):
        assert "I agree to take part." in reply.text
    assert "Nobody has written" in late.get("/w/messages").text
    send(eager, page, **RIGHT)
    assert holders(client, type_id) == 1


NOW = dt.datetime(2026, 11, 20, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)


def row(state, started=NOW - HOUR, submitted=None):
    """A request for a type whose test takes half an hour."""
    return RequestRow(1, "3R", 1, "3T", "n", 1, "A1", state, "", started, submitted, None, "", None, 1800)


@pytest.mark.parametrize(
    ("last", "delay", "expected"),
    [
        (None, None, ("none", True)),
        (row(RequestState.TESTING, NOW), 0, ("testing", False)),
        (row(RequestState.TESTING), None, ("overdue", False)),
        (row(RequestState.TESTING), 3600, ("overdue", True)),
        (row(RequestState.TESTING), 3601, ("overdue", False)),
        (row(RequestState.PENDING, submitted=NOW - HOUR), 0, ("pending", False)),
        (row(RequestState.REJECTED, submitted=NOW - HOUR), None, ("rejected", False)),
        (row(RequestState.REJECTED, submitted=NOW - HOUR), 3600, ("rejected", True)),
        (row(RequestState.GRANTED, submitted=NOW), 3600, ("granted", False)),
        (row(RequestState.GRANTED, submitted=NOW), 0, ("granted", True)),
    ],
)
def test_standing_follows_from_the_last_request(last, delay, expected):
    """An active type, an hour after the request was started."""
    own = QualificationTypeRow(1, "3T", "n", "d", "", True, NOW, QualificationTerms(retry_delay_s=delay))

    found = standing(own, None, last, NOW)

    assert (found.state, found.may_request) == expected


def test_an_inactive_type_is_shown_to_who_has_to_do_with_it():
    """Who holds it or asked for it; to others it is not offered."""
    own = QualificationTypeRow(1, "3T", "n", "d", "", False, NOW, QualificationTerms(auto_granted_value=1))
    held = QualificationRow(1, "3T", "A1", 1, NOW, None)

    assert not is_shown(standing(own, None, None, NOW), {"3T"})
    assert is_shown(standing(own, held, None, NOW), set())
    assert not standing(own, None, None, NOW).may_request
