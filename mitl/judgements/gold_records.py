"""How each worker has done on gold controls over all pages, and which controls are not to be trusted."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from mitl.records import GoldControl

MIN_GOLDS = 4
"""Fewer answered controls than this say nothing about a worker, good or bad."""

GOOD_MEAN = Fraction(9, 10)
"""Posterior mean from which a record is good: 4 of 4, 9 of 9, 13 of 14."""

CAREFUL_FAILS = 0.1
"""Share of the controls that a careful worker may well fail: slips, and controls that are themselves wrong. Of random
pairs outside all rankings, a small and dense data set holds one match in ten."""

BAD_CHANCE = 0.05
"""A record is bad where a careful worker would fail so many controls less often than this: see `GoldRecord.is_bad`."""

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
        """At least four controls answered, and more failed than a careful worker's one in ten explains.

        That is an exact binomial test at 5 %, the same as that Clopper and Pearson's 90 % interval of the failures
        lies above one in ten: 3 of 4 to 8, 4 of 10, 5 of 16, 8 of 40. A bad record sets aside all pages that passed,
        so it must not rest on controls that are wrong. Where 3 % of the positive and 10 % of the negative ones are, a
        careful worker (99 % of the right ones pass) is called bad after 2, 3, 4, 5 and 10 pages in 0.2, 0.8, 2.0, 0.5
        and 1.8 % of cases; a posterior mean under 0.75 did so in 3.3, 7.8, 13.2, 4.0 and 1.8 %. The price: a worker
        who answers at random is known after 2, 3, 5 and 10 pages in 31, 66, 83 and 99 % of cases rather than 69, 89,
        94 and 99 %; until then a quarter of their pages pass by luck, and each page that fails waits for a person.
        """
        return self.golds >= MIN_GOLDS and self.golds - self.passes >= _failures_of_bad(self.golds)

    @property
    def text(self) -> str:
        """The record in words."""
        return f"passed {self.passes} of {self.golds} gold controls"


@functools.cache
def _failures_of_bad(golds: int) -> int:
    """The least number of failures that a careful worker reaches with a chance under ``BAD_CHANCE``."""
    failures, chance = 0, 1.0
    while chance >= BAD_CHANCE:
        ways = math.lgamma(golds + 1) - math.lgamma(failures + 1) - math.lgamma(golds - failures + 1)
        chance -= math.exp(
            ways + failures * math.log(CAREFUL_FAILS) + (golds - failures) * math.log1p(-CAREFUL_FAILS)
        )
        failures += 1
    return failures


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
