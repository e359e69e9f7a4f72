"""The best found so far of many items, on one device of torch's."""

from __future__ import annotations

from typing import Any

from mitl.retrieval.search import Best

_NOTHING = (1 << 63) - 1
"""A free place: worse than every key."""
_STALE = 4
"""Lists are sorted, and floors raised, when a quarter of k newcomers came on average."""


def _room(k: int, others: int) -> int:
    return max(k + 1, min(others, 2 * k + 64))


def list_bytes(k: int, others: int) -> int:
    """Device memory for the list of an item that has its best k among so many."""
    return 8 * _room(k, others) + 16


class Lists:
    """The best found so far of the items of a span, on the device.

    A place holds a key: the similarity, falling, in its high half and the other's position in its low one.
    """

    def __init__(self, torch: Any, device: Any, items: int, k: int, others: int) -> None:
        self._torch, self._device, self.k = torch, device, k
        room = _room(k, others)
        self._keys = torch.full((items, room), _NOTHING, dtype=torch.int64, device=device)
        self._fill = torch.zeros(items, dtype=torch.int64, device=device)
        self.floors = torch.full((items,), -torch.inf, dtype=torch.float64, device=device)
        self.seen = 0
        self._fresh = 0

    def __len__(self) -> int:
        return len(self._fill)

    def raise_floors(self, part: slice, values: Any) -> None:
        """What the k-th best of these items reaches, at least."""
        self.floors[part] = self._torch.maximum(self.floors[part], values)

    def add(self, places: Any, positions: Any, similarities: Any) -> None:
        """Take pairs in: places of this span (p,), positions on the other side and canonical similarities."""
        torch, room = self._torch, self._keys.shape[1]
        reach = (similarities.double() >= self.floors[places]).nonzero()[:, 0]
        places, order = places[reach].sort(stable=True)
        chosen = reach[order]
        keys = keys_of(torch, similarities[chosen], positions[chosen])
        self._fresh += len(keys)
        while len(keys):
            counts = torch.bincount(places, minlength=len(self))
            rank = torch.arange(len(keys), device=self._device) - (counts.cumsum(0) - counts)[places]
            place = self._fill[places] + rank
            fits = place < room
            self._keys.view(-1)[(places * room + place)[fits]] = keys[fits]
            self._fill = (self._fill + counts).clamp_(max=room)
            places, keys = places[~fits], keys[~fits]
            if len(keys):
                self.sort()

    def settle(self) -> None:
        """Sort where enough came since it was done last."""
        if self._fresh * _STALE >= len(self) * self.k:
            self.sort()

    def sort(self) -> None:
        """Keep the best k of each and raise the floors to the last of them."""
        self._fresh = 0
        self._keys = self._keys.sort(dim=1).values
        self._keys[:, self.k :] = _NOTHING
        self._fill.clamp_(max=self.k)
        last = self._keys[:, self.k - 1]
        known = self._torch.where(last == _NOTHING, -self._torch.inf, values_of(self._torch, last).double())
        self.raise_floors(slice(None), known)

    def finish(self, best: Best, part: slice) -> None:
        """Write the best of each where they belong."""
        self.sort()
        keys = self._keys[:, : self.k]
        best.positions[part] = (keys & 0xFFFFFFFF).cpu().numpy()
        best.similarities[part] = values_of(self._torch, keys).cpu().numpy()


def keys_of(torch: Any, values: Any, positions: Any) -> Any:
    """(p,) int64 for float32 values and positions below 2^32: the smaller, the better; see ``survivors.keys_of``."""
    bits = values.view(torch.int32)
    falling = ~(bits ^ ((bits >> 31) & 0x7FFFFFFF))
    return (falling.long() << 32) | positions


def values_of(torch: Any, keys: Any) -> Any:
    """The similarities of keys, float32."""
    rising = ~(keys >> 32).int()
    return (rising ^ ((rising >> 31) & 0x7FFFFFFF)).view(torch.float32)
