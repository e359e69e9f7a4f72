"""A panel's participants: arrival, consent, straight to the HIT, the ends, and the operator's commands for it."""

from __future__ import annotations

import html
import re
import resource
import signal
from pathlib import Path
from urllib.parse import urlencode

import pytest
from at_once_kit import at_once
from cli_kit import fails, ok
from crowd_kit import TYPE, Task, Worker, post_hit
from docs_kit import mitl_lines
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import text

from mitl.cli.crowd import serve
from mitl.core.formats import csv_cell
from mitl.crowd_server import admin
from mitl.crowd_server import admin as panel_admin
from mitl.crowd_server.admin import PanelPlan
from mitl.crowd_server.pages.panels import (
    PROFILES,
    Arrival,
    ArrivalError,
    End,
    LinkParameters,
    check_end,
    read_arrival,
    read_ends,
    study_link,
    write_ends,
)
from mitl.crowd_server.store.models import VisitState
from mitl.errors import StoreError, UsageError
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)

SANDBOX = Environment.SANDBOX
PID = "5f2d3c4b5a69788796a5b4c3"
PIDS = [f"{number:024x}" for number in range(1, 9)]
ENDS = {
    VisitState.COMPLETED: End("https://app.prolific.com/submissions/complete?cc=DONE1", "DONE1"),
    VisitState.NO_CONSENT: End("https://app.prolific.com/submissions/complete?cc=NOPE1", "NOPE1"),
    VisitState.NOTHING_LEFT: End("", "FULL1"),
}


def add(crowd, *, profile="prolific", slug="pairs", hits=1, ends=ENDS, **parameters):
    """A panel on the sandbox."""
    names = LinkParameters(**({"worker": ""} | parameters)) if parameters else None
    plan = PanelPlan(profile, slug, names, hits, ends)
    return panel_admin.add_panel(crowd.engine, SANDBOX, plan, clock=crowd.clock)[0]


def tell(crowd, **texts):
    """Describe the study."""
    panel_admin.change_study(crowd.engine, SANDBOX, texts, clock=crowd.clock)


def link(pid=PID, session="s1", study="study1", slug="pairs"):
    """A study link as Prolific fills it in."""
    return f"/p/{slug}?" + urlencode({"PROLIFIC_PID": pid, "STUDY_ID": study, "SESSION_ID": session})


def arrive(crowd, pid=PID, session="s1", slug="pairs", browser=None):
    """A participant's browser and the page that they land on."""
    worker = Worker(crowd, browser or crowd.browser())
    return worker, worker.get(link(pid, session, slug=slug))


def visits(crowd):
    """Each visit's state and number of HITs, oldest first."""
    with crowd.engine.connect() as connection:
        return connection.execute(text("select state, hits_done from panel_visit order by id")).all()


def task_of(worker, page) -> Task:
    """The HIT on this page."""
    task = worker.task(page)
    assert task is not None, page.text
    return task


def test_a_participant_goes_straight_to_a_hit_and_back_with_the_code(crowd, client, hit_type):
    """One click from the panel to the HIT; the answers are stored before the way back and its code are shown."""
    add(crowd)
    worker, page = arrive(crowd)
    task = task_of(worker, page)
    assert "DONE1" not in page.text and PID not in page.text and PID not in str(page.url)

    assert task.submit(p01_label="yes").status_code == 200
    end = worker.get("/w")

    [own] = client.list_assignments_for_hit(HITId=task.query["hitId"])["Assignments"]
    assert re.fullmatch(r"A[A-Z0-9]{13}", own["WorkerId"])
    assert 'href="https://app.prolific.com/submissions/complete?cc=DONE1"' in end.text
    assert '<p class="code" id="code">DONE1</p>' in end.text
    assert visits(crowd) == [("completed", 1)]
    sent = worker.get(f"/w/a/{task.token}").text
    assert '<p class="code" id="code">DONE1</p>' in sent and f'data-sent="{task.token}"' in sent


def test_a_reload_is_the_same_visit_with_the_same_hit(crowd, hit_type):
    """The study link again, in this browser or another, leads to the HIT at hand; after the end, to the end."""
    add(crowd)
    worker, first = arrive(crowd)
    again = worker.get(link())
    _, elsewhere = arrive(crowd)

    tasks = [task_of(worker, page) for page in (first, again, elsewhere)]

    assert len({task.token for task in tasks}) == 1
    tasks[0].submit(p01_label="yes")
    assert "DONE1" in worker.get(link()).text
    assert visits(crowd) == [("completed", 1)]


def test_a_second_session_of_a_person_gets_another_hit_of_the_same_worker(crowd, client, hit_type):
    """The id is stable over a panel's studies, so nobody does the same HIT twice."""
    add(crowd)
    add(crowd, slug="more")
    worker, page = arrive(crowd)
    first = task_of(worker, page)
    first.submit(p01_label="yes")
    page = worker.get(link(session="s2", slug="more"))
    second = task_of(worker, page)
    second.submit(p01_label="no")

    owners = {
        own["WorkerId"]
        for hit in client.list_hits()["HITs"]
        for own in client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    }
    assert len(owners) == 1
    assert first.query["hitId"] != second.query["hitId"]
    assert visits(crowd) == [("completed", 1), ("completed", 1)]


