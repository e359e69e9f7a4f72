"""The figures as tables for a terminal, as CSV and as LaTeX; a fair comparison as tables and in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mitl.core.formats import csv_bytes, escape_tex
from mitl.metrics.table import metric_named
from mitl.records import Table, several
from mitl.stages.evaluating.fair import FairComparison, FairDifference, FairFigure, FairGroup
from mitl.stages.evaluating.figures import Figure, ModelDifference
from mitl.stages.evaluating.pseudo_task import LabelledRatings

COLUMNS = (
    "positives",
    "model",
    "direction",
    "metric",
    "value",
    "low",
    "high",
    "queries",
    "left_out",
    "against",
    "difference",
    "difference_low",
    "difference_high",
    "p_value",
)
_FROM_MINUS_1 = ("Kendall", "Spearman", "Pearson")
"""Metrics that lie between -1 and 1, where the third digit tells models apart, by the beginnings of their names."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of a table: a model in one direction."""

    model: str
    direction: str
    queries: int
    by_metric: Mapping[str, Figure]


def score_tables(figures: Sequence[Figure]) -> tuple[Table, ...]:
    """A table for each set of positives: a row a model and direction, a column a metric."""
    tables = []
    for positives in dict.fromkeys(figure.positives for figure in figures):
        of_set = [figure for figure in figures if figure.positives == positives]
        rows, metrics = _rows(of_set)
        title = f"{positives}, {unit(of_set, metrics)}"
        body = tuple(
            (row.model, row.direction, row.queries, *(_cell(row.by_metric.get(metric)) for metric in metrics))
            for row in rows
        )
        tables.append(Table(title, ("model", "direction", "queries", *metrics), body))
    return tuple(tables)


def rsum_table(rsums: Sequence[Figure]) -> tuple[Table, ...]:
    """One table: a row a model, a column a set; nothing where there is none."""
    if not rsums:
        return ()
    sets = list(dict.fromkeys(figure.positives for figure in rsums))
    figure_of = {(figure.model, figure.positives): figure for figure in rsums}
    models = dict.fromkeys(figure.model for figure in rsums)
    body = tuple(
        (model, *(_cell(figure_of.get((model, positives))) for positives in sets)) for model in models
    )
    return (Table("RSUM: R@1 + R@5 + R@10 of both directions, 0 to 600", ("model", *sets), body),)


def correlation_table(agreement: Sequence[Figure]) -> tuple[Table, ...]:
    """One row a model, a column a kind of people's scores; nothing where there is none."""
    if not agreement:
        return ()
    kinds = list(dict.fromkeys(figure.direction for figure in agreement))
    figure_of = {(figure.model, figure.direction): figure for figure in agreement}
    body = tuple(
        (model, *(_with_std(figure_of.get((model, kind))) for kind in kinds))
        for model in dict.fromkeys(figure.model for figure in agreement)
    )
    title = "Spearman's correlation with people's scores x 100: mean ± standard deviation of the samples"
    return (Table(title, ("model", *(kind.upper() for kind in kinds)), body),)


def labelled_table(labelled: LabelledRatings | None) -> tuple[Table, ...]:
    """Pseudo-labels and models over the rated pairs; nothing where there are none."""
    if labelled is None:
        return ()
    rows = [
        (model, f"{correlations['with_scores']:.3f}", f"{correlations['with_labels']:.3f}")
        for model, correlations in labelled["models"].items()
    ]
    title = f"Pearson's correlation over {labelled['pairs']:,} rated pairs of images and captions"
    head = ("pseudo-labels", f"{labelled['labels_with_scores']:.3f}", None)
    return (Table(title, ("", "people's scores", "pseudo-labels"), (head, *rows)),)


def _with_std(figure: Figure | None) -> str | None:
    return None if figure is None else f"{100 * figure.value:.1f} ± {100 * (figure.std or 0.0):.1f}"


