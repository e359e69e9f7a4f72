"""Stated probabilities against what was true."""

from __future__ import annotations

from collections.abc import Sequence

from mitl.analysis.report.inputs import Reliability
from mitl.analysis.report.plots import figure as fig
from mitl.core.formats import count


def reliability_svg(found: Sequence[Reliability]) -> str:
    """One panel a yardstick: the share that was a match over the stated probability, with its interval."""
    if not found:
        return ""
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, 3.1)
        panels = figure.subplots(1, max(len(found), 2), squeeze=False)[0]
        for axes, one in zip(panels, found, strict=False):
            _panel(axes, one)
        for axes in panels[len(found) :]:
            axes.set_visible(False)
        panels[0].set_ylabel("share that was a match")
        figure.subplots_adjust(left=0.075, right=0.985, top=0.89, bottom=0.17, wspace=0.16)
        return fig.to_svg(figure, "reliability", _spoken(found))


def _panel(axes: fig.Axes, one: Reliability) -> None:
    axes.plot([0, 1], [0, 1], color=fig.MUTED, linestyle=(0, (3, 3)), linewidth=0.9)
    stated = [bin_.stated for bin_ in one.bins]
    axes.vlines(
        stated,
        [b.low for b in one.bins],
        [b.high for b in one.bins],
        color=fig.AFTER,
        linewidth=1.8,
        zorder=2,
    )
    axes.plot(
        stated,
        [b.observed for b in one.bins],
        marker="o",
        markersize=6,
        color=fig.AFTER,
        linestyle="",
        zorder=3,
    )
    for bin_ in one.bins:
        left = bin_.stated > 0.5
        axes.annotate(
            count(bin_.cases),
            (bin_.stated, bin_.observed),
            xytext=(-8 if left else 8, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=8,
            color=fig.MUTED,
            bbox={"facecolor": fig.PAPER, "edgecolor": "none", "pad": 0.6},
        )
    axes.set_xlim(-0.04, 1.04)
    axes.set_ylim(-0.04, 1.04)
    axes.set_title(f"against {one.against}", loc="left")
    axes.set_xlabel("stated probability of a match")
    axes.tick_params(axis="y", labelcolor=fig.MUTED, labelsize=8.5)
    fig.bare(axes, grid="y")


def _spoken(found: Sequence[Reliability]) -> str:
    return "; ".join(
        f"against {one.against}: "
        + ", ".join(f"stated {b.stated:.2f}, true {b.observed:.2f} of {b.cases}" for b in one.bins)
        for one in found
    )
