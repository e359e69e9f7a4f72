"""How each worker has done on gold controls over all pages, and which controls are not to be trusted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from mitl.records import GoldControl

MIN_GOLDS = 4
"""Fewer answered controls than this say nothing about a worker, good or bad."""

GOOD_MEAN = Fraction(9, 10)
"""Posterior mean from which a record is good: 4 of 4, 9 of 9, 13 of 14."""

BAD_MEAN = Fraction(3, 4)
"""Posterior mean below which a record is bad if at least two controls failed: see `GoldRecord.is_bad`."""

MIN_FAILURES_TO_WITHDRAW = 2


@dataclass(frozen=True, slots=True)
class GoldAnswer:
    """How one worker did on one gold control."""

    worker: str
    gold: GoldControl
    passed: bool | None
    """As :meth:`GoldRule.passed`; None where it was not answered."""


@dataclass(frozen=True, slots=True)
class GoldRecord:
    """How many of the answered gold controls a worker passed.

    The pass rate has Jeffreys' prior Beta(1/2, 1/2), so its posterior mean is (passes + 1/2) / (golds + 1).
    The
    comparisons are made on fractions: 4 of 4 is exactly 0.9.
    """

    passes: int = 0
    golds: int = 0

    @property
    def mean(self) -> Fraction:
        """Posterior mean of the pass rate."""
        return Fraction(2 * self.passes + 1, 2 * (self.golds + 1))

    @property
    def is_good(self) -> bool:
        """At least four controls answered and a posterior mean of 0.9 or more."""
        return self.golds >= MIN_GOLDS and self.mean >= GOOD_MEAN

    @property
    def is_bad(self) -> bool:
        """At least four controls answered, two or more failed, and a posterior mean under 0.75.

        Never on one failure. With one positive and one negative control a page, the chance to be called bad
        after 2, 3, 5 and 10 pages is 69, 89, 94 and 99 % for a worker who answers at random (half of the
        controls pass), 44, 73, 78 and 92 % for one who says yes to nearly everything (98 % of the positive
        controls pass, 35 % of the negative), 3, 8, 4 and 2 % for a hasty one (94 and 90 % pass), and under
        0.4 % for a careful one (99 %). So of the quarter of a random worker's pages that pass by luck, 3.6
        % of all are left after five pages rather than 25 %. Asking for a posterior probability of 0.9 that
        the rate lies under 0.8 instead would call 66 % of the random workers bad after three pages and 83 %
        after five.
        """
        return self.golds >= MIN_GOLDS and self.golds - self.passes >= 2 and self.mean < BAD_MEAN

    @property
    def text(self) -> str:
        """The record in words."""
        return f"passed {self.passes} of {self.golds} gold controls"


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
