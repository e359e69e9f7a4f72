"""Identifiers in the shapes that MTurk's clients expect, unguessable."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import string

_ALPHABET = string.ascii_uppercase + string.digits


def entity_id() -> str:
    """Thirty characters, as HITs, HIT types, assignments and qualification types had."""
    return "3" + _draw(29)


def worker_id() -> str:
    """``A`` and thirteen characters."""
    return "A" + _draw(13)


def access_key() -> str:
    """An access key of AWS's shape."""
    return "AKIA" + _draw(16)


def secret() -> str:
    """Forty characters that nobody can guess, fit for a URL and for a TOML string."""
    return secrets.token_urlsafe(30)


def token_hash(token: str) -> str:
    """How a bearer token is kept: its SHA-256; the token has entropy enough to need no salt."""
    return hashlib.sha256(token.encode()).hexdigest()


def seal(key: str, purpose: str, value: str) -> str:
    """``value`` with a keyed seal; ``purpose`` keeps a seal from being good for something else."""
    return f"{value}.{keyed_hash(key, purpose, value)}"


def unseal(key: str, purpose: str, sealed: str) -> str | None:
    """The value under a seal that we made; None for any other text."""
    value, dot, mac = sealed.rpartition(".")
    if not dot or not hmac.compare_digest(mac.encode(), keyed_hash(key, purpose, value).encode()):
        return None
    return value


def keyed_hash(key: str, purpose: str, value: str) -> str:
    """What stands for ``value`` without telling it to anybody who lacks the key."""
    return hmac.new(key.encode(), f"{purpose}\0{value}".encode(), hashlib.sha256).hexdigest()[:40]


def _draw(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))
