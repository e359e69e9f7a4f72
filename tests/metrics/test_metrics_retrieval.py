"""Retrieval metrics: on paper, against a naive loop, and against the reference library."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitl.errors import MetricError
from mitl.metrics.positives import Positives, locate
from mitl.metrics.retrieval import average_precision_at_r, map_at_r, r_precision, recall_at_k, score

ITEMS = 12


@st.composite
def worlds(draw):
    """A few queries with full rankings of twelve items and at least one positive each."""
    queries = draw(st.lists(st.integers(-5, 1000), min_size=1, max_size=6, unique=True))
    rankings = {q: draw(st.permutations(range(ITEMS))) for q in queries}
    positives = {q: draw(st.sets(st.integers(0, ITEMS - 1), min_size=1, max_size=ITEMS)) for q in queries}
    return rankings, positives


def arrays(rankings):
    return np.array(list(rankings)), np.array(list(rankings.values()))


def naive(rankings, positives):
    """The definitions, one query and one place at a time."""
    recalls, precisions, averages = [], [], []
    for query, right in positives.items():
        total = len(right)
        hits = [item in right for item in rankings[query][:total]]
        precisions.append(sum(hits) / total)
        averages.append(sum(sum(hits[: i + 1]) / (i + 1) for i in range(total) if hits[i]) / total)
        recalls.append(any(item in right for item in rankings[query][:5]))
    return np.mean(recalls), np.mean(precisions), np.mean(averages)


@pytest.mark.parametrize(
    ("places", "expected"), [((2, 3, 4, 5, 6, 7, 8), 66.0), ((1,), 12.5), ((6, 7, 8), 10.3), ((5,), 2.5)]
)
def test_the_user_studys_rankings_score_as_the_paper_says(places, expected):
    """R is 8; the positives stand where the paper's rankings A to D put them (section 4.1)."""
    ranking = [rank if rank in places else 100 + rank for rank in range(1, 9)]

    assert 100 * average_precision_at_r(ranking, range(1, 9)) == pytest.approx(expected, abs=0.06)


def test_hits_after_rank_r_earn_nothing():
    """Positives at ranks 2, 4 and 5; R is 3, so only rank 2 counts, with P@2 = 1/2."""
    value = average_precision_at_r([7, 1, 8, 2, 3], {1, 2, 3})

    assert value == pytest.approx((1 / 2) / 3)
    for strange in ([7.5, 1, 8], ["7", "1", "8"]):  # not cut to integers
        with pytest.raises(MetricError, match="item ids must be integers"):
            average_precision_at_r(strange, {1})


@settings(deadline=None)
@given(worlds())
def test_metrics_agree_with_a_naive_loop(world):
    """Recall@5, R-Precision and mAP@R equal their definitions."""
    rankings, positives = world
    recall, precision, average = naive(rankings, positives)
    scores = score(*arrays(rankings), Positives.from_mapping(positives), ks=(5,))

    assert scores.recall[5] == pytest.approx(recall, abs=1e-12)
    assert scores.r_precision == pytest.approx(precision, abs=1e-12)
    assert scores.map_at_r == pytest.approx(average, abs=1e-12)


@settings(deadline=None)
@given(worlds())
def test_map_at_r_never_exceeds_r_precision(world):
    """Each hit within R adds at most 1/R to the one and exactly 1/R to the other."""
    rankings, positives = world
    scores = score(*arrays(rankings), Positives.from_mapping(positives))

    assert scores.map_at_r <= scores.r_precision + 1e-12


