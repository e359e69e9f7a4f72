"""Which answers may speak for which pair, so that nothing judges itself.

A pair joins two groups: its image, with the captions written for it, and the image that its caption was written for,
with that one's captions. All pairs of the same two groups are one cell: they say nearly the same (a caption's
paraphrases, and both ways round), so a cell is never divided among folds. Folds of whole queries cannot be had with
two directions: over captions that several images share, all queries hang together, and what is left after both groups
of a pair are taken out of the training is a third of the answers. So a pair's probability may rest on answers about
its image with other groups, and about its caption with other images, as it may when people are asked about a part of
a query's pairs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mitl.core.packed import Ints
from mitl.proposals.sampling import draw_below

FOLDS = 4


def cells(images: Ints, groups: Ints) -> Ints:
    """(n,) one number for each two groups that a pair joins, in whichever order."""
    return np.asarray(np.minimum(images, groups) << 32 | np.maximum(images, groups))


def folds(images: Ints, groups: Ints, seed: int, count: int = FOLDS) -> NDArray[np.int16]:
    """(n,) the fold of each pair, by its cell alone: no other pair and no answer changes it."""
    numbers, at = np.unique(cells(images, groups), return_inverse=True)
    drawn = [draw_below(count, seed, "fusion folds", number) for number in numbers.tolist()]
    return np.array(drawn, np.int16)[at]
