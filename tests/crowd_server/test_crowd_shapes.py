"""Every operation against botocore's own description of it: requests valid and broken, replies and errors."""

from __future__ import annotations

import datetime as dt
import json
import re
from dataclasses import dataclass

import httpx
import mturk_model
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.parsers import create_parser
from botocore.validate import ParamValidator
from crowd_kit import TYPE, conforms, engine_of, post_hit, question, running_crowd
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import event as example_event
from hypothesis import strategies as st
from sqlalchemy import event, insert, select

from mitl.crowd_server import admin
from mitl.crowd_server.store.models import CrowdWorker, QualificationRequest, QualificationType, RequestState
from mitl.db.engine import make_engine
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)

MODEL = mturk_model.service()
ALWAYS = {
    "HIT": set(MODEL.shape_for("HIT").members) - {"HITLayoutId", "Question", "RequesterAnnotation"},
    "Assignment": set(MODEL.shape_for("Assignment").members)
    - {"ApprovalTime", "RejectionTime", "RequesterFeedback"},
    "BonusPayment": set(MODEL.shape_for("BonusPayment").members),
    "Qualification": {"QualificationTypeId", "WorkerId", "GrantTime", "Status"},
    "QualificationType": {
        "QualificationTypeId", "CreationTime", "Name", "Description", "QualificationTypeStatus", "IsRequestable"
    },
    "WorkerBlock": set(MODEL.shape_for("WorkerBlock").members),
    "QualificationRequest": {"QualificationRequestId", "QualificationTypeId", "WorkerId", "SubmitTime"},
}  # fmt: skip
"""Members that clients read without asking whether they are there; the model requires none in replies."""
SOMETIMES = {"NextToken", "OnHoldBalance"}


@dataclass
class Api:
    """The requester API without boto3's own checks, and things that exist in it."""

    url: str
    browser: httpx.Client
    credentials: Credentials
    requests: dict[str, st.SearchStrategy]
    """Operation → requests of it."""

    def call(self, operation, body):
        """The reply to a signed body."""
        headers = {
            "Content-Type": "application/x-amz-json-1.1",
            "X-Amz-Target": f"{MODEL.metadata['targetPrefix']}.{operation}",
        }
        request = AWSRequest("POST", self.url + "/", headers, body)
        SigV4Auth(self.credentials, "mturk-requester", "us-east-1").add_auth(request)
        return self.browser.post(self.url + "/", headers=dict(request.headers), content=body)


@pytest.fixture(scope="module")
def api(shared_crowd):
    """A server with HITs, assignments, bonuses, qualifications and requests in every state."""
    crowd, known = shared_crowd, _known(shared_crowd)
    pools = {name: st.sampled_from(values) for name, values in known.items()}
    return _api(crowd, {name: mturk_model.requests(name, pools) for name in MODEL.operation_names})


def _api(crowd, requests):
    access, secret = admin.keys(crowd.engine)[Environment.SANDBOX]
    return Api(crowd.url, crowd.browser(), Credentials(access, secret), requests)


