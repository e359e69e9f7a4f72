"""Endpoints whose certificate is refused, and the files that name authorities of one's own."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest
from cli_kit import fails, ok
from crowd_kit import give_keys
from harvest_kit import make_asked, submissions
from process_kit import free_port, project_settings
from tls_kit import Authority, self_signed
from world_kit import SANDBOX

from mitl.crowd.client import Keys, MTurkClient
from mitl.crowd.endpoint import open_endpoint
from mitl.crowd_server import admin
from mitl.crowd_server.app import create_app
from mitl.crowd_server.serving import RunningServer
from mitl.db.engine import make_engine
from mitl.errors import EndpointError, SettingsError
from mitl.records import Decision, Environment
from mitl.settings import load
from mitl.stages.hits.simulate import simulate

pytest_plugins = ("crowd_fixtures",)

HERE = "DNS:localhost,IP:127.0.0.1"
VARIABLES = ("SSL_CERT_FILE", "AWS_CA_BUNDLE")
# What is wrong → how the certificate is made, what either library finds, what to do about it.
WRONG = {
    "authority": (
        {"names": HERE},
        "unable to get local issuer certificate",
        "SSL_CERT_FILE and AWS_CA_BUNDLE",
    ),
    "name": ({"names": "DNS:crowd.example.org"}, "127.0.0.1", "--endpoint-url"),
    "expired": (
        {"names": HERE, "start": "20200101000000Z", "end": "20200201000000Z"},
        "certificate has expired",
        "renew it",
    ),
    "early": ({"names": HERE, "start": "20990101000000Z"}, "certificate is not yet valid", "clock"),
}


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    """No setting of the machine reaches a test."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    """An authority that nobody knows."""
    return Authority(tmp_path_factory.mktemp("tls") / "authority")


@pytest.fixture(scope="module")
def certificates(authority):
    """A certificate for each thing that can be wrong."""
    return {label: authority.sign(label, **how) for label, (how, _, _) in WRONG.items()}


@contextlib.contextmanager
def over_tls(engine, tls) -> Iterator[str]:
    """The address of a crowd server that shows this certificate."""
    with RunningServer(create_app(engine), tls=tls) as server:
        yield server.url


def trust(monkeypatch, path, names=VARIABLES):
    """Name a file of authorities in these variables."""
    for name in names:
        monkeypatch.setenv(name, str(path))


def client_of(engine, url):
    """A client that does not really wait."""
    return MTurkClient(url, keys=Keys(*admin.keys(engine)[SANDBOX]), sleep=lambda seconds: None)


def seen(url, tmp_path):
    """What the check of an explicit endpoint says."""
    with (
        pytest.raises(EndpointError) as caught,
        open_endpoint(load(tmp_path, environ={}, endpoint_url=url), Environment.LIVE),
    ):
        pass
    return caught.value


@pytest.mark.parametrize("label", WRONG)
def test_what_is_wrong_with_a_certificate_is_one_clear_line(
    label, certificates, authority, crowd_engine, tmp_path, monkeypatch
):
    """Both libraries say what they found and what to do; what cannot have been sent is not called unclear."""
    _, found, remedy = WRONG[label]
    if label != "authority":
        trust(monkeypatch, authority.certificate)
    with over_tls(crowd_engine, certificates[label]) as url, client_of(crowd_engine, url) as client:
        first = seen(url, tmp_path)
        with pytest.raises(EndpointError) as second:
            client.notify("A" * 14, "a letter", "that would be sent twice")

    for error in (first, second.value):
        message = str(error)
        assert message.startswith(f"the TLS certificate of {url} cannot be verified: ")
        assert found in message and remedy in message
        assert ("AWS_CA_BUNDLE" in message) is (label == "authority")
        assert "nothing answers" not in message and "\n" not in message
        assert (error.exit_status, error.unclear) == (1, False)
    for secret in (secret for pair in admin.keys(crowd_engine).values() for secret in pair):
        assert secret not in str(second.value)


def test_a_certificate_that_signed_itself_is_named_so_and_can_be_trusted(crowd_engine, tmp_path, monkeypatch):
    """It is its own authority."""
    tls = self_signed(tmp_path, HERE)
    with over_tls(crowd_engine, tls) as url:
        refused = seen(url, tmp_path)
        trust(monkeypatch, tls.certificate)
        with client_of(crowd_engine, url) as client:
            assert client.balance() == 1_000_000
        with open_endpoint(load(tmp_path, environ={}, endpoint_url=url), Environment.LIVE) as endpoint:
            assert endpoint.server_id == admin.server_id(crowd_engine)

    assert "self-signed certificate" in str(refused).replace("self signed", "self-signed")


@pytest.mark.parametrize("content", [None, "no certificate\n", "folder"])
def test_a_file_of_authorities_that_cannot_be_read_is_named(
    content, certificates, crowd_engine, tmp_path, monkeypatch
):
    """Missing, of no use, or the folder that a container's mount of a missing file makes."""
    path = tmp_path / "authority.crt"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_text(content)
    trust(monkeypatch, path)
    with over_tls(crowd_engine, certificates["authority"]) as url:
        with pytest.raises(SettingsError, match="SSL_CERT_FILE") as first:
            open_endpoint(load(tmp_path, environ={}, endpoint_url=url), Environment.LIVE).__enter__()
        with pytest.raises(SettingsError, match="AWS_CA_BUNDLE") as second:
            client_of(crowd_engine, url)

    for caught in (first, second):
        assert repr(str(path)) in str(caught.value) and "\n" not in str(caught.value)


