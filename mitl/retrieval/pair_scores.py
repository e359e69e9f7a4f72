"""Scores of image-caption pairs as artifacts: a pair is scored once, and a killed run goes on with the next pair.

For annotators such as ViLT, whose every pair is a forward pass, so that scores are what costs. A score belongs to
two items (``mitl.retrieval.encodings``) under the annotator's fingerprint: both directions share it, and so do an
exhaustive run and one of a shortlist. A picture or a caption that changes costs its own pairs only.

Files only grow, frame by frame, one file a run. A frame holds the pairs of one unit of work: keys of its images and
captions, for each pair the two places among those, and its score; a checksum goes before. What a kill leaves of a last
frame is passed over. Runs side by side write files of their own.
"""

from __future__ import annotations

import logging
import os
import secrets
import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from annotators.base import PaidPairs
from mitl.core.arrays import places
from mitl.core.whole_files import one_clear_line, sync_folder, to_disk
from mitl.errors import AnnotatorError
from mitl.progress import Advance
from mitl.records import CaptionItem, ImageItem, several
from mitl.retrieval.encoding_shelf import Keys

logger = logging.getLogger(__name__)

FIRST_UNIT = 256
"""Pairs scored and kept together at first, and at least: a slow annotator takes half a minute for so many."""
_UNIT_S = 30.0
"""What a unit should take once the rate is known: it is what a kill may cost."""
_LARGEST_UNIT = 1 << 16
_SLAB = 1 << 20
"""Pairs looked up at a time."""
_HEADER = struct.Struct("<4sIIII")
"""Magic, CRC-32 of the three counts and the payload, number of images, of captions, of pairs."""
_MAGIC = b"mps1"
_COUNTS = struct.Struct("<III")

Places = NDArray[np.int64]
Floats = NDArray[np.float32]

