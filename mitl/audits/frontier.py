"""The frontier of human answers, lost recall and wrong machine labels: from a score's AUC, and from a pilot.

A machine labels the pairs of which it is surest and people judge the rest. Below one score it says no, above another it
says yes; the matches below are lost, the others above are wrong. Where the two stand decides what people must judge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mitl.audits.thresholds import Tolerance, allowed_errors
from mitl.core.arrays import Floats, Ints
from mitl.core.statistics import expit, logistic
from mitl.errors import AuditError, TooFewAnswersError

TOLERATED = ((0.01, 0.01), (0.05, 0.01), (0.10, 0.05))
"""(lost recall, wrong matches) of the table that is always shown."""
BINS = 1000
"""Steps of equally many pairs into which the scores are cut: the share of pairs is exact to a thousandth."""
SAMPLES = 300
LEAST_ANSWERS = 60
LEAST_OF_A_KIND = 10
_TINY = 1e-9
_HIDDEN = 0.7
"""Added to a number of allowed errors: at that expectation a Poisson number stays within it every second time."""


def share_left(auc: float, lost: float, wrong: float, prevalence: float) -> float:
    """Share of pairs that people must still judge, with ideal thresholds, where only a score's AUC is known.

    Scores are normal with equal variance among matches and others, their means sqrt(2) Phi^-1(AUC) apart. The machine
    says no below the score that only ``lost`` of the matches miss, and yes above the one that lets in as many others
    as ``wrong`` of the matches that are kept; people judge what lies between. It is the best that any two thresholds
    can do, audits apart: calibration changes no AUC.

    Args:
        auc: chance that a match scores above another pair, 0.5 to 1.
        lost: tolerated share of the matches that become a no, from 0, below 1.
        wrong: tolerated machine yes that are no match, as a share of the matches kept, from 0.
        prevalence: share of matches among the pairs, between 0 and 1.

    Raises:
        AuditError: a number lies outside its range.
    """
    from scipy.special import ndtr, ndtri

    _check_share("the AUC", auc, 0.5, 1.0)
    _check_share("the lost recall", lost, 0.0, 1.0)
    _check_share("the wrong labels", wrong, 0.0, 1.0)
    _check_share("the share of matches", prevalence, 0.0, 1.0)
    if auc == 1 or lost == 1 or prevalence in (0, 1):
        return 0.0
    apart = math.sqrt(2) * float(ndtri(auc))
    low = apart + float(ndtri(lost))
    high = -float(ndtri(min(1.0, wrong * prevalence * (1 - lost) / (1 - prevalence))))
    if high <= low:
        return 0.0
    others = float(ndtr(high) - ndtr(low))
    matches = float(ndtr(high - apart) - ndtr(low - apart))
    return (1 - prevalence) * others + prevalence * matches


def _check_share(what: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # also what is not a number
        raise AuditError(f"{what} is {value:g}; it should be from {low:g} to {high:g}")


@dataclass(frozen=True, slots=True)
class ResampledEstimate:
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Floats) -> ResampledEstimate:
        """The first of them is the estimate, the others are its resamples."""
        low, high = np.nanquantile(values[1:], [0.025, 0.975])
        return cls(float(values[0]), float(min(low, values[0])), float(max(high, values[0])))


@dataclass(frozen=True, slots=True, eq=False)
class Pilot:
    """The candidate pairs by a machine's probability, and people's answers on some of them."""

    probabilities: Floats
    """(N,) that each is a match, by a model that has not read the pair's own answer."""
    answered: Ints
    """(n,) places of the answered pairs among these."""
    matches: NDArray[np.bool_]
    """(n,) whether people called each a match."""
    weights: Floats
    """(n,) how many candidates each answered pair stands for."""
    queries: Ints
    """(n,) whose pair each is; the intervals resample these."""


@dataclass(frozen=True, slots=True)
class BoundedLabelling:
    """Machine labels under a bound of their error, at one size of the sample that bounds it."""

    sample: int
    """Pairs that are answered to bound the error."""
    people: ResampledEstimate
    """Answers in all: the sample, further answers where it contradicts the machine, and what the machine leaves."""
    recall: ResampledEstimate
    wrong: ResampledEstimate
    """Machine yes that are no match, as a share of the matches kept."""
    labelled: float
    """Share of the open pairs that the machine labels."""


