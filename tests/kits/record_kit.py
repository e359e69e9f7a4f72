"""Rules written for one record at a time, and what merging decides as records: the columns are compared with them."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from mitl.core.arrays import pack_each, pack_ids, unpack_pairs
from mitl.db.store.judgements import StoredJudgement
from mitl.judgements.conduct import Agreement, AnswerRun
from mitl.judgements.gold_records import MIN_FAILURES_TO_WITHDRAW, GoldRecord, GoldState
from mitl.positives import merging
from mitl.positives.exclusions import Exclusions
from mitl.positives.merging import MergeRules
from mitl.positives.pair_answers import PairAnswer, judgement_frame, pair_answers
from mitl.positives.summary import SPEAKS
from mitl.records import (
    Direction,
    GoldControl,
    Judgement,
    Label,
    Outcome,
    Pair,
    PairRole,
    PositiveSource,
    Proposal,
)
from mitl.records.frames import LABELS, MACHINE_LABELS, NONE, PROPOSALS, frame
from mitl.records.questions import GoldRule


@dataclass(frozen=True, slots=True)
class GoldAnswer:
    """How one worker did on one gold control."""

    worker: str
    gold: GoldControl
    passed: bool | None
    """As :meth:`GoldRule.passed`; None where it was not answered."""


def gold_records(
    answers: Iterable[GoldAnswer], withdrawn: Collection[GoldControl] = ()
) -> dict[str, GoldRecord]:
    """Each worker's record over the controls that are still trusted; unanswered controls do not count.

    A worker whose every control was withdrawn or unanswered has an empty record.
    """
    passes: dict[str, int] = defaultdict(int)
    golds: dict[str, int] = {}
    for answer in answers:
        golds.setdefault(answer.worker, 0)
        if answer.passed is None or (withdrawn and answer.gold in withdrawn):
            continue
        golds[answer.worker] += 1
        passes[answer.worker] += answer.passed
    return {worker: GoldRecord(passes[worker], golds[worker]) for worker in sorted(golds)}


def withdrawn_golds(answers: Iterable[GoldAnswer]) -> frozenset[GoldControl]:
    """The controls that workers of good record fail, and which therefore say nothing about anyone.

    A control is withdrawn when at least two different workers of good record failed it and they are at
    least half of the workers of good record who answered it. A worker's record is computed without the
    control on trial and without those already withdrawn. Rounds follow until none is added; within a round
    all controls are tried against the same records, so the order of the answers does not matter.

    One failure is not enough: with 3 % of the originals wrong and good workers failing 3 % of the right
    ones, a control failed by one of one good worker is wrong about every second time, by two of two 97
    times in 100.
    """
    kept = [answer for answer in answers if answer.passed is not None]
    by_gold: dict[GoldControl, list[GoldAnswer]] = defaultdict(list)
    for answer in kept:
        by_gold[answer.gold].append(answer)
    # Few controls fail more than once, and no other can be withdrawn.
    doubtful = {gold: met for gold, met in by_gold.items() if _failures(met) >= MIN_FAILURES_TO_WITHDRAW}
    withdrawn: frozenset[GoldControl] = frozenset()
    while doubtful:
        records = gold_records(kept, withdrawn)
        added = {
            gold
            for gold, met in doubtful.items()
            if gold not in withdrawn and _is_failed_by_good_workers(met, records)
        }
        if not added:
            break
        withdrawn |= added
    return withdrawn


def _failures(met: Iterable[GoldAnswer]) -> int:
    return sum(not answer.passed for answer in met)


def _is_failed_by_good_workers(met: Iterable[GoldAnswer], records: Mapping[str, GoldRecord]) -> bool:
    """``met`` are all answers on one control that still counts in ``records``."""
    own: dict[str, list[bool]] = defaultdict(list)
    for answer in met:
        own[answer.worker].append(bool(answer.passed))
    good, failed = 0, 0
    for worker, passes in own.items():
        record = records[worker]
        if GoldRecord(record.passes - sum(passes), record.golds - len(passes)).is_good:
            good += 1
            failed += not all(passes)
    return failed >= MIN_FAILURES_TO_WITHDRAW and 2 * failed >= good


def gold_state(judgements: Sequence[StoredJudgement], rule: GoldRule) -> GoldState:
    """Records and withdrawn controls over all stored answers of one environment."""
    records = (row.record for row in judgements if row.record.role.is_gold)
    answers = [
        GoldAnswer(row.worker, GoldControl(row.pair, row.role), rule.passed(row.role, row.label))
        for row in records
    ]
    withdrawn = withdrawn_golds(answers)
    trusted = [one for one in answers if one.passed is not None and one.gold not in withdrawn]
    by_role = {
        role: GoldRecord(sum(bool(one.passed) for one in of_role), len(of_role))
        for role in PairRole
        if role.is_gold
        for of_role in [[one for one in trusted if one.gold.role is role]]
    }
    return GoldState(gold_records(answers, withdrawn), withdrawn, by_role)


def longest_run(pages: Iterable[Sequence[Label]]) -> AnswerRun | None:
    """The longest row of one answer on any of these pages; the earliest of equals, None without answers."""
    best: AnswerRun | None = None
    for labels in pages:
        length, before = 0, None
        for label in labels:
            length = length + 1 if label is before else 1
            before = label
            if best is None or length > best.length:
                best = AnswerRun(length, label)
    return best


def entropy_bits(labels: Iterable[Label]) -> float | None:
    """Shannon's entropy of the answers, 0 (always the same) to 2 (all four alike); None without answers."""
    counts = Counter(labels)
    total = counts.total()
    if not total:
        return None
    return max(0.0, -sum(n / total * math.log2(n / total) for n in counts.values()))


