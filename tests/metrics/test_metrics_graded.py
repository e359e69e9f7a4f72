"""nDCG and Kendall's tau against graded labels: on paper, against scipy and against the definitions looped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mitl.errors import MetricError
from mitl.metrics import ranks
from mitl.metrics.graded import (
    CXC_RANGE,
    FOUR_GRADES,
    GradedLabels,
    exponential,
    grades_of,
    kendall,
    kendall_dense,
    linear,
    ndcg,
)
from mitl.records import Label

RANKINGS = np.array(
    [
        [1, 2, 3, 4, 5, 6],
        [6, 5, 4, 3, 2, 1],
        [3, 1, 2, 6, 4, 5],
        [1, 2, 3, 4, 5, 6],
    ]
)
QUERIES = np.array([10, 20, 30, 40])
LABELS = {10: {1: 3, 3: 2, 6: 1}, 20: {1: 3, 6: 1}, 30: {2: 2, 4: 0}, 40: {5: 0}}


def of(table, **options):
    triples = [(query, item, grade) for query, items in table.items() for item, grade in items.items()]
    return GradedLabels.from_pairs(*(np.array(column) for column in zip(*triples, strict=True)), **options)


def scored(values):
    return dict(zip(values.query_ids.tolist(), values.values.tolist(), strict=True))


def test_ndcg_is_what_the_definition_gives_on_paper():
    """Discounts are 1, 0.6309, 0.5 at ranks 1 to 3. Query 10 has 7 at rank 1 and 3 at rank 3, of 7, 3, 1 at best."""
    found = scored(ndcg(QUERIES, RANKINGS, of(LABELS), k=3))
    second = 1 / np.log2(3)

    assert found[10] == pytest.approx((7 + 3 * 0.5) / (7 + 3 * second + 1 * 0.5))
    assert found[20] == pytest.approx(1 / (7 + 1 * second))
    assert found[30] == pytest.approx(3 * 0.5 / 3)


def test_a_query_whose_items_all_earn_nothing_is_left_out_and_counted():
    values = ndcg(QUERIES, RANKINGS, of(LABELS), k=3)

    assert values.query_ids.tolist() == [10, 20, 30]
    assert (values.metric, values.left_out) == ("nDCG@3", 1)


def test_a_linear_gain_takes_the_grade_itself():
    """Query 20 at K = 1: item 6 earns 1, the best would be 3."""
    assert scored(ndcg(QUERIES, RANKINGS, of(LABELS), k=1, gain=linear))[20] == pytest.approx(1 / 3)


def test_ungraded_items_may_be_passed_over():
    """Among graded items alone query 20 ranks 6 (1) before 1 (3), query 30 ranks 2 (2) first."""
    values = ndcg(QUERIES, RANKINGS, of(LABELS), k=2, gain=linear, ungraded="leave_out")
    found = scored(values)
    second = 1 / np.log2(3)

    assert found[20] == pytest.approx((1 + 3 * second) / (3 + 1 * second))
    assert found[30] == 1
    assert values.metric == "nDCG'@2"


def naive(rankings, labels, k, gain, passed_over):
    """The definition, a query and a place at a time."""
    values = {}
    for query, ranking in rankings.items():
        grades = labels.get(query, {})
        ranked = [item for item in ranking if item in grades or not passed_over]
        gains = [gain(grades.get(item, 0)) if item in grades else 0 for item in ranked[:k]]
        best = sorted((gain(grade) for grade in grades.values()), reverse=True)[:k]
        total = sum(g / np.log2(place + 2) for place, g in enumerate(best))
        if total:
            values[query] = sum(g / np.log2(place + 2) for place, g in enumerate(gains)) / total
    return values


@st.composite
def worlds(draw):
    queries = draw(st.lists(st.integers(0, 10**6), min_size=1, max_size=5, unique=True))
    rankings = {query: draw(st.permutations(range(8))) for query in queries}
    grades = st.dictionaries(st.integers(0, 7), st.integers(0, 3), min_size=1)
    return rankings, {query: draw(grades) for query in queries}


@given(worlds(), st.integers(1, 8), st.booleans())
def test_values_are_those_of_the_definition(world, k, passed_over):
    rankings, labels = world
    expected = naive(rankings, labels, k, lambda grade: 2**grade - 1, passed_over)
    arguments = (np.array(list(rankings)), np.array(list(rankings.values())), of(labels))
    options = {"k": k, "ungraded": "leave_out" if passed_over else "zero"}

    if not expected:
        with pytest.raises(MetricError, match="undefined for every query"):
            ndcg(*arguments, **options)
        return
    values = ndcg(*arguments, **options)

    assert scored(values) == pytest.approx(expected)
    assert all(0 <= value <= 1 + 1e-12 for value in values.values)


@given(worlds(), st.integers(1, 8))
def test_ranking_by_grade_is_perfect(world, k):
    _, labels = world
    ideal = [sorted(range(8), key=lambda item, of=grades: -of.get(item, 0)) for grades in labels.values()]
    if not any(any(grades.values()) for grades in labels.values()):
        return

    values = ndcg(np.array(list(labels)), np.array(ideal), of(labels), k=k)

    assert values.values == pytest.approx(1)


def test_values_do_not_depend_on_how_much_is_held_at_once(monkeypatch):
    whole = scored(ndcg(QUERIES, RANKINGS, of(LABELS), k=3))

    monkeypatch.setattr(ranks, "_CELLS", 13)

    assert scored(ndcg(QUERIES, RANKINGS, of(LABELS), k=3)) == whole


def test_short_rankings_are_refused_or_count_as_earning_nothing():
    short = RANKINGS[:, :2]

    with pytest.raises(
        MetricError, match="nDCG@3 needs 3 ranked items, but the ranking of query 10 ends at 2"
    ):
        ndcg(QUERIES, short, of(LABELS), k=3)
    with pytest.raises(MetricError, match=r"query 10 needs 3 graded items .* holds 1 of 3"):
        ndcg(QUERIES, short, of(LABELS), k=3, ungraded="leave_out")
    found = scored(ndcg(QUERIES, short, of(LABELS), k=3, short="zero"))
    assert found[10] == pytest.approx(7 / (7 + 3 / np.log2(3) + 0.5))


@pytest.mark.parametrize(
    ("rankings", "options", "message"),
    [
        (RANKINGS, {"k": 0}, "ranks start at 1"),
        (RANKINGS, {"gain": lambda grades: grades - 1}, "earns -1, but gains are at least 0"),
        (RANKINGS[:3], {}, "3, 6"),
        (np.where(RANKINGS == 2, 1, RANKINGS), {}, "query 10 names item 1 twice"),
    ],
)
def test_bad_input_to_ndcg_is_said(rankings, options, message):
    with pytest.raises(MetricError, match=message):
        ndcg(QUERIES, rankings, of(LABELS), **({"k": 2} | options))


def test_a_graded_query_needs_a_ranking():
    with pytest.raises(MetricError, match="query 40 has no ranking"):
        ndcg(QUERIES[:3], RANKINGS[:3], of(LABELS), k=2)


def test_tau_is_what_counting_pairs_gives_on_paper():
    """Grades 3, 2, 2, 0; similarities .9, .1, .5, .3: of six pairs four agree, one does not, one is tied in grades."""
    labels = of({7: {1: 3, 2: 2, 3: 2, 4: 0}})

    values = kendall(labels, np.array([0.9, 0.1, 0.5, 0.3]))

    assert values.values == pytest.approx([(4 - 1) / np.sqrt(5 * 6)])
    assert (values.metric, values.left_out) == ("Kendall tau-b", 0)


def test_queries_without_a_tau_are_left_out_and_counted():
    """One item; one grade only; a model that tells nothing apart."""
    labels = of({1: {1: 3}, 2: {1: 2, 2: 2}, 3: {1: 0, 2: 3}, 4: {1: 0, 2: 3}})

    values = kendall(labels, np.array([0.1, 0.2, 0.3, 0.5, 0.5, 0.1, 0.9]))

    assert scored(values) == {4: 1}
    assert values.left_out == 3


groups = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=9), min_size=1
)


@given(groups)
def test_tau_agrees_with_scipy(world):
    expected = {}
    for query, pairs in enumerate(world):
        value = stats.kendalltau(*zip(*pairs, strict=True)).statistic if len(pairs) > 1 else np.nan
        if not np.isnan(value):
            expected[query] = value
    labels = of(
        {query: {i: grade for i, (grade, _) in enumerate(pairs)} for query, pairs in enumerate(world)}
    )
    similarities = np.array([similarity for pairs in world for _, similarity in pairs])

    if not expected:
        with pytest.raises(MetricError, match="undefined for every query"):
            kendall(labels, similarities)
        return
    values = kendall(labels, similarities)

    assert scored(values) == pytest.approx(expected)
    assert values.left_out == len(world) - len(expected)


def test_items_without_a_similarity_are_tied_behind_the_others():
    """-inf says that a pair has none; two of them tell nothing apart."""
    labels = of({1: {0: 0, 1: 1, 2: 2, 3: 3}})

    with np.errstate(all="raise"):
        values = kendall(labels, np.array([-np.inf, -np.inf, 0.1, 0.2]))

    assert scored(values) == pytest.approx({1: 5 / np.sqrt(5 * 6)})


def test_long_rows_have_the_tau_of_short_ones(monkeypatch):
    """Many items are sorted rather than compared two by two; the number is the same."""
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 50, (3, 300)), rng.integers(0, 4, (3, 300))

    long = kendall_dense(np.arange(3), one, other)
    monkeypatch.setattr("mitl.analysis.diversity._LONG", 10**6)
    monkeypatch.setattr("mitl.analysis.diversity._CELLS", 1)

    assert kendall_dense(np.arange(3), one, other).values == pytest.approx(long.values)


def test_a_gallery_graded_throughout_gives_the_tau_of_pairs():
    rng = np.random.default_rng(1)
    grades, similarities = rng.integers(0, 3, (5, 6)), rng.random((5, 6))
    labels = of({query: dict(enumerate(row)) for query, row in enumerate(grades.tolist())})

    assert kendall_dense(np.arange(5), similarities, grades).values == pytest.approx(
        kendall(labels, similarities.ravel()).values
    )


@pytest.mark.parametrize(
    ("similarities", "message"),
    [
        (np.zeros(3), "give one for each"),
        (np.array([0, 1, np.nan, 0, 0, 0, 0, 0]), "similarity of query 10 × item 6 is nan"),
        (np.zeros(8), "undefined for every query"),
    ],
)
def test_bad_similarities_are_said(similarities, message):
    with pytest.raises(MetricError, match=message):
        kendall(of(LABELS), similarities)


@pytest.mark.parametrize(
    ("similarities", "grades", "message"),
    [
        (np.zeros((2, 3)), np.zeros((2, 4)), "grades"),
        (np.full((2, 3), np.nan), np.zeros((2, 3)), "a similarity of query 5 is nan"),
        (np.zeros((2, 3)), np.full((2, 3), np.nan), "a grade of query 5 is nan"),
    ],
)
def test_bad_dense_grades_are_said(similarities, grades, message):
    with pytest.raises(MetricError, match=message):
        kendall_dense(np.array([5, 6]), similarities, grades)


def test_the_four_answers_have_grades():
    answers = [Label.YES, "weak_yes", Label.WEAK_NO, "no"]

    assert grades_of(answers).tolist() == [3, 2, 1, 0]
    assert exponential(grades_of(answers)).tolist() == [7, 3, 1, 0]
    assert set(FOUR_GRADES) == set(Label)


@pytest.mark.parametrize(
    ("pairs", "options", "message"),
    [
        (([1, 1], [2, 2], [0, 1]), {}, "query 1 × item 2 is graded twice"),
        (([1], [2, 3], [0, 1]), {}, "1 query ids, 2 item ids and 2 grades"),
        (([], [], []), {}, "no pair is graded"),
        (([1], [2], [np.nan]), {}, "query 1 × item 2 has the grade nan, but grades are numbers"),
        (([1], [2], [5.5]), {"within": CXC_RANGE}, "has the grade 5.5, but grades go from 0 to 5"),
        ((["1"], [2], [1]), {}, "query ids must be integers"),
    ],
)
def test_bad_grades_are_said(pairs, options, message):
    with pytest.raises(MetricError, match=message):
        GradedLabels.from_pairs(*(np.array(column) for column in pairs), **options)


def test_a_label_without_a_grade_is_said():
    with pytest.raises(MetricError, match="label 'maybe' has no grade; known: yes, weak_yes, weak_no, no"):
        grades_of(["yes", "maybe"])
