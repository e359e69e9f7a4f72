"""The log: lines for people or one JSON object a line, on standard error, with a run id in each process.

What is logged names counts, states and kinds of pages, never a key, a worker's id or what an item says. Libraries are
heard from warnings on, whatever ``-v`` asks for: their debugging shows requests and answers whole.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import logging
import os
import sys
import traceback
import uuid
from typing import Literal, TextIO, get_args

Format = Literal["text", "json"]
FORMATS: tuple[str, ...] = get_args(Format)
OWN = ("mitl", "annotators")
_SERVER = "worker-"
"""How the names of processes begin that serve together."""
_LEVELS = (logging.NOTSET, logging.INFO, logging.DEBUG)


def set_up(command: str, *, verbose: int = 0, form: str = "text") -> None:
    """Log to standard error from now on; called again, it changes what was set up before.

    Args:
        command: with its subcommand, as ``crowd invite``; stands in each JSON line.
        verbose: 0 for warnings, 1 for what happens, 2 for all.
        form: one of ``FORMATS``.
    """
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, _StandardError)]:
        root.removeHandler(handler)
    handler = _StandardError()
    handler.setFormatter(_Json(command) if form == "json" else _Text("%(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)
    # It prints a traceback where a reply's headers break off; what such a reply is worth, the transport says.
    logging.getLogger("urllib3.connection").setLevel(logging.ERROR)
    for name in OWN:  # not set: as the root, which is heard from warnings on
        logging.getLogger(name).setLevel(_LEVELS[min(verbose, 2)])


def run_id() -> str:
    """Twelve hexadecimal digits that name this process, and no other, in all its lines."""
    return _run_id(os.getpid())


@functools.lru_cache(maxsize=1)
def _run_id(pid: int) -> str:
    """Of a process; one that was forked from another has its own."""
    return uuid.uuid4().hex[:12]


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to whatever standard error is when something is logged."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        """Standard error as it is now."""
        return sys.stderr


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """The line, behind the name of a process that others stand beside."""
        line = super().format(record)
        return f"{record.processName} {line}" if str(record.processName).startswith(_SERVER) else line


class _Json(logging.Formatter):
    def __init__(self, command: str) -> None:
        super().__init__()
        self._command = command

    def format(self, record: logging.LogRecord) -> str:
        """One line: time (ISO 8601, UTC), level, logger, run, command, message; process, counts, error where any."""
        fields: dict[str, object] = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "run": run_id(),
            "command": self._command,
            "message": record.getMessage(),
        }
        if str(record.processName).startswith(_SERVER):
            fields["process"] = record.processName
        counts = getattr(record, "counts", None)
        if counts is not None:
            fields["counts"] = counts
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = "".join(traceback.format_exception(record.exc_info[1]))
        return json.dumps(fields, ensure_ascii=False)
