"""Kendall's tau and mutual ranks of annotators' lists, on lists short enough to count by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitl.analysis.diversity import (
    Items,
    kendall_tau_b,
    mutual_rank,
    mutual_rank_table,
    tau_table,
)
from mitl.errors import MetricError


def lists(depth):
    """A list of ``depth`` different ids out of few, so that two lists often share some."""
    return st.lists(st.integers(1, 2 * depth), min_size=depth, max_size=depth, unique=True)


@pytest.fixture(scope="module")
def stats():
    """SciPy's statistics, where SciPy is installed."""
    return pytest.importorskip("scipy.stats")


@pytest.mark.parametrize("items", Items)
def test_equal_lists_have_one_and_reversed_lists_minus_one(items):
    """Of the same items, in the same or in the opposite order."""
    one = np.array([[1, 2, 3, 4], [1, 2, 3, 4]])
    other = np.array([[1, 2, 3, 4], [4, 3, 2, 1]])

    assert kendall_tau_b(one, other, items).tolist() == [1, -1]


def test_one_swap_costs_two_of_the_pairs():
    """1 2 3 against 2 1 3: two pairs agree and one does not, so (2 - 1) / 3."""
    found = kendall_tau_b(np.array([[1, 2, 3]]), np.array([[2, 1, 3]]))

    assert found[0] == pytest.approx(1 / 3)


def test_items_of_one_list_alone_are_tied_behind_the_other():
    """1 2 against 1 3, so ranks 1 2 3 and 1 3 2 of the items 1 2 3: 1 is before both in both lists (2 agree), 2 and 3
    are told apart the other way round (1 does not): (2 - 1) / 3."""
    found = kendall_tau_b(np.array([[1, 2]]), np.array([[1, 3]]))

    assert found[0] == pytest.approx(1 / 3)


def test_lists_without_a_common_item_are_nearly_opposite():
    """1 2 against 3 4: four pairs disagree; each list leaves one of the six pairs tied, so -4 / 5."""
    one, other = np.array([[1, 2]]), np.array([[3, 4]])

    assert kendall_tau_b(one, other)[0] == pytest.approx(-4 / 5)
    assert np.isnan(kendall_tau_b(one, other, Items.COMMON)[0])


def test_common_items_alone_may_be_compared():
    """Of 9 1 2 3 and 2 8 1 3 only 1 2 3 count, with ranks 1 2 3 and 2 1 3."""
    found = kendall_tau_b(np.array([[9, 1, 2, 3]]), np.array([[2, 8, 1, 3]]), Items.COMMON)

    assert found[0] == pytest.approx(1 / 3)


@given(st.data(), st.integers(2, 7), st.integers(2, 7))
def test_tau_agrees_with_scipy(stats, data, k, m):
    """On ranks written out as the definition says, with lists of different lengths too."""
    one, other = data.draw(lists(k)), data.draw(lists(m))
    union = sorted({*one, *other})

    found = kendall_tau_b(np.array([one]), np.array([other]))[0]

    x = [one.index(item) if item in one else k for item in union]
    y = [other.index(item) if item in other else m for item in union]
    assert found == pytest.approx(stats.kendalltau(x, y).statistic)


@given(st.data(), st.integers(2, 6), st.sampled_from(Items))
def test_tau_is_symmetric_and_does_not_know_the_ids(data, depth, items):
    """Which list comes first and what the items are called changes nothing."""
    one, other = np.array([data.draw(lists(depth))]), np.array([data.draw(lists(depth))])

    found = kendall_tau_b(one, other, items)

    np.testing.assert_array_equal(found, kendall_tau_b(other, one, items))
    np.testing.assert_array_equal(found, kendall_tau_b(100 - one, 100 - other, items))


def test_the_rank_of_anothers_first_counts_from_one():
    """First, third, and behind a ranking of three that lacks the item."""
    one = np.array([[7, 1], [7, 2], [7, 3]])
    rankings = np.array([[7, 1, 2], [2, 1, 7], [1, 2, 3]])

    assert mutual_rank(one, rankings).tolist() == [1, 3, 4]


def test_tables_hold_means_over_the_queries():
    """Two annotators, two queries: equal lists once (tau 1), one swap once (tau 1/3); the firsts' ranks 1 and 2."""
    one, other = np.array([[1, 2, 3], [4, 5, 6]]), np.array([[1, 2, 3], [5, 4, 6]])

    tau, ranks = tau_table([one, other]), mutual_rank_table([one, other])

    np.testing.assert_allclose(tau, [[1, 2 / 3], [2 / 3, 1]])
    assert ranks.tolist() == [[1, 1.5], [1.5, 1]]


def test_a_row_of_mutual_ranks_belongs_to_the_annotator_whose_first_is_looked_up():
    """The first of 1 2 3 is second in 2 1 3; the first of 2 3 1 is first there, and second in 1 2 3."""
    ranks = mutual_rank_table([np.array([[1, 2, 3]]), np.array([[2, 3, 1]])])

    assert ranks.tolist() == [[1, 3], [2, 1]]


def test_queries_without_a_defined_tau_are_left_out_of_the_mean():
    """The first query shares one item alone; of the second all are common and in order."""
    one, other = np.array([[1, 2], [5, 6]]), np.array([[1, 3], [5, 6]])

    assert tau_table([one, other], Items.COMMON)[0, 1] == 1
    assert np.isnan(tau_table([one[:1], other[:1]], Items.COMMON)[0, 1])


def test_more_queries_than_fit_at_once_give_the_same(monkeypatch):
    """Parts of the queries are computed one after the other."""
    draw = np.random.default_rng(0)
    one, other = (np.array([draw.permutation(9)[:5] for _ in range(7)]) for _ in range(2))
    whole = kendall_tau_b(one, other)

    monkeypatch.setattr("mitl.analysis.diversity.QUERIES_AT_A_TIME", 2)

    np.testing.assert_array_equal(kendall_tau_b(one, other), whole)


def test_lists_of_different_queries_are_refused():
    """Two queries here and three there cannot be compared, nor can a single list."""
    for compare in (kendall_tau_b, mutual_rank):
        with pytest.raises(MetricError, match=r"lists are \(2, 3\) and \(3, 3\); they should be"):
            compare(np.ones((2, 3), dtype=np.int64), np.ones((3, 3), dtype=np.int64))
        with pytest.raises(MetricError):
            compare(np.ones(3, dtype=np.int64), np.ones((3, 3), dtype=np.int64))
