"""A certificate: how complete and how right a release is at least, by an audit that nothing else has read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from mitl.audits.bounds import (
    SHARES,
    AuditEvidence,
    Precision,
    RateSource,
    Recall,
    precision_lower,
    recall_lower,
)
from mitl.audits.evidence import AnswerGroup, Recheck, Sample, check_complete, check_sample, held_sizes
from mitl.audits.finite import Method
from mitl.audits.workers import FEWEST, overturned_share
from mitl.core.arrays import Ints
from mitl.core.formats import lower_bound, percent_at_most, upper_bound
from mitl.errors import AuditError
from mitl.records import AuditPurpose, several
from mitl.records.audits import ANSWERS_EACH, AuditDesign

MOST_OF_ONE = 0.5
"""Share of an audit's answers that one worker may have given; above it, it is that worker's opinion."""
FEW_WORKERS = 20
"""Below so many, three yeses from different workers are seldomer than a crowd of their opinions would give them."""
_ODD = 0.01
"""Probability below which overturned noes speak against the rate of false noes that was reckoned with."""

ASSUMPTIONS = (
    "a match is a pair that more than half of the workers who pass the controls would accept",
    "the workers are those who took part, each weighted with the pages that a random deal gave to them, and the "
    f"{ANSWERS_EACH} answers on a pair come from different ones, who do not know of each other",
    "the release was made without reading an answer of the audit, and was not chosen for its certificate: whoever "
    "keeps the best of k releases that one audit certifies takes each at a risk k times as small",
)
"""Of every bound, in words."""
MEASURED_ASSUMPTIONS = (
    "missing matches are refused no more often, on average, than the positives whose first answers give the rate of "
    "false noes",
    "wrong positives are accepted no more often, on average, than the pairs whose first answers give the rate of false "
    "yeses",
)
"""Further ones, which the bound with measured rates makes and the one with rates of one half does not."""


@dataclass(frozen=True, slots=True)
class StratumCount:
    """One stratum of the pool as the audit found it."""

    name: str
    size: int
    expected: float
    held: int
    """Positives of the release among its pairs."""
    audited: int
    """Pairs drawn from it."""
    audited_held: int
    """Of them positives of the release."""
    confirmed: int
    """Audited pairs outside the release that a first and one of two further workers called a match."""
    confirmed_by_all: int
    """Of them those that all three did."""
    refused: int
    """Audited positives of the release that fewer than two of three workers accepted."""
    refused_by_all: int
    """Of them those that nobody did."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How often workers err, by the first answers of one group."""

    errors: int
    answers: int
    upper: float
    """What was reckoned with, at its share of the risk; at most one half."""
    group: str
    """Whose answers these are."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Lower bounds of a release under one reckoning of the workers' errors, each by itself at the whole confidence."""

    recall: float
    missing: int
    """The most matches of the pool that the release lacks."""
    right: int
    """The fewest positives of the release that are matches, at the share of the risk that recall has for it."""
    precision: float
    wrong: int
    """The most positives of the release that are no matches, at the whole confidence, as ``precision``."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What an audit proves of a release."""

    purpose: AuditPurpose
    confidence: float
    method: Method
    shares: Mapping[str, float]
    pool: int
    """Pairs."""
    held: int
    """Positives of the release in the pool."""
    strata: tuple[StratumCount, ...]
    answers: int
    """Usable answers of the audit."""
    false_no: Rate
    false_yes: Rate
    measured: Bound
    """With the workers' rates of error as this audit bounds them."""
    worst: Bound
    """Whatever these rates are."""
    found: int
    """Confirmed pairs outside the release: found by the audit alone, and no part of its recall."""
    recheck: Recheck
    worker_share: float
    """Of the answers by the worker who gave most."""
    workers: int | None = None
    """Who answered; None where that is not told."""
    chao: tuple[float, float] | None = None
    """Positives that annotators found, and at least how many there are by Chao's estimate."""

    @property
    def at_most(self) -> float | None:
        """Recall by Chao's estimate, which is too high where items differ in how easily they are found.

        Positives that no annotator found, as originals may be, are part of the recall too.
        """
        return self.held / max(self.held, self.chao[1]) if self.chao and self.chao[1] else None

    @property
    def doubt(self) -> bool:
        """Whether two further workers overturned more first noes than the rate of false noes explains."""
        from scipy.stats import binom

        share = overturned_share(self.false_no.upper)
        return bool(binom.sf(self.recheck.overturned - 1, self.recheck.accepted, share) < _ODD)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What weakens the bounds, in words."""
        lines = []
        if self.workers is not None and self.workers < FEW_WORKERS:
            lines.append(
                f"{several(self.workers, 'worker')} answered; below {FEW_WORKERS} the chance that three of "
                "them agree is reckoned too high, so the bounds are somewhat optimistic"
            )
        if self.doubt:
            lines.append(
                "two further workers overturned more first noes than the rate of false noes explains, so missing "
                "matches seem harder than those that gave it; rely on the bounds that hold whatever the rates are"
            )
        return tuple(lines)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the bounds rest on, in words."""
        return (*ASSUMPTIONS, *MEASURED_ASSUMPTIONS)

    def as_json(self) -> dict[str, Any]:
        """As a release keeps it: plain numbers, texts, lists and objects."""
        return {
            **asdict(self),
            "purpose": self.purpose.value,
            "shares": dict(self.shares),
            "strata": [asdict(stratum) for stratum in self.strata],
            "chao": None if self.chao is None else {"found": self.chao[0], "at_least": self.chao[1]},
            "recall_at_most": self.at_most,
            "doubt": self.doubt,
            "assumptions": list(self.assumptions),
        }

    def lines(self) -> list[str]:
        """The certificate in words."""
        return [
            f"with {self.confidence:.12g} confidence recall is at least {lower_bound(self.measured.recall, 4)}: at "
            f"most {several(self.measured.missing, 'match', 'matches')} missing beside at least "
            f"{self.measured.right:,} right ones",
            f"with {self.confidence:.12g} confidence precision is at least "
            f"{lower_bound(self.measured.precision, 4)}: at most {self.measured.wrong:,} of "
            f"{several(self.held, 'positive')} wrong",
            f"whatever the workers' rates of error are, recall is at least {lower_bound(self.worst.recall, 4)} and "
            f"precision at least {lower_bound(self.worst.precision, 4)}",
            *(
                [
                    f"by Chao's estimate recall is at most {upper_bound(self.at_most, 4)}, both directions together"
                ]
                if self.at_most is not None
                else []
            ),
            *self._counts(),
            *(f"assumed: {line}" for line in ASSUMPTIONS),
            *(f"assumed with measured rates: {line}" for line in MEASURED_ASSUMPTIONS),
        ]

    def _counts(self) -> list[str]:
        audited = sum(stratum.audited for stratum in self.strata)
        check = self.recheck
        return [
            f"{several(audited, 'pair')} of {self.pool:,} audited in {several(len(self.strata), 'stratum', 'strata')}, "
            f"{several(self.answers, 'answer')}; bounds by the method {self.method!r}",
            f"false noes: {_rate(self.false_no)}",
            f"false yeses: {_rate(self.false_yes)}",
            f"{several(self.found, 'match', 'matches')} found by the audit alone, which count as missing",
            f"{several(check.noes, 'first no', 'first noes')} outside the release went to two further workers, who "
            f"overturned {check.overturned:,}",
            *(f"WARNING: {line}" for line in self.warnings),
        ]


