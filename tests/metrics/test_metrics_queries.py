"""Metrics query by query: on paper, where rankings end, and within folds."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitl.errors import MetricError
from mitl.metrics import (
    ListRankings,
    Positives,
    score_folds,
    score_metrics,
    score_queries,
    score_ranked,
    split_folds,
)
from mitl.metrics.ranks import ArrayRankings, Members, first_ranks

QUERIES = np.arange(6)
RANKINGS = np.array(
    [
        [0, 1, 2, 3, 4, 5],  # positives 0
        [0, 1, 2, 3, 4, 5],  # positives 1, 2
        [5, 4, 3, 2, 1, 0],  # positives 3, 0, 5
        [2, 0, 3, 1, 5, 4],  # positives 4
        [1, 3, 5, 0, 2, 4],  # positives 1, 3, 5, 0
        [4, 5, 0, 1, 2, 3],  # positives 1, 2, 3
    ]
)
POSITIVES = Positives.from_mapping({0: [0], 1: [1, 2], 2: [3, 0, 5], 3: [4], 4: [1, 3, 5, 0], 5: [1, 2, 3]})


def by_name(values):
    """Values as lists, by metric."""
    return {each.metric: each.values.tolist() for each in values}


def test_six_queries_score_as_on_paper():
    """Each value worked out by hand: query 2 has hits at ranks 1, 3 and 6 and R = 3."""
    found = by_name(score_queries(QUERIES, RANKINGS, POSITIVES, ks=(1, 2), median_rank=True))

    assert found["R@1"] == [1, 0, 1, 0, 1, 0]
    assert found["R@2"] == [1, 1, 1, 0, 1, 0]
    assert found["R-Precision"] == pytest.approx([1, 1 / 2, 2 / 3, 0, 1, 0])
    assert found["mAP@R"] == pytest.approx([1, 1 / 4, (1 + 2 / 3) / 3, 0, 1, 0])
    assert found["median rank"] == [1, 2, 1, 6, 1, 4]


def test_estimates_are_means_and_a_median():
    """The median of 1, 1, 1, 2, 4, 6 is 1.5."""
    values = score_queries(QUERIES, RANKINGS, POSITIVES, ks=(1,), median_rank=True)

    assert [each.estimate for each in values] == pytest.approx(
        [1 / 2, 19 / 36, (1 + 1 / 4 + 5 / 9 + 1) / 6, 1.5]
    )


def test_lists_of_unequal_length_score_as_arrays_where_they_suffice():
    """Query 3 needs one place and is cut to two; the others are whole."""
    lists = {query: row[: 2 if query == 3 else 6].tolist() for query, row in enumerate(RANKINGS)}
    whole = by_name(score_queries(QUERIES, RANKINGS, POSITIVES, ks=(1, 2)))

    assert by_name(score_ranked(ListRankings(lists), POSITIVES, ks=(1, 2))) == whole
    rows = {query: RANKINGS[query] for query in range(6)}
    assert by_name(score_ranked(ListRankings(rows), POSITIVES, ks=(1, 2))) == whole


def test_a_first_positive_beyond_the_end_is_refused_or_stands_right_behind_it():
    """Query 3 finds its positive at rank 6, query 5 at 4; the ranking ends at 3."""
    with pytest.raises(MetricError, match=r"no positive of query 3 is among the 3 items .*2 of 6 queries"):
        score_queries(QUERIES, RANKINGS[:, :3], POSITIVES, ks=(), by_r=False, median_rank=True)
    found = score_queries(
        QUERIES, RANKINGS[:, :3], POSITIVES, ks=(), by_r=False, median_rank=True, short="zero"
    )
    assert by_name(found) == {"median rank": [1, 2, 1, 4, 1, 4]}


def test_queries_without_positives_are_counted_where_they_are_left_out():
    """The count goes with the values."""
    positives = Positives.from_mapping({0: [0], 1: []})
    (found,) = score_queries(QUERIES, RANKINGS, positives, ks=(1,), by_r=False, no_positives="leave_out")

    assert (found.query_ids.tolist(), found.left_out) == ([0], 1)


@given(st.integers(0, 2**32), st.integers(1, 40), st.sampled_from([1, 7, 1 << 18]))
def test_the_first_rank_is_the_naive_one_however_it_is_read(seed, depth, cells):
    """Among all items or some, read in blocks of any size, on arrays and on lists."""
    rng = np.random.default_rng(seed)
    items = np.argsort(rng.random((7, 40)), axis=1)[:, :depth]
    positives = Positives.from_mapping(
        {q: rng.choice(40, rng.integers(1, 6), replace=False) for q in range(7)}
    )
    inside = rng.choice(40, 15, replace=False)
    naive = []
    for query, row in enumerate(items):
        kept = [item for item in row if item in inside]
        ranks = [rank for rank, item in enumerate(kept, 1) if item in positives.of(query)]
        naive.append((ranks or [0])[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mitl.metrics.ranks._CELLS", cells)
        patch.setattr("mitl.metrics.ranks._FIRST_PLACES", 3)
        for rankings in (ArrayRankings(np.arange(7), items), ListRankings(dict(enumerate(items.tolist())))):
            assert first_ranks(rankings, positives, members=Members(inside)).first.tolist() == naive


def test_members_far_apart_are_found():
    """Ids that no table could span."""
    members = Members(np.array([-(2**60), 5, 2**60]))

    assert members.hold(np.array([[5, 6], [2**60, -(2**60)]])).tolist() == [[True, False], [True, True]]


@pytest.fixture
def folds():
    """Six captions of three images in two folds; the second image's captions fall into both."""
    images_of = Positives.from_mapping({10: [1], 11: [1], 12: [2], 13: [2], 14: [3], 15: [3]})
    captions_of = Positives.from_mapping({1: [10, 11], 2: [12, 13], 3: [14, 15]})
    return split_folds(np.array([10, 11, 12, 13, 14, 15]), images_of, captions_of, folds=2)


