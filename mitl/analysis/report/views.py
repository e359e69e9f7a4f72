"""What the report's pages show beyond the plain tables: scores side by side, summaries, example cards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from mitl.analysis.known_truth import DirectionScores
from mitl.analysis.report.inputs import (
    EvaluationScore,
    ExampleItem,
    ExampleQuery,
    Multiplicity,
    ReportInput,
)
from mitl.records import Direction, Label


@dataclass(frozen=True, slots=True)
class EvaluationTable:
    """Scores of one direction: one row an annotator, one group of columns a set of positives."""

    direction: Direction
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    """(set of positives, its metrics), in order of appearance."""
    rows: tuple[tuple[str, tuple[float | None, ...]], ...]
    best: tuple[float | None, ...]
    """The highest value of each column."""


@dataclass(frozen=True, slots=True)
class MultiplicityRow:
    """Positives of one direction's queries, before and after."""

    direction: Direction
    queries: int
    before: int
    after: int
    mean_before: float
    mean_after: float
    median_after: float
    most_after: int


@dataclass(frozen=True, slots=True)
class Card:
    """One example item with the words and the frame that say why it is there."""

    item: ExampleItem
    frame: str
    """original, yes, weak_yes, refused or cxc; names the frame's style."""
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExampleView:
    """An example query with its cards."""

    query: ExampleQuery
    positives: tuple[Card, ...]
    refused: tuple[Card, ...]


def evaluation_tables(scores: Sequence[EvaluationScore]) -> tuple[EvaluationTable, ...]:
    """One table a direction that has scores; a missing score is None."""
    tables = []
    for direction in Direction:
        here = [score for score in scores if score.direction is direction]
        if not here:
            continue
        metrics: dict[str, list[str]] = {}
        for score in here:
            group = metrics.setdefault(score.positives, [])
            if score.metric not in group:
                group.append(score.metric)
        values = {(score.annotator, score.positives, score.metric): score.value for score in here}
        columns = [(positives, metric) for positives, group in metrics.items() for metric in group]
        rows = tuple(
            (name, tuple(values.get((name, *column)) for column in columns))
            for name in dict.fromkeys(score.annotator for score in here)
        )
        best = tuple(
            max((value for _, row in rows if (value := row[i]) is not None), default=None)
            for i in range(len(columns))
        )
        groups = tuple((positives, tuple(group)) for positives, group in metrics.items())
        tables.append(EvaluationTable(direction, groups, rows, best))
    return tuple(tables)


def multiplicity_rows(sets: Sequence[Multiplicity]) -> tuple[MultiplicityRow, ...]:
    """Totals, means, medians and maxima of the sets that hold queries."""
    return tuple(
        MultiplicityRow(
            direction=entry.direction,
            queries=len(entry.after),
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


def card(item: ExampleItem) -> Card:
    """A refusal decides the frame first, then the original annotation, then the answer, then CxC."""
    refused = item.label is not None and not item.label.is_positive
    tags: list[str] = []
    if item.original:
        tags.append("original")
    if item.label is not None:
        tags.append(f"judged {item.label.value.replace('_', ' ')}")
    if item.cxc_score is not None:
        tags.append(f"CxC {item.cxc_score:.1f}")
    if refused:
        frame = "refused"
    elif item.original:
        frame = "original"
    elif item.label is not None:
        frame = "yes" if item.label is Label.YES else "weak_yes"
    else:
        frame = "cxc"
    return Card(item, frame, tuple(tags))


def example_view(query: ExampleQuery) -> ExampleView:
    """Positives and refused near misses apart, each in the order given."""
    cards = [card(item) for item in query.items]
    return ExampleView(
        query=query,
        positives=tuple(one for one in cards if one.frame != "refused"),
        refused=tuple(one for one in cards if one.frame == "refused"),
    )


def picture_uses(examples: Sequence[ExampleQuery]) -> list[Path]:
    """Every image file once for each time that it is shown, in the page's order."""
    uses: list[Path] = []
    for example in examples:
        if example.image is not None:
            uses.append(example.image)
        uses += [item.image for item in example.items if item.image is not None]
    return uses
