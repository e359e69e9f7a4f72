"""A cluster of Ray workers for a while, and the units of work that they do: plain functions of what travels to them.

A worker builds an annotator when it first needs it and keeps it, so that the weights are read once a worker.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from annotators.base import Annotator, Encoded, Modality, Ranking, ScoresPairs
from mitl.core.whole_files import is_alive
from mitl.errors import AnnotatorError, MitlError, RetrievalError
from mitl.records import AnnotatorKind
from mitl.retrieval.encodings import Items, encode_items
from mitl.retrieval.engines import AnnotatorRecipe, timed_scores
from mitl.retrieval.pair_scores import Places
from mitl.retrieval.products import Backend
from mitl.retrieval.topk import SearchOptions, rank

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

_built: dict[tuple[str, str], Annotator] = {}
"""The annotator that this process has built last, by name and fingerprint."""


@dataclass(frozen=True, slots=True)
class Order:
    """Which annotator a unit of work is for, and what it must be."""

    recipe: AnnotatorRecipe
    fingerprint: str


@dataclass(slots=True)
class Space:
    """All that a search among vectors needs to know of an annotator."""

    name: str
    kind: AnnotatorKind
    fingerprint: str

    def encode_images(self, items: object) -> Encoded:
        """Never asked."""
        raise AssertionError("vectors are encoded already")

    encode_captions = encode_images

    def similarities(self, queries: Encoded, gallery: Encoded) -> NDArray[np.float32]:
        """Never asked."""
        raise AssertionError("vectors are multiplied by the search itself")


def greeting() -> str:
    """The version of mitl on this worker."""
    return version("mitl")


def encode_chunk(order: Order, modality: Modality, items: Items) -> Encoded:
    """The items encoded."""
    return encode_items(_annotator(order), modality, items)


def score_pairs(
    order: Order, sides: tuple[Encoded, Encoded], rows: tuple[Places, Places], exact: bool
) -> tuple[NDArray[np.float32], float]:
    """The scores of pairs of an image's and a caption's row, and the seconds they took."""
    images, captions = sides
    return timed_scores(
        cast(ScoresPairs, _annotator(order)), (_own(images), _own(captions)), rows, exact=exact
    )


def search_tile(
    asked: Order | Space, left: Encoded, right: Encoded, ks: Sequence[int], backend: Backend
) -> tuple[list[Ranking], set[str]]:
    """The tile's top k of the right for the left, with two of ``ks`` the other way too, and what multiplied vectors."""
    options = SearchOptions(backend=backend)
    if isinstance(asked, Space):
        return rank(asked, (left, right), ks, options), options.used
    return rank(_annotator(asked), (_own(left), _own(right)), ks, options), options.used


def _annotator(order: Order) -> Annotator:
    key = (order.recipe.name, order.fingerprint)
    if key not in _built:
        _built.clear()
        annotator = order.recipe.build()
        if annotator.fingerprint != order.fingerprint:
            raise AnnotatorError(
                f"annotator {order.recipe.name!r} is another one on {socket.gethostname()}: its weights or files "
                "differ from those here; put the same files on every machine of the cluster"
            )
        _built[key] = annotator
    return _built[key]


def _own(encoded: Encoded) -> Encoded:
    """Arrays of this process: those that Ray shares cannot be written to, of which torch warns."""
    return Encoded(encoded.modality, encoded.ids.copy(), {k: v.copy() for k, v in encoded.arrays.items()})


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

    def __enter__(self) -> Self:
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
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
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
        task = self._ray.remote(num_cpus=1, max_retries=RETRIES)(function)
        # Spread: by default Ray fills one machine first, and the others begin a second or two later.
        return task.options(num_cpus=cores, num_gpus=1 if gpu else 0, scheduling_strategy="SPREAD")

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
            running = self.result(self.remote(greeting, 1, gpu=False).remote(), _GREETING_S)
        except self._ray.exceptions.GetTimeoutError as error:
            raise RetrievalError(
                f"no worker of the ray cluster at {where} has answered within {_GREETING_S:.0f} s; it needs a machine "
                "with a free core"
            ) from error
        if running != version("mitl"):
            raise RetrievalError(
                f"the workers at {where} run mitl {running}, but this is {version('mitl')}; install the same version"
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
