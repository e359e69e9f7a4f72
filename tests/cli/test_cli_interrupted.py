"""Interrupted commands: one line, exit status 130, state kept, and the same command goes on from there."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

import httpx
import pytest
from cli_kit import mitl, ok, use_file_annotators

from mitl.cli import app
from mitl.cli.reference import COUNTS

INTERRUPTED_LINE = f"error: {app.INTERRUPTED}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    """Each test runs in an empty folder and under no setting of the machine."""
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


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, object]:
    """What the walk comes to when nobody interrupts it."""
    with chdir(tmp_path_factory.mktemp("undisturbed")):
        return walk()


@pytest.mark.slow
@pytest.mark.parametrize("units", [FIRST, LATER], ids=["first", "later"])
@pytest.mark.thorough(but=("first",))
def test_a_walk_whose_every_step_was_interrupted_ends_as_one_that_was_not(
    press_control_c, units, undisturbed
):
    """Nothing is lost and nothing is doubled: the same pairs, HITs, submissions and money."""
    found = walk(press_control_c, units)

    same = ("images", "captions", "pairs", "hits", "submissions")
    assert {key: found[key] for key in same} == {key: undisturbed[key] for key in same}
    assert found["paid_cents"] == found["submissions"] * 100


Start = Callable[..., subprocess.Popen[str]]

IN_BACKGROUND = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""Before a command's words: what a script's shell does with `COMMAND &`."""


@pytest.fixture
def start(start_program) -> Start:
    """Starts `mitl` in a process of its own, after the words in ``by``."""

    def started(*words: str, by: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        command = [*by, sys.executable, "-m", "mitl", *words]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        pipe = subprocess.PIPE
        return start_program(command, stdout=pipe, stderr=pipe, text=True, env=environment)

    return started


def press(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Send it a real SIGINT; its exit status and what it still printed."""
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_a_real_signal_during_init_leaves_no_project_and_the_next_run_makes_it(folder, start):
    """The pictures drawn so far stay; no settings file and no database speak of a project that is not there."""
    words = ("init", "--dataset", "scenes", "--n-images", "200")
    process = start(*words)
    while not any(folder.glob("dataset/images/*.png")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)

    status, out, err = press(process)

    assert (status, out, err) == (130, "", INTERRUPTED_LINE)
    assert {path.name for path in folder.iterdir()} == {"dataset"}
    assert ok(*words, "--json").json["status"] == "done"


@pytest.fixture
def serving(folder, start):
    """A server in a process of its own, started with ``--json``, and the object that it printed."""
    process = start("serve", "--port", "0", "--json")
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


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


@pytest.mark.parametrize("form", ["lines", "json"])
@pytest.mark.thorough(but=("json",))
def test_a_server_in_a_scripts_background_ignores_ctrl_c_and_says_what_stops_it(folder, start, form):
    """The script's own Ctrl-C is not meant for it; `kill` with the number that it names is. Another port than the
    usual one is told to `mitl crowd invite` too."""
    process = start("serve", "--port", "0", *(["--json"] if form == "json" else []), by=IN_BACKGROUND)
    if form == "json":
        said = process.stderr.readline()
        url = json.loads(process.stdout.readline())["counts"]["url"]
    else:
        said, _, invite = (process.stdout.readline() for _ in range(3))
        url, port = re.search(r"(http://127\.0\.0\.1:(\d+)) ", said).groups()
        assert port != "0" and invite.endswith(f"--base-url {url}\n")

    process.send_signal(signal.SIGINT)
    for _ in range(3):
        assert httpx.get(f"{url}/healthz").status_code == 200

    assert f"Ctrl-C is ignored, as in the background of a script; `kill {process.pid}` stops it" in said
    process.terminate()
    assert process.wait(timeout=60) == -signal.SIGTERM


def test_a_watch_in_a_scripts_background_says_what_stops_it(folder, start):
    """Not Ctrl-C, which it goes on after."""
    ok("init", "--dataset", "scenes", "--n-images", "10")
    process = start("status", "--watch", "--every", "0.05", by=IN_BACKGROUND)
    process.stdout.readline()

    process.send_signal(signal.SIGINT)

    assert process.stderr.readline().endswith(f"`kill {process.pid}` stops it\n")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.3)
    process.terminate()
    assert process.wait(timeout=60) == -signal.SIGTERM


def test_a_reader_that_goes_away_is_no_traceback(folder, start):
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
