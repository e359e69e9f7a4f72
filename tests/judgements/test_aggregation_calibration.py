"""Reliability, expected calibration error, Brier score and log-loss."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitl.errors import MetricError
from mitl.judgements.calibration import calibration


def test_a_small_example_by_hand():
    """Two bins: .2 twice, once true; .9 once, true."""
    found = calibration([0.2, 0.2, 0.9], [True, False, True])

    assert found.cases.tolist() == [2, 1]
    assert found.stated == pytest.approx([0.2, 0.9])
    assert found.observed == pytest.approx([0.5, 1.0])
    assert found.error == pytest.approx((2 * 0.3 + 0.1) / 3)
    assert found.brier == pytest.approx((0.64 + 0.04 + 0.01) / 3)
    assert found.log_loss == pytest.approx(-(np.log(0.2) + np.log(0.8) + np.log(0.9)) / 3)


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1))
def test_scores_stay_within_their_bounds(cases):
    """Errors from 0 to 1, and every case in a bin."""
    found = calibration(*zip(*cases, strict=True))

    assert 0 <= found.error <= 1 + 1e-12
    assert 0 <= found.brier <= 1
    assert 0 <= found.log_loss < 28
    assert found.cases.sum() == found.n == len(cases)


def test_drawn_probabilities_are_calibrated():
    """Truths drawn with the stated probabilities."""
    rng = np.random.default_rng(0)
    p = rng.random(50_000)

    assert calibration(p, rng.random(50_000) < p).error < 0.01


@pytest.mark.parametrize(
    ("p", "true"), [([], []), ([0.5], [True, False]), ([1.1], [True]), ([np.nan], [True])]
)
def test_what_is_no_probability_is_refused(p, true):
    """Nothing, different lengths, out of bounds, not a number."""
    with pytest.raises(MetricError):
        calibration(p, true)
