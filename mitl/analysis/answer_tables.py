"""Answers by annotator and rank (Table B.2) and the reasons ticked (Table B.3), counted and as shares."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

from mitl.core.arrays import places
from mitl.records import Direction, Label, PairRole
from mitl.records.frames import counts, is_role
from mitl.records.questions import RATIONALE, Question

LABELS, DIRECTIONS = tuple(Label), tuple(Direction)

Shares = tuple[float, ...]
"""Percentages that add up to 100, in the order of the table's columns."""


@dataclass(frozen=True, slots=True)
class AnswerCount:
    """How often pairs at one rank of one annotator and direction got one label; no golds, no repeats."""

    annotator: str
    direction: Direction
    rank: int
    label: Label
    count: int


@dataclass(frozen=True, slots=True)
class RationaleCount:
    """How often one choice of a question was ticked on the pairs of one annotator."""

    annotator: str
    kind: str
    """The question's name."""
    value: str
    """Of the choice."""
    count: int


@dataclass(frozen=True, slots=True)
class ShareRow:
    """One row of percentages with the count that they are shares of; ``shares`` is None where that is 0."""

    total: int
    shares: Shares | None


@dataclass(frozen=True, slots=True)
class AnswerShares:
    """Answer shares by annotator and rank; columns as ``LABELS``.

    ``cells[annotator][i]`` belongs to ``ranks[i]``; ``average[annotator]`` pools all ranks, so that a rank
    with more answers weighs more.
    """

    annotators: tuple[str, ...]
    ranks: tuple[int, ...]
    cells: dict[str, tuple[ShareRow, ...]]
    average: dict[str, ShareRow]


