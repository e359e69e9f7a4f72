"""Markdown of people's words and figures."""

from __future__ import annotations

import html
import json
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


def front_matter(name: str, license_: str, configs: Iterable[str]) -> str:
    """The head of a README, by which the ``datasets`` library loads files by the names of their configurations."""
    front = [f"pretty_name: {_quoted(name)}", *([f"license: {_quoted(license_)}"] if license_ else [])]
    return "\n".join(["---", *front, "configs:", *configs, "---", "", ""])


def _quoted(value: str) -> str:
    """Double-quoted in YAML, which JSON is but for characters that are not printed: YAML takes none as they are."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)


def release_words(name: str) -> str:
    """``release coco-2026``; of one that is called so, as after its folder, ``release`` alone."""
    return "release" if name.casefold() == "release" else f"release {name}"


def percent(part: float, whole: float = 1.0) -> str:
    """``12.3 %``; a dash where there is nothing to be a part of."""
    return formats.percent(part / whole if whole else None)


def listed(words: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1] if words else "") if part)
