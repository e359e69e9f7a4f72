"""The operator's page by plain HTTP: its own sign-in, and numbers that are true."""

from __future__ import annotations

import datetime as dt
import re

from crowd_kit import TYPE, post_hit
from crowd_operator_kit import (
    Operator,
    add_late_answer,
    add_panel,
    add_visit,
    links_in,
    operator_of,
    worker_row,
)

from mitl.crowd_server import admin
from mitl.crowd_server.store.models import VisitState
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)

SANDBOX, LIVE = Environment.SANDBOX, Environment.LIVE


def test_the_token_can_be_pasted(crowd):
    """Alone or as the whole link; anything else is refused with a word on where it is found."""
    token = admin.operator_token(crowd.engine)
    for pasted in (token, f" {token}\n", f"{crowd.url}/operator?token={token}"):
        operator = Operator(crowd, crowd.browser())
        reply = operator.post("/operator/sign-in", {"token": pasted})
        assert (reply.status_code, str(reply.url)) == (200, f"{crowd.url}/operator")

    refused = Operator(crowd, crowd.browser()).post("/operator/sign-in", {"token": token[:-1]})

    no_address = Operator(crowd, crowd.browser()).post(
        "/operator/sign-in", {"token": f"http://[x/operator?token={token[:-1]}"}
    )

    assert refused.status_code == no_address.status_code == 403
    assert "mitl serve" in refused.text and 'name="token"' in refused.text


def test_the_session_cookie_is_strict(crowd):
    """Scripts cannot read it, other sites cannot bring it along, other pages do not get it."""
    reply = crowd.browser().get(
        f"{crowd.url}/operator?token={admin.operator_token(crowd.engine)}", follow_redirects=False
    )

    cookie = reply.headers["set-cookie"]
    assert reply.status_code == 303
    for part in ("HttpOnly", "SameSite=strict", "Path=/operator", "Max-Age=43200"):
        assert part in cookie
    assert "Secure" not in cookie


def test_wrong_tokens_have_to_wait(crowd):
    """After five; each further one doubles the time. The right one never waits, and ends it.

    Another site's images could otherwise keep an operator out by sending wrong ones.
    """
    operator, right = Operator(crowd, crowd.browser()), {"token": admin.operator_token(crowd.engine)}
    guess = {"token": "guess"}
    for _ in range(5):
        assert operator.post("/operator/sign-in", {"token": "guess"}).status_code == 403

    waits = []
    for _ in range(3):
        reply = operator.post("/operator/sign-in", guess)
        assert reply.status_code == 429 and "Too many wrong tokens" in reply.text
        waits.append(int(reply.headers["retry-after"]))
        crowd.clock.advance(seconds=waits[-1])
        assert operator.get("/operator?token=guess").status_code == 403
    assert operator.post("/operator/sign-in", guess).status_code == 429

    assert waits == [2, 4, 8]
    assert operator.post("/operator/sign-in", right).status_code == 200
    assert operator.post("/operator/sign-in", guess).status_code == 403


def test_who_gave_wrong_tokens_under_a_clock_that_ran_ahead_waits_no_longer(crowd):
    """Once it is set right, two seconds as ever, not until that time comes."""
    operator, guess = Operator(crowd, crowd.browser()), {"token": "guess"}
    crowd.clock.advance(days=1)
    for _ in range(5):
        operator.post("/operator/sign-in", guess)
    crowd.clock.advance(days=-1)

    assert operator.post("/operator/sign-in", guess).headers["retry-after"] == "2"


def test_signing_out_ends_the_session_itself(crowd, operator):
    """A copy of the cookie is good for nothing afterwards."""
    cookies = dict(operator.browser.cookies)
    assert operator.get().status_code == 200

    assert operator.post("/operator/sign-out").status_code == 403
    operator.browser.cookies.update(cookies)

    assert operator.get().status_code == 403
    assert operator.get("/operator/state").json() == {"signed_in": False}


def test_a_session_lasts_half_a_day(crowd, operator):
    """By the server's clock, whatever the browser keeps."""
    crowd.clock.advance(hours=11, minutes=59)
    assert operator.get().status_code == 200

    crowd.clock.advance(minutes=2)

    assert operator.get().status_code == 403