def median_seconds(active_ms: Iterable[int | None]) -> float | None:
    """Median active seconds on one pair; pairs whose time was not measured are left out."""
    times = [ms / 1000 for ms in active_ms if ms]
    return statistics.median(times) if times else None


def agreements(
    answers: Iterable[tuple[str, Pair, Label]], distrusted: Collection[str] = ()
) -> dict[str, Agreement]:
    """Each worker against every other who answered the same pair; workers without such a pair are left out.

    Args:
        answers: (worker, pair, label); a worker's first answer on a pair counts.
        distrusted: workers whom nobody is compared with; they themselves are compared.
    """
    by_pair: dict[Pair, dict[str, bool]] = defaultdict(dict)
    for worker, pair, label in answers:
        by_pair[pair].setdefault(worker, label.is_positive)
    same: dict[str, int] = defaultdict(int)
    total: dict[str, int] = defaultdict(int)
    for given in by_pair.values():
        for worker, side in given.items():
            for other, their in given.items():
                if other != worker and other not in distrusted:
                    total[worker] += 1
                    same[worker] += side == their
    return {worker: Agreement(same[worker], count) for worker, count in sorted(total.items())}


def consistency(answers: Iterable[tuple[str, Pair, Label]]) -> dict[str, Agreement]:
    """Each worker against their own first answer, where a pair came to them again; others are left out.

    Args:
        answers: (worker, pair, label), earlier before later.
    """
    first: dict[tuple[str, Pair], bool] = {}
    same: dict[str, int] = defaultdict(int)
    total: dict[str, int] = defaultdict(int)
    for worker, pair, label in answers:
        if (worker, pair) not in first:
            first[worker, pair] = label.is_positive
            continue
        total[worker] += 1
        same[worker] += label.is_positive == first[worker, pair]
    return {worker: Agreement(same[worker], count) for worker, count in sorted(total.items())}


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

    Candidates, repeats and overlaps are judgements of their pair alike; gold controls and places of audits never are.
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
        and judgement.role.is_asked
        and judgement.outcome is Outcome.ANSWERED
        and judgement.label is not None
    )


def _answer(labels: list[Label], rule: Callable[[Sequence[Label]], Label]) -> PairAnswer:
    positive = sum(label.is_positive for label in labels)
    return PairAnswer(rule(labels), len(labels), positive / len(labels))


@dataclass(frozen=True, slots=True)
class Negative:
    """A pair that people looked at and called no match."""

    pair: Pair
    label: Label
    """``weak_no`` or ``no``."""
    annotators: tuple[str, ...] = ()
    n_judgements: int = 0
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class Positive:
    """A pair that counts as a match, with everything that speaks for it."""

    pair: Pair
    label: Label | None
    """The aggregated answer of people; None where no judgement speaks for it."""
    sources: tuple[PositiveSource, ...]
    annotators: tuple[str, ...] = ()
    n_judgements: int = 0
    probability: float | None = None


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
    machine: Mapping[Pair, Label] = field(default_factory=dict)
    """Labels that a machine gave."""


