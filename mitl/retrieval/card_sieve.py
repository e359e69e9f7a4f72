"""Two blocks on a GPU: which pairs may reach a floor, and the canonical similarities of those.

By compiled loops where Triton and a GPU are there, by torch's own operations elsewhere: the pairs may differ by a few
near the floors, which are let through to be on the safe side, the similarities never do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

import numpy as np

from mitl.retrieval.rescoring import fixed_sum
from mitl.retrieval.vectors import UNIT, Vectors, bounded, error_terms, gamma

logger = logging.getLogger(__name__)

ROUNDOFF = 2.0**-22
"""Of sums on matrix units, which align and truncate what they add: some bits less than float32 in each step."""
_DEPTH = 64
"""Widths are filled up with zeros to a multiple of it."""
_GROUP = 16
"""Rows of blocks that are multiplied beside each other, so that the cache holds what they read."""
_LARGE = (128, 256, 64, 3)
"""Rows, columns and depth of a block, and blocks on their way, where 160 KiB of shared memory are there."""
_SMALL = (128, 128, 32, 3)
_LARGE_BYTES = 160 << 10
_GROUPS = 5
"""Times k groups of items whose best are looked at for first floors."""
_PAIRS, _NUMBERS, _WORDS = 16, 128, 1024
"""Pairs, numbers of a vector and words that one compiled loop takes at once."""
_CHUNK = 1 << 17
"""Pairs that torch multiplies in float64 at once."""


@dataclass(frozen=True, slots=True, eq=False)
class CardBlock:
    """Some items on the device."""

    exact: Any
    """(n, K, D), as they were given."""
    halves: Any
    """(K, n, D filled up) float16: the items times ``scale``."""
    scale: Any
    """() float64, a power of two."""
    lengths: Any
    """(n,) float64, upper bounds of the length of an item's longest vector."""
    losses: Any
    """(n,) float64, upper bounds of the length of what float16 took from any of an item's vectors."""
    most: tuple[float, float]
    """The largest of the lengths and of the losses, or more."""

    def __len__(self) -> int:
        return len(self.exact)

    def part(self, rows: slice) -> CardBlock:
        """Some of its items, the same memory."""
        halves = self.halves[:, rows]
        return CardBlock(
            self.exact[rows], halves, self.scale, self.lengths[rows], self.losses[rows], self.most
        )

    @classmethod
    def of(
        cls, torch: Any, exact: Any, vectors: Vectors | None = None, rows: slice = slice(0, None)
    ) -> CardBlock:
        """Items (n, K, D) of a device, the ``rows`` of ``vectors``.

        Raises:
            RetrievalError: an item is not finite or too long.
        """
        count, per_item, width = exact.shape
        numbers = exact.float()
        # Where items of one block differ by orders of magnitude the small ones lose more, and ``losses`` says so.
        exponent = 14 - numbers.abs().amax().frexp().exponent.long().clamp(-106, 134)
        scale = torch.ones((), device=exact.device).ldexp(exponent)
        halves = torch.zeros((per_item, count, _filled(width)), dtype=torch.float16, device=exact.device)
        halves[:, :, :width] = (numbers * scale).transpose(0, 1)
        lost = numbers - halves[:, :, :width].transpose(0, 1).float() / scale
        squares = [part.square().sum(2).amax(1) for part in (numbers, lost)]
        there, lost_there, some = torch.stack([*squares, numbers.flatten(1).any(1).float()]).cpu().numpy()
        lengths, losses = bounded(there, width), bounded(lost_there, width)
        # Vectors that are not zero have a length of at least what squares may lose.
        lengths[some == 0] = losses[some == 0] = 0
        if vectors is not None:
            vectors.checked(lengths, rows.start)
        bounds = torch.from_numpy(np.stack([lengths, losses])).to(exact.device)
        most = float(lengths.max()), float(losses.max())
        return cls(exact, halves, scale.double(), bounds[0], bounds[1], most)


def block_bytes(width: int, per_item: int, itemsize: int) -> int:
    """Device memory for an item of a block."""
    return per_item * (width * itemsize + 2 * _filled(width)) + 16