def comparison_table(comparisons: Sequence[ModelDifference]) -> tuple[Table, ...]:
    """One row a set, model, direction and metric; nothing where nothing was compared."""
    if not comparisons:
        return ()
    body = tuple(
        (
            comparison.positives,
            comparison.model,
            comparison.direction,
            comparison.metric,
            _difference(comparison),
            f"{comparison.p_value:.3f}" if comparison.p_value >= 0.0005 else "<0.001",
        )
        for comparison in comparisons
    )
    title = f"minus {comparisons[0].against}, query by query: difference (95 % interval), p of a paired test"
    return (Table(title, ("positives", "model", "direction", "metric", "difference", "p"), body),)


def _difference(comparison: ModelDifference) -> str:
    """With its interval, fine enough to show on which side of 0 the ends are."""
    digits = 3 if comparison.metric.startswith(_FROM_MINUS_1) else 2
    middle, low, high = (
        f"{scaled(comparison.metric, value):+.{digits}f}"
        for value in (comparison.difference, comparison.low, comparison.high)
    )
    return f"{middle} ({low} to {high})"


def to_csv(figures: Sequence[Figure], comparisons: Sequence[ModelDifference]) -> bytes:
    """CSV: one row a figure, in the metric's own unit (shares from 0 to 1), with the paired test where there is one."""
    tests = {
        (comparison.positives, comparison.model, comparison.direction, comparison.metric): comparison
        for comparison in comparisons
    }
    rows: list[Sequence[object]] = [COLUMNS]
    for figure in figures:
        test = tests.get((figure.positives, figure.model, figure.direction, figure.metric))
        compared = (
            ("",) * 5 if test is None else (test.against, test.difference, test.low, test.high, test.p_value)
        )
        about = figure.positives, figure.model, figure.direction, figure.metric
        rows.append(
            (*about, figure.value, figure.low, figure.high, figure.queries, figure.left_out, *compared)
        )
    return csv_bytes(rows)


def _rows(figures: Sequence[Figure]) -> tuple[list[_Row], list[str]]:
    metrics = list(dict.fromkeys(figure.metric for figure in figures))
    by_row: dict[tuple[str, str], dict[str, Figure]] = {}
    for figure in figures:
        by_row.setdefault((figure.model, figure.direction), {})[figure.metric] = figure
    return [
        _Row(model, direction, max(figure.queries for figure in by_metric.values()), by_metric)
        for (model, direction), by_metric in by_row.items()
    ], metrics


def unit(figures: Iterable[Figure], metrics: Iterable[str]) -> str:
    """What the numbers of a table are in, for its title."""
    plain = [metric for metric in metrics if _is_plain(metric)]
    unit = "in percent" + (f" but {' and '.join(plain)}" if plain else "")
    return f"{unit}, with 95 % intervals" if any(figure.low is not None for figure in figures) else unit


