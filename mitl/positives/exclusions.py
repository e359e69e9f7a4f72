"""What exclusion lists take out of every release, and so is never asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mitl.core.arrays import Flags, Ints, contains, pack_pairs, unpack_ids
from mitl.records import ExclusionKind, Pair


@dataclass(frozen=True, slots=True)
class Exclusions:
    """Captions that go with all their pairs, images that do, and single pairs; by surrogate id."""

    captions: frozenset[int] = frozenset()
    images: frozenset[int] = frozenset()
    pairs: frozenset[Pair] = frozenset()

    @classmethod
    def of(cls, entries: Iterable[tuple[ExclusionKind, int | None, int | None]]) -> Exclusions:
        """Exclusion lists as sets, from each entry's kind, image and caption."""
        captions, images, pairs = set(), set(), set()
        for kind, image, caption in entries:
            if kind is ExclusionKind.CAPTION and caption is not None:
                captions.add(caption)
            elif kind is ExclusionKind.IMAGE and image is not None:
                images.add(image)
            elif image is not None and caption is not None:
                pairs.add(Pair(image, caption))
        return cls(frozenset(captions), frozenset(images), frozenset(pairs))

    def __contains__(self, pair: Pair) -> bool:
        return self.take_out(pair.image_id, pair.caption_id)

    def take_out(self, image: int, caption: int | None) -> bool:
        """Whether they name the pair, or the image of a text that is no caption of the data set."""
        named = caption is not None and (caption in self.captions or Pair(image, caption) in self.pairs)
        return named or image in self.images

    def name(self, pairs: Ints) -> Flags:
        """(n,) whether they name each of these packed pairs, its image or its caption."""
        images, captions = unpack_ids(pairs)
        return np.asarray(
            contains(_ids(self.images), images)
            | contains(_ids(self.captions), captions)
            | contains(pack_pairs(self.pairs), pairs)
        )


def _ids(ids: frozenset[int]) -> Ints:
    return np.array(sorted(ids), np.int64)
