"""Holding Ctrl-C back while a step must not be cut in two."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_held() -> Iterator[Callable[[], None]]:
    """Hold Ctrl-C back for the block; it is delivered at its end, or where the function that this gives is called.

    Only the main thread hears signals; elsewhere, and where Ctrl-C is ignored, nothing changes.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield lambda: None
        return
    came: list[tuple[int, FrameType | None]] = []
    held = True

    def let_through() -> None:
        nonlocal held
        if held:
            held = False
            signal.signal(signal.SIGINT, before)
            if came:
                before(*came[0])

    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield let_through
    finally:
        let_through()


def interrupts_ignored() -> bool:
    """Whether this process was started to ignore Ctrl-C, as a script's shell asks it of what runs in the background."""
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def how_to_stop() -> str:
    """What ends this process, in words."""
    if not interrupts_ignored():
        return "Ctrl-C stops it"
    return f"Ctrl-C is ignored, as in the background of a script; `kill {os.getpid()}` stops it"


def interrupts_kill() -> None:
    """From here on Ctrl-C ends the process at once and without a word, unless it is ignored.

    For the end of a program, when Python unloads itself and a KeyboardInterrupt would only be printed.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
