"""Media by their bytes: what headers say, what decoders make of them, and files of those that a table holds itself.

FFmpeg's decoders come with the extra ``media``, as PyAV, which reads both.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.datasets.images import picture_errors
from mitl.datasets.row_sources import RowSource
from mitl.errors import DatasetError
from mitl.protocol.media import HEAD, NOUNS, format_of, media_fault
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
            blocks += [one.to_ndarray().astype(np.float32) for one in resampler.resample(frame)]
        blocks += [one.to_ndarray().astype(np.float32) for one in resampler.resample(None)] if blocks else []
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


PICTURES = "pictures"
"""Folder, within that for what a table holds itself, of the pictures, sounds or videos that were inside it."""
_SUFFIXES = {"JPEG": ".jpg", "PNG": ".png", "GIF": ".gif", "WEBP": ".webp", "BMP": ".bmp", "TIFF": ".tif"}


@dataclass(frozen=True, slots=True)
class Inside:
    """What is inside a table, by the rows' numbers."""

    names: dict[int, str] = field(default_factory=dict)
    """The file that a picture's bytes become."""
    paths: dict[int, str] = field(default_factory=dict)
    """What the table calls the picture."""


def look_inside(source: RowSource, column: str, kept: Collection[int], kind: PartKind) -> Inside:
    """The names of all pictures in the rows that are kept.

    Raises:
        DatasetError: a picture cannot be read; a sound or a video is in no format that is known.
    """
    found = Inside()
    for number, content, path in _contents(source, column, kept):
        if path:
            found.paths[number] = path
        if content is not None:
            where = source.where(number)
            found.names[number] = hashlib.sha256(content).hexdigest()[:32] + _suffix(content, kind, where)
    return found


def write_pictures(source: RowSource, column: str, inside: Inside, folder: Path) -> None:
    """Write what `look_inside` found into ``pictures`` in the folder, where it is not there yet."""
    for number, content, _ in _contents(source, column, inside.names):
        target = folder / PICTURES / inside.names[number]
        if content is not None and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f".{target.name}.part")
            part.write_bytes(content)
            part.replace(target)


def _contents(
    source: RowSource, column: str, kept: Collection[int]
) -> Iterator[tuple[int, bytes | None, str | None]]:
    """(row, bytes, path) of each picture; either may be missing."""
    for number, row in enumerate(source.rows([column]), start=1):
        cell = row[column]
        if number in kept and cell is not None:
            yield (
                (number, cell.get("bytes"), cell.get("path"))
                if isinstance(cell, dict)
                else (number, cell, None)
            )


def _suffix(content: bytes, kind: PartKind, where: str) -> str:
    if kind is PartKind.IMAGE:
        return _picture_suffix(content, where)
    fault = media_fault(content[:HEAD], kind) if content else "is empty"
    medium = format_of(content[:HEAD])
    if fault or medium is None:
        raise DatasetError(f"the {NOUNS[kind]} in {where} {fault}")
    return f".{medium.suffix}"


def _picture_suffix(content: bytes, where: str) -> str:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content)) as picture:
            kind = picture.format or ""
            picture.verify()
    except picture_errors() as error:
        told = "it is none" if isinstance(error, UnidentifiedImageError) else str(error).partition("\n")[0]
        raise DatasetError(f"the picture in {where} cannot be read: {told}") from error
    return _SUFFIXES.get(kind, f".{kind.lower()}")
