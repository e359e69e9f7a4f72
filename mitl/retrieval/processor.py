"""What a search takes of the processor: threads of our own with one thread of BLAS each, and compiled loops.

Threads of our own share the caches and never wait for each other. The compiled loops come in where numba is installed
and its start pays; they change the time, not a byte.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

STARTING_WORK = 1e10
"""Multiply-adds of a process's searches from which it pays to start numba, which takes about half a second."""

_lock = threading.Lock()
_users = 0
_settings = ExitStack()
_count_before = 1
_torch_is_limited = False
_controllers: dict[tuple[bool, ...], Any] = {}
"""What threadpoolctl found; it looks through all loaded libraries, which takes milliseconds."""

_starting = threading.Lock()
_work = 0.0
_loops: Any = None


def count() -> int:
    """How many threads a search may use: the processors of this process, or fewer where BLAS is held to fewer."""
    with _lock:
        return _count_before if _users else _count_now()


def loaded_torch() -> Any:
    """torch, where something has imported it; else None."""
    return sys.modules.get("torch")


def exactly() -> AbstractContextManager[None]:
    """The switches of torch without which no error bound holds, around every product of its floats."""
    from annotators.devices import full_precision  # brings torch, which numpy's product does without

    return full_precision()


def can_limit_blas() -> bool:
    """Whether numpy's BLAS can be held to one thread."""
    return bool(_blas_pools())


@contextmanager
def one_thread_of_blas() -> Iterator[None]:
    """BLAS and torch use one thread for each thread of ours; the old settings come back with the last user."""
    global _users, _count_before, _torch_is_limited
    with _lock:
        if _users == 0:
            _count_before = _count_now()
            if (controller := _controller()) is not None:
                _settings.enter_context(controller.limit(limits=1, user_api="blas"))
        # A search may import torch after it has begun.
        if not _torch_is_limited and (torch := loaded_torch()) is not None:
            _settings.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
            _torch_is_limited = True
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _settings.close()
                _torch_is_limited = False


def _count_now() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = [pool.num_threads for pool in _blas_pools()]
    if (torch := loaded_torch()) is not None:
        limits.append(torch.get_num_threads())
    return max(1, min(cores, max(limits, default=cores)))


def _controller() -> Any:
    """threadpoolctl's view of the libraries that are loaded now; None where it is not installed."""
    try:
        from threadpoolctl import ThreadpoolController
    except ImportError:
        return None
    loaded = tuple(sys.modules.get(name) is not None for name in ("torch", "faiss", "scipy"))
    if loaded not in _controllers:
        _controllers[loaded] = ThreadpoolController()
    return _controllers[loaded]


def _blas_pools() -> list[Any]:
    controller = _controller()
    if controller is None:
        return []
    return [pool for pool in controller.lib_controllers if pool.user_api == "blas"]


def about_to_search(work: float) -> None:
    """Count a search of so many multiply-adds, and start the compiled loops when it is time.

    A process that goes on searching starts them sooner or later, one that searches little never does.
    """
    global _work, _loops
    with _starting:
        _work += work
        if _loops is None and _work >= STARTING_WORK and find_spec("numba") is not None:
            try:
                _loops = import_module("mitl.retrieval.kernels")
            except (ImportError, RuntimeError):  # not installed whole, or no place to keep what it compiles
                _work = float("-inf")


def compiled_loops() -> Any:
    """The module ``mitl.retrieval.kernels`` once it is started, else None."""
    return _loops
