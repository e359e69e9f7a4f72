"""The outermost layer over HTTP: rates, sizes, slowness, hosts, proxies, and what every answer carries."""

from __future__ import annotations

import logging
import select
import socket
import time
from contextlib import ExitStack
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

import httpx
import pytest
from botocore.exceptions import ClientError
from crowd_kit import TYPE, engine_of, post_hit
from guarded_kit import TRUST, guarded_crowd
from hypothesis import given
from hypothesis import strategies as st

from mitl.addresses import parse_address
from mitl.crowd_server import serving as connections
from mitl.crowd_server.app import create_app
from mitl.crowd_server.middleware import limits as layer
from mitl.crowd_server.middleware.callers import RequestRate, TokenBuckets, key_of, parse_networks, sender
from mitl.crowd_server.middleware.limits import FORM_TYPES, BodyLimits, CallerRates, Policy, host_name
from mitl.errors import UsageError

pytest_plugins = ("crowd_fixtures",)

ONE_A_MINUTE = RequestRate(1 / 60, 3)
PROXIED = Policy(
    hosts=frozenset({"crowd.example.org"}),
    proxies=parse_networks(["127.0.0.1"]),
    only_by_proxy=True,
    public_scheme="https",
)


def get(url, **headers):
    """One request without a session."""
    return httpx.get(url, headers=headers, trust_env=False, verify=TRUST)


