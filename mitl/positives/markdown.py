"""Markdown of people's words and figures."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from mitl.core import formats


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def plain(value: str) -> str:
    """Someone's words as one line of Markdown that is neither markup nor a table's edge."""
    line = html.escape(" ".join(value.split()), quote=False)
    return "".join("\\" + c if c in "\\`*_[]|#" else c for c in line)


def release_words(name: str) -> str:
    """``release coco-2026``; of one that is called so, as after its folder, ``release`` alone."""
    return "release" if name.casefold() == "release" else f"release {name}"


def percent(part: float, whole: float = 1.0) -> str:
    """``12.3 %``; a dash where there is nothing to be a part of."""
    return formats.percent(part / whole if whole else None)


def listed(words: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1] if words else "") if part)
