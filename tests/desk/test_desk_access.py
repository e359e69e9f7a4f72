"""Who may look at the desk and who may decide there: this machine's browser, by the link, from its own pages."""

from __future__ import annotations

import asyncio
import re

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitl.desk.app import HEADERS, create_app
from mitl.desk.desk import Access, is_own_host, require_loopback
from mitl.errors import UsageError
from mitl.records import Decision

pytest_plugins = ("desk_fixtures",)

PAGES = ("/", "/workers", "/queue", "/state", "/image/1")


@pytest.mark.parametrize("path", [*PAGES, "/?token=", "/?token=wrong", "/nowhere"])
def test_without_the_link_nothing_is_shown(still, path):
    """A browser without the session gets one page that says where the link is, and no project's name."""
    reply = httpx.get(still.url + path, trust_env=False)

    assert reply.status_code == 403
    assert "Open the link that" in reply.text
    assert "quiet-study" not in reply.text
    assert still.desk.access.form not in reply.text


def test_the_link_opens_a_session_that_scripts_and_other_sites_cannot_use(still):
    """The cookie is for this host alone, hidden from scripts, and never sent along from another site's page."""
    reply = httpx.get(f"{still.url}/?token={still.desk.access.token}", trust_env=False)

    words = {word.strip().lower() for word in reply.headers["set-cookie"].split(";")}
    assert {"httponly", "samesite=strict", "path=/"} <= words
    assert still.desk.access.token not in reply.headers["set-cookie"]
    assert still.desk.access.token not in reply.text


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8766", "127.0.0.1:8766@evil", "x"],
)
def test_another_hosts_name_is_refused(still, host):
    """A name that was pointed at this machine (DNS rebinding) gets nothing, session or not."""
    reply = still.browser.get(still.url + "/", headers={"Host": host})

    assert reply.status_code == 421
    assert "<html" not in reply.text


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:9999", "127.0.0.1:1", "[::1]:8766", "LOCALHOST:8766", "127.5.5.5"]
)
def test_loopbacks_own_names_are_taken(host):
    """By any port, because people reach another machine's desk through a tunnel."""
    assert is_own_host(host)


@given(st.text(max_size=30))
def test_no_other_text_is_a_loopbacks_name(host):
    """Whatever a client writes there."""
    name = host.lower().rsplit(":", 1)[0] if host[-1:].isdigit() else host.lower()
    assert is_own_host(host) <= (name in ("localhost", "[::1]") or name.startswith("127."))


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://["},
        {"Origin": "", "Sec-Fetch-Site": "cross-site"},
    ],
)
@pytest.mark.parametrize("path", ["/queue/{}/decide", "/queue/{}/reverse", "/workers/1/message", "/send"])
def test_a_foreign_page_decides_nothing(still, headers, path):
    """Its form is refused, even with the right token in it."""
    row = still.rows(Decision.QUEUED)[0]

    reply = still.post(path.format(row.id), {"decision": "approve"}, **headers)

    assert reply.status_code == 403
    assert "Nothing was done" in reply.text
    assert still.row(row.id).decision is Decision.QUEUED


def test_a_form_without_this_desks_token_decides_nothing(still):
    """As one that was loaded before the desk was started again."""
    row = still.rows(Decision.QUEUED)[0]

    for token in ("", Access("x").form):
        reply = still.post(f"/queue/{row.id}/decide", {"decision": "approve", "form_token": token})
        assert reply.status_code == 403
    assert still.row(row.id).decision is Decision.QUEUED


def test_a_form_without_any_origin_decides_nothing(still):
    """Browsers say where a form comes from; what does not is not a browser."""
    row = still.rows(Decision.QUEUED)[0]
    fields = {"decision": "approve", "form_token": still.desk.access.form}

    reply = still.browser.post(f"{still.url}/queue/{row.id}/decide", data=fields)

    assert reply.status_code == 403


def test_every_answer_carries_the_policy_and_no_page_has_a_script_or_style_of_its_own(still):
    """Pages run the desk's own file and nothing else, so that hostile text cannot run."""
    queued = still.rows(Decision.QUEUED)[0]
    paths = [*PAGES, f"/queue/{queued.id}", f"/workers/{queued.worker_id}", "/static/desk.js", "/nowhere"]

    for path in paths:
        reply = still.get(path)
        assert {name: reply.headers[name] for name in HEADERS} == HEADERS, path
        assert not re.search(r"<script(?! src=)|\son\w+=|\sstyle=|<style|javascript:", reply.text), path
    assert still.get("/").headers["cache-control"] == "no-store"
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


def test_a_form_of_a_megabyte_is_refused(still):
    """Before it is read in full."""
    row = still.rows(Decision.QUEUED)[0]

    reply = still.post(f"/queue/{row.id}/decide", {"decision": "reject", "reason": "x" * 1_000_000})

    assert reply.status_code == 413


def test_a_form_that_breaks_off_is_no_failure(still):
    """A browser that is closed while it sends leaves no traceback in the log, and decides nothing."""
    row = still.rows(Decision.QUEUED)[0]
    access, told = still.desk.access, []
    cookie = f"{access.cookie}={access.session}".encode()
    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/queue/{row.id}/decide",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"cookie", cookie), (b"origin", b"http://127.0.0.1")],
    }
    sent = f"form_token={access.form}&decision=approve".encode()
    messages = iter([{"type": "http.request", "body": sent, "more_body": True}, {"type": "http.disconnect"}])

    async def receive():
        return next(messages)

    async def send(message):
        told.append(message)

    asyncio.run(create_app(still.desk)(scope, receive, send))

    assert told[0]["status"] == 403
    assert still.row(row.id).decision is Decision.QUEUED


@pytest.mark.parametrize(
    "path", ["/queue/999999", "/workers/999999", "/queue/99999999999999999999", "/queue/x"]
)
def test_unknown_numbers_are_told_in_a_line(still, path):
    """No traceback, and a way back."""
    reply = still.get(path)

    assert reply.status_code in (404, 409)
    assert '<a href="/">' in reply.text


def test_a_wrong_method_is_told(still):
    """Decisions are forms, not links."""
    row = still.rows(Decision.QUEUED)[0]

    assert still.get(f"/queue/{row.id}/decide?decision=approve").status_code == 405
    assert still.row(row.id).decision is Decision.QUEUED


@pytest.mark.parametrize("host", ["127.0.0.1", "127.5.5.5", "::1", "[::1]", "localhost"])
def test_loopback_addresses_are_listened_on(host):
    """In each of their spellings."""
    require_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "lab.example", ""])
def test_no_other_address_is_listened_on(host):
    """The message says how to reach the desk from elsewhere."""
    with pytest.raises(UsageError, match="ssh -L"):
        require_loopback(host)
