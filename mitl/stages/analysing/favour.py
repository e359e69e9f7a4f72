"""Did the proposers favour themselves? Scores without the positives that only one annotator proposed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.analysis.report.inputs import Section
from mitl.analysis.report.machine_plots import favour_svg
from mitl.core.arrays import Floats, Ints, contains
from mitl.core.statistics import percentile_interval, ranked_alike
from mitl.errors import MetricError
from mitl.metrics.positives import Positives
from mitl.metrics.ranks import ArrayRankings
from mitl.metrics.retrieval import score_metrics
from mitl.metrics.table import MAP_AT_R, R_PRECISION
from mitl.records import Direction
from mitl.stages.analysing.snapshot import query_and_item
from mitl.stages.analysing.table import (
    Analysis,
    AnalysisInput,
    Column,
    Findings,
    Lists,
    for_files,
    for_json,
    for_people,
    percent,
)

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Shift:
    """One model on one metric, with all positives and without those that only one annotator proposed."""

    model: str
    score: float
    without: float
    place: int
    """Among the models, from 1, with all positives."""
    place_without: int
    low: float
    high: float
    """Ends of the interval of ``shift``, over resampled queries."""

    @property
    def shift(self) -> float:
        """How the score moves when those positives go."""
        return self.without - self.score


@dataclass(frozen=True, slots=True)
class Favour:
    """How much further one annotator's score falls than the mean of the others' when its own positives go."""

    fall: float
    """Above 0 where it lived on them more than others did."""
    low: float
    high: float


def shifts(
    models: tuple[str, ...],
    whole: Floats,
    without: Floats,
    *,
    samples: int,
    seed: int,
    units: Ints | None = None,
) -> tuple[Shift, ...]:
    """Each model's shift, with a paired bootstrap interval over the queries.

    Args:
        whole, without: (A, Q) the values of the same queries under both sets of positives.
        units: (Q,) equal for queries that are drawn together; each is drawn by itself where None.

    Raises:
        MetricError: fewer than two queries, or units of them.
    """
    moves = without - whole
    ends = _ends(moves, units, samples, seed)
    before, after = ranked_alike(whole.mean(axis=1)), ranked_alike(without.mean(axis=1))
    return tuple(
        Shift(
            name,
            float(before[row]),
            float(after[row]),
            1 + int((before > before[row]).sum()),
            1 + int((after > after[row]).sum()),
            *ends[row],
        )
        for row, name in enumerate(models)
    )


def favour(
    own: int, whole: Floats, without: Floats, *, samples: int, seed: int, units: Ints | None = None
) -> Favour:
    """How the annotator in row ``own`` falls against the mean of the others; arguments as of :func:`shifts`."""
    falls = whole - without
    apart = falls[own] - np.delete(falls, own, axis=0).mean(axis=0)
    ((low, high),) = _ends(apart[None], units, samples, seed)
    return Favour(float(apart.mean()), low, high)


def _ends(values: Floats, units: Ints | None, samples: int, seed: int) -> list[tuple[float, float]]:
    """Percentile intervals of the rows' means, all on the same resamples of the queries (A, Q)."""
    queries = values.shape[1]
    at = np.unique(np.arange(queries) if units is None else units, return_inverse=True)[1]
    sizes = np.bincount(at)
    if len(sizes) < 2:
        what = "query" if units is None else "image's captions"
        raise MetricError(f"{len(sizes)} {what} is too few to tell a shift from chance; it takes 2")
    drawn = _resamples(len(sizes), samples, seed).T
    sums = np.stack([np.bincount(at, row) for row in values])
    means = sums @ drawn / (sizes @ drawn)  # (A, S)
    return [percentile_interval(row, CONFIDENCE, len(sizes)) for row in means]


@lru_cache(maxsize=2)
def _resamples(units: int, samples: int, seed: int) -> Floats:
    """(S, U) how often each unit is drawn; kept, for all metrics of an annotator take the same."""
    rng = np.random.default_rng([seed, 3])
    return rng.multinomial(units, np.full(units, 1 / units), size=samples).astype(np.float64)


METRICS = ("R@1", R_PRECISION, MAP_AT_R)
_SAMPLES = 1000
_SHOWN = MAP_AT_R
"""Of the metrics, the one in the tables; files and JSON hold all."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What one annotator's own positives do to one model on one metric."""

    direction: Direction
    metric: str
    annotator: str
    """Whose own positives are left out."""
    own: int
    """How many those are."""
    queries: int
    """That keep a positive without them."""
    lost: int
    """That keep none, and are left out of both scores."""
    shift: Shift
    favour: Favour | None
    """Where the model is that annotator."""


def _left_out(of: AnalysisInput) -> tuple[LeftOut, ...]:
    """All annotators on the positives that a release would hold, leaving out one's own after the other's.

    Raises:
        MetricError: nothing is judged, no rankings are kept, or there are fewer than two annotators.
    """
    of.require_judgements()
    rows = of.by_direction(lambda direction: _of_direction(of, direction))
    if not rows:
        raise MetricError("no query has two positives of different annotators, so nobody can be left out")
    return rows


