"""docs/desk.md: its command runs as written, its keys and pages exist."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from cli_kit import fails, mitl, ok
from desk_kit import REASON
from docs_kit import mitl_lines
from world_kit import copy_of

from mitl.cli.reference import COUNTS

pytest_plugins = ("desk_fixtures",)

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "desk.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(reviewed, tmp_path, monkeypatch) -> Path:
    """A project's folder, entered, with no setting of the machine."""
    copy_of(reviewed, tmp_path / "p")
    monkeypatch.chdir(tmp_path / "p")
    return tmp_path / "p"


def test_the_command_runs_as_written_and_stops_at_a_signal(folder, start_program):
    """The printed link opens the desk; Ctrl-C ends it with 130 and a line."""
    [words] = mitl_lines("docs/desk.md")
    command = [sys.executable, "-m", "mitl", *words, "--port", "0", "--json"]
    process = start_program(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    found = json.loads(process.stdout.readline())
    with httpx.Client(trust_env=False) as browser:
        opened = browser.get(found["counts"]["link"])
        page = browser.get(found["counts"]["url"] + "/")
        stranger = httpx.get(found["counts"]["url"] + "/", trust_env=False)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)

    assert found["command"] == "desk" and set(found["counts"]) == set(COUNTS["desk"])
    assert (opened.status_code, page.status_code, stranger.status_code) == (200, 200, 403)
    assert "sandbox" in page.text
    assert (process.returncode, out, err) == (130, "", "stopped; start it again with `mitl desk`\n")


def test_every_command_that_is_named_exists():
    """`mitl review exclude` and the others."""
    for name in set(re.findall(r"`(mitl review \w+)`", TEXT)):
        assert mitl(*name.split()[1:], "--help").status == 0, name


def test_the_command_line_reverses_a_rejection_too(folder):
    """`mitl review reverse` pays what was rejected, once; what is not rejected it refuses in one line."""
    waiting = [str(number) for number in mitl("review", "--json").json["counts"]["submissions"]]
    number = waiting[0]
    mitl("review", "reject", number, "--reason", REASON)

    counts = ok("review", "reverse", number, "--json").json["counts"]

    assert set(counts) == set(COUNTS["review reverse"])
    assert (counts["reversed"], counts["approved"]) == (1, 1)
    assert ok("review", "reverse", number, "--json").json["status"] == "nothing_to_do"
    assert "is not rejected" in fails(1, "review", "reverse", waiting[1])
    assert "there is no submission 999" in fails(1, "review", "reverse", "999")


def test_every_picture_is_there_and_small():
    """Under 200 KB each."""
    for name in re.findall(r"\((images/[\w-]+\.png)\)", TEXT):
        assert 10_000 < (ROOT / "docs" / name).stat().st_size < 200_000


def test_the_desk_listens_on_loopback_alone(folder):
    """Any other address is one line and status 2, before anything is opened."""
    message = fails(2, "desk", "--host", "0.0.0.0", "--no-browser")

    assert "ssh -L" in message and "'0.0.0.0'" in message


def test_a_folder_without_a_project_is_one_line(tmp_path):
    """It says what to run first."""

    assert "mitl init" in fails(1, "desk", "--project", tmp_path / "none", "--no-browser")
