"""Scores of pairs as they were computed: files that only grow, frame by frame, one file a run.

A frame holds the pairs of one unit of work: keys of its images and captions (``mitl.retrieval.item_keys``), for each
pair the two places among those, and its score; a checksum goes before. What a kill leaves of a last frame is passed
over. Runs side by side write files of their own.
"""

from __future__ import annotations

import logging
import os
import secrets
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from mitl.retrieval.item_keys import Keys
from mitl.retrieval.whole_files import sync_folder, to_disk

logger = logging.getLogger(__name__)

_HEADER = struct.Struct("<4sIIII")
"""Magic, CRC-32 of the three counts and the payload, number of images, of captions, of pairs."""
_MAGIC = b"mps1"
_COUNTS = struct.Struct("<III")


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """Pairs scored together: keys (I,) and (C,), places among them (P,) uint32, scores (P,) float32."""

    images: Keys
    captions: Keys
    image_places: NDArray[np.uint32]
    caption_places: NDArray[np.uint32]
    scores: NDArray[np.float32]

    def payload(self) -> bytes:
        """The bytes after the header."""
        parts = (
            self.images.astype("<u8"),
            self.captions.astype("<u8"),
            self.image_places.astype("<u4"),
            self.caption_places.astype("<u4"),
            self.scores.astype("<f4"),
        )
        return b"".join(part.tobytes() for part in parts)


@dataclass(frozen=True, slots=True, eq=False)
class FramePlace:
    """Where a frame lies, the images it is about, and how many pairs it holds."""

    path: Path
    offset: int
    images: Keys
    pairs: int


class ScoreLog:
    """All frames in a folder, and a file for those of this run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own: Path | None = None
        self.places = [place for path in sorted(folder.glob("*.scores")) for place in _places(path)]

    def append(self, frame: Frame) -> FramePlace:
        """Keep a frame; OSError where the file system refuses, and then the file is as it was before."""
        if self._own is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._own = self._folder / f"{os.getpid()}-{secrets.token_hex(6)}.scores"
            self._own.touch(exist_ok=False)
            sync_folder(self._folder)
        payload = frame.payload()
        counts = (len(frame.images), len(frame.captions), len(frame.scores))
        header = _HEADER.pack(_MAGIC, zlib.crc32(_COUNTS.pack(*counts) + payload), *counts)
        offset = self._own.stat().st_size
        try:
            with self._own.open("ab") as sink:
                sink.write(header + payload)
                to_disk(sink)
        except OSError:
            os.truncate(self._own, offset)
            raise
        place = FramePlace(self._own, offset, frame.images, len(frame.scores))
        self.places.append(place)
        return place


def read_frame(place: FramePlace) -> Frame:
    """The frame that lies there."""
    with place.path.open("rb") as file:
        file.seek(place.offset)
        found = _next(file)
    assert found is not None, f"the frame at {place.offset} of {place.path} was whole when it was opened"
    return found


def _places(path: Path) -> Iterator[FramePlace]:
    size = path.stat().st_size
    with path.open("rb") as file:
        while (offset := file.tell()) < size:
            frame = _next(file)
            if frame is None:
                lost = size - offset
                logger.warning(
                    "%s: %d bytes from %d on are damaged or were cut off by a kill; their pairs are scored again",
                    path,
                    lost,
                    offset,
                )
                return
            yield FramePlace(path, offset, frame.images, len(frame.scores))


def _next(file: BinaryIO) -> Frame | None:
    """The frame from here on; None where there is no whole one."""
    head = file.read(_HEADER.size)
    if len(head) < _HEADER.size:
        return None
    magic, checksum, images, captions, pairs = _HEADER.unpack(head)
    sizes = (8 * images, 8 * captions, 4 * pairs, 4 * pairs, 4 * pairs)
    left = os.fstat(file.fileno()).st_size - file.tell()
    if magic != _MAGIC or sum(sizes) > left:
        return None
    payload = file.read(sum(sizes))
    if zlib.crc32(_COUNTS.pack(images, captions, pairs) + payload) != checksum:
        return None
    starts = np.cumsum([0, *sizes])
    parts = (
        np.frombuffer(payload[start : start + size], kind)
        for start, size, kind in zip(starts, sizes, ("<u8", "<u8", "<u4", "<u4", "<f4"), strict=False)
    )
    return Frame(*parts)
