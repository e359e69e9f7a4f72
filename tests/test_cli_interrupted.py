"""Interrupted commands: one line, exit status 130, state kept, and the same command goes on from there."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from cli_kit import clear_environment, mitl, ok, use_file_annotators

from mitl.cli import app
from mitl.cli.outputs import COUNTS

INTERRUPTED_LINE = f"error: {app.INTERRUPTED}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """Each test runs in an empty folder and under no setting of the machine."""
    clear_environment(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def press_control_c(monkeypatch):
    """Interrupt the next command after so many units of its progress bars."""

    def after(units: int) -> None:
        left = units

        @contextmanager
        def progress(label: str, total: int) -> Iterator[app.Progress]:
            def advance(done: int) -> None:
                nonlocal left
                left -= done
                if left <= 0:
                    raise KeyboardInterrupt

            yield advance

        monkeypatch.setattr(app, "terminal_progress", progress)

    yield after


def interrupted(*words: str) -> None:
    """Run a command that is interrupted."""
    outcome = mitl(*words)
    assert (outcome.status, outcome.out.count("next:")) == (130, 0), outcome
    assert outcome.err == INTERRUPTED_LINE


STEPS = [
    ("init", "--dataset", "scenes", "--n-images", "40"),
    ("propose", "--image-queries", "12", "--caption-queries", "20", "--depth", "10"),
    ("publish", "--sandbox"),
    ("simulate",),
    ("harvest",),
]

# Where each step is interrupted, in units of its bars: at the first, or further on (while posting, while paying).
FIRST = {"init": 1, "propose": 1, "publish": 1, "simulate": 1, "harvest": 1}
LATER = {"init": 20, "propose": 30, "publish": 42, "simulate": 5, "harvest": 12}


def walk(press=None, units: dict[str, int] | None = None) -> dict[str, object]:
    """The steps up to the harvest; with ``press``, each is interrupted once and run again."""
    for words in STEPS:
        if press is not None and units is not None:
            press(units[words[0]])
            interrupted(*words)
            press(10**9)
        ok(*words)
        if words[0] == "init":
            use_file_annotators(Path())
    ok("review", "settle")
    return ok("status", "--json").json["counts"]


@pytest.mark.slow
@pytest.mark.parametrize("units", [FIRST, LATER], ids=["first", "later"])
def test_a_walk_whose_every_step_was_interrupted_ends_as_one_that_was_not(
    press_control_c, units, monkeypatch, folder
):
    """Nothing is lost and nothing is doubled: the same pairs, HITs, submissions and money."""
    undisturbed, disturbed = folder / "undisturbed", folder / "disturbed"
    undisturbed.mkdir()
    disturbed.mkdir()
    monkeypatch.chdir(undisturbed)
    expected = walk()

    monkeypatch.chdir(disturbed)
    found = walk(press_control_c, units)

    same = ("images", "captions", "pairs", "hits", "submissions")
    assert {key: found[key] for key in same} == {key: expected[key] for key in same}
    assert found["paid_cents"] == found["submissions"] * 100


def start(*words: str) -> subprocess.Popen[str]:
    """`mitl` in a process of its own."""
    command = [sys.executable, "-m", "mitl", *words]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def press(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Send it a real SIGINT; its exit status and what it still printed."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_a_real_signal_during_init_leaves_no_project_and_the_next_run_makes_it(folder):
    """The pictures drawn so far stay; no settings file and no database speak of a project that is not there."""
    words = ("init", "--dataset", "scenes", "--n-images", "400")
    process = start(*words)
    while not any(folder.glob("dataset/images/*.png")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)

    status, out, err = press(process)

    assert (status, out, err) == (130, "", INTERRUPTED_LINE)
    assert {path.name for path in folder.iterdir()} == {"dataset"}
    assert ok(*words, "--json").json["status"] == "done"


@pytest.fixture
def serving(folder):
    """A server in a process of its own, started with ``--json``, and the object that it printed."""
    process = start("serve", "--port", "0", "--json")
    assert process.stdout is not None
    line = process.stdout.readline()
    yield process, json.loads(line)
    process.kill()
    process.communicate()


def test_serve_prints_its_object_once_it_can_be_reached_and_stops_at_a_signal(serving):
    """The object holds the address with the port that was taken; Ctrl-C ends it with 130 and no second object."""
    process, found = serving
    counts = found["counts"]
    health = httpx.get(counts["url"] + "/healthz").json()
    operator = httpx.get(counts["operator_url"], follow_redirects=True)

    status, out, err = press(process)

    assert set(counts) == set(COUNTS["serve"])
    assert health["server_id"] == counts["server_id"]
    assert operator.status_code == 200
    assert (status, out) == (130, "")
    assert err == "stopped; start it again with `mitl serve`\n"


def test_serve_tells_people_its_address(folder):
    """Another port than the usual one is told to `mitl crowd invite` too."""
    process = start("serve", "--port", "0")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    status, _, err = press(process)

    port = re.search(r"http://127\.0\.0\.1:(\d+) ", lines[0])
    assert status == 130, err
    assert port is not None and port[1] != "0"
    assert lines[2].endswith(f"--base-url http://127.0.0.1:{port[1]}\n")


def test_a_reader_that_goes_away_is_no_traceback(folder):
    """As in `mitl annotators | head -1`."""
    process = start("annotators")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()

    process.wait(timeout=60)
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.returncode in (0, 1)


PRESSED = """
import os, runpy, signal, sys

class Pressing:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

MODULE, *words = sys.argv[1:]
sys.meta_path.insert(0, Pressing())
sys.argv = ["mitl", *words]
runpy.run_module("mitl", run_name="__main__")
"""
"""``mitl`` in a process that is sent SIGINT when it first asks for a module."""


def pressed(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command that is interrupted at this import."""
    called = [sys.executable, "-c", PRESSED, module, *words]
    return subprocess.run(called, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    "module", ["click", "mitl.cli.app", "mitl.settings", "mitl.cli.status", "sqlalchemy"]
)
def test_a_signal_while_the_program_is_loaded_is_no_traceback(module):
    """From its first import to those of the stage, and with --json there is an object."""
    done = pressed(module, "status", "--json")

    assert (done.returncode, done.stderr) == (130, INTERRUPTED_LINE)
    assert json.loads(done.stdout) == {
        "command": "status",
        "status": "error",
        "counts": {},
        "paths": {},
        "warnings": [],
        "error": app.INTERRUPTED,
    }


def test_a_signal_before_anything_of_ours_is_loaded_ends_without_a_word():
    """There is nothing yet that could tell of it."""
    done = pressed("mitl.interrupts", "status", "--json")

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_signal_that_is_ignored_stays_ignored():
    """As a shell asks it of what runs in the background."""
    script = f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{PRESSED}"
    called = [sys.executable, "-c", script, "mitl.cli.app", "--version"]

    done = subprocess.run(called, capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")