def test_arriving_from_another_site_loads_the_page_again(crowd):
    """The strict cookie is held back on that way, and comes with the second request, which is the page's own."""
    browser = crowd.browser()

    first = browser.get(crowd.url + "/operator", headers={"Sec-Fetch-Site": "cross-site"})
    second = browser.get(crowd.url + "/operator", headers={"Sec-Fetch-Site": "same-origin"})

    assert 'http-equiv="refresh"' in first.text
    assert 'http-equiv="refresh"' not in second.text


def test_every_page_needs_the_session(shared_crowd):
    """Nothing is shown and no file is given without it."""
    browser = shared_crowd.browser()
    pages = ("", "/state", "/active", "/late", "/payments/live", "/groups/3X/expire", "/invitations/1/revoke")
    files = ("/late", "/payments/live", "/ledger/live", "/panels/first/payments")

    for path in (*pages, *(f"{name}.csv" for name in files)):
        reply = browser.get(f"{shared_crowd.url}/operator{path}")
        assert reply.status_code == 403, path
        assert "no-store" in reply.headers["cache-control"]


def test_nothing_is_sent_when_nothing_changed(crowd, client, operator, hit_type):
    """The browser shows its tag and gets 304 until a number changes."""
    first = operator.get("/operator/state")
    tag = first.headers["etag"]

    same = operator.get("/operator/state", **{"If-None-Match": tag})
    weak = operator.get("/operator/state", **{"If-None-Match": "W/" + tag})
    crowd.worker().do(hit_type)
    other = operator.get("/operator/state", **{"If-None-Match": tag})

    assert (same.status_code, same.content, weak.status_code) == (304, b"", 304)
    assert other.status_code == 200
    assert other.json()["texts"][f"{hit_type}.done"] == "1"
    assert other.json()["bars"][hit_type] == [1, 3]


def test_the_page_and_its_state_agree(crowd, client, operator, hit_type):
    """Every number that is renewed later stands in the page from the start, so it works without scripts."""
    add_panel(crowd, "study-1")
    operator.invite()
    crowd.worker().do(hit_type)
    crowd.worker().accept(hit_type)

    state = operator.get("/operator/state").json()
    page = operator.get().text

    shown = dict(re.findall(r'data-live="([^"]+)">([^<]*)<', page))
    assert shown.items() <= state["texts"].items()
    assert f'data-shape="{state["shape"]}"' in page
    assert shown[f"{hit_type}.done"] == "1" and shown[f"{hit_type}.working"] == "1"
    assert shown["sandbox.working"] == "1" and shown["sandbox.waiting"] == "1"
    assert "connect-src 'self'" in operator.get().headers["content-security-policy"]


def test_progress_counts_what_was_done(crowd, client, operator):
    """Done, waiting, rejected, at work, of late and overall, and when it will be over."""
    own = client.create_hit_type(**TYPE | {"AssignmentDurationInSeconds": 7200})["HITTypeId"]
    hits = [post_hit(client, own, MaxAssignments=4)["HITId"] for _ in range(3)]
    workers = [crowd.worker() for _ in range(4)]
    for worker in workers:
        task = worker.accept(own)
        crowd.clock.advance(minutes=15)
        task.submit(p01_label="yes")
    done = client.list_assignments_for_hit(HITId=hits[0])["Assignments"]
    client.reject_assignment(AssignmentId=done[0]["AssignmentId"], RequesterFeedback="no")
    client.approve_assignment(AssignmentId=done[1]["AssignmentId"])
    workers[0].accept(own)

    state = operator.state()

    found = {name: state[f"{own}.{name}"] for name in ("hits", "wanted", "done", "waiting", "rejected")}
    assert found == {"hits": "3", "wanted": "12", "done": "4", "waiting": "2", "rejected": "1"}
    assert (state[f"{own}.working"], state[f"{own}.hour"], state[f"{own}.overall"]) == ("1", "4", "4.0")
    assert re.fullmatch(r"(today|tomorrow), [0-2][0-9]:[0-5][05] UTC", state[f"{own}.finish"])
    assert state["sandbox.owed"] == "$1.00" and state["live.owed"] == "$0.00"
    live, practice = re.findall(r'<section class="card now".*?</section>', operator.get().text, re.DOTALL)
    assert "nothing is paid here" in practice and "<dt>owed</dt>" not in practice and "<dt>owed</dt>" in live
    crowd.clock.advance(hours=1, minutes=1)
    later = operator.state()
    assert (later[f"{own}.hour"], later[f"{own}.finish"], later[f"{own}.overall"]) == ("0", "-", "4.0")