def test_a_fold_counts_its_own_items_alone(folds):
    """Image 2 is a query of both folds, and its caption 13 is passed over in the first."""
    there, _ = folds
    rankings = np.array([[14, 10, 11, 12, 13, 15], [13, 10, 12, 11, 14, 15], [10, 13, 12, 14, 11, 15]])
    (found, median) = score_folds(np.array([1, 2, 3]), rankings, there, ks=(1,), median_rank=True)

    assert found.query_ids.tolist() == [1, 2, 2, 3]
    assert found.values.tolist() == [1, 0, 1, 0]
    assert median.values.tolist() == [1, 2, 1, 2]


def test_folds_of_unequal_size_weigh_alike():
    """The estimate is the mean of the folds' means, not of the queries."""
    images_of = Positives.from_mapping({10: [1], 11: [1], 12: [2], 13: [3]})
    captions_of = Positives.from_mapping({1: [10, 11], 2: [12], 3: [13]})
    there, _ = split_folds(np.array([10, 11, 12, 13]), images_of, captions_of, folds=2)
    rankings = np.array([[10, 11, 12, 13], [13, 12, 10, 11], [13, 12, 10, 11]])
    (found,) = score_folds(np.array([1, 2, 3]), rankings, there, ks=(1,))

    assert found.values.tolist() == [1, 0, 1]
    assert found.estimate == pytest.approx((1 + 1 / 2) / 2)
    assert found.weights is not None and found.weights.sum() == pytest.approx(1)