def exchange(url, data, *, pause_s=0.0):
    """Send bytes, the second half after a pause, and read until the server closes or says no more."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
        connection.sendall(data[: len(data) // 2])
        time.sleep(pause_s)
        connection.sendall(data[len(data) // 2 :])
        return connection.recv(65536)


@pytest.fixture(scope="module")
def guarded(crowd_template, tmp_path_factory):
    """A guarded server for tests that change nothing."""
    with (
        engine_of(crowd_template, tmp_path_factory.mktemp("guarded")) as engine,
        guarded_crowd(engine) as crowd,
    ):
        yield crowd


class Clock:
    """Seconds that a test moves."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        """The time."""
        return self.now


@given(st.lists(st.floats(0, 5), min_size=1, max_size=60), st.floats(0.1, 10), st.integers(1, 20))
def test_a_bucket_grants_its_burst_and_then_its_rate(gaps, per_second, burst):
    """However requests are spread, never more than the burst and what flowed in since are granted."""
    clock = Clock()
    buckets = TokenBuckets(RequestRate(per_second, burst), clock=clock)
    granted = 0
    for gap in gaps:
        clock.now += gap
        wait = buckets.take("one")
        granted += wait == 0
        assert granted <= burst + per_second * clock.now + 1e-6
        assert 0 <= wait <= 1 / per_second + 1e-9


@given(st.integers(1, 20), st.lists(st.integers(0, 40).map(str), max_size=80))
def test_made_up_keys_cost_bounded_memory(most, keys):
    """The keys used longest ago are forgotten."""
    buckets = TokenBuckets(RequestRate(1, 1), max_keys=most, clock=lambda: 0.0)
    for key in keys:
        buckets.take(key)
    assert len(buckets) <= most


def test_after_the_wait_there_is_a_token():
    """The wait that is told is long enough and no longer."""
    clock = Clock()
    buckets = TokenBuckets(RequestRate(0.5, 1), clock=clock)
    assert buckets.take("a") == 0
    wait = buckets.take("a")
    clock.now += wait

    assert wait == pytest.approx(2.0)
    assert buckets.take("a") == 0
    assert buckets.take("b") == 0


addresses = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).filter(
    lambda a: getattr(a, "ipv4_mapped", None) is None
)


@given(st.lists(st.one_of(addresses.map(str), st.text(max_size=12)), max_size=5), addresses)
def test_what_a_caller_claims_is_not_believed(claimed, peer):
    """Without a trusted proxy between, the sender is who connected, whatever the header says."""
    proxies = parse_networks(["192.0.2.1"])
    if peer == ip_address("192.0.2.1"):
        return
    assert sender(peer, ",".join(claimed), proxies) == peer
    assert sender(ip_address("192.0.2.1"), ",".join([*claimed, str(peer)]), proxies) == peer


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("", "10.0.0.1"),
        ("203.0.113.9", "203.0.113.9"),
        ("127.0.0.1, 203.0.113.9", "203.0.113.9"),
        ("1.1.1.1, 203.0.113.9, 10.0.0.7", "203.0.113.9"),
        ("203.0.113.9:4711", "203.0.113.9"),
        ("[2001:db8::7]:443", "2001:db8::7"),
        ("1.1.1.1, nonsense", "10.0.0.1"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("10.0.0.9", "10.0.0.9"),
    ],
)
def test_the_sender_is_the_last_one_that_is_no_proxy(header, found):
    """The list is read from its end, which our own proxies wrote."""
    assert str(sender(ip_address("10.0.0.1"), header, [ip_network("10.0.0.0/24")])) == found


def test_an_ipv6_customer_is_one_caller():
    """A /64 is one household; an IPv4 address in IPv6 clothes is itself."""
    assert key_of(parse_address("2001:db8::1")) == key_of(parse_address("2001:db8::ffff:2"))
    assert key_of(parse_address("2001:db8:0:1::1")) != key_of(parse_address("2001:db8::1"))
    assert key_of(parse_address("::ffff:192.0.2.1")) == "192.0.2.1"


@pytest.mark.parametrize("text", ["everybody", "0.0.0.0/0", "::/0", "10.0.0.300"])
def test_a_proxy_that_is_none_or_everybody_is_refused(text):
    """The line says what an address looks like."""
    with pytest.raises(UsageError, match="--trusted-proxy"):
        parse_networks([text])


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("Crowd.Example.org", "crowd.example.org"),
        ("crowd.example.org.:443", "crowd.example.org"),
        ("[::1]:80", "::1"),
        ("[::1]x", "[::1]x"),
        ("127.0.0.1:8765", "127.0.0.1"),
        ("evil.example:80@127.0.0.1", "evil.example:80@127.0.0.1"),
    ],
)
def test_a_host_is_compared_by_its_name(header, name):
    """Case, port and the final dot do not matter."""
    assert host_name(header) == name


def test_too_many_pages_get_a_plain_page_with_a_time(crowd_engine):
    """429 with Retry-After; pictures and the API have rates of their own."""
    with guarded_crowd(crowd_engine, rates=CallerRates(pages=ONE_A_MINUTE)) as crowd:
        pages = [get(crowd.url + "/w") for _ in range(4)]
        picture = get(crowd.url + "/i/none.png")
        balance = crowd.boto().get_account_balance()

    assert [page.status_code for page in pages] == [403, 403, 403, 429]
    assert 1 <= int(pages[3].headers["Retry-After"]) <= 60
    assert "reload" in pages[3].text and "<script" not in pages[3].text
    assert picture.status_code == 404
    assert balance["AvailableBalance"] == "10000.00"


def test_a_form_counts_as_a_page_whatever_its_address_begins_with(crowd_engine):
    """It writes, and files are asked for more often."""
    with guarded_crowd(crowd_engine, rates=CallerRates(pages=ONE_A_MINUTE)) as crowd:
        address = crowd.url + "/w/qualifications/static/request"
        replies = [httpx.post(address, trust_env=False, verify=TRUST).status_code for _ in range(4)]

    assert replies == [403, 403, 403, 429]


def test_too_many_calls_get_amazons_throttling(crowd_engine):
    """The code that clients written for MTurk wait and retry by."""
    with guarded_crowd(crowd_engine, rates=CallerRates(api=ONE_A_MINUTE)) as crowd:
        client = crowd.boto()
        for _ in range(3):
            client.get_account_balance()
        with pytest.raises(ClientError) as caught:
            client.get_account_balance()

    assert caught.value.response["Error"]["Code"] == "ThrottlingException"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_one_worker_who_asks_for_ever_slows_nobody_else(crowd_engine):
    """The session is counted, and the colleague behind the same address goes on."""
    with guarded_crowd(crowd_engine, rates=CallerRates(worker=RequestRate(1 / 60, 4))) as crowd:
        eager, other = crowd.worker(), crowd.worker()
        replies = [eager.get("/w").status_code for _ in range(6)]
        colleague = other.get("/w").status_code

    assert replies[:2] == [200, 200] and replies[-1] == 429
    assert colleague == 200


def test_twenty_people_behind_one_address_meet_no_limit(crowd_engine, tmp_path):
    """A class that starts together: each joins, accepts, opens its HIT and 20 pictures, and submits."""
    (tmp_path / "cat.png").write_bytes(b"\x89PNG")
    with guarded_crowd(crowd_engine, public=tmp_path) as crowd:
        client = crowd.boto()
        hit = post_hit(client, MaxAssignments=20)
        for _ in range(20):
            worker = crowd.worker()
            task = worker.accept(hit["HITTypeId"])
            assert task.page().status_code == 200
            assert {worker.get("/i/cat.png").status_code for _ in range(20)} == {200}
            assert task.submit(p01_label="yes").status_code == 200

        assert client.list_assignments_for_hit(HITId=hit["HITId"])["NumResults"] == 10


def test_behind_a_proxy_each_sender_is_counted_for_itself(crowd_engine):
    """A forged list does not make anybody a new sender."""
    with guarded_crowd(crowd_engine, PROXIED, rates=CallerRates(pages=ONE_A_MINUTE)) as crowd:

        def ask(address, forged=""):
            return get(crowd.url + "/w", **{"X-Forwarded-For": forged + address}).status_code

        first = [ask("203.0.113.1", f"198.51.100.{number}, ") for number in range(4)]
        second = ask("203.0.113.2")

    assert first == [403, 403, 403, 429]
    assert second == 403


def test_the_proxy_says_whether_the_first_leg_was_encrypted(crowd_engine):
    """https is what people use; who came by http is led there, and a form is turned away."""
    with guarded_crowd(crowd_engine, PROXIED) as crowd:
        name = {"Host": "crowd.example.org"}
        secure = get(crowd.url + "/w", **name)
        plain = get(crowd.url + "/w?notice=none", **name, **{"X-Forwarded-Proto": "http"})
        form = httpx.post(
            crowd.url + "/w/accept",
            headers=name | {"X-Forwarded-Proto": "http"},
            trust_env=False,
            verify=TRUST,
        )

    assert "Strict-Transport-Security" in secure.headers
    assert (plain.status_code, plain.headers["Location"]) == (308, "https://crowd.example.org/w?notice=none")
    assert "Strict-Transport-Security" not in plain.headers
    assert form.status_code == 403 and "https" in form.text


def test_plain_connections_past_the_proxy_are_turned_away(crowd_engine):
    """Only the proxy and this machine itself are answered."""
    policy = Policy(hosts=PROXIED.hosts, proxies=parse_networks(["192.0.2.1"]), only_by_proxy=True)

    class Stranger:
        """Claims to be elsewhere, as a connection from another machine would be."""

        def __init__(self, app):
            self.app = app

        async def __call__(self, scope, receive, send):
            await self.app(scope | {"client": ("203.0.113.5", 4711)}, receive, send)

    from mitl.crowd_server.middleware.limits import wrap
    from mitl.crowd_server.serving import RunningServer

    app = wrap(create_app(crowd_engine), policy)
    with RunningServer(Stranger(app)) as outside, RunningServer(app) as inside:
        assert get(outside.url + "/healthz").status_code == 403
        assert get(inside.url + "/healthz").status_code == 200
        assert get(inside.url + "/healthz", **{"X-Forwarded-For": "127.0.0.1"}).status_code == 403


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "X-Real-IP", "Via"])
def test_who_comes_through_a_proxy_that_nobody_named_is_counted(crowd_engine, name):
    """To the server all of them are one caller of this machine; programs of its own stay free."""
    rates = CallerRates(pages=ONE_A_MINUTE)
    with guarded_crowd(crowd_engine, exempt_loopback=True, rates=rates) as crowd:
        own = [get(crowd.url + "/w").status_code for _ in range(6)]
        passed_on = [get(crowd.url + "/w", **{name: "203.0.113.1"}).status_code for _ in range(6)]

    assert 429 not in own
    assert passed_on[-1] == 429


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost, evil.example"])
def test_another_name_is_not_this_server(guarded, host):
    """A page of another name that was pointed at this machine reads nothing and does nothing."""
    page = get(guarded.url + "/w", Host=host)
    call = httpx.post(guarded.url + "/", headers={"Host": host}, content=b"{}", trust_env=False, verify=TRUST)

    assert page.status_code == 421 and "evil" not in page.text
    assert call.json()["__type"] == "InvalidRequestException"


def test_every_address_of_loopback_is_this_server(guarded):
    """Nobody else can be reached by one, so that no page of another name is read through it."""
    for host in ("127.8.8.8:1", "localhost", "[::1]"):
        assert get(guarded.url + "/healthz", Host=host).status_code == 200
    assert get(guarded.url + "/healthz", Host="127.0.0.1]evil.example").status_code == 421


def test_ten_megabytes_get_amazons_refusal(crowd_engine):
    """A body of 10 MB is an error that boto3 understands, and the next call goes through."""
    with guarded_crowd(crowd_engine) as crowd:
        client = crowd.boto()
        with pytest.raises(ClientError) as caught:
            post_hit(client, Question="x" * 10_000_000)
        assert caught.value.response["Error"]["Code"] == "RequestEntityTooLargeException"
        assert client.get_account_balance()["AvailableBalance"] == "10000.00"


@pytest.mark.parametrize(
    ("kind", "size", "status"),
    [
        ("application/x-www-form-urlencoded", 3_000_000, 413),
        ("multipart/form-data; boundary=x", 3_000_000, 413),
        ("application/json", 70_000, 413),
        ("application/json", 60_000, 403),
        ("application/x-www-form-urlencoded", 100_000, 403),
    ],
)
def test_bodies_have_limits_by_their_kind(guarded, kind, size, status):
    """Forms up to 2 MiB, anything else up to 64 KiB, and a clear page beyond."""
    reply = httpx.post(
        guarded.url + "/w/accept",
        content=b"x" * size,
        headers={"Content-Type": kind},
        trust_env=False,
        verify=TRUST,
    )

    assert reply.status_code == status
    assert "<h1>" in reply.text
    if status == 413:
        assert "too much" in reply.text


def test_a_megabyte_of_rationale_gets_a_clear_page_and_loses_nothing(crowd_engine):
    """The worker is told to shorten it, and the shortened answer is taken."""
    with guarded_crowd(crowd_engine) as crowd:
        client = crowd.boto()
        hit = post_hit(client)
        task = crowd.worker().accept(hit["HITTypeId"])
        refused = task.submit(p01_text="x" * 1_000_000)
        taken = task.submit(p01_text="x" * 1000)

        assert refused.status_code == 413 and "too much to send" in refused.text
        assert taken.status_code == 200
        assert client.list_assignments_for_hit(HITId=hit["HITId"])["NumResults"] == 1


def test_a_body_that_drips_is_cut_off(crowd_engine):
    """A sender who stops in the middle is told so and let go."""
    head = b"POST /w/accept HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 400\r\n\r\n"
    with guarded_crowd(crowd_engine, bodies=BodyLimits(chunk_within_s=0.1)) as crowd:
        reply = exchange(crowd.url, head + b"x" * len(head))

    assert reply.startswith(b"HTTP/1.1 408")
    assert b"connection: close" in reply.lower()


def test_a_head_that_drips_is_cut_off(crowd_engine, monkeypatch):
    """A connection that never finishes its first line holds no place for ever; one that pauses shortly does."""
    with guarded_crowd(crowd_engine) as crowd:
        monkeypatch.setattr(connections.PatientProtocol, "head_within_s", 0.4)
        silent = exchange(crowd.url, b"")
        stuck = exchange(crowd.url, b"GET /healthz HTTP/1.1\r\nHo")
        monkeypatch.setattr(connections.PatientProtocol, "head_within_s", 20)
        slow = exchange(crowd.url, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", pause_s=0.1)

    assert (silent, stuck) == (b"", b"")
    assert slow.startswith(b"HTTP/1.1 200")


def test_bodies_together_have_a_limit(crowd_engine):
    """More than the server keeps in memory gets 503 and is welcome later."""
    with guarded_crowd(crowd_engine, bodies=BodyLimits(all_at_once=150_000)) as crowd:
        headers = {"Content-Type": FORM_TYPES[0]}
        replies = [
            httpx.post(
                crowd.url + "/w/accept", content=b"x" * size, headers=headers, trust_env=False, verify=TRUST
            )
            for size in (160_000, 140_000, 140_000)
        ]

    assert [reply.status_code for reply in replies] == [503, 403, 403]
    assert "Retry-After" in replies[0].headers


@pytest.mark.parametrize("size", [0, 150_000])
def test_one_caller_does_not_take_the_room_of_all_bodies(crowd_engine, monkeypatch, size):
    """Whoever begins many bodies, long ones or none of them, is refused more, and others are not."""
    limits, read = BodyLimits(all_at_once=1_000_000, one_caller=300_000), []

    class Watched(layer.Bodies):
        """Lets the test see how much is held."""

        def __init__(self, limits):
            super().__init__(limits)
            read.append(self._held)

    monkeypatch.setattr(layer, "Bodies", Watched)
    with guarded_crowd(crowd_engine, PROXIED, bodies=limits) as crowd, ExitStack() as stack:

        def begin(address):
            head = f"POST /w/accept HTTP/1.1\r\nHost: crowd.example.org\r\nX-Forwarded-For: {address}\r\n"
            head += f"Content-Type: {FORM_TYPES[0]}\r\nContent-Length: 200000\r\n\r\n"
            where, taken = urlsplit(crowd.url), read[0].total() + max(size, limits.least)
            sender = stack.enter_context(socket.create_connection((where.hostname, where.port), timeout=20))
            sender.sendall(head.encode() + b"x" * size)
            while read[0].total() < taken:
                if select.select([sender], [], [], 0.01)[0]:
                    return sender.recv(12)
            return b"taken"

        first = [begin("203.0.113.1") for _ in range(5)]
        other = begin("203.0.113.2")

    assert first == [b"taken"] * (2 if size else 4) + [b"HTTP/1.1 503"] * (3 if size else 1)
    assert other == b"taken"


@pytest.mark.parametrize(
    "path", ["/w", "/healthz", "/i/none.png", "/w/static/style.css", "/nowhere", "/operator"]
)
def test_every_answer_forbids_guessing_and_framing(guarded, path):
    """Whatever a page forgot, the outermost layer adds; no answer may be shown in another site's frame."""
    headers = get(guarded.url + path).headers

    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] in ("same-origin", "no-referrer")
    assert len(headers["X-Request-Id"]) == 36
    assert "server" not in headers and "Strict-Transport-Security" not in headers