def test_answers_go_with_a_hit_that_gets_another_type(crowd, client, operator):
    """Those of the last hour and the overall rate, whatever delay either type has."""
    slow, fast = (
        client.create_hit_type(**TYPE | {"AutoApprovalDelayInSeconds": delay})["HITTypeId"]
        for delay in (86400, 7200)
    )
    hit = post_hit(client, slow, MaxAssignments=3)["HITId"]
    for minutes in (50, 30):
        task = crowd.worker().accept(slow)
        crowd.clock.advance(minutes=minutes)
        task.submit(p01_label="yes")
    for of in (slow, fast, slow):
        client.update_hit_type_of_hit(HITId=hit, HITTypeId=of)
        crowd.clock.advance(minutes=2)
        state = operator.state()
        shown = {one: (state[f"{one}.hour"], state[f"{one}.overall"]) for one in (slow, fast)}

        assert shown[of] == ("2", "1.5")
        assert {shown[one] for one in (slow, fast) if one != of} == {("0", "-")}
    crowd.clock.advance(minutes=60)
    client.update_hit_type_of_hit(HITId=hit, HITTypeId=fast)

    assert operator.state()[f"{fast}.hour"] == "0"


def test_who_is_at_work_is_named_only_where_asked(crowd, operator, hit_type):
    """The overview counts people; their ids are one click away."""
    worker = crowd.worker()
    worker.accept(hit_type)

    assert worker.id not in operator.get().text + operator.get("/operator/state").text
    assert worker.id in operator.get("/operator/active").text


def test_panels_show_their_link_and_their_visits(crowd, operator):
    """The address to paste, open or closed, and how visits ended."""
    panel = add_panel(crowd, "study-1")
    worker = crowd.worker(LIVE)
    row = worker_row(crowd, worker.id)
    for ago, state in enumerate((VisitState.OPEN, VisitState.COMPLETED, VisitState.COMPLETED)):
        add_visit(crowd, panel, row, crowd.clock() - dt.timedelta(minutes=ago + 1), state)

    state, page = operator.state(), operator.get().text

    assert state["panel-study-1.open"] == "1" and state["panel-study-1.completed"] == "2"
    assert f"{crowd.url}/p/study-1?PROLIFIC_PID=" in page


def test_hostile_words_stay_words_here_too(crowd, client, operator):
    """Titles, labels and slugs of others are escaped, in the page and in what is sent later."""
    evil = "<script>alert(1)</script>\"'>"
    own = client.create_hit_type(**TYPE | {"Title": evil})["HITTypeId"]
    post_hit(client, own)
    operator.invite(label=evil)
    crowd.worker().accept(own)

    for path in ("", "/active", f"/groups/{own}/expire"):
        text = operator.get("/operator" + path).text
        assert "&lt;script&gt;" in text and "<script>alert" not in text
    assert operator.get("/operator/state").headers["content-type"] == "application/json"


def test_the_page_serves_both_engines(either_crowd):
    """Every page and every file, with rows of every kind."""
    crowd = either_crowd
    operator, client = operator_of(crowd), crowd.boto()
    own = post_hit(client, MaxAssignments=3)["HITTypeId"]
    worker = crowd.worker()
    worker.do(own)
    crowd.worker().accept(own)
    add_late_answer(crowd)
    panel = add_panel(crowd, "first", environment=SANDBOX)
    add_visit(crowd, panel, worker_row(crowd, worker.id), crowd.clock() - dt.timedelta(hours=1))
    [hit] = client.list_hits()["HITs"]
    [done] = client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    client.approve_assignment(AssignmentId=done["AssignmentId"])

    assert len(links_in(operator.invite(links="2"))) == 2
    assert operator.state()[f"{own}.done"] == "1"
    for path in ("", "/active", "/late", "/payments/sandbox"):
        assert operator.get("/operator" + path).status_code == 200
    for name in ("late", "payments/sandbox", "ledger/sandbox"):
        assert len(operator.csv(f"/operator/{name}.csv")) > 1
    assert operator.csv("/operator/panels/first/payments.csv?format=generic&pay=all")[1][5] == "1.00"
    assert "Paused." in operator.post(f"/operator/groups/{own}/pause").text
    assert "Expired." in operator.post(f"/operator/groups/{own}/expire").text
    assert admin.balance(crowd.engine, SANDBOX).held == 100
    assert "DOES NOT BALANCE" not in operator.get().text