@dataclass(frozen=True, slots=True)
class Look:
    """What a part of an audit proves already; the best of all looks at one release holds too, by the same risk."""

    place: int
    """Of the last pair that was read, in the order of drawing; all before it are answered."""
    recall: float
    precision: float
    worst_recall: float
    worst_precision: float


_METHOD: Method = "design"
"""Of the counts' bounds, fixed before the first answer; see `mitl.audits.finite`."""
_TOLD = RateSource.MEASURED, RateSource.WORST


def certify(
    audited: pd.DataFrame,
    design: AuditDesign,
    held: pd.DataFrame,
    labels: pd.DataFrame,
    *,
    workers: pd.Series[str] | None = None,
    chao: tuple[float, float] | None = None,
) -> Certificate:
    """Bound the recall and the precision of a release by a complete audit.

    Args:
        audited, held: frames ``AUDITED`` and ``HELD``, in any order.
        labels: ``pair`` and ``label``, what people had answered apart from the audit; pairs that nobody answered are
            left out.
        workers: who gave each of the audit's answers.
        chao: positives that annotators found, and Chao's estimate of how many there are at least.

    Raises:
        AuditError: answers are lacking, the sample or the release is not of this design, a stratum was not audited, one
            worker gave more than half of the answers, or there is no positive to speak of.
    """
    check_sample(design, audited)
    sizes = held_sizes(design, held)
    sample = Sample.of(audited, held, labels)
    check_complete(sample)
    shares_of = pd.Series(dtype=float) if workers is None else workers.value_counts(normalize=True)
    worker_share = float(shares_of.max()) if len(shares_of) else 0.0
    if worker_share > MOST_OF_ONE:
        raise AuditError(
            f"one worker gave {percent_at_most(worker_share)} of the audit's answers, so it would certify one opinion, "
            "and nobody is asked again: set max_hits_per_worker before you audit another pool, as after further queries"
        )
    if not sizes.sum():
        raise AuditError("the release holds no positive in the pool, so it has neither recall nor precision")
    evidence = sample.evidence(design, sizes, len(audited))
    risk, shares = 1 - design.confidence, design.shares or SHARES
    recall = {rates: recall_lower(evidence, risk, shares, method=_METHOD, rates=rates) for rates in _TOLD}
    precision = {
        rates: precision_lower(evidence, risk, shares, method=_METHOD, rates=rates) for rates in _TOLD
    }
    groups = sample.groups()
    measured = recall[RateSource.MEASURED]
    return Certificate(
        purpose=design.purpose,
        confidence=design.confidence,
        method=_METHOD,
        shares=shares,
        pool=design.size,
        held=int(sizes.sum()),
        strata=_strata(design, sizes, sample),
        answers=int((audited[["first", "second", "third"]].to_numpy() >= 0).sum()),
        false_no=_told(evidence.false_no, measured.false_no, groups["false_no"][0]),
        false_yes=_told(evidence.false_yes, measured.precision.false_yes, groups["false_yes"][0]),
        measured=_bound(evidence, measured, precision[RateSource.MEASURED]),
        worst=_bound(evidence, recall[RateSource.WORST], precision[RateSource.WORST]),
        found=int((sample.confirmed[0] & ~sample.held).sum()),
        recheck=sample.rechecked(),
        worker_share=worker_share,
        workers=None if workers is None else len(shares_of),
        chao=chao,
    )


