"""What an audit costs: the cheapest sample that reaches a bound, and plain words where none does."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np
import pytest

from mitl.audits.planning import AssumedCrowd, Guess, Price, cost_of, deal, plan_audit
from mitl.core.pricing import LostPages
from mitl.errors import AuditError
from mitl.records.audits import Stratum

PRICE = Price(hit_cents=24, pairs_per_hit=16)
CAREFUL = AssumedCrowd(false_no=0.05, false_yes=0.05, stray_yes=0.003, wrong=0.02)
GUESSES = [
    Guess("released", 3000, 3000, 0.5),
    Guess("likely", 3000, 0, 0.03),
    Guess("remainder", 54_000, 0, 0.0005),
]


@functools.cache
def plan(target, price=PRICE, **options):
    return plan_audit(GUESSES, target, price=price, crowd=CAREFUL, **options)


def test_a_plan_reaches_its_target():
    """With a sample of every stratum, no larger than the stratum, at a price that its HITs add up to."""
    found = plan(0.8)

    assert found.cost == found.best and found.reason == ""
    assert 0.8 <= found.cost.recall < 0.83
    assert all(1 <= stratum.sample <= stratum.size for stratum in found.cost.strata)
    assert found.cost.first == sum(stratum.sample for stratum in found.cost.strata)
    assert found.cost.cents == found.cost.hits * 24
    assert found.cost.hits >= found.cost.answers / 16
    assert found.cost.worst < found.cost.recall


def test_more_is_dearer():
    """A higher target costs more, and a simple random sample more than strata."""
    low, high = plan(0.7), plan(0.8)

    assert low.cost.cents < high.cost.cents
    assert low.simple is None or low.simple.cents > low.cost.cents


def test_a_ceiling_that_is_too_low_says_so_with_the_best_that_it_buys():
    """The plan is below the ceiling, and its words name the remainder's part."""
    found = plan(0.8, ceiling_cents=1500)

    assert found.cost is None
    assert found.best.cents <= 1500 and found.best.recall < 0.8
    assert found.reason.startswith("no bound of 0.800 is affordable below the ceiling of $15.00")
    assert any("the stratum 'remainder' of 54,000 pairs alone costs" in line for line in found.lines())


def test_pages_that_are_asked_again_are_part_of_the_price():
    """The same sample costs as much more as pages are lost, and a ceiling holds with them."""
    price = replace(PRICE, lost=LostPages(128, 41))
    found, bare = plan(0.8, price=price), plan(0.8)
    below = plan(0.8, price=price, ceiling_cents=bare.cost.cents).best

    assert found.cost.cents_once < found.cost.cents == found.cost.hits * 24
    assert found.cost.cents == pytest.approx(found.cost.cents_once * 128 / 87, rel=0.01)
    assert found.cost.cents_once == pytest.approx(bare.cost.cents, rel=0.03) and bare.cost.recall >= 0.8
    assert below.cents <= bare.cost.cents and below.recall < 0.8
    assert any(
        "of 128 answered pages 41 had to be asked again: 32 %; without" in line for line in found.lines()
    )
    assert not any("asked again" in line for line in bare.lines())


@pytest.mark.parametrize("pages", [19, 800])
def test_few_workers_meet_the_same_pairs(pages):
    """Each of eight equal ones counts once on a pair, which one met before; of a few pages nothing is known."""
    lost = LostPages(pages, 0, same_worker=1 / 8)
    cost = cost_of([replace(GUESSES[0], met=1)], plan(0.8).best.strata[:1], price=replace(PRICE, lost=lost))
    tries = np.array([8 / 7, 8 / 6, 8 / 5]) if pages > 19 else np.full(3, 1 / 0.8)

    assert cost.answers == 3 * cost.first
    assert cost.hits == sum(np.ceil(cost.first / 16 * np.array([tries[0], tries[1:].sum()])))


def test_what_no_audit_can_prove_is_said():
    """The release lacks a tenth, so no sample proves .99."""
    found = plan(0.99)

    assert found.cost is None
    assert found.reason.startswith(
        "no audit reaches a recall bound of 0.990: even every pair asked would give 0."
    )


def test_more_money_buys_more():
    """The dealt sample never proves less for more money, and keeps to it."""
    dealt = [deal(GUESSES, cents, price=PRICE, crowd=CAREFUL) for cents in (1000, 3000, 9000)]

    assert [cost.recall for cost in dealt] == sorted(cost.recall for cost in dealt)
    assert [cost.cents <= cents for cost, cents in zip(dealt, (1000, 3000, 9000), strict=True)] == [True] * 3


def test_answers_are_one_a_pair_and_two_more_after_a_yes_or_for_a_recheck():
    """As expected of careful workers: nine in ten matches are called one, and one in a hundred others."""
    guesses = [Guess("positives", 10, 10, 0.97), Guess("others", 1000, 0, 0.3, recheck_share=0.2)]
    strata = [Stratum("positives", 10, 10, 0.2, 0.97), Stratum("others", 1000, 200, 0.2, 0.3)]
    yes = 0.3 * 0.9 + 0.7 * 0.01

    cost = cost_of(guesses, strata, price=PRICE)

    assert (cost.first, cost.answers) == (210, math.ceil(10 * 3 + 200 * (1 + 2 * (yes + (1 - yes) * 0.2))))


@pytest.mark.parametrize("confidence", [0, 1, np.nan])
def test_a_confidence_that_none_has_is_refused(confidence):
    """It lies between 0 and 1."""
    with pytest.raises(AuditError, match="both lie between 0 and 1"):
        plan_audit(GUESSES, 0.5, price=PRICE, confidence=confidence)


@pytest.mark.parametrize(
    ("guesses", "target", "message"),
    [
        (GUESSES, 1.2, "a recall bound of 1.2 with 0.95 confidence is asked for; both lie between 0 and 1"),
        ([Guess("all", 100, 0, 0.1)], 0.9, "there are no positives yet"),
        (
            [Guess("all", 100, 120, 0.1)],
            0.9,
            "stratum 'all' is guessed to hold 120 positives among 100 pairs",
        ),
    ],
)
def test_what_cannot_be_planned_is_one_line(guesses, target, message):
    """It says what was asked and what would be right."""
    with pytest.raises(AuditError, match=message):
        plan_audit(guesses, target, price=PRICE)
