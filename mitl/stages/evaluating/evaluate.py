"""Evaluating models on sets of positives: read, score, write the tables, keep the scores."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from numpy.typing import NDArray

from annotators.base import fingerprint
from mitl.core.whole_files import put_file, refuse_within
from mitl.errors import MetricError
from mitl.metrics.correlation import ScoredPairs
from mitl.progress import Progress, no_progress
from mitl.records import StageResult, Table, several
from mitl.records.results import printed_by
from mitl.records.similarity import Likeness
from mitl.settings import Settings
from mitl.stages.evaluating import tables
from mitl.stages.evaluating.admission import asked_tasks
from mitl.stages.evaluating.crisscrossed import (
    NAME,
    compare_correlations,
    correlation,
    rated_similarities,
    score_within_sides,
)
from mitl.stages.evaluating.fair import FairComparison, compare_fairly
from mitl.stages.evaluating.figures import (
    SCORES_FILE,
    ByMetric,
    Figure,
    ModelDifference,
    Sampling,
    compare,
    figures,
    keep_scores,
    nested,
    refuse_alone,
    rsums,
    too_few,
)
from mitl.stages.evaluating.gathering import RELEASE, Gathered, gather
from mitl.stages.evaluating.pseudo_task import LabelledRatings, on_ratings
from mitl.stages.evaluating.request import Against, EvaluationRequest, NamedTask
from mitl.stages.evaluating.scoring import score_model

__all__ = ["SCORES_FILE", "evaluate", "evaluate_models"]


Ends = dict[str, dict[str, dict[str, float | None]]]


@printed_by("evaluate")
class EvaluateCounts(TypedDict):
    """What `mitl evaluate` counts."""

    scores: Annotated[
        ByMetric[float], "set of positives → model → direction → metric → value, shares from 0 to 1"
    ]
    intervals: Annotated[
        ByMetric[list[float]],
        "the same with [low, high], the ends of the 95 % interval; empty with `--no-intervals`",
    ]
    queries: Annotated[dict[str, dict[str, int]], "set → direction → queries that count"]
    environments: Annotated[
        dict[str, str], "set that comes of a release → the environment whose answers it holds"
    ]
    rsum: Annotated[
        Ends, "set → model → value, low and high of R@1 + R@5 + R@10 of both directions, from 0 to 6"
    ]
    correlations: Annotated[
        Ends,
        "with `--cxc`: model → sts, sis, sits → mean, std, low, high of Spearman's correlation, of those that it has",
    ]
    paired: Annotated[
        list[dict[str, object]],
        "with `--against`: a list of positives, model, against, direction, metric, difference, low, high, p_value, "
        "queries",
    ]
    pseudo_labels: Annotated[
        LabelledRatings | None,
        "with `--pseudo-labels` and `--cxc`: `pairs` rated, `labels_with_scores` and, by model, `with_scores` and "
        "`with_labels`: Pearson's correlations over these pairs; else null",
    ]
    fair: Annotated[
        list[dict[str, object]],
        "with `--fair`: a list of model, direction, metric, queries, naive, horvitz_thompson, expected, "
        "prediction_powered with low and high, settled, holes",
    ]
    fair_differences: Annotated[
        list[dict[str, object]],
        "with `--fair`: a list of model, against, direction, metric, and the differences naive, settled, "
        "prediction_powered with low and high, apart, and more, the further audited pairs that would tell the "
        "two apart, or null",
    ]
    fair_groups: Annotated[
        list[dict[str, object]],
        "with `--fair`, without `--against`: the ranking as a list of direction, metric, first and last place, the "
        "models that share them, ahead (the two of each known order among them), and more_for_two and more_for_all, "
        "the further audited pairs that would tell some two or all of them apart, or null",
    ]
    trained_on_release: Annotated[
        dict[str, int],
        "with `--release`: model → how many of its judged pairs taught it; models that none taught are left out",
    ]
    rankings_computed: Annotated[int, "rankings not found in `runs/`"]


@printed_by("evaluate", key="paths")
class EvaluatePaths(TypedDict, total=False):
    """What `mitl evaluate` read and wrote."""

    release: Annotated[str, "the release that was scored"]
    csv: Annotated[str, "the CSV file, with `--csv`"]
    latex: Annotated[str, "the LaTeX file, with `--latex`"]


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """What came of all models on all sets."""

    gathered: Gathered
    figures: Sequence[Figure]
    agreement: Sequence[Figure]
    """Correlations with CxC's scores."""
    rsums: Sequence[Figure]
    tests: Sequence[ModelDifference]
    labelled: LabelledRatings | None
    fair: FairComparison

    @property
    def scores(self) -> ByMetric[float]:
        """Positives → model → direction → metric → value."""
        return nested((figure.place, figure.value) for figure in self.figures)

    @property
    def intervals(self) -> ByMetric[list[float]]:
        """The same with [low, high]; metrics without an interval are left out."""
        figures = [figure for figure in self.figures if figure.low is not None]
        return nested((figure.place, [figure.low, figure.high]) for figure in figures)

    def counts(self) -> EvaluateCounts:
        """As ``--json`` has them."""
        queries: dict[str, dict[str, int]] = {}
        for figure in self.figures:
            by_direction = queries.setdefault(figure.positives, {})
            by_direction[figure.direction] = max(figure.queries, by_direction.get(figure.direction, 0))
        return {
            "scores": self.scores,
            "intervals": self.intervals,
            "queries": queries,
            "environments": {
                name: environment
                for name, environment in self.gathered.environments.items()
                if name in queries
            },
            "rsum": nested(
                ((rsum.positives, rsum.model), {"value": rsum.value, "low": rsum.low, "high": rsum.high})
                for rsum in self.rsums
            ),
            "correlations": nested(
                (
                    (figure.model, figure.direction),
                    {"mean": figure.value, "std": figure.std, "low": figure.low, "high": figure.high},
                )
                for figure in self.agreement
            ),
            "paired": [asdict(test) for test in self.tests],
            "pseudo_labels": self.labelled,
            "fair": [asdict(figure) for figure in self.fair.figures],
            "fair_differences": [asdict(difference) for difference in self.fair.differences],
            "fair_groups": [asdict(group) for group in self.fair.groups],
            "trained_on_release": self.gathered.trained_on_release,
            "rankings_computed": self.gathered.computed,
        }

    def tables(self) -> tuple[Table, ...]:
        """For people."""
        return (
            *tables.score_tables(self.figures),
            *tables.rsum_table(self.rsums),
            *tables.correlation_table(self.agreement),
            *tables.labelled_table(self.labelled),
            *tables.comparison_table(self.tests),
            *tables.fair_tables(self.fair),
        )


