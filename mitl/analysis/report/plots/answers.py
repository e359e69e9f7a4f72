"""Answer shares by annotator and rank."""

from __future__ import annotations

from mitl.analysis.answer_tables import LABELS, AnswerTable
from mitl.analysis.report.plots import figure as fig

PANELS_A_ROW = 5


def answers_svg(table: AnswerTable) -> str:
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
        handles = [_swatch(fill, edge) for fill, edge, _ in fig.ANSWERS]
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


def _answer_panel(axes: fig.Axes, table: AnswerTable, name: str, *, title_length: int) -> None:
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


def _swatch(fill: str, edge: str) -> fig.Patch:
    from matplotlib.patches import Patch

    return Patch(facecolor=fill, edgecolor=edge, linewidth=0.8)
