"""Where networks run: the device and the number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from annotators.options import Options
from mitl.errors import AnnotatorError


def device_of(options: Options) -> torch.device:
    """The device named by the setting ``device``; ``auto`` (default) takes CUDA where there is one."""
    name = options.text("device", "auto")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise AnnotatorError(
            f"'device' of annotator {options.annotator!r} is {name!r}; it should be auto, cpu or cuda"
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise AnnotatorError(
            f"annotator {options.annotator!r} should run on {name!r}, but torch sees no CUDA device"
        )
    return device


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
def inference(threads: int) -> Iterator[None]:
    """Compute without gradients on this many threads, in full float32 on a GPU too.

    By default cuDNN multiplies float32 with 10 significant bits (TF32), which shows in the fourth digit.
    """
    with on_threads(threads), torch.inference_mode(), torch.backends.cudnn.flags(allow_tf32=False):
        yield
