"""Judgements, CxC ratings and original annotations, merged into positives.

In order of trust a judgement beats a CxC rating beats the original annotation. Nothing here rewrites a
judgement, and the result does not depend on the order of any input.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mitl.positives.exclusions import Exclusions
from mitl.positives.judgement_columns import JudgementColumns
from mitl.positives.merge_columns import (
    UNANSWERED,
    AnswerColumns,
    Evidence,
    Ints,
    MergedColumns,
    gather,
    merge_columns,
)
from mitl.positives.pair_answers import pair_answers
from mitl.positives.rules import CXC_POSITIVE, MergeRules
from mitl.proposals.packed import pack_ids, unpack_pairs
from mitl.records import Direction, GoldControl, Judgement, Label, Negative, Pair, Positive, PositiveSource

__all__ = ["CXC_POSITIVE", "Conflict", "MergeInput", "MergeRules", "Merged", "merge", "positives_by_query"]


@dataclass(frozen=True, slots=True)
class Conflict:
    """A pair on which the sources disagree, and what became of it."""

    pair: Pair
    label: Label | None
    n_judgements: int
    cxc_score: float | None
    original: bool
    decided_by: PositiveSource
    """The most trusted source that says something; under the official filters, the one that decided."""
    kept: bool


@dataclass(frozen=True, slots=True)
class Merged:
    """What merging gives; every tuple is in order of the pairs."""

    positives: tuple[Positive, ...]
    conflicts: tuple[Conflict, ...]
    excluded: tuple[Pair, ...]
    """Pairs that would be positive, but that an exclusion list names."""
    negatives: tuple[Negative, ...] = ()
    """Pairs that people called no match and that no other source keeps."""
    query_filter: Mapping[Direction, frozenset[int]] | None = None
    """The queries that may be listed; None where every query may."""


@dataclass(frozen=True, slots=True)
class MergeInput:
    """What merging reads, by surrogate ids."""

    judgements: Collection[Judgement] = ()
    ratings: Iterable[tuple[Pair, float]] = ()
    """CxC ratings of image-caption pairs; a pair rated more than once counts with its highest score."""
    originals: Collection[Pair] = ()
    found_by: Mapping[Pair, Collection[str]] = field(default_factory=dict)
    """The machine annotators that proposed each pair."""
    exclusions: Exclusions = field(default_factory=Exclusions)
    withdrawn: Collection[GoldControl] = ()
    """Controls that are not trusted; the others tell a fitted aggregator how workers err."""


def merge(data: MergeInput, rules: MergeRules | None = None) -> Merged:
    """The positives, the conflicts and what exclusion lists took out.

    Positive is what people verified, what CxC rates at the threshold or above and nobody judged, and, unless the
    rules leave them out as the paper does, the original pairs that nobody judged or rated. A pair that people
    judged negative stays out whatever CxC or the original annotation say.

    ``official`` reproduces the released JSONs of ECCV Caption instead: one positive answer among several
    makes a positive; a CxC positive stays though people refused it; the list of single wrong pairs is not
    applied; and a query is listed only if people verified a positive for it and CxC has one too.

    Source: Chun et al., ECCV Caption, section 3.3; the released tool for ``official``.
    """
    rules = rules or MergeRules()
    known = gather(*_columns(data, rules))
    found = merge_columns(known, rules, data.exclusions)
    return Merged(
        _positives(found, data.found_by),
        _conflicts(found),
        tuple(unpack_pairs(known.pairs[found.excluded])),
        _negatives(found, data.found_by),
        found.query_filter,
    )


def positives_by_query(
    merged: Merged, queries: Mapping[Direction, Iterable[int]]
) -> dict[Direction, dict[int, tuple[int, ...]]]:
    """Each query's positives in id order, for both directions; queries without any are left out.

    Only the queries given are listed: the positives of others were never looked for and would be incomplete.
    """
    items: dict[Direction, dict[int, list[int]]] = {d: defaultdict(list) for d in Direction}
    for positive in merged.positives:
        pair = positive.pair
        items[Direction.I2T][pair.image_id].append(pair.caption_id)
        items[Direction.T2I][pair.caption_id].append(pair.image_id)
    listed: dict[Direction, dict[int, tuple[int, ...]]] = {}
    for direction in Direction:
        wanted = set(queries.get(direction, ()))
        if merged.query_filter is not None:
            wanted &= merged.query_filter[direction]
        found = items[direction]
        listed[direction] = {q: tuple(sorted(found[q])) for q in sorted(wanted) if q in found}
    return listed


def _columns(data: MergeInput, rules: MergeRules) -> tuple[AnswerColumns, Ints, NDArray[np.float64], Ints]:
    judgements = JudgementColumns.from_records(data.judgements)
    answers = pair_answers(judgements, rules, data.withdrawn).columns
    ratings = list(data.ratings)
    scores = np.array([score for _, score in ratings], np.float64)
    return answers, _packed(pair for pair, _ in ratings), scores, _packed(data.originals)


def _packed(pairs: Iterable[Pair]) -> Ints:
    """As given, repeated ones too."""
    rows = np.array([(pair.image_id, pair.caption_id) for pair in pairs], np.int64).reshape(-1, 2)
    return pack_ids(rows[:, 0], rows[:, 1])


_Finders = Mapping[Pair, Collection[str]]


def _positives(found: MergedColumns, found_by: _Finders) -> tuple[Positive, ...]:
    known, rows = found.evidence, np.flatnonzero(found.kept)
    speaks = {
        PositiveSource.JUDGEMENT: found.verified,
        PositiveSource.CXC: found.rated,
        PositiveSource.ORIGINAL: known.original,
    }
    return tuple(
        Positive(
            pair=pair,
            label=_label(known, row) if found.verified[row] else None,
            sources=tuple(source for source, mask in speaks.items() if mask[row]),
            annotators=_finders(found_by, pair),
            n_judgements=int(known.n_judgements[row]),
            probability=float(known.probability[row]) if known.n_judgements[row] else None,
        )
        for row, pair in zip(rows, unpack_pairs(known.pairs[rows]), strict=True)
    )


def _negatives(found: MergedColumns, found_by: _Finders) -> tuple[Negative, ...]:
    known, rows = found.evidence, np.flatnonzero(found.negative)
    return tuple(
        Negative(
            pair=pair,
            label=list(Label)[known.label[row]],
            annotators=_finders(found_by, pair),
            n_judgements=int(known.n_judgements[row]),
            probability=float(known.probability[row]),
        )
        for row, pair in zip(rows, unpack_pairs(known.pairs[rows]), strict=True)
    )


def _conflicts(found: MergedColumns) -> tuple[Conflict, ...]:
    known, rows = found.evidence, np.flatnonzero(found.conflict)
    scored = known.scored
    return tuple(
        Conflict(
            pair=pair,
            label=_label(known, row),
            n_judgements=int(known.n_judgements[row]),
            cxc_score=float(known.score[row]) if scored[row] else None,
            original=bool(known.original[row]),
            decided_by=PositiveSource.JUDGEMENT if found.by_judgement[row] else PositiveSource.CXC,
            kept=bool(found.kept[row]),
        )
        for row, pair in zip(rows, unpack_pairs(known.pairs[rows]), strict=True)
    )


def _label(known: Evidence, row: np.int64) -> Label | None:
    code = int(known.label[row])
    return None if code == UNANSWERED else list(Label)[code]


def _finders(found_by: _Finders, pair: Pair) -> tuple[str, ...]:
    return tuple(sorted(set(found_by.get(pair, ()))))