def _of_direction(of: AnalysisInput, direction: Direction) -> Iterator[LeftOut]:
    lists = of.judged_lists(direction, takes_two="favour")
    pairs, alone = _kept(of, direction, lists)
    seed = of.settings.seed
    for place, name in enumerate(lists.annotators):
        is_own = np.array([by == name for by in alone], np.bool_)
        queries = np.unique(pairs[~is_own, 0])
        lost = len(np.unique(pairs[:, 0])) - len(queries)
        units = _units(of, direction, queries)
        if len(np.unique(units)) < 2:
            continue
        among = np.isin(pairs[:, 0], queries)
        whole, without = (_values(lists, pairs[kept]) for kept in (among, among & ~is_own))
        for row, metric in enumerate(METRICS):
            both = whole[:, row], without[:, row]
            favoured = favour(place, *both, samples=_SAMPLES, seed=seed, units=units)
            for shift in shifts(lists.annotators, *both, samples=_SAMPLES, seed=seed, units=units):
                yield LeftOut(
                    direction,
                    metric,
                    name,
                    int(is_own.sum()),
                    len(queries),
                    lost,
                    shift,
                    favoured if shift.model == name else None,
                )


def _units(of: AnalysisInput, direction: Direction, queries: Ints) -> Ints:
    """(Q,) what the bootstrap draws: images, and of captions the image they were written for."""
    if direction is Direction.I2T:
        return queries
    image_of = {pair.caption_id: pair.image_id for pair in of.project.originals}
    return np.array([image_of.get(query, -query) for query in queries.tolist()], np.int64)


def _kept(
    of: AnalysisInput, direction: Direction, lists: Lists
) -> tuple[NDArray[np.int64], list[str | None]]:
    """(P, 2) query and item of each positive, and who alone speaks for it: its only proposer, where no other source."""
    rows = of.project.merged.pairs
    kept = rows[rows["kept"]]
    pairs = np.stack(query_and_item(kept["pair"].to_numpy(), direction), axis=1)
    asked = contains(lists.query_ids, pairs[:, 0])
    only = of.project.ranks.drop_duplicates("pair", keep=False).set_index("pair")["annotator"].astype(object)
    alone = only.reindex(kept["pair"]).mask((kept["original"] | kept["rated"]).to_numpy())
    return pairs[asked], [None if pd.isna(name) else name for name in alone[asked]]


def _values(lists: Lists, pairs: NDArray[np.int64]) -> NDArray[np.float64]:
    """(A, M, Q) of the queries of these positives; places beyond the kept rankings are misses."""
    positives = Positives.from_pairs(pairs[:, 0], pairs[:, 1])
    rankings = (ArrayRankings(lists.query_ids, items) for items in lists.items)
    scored = (score_metrics(ranking, positives, METRICS, short="zero") for ranking in rankings)
    return np.array([[scores.values for scores in by_metric] for by_metric in scored])


_COLUMNS: tuple[Column[LeftOut], ...] = (
    Column("direction", lambda row: row.direction.value),
    Column("metric", lambda row: row.metric),
    Column("left_out", lambda row: row.annotator, "annotator"),
    Column("own", lambda row: row.own, "its own"),
    Column("queries", lambda row: row.queries),
    Column("lost", lambda row: row.lost),
    Column("model", lambda row: row.shift.model),
    Column("score", lambda row: row.shift.score, shown=percent),
    Column("score_without", lambda row: row.shift.without, "then", percent),
    Column("shift", lambda row: row.shift.shift, shown=percent),
    Column("low", lambda row: row.shift.low, shown=percent),
    Column("high", lambda row: row.shift.high, shown=percent),
    Column("place", lambda row: row.shift.place),
    Column("place_without", lambda row: row.shift.place_without, "then"),
    Column("favour", lambda row: None if row.favour is None else row.favour.fall, shown=percent),
    Column("favour_low", lambda row: None if row.favour is None else row.favour.low, "from", percent),
    Column("favour_high", lambda row: None if row.favour is None else row.favour.high, "to", percent),
)
_FOR_PEOPLE = [column for column in _COLUMNS if column.key not in ("metric", "model", "shift", "low", "high")]


def _show(rows: Sequence[LeftOut], of: AnalysisInput) -> Findings:
    """Each annotator's scores, with all positives and without its own; files and JSON also hold the others' scores."""
    counts: dict[str, dict[str, list[dict[str, object]]]] = {}
    for row in rows:
        by_metric = counts.setdefault(row.direction.value, {})
        by_metric.setdefault(row.metric, []).append(for_json(_COLUMNS[2:], row))
    shown = [row for row in rows if row.metric == _SHOWN]
    themselves = [(row, row.favour) for row in shown if row.favour is not None]
    title = f"{_SHOWN} with all positives, then without those that this annotator alone proposed, in percent"
    moved = sum(row.shift.place != row.shift.place_without for row in shown)
    proven = [row for row, found in themselves if found.low > 0]
    panels: dict[str, list[tuple[str, float, float, float]]] = {}
    for row, found in themselves:
        panel = panels.setdefault(of.project.dataset.ways[row.direction], [])
        panel.append((row.annotator, found.fall, found.low, found.high))
    names = ", ".join(f"{row.annotator} ({row.direction})" for row in proven)
    return Findings(
        counts=counts,
        tables=(for_people(title, _FOR_PEOPLE, (row for row, _ in themselves)),),
        lines=(
            "favour: how much further an annotator falls than the mean of the others when its own positives go, with "
            "a 95 % interval over queries; originals and CxC's positives stay; places beyond kept rankings are misses",
            f"{moved} of {len(shown)} places move; lived on its own positives more than others did: {names or 'none'}",
        ),
        rows={"favour": for_files(_COLUMNS, rows)},
        drawings={"favour": partial(favour_svg, panels)},
        captions={"favour": f"Favour on {_SHOWN} with 95 % intervals; squares are proven to be above 0"},
    )


FAVOUR = Analysis(
    "favour",
    _left_out,
    _show,
    section=Section("favour", "Favour", "Did the proposers favour themselves?", "Machines"),
    optional=True,
)
