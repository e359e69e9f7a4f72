"""Answers by annotator and rank (Table B.2) and the reasons ticked (Table B.3), counted and as shares."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mitl.records import (
    Concept,
    Direction,
    Judgement,
    Label,
    Pair,
    PairRole,
    Proposal,
    RationaleKind,
    Shortcoming,
)

LABELS = tuple(Label)

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
    """How often one shortcoming or concept was ticked on the pairs of one annotator."""

    annotator: str
    kind: RationaleKind
    """SHORTCOMING or CONCEPT."""
    value: str
    """A value of ``Shortcoming`` or ``Concept``."""
    count: int


@dataclass(frozen=True, slots=True)
class ShareRow:
    """One row of percentages with the count that they are shares of; ``shares`` is None where that is 0."""

    total: int
    shares: Shares | None


@dataclass(frozen=True, slots=True)
class AnswerTable:
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


def counts_in_tables(judgement: Judgement) -> bool:
    """Whether an answer belongs in the tables: usable, a label given, and neither a gold nor a repeat."""
    return (
        judgement.usable
        and judgement.label is not None
        and not judgement.role.is_gold
        and judgement.role is not PairRole.REPEAT
    )


def answer_counts(judgements: Iterable[Judgement], proposals: Iterable[Proposal]) -> tuple[AnswerCount, ...]:
    """Every answer once for each (annotator, direction, rank) that proposed its pair, as the official CSV."""
    proposed_by = _proposals_of(proposals)
    counts: Counter[tuple[str, Direction, int, Label]] = Counter()
    for judgement in judgements:
        if judgement.label is not None and counts_in_tables(judgement):
            for proposal in proposed_by.get(judgement.pair, ()):
                counts[proposal.annotator, proposal.direction, proposal.rank, judgement.label] += 1
    return tuple(AnswerCount(*key, count=counts[key]) for key in sorted(counts, key=_answer_order))


def rationale_counts(
    judgements: Iterable[Judgement], proposals: Iterable[Proposal]
) -> tuple[RationaleCount, ...]:
    """Every tick once for each annotator that proposed its pair, whichever directions found it."""
    proposed_by = _proposals_of(proposals)
    counts: Counter[tuple[str, RationaleKind, str]] = Counter()
    for judgement in judgements:
        if not counts_in_tables(judgement):
            continue
        for name in {proposal.annotator for proposal in proposed_by.get(judgement.pair, ())}:
            for shortcoming in judgement.shortcomings:
                counts[name, RationaleKind.SHORTCOMING, shortcoming.value] += 1
            for concept in judgement.concepts:
                counts[name, RationaleKind.CONCEPT, concept.value] += 1
    return tuple(RationaleCount(*key, count=counts[key]) for key in sorted(counts))


def answer_shares(
    counts: Iterable[AnswerCount], *, order: Sequence[str] = (), direction: Direction | None = None
) -> AnswerTable:
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
    return AnswerTable(annotators=names, ranks=ranks, cells=table, average=pooled)


def rationale_shares(
    counts: Iterable[RationaleCount], kind: RationaleKind, *, order: Sequence[str] = ()
) -> RationaleTable:
    """Shares of each shortcoming or each concept among an annotator's ticks, in percent.

    Source: the layout of ECCV Caption, Table B.3; its average is the mean of the rows.
    """
    choices: type[Shortcoming] | type[Concept] = Shortcoming if kind is RationaleKind.SHORTCOMING else Concept
    columns = tuple(choice.value for choice in choices)
    ticks: dict[str, Counter[str]] = defaultdict(Counter)
    for entry in counts:
        if entry.kind is kind:
            ticks[entry.annotator][entry.value] += entry.count
    rows = tuple(
        (name, percentages([ticks[name][column] for column in columns])) for name in _ordered(ticks, order)
    )
    given = [row.shares for _, row in rows if row.shares is not None]
    average = tuple(sum(values) / len(given) for values in zip(*given, strict=True)) if given else None
    return RationaleTable(columns=columns, rows=rows, average=average)


def _proposals_of(proposals: Iterable[Proposal]) -> dict[Pair, list[Proposal]]:
    by_pair: dict[Pair, list[Proposal]] = defaultdict(list)
    for proposal in proposals:
        by_pair[proposal.pair].append(proposal)
    return by_pair


def _answer_order(key: tuple[str, Direction, int, Label]) -> tuple[str, str, int, int]:
    annotator, direction, rank, label = key
    return annotator, direction.value, rank, label.code


def _ordered(names: Iterable[str], order: Sequence[str]) -> tuple[str, ...]:
    present = set(names)
    named = [name for name in dict.fromkeys(order) if name in present]
    return (*named, *sorted(present.difference(named)))


def _label_row(counts: Counter[Label]) -> ShareRow:
    return percentages([counts[label] for label in LABELS])