def test_a_visit_of_several_hits_goes_on_by_one_click_and_then_ends(crowd, hit_type):
    """Two HITs are asked for, a third is not given, though it is there."""
    add(crowd, hits=2)
    worker, page = arrive(crowd)
    first = task_of(worker, page)
    first.submit(p01_label="yes")
    between = worker.get("/w").text
    assert "<b>1</b> of 2" in between and "close this page and return the study on Prolific" in between
    sent = worker.get(f"/w/a/{first.token}").text
    assert "Accept the next one" in sent and "1 of 2 done" in sent

    page = worker.post("/w/accept", {"hit_type_id": hit_type})
    second = task_of(worker, page)
    second.submit(p01_label="no")
    assert "DONE1" in worker.get(f"/w/a/{second.token}").text

    assert second.query["hitId"] != first.query["hitId"]
    assert "DONE1" in worker.post("/w/accept", {"hit_type_id": hit_type}).text
    assert visits(crowd) == [("completed", 2)]


def test_the_forms_button_alone_carries_a_visit(crowd, hit_type):
    """Without a HIT type, as on the visit's own page, the oldest open HIT comes."""
    add(crowd, hits=2)
    worker, page = arrive(crowd)
    task_of(worker, page).submit(p01_label="yes")

    assert task_of(worker, worker.post("/w/accept")) is not None


def test_who_finds_nothing_goes_back_by_that_end(crowd, client):
    """No HIT at all: the link and the code for it, and the visit is over."""
    add(crowd)
    worker, page = arrive(crowd)

    assert "Nothing is left" in page.text and "DONE1" not in page.text
    assert "cc=FULL1" in page.text and '<p class="code" id="code">FULL1</p>' in page.text
    post_hit(client)
    assert "FULL1" in worker.get(link()).text
    assert visits(crowd) == [("nothing_left", 0)]


def test_who_did_some_is_done_when_nothing_is_left(crowd, client):
    """Of three HITs asked for there was one: the person is not sent away unpaid."""
    hit = post_hit(client)
    add(crowd, hits=3)
    worker, page = arrive(crowd)
    task_of(worker, page).submit(p01_label="yes")

    assert "DONE1" in worker.post("/w/accept", {"hit_type_id": hit["HITTypeId"]}).text
    assert visits(crowd) == [("completed", 1)]


def test_who_stops_halfway_is_told_that_what_they_did_is_paid(crowd, hit_type):
    """Consent withdrawn after one HIT of two: the way back is that of no consent, the HIT stays theirs."""
    tell(crowd, consent="I am 18 or older.")
    add(crowd, hits=2)
    worker, _ = arrive(crowd)
    page = worker.post("/w/study", {"version": "1", "answer": "yes"})
    task_of(worker, page).submit(p01_label="yes")
    between = worker.get("/w").text
    assert (
        '<a href="/w/study">say that you no longer take part</a>; that leads you back to Prolific.' in between
    )

    refused = worker.post("/w/study", {"version": "1", "answer": "no"}).text

    assert "NOPE1" in refused and "The HIT that you sent before stays yours" in refused
    assert visits(crowd) == [("no_consent", 1)]


def test_consent_comes_first_and_refusing_it_has_its_own_end(crowd, hit_type):
    """No HIT is leased before; a refusal can be taken back; consent leads straight to the HIT."""
    tell(crowd, title="Do captions fit?", information="One.\n\nTwo.", consent="I am 18 or older.")
    add(crowd)
    worker, page = arrive(crowd)
    assert "I am 18 or older." in page.text and worker.task(page) is None
    assert worker.task(worker.post("/w/accept", {"hit_type_id": hit_type})) is None

    refused = worker.post("/w/study", {"version": "1", "answer": "no"})
    assert "NOPE1" in refused.text and "cc=NOPE1" in refused.text
    assert visits(crowd) == [("no_consent", 0)] and "paid as announced" not in refused.text
    assert "NOPE1" in worker.get(link()).text
    assert worker.task(worker.post("/w/accept", {"hit_type_id": hit_type})) is None

    page = worker.post("/w/study", {"version": "1", "answer": "yes"})
    assert worker.task(page) is not None
    assert visits(crowd) == [("open", 0)]


def test_a_new_visit_is_asked_again_after_a_refusal(crowd, hit_type):
    """Who said no last week and opens a new session may say yes."""
    tell(crowd, consent="I take part.")
    add(crowd)
    worker, _ = arrive(crowd)
    worker.post("/w/study", {"version": "1", "answer": "no"})

    page = worker.get(link(session="s2"))

    assert "I take part." in page.text and "NOPE1" not in page.text


def test_a_closed_panel_lets_nobody_new_in(crowd, hit_type):
    """Who is at work finishes; who comes now is told that nothing is left."""
    add(crowd)
    worker, page = arrive(crowd)
    task = task_of(worker, page)

    panel_admin.close_panel(crowd.engine, "pairs", clock=crowd.clock)
    _, late = arrive(crowd, PIDS[1], "s2")
    task.submit(p01_label="yes")

    assert "FULL1" in late.text
    assert "DONE1" in worker.get(link()).text
    assert visits(crowd) == [("completed", 1), ("nothing_left", 0)]
    assert panel_admin.close_panel(crowd.engine, "pairs") is False


