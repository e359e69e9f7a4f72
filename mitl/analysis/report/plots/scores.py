"""Scores of annotators on several sets of positives, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence

from mitl.analysis.report.inputs import EvaluationScore
from mitl.analysis.report.plots import figure as fig
from mitl.records import Direction

SHOWN = ("R@1", "R-Precision", "mAP@R")
"""One panel each, from left to right."""
_MARKS = ((fig.BEFORE, "s"), (fig.AFTER, "o"), (fig.YES, "^"), (fig.PLAIN, "D"), (fig.WEAK_YES, "v"))


def scores_svg(scores: Sequence[EvaluationScore]) -> str:
    """One row of panels a direction, one panel a metric, one line an annotator, one mark a set of positives."""
    metrics = [metric for metric in SHOWN if any(score.metric == metric for score in scores)]
    directions = [way for way in Direction if any(score.direction is way for score in scores)]
    sets = list(dict.fromkeys(score.positives for score in scores))[: len(_MARKS)]
    if not metrics:
        return ""
    names = {way: _names(scores, way) for way in directions}
    heights = [0.55 + 0.27 * len(names[way]) for way in directions]
    height = sum(heights) + 0.75
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, height)
        grid = figure.subplots(
            len(directions), len(metrics), squeeze=False, sharey="row", height_ratios=heights
        )
        for row, way in zip(grid, directions, strict=True):
            for axes, metric in zip(row, metrics, strict=True):
                here = [score for score in scores if score.direction is way and score.metric == metric]
                _panel(axes, here, names[way], sets)
                axes.set_title(f"{metric}, {_WAY[way]}", loc="left")
        handles, words = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, words, loc="lower center", ncols=len(sets))
        figure.subplots_adjust(
            left=0.17, right=0.985, top=1 - 0.32 / height, bottom=0.62 / height, wspace=0.1, hspace=0.5
        )
        return fig.to_svg(figure, "scores", f"Scores of annotators on {', '.join(sets)}; see the tables")


_WAY = {Direction.I2T: "image queries", Direction.T2I: "caption queries"}


def _names(scores: Sequence[EvaluationScore], way: Direction) -> list[str]:
    return list(dict.fromkeys(score.annotator for score in scores if score.direction is way))


def _panel(
    axes: fig.Axes, scores: Sequence[EvaluationScore], names: Sequence[str], sets: Sequence[str]
) -> None:
    """Marks of one annotator stand a little above each other, so that their intervals do not overlap."""
    step = 0.5 / max(len(sets) - 1, 1)
    for place, (positives, (colour, marker)) in enumerate(zip(sets, _MARKS, strict=False)):
        here = [score for score in scores if score.positives == positives]
        rows = [names.index(score.annotator) + (place * step - 0.25) * (len(sets) > 1) for score in here]
        for row, score in zip(rows, here, strict=True):
            if score.low is not None and score.high is not None:
                axes.hlines(row, score.low, score.high, color=colour, linewidth=1.6)
        values = [score.value for score in here]
        axes.plot(values, rows, marker=marker, markersize=5, color=colour, linestyle="", label=positives)
    axes.set_xlim(-0.03, 1.03)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), [fig.short(name, 22) for name in names])
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}")
    fig.bare(axes)
