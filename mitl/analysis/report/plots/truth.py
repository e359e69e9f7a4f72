"""Recall and precision against the known truth."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mitl.analysis.known_truth import Score
from mitl.analysis.report.inputs import TruthStats
from mitl.analysis.report.plots import figure as fig
from mitl.core.formats import percent


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    score: Score
    colour: str
    marker: str


def truth_svg(truth: TruthStats) -> str:
    """Recall and precision, one row each for before, each annotator alone, the HIT rule, and after."""
    rows = _rows(truth)
    height = 0.75 + 0.3 * len(rows)
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, height)
        left, right = figure.subplots(1, 2, sharey=True)
        recalls, precisions = [row.score.recall for row in rows], [row.score.precision for row in rows]
        _panel(left, rows, recalls, "recall", _up_to_a_tenth(recalls))
        _panel(right, rows, precisions, "precision", _from_a_twentieth([*precisions, truth.precision_target]))
        if truth.precision_target is not None:
            right.axvline(truth.precision_target, color=fig.MUTED, linestyle=(0, (3, 3)), linewidth=0.9)
        left.set_ylim(len(rows) - 0.4, -0.6)
        figure.subplots_adjust(left=0.22, right=0.99, top=1 - 0.35 / height, bottom=0.3 / height, wspace=0.07)
        return fig.to_svg(figure, "truth", _spoken(rows))


def _panel(
    axes: fig.Axes,
    rows: Sequence[_Row],
    values: Sequence[float | None],
    title: str,
    ends: tuple[float, float],
) -> None:
    low, high = ends
    axes.set_xlim(low, high + 0.25 * (high - low))
    axes.hlines(range(len(rows)), low, high, color=fig.LINE, linewidth=0.8, zorder=1)
    for place, (value, row) in enumerate(zip(values, rows, strict=True)):
        if value is None:
            continue
        axes.plot([value], [place], marker=row.marker, markersize=7, color=row.colour, zorder=3)
        axes.annotate(
            percent(value),
            (value, place),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            bbox={"facecolor": fig.PAPER, "edgecolor": "none", "pad": 0.8},
        )
    axes.set_title(title, loc="left")
    axes.set_yticks(range(len(rows)), [fig.short(row.name) for row in rows])
    axes.xaxis.set_major_formatter(_percent_up_to(high))
    fig.bare(axes)
    axes.grid(visible=False, axis="y")


def _rows(truth: TruthStats) -> list[_Row]:
    rows = [_Row("original annotation", truth.original.together, fig.BEFORE, "s")]
    rows += [_Row(f"{name} alone", scores.together, fig.PLAIN, "o") for name, scores in truth.by_annotator]
    if truth.hit_rule is not None:
        rows.append(_Row("HIT rule alone", truth.hit_rule.together, fig.YES, "^"))
    if truth.hit_rule_and_record is not None:
        rows.append(_Row("with worker record", truth.hit_rule_and_record.together, fig.YES, "v"))
    if truth.release is not None:
        rows.append(_Row("release", truth.release.together, fig.AFTER, "D"))
    return rows


def _up_to_a_tenth(values: Sequence[float | None]) -> tuple[float, float]:
    """From 0 to the next tenth above all of them."""
    return 0.0, min(1.0, (int(10 * max((v for v in values if v is not None), default=1.0)) + 1) / 10)


def _from_a_twentieth(values: Sequence[float | None]) -> tuple[float, float]:
    """From the next twentieth below all of them to 1."""
    lowest = min((value for value in values if value is not None), default=0.0)
    return max(0.0, (math.ceil(20 * lowest) - 1) / 20), 1.0


def _percent_up_to(high: float) -> Callable[[float, float], str]:
    return lambda value, _: f"{100 * value:.3g} %" if value <= high + 1e-9 else ""


def _spoken(rows: Sequence[_Row]) -> str:
    return "; ".join(
        f"{row.name}: recall {percent(row.score.recall)}, precision {percent(row.score.precision)}"
        for row in rows
    )