_CACHE_PAIRS, _BLOCK_PAIRS = 1 << 24, 1 << 22
"""Pairs that are kept at hand, 12 bytes each; and of them in one block."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoreFrame:
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

    def append(self, frame: ScoreFrame) -> FramePlace:
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


def read_frame(place: FramePlace) -> ScoreFrame:
    """The frame that lies there."""
    with place.path.open("rb") as file:
        file.seek(place.offset)
        frame = _next(file)
    assert frame is not None, f"the frame at {place.offset} of {place.path} was whole when it was opened"
    return frame


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


def _next(file: BinaryIO) -> ScoreFrame | None:
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
    return ScoreFrame(*parts)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredItems:
    """All images and captions that pairs are made of, with their keys; places are positions here."""

    images: Sequence[ImageItem]
    captions: Sequence[CaptionItem]
    image_keys: Keys
    caption_keys: Keys


class KnownScores:
    """Where the score of a pair is found, among the frames of all runs: pairs by blocks of neighbouring images.

    A block's pairs are decoded, sorted and kept at hand until others need the memory. Blocks are cut smaller as scores
    come to lie denser.
    """

    def __init__(self, places: Sequence[FramePlace], items: ScoredItems) -> None:
        self._width = len(items.captions)
        self._image_places, self._caption_places = _by_key(items.image_keys), _by_key(items.caption_keys)
        self._places: list[FramePlace] = []
        self._spans: list[tuple[int, int]] = []
        """The first and the last image of each frame."""
        self._cut(max(1, len(items.images)))
        for place in places:
            self.add(place)

    def add(self, place: FramePlace) -> None:
        """One frame more; one about images that are no longer there is passed over."""
        rows = self._image_places(place.images)
        rows = rows[rows >= 0]
        if len(rows):
            self._places.append(place)
            self._spans.append((int(rows.min()), int(rows.max())))
            self._enter(len(self._places) - 1)

    def known(self, packed: Places) -> Floats:
        """The scores of these pairs (image place x captions + caption place, rising); NaN where there is none."""
        scores = np.full(len(packed), np.nan, np.float32)
        start = 0
        while start < len(packed):
            number = int(packed[start]) // self._width // self._images
            block = self._block(number)
            if block is None:
                continue  # with smaller blocks
            pairs, values = block
            stop = int(np.searchsorted(packed, (number + 1) * self._images * self._width))
            if len(pairs):
                at = places(pairs, packed[start:stop])
                scores[start:stop] = np.where(at >= 0, values[at], np.float32(np.nan))
            start = stop
        return scores

    def _cut(self, images: int) -> None:
        """Blocks of so many images from now on."""
        self._images = images
        self._frames: dict[int, list[int]] = {}
        """By block: the frames with images of it."""
        self._at_hand: OrderedDict[int, tuple[Places, Floats, int]] = OrderedDict()
        """By block: its pairs, rising, their scores, and how many of its frames are in."""
        for number in range(len(self._places)):
            self._enter(number)

    def _enter(self, frame: int) -> None:
        first, last = self._spans[frame]
        for block in range(first // self._images, last // self._images + 1):
            self._frames.setdefault(block, []).append(frame)

    def _block(self, number: int) -> tuple[Places, Floats] | None:
        """The pairs of a block, rising, and their scores; None where blocks had to be cut smaller first."""
        frames = self._frames.get(number, [])
        if self._images > 1 and sum(self._share(frame, number) for frame in frames) > _BLOCK_PAIRS:
            self._cut((self._images + 1) // 2)
            return None
        pairs, scores, done = self._at_hand.get(number, (np.empty(0, np.int64), np.empty(0, np.float32), 0))
        if done < len(frames):
            limits = number * self._images * self._width, (number + 1) * self._images * self._width
            new = [self._decoded(frame, limits) for frame in frames[done:]]
            pairs = np.concatenate([pairs, *(new_pairs for new_pairs, _ in new)])
            scores = np.concatenate([scores, *(new_scores for _, new_scores in new)])
            order = np.argsort(pairs, kind="stable")  # merges what is sorted in runs
            pairs, scores = pairs[order], scores[order]
            self._at_hand[number] = (pairs, scores, len(frames))
            held = sum(len(cached) for cached, _, _ in self._at_hand.values())
            while held > _CACHE_PAIRS and len(self._at_hand) > 1:
                held -= len(self._at_hand.popitem(last=False)[1][0])
        if number in self._at_hand:
            self._at_hand.move_to_end(number)
        return pairs, scores

    def _share(self, frame: int, block: int) -> float:
        """About how many of a frame's pairs are in a block."""
        first, last = self._spans[frame]
        low, high = max(first, block * self._images), min(last, (block + 1) * self._images - 1)
        return self._places[frame].pairs * (high - low + 1) / (last - first + 1)

    def _decoded(self, number: int, limits: tuple[int, int]) -> tuple[Places, Floats]:
        """A frame's pairs within limits, packed and rising, with their scores."""
        frame = read_frame(self._places[number])
        rows = self._image_places(frame.images)[frame.image_places]
        columns = self._caption_places(frame.captions)[frame.caption_places]
        packed = rows * self._width + columns
        inside = (rows >= 0) & (columns >= 0) & (packed >= limits[0]) & (packed < limits[1])
        packed, scores = packed[inside], frame.scores[inside]
        order = np.argsort(packed, kind="stable")
        return packed[order], scores[order]


def _by_key(keys: Keys) -> Callable[[Keys], Places]:
    """A function from keys to the places where ``keys`` holds them, -1 where it does not."""
    order = np.argsort(keys)
    rising = keys[order]

    def find(wanted: Keys) -> Places:
        at = places(rising, wanted)
        return np.where(at >= 0, order[at], -1)

    return find


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Pairs to score together, by the places of their images and captions, sorted by image and then caption."""

    number: int
    images: Places
    captions: Places


@dataclass(frozen=True, slots=True, eq=False)
class ScoredUnit:
    """The scores of a unit's pairs and the seconds they took."""

    number: int
    scores: Floats
    seconds: float


Score = Callable[[Iterable[Unit]], Iterator[ScoredUnit]]
"""Scores units, in any order of completion."""


