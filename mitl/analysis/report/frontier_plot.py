"""The drawing of a plan's frontier: recall by human answers, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mitl.analysis.report import figure as fig
from mitl.core.formats import count
from mitl.core.pricing import format_dollars

LOOKS = (
    (fig.BEFORE, (0, (4, 1.5)), 1.8),
    (fig.AFTER, "solid", 2.0),
    (fig.YES, (0, (1.5, 1.2)), 1.8),
    (fig.NO, (0, (6, 1.5, 1.5, 1.5)), 1.8),
)
"""Colour, dash and width of each curve: none is told by its colour alone."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Recall by further answers."""

    key: str
    name: str
    answers: tuple[float, ...]
    recall: tuple[float, ...]
    """0 to 1."""
    low: tuple[float, ...] = ()
    """Ends of the intervals; empty where it is no estimate."""
    high: tuple[float, ...] = ()


def frontier_svg(
    curves: Sequence[Curve],
    *,
    target: float | None = None,
    cents_each: float | None = None,
    name: str = "frontier",
    title: str = "",
) -> str:
    """The curves over answers and, where a price is known, dollars; empty where there are none.

    Args:
        target: a recall to draw as a line.
        cents_each: price of one answer.
        title: written above, as what the recall is of.
    """
    if not curves:
        return ""
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, 3.6)
        axes: Any = figure.subplots()
        for curve, (colour, dash, width) in zip(curves, LOOKS * 3, strict=False):
            shares = [100 * value for value in curve.recall]
            axes.plot(curve.answers, shares, color=colour, linestyle=dash, linewidth=width, label=curve.name)
            if curve.low:
                ends = ([100 * value for value in side] for side in (curve.low, curve.high))
                axes.fill_between(curve.answers, *ends, color=colour, alpha=0.15, linewidth=0)
        most = max(max(curve.answers) for curve in curves)
        if target is not None:
            axes.axhline(100 * target, color=fig.MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
            fig.beside(axes, f"{100 * target:g} %", (0, 100 * target), 3, pad=1, fontsize=8)
        axes.set_xlim(0, most)
        axes.set_ylim(min(100 * min(curve.recall) for curve in curves) * 0.98, 100.5)
        axes.xaxis.set_major_formatter(lambda value, _: count(round(value)))
        axes.set_xlabel("further human answers")
        axes.set_ylabel("% of the candidates' matches kept")
        axes.legend(loc="lower right")
        fig.bare(axes, grid="y")
        if title:
            axes.set_title(title, loc="left")
        if cents_each:
            _dollars(axes, cents_each)
        figure.subplots_adjust(left=0.07, right=0.985, top=0.88 if cents_each else 0.93, bottom=0.14)
        spoken = "; ".join(f"{curve.name}: {_half(curve)}" for curve in curves)
        return fig.to_svg(figure, name, f"{title or 'Recall by further answers'}. {spoken}")


def _dollars(axes: Any, cents_each: float) -> None:
    above = axes.secondary_xaxis(
        "top", functions=(lambda answers: answers * cents_each, lambda cents: cents / cents_each)
    )
    above.xaxis.set_major_formatter(lambda cents, _: format_dollars(round(cents)).removesuffix(".00"))
    above.tick_params(length=0, labelsize=8.5)
    above.spines[:].set_visible(False)


def _half(curve: Curve) -> str:
    """The recall in the middle of the curve, for who listens."""
    middle = len(curve.answers) // 2
    return f"{100 * curve.recall[middle]:.0f} % with {count(round(curve.answers[middle]))} answers"
