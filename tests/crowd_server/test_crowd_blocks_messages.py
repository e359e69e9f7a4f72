"""Worker blocks, NotifyWorkers, and the page where workers read what was said to them."""

from __future__ import annotations

import datetime as dt

import pytest
from crowd_kit import TYPE, post_hit, refusal

from mitl.crowd_server.admin import change_study
from mitl.crowd_server.api import notifications as letters
from mitl.crowd_server.store import workers
from mitl.crowd_server.store import workers as blocks
from mitl.crowd_server.store.database import Books, Database
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)

SANDBOX = Environment.SANDBOX
STRANGER = "A000000000000X"


def decided(client, worker):
    """Let a worker do a HIT, and approve it."""
    hit = post_hit(client)
    worker.do(hit["HITTypeId"])
    [own] = client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    client.approve_assignment(AssignmentId=own["AssignmentId"])


def row_id(crowd, worker):
    """The key of a worker's row."""
    with Database(crowd.engine).read() as connection:
        return workers.known_worker(Books(connection, SANDBOX, crowd.clock()), worker.id).id


@pytest.mark.parametrize("number", [0, 2**31 - 1, 2**31, 10**16, 10**30])
def test_a_number_that_no_row_has_in_an_address_is_no_fault(either_crowd, number):
    """Neither database is asked to compare what it cannot hold."""
    worker = either_crowd.worker()

    assert worker.get(f"/w/messages?before={number}").status_code == 200
    assert worker.get(f"/w/work?page={number}").status_code == 200


def test_a_block_is_listed_told_and_lifted(either_crowd):
    """The worker hears that it is so, not the requester's note; a second block changes the note alone."""
    client, worker = either_crowd.boto(), either_crowd.worker()

    client.create_worker_block(WorkerId=worker.id, Reason="always the same answer")
    client.create_worker_block(WorkerId=worker.id, Reason="straight lines")

    listed = client.list_worker_blocks()
    assert listed["NumResults"] == 1
    assert listed["WorkerBlocks"] == [{"WorkerId": worker.id, "Reason": "straight lines"}]
    page = worker.get("/w/messages").text
    assert page.count("You cannot take more HITs here") == 1
    assert "straight lines" not in page
    assert "always the same" not in page
    client.delete_worker_block(WorkerId=worker.id, Reason="talked")
    client.delete_worker_block(WorkerId=worker.id)
    assert client.list_worker_blocks()["NumResults"] == 0
    assert worker.get("/w/messages").text.count("You can take HITs here again") == 1


def test_the_store_knows_who_is_blocked(crowd, client):
    """For what gives out HITs."""
    worker, free = crowd.worker(), crowd.worker()
    client.create_worker_block(WorkerId=worker.id, Reason="r")

    with Database(crowd.engine).read() as connection:
        assert blocks.is_blocked(connection, row_id(crowd, worker))
        assert not blocks.is_blocked(connection, row_id(crowd, free))


def test_a_blocked_worker_cannot_ask_for_qualifications(crowd, client):
    """It would lead nowhere; the page says so."""
    worker = crowd.worker()
    own = client.create_qualification_type(Name="q", Description="d", QualificationTypeStatus="Active")
    type_id = own["QualificationType"]["QualificationTypeId"]
    client.create_worker_block(WorkerId=worker.id, Reason="r")

    reply = worker.post(f"/w/qualifications/{type_id}/request")

    assert "nothing can be asked for" in reply.text
    assert client.list_qualification_requests()["NumResults"] == 0


def test_a_blocked_worker_is_told_so_on_every_page_that_offers(crowd, client):
    """What it means for HITs, for work that was sent, for pay, and whom to ask; a HIT at hand may be finished."""
    change_study(crowd.engine, SANDBOX, {"contact": "captions@lab.example"})
    worker, hit_type = crowd.worker(), client.create_hit_type(**TYPE)["HITTypeId"]
    hits = [post_hit(client, hit_type)["HITId"] for _ in range(2)]
    client.create_qualification_type(
        Name="q", Description="d", QualificationTypeStatus="Active", AutoGranted=True
    )
    task = worker.accept(hit_type)
    client.create_worker_block(WorkerId=worker.id, Reason="a note")

    pages = [worker.get(path).text for path in ("/w", "/w/qualifications", f"/w/preview/{hits[1]}")]
    assert task.submit(p01_label="yes").status_code == 200
    pages += [worker.get(f"/w/a/{task.token}").text, worker.post("/w/accept", {"hit_type_id": hit_type}).text]

    for text in pages:
        assert "The requester no longer offers you HITs here" in text and "a note" not in text
        assert "what is approved is still paid" in text and 'href="mailto:captions@lab.example"' in text
        assert "No HITs are open" not in text and "Accept" not in text and "Ask for it" not in text
    assert "you have open may be finished" in pages[0] and "Go on with it" in pages[0]
    assert "your list of HITs says whom to ask" in worker.get("/w/messages").text
    assert client.list_assignments_for_hit(HITId=task.query["hitId"])["NumResults"] == 1
    client.delete_worker_block(WorkerId=worker.id)
    assert "no longer offers" not in worker.get("/w").text


