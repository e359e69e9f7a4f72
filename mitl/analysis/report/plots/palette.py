"""The colours of the report's drawings: tokens that stand in a drawing until the page's own colours replace them.

The page gives each variable a value for light, dark and paper (``pages/report.css``). No meaning hangs on a colour
alone: answers stand in a fixed order with ``weak no`` and ``no`` outlined and ``no`` hollow, series differ in their
marks too.
"""

from __future__ import annotations

INK = "#010101"
MUTED = "#020202"
LINE = "#030303"
PAPER = "#040404"
PLAIN = "#050505"
"""Bars and marks that mean nothing but a quantity."""
YES = "#0b7a5a"
WEAK_YES = "#5aa9e6"
WEAK_NO = "#f0dfb8"
NO = "#7a6248"
"""Marks and outlines; the fill of a ``no`` is the paper."""
BEFORE = "#b8470f"
AFTER = "#1f5fae"
ON_YES = "#fefefe"
ON_WEAK_YES = "#0a0a0a"
ON_WEAK_NO = "#0b0b0b"

_PAGE = {
    INK: "currentColor",
    MUTED: "var(--muted, #56606a)",
    LINE: "var(--line, #d9ddd8)",
    PAPER: "var(--paper, #ffffff)",
    PLAIN: "var(--plain, #6b7782)",
    YES: f"var(--yes, {YES})",
    WEAK_YES: f"var(--weak-yes, {WEAK_YES})",
    WEAK_NO: f"var(--weak-no, {WEAK_NO})",
    NO: f"var(--no, {NO})",
    BEFORE: f"var(--before, {BEFORE})",
    AFTER: f"var(--after, {AFTER})",
    ON_YES: f"var(--on-yes, {ON_YES})",
    ON_WEAK_YES: f"var(--on-weak-yes, {ON_WEAK_YES})",
    ON_WEAK_NO: f"var(--on-weak-no, {ON_WEAK_NO})",
}

ANSWERS = ((YES, YES, ON_YES), (WEAK_YES, WEAK_YES, ON_WEAK_YES), (WEAK_NO, NO, ON_WEAK_NO), (PAPER, NO, INK))
"""(fill, outline, ink on it) of each answer, in the order of ``Label``."""


def on_page(token: str) -> str:
    """The page's colour for a token; any other colour as it is."""
    return _PAGE.get(token, token)