def test_another_persons_session_is_refused(crowd, hit_type):
    """A link with a known session and another id opens nothing, starts nobody's visit, and leaves nothing behind."""
    add(crowd)
    arrive(crowd)

    def people():
        with crowd.engine.connect() as connection:
            tables = "worker", "panel_identity"
            return [connection.scalar(text(f"SELECT count(*) FROM {table}")) for table in tables]

    before = people()
    stranger, page = arrive(crowd, PIDS[1], "s1")

    assert page.status_code == 403 and "another participant" in page.text
    assert stranger.get("/w").status_code == 403
    assert len(visits(crowd)) == 1
    assert people() == before


@pytest.fixture(scope="module")
def described(shared_crowd):
    """A server with a panel and a study, whom nobody visits."""
    tell(shared_crowd, contact="help@lab.example")
    add(shared_crowd)
    return shared_crowd


@pytest.mark.parametrize(
    ("status", "query", "told"),
    [
        (200, "", "has no PROLIFIC_PID"),
        (200, "?PROLIFIC_PID=&SESSION_ID=s1", "has no PROLIFIC_PID"),
        (200, "?PROLIFIC_PID={{%PROLIFIC_PID%}}&SESSION_ID={{%SESSION_ID%}}", "not filled in your id"),
        (200, f"?PROLIFIC_PID={PID}&SESSION_ID={{{{%SESSION_ID%}}}}", "not filled in your id"),
        (200, f"?PROLIFIC_PID={PID}", "has no SESSION_ID"),
        (200, f"?PROLIFIC_PID={PID}&SESSION_ID=s&STUDY_ID=%25STUDY%25", "not filled in your id"),
        (200, "?PROLIFIC_PID=%3Cscript%3Ealert(1)&SESSION_ID=s", "&lt;script&gt;"),
        (400, f"?PROLIFIC_PID={PID}&PROLIFIC_PID={PIDS[0]}&SESSION_ID=s", "more than one PROLIFIC_PID"),
        (400, f"?PROLIFIC_PID={'a' * 5000}&SESSION_ID=s", "5000 characters long"),
        (400, "?PROLIFIC_PID=me&SESSION_ID=s", "should be 24 digits"),
        (400, f"?PROLIFIC_PID={PID.upper()}&SESSION_ID=s", "should be 24 digits"),
        (400, "?PROLIFIC_PID=%FF%FE&SESSION_ID=s", "should be 24 digits"),
        # Such a session would stand in the way when that of the first visit is deleted.
        (400, f"?PROLIFIC_PID={PID}&SESSION_ID=forgotten-1", "should be up to 128 letters"),
    ],
)
def test_a_link_that_was_not_filled_in_says_so(described, status, query, told):
    """A clear page with the study's contact, and no worker made; a bare link answers 200, as panels look for."""
    reply = described.browser().get(described.url + "/p/pairs" + query)

    assert reply.status_code == status
    assert told in reply.text and "<script>" not in reply.text
    assert "mailto:help@lab.example" in reply.text
    assert visits(described) == []


def test_an_unknown_study_link_says_so(shared_crowd):
    """Nothing is made for it."""
    reply = shared_crowd.browser().get(shared_crowd.url + "/p/none?PROLIFIC_PID=x")

    assert reply.status_code == 404 and "not known" in reply.text


def test_a_browser_without_cookies_is_told(crowd, hit_type):
    """The start page says what to do in place of asking for an invitation."""
    add(crowd)

    reply = crowd.browser().get(crowd.url + "/w/start")

    assert reply.status_code == 403 and "cookie" in reply.text


def test_sona_codes_and_their_credit_link(crowd, hit_type):
    """SONA's address is taken as SONA shows it, with each person's code in place of XXXX; one visit a person."""
    url = "https://lab.sona-systems.com/webstudy_credit.aspx?experiment_id=1&credit_token=t&survey_code=XXXX"
    add(crowd, profile="sona", ends={VisitState.COMPLETED: End(url)})
    worker = Worker(crowd, crowd.browser())
    bad = worker.get("/p/pairs?sona_code=%SURVEY_CODE%")
    task_of(worker, worker.get("/p/pairs?sona_code=12345")).submit(p01_label="yes")

    end = html.unescape(worker.get("/p/pairs?sona_code=12345").text)

    assert "not filled in" in bad.text
    assert f'href="{url.replace("XXXX", "12345")}"' in end
    assert visits(crowd) == [("completed", 1)]


def test_connect_and_generic_links(crowd, hit_type):
    """Their own parameter names; a generic panel's may be chosen, and its ids are its own people's."""
    done = {VisitState.COMPLETED: End("", "C1")}
    add(crowd, profile="connect", slug="c", ends=done)
    add(crowd, profile="generic", slug="lab", ends=done, worker="token")
    add(crowd, profile="generic", slug="other", ends=done, worker="token")

    pages = [
        crowd.browser().get(crowd.url + path)
        for path in (
            "/p/c?participantId=0123456789abcdef&assignmentId=a1&projectId=p1",
            "/p/lab?token=desk-7",
            "/p/other?token=desk-7",
        )
    ]

    # Number 7 of one lab is another person than number 7 of the other: each holds a HIT of their own.
    assert len({re.search(r"/w/a/([^/]+)/frame", page.text)[1] for page in pages}) == 3


