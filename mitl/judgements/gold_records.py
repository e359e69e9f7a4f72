"""How each worker has done on gold controls, which controls are not to be trusted, and what follows for a page.

Nothing here rejects work: a page passes by rule or goes to a person.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from mitl.core.arrays import Ints, coded, unpack_pairs
from mitl.records import Decision, Finding, GoldControl, Judgement, Outcome, Pair, PairRole
from mitl.records.frames import LABELS, NONE, ROLES, Columns, Flags, is_gold
from mitl.records.questions import GoldRule

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


@dataclass(frozen=True, slots=True)
class GoldState:
    """What the answers on gold controls say at this moment."""

    records: Mapping[str, GoldRecord]
    """By the worker's id on the requester API; empty records of those whose every control was withdrawn or skipped."""
    withdrawn: frozenset[GoldControl]
    by_role: Mapping[PairRole, GoldRecord] = field(default_factory=dict)
    """Over all workers; withdrawn controls count for nothing."""

    def record(self, worker: str) -> GoldRecord:
        """A worker's record; empty for one who has met no control."""
        return self.records.get(worker, GoldRecord())


def gold_state(
    answers: Columns,
    rule: GoldRule,
    *,
    names: Mapping[int, str] | None = None,
    pairs_of: Callable[[Ints], Sequence[Pair]] = unpack_pairs,
) -> GoldState:
    """Each worker's record over the controls that are still trusted, and the controls that are not.

    Every answer on a control counts, usable or not; unanswered controls do not count.

    Args:
        answers: worker, pair, role and label of each; see `mitl.records.frames`.
        names: worker → id on the requester API; None where a frame holds the ids, as categories.
        pairs_of: the pairs that values of the column ``pair`` stand for.
    """
    met = is_gold(answers)
    given: Any = answers["worker"]
    if names is None:
        names, given = dict(enumerate(given.cat.categories)), given.cat.codes
    workers, worker = coded(np.asarray(given)[met])
    pairs, pair = coded(np.asarray(answers["pair"])[met])
    role, label = (np.asarray(answers[name])[met] for name in ("role", "label"))
    passes = np.array([[kind.is_gold and label in rule.passes(kind) for label in LABELS] for kind in ROLES])
    answered = label != NONE
    passed = passes[role, label]
    controls, control = coded(pair * len(ROLES) + role)
    withdrawn = withdrawn_golds(
        worker[answered], control[answered], passed[answered], n_controls=len(controls)
    )
    trusted = answered & ~withdrawn[control]
    golds = np.bincount(worker[trusted], minlength=len(workers)).tolist()
    right = np.bincount(worker[trusted & passed], minlength=len(workers)).tolist()
    ids = [names[row] for row in workers.tolist()]
    gone = controls[withdrawn]
    return GoldState(
        dict(sorted((id_, GoldRecord(*record)) for id_, *record in zip(ids, right, golds, strict=True))),
        frozenset(
            GoldControl(of, ROLES[code])
            for of, code in zip(
                pairs_of(pairs[gone // len(ROLES)]), (gone % len(ROLES)).tolist(), strict=True
            )
        ),
        {
            kind: GoldRecord(int((trusted & passed)[role == code].sum()), int(trusted[role == code].sum()))
            for code, kind in enumerate(ROLES)
            if kind.is_gold
        },
    )


def withdrawn_golds(worker: Ints, control: Ints, passed: Flags, *, n_controls: int) -> Flags:
    """(controls,) those that workers of good record fail, and which therefore say nothing about anyone.

    A control is withdrawn when at least two different workers of good record failed it and they are at
    least half of the workers of good record who answered it. A worker's record is computed without the
    control on trial and without those already withdrawn. Rounds follow until none is added; within a round
    all controls are tried against the same records, so the order of the answers does not matter.

    One failure is not enough: with 3 % of the originals wrong and good workers failing 3 % of the right
    ones, a control failed by one of one good worker is wrong about every second time, by two of two 97
    times in 100.

    Args:
        worker, control: (n,) codes from 0, a row for each control that was answered.
        passed: (n,) whether the answer was an expected one.
    """
    n_workers = int(worker.max(initial=-1)) + 1
    # Few controls fail more than once, and no other can be withdrawn.
    doubtful = np.bincount(control[~passed], minlength=n_controls) >= MIN_FAILURES_TO_WITHDRAW
    withdrawn = np.zeros(n_controls, np.bool_)
    while True:
        counting = ~withdrawn[control]
        golds = np.bincount(worker[counting], minlength=n_workers)
        passes = np.bincount(worker[counting & passed], minlength=n_workers)
        tried = counting & doubtful[control]
        met, place = coded(control[tried] * n_workers + worker[tried])
        own_golds = np.bincount(place, minlength=len(met))
        own_passes = np.bincount(place[passed[tried]], minlength=len(met))
        who, which = met % max(n_workers, 1), met // max(n_workers, 1)
        good = _is_good(passes[who] - own_passes, golds[who] - own_golds)
        n_good = np.bincount(which[good], minlength=n_controls)
        n_failed = np.bincount(which[good & (own_passes < own_golds)], minlength=n_controls)
        added = (n_failed >= MIN_FAILURES_TO_WITHDRAW) & (2 * n_failed >= n_good)
        if not added.any():
            return withdrawn
        withdrawn |= added


def _is_good(passes: Ints, golds: Ints) -> Flags:
    """As ``GoldRecord.is_good``, in whole numbers."""
    mean_is_good = GOOD_MEAN.denominator * (2 * passes + 1) >= GOOD_MEAN.numerator * 2 * (golds + 1)
    return np.asarray((golds >= MIN_GOLDS) & mean_is_good)


GOLD_POSITIVE_FAILED = "gold_positive_failed"
GOLD_NEGATIVE_FAILED = "gold_negative_failed"
GOLD_MISSING = "gold_missing"
BAD_RECORD = "bad_record"
EXCLUDED_WORKER = "excluded_worker"

_FAILED = {PairRole.GOLD_POSITIVE: GOLD_POSITIVE_FAILED, PairRole.GOLD_NEGATIVE: GOLD_NEGATIVE_FAILED}


@dataclass(frozen=True, slots=True)
class GoldCheck:
    """How the gold controls of one assignment were answered, each list in order of (pair, role)."""

    passed: tuple[GoldControl, ...] = ()
    failed: tuple[GoldControl, ...] = ()
    unanswered: tuple[GoldControl, ...] = ()
    """Skipped, or the image did not load: neither passed nor failed."""
    withdrawn: tuple[GoldControl, ...] = ()
    """Controls that are no longer trusted; what was answered there is forgiven."""

    def has(self, role: PairRole) -> bool:
        """Whether a control of this role was answered, or was withdrawn and so cannot be asked for."""
        return any(gold.role is role for gold in (*self.passed, *self.failed, *self.withdrawn))


@dataclass(frozen=True, slots=True)
class GoldVerdict:
    """What follows for the assignment: ``Decision.PASS``, or ``Decision.QUEUED`` with the reasons."""

    decision: Decision
    findings: tuple[Finding, ...] = ()


def check_assignment(
    judgements: Iterable[Judgement], rule: GoldRule, withdrawn: Collection[GoldControl] = ()
) -> GoldCheck:
    """How the gold controls among one assignment's judgements were answered; other roles are passed over."""
    sides: dict[str, list[GoldControl]] = {"passed": [], "failed": [], "unanswered": [], "withdrawn": []}
    for judgement in judgements:
        if not judgement.role.is_gold:
            continue
        gold = GoldControl(judgement.pair, judgement.role)
        if gold in withdrawn:
            sides["withdrawn"].append(gold)
            continue
        passed = rule.passed(judgement.role, judgement.label)
        sides["unanswered" if passed is None else "passed" if passed else "failed"].append(gold)
    ordered = {side: tuple(sorted(golds, key=_place)) for side, golds in sides.items()}
    return GoldCheck(**ordered)


def gold_findings(check: GoldCheck) -> list[Finding]:
    """Why a page does not pass by its own controls: one failed, or a role has no answered one (skipped, image failed,
    or none on the page)."""
    findings = [
        Finding(_FAILED[gold.role], f"image {gold.pair.image_id}, caption {gold.pair.caption_id}")
        for gold in check.failed
    ]
    for role in (PairRole.GOLD_POSITIVE, PairRole.GOLD_NEGATIVE):
        if not check.has(role):
            findings.append(Finding(GOLD_MISSING, f"no answered {role.value}"))
    return findings


def verdict(
    findings: Iterable[Finding], record: GoldRecord | None = None, *, excluded: bool = False
) -> GoldVerdict:
    """Pass where nothing was found, the worker's record is not bad and the worker is not excluded; else queue for a
    person with every reason.

    Args:
        record: the worker's record; None applies the page's own controls alone.
    """
    reasons = [*findings]
    if record is not None and record.is_bad:
        reasons.append(Finding(BAD_RECORD, record.text))
    if excluded:
        reasons.append(Finding(EXCLUDED_WORKER))
    return GoldVerdict(Decision.QUEUED if reasons else Decision.PASS, tuple(reasons))


def _place(gold: GoldControl) -> tuple[int, int, str]:
    return gold.pair.image_id, gold.pair.caption_id, gold.role.value


def keeps_page(decision: Decision, record: GoldRecord | None = None, *, excluded: bool = False) -> bool:
    """Whether the answers of a page are kept: by what was decided about it, and from a trusted worker.

    Args:
        record: the worker's gold record; None leaves it out, which is the rule of the page's own controls
            alone. A bad record sets aside pages that passed by rule. A page that a person looked at and
            approved stays.
        excluded: whether the worker is excluded, which sets aside all of their pages.
    """
    if not decision.keeps_answers or excluded:
        return False
    return decision is not Decision.PASS or record is None or not record.is_bad


def is_usable(
    judgement: Judgement, decision: Decision, record: GoldRecord | None = None, *, excluded: bool = False
) -> bool:
    """Whether a judgement may count: answered, on a page whose answers are kept.

    Args:
        decision, record, excluded: as `keeps_page` takes them.
    """
    is_answered = judgement.outcome is Outcome.ANSWERED and judgement.label is not None
    return is_answered and keeps_page(decision, record, excluded=excluded)
