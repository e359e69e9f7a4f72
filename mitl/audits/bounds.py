"""From counts to bounds: how many matches a release lacks at most, how many of its positives are wrong at most.

Arrays end in the strata, (H,) for one audit and (B, H) for many at once, so that a benchmark bounds thousands of audits
by the very functions that certify one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from mitl.audits.finite import Method, total_upper
from mitl.audits.workers import WORST, Errors, among_all, confirmed_at_least, refused_at_least
from mitl.core.arrays import Floats
from mitl.errors import AuditError

SHARES: Mapping[str, float] = {
    "false_no": 0.15,
    "false_yes": 0.10,
    "precision": 0.15,
    "missing": 0.50,
    "thinning": 0.10,
}
"""How the risk is dealt where a design does not say it: the two rates, the refused positives and the confirmed others,
and, half and half, that fewer of either are confirmed or refused than their mean chance says."""
_HALVINGS = 64


class RateSource(StrEnum):
    """What is taken for the rates at which workers err."""

    MEASURED = "measured"
    """Upper bounds of those seen in this audit."""
    WORST = "worst"
    """One half each, the highest that the definition of a match leaves: nothing is assumed of the workers' rates."""
    NONE = "none"
    """As if every answer were right; what an audit by infallible workers would give."""


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """A domain of the pool, outside the release or within it, by stratum: (..., H) each."""

    size: Floats
    """Pairs."""
    sampled: Floats
    """Of them drawn without replacement."""
    marked: Floats
    """(2, ..., H) of these confirmed, where they are outside the release, or refused, where they are within: by a
    majority of three workers, and by all of them."""
    expected: Floats
    """(H,) share of marked ones that was guessed before the draw."""
    planned: Floats | None = None
    """(H,) of a look before the end, how many are drawn in the end; see `Bets.of`."""

    def most(self, chances: Floats, risk: float, thinning: float, method: Method) -> Floats:
        """(...,) how many pairs are what marks are for: matches outside the release, or wrong ones within.

        A mark by a majority is seldom missed, one by all is seldom false; which matters more is not known beforehand,
        so that each is bounded at half the risk and the lower bound holds.

        Args:
            chances: (2, ...) at which such a pair is marked at least; a first of 1 needs no second.
            risk: that too few pairs were drawn that would be marked.
            thinning: that fewer of them would be marked than their mean chance says.
        """
        if (chances[0] == 1).all():
            marked = self._total(self.marked[0], risk, method)
        else:
            seen = self._total(self.marked, risk / 2, method)
            each = chances.reshape(*chances.shape, *[1] * (seen.ndim - chances.ndim))
            marked = thinned_upper(seen, each, thinning / 2).min(axis=0)
        return np.asarray(np.minimum(marked, self.size.sum(axis=-1)))

    def _total(self, marked: Floats, risk: float, method: Method) -> Floats:
        """(...) how many pairs of the domain would be marked so at most, were all of them asked."""
        return total_upper(self.size, self.sampled, marked, self.expected, risk, method, planned=self.planned)


@dataclass(frozen=True, slots=True, eq=False)
class AuditEvidence:
    """All that a bound reads of the answers."""

    outside: Counts
    within: Counts
    false_no: Errors
    """First noes on positives that one of two further workers accepts; see `workers.among_all`."""
    false_yes: Errors

    @property
    def held(self) -> Floats:
        """(...,) positives of the release in the pool."""
        return np.asarray(self.within.size.sum(axis=-1))


@dataclass(frozen=True, slots=True, eq=False)
class Precision:
    """How wrong a release is at most; (...,) each."""

    lower: Floats
    wrong: Floats
    """The most positives that are no matches."""
    false_yes: Floats
    """The highest rate of false yeses that was reckoned with."""


@dataclass(frozen=True, slots=True, eq=False)
class Recall:
    """How incomplete a release is at most; (...,) each."""

    lower: Floats
    missing: Floats
    """The most matches of the pool that the release lacks."""
    false_no: Floats
    """The highest rate of false noes that was reckoned with."""
    precision: Precision
    """At its part of the same risk."""


def recall_lower(
    evidence: AuditEvidence,
    risk: float,
    shares: Mapping[str, float] | None = None,
    *,
    method: Method = "design",
    rates: RateSource = RateSource.MEASURED,
    anytime: bool = False,
) -> Recall:
    """The recall bound; too high with a probability of at most ``risk``.

    Args:
        shares: as `SHARES`; parts that a bound does without leave theirs to the others.
        anytime: whether the rates shall hold at all looks at once; the counts do so by ``betting`` alone.
    """
    named = ("false_no", "false_yes", "precision", "missing", "thinning")
    parts = _risks(evidence, risk, shares, rates, named, anytime=anytime)
    false_no = among_all(_rate(evidence.false_no, parts["false_no"], rates, anytime=anytime))
    missing = evidence.outside.most(
        confirmed_at_least(false_no), parts["missing"], parts["thinning"] / 2, method
    )
    precision = _precision(
        evidence, {**parts, "thinning": parts["thinning"] / 2}, method=method, rates=rates, anytime=anytime
    )
    right = evidence.held - precision.wrong
    lower = np.where(right > 0, right / np.maximum(right + missing, 1.0), 0.0)
    return Recall(lower, missing, false_no, precision)