def test_a_command_on_this_machine_does_not_read_them(tmp_path, monkeypatch):
    """mitl's own server inside the process has no certificate."""
    trust(monkeypatch, tmp_path / "gone")
    with open_endpoint(load(tmp_path, environ={}), SANDBOX, port=free_port()) as endpoint:
        assert endpoint.client().balance() == 1_000_000


def test_a_line_that_breaks_after_the_request_stays_unclear(certificates, authority, monkeypatch):
    """TLS may fail in the middle of a reply too, when the call may have had its effect."""
    trust(monkeypatch, authority.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates["authority"].certificate, certificates["authority"].key)
    received = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)

        def answer() -> None:
            connection, _ = listener.accept()
            with context.wrap_socket(connection, server_side=True) as line:
                received.append(line.recv(1 << 16))
                # Plain text where a TLS record should be; a socket closed with bytes unread would be reset instead.
                os.write(line.fileno(), b"HTTP/1.1 200 OK\r\n\r\n")
                with contextlib.suppress(OSError):
                    while os.read(line.fileno(), 1 << 16):
                        pass

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with (
            MTurkClient(url, keys=Keys("A", "B"), sleep=lambda seconds: None) as client,
            pytest.raises(EndpointError, match="SSLError") as caught,
        ):
            client.notify("A" * 14, "hello", "thank you")
        thread.join()

    assert received[0].startswith(b"POST /")
    assert caught.value.unclear is True


def test_a_command_works_once_both_variables_are_set(certificates, authority, tmp_path, monkeypatch):
    """With none or one of them the line names both and nothing is fetched or paid; then the same command does both.

    Invitations say the same of the address where their links point, and are made all the same.
    """
    settings = project_settings(make_asked(tmp_path / "p"))
    simulate(settings, SANDBOX)
    engine = make_engine(settings.crowd_db_url)
    keys = give_keys(engine, monkeypatch)
    with (settings.project / "mitl.toml").open("a") as config:
        config.write('\n[crowd]\nenvironment = "sandbox"\n')
    with over_tls(engine, certificates["authority"]) as url:
        command = ("harvest", "--sandbox", "--project", settings.project, "--endpoint-url", url)
        inviting = (
            "crowd",
            "invite",
            "--sandbox",
            "--project",
            settings.project,
            "--base-url",
            url,
            "--json",
        )
        for names in ((), *((name,) for name in VARIABLES)):
            with monkeypatch.context() as patch:
                trust(patch, authority.certificate, names)
                message = fails(1, *command)
            assert "set both SSL_CERT_FILE and AWS_CA_BUNDLE" in message
            assert not any(key in message for key in keys)
        assert submissions(settings) == []
        unknown = ok(*inviting).json
        trust(monkeypatch, authority.certificate)
        ok(*command)
        known = ok(*inviting).json
    paid = admin.payments(engine, SANDBOX)
    engine.dispose()

    assert [one.decision for one in submissions(settings)] == [Decision.PASS] * 6
    assert sum(one.approved for one in paid) == 6
    assert "cannot be verified: unable to get local issuer certificate" in unknown["warnings"][0]
    assert (unknown["counts"]["invitations"], unknown.get("next")) == (1, None)
    assert (known["counts"]["invitations"], known["warnings"]) == (1, [])