def machine_frame(labels: Mapping[Pair, Label]) -> pd.DataFrame:
    """Machine labels as the database gives them, in the order of the mapping."""
    return frame(
        MACHINE_LABELS,
        {
            "pair": pack_each(labels),
            "label": [LABELS.index(label) for label in labels.values()],
            "probability": [0.97 if label.is_positive else 0.03 for label in labels.values()],
            "stratum": ["all"] * len(labels),
        },
    )


def merge(data: MergeInput, rules: MergeRules | None = None) -> Merged:
    """What the columns decide, as records."""
    rules = rules or MergeRules()
    answers = pair_answers(judgement_frame(data.judgements), rules, data.withdrawn).pairs
    ratings = list(data.ratings)
    scores = np.array([score for _, score in ratings], np.float64)
    rated = pack_each(pair for pair, _ in ratings)
    evidence = merging.gather(answers, rated, scores, pack_each(data.originals), machine_frame(data.machine))
    found = merging.merge(evidence, rules, data.exclusions)
    rows = list(zip(unpack_pairs(found.pairs["pair"].to_numpy()), found.pairs.itertuples(), strict=True))

    def finders(pair: Pair) -> tuple[str, ...]:
        return tuple(sorted(set(data.found_by.get(pair, ()))))

    by_source = list(SPEAKS.items())
    return Merged(
        positives=tuple(
            Positive(
                pair=pair,
                label=LABELS[row.label] if row.verified else None,
                sources=tuple(source for source, name in by_source if getattr(row, name)),
                annotators=finders(pair),
                n_judgements=row.n_judgements,
                probability=row.probability if row.n_judgements else None,
            )
            for pair, row in rows
            if row.kept
        ),
        conflicts=tuple(
            Conflict(
                pair=pair,
                label=None if row.label == NONE else LABELS[row.label],
                n_judgements=row.n_judgements,
                cxc_score=None if math.isnan(row.score) else row.score,
                original=row.original,
                decided_by=merging.SOURCES[row.decided_by],
                kept=row.kept,
            )
            for pair, row in rows
            if row.conflict
        ),
        excluded=tuple(unpack_pairs(found.where("excluded"))),
        negatives=tuple(
            Negative(
                pair,
                LABELS[row.machine if row.label == NONE else row.label],
                finders(pair),
                row.n_judgements,
                row.probability if row.n_judgements else None,
            )
            for pair, row in rows
            if row.negative
        ),
        query_filter=found.query_filter,
    )


def merge_one(
    labels: Sequence[Label] = (),
    score: float | None = None,
    original: bool = False,
    rules: MergeRules | None = None,
    **more: Any,
) -> Merged:
    """Merge what is known of the pair P alone."""
    data = MergeInput(
        [Judgement(P, f"A{n}", label) for n, label in enumerate(labels)],
        [] if score is None else [(P, score)],
        [P] if original else [],
        **more,
    )
    return merge(data, rules)


P = Pair(1, 2)
PAIRS = st.builds(Pair, st.integers(0, 3), st.integers(0, 3))
RATINGS = st.lists(st.tuples(PAIRS, st.sampled_from([0.0, 2.9, 3.0, 5.0])), max_size=6)
RULES = st.sampled_from(
    [MergeRules(), MergeRules(with_originals=False), MergeRules(strict=True), MergeRules(official=True)]
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


def proposal_frame(records: Iterable[Proposal]) -> pd.DataFrame:
    """Proposals as the database gives them."""
    rows = list(records)
    ids = np.array([(row.pair.image_id, row.pair.caption_id) for row in rows], np.int64).reshape(-1, 2)
    return in_order(
        frame(
            PROPOSALS,
            {
                "pair": pack_ids(ids[:, 0], ids[:, 1]),
                "annotator": pd.Categorical(
                    [row.annotator for row in rows],
                    pd.Index(sorted({row.annotator for row in rows}), dtype=object),
                ),
                "direction": [list(Direction).index(row.direction) for row in rows],
                "rank": [row.rank for row in rows],
                "similarity": [row.similarity for row in rows],
            },
        )
    )


def in_order(proposals: pd.DataFrame) -> pd.DataFrame:
    """By pair, annotator's name, direction and rank, as stored proposals stand."""
    names = proposals["annotator"].cat.categories
    known = proposals.assign(annotator=proposals["annotator"].cat.reorder_categories(sorted(names)))
    keys = (
        known["similarity"],
        known["rank"],
        known["direction"],
        known["annotator"].cat.codes,
        known["pair"],
    )
    return known.iloc[np.lexsort(keys)].reset_index(drop=True)