@dataclass(frozen=True, slots=True)
class RationaleTable:
    """Shares of the ticks by annotator; ``average`` is the plain mean over annotators that have any."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ShareRow], ...]
    average: Shares | None


def percentages(counts: Sequence[int]) -> ShareRow:
    """The counts as percentages of their sum."""
    total = sum(counts)
    return ShareRow(total, tuple(100 * count / total for count in counts) if total else None)


def _in_tables(judgements: pd.DataFrame) -> pd.DataFrame:
    """The answers that belong in the tables: usable, a label given, and asked, and not as a repeat."""
    return judgements[counts(judgements) & ~is_role(judgements, PairRole.REPEAT)]


def answer_counts(judgements: pd.DataFrame, proposals: pd.DataFrame) -> tuple[AnswerCount, ...]:
    """Every answer once for each (annotator, direction, rank) that proposed its pair, as the official CSV.

    Args:
        judgements: ``JUDGEMENTS``.
        proposals: ``PROPOSALS``.
    """
    answers = _in_tables(judgements)
    found = [
        AnswerCount(name, DIRECTIONS[way], rank, label, count)
        for place, label in enumerate(LABELS)
        for name, way, rank, count in _cells(
            answers.loc[answers["label"] == place, "pair"], proposals, ["annotator", "direction", "rank"]
        )
    ]
    order = attrgetter("annotator", "direction.value", "rank", "label.code")
    return tuple(sorted(found, key=order))


def rationale_counts(
    judgements: pd.DataFrame, proposals: pd.DataFrame, questions: Sequence[Question] = RATIONALE
) -> tuple[RationaleCount, ...]:
    """Every tick once for each annotator that proposed its pair, whichever directions found it.

    Args:
        judgements: ``judgement_schema`` of the questions.
        proposals: ``PROPOSALS``.
    """
    answers = _in_tables(judgements)
    proposed = proposals[["pair", "annotator"]].drop_duplicates()
    found = [
        RationaleCount(name, question.name, choice.value, count)
        for question in questions
        for place, choice in enumerate(question.choices)
        for name, count in _cells(
            answers.loc[(answers[question.column] & 1 << place) != 0, "pair"], proposed, ["annotator"]
        )
    ]
    return tuple(sorted(found, key=attrgetter("annotator", "kind", "value")))


def _cells(answered: pd.Series[int], proposals: pd.DataFrame, by: list[str]) -> Iterator[tuple[Any, ...]]:
    """The cells that these columns of the proposals make, with how many of the answers each holds, if any.

    Args:
        answered: the pair of each answer.
    """
    pairs, times = np.unique(answered.to_numpy(), return_counts=True)
    counts = np.append(times, 0)[places(pairs, proposals["pair"].to_numpy())]
    cells = proposals[by].assign(count=counts).groupby(by, observed=True, as_index=False)["count"].sum()
    cells = cells[cells["count"] > 0]
    return zip(*(cells[name].tolist() for name in cells), strict=True)


def answer_shares(
    counts: Iterable[AnswerCount], *, order: Sequence[str] = (), direction: Direction | None = None
) -> AnswerShares:
    """Answer shares by annotator and rank, in percent.

    Args:
        order: the annotators' order; those that it does not name follow by name.
        direction: only its answers; None pools both.

    Source: the layout of ECCV Caption, Table B.2.
    """
    cells: dict[tuple[str, int], Counter[Label]] = defaultdict(Counter)
    for entry in counts:
        if direction is None or entry.direction is direction:
            cells[entry.annotator, entry.rank][entry.label] += entry.count
    names = _ordered({name for name, _ in cells}, order)
    ranks = tuple(sorted({rank for _, rank in cells}))
    table = {name: tuple(_label_row(cells.get((name, rank), Counter())) for rank in ranks) for name in names}
    pooled = {
        name: _label_row(sum((cells.get((name, rank), Counter()) for rank in ranks), Counter()))
        for name in names
    }
    return AnswerShares(annotators=names, ranks=ranks, cells=table, average=pooled)


def rationale_shares(
    counts: Iterable[RationaleCount], question: Question, *, order: Sequence[str] = ()
) -> RationaleTable:
    """Shares of each choice of a question among an annotator's ticks, in percent.

    Source: the layout of ECCV Caption, Table B.3; its average is the mean of the rows.
    """
    columns = question.values
    ticks: dict[str, Counter[str]] = defaultdict(Counter)
    for entry in counts:
        if entry.kind == question.name:
            ticks[entry.annotator][entry.value] += entry.count
    rows = tuple(
        (name, percentages([ticks[name][column] for column in columns])) for name in _ordered(ticks, order)
    )
    shares = [row.shares for _, row in rows if row.shares is not None]
    average = tuple(sum(values) / len(shares) for values in zip(*shares, strict=True)) if shares else None
    return RationaleTable(columns=columns, rows=rows, average=average)


def _ordered(names: Iterable[str], order: Sequence[str]) -> tuple[str, ...]:
    present = set(names)
    named = [name for name in dict.fromkeys(order) if name in present]
    return (*named, *sorted(present.difference(named)))


def _label_row(counts: Counter[Label]) -> ShareRow:
    return percentages([counts[label] for label in LABELS])


EDGES = (1, 5, 10, 15, 25)
"""The most HITs of a worker in each bin; a last bin holds whoever did more. As in Table B.1 of the paper."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What one worker did."""

    submitted: int
    approved: int


@dataclass(frozen=True, slots=True)
class WorkloadBin:
    """The workers who submitted more than ``above`` and at most ``most`` HITs."""

    above: int
    most: int | None
    """None in the last bin."""
    workers: int = 0
    submitted: int = 0
    approved: int = 0

    @property
    def text(self) -> str:
        """The bin as the paper writes it."""
        if self.most is None:
            return f"{self.above} <"
        return str(self.most) if self.most == self.above + 1 else f"{self.above} < and ≤ {self.most}"

    @property
    def ratio(self) -> float | None:
        """Approved of submitted HITs, from 0 to 1; None in an empty bin."""
        return self.approved / self.submitted if self.submitted else None


def by_workload(workers: Iterable[Workload]) -> tuple[WorkloadBin, ...]:
    """Every worker with a submission in the bin of their number of HITs; empty bins are kept."""
    members: list[list[Workload]] = [[] for _ in (*EDGES, None)]
    for worker in workers:
        if worker.submitted:
            members[bisect_left(EDGES, worker.submitted)].append(worker)
    return tuple(
        WorkloadBin(above, most, len(some), sum(w.submitted for w in some), sum(w.approved for w in some))
        for above, most, some in zip((0, *EDGES), (*EDGES, None), members, strict=True)
    )


def together(bins: Iterable[WorkloadBin]) -> WorkloadBin:
    """All workers in one bin."""
    counts = ((bin_.workers, bin_.submitted, bin_.approved) for bin_ in bins)
    return WorkloadBin(0, None, *map(sum, zip(*counts, strict=True)))