def test_a_visit_without_a_next_hit_ends_by_one_click(crowd, client):
    """Two HITs were asked for and one was there: nothing is offered that is not, and the code is shown."""
    add(crowd, hits=2)
    post_hit(client)
    worker, page = arrive(crowd)
    task = task_of(worker, page)
    task.submit(p01_label="yes")

    sent = worker.get(f"/w/a/{task.token}").text

    assert "Accept the next one" not in sent and "<button autofocus>Finish</button>" in sent
    assert "DONE1" in worker.post("/w/accept").text


def test_a_blocked_participant_is_told_so_and_gets_their_code(crowd, hit_type):
    """After work the visit ends as any other; who comes back finds words that are true, and a way back."""
    add(crowd, hits=2)
    worker, page = arrive(crowd)
    task = task_of(worker, page)
    task.submit(p01_label="yes")
    crowd.boto().create_worker_block(WorkerId=worker.id, Reason="tests")

    sent = worker.get(f"/w/a/{task.token}").text
    assert "no longer offers you HITs" in sent and "Finish" in sent and "next one" not in sent
    assert "DONE1" in worker.post("/w/accept", {"hit_type_id": hit_type}).text
    again = worker.get(link(session="s2")).text
    assert "no longer offers you HITs" in again and "taken, done" not in again and "FULL1" in again


def test_a_returned_hit_leaves_the_visit_open(crowd, hit_type):
    """The visit's page offers another HIT, and says how to stop."""
    add(crowd)
    worker, page = arrive(crowd)
    first = task_of(worker, page)

    between = worker.post(f"/w/a/{first.token}/return")
    second = task_of(worker, worker.post("/w/accept"))

    assert "You returned the HIT" in between.text and "Start a HIT" in between.text
    assert second.query["hitId"] != first.query["hitId"]
    assert visits(crowd) == [("open", 0)]


def test_late_answers_do_not_count_for_the_visit_but_are_kept(crowd, hit_type):
    """The person is told, may take another HIT, and is paid by hand for the first."""
    add(crowd)
    worker, page = arrive(crowd)
    task = task_of(worker, page)
    crowd.clock.advance(hours=2)

    late = task.submit(p01_label="yes")

    assert late.status_code == 410 and "is kept" in late.text
    assert visits(crowd) == [("open", 0)]
    assert worker.task(worker.get(link())) is not None


def test_the_panels_ids_can_be_forgotten(crowd, hit_type):
    """By the panel's id, the worker id, or all at once; the work stays, the end still shows its code.

    No byte of them is left in the database's files, from where programs could read what was deleted.
    """
    url = "https://lab.example/done?who={worker}&in={session}"
    add(crowd, ends={VisitState.COMPLETED: End(url, "DONE1")})
    browsers = [arrive(crowd, pid, f"s{pid}") for pid in PIDS[:3]]
    for worker, page in browsers:
        task_of(worker, page).submit(p01_label="yes")
    first = browsers[0][0]
    assert f"who={PIDS[0]}&amp;in=s{PIDS[0]}" in first.get("/w").text
    known = first.id if "worker A" in first.get("/w").text else ""

    assert panel_admin.forget(crowd.engine, Environment, PIDS[1]) == 1
    assert panel_admin.forget(crowd.engine, Environment, known) == 1
    assert panel_admin.forget(crowd.engine, Environment, PIDS[1]) == 0
    assert panel_admin.forget(crowd.engine, [SANDBOX]) == 1
    assert panel_admin.forget(crowd.engine, [SANDBOX]) == 0

    with crowd.engine.connect() as connection:
        dump = "\n".join(connection.connection.driver_connection.iterdump())
    file = Path(crowd.engine.url.database)
    kept = [dump.encode(), *(path.read_bytes() for path in file.parent.glob(f"{file.name}*"))]
    assert len(kept) > 1 and not any(pid.encode() in bytes_ for pid in PIDS for bytes_ in kept)
    end = first.get("/w").text
    assert "DONE1" in end and "lab.example" not in end
    assert visits(crowd) == [("completed", 1)] * 3


def test_a_revoked_panel_invitation_shuts_its_workers_out(crowd, hit_type):
    """Both new arrivals and those who came before."""
    panel = add(crowd)
    worker, _ = arrive(crowd)

    admin.revoke(crowd.engine, panel.invitation_id)

    assert worker.get(link()).status_code == 410
    assert crowd.browser().get(crowd.url + link(PIDS[2], "s9")).status_code == 410
    assert worker.get("/w").status_code == 403


def test_a_visit_from_consent_to_forgetting(either_crowd):
    """Asked, refused, agreed, late once, done, compared and forgotten: the same on both engines."""
    crowd = either_crowd
    post_hit(crowd.boto(), MaxAssignments=2)
    post_hit(crowd.boto(), MaxAssignments=2)
    tell(crowd, consent="I take part.")
    add(crowd)
    worker, _ = arrive(crowd)
    assert "NOPE1" in worker.post("/w/study", {"version": "1", "answer": "no"}).text
    first = task_of(worker, worker.post("/w/study", {"version": "1", "answer": "yes"}))
    crowd.clock.advance(hours=2)
    assert [first.submit(p01_label="yes").status_code for _ in range(2)] == [410, 410]

    second = task_of(worker, worker.get(link()))
    second.submit(p01_label="yes")

    assert "DONE1" in worker.get("/w").text
    assert worker.get("/w/work").text.count("arrived <time") == 1
    [record] = panel_admin.list_visits(crowd.engine, "pairs")
    assert (record.external_id, record.session, record.hits_done) == (PID, "s1", 1)
    assert panel_admin.forget(crowd.engine, [SANDBOX]) == 1
    [record] = panel_admin.list_visits(crowd.engine, "pairs")
    assert (record.external_id, record.study) == (None, "")


