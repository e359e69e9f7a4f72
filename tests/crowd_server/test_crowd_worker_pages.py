"""Workers' pages by plain HTTP: joining, accepting, submitting, returning, previewing, and what is refused."""

from __future__ import annotations

import datetime as dt
import re
from http.cookiejar import DefaultCookiePolicy
from types import SimpleNamespace

import httpx
import pytest
from at_once_kit import at_once
from crowd_kit import HTML, TYPE, Worker, post_hit, posted, question
from sqlalchemy import func, select

from mitl.crowd_server import admin
from mitl.crowd_server.protocol.ids import seal
from mitl.crowd_server.store import accounts
from mitl.crowd_server.store import assignments as assignment_store
from mitl.crowd_server.store.database import Database
from mitl.crowd_server.store.models import LateAnswer
from mitl.crowd_server.work import listing
from mitl.errors import StoreError
from mitl.protocol.answer_xml import answer_fields
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)

SANDBOX, LIVE = Environment.SANDBOX, Environment.LIVE


def assignments(client):
    """All submitted assignments."""
    return [
        own
        for hit in client.list_hits(MaxResults=100)["HITs"]
        for own in client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    ]


def test_a_worker_sees_groups_with_reward_and_number(crowd, hit_type):
    """The list says what one needs to choose; a sandbox says that nothing is paid."""
    worker = crowd.worker()

    text = worker.get("/w").text

    assert TYPE["Title"] in text and f"worker {worker.id}" in text
    assert "$1.00" in text and "<b>3</b> available" in text and "60 min" in text
    assert "approved at the latest <b>7 days</b> after you send it" in text
    assert "practice" in text


def test_promised_times_are_not_rounded(crowd, client):
    """How long one has, and until when work is approved at the latest."""
    times = {"AssignmentDurationInSeconds": 210, "AutoApprovalDelayInSeconds": 225_000}
    post_hit(client, client.create_hit_type(**TYPE | times)["HITTypeId"])

    text = crowd.worker().get("/w").text

    assert "you have up to <b>3 min 30 s</b> for one" in text
    assert "approved at the latest <b>2 days 14 h 30 min</b> after you send it" in text


def test_fields_arrive_as_they_were_sent(crowd, client, hit_type):
    """Order, repeated names and odd characters; the form's assignmentId is not an answer."""
    task = crowd.worker().accept(hit_type)
    body = "assignmentId=x&p01_concept=color&p01_concept=age&p01_text=%26%3C%5D%5D%3E+%F0%9F%90%88&empty="
    headers = {"Content-Type": "application/x-www-form-urlencoded"}

    reply = httpx.post(
        f"{crowd.url}/s/{task.token}/mturk/externalSubmit", content=body, headers=headers, trust_env=False
    )

    assert reply.status_code == 200
    assert "mitl-submitted" in reply.text
    [own] = assignments(client)
    assert answer_fields(own["Answer"]) == [
        ("p01_concept", "color"),
        ("p01_concept", "age"),
        ("p01_text", "&<]]> 🐈"),
        ("empty", ""),
    ]


def test_a_multipart_form_is_taken_too(crowd, client, hit_type):
    """Some templates post multipart; a file's input that nobody used is an empty field, as browsers send it."""
    task = crowd.worker().accept(hit_type)

    reply = sent(task, files={"p01_label": (None, "no"), "picture": ("", b"")})

    assert reply.status_code == 200
    assert answer_fields(assignments(client)[0]["Answer"]) == [("p01_label", "no"), ("picture", "")]


def test_a_multipart_form_is_read_as_utf_8_whatever_its_sender_calls_it(crowd, client):
    """Anybody may name a codec that fails, or that takes seconds for what a form may hold."""
    charsets = ("punycode", "undefined", "unicode_escape", "utf-8", "x; charset*0*=x; charset*=y")
    hit_type, worker = posted(crowd, len(charsets)), crowd.worker()
    body = '--x\r\nContent-Disposition: form-data; name="q"\r\n\r\nca\u00f1on-\\ud800\r\n--x--\r\n'

    for charset in charsets:
        task = worker.accept(hit_type)
        reply = sent(task, content=body, headers={"Content-Type": f"{FORM_DATA}; charset={charset}"})
        assert reply.status_code == 200, charset

    answers = [answer_fields(own["Answer"]) for own in assignments(client)]
    assert answers == [[("q", "ca\u00f1on-\\ud800")]] * len(charsets)


def sent(task, **request):
    """Send something to the address of a HIT's form."""
    return task.server.stranger.post(f"{task.server.url}/s/{task.token}/mturk/externalSubmit", **request)


FORM = {"Content-Type": "application/x-www-form-urlencoded"}
FORM_DATA = "multipart/form-data; boundary=x"
MULTIPART = {"Content-Type": FORM_DATA}


