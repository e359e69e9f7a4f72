"""What `mitl serve` demands before it listens beyond this machine, and TLS end to end."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

import httpx
import pytest
from sqlalchemy import update

from mitl.addresses import is_loopback
from mitl.crowd import worker_session
from mitl.crowd_server import admin
from mitl.crowd_server.app import create_app
from mitl.crowd_server.middleware.callers import RequestRate
from mitl.crowd_server.middleware.exposure import Tls, check_secrets, listens_near, plan
from mitl.crowd_server.middleware.limits import CallerRates, wrap
from mitl.crowd_server.serving import RunningServer
from mitl.crowd_server.store.models import Account, Setting
from mitl.errors import MitlError, SettingsError, UsageError
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)

URL = "https://crowd.example.org"


@pytest.fixture(scope="session")
def tls(tmp_path_factory):
    """A certificate of this machine's own, good for a day."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes a certificate for the test, is missing")
    folder = tmp_path_factory.mktemp("tls")
    found = Tls(folder / "cert.pem", folder / "key.pem")
    words = (
        f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {found.key} "
        f"-out {found.certificate} -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1"
    )
    subprocess.run(["openssl", *words.split()], check=True, capture_output=True)
    return found


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("192.0.2.7", False),
        ("no-such-host.invalid", False),
    ],
)
def test_this_machine_alone_is_told_from_the_network(host, local):
    """Whatever is not surely loopback counts as open."""
    assert listens_near(host) is local


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:8765", True),
        ("http://127.8.8.8", True),
        ("https://LOCALHOST:1/w", True),
        ("http://[::1]:8765", True),
        ("http://128.0.0.1", False),
        ("http://127.0.0.1.example.org", False),
        ("http://localhost.example.org", False),
        ("/w", False),
        ("http://[::1", False),
    ],
)
def test_an_address_on_this_machine_is_told_by_its_name_alone(url, local):
    """All of 127.0.0.0/8, for clients and servers alike; no name is looked up."""
    assert is_loopback(url) is local


@pytest.mark.parametrize(
    ("host", "options", "wanted"),
    [
        ("0.0.0.0", {}, "--tls-cert"),
        ("192.0.2.7", {"public_url": URL}, "--tls-cert"),
        ("::", {"trusted_proxies": ["10.0.0.2"]}, "--plain-http-behind-proxy"),
        ("127.0.0.1", {"public_url": URL}, "--plain-http-behind-proxy"),
        ("127.0.0.1", {"trusted_proxies": ["127.0.0.1"]}, "--plain-http-behind-proxy"),
        ("127.0.0.1", {"plain_http_behind_proxy": True}, "--public-url"),
        (
            "127.0.0.1",
            {"plain_http_behind_proxy": True, "public_url": "http://crowd.example.org"},
            "https://",
        ),
        ("0.0.0.0", {"plain_http_behind_proxy": True, "public_url": URL}, "--trusted-proxy"),
        ("127.0.0.1", {"public_url": "crowd.example.org"}, "https://NAME"),
        ("127.0.0.1", {"public_url": URL + "/w"}, "https://NAME"),
        ("127.0.0.1", {"public_url": "https://user@crowd.example.org"}, "https://NAME"),
        ("127.0.0.1", {"public_url": "https://crowd.example.org:port"}, "https://NAME"),
        ("127.0.0.1", {"public_url": "https://b\u00fccher.example"}, "xn--"),
    ],
)
def test_an_open_server_without_protection_is_refused_in_one_line(host, options, wanted):
    """The line says which option is lacking."""
    with pytest.raises(UsageError) as caught:
        plan(host, **options)

    assert wanted in str(caught.value) and "\n" not in str(caught.value)


def test_half_a_pair_of_tls_files_is_refused(tls):
    """Certificate and key belong together, and exclude the proxy's option."""
    with pytest.raises(UsageError, match="belong together"):
        plan("127.0.0.1", tls_cert=tls.certificate)
    with pytest.raises(UsageError, match="exclude each other"):
        plan("127.0.0.1", tls_cert=tls.certificate, tls_key=tls.key, plain_http_behind_proxy=True)
    with pytest.raises(UsageError, match="--public-url"):
        plan("0.0.0.0", tls_cert=tls.certificate, tls_key=tls.key)
    with pytest.raises(UsageError, match="not https"):
        plan("0.0.0.0", tls_cert=tls.certificate, tls_key=tls.key, public_url="http://crowd.example.org")


