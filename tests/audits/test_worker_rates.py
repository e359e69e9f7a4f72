"""How workers err: the inequalities that turn answers into matches, and the bounds of their rates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from mitl.audits.bounds import thinned_upper
from mitl.audits.workers import (
    WORST,
    Errors,
    among_all,
    anytime_upper,
    binomial_upper,
    confirmed_at_least,
    overturned_share,
    refused_at_least,
)
from mitl.core.statistics import clopper_pearson

MIXES = st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 1)), min_size=1, max_size=6)
"""How far each kind of pair is from one half on its side, 0 to 1, and how many there are of it."""


@given(MIXES)
@settings(max_examples=300, derandomize=True)
def test_matches_are_confirmed_at_least_as_often_as_promised(mix):
    """Whatever the mix of θ in [1/2, 1] is, by a majority after a first yes and by all three."""
    far, weight = np.array(mix).T
    theta, weight = 0.5 + far / 2, weight / weight.sum()
    majority, everybody = theta * (1 - (1 - theta) ** 2), theta**3

    promised = confirmed_at_least(weight @ (1 - theta))

    assert weight @ majority >= promised[0] - 1e-12
    assert weight @ everybody >= promised[1] - 1e-12


@given(MIXES)
@settings(max_examples=300, derandomize=True)
def test_wrong_positives_are_refused_at_least_as_often_as_promised(mix):
    """Whatever the mix of θ in [0, 1/2] is, by two of three and by all three."""
    far, weight = np.array(mix).T
    theta, weight = (1 - far) / 2, weight / weight.sum()

    promised = refused_at_least(weight @ theta)

    assert weight @ (1 - (3 * theta**2 - 2 * theta**3)) >= promised[0] - 1e-12
    assert weight @ (1 - theta) ** 3 >= promised[1] - 1e-12


def test_the_worst_rates_leave_three_eighths():
    """At θ = 1/2 a match is confirmed in 3 of 8 cases, by all in 1 of 8; a wrong one is refused in half of them."""
    assert confirmed_at_least(0.5).tolist() == [3 / 8, 1 / 8]
    assert refused_at_least(0.5).tolist() == [1 / 2, 1 / 8]
    assert confirmed_at_least(0.9).tolist() == confirmed_at_least(WORST).tolist()
    assert confirmed_at_least(0.0).tolist() == refused_at_least(0.0).tolist() == [1, 1]


@given(
    st.integers(0, 40),
    st.lists(st.floats(0.05, 1), min_size=1, max_size=60),
    st.floats(0.001, 0.1),
)
@settings(max_examples=200, derandomize=True)
def test_no_mix_of_chances_gets_by_the_thinned_bound(seen, chances, risk):
    """So many things are excluded only where seeing so few is within the risk, however unequal the chances are."""
    distribution = np.ones(1)
    for chance in chances:
        distribution = np.convolve(distribution, [1 - chance, chance])

    bound = float(thinned_upper(np.array(float(seen)), np.array(np.mean(chances) * (1 - 1e-9)), risk))

    if len(chances) > bound:
        assert distribution[: seen + 1].sum() <= risk + 1e-9


def test_the_binomial_tail_alone_would_not_do():
    """Two things with chances 1 and .98 are seen once or less more often than two of .99: so M = 2 stays possible."""
    risk = 0.01995

    assert binom.cdf(1, 2, 0.99) <= risk < 1 - 0.98
    assert thinned_upper(np.array(1.0), np.array(0.99), risk) == 2


@given(st.integers(0, 300), st.sampled_from([1.0, 0.95, 0.7, 0.375, 0.125]), st.floats(1e-4, 0.1))
@settings(max_examples=100, derandomize=True)
def test_the_thinned_bound_is_the_largest_number_that_is_possible(seen, chance, risk):
    """As found by trying all of them."""
    numbers = np.arange(seen, 40 * seen + 1500)
    possible = (binom.cdf(seen, numbers, chance) > risk) | (numbers * chance < seen + 1)

    expected = seen if chance == 1 else numbers[possible].max()

    assert float(thinned_upper(np.array(float(seen)), np.array(chance), risk)) == expected


def test_the_thinned_bound_holds_for_pools_of_billions():
    """All of COCO's pairs are more than 32 bits count; there the tail is the normal one."""
    seen, chance, risk = 1e9, 0.3, 0.01

    bound = float(thinned_upper(np.array(seen), np.array(chance), risk))

    sd = np.sqrt(bound * chance * (1 - chance))
    assert (bound * chance - seen) / sd == pytest.approx(norm.isf(risk), rel=1e-3)