def _filled(width: int) -> int:
    return -(-width // _DEPTH) * _DEPTH


def errors(asking: CardBlock, partner: CardBlock, *, unit: float, losses: bool) -> Any:
    """How far near values of a block's items with any of another may be off, (n,); see ``product_errors``."""
    length, loss = (np.array([value]) for value in partner.most)
    terms = error_terms(length, loss if losses else 0 * loss, asking.exact.shape[2], unit)[:, 0]
    own = asking.losses if losses else 0 * asking.losses
    near = asking.lengths + own
    return own * terms[0] + near * terms[1] + (near > 0) * terms[2]


class Sieve:
    """Looks at all pairs of two blocks on one device.

    Args:
        compiled: ``mitl.retrieval.card_kernels``, where it runs there: then a tile takes a bit for each pair.
    """

    def __init__(self, torch: Any, device: Any, *, compiled: Any = None) -> None:
        self._torch, self._device, self.kernels = torch, device, compiled
        self._shape = _SMALL
        if device.type == "cuda":
            properties = torch.cuda.get_device_properties(device)
            # Older torch does not say.
            shared = getattr(properties, "shared_memory_per_block_optin", 0)
            self._shape = _LARGE if shared >= _LARGE_BYTES else _SMALL
        self._words: Any = None

    def floors(self, asking: CardBlock, partner: CardBlock, k: int) -> Any:
        """For each item of a block a number (n,) float64 that its k-th best of the other, or better, reaches.

        By float32 products of the whole of both; minus infinity where there are fewer than k.
        """
        torch = self._torch
        if len(partner) < k:
            return torch.full((len(asking),), -torch.inf, dtype=torch.float64, device=self._device)
        allowed = errors(asking, partner, unit=UNIT, losses=False)
        near = self._largest(
            asking, partner, lambda k, m: self._near(asking.exact[:, k], partner.exact[:, m])
        )
        # The k-th best of the groups' best is no more than the k-th best of all, and found in less time.
        size = max(1, len(partner) // (_GROUPS * k))
        groups = near[:, : len(partner) // size * size].unflatten(1, (-1, size)).amax(2)
        kth = groups.topk(k, dim=1).values[:, -1]
        return kth.double() - allowed

    def _near(self, one: Any, other: Any) -> Any:
        """(n, m) sums in float32."""
        return self._torch.mm(one.float(), other.float().T)

    def sift(
        self, left: CardBlock, right: CardBlock, left_least: Any, right_least: Any | None, most: int
    ) -> tuple[Any, Any] | None:
        """Places (p,) int64 of all pairs whose near value may reach the least of either side, in any order.

        None where they are more than ``most``.

        Args:
            left_least, right_least: (n,) and (m,) float64, floors of canonical similarities less the ``errors``.
        """
        torch = self._torch
        scale = left.scale * right.scale
        least = self._below(left_least * scale)
        theirs = None if right_least is None else self._below(right_least * scale)
        if self.kernels is None:
            near = reduce(
                torch.maximum, [self._near(one, other) for one in left.halves for other in right.halves]
            )
            reach = near >= least[:, None]
            if theirs is not None:
                reach |= near >= theirs
            if int(reach.sum()) > most:
                return None
            rows, columns = reach.nonzero(as_tuple=True)
            return rows, columns
        pairs = []
        for one in left.halves:
            for other in right.halves:
                places = self._sift(one, other, least, theirs, most)
                if places is None:
                    return None
                pairs.append(places)
        if len(pairs) == 1:
            return pairs[0]
        flat = torch.cat([rows * len(right) + columns for rows, columns in pairs]).unique()
        return flat // len(right), flat % len(right)

    def _below(self, values: Any) -> Any:
        """The largest float32 that are below these numbers."""
        torch = self._torch
        return torch.nextafter(values.float(), torch.full((), -torch.inf, device=self._device))

    def _sift(
        self, one: Any, other: Any, least: Any, theirs: Any | None, most: int
    ) -> tuple[Any, Any] | None:
        torch = self._torch
        rows, columns, depth, stages = self._shape
        grid = -(-len(one) // rows) * -(-len(other) // columns)
        across = columns // 32
        if self._words is None or len(self._words) < grid:
            self._words = None  # before more is asked for
            self._words = torch.empty((grid, rows, across), dtype=torch.int32, device=self._device)
            self._blocks = torch.empty((grid, 2), dtype=torch.int32, device=self._device)
        totals = torch.zeros(2, dtype=torch.int64, device=self._device)
        self.kernels.sift_blocks[(grid,)](
            one,
            other,
            least,
            least if theirs is None else theirs,
            len(one),
            len(other),
            totals,
            self._blocks,
            self._words,
            BOTH=theirs is not None,
            WIDTH=one.shape[1],
            ROWS=rows,
            COLUMNS=columns,
            DEPTH=depth,
            GROUP=_GROUP,
            num_warps=8,
            num_stages=stages,
        )
        count, bits = totals.cpu().tolist()
        if bits > most:
            return None
        if not bits:
            return totals[:0], totals[:0]
        pairs = torch.empty((2, bits), dtype=torch.int64, device=self._device)
        total = torch.zeros(1, dtype=torch.int64, device=self._device)
        number = count * rows * across
        self.kernels.spread_words[(-(-number // _WORDS),)](
            self._words,
            self._blocks,
            pairs[0],
            pairs[1],
            total,
            number,
            ROWS=rows,
            ACROSS=across,
            WORDS=_WORDS,
            num_warps=4,
        )
        return pairs[0], pairs[1]

    def similarities(self, left: CardBlock, right: CardBlock, rows: Any, columns: Any) -> Any:
        """Canonical similarities (p,) float32 of pairs of places, as ``rescoring.Rescorer`` gives them."""
        torch, several = self._torch, left.exact.shape[1] * right.exact.shape[1] > 1
        # A sum in whatever order and the canonical one err by gamma_D |q| |x| each.
        relative = 2.01 * gamma(left.exact.shape[2], 2.0**-53) * right.most[0]
        if self.kernels is not None and not several and len(rows):
            low = torch.empty(len(rows), device=self._device)
            flags = torch.empty(len(rows), dtype=torch.int8, device=self._device)
            self._dot(left, right, (0, 0), rows, columns, None, (low, flags), relative)
            unsure = flags.nonzero()[:, 0]
        else:
            best = self._largest(left, right, lambda *which: self._sums(left, right, which, rows, columns))
            errors = relative * left.lengths[rows]
            low, high = (best - errors).float(), (best + errors).float()
            unsure = (low != high).nonzero()[:, 0]
        for part in unsure.split(_CHUNK // 8):
            low[part] = self._by_definition(left, right, rows[part], columns[part])
        return low + 0.0  # -0.0 becomes 0.0

    def _sums(
        self, left: CardBlock, right: CardBlock, which: tuple[int, int], rows: Any, columns: Any
    ) -> Any:
        """(p,) float64 sums of products, exact ones, in any order."""
        torch = self._torch
        out = torch.empty(len(rows), dtype=torch.float64, device=self._device)
        if self.kernels is not None and len(rows):
            self._dot(left, right, which, rows, columns, out, None, 0.0)
            return out
        one, other = left.exact[:, which[0]], right.exact[:, which[1]]
        for start in range(0, len(rows), _CHUNK):
            part = slice(start, start + _CHUNK)
            out[part] = (one[rows[part]].double() * other[columns[part]].double()).sum(1)
        return out

    def _dot(
        self,
        left: CardBlock,
        right: CardBlock,
        which: tuple[int, int],
        rows: Any,
        columns: Any,
        sums: Any,
        rounded: tuple[Any, Any] | None,
        relative: float,
    ) -> None:
        one, other = left.exact[:, which[0]], right.exact[:, which[1]]
        values, unsure = rounded or (sums, sums)
        self.kernels.dot_pairs[(-(-len(rows) // _PAIRS),)](
            one,
            other,
            rows,
            columns,
            left.lengths,
            values if sums is None else sums,
            values,
            unsure,
            len(rows),
            relative,
            one.stride(0),
            other.stride(0),
            ROUNDED=rounded is not None,
            WIDTH=one.shape[1],
            PAIRS=_PAIRS,
            DEPTH=_NUMBERS,
            num_warps=4,
        )

    def _by_definition(self, left: CardBlock, right: CardBlock, rows: Any, columns: Any) -> Any:
        def sums(k: int, m: int) -> Any:
            return fixed_sum(left.exact[rows, k].double() * right.exact[columns, m].double())

        return self._largest(left, right, sums).float()

    def _largest(self, left: CardBlock, right: CardBlock, product: Callable[[int, int], Any]) -> Any:
        """The largest of the K x L products, ``product`` of each."""
        which = [(k, m) for k in range(left.exact.shape[1]) for m in range(right.exact.shape[1])]
        return reduce(self._torch.maximum, [product(*pair) for pair in which])


@cache
def kernels_for(device: str) -> Any:
    """The module of compiled loops where they run on this device and find what torch finds; else None.

    Triton comes with torch for Linux and compiles with the machine's C compiler: either may be missing.
    """
    import torch

    try:
        from mitl.retrieval import card_kernels

        numbers = torch.randn((900, 1, 70), generator=torch.Generator().manual_seed(0)).to(device)
        left, right = (CardBlock.of(torch, part) for part in (numbers[:300], numbers[300:]))
        floors = [
            torch.full((len(side),), 20.0, dtype=torch.float64, device=device) for side in (left, right)
        ]
        by_both = []
        for compiled in (card_kernels, None):
            sieve = Sieve(torch, torch.device(device), compiled=compiled)
            pairs = sieve.sift(left, right, floors[0], floors[1], 1 << 20)
            assert pairs is not None
            values = sieve.similarities(left, right, *pairs)
            reach = values >= floors[0][0]
            by_both.append({*zip(*(part[reach].tolist() for part in (*pairs, values)), strict=True)})
        if by_both[0] == by_both[1]:
            return card_kernels
        reason = "they find other pairs than torch"
    except Exception as error:  # whatever a compiler may raise
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
    logger.warning("the search on %s does without compiled loops (%s)", device, reason)
    return None
