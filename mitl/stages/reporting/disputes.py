"""Pairs worth a look: where workers, the original annotation, CxC, the machines or the truth contradict people."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from mitl.analysis.report.inputs import Dispute, DisputedPair, DisputeKind
from mitl.positives.rules import CXC_POSITIVE
from mitl.records import Pair
from mitl.stages.analysing.pair_facts import PairFacts, wrong_parts

SHOWN = 6
"""Pairs of each kind."""

Weight = tuple[float, ...]
"""The smaller, the more a pair is worth a look."""


def disputes(
    facts: PairFacts,
    annotators: Collection[str],
    *,
    true: Collection[Pair] | None = None,
    cxc_threshold: float = CXC_POSITIVE,
) -> tuple[Dispute, ...]:
    """The disagreements that there could have been, those without a single case too.

    Args:
        true: the pairs that are a match in truth; None where nobody knows.
    """
    found = [_workers(facts), _originals(facts)]
    if facts.ratings:
        found.append(_cxc(facts, cxc_threshold))
    if len(annotators) > 1:
        found.append(_machines(facts, annotators))
    found.append(_wrong(facts))
    if true is not None:
        found.append(_truth(facts, true))
    return tuple(dispute for dispute in found if dispute.of)


def _workers(facts: PairFacts) -> Dispute:
    """Answers on both sides of the scale; those furthest apart first, then those with most answers."""
    several = [pair for pair, answer in facts.answers.items() if answer.n_judgements > 1]

    def weight(pair: Pair) -> Weight | None:
        given = facts.given(pair)
        if given[0].is_positive == given[-1].is_positive:
            return None
        return (given[0].code - given[-1].code, -len(given))

    return _dispute(facts, DisputeKind.WORKERS, several, weight)


def _originals(facts: PairFacts) -> Dispute:
    """A plain no first, then what most annotators had found."""
    asked = [pair for pair in facts.answers if facts.is_original(pair)]

    def weight(pair: Pair) -> Weight | None:
        if not facts.is_refused(pair):
            return None
        return (-facts.answers[pair].label.code, -len(facts.found_by(pair)))

    return _dispute(facts, DisputeKind.ORIGINAL, asked, weight)


def _cxc(facts: PairFacts, threshold: float) -> Dispute:
    """The rating furthest from the threshold first."""
    rated = [pair for pair in facts.answers if pair in facts.ratings]

    def weight(pair: Pair) -> Weight | None:
        score = facts.ratings[pair]
        if (score >= threshold) == facts.answers[pair].label.is_positive:
            return None
        return (-abs(score - threshold),)

    return _dispute(facts, DisputeKind.CXC, rated, weight)


def _machines(facts: PairFacts, annotators: Collection[str]) -> Dispute:
    """The best mean rank first."""
    agreed = [pair for pair in facts.answers if len(facts.found_by(pair)) == len(annotators)]

    def weight(pair: Pair) -> Weight | None:
        if not facts.is_refused(pair):
            return None
        return (sum(rank for _, rank in facts.found_by(pair)), -facts.answers[pair].label.code)

    return _dispute(facts, DisputeKind.MACHINES, agreed, weight)


def _wrong(facts: PairFacts) -> Dispute:
    """A plain yes first, then those with most parts wrong."""
    matches = [pair for pair, answer in facts.answers.items() if answer.label.is_positive]

    def weight(pair: Pair) -> Weight | None:
        parts = wrong_parts(*facts.reasons(pair))
        return (facts.answers[pair].label.code, -len(parts)) if parts else None

    asked = any(any(facts.reasons(pair)) for pair in facts.answers)
    return _dispute(facts, DisputeKind.WRONG, matches if asked else (), weight)


def _truth(facts: PairFacts, true: Collection[Pair]) -> Dispute:
    """Answers that are furthest from the truth first."""

    def weight(pair: Pair) -> Weight | None:
        answer = facts.answers[pair].label
        if answer.is_positive == (pair in true):
            return None
        truth = facts.truth(pair)
        return (-abs(answer.code - truth.code) if truth else 0,)

    return _dispute(facts, DisputeKind.TRUTH, facts.answers, weight)


def _dispute(
    facts: PairFacts, kind: DisputeKind, pairs: Collection[Pair], weight: Callable[[Pair], Weight | None]
) -> Dispute:
    weighed = [(found, pair) for pair in pairs if (found := weight(pair)) is not None]
    chosen = _varied((pair for _, pair in sorted(weighed)), SHOWN)
    return Dispute(kind, len(weighed), len(pairs), tuple(_disputed(facts, pair) for pair in chosen))


def _varied(ranked: Iterable[Pair], count: int) -> list[Pair]:
    """The first so many of which no two share an image or a caption; filled up with others in their order."""
    chosen: list[Pair] = []
    others: list[Pair] = []
    images: set[int] = set()
    captions: set[int] = set()
    for pair in ranked:
        if pair.image_id in images or pair.caption_id in captions:
            others.append(pair)
            continue
        chosen.append(pair)
        images.add(pair.image_id)
        captions.add(pair.caption_id)
        if len(chosen) == count:
            break
    return [*chosen, *others[: count - len(chosen)]]


def _disputed(facts: PairFacts, pair: Pair) -> DisputedPair:
    image, caption = facts.images[pair.image_id], facts.captions[pair.caption_id]
    shortcomings, concepts = facts.reasons(pair)
    return DisputedPair(
        image_id=image.external_id,
        caption_id=caption.external_id,
        text=caption.text,
        image=image.path,
        answers=facts.given(pair),
        label=facts.answers[pair].label,
        original=facts.is_original(pair),
        cxc_score=facts.ratings.get(pair),
        found_by=facts.found_by(pair),
        shortcomings=shortcomings,
        concepts=concepts,
        truth=facts.truth(pair),
    )