class AskedPairs:
    """How many pairs a paid annotator was asked about, written down before each unit; a kill may lose its answers."""

    def __init__(self, folder: Path, annotator: str, most: int | None) -> None:
        self._path, self._annotator, self._most = folder / "asked", annotator, most

    def require(self, more: int, kept: int) -> None:
        """AnnotatorError where so many more pairs would be too many; ``kept`` of those before have a score."""
        asked = self.count(kept)
        if self._most is not None and asked + more > self._most:
            raise AnnotatorError(
                f"annotator {self._annotator!r} was asked about {several(asked, 'pair')} and {more:,} more are wanted, "
                f"but its setting 'most_pairs' allows {self._most:,}; raise it, or ask less: a smaller 'shortlist' or "
                "fewer queries; what was scored is kept"
            )

    def count(self, kept: int) -> int:
        """Those written down; at least those that have a score, as an earlier version wrote none down."""
        lines = self._path.read_text().split() if self._path.exists() else []
        return max(kept, sum(map(int, lines)))

    def add(self, pairs: int) -> None:
        """Write down that so many are about to be asked."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as sink:
            sink.write(b"%d\n" % pairs)
            to_disk(sink)


class PairScores:
    """The scores of one annotator on the images and captions of a project."""

    def __init__(
        self, folder: Path, annotator: str, items: ScoredItems, score: Score, paid: PaidPairs | None = None
    ) -> None:
        """Open what is kept in a folder; where pairs cost money, units are small and no more are asked for."""
        self._folder, self._annotator, self._items, self._score = folder, annotator, items, score
        with one_clear_line(folder, "what was scored before is kept"):
            self._log = ScoreLog(folder)
        self._frames = KnownScores(self._log.places, items)
        self._asked = AskedPairs(folder, annotator, paid.most) if paid else None
        self._most = paid.at_once if paid else _LARGEST_UNIT
        self._unit = min(FIRST_UNIT, self._most)
        self.computed = 0
        """Pairs that had to be scored since this was opened."""

    def get(self, images: Places, captions: Places, advance: Advance = lambda pairs: None) -> Floats:
        """(P,) scores of the pairs of ``images[p]`` and ``captions[p]``; the missing ones are computed and kept.

        Raises:
            AnnotatorError: a score is not finite, or more pairs are missing than may be paid for.
            RetrievalError: scores cannot be kept, on a full disk for example; those before are.
        """
        packed, place_of = np.unique_inverse(images * len(self._items.captions) + captions)
        scores = np.full(len(packed), np.nan, np.float32)
        for start in range(0, len(packed), _SLAB):
            slab = slice(start, start + _SLAB)
            scores[slab] = self._frames.known(packed[slab])
        missing = np.flatnonzero(np.isnan(scores))
        advance(len(images) - len(missing))
        if len(missing):
            if self._asked:
                self._asked.require(len(missing), sum(place.pairs for place in self._log.places))
            self._compute(packed, missing, scores, advance)
        return scores[place_of]

    def _compute(self, packed: Places, missing: Places, scores: Floats, advance: Advance) -> None:
        begun: dict[int, Places] = {}

        def units() -> Iterator[Unit]:
            done = 0
            while done < len(missing):
                part = missing[done : done + self._unit]
                number = len(begun)
                begun[number] = part
                done += len(part)
                if self._asked:
                    with one_clear_line(self._folder, "what was scored before is kept"):
                        self._asked.add(len(part))
                yield Unit(number, *np.divmod(packed[part], len(self._items.captions)))

        for scored in self._score(units()):
            part = begun[scored.number]
            self._check(packed[part], scored.scores)
            scores[part] = scored.scores
            with one_clear_line(
                self._folder, f"the {self.computed:,} pairs that this run has scored are kept"
            ):
                self._keep(packed[part], scored.scores)
            self.computed += len(part)
            rate = len(part) / max(scored.seconds, 1e-6)
            self._unit = int(np.clip(rate * _UNIT_S, min(FIRST_UNIT, self._most), self._most))
            advance(len(part))

    def _keep(self, packed: Places, scores: Floats) -> None:
        rows, columns = np.divmod(packed, len(self._items.captions))
        images, image_places = np.unique_inverse(rows)
        captions, caption_places = np.unique_inverse(columns)
        frame = ScoreFrame(
            self._items.image_keys[images],
            self._items.caption_keys[captions],
            image_places.astype(np.uint32),
            caption_places.astype(np.uint32),
            scores,
        )
        self._frames.add(self._log.append(frame))

    def _check(self, packed: Places, scores: Floats) -> None:
        if scores.shape != packed.shape:
            raise AnnotatorError(
                f"annotator {self._annotator!r} gives scores {scores.shape} for {len(packed)} pairs"
            )
        bad = np.flatnonzero(~np.isfinite(scores))
        if len(bad):
            image, caption = divmod(int(packed[bad[0]]), len(self._items.captions))
            raise AnnotatorError(
                f"annotator {self._annotator!r} scores image {self._items.images[image].external_id!r} and caption "
                f"{self._items.captions[caption].external_id!r} with {scores[bad[0]]}; scores must be finite: check "
                "its weights and these items"
            )
