"""The review desk over HTTP: what a person decides reaches the crowd server, once, and is journalled."""

from __future__ import annotations

import datetime as dt
import html
import io
import os
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from desk_kit import REASON, OpenDesk, make_reviewed_project, open_desk, written
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sqlalchemy import text
from world_kit import SANDBOX, copy_of

from mitl.core.paging import ListPage
from mitl.crowd.context import open_context
from mitl.crowd.paying import OVERRIDE, REJECT
from mitl.db.engine import make_engine
from mitl.db.session import open_database
from mitl.db.store import journal, judgements
from mitl.desk import worker_pages
from mitl.desk.words import DECISIONS
from mitl.records import Decision, JournalState
from mitl.settings import Settings
from mitl.stages.releasing.origins import crowd, release_facts
from mitl.stages.reporting.report import collect
from mitl.stages.reporting.sections import crowd_stats
from mitl.stages.reviewing.review import Ruling, rule
from mitl.stages.reviewing.show import show
from mitl.stages.reviewing.workers import workers

pytest_plugins = ("desk_fixtures",)


def server_says(settings: Settings, query: str, **values: object) -> list[tuple[object, ...]]:
    """Rows of the crowd server's database."""
    engine = make_engine(settings.crowd_db_url)
    with engine.connect() as connection:
        rows = [tuple(row) for row in connection.execute(text(query), values)]
    engine.dispose()
    return rows


def state_on_server(desk: OpenDesk, number: int) -> str:
    """What the crowd server says of a submission."""
    row = desk.row(number)
    query = """SELECT a.state FROM assignment a JOIN worker w ON w.id = a.worker_id
        WHERE a.mturk_id = :a AND w.mturk_id = :w"""
    [(state,)] = server_says(desk.settings, query, a=row.mturk_assignment_id, w=row.worker)
    return str(state).lower()


def test_decisions_pay_and_lead_to_the_next_in_the_queue(opened):
    """The server approves, the ledger books, answers count where they may, and the next submission shows."""
    queued = opened.rows(Decision.QUEUED)
    wanted = dict(zip(queued, (Decision.APPROVE, Decision.DROP, Decision.APPROVE_EXCLUDE), strict=False))

    for row, following in zip(wanted, queued[1:], strict=False):
        page = opened.post(f"/queue/{row.id}/decide", {"decision": wanted[row].value})
        assert page.status_code == 200 and f"Submission {following.id}" in page.text
        assert f"Submission {row.id}: {DECISIONS[wanted[row]]}" in written(page)
    opened.settle()

    excluded = [row.worker for row in queued if wanted.get(row) is Decision.APPROVE_EXCLUDE]
    with open_database(opened.settings.db_url, read_only=True) as session:
        calls = [journal.find(session, "approve", row.key) for row in wanted]
        used = {one.assignment_id for one in judgements.judgements(session, SANDBOX) if one.record.usable}
    assert [call and call.state for call in calls] == [JournalState.DONE] * 3
    assert [opened.row(row.id).decision for row in wanted] == list(wanted.values())
    for row, decision in wanted.items():
        assert (opened.row(row.id).status, state_on_server(opened, row.id)) == ("Approved", "approved")
        assert opened.row(row.id).excluded == (row.worker in excluded)
        assert (row.id in used) == (decision is Decision.APPROVE and row.worker not in excluded)
    assert server_says(opened.settings, "SELECT count(*) FROM qualification") == [(1,)]
    assert "excluded" in written(opened.get(f"/workers/{queued[2].worker_id}"))


def test_what_an_excluded_worker_answered_earlier_is_not_called_used(opened):
    """On no page, in no table of workers, report or data sheet; that it was approved stays known."""
    (passed,) = opened.rows(Decision.PASS)
    waits = next(row for row in opened.rows(Decision.QUEUED) if row.worker_id == passed.worker_id)
    assert "paid and used" in written(opened.get(f"/queue/{passed.id}"))

    opened.post(f"/queue/{waits.id}/decide", {"decision": "approve_exclude"})
    opened.settle()

    for page in (f"/queue/{passed.id}", f"/workers/{passed.worker_id}", f"/queue?after={passed.id}"):
        assert "paid, not used because the worker is excluded" in written(opened.get(page))
    assert "The answers of 1 passed or approved submission are not used" in written(opened.get("/"))
    told = "decision: pass; its answers are not used, because the worker is excluded"
    assert told in show(opened.settings, passed.id).lines
    found = workers(opened.settings)
    (row,) = (row for row in found.counts["rows"] if row["worker"] == passed.worker)
    assert row["approved"] == 1
    assert next(row for row in found.tables[0].rows if row[0] == passed.worker)[1:3] == (2, 0)
    source = collect(opened.settings)
    reported = crowd_stats(source.project, source.people, source.salt)
    assert (reported.approved, reported.dropped) == (0, 2)
    with open_context(opened.settings, read_only=True) as context:
        stated = crowd(context, release_facts(context).submissions, pd.Series([], dtype=str))
    assert stated is not None and (stated.used, stated.paid_unused) == (0, 2)