NO_ANSWERS = [
    ({}, 422, "No answer was sent."),
    ({"content": "", "headers": FORM}, 422, "No answer was sent."),
    ({"content": "assignmentId=x&=lost&&", "headers": FORM}, 422, "No answer was sent."),
    ({"content": "--x--", "headers": MULTIPART}, 422, "No answer was sent."),
    ({"json": {"q": 1}}, 415, "What was sent is not a form."),
    ({"content": '{"q": 1}', "headers": FORM}, 415, "What was sent is not a form."),
    ({"content": '[{"q": "a=b"}]', "headers": FORM}, 415, "What was sent is not a form."),
    ({"content": "words alone", "headers": FORM}, 415, "What was sent is not a form."),
    ({"content": '{"q": "a=b"}'}, 415, "What was sent is not a form."),
    ({"content": "q=1\r\n", "headers": {"Content-Type": "text/plain"}}, 415, "What was sent is not a form."),
    ({"content": "--y\r\n", "headers": MULTIPART}, 415, "What was sent is not a form."),
    ({"content": "q=1", "headers": {"Content-Type": "multipart/form-data"}}, 415, "is not a form."),
    ({"content": "q=1", "headers": {"Content-Type": FORM_DATA + "; a*=b''c"}}, 415, "is not a form."),
    ({"data": {"q": "1"}, "files": {"f": ("cat.png", b"\x89PNG")}}, 415, "Files cannot be sent here."),
    ({"data": {"q": "1"}, "files": {"f": ("cat.png", b"")}}, 415, "Files cannot be sent here."),
    ({"content": "&".join(["a=b"] * 2001), "headers": FORM}, 413, "too much to send"),
    ({"files": [(f"f{n}", (None, "1")) for n in range(2001)]}, 413, "too much to send"),
    ({"data": {"q": "1"}, "files": {"f": (None, "x" * 600_000)}}, 413, "too much to send"),
]


def test_what_is_no_answer_is_said_to_be_none_and_the_hit_stays_with_its_worker(crowd, client, hit_type):
    """Nothing is submitted or owed, the page leads back to the HIT, and an answer is taken after all of it."""
    task = crowd.worker().accept(hit_type)

    for request, status, words in NO_ANSWERS:
        reply = sent(task, **request)
        assert (reply.status_code, words in reply.text) == (status, True), request
        assert "mitl-refused" in reply.text
        assert f'href="/w/a/{task.token}/frame?assignmentId={task.query["assignmentId"]}&amp;' in reply.text

    assert assignments(client) == []
    assert client.get_hit(HITId=task.query["hitId"])["HIT"]["NumberOfAssignmentsPending"] == 1
    assert task.submit(p01_label="yes").status_code == 200
    assert len(assignments(client)) == 1


def test_nothing_is_no_late_answer_either(crowd, hit_type):
    """After a HIT's time an empty post is kept for nobody to pay; after a submission it changes nothing."""
    late, done = crowd.worker().accept(hit_type), crowd.worker().do(hit_type)
    crowd.clock.advance(hours=2)

    assert sent(late).status_code == 410
    assert (sent(done, json={"q": 1}).status_code, sent(done).status_code) == (200, 200)
    with crowd.engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(LateAnswer)).scalar_one() == 0


def test_a_second_submission_changes_nothing(crowd, client, hit_type):
    """A double click or a reload gets a friendly page, and the first answers stay."""
    task = crowd.worker().do(hit_type, p01_label="yes")

    again = task.submit(p01_label="no")

    assert again.status_code == 200
    assert "already submitted" in again.text
    [own] = assignments(client)
    assert answer_fields(own["Answer"]) == [("p01_label", "yes")]


def test_nobody_does_a_hit_twice(crowd, client, hit_type):
    """Three HITs of one assignment go to one worker once each; then nothing is left."""
    worker = crowd.worker()

    done = {worker.do(hit_type).query["hitId"] for _ in range(3)}

    assert len(done) == 3
    assert worker.accept(hit_type) is None
    assert crowd.worker().accept(hit_type) is None
    post_hit(client, hit_type, MaxAssignments=2)
    assert worker.do(hit_type).query["hitId"] not in done
    assert worker.accept(hit_type) is None
    assert crowd.worker().accept(hit_type) is not None


def test_two_workers_get_different_hits(crowd, hit_type):
    """A leased assignment is nobody else's; accepting again leads to the open one."""
    workers = [crowd.worker() for _ in range(3)]
    tasks = [worker.accept(hit_type) for worker in workers]

    assert len({task.query["hitId"] for task in tasks}) == 3
    assert workers[0].accept(hit_type).query == tasks[0].query
    assert crowd.worker().accept(hit_type) is None


def test_a_returned_hit_goes_to_others_with_its_assignment_id(crowd, client, hit_type):
    """As on MTurk an AssignmentId may come again; the first worker is offered other HITs."""
    first, second = crowd.worker(), crowd.worker()
    returned = first.accept(hit_type)
    reply = first.post(f"/w/a/{returned.token}/return")

    taken = second.accept(hit_type)

    assert "You returned the HIT" in reply.text
    assert taken.query["hitId"] == returned.query["hitId"]
    assert taken.query["assignmentId"] == returned.query["assignmentId"]
    assert returned.submit(p01_label="yes").status_code == 410
    assert first.accept(hit_type).query["hitId"] != returned.query["hitId"]
    assert taken.submit(p01_label="no").status_code == 200
    [own] = assignments(client)
    assert (own["WorkerId"], own["AssignmentId"]) == (second.id, returned.query["assignmentId"])


