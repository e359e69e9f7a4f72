"""The bill, to the cent."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitl.core.pricing import LostPages, bill, fee_cents, fee_rule, format_dollars, reward_for_floor

CENTS = st.integers(0, 100_000)


@given(reward=CENTS, assignments=st.integers(1, 30))
def test_the_fee_is_mturks_rule_in_decimal(reward, assignments):
    """20 % of the reward, 40 % from ten assignments, half a cent rounded up, a cent at least."""
    share = Decimal("0.4") if assignments >= 10 else Decimal("0.2")
    exact = (Decimal(reward) * share).quantize(Decimal(1), ROUND_HALF_UP)

    assert fee_cents(reward, assignments) == max(1, exact)


@pytest.mark.parametrize(
    ("reward", "assignments", "fee"),
    [
        (140, 1, 28),
        (65, 1, 13),
        (1, 1, 1),
        (2, 9, 1),
        (3, 9, 1),
        (8, 1, 2),
        (7, 1, 1),
        (5, 10, 2),
        (100, 10, 40),
    ],
)
def test_fees_by_hand(reward, assignments, fee):
    """A few rewards worked out on paper: 8 cents make 1.6, 7 make 1.4, 1.40 dollars 28 cents."""
    assert fee_cents(reward, assignments) == fee


@given(
    hits=st.integers(0, 10_000),
    assignments=st.integers(1, 30),
    reward=CENTS,
    estimate=st.integers(1, 10_000),
    charges=st.booleans(),
)
def test_the_total_is_the_sum_of_every_assignment(hits, assignments, reward, estimate, charges):
    """Adding assignment by assignment gives the bill; an endpoint without fee charges none."""
    quote = bill(hits, assignments=assignments, reward_cents=reward, estimate_s=estimate, charges_fee=charges)

    each = reward + (fee_cents(reward, assignments) if charges else 0)
    assert quote.total_cents == hits * assignments * each == quote.rewards_cents + quote.fees_cents
    assert quote.fees_cents == (quote.total_cents - hits * assignments * reward)
    assert quote.hourly_cents * estimate <= reward * 3600 < (quote.hourly_cents + 1) * estimate


def test_the_papers_stages_cost_what_its_unit_costs_say():
    """1,000 HITs at 1.40 and 1,160 at 0.65 under the rule of 20 %: 1.68 and 0.78 each."""
    with_rationale = bill(1000, assignments=1, reward_cents=140, estimate_s=570, charges_fee=True)
    plain = bill(1160, assignments=1, reward_cents=65, estimate_s=828, charges_fee=True)

    assert (with_rationale.total_cents, plain.total_cents) == (168_000, 90_480)
    assert (with_rationale.hourly_cents, plain.hourly_cents) == (884, 282)


@given(floor=st.integers(0, 10_000), estimate=st.integers(1, 10_000))
def test_the_reward_pays_the_floor_and_five_cents_less_would_not(floor, estimate):
    """The least multiple of five cents that reaches the floor."""
    reward = reward_for_floor(floor, estimate)

    exact = Decimal(floor) * estimate / 3600 / 5
    assert reward == int(exact.to_integral_value(ROUND_CEILING)) * 5
    assert reward * 3600 >= floor * estimate
    assert reward == 0 or (reward - 5) * 3600 < floor * estimate


def test_the_default_rewards():
    """20 pairs at 12.00 an hour: 15 s each make 1.00, 25 s each 1.67, rounded up to 1.70."""
    assert reward_for_floor(1200, 20 * 15) == 100
    assert reward_for_floor(1200, 20 * 25) == 170


@pytest.mark.parametrize(
    ("cents", "text"),
    [
        (0, "$0.00"),
        (5, "$0.05"),
        (10_300, "$103.00"),
        (1_000_000, "$10,000.00"),
        (-5, "-$0.05"),
        (-123_456, "-$1,234.56"),
    ],
)
def test_dollars_as_people_write_them(cents, text):
    """Two digits, thousands apart, the sign in front."""
    assert format_dollars(cents) == text


@pytest.mark.parametrize(
    ("reward", "charges", "rewards", "fees", "total"),
    [
        (65, False, "$1,677.00", "$0.00", "$1,677.00"),
        (65, True, "$1,677.00", "$335.40", "$2,012.40"),
        (140, False, "$3,612.00", "$0.00", "$3,612.00"),
        (140, True, "$3,612.00", "$722.40", "$4,334.40"),
    ],
)
def test_the_bill_of_the_papers_batch_by_hand(reward, charges, rewards, fees, total):
    """2,580 HITs: 0.65 makes 1,677.00, 0.13 of fee each 335.40; 1.40 makes 3,612.00, 0.28 each 722.40."""
    quote = bill(2580, assignments=1, reward_cents=reward, estimate_s=300, charges_fee=charges)

    found = [format_dollars(cents) for cents in (quote.rewards_cents, quote.fees_cents, quote.total_cents)]
    assert found == [rewards, fees, total]
    assert quote.total_cents == 2580 * quote.each_cents


def test_the_fees_rule_in_words():
    """What is charged, from what, at least, and each."""
    nine = bill(10, assignments=9, reward_cents=100, estimate_s=300, charges_fee=True)
    ten = bill(10, assignments=10, reward_cents=100, estimate_s=300, charges_fee=True)

    assert fee_rule(nine, charges_fee=True) == "20 % of each reward, at least 1 cent: $0.20 each"
    assert "40 % of each reward, since a HIT asks 10 workers or more" in fee_rule(ten, charges_fee=True)
    assert fee_rule(ten, charges_fee=False) == "this endpoint charges none"


@pytest.mark.parametrize(
    ("lost", "hits", "words"),
    [
        (LostPages(128, 41), 71, "of 128 answered pages 41 had to be asked again: 32 %"),
        (LostPages(20, 0), 48, "of 20 answered pages 0 had to be asked again: 0 %"),
        (LostPages(), 60, "20 % of the pages are assumed to be asked again (no page so far)"),
        (LostPages(19, 19), 60, "20 % of the pages are assumed to be asked again (19 pages so far)"),
        (LostPages(1000, 1), 49, "of 1,000 answered pages 1 had to be asked again: < 1 %"),
        (LostPages(40, 40), 480, "of 40 answered pages 40 had to be asked again: 100 %"),
    ],
)
def test_pages_that_are_lost_are_paid_and_asked_again(lost, hits, words):
    """48 pages that are to be answered are asked 48 / (1 - share) times; a share is assumed before there is one."""
    assert (lost.hits(48), lost.words) == (hits, words)
