"""Bootstrap intervals and the paired test, compared with counting on paper and against scipy."""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mitl.core.statistics import percentile_interval
from mitl.errors import MetricError
from mitl.metrics import intervals
from mitl.metrics.intervals import QueryGroups, bootstrap_sum, interval, paired, paired_sum
from mitl.metrics.positives import QueryValues, Statistic


def of(values, *, ids=None, statistic=Statistic.MEAN, weights=None, metric="R@1"):
    ids = np.arange(len(values)) if ids is None else np.asarray(ids)
    weights = None if weights is None else np.asarray(weights, dtype=float)
    return QueryValues(metric, ids, np.asarray(values, dtype=float), statistic, weights)


def test_resampled_means_have_the_distribution_that_enumeration_gives():
    """Three queries have 27 equally likely resamples; the shares of their means are met within sampling error."""
    values = [0.0, 1.0, 5.0]
    exact = Counter(sum(draw) / 3 for draw in product(values, repeat=3))

    drawn = intervals.bootstrap(intervals.Units.of(np.arange(3), "m"), [of(values)], 54_000, 0)

    for mean, count in exact.items():
        share = np.isclose(drawn, mean).mean()
        assert share == pytest.approx(count / 27, abs=0.01)


def test_resampled_medians_have_the_distribution_that_enumeration_gives():
    """Four queries have 256 equally likely resamples; an even number has the mean of the two middle values."""
    values = [1.0, 2.0, 4.0, 8.0]
    exact = Counter(float(np.median(draw)) for draw in product(values, repeat=4))
    model = of(values, statistic=Statistic.MEDIAN)

    drawn = intervals.bootstrap(intervals.Units.of(np.arange(4), "m"), [model], 51_200, 0)

    for median, count in exact.items():
        assert np.isclose(drawn, median).mean() == pytest.approx(count / 256, abs=0.01)


@pytest.mark.parametrize("statistic", list(Statistic))
def test_drawing_distinct_values_gives_the_same_distribution_as_drawing_queries(monkeypatch, statistic):
    """The fast way for values of few kinds is a matter of speed alone."""
    model = of(np.arange(320) % 4, statistic=statistic)
    units = intervals.Units.of(model.query_ids, "m")

    fast = intervals.bootstrap(units, [model], 4000, 0)
    monkeypatch.setattr(intervals, "_FEW", 1000)
    plain = intervals.bootstrap(units, [model], 4000, 1)

    assert fast.mean() == pytest.approx(plain.mean(), abs=0.03)
    assert fast.std() == pytest.approx(plain.std(), rel=0.1)


def test_the_interval_of_a_mean_agrees_with_scipy():
    values = np.random.default_rng(3).gamma(2.0, size=400)

    ours = interval(of(values), samples=4000)
    theirs = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=4000, rng=np.random.default_rng(5)
    ).confidence_interval

    assert ours.estimate == pytest.approx(values.mean())
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.02)


def test_the_interval_of_a_median_agrees_with_scipy():
    values = np.random.default_rng(3).gamma(2.0, size=401)

    ours = interval(of(values, statistic=Statistic.MEDIAN), samples=4000)
    theirs = stats.bootstrap(
        (values,), np.median, method="percentile", n_resamples=4000, rng=np.random.default_rng(5)
    ).confidence_interval

    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.03)


@pytest.mark.parametrize(("queries", "p"), [(100, 0.4), (20, 0.98), (10, 0.1)])
def test_a_95_percent_interval_covers_the_truth_about_95_times_in_100(queries, p):
    """Of 300 samples of coins; of few queries nearly as often all are misses, or all hits."""
    rng = np.random.default_rng(0)
    intervals = [interval(of(rng.random(queries) < p), seed=i) for i in range(300)]

    covered = np.mean([found.low <= p <= found.high for found in intervals])

    assert covered >= 0.91 and (queries < 100 or covered <= 0.98)


