"""mitl's client of the requester API: what it makes of replies, refusals, throttling and lost replies."""

from __future__ import annotations

import datetime as dt
import functools
import json
import operator
import socket
import threading

import fault_kinds
import pytest
from crowd_kit import post_hit, posted, question
from fault_proxy import FaultProxy
from hypothesis import given
from hypothesis import strategies as st

from mitl import logs
from mitl.addresses import is_amazon
from mitl.core.pricing import amount as dollars
from mitl.crowd.client import HitRequest, HitTypeTerms, Keys, MTurkClient
from mitl.crowd.listings import cents
from mitl.crowd.transport import AdaptiveLimiter
from mitl.crowd_server import admin
from mitl.crowd_server.app import create_app
from mitl.crowd_server.serving import RunningServer
from mitl.errors import CrowdError, EndpointError, FundsError, SettingsError
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)

SANDBOX, LIVE = Environment.SANDBOX, Environment.LIVE


def open_client(engine, url, environment=SANDBOX, **options):
    """A client that does not really wait."""
    return MTurkClient(
        url, keys=Keys(*admin.keys(engine)[environment]), sleep=lambda seconds: None, **options
    )


@pytest.fixture
def client(crowd):
    """A client of the sandbox."""
    with open_client(crowd.engine, crowd.url) as one:
        yield one


@pytest.fixture
def hit_type(client):
    """A HIT type."""
    return make_type(client)


def make_type(client):
    """A HIT type of one dollar."""
    return client.create_hit_type(HitTypeTerms("t", "d", "k", 100, 3600, 86400))


def make_hit(client, hit_type, number=1, **changes):
    """The id of a HIT whose token and annotation follow from its number."""
    values = {
        "hit_type_id": hit_type,
        "question": question(),
        "max_assignments": 1,
        "lifetime_s": 86400,
        "annotation": f"mitl1:p:b:{number}:1",
        "token": f"token-{number}",
    }
    return client.create_hit(HitRequest(**values | changes))


def test_a_repeated_creation_gives_the_same_hit(client, hit_type):
    """The token makes a repeat harmless."""
    first = make_hit(client, hit_type)
    again = make_hit(client, hit_type)
    other = make_hit(client, hit_type, 2)

    assert again == first != other


def test_a_token_that_made_another_hit_leaves_open_whether_this_one_was_made(client, hit_type):
    """The HIT that the refusal names is read back; what was not made for sure must not count as refused."""
    make_hit(client, hit_type)

    with pytest.raises(CrowdError, match="names none that it has") as raised:
        make_hit(client, hit_type, annotation="mitl1:p:b1:9:1")

    assert raised.value.unclear


def test_hits_are_listed_over_all_pages(crowd, client, hit_type):
    """105 HITs need two pages; annotations tell them apart."""
    posted(crowd, 98)
    made = [make_hit(client, hit_type, number) for number in range(7)]

    listed = list(client.list_hits())

    assert len({hit.hit_id for hit in listed}) == 105
    assert [hit.hit_id for hit in listed[98:]] == made
    assert listed[101].annotation == "mitl1:p:b:3:1"
    assert all(hit.n_submitted == 0 and hit.status == "Assignable" for hit in listed)


def test_work_is_fetched_and_decided_once(crowd, client, hit_type):
    """Approving twice is not an error and says so; so is rejecting twice; a contradiction is an error."""
    hit_id = make_hit(client, hit_type, max_assignments=2)
    crowd.worker().do(hit_type, p01_label="yes")
    crowd.worker().do(hit_type, p01_label="no")
    [found] = client.list_hits()
    first, second = client.list_assignments(hit_id)

    assert (found.n_submitted, found.n_undecided, found.status) == (2, 2, "Reviewable")
    assert "yes" in first.answer_xml and first.submitted_at.tzinfo is not None
    assert [client.approve(first.assignment_id), client.approve(first.assignment_id)] == [True, False]
    assert [client.reject(second.assignment_id, "no"), client.reject(second.assignment_id, "no")] == [
        True,
        False,
    ]
    with pytest.raises(CrowdError, match="'Rejected'") as caught:
        client.approve(second.assignment_id)
    assert caught.value.code == "AWS.MechanicalTurk.InvalidAssignmentState"
    assert client.approve(second.assignment_id, override_rejection=True)


