"""Comparing sets of positives: counts, overlap, and precision and recall against what people verified."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mitl.records import Direction

ByQuery = Mapping[str, Iterable[str]]
"""Query id → ids of its positives, by external id."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What people looked at, as (image id, caption id)."""

    judged: frozenset[tuple[str, str]]
    """Pairs with a usable answer: h of the paper, over all queries."""
    positive: frozenset[tuple[str, str]]
    """Those of them that people called a match: t."""

    def items(self, direction: Direction, *, positive: bool) -> dict[str, set[str]]:
        """Query → items of the verified (or the judged) pairs."""
        found: dict[str, set[str]] = {}
        for image, caption in self.positive if positive else self.judged:
            query, item = (image, caption) if direction is Direction.I2T else (caption, image)
            found.setdefault(query, set()).add(item)
        return found


@dataclass(frozen=True, slots=True)
class Quality:
    """How a set of positives fares against verified pairs; shares from 0 to 1, means over queries."""

    precision: float | None
    """None where no query counts."""
    recall: float | None
    queries: int
    """Queries that count: those with a positive that people looked at."""
    dropped: int
    """Queries left out because people looked at none of the set's positives."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Pairs of two sets on the same queries."""

    both: int
    only_first: int
    only_second: int


def quality(positives: ByQuery, verified: Verified, queries: Iterable[str], direction: Direction) -> Quality:
    """Precision and recall of a set of positives against verified pairs, averaged over queries.

    For a query with positives r in the set, looked-at items h and verified positives t, r' = r ∩ h;
    precision is |r' ∩ t| / |r'| and recall |r' ∩ t| / |t|. A query whose r' is empty is left out of both, since
    its precision is not defined (Chun et al., ECCV Caption, section 3.3 and its footnote 2). A query without any
    verified positive has no recall and counts for precision alone.
    """
    looked_at = verified.items(direction, positive=False)
    right = verified.items(direction, positive=True)
    precisions, recalls, dropped = [], [], 0
    for query in queries:
        known = set(positives.get(query, ())) & looked_at.get(query, set())
        if not known:
            dropped += 1
            continue
        matches = right.get(query, set())
        precisions.append(len(known & matches) / len(known))
        if matches:
            recalls.append(len(known & matches) / len(matches))
    return Quality(_mean(precisions), _mean(recalls), len(precisions), dropped)


def count(positives: ByQuery, queries: Iterable[str]) -> int:
    """Positives of these queries; an item named twice for a query counts once."""
    return sum(len(set(positives.get(query, ()))) for query in queries)


def overlap(first: ByQuery, second: ByQuery, queries: Iterable[str]) -> Overlap:
    """How many pairs of these queries both sets hold, and how many one of them alone."""
    both = only_first = only_second = 0
    for query in queries:
        one, other = set(first.get(query, ())), set(second.get(query, ()))
        both += len(one & other)
        only_first += len(one - other)
        only_second += len(other - one)
    return Overlap(both, only_first, only_second)


def disagreement(forward: ByQuery, backward: ByQuery) -> tuple[str, str] | None:
    """A pair (image, caption) that one direction holds and the other, though it lists its query, does not.

    A set may list some of the images and some of the captions as queries, so a pair is wanted in both directions
    only where both its sides are queries.
    """
    ahead = {image: set(captions) for image, captions in forward.items()}
    back = {caption: set(images) for caption, images in backward.items()}
    for image, captions in ahead.items():
        for caption in sorted(captions):
            if caption in back and image not in back[caption]:
                return image, caption
    for caption, images in back.items():
        for image in sorted(images):
            if image in ahead and caption not in ahead[image]:
                return image, caption
    return None


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
