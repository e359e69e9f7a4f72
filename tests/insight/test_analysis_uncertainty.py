"""An annotator's own uncertainty, and rankings against graded answers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mitl.analysis.diversity import label_taus
from mitl.analysis.uncertainty import (
    associate,
    binned,
    geometric_mean,
    recovered_sigmas,
    root_mean_square,
    spread,
)

ONE_QUERY = np.zeros(4, int)
ITEMS = np.array([5, 6, 7, 8])


@given(st.integers(0, 2**16), st.integers(2, 5))
def test_known_noise_gives_the_standard_deviations_back(seed, samples):
    """Whatever the mean, to the rounding of float32."""
    rng = np.random.default_rng(seed)
    mean, sigma = rng.normal(size=(3, 1, 6)), rng.uniform(0.01, 0.5, (3, 6))
    noise = rng.normal(size=(3, samples, 6)).astype(np.float32)
    drawn = (mean + sigma[:, None] * noise).astype(np.float32)

    np.testing.assert_allclose(recovered_sigmas(drawn, noise), sigma, rtol=1e-2)


def test_two_kinds_of_mean():
    """1 and 4: the geometric mean is 2, the root of the mean square sqrt(17 / 2)."""
    assert geometric_mean(np.array([[1.0, 4.0]])) == pytest.approx(2)
    assert root_mean_square(np.array([17.0]), 2) == pytest.approx(np.sqrt(8.5))


def test_bins_go_from_the_least_to_the_most_uncertain():
    """Five queries in two bins: three and two."""
    found = binned(np.array([5.0, 1, 4, 2, 3]), np.array([50.0, 10, 40, 20, 30]), 2)

    assert [(one.low, one.high, one.queries, one.positives) for one in found] == [
        (1, 3, 3, 20),
        (4, 5, 2, 45),
    ]


@given(
    arrays(np.float64, st.integers(1, 30), elements=st.integers(0, 5).map(float)),
    st.integers(1, 12),
)
def test_every_query_is_in_one_bin(uncertainty, count):
    """Bins rise, hold one query or more, and keep the overall mean."""
    positives = np.arange(len(uncertainty), dtype=float)

    found = binned(uncertainty, positives, count)

    assert len(found) == min(count, len(uncertainty))
    assert sum(one.queries for one in found) == len(uncertainty)
    assert all(one.high <= other.low for one, other in itertools.pairwise(found))
    assert sum(one.queries * one.positives for one in found) == pytest.approx(positives.sum())


def test_association_is_of_ranks_and_undefined_without_variation():
    """1 where both rise; None where all queries are alike."""
    rising = np.array([1.0, 2, 3])

    assert associate(rising, rising**3).tau == associate(rising, rising**3).spearman == pytest.approx(1)
    assert associate(rising, np.ones(3)).tau is None
    assert associate(rising[:1], rising[:1]).spearman is None


@pytest.mark.parametrize(("codes", "expected"), [([1, 2, 3, 4], 1.0), ([4, 3, 2, 1], -1.0)])
def test_a_ranking_in_the_order_of_the_answers_has_one(codes, expected):
    """And minus one in the opposite order."""
    assert label_taus(ITEMS[None], ONE_QUERY, ITEMS, np.array(codes)).tolist() == [expected]


def test_items_that_are_not_ranked_stand_together_behind_the_last():
    """7 and 8 are tied: of 5 pairs told apart all agree, and the labels tell 6 apart."""
    found = label_taus(np.array([[5, 6, 99]]), ONE_QUERY, ITEMS, np.array([1, 2, 3, 4]))

    assert found[0] == pytest.approx(5 / np.sqrt(5 * 6))


def test_a_query_of_one_label_or_without_answers_is_undefined():
    """Not 0: nothing can be said."""
    found = label_taus(np.tile(ITEMS, (3, 1)), np.array([0, 0, 2]), np.array([5, 6, 5]), np.array([2, 2, 1]))

    assert np.isnan(found).all()
    assert np.isnan(label_taus(ITEMS[None], np.empty(0, int), np.empty(0, int), np.empty(0, int))).all()


@given(st.integers(0, 2**16))
def test_label_order_is_scipys(seed):
    """Query by query, with judged items beyond the ranking."""
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(seed)
    ranking = np.array([rng.permutation(9)[:5] for _ in range(3)])
    judged = np.argwhere(rng.random((3, 9)) < 0.6)
    codes = rng.integers(1, 5, len(judged))

    found = label_taus(ranking, judged[:, 0], judged[:, 1], codes)

    for query in range(3):
        mine = judged[:, 0] == query
        places = [
            int(np.flatnonzero(ranking[query] == item)[0]) if item in ranking[query] else 5
            for item in judged[mine, 1]
        ]
        expected = stats.kendalltau(places, codes[mine]).statistic if mine.sum() > 1 else np.nan
        np.testing.assert_allclose(found[query], expected, atol=1e-12)


def test_many_queries_of_many_sizes_are_those_of_one_at_a_time():
    """More than are taken together; the sizes run from none to nine."""
    rng = np.random.default_rng(0)
    ranking = np.array([rng.permutation(9)[:5] for _ in range(150)])
    judged = np.argwhere(rng.random((150, 9)) < rng.random((150, 1)))
    codes = rng.integers(1, 5, len(judged))

    found = label_taus(ranking, judged[:, 0], judged[:, 1], codes)

    for query in range(150):
        mine = judged[:, 0] == query
        alone = label_taus(ranking[query][None], np.zeros(mine.sum(), int), judged[mine, 1], codes[mine])
        np.testing.assert_array_equal(found[query], alone[0])


def test_a_spread_holds_the_histogram_and_its_summary():
    """Of four queries with 0, 2, 2 and 5 positives."""
    found = spread([2, 0, 5, 2])

    assert found.histogram == (1, 0, 2, 0, 0, 1)
    assert (found.queries, found.positives, found.mean, found.median, found.most, found.without) == (
        *(4, 9),
        *(2.25, 2, 5, 1),
    )
