"""Intraclass correlations: the textbook's table, blocks of pages, and what no shift or order changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite_kit import examples

from mitl.judgements.intraclass import one_way, two_way

TEXTBOOK = np.array(
    [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]], np.float64
)
"""Six targets, four judges: table 2 of Shrout and Fleiss 1979."""


def long(table):
    """Scores, items and raters of a table with a row for each item; NaN where a rater is missing."""
    items, raters = np.nonzero(~np.isnan(table))
    return table[items, raters], items, raters


def all_six(table):
    scores, items, raters = long(table)
    one, two = one_way(scores, items), two_way(scores, items, raters)
    return (
        one.single,
        two.agreement,
        two.consistency,
        one.of_mean,
        two.agreement_of_mean,
        two.consistency_of_mean,
    )


def test_the_table_of_shrout_and_fleiss_comes_out():
    """ICC(1,1), (2,1), (3,1), (1,4), (2,4) and (3,4), in their table 4."""
    assert [round(found.value, 2) for found in all_six(TEXTBOOK)] == [0.17, 0.29, 0.71, 0.44, 0.62, 0.91]


def test_the_intervals_are_those_of_other_packages():
    """95 % limits of the same table as R's psych prints them."""
    limits = [(round(found.low, 3), round(found.high, 3)) for found in all_six(TEXTBOOK)]

    assert limits == [
        (-0.133, 0.723),
        (0.019, 0.761),
        (0.342, 0.946),
        (-0.884, 0.912),
        (0.071, 0.927),
        (0.676, 0.986),
    ]


TABLES = st.integers(0, 2**32 - 1).map(lambda seed: np.random.default_rng(seed).normal(2.5, 1.0, (7, 4)))


@settings(max_examples=examples(15))
@given(TABLES, st.floats(-3, 3), st.floats(0.1, 4), st.randoms(use_true_random=False))
def test_no_shift_no_unit_and_no_order_changes_them(table, shift, unit, random):
    """Items and raters may be numbered anyhow."""
    before = [found.value for found in all_six(table)]
    rows, columns = list(range(7)), list(range(4))
    random.shuffle(rows)
    random.shuffle(columns)
    after = [found.value for found in all_six(unit * table[rows][:, columns] + shift)]

    assert after == pytest.approx(before, abs=1e-9)


@settings(max_examples=examples(15))
@given(TABLES, st.lists(st.floats(-2, 2), min_size=4, max_size=4))
def test_what_a_rater_always_adds_does_not_touch_consistency(table, added):
    """ICC(3) stays, whatever each rater adds to all of the own ratings."""
    _, _, before, _, _, _ = all_six(table)
    _, _, after, _, _, _ = all_six(table + np.array(added))

    assert after.value == pytest.approx(before.value, abs=1e-9)


@given(st.integers(0, 2**32 - 1))
def test_a_mean_of_k_follows_from_one_rating_after_spearman_and_brown(seed):
    """Also where items have unequal numbers of ratings."""
    rng = np.random.default_rng(seed)
    table = rng.normal(rng.normal(2.5, 1, (12, 1)), 0.7, (12, 6))
    table[rng.random(table.shape) < 0.3] = np.nan
    table[:, :2] = rng.normal(2.5, 1, (12, 2))
    scores, items, _ = long(table)

    found = one_way(scores, items)

    single, k = found.single.value, found.k
    assert found.of_mean.value == pytest.approx(k * single / (1 + (k - 1) * single), abs=1e-9)
    assert found.single.low < single < found.single.high


def test_pages_with_raters_of_their_own_are_pooled():
    """Variances of 4 (items), 0.5 (raters) and 0.5 (rest) in 800 pages of five pairs and five people."""
    rng = np.random.default_rng(1)
    table = np.full((4000, 60), np.nan)
    for page in range(800):
        rows, people = slice(5 * page, 5 * page + 5), rng.choice(60, 5, replace=False)
        table[rows, people] = (
            rng.normal(0, 2, (5, 1)) + rng.normal(0, 0.5**0.5, (1, 5)) + rng.normal(0, 0.5**0.5, (5, 5))
        )
    scores, items, raters = long(table)

    found = two_way(scores, items, raters)

    assert (found.blocks, found.items, found.k) == (800, 4000, 5.0)
    assert found.agreement.value == pytest.approx(4 / 5, abs=0.015)
    assert found.consistency.value == pytest.approx(4 / 4.5, abs=0.015)
    assert found.agreement.low < 4 / 5 < found.agreement.high


def test_where_there_is_nothing_to_estimate_it_is_said():
    """One rating each; nobody rated two items with somebody else; everything equal."""
    scores, items = np.array([1.0, 2.0, 3.0]), np.array([1, 2, 3])
    assert one_way(scores, items).single.reason == "no item has ratings of two people"
    assert (
        two_way(scores, items, np.array([1, 1, 1])).agreement.reason
        == "no two items were rated by the same people"
    )
    assert two_way(*(np.empty(0, int),) * 3).agreement.value is None
    for same in (np.full((3, 3), 2.5), np.full((7, 5), 4.99)):
        assert {found.reason for found in all_six(same)} == {"the items' means are all the same"}
    stubborn = all_six(np.tile([3.3, 4.1, 2.7], (10, 1)))  # everybody gives one number
    assert [found.value for found in stubborn] == [-1 / 2, 0.0, None, None, 0.0, None]
    perfect = np.array([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]])
    sure = all_six(perfect)
    assert [found.value for found in sure] == [1.0] * 6
    assert {(found.low, found.high) for found in sure} == {(1.0, 1.0), (None, None)}


def test_few_ratings_give_nothing_that_cannot_be():
    """No correlation above 1, no interval without its value or of no numbers, and no division by zero."""
    rng = np.random.default_rng(1)
    for number in range(600):
        n, k = rng.integers(2, 5, 2)
        table = rng.integers(0, (3, 11)[number % 2], (n, k)) / 2
        for found in all_six(table):
            if found.value is None:
                assert found.reason
                continue
            assert found.value <= 1 and np.isfinite(found.value)
            assert found.low is None or found.low <= found.value + 1e-12
            assert found.high is None or found.value - 1e-12 <= found.high <= 1
