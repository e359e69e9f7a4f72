"""Requests without a good signature get AWS's own answers."""

from __future__ import annotations

import datetime as dt
import json

import botocore.session
import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from mitl.crowd_server import admin
from mitl.crowd_server.protocol.errors import TurkError
from mitl.crowd_server.protocol.sigv4 import SignedRequest, verify
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)

NOW = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
TARGET = "MTurkRequesterServiceV20170117.GetAccountBalance"


def error_of(client):
    """The error code that a balance request meets."""
    with pytest.raises(ClientError) as caught:
        client.get_account_balance()
    return caught.value.response["Error"]["Code"]


def test_a_wrong_secret_is_refused(shared_crowd):
    """The right key with another secret."""
    assert error_of(shared_crowd.boto(aws_secret_access_key="wrong")) == "InvalidSignatureException"


def test_an_unknown_key_is_refused(shared_crowd):
    """A key that no environment has."""
    client = shared_crowd.boto(aws_access_key_id="AKIA0000000000000000")

    assert error_of(client) == "UnrecognizedClientException"


def test_an_unsigned_request_is_refused(shared_crowd):
    """No Authorization header at all."""
    reply = httpx.post(shared_crowd.url, headers={"X-Amz-Target": TARGET}, content=b"{}", trust_env=False)

    assert reply.status_code == 400
    assert reply.json()["__type"] == "MissingAuthenticationTokenException"


def test_a_changed_body_breaks_the_signature(shared_crowd):
    """What was signed is what is done."""
    headers = sign(shared_crowd, b"{}")

    altered = httpx.post(shared_crowd.url + "/", headers=headers, content=b'{"a": 1}', trust_env=False)
    intact = httpx.post(shared_crowd.url + "/", headers=headers, content=b"{}", trust_env=False)

    assert altered.json()["__type"] == "InvalidSignatureException"
    assert intact.json() == {"AvailableBalance": "10000.00"}


def test_an_operation_that_does_not_exist_is_named_so(shared_crowd):
    """A target outside MTurk's service."""
    headers = sign(shared_crowd, b"{}", target="SomethingElse.GetAccountBalance")

    reply = httpx.post(shared_crowd.url + "/", headers=headers, content=b"{}", trust_env=False)

    assert reply.json()["__type"] == "UnknownOperationException"


@pytest.mark.parametrize(
    "target",
    ["MTurkRequesterServiceV20170117.Nonesuch", "MTurkRequesterServiceV20170117.", "", "GetHIT"],
)
def test_an_unknown_operation_is_named_so(shared_crowd, target):
    """A target that is none of MTurk's operations, under any prefix."""
    headers = sign(shared_crowd, b"{}", target=target)

    reply = httpx.post(shared_crowd.url + "/", headers=headers, content=b"{}", trust_env=False)

    assert (reply.status_code, reply.json()["__type"]) == (400, "UnknownOperationException")


@pytest.mark.parametrize(
    "body",
    [
        b"[1]",
        b"{",
        b"\xff",
        b"[" * 5000,
        b"null",
        b'"a"',
        b"1" * 5000,
        b"{} {}",
        b'{"a": ' + b"[" * 980 + b"]" * 980 + b"}",
        b'{"a": ' * 40 + b"1" + b"}" * 40,
    ],
)
def test_a_body_that_is_no_json_object_is_refused(shared_crowd, body):
    """Malformed bodies are the caller's fault, not the server's."""
    reply = httpx.post(
        shared_crowd.url + "/", headers=sign(shared_crowd, body), content=body, trust_env=False
    )

    assert (reply.status_code, reply.json()["__type"]) == (400, "SerializationException")


@pytest.mark.parametrize("megabytes", [1.1, 10])
def test_a_body_beyond_reason_is_refused(shared_crowd, megabytes):
    """Over a megabyte nothing is kept in memory, signed or not, and the server goes on."""
    body = b'{"Question": "' + b"x" * int(megabytes * 1_048_576) + b'"}'

    signed = httpx.post(
        shared_crowd.url + "/", headers=sign(shared_crowd, body), content=body, trust_env=False
    )
    unsigned = httpx.post(
        shared_crowd.url + "/", headers={"X-Amz-Target": TARGET}, content=body, trust_env=False
    )

    assert signed.json()["__type"] == unsigned.json()["__type"] == "RequestEntityTooLargeException"
    assert (signed.status_code, unsigned.status_code) == (400, 400)
    assert shared_crowd.boto().get_account_balance()["AvailableBalance"] == "10000.00"


