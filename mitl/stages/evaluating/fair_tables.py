"""A fair comparison as tables: naive and fair scores side by side, the differences of models, the holes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mitl.records import Table, several
from mitl.stages.evaluating.fair import FairComparison, FairDifference, FairFigure, FairGroup

_FIGURES = (
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
_DIFFERENCES = ("model", "minus", "direction", "metric", "naive", "fair", "prediction-powered", "")


def fair_tables(made: FairComparison) -> tuple[Table, ...]:
    """A row a model, direction and metric, one a group of the ranking, one a pair of models; nothing without models."""
    tables = []
    if made.figures:
        title = "release, if every pair of the pool were judged: in percent, with 95 % intervals over audits"
        tables.append(Table(title, _FIGURES, tuple(_figure(one, made) for one in made.figures)))
    if made.differences and made.groups:
        title = "ranking by fair scores: models in groups that the audit tells apart"
        tables.append(Table(title, _RANKING, tuple(map(_group, made.groups))))
    if made.differences:
        title = "differences of models: in points, with 95 % intervals over audits"
        tables.append(Table(title, _DIFFERENCES, tuple(map(_difference, made.differences))))
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
    if made.left_out:
        lines.append(
            f"{several(made.left_out, 'query', 'queries')} without a positive of the release's own left out"
        )
    return tuple(lines)


def _figure(one: FairFigure, made: FairComparison) -> tuple[object, ...]:
    peers = [each for each in made.figures if (each.direction, each.metric) == (one.direction, one.metric)]
    naive = 1 + sum(each.naive > one.naive for each in peers)
    return (
        one.model,
        one.direction,
        one.metric,
        one.queries,
        f"{100 * one.naive:.1f} #{naive}",
        f"{100 * one.settled:.1f}{_places(one, made.differences, len(peers))}",
        f"{100 * one.prediction_powered:.1f} ({100 * one.low:.1f} to {100 * one.high:.1f})",
        f"{100 * one.horvitz_thompson:.1f}",
        f"{100 * one.holes:.1f}",
    )


def _places(one: FairFigure, differences: Sequence[FairDifference], models: int) -> str:
    """Behind all that are apart and ahead, ahead of all that are apart and behind; nothing if not all were compared."""
    own = [
        (each, 1 if each.model == one.model else -1)
        for each in differences
        if one.model in (each.model, each.against)
        and (each.direction, each.metric) == (one.direction, one.metric)
    ]
    if len(own) < models - 1 or models == 1:
        return ""
    signs = [sign * each.sign for each, sign in own]
    first, last = 1 + signs.count(-1), models - signs.count(1)
    return f" #{first}" if first == last else f" #{first}-{last}"


def _group(one: FairGroup) -> tuple[object, ...]:
    place = f"#{one.first}" if one.first == one.last else f"#{one.first}-{one.last}"
    return one.direction, one.metric, place, ", ".join(one.models), "; ".join(_standing(one))


def _standing(one: FairGroup) -> Iterator[str]:
    """What of a group is known, and what would tell more."""
    if len(one.models) == 1:
        yield "apart from all others"
        return
    yield "tie"
    for ahead, behind in one.ahead:
        yield f"{ahead} is ahead of {behind}"
    if one.more_for_two is None:
        yield "no audit of this pool would separate any two"
    elif one.more_for_all == one.more_for_two:
        yield f"about {one.more_for_all:,} more audited pairs would separate them"
    else:
        rest = "no audit of this pool all" if one.more_for_all is None else f"about {one.more_for_all:,} all"
        yield f"about {one.more_for_two:,} more audited pairs would separate some two, {rest}"


def _difference(one: FairDifference) -> tuple[object, ...]:
    more = "no audit would" if one.more is None else f"about {one.more:,} more audited pairs would"
    apart = "apart" if one.apart else f"not told apart; {more}"
    interval = f"{100 * one.prediction_powered:+.1f} ({100 * one.low:+.1f} to {100 * one.high:+.1f})"
    naive, fair = f"{100 * one.naive:+.1f}", f"{100 * one.settled:+.1f}"
    return one.model, one.against, one.direction, one.metric, naive, fair, interval, apart