def test_an_abandoned_hit_comes_back_under_a_new_token(crowd, client, hit_type):
    """When the time is over the HIT is open again; the old page cannot submit into the new lease."""
    worker = crowd.worker()
    old = worker.accept(hit_type)
    crowd.clock.advance(hours=1)
    assert worker.get(f"/w/a/{old.token}").status_code == 410

    others = [worker.do(hit_type) for _ in range(2)]
    new = worker.accept(hit_type)

    assert new.query["hitId"] == old.query["hitId"]
    assert old.query["hitId"] not in {task.query["hitId"] for task in others}
    assert new.token != old.token
    assert old.submit(p01_label="yes").status_code == 410
    assert new.submit(p01_label="yes").status_code == 200


def test_the_frame_is_bound_and_locked_down(crowd, hit_type):
    """The form posts to this assignment's address; the page runs in an opaque origin and loads nothing else."""
    task = crowd.worker().accept(hit_type)

    page = task.page()

    assert f'action="{crowd.url}/s/{task.token}/mturk/externalSubmit"' in page.text
    assert f'value="{task.query["assignmentId"]}"' in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "sandbox allow-scripts allow-forms" in policy
    assert task.query["turkSubmitTo"] == f"{crowd.url}/s/{task.token}"
    assert page.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/w", "/w/a/1-1.x", "/w/preview/3ABC"])
def test_without_a_session_nothing_is_shown(shared_crowd, path):
    """A browser without an invitation is told how to come in."""
    reply = shared_crowd.browser().get(shared_crowd.url + path)

    assert reply.status_code == 403
    assert "invitation" in reply.text


@pytest.mark.parametrize("cookie", ["A1234567890123", "A1234567890123." + "0" * 40, ".", "é"])
def test_a_forged_session_is_none(shared_crowd, cookie):
    """Only cookies sealed by this server count."""
    headers = {"Cookie": f"mitl_worker={cookie}".encode()}

    assert httpx.get(shared_crowd.url + "/w", headers=headers, trust_env=False).status_code == 403


def test_another_workers_hit_is_not_shown(crowd, hit_type):
    """The page around a HIT belongs to the worker who accepted it."""
    task = crowd.worker().accept(hit_type)

    assert crowd.worker().get(f"/w/a/{task.token}").status_code == 404
    assert crowd.worker().post(f"/w/a/{task.token}/return").status_code == 404


def test_a_browser_that_changed_to_another_worker_says_whose_the_answers_are(crowd, hit_type):
    """Who opened a second link while a HIT was open and sends it is not told that it does not exist."""
    [second] = admin.invite(crowd.engine, SANDBOX, clock=crowd.clock)
    worker = crowd.worker()
    task = worker.accept(hit_type)
    worker.get(second.path)
    assert task.submit(p01_label="yes").status_code == 200

    told = worker.get(f"/w/a/{task.token}").text

    assert "What was sent from the HIT is kept and counts for that worker" in told
    assert task.submit(p01_label="yes").status_code == 200


def test_forms_of_other_sites_do_nothing(crowd, client, hit_type):
    """Accepting and returning need this server's own page."""
    worker = crowd.worker()
    task = worker.accept(hit_type)

    for origin in ("https://evil.example", "null"):
        assert worker.post(f"/w/a/{task.token}/return", Origin=origin).status_code == 403
        assert worker.post("/w/accept", {"hit_type_id": hit_type}, Origin=origin).status_code == 403
    bare = worker.browser.post(f"{crowd.url}/w/accept", headers={"Sec-Fetch-Site": "cross-site"})
    assert bare.status_code == 403
    assert task.submit(p01_label="yes").status_code == 200


def test_a_tampered_token_opens_nothing(crowd, hit_type):
    """Neither another row's number nor a changed seal."""
    task = crowd.worker().accept(hit_type)
    number, _, rest = task.token.partition("-")

    for token in (f"{int(number) + 1}-{rest}", task.token[:-1] + "x", "1", "..", "%00"):
        reply = httpx.post(f"{crowd.url}/s/{token}/mturk/externalSubmit", data={"a": "b"}, trust_env=False)
        assert reply.status_code == 404


def test_a_preview_is_not_bound(crowd, client, hit_type):
    """ASSIGNMENT_ID_NOT_AVAILABLE, no worker id, and forms that lead nowhere; the HIT stays available."""
    worker = crowd.worker()
    hit = client.list_hits()["HITs"][0]["HITId"]
    page = worker.get(f"/w/preview/{hit}").text
    address = re.search(r'src="(/w/preview/[^"]+/frame[^"]*)"', page)[1].replace("&amp;", "&")

    frame = httpx.get(crowd.url + address, trust_env=False)

    assert "assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE" in address and "workerId" not in address
    assert 'value="ASSIGNMENT_ID_NOT_AVAILABLE"' in frame.text
    assert "form-action 'none'" in frame.headers["content-security-policy"]
    assert client.get_hit(HITId=hit)["HIT"]["NumberOfAssignmentsAvailable"] == 1