def test_a_ranking_that_ends_before_a_fold_is_decided_is_refused_or_a_miss(folds):
    """Two items read, one of them in the fold, two wanted."""
    there, _ = folds
    rankings = (np.array([1, 2, 3]), np.array([[14, 12], [12, 10], [15, 14]]), there)

    with pytest.raises(
        MetricError, match="query 1 ends after 1 of the 3 items of its fold, before a positive or 2"
    ):
        score_folds(*rankings, ks=(1, 2))
    first, second = score_folds(*rankings, ks=(1, 2), short="zero")
    assert (first.values.tolist(), second.values.tolist()) == ([0, 1, 0, 1], [0, 1, 0, 1])
    with pytest.raises(MetricError, match="before a positive"):
        score_folds(*rankings, ks=(), median_rank=True)
    nothing = np.empty((3, 0), np.int64)
    recall, median = score_folds(rankings[0], nothing, there, ks=(1,), median_rank=True, short="zero")
    assert (recall.estimate, median.estimate) == (0, 1)


def test_what_belongs_to_no_fold_is_named():
    """Too few captions, or one without an image."""
    one = Positives.from_mapping({10: [1]})
    with pytest.raises(MetricError, match="1 captions cannot make 5 folds"):
        split_folds(np.array([10]), one, one)
    with pytest.raises(MetricError, match="caption 11 has no positives"):
        split_folds(np.array([10, 11]), one, one, folds=1)


def test_positives_refuse_what_is_no_integer():
    """A file name, a float and a number too large are told apart from ids."""
    for ids in (["000042.jpg"], [4.5], ["42"]):
        with pytest.raises(MetricError, match="item ids must be integers"):
            Positives.from_mapping({1: ids})
    with pytest.raises(MetricError, match="query ids must be integers, but 'a' is of type str"):
        Positives.from_mapping({"a": [1]})
    hashed = np.array([[2**64 - 1]], np.uint64)  # -1, if 64 bits were read with a sign
    for refused in (
        lambda: ArrayRankings(np.array([1]), hashed),
        lambda: Positives.from_mapping({1: [2**63]}),
    ):
        with pytest.raises(MetricError, match="item ids must be integers of 64 bits with a sign"):
            refused()


@pytest.mark.parametrize("wrong", [4.5, "42", None, 2**63])
def test_every_place_of_a_list_that_is_read_holds_an_integer(wrong):
    """Not its first alone: numpy would cut 4.5 to 4 and read the text 42."""
    rankings = ListRankings({1: [5, 7], 2: [8, wrong]})
    with pytest.raises(MetricError, match="item ids must be integers"):
        score_metrics(rankings, Positives.from_mapping({1: [7], 2: [4]}), ["R@2"])
    assert score_metrics(rankings, Positives.from_mapping({1: [7]}), ["R@2"])[0].estimate == 1


def test_a_k_beyond_any_ranking_costs_no_memory():
    """What no ranking names are misses, and is not looked at."""
    rankings = ListRankings({1: [5, 10], 2: [20]})
    positives = Positives.from_mapping({1: [10], 2: [30]})
    asked = ["P@1000000000000", f"R@{10**23}"]
    precision, recall = score_metrics(rankings, positives, asked, short="zero")
    assert (precision.values.tolist(), recall.values.tolist()) == ([1e-12, 0.0], [1.0, 0.0])


def test_importing_the_metrics_brings_nothing_heavy():
    """Every public name, without torch, scipy, pandas, matplotlib or the database."""
    code = (
        "import sys, mitl.metrics as m; light = len([n for n in sys.modules if n.startswith('numpy')]); "
        "[getattr(m, name) for name in m.__all__]; import mitl.metrics.compat; "
        "heavy = ('torch', 'scipy', 'pandas', 'matplotlib', 'sqlalchemy', 'numba'); "
        "print(light, [n for n in heavy if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "0 []\n"


def test_unknown_names_are_refused():
    """As any module does."""
    import mitl.metrics

    with pytest.raises(AttributeError, match="no attribute 'recall'"):
        _ = mitl.metrics.recall
    assert set(mitl.metrics.__all__) <= set(dir(mitl.metrics))
