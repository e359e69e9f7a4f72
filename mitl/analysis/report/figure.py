"""Matplotlib figures as SVG that fits into a page: no fixed colours of ink, no clashing ids, same bytes.

Text stays text, so that it can be searched, read aloud and take the page's font. Ink, grid and the palette
are CSS variables with a fallback, so that one drawing serves light, dark and paper.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
    from matplotlib.ticker import Locator as Locator


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


_drawing: ContextVar[bool] = ContextVar("drawing", default=False)

WIDTH_IN = 9.0
"""Width of a drawing that takes the whole column."""

_RC: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "mitl",
    "text.parse_math": False,  # a name with a dollar sign is a name, not a formula
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same layout on every machine
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.labelsize": 8.5,
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 9,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "patch.linewidth": 0,
}


def short(name: str, length: int = 26) -> str:
    """The name, cut in the middle to at most so many characters; 26 fit beside an axis."""
    if len(name) <= length:
        return name
    half = (length - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


@contextmanager
def style() -> Iterator[None]:
    """Draw with the report's settings; the caller's own matplotlib settings come back afterwards.

    May be entered within itself: several drawings in a row then set matplotlib up once.
    """
    if _drawing.get():
        yield
        return
    import matplotlib as mpl

    settings: Any = mpl.rcParams
    with mpl.rc_context(), warnings.catch_warnings():
        # Text is left to the reader's fonts, so a glyph that DejaVu lacks is no loss.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        settings.update(_settings())
        token = _drawing.set(True)
        try:
            yield
        finally:
            _drawing.reset(token)


@cache
def _settings() -> dict[str, Any]:
    """Matplotlib's defaults under the report's; to ask for its backend would load all that draws in windows."""
    import matplotlib as mpl

    defaults: Any = mpl.rcParamsDefault
    return {**{name: defaults[name] for name in defaults if name != "backend"}, **_RC}


def whole_numbers() -> Locator:
    """Ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(integer=True)


def new_figure(width_in: float, height_in: float) -> Figure:
    """An empty figure without a window; 72 units an inch."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width_in, height_in))


def bare(axes: Axes, *, grid: str = "x") -> None:
    """Leave of the frame only a light grid across the axis that carries values; numbers of a y axis are small."""
    axes.spines[:].set_visible(False)
    axes.grid(visible=True, axis="x" if grid == "x" else "y")
    if grid == "y":
        axes.tick_params(axis="y", labelcolor=MUTED, labelsize=8.5)


def beside(axes: Axes, text: str, at: tuple[float, float], dx: int, *, pad: float = 0, **kwargs: Any) -> None:
    """Write a text ``dx`` points right of a place, or left of it where that is below 0; ``pad`` hides what is under."""
    if pad:
        kwargs["bbox"] = {"facecolor": PAPER, "edgecolor": "none", "pad": pad}
    style = {"ha": "left" if dx > 0 else "right", "va": "center", "fontsize": 8.5} | kwargs
    axes.annotate(text, at, xytext=(dx, 0), textcoords="offset points", **style)


def to_svg(figure: Figure, name: str, title: str) -> str:
    """The figure as an ``<svg>`` element for a page; its ids begin with ``name``.

    Args:
        title: the text alternative.
    """
    from matplotlib.transforms import Bbox

    buffer = io.StringIO()
    figure.savefig(
        buffer,
        format="svg",
        # A label that reaches over the edge widens the drawing; it is never cut.
        bbox_inches=Bbox.union([figure.bbox_inches, figure.get_tightbbox()]),
        metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
    )
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<defs>\s*<style type=\"text/css\">.*?</style>\s*</defs>\s*", "", svg, flags=re.DOTALL)
    # matplotlib escapes < and > in text, so this meets tags alone and leaves every name as it is.
    svg = re.sub(r"<[^>]*>", lambda tag: _mend_tag(tag[0], name), svg)
    svg = re.sub(r">\s*\n\s*<", "><", svg)
    box = re.search(r'viewBox="([^"]*)"', svg)
    assert box is not None, "matplotlib writes a viewBox"
    label = escape(title, quote=True)
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="{box[1]}" role="img" aria-label="{label}">'
    )
    return re.sub(r"^<svg[^>]*>", lambda _: opening, svg, count=1)


def _mend_tag(tag: str, name: str) -> str:
    if tag.startswith("<g "):
        tag = re.sub(r' id="[^"]*"', "", tag)
    tag = re.sub(r'(\bid="|xlink:href="#|url\(#)', lambda match: f"{match[1]}{name}-", tag)
    tag = re.sub(r" ?font-family: [^;\"]*;?", "", tag)
    tag = re.sub(r' transform="rotate\(-?0 [^"]*"', "", tag)
    tag = re.sub(r"#[0-9a-f]{6}\b", lambda match: _PAGE.get(match[0], match[0]), tag)
    return re.sub(r"\s+", " ", tag)