def test_tls_files_that_cannot_be_used_are_refused_before_listening(tls, tmp_path):
    """Missing, open to everybody, no PEM, encrypted, or not the certificate's key: one line each."""
    wrong = {"gone": "does not exist", "open": "chmod 600", "noise": "PEM", "locked": "without a password"}
    shutil.copy(tls.key, tmp_path / "open")
    (tmp_path / "open").chmod(0o644)
    (tmp_path / "noise").write_text("no key")
    (tmp_path / "noise").chmod(0o600)
    subprocess.run(
        ["openssl", "ec", "-aes256", "-passout", "pass:secret", "-in", tls.key, "-out", tmp_path / "locked"],
        check=True,
        capture_output=True,
    )
    for name, words in wrong.items():
        with pytest.raises(SettingsError, match=words) as caught:
            plan("127.0.0.1", tls_cert=tls.certificate, tls_key=tmp_path / name)
        assert "\n" not in str(caught.value)


def test_the_ways_to_open_a_server():
    """Behind a proxy on this machine or another, the names and the proxies are those that were given."""
    near = plan("127.0.0.1", plain_http_behind_proxy=True, public_url=URL + "/")
    far = plan("0.0.0.0", plain_http_behind_proxy=True, public_url=URL, trusted_proxies=["10.0.0.2"])
    alone = plan("127.0.0.1")

    assert near.public_url == URL and near.is_public and near.policy.only_by_proxy
    assert ip_network("127.0.0.0/8") in near.proxies
    assert far.proxies == (ip_network("10.0.0.2/32"),)
    assert far.policy.hosts == {"crowd.example.org"}
    assert far.policy.public_scheme == "https"
    assert not alone.is_public and alone.policy.exempt_loopback and not alone.proxies


def test_secrets_fit_for_a_network_are_those_that_the_server_made(crowd_engine):
    """A new database passes; one that others may read, or whose secret is short or missing, does not."""
    check_secrets(crowd_engine)
    path = Path(crowd_engine.url.database)
    path.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        check_secrets(crowd_engine)
    path.chmod(0o600)

    for change in (
        update(Setting).where(Setting.name == "secret").values(value="short"),
        update(Account).where(Account.environment == Environment.LIVE).values(secret_key=""),
    ):
        with crowd_engine.connect() as connection:
            connection.execute(change)
            connection.commit()
        with pytest.raises(SettingsError, match="secret or key pair"):
            check_secrets(crowd_engine)


def test_over_tls_cookies_are_secure_and_browsers_are_told_to_stay(crowd_engine, tls):
    """A worker joins over https: Secure, HttpOnly, SameSite, and HSTS on every answer."""
    exposure = plan("127.0.0.1", tls_cert=tls.certificate, tls_key=tls.key)
    [invitation] = admin.invite(crowd_engine, Environment.SANDBOX)
    trust = ssl.create_default_context(cafile=str(tls.certificate))
    with RunningServer(wrap(create_app(crowd_engine), exposure.policy), tls=tls) as server:
        url = server.url
        reply = httpx.get(url + invitation.path, verify=trust, trust_env=False)

    assert url.startswith("https://")
    assert reply.status_code == 303
    cookie = reply.headers["Set-Cookie"].lower()
    assert all(flag in cookie for flag in ("secure", "httponly", "samesite=lax", "path=/w"))
    assert reply.headers["Strict-Transport-Security"].startswith("max-age=")


def test_scripted_workers_work_past_the_proxy_and_wait_where_they_come_too_often(
    crowd, hit_type, monkeypatch
):
    """On the machine of a server behind a proxy `mitl simulate` speaks plain HTTP, and keeps its session.

    People who come by the proxy use https all the same.
    """
    now = [0.0]
    monkeypatch.setattr(worker_session.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    behind = plan("127.0.0.1", plain_http_behind_proxy=True, public_url=URL).policy
    rates = CallerRates(pages=RequestRate(1, 1))
    [invitation] = admin.invite(crowd.engine, Environment.SANDBOX, clock=crowd.clock)
    app = create_app(crowd.engine, clock=crowd.clock)
    with (
        RunningServer(wrap(app, replace(behind, rates=rates, clock=lambda: now[0]))) as server,
        httpx.HTTPTransport() as transport,
    ):
        url = server.url
        session = worker_session.WorkerSession.join(url + invitation.path, transport)
        task = session.next_task()
        relayed = httpx.get(url, headers={"X-Forwarded-For": "192.0.2.7"}, trust_env=False)

    assert task is not None and task.submit_to.startswith(url)
    assert now[0] > 0
    assert "Strict-Transport-Security" in relayed.headers


def test_every_refusal_is_of_the_tree_that_the_command_line_prints(tls):
    """One line and an exit status, no traceback."""
    with pytest.raises(MitlError) as caught:
        plan("203.0.113.7")
    assert caught.value.exit_status == 2