def test_a_bonus_is_granted_once(crowd, client, hit_type):
    """The same token grants nothing more."""
    hit_id = make_hit(client, hit_type)
    worker = crowd.worker()
    worker.do(hit_type)
    [own] = client.list_assignments(hit_id)

    granted = [client.bonus(own.assignment_id, own.worker_id, 5, "r", token="b") for _ in range(2)]

    assert granted == [True, False]
    [owed] = admin.payments(crowd.engine, SANDBOX, clock=crowd.clock)
    assert owed.bonus_cents == 5


def test_ending_and_deleting_are_repeatable(client, hit_type):
    """Expire, expire, delete, delete."""
    hit_id = make_hit(client, hit_type)

    client.expire(hit_id)
    client.expire(hit_id)

    assert [client.delete(hit_id), client.delete(hit_id)] == [True, False]
    found = client.get_hit(hit_id)
    assert found is not None and found.status == "Disposed"
    assert client.get_hit("3" + "A" * 29) is None


def test_deleting_open_work_is_an_error(client, hit_type):
    """An assignable HIT is not deleted behind workers' backs."""
    with pytest.raises(CrowdError, match="Assignable"):
        client.delete(make_hit(client, hit_type))


def test_qualifications_are_found_or_made(crowd, client):
    """Creating a name that exists gives the existing type; its holder is shut out."""
    assert client.find_qualification_type("guard") is None
    made = client.create_qualification_type("guard", "d")

    assert (
        client.create_qualification_type("guard", "other") == made == client.find_qualification_type("guard")
    )
    own = client.create_hit_type(HitTypeTerms("t", "d", "", 1, 60, 0), without=[made])
    make_hit(client, own)
    worker = crowd.worker()
    client.associate_qualification(made, worker.id)
    assert worker.accept(own) is None


def test_missing_money_is_a_funds_error(crowd):
    """With its code, and without secrets in the message."""
    with open_client(crowd.engine, crowd.url, LIVE) as client:
        assert client.balance() == 0
        with pytest.raises(FundsError, match=r"0\.00 USD") as caught:
            make_hit(client, make_type(client))

    assert caught.value.code == "AWS.MechanicalTurk.InsufficientFunds"
    assert "\n" not in str(caught.value)


def test_a_wrong_key_is_refused_without_showing_it(crowd):
    """Neither the message nor the record of keys holds the secret."""
    keys = Keys("AKIA0000000000000000", "the-secret-itself")
    with MTurkClient(crowd.url, keys=keys) as client, pytest.raises(CrowdError) as caught:
        client.balance()

    assert caught.value.code == "UnrecognizedClientException"
    assert "check AWS_ACCESS_KEY_ID" in str(caught.value)
    assert "the-secret-itself" not in str(caught.value) + repr(keys)


@pytest.mark.parametrize(("hours", "way"), [(-3, "3 h 00 min ahead of it"), (3, "3 h 00 min behind it")])
def test_a_wrong_clock_is_not_told_as_wrong_keys(crowd_engine, hours, way):
    """Both clocks and what to do stand in one line, whichever of the two is wrong."""
    there = dt.datetime.now(dt.UTC) + dt.timedelta(hours=hours)
    app = create_app(crowd_engine, signing_clock=lambda: there)
    with (
        RunningServer(app) as server,
        open_client(crowd_engine, server.url) as client,
        pytest.raises(CrowdError, match=f"the two clocks disagree .*{way}.*timedatectl") as caught,
    ):
        client.balance()

    assert f"the server {there:%Y-%m-%d %H:%M:%S} UTC" in str(caught.value)
    assert "AWS_SECRET" not in str(caught.value) and not caught.value.unclear


