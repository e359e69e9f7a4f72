"""Bounds of finite populations: against brute force on tiny strata, and by the very chances that they promise."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom
from suite_kit import examples

from mitl.audits.finite import (
    Bets,
    betting_upper,
    dealt,
    exact_upper,
    hypergeometric_upper,
    total_upper,
)
from mitl.errors import AuditError


@st.composite
def strata(draw):
    """Up to three tiny strata: sizes, numbers drawn, marked among these, expected shares."""
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=3))
    sampled = [draw(st.integers(0, size)) for size in sizes]
    marked = [draw(st.integers(0, number)) for number in sampled]
    expected = [draw(st.floats(0.001, 0.6)) for _ in sizes]
    return tuple(np.array(values) for values in (sizes, sampled, marked, expected))


RISKS = st.floats(0.005, 0.4)


@given(st.integers(1, 60), st.data(), RISKS)
@settings(max_examples=150, derandomize=True)
def test_the_hypergeometric_bound_inverts_the_distribution(size, data, risk):
    """It is the largest D under which so few marks are likelier than the risk; none larger is."""
    sampled = data.draw(st.integers(0, size))
    marked = data.draw(st.integers(0, sampled))

    bound = int(hypergeometric_upper(size, sampled, marked, risk))

    possible = range(marked, size - sampled + marked + 1)
    likely = [D for D in possible if hypergeom.cdf(marked, size, D, sampled) > risk]
    assert bound == max(likely)


@given(strata(), RISKS)
@settings(max_examples=examples(50, 120), derandomize=True)
def test_betting_is_never_below_the_true_maximum(tiny, risk):
    """Over all whole numbers whose e-values multiply to at most 1 / risk, as tried one by one, and near to it."""
    size, _, marked, _ = tiny
    bets = Bets.of(*tiny)
    ranges = [range(c, int(most) + 1) for c, most in zip(marked, bets.most, strict=True)]
    within = [sum(D) for D in product(*ranges) if bets.log_e(np.array(D, float)).sum() <= -np.log(risk)]

    bound = float(betting_upper(*tiny, risk))

    assert max(within, default=marked.sum()) <= bound <= max(within, default=marked.sum()) + len(size)


@given(st.integers(4, 400), st.data())
@settings(max_examples=100, derandomize=True)
def test_log_e_is_convex_and_its_slope_is_right(size, data):
    """Between the marks seen and what is possible, whatever share of the money is at stake."""
    sampled = data.draw(st.integers(1, size - 3))
    marked = data.draw(st.integers(0, sampled))
    expected = data.draw(st.floats(1e-5, 0.6))
    bets = Bets.of([size, size], [sampled, sampled], [marked, marked], [expected, 0.1])
    one = np.linspace(marked, size - sampled + marked, 41)
    both = np.stack([one, one], axis=-1)

    money = bets.log_e(both)

    assert (np.diff(money, n=2, axis=0) >= -1e-7 * np.abs(money[1:-1])).all()
    middle = (both[1:] + both[:-1]) / 2
    near = 1e-4
    rises = (bets.log_e(middle + near) - bets.log_e(middle - near)) / (2 * near)
    assert np.allclose(bets.slope(middle), rises, rtol=1e-4, atol=1e-5)


@given(strata())
@settings(max_examples=60, derandomize=True)
def test_the_true_numbers_never_make_a_bettor_rich_on_average(tiny):
    """The mean of E at the true D over all samples is at most 1: so the risk is what Markov and Ville say."""
    size, sampled, D, expected = tiny
    h = 0
    D = min(int(D[h]), int(size[h]))
    seen = np.arange(max(0, sampled[h] + D - size[h]), min(sampled[h], D) + 1)

    bets = Bets.of(*(np.full((len(seen), 1), v) for v in (size[h], sampled[h])), seen[:, None], expected[h])
    money = np.exp(bets.log_e(np.full((len(seen), 1), float(D))))[:, 0]

    assert hypergeom.pmf(seen, size[h], D, sampled[h]) @ money <= 1 + 1e-9


def test_both_methods_hold_over_samples():
    """1,500 samples of four strata, at a risk of 5 %: the bound is below the true sum in less than 5 % of them."""
    rng = np.random.default_rng(5)
    size, sampled = np.array([300, 800, 3000, 20000]), np.array([80, 100, 120, 200])
    true, guess = np.array([90, 60, 30, 20]), np.array([0.15, 0.1, 0.02, 0.0005])
    marked = rng.hypergeometric(np.tile(true, (1500, 1)), size - true, sampled)

    for method in ("design", "betting", "exact"):
        bound = total_upper(size, sampled, marked, guess, 0.05, method)

        assert (bound < true.sum()).mean() < 0.05, method


@pytest.mark.thorough
def test_betting_holds_at_all_looks_at_once():
    """The lowest bound of all looks, after each tenth of the sample, is too low in less than 10 % of 800 draws."""
    rng = np.random.default_rng(6)
    size, true = np.array([200, 2000]), np.array([50, 40])
    guess, steps = np.array([0.3, 0.01]), 10
    marks = [
        rng.permuted(np.tile(np.arange(N) < D, (800, 1)), axis=1)[:, :100]
        for N, D in zip(size, true, strict=True)
    ]
    lowest = np.full(800, np.inf)
    for look in range(1, steps + 1):
        n = 100 * look // steps
        seen = np.stack([mark[:, :n].sum(axis=1) for mark in marks], axis=-1)
        lowest = np.minimum(lowest, betting_upper(size, np.array([n, n]), seen, guess, 0.1))

    assert (lowest < true.sum()).mean() < 0.1


def test_between_looks_one_more_pair_makes_no_money_on_average():
    """At the true numbers, in every state of two strata, one to be seen whole: all that Ville's inequality needs."""
    size, true, planned = np.array([6, 9]), np.array([3, 2]), np.array([6, 5])

    def money(seen, marked):
        bets = Bets.of(size, np.array(seen), np.array(marked), np.array([0.2, 0.05]), planned)
        return float(np.exp(bets.log_e(true.astype(float)).sum()))

    for n, m in product(range(6), range(5)):
        for c, d in product(range(min(n, 3) + 1), range(min(m, 2) + 1)):
            chance = (3 - c) / (6 - n)
            if n - c > 3 or chance > 1:
                continue
            more = [w * money((n + 1, m), (c + hit, d)) for hit, w in ((1, chance), (0, 1 - chance)) if w]
            assert sum(more) <= money((n, m), (c, d)) * (1 + 1e-9)


