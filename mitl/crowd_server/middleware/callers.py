"""Who really sent a request that came through proxies, and how often each of many callers may ask.

The headers that proxies add can be forged by anybody, so they count only as far as the operator's own proxies
wrote them: the list of addresses is read from its end, and the first one that is not a trusted proxy is the sender."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import TypeAlias

from mitl.addresses import Address, parse_address
from mitl.crowd_server.store.database import in_thread
from mitl.errors import UsageError

Network: TypeAlias = IPv4Network | IPv6Network
MAX_HOPS = 20
_MARKS = frozenset({"forwarded", "via", "x-real-ip"})


def parse_networks(given: Sequence[str]) -> tuple[Network, ...]:
    """The addresses and networks of trusted proxies.

    Raises:
        UsageError: a text that is neither, or a network that would trust everybody.
    """
    networks = []
    for text in given:
        try:
            network = ip_network(text, strict=False)
        except ValueError as error:
            raise UsageError(
                f"--trusted-proxy is {text!r}, which is not an address; write one like 10.0.0.2 or 10.0.0.0/24"
            ) from error
        if network.prefixlen == 0:
            raise UsageError(
                f"--trusted-proxy {text} would believe everybody; give the address of the proxy itself"
            )
        networks.append(network)
    return tuple(networks)


def is_trusted(address: Address | None, proxies: Sequence[Network]) -> bool:
    """Whether this is one of the operator's proxies."""
    return address is not None and any(address in network for network in proxies)


def is_forwarded(headers: Mapping[str, str]) -> bool:
    """Whether any header says that a proxy passed the request on, trusted or not."""
    names = [name.lower() for name in headers]
    return any(name in _MARKS or name.startswith("x-forwarded-") for name in names)


def is_of_this_machine(address: Address | None, headers: Mapping[str, str]) -> bool:
    """Whether a program of this machine asks for itself: what a proxy beside it passes on comes from there too."""
    return address is not None and address.is_loopback and not is_forwarded(headers)


def sender(peer: Address | None, forwarded_for: str, proxies: Sequence[Network]) -> Address | None:
    """The nearest address that is not a trusted proxy; ``forwarded_for`` counts only behind a trusted peer."""
    nearest = peer
    for text in reversed(forwarded_for.split(",")[-MAX_HOPS:]):
        if not is_trusted(nearest, proxies):
            break
        before = parse_address(text)
        if before is None:
            break
        nearest = before
    return nearest


def forwarded_scheme(headers: Mapping[str, str], usual: str) -> str:
    """``http`` or ``https`` as the nearest proxy says; ``usual`` where it does not."""
    told = headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower()
    return told if told in ("http", "https") else usual


def key_of(address: Address | None) -> str:
    """What counts as one caller: an IPv4 address, or the /64 that one IPv6 customer has to himself."""
    if isinstance(address, IPv6Address):
        return str(ip_network((address, 64), strict=False))
    return str(address)


MAX_KEYS = 20_000


@dataclass(frozen=True, slots=True)
class RequestRate:
    """A steady rate, and how much may come at once before it holds."""

    per_second: float
    burst: int


class TokenBuckets:
    """One bucket per key, full at first.

    The keys used longest ago are forgotten when there are too many, so that a flood of made-up keys costs a
    known amount of memory. Not safe for threads: the event loop owns it.
    """

    def __init__(
        self, rate: RequestRate, *, max_keys: int = MAX_KEYS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._max_keys = max_keys
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        """How many keys are remembered."""
        return len(self._buckets)

    def take(self, key: str) -> float:
        """Take one token: 0 where there was one, else the seconds until there will be."""
        now = self._clock()
        left, at = self._buckets.pop(key, (float(self._rate.burst), now))
        left = min(float(self._rate.burst), left + (now - at) * self._rate.per_second)
        wait = 0.0 if left >= 1 else (1 - left) / self._rate.per_second
        self._buckets[key] = (left - 1 if wait == 0 else left, now)
        if len(self._buckets) > self._max_keys:
            self._buckets.popitem(last=False)
        return wait


PORTION = 30
"""A process takes this part of a burst at once, so that most requests ask no database."""


class DrawnTokens:
    """One process's share of buckets that lie in the database, where other processes draw from them too.

    What it drew is good for as long as it takes to flow in again, so that no number of processes grants more than one
    would. Who has to wait is told so again without a question. Not safe for threads: the event loop owns it.
    """

    def __init__(
        self,
        rate: RequestRate,
        draw: Callable[[str, int], tuple[int, float]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``draw`` takes up to so many tokens of a key's bucket: how many it got, and how many are left."""
        self._rate = rate
        self._draw = draw
        self._clock = clock
        self._portion = max(1, rate.burst // PORTION)
        self._held: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """By key: tokens at hand and until when they are good, or none and until when the key has to wait."""

    async def take(self, key: str) -> float:
        """Take one token: 0 where there was one, else the seconds until there will be."""
        now = self._clock()
        tokens, until = self._at_hand(key, now)
        if not tokens and until > now:
            self._held[key] = tokens, until
            return until - now
        if not tokens:
            drawn, left = await in_thread(self._draw, key, self._portion)
            tokens = (
                drawn + self._at_hand(key, now)[0]
            )  # another request of this key may have drawn meanwhile
            if not tokens:
                self._held[key] = 0, now + (1 - left) / self._rate.per_second
                return (1 - left) / self._rate.per_second
            until = now + self._portion / self._rate.per_second
        if tokens > 1:
            self._held[key] = tokens - 1, until
        if len(self._held) > MAX_KEYS:
            self._held.popitem(last=False)
        return 0.0

    def _at_hand(self, key: str, now: float) -> tuple[int, float]:
        tokens, until = self._held.pop(key, (0, now))
        return (tokens, until) if until > now else (0, now)
