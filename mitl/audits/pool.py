"""The pool of an audit, every pair of an asked query and an item of its gallery, each once; and the draw from it.

A pool of 38 million pairs is four arrays of ids and a bijection between pairs and the ranks below its size, so that a
uniform draw of ranks is a uniform draw of pairs. From each stratum a simple random sample is drawn without replacement,
in a random order over all strata.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.core.arrays import Ints, contains, distinct, pack_ids, places, unpack_ids
from mitl.errors import AuditError
from mitl.records import several
from mitl.records.audits import AUDITED, AuditDesign, Stratum
from mitl.records.frames import frame


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """All pairs of ``image_queries`` × ``captions`` and of ``images`` × ``caption_queries``; ids ascending, distinct.

    Images and captions are the left and the right side of a data set whose items are of other kinds. Pairs ``apart``
    are no part of it: a composed query may not find its own reference.

    Raises:
        AuditError: some ids are not ascending and distinct, or there is no pair.
    """

    image_queries: Ints
    caption_queries: Ints
    images: Ints
    captions: Ints
    apart: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """Packed, in any order."""
    _blocks: tuple[tuple[Ints, Ints], ...] = field(init=False, repr=False)
    """Disjoint rectangles of left and right ids that make up the pool and what is apart, in the order of ranks."""
    _before: Ints = field(init=False, repr=False)
    """For each pair apart in the order of ranks, how many pairs of the pool have a lower rank."""

    def __post_init__(self) -> None:
        for name in ("image_queries", "caption_queries", "images", "captions"):
            ids = getattr(self, name)
            if not (ids[1:] > ids[:-1]).all():
                raise AuditError(f"{name} of a pool must be ascending and distinct; sort them first")
        known = contains(self.captions, self.caption_queries)
        others = self.images[~contains(self.image_queries, self.images)]
        blocks = (
            (self.image_queries, self.captions),
            (others, self.caption_queries[known]),
            (self.images, self.caption_queries[~known]),
        )
        object.__setattr__(self, "_blocks", blocks)
        object.__setattr__(self, "apart", distinct(np.asarray(self.apart, np.int64)))
        object.__setattr__(self, "_before", _lower(self._within(self.apart)))
        if not self.size:
            raise AuditError("the pool holds no pair; ask queries of a data set with a gallery first")

    @property
    def size(self) -> int:
        """How many pairs there are, one in both directions counted once."""
        return sum(len(left) * len(right) for left, right in self._blocks) - len(self._before)

    def holds(self, packed: Ints) -> NDArray[np.bool_]:
        """Whether each pair is in the pool."""
        images, captions = unpack_ids(np.asarray(packed, np.int64))
        forth = contains(self.image_queries, images) & contains(self.captions, captions)
        back = contains(self.images, images) & contains(self.caption_queries, captions)
        return np.asarray((forth | back) & ~contains(self.apart, packed))

    def nth(self, ranks: Ints) -> Ints:
        """The packed pairs at these ranks, from 0 to below the pool's size: the inverse of `ranks`."""
        ranks = np.asarray(ranks, np.int64)
        assert not len(ranks) or (ranks.min() >= 0 and ranks.max() < self.size)
        ranks = ranks + np.searchsorted(self._before, ranks, side="right")
        packed, start = np.empty(len(ranks), np.int64), 0
        for left, right in self._blocks:
            here = (ranks >= start) & (ranks < start + len(left) * len(right))
            if here.any():
                rows, columns = np.divmod(ranks[here] - start, len(right))
                packed[here] = pack_ids(left[rows], right[columns])
            start += len(left) * len(right)
        return packed

    def ranks(self, packed: Ints) -> Ints:
        """The rank of each pair; -1 where the pool does not hold it."""
        found = self._within(packed)
        apart = self._before + np.arange(len(self._before))
        return np.where(
            (found < 0) | contains(apart, found), -1, found - np.searchsorted(apart, found, side="left")
        )

    def _within(self, packed: Ints) -> Ints:
        """The place of each pair in the rectangles; -1 where none has it."""
        images, captions = unpack_ids(np.asarray(packed, np.int64))
        found, start = np.full(len(images), -1, np.int64), 0
        for left, right in self._blocks:
            rows, columns = places(left, images), places(right, captions)
            here = (rows >= 0) & (columns >= 0)
            found[here] = start + rows[here] * len(right) + columns[here]
            start += len(left) * len(right)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class RemainderOf:
    """The pairs of a pool that are not ``listed``, which may name pairs outside the pool too."""

    pool: Pool
    listed: Ints
    """Packed, in any order."""
    _before: Ints = field(init=False, repr=False)
    """For each listed pair in the order of ranks, how many pairs of the remainder have a lower rank."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_before", _lower(self.pool.ranks(self.listed)))

    @property
    def size(self) -> int:
        """How many pairs remain."""
        return self.pool.size - len(self._before)

    def nth(self, numbers: Ints) -> Ints:
        """The packed pairs with these numbers, from 0 to below the remainder's size."""
        numbers = np.asarray(numbers, np.int64)
        return self.pool.nth(numbers + np.searchsorted(self._before, numbers, side="right"))


