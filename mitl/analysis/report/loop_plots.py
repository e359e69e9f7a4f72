"""The drawings of the loop: a plan's frontier, rounds, and what annotators learnt in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from mitl.analysis.report import figure as fig
from mitl.core.formats import count, percent
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
    return f"{percent(curve.recall[middle], 0)} with {count(round(curve.answers[middle]))} answers"


_COUNTED = ["answered", "paid_cents", "positives", "beyond_originals"]


def rounds_svg(rounds: pd.DataFrame) -> str:
    """Matches found so far by answered pairs and by dollars, a mark at the end of each round; empty without answers.

    Args:
        rounds: ``round``, ``answered`` pairs, ``paid_cents``, ``positives`` and ``beyond_originals`` of each.
    """
    asked = rounds[rounds["answered"] > 0]
    if asked.empty:
        return ""
    ends = pd.concat([pd.DataFrame(0, [0], _COUNTED), asked[_COUNTED].cumsum()], ignore_index=True)
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, 3.2)
        panels: Any = figure.subplots(1, 2, sharey=True)
        for axes, column, label in zip(panels, _COUNTED, ("answered pairs", "paid"), strict=False):
            _found(axes, ends, column, asked["round"])
            axes.set_xlabel(label)
            axes.set_xlim(0, max(1, ends[column].iloc[-1]) * 1.04)
        panels[0].xaxis.set_major_locator(fig.whole_numbers())
        panels[0].xaxis.set_major_formatter(lambda value, _: count(round(value)))
        panels[1].xaxis.set_major_formatter(lambda cents, _: format_dollars(round(cents)).removesuffix(".00"))
        panels[0].yaxis.set_major_locator(fig.whole_numbers())
        panels[0].set_ylim(0, max(1, ends["positives"].iloc[-1]) * 1.12)
        panels[0].set_ylabel("matches found")
        panels[0].legend(loc="upper left")
        figure.subplots_adjust(left=0.07, right=0.985, top=0.97, bottom=0.16, wspace=0.08)
        last = ends.iloc[-1].to_dict()
        return fig.to_svg(
            figure,
            "rounds",
            f"Matches found, round by round: {last['positives']:,} of {last['answered']:,} answered pairs for "
            f"{format_dollars(last['paid_cents'])}; see the table",
        )


def _found(axes: Any, ends: pd.DataFrame, column: str, numbers: Iterable[int]) -> None:
    looks = (
        ("positives", fig.AFTER, "-", "o", "all matches"),
        ("beyond_originals", fig.YES, "--", "s", "beyond the originals"),
    )
    for row, colour, dash, marker, label in looks:
        look = {"color": colour, "ls": dash, "marker": marker, "label": label}
        axes.plot(ends[column], ends[row], markevery=slice(1, None), **look)
    for number, at, height in zip(numbers, ends[column][1:], ends["positives"][1:], strict=True):
        axes.annotate(
            str(number), (at, height), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=8.5
        )
    fig.bare(axes, grid="y")


@dataclass(frozen=True, slots=True, eq=False)
class TrainingCurve:
    """How far an annotator was at each look at its held-out queries."""

    name: str
    curve: pd.DataFrame
    """``step``, ``loss`` (NaN before the first step) and ``map_at_r`` (0 to 1; NaN without held-out queries)."""
    kept_step: int
    """Whose weights it has."""
    stopped: bool
    """Whether it ended before its last step."""


def training_svg(by_base: Mapping[str, Sequence[TrainingCurve]]) -> str:
    """Loss and held-out mAP@R by step: a row for each annotator from which some learnt, a line for each of those."""
    if not by_base:
        return ""
    with fig.style():
        height = 2.0 * len(by_base) + 0.35
        figure = fig.new_figure(fig.WIDTH_IN, height)
        grid: Any = figure.subplots(len(by_base), 2, squeeze=False, sharex="row")
        for panels, (base, trainings) in zip(grid, by_base.items(), strict=True):
            for training, (colour, dash, width) in zip(trainings, LOOKS * len(trainings), strict=False):
                look = {"color": colour, "linestyle": dash, "linewidth": width}
                _learnt(panels, training, look)
            panels[0].set_title(f"{fig.short(base)}: loss", loc="left")
            panels[1].set_title("held-out mAP@R, percent", loc="left")
            panels[1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
            for axes in panels:
                fig.bare(axes, grid="y")
                axes.xaxis.set_major_locator(fig.whole_numbers())
                axes.margins(y=0.12)
        for axes in grid[-1]:
            axes.set_xlabel("step")
        figure.subplots_adjust(
            left=0.06, right=0.8, top=1 - 0.3 / height, bottom=0.45 / height, wspace=0.16, hspace=0.5
        )
        names = ", ".join(curve.name for trainings in by_base.values() for curve in trainings)
        return fig.to_svg(figure, "training", f"Loss and held-out mAP@R by step of {names}; see the table")


def _learnt(panels: Any, training: TrainingCurve, look: Mapping[str, Any]) -> None:
    """One curve in both panels, with a dot where its weights were kept and a cross where it stopped early."""
    steps = training.curve["step"]
    for axes, values in ((panels[0], training.curve["loss"]), (panels[1], 100 * training.curve["map_at_r"])):
        axes.plot(steps, values, label=fig.short(training.name, 22), **look)
        kept = steps == training.kept_step
        marks = [("o", steps[kept], values[kept])]
        if training.stopped:
            marks.append(("x", steps.iloc[-1:], values.iloc[-1:]))
        for marker, at, height in marks:
            axes.plot(at, height, marker=marker, markersize=6, linestyle="", color=look["color"], zorder=3)