def test_where_nothing_listens_the_message_names_mitl_serve():
    """A dead port is told at once."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with (
        MTurkClient(url, keys=Keys("A", "B"), sleep=lambda seconds: None) as client,
        pytest.raises(EndpointError, match="mitl serve"),
    ):
        client.balance()


@pytest.mark.parametrize("cut_at", [0, 5])
def test_a_reply_that_breaks_off_is_asked_for_again(cut_at):
    """boto3 takes headers without their body for an empty success; a server may be killed between the two."""
    body = b'{"AvailableBalance": "12.50"}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.1\r\nContent-Length: %d\r\n\r\n" % len(
        body
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)

        def answer() -> None:
            for reply in (head + body[:cut_at], head + body):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with MTurkClient(url, keys=Keys("A", "B"), sleep=lambda seconds: None) as client:
            balance = client.balance()
        thread.join()

    assert balance == 1250


def test_amazons_hosts_are_reported_closed(monkeypatch):
    """Pointed at Amazon, a failure to connect says when Mechanical Turk closed."""

    def unresolvable(*arguments, **options):
        raise socket.gaierror("no name here")

    monkeypatch.setattr(socket, "getaddrinfo", unresolvable)
    url = "https://mturk-requester-sandbox.us-east-1.amazonaws.com"
    with (
        MTurkClient(url, keys=Keys("A", "B"), sleep=lambda seconds: None) as client,
        pytest.raises(EndpointError, match=r"closed Mechanical Turk on 30 September 2026.*mitl serve"),
    ):
        client.balance()


@pytest.mark.parametrize(
    ("url", "amazon"),
    [
        ("https://mturk-requester.us-east-1.amazonaws.com", True),
        ("https://amazonaws.com.evil.example", False),
        ("https://notamazonaws.com", False),
        ("http://127.0.0.1:8765", False),
    ],
)
def test_amazons_hosts_are_told_by_their_name(url, amazon):
    """By the end of the host name."""
    assert is_amazon(url) is amazon


def test_an_explicit_endpoint_needs_credentials(crowd, monkeypatch, tmp_path):
    """Without any in the AWS chain the message says what to set; a missing profile and odd settings are named."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    with MTurkClient(crowd.url) as client, pytest.raises(SettingsError, match="AWS_ACCESS_KEY_ID"):
        client.balance()
    monkeypatch.setenv("AWS_PROFILE", "missing")
    with pytest.raises(SettingsError, match="missing"):
        MTurkClient(crowd.url)
    monkeypatch.delenv("AWS_PROFILE")
    monkeypatch.setenv("AWS_RETRY_MODE", "always")
    with pytest.raises(SettingsError, match=r"AWS's settings cannot be used: .*\"always\""):
        MTurkClient(crowd.url)


@pytest.mark.parametrize("program", ["echo hello", "/no/such/program", '"unbalanced'])
def test_a_program_that_gives_no_credentials_is_not_blamed_on_the_address(
    crowd, tmp_path, monkeypatch, program
):
    """What is to be mended stands in AWS's configuration."""
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {program}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))

    with pytest.raises(SettingsError, match=r"AWS's settings cannot be used: .* AWS's configuration file"):
        MTurkClient(crowd.url)


def test_the_users_own_aws_settings_have_no_say(crowd, monkeypatch):
    """With mitl's keys neither AWS_PROFILE nor keys nor proxies of the environment are used."""
    monkeypatch.setenv("AWS_PROFILE", "missing")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAUSERSOWNKEY00000")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "users-own")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "users-own")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")

    with open_client(crowd.engine, crowd.url) as client:
        assert client.balance() == 1_000_000