def _lower(ranks: Ints) -> Ints:
    """For each of these ranks, ascending and once, how many others below it are not among them; -1 is no rank."""
    ranks = distinct(ranks[ranks >= 0])
    return ranks - np.arange(len(ranks))


_NOBODY: Ints = np.empty(0, np.int64)


def draw(
    design: AuditDesign, members: Sequence[Ints | RemainderOf], *, positives: Ints = _NOBODY
) -> pd.DataFrame:
    """The sample of a design: ``AUDITED`` without the answers, in the order of drawing; equal for equal arguments.

    Args:
        members: of each stratum in the design's order, the packed pairs, distinct and in an order that is always the
            same, or what remains of a pool.
        positives: packed and ascending: the matches that are known now. They always get three answers, since precision
            needs them, whatever share of their stratum is rechecked.

    Raises:
        AuditError: a stratum holds pairs and none is to be drawn, more are to be drawn than it holds, it does not hold
            as many as the design says, or nothing at all is drawn.
    """
    check_design(design)
    assert len(members) == len(design.strata)
    source = _source(design, members, positives)
    drawn = [
        _drawn(design, number, member, source)
        for number, member in enumerate(members)
        if design.strata[number].sample
    ]
    pairs = np.concatenate([pairs for pairs, _ in drawn])
    strata = np.repeat(np.arange(len(design.strata)), [stratum.sample for stratum in design.strata])  # (n,)
    order = np.random.default_rng([*source, len(design.strata)]).permutation(len(pairs))
    known = contains(positives, pairs[order])
    inclusion = np.array([stratum.inclusion for stratum in design.strata])
    return frame(
        AUDITED,
        {
            "pair": pairs[order],
            "place": np.arange(1, len(pairs) + 1),
            "stratum": strata[order],
            "inclusion": inclusion[strata[order]],
            "recheck": np.concatenate([recheck for _, recheck in drawn])[order] | known,
            "known": known,
        },
    )


def check_design(design: AuditDesign) -> None:
    """Refuse a design that no sample can have, or that would leave a part of its pool unseen.

    Raises:
        AuditError: see `draw`.
    """
    for stratum in design.strata:
        if stratum.size and stratum.sample < 1:
            raise AuditError(
                f"stratum {stratum.name!r} holds {several(stratum.size, 'pair')} and none of them is drawn, so each "
                "could be a match; draw at least 1"
            )
        if stratum.sample > stratum.size:
            raise AuditError(
                f"{stratum.sample:,} pairs are to be drawn from stratum {stratum.name!r}, but it holds {stratum.size:,}"
            )
    if not design.sample:
        raise AuditError("the design draws no pair; give it a stratum that holds some")


def _source(design: AuditDesign, members: Sequence[Ints | RemainderOf], positives: Ints) -> tuple[int, int]:
    """Where random numbers begin: the seed, and all that is drawn from.

    By the seed alone half of a sample would be drawn again from a pool that hardly differs, as by the matches that the
    earlier audit found, and what was drawn before is known to hold no others.
    """
    digest = hashlib.sha256(repr([stratum.size for stratum in design.strata]).encode())
    for pairs in (*members, positives):
        if not isinstance(pairs, RemainderOf):
            digest.update(np.asarray(pairs, "<i8").tobytes() + b"|")
    return design.seed, int.from_bytes(digest.digest()[:16], "big")


def _drawn(
    design: AuditDesign, number: int, member: Ints | RemainderOf, source: tuple[int, int]
) -> tuple[Ints, np.ndarray]:
    """The pairs of one stratum with whether a no is rechecked; its random numbers are its own."""
    stratum: Stratum = design.strata[number]
    size = member.size
    if size != stratum.size:
        raise AuditError(
            f"stratum {stratum.name!r} was designed with {stratum.size:,} pairs and holds {size:,}; plan again"
        )
    rng = np.random.default_rng([*source, number])
    numbers = np.asarray(rng.choice(size, stratum.sample, replace=False), np.int64)
    pairs = member.nth(numbers) if isinstance(member, RemainderOf) else np.asarray(member, np.int64)[numbers]
    return pairs, rng.random(stratum.sample) < stratum.recheck_share
