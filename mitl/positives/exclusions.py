"""What exclusion lists take out of the positives."""

from __future__ import annotations

from dataclasses import dataclass

from mitl.records import Pair


@dataclass(frozen=True, slots=True)
class Exclusions:
    """Captions that go with all their pairs, images that do, and single pairs; by surrogate id."""

    captions: frozenset[int] = frozenset()
    images: frozenset[int] = frozenset()
    pairs: frozenset[Pair] = frozenset()

    def __contains__(self, pair: Pair) -> bool:
        return pair.caption_id in self.captions or pair.image_id in self.images or pair in self.pairs

    def without_pairs(self) -> Exclusions:
        """The lists as the official tool applies them: it never reads the one of single pairs."""
        return Exclusions(self.captions, self.images)
