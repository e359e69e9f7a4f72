"""Metrics on pools that are not wholly judged: exact where all is known, right on average, intervals that hold."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite_kit import examples

from mitl.errors import MetricError
from mitl.metrics.expected import Cases, Worlds, expected_values
from mitl.metrics.incomplete import AuditSample, Evidence, hole_shares, shrunken
from mitl.metrics.partial_labels import PartialLabels
from mitl.metrics.positives import Positives
from mitl.metrics.rank_groups import with_rank_chances
from mitl.metrics.ranks import ArrayRankings
from mitl.metrics.retrieval import score_metrics
from mitl.metrics.table import asked_metrics

ASKED = asked_metrics(["R@1", "R@3", "P@3", "R-Precision", "mAP@R"])
NO_AUDIT = AuditSample(*(np.empty(0, kind) for kind in (np.int64, np.int64, np.bool_, np.int64, np.float64)))

AUDITS_23 = {
    3000: (
        [31.66, 22.94, 31.33, 9.05, 19.85],
        [29.87, 24.89, 34.67, 8.42, 18.07],
        [3.36, 2.51, 2.94, 1.06, 1.91],
        [3.86, 3.55, 3.40, 2.59, 3.54, 2.54, 2.84, 2.88, 2.54, 1.90],
    ),
    12000: (
        [31.64, 22.54, 30.49, 9.16, 21.05],
        [32.45, 24.70, 32.95, 9.43, 21.58],
        [1.73, 1.30, 1.85, 0.49, 1.19],
        [1.68, 1.93, 1.73, 1.72, 1.74, 1.34, 1.34, 1.85, 1.83, 1.22],
    ),
}
"""Audited pairs of a pool of 24,600 (world 23 of scenes, t2i, mAP@R in points) → five models' expected and corrected
values, standard errors of these, and of the differences of each two."""


def true_values(ranked, labels):
    """Every metric by `mitl.metrics`, with all labels known."""
    positives = Positives.from_pairs(*np.nonzero(labels))
    scored = score_metrics(ArrayRankings(np.arange(len(ranked)), ranked), positives, ASKED)
    return np.array([one.estimate for one in scored])


def partial_labels(labels, judged, chances, remainder=0.0, listed=None):
    listed = np.ones(labels.shape, bool) if listed is None else listed | judged
    rows, items = np.nonzero(listed)
    known = np.where(judged, labels, chances)[rows, items]
    return PartialLabels.of(
        np.arange(len(labels)),
        labels.shape[1],
        (rows, items),
        known,
        judged[rows, items],
        remainder=remainder,
    )


def sample_of(labels, strata, sizes, rng):
    """A simple random sample of each stratum of (Q, G) pairs."""
    at, inclusion = [], []
    for stratum, size in enumerate(sizes):
        members = np.flatnonzero(strata.ravel() == stratum)
        drawn = min(size, len(members))
        at.append(rng.choice(members, drawn, replace=False))
        inclusion.append(np.full(drawn, drawn / max(len(members), 1)))
    places = np.concatenate(at)
    rows, items = np.divmod(places, labels.shape[1])
    return AuditSample(rows, items, labels.ravel()[places], strata.ravel()[places], np.concatenate(inclusion))


@st.composite
def pools(draw):
    """Rankings of three models, labels with a released positive each, what is judged, and chances of the rest."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    queries, gallery = draw(st.integers(2, 8)), draw(st.integers(3, 12))
    chances = rng.beta(0.4, 1.5, (queries, gallery))
    labels = rng.random((queries, gallery)) < chances
    first = rng.integers(0, gallery, queries)
    labels[np.arange(queries), first] = True
    judged = rng.random((queries, gallery)) < draw(st.floats(0, 1))
    judged[np.arange(queries), first] = True
    models = [np.stack([rng.permutation(gallery) for _ in range(queries)]) for _ in range(3)]
    return models, labels, judged, chances, rng


