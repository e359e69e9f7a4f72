"""How sure a machine must be for its labels to stand, so that no more than a share of a stratum gets a wrong one.

N open pairs have a machine label and an uncertainty U; m of them, drawn without replacement, were answered by people.
A threshold may be for some of the N alone, as for those that the machine calls a match: the others then have no errors.
For rising u let k(u) count the audited errors with U < u. The number of errors below u only grows with u, so the
thresholds are tested in this order, each at the whole risk, and the first that fails ends it: that one passes whose
errors are too many has the chance of the first such one, and nothing is paid for having tried many. What is bounded are
the errors that remain, those among pairs without an audited answer: whoever was sampled carries people's answer.

Proof, for errors that people see. Order the errors by U. With c the most audited errors under which a threshold passes,
the labels hold more than B wrong ones only if the first B + 1 + c errors contain at most c audited ones (or all errors,
where there are fewer, the same with less). Which of a fixed set are audited is hypergeometric, and c is such that this
has probability alpha at most. Ties in U stop before the whole group of the error that fails.

What people see. An audited pair is answered by one worker; where that contradicts the machine, two further workers are
asked, and the majority of the three decides. An error is a pair of which more than half of the workers who pass the
controls would contradict the machine; with t the share who would, this process shows it with probability
g(t) = t (1 - (1 - t)^2) and stays blind where the first worker happens to side with the machine. Over the errors, with
b the mean share of workers who side with the machine, the mean of g is at least s = 1 - 1.25 b, whatever the mix (the
tangent of g from (1, 1) touches it at 1/2, where its slope is 1.25). So the bound is taken in two steps: of M errors
fewer than d show themselves with the probability that Bin(M, s) gives at most (Hoeffding 1956), and a tenth of the risk
is spent on it; the d that do are bounded as above. With ``siding`` 0 the bound speaks of the errors that this process
would show, and of no others. Errors in which most of the crowd would agree with the machine are errors for nobody here.

Sources: Candès, Ilyas and Zrnic, Probably Approximately Correct Labels, 2025, for the task; Clopper and Pearson 1934;
Hoeffding, Annals of Mathematical Statistics 1956; Waudby-Smith and Ramdas, Confidence Sequences for Sampling without
Replacement, 2020, and Estimating Means of Bounded Random Variables by Betting, 2024, for losses between 0 and 1.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, gammaln

from mitl.core.arrays import Floats, Ints
from mitl.errors import AuditError

THINNING = 0.1
"""Of the risk, what goes to errors that do not show themselves by chance."""
MOST_SIDING = 0.5
"""Where more than half of the workers sided with the machine, it would not be an error."""
_ROUNDING = 1e-9
"""Chances that differ from the risk by rounding alone are taken to exceed it."""
_GRAIN = 1e-4
"""How finely the bound of a mean loss is told."""
_STAKES = np.array([0.1, 0.3, 0.6, 1.0])
"""Over which the bets on a mean loss are spread evenly, fixed beforehand; above 1 a whole loss could bring debts."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What is tolerated of the labels under one threshold."""

    error: float
    """Share of the open pairs that may carry a wrong machine label, or their mean loss; above 0, below 1."""
    risk: float
    """Probability, at most, that it is more; above 0, below 1."""
    siding: float = 0.0
    """Share of the workers, at most, who side with the machine where it is wrong, 0 to 1/2; 0 speaks of the errors that
    asking shows."""

    def __post_init__(self) -> None:
        for name, value in (("error", self.error), ("risk", self.risk)):
            if not 0 < value < 1:
                raise AuditError(f"the tolerated {name} is {value:g}, but it lies between 0 and 1")
        if not 0 <= self.siding <= MOST_SIDING:
            raise AuditError(f"the share of siding workers is {self.siding:g}, but it lies between 0 and 1/2")


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A simple random sample, and which of its pairs are among those that one threshold is for."""

    size: int
    """Pairs that it was drawn from; those that the threshold is for are some of them, or all."""
    places: Ints
    """(m,) in the order of drawing: the pair's place among those that the threshold is for, -1 where it is none."""

    @property
    def sample(self) -> int:
        """Pairs drawn."""
        return len(self.places)


@dataclass(frozen=True, slots=True)
class Threshold:
    """Up to which uncertainty machine labels stand, and what is known of them."""

    pairs: int
    """Open pairs that it is for, the audited ones among them."""
    audited: int
    loss: float
    """Audited errors, or the sum of the audited losses, over all of them."""
    cut: float
    """Labels stand where the uncertainty is below; -inf where none does, inf where all do."""
    labelled: int
    """Pairs that get a machine label: below the cut and not audited."""
    bound: float
    """Upper bound of the wrong labels among them, or of their loss, as a share of `pairs`; 0 where there are none.
    Where an error ended it, that of all errors allowed."""
    wanted: int | None = None
    """The sample under which a threshold could pass at all, where this one is too small; else None."""
    wanted_for_all: int | None = None
    """The sample that would let every label stand at the loss seen; None where none would, or it need not grow."""

    @property
    def refused(self) -> bool:
        """Whether the sample is too small for any threshold."""
        return self.wanted is not None

    @property
    def bound_among_labelled(self) -> float:
        """The same bound as a share of the labelled pairs, at most 1."""
        return min(1.0, self.bound * self.pairs / self.labelled) if self.labelled else 0.0


