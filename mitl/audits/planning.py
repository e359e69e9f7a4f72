"""What a bound costs before anything is asked: the cheapest sample that reaches it, or the best one that money buys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mitl.audits.bounds import AuditEvidence, Counts, RateSource, recall_lower
from mitl.audits.evidence import EXPECTED_REFUSED
from mitl.audits.finite import Method
from mitl.audits.workers import FEWEST, Errors
from mitl.core.arrays import Floats
from mitl.core.formats import lower_bound
from mitl.core.pricing import MOST_LOST, NO_PAGE_LOST, LostPages, format_dollars
from mitl.errors import AuditError
from mitl.records import several
from mitl.records.audits import ANSWERS_EACH, Stratum

RECHECK_SHARE = 0.1
"""Of first noes on pairs that the release lacks. They prove nothing of recall; they test the rate of false noes."""
CHANCE = 0.8
"""With which a planned audit reaches its bound, if the guesses are right."""
_DEVIATIONS = 0.84
"""Standard deviations above the mean that a normal count stays below with that chance."""
_FACTORS = (0.4, 0.7, 0.9, 1.12, 1.5, 2.5)
_SWEEPS, _BISECTIONS = 25, 20
_NEAR = 1.02
"""By which factor the cost may be above the least."""


@dataclass(frozen=True, slots=True)
class Guess:
    """A stratum before the draw."""

    name: str
    size: int
    """Pairs."""
    held: int
    """Positives of the release among them."""
    expected: float
    """Share of matches among the others, 0 to 1."""
    recheck_share: float = RECHECK_SHARE
    """Of first noes on the others; positives of the release always get three answers."""
    met: float = 0.0
    """Workers who answered a pair before the draw, on average: their further answers on it do not count."""


@dataclass(frozen=True, slots=True)
class AssumedCrowd:
    """How workers are guessed to err; from a pilot, or careful workers of whom some are hasty."""

    false_no: float = 0.1
    """On matches that are as hard as the release's weak ones."""
    false_yes: float = 0.1
    """On pairs that were called weak_no."""
    stray_yes: float = 0.01
    """On all other pairs that are no matches."""
    wrong: float = 0.03
    """Share of the release's positives that are no matches."""
    weak_share: float = 0.3
    """Share of the release's positives that were called weak_yes."""
    weak_no_share: float = 0.1
    """Share of pairs called weak_no among those outside the release, in all strata but the last."""


@dataclass(frozen=True, slots=True)
class Price:
    """What an answer costs."""

    hit_cents: int
    """One assignment of one HIT, reward and fee."""
    pairs_per_hit: int = 18
    """Places of a HIT that hold audited pairs or others that are paid anyway; controls are not among them."""
    lost: LostPages = NO_PAGE_LOST
    """By which pages are expected to be asked again."""

    def hits(self, answers: float) -> int:
        """HITs until there are so many usable answers, as expected."""
        return self.lost.hits(answers / self.pairs_per_hit)

    def cents(self, answers: float) -> int:
        """What so many usable answers cost, in whole HITs."""
        return self.hits(answers) * self.hit_cents


