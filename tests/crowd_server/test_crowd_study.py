"""Study information and consent before the first HIT, for invited workers."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from cli_kit import ok
from crowd_kit import TYPE, post_hit
from sqlalchemy import text

from mitl.crowd_server import admin
from mitl.crowd_server import admin as panel_admin
from mitl.crowd_server.work.visitor import contact_href
from mitl.records import Environment
from mitl.stages import serve

pytest_plugins = ("crowd_fixtures", "browser_fixtures")

SANDBOX, LIVE = Environment.SANDBOX, Environment.LIVE
TEXTS = {
    "title": "Do captions fit their images?",
    "information": "We ask whether\ncaptions fit.\n\nAnswers are kept for five years.",
    "contact": "study@lab.example",
    "warning": "A few images may be upsetting.",
    "consent": "I am 18 or older and take part of my own will.",
}


def tell(crowd, environment=SANDBOX, **changes):
    """Describe the study."""
    return panel_admin.change_study(crowd.engine, environment, changes, clock=crowd.clock)[0]


def answers(crowd):
    """All recorded answers: version and whether it was a yes."""
    with crowd.engine.connect() as connection:
        rows = connection.execute(text("select version, given from consent order by id"))
        return [(version, bool(given)) for version, given in rows]


def test_nothing_is_asked_where_no_study_is_described(crowd, hit_type):
    """Nor where only a contact or a title is set; the contact stands at the foot of the pages."""
    worker = crowd.worker()
    assert "Accept one" in worker.get("/w").text

    tell(crowd, contact="Room <2.17>", title="A study")

    page = worker.get("/w").text
    assert "Accept one" in page
    assert "Ask Room &lt;2.17&gt;." in page
    assert worker.accept(hit_type) is not None


def test_the_first_hit_comes_after_consent(crowd, hit_type):
    """List, preview and accept all show the study; yes opens them, and is recorded with its time."""
    tell(crowd, **TEXTS)
    worker = crowd.worker()
    preview = "/w/preview/" + crowd.boto().list_hits()["HITs"][0]["HITId"]

    pages = [worker.get("/w"), worker.get(preview), worker.post("/w/accept", {"hit_type_id": hit_type})]

    for page in pages:
        assert TEXTS["consent"] in page.text and TEXTS["warning"] in page.text
        assert '<p class="text">We ask whether\ncaptions fit.</p>' in page.text
        assert 'href="mailto:study@lab.example"' in page.text
        assert "Accept one" not in page.text
    assert worker.accept(hit_type) is None
    assert "Accept one" in worker.post("/w/study", {"version": "1", "answer": "yes"}).text
    assert worker.accept(hit_type) is not None
    assert answers(crowd) == [(1, True)]


def test_who_declines_is_let_go_kindly_and_may_change_their_mind(crowd, hit_type):
    """The refusal is recorded, no HIT is given, and the information stays at hand."""
    tell(crowd, **TEXTS)
    worker = crowd.worker()

    page = worker.post("/w/study", {"version": "1", "answer": "no"})

    assert "You do not take part" in page.text and "changed my mind" in page.text
    assert worker.accept(hit_type) is None
    assert answers(crowd) == [(1, False)]
    assert TEXTS["consent"] in worker.get("/w/study").text
    worker.post("/w/study", {"version": "1", "answer": "yes"})
    assert answers(crowd) == [(1, True)]
    assert worker.accept(hit_type) is not None


def test_a_changed_text_asks_again_and_loses_nothing(crowd, hit_type):
    """Also in the middle of a HIT, which is still there afterwards; a new contact alone asks nobody."""
    tell(crowd, **TEXTS)
    worker = crowd.worker()
    worker.post("/w/study", {"version": "1", "answer": "yes"})
    task = worker.accept(hit_type)

    assert tell(crowd, contact="new@lab.example").version == 1
    assert worker.task(worker.get(f"/w/a/{task.token}")) is not None
    assert tell(crowd, information="Another text.").version == 2
    asked = worker.get(f"/w/a/{task.token}")

    assert worker.task(asked) is None and "Another text." in asked.text
    worker.post("/w/study", {"version": "2", "answer": "yes"})
    assert worker.task(worker.get(f"/w/a/{task.token}")).token == task.token
    assert task.submit(p01_label="yes").status_code == 200
    assert answers(crowd) == [(1, True), (2, True)]


def test_who_declines_with_a_hit_open_gives_it_back_at_once(crowd):
    """Others get it before its time is over, and so does who changes their mind."""
    tell(crowd, **TEXTS)
    client = crowd.boto()
    post_hit(client, hit_type := client.create_hit_type(**TYPE)["HITTypeId"])
    first, second = crowd.worker(), crowd.worker()
    for worker in (first, second):
        worker.post("/w/study", {"version": "1", "answer": "yes"})
    held = first.accept(hit_type)
    assert second.accept(hit_type) is None

    first.post("/w/study", {"version": "1", "answer": "no"})
    taken = second.accept(hit_type)

    assert taken is not None and held.submit(p01_label="yes").status_code == 410
    second.post("/w/study", {"version": "1", "answer": "no"})
    second.post("/w/study", {"version": "1", "answer": "yes"})
    assert second.accept(hit_type).submit(p01_label="yes").status_code == 200


def test_nobody_agrees_to_a_text_that_they_did_not_see(crowd):
    """A form of an older version, without one, or with an odd answer counts for nothing."""
    tell(crowd, **TEXTS)
    worker = crowd.worker()
    tell(crowd, consent="Something else.")

    for fields in ({"version": "1", "answer": "yes"}, {"answer": "yes"}, {"version": "2", "answer": "maybe"}):
        assert "Something else." in worker.post("/w/study", fields).text
    assert answers(crowd) == []
    foreign = worker.post("/w/study", {"version": "2", "answer": "yes"}, Origin="https://evil.example")
    assert foreign.status_code == 403
    assert answers(crowd) == []


def test_information_without_consent_is_read_once(crowd, hit_type):
    """One button goes on; there is nothing to refuse."""
    tell(crowd, information="What this is about.")
    worker = crowd.worker()
    page = worker.get("/w").text

    assert "Go on" in page and "do not take part" not in page
    worker.post("/w/study", {"version": "1", "answer": "yes"})
    assert worker.accept(hit_type) is not None


def test_each_environment_has_its_own_study(crowd):
    """The sandbox's text is not shown on live."""
    tell(crowd, **TEXTS)

    assert TEXTS["title"] not in crowd.worker(LIVE).get("/w").text
    assert TEXTS["title"] in crowd.worker().get("/w").text


