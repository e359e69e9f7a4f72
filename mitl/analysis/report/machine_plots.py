"""The analyses' drawings as SVG; each takes records and returns ``""`` where there is nothing to draw.

Importing this module does not import matplotlib; drawing does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mitl.analysis.records import Bias, Cell, Matrix, SizeBias, Uncertainty
from mitl.analysis.report import figure as fig
from mitl.analysis.report.inputs import EvaluationScore
from mitl.analysis.report.plots import QUERIES
from mitl.judgements.calibration import Calibration
from mitl.records import Direction
from mitl.records.forms import IMAGES, SetForm, of_form

_LINES = (
    ("total", fig.AFTER, "o", "-"),
    ("own", fig.YES, "s", "--"),
    ("other", fig.BEFORE, "^", ":"),
)
"""Field of ``SizeBias``, colour, marker and dash: no line is told by its colour alone."""
_BIAS = ("bias", "self-bias", "non-self-bias")
_FROM_TRUTH = ("all annotators", "those used", "the others")

RANKED_BY = "mAP@R"
_MOVES = (
    ("better", fig.AFTER, "^", "-"),
    ("worse", fig.BEFORE, "v", "--"),
    ("the same", fig.PLAIN, "o", ":"),
)
"""What became of a rank, its colour, marker and dash."""


def ranks(scores: Sequence[EvaluationScore], way: Direction) -> dict[str, tuple[int, int]]:
    """Annotator → its ranks by mAP@R on the original annotation and on the release, best first on the latter.

    Equal scores share the better rank. Who is not scored on both is left out and counts in nobody's rank.
    """
    value = {
        (score.annotator, score.positives): score.value
        for score in scores
        if score.direction is way and score.metric == RANKED_BY
    }
    names = [
        name
        for name in dict.fromkeys(name for name, _ in value)
        if {(name, "original"), (name, "release")} <= {*value}
    ]

    def rank(name: str, positives: str) -> int:
        return 1 + sum(value[other, positives] > value[name, positives] for other in names)

    ranked = {name: (rank(name, "original"), rank(name, "release")) for name in names}
    return dict(sorted(ranked.items(), key=lambda entry: entry[1][1]))


def ranks_svg(scores: Sequence[EvaluationScore], form: SetForm = IMAGES) -> str:
    """One line an annotator from its rank on the original annotation to that on the release; a panel a direction."""
    panels = {way: ranking for way in Direction if len(ranking := ranks(scores, way)) > 1}
    if not panels:
        return ""
    taught = {score.annotator for score in scores if score.taught_by}
    height = 0.9 + 0.27 * max(map(len, panels.values()))
    told = []
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, height)
        for axes, (way, ranking) in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
        ):
            before = sorted(ranking, key=lambda name: ranking[name][0])
            for to, (name, (first, last)) in enumerate(ranking.items()):
                at = before.index(name)
                _, colour, marker, dash = _MOVES[0 if last < first else 1 if last > first else 2]
                axes.plot((0, 1), (at, to), color=colour, marker=marker, linestyle=dash, markersize=5)
                shown = fig.short(name, 18) + " †" * (name in taught)
                axes.annotate(
                    f"{shown}  {first}", (-0.07, at), ha="right", va="center", fontsize=9, color=fig.INK
                )
                axes.annotate(
                    f"{last}  {shown}", (1.07, to), ha="left", va="center", fontsize=9, color=fig.INK
                )
            axes.set_xlim(-1.3, 2.3)
            axes.set_ylim(len(ranking) - 0.5, -0.5)
            axes.set_xticks((0, 1), ("original", "release"))
            axes.set_yticks(())
            axes.spines[:].set_visible(False)
            axes.set_title(of_form(QUERIES[way], form))
            told.append(
                f"{form.way_names[way]}: "
                + ", ".join(f"{name} from {first} to {last}" for name, (first, last) in ranking.items())
            )
        for move, colour, marker, dash in _MOVES:
            axes.plot((), (), color=colour, marker=marker, linestyle=dash, markersize=5, label=move)
        handles, words = axes.get_legend_handles_labels()
        figure.legend(handles, words, loc="lower center", ncols=len(_MOVES))
        figure.subplots_adjust(left=0.02, right=0.98, top=1 - 0.3 / height, bottom=0.58 / height, wspace=0.03)
        return fig.to_svg(figure, "ranks", f"Ranks by {RANKED_BY}; {'; '.join(told)}")


def bias_svg(found: Sequence[Bias], form: SetForm = IMAGES) -> str:
    """Bias, self-bias and non-self-bias by the number of annotators used; a panel a metric and direction (Fig. E.2)."""
    shown = [(bias, bias.by_size) for bias in found if bias.by_size]
    title = "Bias by the number of annotators whose proposals are used; see the table"
    return _curves(shown, form, _BIAS, "bias", title)


def truth_bias_svg(found: Sequence[Bias], form: SetForm = IMAGES) -> str:
    """The same against the known truth, up to all annotators."""
    shown = [(bias, bias.by_size_truth) for bias in found if bias.by_size_truth]
    title = "Distance from the scores under the known truth; see the table"
    return _curves(shown, form, _FROM_TRUTH, "truth-bias", title)


def matrix_svg(names: Sequence[str], matrix: Matrix, *, name: str, title: str) -> str:
    """A square of numbers from -1 to 1, darker where they are larger; the diagonal is left out."""
    count = len(names)
    if count < 2:
        return ""
    from matplotlib.patches import Rectangle

    cells = np.array(matrix, np.float64)  # None becomes NaN
    np.fill_diagonal(cells, np.nan)
    side = 0.62 * count
    with fig.style():
        figure = fig.new_figure(side + 2.2, side + 1.5)
        axes = figure.subplots()
        for row, column in np.argwhere(~np.isnan(cells)):
            value = float(cells[row, column])
            strength = min(1.0, abs(value))
            colour = fig.AFTER if value >= 0 else fig.BEFORE
            axes.add_patch(
                Rectangle((column - 0.47, row - 0.47), 0.94, 0.94, facecolor=colour, alpha=strength)
            )
            axes.annotate(
                f"{value:.2f}",
                (column, row),
                ha="center",
                va="center",
                fontsize=8,
                color=fig.PAPER if strength > 0.6 else fig.INK,
            )
        axes.set_xlim(-0.5, count - 0.5)
        axes.set_ylim(count - 0.5, -0.5)
        axes.set_xticks(range(count), [fig.short(label, 18) for label in names], rotation=45, ha="right")
        axes.set_yticks(range(count), [fig.short(label, 18) for label in names])
        axes.tick_params(axis="x", labelcolor=fig.INK, labelsize=9)
        axes.set_title(title, loc="left")
        axes.spines[:].set_visible(False)
        height = side + 1.5
        figure.subplots_adjust(
            left=1.7 / (side + 2.2), right=0.97, top=1 - 0.35 / height, bottom=1.1 / height
        )
        return fig.to_svg(figure, name, f"{title}; see the table")


def uncertainty_svg(found: Sequence[Uncertainty], form: SetForm = IMAGES) -> str:
    """Mean number of positives by bins of rising uncertainty; a panel an annotator, direction and kind (Fig. 3b)."""
    shown = [uncertainty for uncertainty in found if uncertainty.bins]
    if not shown:
        return ""
    columns = min(len(shown), 4)
    rows = -(-len(shown) // columns)
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, 2.4 * rows + 0.2)
        panels = figure.subplots(rows, columns, squeeze=False)
        for axes, uncertainty in zip(panels.flat, shown, strict=False):
            means = [bin_.positives for bin_ in uncertainty.bins]
            axes.plot(range(1, len(means) + 1), means, marker="o", color=fig.AFTER, clip_on=False)
            axes.set_ylim(0, max(max(means) * 1.15, 1))
            way = form.way_names[uncertainty.direction]
            axes.set_title(fig.short(f"{uncertainty.annotator} {way}, {uncertainty.against}", 32), loc="left")
            axes.set_xlabel(f"bin of uncertainty; tau {_said(uncertainty.tau)}")
            axes.set_xticks(range(1, len(means) + 1))
            fig.bare(axes, grid="y")
        for axes in panels.flat[len(shown) :]:
            axes.set_visible(False)
        panels[0, 0].set_ylabel("positives of a query")
        figure.subplots_adjust(
            left=0.07, right=0.99, top=0.88, bottom=0.42 / (2.4 * rows), wspace=0.3, hspace=0.6
        )
        return fig.to_svg(figure, "uncertainty", "Positives by uncertainty of the query; see the table")


def favour_svg(panels: Mapping[str, Sequence[tuple[str, float, float, float]]]) -> str:
    """(annotator, favour, low, high), shares from 0 to 1, as marks with their intervals; a panel a direction."""
    if not any(panels.values()):
        return ""
    names = list(dict.fromkeys(name for rows in panels.values() for name, *_ in rows))
    height = 0.85 + 0.27 * len(names)
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, height)
        drawn = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, (title, rows) in zip(drawn, panels.items(), strict=True):
            axes.axvline(0, color=fig.MUTED, linewidth=0.8, linestyle="--")
            for name, value, low, high in rows:
                colour, marker = (fig.BEFORE, "s") if low > 0 else (fig.PLAIN, "o")
                axes.hlines(names.index(name), 100 * low, 100 * high, color=colour, linewidth=1.6)
                axes.plot(100 * value, names.index(name), marker=marker, markersize=5, color=colour)
            axes.set_ylim(len(names) - 0.4, -0.6)
            axes.set_yticks(range(len(names)), [fig.short(name, 22) for name in names])
            axes.set_title(title, loc="left")
            axes.set_xlabel("points")
            fig.bare(axes)
        figure.subplots_adjust(left=0.17, right=0.98, top=1 - 0.3 / height, bottom=0.5 / height, wspace=0.08)
        return fig.to_svg(
            figure, "favour", "How much each annotator lives on its own positives; see the table"
        )


def reliability_svg(reliability: Calibration) -> str:
    """Stated probability against the share of matches that people found, with how many pairs are in each bin."""
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, 3.2)
        curve, cases = figure.subplots(1, 2, width_ratios=(1, 1.6))
        curve.plot((0, 1), (0, 1), color=fig.BEFORE, ls=":", label="as stated")
        curve.plot(
            reliability.stated,
            reliability.observed,
            color=fig.AFTER,
            marker="o",
            label="found",
            clip_on=False,
        )
        curve.set_xlim(0, 1)
        curve.set_ylim(0, 1)
        curve.set_xlabel("stated probability of a match")
        curve.set_ylabel("share that people call one")
        curve.legend(loc="upper left")
        cases.bar(reliability.stated, reliability.cases, width=0.06, color=fig.AFTER)
        cases.set_xlim(0, 1)
        cases.set_xlabel("stated probability of a match")
        cases.set_ylabel("answered pairs")
        for axes in (curve, cases):
            fig.bare(axes, grid="y")
        figure.subplots_adjust(left=0.07, right=0.99, top=0.95, bottom=0.15, wspace=0.25)
        return fig.to_svg(figure, "fusion", "Stated probabilities against what people found; see the table")


def _curves(
    shown: Sequence[tuple[Bias, Sequence[SizeBias]]],
    form: SetForm,
    labels: Sequence[str],
    name: str,
    title: str,
) -> str:
    if not shown:
        return ""
    with fig.style():
        figure = fig.new_figure(fig.WIDTH_IN, 2.7)
        panels = figure.subplots(1, len(shown), squeeze=False, sharey=True)[0]
        highest = 0.0
        for axes, (bias, sizes) in zip(panels, shown, strict=True):
            for label, (field, colour, marker, dash) in zip(labels, _LINES, strict=True):
                points = [
                    (size.size, 100 * value) for size in sizes if (value := getattr(size, field)) is not None
                ]
                if points:
                    places, values = zip(*points, strict=True)
                    axes.plot(
                        places, values, color=colour, marker=marker, ls=dash, label=label, clip_on=False
                    )
                    highest = max(highest, *values)
            axes.set_xticks([size.size for size in sizes])
            axes.set_title(f"{bias.metric}, {form.way_names[bias.direction]}", loc="left")
            axes.set_xlabel("annotators used")
            fig.bare(axes, grid="y")
        panels[0].set_ylim(-0.04 * highest, highest * 1.1 or 1)
        panels[0].set_ylabel("points")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="lower center", ncols=len(_LINES))
        figure.subplots_adjust(left=0.065, right=0.99, top=0.89, bottom=0.29, wspace=0.1)
        return fig.to_svg(figure, name, title)


def _said(value: Cell) -> str:
    return "undefined" if value is None else f"{value:.2f}"
