"""The best found so far of many items, on one device of torch's."""

from __future__ import annotations

from typing import Any

_NOTHING = (1 << 63) - 1
"""A free place: worse than every key."""
_STALE = 4
"""Lists are sorted, and floors raised, when a quarter of k newcomers came on average."""
_PAIRS, _ITEMS, _MOST_ROOM = 1024, 8, 256
"""Pairs, and items, that one compiled loop takes; places up to which it sorts: for more it takes long to compile."""


def _room(k: int, others: int) -> int:
    """A power of two, as sorting wants it."""
    return 1 << max(k, min(others, 2 * k + 60) - 1).bit_length()


def list_bytes(k: int, others: int) -> int:
    """Device memory for the list of an item that has its best k among so many."""
    return 8 * _room(k, others) + 16


class CardLists:
    """The best k of each item of a span, among ``others``.

    A place holds a key: the similarity, falling, in its high half and the other's position in its low one.

    Args:
        compiled: ``mitl.retrieval.card_kernels``, where it runs on the device.
    """

    def __init__(
        self, torch: Any, device: Any, items: int, k: int, others: int, *, compiled: Any = None
    ) -> None:
        self._torch, self._kernels, self.k = torch, compiled, k
        self._keys = torch.full((items, _room(k, others)), _NOTHING, dtype=torch.int64, device=device)
        self._fill = torch.zeros(items, dtype=torch.int64, device=device)
        self.floors = torch.full((items,), -torch.inf, dtype=torch.float64, device=device)
        self.seen = 0

    def __len__(self) -> int:
        return len(self._fill)

    def raise_floors(self, part: slice, values: Any) -> None:
        """What the k-th best of these items reaches, at least."""
        self.floors[part] = self._torch.maximum(self.floors[part], values)

    def add(self, places: Any, positions: Any, values: Any, first: tuple[int, int]) -> None:
        """Take pairs in: places of this span (p,), positions on the other side and canonical similarities.

        Args:
            first: what is added to the places and to the positions.
        """
        room = self._keys.shape[1]
        while len(places):
            put = self._put if self._kernels is None else self._put_compiled
            left = put(places, positions, values, first)
            self._fill.clamp_(max=room)
            crowded, taken = self._torch.stack([left.any(), self._fill.sum()]).cpu().tolist()
            if crowded or (taken - len(self) * self.k) * _STALE >= len(self) * self.k:
                self.sort()
            places, positions, values = (
                part[left] if crowded else part[:0] for part in (places, positions, values)
            )

    def _put(self, places: Any, positions: Any, values: Any, first: tuple[int, int]) -> Any:
        """Fill free places, and say (p,) which pairs reach their floors and found none."""
        torch, room = self._torch, self._keys.shape[1]
        reach = (values.double() >= self.floors[places + first[0]]).nonzero()[:, 0]
        rows, order = (places[reach] + first[0]).sort(stable=True)
        chosen = reach[order]
        counts = torch.bincount(rows, minlength=len(self))
        rank = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
        place = self._fill[rows] + rank
        fits = place < room
        keys = keys_of(torch, values[chosen], positions[chosen] + first[1])
        self._keys.view(-1)[(rows * room + place)[fits]] = keys[fits]
        self._fill += counts
        left = torch.zeros(len(places), dtype=torch.bool, device=rows.device)
        return left.index_fill_(0, chosen[~fits], True)

    def _put_compiled(self, places: Any, positions: Any, values: Any, first: tuple[int, int]) -> Any:
        left = self._torch.empty(len(places), dtype=self._torch.int8, device=places.device)
        self._kernels.take_pairs[(-(-len(places) // _PAIRS),)](
            self._keys,
            self._fill,
            self.floors,
            places,
            positions,
            values,
            left,
            len(places),
            *first,
            ROOM=self._keys.shape[1],
            PAIRS=_PAIRS,
            num_warps=4,
        )
        return left.bool()

    def sort(self) -> None:
        """Keep the best k of each and raise the floors to the last of them."""
        self._fill.clamp_(max=self.k)
        room = self._keys.shape[1]
        if self._kernels is not None and room <= _MOST_ROOM:
            self._kernels.sort_keys[(-(-len(self) // _ITEMS),)](
                self._keys, self.floors, len(self), K=self.k, ROOM=room, ITEMS=_ITEMS, num_warps=4
            )
            return
        self._keys = self._keys.sort(dim=1).values
        self._keys[:, self.k :].fill_(_NOTHING)
        last = self._keys[:, self.k - 1]
        kth = self._torch.where(last == _NOTHING, -self._torch.inf, values_of(self._torch, last).double())
        self.raise_floors(slice(None), kth)

    def best(self) -> tuple[Any, Any]:
        """The best k of each, (n, k) int64 positions and float32 similarities."""
        self.sort()
        keys = self._keys[:, : self.k]
        return keys & 0xFFFFFFFF, values_of(self._torch, keys)


def keys_of(torch: Any, values: Any, positions: Any) -> Any:
    """(p,) int64 for float32 values and positions below 2^32: the smaller, the better; see ``survivors.keys_of``."""
    bits = values.view(torch.int32)
    falling = ~(bits ^ ((bits >> 31) & 0x7FFFFFFF))
    return (falling.long() << 32) | positions


def values_of(torch: Any, keys: Any) -> Any:
    """The similarities of keys, float32."""
    rising = ~(keys >> 32).int()
    return (rising ^ ((rising >> 31) & 0x7FFFFFFF)).view(torch.float32)
