"""Bars on a real terminal of a given width: no line is wrapped, no figure is cut, and nothing is drawn for no work."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios

import pytest

DRAW = """
from mitl.progress import terminal_progress
with terminal_progress("encode some-annotator captions", {total}) as advance:
    for _ in range({total}):
        advance(1)
"""


def drawn(columns: int, total: int) -> list[str]:
    """The lines that a terminal of this width gets, each as often as it was drawn."""
    parent, child = os.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**{k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}, "TERM": "xterm"}
    command = [sys.executable, "-c", DRAW.format(total=total)]
    subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=child,
        env=environment,
        check=True,
    )
    os.close(child)
    found = b""
    try:
        while read := os.read(parent, 65536):
            found += read
    except OSError:  # how Linux says that the other end is closed
        pass
    finally:
        os.close(parent)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", found.decode())
    return [line for line in re.split(r"[\r\n]+", plain) if line.strip()]


@pytest.mark.parametrize(("columns", "has_bar"), [(80, True), (50, False), (36, False)])
def test_a_bar_keeps_to_its_line_and_its_figures(columns, has_bar):
    """A narrow terminal has the count and the time that is left; the label gives way."""
    lines = drawn(columns, 1500)

    assert all(len(line) <= columns for line in lines)
    assert "1500/1500" in lines[-1]
    assert re.search(r" 0:00:00\s*$", lines[-1])
    assert re.search(r" ([\d,]+/s)? *0:00", lines[-1])
    assert ("━" in lines[-1]) is has_bar
    assert lines[-1].startswith("enc")  # the rest of the label gives way to a rate of millions a second


def test_no_work_draws_nothing():
    assert drawn(80, 0) == []
