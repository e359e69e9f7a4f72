"""Handing a key pair to a program elsewhere, and the operator's link to a person."""

from __future__ import annotations

import configparser
import os
import stat

import boto3
import pytest
from cli_kit import fails, ok

from mitl.crowd_server import admin
from mitl.crowd_server.app import create_app
from mitl.crowd_server.serving import RunningServer
from mitl.db.engine import make_engine
from mitl.records import Environment


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_exported_pair_is_what_boto3_reads(here, monkeypatch):
    """The file is for its owner alone and holds the sandbox's keys."""
    ok("crowd", "keys", "--sandbox", "--export", "requester.ini")

    assert stat.S_IMODE((here / "requester.ini").stat().st_mode) == 0o600
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(here / "requester.ini"))
    found = boto3.Session().get_credentials().get_frozen_credentials()
    engine = make_engine(f"sqlite:///{here / 'crowd.db'}")
    assert (found.access_key, found.secret_key) == admin.keys(engine)[Environment.SANDBOX]
    engine.dispose()


def test_a_file_that_is_there_is_not_overwritten(here):
    """The same pair again has nothing to do; anything else in the file is left and named."""
    ok("crowd", "keys", "--sandbox", "--export", "requester.ini")
    assert "nothing to do" in ok("crowd", "keys", "--sandbox", "--export", "requester.ini").out
    before = (here / "requester.ini").read_text()

    said = fails(1, "crowd", "keys", "--live", "--export", "requester.ini")

    assert "requester.ini exists and holds something else; name a new file" in said
    assert (here / "requester.ini").read_text() == before
    assert configparser.ConfigParser().read(here / "requester.ini")
    (here / "no-text").write_bytes(b"\xff\xfe")
    (here / "dangling").symlink_to("nowhere")
    os.mkfifo(here / "pipe")
    for other in ("no-text", "dangling", "pipe"):
        assert "exists and holds something else" in fails(1, "crowd", "keys", "--live", "--export", other)


def test_an_export_makes_the_folders_of_its_file(here):
    """As every other command that writes a file does."""
    ok("crowd", "keys", "--sandbox", "--export", "for/others/requester.ini")

    assert (here / "for" / "others" / "requester.ini").is_file()


def test_links_that_answer_nobody_are_handed_out_with_a_warning(here):
    """Unless the server over this very database answers where they point; one over another database does not."""
    engine = make_engine(f"sqlite:///{here / 'crowd.db'}")
    other = make_engine(f"sqlite:///{here / 'other.db'}")
    invite = ("crowd", "invite", "--sandbox", "--json", "--base-url")
    for database in (engine, other):
        admin.prepare(database)
    with RunningServer(create_app(engine)) as server:
        own = server.url
        assert not ok(*invite, own).json["warnings"]
    gone = ok(*invite, own).json
    with RunningServer(create_app(other)) as server:
        others = server.url
        foreign = ok(*invite, others).json
    engine.dispose()
    other.dispose()

    for said, url in ((gone, own), (foreign, others)):
        (warning,) = said["warnings"]
        assert f"answers at {url}," in warning and f"`mitl serve --port {url.rpartition(':')[2]}`" in warning
        assert len(said["counts"]["links"]) == 1


def test_an_export_names_its_environment(here):
    """One file holds one environment's pair."""
    assert "--sandbox" in fails(2, "crowd", "keys", "--export", "requester.ini")
    assert not (here / "requester.ini").exists()


def test_the_operators_link_opens_the_operators_page(here):
    """It is the link that `mitl serve` prints, at the address that people use."""
    from starlette.testclient import TestClient

    link = ok("crowd", "operator", "--base-url", "https://crowd.example.org").out.strip()

    assert link.startswith("https://crowd.example.org/operator?token=")
    engine = make_engine(f"sqlite:///{here / 'crowd.db'}")
    with TestClient(create_app(engine)) as client:
        path = link.removeprefix("https://crowd.example.org")
        assert client.get(path).status_code == 200
        assert client.get("/operator?token=guessed").status_code != 200
    engine.dispose()