def test_a_rejection_keeps_its_reason_says_until_when_and_can_be_reversed(opened):
    """Nothing is paid at first; reversed within thirty days, the reward is booked once."""
    first = opened.rows(Decision.QUEUED)[0]
    assert first.submitted_at is not None
    until = first.submitted_at + dt.timedelta(days=30)
    day = f"{until.day} {until:%B %Y}"

    before = written(opened.get(f"/queue/{first.id}"))
    opened.post(f"/queue/{first.id}/decide", {"decision": "reject", "reason": REASON})
    opened.settle()
    rejected = opened.get(f"/queue/{first.id}")

    assert f"until {day}" in before and f"until {day}" in written(rejected)
    assert REASON in html.unescape(rejected.text)
    assert (opened.row(first.id).status, state_on_server(opened, first.id)) == ("Rejected", "rejected")
    with open_database(opened.settings.db_url, read_only=True) as session:
        spent = journal.spent(session, SANDBOX).get("reward", 0)
        call = journal.find(session, REJECT, first.key)
    assert call is not None and call.state is JournalState.DONE

    for _ in range(2):
        opened.post(f"/queue/{first.id}/reverse", {"decision": "drop"})
        opened.settle()

    row = opened.row(first.id)
    assert (row.decision, row.status) == (Decision.DROP, "Approved")
    assert state_on_server(opened, first.id) == "approved"
    with open_database(opened.settings.db_url, read_only=True) as session:
        call = journal.find(session, OVERRIDE, first.key)
        paid = journal.spent(session, SANDBOX)["reward"] - spent
    assert call is not None and call.state is JournalState.DONE
    assert paid > 0


def test_a_rejection_cannot_be_reversed_after_thirty_days(reviewed, tmp_path):
    """The page offers nothing then, and a form that is sent all the same is refused."""
    settings = copy_of(reviewed, tmp_path / "p")
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=31)
    with open_desk(settings) as desk:
        first = desk.rows(Decision.QUEUED)[0]
        desk.post(f"/queue/{first.id}/decide", {"decision": "reject", "reason": REASON})
        desk.settle()
    with open_desk(settings, clock=lambda: later) as desk:
        page = desk.get(f"/queue/{first.id}")
        refused = desk.post(f"/queue/{first.id}/reverse", {"decision": "approve"})
        desk.settle()

        assert "time to reverse it is over" in page.text and "Pay after all" not in page.text
        assert refused.status_code == 409 and "could be reversed until" in refused.text
        assert desk.row(first.id).decision is Decision.REJECT


def test_a_reason_of_many_lines_may_be_as_long_as_its_field_says(opened):
    """A browser counts the end of a line as one character and sends two; the worker reads the reason as written."""
    first = opened.rows(Decision.QUEUED)[0]
    reason = "\n".join(["Each line of 31 characters, so."] * 32)
    assert len(reason) == 1023

    page = opened.post(
        f"/queue/{first.id}/decide", {"decision": "reject", "reason": reason.replace("\n", "\r\n")}
    )
    opened.settle()

    assert page.status_code == 200 and opened.row(first.id).decision is Decision.REJECT
    assert server_says(
        opened.settings,
        "SELECT feedback FROM assignment WHERE mturk_id = :a AND feedback != ''",
        a=opened.row(first.id).mturk_assignment_id,
    ) == [(reason,)]


@pytest.mark.parametrize("fields", [{"decision": "reject", "reason": "too bad "}, {"decision": "reject"}])
def test_a_rejection_needs_a_reason_that_its_worker_can_understand(still, fields):
    """What was written stays in the field, and nothing is decided."""
    first = still.rows(Decision.QUEUED)[0]

    page = still.post(f"/queue/{first.id}/decide", fields)

    assert page.status_code == 422
    assert "20 to 1,024 are right" in written(page)
    assert fields.get("reason", "").strip() in page.text
    assert still.row(first.id).decision is Decision.QUEUED


