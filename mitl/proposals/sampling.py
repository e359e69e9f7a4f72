"""Seeded draws that are the same on every platform and under every version of Python and numpy.

Each thing gets a key: the first 16 bytes of BLAKE2b of the seed, the name of the stream and the thing itself,
joined by an unseen separator. Sorting by key is a random order. So a draw does not depend on the order in
which things came, and a smaller sample is part of a larger one.

Gold controls are drawn so too: pairs whose answer is known beforehand, one of each kind for every HIT.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from mitl.core.arrays import Ints, contains, distinct, pack_ids, unpack_pairs
from mitl.errors import ProposalError
from mitl.records import Pair, several

T = TypeVar("T")

_SEPARATOR = "\x1f"


def draw_key(seed: int, stream: str, *parts: object) -> bytes:
    """The 16-byte key of one thing in one stream; uniform, and independent between streams."""
    text = _SEPARATOR.join(map(str, (seed, stream, *parts)))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def draw_below(limit: int, seed: int, stream: str, *parts: object) -> int:
    """An integer from 0 to ``limit - 1``; the bias of the remainder is under ``limit / 2**128``."""
    return int.from_bytes(draw_key(seed, stream, *parts), "big") % limit


def shuffled(things: Iterable[T], seed: int, stream: str, *, name: Callable[[T], object] = str) -> list[T]:
    """The things in random order; ``name`` tells them apart."""
    return sorted(things, key=lambda thing: draw_key(seed, stream, name(thing)))


def shuffled_pairs(pairs: Iterable[Pair], seed: int, stream: str) -> list[Pair]:
    """The pairs in random order."""
    return shuffled(pairs, seed, stream, name=pair_name)


def pair_name(pair: Pair) -> str:
    """What tells a pair apart in a draw."""
    return f"{pair.image_id}:{pair.caption_id}"


def sample(ids: Sequence[int], n: int | None, seed: int, stream: str) -> list[int]:
    """``n`` of the distinct ids, drawn without replacement, ascending; all of them where ``n`` is None.

    ``stream`` says what is drawn, in the plural (``image queries``): draws of one seed differ by it.

    Raises:
        ProposalError: ``n`` is negative or more than there are.
    """
    distinct = sorted(set(ids))
    if n is None:
        return distinct
    if n < 0:
        raise ProposalError(f"cannot sample {n} {stream}; ask for 0 or more")
    if n > len(distinct):
        raise ProposalError(f"cannot sample {n} of {len(distinct)} {stream}; ask for {len(distinct)} at most")
    return sorted(shuffled(distinct, seed, stream)[:n])


SURE_RATING = 4.5
"""CxC's raters agree on a match from here on; an original rated so is the best gold."""
DOUBTFUL_RATING = 3.0
"""CxC counts a pair as a match from here on; an original rated below is contradicted by people."""


def gold_positives(
    originals: Sequence[Pair],
    *,
    excluded: Collection[Pair] = (),
    ratings: Mapping[Pair, float],
    seed: int,
) -> list[Pair]:
    """The distinct originals that may be gold positives, in random order.

    Originals that CxC rates 4.5 or more come first, then those without such a rating; among either, one of each
    image before a second one. An original that is ``excluded`` (withdrawn, or named by an exclusion list) or that
    CxC rates below 3 is never used.

    Raises:
        ProposalError: there are originals, but none may be used.
    """
    refused = frozenset(excluded)
    usable = [
        pair
        for pair in dict.fromkeys(originals)
        if pair not in refused and ratings.get(pair, SURE_RATING) >= DOUBTFUL_RATING
    ]
    if originals and not usable:
        raise ProposalError(
            f"none of the {len(originals)} original pairs may be a gold positive: each is on an exclusion list, rated "
            "low or withdrawn; look at `mitl review`"
        )
    of_image: Counter[int] = Counter()
    place = {}
    for pair in shuffled_pairs(usable, seed, "gold positives"):
        place[pair] = of_image[pair.image_id]
        of_image[pair.image_id] += 1
    key = {pair: draw_key(seed, "gold positives order", pair_name(pair)) for pair in usable}
    return sorted(usable, key=lambda p: (ratings.get(p, 0.0) < SURE_RATING, place[p], key[p]))


def low_depth(side: int) -> int:
    """Ranks of a search among ``side`` items that leave most pairs unranked, for negative controls."""
    return max(1, side // 4)


def gold_negatives(
    queries: tuple[Sequence[int], Sequence[int]],
    gallery: tuple[Sequence[int], Sequence[int]],
    *,
    ranked: Ints,
    known_positives: Ints,
    n: int,
    seed: int,
) -> list[Pair]:
    """Up to ``n`` distinct random query x gallery pairs that nobody has reason to think a match.

    Queries and gallery are the ids of images and of captions. A pair is an image query with any caption, or any image
    with a caption query. Left out are the pairs of every ranking there is (``ranked``: all depths, annotators and
    directions) and of ``known_positives``; both are packed, in any order. Fewer than ``n`` are given only where there
    are fewer.

    Raises:
        ProposalError: no pair is left.
    """
    if n <= 0:
        return []
    forbidden = distinct(np.concatenate([ranked, known_positives]).astype(np.int64))
    sides = (
        (sorted(set(queries[0])), sorted(set(gallery[1]))),
        (sorted(set(gallery[0])), sorted(set(queries[1]))),
    )
    sizes = [len(images) * len(captions) for images, captions in sides]
    drawn: dict[int, None] = {}
    for attempt in range(20 * n + 100 if sum(sizes) else 0):
        at = draw_below(sum(sizes), seed, "gold negatives", attempt)
        (images, captions), at = (sides[0], at) if at < sizes[0] else (sides[1], at - sizes[0])
        packed = images[at // len(captions)] << 32 | captions[at % len(captions)]
        if packed not in drawn and not contains(forbidden, np.array([packed]))[0]:
            drawn[packed] = None
            if len(drawn) == n:
                break
    negatives = unpack_pairs(np.array(list(drawn), np.int64))
    if len(negatives) < n:
        negatives = _all_negatives(sides, forbidden, seed)[:n]
    if not negatives:
        both = len(set(queries[0]) & set(gallery[0])) * len(set(queries[1]) & set(gallery[1]))
        raise ProposalError(
            f"of {several(sum(sizes) - both, 'query x gallery pair')} each is proposed, ranked high or a known "
            "positive, so none is a gold negative; use a larger gallery, or propose fewer in a new project (--top-k)"
        )
    return negatives


def _all_negatives(sides: tuple[tuple[list[int], list[int]], ...], forbidden: Ints, seed: int) -> list[Pair]:
    """Every pair that is left; for spaces so nearly forbidden that draws kept missing."""
    parts = []
    for images, captions in sides:
        rows = np.repeat(np.array(images, np.int64), len(captions))
        parts.append(pack_ids(rows, np.tile(np.array(captions, np.int64), len(images))))
    space = distinct(np.concatenate(parts))
    return shuffled_pairs(unpack_pairs(space[~contains(forbidden, space)]), seed, "gold negatives")