def test_many_arrivals_at_once_are_one_visit_each(either_crowd):
    """Four people, each opening the link twice at the same moment: four workers, four visits, four HITs."""
    crowd = either_crowd
    client = crowd.boto()
    post_hit(client, MaxAssignments=4)
    add(crowd)

    pages = at_once(lambda pid: arrive(crowd, pid, f"s{pid}")[1], PIDS[:4] * 2)

    tokens = [re.search(r"/w/a/([^/]+)/frame", page.text)[1] for page in pages]
    assert tokens[:4] == tokens[4:]
    assert len(set(tokens)) == 4
    assert visits(crowd) == [("open", 0)] * 4
    assert client.list_hits()["HITs"][0]["NumberOfAssignmentsPending"] == 4


def test_a_visit_never_gives_more_than_it_asks_for(either_crowd):
    """Eight clicks at once on the last button lead to one HIT."""
    crowd = either_crowd
    hit_type = crowd.boto().create_hit_type(**TYPE)["HITTypeId"]
    for _ in range(4):
        post_hit(crowd.boto(), hit_type)
    add(crowd, hits=2)
    worker, page = arrive(crowd)
    task_of(worker, page).submit(p01_label="yes")
    cookies = dict(worker.browser.cookies)

    def click(number):
        own = Worker(crowd, crowd.browser())
        own.browser.cookies.update(cookies)
        return own.post("/w/accept", {"hit_type_id": hit_type}).text

    tokens = {re.search(r"/w/a/([^/]+)/frame", text)[1] for text in at_once(click, range(8))}

    assert len(tokens) == 1


@given(
    st.sampled_from(list(PROFILES.values())),
    st.lists(
        st.tuples(st.sampled_from(["PROLIFIC_PID", "SESSION_ID", "sona_code", "worker", "x"]), st.text())
    ),
)
@example(PROFILES["connect"], [("participantId", "-abcdef12"), ("assignmentId", "a1")])
def test_whatever_a_link_says_an_id_is_plain_or_refused(profile, query):
    """No query string gives an id with characters that need care, in a payment file too, or one too long to be kept."""
    try:
        arrival = read_arrival(profile, profile.parameters, query)
    except ArrivalError as error:
        assert str(error)
        return
    assert profile.worker_id.fullmatch(arrival.worker) and csv_cell(arrival.worker) == arrival.worker
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._~:=+/-]{0,127}", arrival.session)


def test_a_filled_in_link_is_read_back():
    """The link for pasting holds the panel's own placeholders under the names that are read."""
    prolific = PROFILES["prolific"]
    made = study_link("https://crowd.example/", "pairs", prolific, prolific.parameters)

    assert made == (
        "https://crowd.example/p/pairs?PROLIFIC_PID={{%PROLIFIC_PID%}}&STUDY_ID={{%STUDY_ID%}}"
        "&SESSION_ID={{%SESSION_ID%}}"
    )
    query = [("PROLIFIC_PID", PID), ("STUDY_ID", "a"), ("SESSION_ID", "b"), ("other", "<")]
    assert read_arrival(prolific, prolific.parameters, query) == Arrival(PID, "a", "b")
    connect = PROFILES["connect"]
    assert (
        study_link("https://crowd.example", "c", connect, connect.parameters) == "https://crowd.example/p/c"
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://app.prolific.com/x",
        "javascript:alert(1)",
        "//evil.example",
        "https://",
        "https://{worker}/x",
        "https://{worker}.evil.example/",
        "https://user@evil.example/",
        "https://a.example/{other}",
        "https://a.example/{worker",
        'https://a.example/"><script>',
        "https://a.example/ x",
        "https://a.example:port/",
        "https://a.example/" + "x" * 3000,
    ],
)
def test_people_are_sent_to_fixed_https_addresses_only(url):
    """No end can be made that leads elsewhere, or whose host comes from a link."""
    with pytest.raises(UsageError):
        check_end(End(url, "C"), "complete")


@given(st.text(max_size=40), st.text(max_size=40))
def test_filled_in_ids_stay_within_the_address(worker, session):
    """Whatever an id holds, host and path are the operator's."""
    link = End("https://a.example/done?w={worker}&s={session}").link({"worker": worker, "session": session})

    if worker and session:
        assert re.fullmatch(r"https://a\.example/done\?w=[^/?#&\s]+&s=[^/?#&\s]+", link)
    else:
        assert link == ""