@pytest.mark.parametrize("decision", ["pass", "queued", "none", "", "APPROVE"])
def test_no_other_decision_is_taken(still, decision):
    """Only the four that the page offers."""
    first = still.rows(Decision.QUEUED)[0]

    page = still.post(f"/queue/{first.id}/decide", {"decision": decision})

    assert page.status_code == 422
    assert still.row(first.id).decision is Decision.QUEUED


def test_who_comes_second_is_told_what_the_first_decided(opened):
    """The command line decided meanwhile: the desk says so, changes nothing, and its open page learns of it."""
    first = opened.rows(Decision.QUEUED)[0]
    assert opened.get(f"/state?item={first.id}").json()["item"] == "waits"
    rule(opened.settings, [Ruling(first.id, Decision.DROP)], SANDBOX)

    learned = opened.get(f"/state?item={first.id}").json()["item"]
    page = opened.post(f"/queue/{first.id}/decide", {"decision": "reject", "reason": REASON})
    opened.settle()

    assert learned == "paid, not used"
    assert page.status_code == 409
    assert "is decided already: it was paid and is not used" in written(page)
    assert opened.row(first.id).decision is Decision.DROP
    assert state_on_server(opened, first.id) == "approved"


def test_what_was_paid_by_itself_is_rejected_no_more(opened):
    """The server approved it before the harvest: the desk says so, and the submission waits on."""
    first = opened.rows(Decision.QUEUED)[0]
    assert 'value="reject"' in opened.get(f"/queue/{first.id}").text
    opened.sql("UPDATE assignment SET status = 'Approved' WHERE id = :id", id=first.id)
    assert 'value="reject"' not in opened.get(f"/queue/{first.id}").text
    paid = "the server paid it by itself, so it can no more be rejected"
    assert show(opened.settings, first.id, SANDBOX).lines[-1] == paid

    page = opened.post(f"/queue/{first.id}/decide", {"decision": "reject", "reason": REASON})

    assert page.status_code == 409
    assert "approved by itself meanwhile, so it is paid; drop its answers instead" in written(page)
    assert opened.row(first.id).decision is Decision.QUEUED


def test_a_form_that_comes_twice_decides_once(opened):
    """The second is told that it is decided; the reward is booked once."""
    first = opened.rows(Decision.QUEUED)[0]

    replies = [opened.post(f"/queue/{first.id}/decide", {"decision": "approve"}) for _ in range(2)]
    opened.settle()

    assert [reply.status_code for reply in replies] == [200, 409]
    with open_database(opened.settings.db_url, read_only=True) as session:
        query = text("SELECT count(*) FROM ledger WHERE assignment_id = :a")
        assert session.execute(query, {"a": first.id}).scalar_one() == 1


def test_a_decision_is_kept_where_no_server_answers_and_sent_when_one_does(reviewed, tmp_path):
    """The page says in one line that the server could not be told; `Try again` tells it later."""
    settings = copy_of(reviewed, tmp_path / "p")
    dead = replace(settings, endpoint="http://127.0.0.1:9", endpoint_environment=SANDBOX)
    with open_desk(dead) as desk:
        first, second, *_ = desk.rows(Decision.QUEUED)
        desk.post(f"/queue/{first.id}/decide", {"decision": "approve"})
        desk.settle()
        page = desk.get(f"/queue/{second.id}")

        assert "1 decision kept here, not yet at the crowd server. Nothing answers at" in written(page)
        assert (desk.row(first.id).decision, desk.row(first.id).status) == (Decision.APPROVE, "Submitted")
    with open_desk(settings) as desk:
        assert "1 decision has not reached the crowd server yet" in written(desk.get("/"))
        desk.post("/send")
        desk.settle()

        assert desk.row(first.id).status == "Approved"
        assert "reached the crowd server" not in written(desk.get("/"))


def test_the_queue_ends_with_word_that_nothing_waits(opened):
    """After the last decision there is no next one."""
    for row in opened.rows(Decision.QUEUED):
        page = opened.post(f"/queue/{row.id}/decide", {"decision": "drop"})
    opened.settle()

    assert "Nothing waits" in page.text and "No submission waits for a person" in page.text
    assert opened.get("/state").json()["queued"] == 0
    assert opened.get("/queue").status_code == 200