def test_hostile_texts_stay_texts(crowd):
    """Whatever the operator pastes is shown as typed."""
    evil = "<script>alert(1)</script>\"'"
    tell(crowd, **dict.fromkeys(TEXTS, evil))

    page = crowd.worker().get("/w").text

    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert") >= 5


@pytest.mark.parametrize(
    ("contact", "href"),
    [
        ("a.b+c@lab.example", "mailto:a.b+c@lab.example"),
        ("https://lab.example/help", "https://lab.example/help"),
        ("http://lab.example", ""),
        ("javascript:alert(1)", ""),
        ("a@b.example?bcc=c@d.example", ""),
        ("Room 2.17", ""),
    ],
)
def test_a_contact_is_a_link_where_it_is_an_address(contact, href):
    """Mail and https only."""
    assert contact_href(contact) == href


def test_the_study_from_the_command_line(crowd, tmp_path, monkeypatch):
    """Set by parts, shown without options, and the same again is nothing to do."""
    options = ("--sandbox", "--crowd-db", str(crowd.engine.url), "--project", str(tmp_path), "--json")
    path = tmp_path / "text.txt"
    path.write_text("One.\r\n\r\nTwo.", encoding="utf-8")
    words = ("crowd", "study", "--information", path, "--consent", "I agree.", *options)

    assert ok("crowd", "study", *options).json["counts"]["version"] == 0
    assert ok(*words).json["counts"]["version"] == 1
    assert ok(*words).json["status"] == "nothing_to_do"
    assert ok("crowd", "study", "--warning", "Blood.", *options[:-1]).out.endswith(": mitl serve\n")
    monkeypatch.setattr(serve, "SERVER_PORT", urlsplit(crowd.url).port)
    told = ok("crowd", "study", "--contact", "x@y.example", *options[:-1]).out
    assert "mitl serve" not in told, "the server that runs shows it at once"
    shown = ok("crowd", "study", *options[:-1]).out

    assert re.search(r"version 2 .*asked to agree", shown)
    for part in ("One.", "Two.", "Blood.", "I agree.", "x@y.example"):
        assert part in shown