@functools.lru_cache(maxsize=4096)
def remaining_upper(size: int, sample: int, errors: int, risk: float, siding: float = 0.0) -> int:
    """The most errors, not counting the audited ones, that ``errors`` of ``sample`` audited pairs leave possible.

    Args:
        size: pairs, the audited ones among them.
    """
    most = size - sample + errors
    if _exceeds(size, sample, errors, most, risk, siding):
        return most - errors
    # Between a number of errors that is possible and one that is not: the chance of so few falls with their number.
    low, high = errors, most
    while high - low > 1:
        middle = (low + high) // 2
        if _exceeds(size, sample, errors, middle, risk, siding):
            low = middle
        else:
            high = middle
    return low - errors


def _exceeds(size: int, sample: int, errors: int, total: int, risk: float, siding: float) -> bool:
    """Whether ``total`` errors would show no more than ``errors`` in the sample with a probability above the risk."""
    if siding:
        total = _shown(total, 1 - 1.25 * siding, risk * THINNING)
        risk *= 1 - THINNING
    return hypergeometric_cdf(errors, size, total, sample) > risk * (1 - _ROUNDING)


def _shown(total: int, chance: float, risk: float) -> int:
    """The most errors d of which fewer show themselves with this risk at most: P(Bin(total, chance) < d) <= risk.

    The binomial's tail bounds that of unequal chances as far as one below its mean (see `bounds.thinned_upper`).
    """
    fewer = bisect_right(range(total), risk, key=lambda most: float(bdtr(float(most), total, chance)))
    return min(fewer, math.floor(total * chance))


def hypergeometric_cdf(seen: int, size: int, marked: int, sample: int) -> float:
    """The probability that at most ``seen`` of ``sample`` things drawn from ``size`` without replacement are marked."""
    if seen >= min(marked, sample):
        return 1.0
    k = np.arange(max(0, sample - (size - marked)), seen + 1, dtype=np.float64)
    if not len(k):
        return 0.0
    log = (
        _log_choose(float(marked), k)
        + _log_choose(float(size - marked), sample - k)
        - _log_choose(float(size), np.float64(sample))
    )
    return min(1.0, float(np.exp(log).sum()))


