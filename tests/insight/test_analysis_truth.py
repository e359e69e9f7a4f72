"""Recall and precision on packed pairs, against plain sets of tuples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitl.analysis.known_truth import (
    Score,
    recall_precision,
    score_directions,
    within_queries,
)
from mitl.core.arrays import pack_ids
from mitl.records import Direction

ids = st.integers(0, 6)
pairs = st.lists(st.tuples(ids, ids), max_size=40)
queries = st.sets(ids, max_size=5)


def packed(rows: list[tuple[int, int]]) -> np.ndarray:
    """Packed pairs of (image, caption) tuples."""
    return pack_ids(
        np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows], np.int64)
    )


def test_recall_and_precision_of_a_case_small_enough_for_paper() -> None:
    """Three called positive, four true, two both: recall 2/4, precision 2/3."""
    called = packed([(1, 1), (1, 2), (2, 9)])
    true = packed([(1, 1), (1, 2), (3, 3), (3, 4)])

    score = recall_precision(called, true)

    assert score == Score(found=2, positives=3, truth=4)
    assert score.recall == pytest.approx(0.5)
    assert score.precision == pytest.approx(2 / 3)


def test_shares_of_nothing_are_none() -> None:
    """With neither positives nor truth there is no recall and no precision, rather than 0 or 1."""
    score = recall_precision(packed([]), packed([]))

    assert (score.recall, score.precision) == (None, None)


@given(called=pairs, true=pairs, universe=pairs)
def test_counts_equal_those_of_plain_sets(
    called: list[tuple[int, int]], true: list[tuple[int, int]], universe: list[tuple[int, int]]
) -> None:
    """Repeats, order and pairs outside the universe change nothing."""
    score = recall_precision(packed(called), packed(true), packed(universe))

    a, b, u = set(called), set(true), set(universe)
    assert score == Score(found=len(a & b & u), positives=len(a & u), truth=len(b & u))


@given(called=pairs, true=pairs, images=queries, captions=queries)
def test_directions_are_query_times_gallery_and_together_is_their_union(
    called: list[tuple[int, int]], true: list[tuple[int, int]], images: set[int], captions: set[int]
) -> None:
    """A pair of both directions counts in each, and once together."""
    scores = score_directions(packed(called), packed(true), sorted(images), sorted(captions))

    gallery = range(7)
    i2t = {(image, caption) for image in images for caption in gallery}
    t2i = {(image, caption) for image in gallery for caption in captions}
    for score, universe in ((scores.i2t, i2t), (scores.t2i, t2i), (scores.together, i2t | t2i)):
        a, b = set(called) & universe, set(true) & universe
        assert score == Score(found=len(a & b), positives=len(a), truth=len(b))


def test_one_direction_keeps_only_its_queries_pairs() -> None:
    """Image query 1 and caption query 8: (1, 5) is i2t, (4, 8) is t2i, (4, 5) neither."""
    rows = packed([(1, 5), (4, 8), (4, 5)])

    assert within_queries(rows, [1], [8], Direction.I2T).tolist() == rows[:1].tolist()
    assert within_queries(rows, [1], [8], Direction.T2I).tolist() == rows[1:2].tolist()
    assert within_queries(rows, [1], [8]).tolist() == rows[:2].tolist()
