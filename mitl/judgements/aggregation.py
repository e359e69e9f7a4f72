"""The answer of a pair from the answers of its workers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mitl.records import Judgement, Label, Outcome, Pair


@dataclass(frozen=True, slots=True)
class PairAnswer:
    """What people answered on a pair, taken together."""

    label: Label
    n_judgements: int
    probability: float
    """Share of the usable judgements that are positive, without smoothing: 1.0 after a single yes."""


def majority(labels: Sequence[Label]) -> Label:
    """The most frequent label; a tie goes to the label nearer the median, then towards ``no``.

    The median of an even number of answers lies half-way between the middle two.

    Raises:
        ValueError: there are no labels.
    """
    if not labels:
        raise ValueError("no labels, so there is no majority")
    codes = sorted(label.code for label in labels)
    middle = codes[(len(codes) - 1) // 2] + codes[len(codes) // 2]  # twice the median
    counts = Counter(codes)
    most = max(counts.values())
    tied = [code for code, count in counts.items() if count == most]
    return Label.from_code(min(tied, key=lambda code: (abs(2 * code - middle), -code)))


def most_positive(labels: Sequence[Label]) -> Label:
    """The label nearest to ``yes``: the official merge calls a pair positive if any one answer does."""
    return min(labels, key=lambda label: label.code)


def answers_by_pair(
    judgements: Iterable[Judgement], rule: Callable[[Sequence[Label]], Label] = majority
) -> dict[Pair, PairAnswer]:
    """The answer of each pair that has a usable judgement, in order of the pairs.

    Candidates, repeats and overlaps are judgements of their pair alike; gold controls never are.
    """
    labels: dict[Pair, list[Label]] = defaultdict(list)
    for judgement in judgements:
        if counts_for_pair(judgement):
            assert judgement.label is not None
            labels[judgement.pair].append(judgement.label)
    return {pair: _answer(labels[pair], rule) for pair in sorted(labels)}


def counts_for_pair(judgement: Judgement) -> bool:
    """Whether a judgement says something about its pair: usable, answered, and no gold control."""
    return (
        judgement.usable
        and not judgement.role.is_gold
        and judgement.outcome is Outcome.ANSWERED
        and judgement.label is not None
    )


def _answer(labels: list[Label], rule: Callable[[Sequence[Label]], Label]) -> PairAnswer:
    positive = sum(label.is_positive for label in labels)
    return PairAnswer(rule(labels), len(labels), positive / len(labels))