class Faulty:
    """The server behind a bad line: each entry of ``plan`` is what befalls one API call."""

    def __init__(self, app, plan):
        self.app, self.plan, self.calls = app, list(plan), 0
        self.lock = threading.Lock()

    async def __call__(self, scope, receive, send):
        fault = None
        if scope["method"] == "POST" and scope["path"] == "/":
            with self.lock:
                self.calls += 1
                fault = self.plan.pop(0) if self.plan else None
        if fault == "throttle":
            await self.answer(send, 400, {"__type": "ThrottlingException", "message": "Rate exceeded"})
        elif fault == "fault":
            await self.answer(
                send,
                500,
                {"__type": "ServiceFault", "Message": "m", "TurkErrorCode": "AWS.ServiceUnavailable"},
            )
        elif fault == "lost":
            await self.app(scope, receive, self.nowhere)
            await self.answer(send, 500, {"__type": "ServiceFault", "Message": "m"})
        else:
            await self.app(scope, receive, send)

    @staticmethod
    async def nowhere(message):
        """Swallow a reply."""

    @staticmethod
    async def answer(send, status, body):
        headers = [(b"content-type", b"application/x-amz-json-1.1")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(body).encode()})


@pytest.mark.parametrize(
    "plan",
    [["fault", None], ["lost", None], ["throttle", "throttle", None], ["lost", "throttle", "lost", None]],
)
def test_no_fault_loses_or_doubles_a_hit(crowd_engine, plan):
    """Throttled, failed before the effect, or its reply lost after it: one HIT in the end."""
    faulty = Faulty(create_app(crowd_engine), [None, *plan])
    limiter = AdaptiveLimiter(sleep=lambda seconds: None)
    with RunningServer(faulty) as server, open_client(crowd_engine, server.url, limiter=limiter) as client:
        own = make_type(client)
        hit = make_hit(client, own)
        listed = list(client.list_hits())

    assert [one.hit_id for one in listed] == [hit]


def test_a_lasting_fault_is_reported(crowd_engine):
    """Four tries, then the error with its code."""
    faulty = Faulty(create_app(crowd_engine), ["fault"] * 9)
    with (
        RunningServer(faulty) as server,
        open_client(crowd_engine, server.url) as client,
        pytest.raises(CrowdError) as caught,
    ):
        client.balance()

    assert caught.value.code == "AWS.ServiceUnavailable"
    assert faulty.calls == 4


def test_a_lost_approval_counts_once(crowd_engine, crowd):
    """The reply is lost after the effect; the repeat finds the work approved."""
    hit = post_hit(crowd.boto())
    crowd.worker().do(hit["HITTypeId"])
    faulty = Faulty(create_app(crowd_engine, clock=crowd.clock), [None, "lost"])
    with RunningServer(faulty) as server, open_client(crowd_engine, server.url) as client:
        [own] = client.list_assignments(hit["HITId"])
        newly = client.approve(own.assignment_id)

    assert newly is False
    assert admin.payments(crowd_engine, SANDBOX, clock=crowd.clock)[0].approved == 1


class Time:
    """A clock that only sleeping moves."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_the_limiter_does_nothing_until_the_service_complains():
    """A service without a limit is never slowed down."""
    time = Time()
    limiter = AdaptiveLimiter(time, time.sleep)

    for _ in range(1000):
        limiter.wait()

    assert time.now == 0
    assert limiter.rate is None


@pytest.mark.parametrize("limit", [2, 10, 100])
def test_the_limiter_settles_near_the_services_limit(limit):
    """Against a token bucket of unknown rate most calls go through, at more than two thirds of the limit."""
    time = Time()
    limiter = AdaptiveLimiter(time, time.sleep)
    tokens, filled, passed, refused = float(limit), 0.0, 0, 0
    while time.now < 300:
        limiter.wait()
        time.now += 0.001
        tokens, filled = min(float(limit), tokens + (time.now - filled) * limit), time.now
        if tokens >= 1:
            tokens -= 1
            passed += 1
        else:
            refused += 1
            limiter.complain()

    assert passed / time.now > limit * 2 / 3
    assert refused < passed / 5


@given(st.integers(0, 10**9))
def test_money_goes_to_text_and_back(amount):
    """Cents are exact on the wire."""
    assert cents(dollars(amount)) == amount


def test_amounts_of_fewer_decimals_are_read():
    """MTurk's pattern allows 7, 7. and 7.5; zeros after the cents change nothing."""
    assert [cents(text) for text in ("7", "7.", "7.5", "7.05", "7.0500")] == [700, 700, 750, 705, 705]


