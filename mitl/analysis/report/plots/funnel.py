"""The funnel: one bar for each step from all pairs to the new positives."""

from __future__ import annotations

from collections.abc import Sequence

from mitl.analysis.report.inputs.tables import FunnelStep
from mitl.analysis.report.plots import figure as fig
from mitl.core.formats import count, percent

LOG_RATIO = 60
"""Beyond this ratio of the largest to the smallest bar, a linear axis shows the small ones as nothing."""


def funnel_svg(steps: Sequence[FunnelStep]) -> str:
    """Horizontal bars from the possible pairs to the new positives; logarithmic where they differ much."""
    shown = [step for step in steps if step.count > 0]
    if not shown:
        return ""
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, 0.6 + 0.36 * len(shown))
        axes = figure.subplots()
        counts = [step.count for step in shown]
        log = max(counts) / min(counts) > LOG_RATIO
        colours = [_funnel_colour(step.key) for step in shown]
        axes.barh(range(len(shown)), counts, color=colours, height=0.68, left=0)
        if log:
            axes.set_xscale("log")
            axes.set_xlim(10 ** (len(str(min(counts))) - 2), max(counts) * 20)
        else:
            axes.set_xlim(0, max(counts) * 1.4)
        for row, step in enumerate(shown):
            share = "" if step.of_previous is None else f"  ·  {_step_share(step.of_previous)}"
            axes.annotate(
                f"{count(step.count)}{share}",
                (step.count, row),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
            )
        axes.set_yticks(range(len(shown)), [step.label for step in shown])
        axes.invert_yaxis()
        axes.set_xlabel("number, logarithmic scale" if log else "number")
        fig.bare(axes)
        axes.xaxis.set_major_formatter(lambda value, _: count(round(value)) if value >= 1 else "")
        axes.minorticks_off()
        figure.subplots_adjust(left=0.25, right=0.99, top=0.99, bottom=0.5 / (0.6 + 0.36 * len(shown)))
        return fig.to_svg(
            figure,
            "funnel",
            "Funnel: " + "; ".join(f"{step.label} {count(step.count)}" for step in shown),
        )


def _funnel_colour(key: str) -> str:
    return {"positive": fig.YES, "beyond_originals": fig.AFTER}.get(key, fig.PLAIN)


def _step_share(share: float) -> str:
    if share == 1:
        return "all"
    return percent(share) if share < 1 else f"×{share:,.1f}"
