"""All that is held about one person, by the requester's command and from the person's own page."""

from __future__ import annotations

import io
import json
import re
import stat
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from cli_kit import fails, ok
from crowd_kit import Worker, running_crowd
from harvest_kit import submissions
from old_dumps import REVISIONS, build
from sqlalchemy import text
from sqlalchemy.orm import Session
from test_crowd_panels import PID, add, arrive
from world_kit import SANDBOX, make_world, run_propose, run_publish

from mitl.crowd_server import admin
from mitl.crowd_server.store import persons as on_crowd
from mitl.crowd_server.store.models import CrowdBase
from mitl.crowd_server.work import listing
from mitl.db.engine import make_engine
from mitl.db.migrate import changing
from mitl.db.models import Base
from mitl.db.store import persons as in_project
from mitl.records import Environment
from mitl.stages.harvesting.harvest import harvest

pytest_plugins = ("crowd_fixtures",)

HOSTILE = '</script><script>alert(1)</script>"\u2028é'


def read(archive: Path | bytes) -> dict[str, object]:
    """The archive's files by name, JSON as its values."""
    with zipfile.ZipFile(io.BytesIO(archive) if isinstance(archive, bytes) else archive) as packed:
        files = {name: packed.read(name).decode() for name in packed.namelist()}
    return {name: json.loads(held) if name.endswith(".json") else held for name, held in files.items()}


def command(crowd, name, out, *more):
    """`mitl crowd person` over a server without a project."""
    project = Path(out).parent
    return (
        "crowd",
        "person",
        name,
        "--out",
        out,
        "--project",
        project,
        "--crowd-db",
        crowd.engine.url.render_as_string(),
        *more,
    )


def test_a_worker_of_two_projects_gets_what_both_databases_hold(tmp_path):
    """One archive from each project: the server's part of both, and the answers as this project reads them."""
    one = make_world(tmp_path / "one", n_images=12)
    other = replace(
        make_world(tmp_path / "other", n_images=12), crowd_db_url=one.crowd_db_url, project_id="other"
    )
    for settings in (one, other):
        run_propose(settings, image_queries=4, caption_queries=4)
        run_publish(settings)
    engine = make_engine(one.crowd_db_url)
    with running_crowd(engine) as crowd:
        own, stranger = crowd.worker(), crowd.worker()
        types = set(re.findall(r'name="hit_type_id" value="([^"]+)"', own.get("/w").text))
        assert len(types) == 2
        for hit_type in types:
            own.do(hit_type, p01_label="weak_yes", p01_outcome="answered", p01_ms="1200", p01_text=HOSTILE)
        stranger.do(hit_type, p01_label="no", p01_outcome="answered", p01_text="what a stranger wrote")
        worker, other_worker = own.id, stranger.id
    engine.dispose()
    for settings in (one, other):
        harvest(settings, SANDBOX)
    [row] = [row for row in submissions(one) if row.worker == worker]
    out = tmp_path / "person.zip"

    found = ok("crowd", "person", worker, "--out", out, "--project", one.project, "--json").json

    held = read(out)
    assert len(held["server/assignments.json"]) == 2
    assert [sent["mturk_assignment_id"] for sent in held["project/submissions.json"]] == [
        row.mturk_assignment_id
    ]
    answer = held["project/pair_answers.json"][0]
    assert (answer["label"], answer["active_ms"]) == ("weak_yes", 1200)
    assert answer["about"][0][0]["file"].endswith(".png") and answer["about"][1][0]["text"]
    assert "alert(1)" in held["project/submissions.json"][0]["raw_xml"]
    assert held["project/scores.json"][0]["submitted"] == 1
    assert found["counts"]["elsewhere"] == 1 and "run this there as well" in found["warnings"][0]
    assert found["counts"]["files"] == {
        name: len(rows) for name, rows in held.items() if name.endswith(".json")
    }
    whole = json.dumps(held)
    assert other_worker not in whole and "what a stranger wrote" not in whole
    assert "gold" not in json.dumps(held["project/pair_answers.json"])
    assert {finding["detail"] for finding in held["project/findings.json"] if "gold" in finding["code"]} == {
        None
    }
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_what_requesters_and_panels_say_of_a_person_is_theirs_to_have(crowd, hit_type, tmp_path):
    """Consent, visits, messages, bonuses, blocks with their reasons; nothing that opens a door."""
    admin.change_study(crowd.engine, SANDBOX, {"consent": "I take part."}, clock=crowd.clock)
    add(crowd)
    worker, _ = arrive(crowd)
    worker.task(worker.post("/w/study", {"version": "1", "answer": "yes"})).submit(p01_text=HOSTILE)
    requester = crowd.boto()
    hits = [hit["HITId"] for hit in requester.list_hits()["HITs"]]
    [sent] = [sent for hit in hits for sent in requester.list_assignments_for_hit(HITId=hit)["Assignments"]]
    requester.approve_assignment(AssignmentId=sent["AssignmentId"], RequesterFeedback=HOSTILE)
    requester.send_bonus(
        WorkerId=worker.id, AssignmentId=sent["AssignmentId"], BonusAmount="0.50", Reason="thanks"
    )
    requester.notify_workers(Subject="Hello", MessageText=HOSTILE, WorkerIds=[worker.id])
    requester.create_worker_block(WorkerId=worker.id, Reason="too fast")
    out = tmp_path / "person.zip"

    said = ok(*command(crowd, PID, out))

    held = read(out)
    assert held["server/panel_ids.json"] == [{"panel": "prolific", "external_id": PID}]
    assert [(visit["session"], visit["state"]) for visit in held["server/visits.json"]] == [
        ("s1", "completed")
    ]
    assert held["server/consents.json"][0]["given"] is True
    assert HOSTILE in [message["text"] for message in held["server/messages.json"]]
    assert [(bonus["cents"], bonus["reason"]) for bonus in held["server/bonuses.json"]] == [(50, "thanks")]
    assert sorted(entry["cents"] for entry in held["server/ledger.json"]) == [50, 100]
    assert held["server/blocks.json"][0]["reason"] == "too fast"
    assert held["server/assignments.json"][0]["feedback"] == HOSTILE
    assert "what the crowd server holds alone" in said.err
    with crowd.engine.connect() as connection:
        secrets = [
            *connection.scalars(text("select value from setting")),
            *connection.scalars(text("select secret_key from account")),
            *connection.scalars(text("select token_sha256 from invitation")),
        ]
    assert not [secret for secret in secrets if secret in json.dumps(held)]