@settings(max_examples=examples(20, 60), deadline=None, derandomize=True)
@given(pools())
def test_with_every_pair_audited_each_method_is_the_metric_itself(pool):
    """Whatever was judged, and whatever the chances were; intervals are the value, the settled order the truth's."""
    models, labels, judged, chances, rng = pool
    census = sample_of(labels, np.zeros(labels.shape, int), [labels.size], rng)
    known = Evidence.of(partial_labels(labels, judged, chances), census, draws=8)

    found = [known.fair(ArrayRankings(np.arange(len(labels)), ranked), ASKED) for ranked in models]
    truths, settled = np.array([true_values(ranked, labels) for ranked in models]), known.settled(found)
    for truth, fair, values in zip(truths, found, settled, strict=True):
        for estimates in (fair.classical, fair.powered):
            assert [one.value for one in estimates] == pytest.approx(truth, abs=1e-12)
            assert {one.std_error for one in estimates} == {0.0}
        assert values == pytest.approx(truth, abs=1e-12)
    gaps, of_settled = (each[:, None] - each for each in (truths, np.array(settled)))
    apart = np.abs(gaps) > 1e-9
    assert (np.sign(gaps[apart]) == np.sign(of_settled[apart])).all()
    for place in range(len(ASKED)):
        difference = known.difference(found[0].powered[place], found[1].powered[place])
        assert difference.std_error == 0
        assert difference.sign == np.sign(gaps[0, 1, place]) * apart[0, 1, place], "nothing is left open"


@settings(max_examples=examples(20, 60), deadline=None, derandomize=True)
@given(pools())
def test_the_naive_value_is_the_metric_on_what_is_released(pool):
    """It equals the scores of `mitl evaluate`."""
    models, labels, judged, chances, _ = pool
    known = Evidence.of(partial_labels(labels, judged, chances), NO_AUDIT, draws=8)

    for ranked in models:
        fair = known.fair(ArrayRankings(np.arange(len(labels)), ranked), ASKED)
        assert fair.naive == pytest.approx(true_values(ranked, labels & judged), abs=1e-12)


@settings(max_examples=examples(15, 40), deadline=None, derandomize=True)
@given(pools())
def test_chances_that_are_the_truth_need_no_correction(pool):
    """The expected and the corrected value are the metric, whatever is audited."""
    models, labels, judged, _, rng = pool
    audit = sample_of(labels, np.zeros(labels.shape, int), [3], rng)
    known = Evidence.of(partial_labels(labels, judged, labels.astype(float)), audit, draws=8)

    for ranked in models:
        found = known.fair(ArrayRankings(np.arange(len(labels)), ranked), ASKED).powered
        truth = true_values(ranked, labels)
        assert [one.value for one in found] == pytest.approx(truth, abs=1e-12)
        assert [one.expected for one in found] == pytest.approx(truth, abs=1e-12)


def test_expected_values_are_means_over_all_worlds():
    """On paper: four doubtful labels, two of them of pairs that are not listed, so 16 worlds with their weights."""
    ranked = np.array([[3, 0, 4, 1, 2]])
    chances = np.array([1.0, 0.7, 0.2, 0.0, 0.1, 0.1])[:5]
    rest = 0.1
    labels = PartialLabels.of(
        np.array([7]),
        5,
        (np.full(3, 7), np.array([0, 1, 2])),
        chances[:3],
        np.array([1, 0, 0], bool),
        remainder=rest,
    )
    exact = np.zeros(len(ASKED))
    for world in product((0, 1), repeat=4):
        drawn = np.array([[1, *world]], bool)
        weights = np.where(world, [0.7, 0.2, rest, rest], [0.3, 0.8, 1 - rest, 1 - rest])
        exact += weights.prod() * true_values(ranked, drawn)

    worlds = Worlds.draw(labels, 40_000)
    found = expected_values(ArrayRankings(np.array([7]), ranked), worlds, ASKED, Cases.plain(1))[0]
    assert found[:3] == pytest.approx(exact[:3], abs=1e-12)
    assert found[3:] == pytest.approx(exact[3:], abs=0.01)


def test_a_draw_depends_on_the_pair_alone():
    """Two models that rank the same items in one order are drawn alike, whatever other queries there are."""
    rng = np.random.default_rng(3)
    chances = rng.random((6, 9))
    nothing = np.zeros((6, 9), bool)
    ranked = np.stack([rng.permutation(9) for _ in range(6)])
    whole = Worlds.draw(partial_labels(nothing, nothing, chances), 16, seed=5)
    some = np.array([1, 4])
    rows, items = np.nonzero(np.ones((2, 9), bool))
    part = PartialLabels.of(
        some, 9, (some[rows], items), chances[some][rows, items], np.zeros(len(rows), bool)
    )

    of_part = expected_values(
        ArrayRankings(some, ranked[some]), Worlds.draw(part, 16, seed=5), ASKED, Cases.plain(2)
    )
    of_whole = expected_values(ArrayRankings(np.arange(6), ranked), whole, ASKED, Cases.plain(6))
    assert np.array_equal(of_part, of_whole[some])


