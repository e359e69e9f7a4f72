"""Figures of a metric with their intervals, RSUM, how models compare query by query, and the scores that are kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mitl.analysis.report.inputs import EvaluationScore
from mitl.core.whole_files import one_clear_line, only_writer, put_file
from mitl.errors import MetricError, UsageError
from mitl.metrics.positives import Ids, QueryValues
from mitl.records import Direction

if TYPE_CHECKING:
    from mitl.metrics.intervals import QueryGroups

CONFIDENCE = 0.95
RSUM_KS = (1, 5, 10)
SCORES_FILE = "evaluation/scores.json"
"""Where the latest scores lie, within the runs folder."""
CONTENT, RANKINGS = "positives_sha256", "rankings_sha256"
"""There: hashes of the set that was scored on, and of what a model's rankings depend on."""

T = TypeVar("T")
Scores = Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]
ByMetric = dict[str, dict[str, dict[str, dict[str, T]]]]
"""Positives → model → direction → metric → value."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How intervals and tests are drawn."""

    samples: int = 1000
    seed: int = 0
    intervals: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """One model on one set of positives in one direction, query by query."""

    positives: str
    model: str
    direction: str
    """i2t or t2i; i2i or t2t where a set has queries within one side."""
    values: tuple[QueryValues, ...]
    groups: QueryGroups | None = None
    """Queries that are drawn together."""

    def drawn(self, query_ids: Ids) -> Ids:
        """(Q,) a number for what is drawn with each query, in i2t and t2i the same for an image and its captions."""
        if self.groups is None:
            return 2 * query_ids + (self.direction == Direction.T2I)
        return self.groups.of(query_ids)

    def units(self, query_ids: Ids) -> int:
        """How many units of these queries are drawn."""
        return len(np.unique(self.drawn(query_ids)))

    def of(self, metric: str) -> QueryValues | None:
        """The values of a metric; None where it was not taken."""
        return next((values for values in self.values if values.metric == metric), None)


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with the ends of its interval, in the metric's own unit; None where there is no interval."""

    positives: str
    model: str
    direction: str
    metric: str
    value: float
    low: float | None
    high: float | None
    queries: int
    left_out: int = 0
    std: float | None = None
    """Of the samples, where the metric is a mean over samples."""

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Positives, model, direction, metric."""
        return self.positives, self.model, self.direction, self.metric


@dataclass(frozen=True, slots=True)
class ModelDifference:
    """A model's metric minus that of another, over the same queries."""

    positives: str
    model: str
    against: str
    direction: str
    metric: str
    difference: float
    low: float
    high: float
    p_value: float
    queries: int


def figures(rows: Iterable[Scored], sampling: Sampling) -> list[Figure]:
    """Every metric of every row; one query, or one group of them, has no interval."""
    return [_figure(row, values, sampling) for row in rows for values in row.values]


def _figure(row: Scored, values: QueryValues, sampling: Sampling) -> Figure:
    from mitl.metrics.intervals import interval

    low = high = None
    if sampling.intervals and row.units(values.query_ids) > 1:
        ends = interval(values, samples=sampling.samples, seed=sampling.seed, groups=row.groups)
        low, high = ends.low, ends.high
    about = row.positives, row.model, row.direction, values.metric
    queries = len(np.unique(values.query_ids))
    return Figure(*about, values.estimate, low, high, queries, values.left_out)


def too_few(rows: Iterable[Scored], sampling: Sampling, against: str | None) -> Iterator[str]:
    """A warning for each set and direction of which one query, or the captions of one image, are all that is drawn."""
    asked = ["an interval"] * sampling.intervals + ["a paired test"] * (against is not None)
    alone = {
        (row.positives, row.direction): "1 query"
        if len(np.unique(values.query_ids)) == 1
        else "1 image's captions"
        for row in rows
        for values in row.values
        if row.units(values.query_ids) == 1
    }
    for (name, way), what in alone.items() if asked else ():
        yield f"{name} {way} has a value of {what}; {' or '.join(asked)} needs at least 2"


@dataclass(frozen=True, slots=True, eq=False)
class _RecallSum:
    """R@1 + R@5 + R@10 of one model on one set, query by query, of i2t and of t2i."""

    rows: tuple[Scored, ...]
    parts: tuple[QueryValues, ...]

    @property
    def drawn(self) -> list[Callable[[Ids], Ids]]:
        """What is drawn with the queries of each direction."""
        return [row.drawn for row in self.rows]

    @property
    def has_interval(self) -> bool:
        """Whether several queries, or groups of them, are drawn in each direction."""
        both = zip(self.rows, self.parts, strict=True)
        return min(row.units(part.query_ids) for row, part in both) > 1


