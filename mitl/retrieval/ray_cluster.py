"""A cluster of Ray workers for a while: connecting, giving out work, and giving it out again where it was lost."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any

from mitl.core.whole_files import is_alive
from mitl.errors import MitlError, RetrievalError
from mitl.retrieval import ray_work

RETRIES = 4
"""How often a unit of work is given out again after its worker was lost."""
_NOT_IMPORTED = ("failed to import on the worker", "No module named")
"""In the words of ray and Python, where a worker lacks the code that it should run."""
_GREETING_S = 120.0
_CONNECT_S = 5.0
_FOLDER = "mitl-ray-"
_LONGEST_FOLDER = 16
"""Ray puts sockets below its folder, and the path of a socket is short."""
Ref = Any
Begin = Callable[[], Ref]


class RayCluster:
    """An existing cluster, or one of this machine's cores; to be used as a context."""

    def __init__(
        self, address: str | None, *, cpus: int | None = None, object_store_bytes: int | None = None
    ) -> None:
        """Args:
        address: ``HOST:PORT``, ``ray://HOST:PORT`` or ``auto`` of an existing cluster; None for this machine alone.
        cpus: with no address, how many cores; all by default.
        """
        self._address, self._cpus, self._object_store_bytes = address, cpus, object_store_bytes
        self._folder: str | None = None
        self._ray: Any = None
        self._connected = False

    def __enter__(self) -> RayCluster:
        """Connect.

        Raises:
            RetrievalError: ray is missing, nothing answers at the address, or its workers are of another version.
        """
        self._ray = import_ray(local=self._address is None)
        if self._address is not None:
            check_reachable(self._address)
        if self._ray.is_initialized():
            raise RetrievalError("this process has joined a ray cluster already; leave that one first")
        try:
            self._connect()
            self._greet()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect; a cluster of this machine ends."""
        if self._connected:
            self._ray.shutdown()
            self._connected = False
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def put(self, value: Any) -> Ref:
        """Hand a value to the cluster once, for several units of work."""
        return self._ray.put(value)

    def nodes(self) -> list[dict[str, Any]]:
        """Machines that are alive and have a core to work on."""
        return [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]

    def remote(self, function: Callable[..., Any], cores: int, *, gpu: bool) -> Any:
        """A function as workers run it."""
        made = self._ray.remote(num_cpus=1, max_retries=RETRIES)(function)
        return made.options(num_cpus=cores, num_gpus=1 if gpu else 0)

    def results(self, jobs: Iterable[tuple[Any, Begin]], cores: int) -> Iterator[tuple[Any, Any]]:
        """Results as they come; twice as many units are given out as fit, so that no worker waits."""
        places = sum(int(node["Resources"]["CPU"]) // cores for node in self.nodes())
        waiting: dict[Ref, Any] = {}
        left = iter(jobs)
        try:
            while True:
                while len(waiting) < 2 * max(1, places) and (job := next(left, None)) is not None:
                    waiting[job[1]()] = job[0]
                if not waiting:
                    return
                (ready, *_), _ = self._ray.wait(list(waiting), num_returns=1)
                yield waiting.pop(ready), self.result(ready)
        finally:
            for ref in waiting:
                self._ray.cancel(ref, force=True)

    def result(self, ref: Ref, timeout_s: float | None = None) -> Any:
        """What a unit of work gave; its own error where it raised one, RetrievalError where the cluster failed."""
        faults = self._ray.exceptions
        try:
            return self._ray.get(ref, timeout=timeout_s)
        except faults.RayTaskError as error:
            if isinstance(error.cause, MitlError):
                raise error.cause from None
            if any(sign in str(error.cause) for sign in _NOT_IMPORTED):
                reason = str(error.cause).strip().splitlines()[-1]
                raise RetrievalError(
                    f"a worker of the ray cluster cannot import what it needs ({reason}); install mitl "
                    f"{version('mitl')} with the same extras on every machine"
                ) from error
            raise
        except faults.RayError as error:
            raise RetrievalError(
                f"the ray cluster failed ({type(error).__name__}) on a unit of work that it was given {RETRIES + 1} "
                "times at most; what was finished is kept: look at the cluster and run the command again"
            ) from error

    def _connect(self) -> None:
        self._connected = True
        quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
        if self._address is None:
            self._folder = short_folder()
            self._ray.init(
                address="local",
                num_cpus=self._cpus,
                include_dashboard=False,
                object_store_memory=self._object_store_bytes,
                _temp_dir=self._folder,
                **quiet,
            )
            return
        try:
            self._ray.init(address=self._address, **quiet)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise unreachable(self._address, error) from error

    def _greet(self) -> None:
        where = "this machine" if self._address is None else repr(self._address)
        try:
            greeting = self.remote(ray_work.greeting, 1, gpu=False).remote()
            found = self.result(greeting, _GREETING_S)
        except self._ray.exceptions.GetTimeoutError as error:
            raise RetrievalError(
                f"no worker of the ray cluster at {where} has answered within {_GREETING_S:.0f} s; it needs a machine "
                "with a free core"
            ) from error
        if found != version("mitl"):
            raise RetrievalError(
                f"the workers at {where} run mitl {found}, but this is {version('mitl')}; install the same version"
            )


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