def test_who_was_forgotten_is_found_by_the_worker_id_alone(crowd, hit_type, tmp_path):
    """What the panel calls them is gone from the archive, and their old id leads to nobody."""
    add(crowd)
    worker, page = arrive(crowd)
    worker.task(page).submit(p01_label="yes")
    own, out = worker.id, tmp_path / "person.zip"
    ok(
        "crowd",
        "panel",
        "forget",
        "--worker",
        PID,
        "--paid",
        "--crowd-db",
        crowd.engine.url.render_as_string(),
        "--project",
        tmp_path,
    )

    refused = fails(1, *command(crowd, PID, out))
    ok(*command(crowd, own, out))

    assert "`mitl crowd panel forget` deleted leads to nobody" in refused
    held = read(out)
    assert held["server/panel_ids.json"] == []
    assert [(visit["session"], visit["study"]) for visit in held["server/visits.json"]] == [(None, None)]
    assert len(held["server/assignments.json"]) == 1
    assert PID not in json.dumps(held)


def test_a_file_that_is_there_is_left_alone_unless_told(crowd, tmp_path):
    worker, out = crowd.worker(), tmp_path / "person.zip"
    out.write_text("mine")

    refused = fails(2, *command(crowd, worker.id, out))

    assert "is there already" in refused and out.read_text() == "mine"
    ok(*command(crowd, worker.id, out, "--replace"))
    assert read(out)["server/worker.json"][0]["worker"] == worker.id
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_an_id_that_two_panels_use_for_different_people_is_refused(crowd, tmp_path):
    """Whose data it is must be sure, and who is to be forgotten; the worker id says."""
    own = {}
    for slug in ("one", "two"):
        add(crowd, profile="generic", slug=slug, worker="token")
        browser = Worker(crowd, crowd.browser())
        browser.get(f"/p/{slug}?token=7")
        own[slug] = browser.id

    refused = fails(1, *command(crowd, "7", tmp_path / "person.zip"))

    assert all(f"{worker} (generic/{slug}, sandbox)" in refused for slug, worker in own.items())
    ok(*command(crowd, own["two"], tmp_path / "two.zip"))
    assert own["one"] not in json.dumps(read(tmp_path / "two.zip"))
    forget = ("crowd", "panel", "forget", "--project", tmp_path, "--crowd-db", crowd.engine.url, "--worker")
    assert "more than one panel calls somebody '7'" in fails(1, *forget, "7")
    assert ok(*forget, own["two"], "--json").json["counts"] == {"forgotten": 1}
    ok(*command(crowd, "7", tmp_path / "one.zip"))
    assert own["one"] in json.dumps(read(tmp_path / "one.zip"))


def test_nobody_takes_a_workers_id_as_their_own(crowd, tmp_path):
    """A study link can carry any id, that of another worker too."""
    victim = crowd.worker()
    add(crowd, profile="generic", slug="one", worker="token")
    thief = Worker(crowd, crowd.browser())
    thief.get(f"/p/one?token={victim.id}")

    ok(*command(crowd, victim.id, tmp_path / "person.zip"))

    assert admin.forget(crowd.engine, Environment, victim.id) == 0
    assert thief.id not in json.dumps(read(tmp_path / "person.zip"))


