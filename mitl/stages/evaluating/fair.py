"""Models compared fairly on a release that lacks positives: what its audit says of the holes in their rankings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from mitl.core.arrays import places
from mitl.errors import MetricError, UsageError
from mitl.metrics.expected import draws_for
from mitl.metrics.incomplete import AuditSample, Evidence, Fair, hole_shares
from mitl.metrics.partial_labels import PartialLabels, Rates
from mitl.metrics.positives import Ids
from mitl.metrics.rank_groups import DEPTH, more_pairs, rank_groups, with_rank_chances
from mitl.metrics.table import Asked
from mitl.positives.loading import read_release
from mitl.progress import Progress
from mitl.records import Direction
from mitl.settings import Settings
from mitl.stages.evaluating.gathering import RELEASE, Gathered
from mitl.stages.evaluating.models import Model, Ranked, blocks
from mitl.stages.evaluating.positive_sets import AuditedRelease, read_audited_release
from mitl.stages.evaluating.project import RankingNeed, annotator_models
from mitl.stages.evaluating.request import EvaluationRequest
from mitl.stages.evaluating.scoring import named


@dataclass(frozen=True, slots=True)
class FairFigure:
    """One metric of one model in one direction, by every method; shares from 0 to 1."""

    model: str
    direction: str
    metric: str
    queries: int
    naive: float
    horvitz_thompson: float
    expected: float
    prediction_powered: float
    low: float
    high: float
    settled: float
    holes: float
    """The share of unjudged pairs among the places that the metric looks at: the first K or R."""


@dataclass(frozen=True, slots=True)
class FairDifference:
    """One model minus another on the same queries and audited pairs."""

    model: str
    against: str
    direction: str
    metric: str
    naive: float
    settled: float
    prediction_powered: float
    low: float
    high: float
    apart: bool
    """Whether the audit tells which is ahead: the sign of ``prediction_powered``."""
    more: int | None
    """Further audited pairs, drawn by the same design, that would tell it; None where none of the pool would."""

    @property
    def sign(self) -> int:
        """1 or -1 where the model is ahead or behind, 0 where it may be either."""
        return self.apart * (1 if self.low > 0 else -1)


@dataclass(frozen=True, slots=True)
class FairGroup:
    """Models that share places by one metric in one direction: each is apart from all of other groups."""

    direction: str
    metric: str
    first: int
    last: int
    """Places, from 1."""
    models: tuple[str, ...]
    """By ``settled``, which is a guess where models are tied."""
    ahead: tuple[tuple[str, str], ...]
    """Two of them of which the first is apart and ahead."""
    more_for_two: int | None
    """Further audited pairs that would tell some two tied ones apart; None where none of the pool would."""
    more_for_all: int | None
    """Further audited pairs that would tell all apart."""


@dataclass(frozen=True, slots=True)
class FairComparison:
    """All models in all directions."""

    figures: tuple[FairFigure, ...] = ()
    differences: tuple[FairDifference, ...] = ()
    groups: tuple[FairGroup, ...] = ()
    """The ranking, where each model was compared with each."""
    audited: int = 0
    left_out: int = 0
    """Queries that the release lists without a positive of its own."""
    rates: Rates | None = None
    """How often the audit's answers err, where it tells."""


def compare_fairly(
    settings: Settings, request: EvaluationRequest, gathered: Gathered, progress: Progress
) -> FairComparison:
    """Every model of both sides on the release that is asked for.

    Raises:
        MetricError: the release has no audit, or a ranking or a metric does not allow it.
        UsageError: the model to compare with is not among those scored.
    """
    assert request.against.release is not None
    release = read_audited_release(
        request.against.release, read_release(request.against.release).by_query, gathered.sides
    )
    models = [model for model in gathered.models if not model.is_one_sided]
    names = [model.name for model in models]
    if request.paired_with is not None and request.paired_with not in names:
        raise UsageError(
            f"--against names {request.paired_with!r}, which is not compared; compared are: {', '.join(names)}"
        )
    figures: list[FairFigure] = []
    differences: list[FairDifference] = []
    groups: list[FairGroup] = []
    left_out = 0
    ranker = Ranker(settings, gathered, progress)
    for direction in request.directions:
        judged = _judged(release, direction, len(gathered.sides.gallery(direction)))
        left_out += len(release.queries[direction]) - len(judged)
        if len(judged):
            compared = _Direction(ranker, request, direction).compared(models, release, judged)
            figures += compared[0]
            differences += compared[1]
            groups += _groups(*compared) if request.paired_with is None else ()
    if not figures:
        raise MetricError("no query of the release has a positive of its own, so there is nothing to compare")
    return FairComparison(
        tuple(figures), tuple(differences), tuple(groups), len(release.matches), left_out, release.rates
    )


def _groups(figures: Sequence[FairFigure], differences: Sequence[FairDifference]) -> Iterator[FairGroup]:
    """The ranking of one direction's models by each metric."""
    for metric in dict.fromkeys(figure.metric for figure in figures):
        settled_of = {figure.model: figure.settled for figure in figures if figure.metric == metric}
        names = list(settled_of)
        pairs = [difference for difference in differences if difference.metric == metric]
        signs = np.zeros((len(names), len(names)), np.int64)
        for pair in pairs:
            a, b = names.index(pair.model), names.index(pair.against)
            signs[a, b], signs[b, a] = pair.sign, -pair.sign
        first = 1
        for group in rank_groups(np.array(list(settled_of.values())), signs):
            models = tuple(names[place] for place in group)
            last = first + len(models) - 1
            ahead = tuple((names[a], names[b]) for a in group for b in group if signs[a, b] == 1)
            more = [pair.more for pair in pairs if {pair.model, pair.against} <= {*models} and not pair.apart]
            counts = [count for count in more if count is not None]
            for_two = min(counts, default=None if more else 0)
            for_all = None if None in more else max(counts, default=0)
            yield FairGroup(figures[0].direction, metric, first, last, models, ahead, for_two, for_all)
            first = last + 1


