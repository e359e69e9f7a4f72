"""Pseudo-labels of a whole gallery: the same as of single pairs, whatever the blocks, and correlations by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau, pearsonr

from mitl.errors import MetricError
from mitl.metrics import pseudo
from mitl.metrics.correlation import pseudo_labels
from mitl.metrics.positives import Positives
from mitl.metrics.pseudo import CaptionLabels, dense_values


@st.composite
def captioned(draw):
    """Images with one to four captions each, in any order: unit rows (C, D), the image's place of each, images."""
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    places = draw(st.permutations([place for place, count in enumerate(counts) for _ in range(count)]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.normal(size=(len(places), 3)), np.array(places), len(counts)


@given(captioned())
def test_labels_of_a_gallery_are_those_of_its_pairs(world):
    """Of images with all captions and of captions with all images, as the function of pairs gives them."""
    vectors, places, n_images = world
    labels = CaptionLabels(vectors, places, n_images)
    captions = np.arange(len(places))
    image, caption = (grid.ravel() for grid in np.meshgrid(np.arange(n_images), captions, indexing="ij"))
    own = Positives.from_pairs(places, captions)
    expected = pseudo_labels(image, caption, (captions, vectors), own).reshape(n_images, len(places))

    of_images, of_captions = labels.of_images(np.arange(n_images)), labels.of_captions(captions)

    np.testing.assert_allclose(of_images, expected, atol=1.1e-6)
    np.testing.assert_allclose(of_captions, expected.T, atol=1.1e-6)
    assert of_images[places, captions] == pytest.approx(1)


@given(world=captioned(), cells=st.integers(1, 60), seed=st.integers(0, 99))
def test_blocks_do_not_show(world, cells, seed):
    """Some queries in any order, with any number of cosines held at once, have the rows that all have."""
    vectors, places, n_images = world
    labels = CaptionLabels(vectors, places, n_images)
    rng = np.random.default_rng(seed)
    images, captions = rng.integers(0, n_images, 3), rng.integers(0, len(places), 3)
    whole = labels.of_images(np.arange(n_images)), labels.of_captions(np.arange(len(places)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pseudo, "_CELLS", cells)
        np.testing.assert_allclose(labels.of_images(images), whole[0][images], atol=1.1e-6)
        np.testing.assert_allclose(labels.of_captions(captions), whole[1][captions], atol=1.1e-6)


def test_every_query_correlates_over_the_whole_gallery():
    """tau-b and Pearson's correlation as scipy has them, ties among them."""
    rng = np.random.default_rng(0)
    labels = np.round(rng.random((4, 30)), 1)
    similarities = labels + rng.normal(size=(4, 30))

    tau, linear = dense_values(np.array([3, 5, 6, 9]), similarities, labels)

    assert [tau.metric, linear.metric] == ["Kendall tau-b", "Pearson"]
    assert tau.query_ids.tolist() == [3, 5, 6, 9]
    assert tau.values == pytest.approx(
        [kendalltau(*rows).statistic for rows in zip(similarities, labels, strict=True)]
    )
    assert linear.values == pytest.approx(
        [pearsonr(*rows).statistic for rows in zip(similarities, labels, strict=True)]
    )


def test_a_query_that_tells_nothing_apart_is_left_out_and_counted():
    """Of either side; where none is left there is no correlation."""
    table = np.array([[1.0, 2.0, 3.0], [0.1, 0.1, 0.1]])

    tau, _ = dense_values(np.array([1, 2]), table, np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]))

    assert (tau.query_ids.tolist(), tau.values.tolist(), tau.left_out) == ([1], [1.0], 1)
    with pytest.raises(MetricError, match="tell two items apart"):
        dense_values(np.array([1]), table[:1], np.array([[0.5, 0.5, 0.5]]))


def test_what_has_no_label_is_refused():
    """An image without captions, and a text without a direction."""
    with pytest.raises(MetricError, match="1 of 2 images have no caption"):
        CaptionLabels(np.eye(2), np.array([0, 0]), 2)
    with pytest.raises(MetricError, match="no cosine"):
        CaptionLabels(np.zeros((1, 2)), np.array([0]), 1)