HOSTILE = """"><script>alert(1)</script><img src=x onerror=alert(2)>'`{{7*7}}"""


def test_hostile_captions_reasons_and_worker_ids_stay_text(opened):
    """Whatever a caption, a worker's words, a finding or an id holds, it is shown and never run."""
    first = opened.rows(Decision.QUEUED)[0]
    opened.sql("UPDATE part SET text = :t WHERE kind = 'text'", t=HOSTILE)
    opened.sql("UPDATE worker SET mturk_worker_id = mturk_worker_id || :t", t=HOSTILE)
    opened.sql(
        "INSERT INTO finding (assignment_id, code, detail) VALUES (:a, 'unreadable', :t)",
        a=first.id,
        t=HOSTILE,
    )
    [judgement, *_] = [row for row in _judgements(opened) if row.assignment_id == first.id]
    opened.sql(
        "INSERT INTO rationale (judgement_id, kind, value) VALUES (:j, 'text', :t)", j=judgement.id, t=HOSTILE
    )

    for path in (f"/queue/{first.id}", "/workers", f"/workers/{first.worker_id}", "/"):
        page = opened.get(path).text
        assert (
            "<script>alert" not in page
            and "<img src=x" not in page
            and "49" not in page.split("alert(2)")[-1][:9]
        )
    page = opened.get(f"/queue/{first.id}").text
    assert page.count(html.escape(HOSTILE, quote=False).replace('"', "&#34;").replace("'", "&#39;")) >= 20


def test_captions_from_right_to_left_are_shown_so(still):
    """The browser takes each one's direction from its own letters."""
    first = still.rows(Decision.QUEUED)[0]

    assert still.get(f"/queue/{first.id}").text.count('<p class="caption" dir="auto">') >= 20


def _judgements(desk: OpenDesk):
    with open_database(desk.settings.db_url, read_only=True) as session:
        return judgements.judgements(session, SANDBOX)


def test_pictures_come_by_their_number_alone(opened):
    """A row's own file, where it is a picture; never a path from the address, never a file that could run."""
    page = Path(opened.settings.project) / "page.svg"
    page.write_text("<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>")
    opened.sql("UPDATE part SET file = 'page.svg' WHERE kind = 'image' AND item_id = 1")
    opened.sql("UPDATE part SET file = 'gone.png' WHERE kind = 'image' AND item_id = 2")
    opened.sql(
        "UPDATE part SET file = NULL, url = 'https://example.org/3.jpg' WHERE kind = 'image' AND item_id = 3"
    )
    Image.new("CMYK", (1200, 30)).save(page.with_name("scan.tif"))
    opened.sql("UPDATE part SET file = 'scan.tif' WHERE kind = 'image' AND item_id = 5")
    opened.sql("UPDATE part SET file = 'a' || char(0) || '.png' WHERE kind = 'image' AND item_id = 6")
    os.mkfifo(page.with_name("pipe.png"))
    opened.sql("UPDATE part SET file = 'pipe.png' WHERE kind = 'image' AND item_id = 7")

    good, scan = opened.get("/image/4"), opened.get("/image/5")

    assert (good.status_code, good.headers["content-type"]) == (200, "image/png")
    assert Image.open(io.BytesIO(scan.content)).size == (640, 16)  # of no format that browsers show
    assert good.headers["x-content-type-options"] == "nosniff"
    wrong = ("1", "2", "3", "6", "7", "99999", "../mitl.db", "..%2Fmitl.db", "4/../../mitl.toml")
    assert [opened.get(f"/image/{name}").status_code for name in wrong] == [404] * len(wrong)


@pytest.mark.parametrize("number", ["0", "2147483648", "9" * 30])
def test_a_number_beyond_any_row_is_not_found(still, number):
    """Of a submission, a worker or a picture, to be seen or to be decided about."""
    for path in ("/queue", "/workers", "/image"):
        assert still.get(f"{path}/{number}").status_code in (404, 409), path
    assert still.post(f"/queue/{number}/decide", {"decision": "approve"}).status_code in (404, 409)
    assert still.post(f"/queue/{number}/reverse", {"decision": "drop"}).status_code in (404, 409)
    assert still.post(f"/workers/{number}/message", {"subject": "s", "text": "t"}).status_code in (404, 409)
    assert still.get(f"/state?item={number}").status_code == 200
    assert still.get(f"/queue?after={number}").status_code == 200