def test_ends_are_kept_as_they_were_given():
    """Written and read again; one that was not set is empty."""
    kept = read_ends(write_ends({VisitState.COMPLETED: End("https://a.example", "C")}))

    assert kept[VisitState.COMPLETED] == End("https://a.example", "C")
    assert kept[VisitState.NO_CONSENT] == End()


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (PanelPlan("prolific", "A B", ends=ENDS), "--slug"),
        (PanelPlan("prolific", "a"), "--complete-code"),
        (PanelPlan("prolific", "a", hits_per_visit=0, ends=ENDS), "--hits-per-visit"),
        (PanelPlan("generic", "a", LinkParameters("a b"), ends=ENDS), "'a b'"),
        (PanelPlan("generic", "a", LinkParameters("w", "", "w"), ends=ENDS), "different names"),
        (PanelPlan("generic", "a", ends={VisitState.COMPLETED: End("", "no code")}), "--complete-code"),
    ],
)
def test_a_panel_that_cannot_work_is_refused(crowd_engine, plan, told):
    """Before anything is written, in one line."""
    with pytest.raises(UsageError, match=told):
        panel_admin.add_panel(crowd_engine, SANDBOX, plan)
    assert panel_admin.list_panels(crowd_engine) == []


def test_the_same_panel_twice_is_one(crowd_engine):
    """A slug is one panel's; with other values it is refused."""
    plan = PanelPlan("prolific", "a", ends=ENDS)

    first, is_new = panel_admin.add_panel(crowd_engine, SANDBOX, plan)
    again = panel_admin.add_panel(crowd_engine, SANDBOX, plan)

    assert is_new and again == (first, False)
    with pytest.raises(StoreError, match="another panel"):
        panel_admin.add_panel(crowd_engine, SANDBOX, PanelPlan("prolific", "a", hits_per_visit=2, ends=ENDS))


def test_a_wrong_code_is_corrected_for_everybody_at_once(crowd, hit_type, tmp_path):
    """Also for who has ended already; the way back follows the code, and what was not given stays."""
    add(crowd)
    worker, page = arrive(crowd)
    task_of(worker, page).submit(p01_label="yes")
    change = ("crowd", "panel", "change", "pairs", "--crowd-db", str(crowd.engine.url), "--project", tmp_path)

    told = ok(*change, "--complete-code", "DONE2").out
    again = ok(*change, "--complete-code", "DONE2", "--json").json
    end = arrive(crowd, browser=worker.browser)[1].text

    assert "complete?cc=DONE2 and code DONE2" in told and "complete?cc=NOPE1 and code NOPE1" in told
    assert again["status"] == "nothing_to_do"
    assert "complete?cc=DONE2" in end and "DONE1" not in end


def test_a_way_back_of_its_own_stays_when_its_code_is_corrected(crowd_engine):
    """Only an address that was made from the code is made anew."""
    own = {VisitState.COMPLETED: End("https://lab.example/thanks", "C1")}
    panel_admin.add_panel(crowd_engine, SANDBOX, PanelPlan("prolific", "a", ends=own))

    changed, _ = panel_admin.change_panel(crowd_engine, "a", {VisitState.COMPLETED: End("", "C2")})

    assert read_ends(changed.ends)[VisitState.COMPLETED] == End("https://lab.example/thanks", "C2")


def test_every_command_of_the_walk_runs(tmp_path: Path, monkeypatch):
    """docs/panels.md, line by line, in an empty folder; what changes something has nothing to do the second time."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "information.txt").write_text("What this is about.\n\nWhat we keep.", encoding="utf-8")
    lines = mitl_lines("docs/panels.md")
    walk = [words for words in lines if words[0] != "serve"]
    [served] = [words for words in lines if words[0] == "serve"]
    serve.make_context("serve", served[1:])  # only parsed: it would not end

    assert [words[:3] for words in walk].count(["crowd", "panel", "add"]) == 4
    for words in walk:
        first = ok(*words, "--json").json
        second = ok(*words, "--json").json
        shows = (
            words[1:3] in (["panel", "list"], ["panel", "visits"])
            or "--list" in words
            or words[1] == "payments"
        )
        if words[:2] != ["crowd", "invite"] and "--worker" not in words and not shows and len(words) > 3:
            assert second["status"] == "nothing_to_do", words
        assert first["error"] is None


def test_a_file_of_visits_is_its_owners_alone(crowd, tmp_path):
    """It holds the panel's ids of people."""
    out, options = tmp_path / "visits.csv", ("--crowd-db", str(crowd.engine.url), "--project", str(tmp_path))
    ok(
        "crowd",
        "panel",
        "add",
        "--sandbox",
        "--profile",
        "prolific",
        "--slug",
        "pairs",
        "--complete-code",
        "C1",
        *options,
    )

    ok("crowd", "panel", "visits", "pairs", "--out", out, *options)

    assert out.stat().st_mode & 0o777 == 0o600


def test_a_list_of_visits_replaces_another_file_only_if_told(crowd, tmp_path):
    """As `mitl crowd person` does; the same list again is no other file."""
    add(crowd)
    out = tmp_path / "notes.txt"
    out.write_text("mine")
    words = ("crowd", "panel", "visits", "pairs", "--out", out, "--crowd-db", str(crowd.engine.url))

    assert "--replace" in fails(2, *words, "--project", tmp_path)
    assert out.read_text() == "mine"
    ok(*words, "--project", tmp_path, "--replace")
    ok(*words, "--project", tmp_path)
    assert out.read_text().startswith("worker,panel_id")


