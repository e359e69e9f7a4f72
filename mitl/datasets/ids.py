"""External ids: integers or strings, and the order that settles ties."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from mitl.records import IdKind

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")


def is_integer_id(id_: str) -> bool:
    """Whether the text is an integer of 64 bits as Python prints it (``7``, not ``007``)."""
    return _INTEGER.fullmatch(id_) is not None


def id_kind(ids: Iterable[str]) -> IdKind:
    """Integer if all ids are integers, else string."""
    return IdKind.INTEGER if all(map(is_integer_id, ids)) else IdKind.STRING


def tie_key(kind: IdKind) -> Callable[[str], int | str]:
    """The sort key of an external id: integers by value, strings by code point."""
    return int if kind is IdKind.INTEGER else str
