"""Reaching Ray: its module, its folder on this machine, a cluster that may not be there."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

from mitl.errors import RetrievalError
from mitl.retrieval.whole_files import is_alive

_CONNECT_S = 5.0
_FOLDER = "mitl-ray-"
_LONGEST_FOLDER = 16
"""Ray puts sockets below its folder, and the path of a socket is short."""


def import_ray(*, local: bool) -> Any:
    """The module; RetrievalError where it is not installed."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if local:
        # Ray reads this when it is imported. Unset, it listens on all interfaces even for itself alone.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    try:
        import ray
    except ImportError as error:
        raise RetrievalError(
            "engine 'ray' needs ray, which is not installed; pip install 'mitl[ray]', or use the engine 'local'"
        ) from error
    return ray


def short_folder() -> str | None:
    """A folder for Ray's files that goes away with it; None leaves them where Ray wants them."""
    parent = Path(tempfile.gettempdir())
    if len(str(parent)) > _LONGEST_FOLDER:
        return None
    for left in parent.glob(f"{_FOLDER}*-*"):
        pid = left.name.removeprefix(_FOLDER).partition("-")[0]
        if pid.isdecimal() and not is_alive(int(pid)):
            shutil.rmtree(left, ignore_errors=True)  # of a run that was killed
    return tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-")


def check_reachable(address: str) -> None:
    """RetrievalError where nothing listens there: Ray itself tries for minutes, and may end the process."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise RetrievalError(
            f"the ray address is {address!r}, but HOST:PORT, ray://HOST:PORT or auto is wanted"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise unreachable(address, error) from error


def unreachable(address: str, error: Exception) -> RetrievalError:
    """What to say of a cluster that does not answer."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    return RetrievalError(
        f"no ray cluster can be reached at {address!r} ({reason}); start one with `ray start --head`, "
        "or leave --ray-address out to use this machine's cores"
    )