def test_a_database_that_is_out_of_order_is_told_with_what_to_do(opened):
    """On every page and form, as an outage (503); once it is back, so is the desk."""
    first = opened.rows(Decision.QUEUED)[0].id
    file = opened.settings.project / "mitl.db"
    whole = file.read_bytes()
    file.write_bytes(b"no database any more" * 100)

    replies = [opened.get(path) for path in ("/", "/workers", f"/queue/{first}")]
    replies.append(opened.post(f"/queue/{first}/decide", {"decision": "approve"}))
    file.write_bytes(whole)

    assert [reply.status_code for reply in replies] == [503] * 4
    for reply in replies:
        assert "mitl db restore" in reply.text and "load this page again" in reply.text
        assert "the command again" not in reply.text
    assert opened.get(f"/queue/{first}").status_code == 200


def test_a_picture_without_a_file_is_linked_by_https_alone(opened):
    """An https address is shown by the browser; any other address is not."""
    first = opened.rows(Decision.QUEUED)[0]
    for url, shown in (
        ("https://example.org/a.jpg", True),
        ("http://example.org/a.jpg", False),
        ("javascript:x", False),
    ):
        opened.sql("UPDATE part SET file = NULL, url = :u WHERE kind = 'image'", u=url)
        assert (f'src="{url}"' in opened.get(f"/queue/{first.id}").text) == shown


def test_the_overview_counts_what_the_status_counts(still):
    """Controls, queue and money are those of `mitl status`."""
    from mitl.stages.reporting.status import status

    counts = status(still.settings, SANDBOX).counts
    said = written(still.get("/"))

    assert f"{counts['golds_passed']} of {counts['golds_answered']}" in said
    assert f"{counts['queued']} submissions" in said or f"{counts['queued']} submission " in said
    assert f"${counts['paid_cents'] / 100:.2f} is paid" in said
    assert f"${counts['held_cents'] / 100:.2f} is promised" in said


def test_many_workers_stand_on_several_pages_in_one_order(still, monkeypatch):
    """Two on a page: together the pages hold everyone once, sorted as one page would be; what was chosen is kept."""
    wanted = "/workers?sort=worker&turn=1"

    def ids(page):
        return re.findall(r'id="worker-(\d+)"', page.text)

    everyone = ids(still.get(wanted))
    monkeypatch.setattr(worker_pages, "A_PAGE", 2)
    pages, address = [], wanted
    while address:
        page = still.get(address)
        pages.append(ids(page))
        found = re.search(r'<a rel="next" href="([^"]+)"', page.text)
        address = found and html.unescape(found[1])

    assert len(everyone) > 2 and [one for page in pages for one in page] == everyone
    assert {len(page) for page in pages[:-1]} == {2}
    assert f"1 to 2 of {len(everyone)} workers" in written(still.get(wanted))
    for number, shown in (("999", -1), ("9" * 9, -1), ("9" * 10, 0), ("9" * 18, 0), ("-1", 0), ("x", 0)):
        assert ids(still.get(f"{wanted}&page={number}")) == pages[shown]


def test_a_long_history_of_a_worker_stands_on_several_pages(still, monkeypatch):
    """One submission on a page: together the pages hold each once, newest first, and the way back stays."""
    worker = next(
        row.worker_id for row in still.rows() if sum(r.worker_id == row.worker_id for r in still.rows()) > 1
    )
    address, shown = f"/workers/{worker}?back=1", []
    everything = re.findall(r'id="submission-(\d+)"', still.get(address).text)
    monkeypatch.setattr(worker_pages, "A_PAGE", 1)
    while address:
        page = still.get(address).text
        shown.append(re.findall(r'id="submission-(\d+)"', page))
        assert 'href="/queue/1"' in page
        found = re.search(r'<a rel="next" href="([^"]+)"', page)
        address = found and html.unescape(found[1])

    assert len(everything) > 1 and shown == [[one] for one in everything]


@given(page=st.integers(-3, 10**17), rows=st.integers(0, 150), a_page=st.integers(1, 60))
def test_every_row_of_a_long_list_stands_on_one_page(page, rows, a_page):
    """Pages follow on each other, only the last one is short, and a page beyond it is the last one."""
    turns = [
        ListPage.to(number, rows, a_page=a_page)
        for number in range(1, ListPage.to(1, rows, a_page=a_page).last + 1)
    ]

    assert [row for turn in turns for row in range(rows)[turn.part]] == list(range(rows))
    assert {turn.end - turn.first + 1 for turn in turns[:-1]} <= {a_page}
    assert ListPage.to(page, rows, a_page=a_page) == turns[min(max(page, 1), len(turns)) - 1]