def test_scripted_workers_read_and_agree(crowd, hit_type):
    """A practice run goes on where a study is described."""
    import httpx

    from mitl.crowd.worker_session import WorkerSession

    tell(crowd, **TEXTS)
    [invitation] = admin.invite(crowd.engine, SANDBOX, clock=crowd.clock)

    with httpx.HTTPTransport() as transport:
        session = WorkerSession.join(crowd.url + invitation.path, transport)
        assert session.next_task() is not None
    assert answers(crowd) == [(1, True)]


def test_who_stops_with_a_hit_open_is_told_what_becomes_of_it(crowd, hit_type):
    """Before they say so; what they entered is neither sent nor kept."""
    tell(crowd, **TEXTS)
    worker = crowd.worker()
    worker.post("/w/study", {"version": "1", "answer": "yes"})
    assert "You have a HIT open" not in worker.get("/w/study").text

    worker.accept(hit_type)

    assert "what you entered and did not send is deleted" in worker.get("/w/study").text


def test_nothing_is_kept_of_a_hit_that_was_open_when_its_worker_stopped(crowd, hit_type):
    """Though another window sends it; what was sent before stays, and the pages say so until they agree again."""
    tell(crowd, **TEXTS)
    worker = crowd.worker()
    worker.post("/w/study", {"version": "1", "answer": "yes"})
    worker.accept(hit_type).submit(p01_text="sent before")
    task = worker.accept(hit_type)
    own = task.query["workerId"]

    worker.post("/w/study", {"version": "1", "answer": "no"})
    refused = task.submit(p01_text="sent after")

    assert refused.status_code == 410 and "these answers were not kept" in refused.text
    for address in ("/w", "/w/study", f"/w/a/{task.token}"):
        page = worker.get(address).text
        assert "not sent is deleted from this browser" in page and f'data-withdrawn="{own}"' in page
    connection = crowd.engine.raw_connection()
    kept = "\n".join(connection.driver_connection.iterdump())
    connection.close()
    assert "sent before" in kept and "sent after" not in kept

    again = worker.post("/w/study", {"version": "1", "answer": "yes"})
    assert "data-withdrawn" not in again.text
    assert worker.accept(hit_type).submit(p01_text="sent at last").status_code == 200


def test_who_agrees_after_a_clock_was_set_back_takes_part_again(crowd, hit_type):
    """What they said of the newest text counts, though the clock dates it before what they said of the last."""
    tell(crowd, **TEXTS)
    worker = crowd.worker()
    worker.post("/w/study", {"version": "1", "answer": "no"})
    crowd.clock.advance(days=-1)
    tell(crowd, information="Other words.")
    worker.post("/w/study", {"version": "2", "answer": "yes"})
    task = worker.accept(hit_type)
    crowd.clock.advance(hours=2)

    late = task.submit(p01_text="sent late")

    assert late.status_code == 410 and "has arrived and is kept" in late.text


@pytest.mark.browser
def test_texts_run_the_way_that_their_script_runs(crowd, hit_type, new_page):
    """A sentence in Arabic ends at its left, with its full stop, whatever the language of the page."""
    arabic = "نحن نسأل هل يناسب الوصف الصورة."
    tell(crowd, title=arabic, information=f"{arabic}\n\nIn English.", warning=arabic, consent=arabic)
    [invitation] = admin.invite(crowd.engine, SANDBOX, clock=crowd.clock)
    page = new_page()
    page.goto(crowd.url + invitation.path)

    ends = page.evaluate(
        """text => {
            const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
            const at = (node, place) => {
                const range = document.createRange();
                range.setStart(node, place); range.setEnd(node, place + 1);
                return range.getBoundingClientRect().left;
            };
            while (walker.nextNode()) {
                const node = walker.currentNode, start = node.data.indexOf(text);
                if (start >= 0) found.push(at(node, start) > at(node, start + text.length - 1));
            }
            return found;
        }""",
        arabic,
    )

    assert ends == [True] * 4