@dataclass(frozen=True, eq=False)
class Frontier:
    """Expected pairs and matches by falling score, for the pilot as it is and for resamples of its queries."""

    pairs: Floats
    """(K,) open pairs of each step, from the highest score to the lowest."""
    chances: Floats
    """(B + 1, K) the calibrated probability of each step in the first row, the estimate; in the others, resamples, the
    share of its open pairs that turned out to match."""
    auc: ResampledEstimate
    answered: int
    """Answers that it rests on."""
    known: int
    """Matches among the answered pairs: they are kept whatever is done."""

    @property
    def open(self) -> int:
        """Candidate pairs without an answer."""
        return round(float(self.pairs.sum()))

    @cached_property
    def _matches(self) -> Floats:
        """(B + 1, K + 1) expected matches among the open pairs above each step's lower edge, from 0."""
        return _from_zero(self.chances * self.pairs)

    @cached_property
    def _above(self) -> Floats:
        """(K + 1,) open pairs above each step's lower edge."""
        return np.append(0.0, np.cumsum(self.pairs))

    @cached_property
    def matches(self) -> ResampledEstimate:
        """All expected matches among the candidates, those known and those among the open pairs."""
        return ResampledEstimate.of(self.known + self._matches[:, -1])

    def people(self, lost: float, wrong: float) -> ResampledEstimate:
        """Open pairs that people must judge where so much recall may be lost and so many wrong matches let in.

        Args:
            lost: share of the candidates' matches that the machine may call no match.
            wrong: machine yes that are no match, as a share of the matches kept; 0 where every match is confirmed.
        """
        return ResampledEstimate.of(self._people(np.array([1 - lost]), wrong)[:, 0])

    def recall(self, answers: Floats, wrong: float) -> list[ResampledEstimate]:
        """The share of the candidates' matches that is kept with so many further answers of people.

        They are asked from the surest pair that the machine may not call a match itself, downwards.
        """
        return [ResampledEstimate.of(column) for column in self._recalls(answers, wrong).T]

    def _people(self, recalls: Floats, wrong: float) -> Floats:
        """(B + 1, n) pairs between the two thresholds at each recall."""
        shares = np.empty((len(self.chances), len(recalls)))
        for row, matches in enumerate(self._matches):
            kept = recalls * (self.known + matches[-1])
            below = np.interp(kept - self.known, matches, self._above)
            others = self._above - matches
            above = np.interp(wrong * kept, others, self._above) if wrong else 0.0
            shares[row] = np.maximum(below - above, 0.0)
        return shares

    def _recalls(self, answers: Floats, wrong: float) -> Floats:
        # A step of a thousandth holds the bend where the first answer is asked; few matches stand last in long tails.
        recalls = np.concatenate([np.arange(0, 0.99, 0.001), 1 - np.geomspace(1e-2, 1e-4, 100), [1.0]])
        people = np.maximum.accumulate(self._people(recalls, wrong), axis=1)
        return np.array([_last_within(row, recalls, answers) for row in people])

    def labelling(self, sample: int, tolerance: Tolerance) -> BoundedLabelling | None:
        """What labels under a bound would come to at this size of sample; None where it is too small for any.

        As `mitl label` does it: the label is the likelier one, matches and others have each a sequential threshold of
        their own at half of the risk, and the tolerated error is a share of each side's open pairs.
        """
        own, share = self.chances[0], sample / self.open
        halved = replace(tolerance, risk=tolerance.risk / 2)
        cuts = np.zeros((2, len(self.chances)))
        errors = np.zeros_like(cuts)
        for number, side in enumerate((own >= 0.5, own < 0.5)):
            pairs = self.pairs[side]
            within = math.floor(tolerance.error * pairs.sum())
            allowed = allowed_errors(self.open, sample, halved, within=within)
            if allowed < 0:
                continue
            order = np.argsort(np.minimum(own, 1 - own)[side], kind="stable")
            chances = self.chances[:, side][:, order]
            steps = np.append(0.0, np.cumsum(pairs[order]))
            wrong = _from_zero((chances if number else 1 - chances) * pairs[order])
            for row, errors_of in enumerate(wrong):
                cuts[number, row] = np.interp((allowed + _HIDDEN) / share, errors_of, steps)
                errors[number, row] = np.interp(cuts[number, row], steps, errors_of)
        if not cuts.any():
            return None
        labelled, (let_in, lost) = (1 - share) * cuts.sum(axis=0), (1 - share) * errors
        contradicted = np.where(own >= 0.5, 1 - self.chances, self.chances) @ self.pairs
        kept = self.known + self._matches[:, -1] - lost
        return BoundedLabelling(
            sample,
            ResampledEstimate.of(self.open - labelled + 2 * share * contradicted),
            ResampledEstimate.of(kept / np.maximum(kept + lost, _TINY)),
            ResampledEstimate.of(let_in / np.maximum(kept, _TINY)),
            float(labelled[0] / self.open),
        )


def _last_within(people: Floats, recalls: Floats, answers: Floats) -> Floats:
    """The highest recall that needs no more than so many answers, between the grid's points by straight lines."""
    last = np.searchsorted(people, answers, side="right") - 1
    last = np.clip(last, 0, len(recalls) - 1)
    after = np.minimum(last + 1, len(recalls) - 1)
    width = people[after] - people[last]
    part = np.where(width > 0, (answers - people[last]) / np.maximum(width, _TINY), 0.0)
    return np.asarray(recalls[last] + np.clip(part, 0, 1) * (recalls[after] - recalls[last]))


def _from_zero(values: Floats) -> Floats:
    return np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)


