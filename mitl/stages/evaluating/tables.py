"""The figures as tables for a terminal, as CSV and as LaTeX; a fair comparison as tables and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mitl.core.formats import csv_bytes, escape_tex, percent
from mitl.metrics.table import metric_named
from mitl.records import Table, several
from mitl.stages.evaluating.fair import FairComparison, FairDifference, FairFigure, FairGroup
from mitl.stages.evaluating.figures import Figure, ModelDifference
from mitl.stages.evaluating.pseudo_task import LabelledRatings

FIGURE = ("positives", "model", "direction", "metric", "value", "low", "high", "queries", "left_out")
COMPARED = ("against", "difference", "difference_low", "difference_high", "p_value")
_FROM_MINUS_1 = ("Kendall", "Spearman", "Pearson")
"""Metrics that lie between -1 and 1, where the third digit tells models apart, by the beginnings of their names."""


def score_tables(figures: Sequence[Figure]) -> tuple[Table, ...]:
    """A table for each set of positives: a row a model and direction, a column a metric."""
    tables: list[Table] = []
    for positives in dict.fromkeys(figure.positives for figure in figures):
        of_set = [figure for figure in figures if figure.positives == positives]
        queries: dict[tuple[str, str], int] = {}
        for f in of_set:
            queries[f.model, f.direction] = max(f.queries, queries.get((f.model, f.direction), 0))
        cells = [((f.model, f.direction, queries[f.model, f.direction]), f.metric, _cell(f)) for f in of_set]
        tables += _grid(f"{positives}, {unit(of_set)}", ("model", "direction", "queries"), cells)
    return tuple(tables)


def rsum_table(rsums: Sequence[Figure]) -> tuple[Table, ...]:
    """One table: a row a model, a column a set; nothing where there is none."""
    cells = [((f.model,), f.positives, _cell(f)) for f in rsums]
    return _grid("RSUM: R@1 + R@5 + R@10 of both directions, 0 to 600", ("model",), cells)


def correlation_table(agreement: Sequence[Figure]) -> tuple[Table, ...]:
    """One row a model, a column a kind of people's scores; nothing where there is none."""
    title = "Spearman's correlation with people's scores x 100: mean ± standard deviation of the samples"
    cells = [
        ((f.model,), f.direction.upper(), f"{100 * f.value:.1f} ± {100 * (f.std or 0.0):.1f}")
        for f in agreement
    ]
    return _grid(title, ("model",), cells)


def _grid(
    title: str, head: tuple[str, ...], cells: Sequence[tuple[tuple[object, ...], str, str]]
) -> tuple[Table, ...]:
    """Of (row, column, cell): what is said of a row stands first, under ``head``; nothing where there is no cell."""
    by_row: dict[tuple[object, ...], dict[str, str]] = {}
    for row, column, cell in cells:
        by_row.setdefault(row, {})[column] = cell
    columns = tuple(dict.fromkeys(column for _, column, _ in cells))
    body = tuple((*row, *(of_row.get(column) for column in columns)) for row, of_row in by_row.items())
    return (Table(title, head + columns, body),) if cells else ()


def _table(title: str, rows: Sequence[Mapping[str, object]]) -> tuple[Table, ...]:
    """Of rows that all have the same columns; nothing where there is no row."""
    if not rows:
        return ()
    return (Table(title, tuple(rows[0]), tuple(tuple(row.values()) for row in rows)),)


def labelled_table(labelled: LabelledRatings | None) -> tuple[Table, ...]:
    """Pseudo-labels and models over the rated pairs; nothing where there are none."""
    if labelled is None:
        return ()
    head = ("pseudo-labels", f"{labelled['labels_with_scores']:.3f}", None)
    models = [
        (model, f"{found['with_scores']:.3f}", f"{found['with_labels']:.3f}")
        for model, found in labelled["models"].items()
    ]
    title = f"Pearson's correlation over {labelled['pairs']:,} rated pairs of images and captions"
    return (Table(title, ("", "people's scores", "pseudo-labels"), (head, *models)),)


def comparison_table(comparisons: Sequence[ModelDifference]) -> tuple[Table, ...]:
    """One row a set, model, direction and metric; nothing where nothing was compared."""
    rows = [
        {
            "positives": test.positives,
            "model": test.model,
            "direction": test.direction,
            "metric": test.metric,
            "difference": _difference(test),
            "p": f"{test.p_value:.3f}" if test.p_value >= 0.0005 else "<0.001",
        }
        for test in comparisons
    ]
    against = comparisons[0].against if comparisons else ""
    return _table(f"minus {against}, query by query: difference (95 % interval), p of a paired test", rows)