def look(
    audited: pd.DataFrame,
    design: AuditDesign,
    held: pd.DataFrame,
    labels: pd.DataFrame,
    *,
    upto_place: int | None = None,
) -> Look:
    """The bounds by the pairs that stand, in the order of drawing, before the first one that lacks an answer.

    They hold at all looks at once, as long as the release stays the same; so does the best of them, and the certificate
    of the complete audit is another statement with a risk of its own.

    Args:
        upto_place: read no pair behind this place.

    Raises:
        AuditError: the sample or the release is not of this design.
    """
    check_sample(design, audited)
    sizes = held_sizes(design, held)
    sample = Sample.of(audited, held, labels)
    first = sample.prefix()
    if upto_place is not None:
        first = min(first, int((sample.place <= upto_place).sum()))
    evidence = sample.evidence(design, sizes, first)
    risk, shares = 1 - design.confidence, design.shares or SHARES
    worst = [
        bound(evidence, risk, shares, method="betting", rates=rates, anytime=True).lower
        for rates in _TOLD
        for bound in (recall_lower, precision_lower)
    ]
    recall, precision, worst_recall, worst_precision = (float(value) for value in worst)
    place = int(sample.place[first - 1]) if first else 0
    return Look(place, recall, precision, worst_recall, worst_precision)


def _strata(design: AuditDesign, sizes: Ints, sample: Sample) -> tuple[StratumCount, ...]:
    audited = {
        "audited": np.ones(len(sample.held), np.bool_),
        "audited_held": sample.held,
        "confirmed": sample.confirmed[0] & ~sample.held,
        "confirmed_by_all": sample.confirmed[1] & ~sample.held,
        "refused": sample.refused[0] & sample.held,
        "refused_by_all": sample.refused[1] & sample.held,
    }
    counts = {name: sample.by_stratum(flags, len(sizes)) for name, flags in audited.items()}
    return tuple(
        StratumCount(
            stratum.name,
            stratum.size,
            stratum.expected,
            int(sizes[place]),
            **{name: int(count[place]) for name, count in counts.items()},
        )
        for place, stratum in enumerate(design.strata)
    )


def _told(errors: Any, upper: Any, group: AnswerGroup) -> Rate:
    return Rate(int(errors.errors), int(errors.answers), float(upper), group.value)


def _bound(evidence: AuditEvidence, recall: Recall, precision: Precision) -> Bound:
    return Bound(
        recall=float(recall.lower),
        missing=int(recall.missing),
        right=int(evidence.held - recall.precision.wrong),
        precision=float(precision.lower),
        wrong=int(precision.wrong),
    )


def _rate(rate: Rate) -> str:
    if not rate.answers:
        return f"at most {upper_bound(rate.upper)}, since fewer than {FEWEST} fit pairs are in the sample"
    return (
        f"at most {upper_bound(rate.upper)}, by {rate.errors:,} of {several(rate.answers, 'answer')} on "
        f"{rate.group}"
    )