@pytest.mark.parametrize("text", ["-0.50", "1.-5", "0.509", " 7", "1_0", "", "."])
def test_what_is_no_amount_is_not_read_as_one(text):
    """A debt of 50 cents is none of 50 cents to spend, and no part of a cent is dropped."""
    with pytest.raises(ValueError, match="not an amount"):
        cents(text)


def test_more_assignments_are_asked_for_once(client, hit_type):
    """The same token adds nothing more; ten are refused to a HIT of fewer, with MTurk's code."""
    hit_id = make_hit(client, hit_type)

    added = [client.extend(hit_id, 2, "more") for _ in range(2)]

    assert added == [True, False]
    [found] = client.list_hits()
    assert found.max_assignments == 3
    with pytest.raises(CrowdError) as caught:
        client.extend(hit_id, 7, "many")
    assert caught.value.code == "AWS.MechanicalTurk.InvalidMaximumAssignmentsIncrease"


def test_a_time_is_set_once_and_a_repeat_is_no_error(client, hit_type):
    """MTurk refuses the same time twice, which is a success where it still holds, and an error where it does not."""
    hit_id = make_hit(client, hit_type)
    when = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(days=20)

    assert [client.set_expiry(hit_id, when), client.set_expiry(hit_id, when)] == [True, False]
    assert client.get_hit(hit_id).expires_at == when


def test_a_qualification_is_taken_back_once(crowd, client):
    """Who holds it loses it; who does not, or never did, is not an error."""
    made = client.create_qualification_type("guard", "d")
    worker, stranger = crowd.worker(), crowd.worker()
    client.associate_qualification(made, worker.id)

    assert [client.revoke_qualification(made, worker.id) for _ in range(2)] == [True, False]
    assert client.revoke_qualification(made, stranger.id) is False


def test_bonuses_are_listed_with_amount_and_reason(crowd, client, hit_type):
    """By assignment and by HIT; two bonuses that are alike are two."""
    hit_id = make_hit(client, hit_type)
    crowd.worker().do(hit_type)
    [own] = client.list_assignments(hit_id)
    for token in ("a", "b"):
        client.bonus(own.assignment_id, own.worker_id, 125, "thank you", token=token)

    by_assignment = list(client.list_bonuses(assignment_id=own.assignment_id))
    by_hit = list(client.list_bonuses(hit_id=hit_id))

    assert by_assignment == by_hit
    assert [(one.worker_id, one.cents, one.reason) for one in by_hit] == [
        (own.worker_id, 125, "thank you")
    ] * 2


class Line:
    """A transport that gives the replies it was made with."""

    def __init__(self, *replies):
        self.replies = list(replies)

    def call(self, operation, read, **parameters):
        """What is read in the next reply."""
        return read(self.replies.pop(0))


def bonus(number):
    """A bonus as listed."""
    moment = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
    return {"AssignmentId": f"A{number}", "WorkerId": "W", "BonusAmount": "0.05", "GrantTime": moment}


def page(*numbers, following=None):
    """A page of a listing."""
    return {"BonusPayments": [bonus(number) for number in numbers], "NextToken": following}


def listing(*replies):
    """A client's calls over replies that were made before."""
    calls = MTurkClient.__new__(MTurkClient)
    calls._transport = Line(*replies)
    return calls