def _difference(comparison: ModelDifference) -> str:
    """With its interval, fine enough to show on which side of 0 the ends are."""
    digits = 3 if comparison.metric.startswith(_FROM_MINUS_1) else 2
    ends = comparison.difference, comparison.low, comparison.high
    middle, low, high = (f"{scaled(comparison.metric, value):+.{digits}f}" for value in ends)
    return f"{middle} ({low} to {high})"


def to_csv(figures: Sequence[Figure], comparisons: Sequence[ModelDifference]) -> bytes:
    """CSV: one row a figure, in the metric's own unit (shares from 0 to 1), with the paired test where there is one."""
    tests = {(test.positives, test.model, test.direction, test.metric): test for test in comparisons}
    rows: list[Sequence[object]] = [(*FIGURE, *COMPARED)]
    for figure in figures:
        test, values = tests.get(figure.place), (figure.value, figure.low, figure.high)
        compared: Sequence[object] = ("",) * len(COMPARED)
        if test is not None:
            compared = test.against, test.difference, test.low, test.high, test.p_value
        rows.append((*figure.place, *values, figure.queries, figure.left_out, *compared))
    return csv_bytes(rows)


def unit(figures: Sequence[Figure]) -> str:
    """What the numbers of a table are in, for its title."""
    plain = [metric for metric in dict.fromkeys(f.metric for f in figures) if _is_plain(metric)]
    unit = "in percent" + (f" but {' and '.join(plain)}" if plain else "")
    return f"{unit}, with 95 % intervals" if any(figure.low is not None for figure in figures) else unit


def _cell(figure: Figure) -> str:
    """A value of two digits at least, and its interval."""
    digits = digits_of(figure.metric)
    value = f"{scaled(figure.metric, figure.value):.{max(2, digits)}f}"
    ends = _shown_ends(figure)
    return f"{value} ({ends[0]}–{ends[1]})" if ends else value


def _shown_ends(figure: Figure) -> list[str]:
    """Both ends of the interval as they are shown; empty where there is none."""
    ends = [end for end in (figure.low, figure.high) if end is not None]
    return [f"{scaled(figure.metric, end):.{digits_of(figure.metric)}f}" for end in ends]


def digits_of(metric: str) -> int:
    """After the point, of the ends of an interval."""
    if metric.startswith(_FROM_MINUS_1):
        return 3
    return 2 if _is_plain(metric) else 1


def _is_plain(metric: str) -> bool:
    """Whether it is not a share, so not shown in percent."""
    definition = metric_named(metric)
    return metric.startswith(_FROM_MINUS_1) if definition is None else not definition.is_share


def scaled(metric: str, value: float) -> float:
    """The value as it is shown: in percent where the metric is a share."""
    return value if _is_plain(metric) else 100 * value


def to_latex(figures: Sequence[Figure]) -> str:
    """A tabular for each set in the style of the package booktabs: a row a model, the directions side by side."""
    return "\n".join(
        _tabular(positives, [figure for figure in figures if figure.positives == positives])
        for positives in dict.fromkeys(figure.positives for figure in figures)
    )


