"""Pages of pairs on their way to the crowd."""

from __future__ import annotations

from dataclasses import dataclass

from mitl.records.enums import PairRole
from mitl.records.items import Pair


@dataclass(frozen=True, slots=True)
class GoldControl:
    """A pair whose answer we know; ``role`` is gold_positive or gold_negative."""

    pair: Pair
    role: PairRole


@dataclass(frozen=True, slots=True)
class HitItem:
    """One place (from 1) of a HIT."""

    place: int
    pair: Pair
    role: PairRole


@dataclass(frozen=True, slots=True)
class PackedHit:
    """A page of pairs, not yet posted; ``number`` counts from 1 within the batch."""

    number: int
    items: tuple[HitItem, ...]
