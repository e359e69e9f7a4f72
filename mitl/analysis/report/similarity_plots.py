"""Drawings of graded similarity as SVG; each returns ``""`` where there is nothing to draw.

Importing this module does not import matplotlib; drawing does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np

from mitl.analysis.report import figure as fig
from mitl.analysis.report.plots import TAIL
from mitl.analysis.similarity import (
    DEVIATION_EDGES,
    EDGES,
    EVERY_METHOD,
    EVERY_SPLIT,
    QueryPositives,
    Scores,
    WordLikeness,
)
from mitl.core.formats import count
from mitl.records.similarity import TASKS, Likeness

_LOOKS = (
    (fig.AFTER, "solid", 1.8),
    (fig.BEFORE, (0, (4, 1.5)), 1.8),
    (fig.YES, (0, (1.5, 1.2)), 1.8),
    (fig.NO, (0, (6, 1.5, 1.5, 1.5)), 1.8),
)
"""Colour, dash and width of each sampling method: none is told by its colour alone."""
_ALL = (fig.MUTED, "solid", 1.0)
_TITLES = {
    Likeness.STS: "STS, two captions",
    Likeness.SIS: "SIS, two images",
    Likeness.SITS: "SITS, image and caption",
}
_QUERIES = {
    "i2t": "captions per image",
    "t2i": "images per caption",
    "t2t": "captions per caption",
    "i2i": "images per image",
}


def scores_svg(tables: Sequence[Scores]) -> str:
    """Shares of scores by sampling method, one line each; a panel a task, a row a split (figure 3)."""
    return _by_method(tables, "similarity-scores", "mean score", EDGES)


def deviations_svg(tables: Sequence[Scores]) -> str:
    """The same of the standard deviations of single ratings (figure 2 of the appendix)."""
    with_deviations = [table for table in tables if table.deviations]
    return _by_method(
        with_deviations, "similarity-deviations", "standard deviation of a pair's ratings", DEVIATION_EDGES
    )


def _by_method(tables: Sequence[Scores], name: str, what: str, edges: np.ndarray) -> str:
    shown = [table for table in tables if table.split != EVERY_SPLIT and table.pairs]
    splits = list(dict.fromkeys(table.split for table in shown))
    tasks = [task for task in TASKS if any(table.task is task for table in shown)]
    if not shown:
        return ""
    height = 2.35 * len(splits) + 0.25
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, height)
        grid = figure.subplots(len(splits), len(tasks), squeeze=False, sharex=True)
        for row, split in zip(grid, splits, strict=True):
            for axes, task in zip(row, tasks, strict=True):
                here = [table for table in shown if table.split == split and table.task is task]
                _method_panel(axes, here, edges)
                axes.set_title(f"{_TITLES[task]} · {fig.short(split, 12)}", loc="left")
            row[0].set_ylabel("% of the method's pairs")
        for axes in grid[-1]:
            axes.set_xlabel(what)
        figure.subplots_adjust(
            left=0.065, right=0.99, top=1 - 0.3 / height, bottom=0.5 / height, wspace=0.16, hspace=0.34
        )
        spoken = "; ".join(
            f"{table.split} {table.task.upper()} {table.method}: mean {table.mean:.2f}" for table in shown
        )
        return fig.to_svg(figure, name, f"{what} by sampling method: {spoken}")


def _method_panel(axes: fig.Axes, tables: Sequence[Scores], edges: np.ndarray) -> None:
    is_score = len(edges) == len(EDGES)
    looks = cycle(_LOOKS)
    for table in tables:
        colour, dash, width = _ALL if table.method == EVERY_METHOD else next(looks)
        counts = np.array(table.histogram if is_score else table.deviations, np.float64)
        label = f"{fig.short(table.method or 'not said', 20)}, {count(table.pairs)}"
        if is_score:
            label += f", mean {table.mean:.2f}"
        shares = 100 * counts / counts.sum()
        axes.stairs(shares, edges, color=colour, linestyle=dash, linewidth=width, label=label)
    if is_score and tables:
        threshold = tables[0].task.positive_from
        axes.axvline(threshold, ymax=0.7, color=fig.MUTED, linewidth=0.9, linestyle=(0, (1, 2)))
    axes.set_xlim(edges[0] - 0.02 * edges[-1], edges[-1] * 1.02)
    axes.margins(y=0.42)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", borderaxespad=0.1, handlelength=1.8, labelspacing=0.25, fontsize=7.5)
    fig.bare(axes, grid="y")


def positives_svg(found: Sequence[QueryPositives]) -> str:
    """Queries by their number of rated positives; a panel a retrieval task, a row a split (figure 4)."""
    splits = list(dict.fromkeys(panel.split for panel in found))
    tasks = list(dict.fromkeys(panel.task for panel in found))
    if not found:
        return ""
    height = 2.0 * len(splits) + 0.3
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, height)
        grid = figure.subplots(len(splits), len(tasks), squeeze=False, sharex=True)
        for row, split in zip(grid, splits, strict=True):
            for axes, task in zip(row, tasks, strict=True):
                here = next((panel for panel in found if panel.split == split and panel.task == task), None)
                if here is None:
                    axes.set_visible(False)
                    continue
                _positives_panel(axes, here)
                axes.set_title(f"{_QUERIES[task]} · {fig.short(split, 10)}", loc="left", fontsize=8.5)
            row[0].set_ylabel("queries")
        for axes in grid[-1]:
            axes.set_xlabel("rated positives of a query")
        figure.subplots_adjust(
            left=0.07, right=0.99, top=1 - 0.28 / height, bottom=0.5 / height, wspace=0.3, hspace=0.36
        )
        spoken = "; ".join(
            f"{panel.split} {panel.task}: mean {panel.mean:.2f}, most {panel.most} of {panel.queries} queries"
            for panel in found
        )
        return fig.to_svg(figure, "similarity-positives", f"Rated positives of a query: {spoken}")


def _positives_panel(axes: fig.Axes, positives: QueryPositives) -> None:
    counts = list(positives.histogram[:TAIL]) + [0] * (TAIL - len(positives.histogram))
    axes.bar(range(TAIL + 1), [*counts, sum(positives.histogram[TAIL:])], color=fig.AFTER, width=0.78)
    ticks = range(0, TAIL + 1, 5)
    axes.set_xticks(list(ticks), [f"{tick}+" if tick == TAIL else str(tick) for tick in ticks])
    axes.tick_params(axis="x", labelbottom=True)
    axes.margins(y=0.22)
    fig.beside(
        axes, f"mean {positives.mean:.2f}", (0.99, 0.98), -1, xycoords="axes fraction", va="top", pad=0.6
    )
    axes.locator_params(axis="y", nbins=5, integer=True)
    axes.yaxis.set_major_formatter(lambda value, _: count(round(value)))
    fig.bare(axes, grid="y")


def words_svg(found: Sequence[WordLikeness]) -> str:
    """Ratings over the likeness of two captions' words, with the line of best fit; a panel a split (figure 5)."""
    if not found:
        return ""
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, 3.2)
        panels = figure.subplots(1, max(2, len(found)), squeeze=False, sharey=True)[0]
        for axes, words in zip(panels, found, strict=False):
            axes.plot(words.likeness, words.scores, "o", markersize=2.6, color=fig.AFTER, alpha=0.35, mew=0)
            ends = np.linspace(words.likeness.min(), words.likeness.max(), 101)
            line = words.intercept + words.slope * ends
            on_scale = (line >= 0) & (line <= EDGES[-1])
            axes.plot(ends[on_scale], line[on_scale], color=fig.BEFORE, linewidth=2)
            axes.set_ylim(-0.1, 5.1)
            axes.set_xlim(-0.03, 1.03)
            axes.set_title(
                f"{fig.short(words.split, 12)}: {count(len(words.scores))} of {count(words.pairs)} pairs, "
                f"r = {words.pearson:.2f}",
                loc="left",
            )
            axes.set_xlabel("cosine of the captions' words")
            fig.bare(axes, grid="y")
        for axes in panels[len(found) :]:
            axes.set_visible(False)
        panels[0].set_ylabel("STS rating")
        figure.subplots_adjust(left=0.055, right=0.99, top=0.9, bottom=0.16, wspace=0.08)
        spoken = "; ".join(
            f"{words.split}: rating = {words.intercept:.2f} + {words.slope:.2f} x cosine, Pearson {words.pearson:.2f}"
            for words in found
        )
        return fig.to_svg(figure, "similarity-words", f"Ratings over the likeness of words: {spoken}")