def test_workers_get_their_own_data_from_their_page(crowd, hit_type):
    """The same files, also for who declined; nothing without a session."""
    worker, stranger = crowd.worker(), crowd.worker()
    own = worker.id
    worker.do(hit_type, p01_text=HOSTILE)
    stranger.do(hit_type, p01_text="what a stranger wrote")
    admin.change_study(crowd.engine, SANDBOX, {"consent": "I take part."}, clock=crowd.clock)
    worker.post("/w/study", {"version": "1", "answer": "no"})

    assert 'href="/w/data"' in worker.get("/w/work").text
    reply = worker.get("/w/data")

    assert reply.headers["content-disposition"] == f'attachment; filename="data-of-{own}.zip"'
    assert reply.headers["cache-control"] == "no-store"
    held = read(reply.content)
    assert held["server/worker.json"][0]["worker"] == own
    assert "alert(1)" in held["server/assignments.json"][0]["answer"]
    assert "a stranger wrote" not in json.dumps(held) and "project" not in "".join(held)
    assert "ask the requester, who has a command for it" in held["README.html"]
    assert Worker(crowd, crowd.browser()).get("/w/data").status_code == 403


def test_whoever_asks_for_their_data_again_and_again_keeps_nobody_from_their_pages(crowd, monkeypatch):
    """While one archive is packed, others are told to come again, and hold nothing meanwhile."""
    begun, may_end = threading.Event(), threading.Event()

    def pack(*args):
        begun.set()
        assert may_end.wait(60)

    monkeypatch.setattr(listing, "pack", pack)
    eager, other = crowd.worker(), crowd.worker()
    with ThreadPoolExecutor(41) as threads:
        first = threads.submit(eager.get, "/w/data")
        assert begun.wait(20)
        more = [threads.submit(eager.get, "/w/data") for _ in range(40)]
        assert {reply.result().status_code for reply in more} == {503}
        assert other.get("/w").status_code == 200 and not first.done()
        may_end.set()


def test_one_archive_of_a_worker_lies_on_the_disk_at_a_time(crowd, monkeypatch):
    """Whoever asks and does not take it gets no other; whoever went away does, and so do others meanwhile."""
    monkeypatch.setattr(listing, "pack", lambda sink, *about: sink.write(bytes(30_000_000)))
    worker, other = crowd.worker(), crowd.worker()

    with worker.browser.stream("GET", crowd.url + "/w/data") as reply:
        assert reply.status_code == 200
        assert worker.get("/w/data").status_code == 503
        assert len(other.get("/w/data").content) == 30_000_000
    statuses = []
    while 200 not in statuses and len(statuses) < 400:
        statuses.append(worker.get("/w/data").status_code)

    assert statuses[-1] == 200


def test_the_page_says_what_each_file_is_and_runs_nothing(crowd, client, tmp_path):
    """Every file is named with its entries; ids of strangers' making are text."""
    own = crowd.worker()
    name = own.id
    on = make_engine(crowd.engine.url.render_as_string())
    with on.begin() as connection:
        connection.execute(text("update worker set mturk_id = :id"), {"id": HOSTILE})
    on.dispose()

    ok(*command(crowd, HOSTILE, tmp_path / "person.zip"))

    held = read(tmp_path / "person.zip")
    page = held.pop("README.html")
    assert all(file in page for file in held)
    assert "<script" not in page and "&lt;script&gt;alert(1)" in page
    assert "controls with a known answer" in page and name not in page


def test_every_table_of_a_persons_is_handed_out():
    """A new table that belongs to a worker or to their work is read for them, or named here with the reason."""
    copies = {"answer_sheet", "control_sheet", "worker_tally"}  # of what is handed out, to be read fast
    for base, module in ((Base, in_project), (CrowdBase, on_crowd)):
        of_persons = {
            table.name
            for table in base.metadata.tables.values()
            if {key.column.table.name for key in table.foreign_keys} & {"worker", "assignment"}
        }
        read_there = {held.__tablename__ for held in vars(module).values() if hasattr(held, "__table__")}
        assert of_persons - read_there - copies == set()


def test_answers_of_every_kind_are_handed_out(tmp_path):
    """Pairs, rankings, ratings and texts, of a database that holds some of each."""
    engine = make_engine(f"sqlite:///{tmp_path}/old.db")
    with changing(engine) as connection:
        build("pipeline", connection, [revision for line, revision in REVISIONS if line == "pipeline"][-1])
    with Session(engine) as session:
        parts = {
            (environment, worker, part.name): list(part.rows)
            for environment, worker in session.execute(
                text("select environment, mturk_worker_id from worker")
            )
            for part in in_project.held(session, Environment(environment), worker)
        }
    engine.dispose()

    filled = {name for (_, _, name), rows in parts.items() if rows}
    assert {name for _, _, name in parts} - filled <= {"reviews_of_your_texts", "decisions"}
    assert any(answer["further_answers"] for answer in parts["sandbox", "AWORKER1", "pair_answers"])
    of_one = {part: rows for part, rows in parts.items() if part[1] == "AWORKER1"}
    assert "AWORKER2" not in json.dumps([*of_one.values()], default=str)