def test_blocks_of_nobody_are_refused(crowd, client):
    """An unknown worker, one of the other environment, no reason, too long a reason."""
    worker = crowd.worker()
    outside = crowd.worker(Environment.LIVE).id

    for mturk_id in (STRANGER, outside):
        assert (
            refusal(client.create_worker_block, WorkerId=mturk_id, Reason="r")[0] == "InvalidParameterValue"
        )
        assert refusal(client.delete_worker_block, WorkerId=mturk_id)[0] == "InvalidParameterValue"
    assert refusal(client.create_worker_block, WorkerId=worker.id, Reason="")[0] == "AWS.MissingParameters"
    assert (
        refusal(client.create_worker_block, WorkerId=worker.id, Reason="x" * 1025)[0]
        == "AWS.ParameterOutOfRange"
    )
    assert client.list_worker_blocks()["NumResults"] == 0


def test_blocks_come_in_pages(crowd, client):
    """In the order in which workers joined."""
    workers = [crowd.worker().id for _ in range(3)]
    for mturk_id in reversed(workers):
        client.create_worker_block(WorkerId=mturk_id, Reason="r")

    pages = client.get_paginator("list_worker_blocks").paginate(PaginationConfig={"PageSize": 2})

    assert [block["WorkerId"] for page in pages for block in page["WorkerBlocks"]] == workers


def test_only_workers_whose_work_was_decided_are_written_to(crowd, client):
    """The others come back as failures: soft while work waits for its decision, hard otherwise."""
    known, waiting, idle = crowd.worker(), crowd.worker(), crowd.worker()
    decided(client, known)
    waiting.do(post_hit(client, client.create_hit_type(**TYPE | {"Title": "b"})["HITTypeId"])["HITTypeId"])
    wanted = [known.id, waiting.id, idle.id, STRANGER, known.id]

    reply = client.notify_workers(
        Subject="More <work>", MessageText="From Monday.\nSee you.", WorkerIds=wanted
    )

    failures = {
        one["WorkerId"]: one["NotifyWorkersFailureCode"] for one in reply["NotifyWorkersFailureStatuses"]
    }
    assert failures == {waiting.id: "SoftFailure", idle.id: "HardFailure", STRANGER: "HardFailure"}
    page = known.get("/w/messages").text
    assert page.count("More &lt;work&gt;") == 1
    assert "From Monday.\nSee you." in page
    for worker in (waiting, idle):
        assert "Nobody has written" in worker.get("/w/messages").text


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"Subject": "x" * 201}, "AWS.ParameterOutOfRange"),
        ({"Subject": ""}, "AWS.MissingParameters"),
        ({"MessageText": "x" * 4097}, "AWS.ParameterOutOfRange"),
        ({"MessageText": ""}, "AWS.MissingParameters"),
        ({"WorkerIds": []}, "AWS.MissingParameters"),
        ({"WorkerIds": [STRANGER] * 101}, "AWS.ParameterOutOfRange"),
        ({"WorkerIds": ["nobody"]}, "InvalidParameterValue"),
    ],
)
def test_notify_workers_has_limits(shared_crowd, changes, code):
    """Two hundred characters of subject, 4,096 of text, a hundred workers."""
    values = {"Subject": "s", "MessageText": "t", "WorkerIds": [STRANGER]} | changes

    assert refusal(shared_crowd.boto().notify_workers, **values)[0] == code


