"""The area under the curve, and its interval."""

from __future__ import annotations

import numpy as np
import pytest

from mitl.errors import MetricError
from mitl.fusion.models import area


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


def test_an_interval_holds_where_pairs_hang_together_by_images_and_by_captions():
    """Forty captions with 25 of 200 images each, some captions ranked high with all of their pairs: by images alone
    two in three intervals hold.
    """
    rng = np.random.default_rng(3)
    caption = np.repeat(np.arange(40), 25)

    def world():
        likely, high = rng.normal(size=(2, 40))
        truth = rng.random(1000) < 1 / (1 + np.exp(0.3 - likely[caption]))
        image = np.concatenate([rng.choice(200, 25, replace=False) for _ in range(40)])
        return 1.5 * truth + high[caption] + rng.normal(size=1000), truth, image

    known = np.mean([area(*world()).value for _ in range(400)])
    found = [
        (area(scores, truth, image), area(scores, truth, np.stack([image, caption])))
        for scores, truth, image in (world() for _ in range(200))
    ]
    by_images, by_both = (
        np.mean([one.low <= known <= one.high for one in ones]) for ones in zip(*found, strict=True)
    )
    assert by_images < 0.8 < 0.9 < by_both
