"""Scores of image-caption pairs as artifacts: a pair is scored once, and a killed run goes on with the next pair.

For annotators such as ViLT, whose every pair is a forward pass, so that scores are what costs. A score belongs to
two items (``mitl.retrieval.item_keys``) under the annotator's fingerprint: both directions share it, and so do an
exhaustive run and one of a shortlist. A picture or a caption that changes costs its own pairs only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mitl.core.whole_files import one_clear_line
from mitl.errors import AnnotatorError
from mitl.progress import Advance
from mitl.retrieval.known_scores import Floats, Frame, KnownScores, Places, ScoredItems, ScoreLog

FIRST_UNIT = 2048
"""Pairs scored and kept together at first."""
_UNIT_S = 30.0
"""What a unit should take once the rate is known: it is what a kill may cost."""
_SMALLEST_UNIT, _LARGEST_UNIT = 256, 1 << 16
_SLAB = 1 << 20
"""Pairs looked up at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Pairs to score together, by the places of their images and captions, sorted by image and then caption."""

    number: int
    images: Places
    captions: Places


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """The scores of a unit's pairs and the seconds they took."""

    number: int
    scores: Floats
    seconds: float


Score = Callable[[Iterable[Unit]], Iterator[Scored]]
"""Scores units, in any order of completion."""


class PairScores:
    """The scores of one annotator on the images and captions of a project."""

    def __init__(self, folder: Path, annotator: str, items: ScoredItems, score: Score) -> None:
        self._folder, self._annotator, self._items, self._score = folder, annotator, items, score
        with one_clear_line(folder, "what was scored before is kept"):
            self._log = ScoreLog(folder)
        self._frames = KnownScores(self._log.places, items)
        self._unit = FIRST_UNIT
        self.computed = 0
        """Pairs that had to be scored since this was opened."""

    def get(self, images: Places, captions: Places, advance: Advance = lambda pairs: None) -> Floats:
        """(P,) scores of the pairs of ``images[p]`` and ``captions[p]``; the missing ones are computed and kept.

        Raises:
            AnnotatorError: a score is not finite.
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
            self._unit = int(np.clip(rate * _UNIT_S, _SMALLEST_UNIT, _LARGEST_UNIT))
            advance(len(part))

    def _keep(self, packed: Places, scores: Floats) -> None:
        rows, columns = np.divmod(packed, len(self._items.captions))
        images, image_places = np.unique_inverse(rows)
        captions, caption_places = np.unique_inverse(columns)
        frame = Frame(
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