def test_a_pool_of_millions_loses_no_digits():
    """38 million pairs, 2,000 drawn and none marked: close to the rule of ln(1 / risk) / n."""
    exact = float(exact_upper([38_000_000], [2000], [0], [1e-6], 0.025))
    betting = float(betting_upper([38_000_000], [2000], [0], [1e-6], 0.025))

    assert exact == pytest.approx(38_000_000 * np.log(40) / 2000, rel=1e-2)
    assert exact <= betting < 1.1 * exact


@pytest.mark.parametrize("n", [1_000, 20_000, 40_000, 400_000, 4_000_000])
@pytest.mark.parametrize("marked", [0, 1, 4])
def test_betting_reaches_the_largest_number_whatever_the_sample(n, marked):
    """A large one's log E falls below its minimum within the first cells of the search, as at one mark of 40,000."""
    size, expected, risk = 38_000_000.0, 1_000 / 38_000_000, 0.025
    bets = Bets.of(*(np.array([value]) for value in (size, n, marked, expected)))
    low, high = size * marked / n, size - n + marked
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if bets.log_e(np.array([middle]))[0] > -np.log(risk) else (middle, high)

    assert low - 1 <= float(betting_upper([size], [n], [marked], [expected], risk)) <= 1.1 * low + 2


def test_what_nobody_drew_may_all_be_marked():
    """A stratum without a sample counts whole; one that was seen whole counts as seen; neither takes of the risk."""
    size, sampled, marked = np.array([30, 50, 1000]), np.array([0, 50, 200]), np.array([0, 7, 3])
    expected = np.array([0.1, 0.1, 0.01])

    alone = {m: total_upper([1000], [200], [3], [0.01], 0.05, m) for m in ("betting", "exact")}

    assert dealt(size, sampled, expected).tolist() == [0, 0, 1]
    for method, bound in alone.items():
        assert float(total_upper(size, sampled, marked, expected, 0.05, method)) == pytest.approx(
            30 + 7 + float(bound), abs=1
        )


def test_batches_are_bounded_as_single_audits_are():
    """Rows do not know of each other."""
    rng = np.random.default_rng(7)
    size, sampled = np.array([100, 5000]), np.array([[30, 200], [100, 400], [1, 1]])
    marked, expected = rng.integers(0, 2, (3, 2)), np.array([0.1, 0.001])

    for method in ("design", "betting", "exact"):
        together = total_upper(size, sampled, marked, expected, 0.05, method)
        single = [
            float(total_upper(size, n, c, expected, 0.05, method))
            for n, c in zip(sampled, marked, strict=True)
        ]

        assert together.tolist() == single


def test_an_unknown_method_is_one_line():
    """It names those that there are."""
    with pytest.raises(
        AuditError, match="no method called 'guess' bounds an audit; known: design, betting, exact"
    ):
        total_upper([10], [5], [1], [0.1], 0.05, "guess")
