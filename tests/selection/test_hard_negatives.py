"""Jo et al.'s scores against values by hand and against their Algorithm 2, written out line by line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitl.errors import RoundError
from mitl.selection import hard_negatives
from mitl.selection.coreset import core_set
from mitl.selection.hard_negatives import (
    HardNegatives,
    Unpaired,
    Weight,
    hard_negative_scores,
    hard_share,
    hardest,
    of_array,
    of_vectors,
    thresholds,
    unpaired_scores,
)

PAIRED = np.array([[0.9, 0.2, 0.4], [0.5, 0.8, 0.1], [0.3, 0.6, 0.7]])
"""Images z_j by texts t_j."""
OPEN = np.array([[0.6, 0.7, 0.3], [0.5, 0.9, 0.6], [0.1, 0.1, 0.1]])
"""Images x_i by the same texts."""


def test_the_values_by_hand():
    """Thresholds 0.5, 0.6, 0.4 by the nearest other image and 0.3, 0.2, 0.1 by the second."""
    first = thresholds(PAIRED, np.arange(3))
    second = thresholds(PAIRED, np.arange(3), top=2)

    assert first.tolist() == [0.5, 0.6, 0.4]
    assert second.tolist() == [0.3, 0.2, 0.1]
    assert hard_negative_scores(OPEN, first).tolist() == pytest.approx([0.2, 0.5, 0.0])
    assert hard_negative_scores(OPEN, first, Weight.COUNTING).tolist() == [2, 2, 0]
    assert hard_negative_scores(OPEN, second).tolist() == pytest.approx([1.0, 1.4, 0.0])
    assert hard_share(hard_negative_scores(OPEN, first)) == pytest.approx(2 / 3)


def transcribed(open_, paired, top, weight):
    """Algorithm 2, lines 1 to 17, and eq. 4 and 5 where they differ."""
    h = []
    for i in range(len(open_)):
        total = 0.0
        for j in range(paired.shape[1]):
            others = sorted((paired[l, j] for l in range(len(paired)) if l != j), reverse=True)  # noqa: E741
            xi = others[top - 1]
            w = 1.0 if weight is Weight.COUNTING else max(open_[i, j] - xi, 0)
            total += w * (open_[i, j] > xi)
        h.append(total)
    return h


@given(
    seed=st.integers(0, 10_000),
    n_paired=st.integers(4, 9),
    n_open=st.integers(1, 9),
    top=st.integers(1, 3),
    weight=st.sampled_from(Weight),
    is_reverse=st.booleans(),
    cells=st.integers(1, 40),
)
def test_blocks_of_any_size_give_algorithm_2(seed, n_paired, n_open, top, weight, is_reverse, cells):
    """Both ways round: texts without an image are scored by the transposed similarities."""
    rng = np.random.default_rng(seed)
    whole = rng.normal(size=(n_paired + n_open, n_paired + n_open)).round(1)
    whole = whole.T if is_reverse else whole
    columns = whole[:, :n_paired]
    given_ = Unpaired(
        of_array(columns), np.arange(n_paired, len(whole)), np.arange(n_paired), np.arange(n_paired)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hard_negatives, "_CELLS", cells)
        found = unpaired_scores(given_, HardNegatives(top=top, weight=weight))
        chosen, scores = hardest(given_, 2, HardNegatives(top=top, weight=weight))
    expected = transcribed(columns[n_paired:], columns[:n_paired], top, weight)

    assert found.tolist() == pytest.approx(expected)
    assert scores.tolist() == found[chosen - n_paired].tolist()
    assert sorted(scores.tolist()) == pytest.approx(sorted(expected)[-2:])


@given(seed=st.integers(0, 1000), sample=st.integers(2, 8))
def test_a_mini_batch_is_the_full_batch_of_its_pairs(seed, sample):
    """Images and texts of the sample alone enter; all of them are the full batch."""
    rng = np.random.default_rng(seed)
    images, texts = rng.normal(size=(12, 3)), rng.normal(size=(8, 3))
    given_ = Unpaired(of_vectors(images, texts), np.arange(8, 12), np.arange(8), np.arange(8))
    rule = HardNegatives(sample=sample, seed=seed)
    kept = hard_negatives._batch(8, rule)
    part = (images @ texts.T)[:, kept]

    expected = transcribed(part[8:], part[kept], 1, Weight.SURPLUS)
    assert len(kept) == sample
    assert unpaired_scores(given_, rule).tolist() == pytest.approx(expected)


def test_several_texts_of_an_image_leave_it_out_each():
    """``own`` says whose text a column is."""
    assert thresholds(np.array([[9.0, 8.0, 1.0], [2.0, 3.0, 7.0]]), np.array([0, 0, 1])).tolist() == [2, 3, 1]


def test_too_few_paired_items_and_too_large_samples_are_refused():
    """In one line, with what is needed."""
    given_ = Unpaired(of_array(PAIRED), np.arange(0), np.arange(3), np.arange(3))
    with pytest.raises(RoundError, match="need 4 paired items at least, and there are 3"):
        unpaired_scores(given_, HardNegatives(top=3))
    with pytest.raises(RoundError, match="the sample is 9 of 3 paired items"):
        unpaired_scores(given_, HardNegatives(sample=9))
    with pytest.raises(RoundError, match="the 1st at least"):
        thresholds(PAIRED, np.arange(3), top=0)


def test_a_core_set_takes_the_farthest_first():
    """By hand: from 0 the farthest is 10, then 5, then 2 (2 away; 9 is 1 away)."""
    rows = np.array([[0.0], [2.0], [5.0], [9.0], [10.0]])
    order, distance = core_set(rows, np.array([0]), 9)

    assert order.tolist() == [4, 2, 1, 3]
    assert distance.tolist() == pytest.approx([10, 5, 2, 1])
    assert core_set(rows, np.empty(0, np.int64), 2)[0].tolist() == [2, 0]


@given(seed=st.integers(0, 500), n=st.integers(1, 12), labelled=st.integers(0, 5))
def test_a_core_set_is_the_greedy_choice(seed, n, labelled):
    """Distances never rise, no labelled row is chosen, none twice; the cover is within twice the best (Gonzalez)."""
    rows = np.random.default_rng(seed).normal(size=(15, 2))
    known = np.arange(labelled)
    order, distance = core_set(rows, known, n)

    assert len(set(order.tolist()) | set(known.tolist())) == len(order) + labelled
    assert len(order) == min(n, 15 - labelled)
    assert (np.diff(distance[int(labelled == 0) :]) <= 1e-9).all()
