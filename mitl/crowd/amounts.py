"""The API's amounts of money and names of errors; made and read nowhere else."""

from __future__ import annotations

from mitl.errors import CrowdError


def dollars(cents: int) -> str:
    """The API's CurrencyAmount."""
    assert cents >= 0
    return f"{cents // 100}.{cents % 100:02d}"


def cents(amount: str) -> int:
    """Cents of a CurrencyAmount."""
    whole, _, part = amount.partition(".")
    return int(whole) * 100 + int((part + "00")[:2])


def is_code(error: CrowdError, *names: str) -> bool:
    """Whether this is one of MTurk's errors of these names; old clients saw other capitals."""
    return error.code is not None and error.code.lower().rpartition(".")[2] in {
        name.lower() for name in names
    }