def evaluate(
    settings: Settings,
    *,
    release: Path | None = None,
    official: Sequence[str] = (),
    annotators: Sequence[str] = (),
    progress: Progress = no_progress,
) -> StageResult:
    """The project's annotators under the usual metrics; see :func:`evaluate_models`."""
    request = EvaluationRequest(
        Against(release, official), annotators=annotators, sampling=Sampling(seed=settings.seed)
    )
    return evaluate_models(settings, request, progress)


def evaluate_models(
    settings: Settings, request: EvaluationRequest, progress: Progress = no_progress
) -> StageResult:
    """Every model on every set, with intervals; in a project the scores are kept for its report.

    The project's own originals are always among the sets, so that before and after stand side by side. Every set is
    scored on the queries that it lists. Rankings of annotators are made as deep as the largest R, and kept.

    Raises:
        UsageError: a set, a metric or a model is unknown, or there is nothing to score.
        ReleaseError: a file to write lies in a release.
        MetricError: a metric is undefined for what a model brings.
        MitlError: a file is missing, malformed or does not fit the others.
    """
    refuse_within(request.csv, request.latex)
    gathered = gather(settings, request, progress)
    rows, within = [], []
    for model in gathered.models:
        rows += score_model(
            model, gathered.tasks, gathered.sides, request.directions, request.wanted.short, progress
        )
        within += score_within_sides(model, gathered.within, gathered.sides, request.wanted.asked, progress)
    rows = [gathered.with_groups(row) for row in (*rows, *within)]
    sets = [*(task.name for task in gathered.tasks), NAME]
    rows.sort(key=lambda row: sets.index(row.positives))
    gathered.warnings += too_few(rows, request.sampling, request.paired_with)
    rated, agreement = _correlated(gathered, request)
    tests = []
    if request.paired_with:
        correlated = [model for model, kinds in rated.items() if kinds]
        refuse_alone(request.paired_with, [*(row.model for row in rows), *correlated])
        tests = compare(rows, request.paired_with, request.sampling)
        tests += compare_correlations(rated, request.paired_with, request.sampling)
    sits, labels = gathered.rated.get(Likeness.SITS), gathered.pseudo_labels
    found = _Evaluation(
        gathered,
        figures(rows, request.sampling),
        agreement,
        rsums(rows, request.sampling),
        tests,
        None if sits is None or labels is None else on_ratings(labels, sits, rated),
        compare_fairly(settings, request, gathered, progress) if request.against.fair else FairComparison(),
    )
    changed, shown = [], [*found.figures, *agreement]
    if request.csv is not None:
        changed.append(put_file(request.csv, tables.to_csv([*shown, *found.rsums], tests)))
    if request.latex is not None:
        changed.append(put_file(request.latex, tables.to_latex(shown).encode()))
    if gathered.project is not None:
        changed.append(
            keep_scores(
                settings.runs,
                found.scores,
                found.intervals,
                of_all=gathered.of_all,
                environments=gathered.environments,
                taught={RELEASE: gathered.trained_on_release},
                contents={task.name: _sha256(task.content()) for task in gathered.tasks if task.content()},
                marks={
                    model.name: fingerprint(model=model.mark, short=request.wanted.short)
                    for model in gathered.models
                    if model.mark
                },
            )
        )
    idle = bool(changed) and not any(changed) and not gathered.computed
    lines = ["nothing to do: these scores are kept already"] if idle else []
    if gathered.computed:
        lines.append(f"{several(gathered.computed, 'ranking')} computed")
    paths = {"release": request.against.release, "csv": request.csv, "latex": request.latex}
    return StageResult(
        status="nothing_to_do" if idle else "done",
        counts=found.counts(),
        paths={name: str(path) for name, path in paths.items() if path is not None},
        warnings=tuple(gathered.warnings),
        tables=found.tables(),
        lines=(*lines, *tables.fair_lines(found.fair)),
        next="" if gathered.project is None else "mitl report",
    )


