"""What the AUC of a score leaves to people, under two normal distributions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from mitl.audits.frontier import share_left
from mitl.errors import AuditError

AUCS = (0.90, 0.93, 0.95, 0.97, 0.98, 0.99)
TABLE = {
    (0.01, 0.01): (0.70, 0.60, 0.51, 0.37, 0.28, 0.17),
    (0.05, 0.01): (0.54, 0.44, 0.35, 0.24, 0.17, 0.09),
    (0.10, 0.05): (0.32, 0.22, 0.15, 0.07, 0.02, 0.00),
}


@pytest.mark.parametrize("tolerated", TABLE)
def test_the_known_table_comes_out(tolerated: tuple[float, float]) -> None:
    """Of a pool that is 45 % matches, computed independently and kept to two digits."""
    assert tuple(round(share_left(auc, *tolerated, 0.45), 2) for auc in AUCS) == TABLE[tolerated]


shares = st.floats(0.001, 0.3)


@given(st.floats(0.5, 0.995), st.floats(0.001, 0.004), shares, shares, st.floats(0.01, 0.9))
@settings(max_examples=60, derandomize=True, deadline=None)
def test_a_better_score_or_more_tolerance_leaves_no_more_to_people(
    auc: float, better: float, lost: float, wrong: float, prevalence: float
) -> None:
    left = share_left(auc, lost, wrong, prevalence)
    assert 0 <= left <= 1
    assert share_left(auc + better, lost, wrong, prevalence) <= left + 1e-12
    assert share_left(auc, lost * 1.5, wrong, prevalence) <= left + 1e-12
    assert share_left(auc, lost, wrong * 1.5, prevalence) <= left + 1e-12


def test_the_thresholds_keep_what_they_promise() -> None:
    """Drawn from the model itself: at these thresholds so much is lost, wrong and left to people."""
    rng = np.random.default_rng(3)
    apart = np.sqrt(2) * norm.ppf(0.95)
    is_match = rng.random(400_000) < 0.45
    score = rng.normal(size=400_000) + apart * is_match
    low, high = apart + norm.ppf(0.05), norm.isf(0.01 * 0.45 * 0.95 / 0.55)
    kept = is_match & (score >= low)
    wrong = ~is_match & (score > high)

    assert 1 - kept.sum() / is_match.sum() == pytest.approx(0.05, abs=0.003)
    assert wrong.sum() / kept.sum() == pytest.approx(0.01, abs=0.002)
    left = ((score >= low) & (score <= high)).mean()
    assert left == pytest.approx(share_left(0.95, 0.05, 0.01, 0.45), abs=0.005)


def test_with_no_tolerance_everything_stays_with_people() -> None:
    assert share_left(0.95, 0.0, 0.0, 0.45) == 1.0
    assert share_left(1.0, 0.0, 0.0, 0.45) == 0.0


@pytest.mark.parametrize("given", [(1.2, 0.01, 0.01, 0.4), (0.4, 0.01, 0.01, 0.4), (0.9, -1, 0.01, 0.4)])
def test_what_is_no_share_is_named_in_one_line(given: tuple[float, float, float, float]) -> None:
    with pytest.raises(AuditError, match=r"it should be from .* to 1$"):
        share_left(*given)
