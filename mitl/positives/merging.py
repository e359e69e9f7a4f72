"""Judgements, CxC ratings and original annotations, merged into positives.

In order of trust a judgement beats a CxC rating beats the original annotation. Nothing here rewrites a
judgement, and the result does not depend on the order of any input.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mitl.errors import ReleaseError
from mitl.judgements.aggregation import PairAnswer, answers_by_pair, majority, most_positive
from mitl.positives.exclusions import Exclusions
from mitl.records import Direction, Judgement, Label, Pair, Positive, PositiveSource

CXC_POSITIVE = 3.0
"""From this mean SITS rating on, CxC calls an image and a caption a match (CxC, section 3)."""


@dataclass(frozen=True, slots=True)
class MergeRules:
    """How the sources are merged; the defaults are the paper's recipe, verified plus CxC."""

    cxc_threshold: float = CXC_POSITIVE
    with_originals: bool = False
    """Add an original pair where neither people nor CxC contradict it."""
    strict: bool = False
    """People's ``weak_yes`` is not enough, and a CxC rating does not lift it."""
    official: bool = False
    """Reproduce the released positives of ECCV Caption, slips included: see :func:`merge`."""

    def __post_init__(self) -> None:
        if self.official and self.with_originals:
            raise ReleaseError(
                "the official filters add no original pairs; "
                "leave out either --official-filters or --with-originals"
            )

    @property
    def answer_rule(self) -> Callable[[Sequence[Label]], Label]:
        """How several judgements of one pair become its answer."""
        return most_positive if self.official else majority

    def accepts(self, label: Label) -> bool:
        """Whether this answer of people makes a positive."""
        return label is Label.YES if self.strict else label.is_positive


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
    query_filter: Mapping[Direction, frozenset[int]] | None = None
    """The queries that may be listed; None where every query may."""


@dataclass(frozen=True, slots=True)
class _Evidence:
    """All that is known of one pair."""

    pair: Pair
    answer: PairAnswer | None
    score: float | None
    original: bool


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


def merge(data: MergeInput, rules: MergeRules | None = None) -> Merged:
    """The positives, the conflicts and what exclusion lists took out.

    The recipe of the paper: what people verified, plus what CxC rates at the threshold or above and nobody
    judged. A pair that people judged negative stays out whatever CxC or the original annotation say.

    ``official`` reproduces the released JSONs of ECCV Caption instead: one positive answer among several
    makes a positive; a CxC positive stays though people refused it; the list of single wrong pairs is not
    applied; and a query is listed only if people verified a positive for it and CxC has one too.

    Source: Chun et al., ECCV Caption, section 3.3; the released tool for ``official``.
    """
    rules = rules or MergeRules()
    exclusions = data.exclusions.without_pairs() if rules.official else data.exclusions
    evidence = _gather(data, rules)
    positives, conflicts, excluded = [], [], []
    for known in evidence:
        kept = _is_positive(known, rules)
        if known.pair in exclusions:
            if kept:
                excluded.append(known.pair)
            continue
        if kept:
            positives.append(_positive(known, rules, data.found_by.get(known.pair, ())))
        if _disagrees(known, rules):
            conflicts.append(_conflict(known, rules, kept))
    allowed = _official_queries(evidence, rules, exclusions) if rules.official else None
    return Merged(tuple(positives), tuple(conflicts), tuple(excluded), allowed)


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


def _gather(data: MergeInput, rules: MergeRules) -> list[_Evidence]:
    answers = answers_by_pair(data.judgements, rules.answer_rule)
    scores: dict[Pair, float] = {}
    for pair, score in data.ratings:
        scores[pair] = max(score, scores.get(pair, score))
    originals = frozenset(data.originals)
    pairs = sorted(answers.keys() | scores.keys() | originals)
    return [_Evidence(pair, answers.get(pair), scores.get(pair), pair in originals) for pair in pairs]


def _is_rated_match(known: _Evidence, rules: MergeRules) -> bool:
    return known.score is not None and known.score >= rules.cxc_threshold


def _is_verified(known: _Evidence, rules: MergeRules) -> bool:
    return known.answer is not None and rules.accepts(known.answer.label)


def _is_positive(known: _Evidence, rules: MergeRules) -> bool:
    if rules.official:
        return _is_verified(known, rules) or _is_rated_match(known, rules)
    if known.answer is not None:
        return _is_verified(known, rules)
    if known.score is not None:
        return _is_rated_match(known, rules)
    return known.original and rules.with_originals


def _positive(known: _Evidence, rules: MergeRules, found_by: Collection[str]) -> Positive:
    verified = _is_verified(known, rules)
    sources = {
        PositiveSource.JUDGEMENT: verified,
        PositiveSource.CXC: _is_rated_match(known, rules),
        PositiveSource.ORIGINAL: known.original,
    }
    return Positive(
        pair=known.pair,
        label=known.answer.label if known.answer and verified else None,
        sources=tuple(source for source, speaks in sources.items() if speaks),
        annotators=tuple(sorted(set(found_by))),
        n_judgements=known.answer.n_judgements if known.answer else 0,
        probability=known.answer.probability if known.answer else None,
    )


def _disagrees(known: _Evidence, rules: MergeRules) -> bool:
    votes = set()
    if known.answer is not None:
        votes.add(known.answer.label.is_positive)
    if known.score is not None:
        votes.add(_is_rated_match(known, rules))
    if known.original:
        votes.add(True)
    return len(votes) > 1


def _conflict(known: _Evidence, rules: MergeRules, kept: bool) -> Conflict:
    if known.answer is not None and not (rules.official and kept and not _is_verified(known, rules)):
        decided_by = PositiveSource.JUDGEMENT
    else:
        decided_by = PositiveSource.CXC
    return Conflict(
        pair=known.pair,
        label=known.answer.label if known.answer else None,
        n_judgements=known.answer.n_judgements if known.answer else 0,
        cxc_score=known.score,
        original=known.original,
        decided_by=decided_by,
        kept=kept,
    )


def _official_queries(
    evidence: Iterable[_Evidence], rules: MergeRules, exclusions: Exclusions
) -> dict[Direction, frozenset[int]]:
    """Queries with a verified and with a CxC positive, both looked for before exclusion lists apply."""
    verified: dict[Direction, set[int]] = {d: set() for d in Direction}
    rated: dict[Direction, set[int]] = {d: set() for d in Direction}
    for known in evidence:
        for has, queries in ((_is_verified, verified), (_is_rated_match, rated)):
            if has(known, rules):
                queries[Direction.I2T].add(known.pair.image_id)
                queries[Direction.T2I].add(known.pair.caption_id)
    return {
        Direction.I2T: frozenset(verified[Direction.I2T] & rated[Direction.I2T] - exclusions.images),
        Direction.T2I: frozenset(verified[Direction.T2I] & rated[Direction.T2I] - exclusions.captions),
    }