def test_workers_are_told_of_bonuses_rejections_and_their_reversal(crowd, client):
    """With the requester's own words, in the order in which they came."""
    worker = crowd.worker()
    own_type = client.create_hit_type(**TYPE)["HITTypeId"]
    hit = post_hit(client, own_type)["HITId"]
    worker.do(own_type)
    [own] = client.list_assignments_for_hit(HITId=hit)["Assignments"]

    client.reject_assignment(AssignmentId=own["AssignmentId"], RequesterFeedback="<b>Empty.</b>")
    client.approve_assignment(
        AssignmentId=own["AssignmentId"], RequesterFeedback="Our mistake.", OverrideRejection=True
    )
    client.send_bonus(
        WorkerId=worker.id, AssignmentId=own["AssignmentId"], BonusAmount="0.50", Reason="For the trouble."
    )

    page = worker.get("/w/messages").text
    assert "was rejected" in page
    assert "&lt;b&gt;Empty.&lt;/b&gt;" in page
    assert "was approved after all" in page
    assert "Our mistake." in page
    assert "bonus of $0.50" in page


def test_messages_are_unread_until_their_page_was_open(crowd, client):
    """The count is for every page's header; the page itself marks what is new."""
    worker, other = crowd.worker(), crowd.worker()
    database, own = Database(crowd.engine), row_id(crowd, worker)
    with database.write(SANDBOX) as connection:
        for number in (1, 2, 3):
            workers.tell(Books(connection, SANDBOX, crowd.clock()), own, f"s{number}", "<i>x</i>")
        assert workers.find_standing(connection, worker.id)[1].unread == 3

    page = worker.get("/w/messages").text

    assert page.count(">new<") == 3
    assert page.index("s3") < page.index("s2") < page.index("s1")
    assert "&lt;i&gt;x&lt;/i&gt;" in page
    with database.read() as connection:
        assert workers.find_standing(connection, worker.id)[1].unread == 0
    assert ">new<" not in worker.get("/w/messages").text
    assert "s1" not in other.get("/w/messages").text
    assert crowd.browser().get(crowd.url + "/w/messages").status_code == 403


def test_many_messages_come_in_pages(crowd):
    """Fifty at a time, newest first; the rest stays unread until it is looked at."""
    worker = crowd.worker()
    database, own = Database(crowd.engine), row_id(crowd, worker)
    with database.write(SANDBOX) as connection:
        for number in range(53):
            workers.tell(Books(connection, SANDBOX, crowd.clock()), own, f"no {number}.", "")

    first = worker.get("/w/messages").text
    with database.read() as connection:
        assert workers.find_standing(connection, worker.id)[1].unread == 3
        older = workers.messages_of(connection, own, before=None, limit=50)[-1].id
    second = worker.get(f"/w/messages?before={older}").text

    assert "no 52." in first
    assert "no 2." not in first
    assert "no 2." in second
    assert "no 3." not in second
    assert "Older messages" in first
    assert "Older messages" not in second
    assert worker.get("/w/messages?before=x'").status_code == 200


@pytest.mark.parametrize(
    ("letter", "words"),
    [
        (letters.bonus("$0.50", "Look at it", "quick"), ["$0.50", "Look at it", "quick"]),
        (letters.rejection("Look at it", "all the same"), ["“Look at it” was rejected", "all the same"]),
        (letters.reversal("Look at it", "our mistake"), ["approved after all", "our mistake"]),
        (letters.granted("q", None), ["qualification “q”", "HITs"]),
        (letters.granted("q", 0), ["value is 0"]),
        (letters.revoked("q", ""), ["taken back"]),
    ],
)
def test_letters_say_what_happened(letter, words):
    """Each holds what the worker has to know."""
    assert all(word in f"{letter.subject} {letter.text}" for word in words)


def test_long_names_do_not_break_a_subject():
    """Two hundred characters are the most that a subject has, and what happened is still in it."""
    subjects = [letters.rejection("x" * 300, "f").subject, letters.refused("x" * 200, "f").subject]

    assert all(len(subject) <= 200 and "…” was rejected" in subject for subject in subjects)


def test_messages_carry_their_time(crowd):
    """The page shows when a message was sent."""
    worker = crowd.worker()
    at = dt.datetime(2026, 11, 20, 12, 30, tzinfo=dt.UTC)
    with Database(crowd.engine).write(SANDBOX) as connection:
        workers.tell(Books(connection, SANDBOX, at), row_id(crowd, worker), "s", "t")

    assert "2026-11-20 12:30 UTC" in worker.get("/w/messages").text
