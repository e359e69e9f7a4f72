"""Code under the name of a file, as ```` ```csv pairs.csv ````, becomes a block with that title on the site."""

from __future__ import annotations

import re
from typing import Any

_NAMED = re.compile(r"^(```\w+) ([\w./-]+\.\w+)$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page's text with the names of files in the form that the site's Markdown reads."""
    return _NAMED.sub(r'\1 title="\2"', markdown)
