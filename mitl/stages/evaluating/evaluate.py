"""Evaluating models on sets of positives: read, score, write the tables, keep the scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from mitl.core.whole_files import whole_file
from mitl.datasets.crisscrossed import Likeness
from mitl.metrics.correlation import ScoredPairs
from mitl.progress import Progress, no_progress
from mitl.records import Direction, StageResult, several
from mitl.settings import Settings
from mitl.stages.evaluating.crisscrossed import (
    compare_correlations,
    correlations,
    rated_similarities,
    score_within_sides,
)
from mitl.stages.evaluating.figures import (
    SCORES_FILE,
    Comparison,
    Figure,
    Sampling,
    Scored,
    compare,
    figures,
    keep_scores,
    nested,
    nested_intervals,
    rsums,
)
from mitl.stages.evaluating.gathering import Gathered, gather
from mitl.stages.evaluating.request import Against, Request
from mitl.stages.evaluating.scoring import score_model
from mitl.stages.evaluating.tables import (
    comparison_table,
    correlation_table,
    rsum_table,
    score_tables,
    to_csv,
    to_latex,
)

__all__ = ["SCORES_FILE", "evaluate", "evaluate_models"]


def evaluate(
    settings: Settings,
    *,
    release: Path | None = None,
    official: Sequence[str] = (),
    annotators: Sequence[str] = (),
    progress: Progress = no_progress,
) -> StageResult:
    """The project's annotators under the usual metrics; see :func:`evaluate_models`."""
    request = Request(
        Against(release, official), annotators=annotators, sampling=Sampling(seed=settings.seed)
    )
    return evaluate_models(settings, request, progress)


def evaluate_models(settings: Settings, request: Request, progress: Progress = no_progress) -> StageResult:
    """Every model on every set, with intervals; in a project the scores are kept for its report.

    The project's own originals are always among the sets, so that before and after stand side by side. Every set is
    scored on the queries that it lists. Rankings of annotators are made as deep as the largest R, and kept.

    Raises:
        UsageError: a set, a metric or a model is unknown, or there is nothing to score.
        MetricError: a metric is undefined for what a model brings.
        MitlError: a file is missing, malformed or does not fit the others.
    """
    gathered = gather(settings, request, progress)
    rows = [
        row
        for model in gathered.models
        for row in score_model(
            model, gathered.tasks, gathered.sides, request.directions, request.wanted.short, progress
        )
    ]
    rows += _within_sides(gathered, request, progress)
    rows = _by_set(rows, [task.name for task in gathered.tasks])
    found = figures(rows, request.sampling)
    rated = _rated(gathered)
    agreement = [
        one for model, kinds in rated.items() for one in correlations(model, kinds, request.sampling)
    ]
    sums = rsums(rows, request.sampling)
    tests = []
    if request.paired_with:
        tests = compare(rows, request.paired_with, request.sampling)
        tests += compare_correlations(rated, request.paired_with, request.sampling)
    changed = _write(request, [*found, *agreement], sums, tests)
    if gathered.project is not None:
        changed.append(
            keep_scores(
                settings.runs,
                nested(found),
                nested_intervals(found),
                of_all=gathered.of_all,
                environments=gathered.environments,
            )
        )
    return _result(request, gathered, found, agreement, sums, tests, changed)


def _within_sides(gathered: Gathered, request: Request, progress: Progress) -> list[Scored]:
    """CxC's tasks within one side, of the models that have such similarities."""
    known, image_of = gathered.crisscrossed, gathered.image_of
    if known is None or image_of is None:
        return []
    if len(request.directions) < len(Direction):
        gathered.warnings.append(
            f"CxC's tasks t2t and i2i have no direction {request.directions[0]}, so they are left out; without "
            "--direction they are scored"
        )
        return []
    found = []
    for model in gathered.models:
        rows = score_within_sides(model, known, gathered.sides, image_of, request.wanted, progress)
        found += rows
        if not rows:
            gathered.warnings.append(
                f"{model.name} has no similarities of two captions or two images, so CxC's tasks t2t and i2i are "
                "left out; embeddings have them"
            )
    return found


def _rated(gathered: Gathered) -> dict[str, dict[Likeness, ScoredPairs]]:
    """Model → kind of CxC's scores → its similarities beside them, of the models that have such."""
    known = gathered.crisscrossed
    if known is None:
        return {}
    return {model.name: rated_similarities(model, known, gathered.sides) for model in gathered.models}


def _by_set(rows: Iterable[Scored], order: Sequence[str]) -> list[Scored]:
    return sorted(rows, key=lambda row: order.index(row.positives))


def _write(
    request: Request, found: Sequence[Figure], sums: Sequence[Figure], tests: Sequence[Comparison]
) -> list[bool]:
    """Write the files that are wanted; whether each of them changed."""
    changed = []
    if request.csv is not None:
        changed.append(_write_text(request.csv, to_csv([*found, *sums], tests)))
    if request.latex is not None:
        changed.append(_write_text(request.latex, to_latex(found)))
    return changed


def _write_text(path: Path, text: str) -> bool:
    content = text.encode("utf-8")
    if path.is_file() and path.read_bytes() == content:
        return False
    with whole_file(path) as sink:
        sink.write(content)
    return True


def _result(
    request: Request,
    gathered: Gathered,
    found: Sequence[Figure],
    agreement: Sequence[Figure],
    sums: Sequence[Figure],
    tests: Sequence[Comparison],
    changed: Sequence[bool],
) -> StageResult:
    idle = bool(changed) and not any(changed) and not gathered.computed
    paths = {"release": request.against.release, "csv": request.csv, "latex": request.latex}
    computed = (f"{several(gathered.computed, 'ranking')} computed",) if gathered.computed else ()
    return StageResult(
        status="nothing_to_do" if idle else "done",
        counts={
            "scores": nested(found),
            "intervals": nested_intervals(found),
            "queries": _queries(found),
            "environments": {
                name: one for name, one in gathered.environments.items() if name in _queries(found)
            },
            "rsum": {
                positives: {
                    one.model: {"value": one.value, "low": one.low, "high": one.high}
                    for one in sums
                    if one.positives == positives
                }
                for positives in dict.fromkeys(one.positives for one in sums)
            },
            "correlations": {
                model: {
                    one.direction: {"mean": one.value, "std": one.std, "low": one.low, "high": one.high}
                    for one in agreement
                    if one.model == model
                }
                for model in dict.fromkeys(one.model for one in agreement)
            },
            "paired": [_test(one) for one in tests],
            "rankings_computed": gathered.computed,
        },
        paths={name: str(path) for name, path in paths.items() if path is not None},
        warnings=tuple(gathered.warnings),
        tables=(
            *score_tables(found),
            *rsum_table(sums),
            *correlation_table(agreement),
            *comparison_table(tests),
        ),
        lines=("nothing to do: these scores are kept already",) if idle else computed,
        next="" if gathered.project is None else "mitl report",
    )


def _queries(found: Sequence[Figure]) -> dict[str, dict[str, int]]:
    """Positives → direction → queries that count."""
    counted: dict[str, dict[str, int]] = {}
    for one in found:
        by_direction = counted.setdefault(one.positives, {})
        by_direction[one.direction] = max(one.queries, by_direction.get(one.direction, 0))
    return counted


def _test(one: Comparison) -> dict[str, object]:
    return {
        "positives": one.positives,
        "model": one.model,
        "against": one.against,
        "direction": one.direction,
        "metric": one.metric,
        "difference": one.difference,
        "low": one.low,
        "high": one.high,
        "p_value": one.p_value,
        "queries": one.queries,
    }
