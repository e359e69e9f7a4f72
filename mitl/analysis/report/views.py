"""What the report's pages show beyond the plain tables: scores side by side and summaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from mitl.analysis.known_truth import DirectionScores
from mitl.analysis.report.inputs import EvaluationScore, Multiplicity, ReportInput
from mitl.records import Direction

TABLED = ("R@1", "R@5", "R-Precision", "mAP@R")
"""The metrics that a table has room for."""


@dataclass(frozen=True, slots=True)
class EvaluationTable:
    """Scores of one direction: one row an annotator, one group of columns a set of positives."""

    direction: Direction
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    """(set of positives, its metrics), in order of appearance."""
    rows: tuple[tuple[str, tuple[EvaluationScore | None, ...]], ...]
    """(annotator, its scores); None where there is none."""
    best: tuple[float | None, ...]
    """The highest value of each column."""
    has_intervals: bool


@dataclass(frozen=True, slots=True)
class MultiplicityRow:
    """Positives of one direction's queries, before and after."""

    direction: Direction
    queries: int
    """Those that people were asked about."""
    of_queries: int
    answered_share: float | None
    """Of their candidates, those with a usable answer; None where nothing was proposed."""
    before: int
    after: int
    mean_before: float
    mean_after: float
    median_after: float
    most_after: int


def evaluation_tables(scores: Sequence[EvaluationScore]) -> tuple[EvaluationTable, ...]:
    """One table a direction that has scores; a missing score is None."""
    tables = []
    for direction in Direction:
        here = [score for score in scores if score.direction is direction]
        if not here:
            continue
        metrics: dict[str, list[str]] = {}
        for score in here:
            if score.metric not in TABLED:
                continue
            group = metrics.setdefault(score.positives, [])
            if score.metric not in group:
                group.append(score.metric)
        values = {(score.annotator, score.positives, score.metric): score for score in here}
        columns = [(positives, metric) for positives, group in metrics.items() for metric in group]
        rows = tuple(
            (name, tuple(values.get((name, *column)) for column in columns))
            for name in dict.fromkeys(score.annotator for score in here)
        )
        best = tuple(
            max((found.value for _, row in rows if (found := row[i]) is not None), default=None)
            for i in range(len(columns))
        )
        groups = tuple((positives, tuple(group)) for positives, group in metrics.items())
        tables.append(EvaluationTable(direction, groups, rows, best, any(s.low is not None for s in here)))
    return tuple(tables)


def multiplicity_rows(sets: Sequence[Multiplicity]) -> tuple[MultiplicityRow, ...]:
    """Totals, means, medians and maxima of the sets that hold queries."""
    return tuple(
        MultiplicityRow(
            direction=entry.direction,
            queries=len(entry.after),
            of_queries=entry.queries,
            answered_share=entry.answered / entry.candidates if entry.candidates else None,
            before=sum(entry.before),
            after=sum(entry.after),
            mean_before=fmean(entry.before),
            mean_after=fmean(entry.after),
            median_after=median(entry.after),
            most_after=max(entry.after),
        )
        for entry in sets
        if entry.before and entry.after
    )


def truth_rows(data: ReportInput) -> tuple[tuple[str, str, DirectionScores], ...]:
    """(kind, name, scores) of every set measured against the truth, before first and release last."""
    if data.truth is None:
        return ()
    truth = data.truth
    rows = [("before", "original annotation", truth.original)]
    rows += [("annotator", f"{name} alone", scores) for name, scores in truth.by_annotator]
    if truth.hit_rule is not None:
        rows.append(("rule", "HIT rule alone", truth.hit_rule))
    if truth.hit_rule_and_record is not None:
        rows.append(("rule", "HIT rule with worker record", truth.hit_rule_and_record))
    if truth.release is not None:
        rows.append(("after", "release", truth.release))
    return tuple(rows)
