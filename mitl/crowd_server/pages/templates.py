"""The templates of all pages, and how they write money and times."""

from __future__ import annotations

from pathlib import Path

import jinja2

from mitl.core.pricing import format_dollars
from mitl.resources import page_templates

PAGES = Path(__file__).parent


def _span(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7200:
        return f"{round(seconds / 60)} min"
    if seconds < 48 * 3600:
        return f"{round(seconds / 3600)} h"
    return f"{round(seconds / 86400)} days"


def template_environment() -> jinja2.Environment:
    """The server's templates, escaping whatever is put into them."""
    environment = page_templates(PAGES)
    environment.filters |= {"money": format_dollars, "span": _span, "when": "{:%Y-%m-%d %H:%M} UTC".format}
    return environment
