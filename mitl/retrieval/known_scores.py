"""Where the score of a pair is found among the frames of a log: by blocks of neighbouring images."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mitl.records import CaptionItem, ImageItem
from mitl.retrieval.item_keys import Keys
from mitl.retrieval.score_log import FramePlace, read_frame

Places = NDArray[np.int64]
Floats = NDArray[np.float32]

_CACHE_PAIRS, _BLOCK_PAIRS = 1 << 24, 1 << 22
"""Pairs that are kept at hand, 12 bytes each; and of them in one block."""


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
                part = packed[start:stop]
                found = np.minimum(np.searchsorted(pairs, part), len(pairs) - 1)
                scores[start:stop] = np.where(pairs[found] == part, values[found], np.float32(np.nan))
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
            pairs = np.concatenate([pairs, *(one for one, _ in new)])
            scores = np.concatenate([scores, *(one for _, one in new)])
            order = np.argsort(pairs, kind="stable")  # merges what is sorted in runs
            pairs, scores = pairs[order], scores[order]
            self._at_hand[number] = (pairs, scores, len(frames))
            held = sum(len(one) for one, _, _ in self._at_hand.values())
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
        there = (rows >= 0) & (columns >= 0) & (packed >= limits[0]) & (packed < limits[1])
        packed, scores = packed[there], frame.scores[there]
        order = np.argsort(packed, kind="stable")
        return packed[order], scores[order]


def _by_key(keys: Keys) -> Callable[[Keys], Places]:
    """A function from keys to the places where ``keys`` holds them, -1 where it does not."""
    order = np.argsort(keys)
    rising = keys[order]

    def places(wanted: Keys) -> Places:
        found = np.minimum(np.searchsorted(rising, wanted), len(rising) - 1)
        return np.where(rising[found] == wanted, order[found], -1)

    return places