@pytest.fixture(scope="module")
def trials():
    """A world of 100 queries, judged where the first model looks; audits of it, two models each."""
    rng = np.random.default_rng(11)
    queries, gallery = 100, 60
    chances = rng.beta(0.15, 2.5, (queries, gallery))
    labels = rng.random((queries, gallery)) < chances
    labels[np.arange(queries), rng.integers(0, gallery, queries)] = True
    scores = np.log(chances + 1e-3)
    models = [np.argsort(-(scores + rng.normal(0, noise, labels.shape)), axis=1) for noise in (1.5, 0.7)]
    judged = np.zeros(labels.shape, bool)
    np.put_along_axis(judged, models[0][:, :4], True, axis=1)
    judged |= labels & (np.cumsum(labels, axis=1) == 1)
    strata = np.where(judged, 0, np.where(chances > 0.1, 1, np.where(chances > 0.01, 2, 3)))
    guesses = np.array([0.0, 0.25, 0.04, 0.003])[strata]  # by stratum: near, not exact
    partial = partial_labels(labels, judged, guesses, remainder=0.003, listed=strata < 3)
    rankings = [ArrayRankings(np.arange(queries), ranked) for ranked in models]
    found, settled = [], []
    for seed in range(examples(40, 200)):
        audit = sample_of(labels, strata, (80, 200, 200, 200), np.random.default_rng(seed))
        known = Evidence.of(partial, audit, draws=32)
        both = [known.fair(one, ASKED) for one in rankings]
        differences = [known.difference(*pair) for pair in zip(both[0].powered, both[1].powered, strict=True)]
        found.append((both, differences))
        settled.append(known.settled(both))
    return [true_values(ranked, labels) for ranked in models], found, settled


@pytest.mark.thorough
def test_what_is_linear_in_the_labels_is_estimated_without_bias(trials):
    """Recall@1 and P@3, by either correction: the mean over the audits is the truth within four standard errors."""
    truth, found, _ = trials
    for model in range(2):
        for method in ("classical", "powered"):
            for metric in (0, 2):
                values = np.array([getattr(both[model], method)[metric].value for both, _ in found])
                error = values.std(ddof=1) / len(values) ** 0.5 + 1e-12
                assert abs(values.mean() - truth[model][metric]) < 4 * error


@pytest.mark.thorough
def test_intervals_hold_the_truth_as_often_as_they_say(trials):
    """Of a model and of the difference of two, nearly calibrated chances: 95 % of 200 audits, less four deviations."""
    truth, found, _ = trials
    least = 0.95 - 4 * (0.95 * 0.05 / len(found)) ** 0.5
    for metric in range(len(ASKED)):
        for model in range(2):
            held = [both[model].powered[metric].holds(truth[model][metric]) for both, _ in found]
            assert np.mean(held) > least
        gap = truth[0][metric] - truth[1][metric]
        assert np.mean([differences[metric].holds(gap) for _, differences in found]) > least


def test_a_bent_metrics_interval_allows_for_what_one_step_leaves(trials):
    """As much as the step was long, for a model alone; not for what is linear, nor for differences."""
    _, found, _ = trials
    for both, differences in found[:20]:
        for place, one in enumerate(both[0].powered):
            half = (one.ends[1] - one.ends[0]) / 2
            step = abs(one.value - one.expected) if ASKED[place].name in ("R-Precision", "mAP@R") else 0.0
            assert half == pytest.approx(1.959964 * (one.std_error**2 + step**2) ** 0.5)
        for one in differences:
            assert one.ends[1] - one.value == pytest.approx(1.959964 * one.std_error)


def test_the_naive_order_errs_and_the_settled_one_does_not(trials):
    """The first model proposed what was judged, and the second is better."""
    truth, found, settled = trials
    place = len(ASKED) - 1
    naive = [both[0].naive[place] < both[1].naive[place] for both, _ in found]
    fair = [one[place] < other[place] for one, other in settled]

    assert truth[0][place] < truth[1][place]
    assert np.mean(naive) == 0
    assert np.mean(fair) > 0.9


