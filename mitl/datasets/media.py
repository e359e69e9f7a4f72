"""Sounds and videos by their bytes: what their headers say, and what decoders make of them.

FFmpeg's decoders come with the extra ``media``, as PyAV, which reads both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import DatasetError
from mitl.protocol.media import HEAD, format_of, media_fault
from mitl.records import PartKind

_WHOLE = 0.9
"""Share of the length told by a header that must be there; containers round it by a frame or two."""


def have_decoders() -> bool:
    """Whether the extra ``media`` is installed."""
    return find_spec("av") is not None


def header_fault(content: bytes, kind: PartKind) -> str:
    """What is wrong with a sound or a video as far as its header tells; empty if nothing is."""
    if not content:
        return "is empty"
    if fault := media_fault(content[:HEAD], kind):
        return fault
    medium = format_of(content[:HEAD])
    if medium is not None and medium.suffix == "wav":
        told = 8 + int.from_bytes(content[4:8], "little")
        if told > len(content) and told < 0xFFFFFFFF:
            return f"is cut off: its header tells {told:,} bytes, and it has {len(content):,}"
    return ""


def sound_samples(path: Path, rate: int | None = None) -> NDArray[np.float32]:
    """The samples of a sound: (channels, N) at its own rate, or (1, N), all channels mixed, at ``rate`` a second.

    Raises:
        DatasetError: it cannot be decoded, ends before its header says, or has no samples.
    """
    import av

    blocks: list[NDArray[np.float32]] = []
    with _opened(path, "audio") as (container, stream):
        resampler = av.AudioResampler("fltp", "mono" if rate else None, rate)
        seconds = 0.0
        for frame in container.decode(stream):
            seconds += frame.samples / frame.sample_rate
            blocks += [block.to_ndarray().astype(np.float32) for block in resampler.resample(frame)]
        blocks += (
            [block.to_ndarray().astype(np.float32) for block in resampler.resample(None)] if blocks else []
        )
        _require_whole(seconds, container, stream, "sound")
    return np.concatenate(blocks, axis=1)


def video_frames(path: Path, n_frames: int | None = None, size: int | None = None) -> NDArray[np.uint8]:
    """(F, height, width, 3) RGB frames of a video: all, or ``n_frames`` at even distances, ``size`` pixels square.

    Raises:
        DatasetError: it cannot be decoded, ends before its header says, or has no frames.
    """
    frames: list[NDArray[np.uint8]] = []
    with _opened(path, "video") as (container, stream):
        end = 0.0
        for frame in container.decode(stream):
            frames.append(frame.to_ndarray(format="rgb24", width=size, height=size))
            end = frame.time or end
        _require_whole(
            end + 1 / float(stream.average_rate or 25) if frames else 0.0, container, stream, "video"
        )
    if n_frames is not None:
        frames = [frames[round(place)] for place in np.linspace(0, len(frames) - 1, n_frames)]
    return np.stack(frames)


@contextmanager
def _opened(path: Path, kind: str) -> Iterator[tuple[Any, Any]]:
    """(the container, its first stream of this kind); what FFmpeg says of bad bytes becomes a DatasetError."""
    import av

    try:
        with av.open(str(path)) as container:
            streams = getattr(container.streams, kind)
            if not streams:
                raise DatasetError(f"has no {kind} in it")
            yield container, streams[0]
    except (av.error.FFmpegError, EOFError, ValueError) as error:
        told = getattr(error, "strerror", None) or str(error)
        raise DatasetError(f"cannot be decoded: {told}") from error


def _require_whole(seconds: float, container: Any, stream: Any, noun: str) -> None:
    if not seconds:
        raise DatasetError(f"has nothing in it: no part of the {noun} can be decoded")
    told = float(stream.duration * stream.time_base) if stream.duration else (container.duration or 0) / 1e6
    if seconds < _WHOLE * told:
        raise DatasetError(f"is cut off: it plays {seconds:.1f} of {told:.1f} seconds")