def test_the_binomial_bound_is_clopper_and_pearsons():
    """The upper end of their interval at twice the risk; 1 without answers."""
    assert float(binomial_upper(3, 40, 0.025)) == pytest.approx(clopper_pearson(3, 40, 0.95)[1])
    assert float(binomial_upper(40, 40, 0.025)) == float(binomial_upper(0, 0, 0.025)) == 1.0


def test_rates_never_pass_one_half():
    """By the definition of a match; groups without answers leave one half."""
    assert float(Errors(30, 40).upper(0.01)) == float(Errors(0, 0).upper(0.01)) == WORST
    assert float(Errors(0, 0).upper(0.01, anytime=True)) == WORST


def test_a_rate_is_read_where_its_numbers_can_tell_something():
    """By the number drawn alone: eight that all are right leave less than one half, seven do not."""
    assert [Errors(3, 5, drawn).is_read(0.0075) for drawn in (0, 7, 8, 500)] == [False, False, True, True]
    assert not Errors(0, 0, 3).is_read(0.0075, anytime=True)
    assert [Errors(0, 0, 7).is_read(0.01, anytime=anytime) for anytime in (False, True)] == [True, False]
    assert Errors(0, 0, 500).is_read(0.0075, anytime=True)


def test_a_look_bounds_a_rate_for_all_looks():
    """And so higher than the bound of one complete sample."""
    errors = Errors(3, 40)

    assert float(errors.upper(0.05)) == float(binomial_upper(3, 40, 0.05))
    assert float(errors.upper(0.05, anytime=True)) == float(anytime_upper(3, 40, 0.05))
    assert float(binomial_upper(3, 40, 0.05)) < float(anytime_upper(3, 40, 0.05)) < WORST


def test_the_anytime_bound_holds_at_all_looks_at_once():
    """The lowest of 60 looks is too low in less than 10 % of 3,000 sequences, for rates of 3, 10 and 30 %."""
    rng = np.random.default_rng(8)
    trials = np.arange(5, 305, 5)
    for rate in (0.03, 0.1, 0.3):
        hits = np.cumsum(rng.random((3000, 300)) < rate, axis=1)[:, trials - 1]

        lowest = anytime_upper(hits, np.broadcast_to(trials, hits.shape), 0.1).min(axis=1)

        assert (lowest < rate).mean() < 0.1


@given(MIXES)
@settings(max_examples=300, derandomize=True)
def test_the_rate_among_accepted_ones_bounds_the_rate_among_all(mix):
    """Whatever the mix of θ in [1/2, 1] is; at θ = 1/2 and at θ = 1 it is the rate itself."""
    far, weight = np.array(mix).T
    no, weight = (1 - far) / 2, weight / weight.sum()
    accepted = weight * (1 - no**2)

    read = accepted @ no / accepted.sum()

    assert weight @ no <= among_all(read) + 1e-12
    assert among_all([0.0, 0.5, 0.8]).tolist() == [0, 0.5, 0.5]


def test_overturned_noes_follow_from_the_rate():
    """At θ = .8 two of three accept in .896 of all cases, with a first no in .128 of them."""
    assert overturned_share(0.2) == pytest.approx(0.2 * 0.64 / (3 * 0.64 - 2 * 0.512))
