"""Table 5: how alike metrics rank models, from a file of scores or from those that the project keeps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from mitl.analysis.correlations import RSUM, ScoreTable, as_matrix, correlate, read_scores, with_rsum
from mitl.analysis.records import Cell, Correlations
from mitl.analysis.report.machine_plots import matrix_svg
from mitl.errors import MetricError
from mitl.records import Environment, Table
from mitl.settings import Settings
from mitl.stages.analysing.table import (
    Analysis,
    AnalysisInput,
    Findings,
    number,
    off_diagonal,
    percent,
    square,
)
from mitl.stages.evaluating.figures import kept_scores

Sums = Mapping[str, Mapping[str, Cell]]
NO_SCORES = "no scores are kept in this project; run `mitl evaluate`, or give a table with --scores FILE"


def _correlate(of: AnalysisInput) -> tuple[Correlations, ScoreTable]:
    """Between every two metrics over the models, of the CSV that was named or of the project's kept scores.

    Raises:
        MetricError: the file is no such table, no scores are kept, or there are fewer than two models.
    """
    scores = of.options.scores
    table = score_table(of.settings, of.project.scored_in) if scores is None else read_scores(scores)
    return correlate(table), table


def _show(made: tuple[Correlations, ScoreTable], of: AnalysisInput) -> Findings:
    """Kendall's tau-b between the metrics, with RSUM among them where the recalls are there."""
    table = with_rsum(made[1])
    correlations = correlate(table)
    over = f"over {len(correlations.models):,} models"
    if len(table.directions) > 1:
        over += f", means of {' and '.join(table.directions)}"
    sums = _rsums(table)
    rows = {"correlations": _rows(correlations)}
    if sums:
        by_model = ((model, *(sums[name][model] for name in sums)) for model in table.models)
        rows["rsum"] = Table("", ("model", *sums), tuple(by_model))
    return Findings(
        counts={
            "models": len(correlations.models),
            "directions": [name for name in table.directions if name],
            "tau": off_diagonal(correlations.metrics, correlations.tau),
            "rsum": sums,
        },
        tables=(
            square(f"Kendall's tau-b between metrics · {over}", correlations.metrics, correlations.tau, 2),
            *_rsum_tables(table, sums, as_kept=of.options.scores is None),
        ),
        rows=rows,
        drawings={
            "correlations": partial(
                matrix_svg,
                correlations.metrics,
                correlations.tau,
                name="correlations",
                title=f"Kendall's tau-b between metrics {over}",
            )
        },
    )


def score_table(settings: Settings, environment: Environment | None) -> ScoreTable:
    """The scores that ``mitl evaluate`` keeps: a metric's name begins with its set of positives.

    Models that lack a set of positives have no score there. A set in one direction alone is left out.

    Raises:
        MetricError: nothing is kept, or it cannot be read.
    """
    try:
        scores = {
            (score.annotator, score.direction.value, f"{score.positives} {score.metric}"): score.value
            for score in kept_scores(settings.runs, environment)
        }
    except FileNotFoundError:
        raise MetricError(NO_SCORES) from None
    if not scores:
        raise MetricError(NO_SCORES)
    models, directions, metrics = (tuple(dict.fromkeys(key[place] for key in scores)) for place in range(3))
    values = np.array(
        [[[scores.get((m, d, metric), np.nan) for metric in metrics] for m in models] for d in directions]
    )
    return ScoreTable(models, metrics, directions, values)


def _rsums(table: ScoreTable) -> dict[str, dict[str, Cell]]:
    """Each sum of recalls → model → its value."""
    means = as_matrix(table.means)
    return {
        name: {model: means[row][column] for row, model in enumerate(table.models)}
        for column, name in enumerate(table.metrics)
        if name.split(" ")[-1] == RSUM
    }


def _rsum_tables(table: ScoreTable, sums: Sums, *, as_kept: bool) -> tuple[Table, ...]:
    """The sums, in percent where the scores are the project's own, which run from 0 to 1."""
    if not sums:
        return ()
    shown = partial(percent, digits=2) if as_kept else partial(number, digits=2)
    rows = tuple((model, *(shown(sums[name][model]) for name in sums)) for model in table.models)
    unit = "in percent" if as_kept else "in the file's own unit"
    title = f"RSUM: R@1, R@5 and R@10 of both directions, added up {unit}"
    return (Table(title, ("model", *sums), rows),)


def _rows(correlations: Correlations) -> Table:
    rows = tuple(
        (row, column, correlations.tau[i][j], len(correlations.models))
        for i, row in enumerate(correlations.metrics)
        for j, column in enumerate(correlations.metrics)
        if i != j
    )
    return Table("", ("metric", "other", "tau_b", "models"), rows)


CORRELATIONS = Analysis("correlations", _correlate, _show)
