"""Where networks run, on how many threads, and in what precision products are made."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from annotators.options import Options
from mitl.errors import AnnotatorError

_lock = threading.Lock()
_users = 0
_settings = ExitStack()

_COPIERS = 8
"""Threads that fill pinned memory."""
_PRECISIONS = [(unit, step) for unit in ("cuda", "mkldnn") for step in ("matmul", "conv", "rnn")]
"""Where torch (from 2.9 on) may be told to round float32, and what each inherits from."""
_INHERITED = [("generic", "all"), ("cuda", "all"), ("mkldnn", "all")]


def device_of(options: Options) -> torch.device:
    """The device named by the setting ``device``; ``auto`` (default) takes CUDA where there is one."""
    name = options.text("device", "auto")
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda" if cards else "cpu")
    names = ["cpu", *(["cuda"] if cards else []), *(f"cuda:{card}" for card in range(cards))]
    if name not in names:
        raise AnnotatorError(
            f"'device' of annotator {options.annotator!r} is {name!r}; it should be one of auto, {', '.join(names)}"
            + ("" if cards else " (torch sees no CUDA device here)")
        )
    return torch.device(name)


def to_device(array: NDArray[Any], device: torch.device, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A copy of an array's numbers on a device; what is queued there next finds it, the caller may go on before.

    On its way to a card it goes through pinned memory, which several threads fill: a card takes in five times what one
    thread moves, and from other memory a fifth.
    """
    if device.type != "cuda":
        return torch.from_numpy(np.array(array)).to(device, dtype)
    pinned = torch.empty(array.shape, dtype=dtype, pin_memory=True)
    staged, part = pinned.numpy(), max(1, -(-len(array) // _COPIERS))
    with ThreadPoolExecutor(_COPIERS) as copiers:
        starts = range(0, len(array), part)
        list(copiers.map(lambda at: np.copyto(staged[at : at + part], array[at : at + part]), starts))
    return pinned.to(device, non_blocking=True)


@dataclass(frozen=True, slots=True)
class Running:
    """Where and how a network runs; no result depends on it."""

    device: torch.device
    threads: int
    batch: int
    """Items of one shape that go through together."""

    @classmethod
    def of(cls, options: Options, *, batch: int, threads: int | None = None) -> Running:
        """From the settings ``device``, ``threads`` and ``batch``, with these where they are not set."""
        return cls(
            device_of(options),
            options.whole("threads", threads or torch.get_num_threads()),
            options.whole("batch", batch),
        )


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Let torch compute on this many threads, so that results do not depend on what was set before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def full_precision() -> Iterator[None]:
    """Multiply float32 as float32 and add in float32, whatever the process allows torch; no result hangs on timing.

    By default cuDNN multiplies float32 with 10 significant bits (TF32), and a card may add parts of a product of half
    precision in half precision, beyond every bound; the CPU can be told to round float32 to bfloat16. The switches are
    the process's: the old settings come back with the last user, on whichever thread.
    """
    global _users
    with _lock:
        if _users == 0:
            with ExitStack() as settings:
                _switch(settings)
                _settings.push(settings.pop_all())
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _settings.close()


@contextmanager
def inference(threads: int) -> Iterator[None]:
    """Compute without gradients on this many threads, in ``full_precision``."""
    with on_threads(threads), torch.inference_mode(), full_precision():
        yield


def _switch(settings: ExitStack) -> None:
    """Set every switch; ``settings`` will set them back, the last one first."""

    def put(owner: Any, name: str, value: object, before: object) -> None:
        settings.callback(setattr, owner, name, before)
        setattr(owner, name, value)

    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    put(cudnn, "benchmark", False, cudnn.benchmark)  # it takes whichever algorithm is fastest at the moment
    put(cudnn, "deterministic", True, cudnn.deterministic)
    for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"):
        before = getattr(matmul, name)
        split = getattr(matmul, f"{name}_split_k", None)  # set along with it, since torch 2.9
        put(matmul, name, False, before if split is None else (before, split))
    put(matmul, "allow_fp16_accumulation", False, matmul.allow_fp16_accumulation)
    precisions = _own_precisions()
    # The older switches can only be read while the newer ones do not contradict them.
    _set_precisions({place: "tf32" if place[1] != "matmul" else "ieee" for place in precisions})
    settings.callback(_set_precisions, precisions)
    settings.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
    torch.set_float32_matmul_precision("highest")
    try:
        allowed = cudnn.allow_tf32
    except RuntimeError:
        allowed = False
    put(cudnn, "allow_tf32", False, allowed)
    _set_precisions(dict.fromkeys(precisions, "ieee"))


def _own_precisions() -> dict[tuple[str, str], str]:
    """What is set at each place itself, "none" where it inherits; empty where this torch knows none."""
    read = getattr(torch._C, "_get_fp32_precision_getter", None)
    if read is None:
        return {}
    inherited = {}
    for place in _INHERITED:
        inherited[place] = read(*place)
        _set_precisions({place: "none"})
    precisions = {place: read(*place) for place in _PRECISIONS}
    _set_precisions(inherited)
    return precisions


def _set_precisions(precisions: dict[tuple[str, str], str]) -> None:
    for place, precision in precisions.items():
        torch._C._set_fp32_precision_setter(*place, precision)