def precision_lower(
    evidence: AuditEvidence,
    risk: float,
    shares: Mapping[str, float] | None = None,
    *,
    method: Method = "design",
    rates: RateSource = RateSource.MEASURED,
    anytime: bool = False,
) -> Precision:
    """The bound of precision by itself, at the whole of ``risk``; see `recall_lower`."""
    parts = _risks(evidence, risk, shares, rates, ("false_yes", "precision", "thinning"), anytime=anytime)
    return _precision(evidence, parts, method=method, rates=rates, anytime=anytime)


def thinned_upper(seen: Floats, chance: Floats, risk: float) -> Floats:
    """The largest number M of things of which at most ``seen`` are seen with a probability above ``risk``.

    Each is seen independently, with chances whose mean is at least ``chance``. The lower tail of such a sum is within
    the binomial's as far as one below the mean (Hoeffding, Annals of Mathematical Statistics 1956, theorem 4), so that
    an M is excluded only where M times the chance is at least ``seen`` + 1; a chance of 1 gives ``seen`` itself.
    """
    from scipy.special import betaincc  # the binomial's lower tail, of any size: bdtr counts with 32 bits

    seen, chance = np.broadcast_arrays(np.asarray(seen, np.float64), np.asarray(chance, np.float64))
    nats = -np.log(risk) if risk else 0.0
    far = np.ceil((seen + 1 + 4 * (np.sqrt(seen + 1) + 5) * nats) / chance)  # excluded at any rate
    low, high = seen.copy(), np.where(chance < 1, far, seen)
    for _ in range(_HALVINGS):
        if not (low < high).any():
            break
        middle = np.ceil((low + high) / 2)
        tail = betaincc(seen + 1, np.maximum(middle - seen, 1), chance)
        possible = (tail > risk) | (middle * chance < seen + 1)
        low, high = np.where(possible, middle, low), np.where(possible, high, np.maximum(middle - 1, low))
    return np.asarray(low)


def check_shares(shares: Mapping[str, float]) -> None:
    """Refuse shares of the risk that are not those of `SHARES`.

    Raises:
        AuditError: a name is missing or unknown, a share is not above 0, or they do not sum to 1.
    """
    if set(shares) != set(SHARES):
        raise AuditError(
            f"the risk is dealt to {', '.join(shares)}; it is to be dealt to {', '.join(SHARES)}"
        )
    if min(shares.values()) <= 0 or abs(sum(shares.values()) - 1) > 1e-9:
        raise AuditError(
            f"the shares of the risk sum to {sum(shares.values()):g}; each is above 0, and they sum to 1"
        )


def _precision(
    evidence: AuditEvidence, parts: Mapping[str, float], *, method: Method, rates: RateSource, anytime: bool
) -> Precision:
    false_yes = _rate(evidence.false_yes, parts["false_yes"], rates, anytime=anytime)
    wrong = evidence.within.most(refused_at_least(false_yes), parts["precision"], parts["thinning"], method)
    held = evidence.held
    return Precision((held - wrong) / np.maximum(held, 1.0), wrong, false_yes)


def _risks(
    evidence: AuditEvidence,
    risk: float,
    shares: Mapping[str, float] | None,
    rates: RateSource,
    parts: tuple[str, ...],
    *,
    anytime: bool,
) -> dict[str, float]:
    """The risk of each part that this bound needs; the shares of those that it does without go to the others.

    A rate of which too few pairs were drawn is done without too: it would be one half whatever is answered.
    """
    shares = SHARES if shares is None else shares
    check_shares(shares)
    unneeded: tuple[str, ...] = ("false_no", "false_yes", "thinning")[: 3 if rates is RateSource.NONE else 2]
    if rates is RateSource.MEASURED:
        told = {"false_no": evidence.false_no, "false_yes": evidence.false_yes}
        unneeded = tuple(
            part for part, rate in told.items() if not rate.is_read(risk * shares[part], anytime=anytime)
        )
    halved = {"thinning": 0.5} if "missing" not in parts else {}
    kept = {part: shares[part] * halved.get(part, 1.0) for part in parts if part not in unneeded}
    return {part: risk * kept.get(part, 0.0) / sum(kept.values()) for part in parts}


def _rate(errors: Errors, risk: float, rates: RateSource, *, anytime: bool) -> Floats:
    if rates is RateSource.MEASURED and risk:
        return errors.upper(risk, anytime=anytime)
    return np.asarray(0.0 if rates is RateSource.NONE else WORST)