def test_nothing_is_done_for_an_unsigned_request(shared_crowd):
    """The signature comes before the operation and its parameters."""
    body = json.dumps({"HITId": "3NONE"}).encode()
    headers = {
        "X-Amz-Target": "MTurkRequesterServiceV20170117.DeleteHIT",
        "Authorization": "AWS4-HMAC-SHA256 x",
    }

    reply = httpx.post(shared_crowd.url + "/", headers=headers, content=body, trust_env=False)

    assert reply.json()["__type"] == "IncompleteSignatureException"


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_client_whose_clock_is_wrong_is_told_by_how_much(shared_crowd, hours):
    """Both times are in the message, as AWS gives them."""
    when = dt.datetime.now(dt.UTC) + dt.timedelta(hours=hours)
    headers = sign_at(shared_crowd, b"{}", when)

    reply = httpx.post(shared_crowd.url + "/", headers=headers, content=b"{}", trust_env=False)

    assert (reply.status_code, reply.json()["__type"]) == (400, "InvalidSignatureException")
    assert f"{when:%Y%m%dT%H%M%SZ} is " in reply.json()["message"]
    assert ("expired" if hours < 0 else "not yet current") in reply.json()["message"]


def test_the_operation_belongs_to_what_is_signed():
    """A signature that leaves X-Amz-Target out would be good for any operation."""
    request = signed_request(NOW, leave_out="x-amz-target")

    with pytest.raises(TurkError, match="missing: x-amz-target") as caught:
        verify(request, lambda key: "secret", NOW)
    assert caught.value.type == "InvalidSignatureException"


@pytest.mark.parametrize(("minutes", "text"), [(-16, "expired"), (16, "not yet current")])
def test_signatures_grow_stale(minutes, text):
    """A quarter of an hour either way is the limit."""
    request = signed_request(NOW)

    with pytest.raises(TurkError, match=text):
        verify(request, lambda key: "secret", NOW - dt.timedelta(minutes=minutes))


def test_a_fresh_signature_gives_its_key():
    """Checked against botocore's own signer."""
    assert verify(signed_request(NOW), lambda key: "secret", NOW) == "AKIAKEY"


@pytest.mark.parametrize(
    "scope",
    ["20261120/eu-west-1/mturk-requester", "20261120/us-east-1/s3", "20261119/us-east-1/mturk-requester"],
)
def test_a_signature_for_elsewhere_is_refused(scope):
    """Region, service and date belong to the scope."""
    request = signed_request(NOW)
    header = request.headers["authorization"].replace("20261120/us-east-1/mturk-requester", scope)
    moved = SignedRequest("POST", "/", "", {**request.headers, "authorization": header}, request.body)

    with pytest.raises(TurkError, match="scoped"):
        verify(moved, lambda key: "secret", NOW)


def test_botocore_knows_the_service_by_the_name_checked():
    """The signing name in botocore's model is the one that the server expects."""
    session = botocore.session.Session()

    assert session.get_service_model("mturk").signing_name == "mturk-requester"


def sign(crowd, body, target=TARGET):
    """Headers of a signed request of now."""
    access, secret = admin.keys(crowd.engine)[Environment.SANDBOX]
    request = AWSRequest("POST", crowd.url + "/", {"X-Amz-Target": target}, body)
    SigV4Auth(Credentials(access, secret), "mturk-requester", "us-east-1").add_auth(request)
    return dict(request.headers)


def sign_at(crowd, body, at):
    """Headers of a request signed by a clock that shows ``at``."""
    access, secret = admin.keys(crowd.engine)[Environment.SANDBOX]
    request = AWSRequest("POST", crowd.url + "/", {"X-Amz-Target": TARGET}, body)
    signer = SigV4Auth(Credentials(access, secret), "mturk-requester", "us-east-1")
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    request.context["timestamp"] = stamp
    request.headers["X-Amz-Date"] = stamp
    signature = signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)
    names = signer.signed_headers(signer.headers_to_sign(request))
    scope = f"{access}/{at:%Y%m%d}/us-east-1/mturk-requester/aws4_request"
    request.headers["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={names}, Signature={signature}"
    )
    return dict(request.headers)


def signed_request(at, leave_out=""):
    """A request signed at a given time by botocore, with one header left unsigned."""
    body = json.dumps({"HITId": "3A"}).encode()
    headers = {} if leave_out == "x-amz-target" else {"X-Amz-Target": TARGET}
    request = AWSRequest("POST", "http://host:1/", headers, body)
    signer = SigV4Auth(Credentials("AKIAKEY", "secret"), "mturk-requester", "us-east-1")
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    request.context["timestamp"] = stamp
    request.headers["X-Amz-Date"] = stamp
    request.headers["Host"] = "host:1"
    canonical = signer.canonical_request(request)
    signature = signer.signature(signer.string_to_sign(request, canonical), request)
    names = signer.signed_headers(signer.headers_to_sign(request))
    scope = f"AKIAKEY/{at:%Y%m%d}/us-east-1/mturk-requester/aws4_request"
    found = {name.lower(): value for name, value in request.headers.items()}
    found["x-amz-target"] = TARGET
    found["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={names}, Signature={signature}"
    )
    return SignedRequest("POST", "/", "", found, body)