def estimate(pilot: Pilot, *, seed: int, samples: int = SAMPLES) -> Frontier:
    """The frontier that a pilot lets expect, with resamples of its queries and of what the open pairs turn out to be.

    The probabilities are calibrated on the answers once more, by three numbers, so that a score that is only ordered
    rightly serves too; every resample calibrates its own.

    Raises:
        TooFewAnswersError: too few answers, or all alike.
        AuditError: a score that tells no two pairs apart.
    Source: the form is the beta calibration of Kull, Silva Filho and Flach, AISTATS 2017.
    """
    _check(pilot)
    order = np.argsort(-pilot.probabilities, kind="stable")
    parts = np.array_split(order, min(BINS, len(order)))
    step = np.empty(len(order), np.int64)
    for number, part in enumerate(parts):
        step[part] = number
    middle = np.array([pilot.probabilities[part].mean() for part in parts])
    yes, no = _weights(pilot, step[pilot.answered], len(parts), seed, samples)
    form = _features(middle)
    # (B + 1, K) rising with the score: the likeliest calibration, drawn a little towards leaving it as it is.
    total = yes + no
    some = total.any(axis=0)
    labels = yes[:, some] / np.maximum(total[:, some], _TINY)
    chances = expit(_fitted(form[some], labels, total[:, some], np.arange(form.shape[1])) @ form.T)
    aucs = _aucs(yes, no)
    pairs = np.bincount(np.delete(step, pilot.answered), minlength=len(parts)).astype(np.float64)
    # However well its chance is known, an open pair may turn out either way.
    turned_out = np.random.default_rng([seed, 1]).binomial(pairs.astype(np.int64), chances[1:])
    np.divide(turned_out, pairs, out=chances[1:], where=pairs > 0)
    return Frontier(pairs, chances, ResampledEstimate.of(aucs), len(pilot.answered), int(pilot.matches.sum()))


def _check(pilot: Pilot) -> None:
    answered, matches = len(pilot.answered), int(pilot.matches.sum())
    if answered < LEAST_ANSWERS:
        raise TooFewAnswersError(
            f"a plan needs {LEAST_ANSWERS} answered candidates, but there are {answered}"
        )
    if min(matches, answered - matches) < LEAST_OF_A_KIND:
        raise TooFewAnswersError(
            f"people called {matches} of {answered} answered candidates a match; a plan needs {LEAST_OF_A_KIND} "
            "matches and as many others"
        )
    if np.ptp(pilot.probabilities) == 0:
        raise AuditError(
            "every candidate has the same score, so no order of asking saves an answer; propose with other "
            "annotators, or fuse them with `mitl fuse`"
        )


def _weights(pilot: Pilot, steps: Ints, count: int, seed: int, samples: int) -> tuple[Floats, Floats]:
    """(B + 1, K) twice: weights of matches and of others in each step, first as they are, then resampled by query.

    They sum to the effective number of answers, whatever number of candidates those stand for.
    """
    from scipy.sparse import csr_array

    own = pilot.weights * pilot.weights.sum() / (pilot.weights**2).sum()
    names, rows = np.unique(pilot.queries, return_inverse=True)
    drawn = np.random.default_rng(seed).multinomial(len(names), np.full(len(names), 1 / len(names)), samples)
    times = np.vstack([np.ones(len(names)), drawn])
    made = []
    for kind in (pilot.matches, ~pilot.matches):
        table = csr_array((own[kind], (rows[kind], steps[kind])), shape=(len(names), count))
        made.append(np.asarray((table.T @ times.T).T, np.float64))
    return made[0], made[1]


def _features(probabilities: Floats) -> Floats:
    """(K, 3) a constant, log p and -log(1 - p): with weights 0, 1 and 1 the probability is left as it is."""
    inside = np.clip(probabilities, 1e-6, 1 - 1e-6)
    return np.stack([np.ones_like(inside), np.log(inside), -np.log1p(-inside)], axis=1)


def _fitted(form: Floats, labels: Floats, weights: Floats, kept: Ints) -> Floats:
    """(B, 3) the most probable weights under a normal prior of variance 1; a slope that would fall below 0 is 0."""
    prior = np.array([0.0, 1.0, 1.0])
    own, found = form[:, kept], np.zeros((len(labels), len(prior)))
    found[:, kept] = prior[kept] + logistic(own, labels, weights, own @ prior[kept], np.ones(len(kept)))
    low = (found < 0) & (np.arange(len(prior)) > 0)
    for fallen in np.unique(low[low.any(axis=1)], axis=0):
        rows = (low == fallen).all(axis=1)
        found[rows] = _fitted(form, labels[rows], weights[rows], kept[~fallen[kept]])
    return found


def _aucs(yes: Floats, no: Floats) -> Floats:
    """(B + 1,) the chance that a match stands in a higher step than another pair; half of those in the same."""
    below = no.sum(axis=1, keepdims=True) - np.cumsum(no, axis=1)
    won = (yes * (below + no / 2)).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(won / (yes.sum(axis=1) * no.sum(axis=1)))