def _recall_sums(rows: Sequence[Scored]) -> dict[tuple[str, str], _RecallSum]:
    """Set and model → its sums, where it has the three recalls in both directions."""
    by_pair: dict[tuple[str, str], dict[str, Scored]] = {}
    for row in rows:
        by_pair.setdefault((row.positives, row.model), {})[row.direction] = row
    sums = {}
    for pair, by_direction in by_pair.items():
        both = tuple(row for row in map(by_direction.get, ("i2t", "t2i")) if row is not None)
        parts = tuple(part for part in map(_recall_sum, both) if part is not None)
        if len(parts) == 2:
            sums[pair] = _RecallSum(both, parts)
    return sums


def _recall_sum(row: Scored) -> QueryValues | None:
    """The sum of a query's recalls; None where one is missing."""
    recalls = [recall for recall in (row.of(f"R@{k}") for k in RSUM_KS) if recall is not None]
    if len(recalls) < len(RSUM_KS):
        return None
    total = np.sum([recall.values for recall in recalls], axis=0)
    return QueryValues("RSUM", recalls[0].query_ids, total, weights=recalls[0].weights)


def rsums(rows: Sequence[Scored], sampling: Sampling) -> list[Figure]:
    """RSUM of every set and model that has Recall@1, 5 and 10 in both directions: their sum, from 0 to 6.

    An image is drawn for both directions, with the captions that were written for it.
    """
    from mitl.metrics.intervals import sum_ends

    sums = []
    for (positives, model), total in _recall_sums(rows).items():
        low = high = None
        if sampling.intervals and total.has_interval:
            low, high = sum_ends(total.parts, total.drawn, sampling.samples, CONFIDENCE, sampling.seed)
        value = sum(part.estimate for part in total.parts)
        queries = sum(len(np.unique(part.query_ids)) for part in total.parts)
        sums.append(Figure(positives, model, "both", "RSUM", value, low, high, queries))
    return sums


def refuse_alone(against: str, scored: Iterable[str]) -> None:
    """UsageError if no model of that name was scored, or it is the only one."""
    names = list(dict.fromkeys(scored))
    if against not in names:
        raise UsageError(f"--against names {against!r}, which is not scored; scored are: {', '.join(names)}")
    if len(names) == 1:
        raise UsageError(f"--against {against} needs a second model; name it by --model or --annotator")


def compare(rows: Sequence[Scored], against: str, sampling: Sampling) -> list[ModelDifference]:
    """Every other model against one, on every set, direction and metric that both have.

    Raises:
        MetricError: the two were scored on different queries.
    """
    base = {(row.positives, row.direction): row for row in rows if row.model == against}
    differences: list[ModelDifference] = []
    for row in rows:
        other = base.get((row.positives, row.direction))
        if row.model != against and other is not None:
            differences += _comparisons(row, other, sampling)
    return differences + list(_compared_sums(rows, against, sampling))


def _comparisons(row: Scored, other: Scored, sampling: Sampling) -> Iterable[ModelDifference]:
    from mitl.metrics.intervals import paired

    for values in row.values:
        theirs = other.of(values.metric)
        if theirs is None:
            continue
        both = _shared(values, theirs)
        if row.units(both[0].query_ids) < 2:
            continue
        try:
            test = paired(*both, samples=sampling.samples, seed=sampling.seed, groups=row.groups)
        except MetricError as error:
            raise MetricError(f"{row.model} and {other.model} on {row.positives}: {error}") from error
        about = row.positives, row.model, other.model, row.direction, values.metric
        yield ModelDifference(*about, *astuple(test))


def _compared_sums(rows: Sequence[Scored], against: str, sampling: Sampling) -> Iterator[ModelDifference]:
    from mitl.metrics.intervals import paired_sum

    sums = _recall_sums(rows)
    for (positives, model), total in sums.items():
        theirs = sums.get((positives, against))
        if model != against and theirs is not None and total.has_interval:
            both = total.parts, theirs.parts, total.drawn
            test = paired_sum(*both, samples=sampling.samples, seed=sampling.seed)
            yield ModelDifference(positives, model, against, "both", "RSUM", *astuple(test))


def _shared(one: QueryValues, other: QueryValues) -> tuple[QueryValues, QueryValues]:
    """Both over the queries that both have a value of: Kendall's tau may be undefined for one model alone."""
    common = np.intersect1d(one.query_ids, other.query_ids)
    return _of_queries(one, common), _of_queries(other, common)


def _of_queries(values: QueryValues, query_ids: Ids) -> QueryValues:
    kept = np.isin(values.query_ids, query_ids)
    if kept.all():
        return values
    assert values.weights is None, "only folds have weights, and every model is scored on all of them"
    return replace(values, query_ids=values.query_ids[kept], values=values.values[kept])


def nested(cells: Iterable[tuple[tuple[str, ...], object]]) -> dict[str, Any]:
    """Values under several keys each as dictionaries in each other, from the first key to the last."""
    tree: dict[str, Any] = {}
    for (*keys, last), value in cells:
        branch = tree
        for key in keys:
            branch = branch.setdefault(key, {})
        branch[last] = value
    return tree


