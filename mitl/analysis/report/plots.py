"""The report's plots as inline SVG; each takes plain numbers and returns ``""`` where there are none.

Importing this module does not import matplotlib; drawing does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mitl.analysis.known_truth import Score
from mitl.analysis.report import figure as fig
from mitl.analysis.report.formats import count, percent
from mitl.analysis.report.inputs import Multiplicity, TruthStats, WorkerRow, WorkerStanding
from mitl.analysis.report.tables import LABELS, AnswerTable, FunnelStep, histogram
from mitl.records import Direction

WIDTH_IN = 9.0

ANSWER_COLOURS = (
    (fig.YES, fig.ON_YES),
    (fig.WEAK_YES, fig.ON_WEAK_YES),
    (fig.WEAK_NO, fig.ON_WEAK_NO),
    (fig.NO, fig.ON_NO),
)

LOG_RATIO = 60
"""Beyond this ratio of the largest to the smallest bar, a linear axis shows the small ones as nothing."""

PANELS_A_ROW = 5

TAIL = 20
"""The last bar of a histogram holds this many positives or more."""

_STANDING_COLOURS = {
    WorkerStanding.GOOD: (fig.YES, "o"),
    WorkerStanding.UNPROVEN: (fig.WEAK_YES, "s"),
    WorkerStanding.POOR: (fig.BEFORE, "^"),
    WorkerStanding.EXCLUDED: (fig.NO, "X"),
}


def funnel_svg(steps: Sequence[FunnelStep]) -> str:
    """Horizontal bars from the possible pairs to the new positives; logarithmic where they differ much."""
    shown = [step for step in steps if step.count > 0]
    if not shown:
        return ""
    with fig.style():
        figure = fig.new_figure(WIDTH_IN, 0.6 + 0.36 * len(shown))
        axes = figure.subplots()
        counts = [step.count for step in shown]
        log = max(counts) / min(counts) > LOG_RATIO
        colours = [_funnel_colour(step.key) for step in shown]
        axes.barh(range(len(shown)), counts, color=colours, height=0.68, left=0)
        if log:
            axes.set_xscale("log")
            axes.set_xlim(10 ** (len(str(min(counts))) - 2), max(counts) * 60)
        else:
            axes.set_xlim(0, max(counts) * 1.4)
        for row, step in enumerate(shown):
            share = "" if step.of_previous is None else f" · {_step_share(step.of_previous)}"
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
        axes.xaxis.set_major_formatter(
            lambda value, _: count(round(value)) if 1 <= value <= max(counts) else ""
        )
        axes.minorticks_off()
        figure.subplots_adjust(left=0.25, right=0.99, top=0.99, bottom=0.5 / (0.6 + 0.36 * len(shown)))
        return fig.to_svg(
            figure,
            "funnel",
            "Funnel: " + "; ".join(f"{step.label} {count(step.count)}" for step in shown),
        )


def answers_svg(table: AnswerTable) -> str:
    """One panel an annotator, one stacked bar a rank and one for all; segments are the four answers."""
    if not table.annotators:
        return ""
    rows = -(-len(table.annotators) // PANELS_A_ROW)
    columns = -(-len(table.annotators) // rows)
    height = rows * (0.62 + 0.23 * (len(table.ranks) + 1)) + 0.4
    with fig.style():
        figure = fig.new_figure(WIDTH_IN, height)
        grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        for place, axes in enumerate(grid.flat):
            if place >= len(table.annotators):
                axes.set_visible(False)
                continue
            _answer_panel(axes, table, table.annotators[place], title_length=100 // columns)
        handles = [_swatch(fill) for fill, _ in ANSWER_COLOURS]
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


def truth_svg(truth: TruthStats) -> str:
    """Recall and precision, one row each for before, each annotator alone, the HIT rule, and after."""
    rows = _truth_rows(truth)
    height = 0.75 + 0.3 * len(rows)
    with fig.style():
        figure = fig.new_figure(WIDTH_IN, height)
        panels = figure.subplots(1, 2, sharey=True)
        for axes, measure in zip(panels, ("recall", "precision"), strict=True):
            values = [score.recall if measure == "recall" else score.precision for _, score, _ in rows]
            known = [value for value in values if value is not None]
            low = 0.0 if measure == "recall" else min(0.8, *known, 1.0)
            axes.set_xlim(max(0.0, low - 0.03) if low else 0.0, 1.0 + 0.14 * (1 - low))
            axes.hlines(range(len(rows)), 0, 1, color=fig.LINE, linewidth=0.8, zorder=1)
            for row, (value, (_, _, colour)) in enumerate(zip(values, rows, strict=True)):
                if value is None:
                    continue
                axes.plot([value], [row], marker="o", markersize=7, color=colour, zorder=3)
                axes.annotate(
                    percent(value),
                    (value, row),
                    xytext=(7, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=8.5,
                    bbox={"facecolor": fig.PAPER, "edgecolor": "none", "pad": 0.8},
                )
            if measure == "precision" and truth.precision_target is not None:
                axes.axvline(truth.precision_target, color=fig.MUTED, linestyle=(0, (3, 3)), linewidth=0.9)
            axes.set_title(measure, loc="left")
            axes.set_yticks(range(len(rows)), [fig.short(name) for name, _, _ in rows])
            axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %" if value <= 1 else "")
            fig.bare(axes)
            axes.grid(visible=False, axis="y")
        panels[0].set_ylim(len(rows) - 0.4, -0.6)
        figure.subplots_adjust(left=0.22, right=0.99, top=1 - 0.35 / height, bottom=0.3 / height, wspace=0.07)
        spoken = "; ".join(
            f"{name}: recall {percent(score.recall)}, precision {percent(score.precision)}"
            for name, score, _ in rows
        )
        return fig.to_svg(figure, "truth", spoken)


def multiplicity_svg(sets: Sequence[Multiplicity], *, tail: int = TAIL) -> str:
    """Histograms of positives per query after, with the mean before as a line, one panel a direction."""
    shown = [entry for entry in sets if entry.before and entry.after]
    if not shown:
        return ""
    with fig.style():
        figure = fig.new_figure(WIDTH_IN, 2.6)
        panels = figure.subplots(1, len(shown), squeeze=False)[0]
        for axes, entry in zip(panels, shown, strict=True):
            # The original annotation is one tall bar at 5 or 1 that would flatten the rest: a line says it.
            original = sum(entry.before) / len(entry.before)
            axes.bar(range(tail + 1), histogram(entry.after, tail=tail), color=fig.AFTER, width=0.78)
            axes.axvline(original, color=fig.BEFORE, linestyle=(0, (4, 2)), linewidth=1.5)
            axes.margins(y=0.16)
            axes.annotate(
                f"original, mean {original:.3g}",
                (original, 0.97),
                xycoords=("data", "axes fraction"),
                xytext=(5, 0),
                textcoords="offset points",
                va="top",
                fontsize=8.5,
            )
            i2t = entry.direction is Direction.I2T
            axes.set_title("captions per image query" if i2t else "images per caption query", loc="left")
            axes.set_xlim(-0.7, tail + 0.7)
            ticks = range(0, tail + 1, 5)
            axes.set_xticks(list(ticks), [f"{tick}+" if tick == tail else str(tick) for tick in ticks])
            axes.set_xlabel("positives of a query")
            axes.yaxis.set_major_locator(_whole_numbers())
            axes.tick_params(axis="y", labelcolor=fig.MUTED, labelsize=8.5)
            fig.bare(axes, grid="y")
        panels[0].set_ylabel("queries")
        figure.subplots_adjust(left=0.065, right=0.99, top=0.89, bottom=0.18, wspace=0.12)
        return fig.to_svg(figure, "multiplicity", "Positives per query, before and after; see the table")


def workers_svg(workers: Sequence[WorkerRow]) -> str:
    """One dot for each gold record (seen, right); its area grows with the number of workers that have it."""
    shown = [worker for worker in workers if worker.golds_seen > 0]
    if not shown:
        return ""
    places = Counter((w.standing, w.golds_seen, w.golds_right) for w in shown)
    with fig.style():
        figure = fig.new_figure(WIDTH_IN, 2.9)
        axes = figure.subplots()
        for standing, (colour, marker) in _STANDING_COLOURS.items():
            here = sorted((seen, right, n) for (kind, seen, right), n in places.items() if kind is standing)
            if here:
                axes.scatter(
                    [seen for seen, _, _ in here],
                    [right / seen for seen, right, _ in here],
                    s=[44 + 20 * (n - 1) for _, _, n in here],
                    c=colour,
                    marker=marker,
                    edgecolors=fig.PAPER,
                    linewidths=0.8,
                    label=standing.value,
                    clip_on=False,
                    zorder=3,
                )
        axes.set_ylim(-0.02, 1.04)
        axes.set_xlim(0, max(worker.golds_seen for worker in shown) * 1.05 + 1)
        axes.set_xlabel("gold controls seen")
        axes.set_title("gold controls answered right, by worker", loc="left")
        axes.xaxis.set_major_locator(_whole_numbers())
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        axes.tick_params(axis="y", labelcolor=fig.MUTED, labelsize=8.5)
        fig.bare(axes, grid="y")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), title="record", alignment="left")
        figure.subplots_adjust(left=0.065, right=0.86, top=0.9, bottom=0.17)
        title = f"Gold records of {len(shown)} workers; see the table"
        return fig.to_svg(figure, "workers", title)


def _funnel_colour(key: str) -> str:
    return {"positive": fig.WEAK_YES, "beyond_originals": fig.YES}.get(key, fig.NO)


def _step_share(share: float) -> str:
    return f"{percent(share)} of the step before" if share <= 1 else f"×{share:,.1f} the step before"


def _answer_panel(axes: fig.Axes, table: AnswerTable, name: str, *, title_length: int) -> None:
    """Bars of one annotator, rank 1 on top, the pooled bar below a gap."""
    rows = [*table.cells[name], table.average[name]]
    heights = [*range(len(table.ranks)), len(table.ranks) + 0.35]
    for height, row in zip(heights, rows, strict=True):
        left = 0.0
        for share, (fill, ink) in zip(row.shares or (), ANSWER_COLOURS, strict=False):
            axes.barh(height, share, left=left, color=fill, height=0.82, edgecolor=fig.PAPER, linewidth=0.7)
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
    axes.set_xlim(0, 100)
    axes.set_ylim(len(table.ranks) + 0.85, -0.55)
    axes.set_yticks(heights, [*(str(rank) for rank in table.ranks), "all"])
    axes.set_xticks([])
    axes.spines[:].set_visible(False)


def _swatch(colour: str) -> fig.Patch:
    from matplotlib.patches import Patch

    return Patch(facecolor=colour)


def _whole_numbers() -> fig.Locator:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(integer=True)


def _truth_rows(truth: TruthStats) -> list[tuple[str, Score, str]]:
    rows = [("original annotation", truth.original.together, fig.BEFORE)]
    rows += [(f"{name} alone", scores.together, fig.NO) for name, scores in truth.by_annotator]
    if truth.hit_rule is not None:
        rows.append(("HIT rule alone", truth.hit_rule.together, fig.WEAK_YES))
    if truth.hit_rule_and_record is not None:
        rows.append(("with worker record", truth.hit_rule_and_record.together, fig.YES))
    if truth.release is not None:
        rows.append(("release", truth.release.together, fig.AFTER))
    return rows