def test_a_page_that_comes_twice_is_read_once():
    """A repeated page neither doubles what is listed nor ends the listing."""
    calls = listing(page(1, 2, following="x"), page(1, 2, following="x"), page(3))

    assert [one.assignment_id for one in calls.list_bonuses(hit_id="H")] == ["A1", "A2", "A3"]


def test_a_listing_that_goes_in_circles_ends_with_an_error():
    """A server that gives the same page for ever is not asked for ever."""
    calls = listing(*[page(1, following="x")] * 20)

    with pytest.raises(CrowdError, match="again and again"):
        list(calls.list_bonuses(hit_id="H"))


def decided_worker(crowd, client):
    """Someone whose work was approved, so that messages may be sent to them."""
    own = make_type(client)
    hit_id = make_hit(client, own)
    crowd.worker().do(own)
    [found] = client.list_assignments(hit_id)
    client.approve(found.assignment_id)
    return found.worker_id


@pytest.mark.parametrize("fault", ["lost", "fault"])
def test_a_message_whose_reply_is_lost_is_not_sent_again(crowd, client, fault):
    """It takes no token, so a repeat would be a second letter: the error says that it may have arrived."""
    worker = decided_worker(crowd, client)
    faulty = Faulty(create_app(crowd.engine), [fault])
    with (
        RunningServer(faulty) as server,
        open_client(crowd.engine, server.url) as other,
        pytest.raises(CrowdError) as caught,
    ):
        other.notify(worker, "hello", "thank you")

    assert (caught.value.unclear, faulty.calls) == (True, 1)


def test_a_message_that_was_throttled_is_sent_when_the_line_is_free(crowd, client):
    """A refusal proves that nothing was sent."""
    worker = decided_worker(crowd, client)
    faulty = Faulty(create_app(crowd.engine), ["throttle", None])
    limiter = AdaptiveLimiter(sleep=lambda seconds: None)
    with RunningServer(faulty) as server, open_client(crowd.engine, server.url, limiter=limiter) as other:
        assert other.notify(worker, "hello", "thank you") is None

    assert faulty.calls == 2


def test_a_refusal_is_clear_and_a_lasting_fault_is_not(crowd_engine):
    """Whether the call may have had its effect, so that the journal knows."""
    faulty = Faulty(create_app(crowd_engine), ["fault"] * 4)
    with RunningServer(faulty) as server, open_client(crowd_engine, server.url) as client:
        with pytest.raises(CrowdError) as lasting:
            client.balance()
        with pytest.raises(CrowdError) as refused:
            client.expire("3" + "A" * 29)

    assert (lasting.value.unclear, refused.value.unclear) == (True, False)