def _sha256(arrays: Iterable[NDArray[Any]]) -> str:
    """Over the arrays' lengths and values."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {len(array)} ".encode() + array.tobytes())
    return digest.hexdigest()


_Rated = dict[str, dict[Likeness, ScoredPairs]]
"""Model → kind of ratings → its similarities beside them."""


def _correlated(gathered: Gathered, request: EvaluationRequest) -> tuple[_Rated, list[Figure]]:
    """The correlations of the models that have similarities of rated pairs, and what they are taken of.

    Where too few pairs are rated, or too alike, a kind is left out with a warning.

    Raises:
        MetricError: that is so of a kind that was asked for by name.
    """
    rated: _Rated = {}
    figures: list[Figure] = []
    asked = asked_tasks(request)
    kinds = [kind for kind in Likeness if kind in gathered.rated and NamedTask(kind.value) in asked]
    for model in gathered.models:
        rated[model.name] = {}
        for kind in kinds:
            try:
                pairs = rated_similarities(model, gathered.rated[kind], gathered.sides)
                if pairs is not None:
                    figures.append(correlation(model.name, pairs, kind, request.sampling))
                    rated[model.name][kind] = pairs
            except MetricError as error:
                if kind.value in request.tasks:
                    raise MetricError(f"{model.name} {kind.value}: {error}") from error
                gathered.warnings.append(f"{model.name}: {kind.value} is left out: {error}")
    return rated, figures
