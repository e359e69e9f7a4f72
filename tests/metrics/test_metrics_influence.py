"""Which pairs' labels tell models apart: effects of doubtful labels, and bands that weigh the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mitl.metrics.expected import Cases, Worlds, expected_values
from mitl.metrics.partial_labels import PartialLabels
from mitl.metrics.rank_groups import bands, influence
from mitl.metrics.ranks import ArrayRankings
from mitl.metrics.table import asked_metrics

ASKED = asked_metrics(["R@3", "R-Precision", "mAP@R"])
QUERIES, GALLERY = 12, 40
RNG = np.random.default_rng(4)
RANKED = [np.argsort(RNG.random((QUERIES, GALLERY)), axis=1) for _ in range(3)]
RANKED[2][:, :6] = RANKED[1][:, :6] = np.arange(6)


def judged():
    """The first eight items of each query, of which two match."""
    rows, items = np.repeat(np.arange(QUERIES), 8), np.tile(np.arange(8), QUERIES)
    return PartialLabels.of(
        np.arange(QUERIES), GALLERY, (rows, items), (items < 2).astype(float), np.ones(len(rows), bool)
    )


def rankings(*numbers):
    return [ArrayRankings(np.arange(QUERIES), RANKED[number]) for number in numbers]


def test_a_doubtful_label_can_be_set():
    """As if its chance were 0 or 1 from the start, all other labels drawn alike."""
    known = judged()
    labels = replace(
        known, chances=np.where(known.items < 2, 0.8, 0.3), judged=np.zeros(len(known.items), bool)
    )
    (ranking,) = rankings(0)
    for place in (0, 3, 50):
        for value in (0, 1):
            case = Cases(labels.rows[[place]], labels.items[[place]], np.array([value]))
            set_ = expected_values(ranking, Worlds.draw(labels, 32, 5), ASKED, case)[0]
            chances = labels.chances.copy()
            chances[place] = value
            other = Worlds.draw(replace(labels, chances=chances), 32, 5)
            plain = expected_values(ranking, other, ASKED, Cases.plain(QUERIES))[labels.rows[place]]
            assert set_ == pytest.approx(plain, abs=1e-12)


def test_models_that_rank_alike_hang_on_nothing():
    """No label changes their difference, so no pair spreads it."""
    found = influence(judged(), rankings(0, 0), ASKED[2])

    assert found.expected[0] == found.expected[1]
    assert found.spread == pytest.approx(np.zeros(len(found.labels.items)), abs=1e-18)


def test_pairs_that_models_rank_differently_count_most():
    """Two models with the same first six items differ below these; against a third one, these count too."""
    alike, apart = (influence(judged(), rankings(1, other), ASKED[2]) for other in (2, 0))
    top = alike.labels.items < 6

    assert alike.spread[top].mean() < apart.spread[apart.labels.items < 6].mean()
    assert (apart.spread >= 0).all()


def test_bands_weigh_the_same_and_hold_the_heaviest_first():
    """Up to one pair's weight; so the heaviest band holds the fewest pairs."""
    weights = RNG.exponential(size=500) ** 2
    band = bands(weights, 3)

    sums = np.bincount(band, weights)
    assert np.ptp(sums) <= 2 * weights.max()
    assert weights[band == 0].min() >= weights[band == 1].max() >= weights[band == 2].max()
    assert (np.diff(np.bincount(band)) > 0).all()