def test_hostile_words_stay_words(crowd, client):
    """Title, description, feedback and labels come from others and are escaped everywhere."""
    evil = "<script>alert(1)</script>\"'>"
    own = client.create_hit_type(**TYPE | {"Title": evil, "Description": evil})["HITTypeId"]
    post_hit(client, own)
    worker = crowd.worker()
    admin.invite(crowd.engine, SANDBOX, label=evil)
    entry = crowd.browser()

    pages = [worker.get("/w").text]
    pages.append(worker.get(f"/w/preview/{client.list_hits()['HITs'][0]['HITId']}").text)
    task = worker.accept(own)
    pages.append(worker.get(f"/w/a/{task.token}").text)
    task.submit(p01_text=evil)
    pages.append(worker.get(f"/w/a/{task.token}").text)
    pages.append(entry.get(f"{crowd.url}/operator?token={admin.operator_token(crowd.engine)}").text)

    assert all("&lt;script&gt;" in page for page in pages)
    assert not any("<script>alert" in page for page in pages)


def test_a_personal_link_is_one_worker_on_any_browser(crowd):
    """A lost cookie costs nothing: the link leads back to the same worker."""
    [link] = admin.invite(crowd.engine, SANDBOX)
    first, second = crowd.browser(), crowd.browser()

    pages = [browser.get(crowd.url + link.path).text for browser in (first, second)]

    ids = {re.search(r"A[A-Z0-9]{13}", page)[0] for page in pages}
    assert len(ids) == 1
    cookie = httpx.get(crowd.url + link.path, trust_env=False).headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie


def test_an_open_link_makes_a_worker_for_each_browser(crowd):
    """Up to its number of uses; the same browser stays the same worker."""
    [link] = admin.invite(crowd.engine, SANDBOX, open_uses=2)
    browsers = [crowd.browser() for _ in range(3)]

    replies = [browser.get(crowd.url + link.path) for browser in (*browsers[:2], browsers[0], browsers[2])]

    ids = [re.search(r"A[A-Z0-9]{13}", reply.text) for reply in replies]
    assert [reply.status_code for reply in replies] == [200, 200, 200, 410]
    assert ids[0][0] == ids[2][0] != ids[1][0]


def test_an_open_link_costs_no_place_where_cookies_are_refused(crowd):
    """Neither a browser without them, however often it comes, nor a program that looks what a link leads to."""
    [link] = admin.invite(crowd.engine, SANDBOX, open_uses=1)

    for _ in range(3):
        without = crowd.browser()
        without.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        refused = without.get(crowd.url + link.path)
        assert refused.status_code == 403 and "Allow cookies" in refused.text
        httpx.get(crowd.url + link.path, trust_env=False)
        httpx.head(crowd.url + link.path, trust_env=False)

    assert [row.uses for row in admin.invitations(crowd.engine)] == [0]
    assert crowd.browser().get(crowd.url + link.path).status_code == 200


def test_invitations_end(crowd):
    """Expired and revoked links are refused; revoking shuts out who came by it."""
    [short] = admin.invite(crowd.engine, SANDBOX, lasts=dt.timedelta(hours=1), clock=crowd.clock)
    [other] = admin.invite(crowd.engine, SANDBOX, clock=crowd.clock)
    browser, joined = crowd.browser(), crowd.browser()
    assert browser.get(crowd.url + other.path).status_code == 200
    assert joined.get(crowd.url + short.path).status_code == 200

    crowd.clock.advance(hours=1)
    admin.revoke(crowd.engine, other.id)

    assert crowd.browser().get(crowd.url + short.path).status_code == 410
    assert crowd.browser().get(crowd.url + other.path).status_code == 410
    assert browser.get(crowd.url + "/w").status_code == 403
    assert joined.get(crowd.url + short.path).status_code == 200  # who is in already stays in
    assert crowd.browser().get(crowd.url + "/w/join/nonsense").status_code == 404
    with pytest.raises(StoreError, match="no open invitation"):
        admin.revoke(crowd.engine, other.id)


def test_a_revoked_workers_hit_is_free_again_and_takes_no_submission(crowd, client, hit_type):
    """The address of an open HIT does not outlive the invitation; what was entered is kept as a late answer."""
    [link] = admin.invite(crowd.engine, SANDBOX, clock=crowd.clock)
    worker = Worker(crowd, crowd.browser())
    worker.get(link.path)
    task = worker.accept(hit_type)

    admin.revoke(crowd.engine, link.id, clock=crowd.clock)

    hit = client.get_hit(HITId=task.query["hitId"])["HIT"]
    assert (hit["NumberOfAssignmentsPending"], hit["NumberOfAssignmentsAvailable"]) == (
        0,
        hit["MaxAssignments"],
    )
    assert task.submit(p01_label="yes").status_code == 410
    for address in (f"/w/a/{task.token}", "/w", "/w/start"):
        page = worker.get(address)
        assert page.status_code == 403
        assert "Your invitation was withdrawn" in page.text
        assert "What you sent is kept" in page.text
    assert assignments(client) == []
    with crowd.engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(LateAnswer)) == 1


def test_tokens_of_invitations_are_not_kept(crowd):
    """Whoever reads crowd.db cannot join with what is in it."""
    [link] = admin.invite(crowd.engine, SANDBOX)

    with crowd.engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert raw is not None
        dump = "\n".join(raw.iterdump())

    assert link.token not in dump