@pytest.mark.parametrize(
    ("value", "metric", "ends"),
    [
        (1.0, "R@1", (0.025 ** (1 / 20), 1.0)),
        (0.0, "mAP@R", (0.0, 1 - 0.025 ** (1 / 20))),
        (0.5, "P@2", (0.5, 0.5)),
        (1.0, "median rank", (1.0, 1.0)),
    ],
)
def test_twenty_queries_that_all_miss_or_all_hit_do_not_prove_it_of_others(value, metric, ends):
    """Of a share: the end that resamples cannot show is Clopper and Pearson's. What has no bounds is as it was."""
    found = interval(of(np.full(20, value), metric=metric))

    assert (found.low, found.high) == pytest.approx(ends, abs=1e-12)


def test_a_wider_confidence_gives_a_wider_interval():
    values = of(np.random.default_rng(1).random(60))

    narrow, wide = interval(values, confidence=0.5), interval(values, confidence=0.99)

    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize("statistic", list(Statistic))
def test_an_interval_does_not_depend_on_how_many_samples_are_held_at_once(monkeypatch, statistic):
    values = of(np.random.default_rng(1).random(50), statistic=statistic)

    whole = interval(values)
    monkeypatch.setattr(intervals, "_CELLS", 77)

    small = interval(values)
    assert (small.low, small.high) == pytest.approx((whole.low, whole.high), rel=1e-12)


@pytest.mark.parametrize("statistic", list(Statistic))
def test_queries_of_a_group_are_drawn_together(statistic):
    """Five captions that say the same are worth one: what is not in a group stands alone beside them."""
    rng = np.random.default_rng(0)
    one, other = rng.random(40), rng.random(40)
    fives = [np.repeat(values, [5] * 30 + [1] * 10) for values in (one, other)]
    weights = np.repeat([1 / 5] * 30 + [1] * 10, [5] * 30 + [1] * 10) / 40
    few = [of(values, statistic=statistic) for values in (one, other)]
    many = [
        of(
            values,
            ids=np.arange(160),
            statistic=statistic,
            weights=None if statistic is Statistic.MEDIAN else weights,
        )
        for values in fives
    ]
    groups = QueryGroups(np.arange(150), np.repeat(np.arange(30), 5))
    found, alone = interval(many[0], groups=groups), interval(many[0])

    if statistic is Statistic.MEAN:
        plain, swapped = interval(few[0]), paired(*few)
        assert (found.low, found.high) == pytest.approx((plain.low, plain.high))
        test = paired(*many, groups=groups)
        assert (test.low, test.high, test.p_value) == pytest.approx(
            (swapped.low, swapped.high, swapped.p_value)
        )
        assert (test.n_queries, swapped.n_queries) == (160, 40)
    assert found.high - found.low > 1.5 * (alone.high - alone.low)


def same(ids):
    return ids