def keep_scores(
    runs: Path,
    scores: Scores,
    intervals: Scores,
    *,
    of_all: bool,
    environments: Mapping[str, str] | None = None,
    taught: Mapping[str, Mapping[str, int]] | None = None,
    contents: Mapping[str, str] | None = None,
    marks: Mapping[str, str] | None = None,
) -> bool:
    """Keep these scores beside those of other sets, and of other metrics where they are of the same rankings.

    Returns whether anything changed; MetricError where the file holds something else.

    The file holds positives → model → direction → metric → the value, or its ``value``, ``low`` and ``high``. Beside
    the directions of a model stand ``environment``, where the positives come of a release that names its own,
    ``taught_by``, where the model learnt from answers that the positives hold, and the hashes that are known.

    Args:
        scores: positives → model → direction → metric → value.
        intervals: the same with [low, high].
        of_all: whether all of the project's annotators were scored; where not, what is kept of the others stays.
        environments: positives → the environment whose answers they hold, ``sandbox`` or ``live``.
        taught: positives → model → on how many of their judged pairs people's answers taught it.
        contents: positives → hash of what they hold. What is kept of other contents under this name goes.
        marks: model → hash of what its rankings depend on. Where it is as it was, what is kept of other metrics and of
            the other direction between two sides stays; elsewhere the model's scores on the set are replaced.
    """
    environments, taught, contents, marks = environments or {}, taught or {}, contents or {}, marks or {}
    path = runs / SCORES_FILE
    with one_clear_line(path, "nothing else was to be done"), only_writer(path.parent):
        kept: dict[str, dict[str, Any]] = {}
        if path.exists():
            kept_scores(runs)  # which refuses what holds something else
            kept = json.loads(path.read_bytes())
        for positives, by_model in scores.items():
            content = contents.get(positives)
            old = {
                model: by_way
                for model, by_way in kept.get(positives, {}).items()
                if content is None or by_way.get(CONTENT) == content
            }
            new = {}
            for model, by_direction in by_model.items():
                ends = intervals.get(positives, {}).get(model, {})
                ways = {way: _with_ends(values, ends.get(way, {})) for way, values in by_direction.items()}
                facts = {
                    CONTENT: content,
                    RANKINGS: marks.get(model),
                    "environment": environments.get(positives),
                    "taught_by": taught.get(positives, {}).get(model),
                }
                told = {name: fact for name, fact in facts.items() if fact is not None}
                new[model] = _beside(old.get(model, {}), {**ways, **told})
            kept[positives] = new if of_all else {**old, **new}
        return put_file(path, (json.dumps(kept, indent=1, sort_keys=True) + "\n").encode())


def _beside(old: Mapping[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The new values, and the old ones of other metrics and directions where both are of the same rankings and set."""
    if CONTENT not in new or RANKINGS not in new or old.get(RANKINGS) != new[RANKINGS]:
        return new
    ways = [way.value for way in Direction if way.value in old]
    return {**new, **{way: {**old[way], **new.get(way, {})} for way in ways}}


def _with_ends(values: Mapping[str, Any], ends: Mapping[str, Any]) -> dict[str, Any]:
    """Metric → value, or → value, low and high where there is an interval."""
    return {
        metric: {"value": value, "low": ends[metric][0], "high": ends[metric][1]} if metric in ends else value
        for metric, value in values.items()
    }


def kept_scores(runs: Path, environment: str | None = None) -> list[EvaluationScore]:
    """What :func:`keep_scores` has kept of both directions, in the file's order.

    Args:
        environment: without the scores on a release of another one's answers; all where None.

    Raises:
        FileNotFoundError: nothing is kept.
        MetricError: the file holds something else.
    """
    content = (runs / SCORES_FILE).read_bytes()
    try:
        return _scores_of(json.loads(content), environment)
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise MetricError(
            f"{str(runs / SCORES_FILE)!r} holds no scores ({error}); delete it and run `mitl evaluate`"
        ) from error


def _scores_of(sets: Any, environment: str | None) -> list[EvaluationScore]:
    ways = {way.value: way for way in Direction}
    return [
        EvaluationScore(model, positives, ways[way], metric, *_ends(kept), by_way.get("taught_by", 0))
        for positives, by_model in sets.items()
        for model, by_way in by_model.items()
        if environment is None or by_way.get("environment", environment) == environment
        for way, values in by_way.items()
        if way in ways
        for metric, kept in values.items()
        if kept is not None
    ]


def _ends(kept: Any) -> tuple[float, float | None, float | None]:
    """A score and the ends of its interval, where it has one; earlier files call the score its estimate."""
    if not isinstance(kept, Mapping):
        return float(kept), None, None
    return float(kept["value"] if "value" in kept else kept["estimate"]), kept.get("low"), kept.get("high")