def _tabular(positives: str, figures: Sequence[Figure]) -> str:
    directions = list(dict.fromkeys(figure.direction for figure in figures))
    columns = [
        (direction, metric)
        for direction in directions
        for metric in dict.fromkeys(figure.metric for figure in figures if figure.direction == direction)
    ]
    cells = {(f.model, f.direction, f.metric): _tex_cell(f) for f in figures}
    heads, rules, first = [], [], 2
    for direction in directions:
        width = sum(way == direction for way, _ in columns)
        heads.append(rf"\multicolumn{{{width}}}{{c}}{{{escape_tex(direction)}}}")
        rules.append(rf"\cmidrule(lr){{{first}-{first + width - 1}}}")
        first += width
    lines = [
        f"% {positives}, {unit(figures)}".replace("\n", " "),
        rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
        r"\toprule",
        " & ".join(["", *heads]) + r" \\",
        "".join(rules),
        " & ".join(["model", *(escape_tex(metric) for _, metric in columns)]) + r" \\",
        r"\midrule",
    ]
    for model in dict.fromkeys(figure.model for figure in figures):
        row = [cells.get((model, *column), "--") for column in columns]
        lines.append(" & ".join([escape_tex(model), *row]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _tex_cell(figure: Figure) -> str:
    value = f"{scaled(figure.metric, figure.value):.{digits_of(figure.metric)}f}"
    ends = _shown_ends(figure)
    return rf"{value} {{\scriptsize [{ends[0]}, {ends[1]}]}}" if ends else value


def fair_tables(made: FairComparison) -> tuple[Table, ...]:
    """A row a model, direction and metric, one a group of the ranking, one a pair of models; nothing without models."""
    return (
        *_table(
            "release, if every pair of the pool were judged: in percent, with 95 % intervals over audits",
            [_fair_figure(figure, made) for figure in made.figures],
        ),
        *_table(
            "ranking by fair scores: models in groups that the audit tells apart",
            [_fair_group(group) for group in made.groups if made.differences],
        ),
        *_table(
            "differences of models: in points, with 95 % intervals over audits",
            [_fair_difference(difference) for difference in made.differences],
        ),
    )


def fair_lines(made: FairComparison) -> tuple[str, ...]:
    """What the numbers rest on."""
    if not made.figures:
        return ()
    lines = [
        f"from {several(made.audited, 'audited pair')}: naive takes unjudged pairs for no match; fair is what ranks "
        "models, and the interval is of the prediction-powered value; #2 is a place among the models; holes are the "
        "unjudged among a ranking's first K or R; #2-4 is a place that the audit does not tell more closely",
        "answers are taken as they are: too few released pairs have three of them to tell how often they err"
        if made.rates is None
        else f"answers of the audit miss {percent(made.rates.false_no)} of matches and call "
        f"{percent(made.rates.false_yes)} of other pairs one; prediction-powered is corrected for both",
    ]
    if any(not 0 <= end <= 1 for f in made.figures for end in (f.low, f.high, f.horvitz_thompson)):
        lines.append(
            "what lies under 0 or over 100 % is an estimate that is right on average and so errs to both sides; the "
            "metric itself is within"
        )
    if made.left_out:
        lines.append(
            f"{several(made.left_out, 'query', 'queries')} without a positive of the release's own left out"
        )
    return tuple(lines)


def _fair_figure(figure: FairFigure, comparison: FairComparison) -> dict[str, object]:
    about = figure.direction, figure.metric
    peers = [peer for peer in comparison.figures if (peer.direction, peer.metric) == about]
    naive = 1 + sum(peer.naive > figure.naive for peer in peers)
    ends = f"({100 * figure.low:.1f} to {100 * figure.high:.1f})"
    return {
        "model": figure.model,
        "direction": figure.direction,
        "metric": figure.metric,
        "queries": figure.queries,
        "naive": f"{100 * figure.naive:.1f} #{naive}",
        "fair": f"{100 * figure.settled:.1f}{_places(figure, comparison.differences, len(peers))}",
        "prediction-powered": f"{100 * figure.prediction_powered:.1f} {ends}",
        "Horvitz-Thompson": f"{100 * figure.horvitz_thompson:.1f}",
        "holes": f"{100 * figure.holes:.1f}",
    }


def _places(figure: FairFigure, differences: Sequence[FairDifference], models: int) -> str:
    """Behind all that are apart and ahead, ahead of all that are apart and behind; nothing if not all were compared."""
    signed = [
        (difference, 1 if difference.model == figure.model else -1)
        for difference in differences
        if figure.model in (difference.model, difference.against)
        and (difference.direction, difference.metric) == (figure.direction, figure.metric)
    ]
    if len(signed) < models - 1 or models == 1:
        return ""
    signs = [sign * difference.sign for difference, sign in signed]
    return f" {_span(1 + signs.count(-1), models - signs.count(1))}"


def _span(first: int, last: int) -> str:
    """A place among the models, or the places that it lies between."""
    return f"#{first}" if first == last else f"#{first}-{last}"


def _fair_group(group: FairGroup) -> dict[str, object]:
    return {
        "direction": group.direction,
        "metric": group.metric,
        "place": _span(group.first, group.last),
        "models": ", ".join(group.models),
        "": "; ".join(_standing(group)),
    }


def _standing(group: FairGroup) -> Iterator[str]:
    """What of a group is known, and what would tell more."""
    if len(group.models) == 1:
        yield "apart from all others"
        return
    yield "tie"
    for ahead, behind in group.ahead:
        yield f"{ahead} is ahead of {behind}"
    if group.more_for_two is None:
        yield "no audit of this pool would separate any two"
    elif group.more_for_all == group.more_for_two:
        yield f"about {group.more_for_all:,} more audited pairs would separate them"
    else:
        rest = (
            "no audit of this pool all" if group.more_for_all is None else f"about {group.more_for_all:,} all"
        )
        yield f"about {group.more_for_two:,} more audited pairs would separate some two, {rest}"


def _fair_difference(difference: FairDifference) -> dict[str, object]:
    more = (
        "no audit would" if difference.more is None else f"about {difference.more:,} more audited pairs would"
    )
    ends = f"({100 * difference.low:+.1f} to {100 * difference.high:+.1f})"
    return {
        "model": difference.model,
        "minus": difference.against,
        "direction": difference.direction,
        "metric": difference.metric,
        "naive": f"{100 * difference.naive:+.1f}",
        "fair": f"{100 * difference.settled:+.1f}",
        "prediction-powered": f"{100 * difference.prediction_powered:+.1f} {ends}",
        "": "apart" if difference.apart else f"not told apart; {more}",
    }
