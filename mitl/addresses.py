"""What counts as this machine's own address, as Amazon's and as safe on a page, for all servers and clients."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeAlias
from urllib.parse import urlsplit

Address: TypeAlias = IPv4Address | IPv6Address
_UNFIT = re.compile(r"[\s\x00-\x20\\<>\"\x7f]")


def parse_address(text: str) -> Address | None:
    """The address in ``1.2.3.4``, ``1.2.3.4:80``, ``::1`` or ``[::1]:80``; None for anything else."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    return _address(text)


def names_loopback(name: str) -> bool:
    """Whether a host's name, without a port, is this machine's alone: ``localhost``, 127.0.0.0/8 or ``::1``.

    No name is looked up: a foreign one that points at this machine (DNS rebinding) is not its own.
    """
    address = _address(name)
    return name.lower() == "localhost" if address is None else address.is_loopback


def http_host(url: str) -> str:
    """The host of an http or https address, without its port; empty for anything else."""
    try:
        parts = urlsplit(url)
        # Reading the port raises where it is none.
        host = "" if parts.port == 0 else parts.hostname or ""
    except ValueError:
        return ""
    return host if parts.scheme in ("http", "https") else ""


def is_secure(url: str) -> bool:
    """Whether a browser takes this for an address on some host by https."""
    return url[:6].lower() == "https:" and http_host(url) != "" and _UNFIT.search(url) is None


def is_loopback(url: str) -> bool:
    """Whether this address is on this machine."""
    return names_loopback(http_host(url))


def is_amazon(url: str) -> bool:
    """Whether this address is one of Amazon's."""
    host = http_host(url).rstrip(".")
    return host == "amazonaws.com" or host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


@lru_cache(maxsize=1024)  # every request to a server asks for its caller's and its host's
def _address(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