def test_a_sum_of_two_directions_draws_an_image_with_its_captions():
    """Hit together, both directions move together; apart, each is drawn as often as it is there."""
    hits = (np.arange(60) % 3 == 0).astype(float)
    parts = [of(hits), of(np.repeat(hits, 5), ids=np.arange(300))]

    together = bootstrap_sum(parts, [same, lambda ids: ids // 5], 4000, 0)
    apart = bootstrap_sum(parts, [same, lambda ids: ids // 5 + 60], 4000, 0)

    one = bootstrap_sum(parts[:1], [same], 4000, 0).std()
    assert together.std() == pytest.approx(2 * one, rel=0.05)
    assert apart.std() == pytest.approx(2**0.5 * one, rel=0.05)
    assert together.mean() == pytest.approx(2 / 3, abs=0.02)


def test_sums_are_paired_as_what_they_are_made_of():
    """Of one part it is the plain test; two parts that are swapped together are no more evidence than one."""
    rng = np.random.default_rng(0)
    one, other = rng.random(40), rng.random(40) * 0.9
    shuffled = rng.permutation(40)
    plain = paired(of(one), of(other))
    alone = paired_sum([of(one)], [of(other[shuffled], ids=shuffled)], [same])
    both = paired_sum(
        [of(one), of(one, ids=np.arange(40) + 100)],
        [of(other), of(other, ids=np.arange(40) + 100)],
        [same, lambda ids: ids - 100],
    )

    assert astuple(alone) == pytest.approx(astuple(plain))
    assert both.p_value == pytest.approx(plain.p_value)
    assert (both.difference, both.low, both.high) == pytest.approx(
        (2 * plain.difference, 2 * plain.low, 2 * plain.high)
    )
    assert both.n_queries == 80


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 3))
def test_a_sum_is_a_number_in_every_resample(images, captions, shared):
    """However few there are of either direction, no resample lacks one."""
    parts = [of(np.ones(images)), of(np.ones(captions), weights=np.full(captions, 1 / captions))]
    sums = bootstrap_sum(parts, [same, lambda ids: ids + max(0, images - shared)], 20, 0)

    assert sums == pytest.approx(np.full(20, 2.0))


def test_means_of_few_queries_are_covered_as_often_as_promised():
    """Plain percentiles cover the mean of ten uniform values in 92 % of sets, of 400 in 95."""
    rng = np.random.default_rng(0)
    found = [
        interval(of(values), samples=400, seed=seed) for seed, values in enumerate(rng.random((1000, 10)))
    ]

    assert 0.94 < np.mean([ends.low <= 0.5 <= ends.high for ends in found]) < 0.98


def test_ends_move_apart_as_students_quantiles_do():
    draws = np.random.default_rng(0).normal(size=200_000)

    for units in (5, 10, 40):
        low, high = percentile_interval(draws, 0.95, units)
        wide = stats.t.ppf(0.975, units - 1) * (units / (units - 1)) ** 0.5
        assert (low, high) == pytest.approx((-wide, wide), rel=0.02)


def test_one_group_alone_has_no_interval():
    with pytest.raises(MetricError, match="1 group of queries"):
        interval(of([0.0, 1.0]), groups=QueryGroups(np.arange(2), np.zeros(2, np.int64)))


def test_weights_are_renormalised_in_each_resample():
    """Equal values have an interval of no width under any weights; else a resample's mean would stray from it."""
    found = interval(of([0.25] * 5, weights=[0.5, 0.2, 0.1, 0.1, 0.1]))

    assert (found.estimate, found.low, found.high) == pytest.approx((0.25, 0.25, 0.25))


def test_weights_count_in_the_estimate_and_in_the_resamples():
    """Of two queries with shares 3/4 and 1/4 the resamples are 00, 01, 10, 11 with means 0, 1/4, 1/4, 1."""
    model = of([0.0, 1.0], weights=[0.75, 0.25])

    drawn = intervals.bootstrap(intervals.Units.of(model.query_ids, "m"), [model], 4000, 0)

    assert model.estimate == 0.25
    assert sorted(set(np.round(drawn, 12))) == [0, 0.25, 1]
    assert np.isclose(drawn, 0.25).mean() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize(
    ("statistic", "means"), [(Statistic.MEAN, {0, 0.5, 1}), (Statistic.MEDIAN, {0, 0.5, 1})]
)
def test_a_query_of_several_folds_is_drawn_with_all_its_values(statistic, means):
    """Two queries, one always 0 and one always 1, each thrice: no resample may mix values of one query."""
    model = of([0, 0, 0, 1, 1, 1], ids=[4, 4, 4, 9, 9, 9], statistic=statistic)

    drawn = intervals.bootstrap(intervals.Units.of(model.query_ids, "m"), [model], 500, 0)

    assert set(np.round(drawn, 12)) == means


def test_the_randomisation_test_agrees_with_enumeration():
    """Of the 2^6 sign patterns of 3, 2, 2, 1, 1, -1 those with |sum| >= 8 are 2 + 2 · 4 = 10: p is 10/64."""
    differences = [3, 2, 2, 1, 1, -1]
    patterns = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in product([1, -1], repeat=6)
    ]
    exact = np.mean([total >= 8 for total in patterns])

    found = paired(of(differences), of([0] * 6), samples=20_000)

    assert found.p_value == pytest.approx(exact, abs=0.01)
    assert found.difference == pytest.approx(8 / 6)


def test_the_randomisation_test_of_a_median_agrees_with_enumeration():
    one, other = [1.0, 4.0, 9.0, 2.0], [3.0, 5.0, 30.0, 2.5]
    seen = abs(np.median(one) - np.median(other))
    far = 0
    for swap in product([False, True], repeat=4):
        pairs = [(b, a) if s else (a, b) for a, b, s in zip(one, other, swap, strict=True)]
        first, second = zip(*pairs, strict=True)
        far += abs(np.median(first) - np.median(second)) >= seen - 1e-12

    found = paired(of(one, statistic=Statistic.MEDIAN), of(other, statistic=Statistic.MEDIAN), samples=20_000)

    assert found.p_value == pytest.approx(far / 16, abs=0.02)
    assert found.difference == pytest.approx(3 - 4)


def test_a_model_does_not_differ_from_itself():
    values = of(np.random.default_rng(0).random(30))

    found = paired(values, values)

    assert (found.difference, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def test_p_is_never_0():
    """Two hundred queries, all better: no sample comes near, so p is 1 / (1 + samples)."""
    found = paired(of([1.0] * 200), of([0.0] * 200), samples=99)

    assert found.p_value == 0.01
    assert (found.low, found.high) == (1, 1)


def test_queries_are_matched_by_id_and_not_by_place():
    one = of([1, 0, 1, 0.5], ids=[3, 1, 7, 5])
    other = of([0, 1, 0.5, 1], ids=[1, 3, 5, 7])

    found = paired(one, other)

    assert (found.difference, found.p_value, found.n_queries) == (0, 1, 4)


def test_repeated_queries_are_matched_by_occurrence():
    """The first value of a query goes with the other model's first value of it."""
    one = of([0.1, 0.9, 0.3], ids=[2, 2, 1])
    other = of([0.3, 0.1, 0.9], ids=[1, 2, 2])

    found = paired(one, other)

    assert (found.low, found.high, found.n_queries) == (0, 0, 2)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=40), st.integers(0, 5))
