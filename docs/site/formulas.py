"""Formulas between dollars become MathML when the site is built, so that pages need no script and no network."""

from __future__ import annotations

import re
from typing import Any

_CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
_BLOCK = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
_INLINE = re.compile(r"(?<![\\$\w])\$(?=\S)([^$\n]+?)(?<=\S)\$(?![\d$])")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page's text with MathML in place of formulas; code is left as it is."""
    parts = _CODE.split(markdown)
    return "".join(part if place % 2 else with_mathml(part) for place, part in enumerate(parts))


def with_mathml(text: str) -> str:
    """``$$…$$`` as a displayed formula and ``$…$`` as one in the line."""
    text = _BLOCK.sub(lambda found: f"\n\n{_mathml(found[1], 'block')}\n\n", text)
    return _INLINE.sub(lambda found: _mathml(found[1], "inline") if _is_formula(found[1]) else found[0], text)


def _is_formula(text: str) -> bool:
    """Whether it is not an amount of money with a second dollar later in the line."""
    return not re.match(r"[\d.,]+\b", text)


def _mathml(formula: str, display: str) -> str:
    from latex2mathml.converter import convert

    return str(convert(formula.strip(), display=display))
