"""Who really sent a request that came through proxies, and whether its first leg was encrypted.

The headers that proxies add can be forged by anybody, so they count only as far as the operator's own proxies
wrote them: the list of addresses is read from its end, and the first one that is no trusted proxy is the sender.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import TypeAlias

from mitl.addresses import Address, parse_address
from mitl.errors import UsageError

Network: TypeAlias = IPv4Network | IPv6Network
MAX_HOPS = 20
_MARKS = frozenset({"forwarded", "via", "x-real-ip"})


def parse_networks(given: Sequence[str]) -> tuple[Network, ...]:
    """The addresses and networks of trusted proxies.

    Raises:
        UsageError: a text that is neither, or a network that would trust everybody.
    """
    found = []
    for text in given:
        try:
            network = ip_network(text, strict=False)
        except ValueError as error:
            raise UsageError(
                f"--trusted-proxy is {text!r}, which is no address; write one like 10.0.0.2 or 10.0.0.0/24"
            ) from error
        if network.prefixlen == 0:
            raise UsageError(
                f"--trusted-proxy {text} would believe everybody; give the address of the proxy itself"
            )
        found.append(network)
    return tuple(found)


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
    """The nearest address that is no trusted proxy; ``forwarded_for`` counts only behind a trusted peer."""
    found = peer
    for text in reversed(forwarded_for.split(",")[-MAX_HOPS:]):
        if not is_trusted(found, proxies):
            break
        before = parse_address(text)
        if before is None:
            break
        found = before
    return found


def forwarded_scheme(headers: Mapping[str, str], usual: str) -> str:
    """``http`` or ``https`` as the nearest proxy says; ``usual`` where it does not."""
    told = headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower()
    return told if told in ("http", "https") else usual


def key_of(address: Address | None) -> str:
    """What counts as one caller: an IPv4 address, or the /64 that one IPv6 customer has to himself."""
    if isinstance(address, IPv6Address):
        return str(ip_network((address, 64), strict=False))
    return str(address)