def _cell(figure: Figure | None) -> str | None:
    if figure is None:
        return None
    value = f"{scaled(figure.metric, figure.value):.{max(2, digits_of(figure.metric))}f}"
    if figure.low is None or figure.high is None:
        return value
    low, high = (scaled(figure.metric, end) for end in (figure.low, figure.high))
    digits = digits_of(figure.metric)
    return f"{value} ({low:.{digits}f}–{high:.{digits}f})"


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
    figure_of = {(figure.model, figure.direction, figure.metric): figure for figure in figures}
    heads, rules, first = [], [], 2
    for direction in directions:
        width = sum(way == direction for way, _ in columns)
        heads.append(rf"\multicolumn{{{width}}}{{c}}{{{escape_tex(direction)}}}")
        rules.append(rf"\cmidrule(lr){{{first}-{first + width - 1}}}")
        first += width
    metrics = [metric for _, metric in columns]
    lines = [
        f"% {positives}, {unit(figures, metrics)}".replace("\n", " "),
        rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
        r"\toprule",
        " & ".join(["", *heads]) + r" \\",
        "".join(rules),
        " & ".join(["model", *(escape_tex(metric) for metric in metrics)]) + r" \\",
        r"\midrule",
    ]
    for model in dict.fromkeys(figure.model for figure in figures):
        cells = [_tex_cell(figure_of.get((model, *column))) for column in columns]
        lines.append(" & ".join([escape_tex(model), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _tex_cell(figure: Figure | None) -> str:
    if figure is None:
        return "--"
    digits = digits_of(figure.metric)
    value = f"{scaled(figure.metric, figure.value):.{digits}f}"
    if figure.low is None or figure.high is None:
        return value
    low, high = (scaled(figure.metric, end) for end in (figure.low, figure.high))
    return rf"{value} {{\scriptsize [{low:.{digits}f}, {high:.{digits}f}]}}"


_FAIR_FIGURES = (
    "model",
    "direction",
    "metric",
    "queries",
    "naive",
    "fair",
    "prediction-powered",
    "Horvitz-Thompson",
    "holes",
)
_RANKING = ("direction", "metric", "place", "models", "")
_FAIR_DIFFERENCES = ("model", "minus", "direction", "metric", "naive", "fair", "prediction-powered", "")


def fair_tables(made: FairComparison) -> tuple[Table, ...]:
    """A row a model, direction and metric, one a group of the ranking, one a pair of models; nothing without models."""
    tables = []
    if made.figures:
        title = "release, if every pair of the pool were judged: in percent, with 95 % intervals over audits"
        tables.append(
            Table(title, _FAIR_FIGURES, tuple(_fair_figure(figure, made) for figure in made.figures))
        )
    if made.differences and made.groups:
        title = "ranking by fair scores: models in groups that the audit tells apart"
        tables.append(Table(title, _RANKING, tuple(map(_fair_group, made.groups))))
    if made.differences:
        title = "differences of models: in points, with 95 % intervals over audits"
        tables.append(Table(title, _FAIR_DIFFERENCES, tuple(map(_fair_difference, made.differences))))
    return tuple(tables)


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
        else f"answers of the audit miss {100 * made.rates.false_no:.1f} % of matches and call "
        f"{100 * made.rates.false_yes:.1f} % of other pairs one; prediction-powered is corrected for both",
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


def _fair_figure(figure: FairFigure, comparison: FairComparison) -> tuple[object, ...]:
    peers = [
        peer
        for peer in comparison.figures
        if (peer.direction, peer.metric) == (figure.direction, figure.metric)
    ]
    naive = 1 + sum(peer.naive > figure.naive for peer in peers)
    return (
        figure.model,
        figure.direction,
        figure.metric,
        figure.queries,
        f"{100 * figure.naive:.1f} #{naive}",
        f"{100 * figure.settled:.1f}{_places(figure, comparison.differences, len(peers))}",
        f"{100 * figure.prediction_powered:.1f} ({100 * figure.low:.1f} to {100 * figure.high:.1f})",
        f"{100 * figure.horvitz_thompson:.1f}",
        f"{100 * figure.holes:.1f}",
    )


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
    first, last = 1 + signs.count(-1), models - signs.count(1)
    return f" #{first}" if first == last else f" #{first}-{last}"


def _fair_group(group: FairGroup) -> tuple[object, ...]:
    place = f"#{group.first}" if group.first == group.last else f"#{group.first}-{group.last}"
    return group.direction, group.metric, place, ", ".join(group.models), "; ".join(_standing(group))


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


def _fair_difference(difference: FairDifference) -> tuple[object, ...]:
    more = (
        "no audit would" if difference.more is None else f"about {difference.more:,} more audited pairs would"
    )
    apart = "apart" if difference.apart else f"not told apart; {more}"
    middle, low, high = (
        f"{100 * value:+.1f}" for value in (difference.prediction_powered, difference.low, difference.high)
    )
    interval = f"{middle} ({low} to {high})"
    naive, fair = f"{100 * difference.naive:+.1f}", f"{100 * difference.settled:+.1f}"
    return (
        difference.model,
        difference.against,
        difference.direction,
        difference.metric,
        naive,
        fair,
        interval,
        apart,
    )
