"""How much memory work takes at its peak, as the machine counts it in a program of its own.

Not tracemalloc: where it is stopped while another thread allocates, the process dies or waits for ever in older Pythons
(CPython's issue 128679), and a worker of the test runner has such a thread.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

KITS = Path(__file__).parent
_RESET = Path("/proc/self/clear_refs")


def peak_of(work: Callable[[], object]) -> int:
    """The bytes by which this process, which has done the work once before, grows at most while it does it again."""
    work()
    ctypes.CDLL(None).malloc_trim(0)  # work hides in what earlier work has left
    _RESET.write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    work()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    [line] = (line for line in lines if line.startswith(f"{name}:"))
    return 1024 * int(line.split()[1])


def peaks(program: str, *words: object) -> list[int]:
    """The numbers that a program prints, which imports ``peak_of``; the words are its arguments."""
    if not _RESET.exists() or not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("the machine does not count a peak anew (/proc/self/clear_refs, glibc)")
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        # What is freed goes back at once.
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join([str(KITS), *sys.path]), "MALLOC_MMAP_THRESHOLD_": "65536"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [int(number) for number in done.stdout.split()]
