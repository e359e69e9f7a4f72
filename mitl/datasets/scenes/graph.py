"""The scene graph: groups of like objects, where they lie, and what lies behind them.

Lengths are in units of a canvas of 256 by 256, origin at the top left, y downwards, whatever size is drawn.
"""

from __future__ import annotations

import hashlib
import random
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

CANVAS = 256
APART = 24
"""How far the middles of two groups must lie apart along an axis for a relation along it to hold."""


class Shape(StrEnum):
    """What an object is. No two groups of a scene share a shape."""

    CIRCLE = "circle"
    SQUARE = "square"
    TRIANGLE = "triangle"
    STAR = "star"
    HEART = "heart"
    CROSS = "cross"
    DIAMOND = "diamond"
    CRESCENT = "crescent"


class Color(StrEnum):
    """The fill of an object."""

    RED = "red"
    ORANGE = "orange"
    YELLOW = "yellow"
    GREEN = "green"
    BLUE = "blue"
    PURPLE = "purple"
    BLACK = "black"
    WHITE = "white"


class Size(StrEnum):
    """How large an object is on the canvas; the bands of radii do not touch."""

    SMALL = "small"
    MEDIUM = "medium"
    LARGE = "large"

    @property
    def order(self) -> int:
        """0, 1, 2 from small to large."""
        return list(Size).index(self)


class Relation(StrEnum):
    """Where the subject lies, seen from the object."""

    LEFT_OF = "left_of"
    RIGHT_OF = "right_of"
    ABOVE = "above"
    BELOW = "below"

    @property
    def inverse(self) -> Relation:
        """The same fact told from the other side."""
        return _INVERSE[self]


_INVERSE = {
    Relation.LEFT_OF: Relation.RIGHT_OF,
    Relation.RIGHT_OF: Relation.LEFT_OF,
    Relation.ABOVE: Relation.BELOW,
    Relation.BELOW: Relation.ABOVE,
}


class Background(StrEnum):
    """What the objects are set against."""

    SKY = "sky"
    GRASS = "grass"
    SAND = "sand"
    WATER = "water"
    NIGHT = "night"
    SNOW = "snow"
    BRICKS = "bricks"


@dataclass(frozen=True, slots=True)
class Spot:
    """Where one object lies: its middle, and its turn in degrees."""

    x: int
    y: int
    turn: int


@dataclass(frozen=True, slots=True)
class Group:
    """One to three like objects that lie together."""

    shape: Shape
    color: Color
    size: Size
    radius: int
    spots: tuple[Spot, ...]

    @property
    def quantity(self) -> int:
        """How many objects."""
        return len(self.spots)

    @property
    def middle(self) -> tuple[float, float]:
        """The mean of the objects' middles."""
        count = len(self.spots)
        return sum(s.x for s in self.spots) / count, sum(s.y for s in self.spots) / count


@dataclass(frozen=True, slots=True)
class Scene:
    """One picture: one to four groups of different shapes, one of them alone of the largest size."""

    background: Background
    texture: int
    """Seed of the background's details (where the clouds are); no caption speaks of them."""
    groups: tuple[Group, ...]

    @property
    def main(self) -> Group:
        """The group of the largest size, the only one of that size."""
        return max(self.groups, key=lambda group: group.size.order)

    def group(self, shape: Shape) -> Group | None:
        """The group of this shape, or None where there is none."""
        return next((group for group in self.groups if group.shape is shape), None)


def relation_holds(subject: Group, relation: Relation, other: Group) -> bool:
    """Whether the subject lies so; of a diagonal neighbour two relations hold, of an aligned one only one."""
    (sx, sy), (ox, oy) = subject.middle, other.middle
    gap = {
        Relation.LEFT_OF: ox - sx,
        Relation.RIGHT_OF: sx - ox,
        Relation.ABOVE: oy - sy,
        Relation.BELOW: sy - oy,
    }[relation]
    return gap >= APART


T = TypeVar("T")


class Stream:
    """A stream of choices named by its parts; two different names never share a stream."""

    def __init__(self, *name: object) -> None:
        text = "\x1f".join(str(part) for part in name)
        digest = hashlib.sha256(text.encode()).digest()
        self._uniform = random.Random(int.from_bytes(digest, "big")).random

    def chance(self, share: float) -> bool:
        """True with this probability."""
        return self._uniform() < share

    def between(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``, both included."""
        return low + int(self._uniform() * (high - low + 1))

    def choice(self, options: Sequence[T]) -> T:
        """One of the options, each as likely as the others."""
        return options[int(self._uniform() * len(options))]

    def weighted(self, options: Sequence[T], weights: Sequence[float]) -> T:
        """One of the options, as likely as its weight."""
        rest = self._uniform() * sum(weights)
        for option, weight in zip(options, weights, strict=True):
            rest -= weight
            if rest < 0:
                return option
        return options[-1]

    def sample(self, options: Sequence[T], count: int) -> list[T]:
        """``count`` different options in random order; few of very many cost no more than of few."""
        places: list[int] = []
        drawn = []
        for left in range(len(options), len(options) - count, -1):
            place = int(self._uniform() * left)  # among those that are left
            for before in places:
                place += before <= place
            insort(places, place)
            drawn.append(options[place])
        return drawn

    def shuffled(self, options: Sequence[T]) -> list[T]:
        """All options in random order."""
        return self.sample(options, len(options))