def _log_choose(n: float, k: Floats | np.float64) -> Floats:
    return np.asarray(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


def allowed_errors(size: int, sample: int, tolerance: Tolerance, *, within: int | None = None) -> int:
    """The most audited errors under which a threshold passes; -1 where not even none would.

    Args:
        within: how many errors may remain; None for the tolerated share of all pairs.
    """
    within = math.floor(tolerance.error * size) if within is None else within
    errors = 0
    while errors <= sample:
        if remaining_upper(size, sample, errors, tolerance.risk, tolerance.siding) > within:
            break
        errors += 1
    return errors - 1


def sample_wanted(
    size: int, tolerance: Tolerance, *, rate: float = 0.0, within: int | None = None
) -> int | None:
    """The smallest sample that passes with this share of errors in it; None where none does.

    Found by halving; since errors come whole, a larger sample may just fail where a smaller one passes.
    """
    within = math.floor(tolerance.error * size) if within is None else within

    def passes(sample: int) -> bool:
        errors = math.ceil(rate * sample - 1e-9)
        return remaining_upper(size, sample, errors, tolerance.risk, tolerance.siding) <= within

    return _smallest(passes, size) if rate * size < within or not rate else None


def find_threshold(
    uncertainty: Floats, drawn: Drawn, wrong: NDArray[np.bool_], tolerance: Tolerance
) -> Threshold:
    """The threshold for labels that are right or wrong.

    Args:
        uncertainty: (n,) of the open pairs that it is for, the audited ones among them; lower is surer.
        wrong: (m,) of all drawn pairs whether they are among these and people's answer contradicts the machine's label.

    Raises:
        AuditError: an uncertainty is no number.
    """
    own = _checked(uncertainty, drawn)
    within = math.floor(tolerance.error * len(uncertainty))
    errors = int(wrong.sum())
    allowed = allowed_errors(drawn.size, drawn.sample, tolerance, within=within)
    if allowed < 0:
        seen = errors / max(drawn.sample, 1)
        wanted = sample_wanted(drawn.size, tolerance, within=within) or drawn.size
        for_all = sample_wanted(drawn.size, tolerance, rate=seen, within=within)
        return Threshold(len(uncertainty), len(own), errors, -math.inf, 0, 0.0, wanted, for_all)
    of_errors = np.sort(uncertainty[drawn.places[wrong]])
    cut = float(of_errors[allowed]) if errors > allowed else math.inf
    labelled = _labelled(uncertainty, own, cut)
    # Ties may leave fewer than the allowed errors below the cut; a bound by these would be one chosen after looking.
    left = remaining_upper(drawn.size, drawn.sample, min(errors, allowed), tolerance.risk, tolerance.siding)
    bound = min(left, labelled) / max(len(uncertainty), 1)
    return Threshold(len(uncertainty), len(own), errors, cut, labelled, bound)


def find_threshold_of_loss(
    uncertainty: Floats, drawn: Drawn, loss: Floats, tolerance: Tolerance
) -> Threshold:
    """The threshold for losses between 0 and 1: what is tolerated is the mean over the open pairs of loss · 1{U < cut}.

    A bet against each mean that is too high: under it the capital, an average over fixed stakes, is a martingale in the
    order of drawing, so it reaches 1 / risk with probability ``risk`` at most. The audited losses count too, which only
    makes the bound more careful; ``siding`` plays no part, since a loss is against the answers as they were given.

    Args:
        loss: (m,) of all drawn pairs, from 0 to 1; 0 for those that the threshold is not for.

    Raises:
        AuditError: an uncertainty is no number, or a loss is not between 0 and 1.
    """
    own = _checked(uncertainty, drawn)
    if len(loss) and not (loss.min() >= 0 and loss.max() <= 1):
        raise AuditError(f"a loss is {loss[(loss < 0) | (loss > 1)][0]:g}, but losses lie between 0 and 1")
    share = len(uncertainty) / max(drawn.size, 1)
    of_drawn = np.where(drawn.places >= 0, uncertainty[drawn.places] if len(uncertainty) else np.inf, np.inf)

    def passes(loss: Floats, mean: float = tolerance.error) -> bool:
        return _capital(loss, drawn.size, mean * share) >= 1 / tolerance.risk

    if not passes(np.zeros(drawn.sample)):
        free = _smallest(lambda sample: passes(np.zeros(sample)), drawn.size) or drawn.size
        return Threshold(len(uncertainty), len(own), float(loss.sum()), -math.inf, 0, 0.0, free)
    cuts = np.append(np.unique(of_drawn[loss > 0]), np.inf)
    # The loss below a cut only grows and the capital only falls, so that halving finds the first failure.
    low, high = 0, len(cuts)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if passes(np.where(of_drawn < cuts[middle], loss, 0.0)) else (low, middle)
    cut = float(cuts[low])
    labelled = _labelled(uncertainty, own, cut)
    bound, refused = 0.0, tolerance.error
    # Where a loss ended it, the cut was chosen by the losses, and what is tolerated is all that holds there.
    while math.isinf(cut) and refused - bound > _GRAIN:
        middle_mean = (bound + refused) / 2
        bound, refused = (bound, middle_mean) if passes(loss, middle_mean) else (middle_mean, refused)
    return Threshold(
        len(uncertainty), len(own), float(loss.sum()), cut, labelled, refused if labelled else 0.0
    )


def _capital(loss: Floats, size: int, mean: float) -> float:
    """The highest capital of bets that the mean over the population, without replacement, is below ``mean``."""
    if not len(loss):
        return 1.0
    before = np.concatenate([[0.0], np.cumsum(loss)[:-1]])
    expected = (size * mean - before) / (size - np.arange(len(loss)))  # of each draw, were the mean so high
    if (expected < -1e-12).any():
        return 0.0  # more was lost already than this mean allows
    expected = expected.clip(0, 1)
    with np.errstate(divide="ignore"):
        paths = np.log1p(_STAKES[:, None] * (expected - loss)).cumsum(axis=1)
    return float(np.exp(paths).mean(axis=0).max())


def _smallest(passes: Callable[[int], bool], size: int) -> int | None:
    """The smallest sample of so many pairs that passes; None where not even all of them would."""
    if not passes(size):
        return None
    low, high = 0, size
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high


def _checked(uncertainty: Floats, drawn: Drawn) -> Ints:
    """The places of the audited pairs that the threshold is for."""
    if not np.isfinite(uncertainty).all():
        raise AuditError(
            "an open pair has no uncertainty; score every open pair, or leave out what has no score"
        )
    return drawn.places[drawn.places >= 0]


def _labelled(uncertainty: Floats, audited: Ints, cut: float) -> int:
    taken = uncertainty < cut
    taken[audited] = False
    return int(taken.sum())
