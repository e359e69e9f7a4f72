"""What networks read of items, each read once, and how well held-out queries are ranked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from annotators.encoding import Inputs
from annotators.training.learner import Learner, Side, rows_of
from annotators.training.taught import HeldOut
from mitl.core.arrays import Ints
from mitl.records import CaptionItem, ImageItem

AT_A_TIME = 64
"""Items that go through a network together."""
_KEPT_BYTES = 1 << 30
"""Of pictures as networks read them, kept so that they are read once."""
_READERS = 4


class Reads(Protocol):
    """Gives what a network reads of items, by row."""

    def images(self, rows: Sequence[int]) -> list[Inputs]:
        """Of these images."""
        ...

    def captions(self, rows: Sequence[int]) -> list[Inputs]:
        """Of these captions."""
        ...


class Reader:
    """Reads files and captions as a learner's network wants them, each once as long as there is room."""

    def __init__(
        self, learner: Learner, images: Sequence[ImageItem], captions: Sequence[CaptionItem]
    ) -> None:
        self._learner, self._images, self._captions = learner, images, captions
        self._room = _KEPT_BYTES
        self._kept: dict[int, Inputs] = {}
        self._texts: dict[int, Inputs] = {}
        self._pool = ThreadPoolExecutor(_READERS)

    def images(self, rows: Sequence[int]) -> list[Inputs]:
        """Of these images; AnnotatorError where one cannot be read."""
        new = [row for row in rows if row not in self._kept]
        items = [self._images[row] for row in new]
        read = dict(zip(new, self._pool.map(self._learner.read_image, items), strict=True))
        for row, inputs in read.items():
            size = sum(array.nbytes for array in inputs.values())
            if size <= self._room:
                self._kept[row] = inputs
                self._room -= size
        return [self._kept[row] if row in self._kept else read[row] for row in rows]

    def captions(self, rows: Sequence[int]) -> list[Inputs]:
        """Of these captions; AnnotatorError where one is longer than the network reads."""
        for row in rows:
            if row not in self._texts:
                self._texts[row] = self._learner.read_caption(self._captions[row])
        return [self._texts[row] for row in rows]


def held_out_map(learner: Learner, held: HeldOut, reads: Reads) -> tuple[float, float]:
    """mAP@R of held-out images, then of captions, from 0 to 1; NaN for a direction without queries."""
    learner.rank()
    with torch.inference_mode():
        images = _encoded(learner.images, reads.images, held.images)
        captions = _encoded(learner.captions, reads.captions, held.captions)
        i2t = _compared(learner, _rows(images, held.image_queries), captions)
        t2i = _compared(learner, images, _rows(captions, held.caption_queries)).T
    return (
        map_at_r(i2t, held.positives[held.image_queries]),
        map_at_r(t2i, held.positives.T[held.caption_queries]),
    )


def map_at_r(similarities: NDArray[np.float32], positives: NDArray[np.bool_]) -> float:
    """Mean over the queries of AP@R, from 0 to 1; NaN without queries. Equal similarities keep their order.

    Args:
        similarities: (Q, G).
        positives: (Q, G), at least one a query.

    Source: Musgrave et al., A metric learning reality check, ECCV 2020, section 3.2.
    """
    values = []
    for row, matches in zip(similarities, positives, strict=True):
        most = int(matches.sum())
        hits = matches[np.argsort(-row, kind="stable")[:most]]
        values.append(float((hits * hits.cumsum() / np.arange(1, most + 1)).sum() / most))
    return float(np.mean(values)) if values else math.nan


def similarities_of(learner: Learner, reads: Reads, images: Ints, captions: Ints) -> NDArray[np.float32]:
    """(I, C) of these rows, without gradients, in parts that fit anywhere."""
    learner.rank()
    with torch.inference_mode():
        return _compared(
            learner,
            _encoded(learner.images, reads.images, images),
            _encoded(learner.captions, reads.captions, captions),
        )


_Parts = list[Side]
"""Sides of at most ``AT_A_TIME`` items, for pictures and captions of one part are padded to its longest."""


def _encoded(
    encode: Callable[[Sequence[Inputs]], Side], read: Callable[[Sequence[int]], list[Inputs]], rows: Ints
) -> _Parts:
    parts = (rows[start : start + AT_A_TIME].tolist() for start in range(0, len(rows), AT_A_TIME))
    return [encode(read(part)) for part in parts]


def _rows(parts: _Parts, wanted: Ints) -> _Parts:
    """Some of the items, ascending, in the parts that they are in."""
    chosen = []
    for number, part in enumerate(parts):
        here = wanted[wanted // AT_A_TIME == number] % AT_A_TIME
        if len(here):
            chosen.append(rows_of(part, torch.from_numpy(here).to(next(iter(part.values())).device)))
    return chosen


def _compared(learner: Learner, images: _Parts, captions: _Parts) -> NDArray[np.float32]:
    if not images or not captions:
        return np.empty((_count(images), _count(captions)), np.float32)
    rows = [torch.cat([learner.compare(one, other) for other in captions], 1) for one in images]
    similarities: NDArray[Any] = torch.cat(rows).float().cpu().numpy()
    return similarities


def _count(parts: _Parts) -> int:
    return sum(len(next(iter(part.values()))) for part in parts)
