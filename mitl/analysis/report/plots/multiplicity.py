"""Histograms of the positives of a query."""

from __future__ import annotations

from collections.abc import Sequence

from mitl.analysis.report.inputs import Multiplicity
from mitl.analysis.report.inputs.tables import histogram
from mitl.analysis.report.plots import figure as fig
from mitl.records import Direction

TAIL = 20
"""The last bar holds this many positives or more."""


def multiplicity_svg(sets: Sequence[Multiplicity], *, tail: int = TAIL) -> str:
    """Histograms of positives per query after, the means before and after as lines, one panel a direction."""
    shown = [entry for entry in sets if entry.before and entry.after]
    if not shown:
        return ""
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, 2.7)
        panels = figure.subplots(1, len(shown), squeeze=False)[0]
        for axes, entry in zip(panels, shown, strict=True):
            _panel(axes, entry, tail)
        panels[0].set_ylabel("queries")
        figure.subplots_adjust(left=0.065, right=0.99, top=0.89, bottom=0.18, wspace=0.12)
        return fig.to_svg(figure, "multiplicity", "Positives per query, before and after; see the table")


def _panel(axes: fig.Axes, entry: Multiplicity, tail: int) -> None:
    axes.bar(range(tail + 1), histogram(entry.after, tail=tail), color=fig.AFTER, width=0.78)
    # The original annotation is one tall bar at 5 or 1 that would flatten the rest: a line says it.
    _mean_line(axes, entry.before, "original", fig.BEFORE, (0, (4, 2)), 0.985)
    _mean_line(axes, entry.after, "release", fig.INK, "solid", 0.885)
    axes.margins(y=0.26)
    i2t = entry.direction is Direction.I2T
    axes.set_title("captions per image query" if i2t else "images per caption query", loc="left")
    axes.set_xlim(-0.7, tail + 0.7)
    ticks = range(0, tail + 1, 5)
    axes.set_xticks(list(ticks), [f"{tick}+" if tick == tail else str(tick) for tick in ticks])
    axes.set_xlabel("positives of a query")
    axes.yaxis.set_major_locator(fig.whole_numbers())
    axes.tick_params(axis="y", labelcolor=fig.MUTED, labelsize=8.5)
    fig.bare(axes, grid="y")


def _mean_line(
    axes: fig.Axes, values: Sequence[int], name: str, colour: str, dashes: object, height: float
) -> None:
    mean = sum(values) / len(values)
    right = mean > TAIL / 2
    at = min(mean, TAIL + 0.6)
    axes.axvline(at, color=colour, linestyle=dashes, linewidth=1.5)
    axes.annotate(
        f"{name}, mean {mean:.3g}",
        (at, height),
        xycoords=("data", "axes fraction"),
        xytext=(-5 if right else 5, 0),
        textcoords="offset points",
        ha="right" if right else "left",
        va="top",
        fontsize=8.5,
        bbox={"facecolor": fig.PAPER, "edgecolor": "none", "pad": 0.6},
    )