@dataclass(frozen=True, slots=True)
class AuditCost:
    """A sample with what it is expected to cost and to prove."""

    strata: tuple[Stratum, ...]
    first: int
    """First answers, one a pair."""
    follow_ups: int
    """Second and third answers, as expected."""
    hits: int
    """With those that are expected to be asked again."""
    cents: int
    cents_once: int
    """What it costs if no page is lost."""
    recall: float
    """Lower bound that it reaches with the chance `CHANCE`, if the guesses are right."""
    worst: float
    """The same whatever the workers' rates of error are."""

    @property
    def answers(self) -> int:
        """All answers."""
        return self.first + self.follow_ups

    @property
    def words(self) -> str:
        """What it takes, and what that costs."""
        return (
            f"{several(self.first, 'pair')}, {several(self.answers, 'answer')}, {several(self.hits, 'HIT')}, "
            f"{format_dollars(self.cents)}"
        )


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """The answer to: what does this bound cost?"""

    target: float
    confidence: float
    cost: AuditCost | None
    """The cheapest sample that reaches the target; None where none does, or none below the ceiling."""
    best: AuditCost
    """What was found: ``cost``, or the best that the ceiling buys, or the whole pool."""
    simple: AuditCost | None
    """The cheapest simple random sample for the same; None where none reaches it."""
    reason: str
    """Why there is no ``cost``, in words; empty where there is one."""
    remainder_cents: int
    """Of ``best``, what the last stratum costs."""
    lost: LostPages
    """By which prices reckon with pages that are asked again."""

    def lines(self) -> list[str]:
        """The plan in words."""
        best = self.best
        lines = [self.reason] if self.reason else []
        lines.append(
            f"{'the best possible' if self.reason else 'the cheapest sample'}: recall of at least "
            f"{lower_bound(best.recall)} with {self.confidence:.12g} confidence ({lower_bound(best.worst)} whatever "
            f"the workers' rates of error are), by {best.words}"
        )
        if best.cents > best.cents_once:
            without = f"without that the sample would cost {format_dollars(best.cents_once)}"
            lines.append(f"{self.lost.words}; {without}")
            if few := round(100 * self.lost.same_worker * self.lost.is_known):
                lines.append(
                    f"two pages are by the same worker {few} % of the time, and nobody counts twice on a pair; that is "
                    "in the price"
                )
        last = best.strata[-1]
        if len(best.strata) > 1 and last.sample:
            lines.append(
                f"the stratum {last.name!r} of {last.size:,} pairs alone costs {format_dollars(self.remainder_cents)} "
                f"of it, for {several(last.sample, 'pair')}"
            )
        if self.simple is None:
            lines.append("no simple random sample of the pool reaches this")
        else:
            lines.append(
                f"a simple random sample would take {several(self.simple.first, 'pair')} and "
                f"{format_dollars(self.simple.cents)} for this bound"
            )
        return lines


def plan_audit(
    guesses: Sequence[Guess],
    target: float,
    *,
    price: Price,
    confidence: float = 0.95,
    crowd: AssumedCrowd | None = None,
    ceiling_cents: int | None = None,
) -> AuditPlan:
    """The cheapest sample whose recall bound reaches ``target``, with the allocation over strata that makes it so.

    Args:
        guesses: the strata in order; the last is the remainder.
        ceiling_cents: the most that may be spent.

    Raises:
        AuditError: the target or the confidence is not between 0 and 1, or there is nothing to audit.
    """
    _check(guesses, target, confidence)
    plan = _Planner(guesses, crowd or AssumedCrowd(), price, 1 - confidence)
    whole = plan.cost(plan.size)
    wanted = min(target, whole.recall)
    most = whole.cents if ceiling_cents is None else min(whole.cents, ceiling_cents)
    best = whole if most == whole.cents else plan.deal(most)
    if best.recall >= wanted:
        best = plan.cheapest(wanted, best)
    reason = ""
    if whole.recall < target:
        reason = (
            f"no audit reaches a recall bound of {target:.3f}: even every pair asked would give "
            f"{lower_bound(whole.recall)}, by what is guessed of the release and the workers"
        )
    elif best.recall < target:
        reason = (
            f"no bound of {target:.3f} is affordable below the ceiling of {format_dollars(most)}; the whole pool of "
            f"{plan.size.sum():,.0f} pairs costs {format_dollars(whole.cents)}"
        )
    simple = _Planner([pooled(guesses)], plan.crowd, price, 1 - confidence)
    alone = simple.cheapest(best.recall, simple.cost(simple.size))
    return AuditPlan(
        target=target,
        confidence=confidence,
        cost=None if reason else best,
        best=best,
        simple=alone if alone.recall >= best.recall else None,
        reason=reason,
        remainder_cents=price.cents(plan.answers(plan.samples(best))[-1]),
        lost=price.lost,
    )


def deal(
    guesses: Sequence[Guess],
    cents: int,
    *,
    price: Price,
    confidence: float = 0.95,
    crowd: AssumedCrowd | None = None,
) -> AuditCost:
    """The sample with the highest expected recall bound among those that cost at most ``cents``, or one HIT each way.

    Raises:
        AuditError: the confidence is not between 0 and 1, or there is nothing to audit.
    """
    _check(guesses, 0.5, confidence)
    return _Planner(guesses, crowd or AssumedCrowd(), price, 1 - confidence).deal(cents)


def cost_of(guesses: Sequence[Guess], strata: Sequence[Stratum], *, price: Price) -> AuditCost:
    """What a sample is expected to cost, whatever chose it; its bounds are those of 0.95 confidence.

    Raises:
        AuditError: there is nothing to audit.
    """
    _check(guesses, 0.5, 0.95)
    samples = np.array([stratum.sample for stratum in strata], np.float64)
    return _Planner(guesses, AssumedCrowd(), price, 0.05).cost(samples)


