"""The templates of all pages, and how they write money and times."""

from __future__ import annotations

from pathlib import Path

import jinja2

from mitl.core.pricing import format_dollars
from mitl.resources import page_templates

PAGES = Path(__file__).parent


_UNITS = ((86_400, "days"), (3600, "h"), (60, "min"), (1, "s"))


def _span(seconds: int) -> str:
    """A time that people are promised, to the second: ``2 h 30 min``."""
    words: list[str] = []
    left = seconds
    for size, unit in _UNITS:
        if words or seconds >= 2 * size or size == 1:
            count, left = divmod(left, size)
            words += [f"{count} {unit}"] if count else []
    return " ".join(words) or "0 s"


def _about(seconds: int) -> str:
    """A time that was measured or guessed, in whole units."""
    size = next(size for size, _ in _UNITS if seconds >= 2 * size or size == 1)
    return _span(round(seconds / size) * size)


def template_environment() -> jinja2.Environment:
    """The server's templates, escaping whatever is put into them."""
    environment = page_templates(PAGES)
    environment.filters |= {"money": format_dollars, "span": _span, "about": _about}
    environment.filters["when"] = "{:%Y-%m-%d %H:%M} UTC".format
    return environment
