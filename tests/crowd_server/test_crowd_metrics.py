"""`/metrics` and `/healthz`: what machines ask of the crowd server, and who may."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
from crowd_kit import TYPE, post_hit
from guarded_kit import guarded_crowd
from hypothesis import given
from hypothesis import strategies as st

from mitl.crowd_server import admin
from mitl.crowd_server.middleware.callers import parse_networks
from mitl.crowd_server.middleware.meter import BUCKETS_S, OTHER, Meter, MetricSample, metric

pytest_plugins = ("crowd_fixtures",)

FORWARDING = ("X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "X-Real-IP", "Via")
SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\})? (\S+)')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\.)*)"')


def parsed(page):
    """Name and labels → value; every line must be one of the format's three kinds, every metric be announced."""
    found, types = {}, {}
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types
            types[name] = kind
        elif not line.startswith("# HELP "):
            match = SAMPLE.fullmatch(line)
            assert match, line
            name, labels, value = match.groups()
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            assert name in types or types[base] == "histogram"
            key = (name, frozenset(LABEL.findall(labels or "")))
            assert key not in found
            found[key] = float(value)
    assert page.endswith("\n")
    return found


def value(found, name, **labels):
    """One sample."""
    return found[name, frozenset(labels.items())]


def test_a_part_of_an_address_counts_by_its_name_whatever_it_says(crowd_engine):
    """Also where it says what another part of the address says, or nothing."""
    with guarded_crowd(crowd_engine) as crowd:
        get = crowd.browser().get
        for path in ("/p/p", "/w/join/w", "/w/vendored/"):
            get(crowd.url + path)
        page = get(crowd.url + "/metrics").text

    for kind in ("/p/{slug}", "/w/join/{token}", "/w/vendored/{address}"):
        assert value(parsed(page), "mitl_http_requests_total", kind=kind, method="GET", status="404") == 1


def test_the_numbers_are_those_of_the_crowd(either_crowd):
    """HITs, assignments, workers and money by environment and state."""
    client = either_crowd.boto()
    for _ in range(2):
        hit = post_hit(client, MaxAssignments=1)
    either_crowd.worker().accept(hit["HITTypeId"]).submit(p01_label="yes")
    either_crowd.worker().accept(hit["HITTypeId"])

    reply = either_crowd.browser().get(either_crowd.url + "/metrics")

    assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    found = parsed(reply.text)
    sandbox = {"environment": "sandbox"}
    assert value(found, "mitl_crowd_hits", state="open", **sandbox) == 1
    assert value(found, "mitl_crowd_hits", state="done", **sandbox) == 1
    assert value(found, "mitl_crowd_hits", state="open", environment="live") == 0
    assert value(found, "mitl_crowd_assignments", state="submitted", **sandbox) == 1
    assert value(found, "mitl_crowd_assignments", state="accepted", **sandbox) == 1
    assert value(found, "mitl_crowd_workers", **sandbox) == 2
    held = 100 * float(TYPE["Reward"]) * 2
    assert value(found, "mitl_crowd_money_cents", account="held", **sandbox) == pytest.approx(held)


def test_requests_are_counted_by_kind_and_outcome(crowd_engine):
    """Refused ones too; an address that somebody made up, and an operation, make no line of their own."""
    with guarded_crowd(crowd_engine) as crowd:
        post_hit(crowd.boto())
        get = crowd.browser().get
        for path in ("/w", "/w/join/none", "/made/up/1", "/made/up/2", "/healthz", "/healthz"):
            get(crowd.url + path)
        get(crowd.url + "/healthz", headers={"Host": "elsewhere.example"})
        crowd.browser().post(
            crowd.url, headers={"X-Amz-Target": "MTurkRequesterServiceV20170117.InventedByMe"}, content="{}"
        )
        page = get(crowd.url + "/metrics").text

    found = parsed(page)
    assert value(found, "mitl_http_requests_total", kind="/healthz", method="GET", status="200") == 2
    assert value(found, "mitl_http_requests_total", kind="/w/join/{token}", method="GET", status="404") == 1
    assert (
        value(found, "mitl_http_requests_total", kind="CreateHITWithHITType", method="POST", status="200")
        == 1
    )
    assert value(found, "mitl_http_request_duration_seconds_count", kind="/healthz") == 2
    assert value(found, "mitl_http_requests_running") == 1
    assert (
        sum(n for (name, labels), n in found.items() if name.endswith("_total") and ("kind", OTHER) in labels)
        == 4
    )
    assert not re.search("made/up|InventedByMe|elsewhere", page)


def test_metrics_name_nobody(crowd):
    """No worker, no HIT, no key, no title."""
    hit = post_hit(crowd.boto())
    worker = crowd.worker()
    worker_id = worker.id
    task = worker.accept(hit["HITTypeId"])
    task.submit(p01_label="yes")

    page = crowd.browser().get(crowd.url + "/metrics").text

    keys = [key for pair in admin.keys(crowd.engine).values() for key in pair]
    for private in (
        worker_id,
        hit["HITId"],
        task.token,
        TYPE["Title"],
        admin.operator_token(crowd.engine),
        *keys,
    ):
        assert private not in page