@st.composite
def noisy_corrections(draw):
    """Corrections of two to six models, and a covariance of their noise."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    n = draw(st.integers(2, 6))
    root = rng.normal(0, draw(st.sampled_from([0.1, 1, 10])), (n, n + 2))
    return rng.normal(0, 1, n), root @ root.T, rng


@settings(max_examples=100, deadline=None, derandomize=True)
@given(noisy_corrections())
def test_what_is_believed_of_corrections_grows_with_the_sample(made):
    """Never more than was found; all of it without noise; alike in any unit and whatever model comes first."""
    corrections, covariance, rng = made
    kept, size = shrunken(corrections, covariance), np.linalg.norm(corrections - corrections.mean())

    assert np.linalg.norm(kept - kept.mean()) <= size * (1 + 1e-9)
    assert abs(kept.mean()) <= abs(corrections.mean()) + 1e-9
    assert shrunken(corrections, covariance * 0) == pytest.approx(corrections, abs=1e-9)
    assert shrunken(corrections, covariance * 1e-9) == pytest.approx(corrections, abs=1e-3)
    order = rng.permutation(len(corrections))
    assert shrunken(corrections[order], covariance[np.ix_(order, order)]) == pytest.approx(
        kept[order], abs=1e-6
    )
    assert shrunken(corrections / 1e4, covariance / 1e8) == pytest.approx(kept / 1e4, abs=1e-10)


def test_noise_that_models_share_does_not_silence_their_differences():
    """Each correction alone is within its noise of 0, the difference of the two is ten times its own."""
    corrections = np.array([0.01, -0.01])
    kept = shrunken(corrections, np.full((2, 2), 0.02**2) + np.eye(2) * 2e-6)

    assert kept == pytest.approx(corrections * (1 - 4e-6 / 4e-4))
    assert shrunken(np.array([0.01]), np.array([[0.02**2]])) == 0


@pytest.mark.parametrize(
    ("found", "larger", "right"),
    [
        pytest.param(AUDITS_23[3000], 1, True, id="3000"),
        pytest.param(AUDITS_23[12000], 1, False, id="12000"),
        pytest.param(AUDITS_23[12000], 10, True, id="noise of an audit ten times as large"),
    ],
)
def test_near_models_are_ordered_as_corrected_once_the_sample_tells(found, larger, right):
    """By chances the first is ahead of the third, by corrections and in truth behind it, by 1.3 points.

    In the second audit that difference of the corrections is less than its noise, and the order is that by chances.
    """
    expected, corrected, errors = np.array(found[:3])
    apart = np.zeros((5, 5))
    apart[np.triu_indices(5, 1)] = found[3]
    covariance = (errors[:, None] ** 2 + errors**2 - (apart + apart.T) ** 2) / 2

    values = expected + shrunken(corrected - expected, covariance / larger)
    assert expected[0] > expected[2] and corrected[0] < corrected[2]
    assert (values[2] > values[0]) == right
    assert (np.argsort(values)[:3] == [3, 4, 1]).all()


def test_the_share_of_holes_counts_what_nobody_judged():
    """R is 2 and 1; of the first R places one of three is a hole of the first query, none of the second's."""
    judged = np.array([[1, 0, 1, 1], [1, 1, 0, 0]], bool)
    labels = np.array([[1, 0, 0, 1], [0, 1, 0, 0]], bool)
    ranked = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])
    partial = partial_labels(labels, judged, np.full(labels.shape, 0.5))

    within_r, at = hole_shares(ArrayRankings(np.arange(2), ranked), partial, [1, 3])
    assert within_r == pytest.approx((1 / 2 + 0) / 2)
    assert at == pytest.approx((0, (1 / 3 + 2 / 3) / 2))


def test_chances_follow_where_the_models_together_rank_a_pair():
    """Most matches stand first in both rankings; judged pairs that the audit bears out are nearly sure."""
    rng = np.random.default_rng(5)
    queries, gallery = 300, 100
    ranked = np.stack([rng.permutation(gallery) for _ in range(queries)])
    labels = np.zeros((queries, gallery), bool)
    near = rng.random((queries, gallery)) < np.repeat([0.6, 0.1, 0.0], [3, 17, 80])
    np.put_along_axis(labels, ranked, near, axis=1)
    labels[:, 0] = True
    judged = np.zeros(labels.shape, bool)
    judged[:, 0] = True
    known = partial_labels(labels, judged, np.zeros(labels.shape), listed=judged)
    audit = sample_of(labels, np.zeros(labels.shape, int), [6000], rng)
    model = ArrayRankings(np.arange(queries), ranked)
    found = with_rank_chances(known, [model, model], audit)

    chances = found.chances_of(np.arange(queries), ranked)
    unjudged = ~np.take_along_axis(judged, ranked, axis=1)
    by_place = np.where(unjudged, chances, np.nan)
    assert np.nanmean(by_place[:, 0]) == pytest.approx(0.6, abs=0.15)
    assert np.nanmean(by_place[:, 10]) == pytest.approx(0.1, abs=0.05)
    assert found.remainder < 0.01
    assert (found.chances_of(np.arange(queries), np.zeros((queries, 1), int)) > 0.95).all()
    weights = found.weights_of(np.arange(queries), ranked)[unjudged]
    assert weights == pytest.approx(np.full(len(weights), queries * gallery / 6000))


