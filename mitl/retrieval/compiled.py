"""The compiled loops, where numba is installed and its start pays; they change the time, not a byte."""

from __future__ import annotations

import threading
from importlib import import_module
from importlib.util import find_spec
from typing import Any

STARTING_WORK = 1e10
"""Multiply-adds of a process's searches from which it pays to start numba, which takes about half a second."""

_lock = threading.Lock()
_work = 0.0
_loops: Any = None


def about_to_search(work: float) -> None:
    """Count a search of so many multiply-adds, and start the compiled loops when it is time.

    A process that goes on searching starts them sooner or later, one that searches little never does.
    """
    global _work, _loops
    with _lock:
        _work += work
        if _loops is None and _work >= STARTING_WORK and find_spec("numba") is not None:
            try:
                _loops = import_module("mitl.retrieval.kernels")
            except (ImportError, RuntimeError):  # not installed whole, or no place to keep what it compiles
                _work = float("-inf")


def loops() -> Any:
    """The module ``mitl.retrieval.kernels`` once it is started, else None."""
    return _loops