def test_who_is_owed_something_is_forgotten_only_if_it_is_said_to_be_paid(crowd, client, hit_type, tmp_path):
    """Their panel's ids are all by which they could be paid; the sum is said before anything is deleted."""
    add(crowd)
    for pid in PIDS[:2]:
        worker, page = arrive(crowd, pid, f"s{pid}")
        task_of(worker, page).submit(p01_label="yes")
    first, _ = (
        one["AssignmentId"]
        for hit in client.list_hits()["HITs"]
        for one in client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    )
    client.approve_assignment(AssignmentId=first)
    options = ("--crowd-db", str(crowd.engine.url), "--project", tmp_path)

    for words in (("--all", "--sandbox"), ("--worker", PIDS[0])):
        refused = fails(2, "crowd", "panel", "forget", *words, *options)
        assert "add --paid" in refused and "owed since the beginning" in refused
    assert "no such id" in ok("crowd", "panel", "forget", "--worker", PIDS[0], "--live", *options).out
    assert panel_admin.list_visits(crowd.engine, "pairs")[0].external_id == PIDS[0]
    told = fails(2, "crowd", "panel", "forget", "--all", "--sandbox", *options)
    assert (
        told.startswith("2 people to be forgotten on sandbox: $") and ", and 1 submission of theirs" in told
    )
    forgotten = ok("crowd", "panel", "forget", "--all", "--sandbox", "--paid", *options, "--json").json[
        "counts"
    ]
    assert forgotten == {"forgotten": 2}


def test_the_printed_link_is_the_one_that_works(crowd, hit_type, tmp_path):
    """What `panel add` prints, filled in as the panel does, leads to a HIT."""
    url = str(crowd.engine.url)
    options = ("--crowd-db", url, "--project", str(tmp_path))
    made = ok("crowd", "panel", "add", "--sandbox", "--profile", "prolific", "--complete-code", "C1",
              "--base-url", crowd.url, *options, "--json").json  # fmt: skip

    link = made["counts"]["link"].replace("{{%PROLIFIC_PID%}}", PID).replace("{{%STUDY_ID%}}", "st")
    worker = Worker(crowd, crowd.browser())
    page = worker.browser.get(link.replace("{{%SESSION_ID%}}", "se"))

    assert any("not https" in warning for warning in made["warnings"])
    assert any("with `mitl crowd study --sandbox`" in warning for warning in made["warnings"])
    assert "next" not in made  # the server runs; it is to be started where none answers
    assert task_of(worker, page).submit(p01_label="yes").status_code == 200
    assert "https://app.prolific.com/submissions/complete?cc=C1" in worker.get("/w").text


@pytest.mark.parametrize(
    ("status", "words", "told"),
    [
        (2, ("panel", "add", "--sandbox"), "--profile"),
        (2, ("panel", "add", "--profile", "prolific", "--complete-code", "C"), "--sandbox"),
        (2, ("panel", "add", "--sandbox", "--profile", "mturk"), "'mturk'"),
        (2, ("panel", "add", "--sandbox", "--profile", "sona"), "--complete-url"),
        (2, ("panel", "add", "--sandbox", "--profile", "sona", "--complete-url", "http://x"), "https"),
        (
            2,
            ("panel", "add", "--sandbox", "--profile", "sona", "--complete-url", "https://x.y/?id=1"),
            "XXXX",
        ),
        (
            2,
            (
                "panel",
                "add",
                "--sandbox",
                "--profile",
                "prolific",
                "--complete-code",
                "C",
                "--base-url",
                "x.y",
            ),
            "'x.y'",
        ),
        (2, ("panel", "list", "--base-url", "https://x.y/z"), "'https://x.y/z'"),
        (2, ("operator", "--base-url", "http://["), "'http://['"),
        (1, ("panel", "close", "none"), "'none'"),
        (1, ("panel", "change", "none", "--complete-code", "C"), "'none'"),
        (2, ("panel", "change", "none"), "--complete-code"),
        (2, ("panel", "forget"), "--worker"),
        (2, ("panel", "forget", "--all"), "--sandbox"),
        (2, ("panel", "forget", "--all", "--worker", "x"), "--worker"),
        (2, ("study", "--title", "x"), "--sandbox"),
        (2, ("study", "--sandbox", "--information", "gone.txt"), "gone.txt"),
        (2, ("study", "--sandbox", "--title", "x" * 201), "at most 200"),
        (2, ("invite", "--sandbox", "--expires", "soon"), "'soon'"),
        (2, ("invite", "--sandbox", "--expires", "2020-01-01"), "past"),
        (2, ("invite", "--sandbox", "--expires", "1d", "--days", "2"), "not both"),
        (2, ("invite", "--list", "--revoke", "1"), "makes none, so --revoke could not be followed"),
        (2, ("invite", "--list", "--people", "3"), "makes none, so --people could not be followed"),
        (2, ("invite", "--revoke", "1", "--sandbox", "--days", "3"), "so --sandbox, --days could not be"),
        (1, ("invite", "--revoke", "7"), "7"),
    ],
)
def test_wrong_words_get_one_clear_line(tmp_path, monkeypatch, status, words, told):
    """What was found, what would be right."""
    monkeypatch.chdir(tmp_path)

    assert told in fails(status, "crowd", *words)