def test_the_log_has_numbers_and_kinds_of_pages_and_nothing_of_anybody(crowd_engine, caplog):
    """A worker's whole path and a requester's calls leave no token, id, key, answer or query in the log."""
    with caplog.at_level(logging.DEBUG), guarded_crowd(crowd_engine) as crowd:
        client = crowd.boto()
        hit = post_hit(client)
        worker = crowd.worker()
        worker_id = worker.id
        task = worker.accept(hit["HITTypeId"])
        task.page()
        task.submit(p01_text="the-answer")
        worker.get("/w?notice=none&secret-query=1")
        worker.get("/made/up/address")
        request_id = get(crowd.url + "/healthz").headers["X-Request-Id"]
        cookie = next(iter(worker.browser.cookies.jar)).value

    ours = "\n".join(
        record.getMessage() for record in caplog.records if record.name.startswith(("mitl", "uvicorn"))
    )
    assert request_id in ours
    for kind in (
        "POST /w/accept 303",
        "GET /w/a/{token}/frame 200",
        "/s/{token}/mturk/externalSubmit",
        "(no page)",
    ):
        assert kind in ours
    assert "POST CreateHITWithHITType 200" in ours
    for private in (
        task.token,
        worker_id,
        cookie,
        "the-answer",
        "secret-query",
        "made",
        TYPE["Title"],
        "join/",
    ):
        assert private not in ours.replace("/w/join/{token}", "")
