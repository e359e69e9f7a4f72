"""Seeded draws that are the same on every platform and under every version of Python and numpy.

Each thing gets a key: the first 16 bytes of BLAKE2b of the seed, the name of the stream and the thing itself,
joined by an unseen separator. Sorting by key is a random order. So a draw does not depend on the order in
which things came, and a smaller sample is part of a larger one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from mitl.errors import ProposalError
from mitl.records import Pair

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