def _judged(release: AuditedRelease, direction: Direction, gallery: int) -> PartialLabels:
    """What people judged of the queries with a held positive; what another source keeps is one whatever they say."""
    held, refused = direction.ordered(*release.held), direction.ordered(*release.refused)
    scored = np.intersect1d(release.queries[direction], held[0])
    positives = PartialLabels.of(
        scored, gallery, held, np.ones(len(held[0])), np.ones(len(held[0]), np.bool_)
    )
    rows = places(scored, refused[0])
    new = (rows >= 0) & (positives.find(np.maximum(rows, 0), refused[1]) < 0)
    return positives.known(refused[0][new], refused[1][new], np.zeros(int(new.sum()), np.bool_))


@dataclass(frozen=True, slots=True, eq=False)
class Ranker:
    """Makes rankings of what was gathered."""

    settings: Settings
    gathered: Gathered
    progress: Progress

    def ranked(self, model: Model, direction: Direction, query_ids: Ids, depth: int) -> Ranked:
        """The model's rankings, as deep as wanted where it can."""
        sides = self.gathered.sides
        depth = min(depth, len(sides.gallery(direction)))
        rankings = model.rankings.get(direction)
        if rankings is not None and (not model.cut or rankings.items.shape[1] >= depth):
            return rankings
        if model.similarities is not None:
            parts = blocks(
                model.similarities, sides, direction, query_ids, self.progress, f"rank {model.name}"
            )
            return Ranked.whole(query_ids, np.concatenate([part.head(depth) for part in parts]))
        assert self.gathered.project is not None
        needs: dict[Direction, RankingNeed] = dict.fromkeys(Direction, ((), 1))
        needs[direction] = query_ids.tolist(), depth
        (computed,), _ = annotator_models(
            self.settings, [model.name], self.gathered.project, needs, self.progress
        )
        return computed.rankings[direction]


@dataclass(frozen=True, slots=True, eq=False)
class _Direction:
    """One direction of a call."""

    ranker: Ranker
    request: EvaluationRequest
    direction: Direction

    @property
    def asked(self) -> Sequence[Asked]:
        return self.request.wanted.asked

    def compared(
        self, models: Sequence[Model], release: AuditedRelease, judged: PartialLabels
    ) -> tuple[list[FairFigure], list[FairDifference]]:
        """All models' figures, and the differences of pairs of them."""
        depth = max(DEPTH, 2 * int(judged.positives.max()), *(asked.k for asked in self.asked))
        ranked = self._ranked(models, judged.query_ids, depth)
        audited = self.direction.ordered(*release.audited)
        sample = AuditSample(*audited, release.matches, release.strata, release.inclusion, release.reading)
        chances = with_rank_chances(judged, list(ranked.values()), sample)
        draws = draws_for(len(judged))
        evidence = Evidence.of(judged, sample, chances=chances, draws=draws, seed=self.ranker.settings.seed)
        needed = evidence.depth(self.asked)
        if needed > depth:
            ranked = self._ranked(models, judged.query_ids, needed)
        fair: dict[str, Fair] = {}
        for name, ranking in ranked.items():
            with named(name, RELEASE, self.ranker.gathered.sides, self.direction):
                fair[name] = evidence.fair(ranking, self.asked, short=self.request.wanted.short)
        values = dict(zip(fair, evidence.settled(list(fair.values())), strict=True))
        return self._figures(fair, values, ranked, evidence), self._differences(fair, values, evidence)

    def _ranked(self, models: Sequence[Model], query_ids: Ids, depth: int) -> dict[str, Ranked]:
        return {model.name: self.ranker.ranked(model, self.direction, query_ids, depth) for model in models}

    def _figures(
        self,
        fair: Mapping[str, Fair],
        values: Mapping[str, tuple[float, ...]],
        ranked: Mapping[str, Ranked],
        evidence: Evidence,
    ) -> list[FairFigure]:
        labels = evidence.naive.labels
        figures = []
        for name, scores in fair.items():
            within_r, at = hole_shares(ranked[name], labels, [max(asked.k, 1) for asked in self.asked])
            for place, asked in enumerate(self.asked):
                powered = scores.powered[place]
                about = name, self.direction.value, asked.name, len(labels)
                methods = scores.naive[place], scores.classical[place].value, powered.expected, powered.value
                holes = at[place] if asked.k else within_r
                figures.append(FairFigure(*about, *methods, *powered.ends, values[name][place], holes))
        return figures

    def _differences(
        self, fair: Mapping[str, Fair], values: Mapping[str, tuple[float, ...]], evidence: Evidence
    ) -> list[FairDifference]:
        base = self.request.paired_with
        pairs = combinations(fair, 2) if base is None else ((name, base) for name in fair if name != base)
        differences, audit = [], evidence.powered.audit
        pool = float((1 / audit.inclusion).sum())
        for model, against in pairs:
            one, other = fair[model], fair[against]
            for place, asked in enumerate(self.asked):
                about = model, against, self.direction.value, asked.name
                naive = one.naive[place] - other.naive[place]
                settled = values[model][place] - values[against][place]
                powered = evidence.difference(one.powered[place], other.powered[place])
                apart = powered.sign != 0
                more = 0 if apart else more_pairs(len(audit), powered.std_error, settled, pool)
                shares = naive, settled, powered.value, *powered.ends
                differences.append(FairDifference(*about, *shares, apart, more))
        return differences
