"""Groups of models that an audit tells apart, and the sample that would tell more."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitl.metrics.rank_groups import more_pairs, rank_groups, wanted_pairs


def signs_of(values, half):
    """Apart where two differ by more than so much."""
    gaps = np.subtract.outer(values, values)
    return np.where(np.abs(gaps) > half, np.sign(gaps), 0).astype(np.int64)


def test_models_are_ranked_as_far_as_they_are_told_apart():
    """One ahead of all, a chain of neighbours that are tied though its ends are not, one behind all."""
    corrected = np.array([0.30, 0.50, 0.33, 0.36, 0.10])
    guesses = np.array([0.37, 0.50, 0.33, 0.36, 0.10])

    assert rank_groups(guesses, signs_of(corrected, 0.05)) == [[1], [3, 2, 0], [4]]
    assert rank_groups(guesses, signs_of(corrected, 0.001)) == [[1], [3], [2], [0], [4]]
    assert rank_groups(guesses, signs_of(corrected, 1.0)) == [[1, 0, 3, 2, 4]]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.integers(0, 20))
def test_every_pair_of_two_groups_is_apart_and_no_group_could_be_divided(values, half):
    """Whatever the values are; a cut within a group would part two neighbours that are tied."""
    corrected = np.array(values, float)
    signs = signs_of(corrected, half)
    groups = rank_groups(corrected, signs)

    assert sorted(chain(*groups)) == list(range(len(values)))
    for number, group in enumerate(groups):
        later = list(chain(*groups[number + 1 :]))
        assert (signs[np.ix_(group, later)] == 1).all()
        for cut in range(1, len(group)):
            assert not (signs[np.ix_(group[:cut], group[cut:])] == 1).all()


def test_a_wanted_sample_has_the_power_that_it_is_named_for():
    """With its standard error, the interval of a true difference leaves out 0 in four of five audits."""
    wanted = wanted_pairs(600, 0.03, 0.04, 10_000)
    error = 0.03 * (600 / wanted) ** 0.5

    found = np.random.default_rng(1).normal(0.04, error, 20_000)

    assert np.mean(np.abs(found) > 1.96 * error) == pytest.approx(0.8, abs=0.02)
    assert wanted_pairs(600, 0.03, 0.0, 10_000) is wanted_pairs(600, 0.0, 0.04, 10_000) is None
    assert wanted_pairs(600, 0.03, 0.001, 10_000) is None


def test_what_an_audit_does_not_tell_takes_more_than_another_one_of_its_size():
    """However far apart the guess is; None where the whole pool would not do."""
    assert more_pairs(600, 0.03, 0.04, 10_000) == wanted_pairs(600, 0.03, 0.04, 10_000) - 600
    assert more_pairs(600, 0.03, 0.5, 10_000) == more_pairs(600, 0.03, -0.06, 10_000) == 700
    assert more_pairs(600, 0.03, 0.001, 10_000) is None