def test_the_state_changes_when_a_page_would(opened):
    """A decision moves the mark that open pages compare; looking does not."""
    first = opened.rows(Decision.QUEUED)[0]
    marks = [opened.get("/state").json()["mark"] for _ in range(2)]
    opened.post(f"/queue/{first.id}/decide", {"decision": "drop"})
    opened.settle()

    assert marks[0] == marks[1] != opened.get("/state").json()["mark"]


@pytest.mark.postgres
def test_the_desk_works_on_postgresql(tmp_path, postgres_project_url):
    """Pages, a decision and its reversal."""
    settings = make_reviewed_project(
        tmp_path / "p", db_url=postgres_project_url, image_queries=2, caption_queries=2
    )
    with open_desk(settings) as desk:
        first = desk.rows(Decision.QUEUED)[0]
        pages = ["/", "/workers", f"/workers/{first.worker_id}", "/queue", f"/state?item={first.id}"]
        assert [desk.get(path).status_code for path in pages] == [200] * len(pages)
        desk.post(f"/queue/{first.id}/decide", {"decision": "reject", "reason": REASON})
        desk.settle()
        desk.post(f"/queue/{first.id}/reverse", {"decision": "approve"})
        desk.settle()

        assert (desk.row(first.id).decision, desk.row(first.id).status) == (Decision.APPROVE, "Approved")


def test_a_message_reaches_a_worker_whose_work_was_decided_once(opened):
    """It is journalled, shown on the worker's page here, and kept on the server; the same form sends nothing twice."""
    first = opened.rows(Decision.QUEUED)[0]
    opened.post(f"/queue/{first.id}/decide", {"decision": "approve"})
    opened.settle()
    fields = {"subject": "Thank you", "text": f"Please look\ntwice. {HOSTILE}", "message_token": "abc"}

    page = opened.post(f"/workers/{first.worker_id}/message", fields)
    again = opened.post(f"/workers/{first.worker_id}/message", fields)

    assert page.status_code == 200 and "Thank you" in page.text and "<script>alert" not in page.text
    assert again.status_code == 422 and "was sent before" in again.text
    with open_database(opened.settings.db_url, read_only=True) as session:
        call = journal.find(session, "message", f"{first.worker}:abc")
    assert call is not None and call.state is JournalState.DONE
    assert server_says(opened.settings, "SELECT subject FROM message WHERE subject = 'Thank you'") == [
        ("Thank you",)
    ]


def test_a_message_that_the_server_refuses_is_kept_in_the_form_with_one_line(opened):
    """It takes messages only for people whose work was decided; what was written stays."""
    undecided = opened.rows(Decision.QUEUED)[0]
    opened.sql("UPDATE worker SET mturk_worker_id = 'AUNKNOWNWORKER' WHERE id = :w", w=undecided.worker_id)

    page = opened.post(
        f"/workers/{undecided.worker_id}/message",
        {"subject": "Hello", "text": "A <b>word</b>.", "message_token": "x"},
    )

    assert page.status_code == 422
    assert "A &lt;b&gt;word&lt;/b&gt;." in page.text
    assert page.text.count('role="alert"') == 2  # the line, and the one that tells of a lost desk
    with open_database(opened.settings.db_url, read_only=True) as session:
        call = journal.find(session, "message", "AUNKNOWNWORKER:x")
    assert call is not None and call.state is JournalState.FAILED and call.error


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"subject": " ", "text": "x"}, "subject is empty"),
        ({"subject": "x", "text": ""}, "message is empty"),
        ({"subject": "x" * 201, "text": "x"}, "200 are the most"),
        ({"subject": "x", "text": "y" * 4097}, "4,096 are the most"),
    ],
)
def test_a_message_within_the_apis_limits_alone_is_sent(still, fields, said):
    """Empty and overlong ones are refused before any call."""
    worker = still.rows(Decision.QUEUED)[0].worker_id

    page = still.post(f"/workers/{worker}/message", fields)

    assert page.status_code == 422 and said in written(page)
    with open_database(still.settings.db_url, read_only=True) as session:
        assert session.execute(text("SELECT count(*) FROM journal WHERE kind = 'message'")).scalar_one() == 0