def test_from_elsewhere_metrics_need_the_operators_token(crowd_engine):
    """Through a proxy the sender counts, not the proxy that speaks for it from this machine."""
    proxies = parse_networks(("127.0.0.0/8",))
    with guarded_crowd(crowd_engine, proxies=proxies, public_scheme="http") as crowd:
        get = crowd.browser().get
        address = crowd.url + "/metrics"
        outside = {"X-Forwarded-For": "203.0.113.7"}
        token = admin.operator_token(crowd_engine)
        answers = {
            "here": get(address),
            "there": get(address, headers=outside),
            "claims to be here": get(address, headers={"X-Forwarded-For": "127.0.0.1, 203.0.113.7"}),
            "wrong token": get(address, headers=outside | {"Authorization": f"Bearer {token[:-1]}"}),
            "no bearer": get(address, headers=outside | {"Authorization": token}),
            "token": get(address, headers=outside | {"Authorization": f"Bearer {token}"}),
        }

    assert {name: reply.status_code for name, reply in answers.items()} == {
        "here": 200,
        "there": 403,
        "claims to be here": 403,
        "wrong token": 403,
        "no bearer": 403,
        "token": 200,
    }
    assert "mitl_" not in answers["there"].text


@pytest.mark.parametrize("name", FORWARDING)
@pytest.mark.parametrize("known", [False, True], ids=["a proxy nobody named", "a trusted proxy"])
def test_what_a_proxy_passes_on_is_not_of_this_machine(crowd_engine, name, known):
    """A proxy on this machine has its address, and whoever it speaks for may claim any."""
    proxies = parse_networks(("127.0.0.0/8",)) if known else ()
    with guarded_crowd(crowd_engine, proxies=proxies, public_scheme="http") as crowd:
        get = crowd.browser().get
        address = crowd.url + "/metrics"
        bearer = {"Authorization": f"Bearer {admin.operator_token(crowd_engine)}"}
        here = get(address)
        passed_on = [get(address, headers={name: text}) for text in ("127.0.0.1", "1.1 proxy", "")]
        with_token = get(address, headers={name: "127.0.0.1"} | bearer)

    assert here.status_code == 200
    assert [reply.status_code for reply in passed_on] == [403, 403, 403]
    assert not any("mitl_" in reply.text for reply in passed_on)
    assert with_token.status_code == 200


def test_healthz_says_when_the_database_is_gone(crowd):
    """503 for whatever restarts or alarms; the id stays in the answer."""
    assert crowd.browser().get(crowd.url + "/healthz").json()["status"] == "ok"
    crowd.engine.dispose()
    with Path(crowd.engine.url.database).open("r+b") as file:
        file.write(b"no database any more" * 10)

    reply = crowd.browser().get(crowd.url + "/healthz")

    assert reply.status_code == 503
    assert reply.json()["status"] == "no database" and reply.json()["server_id"]


def test_many_threads_count_every_request():
    """No request is lost or counted twice, and none is left running."""
    meter = Meter(["/w"])

    def work():
        for _ in range(500):
            meter.begin()
            meter.end("/w", "GET", 200, 0.02)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = parsed(meter.text())
    assert value(found, "mitl_http_requests_total", kind="/w", method="GET", status="200") == 4000
    assert value(found, "mitl_http_requests_running") == 0


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50))
def test_a_histograms_buckets_hold_what_is_not_longer(seconds):
    """Each bucket counts what took up to its bound; the last one counts all."""
    meter = Meter(["/w"])
    for one in seconds:
        meter.begin()
        meter.end("/w", "GET", 200, one)

    found = parsed(meter.text())

    for bound in BUCKETS_S:
        count = sum(one <= bound for one in seconds)
        assert value(found, "mitl_http_request_duration_seconds_bucket", kind="/w", le=str(bound)) == count
    assert value(found, "mitl_http_request_duration_seconds_bucket", kind="/w", le="+Inf") == len(seconds)
    assert value(found, "mitl_http_request_duration_seconds_sum", kind="/w") == pytest.approx(sum(seconds))


@given(st.lists(st.text(max_size=8), max_size=40), st.text(max_size=12))
def test_whatever_callers_send_makes_no_new_label(kinds, method):
    """Kinds and methods are few and known beforehand."""
    meter = Meter(["/w", "GetHIT"])
    for kind in kinds:
        meter.begin()
        meter.end(kind, method, 404, 0.0)

    labels = [dict(LABEL.findall(line)) for line in meter.text().splitlines() if not line.startswith("#")]

    assert {one["kind"] for one in labels if "kind" in one} <= {"/w", "GetHIT", OTHER}
    assert {one["method"] for one in labels if "method" in one} <= {"GET", "HEAD", "POST", OTHER}


@given(st.text(max_size=20))
def test_any_label_is_written_so_that_it_is_read_back(label):
    """Quotes, backslashes and line ends are escaped."""
    page = metric("m", "gauge", "h\\e\nlp", [MetricSample(1.5, {"a": label})])

    help_line, _, line, rest = page.split("\n")
    match = SAMPLE.fullmatch(line)
    assert match and rest == "" and match[3] == "1.5"
    assert help_line == "# HELP m h\\\\e\\nlp"
    ((_, written),) = LABEL.findall(match[2])
    unescaped = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
    assert re.sub(r'\\[\\"n]', lambda found: unescaped[found[0]], written) == label
