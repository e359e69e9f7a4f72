"""Unmodified boto3 drives every operation, and the table of operations in the docs is the server's own."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from crowd_kit import TYPE, post_hit, question, refusal
from sqlalchemy import insert, select

from mitl.crowd_server.api import registry, table
from mitl.crowd_server.api.registry import OPERATIONS
from mitl.crowd_server.store.models import CrowdWorker, QualificationRequest, QualificationType, RequestState
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "crowd-server.md"


def test_the_guides_table_of_operations_is_the_servers():
    """Run `python -m mitl.crowd_server.api.table docs/crowd-server.md` after a change of the operations."""
    text = GUIDE.read_text(encoding="utf-8")

    stale = "run `python -m mitl.crowd_server.api.table docs/crowd-server.md`"
    assert text == table.filled(text), stale


def test_every_supported_operation_succeeds_by_boto3(either_crowd):
    """One requester's whole work, in which each operation that the table calls supported answers without error."""
    crowd, client = either_crowd, either_crowd.boto()
    done = set()
    client.meta.events.register(
        "after-call.mturk.*", lambda http_response, model, **rest: done.add(model.name)
    )

    hits(crowd, client)
    assignments(crowd, client)
    qualifications(crowd, client)

    assert done == {name for name, found in OPERATIONS.items() if found.offered}


def hits(crowd, client):
    """Everything about HITs."""
    other = client.create_hit_type(**TYPE | {"Title": "other"})["HITTypeId"]
    made = post_hit(client)["HITId"]
    single = client.create_hit(**TYPE, LifetimeInSeconds=60, Question=question())["HIT"]["HITId"]
    client.update_hit_type_of_hit(HITId=made, HITTypeId=other)
    client.create_additional_assignments_for_hit(HITId=made, NumberOfAdditionalAssignments=1)
    assert client.get_hit(HITId=made)["HIT"]["Title"] == "other"
    assert [hit["HITId"] for hit in client.list_hits()["HITs"]] == [made, single]
    client.update_expiration_for_hit(HITId=single, ExpireAt=dt.datetime(2015, 1, 1, tzinfo=dt.UTC))
    client.update_hit_review_status(HITId=single)
    assert client.list_reviewable_hits(Status="Reviewing")["NumResults"] == 1
    client.delete_hit(HITId=single)


def assignments(crowd, client):
    """Everything about work and money."""
    worker, other = crowd.worker(), crowd.worker()
    hit = post_hit(client, client.create_hit_type(**TYPE | {"Title": "work"})["HITTypeId"], MaxAssignments=2)
    for one in (worker, other):
        one.do(hit["HITTypeId"])
    good, bad = client.list_assignments_for_hit(HITId=hit["HITId"])["Assignments"]
    client.approve_assignment(AssignmentId=good["AssignmentId"])
    client.reject_assignment(AssignmentId=bad["AssignmentId"], RequesterFeedback="no")
    assert client.get_assignment(AssignmentId=bad["AssignmentId"])["Assignment"]["RequesterFeedback"] == "no"
    client.send_bonus(
        WorkerId=worker.id, AssignmentId=good["AssignmentId"], BonusAmount="0.05", Reason="quick"
    )
    assert client.list_bonus_payments(HITId=hit["HITId"])["NumResults"] == 1
    assert client.get_account_balance()["AvailableBalance"] == "10000.00"
    told = client.notify_workers(Subject="s", MessageText="m", WorkerIds=[worker.id])
    assert told["NotifyWorkersFailureStatuses"] == []
    client.create_worker_block(WorkerId=other.id, Reason="r")
    assert [one["WorkerId"] for one in client.list_worker_blocks()["WorkerBlocks"]] == [other.id]
    client.delete_worker_block(WorkerId=other.id)


def qualifications(crowd, client):
    """Everything about qualifications."""
    worker = crowd.worker()
    made = client.create_qualification_type(Name="q", Description="d", QualificationTypeStatus="Active")
    own = {"QualificationTypeId": made["QualificationType"]["QualificationTypeId"]}
    held = own | {"WorkerId": worker.id}
    client.update_qualification_type(**own, Description="e")
    assert client.get_qualification_type(**own)["QualificationType"]["Description"] == "e"
    assert client.list_qualification_types(MustBeRequestable=False)["NumResults"] == 1
    client.associate_qualification_with_worker(**held, IntegerValue=5)
    assert client.get_qualification_score(**held)["Qualification"]["IntegerValue"] == 5
    assert client.list_workers_with_qualification_type(**own)["NumResults"] == 1
    client.disassociate_qualification_from_worker(**held)
    for name in ("3AAA", "3BBB"):
        ask(crowd, own["QualificationTypeId"], worker.id, name)
    assert client.list_qualification_requests(**own)["NumResults"] == 2
    client.accept_qualification_request(QualificationRequestId="3AAA", IntegerValue=7)
    client.reject_qualification_request(QualificationRequestId="3BBB", Reason="once is enough")
    assert client.get_qualification_score(**held)["Qualification"]["IntegerValue"] == 7
    assert client.list_hits_for_qualification_type(**own)["NumResults"] == 0
    client.delete_qualification_type(**own)


def ask(crowd, qualification, worker, name):
    """A worker's request for a qualification, waiting for a decision."""
    with crowd.engine.begin() as connection:
        wanted = select(QualificationType.id).where(QualificationType.mturk_id == qualification)
        who = select(CrowdWorker.id).where(CrowdWorker.mturk_id == worker)
        values = {
            "mturk_id": name,
            "environment": Environment.SANDBOX,
            "type_id": connection.execute(wanted).scalar_one(),
            "worker_id": connection.execute(who).scalar_one(),
            "state": RequestState.PENDING,
            "answer": "",
            "started_at": crowd.clock(),
            "submitted_at": crowd.clock(),
            "decided_at": None,
            "reason": "",
        }
        connection.execute(insert(QualificationRequest).values(values))


def test_what_is_not_offered_answers_one_error(shared_crowd):
    """Notifications, file uploads, layouts and review policies: the same code, and what to do instead."""
    client = shared_crowd.boto()
    notification = {"Destination": "d", "Transport": "SQS", "Version": "v", "EventTypes": ["Ping"]}
    policy = {"PolicyName": "ScoreMyKnownAnswers/2011-09-01"}
    hit = {**TYPE, "LifetimeInSeconds": 60}
    refused = [
        (client.update_notification_settings, {"HITTypeId": "3A", "Notification": notification}),
        (client.send_test_event_notification, {"Notification": notification, "TestEventType": "Ping"}),
        (client.get_file_upload_url, {"AssignmentId": "3A", "QuestionIdentifier": "q"}),
        (client.list_review_policy_results_for_hit, {"HITId": "3A"}),
        (client.create_hit, hit | {"HITLayoutId": "3A"}),
        (client.create_hit, hit | {"HITLayoutParameters": [{"Name": "n", "Value": "v"}]}),
        (client.create_hit, hit | {"Question": question(), "AssignmentReviewPolicy": policy}),
        (client.create_hit, hit | {"Question": question(), "HITReviewPolicy": policy}),
    ]

    answers = [refusal(call, **parameters) for call, parameters in refused]

    assert {code for code, _ in answers} == {"OperationNotSupported"}
    assert all("This server does not offer" in message and ";" in message for _, message in answers)
    assert client.list_hits()["HITs"] == []
    assert set(registry.NOT_OFFERED) == {name for name, found in OPERATIONS.items() if not found.offered}
