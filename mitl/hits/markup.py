"""Well-formed HTML: every tag is closed where HTML asks for it, and nothing is left open.

Browsers mend broken pages each in its own way; a page that people are paid to read must not depend on that.
"""

from __future__ import annotations

import re

from mitl.errors import TemplateError

_VOID = frozenset(
    [
        "area",
        "base",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "param",
        "source",
        "track",
        "wbr",
    ]
)
_RAW = frozenset(("script", "style", "textarea", "title"))
"""Their content is text up to their own end tag."""
_OPTIONAL = frozenset(
    [
        "html",
        "head",
        "body",
        "li",
        "dt",
        "dd",
        "p",
        "option",
        "optgroup",
        "thead",
        "tbody",
        "tfoot",
        "tr",
        "td",
        "th",
        "rt",
        "rp",
    ]
)
"""HTML lets their end tags be left out."""
_TOKEN = re.compile(
    r"<!--.*?-->"
    r"|<!doctype[^<>]*>"
    r"|<(?P<end>/?)(?P<name>[a-z][a-z0-9-]*)(?P<rest>(?:\s+[^\s\"'<>/=]+(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'=<>`]+))?)*\s*)"
    r"(?P<self>/?)>"
    r"|<",
    re.IGNORECASE | re.DOTALL,
)


def check_markup(html: str, template: str) -> None:
    """Refuse a page whose tags do not match.

    Raises:
        TemplateError: a tag is malformed, an end tag has no start, or an element is never closed; with its line.
    """
    opened: list[tuple[str, int]] = []
    at = 0
    while (found := _TOKEN.search(html, at)) is not None:
        at = found.end()
        name = (found["name"] or "").lower()
        if not name:
            if found[0] == "<":
                raise _broken(html, found.start(), template, "a '<' that begins no tag")
            continue
        if found["end"]:
            _close(opened, name, html, found.start(), template)
        elif name not in _VOID and not found["self"]:
            opened.append((name, found.start()))
            if name in _RAW:
                at = _end_of_text(html, at, name, template, found.start())
    left = [entry for entry in opened if entry[0] not in _OPTIONAL]
    if left:
        raise _broken(html, left[-1][1], template, f"<{left[-1][0]}> that is never closed")


def _close(opened: list[tuple[str, int]], name: str, html: str, start: int, template: str) -> None:
    while opened and opened[-1][0] != name and opened[-1][0] in _OPTIONAL:
        opened.pop()
    if not opened or opened[-1][0] != name:
        inside = f" within <{opened[-1][0]}>" if opened else ""
        raise _broken(html, start, template, f"</{name}>{inside} that closes nothing")
    opened.pop()


def _end_of_text(html: str, at: int, name: str, template: str, start: int) -> int:
    end = re.compile(rf"</{name}\s*>", re.IGNORECASE).search(html, at)
    if end is None:
        raise _broken(html, start, template, f"<{name}> that is never closed")
    return end.start()


def _broken(html: str, at: int, template: str, what: str) -> TemplateError:
    line = html.count("\n", 0, at) + 1
    begin = html.rfind("\n", 0, at) + 1
    shown = html[max(begin, at - 20) : at + 40].splitlines()[0]
    return TemplateError(
        f"HIT template {template!r} gives a page with {what}, in line {line} near {shown!r}; mend the wording"
    )