def test_an_interval_knows_of_pairs_that_the_sample_never_meets():
    """Nobody judged what the model ranks first, and the sample of a large remainder holds none of it."""
    rng = np.random.default_rng(6)
    queries, gallery = 50, 200
    labels = np.zeros((queries, gallery), bool)
    labels[:, 0] = True
    ranked = np.stack([np.append(rng.permutation(np.arange(1, gallery)), 0) for _ in range(queries)])
    rows, items = np.nonzero(labels)
    first = ranked[:, 0]
    known = PartialLabels.of(
        np.arange(queries),
        gallery,
        (np.append(rows, rows), np.append(items, first)),
        np.append(np.ones(queries), np.full(queries, 0.3)),
        np.repeat([True, False], queries),
        remainder=1e-4,
    )
    weighted = replace(known, weights=np.where(known.judged, 1.0, 100.0), remainder_weight=100.0)
    away = np.setdiff1d(np.arange(1, 60), first)
    audit = AuditSample(np.zeros(len(away), int), away, away < 0, away * 0, np.full(len(away), 0.01))
    model = ArrayRankings(np.arange(queries), ranked)
    (blind,) = Evidence.of(known, audit, draws=8).fair(model, ASKED[:1]).powered
    (open_eyed,) = Evidence.of(weighted, audit, draws=8).fair(model, ASKED[:1]).powered

    assert blind.std_error < 0.1
    assert open_eyed.std_error == pytest.approx((0.3 * 0.7 * 99 / queries) ** 0.5)
    same = Evidence.of(weighted, audit, draws=8).difference(open_eyed, open_eyed)
    assert same.std_error == 0


def test_rankings_that_end_too_early_are_told_the_depth():
    """The matches that the holes may hide deepen R; with short="zero" missing places are misses."""
    labels = np.array([[1, 0, 0, 0, 0, 0]], bool)
    known = Evidence.of(partial_labels(labels, labels, np.full(labels.shape, 0.5)), NO_AUDIT, draws=64)
    shallow = ArrayRankings(np.arange(1), np.array([[1, 0]]))

    with pytest.raises(MetricError, match=r"query 0 ends at 2, .* is read to 3; rank 3 deep"):
        known.fair(shallow, asked_metrics(["R@3"]))
    whole = ArrayRankings(np.arange(1), np.array([[1, 0, 2, 3, 4, 5]])[:, : known.depth(ASKED)])
    assert known.fair(whole, ASKED).naive[0] == 0
    assert known.fair(shallow, ASKED, short="zero").naive[0] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chances": np.array([0.5, 1.5])}, "the chance of a match is 1.5"),
        ({"pairs": (np.zeros(2, int), np.zeros(2, int))}, "query 0 and item 0 is listed twice"),
    ],
)
def test_labels_that_make_no_sense_are_refused(change, message):
    """Chances outside 0 to 1, a pair twice."""
    given_ = {
        "pairs": (np.zeros(2, int), np.arange(2)),
        "chances": np.ones(2),
        "judged": np.ones(2, bool),
    } | change

    with pytest.raises(MetricError, match=message):
        PartialLabels.of(np.arange(1), 5, **given_)


def test_other_refusals_are_one_line():
    """An inclusion of 0, a query without a positive, a metric that has no expectation."""
    with pytest.raises(MetricError, match=r"inclusion probability 0\.0; it should be above 0"):
        AuditSample(*(np.zeros(1, kind) for kind in (int, int, bool, int, float)))
    labels = np.array([[1, 0]], bool)
    with pytest.raises(MetricError, match="queries with a released positive"):
        Evidence.of(partial_labels(~labels & False, labels, labels * 0.5), NO_AUDIT)
    known = Evidence.of(partial_labels(labels, labels, labels * 0.5), NO_AUDIT)
    with pytest.raises(MetricError, match="median rank is not known in expectation"):
        known.fair(ArrayRankings(np.arange(1), np.array([[1, 0]])), asked_metrics(["median-rank"]))
