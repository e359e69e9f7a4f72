"""The report's plots as inline SVG; each takes plain numbers and returns ``""`` where there are none.

Importing this does not import matplotlib; drawing does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from mitl.analysis.answer_tables import LABELS, AnswerShares
from mitl.analysis.known_truth import Score
from mitl.analysis.report import figure as fig
from mitl.analysis.report.inputs import (
    EvaluationScore,
    Multiplicity,
    Reliability,
    TruthStats,
    WorkerStanding,
    WorkerSummary,
)
from mitl.analysis.report.views import FunnelStep, histogram, truth_rows
from mitl.core.formats import count, percent
from mitl.records import Direction
from mitl.records.forms import IMAGES, SetForm, of_form

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
        marked = {"positive": fig.YES, "beyond_originals": fig.AFTER}
        colours = [marked.get(step.key, fig.PLAIN) for step in shown]
        axes.barh(range(len(shown)), counts, color=colours, height=0.68, left=0)
        if log:
            axes.set_xscale("log")
            axes.set_xlim(10 ** (len(str(min(counts))) - 2), max(counts) * 20)
        else:
            axes.set_xlim(0, max(counts) * 1.4)
        for row, step in enumerate(shown):
            share = "" if step.of_previous is None else f"  ·  {_step_share(step.of_previous)}"
            fig.beside(axes, f"{count(step.count)}{share}", (step.count, row), 5)
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


def _step_share(share: float) -> str:
    if share == 1:
        return "all"
    return percent(share) if share < 1 else f"×{share:,.1f}"


PANELS_A_ROW = 5


def answers_svg(table: AnswerShares) -> str:
    """One panel an annotator, one stacked bar a rank and one for all; segments are the four answers."""
    if not table.annotators:
        return ""
    rows = -(-len(table.annotators) // PANELS_A_ROW)
    columns = -(-len(table.annotators) // rows)
    height = rows * (0.62 + 0.23 * (len(table.ranks) + 1)) + 0.4
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, height)
        grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        for place, axes in enumerate(grid.flat):
            if place >= len(table.annotators):
                axes.set_visible(False)
                continue
            _answer_panel(axes, table, table.annotators[place], title_length=100 // columns)
        from matplotlib.patches import Patch

        handles = [Patch(facecolor=fill, edgecolor=edge, linewidth=0.8) for fill, edge, _ in fig.ANSWERS]
        figure.legend(
            handles,
            [label.value.replace("_", " ") for label in LABELS],
            loc="lower center",
            ncols=4,
            handlelength=1,
            handleheight=1,
        )
        figure.subplots_adjust(
            left=0.05, right=0.995, top=1 - 0.3 / height, bottom=0.45 / height, wspace=0.08, hspace=0.35
        )
        return fig.to_svg(figure, "answers", "Answer shares by annotator and rank; see the table")


def _answer_panel(axes: fig.Axes, table: AnswerShares, name: str, *, title_length: int) -> None:
    """Bars of one annotator, rank 1 on top, the pooled bar below a gap."""
    rows = [*table.cells[name], table.average[name]]
    heights = [*range(len(table.ranks)), len(table.ranks) + 0.35]
    for height, row in zip(heights, rows, strict=True):
        left = 0.0
        for share, (fill, edge, ink) in zip(row.shares or (), fig.ANSWERS, strict=False):
            axes.barh(height, share, left=left, color=fill, height=0.8, edgecolor=edge, linewidth=0.8)
            if share >= 11:
                axes.annotate(
                    f"{share:.0f}",
                    (left + share / 2, height),
                    color=ink,
                    ha="center",
                    va="center",
                    fontsize=7.5,
                )
            left += share
    axes.set_title(fig.short(name, title_length), loc="left")
    axes.set_xlim(-0.6, 100.6)
    axes.set_ylim(len(table.ranks) + 0.85, -0.55)
    axes.set_yticks(heights, [*(str(rank) for rank in table.ranks), "all"])
    axes.set_xticks([])
    axes.spines[:].set_visible(False)


TAIL = 20
"""The last bar holds this many positives or more."""


def multiplicity_svg(sets: Sequence[Multiplicity], form: SetForm = IMAGES) -> str:
    """Histograms of positives per query after, the means before and after as lines, one panel a direction."""
    shown = [entry for entry in sets if entry.before and entry.after]
    if not shown:
        return ""
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, 2.7)
        panels = figure.subplots(1, len(shown), squeeze=False)[0]
        for axes, entry in zip(panels, shown, strict=True):
            _histogram(axes, entry, form)
        panels[0].set_ylabel("queries")
        figure.subplots_adjust(left=0.065, right=0.99, top=0.89, bottom=0.18, wspace=0.12)
        return fig.to_svg(figure, "multiplicity", "Positives per query, before and after; see the table")


def _histogram(axes: fig.Axes, entry: Multiplicity, form: SetForm) -> None:
    axes.bar(range(TAIL + 1), histogram(entry.after, tail=TAIL), color=fig.AFTER, width=0.78)
    # The original annotation is one tall bar at 5 or 1 that would flatten the rest: a line says it.
    _mean_line(axes, entry.before, "original", fig.BEFORE, (0, (4, 2)), 0.985)
    _mean_line(axes, entry.after, "release", fig.INK, "solid", 0.885)
    axes.margins(y=0.26)
    i2t = entry.direction is Direction.I2T
    title = "captions per image query" if i2t else "images per caption query"
    axes.set_title(of_form(title, form), loc="left")
    axes.set_xlim(-0.7, TAIL + 0.7)
    ticks = range(0, TAIL + 1, 5)
    axes.set_xticks(list(ticks), [f"{tick}+" if tick == TAIL else str(tick) for tick in ticks])
    axes.set_xlabel("positives of a query")
    axes.yaxis.set_major_locator(fig.whole_numbers())
    fig.bare(axes, grid="y")


def _mean_line(
    axes: fig.Axes, values: Sequence[int], name: str, colour: str, dashes: object, height: float
) -> None:
    mean = sum(values) / len(values)
    at = min(mean, TAIL + 0.6)
    axes.axvline(at, color=colour, linestyle=dashes, linewidth=1.5)
    text, dx = f"{name}, mean {mean:.3g}", -5 if mean > TAIL / 2 else 5
    fig.beside(axes, text, (at, height), dx, pad=0.6, xycoords=("data", "axes fraction"), va="top")


QUERIES = {Direction.I2T: "image queries", Direction.T2I: "caption queries"}
DRAWN = ("R@1", "R-Precision", "mAP@R")
"""One panel each, from left to right."""
_MARKS = ((fig.BEFORE, "s"), (fig.AFTER, "o"), (fig.YES, "^"), (fig.PLAIN, "D"), (fig.WEAK_YES, "v"))
MOST_SETS = len(_MARKS)
"""Sets of positives that a drawing tells apart: the first ones."""


def scores_svg(scores: Sequence[EvaluationScore], form: SetForm = IMAGES) -> str:
    """One row of panels a direction, one panel a metric, one line an annotator, one mark a set of positives."""
    metrics = [metric for metric in DRAWN if any(score.metric == metric for score in scores)]
    directions = [way for way in Direction if any(score.direction is way for score in scores)]
    sets = list(dict.fromkeys(score.positives for score in scores))[:MOST_SETS]
    if not metrics:
        return ""
    names = {
        way: list(dict.fromkeys(score.annotator for score in scores if score.direction is way))
        for way in directions
    }
    heights = [0.55 + 0.27 * len(names[way]) for way in directions]
    height = sum(heights) + 0.75
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, height)
        grid = figure.subplots(
            len(directions), len(metrics), squeeze=False, sharey="row", height_ratios=heights
        )
        for row, way in zip(grid, directions, strict=True):
            for place, (axes, metric) in enumerate(zip(row, metrics, strict=True)):
                here = [score for score in scores if score.direction is way and score.metric == metric]
                _score_panel(axes, here, names[way], sets)
                # Only the first panel of a row names the queries: the titles would run into each other.
                axes.set_title(metric if place else f"{metric}, {of_form(QUERIES[way], form)}", loc="left")
        handles, words = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, words, loc="lower center", ncols=len(sets))
        figure.subplots_adjust(
            left=0.17,
            right=0.985,
            top=1 - 0.32 / height,
            bottom=0.62 / height,
            wspace=0.1,
            hspace=0.95 * len(heights) / sum(heights),
        )
        return fig.to_svg(figure, "scores", f"Scores of annotators on {', '.join(sets)}; see the tables")


def _score_panel(
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
    taught = {score.annotator for score in scores if score.taught_by}
    marked = [f"{fig.short(name, 22)} †" if name in taught else fig.short(name, 22) for name in names]
    axes.set_yticks(range(len(names)), marked)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}")
    fig.bare(axes)


_TruthRow = tuple[tuple[str, str], str, Score]
"""((colour, marker), name, score)."""
_TRUTH_MARKS = {
    "before": (fig.BEFORE, "s"),
    "annotator": (fig.PLAIN, "o"),
    "hit rule": (fig.YES, "^"),
    "record": (fig.YES, "v"),
    "after": (fig.AFTER, "D"),
}
"""(colour, marker) of each kind of row."""
PRECISION_TARGET = 0.95
"""What precision is to reach, drawn as a line."""


def truth_svg(truth: TruthStats) -> str:
    """Recall and precision, one row each for before, each annotator alone, the HIT rule, and after."""
    rows = [
        (_TRUTH_MARKS[kind], name.removeprefix("HIT rule ") if kind == "record" else name, scores.together)
        for kind, name, scores in truth_rows(truth)
    ]
    height = 0.75 + 0.3 * len(rows)
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, height)
        left, right = figure.subplots(1, 2, sharey=True)
        recalls, precisions = [score.recall for *_, score in rows], [score.precision for *_, score in rows]
        _truth_panel(left, rows, recalls, "recall", _up_to_a_tenth(recalls))
        _truth_panel(right, rows, precisions, "precision", _from_a_twentieth([*precisions, PRECISION_TARGET]))
        right.axvline(PRECISION_TARGET, color=fig.MUTED, linestyle=(0, (3, 3)), linewidth=0.9)
        left.set_ylim(len(rows) - 0.4, -0.6)
        figure.subplots_adjust(left=0.22, right=0.99, top=1 - 0.35 / height, bottom=0.3 / height, wspace=0.07)
        spoken = "; ".join(
            f"{name}: recall {percent(score.recall)}, precision {percent(score.precision)}"
            for _, name, score in rows
        )
        return fig.to_svg(figure, "truth", spoken)


def _truth_panel(
    axes: fig.Axes,
    rows: Sequence[_TruthRow],
    values: Sequence[float | None],
    title: str,
    ends: tuple[float, float],
) -> None:
    low, high = ends
    axes.set_xlim(low, high + 0.25 * (high - low))
    axes.hlines(range(len(rows)), low, high, color=fig.LINE, linewidth=0.8, zorder=1)
    for place, (value, ((colour, marker), *_)) in enumerate(zip(values, rows, strict=True)):
        if value is None:
            continue
        axes.plot([value], [place], marker=marker, markersize=7, color=colour, zorder=3)
        fig.beside(axes, percent(value), (value, place), 8, pad=0.8)
    axes.set_title(title, loc="left")
    axes.set_yticks(range(len(rows)), [fig.short(name) for _, name, _ in rows])
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %" if value <= high + 1e-9 else "")
    fig.bare(axes)
    axes.grid(visible=False, axis="y")


def _up_to_a_tenth(values: Sequence[float | None]) -> tuple[float, float]:
    """From 0 to the next tenth above all of them."""
    return 0.0, min(1.0, (int(10 * max((v for v in values if v is not None), default=1.0)) + 1) / 10)


def _from_a_twentieth(values: Sequence[float | None]) -> tuple[float, float]:
    """From the next twentieth below all of them to 1."""
    lowest = min((value for value in values if value is not None), default=0.0)
    return max(0.0, (math.ceil(20 * lowest) - 1) / 20), 1.0


def reliability_svg(found: Sequence[Reliability]) -> str:
    """One panel a yardstick: the share that was a match over the stated probability, with its interval."""
    if not found:
        return ""
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, 3.1)
        panels = figure.subplots(1, max(len(found), 2), squeeze=False)[0]
        for axes, reliability in zip(panels, found, strict=False):
            _reliability_panel(axes, reliability)
        for axes in panels[len(found) :]:
            axes.set_visible(False)
        panels[0].set_ylabel("share that was a match")
        figure.subplots_adjust(left=0.075, right=0.985, top=0.89, bottom=0.17, wspace=0.16)
        spoken = "; ".join(
            f"against {reliability.against}: "
            + ", ".join(
                f"stated {stated:.2f}, true {observed:.2f} of {cases}"
                for stated, observed, cases in reliability.curve.bins
            )
            for reliability in found
        )
        return fig.to_svg(figure, "reliability", spoken)


def _reliability_panel(axes: fig.Axes, reliability: Reliability) -> None:
    axes.plot([0, 1], [0, 1], color=fig.MUTED, linestyle=(0, (3, 3)), linewidth=0.9)
    bins = zip(reliability.curve.bins, reliability.intervals, strict=True)
    for (stated, observed, cases), (low, high) in bins:
        axes.vlines(stated, low, high, color=fig.AFTER, linewidth=1.8, zorder=2)
        axes.plot(stated, observed, marker="o", markersize=6, color=fig.AFTER, linestyle="", zorder=3)
        dx = -8 if stated > 0.5 else 8
        fig.beside(axes, count(cases), (stated, observed), dx, pad=0.6, fontsize=8, color=fig.MUTED)
    axes.set_xlim(-0.04, 1.04)
    axes.set_ylim(-0.04, 1.04)
    axes.set_title(f"against {reliability.against}", loc="left")
    axes.set_xlabel("stated probability of a match")
    fig.bare(axes, grid="y")


_STANDINGS = {
    WorkerStanding.GOOD: (fig.YES, "o"),
    WorkerStanding.UNPROVEN: (fig.WEAK_YES, "s"),
    WorkerStanding.POOR: (fig.BEFORE, "^"),
    WorkerStanding.EXCLUDED: (fig.PLAIN, "X"),
}

_LARGEST_MARK = 600
"""Square points, about: more would cover the records beside it."""


def workers_svg(workers: Sequence[WorkerSummary]) -> str:
    """One dot for each gold record (seen, right); its area grows with the number of workers that have it."""
    shown = [worker for worker in workers if worker.golds_seen > 0]
    if not shown:
        return ""
    places = Counter((w.standing, w.golds_seen, w.golds_right) for w in shown)
    grows = min(20, _LARGEST_MARK / max(places.values()))
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, 2.9)
        axes = figure.subplots()
        for standing, (colour, marker) in _STANDINGS.items():
            here = sorted((seen, right, n) for (kind, seen, right), n in places.items() if kind is standing)
            if here:
                axes.scatter(
                    [seen for seen, _, _ in here],
                    [right / seen for seen, right, _ in here],
                    s=[44 + grows * (n - 1) for _, _, n in here],
                    c=colour,
                    marker=marker,
                    edgecolors=fig.PAPER,
                    linewidths=0.8,
                    label=standing.value,
                    clip_on=False,
                    zorder=3,
                )
        lowest = min(w.golds_right / w.golds_seen for w in shown)
        axes.set_ylim(max(0.0, int(10 * lowest) / 10 - 0.1) - 0.02, 1.04)
        seen_by = [worker.golds_seen for worker in shown]
        axes.set_xlim(max(0, min(seen_by) - 0.06 * max(seen_by) - 1), max(seen_by) * 1.06 + 1)
        axes.set_xlabel("gold controls seen")
        axes.set_title("gold controls answered right, by worker", loc="left")
        axes.xaxis.set_major_locator(fig.whole_numbers())
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g} %" if value <= 1 + 1e-9 else "")
        fig.bare(axes, grid="y")
        legend = axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), title="record", alignment="left")
        for handle in legend.legend_handles:
            handle.set_sizes([44])  # type: ignore[union-attr]
        figure.subplots_adjust(left=0.065, right=0.86, top=0.9, bottom=0.17)
        title = f"Gold records of {len(shown)} workers; see the table"
        return fig.to_svg(figure, "workers", title)