def test_where_nobody_listens_nothing_can_have_happened():
    """A connection that was refused carried no request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with (
        MTurkClient(url, keys=Keys("A", "B"), sleep=lambda seconds: None) as client,
        pytest.raises(EndpointError) as caught,
    ):
        client.balance()

    assert caught.value.unclear is False


@pytest.fixture(scope="module")
def plain(shared_crowd):
    """A client that asks the server itself."""
    with open_client(shared_crowd.engine, shared_crowd.url) as one:
        yield one


@pytest.fixture(scope="module")
def worked(shared_crowd, plain):
    """Calls of every kind whose reply is read, by operation, on a HIT with two submissions and a bonus.

    They may be repeated as often as one likes.
    """
    client, hit_type = plain, make_type(plain)
    hit = make_hit(client, hit_type, max_assignments=3)
    for _ in range(2):
        shared_crowd.worker().do(hit_type)
    own, _ = client.list_assignments(hit)
    client.bonus(own.assignment_id, own.worker_id, 5, "r", token="b")
    client.approve(own.assignment_id)
    client.create_qualification_type("guard", "d")
    return {
        "GetAccountBalance": lambda of: of.balance(),
        "CreateHITType": make_type,
        "CreateHITWithHITType": lambda of: make_hit(of, hit_type, max_assignments=3),
        "GetHIT": lambda of: of.get_hit(hit),
        "ListHITs": lambda of: list(of.list_hits()),
        "ListAssignmentsForHIT": lambda of: list(of.list_assignments(hit)),
        "GetAssignment": lambda of: of.approve(own.assignment_id),
        "ListBonusPayments": lambda of: list(of.list_bonuses(hit_id=hit)),
        "ListQualificationTypes": lambda of: of.find_qualification_type("guard"),
        "CreateQualificationType": lambda of: of.create_qualification_type("guard", "d"),
        "UpdateExpirationForHIT": lambda of: of.expire(hit),
        "SendBonus": lambda of: of.bonus(own.assignment_id, own.worker_id, 5, "r", token="b"),
        "AssociateQualificationWithWorker": lambda of: of.associate_qualification(
            of.find_qualification_type("guard"), own.worker_id
        ),
    }


@pytest.fixture
def spoilt(shared_crowd):
    """A proxy before the server, and a client that goes through it."""
    limiter = AdaptiveLimiter(sleep=lambda seconds: None)
    with (
        FaultProxy(int(shared_crowd.url.rpartition(":")[2])) as proxy,
        open_client(shared_crowd.engine, f"http://127.0.0.1:{proxy.port}", limiter=limiter) as through,
    ):
        yield proxy, through


WITHOUT_REPLY = ("UpdateExpirationForHIT", "SendBonus", "AssociateQualificationWithWorker")
UNREADABLE = [
    fault_kinds.headers_cut,
    fault_kinds.reply_empty,
    fault_kinds.reply_null,
    fault_kinds.reply_mistyped,
    fault_kinds.signed_out,
]


@pytest.mark.parametrize("fault", UNREADABLE, ids=lambda fault: fault.__name__)
def test_a_reply_that_cannot_be_read_counts_as_lost(plain, worked, spoilt, fault, capsys):
    """It is asked for again; where none comes, one line says so, and that the call may have had its effect."""
    logs.set_up("test")
    proxy, through = spoilt
    for operation, call in worked.items():
        whole = call(plain)
        proxy.spoil(fault, f"{operation} 1")
        done = call(through)
        assert done == whole or (operation in WITHOUT_REPLY and done is True), operation
        assert f"{operation} 1" in proxy.seen

        proxy.spoil(fault, f"{operation} 1", lasting=True)
        try:
            call(through)
            assert operation in WITHOUT_REPLY, operation
        except CrowdError as error:
            assert "not the API's: " in str(error) and error.unclear, operation
    assert capsys.readouterr().err == ""


def places(value, way=()):
    """The ways to all members of a JSON value, and in lists to those of the last one."""
    if way:
        yield way
    rows = list(enumerate(value))[-1:] if isinstance(value, list) else ()
    inner = value.items() if isinstance(value, dict) else rows
    for name, member in inner:
        yield from places(member, (*way, name))


@pytest.mark.parametrize("damage", [None, [7], "", 1e30])
def test_no_member_of_a_reply_is_trusted_unseen(worked, spoilt, damage):
    """Whichever member is null or of another type: what the client reads is right, or is asked for again."""
    proxy, through = spoilt

    def spoil(way):
        def fault(proxy, request):
            reply = proxy.forward(request)
            members = json.loads(reply.body)
            *outer, name = way
            inner = functools.reduce(operator.getitem, outer, members)
            inner[name] = damage
            return fault_kinds.Reply(reply.status, reply.headers, json.dumps(members).encode())

        return fault

    def pass_on(proxy, request):
        replies.append(proxy.forward(request))
        return replies[-1]

    optional = {"RequesterAnnotation", "Reason", "NextToken"}
    replies = []
    for operation, call in worked.items():
        proxy.spoil(pass_on, f"{operation} 1")
        whole = call(through)
        for way in places(json.loads(replies[-1].body)) if replies[-1].status == 200 else ():
            if damage in (None, "") and optional & set(way):
                continue
            proxy.spoil(spoil(way), f"{operation} 1")
            assert call(through) == whole, (operation, way)