def test_ends_with_one_code_are_pointed_out(tmp_path):
    """The panel would pay who refused as it pays who worked; a code of their own for each says nothing."""
    add = ("crowd", "panel", "add", "--sandbox", "--profile", "generic", "--project", tmp_path, "--json")

    same = ok(*add, "--slug", "same", "--complete-code", "C1", "--no-consent-code", "C1").json["warnings"]
    apart = ok(*add, "--slug", "apart", "--complete-code", "C1", "--no-consent-code", "C2").json["warnings"]

    [told] = set(same) - set(apart)
    assert "--no-consent-code" in told and "C1" in told


def test_visits_are_listed_for_comparison(crowd, hit_type, tmp_path):
    """Person, session and end of each, as a table or a CSV file in which no id is a formula; forgotten ids are gone."""
    add(
        crowd,
        profile="generic",
        slug="lab",
        worker="id",
        session="visit",
        ends={VisitState.COMPLETED: End("", "C")},
    )
    for number, session in enumerate(("a=1", "_b")):
        page = Worker(crowd, crowd.browser())
        page.get(f"/p/lab?{urlencode({'id': f'p{number}', 'visit': session})}")
    options = ("--crowd-db", str(crowd.engine.url), "--project", str(tmp_path))
    panel_admin.forget(crowd.engine, Environment, "p1")

    shown = ok("crowd", "panel", "visits", "lab", *options).out
    ok("crowd", "panel", "visits", "lab", "--out", tmp_path / "v.csv", *options)

    lines = (tmp_path / "v.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "worker,panel_id,session,study,state,hits,started,ended"
    assert re.fullmatch(r"A[A-Z0-9]{13},p0,a=1,,open,0,\S+Z,", lines[1])
    assert re.fullmatch(r"A[A-Z0-9]{13},,,,open,0,\S+Z,", lines[2])
    assert "p0" in shown and "p1" not in shown
    assert "'none'" in fails(1, "crowd", "panel", "visits", "none", *options)


def test_a_full_disk_keeps_the_list_of_visits_that_was_there(crowd, tmp_path):
    """One line says which file and what to do; the older list stays whole, with nothing beside it."""
    add(crowd, profile="generic", slug="lab", ends={VisitState.COMPLETED: End("", "C")})
    page_of = Worker(crowd, crowd.browser())
    page_of.get("/p/lab?worker=anna")
    with crowd.engine.begin() as connection:
        connection.exec_driver_sql("update panel_visit set study = :study", {"study": "s" * 100_000})
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "v.csv").write_text("older")
    words = ("crowd", "panel", "visits", "lab", "--replace", "--out", tmp_path / "out" / "v.csv")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        told = fails(2, *words, "--crowd-db", str(crowd.engine.url), "--project", str(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, kept)

    assert "v.csv" in told and "file too large" in told
    assert [(path.name, path.read_text()) for path in (tmp_path / "out").iterdir()] == [("v.csv", "older")]


def test_no_address_or_form_with_a_nul_is_a_fault(either_crowd):
    """PostgreSQL takes no NUL in a text; people get the usual page."""
    crowd = either_crowd
    worker = crowd.worker()

    assert worker.get("/p/%00?PROLIFIC_PID=x").status_code == 404
    assert worker.get("/w/preview/%00").status_code == 404
    assert worker.post("/w/accept", {"hit_type_id": "\0"}).status_code == 200
    add(crowd)
    assert worker.get("/p/pairs?PROLIFIC_PID=%00&SESSION_ID=%00").status_code == 400
    assert worker.get(f"/p/pairs?PROLIFIC_PID={PID}&SESSION_ID=%00").status_code == 400


def test_information_must_be_text(tmp_path, monkeypatch):
    """A picture or a novel is refused by name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "picture.txt").write_bytes(b"\xff\xfe\xfa")
    (tmp_path / "novel.txt").write_text("x" * 300_000)

    (tmp_path / "zeros.txt").write_bytes(b"a\0b")

    assert "UTF-8" in fails(2, "crowd", "study", "--sandbox", "--information", "picture.txt")
    assert "zero character" in fails(2, "crowd", "study", "--sandbox", "--information", "zeros.txt")
    assert "300,000" in fails(2, "crowd", "study", "--sandbox", "--information", "novel.txt")


def test_invitations_from_the_command_line(crowd, tmp_path):
    """--uses, --expires and --label make the link; --list shows it, --revoke shuts it."""
    options = ("--crowd-db", str(crowd.engine.url), "--project", str(tmp_path))
    made = ok("crowd", "invite", "--sandbox", "--uses", "2", "--expires", "12h", "--label", "the lab",
              "--base-url", crowd.url, *options, "--json").json  # fmt: skip
    [link] = made["counts"]["links"]
    told = ok("crowd", "invite", "--sandbox", "--uses", "40", *options).out

    codes = [crowd.browser().get(link).status_code for _ in range(3)]
    listed = ok("crowd", "invite", "--list", *options).out
    row = next(row for row in admin.invitations(crowd.engine) if row.label)

    assert codes == [200, 200, 410]
    assert "it admits 40 people" in told and "its person" not in told
    assert "the lab" in listed and row.max_uses == 2
    assert ok("crowd", "invite", "--revoke", str(row.id), *options, "--json").json["status"] == "done"
    assert (
        ok("crowd", "invite", "--revoke", str(row.id), *options, "--json").json["status"] == "nothing_to_do"
    )
    assert crowd.browser().get(link).status_code == 410
