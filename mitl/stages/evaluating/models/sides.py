"""The images and captions that are searched: their ids, and the numbers that stand for them in arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mitl.datasets.ids import id_kind, tie_key
from mitl.errors import MetricError
from mitl.metrics.positives import Ids
from mitl.records import Direction, IdKind

Modality = str
"""``image`` or ``caption``."""


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """The images, or the captions, in tie order: ``ids[i]`` has the number ``numbers[i]``; numbers rise strictly."""

    modality: Modality
    ids: tuple[str, ...]
    numbers: Ids
    number_of: Mapping[str, int]

    @classmethod
    def of(cls, modality: Modality, ids: Iterable[str]) -> Side:
        """A side of these ids in tie order; integers are their own numbers, texts are numbered from 0."""
        distinct = set(ids)
        kind = id_kind(distinct)
        ordered = tuple(sorted(distinct, key=tie_key(kind)))
        if kind is IdKind.INTEGER:
            return cls.numbered(modality, ordered, [int(one) for one in ordered])
        return cls.numbered(modality, ordered, range(len(ordered)))

    @classmethod
    def numbered(cls, modality: Modality, ids: Sequence[str], numbers: Sequence[int]) -> Side:
        """A side whose items have numbers already, rising."""
        return cls(modality, tuple(ids), np.asarray(numbers, np.int64), dict(zip(ids, numbers, strict=True)))

    @property
    def plural(self) -> str:
        """``images`` or ``captions``."""
        return f"{self.modality}s"

    def __len__(self) -> int:
        return len(self.ids)

    def places(self, numbers: Ids) -> Ids:
        """Where these numbers stand among the side's: what row or column of an array is theirs."""
        return np.searchsorted(self.numbers, numbers).astype(np.int64)

    def id_of(self, number: int) -> str:
        """The external id behind a number; MetricError where there is none."""
        place = int(np.searchsorted(self.numbers, number))
        if place == len(self.ids) or self.numbers[place] != number:
            raise MetricError(f"no {self.modality} has the number {number}")
        return self.ids[place]


@dataclass(frozen=True, slots=True, eq=False)
class Sides:
    """What is searched with and in."""

    images: Side
    captions: Side

    def queries(self, direction: Direction) -> Side:
        """The side that searches."""
        return self.images if direction is Direction.I2T else self.captions

    def gallery(self, direction: Direction) -> Side:
        """The side that is searched."""
        return self.captions if direction is Direction.I2T else self.images

    def of(self, modality: Modality) -> Side:
        """The images or the captions."""
        return self.images if modality == "image" else self.captions


def strange_ids_hint(wanted: Sequence[str], found: Sequence[str]) -> str:
    """What to say besides where ids of a file match none of a set's: most often another way to write them."""
    if not wanted or not found or set(wanted) & set(found):
        return ""
    return f"; ids are compared as texts: the set's look like {wanted[0]!r}, the file's like {found[0]!r}"