def test_exchanging_the_models_turns_the_difference_round_and_leaves_p(pairs, seed):
    one, other = (of([pair[side] / 4 for pair in pairs]) for side in (0, 1))

    there, back = paired(one, other, samples=50, seed=seed), paired(other, one, samples=50, seed=seed)

    assert there.difference == -back.difference
    assert there.p_value == back.p_value
    assert 1 / 51 <= there.p_value <= 1
    assert there.low <= there.high


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (of([1.0]), {}, "at least 2"),
        (of([1.0, np.nan]), {}, "R@1 of query 1 is nan"),
        (of([1.0, np.inf]), {}, "R@1 of query 1 is inf"),
        (of([1.0, 2.0], weights=[1.0, 0.0]), {}, "weight above 0"),
        (of([1.0, 2.0], weights=[1.0]), {}, "weight above 0 for each of its 2 values"),
        (of([1.0, 2.0]), {"samples": 0}, "at least 1 is needed"),
        (of([1.0, 2.0]), {"confidence": 95}, "between 0 and 1"),
    ],
)
def test_what_has_no_interval_is_said(values, options, message):
    with pytest.raises(MetricError, match=message):
        interval(values, **options)


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (of([1, 2], metric="R@1"), of([1, 2], metric="R@5"), "one metric of both models"),
        (of([1, 2]), of([1, 2], statistic=Statistic.MEDIAN), "the mean of 'R@1' and the median"),
        (of([1, 2], ids=[1, 2]), of([1, 2], ids=[1, 3]), "query 2 has 1 values .* and 0 from the other"),
        (of([1, 2, 3], ids=[1, 2, 2]), of([1, 2], ids=[1, 2]), "query 2 has 2 values .* and 1 from"),
        (of([1, 2], weights=[0.9, 0.1]), of([1, 2]), "weighted differently"),
    ],
)
def test_what_cannot_be_paired_is_said(one, other, message):
    with pytest.raises(MetricError, match=message):
        paired(one, other)