class _Planner:
    """Costs and expected bounds of allocations, (..., H) pairs of each stratum; many at once."""

    def __init__(self, guesses: Sequence[Guess], crowd: AssumedCrowd, price: Price, risk: float) -> None:
        self.guesses, self.crowd, self.price, self.risk = tuple(guesses), crowd, price, risk
        self.size = np.array([guess.size for guess in guesses], np.float64)
        self.held = np.array([guess.held for guess in guesses], np.float64)
        self.expected = np.array([guess.expected for guess in guesses])
        self.recheck = np.array([guess.recheck_share for guess in guesses])
        self.method: Method = "exact" if len(guesses) == 1 else "betting"
        self.known = self.held / np.maximum(self.size, 1)
        yes = self.expected * (1 - self.crowd.false_no) + (1 - self.expected) * self.crowd.stray_yes
        followed = self.known + (1 - self.known) * (yes + (1 - yes) * self.recheck)
        self.each = 1 + (ANSWERS_EACH - 1) * followed
        # Of a worker who has met the pair no answer counts, so it is asked until another takes the page.
        met = np.array([guess.met for guess in guesses]) + np.arange(ANSWERS_EACH)[:, None]
        tries = 1 / (1 - np.minimum(met * price.lost.same_worker * price.lost.is_known, MOST_LOST))
        self.tried = tries[0], tries[1:].sum(axis=0) * followed

    def answers(self, samples: Floats) -> Floats:
        """(..., H) expected answers, follow-ups and those of workers who have met the pair included."""
        return np.asarray(samples * sum(self.tried))

    def recall(self, samples: Floats, rates: RateSource) -> Floats:
        """(...,) the recall bound that such samples reach with the chance `CHANCE`."""
        crowd, known = self.crowd, self.known
        right, wrong = 1 - crowd.false_no, 1 - crowd.wrong
        hit = np.array([right * (1 - crowd.false_no**2), right**3])[:, None]
        stray = np.array([2 * crowd.stray_yes**2, crowd.stray_yes**3])[:, None]
        doubted = crowd.wrong + wrong * crowd.weak_share * np.array(
            [3 * crowd.false_no**2, crowd.false_no**3]
        )
        outside = self._counts(
            self.size - self.held,
            samples * (1 - known),
            self.expected * hit + (1 - self.expected) * stray,
            self.expected,
        )
        within = self._counts(
            self.held,
            samples * known,
            np.broadcast_to(doubted[:, None], (2, len(known))),
            np.full(len(known), EXPECTED_REFUSED),
        )
        weak = within.sampled.sum(axis=-1) * crowd.weak_share
        weak_no = outside.sampled[..., :-1].sum(axis=-1) * crowd.weak_no_share
        weak = np.where(weak < FEWEST, within.sampled.sum(axis=-1), weak)
        weak_no = np.where(weak_no < FEWEST, 0.0, weak_no)
        evidence = AuditEvidence(
            outside, within, Errors(weak * crowd.false_no, weak), Errors(weak_no * crowd.false_yes, weak_no)
        )
        return recall_lower(evidence, self.risk, method=self.method, rates=rates).lower

    def cost(self, samples: Floats) -> AuditCost:
        """All that is known of one allocation."""
        samples = np.clip(np.round(samples), np.minimum(self.size, 1), self.size)
        first, answers = int(samples.sum()), math.ceil((samples * self.each).sum())
        waves = first, answers - first
        once = sum(math.ceil(count / self.price.pairs_per_hit) for count in waves)
        tried = (float((samples * times).sum()) for times in self.tried)
        hits, each = sum(map(self.price.hits, tried)), self.price.hit_cents
        strata = tuple(
            Stratum(guess.name, guess.size, int(sample), guess.recheck_share, guess.expected)
            for guess, sample in zip(self.guesses, samples, strict=True)
        )
        recall, worst = (
            float(self.recall(samples, rates)) for rates in (RateSource.MEASURED, RateSource.WORST)
        )
        return AuditCost(strata, *waves, hits, hits * each, once * each, recall, worst)

    @staticmethod
    def samples(cost: AuditCost) -> Floats:
        """(H,) the allocation of a cost."""
        return np.array([stratum.sample for stratum in cost.strata], np.float64)

    def deal(self, cents: float, start: Floats | None = None) -> AuditCost:
        """The best allocation for this money that moves of one stratum's size at a time find."""
        # two waves end in half a HIT each
        kept = (1 - self.price.lost.share) * self.price.pairs_per_hit
        budget = max(cents // self.price.hit_cents - 2, 1) * kept
        if start is None:
            spread = (self.size - self.held) * np.sqrt(self.expected + 1e-5) + self.held * 0.2
            start = np.maximum(spread, self.size.sum() * 1e-6)
        best = self._within(start, budget)
        bound = float(self.recall(best, RateSource.MEASURED))
        for _ in range(_SWEEPS if len(self.size) > 1 else 0):
            moved = np.stack(
                [
                    self._within(np.where(np.arange(len(best)) == place, best * factor, best), budget)
                    for place in range(len(best))
                    for factor in _FACTORS
                ]
            )
            bounds = self.recall(moved, RateSource.MEASURED)
            if bounds.max() <= bound + 1e-4:
                break
            best, bound = moved[bounds.argmax()], float(bounds.max())
        return self.cost(best)

    def cheapest(self, target: float, reached: AuditCost) -> AuditCost:
        """The least money whose best allocation reaches the target, which ``reached`` does."""
        low, high = 0.0, float(reached.cents)
        start = self.samples(reached)
        for _ in range(_BISECTIONS):
            if high <= max(low, self.price.hit_cents * 2) * _NEAR:
                break
            middle = math.sqrt(max(low, self.price.hit_cents) * high)
            tried = self.deal(middle, start)
            if tried.recall >= target and tried.cents <= reached.cents:
                reached, high, start = tried, min(middle, float(tried.cents)), self.samples(tried)
            else:
                low = middle
        return reached

    def _within(self, samples: Floats, budget: float) -> Floats:
        """The allocation scaled until its answers cost the budget; no stratum has less than 1 or more than all."""
        least = np.minimum(self.size, 1)
        low, high = -40.0, 40.0
        for _ in range(40):
            middle = (low + high) / 2
            scaled = np.clip(samples * math.exp(middle), least, self.size)
            low, high = (middle, high) if self.answers(scaled).sum() <= budget else (low, middle)
        return np.clip(samples * math.exp(low), least, self.size)

    def _counts(self, size: Floats, sampled: Floats, share: Floats, expected: Floats) -> Counts:
        """Counts as high as they come with the chance `CHANCE`, strata taken together."""
        share = share.reshape(2, *[1] * (sampled.ndim - 1), -1)
        mean = sampled * share  # (2, ..., H)
        weight = size / np.maximum(sampled, 1e-9)
        spread = np.sqrt((weight**2 * mean * (1 - share)).sum(axis=-1, keepdims=True))
        marked = mean + _DEVIATIONS * weight * mean * (1 - share) / np.maximum(spread, 1e-9)
        if self.method == "exact":
            size, sampled, marked = np.round(size), np.round(sampled), np.ceil(marked)
        return Counts(size, np.minimum(sampled, size), np.minimum(marked, sampled), expected)


def pooled(guesses: Sequence[Guess]) -> Guess:
    """All strata as one, the pool."""
    size, held = (sum(getattr(guess, name) for guess in guesses) for name in ("size", "held"))
    met = sum(guess.size * guess.met for guess in guesses) / size
    missing = sum((guess.size - guess.held) * guess.expected for guess in guesses)
    return replace(
        guesses[-1], name="pool", size=size, held=held, expected=missing / max(size - held, 1), met=met
    )


def _check(guesses: Sequence[Guess], target: float, confidence: float) -> None:
    if not (0 < target < 1 and 0 < confidence < 1):
        raise AuditError(
            f"a recall bound of {target:g} with {confidence:g} confidence is asked for; both lie between 0 and 1"
        )
    if not any(guess.held for guess in guesses):
        raise AuditError(
            "there are no positives yet, so there is no recall to bound; harvest and merge first"
        )
    for guess in guesses:
        if not (0 <= guess.held <= guess.size and 0 <= guess.expected <= 1 and 0 <= guess.recheck_share <= 1):
            raise AuditError(
                f"stratum {guess.name!r} is guessed to hold {guess.held:,} positives among {guess.size:,} pairs, a "
                f"share of {guess.expected:g} among the others and {guess.recheck_share:g} rechecked; no more are held "
                "than there are, and shares lie from 0 to 1"
            )