def test_an_external_question_gets_the_usual_query(crowd, client):
    """In its own address, before the place in the page; what is no answer is led back there."""
    space = "http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/2006-07-14/ExternalQuestion.xsd"
    xml = (
        f'<ExternalQuestion xmlns="{space}"><ExternalURL>https://study.example/page?a=1#/task</ExternalURL>'
        "<FrameHeight>600</FrameHeight></ExternalQuestion>"
    )
    hit = post_hit(client, Question=xml)
    worker = crowd.worker()

    page = worker.post("/w/accept", {"hit_type_id": hit["HITTypeId"]})
    refused = crowd.stranger.post(f"{crowd.url}/s/{str(page.url).rpartition('/')[2]}/mturk/externalSubmit")

    assert 'src="https://study.example/page?a=1&amp;assignmentId=3' in page.text
    assert 'height="600"' in page.text
    assert re.search(r'turkSubmitTo=http[^"#]*#/task"', page.text)
    assert refused.status_code == 422
    assert 'href="https://study.example/page?a=1&amp;assignmentId=' in refused.text


def test_images_are_served_from_public_folders_only(crowd_engine, tmp_path):
    """By safe names, with a type and a cache time; nothing above the folder, nothing that is not an image."""
    from crowd_kit import running_crowd

    public = tmp_path / "public"
    (public / "i").mkdir(parents=True)
    (public / "i" / "abc.jpg").write_bytes(b"\xff\xd8")
    (public / "direct.png").write_bytes(b"\x89PNG")
    (public / "notes.txt").write_text("secret")
    (tmp_path / "mitl.db").write_text("secret")
    with running_crowd(crowd_engine, public) as crowd:
        found = crowd.browser().get(crowd.url + "/i/abc.jpg")
        direct = crowd.browser().get(crowd.url + "/i/direct.png")
        wrong = [
            crowd.browser().get(crowd.url + path).status_code
            for path in ("/i/notes.txt", "/i/..%2Fmitl.db", "/i/%2E%2E/mitl.db", "/i/.jpg", "/i/none.jpg")
        ]

    assert (found.status_code, found.headers["content-type"]) == (200, "image/jpeg")
    assert "max-age" in found.headers["cache-control"]
    assert direct.content == b"\x89PNG"
    assert wrong == [404] * 5


def test_a_page_that_is_no_xml_character_is_kept(crowd, client):
    """A HIT's own markup reaches the worker unchanged."""
    odd = HTML.replace("yes <input", "j&amp;a “yes” 🐈 <input")
    hit = post_hit(client, Question=question(odd))

    page = crowd.worker().accept(hit["HITTypeId"]).page()

    assert "j&amp;a “yes” 🐈 <input" in page.text


def test_an_answer_that_comes_too_late_is_kept_and_said_so(crowd, client, hit_type):
    """It is no submission; who has not sent it yet is shown the way, who has that it is kept, the same again once."""
    worker = crowd.worker()
    task = worker.accept(hit_type)
    crowd.clock.advance(hours=1)

    assert task.page().status_code == 410 and "kept" not in task.page().text
    over = worker.get(f"/w/a/{task.token}").text
    assert f"/w/a/{task.token}?late=1" in over and "by hand" not in over
    assert worker.get(f"/w/a/{task.token}?late=1").status_code == 200

    replies = [task.submit(p01_label=label) for label in ("yes", "yes", "no")]

    assert [reply.status_code for reply in replies] == [410] * 3
    assert all("is kept" in reply.text and "by hand" in reply.text for reply in replies)
    assert assignments(client) == []
    over = worker.get(f"/w/a/{task.token}").text
    assert "pay you for it by hand" in over and "?late=1" not in over
    page = worker.get("/w/work").text
    assert page.count("arrived <time") == 2
    with crowd.engine.connect() as connection:
        kept = connection.exec_driver_sql("select answer from late_answer order by id").scalars().all()
    assert [answer_fields(xml) for xml in kept] == [[("p01_label", "yes")], [("p01_label", "no")]]


def test_answers_from_before_a_backup_was_restored_go_to_nobody_else(crowd, hit_type):
    """The row of their HIT is another worker's by then; what the browser holds stays there."""
    one, two = crowd.worker(), crowd.worker()
    lost = one.accept(hit_type)
    with crowd.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM assignment")
    crowd.clock.advance(seconds=1)
    task = two.accept(hit_type)
    assert lost.token.partition("-")[0] == task.token.partition("-")[0]

    replies = [lost.submit(p01_label="no"), task.submit(p01_label="yes"), lost.submit(p01_label="no")]

    assert [reply.status_code for reply in replies] == [404, 200, 404]
    assert "this browser keeps them" in replies[0].text
    with crowd.engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(LateAnswer)) == 0


def test_the_address_of_an_earlier_version_is_still_good(crowd, hit_type):
    """Who had a HIT open while the server was brought up to date sends it."""
    task = crowd.worker().accept(hit_type)
    with Database(crowd.engine).read() as connection:
        secret = accounts.settings(connection)["secret"]

    earlier = seal(secret, "assignment", task.token.partition(".")[0])
    assert earlier != task.token
    task.frame, task.token = task.frame.replace(task.token, earlier), earlier

    assert task.page().status_code == task.submit(p01_label="yes").status_code == 200


def test_a_script_cannot_fill_the_table_of_late_answers(crowd, hit_type):
    """Five different ones are kept for one assignment."""
    task = crowd.worker().accept(hit_type)
    crowd.clock.advance(hours=1)

    assert {task.submit(p01_text=str(number)).status_code for number in range(8)} == {410}
    with crowd.engine.connect() as connection:
        assert connection.exec_driver_sql("select count(*) from late_answer").scalar_one() == 5