def _known(shared_crowd):
    """Fill a server, and give what it knows by the names of the API's members."""
    client, worker, other = shared_crowd.boto(), shared_crowd.worker(), shared_crowd.worker()
    types = [client.create_hit_type(**TYPE | {"Title": title})["HITTypeId"] for title in ("one", "two")]
    made = [post_hit(client, types[place % 2], MaxAssignments=2)["HITId"] for place in range(6)]
    for one in (worker, other):
        for hit_type in types:
            one.do(hit_type)
            one.do(hit_type)
    client.update_expiration_for_hit(HITId=made[5], ExpireAt=dt.datetime(2015, 1, 1))
    submitted = [
        own["AssignmentId"]
        for hit in made
        for own in client.list_assignments_for_hit(HITId=hit)["Assignments"]
    ]
    client.approve_assignment(AssignmentId=submitted[0])
    client.reject_assignment(AssignmentId=submitted[1], RequesterFeedback="no")
    client.send_bonus(WorkerId=worker.id, AssignmentId=submitted[0], BonusAmount="1", Reason="r")
    qualifications = [_qualification(client, name) for name in ("q1", "q2")]
    client.associate_qualification_with_worker(QualificationTypeId=qualifications[0], WorkerId=worker.id)
    pending = _requests(shared_crowd, [*qualifications, *qualifications])
    return {
        "HITId": made,
        "HITTypeId": types,
        "AssignmentId": submitted,
        "WorkerId": [worker.id, other.id],
        "WorkerIds": [worker.id, other.id],
        "QualificationTypeId": [*qualifications, "00000000000000000071"],
        "QualificationRequestId": pending,
        "Question": [question()],
        "LifetimeInSeconds": [60],
        "AssignmentDurationInSeconds": [60],
        "AutoApprovalDelayInSeconds": [60],
        "Reward": ["0.05"],
        "BonusAmount": ["0.05"],
        "MaxAssignments": [1, 3],
        "NumberOfAdditionalAssignments": [1],
    }


def _qualification(client, name):
    made = client.create_qualification_type(Name=name, Description="d", QualificationTypeStatus="Active")
    return made["QualificationType"]["QualificationTypeId"]


def _requests(crowd, qualifications):
    """Workers' requests for these qualifications, not yet decided."""
    names = []
    with crowd.engine.begin() as connection:
        worker = connection.execute(select(CrowdWorker.id)).scalars().first()
        for place, qualification in enumerate(qualifications):
            wanted = select(QualificationType.id).where(QualificationType.mturk_id == qualification)
            names.append(f"3REQUEST{place:022d}")
            values = {
                "mturk_id": names[-1],
                "environment": Environment.SANDBOX,
                "type_id": connection.execute(wanted).scalar_one(),
                "worker_id": worker,
                "state": RequestState.PENDING,
                "answer": "",
                "started_at": crowd.clock(),
                "submitted_at": crowd.clock(),
                "decided_at": None,
                "reason": "",
            }
            connection.execute(insert(QualificationRequest).values(values))
    return names


