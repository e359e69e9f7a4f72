"""Leaving one annotator out: who falls, by how much, and how sure that is."""

from __future__ import annotations

import numpy as np
import pytest

from mitl.errors import MetricError
from mitl.stages.analysing.favour import favour, shifts

NAMES = ("own", "other", "third")


def values(*, fall):
    """Three models on 200 queries; without the first's own positives it falls, the others hardly move."""
    rng = np.random.default_rng(4)
    whole = np.stack([rng.uniform(0.5, 0.9, 200), rng.uniform(0.45, 0.85, 200), rng.uniform(0.1, 0.3, 200)])
    falls = np.stack([np.full(200, fall), np.zeros(200), np.zeros(200)]) + rng.normal(0, 0.01, (3, 200))
    return whole, whole - falls


def test_who_lives_on_its_own_positives_falls_behind():
    """The first model loses its first place; its shift and its favour are apart from 0."""
    whole, without = values(fall=0.2)
    first, second, _ = shifts(NAMES, whole, without, samples=500, seed=0)
    found = favour(0, whole, without, samples=500, seed=0)

    assert (first.place, first.place_without, second.place_without) == (1, 2, 1)
    assert first.shift == pytest.approx(-0.2, abs=0.01)
    assert first.low <= first.shift <= first.high < 0
    assert 0 < found.low <= found.fall <= found.high


def test_models_of_the_same_scores_on_other_queries_share_a_place():
    """Their sums differ by rounding alone."""
    whole = np.array([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.2, 0.3, 0.1]])

    assert [shift.place for shift in shifts(NAMES, whole, whole, samples=10, seed=0)] == [1, 1, 1]


def test_who_does_not_is_not_accused():
    """Where all move alike the interval holds 0."""
    whole, without = values(fall=0.0)
    found = favour(0, whole, without, samples=500, seed=0)

    assert found.low <= 0 <= found.high


def test_the_same_seed_gives_the_same_intervals():
    """Resamples are those of the seed."""
    arguments = values(fall=0.1)

    assert shifts(NAMES, *arguments, samples=100, seed=1) == shifts(NAMES, *arguments, samples=100, seed=1)


def test_queries_that_are_drawn_together_tell_less():
    """Five queries that move alike are worth one."""
    whole, without = (np.repeat(side[:, :40], 5, axis=1) for side in values(fall=0.0))
    alone, together = (
        favour(0, whole, without, samples=2000, seed=0, units=units)
        for units in (None, np.repeat(np.arange(40), 5))
    )

    assert alone.fall == together.fall
    assert (together.high - together.low) / (alone.high - alone.low) == pytest.approx(5**0.5, rel=0.1)


def test_one_query_is_too_few():
    """One line."""
    with pytest.raises(MetricError, match="1 query is too few to tell a shift from chance"):
        shifts(NAMES, np.ones((3, 1)), np.ones((3, 1)), samples=10, seed=0)