def test_a_list_of_late_answers_that_is_cut_says_so(crowd, hit_type):
    """The newest are listed, and the page tells that these are not all."""
    worker = crowd.worker()
    task = worker.accept(hit_type)
    crowd.clock.advance(hours=1)
    task.submit(p01_label="yes")
    assert "Only the newest" not in worker.get("/w/work").text
    with crowd.engine.begin() as connection:
        connection.exec_driver_sql(
            "insert into late_answer (assignment_id, answer, received_at) with recursive n(i) as (select 1 union all "
            "select i + 1 from n where i < 104) select assignment_id, answer || i, received_at from late_answer, n"
        )

    page = worker.get("/w/work").text

    assert page.count("arrived <time") == 100
    assert "Only the newest 100 are listed here; all are kept." in page


def test_a_form_that_names_another_assignment_is_refused(crowd, client, hit_type):
    """Nothing is stored under the wrong HIT, and the right one can still be sent."""
    first, second = crowd.worker().accept(hit_type), crowd.worker().accept(hit_type)

    forged = first.submit(assignmentId=second.query["assignmentId"], p01_label="yes")

    assert forged.status_code == 409 and "another HIT" in forged.text
    assert assignments(client) == []
    assert first.submit(p01_label="yes").status_code == 200


def test_too_much_text_is_told_with_a_way_back(crowd, client, hit_type):
    """Half a megabyte is no answer: the page around the HIT leads back to what was entered; the HIT stays open."""
    worker = crowd.worker()
    task = worker.accept(hit_type)

    for size in (600_000, 1_000_000):
        reply = task.submit(p01_text="x" * size)
        assert reply.status_code == 413 and "too much" in reply.text and 'note:"large"' in reply.text
    assert assignments(client) == []
    assert "Go back to your answers" in worker.get(f"/w/a/{task.token}").text
    assert task.submit(p01_text="x").status_code == 200


def test_a_paused_type_is_not_given_out(crowd, client, hit_type):
    """Neither listed nor accepted, nor by the preview; who holds one may finish; resumed, all is back."""
    holder, other = crowd.worker(), crowd.worker()
    task = holder.accept(hit_type)
    hit = client.list_hits()["HITs"][0]["HITId"]

    pause = "update hit_type set paused_at = {} where mturk_id = '" + hit_type + "'"
    with crowd.engine.begin() as connection:
        connection.exec_driver_sql(pause.format(1))

    assert TYPE["Title"] not in other.get("/w").text
    assert other.accept(hit_type) is None
    assert "Accept one" not in other.get(f"/w/preview/{hit}").text
    assert task.submit(p01_label="yes").status_code == 200
    with crowd.engine.begin() as connection:
        connection.exec_driver_sql(pause.format("null"))
    assert other.accept(hit_type) is not None


def test_a_blocked_worker_is_given_nothing(crowd, hit_type):
    """The list is empty and accepting leads back; other workers go on."""
    blocked, other = crowd.worker(), crowd.worker()
    own_id = blocked.id
    with crowd.engine.begin() as connection:
        connection.exec_driver_sql(
            "insert into worker_block (worker_id, environment, reason, blocked_at) "
            f"select id, environment, 'x', 1 from worker where mturk_id = '{own_id}'"
        )

    assert TYPE["Title"] not in blocked.get("/w").text
    assert blocked.accept(hit_type) is None
    assert other.accept(hit_type) is not None


def test_your_work_tells_what_became_of_each_hit(crowd):
    """Waiting with its last day, approved with bonus and reason, rejected with the requester's words; what is owed."""
    admin.set_budget(crowd.engine, LIVE, 1000)
    client, worker = crowd.boto(LIVE), crowd.worker(LIVE)
    own = client.create_hit_type(**TYPE)["HITTypeId"]
    for _ in range(3):
        post_hit(client, own)
        task = worker.do(own)
        crowd.clock.advance(minutes=1)
    ids = [one["AssignmentId"] for one in assignments(client)]
    assert "$0.00" in worker.get("/w").text
    client.approve_assignment(AssignmentId=ids[0], RequesterFeedback="Good <work>")
    client.send_bonus(WorkerId=worker.id, AssignmentId=ids[0], BonusAmount="0.25", Reason="for care")
    client.reject_assignment(AssignmentId=ids[1], RequesterFeedback="Two controls were wrong.")

    page, listed = worker.get("/w/work").text, worker.get("/w").text

    assert "owed to you" in listed and "$1.25" in listed and "practice" not in listed
    assert page.count("<b>approved</b>") == page.count("<b>rejected</b>") == 1
    assert "waiting for review</b>, approved at the latest on" in page
    assert "Good &lt;work&gt;" in page and "Two controls were wrong." in page
    assert "Bonus of <b>$0.25</b>: “<bdi>for care</bdi>”" in page
    assert "when they are approved, at the latest on" in worker.get(f"/w/a/{task.token}").text