@settings(deadline=None)
@given(worlds(), st.integers(10**6, 2**61))
def test_scores_do_not_depend_on_how_ids_are_numbered(world, stretch):
    """Ids far apart score as ids close together."""
    rankings, positives = world
    near = score(*arrays(rankings), Positives.from_mapping(positives))
    queries, items = arrays(rankings)
    far = {q: {item * (stretch // ITEMS) for item in right} for q, right in positives.items()}

    assert score(queries, items * (stretch // ITEMS), Positives.from_mapping(far)) == near


def test_blocks_of_queries_score_as_one(monkeypatch):
    """Reading one query at a time changes nothing."""
    rng = np.random.default_rng(0)
    items = np.argsort(rng.random((40, 30)), axis=1)
    positives = Positives.from_mapping({q: rng.integers(0, 30, 5) for q in range(40)})
    whole = score(np.arange(40), items, positives)
    monkeypatch.setattr("mitl.metrics.retrieval._CELLS", 1)

    assert score(np.arange(40), items, positives) == pytest.approx(whole)


def test_only_queries_with_positives_listed_are_scored():
    """Rankings of further queries are not looked at, and rows may come in any order."""
    positives = Positives.from_mapping({3: [30], 1: [10]})

    assert recall_at_k(np.array([2, 3, 1]), np.array([[10], [30], [11]]), positives, 1) == 0.5


def test_a_short_ranking_is_refused_by_name():
    """R-Precision and mAP@R need R places; the message names the query."""
    positives = Positives.from_mapping({7: [1], 417: [1, 2, 3]})

    with pytest.raises(MetricError, match="query 417 has 3 positives, but its ranking ends at 2"):
        map_at_r(np.array([7, 417]), np.array([[1, 2], [1, 2]]), positives)
    with pytest.raises(MetricError, match="Recall@5 needs 5 ranked items"):
        recall_at_k(np.array([7, 417]), np.array([[1, 2], [1, 2]]), positives, 5)
    for slip in ({"short": "Raise"}, {"no_positives": "leave-out"}):  # not taken for leave to pass over
        with pytest.raises(MetricError, match=rf"{next(iter(slip))} is .*; known: raise, "):
            r_precision(np.array([7, 417]), np.array([[1, 2], [1, 2]]), positives, **slip)


def test_missing_places_count_as_misses_on_request():
    """Two of two hits with R = 4 give half, not all as when dividing by what was retrieved."""
    ranking = (np.array([7]), np.array([[1, 2]]), Positives.from_mapping({7: [1, 2, 3, 4]}))

    assert r_precision(*ranking, short="zero") == 0.5
    assert map_at_r(*ranking, short="zero") == 0.5
    assert recall_at_k(*ranking, 5, short="zero") == 1.0


def test_a_query_without_positives_is_refused_or_left_out():
    """R = 0 leaves every metric undefined."""
    ranking = (np.array([1, 2]), np.array([[5], [6]]), Positives.from_mapping({1: [], 2: [6]}))

    with pytest.raises(MetricError, match="query 1 has no positives"):
        map_at_r(*ranking)
    scores = score(*ranking, ks=(1,), no_positives="leave_out")
    assert (scores.map_at_r, scores.n_queries, scores.left_out) == (1.0, 1, 1)


@pytest.mark.parametrize(
    ("queries", "items", "complaint"),
    [
        ([1], [[5]], "query 2 has no ranking"),
        ([1, 2, 2], [[5], [5], [5]], "query 2 has two rankings"),
        ([1, 2], [[5]], "2 query ids were given"),
        ([1, 2], [[5], [5, 6]], "rankings differ in length; give ListRankings"),
        ([], np.empty((0, 3), dtype=int), "no rankings"),
    ],
)
def test_rankings_that_do_not_fit_are_refused(queries, items, complaint):
    """A missing, doubled or misshapen ranking is an error, never a low score."""
    positives = Positives.from_mapping({1: [5], 2: [5]})

    with pytest.raises(MetricError, match=complaint):
        score(np.array(queries, dtype=int), items, positives, ks=(1,))


def test_a_positive_named_twice_is_refused():
    """Otherwise one right item would be rewarded twice."""
    positives = Positives.from_mapping({9: [4, 5]})

    with pytest.raises(MetricError, match="the ranking of query 9 names item 4 twice"):
        map_at_r(np.array([9]), np.array([[4, 4]]), positives)


def test_k_below_one_is_refused():
    """Ranks start at 1."""
    with pytest.raises(MetricError, match="K is 0"):
        recall_at_k(np.array([1]), np.array([[1]]), Positives.from_mapping({1: [1]}), 0)


def test_positives_outside_the_gallery_still_count_in_r():
    """An item that no ranking can hold lowers the best possible score, as in the official one."""
    located = locate({"a": ["x", "gone"]}, {"a": 0}, {"x": 10, "y": 11})

    assert located.outside_gallery == 1
    assert r_precision(np.array([0]), np.array([[10, 11]]), located.positives) == 0.5
    with pytest.raises(MetricError, match="query 'b'"):
        locate({"b": ["x"]}, {"a": 0}, {"x": 10})


def test_a_pair_given_twice_is_one_positive():
    """R counts distinct items."""
    positives = Positives.from_pairs(np.array([4, 4, 2]), np.array([8, 8, 9]), queries=np.array([2, 3, 4]))

    assert positives.counts.tolist() == [1, 0, 1]
    assert positives.of(4).tolist() == [8]
    with pytest.raises(MetricError, match="no query 5"):
        positives.of(5)


def test_scores_equal_the_reference_library_on_its_own_positives():
    """Recall, R-Precision and mAP@R on the official positives agree to 1e-12, both directions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns about optional packages at import
        eccv_caption = pytest.importorskip("eccv_caption")
    reference = eccv_caption.Metrics()
    tables = {"coco_5k": reference.coco_gts, "cxc": reference.cxc_gts, "eccv": reference.eccv_gts}
    rng = np.random.default_rng(1)
    captions, images = reference.coco_ids.astype(np.int64), np.array(sorted(reference.coco_gts["i2t"]))
    rankings = {
        "i2t": (images, likely_rankings(rng, images, captions, tables, "i2t")),
        "t2i": (captions, likely_rankings(rng, captions, images, tables, "t2i")),
    }
    given = {
        d: {int(q): row.tolist() for q, row in zip(*ranking, strict=True)} for d, ranking in rankings.items()
    }
    wanted = ("coco_5k_recalls", "cxc_recalls", "eccv_map_at_r", "eccv_rprecision", "eccv_r1")
    theirs = reference.compute_all_metrics(given["i2t"], given["t2i"], wanted, (1, 5, 10))
    theirs["eccv_r1"] = reference.eccv_recalls(given, "all", 1)

    for name, table in tables.items():
        for direction, ranking in rankings.items():
            ours = score(*ranking, Positives.from_mapping(table[direction]), by_r=name == "eccv")
            for k in (1,) if name == "eccv" else (1, 5, 10):
                assert ours.recall[k] == pytest.approx(theirs[f"{name}_r{k}"][direction], abs=1e-12)
            if name == "eccv":
                assert ours.map_at_r == pytest.approx(theirs["eccv_map_at_r"][direction], abs=1e-12)
                assert ours.r_precision == pytest.approx(theirs["eccv_rprecision"][direction], abs=1e-12)


def likely_rankings(rng, queries, gallery, tables, direction, depth=60):
    """Rankings of random items in which some of each query's positives come early."""
    items = gallery[rng.integers(0, len(gallery), (len(queries), 2 * depth))]
    rows = []
    for query, row in zip(queries.tolist(), items.tolist(), strict=True):
        known = [
            i for table in tables.values() for i in table[direction].get(query, ()) if rng.random() < 0.5
        ]
        mixed = known[:10] + row
        first = [mixed[i] for i in rng.permutation(20)]
        rows.append(list(dict.fromkeys(first + mixed[20:]))[:depth])
    return np.array(rows)
