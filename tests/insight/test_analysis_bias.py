"""The bias index of ECCV Caption's appendix E, and the graded scores that it is made of."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitl.analysis.bias import (
    MOST,
    GradedPairs,
    all_subsets,
    bias_by_size,
    graded_scores,
    used_by,
)
from mitl.errors import MetricError

# Table E.1a, R@1 of captions searching images; rows the scored model, columns whose positives, the last all five.
PVSE, VSRN, PCME, VILT, CLIP = range(5)
TABLE_E1A = np.array(
    [
        [76.5, 63.6, 67.6, 45.3, 42.0, 76.6],
        [68.0, 80.1, 69.0, 51.1, 47.2, 80.1],
        [67.7, 64.3, 77.3, 46.0, 44.1, 77.4],
        [59.5, 59.8, 58.8, 62.0, 49.3, 72.4],
        [51.7, 51.5, 52.6, 42.8, 49.3, 64.3],
    ]
)
ALONE = np.eye(5, dtype=bool)


def test_the_papers_example_comes_out():
    """PVSE alone: 9.5 in all, 0.1 onto itself, 11.8 onto the others (equation E.6 and the text below it)."""
    (found,) = bias_by_size(TABLE_E1A[:, [PVSE]].T, ALONE[[PVSE]], TABLE_E1A[:, 5])

    assert [round(part, 1) for part in (found.total, found.own, found.other)] == [9.5, 0.1, 11.8]


def test_one_annotator_alone_is_the_mean_over_the_five_columns():
    """The averages that Fig. E.2 draws at one model, by hand."""
    (one,) = bias_by_size(TABLE_E1A[:, :5].T, ALONE, TABLE_E1A[:, 5])
    distance = np.abs(TABLE_E1A[:, :5] - TABLE_E1A[:, 5:])

    assert (one.size, one.subsets) == (1, 5)
    assert one.total == pytest.approx(distance.mean())
    assert one.own == pytest.approx(np.diag(distance).mean())
    assert one.other == pytest.approx((distance.sum() - np.trace(distance)) / 20)
    assert one.shift == pytest.approx((TABLE_E1A[:, :5] - TABLE_E1A[:, 5:]).mean())


def test_all_annotators_have_no_bias_and_nobody_else_to_be_biased_against():
    """And the non-self-bias is undefined rather than 0."""
    found = bias_by_size(TABLE_E1A[:, 5:].T, np.ones((1, 5), bool), TABLE_E1A[:, 5])

    assert [(one.size, one.total, one.own, one.other) for one in found] == [(5, 0, 0, None)]


def test_every_subset_is_there_once_by_size():
    """Of three: 1, 2, 3, 12, 13, 23, 123."""
    used = used_by(all_subsets(3), 3)

    names = ["".join(str(place + 1) for place in np.flatnonzero(row)) for row in used]
    assert names == ["1", "2", "3", "12", "13", "23", "123"]


def test_too_many_annotators_say_so():
    """Instead of working for hours."""
    with pytest.raises(MetricError, match=f"at most {MOST} of them with --annotator"):
        all_subsets(MOST + 1)


def test_a_subset_of_nobody_is_refused():
    """It has no positives."""
    with pytest.raises(MetricError, match="a subset without annotators"):
        bias_by_size(np.zeros((1, 2)), np.zeros((1, 2), bool), np.zeros(2))


def test_graded_scores_by_hand():
    """Two annotators, two queries, three items; yes counts 1, weak yes 0.5."""
    # Query 0: item 10 yes by the first, 11 weak yes by both. Query 1: item 12 weak yes by the second alone.
    pairs = GradedPairs(
        np.array([0, 0, 1]), np.array([10, 11, 12]), np.array([1.0, 0.5, 0.5]), np.array([0b01, 0b11, 0b10])
    )
    rankings = np.array([[[10, 11, 12], [10, 12, 11]], [[11, 12, 10], [12, 10, 11]]])

    found = graded_scores(rankings, pairs, np.array([0b01, 0b10, 0b11]))

    assert found.recall_at_1.tolist() == [[0.5, 0.25], [0, 0.5], [0.5, 0.5]]
    # Under the first alone R is 2 and 0: (1 + 0.5) / 2 and 0.5 / 2 for the first query, 0 for the second.
    # Under the second alone R is 1 and 1. Under both it is 2 and 1.
    assert found.r_precision.tolist() == [[0.375, 0.125], [0, 0.5], [0.375, 0.375]]
    assert found.capped == 0


def test_an_r_beyond_the_ranked_items_is_cut_and_counted():
    """Three matches, two ranked items: R is 2."""
    pairs = GradedPairs(np.zeros(3, int), np.array([1, 2, 3]), np.ones(3), np.ones(3, int))

    found = graded_scores(np.array([[[1, 2]]]), pairs, np.array([1]))

    assert found.r_precision.tolist() == [[1]] and found.capped == 1


@st.composite
def worlds(draw):
    """Rankings (A, Q, K) of 2 to 4 annotators, and some graded pairs with their proposers."""
    annotators, queries, items = draw(st.integers(2, 4)), draw(st.integers(1, 4)), draw(st.integers(2, 6))
    depth = draw(st.integers(1, items))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    rankings = np.array([[rng.permutation(items)[:depth] for _ in range(queries)] for _ in range(annotators)])
    chosen = np.argwhere(rng.random((queries, items)) < draw(st.floats(0, 1)))
    pairs = GradedPairs(
        chosen[:, 0],
        chosen[:, 1],
        rng.choice([0.5, 1.0], len(chosen)),
        rng.integers(1, 1 << annotators, len(chosen)),
    )
    return rankings, pairs


def plainly(ranking, pairs, subset):
    """R@1 and R-Precision of one annotator with loops and dictionaries."""
    grades = {}
    for query, item, grade, bits in zip(
        pairs.queries, pairs.items, pairs.grades, pairs.proposers, strict=True
    ):
        if bits & subset:
            grades.setdefault(int(query), {})[int(item)] = float(grade)
    first = precision = 0.0
    for query, row in enumerate(ranking):
        known = grades.get(query, {})
        first += known.get(int(row[0]), 0.0)
        r = min(len(known), len(row))
        precision += sum(known.get(int(item), 0.0) for item in row[:r]) / r if r else 0.0
    return first / len(ranking), precision / len(ranking)


@given(worlds())
def test_graded_scores_are_what_loops_give(world):
    """For every subset and annotator."""
    rankings, pairs = world
    subsets = all_subsets(len(rankings))

    found = graded_scores(rankings, pairs, subsets)

    for row, (place, ranking) in itertools.product(range(len(subsets)), enumerate(rankings)):
        first, precision = plainly(ranking, pairs, int(subsets[row]))
        assert found.recall_at_1[row, place] == pytest.approx(first)
        assert found.r_precision[row, place] == pytest.approx(precision)


@given(worlds())
def test_more_proposers_never_lower_recall_at_1(world):
    """A larger subset holds every positive of a smaller one."""
    rankings, pairs = world
    subsets = all_subsets(len(rankings))
    scores = dict(zip(subsets.tolist(), graded_scores(rankings, pairs, subsets).recall_at_1, strict=True))

    for small, large in itertools.product(subsets.tolist(), repeat=2):
        if small & large == small:
            assert (scores[small] <= scores[large] + 1e-12).all()


@given(worlds())
def test_identical_annotators_have_no_bias(world):
    """The same rankings and the same proposals: whoever is left out, nothing changes."""
    rankings, pairs = world
    count = len(rankings)
    alike = np.repeat(rankings[:1], count, 0)
    everyone = GradedPairs(pairs.queries, pairs.items, pairs.grades, np.full(len(pairs), (1 << count) - 1))
    subsets = all_subsets(count)

    scores = graded_scores(alike, everyone, subsets)

    for values in (scores.recall_at_1, scores.r_precision):
        for one in bias_by_size(values, used_by(subsets, count), values[-1]):
            assert one.total == one.own == one.shift == 0 and one.other in (0, None)


@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_the_annotators_and_of_the_pairs_does_not_matter(world, random):
    """Averages over all subsets of a size do not know who comes first, nor do item ids matter."""
    rankings, pairs = world
    count = len(rankings)
    order = list(range(count))
    random.shuffle(order)
    bits = sum(((pairs.proposers >> old) & 1) << new for new, old in enumerate(order))
    shuffled = np.array(random.sample(range(len(pairs)), len(pairs)), int)
    relabelled = np.array(random.sample(range(100), 10))
    moved = GradedPairs(
        pairs.queries[shuffled],
        relabelled[pairs.items[shuffled]],
        pairs.grades[shuffled],
        (bits + np.zeros(len(pairs), int))[shuffled],
    )

    def by_size(rankings, pairs):
        subsets = all_subsets(count)
        scores = graded_scores(rankings, pairs, subsets).r_precision
        return bias_by_size(scores, used_by(subsets, count), scores[-1])

    one, other = by_size(rankings, pairs), by_size(relabelled[rankings[order]], moved)
    for left, right in zip(one, other, strict=True):
        assert left.total == pytest.approx(right.total) and left.own == pytest.approx(right.own)
        assert left.tau == pytest.approx(right.tau) and left.shift == pytest.approx(right.shift)