def test_a_submission_keeps_the_time_of_its_approval_when_its_hit_changes_its_type(crowd, client):
    """The page of the HIT and the list of work say the same, and then it is so."""
    own = client.create_hit_type(**TYPE | {"AutoApprovalDelayInSeconds": 3600})["HITTypeId"]
    later = client.create_hit_type(**TYPE | {"AutoApprovalDelayInSeconds": 86_400})["HITTypeId"]
    hit = post_hit(client, own)["HITId"]
    worker = crowd.worker()
    task = worker.accept(own)
    task.submit(p01_label="yes")
    due = (crowd.clock() + dt.timedelta(hours=1)).isoformat()

    client.update_hit_type_of_hit(HITId=hit, HITTypeId=later)

    assert due in worker.get(f"/w/a/{task.token}").text and due in worker.get("/w/work").text
    crowd.clock.advance(hours=1)
    assert "They were approved" in worker.get("/w").text + worker.get(f"/w/a/{task.token}").text


def test_the_usual_time_is_told_once_it_is_known(crowd, client, monkeypatch):
    """After five submissions, with what that makes in an hour; it is looked up every ten seconds at most."""
    seconds = [100.0]
    monkeypatch.setattr(assignment_store, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    own = client.create_hit_type(**TYPE)["HITTypeId"]
    post_hit(client, own, MaxAssignments=9)
    tasks = [crowd.worker().accept(own) for _ in range(5)]
    crowd.clock.advance(minutes=5)
    for task in tasks[:4]:
        task.submit(p01_label="yes")
    reader = crowd.worker()
    assert "usually" not in reader.get("/w").text

    tasks[4].submit(p01_label="yes")

    assert "usually" not in reader.get("/w").text
    seconds[0] += 10.1
    page = reader.get("/w").text
    assert "people usually take <b>5 min</b>; that is about $12.00 an hour" in page


def test_the_requesters_own_estimate_is_told_until_then(crowd, client):
    """As the HIT's page states it; a page that states none has none."""
    plain = post_hit(client)
    worker = crowd.worker()
    assert "says the requester" not in worker.get("/w").text
    own = client.create_hit_type(**TYPE | {"Title": "Other"})["HITTypeId"]
    hit = post_hit(client, own, Question=question(HTML.replace("yes ", "Instructions (about 5 minutes) ")))

    for path in ("/w", f"/w/preview/{hit['HITId']}"):
        assert "takes about <b>5 min</b>, says the requester; that is about $12.00" in worker.get(path).text
    assert "says the requester" in worker.post("/w/accept", {"hit_type_id": own}).text
    assert "says the requester" not in worker.get(f"/w/preview/{plain['HITId']}").text


def test_without_scripts_everything_has_a_link_or_a_button(crowd, hit_type):
    """List, accept, submit, go on, next: each page's own markup leads to the following one."""
    worker = crowd.worker()
    around = worker.post("/w/accept", {"hit_type_id": hit_type})
    task = worker.task(around)
    assert re.search(rf'<noscript>.*href="/w/a/{re.escape(task.token)}"', around.text)
    assert "until <time" in around.text

    task.submit(p01_label="yes")
    sent = worker.get(f"/w/a/{task.token}")

    assert "Submitted. Thank you!" in sent.text
    assert re.search(r'<form method="post" action="/w/accept">.*Accept the next one', sent.text, re.S)


def test_after_a_hit_one_page_says_what_was_earned_and_what_is_next(crowd, client, hit_type):
    """Another of its kind while there is one for this worker, then other kinds, then the list."""
    worker = crowd.worker()
    other = client.create_hit_type(**TYPE | {"Title": "Other"})["HITTypeId"]
    post_hit(client, other)
    said = []

    for kind in (hit_type, hit_type, hit_type, other):
        task = worker.do(kind)
        said.append(worker.get(f"/w/a/{task.token}").text)

    assert all(
        "Submitted. Thank you!" in text and "You get <b>$1.00</b> practice money" in text for text in said
    )
    assert ["Accept the next one" in text for text in said] == [True, True, False, False]
    assert "<b>2</b> of this kind left for you" in said[0] and "<b>1</b> of this kind" in said[1]
    assert "1 other kind is open" in said[2] and "That was the last HIT for you" in said[3]
    assert [int(re.search(r"waiting for review</dt><dd>(\d+)", text)[1]) for text in said] == [1, 2, 3, 4]


def test_a_hit_that_asks_for_a_qualification_is_not_the_next_one(crowd, client):
    """What this worker may not accept is not offered to them."""
    own = client.create_qualification_type(Name="q", Description="d", QualificationTypeStatus="Active")
    needed = {"QualificationTypeId": own["QualificationType"]["QualificationTypeId"], "Comparator": "Exists"}
    kind = TYPE | {"Title": "Guarded", "QualificationRequirements": [needed | {"ActionsGuarded": "Accept"}]}
    plain = client.create_hit_type(**TYPE)["HITTypeId"]
    post_hit(client, plain)
    post_hit(client, client.create_hit_type(**kind)["HITTypeId"])
    worker = crowd.worker()

    task = worker.do(plain)

    assert "That was the last HIT for you" in worker.get(f"/w/a/{task.token}").text


def test_an_old_address_of_a_hit_leads_to_the_one_at_hand(crowd, hit_type):
    """Returned and taken again under another address; the old one says so and shows the way."""
    worker = crowd.worker()
    old = worker.accept(hit_type)
    worker.post(f"/w/a/{old.token}/return")
    for _ in range(2):
        worker.do(hit_type)
    crowd.clock.advance(hours=2)
    new = worker.accept(hit_type)

    page = worker.get(f"/w/a/{old.token}")

    assert new.query["hitId"] == old.query["hitId"] and new.token != old.token
    assert page.status_code == 410 and f'href="/w/a/{new.token}"' in page.text


def test_the_list_is_sorted_and_searched_by_its_address(crowd, client):
    """Words in any order and case, of title or description; each order; what is found nowhere is said."""
    kinds = {"Dogs": ("0.50", 1, 4), "Cats": ("2.00", 2, 60), "Birds": ("1.00", 3, 5)}
    for title, (reward, count, minutes) in kinds.items():
        described = {"Title": title, "Description": f"Pictures of {title.lower()}.", "Reward": reward}
        own = client.create_hit_type(**TYPE | described)["HITTypeId"]
        for _ in range(count):
            post_hit(
                client,
                own,
                Question=question(HTML.replace("yes ", f"Instructions (about {minutes} minutes) ")),
            )
    worker = crowd.worker()

    def listed(query):
        text = worker.get(f"/w?{query}").text
        return [title for title in re.findall(r"<h2>(\w+)</h2>", text) if title in kinds]

    assert listed("") == listed("sort=old") == listed("sort=no%00such") == ["Dogs", "Cats", "Birds"]
    assert listed("sort=new") == ["Birds", "Cats", "Dogs"]
    assert listed("sort=pay") == ["Cats", "Birds", "Dogs"]
    assert listed("sort=hour") == ["Birds", "Dogs", "Cats"]
    assert listed("sort=short") == ["Dogs", "Birds", "Cats"]
    assert listed("sort=many") == ["Birds", "Cats", "Dogs"]
    assert listed("q=CATS++pictures&sort=many") == ["Cats"]
    nothing = worker.get("/w?q=%3Cb%3Ehorses&sort=pay").text
    assert "No HIT here has “&lt;b&gt;horses”" in nothing and 'href="/w?sort=pay">Show all' in nothing
    assert 'value="pay" selected' in nothing and "No HITs are open" not in nothing
    assert "<form" in nothing and len(worker.get("/w?q=" + "x" * 3000).text) < 20_000


def test_messages_are_counted_in_the_header(crowd, client, hit_type):
    """A worker sees that somebody wrote."""
    worker = crowd.worker()
    worker.do(hit_type)
    [own] = assignments(client)
    client.approve_assignment(AssignmentId=own["AssignmentId"])

    client.notify_workers(Subject="Hello", MessageText="Thank you.", WorkerIds=[worker.id])

    assert re.search(r'href="/w/messages">Messages <span class="count">1', worker.get("/w").text)


def test_one_worker_clicking_at_once_holds_one_hit(either_crowd):
    """Eight windows of one worker reach for a HIT at the same moment; one assignment is made."""
    client = either_crowd.boto()
    own = client.create_hit_type(**TYPE)["HITTypeId"]
    for _ in range(4):
        post_hit(client, own, MaxAssignments=2)
    worker = either_crowd.worker()
    cookies = dict(worker.browser.cookies)

    def click(number):
        window = Worker(either_crowd, either_crowd.browser())
        window.browser.cookies.update(cookies)
        return window.accept(own).token

    assert len(set(at_once(click, range(8)))) == 1
    assert sum(hit["NumberOfAssignmentsPending"] for hit in client.list_hits()["HITs"]) == 1


def test_an_expired_hit_is_not_given_out_but_may_be_finished(crowd, client):
    """Expiry ends accepting; who holds the HIT has until its own deadline."""
    hit = post_hit(client, MaxAssignments=3, LifetimeInSeconds=600)
    holder, other = crowd.worker(), crowd.worker()
    crowd.clock.advance(seconds=500)
    task = holder.accept(hit["HITTypeId"])
    crowd.clock.advance(seconds=200)

    assert other.accept(hit["HITTypeId"]) is None
    assert TYPE["Title"] not in other.get("/w").text
    assert task.submit(p01_label="yes").status_code == 200


def test_a_huge_form_does_nothing(crowd, hit_type):
    """Our own forms are small; more than that leads back without a fault."""
    worker = crowd.worker()

    for path in ("/w/accept", "/w/study"):
        reply = worker.post(path, {"hit_type_id": hit_type + "x" * 10_000, "answer": "yes"})
        assert reply.status_code == 200
        assert worker.task(reply) is None


def test_a_long_history_is_turned_page_by_page(crowd, hit_type, monkeypatch):
    """One submission on a page: together the pages hold each once, newest first."""
    monkeypatch.setattr(listing, "WORK_ON_A_PAGE", 1)
    worker, address, shown = crowd.worker(), "/w/work", []
    for _ in range(3):
        worker.do(hit_type)
        crowd.clock.advance(minutes=1)
    while address:
        page = worker.get(address).text
        shown += re.findall(r"sent <time datetime=\"([^\"]+)", page)
        found = re.search(r'<a rel="next" href="([^"]+)"', page)
        address = found and found[1]

    assert len(shown) == 3 and shown == sorted(shown, reverse=True)
    assert worker.get("/w/work?page=99").text == worker.get("/w/work?page=3").text
