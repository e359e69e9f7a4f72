"""The area under the curve, its interval, and what an area can save."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitl.errors import MetricError
from mitl.fusion.curves import TOLERANCES, Tolerance, area, still_asked

AREAS = (0.90, 0.93, 0.95, 0.97, 0.98, 0.99)
ASKED = {
    Tolerance(0.01, 0.01): (0.70, 0.60, 0.51, 0.37, 0.28, 0.17),
    Tolerance(0.05, 0.01): (0.54, 0.44, 0.35, 0.24, 0.17, 0.09),
    Tolerance(0.10, 0.05): (0.32, 0.22, 0.15, 0.07, 0.02, 0.00),
}
"""What people must still judge of a pool of which 45 % match, simulated before this was written."""


def test_the_area_is_the_share_of_pairs_of_a_match_and_another_in_the_right_order():
    """Matches at 3 and 1, others at 2 and 1: of four comparisons two are right, one is level, one is wrong."""
    found = area([3, 1, 2, 1], [1, 1, 0, 0], [1, 2, 3, 4])

    assert found.value == pytest.approx(2.5 / 4)
    assert (found.positives, found.negatives) == (2, 2)


def test_of_one_kind_alone_there_is_no_area():
    """A clear line says which kind is missing."""
    with pytest.raises(MetricError, match="of 2 pairs 2 are matches"):
        area([1, 2], [1, 1], [1, 2])


def test_without_clusters_the_variance_is_delong_s():
    """Each pair its own cluster: the two kinds vary on their own, as in DeLong's formula up to n / (n - 1)."""
    rng = np.random.default_rng(1)
    truth = np.arange(200) < 80
    scores = rng.normal(size=200) + truth
    found = area(scores, truth, np.arange(200))
    ahead = (scores[truth][:, None] > scores[~truth]).astype(float)
    error = np.sqrt(ahead.mean(1).var() / 80 + ahead.mean(0).var() / 120)
    value = ahead.mean()
    logit = np.log(value / (1 - value))
    ends = [1 / (1 + np.exp(-(logit + z * error / (value * (1 - value))))) for z in (-1.96, 1.96)]

    assert [found.low, found.high] == pytest.approx(ends, abs=0.002)


def test_copies_of_a_cluster_s_pairs_do_not_narrow_the_interval():
    """Ten times the same pairs of the same images say no more than once."""
    rng = np.random.default_rng(2)
    truth = rng.random(60) < 0.5
    scores, clusters = rng.normal(size=60) + truth, np.arange(60) // 3
    once = area(scores, truth, clusters)
    often = area(np.tile(scores, 10), np.tile(truth, 10), np.tile(clusters, 10))

    assert (often.value, often.low, often.high) == pytest.approx((once.value, once.low, once.high))


@pytest.mark.parametrize("tolerance", TOLERANCES, ids=str)
def test_what_people_must_still_judge_is_as_simulated(tolerance):
    """The normal model with equal variances gives the published shares to the hundredth."""
    shares = [still_asked(auc, tolerance) for auc in AREAS]

    assert shares == pytest.approx(ASKED[tolerance], abs=0.0101)


def test_the_thresholds_keep_what_they_promise():
    """Drawn from the model itself: at these thresholds so much is lost, wrong and asked."""
    rng = np.random.default_rng(3)
    auc, tolerance, share = 0.95, Tolerance(0.05, 0.01), 0.45
    from scipy.stats import norm

    d = np.sqrt(2) * norm.ppf(auc)
    is_match = rng.random(400_000) < share
    score = rng.normal(size=400_000) + d * is_match
    low = d + norm.ppf(0.05)
    high = norm.isf(0.01 / 0.99 * 0.45 * 0.95 / 0.55)
    released = is_match & (score >= low)
    wrong = ~is_match & (score > high)

    assert 1 - released.sum() / is_match.sum() == pytest.approx(0.05, abs=0.003)
    assert wrong.sum() / (wrong | released).sum() == pytest.approx(0.01, abs=0.002)
    assert ((score >= low) & (score <= high)).mean() == pytest.approx(still_asked(auc, tolerance), abs=0.005)


@settings(max_examples=60, derandomize=True)
@given(
    auc=st.floats(0.5, 0.999),
    more=st.floats(0, 0.3),
    lost=st.floats(0.001, 0.2),
    wrong=st.floats(0.001, 0.2),
    share=st.floats(0.01, 0.9),
)
def test_a_better_score_never_leaves_more_to_people(auc, more, lost, wrong, share):
    """The share is from 0 to 1 and falls with the area."""
    tolerance = Tolerance(lost, wrong)
    now, then = (still_asked(one, tolerance, share) for one in (auc, min(1.0, auc + more)))

    assert 0 <= then <= now + 1e-9 <= 1 + 1e-9


def test_an_area_below_a_half_saves_nothing_that_can_be_told():
    """Such a score is upside down or says nothing."""
    with pytest.raises(MetricError, match=r"0\.5 to 1"):
        still_asked(0.4, TOLERANCES[0])