# Pools of ids make examples differ from run to run, so there is no database of failures to replay.
@settings(
    max_examples=24,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
@pytest.mark.parametrize(
    "operation", sorted(MODEL.operation_names, key=lambda name: (name[:6] == "Delete", name))
)
def test_any_request_is_answered_in_the_models_shapes(api, operation, data):
    """A request that the model forbids is refused; the answer to any other is a reply or an error of its shape."""
    sample = data.draw(api.requests[operation])

    reply = api.call(operation, json.dumps(sample.params).encode())

    example_event(f"{'broken' if sample.fault else 'valid'}: {reply.status_code}")
    output = MODEL.operation_model(operation).output_shape
    wire = {"status_code": reply.status_code, "headers": reply.headers, "body": reply.content}
    read = create_parser("json").parse(wire, output)
    assert reply.headers["x-amzn-requestid"]
    if reply.status_code == 200:
        assert not sample.fault, "a request that the model forbids was accepted"
        conforms(reply.json(), output)
        complete(reply.json(), output)
    else:
        assert reply.status_code == 400
        read |= create_parser("json").parse(wire, MODEL.shape_for_error_code(read["Error"]["Code"]))
        assert_error(reply.json(), read)


def test_a_time_of_another_type_is_refused(api, shared_crowd):
    """Any JSON value but a number."""
    hit = post_hit(shared_crowd.boto())["HITId"]

    for wrong in mturk_model.WRONG["timestamp"]:
        reply = api.call("UpdateExpirationForHIT", json.dumps({"HITId": hit, "ExpireAt": wrong}).encode())
        assert (reply.status_code, "seconds since 1970" in reply.text) == (400, True), wrong


@pytest.fixture(scope="module")
def hostile(crowd_template, tmp_path_factory):
    """What came of each hostile request on SQLite: operation, its number, the status, how many statements it took."""
    with (
        engine_of(crowd_template, tmp_path_factory.mktemp("hostile")) as engine,
        running_crowd(engine) as crowd,
    ):
        return list(_hostile(crowd))


def _hostile(crowd, chosen=None):
    """Send the operations' hostile requests, or those of them that are chosen."""
    known, asked = _known(crowd), []
    api = _api(crowd, {})
    usual = {name: values if name == "WorkerIds" else values[0] for name, values in known.items()}
    event.listen(crowd.engine, "before_cursor_execute", lambda *statement: asked.append(statement))
    for operation in sorted(MODEL.operation_names):
        for number, params in enumerate(mturk_model.hostile_requests(operation, usual)):
            if chosen is None or (operation, number) in chosen:
                asked.clear()
                reply = api.call(operation, json.dumps(params).encode())
                yield operation, number, reply.status_code, len(asked)


def test_no_value_of_any_parameter_is_a_fault(hostile):
    """Zero characters, half surrogates, patterns, huge texts and numbers, times past all calendars: never a 500."""
    assert [one for one in hostile if one[2] not in (200, 400)] == []
    # Some of the values are merely odd: they go all the way into the database and out again.
    assert {operation for operation, _, status, _ in hostile if status == 200} >= TAKEN


TAKEN = {"CreateHIT", "CreateQualificationType", "ListQualificationTypes", "UpdateExpirationForHIT"}


@pytest.mark.postgres
@pytest.mark.thorough
def test_no_value_that_reaches_the_database_is_a_fault_on_postgresql(hostile, postgres_crowd_url):
    """The rest was refused before any row was asked for, which no engine changes."""
    fewest = min(asked for *_, asked in hostile)
    reaching = {(operation, number) for operation, number, _, asked in hostile if asked > fewest}

    engine = make_engine(postgres_crowd_url)
    admin.prepare(engine)
    with running_crowd(engine) as crowd:
        found = list(_hostile(crowd, reaching))
    engine.dispose()

    assert [one for one in found if one[2] not in (200, 400)] == []
    assert {operation for operation, _, status, _ in found if status == 200} >= TAKEN


def complete(value, shape):
    """Fail where a reply lacks a member that clients count on."""
    if shape.type_name == "structure":
        for name in ALWAYS.get(shape.name, set()):
            assert name in value, f"{shape.name} lacks {name}"
        for name, member in value.items():
            complete(member, shape.members[name])
        if shape.name.endswith("Response"):
            assert set(shape.members) - SOMETIMES <= set(value), f"{shape.name} lacks a member"
    elif shape.type_name == "list":
        for member in value:
            complete(member, shape.member)


def assert_error(body, read):
    """An error of MTurk's shape, which botocore reads as one."""
    assert set(body) == {"__type", "Message", "TurkErrorCode"}
    assert (body["__type"], read["Error"]["Code"]) == ("RequestError", "RequestError")
    assert re.fullmatch(r"AWS\.(MechanicalTurk\.)?[A-Za-z]+", body["TurkErrorCode"])
    assert re.search(r" \(\d{13}\)\Z", body["Message"])
    assert (read["Error"]["Message"], read["TurkErrorCode"]) == (body["Message"], body["TurkErrorCode"])


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_the_strategy_knows_valid_from_broken(data):
    """botocore's own validator agrees with it on types, required members and least lengths."""
    operation = data.draw(st.sampled_from(sorted(MODEL.operation_names)))
    sample = data.draw(mturk_model.requests(operation, {}))

    report = ParamValidator().validate(sample.params, MODEL.operation_model(operation).input_shape)

    assert sample.fault or not report.has_errors(), report.generate_report()
    assert not (re.search(r"is missing|is empty", sample.fault) and not report.has_errors())


def test_the_model_has_no_operation_that_is_not_answered(api):
    """Each of the 39 operations is in the server's table, and no other."""
    from mitl.crowd_server.api.registry import OPERATIONS

    assert set(OPERATIONS) == set(MODEL.operation_names)
    assert len(OPERATIONS) == 39
