"""Words with a hyphen or a dash stay on one line in the cells of tables; CSS alone cannot say so of single words."""

from __future__ import annotations

import html
import re
from typing import Any

LONGEST = 40
"""Characters; what is longer may break, so that a column is not wider than a telephone."""

_CELL = re.compile(r"(<t[dh]\b[^>]*>)(.*?)(</t[dh]>)", re.DOTALL)
_MARKUP = re.compile(r"(<math\b.*?</math>|<[^>]+>)", re.DOTALL)
_WORD = re.compile(r"\S*[-–]\S*\w\S*")


def on_page_content(content: str, **_: Any) -> str:
    """The page with such words of its tables marked for the style sheet."""
    return _CELL.sub(lambda found: found[1] + whole_words(found[2]) + found[3], content)


def whole_words(cell: str) -> str:
    """A cell's HTML with a mark around each word that would be broken."""
    parts = _MARKUP.split(cell)
    return "".join(part if place % 2 else _WORD.sub(_marked, part) for place, part in enumerate(parts))


def _marked(found: re.Match[str]) -> str:
    word = found[0]
    return word if len(html.unescape(word)) > LONGEST else f'<span class="whole">{word}</span>'
