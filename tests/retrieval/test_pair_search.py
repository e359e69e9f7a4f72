"""Rankings by scores of pairs: exact whatever is asked, though a lower precision looks first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from encoding_kit import captions
from hypothesis import given, settings
from hypothesis import strategies as st

from mitl.records import Direction, ImageItem
from mitl.retrieval import pair_search
from mitl.retrieval.encodings import caption_keys, image_keys
from mitl.retrieval.pair_scores import PairScores, ScoredItems, ScoredUnit
from mitl.retrieval.pair_search import PairSearch


@pytest.fixture(autouse=True, scope="module")
def small_margin():
    """A margin that has to grow, and blocks of a few queries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_search, "MARGIN", 2)
        patch.setattr(pair_search, "_BLOCK_PAIRS", 12)
        yield


def data(n_images: int, n_captions: int) -> ScoredItems:
    images = [ImageItem(3 * i + 1, str(900 + i)) for i in range(n_images)]
    texts = captions(n_captions)
    return ScoredItems(images, texts, image_keys(images, None), caption_keys(texts))


def scores_of(matrix: np.ndarray, folder: Path, items: ScoredItems) -> PairScores:
    def score(units):
        for unit in units:
            yield ScoredUnit(unit.number, matrix[unit.images, unit.captions].astype(np.float32), 0.1)

    return PairScores(folder, "vilt", items, score)


Make = Callable[..., PairSearch]


@pytest.fixture(scope="module")
def search(tmp_path_factory) -> Make:
    """A search over the scores of a matrix (images, captions), and over near ones where they are given."""

    def make(matrix: np.ndarray, near: np.ndarray | None = None) -> PairSearch:
        items, folder = data(*matrix.shape), tmp_path_factory.mktemp("scores")
        exact = scores_of(matrix, folder / "exact", items)
        if near is None:
            return PairSearch("vilt", items, exact)
        return PairSearch("vilt", items, scores_of(near, folder / "near", items), exact)

    return make


def wanted(made: PairSearch, matrix: np.ndarray, direction: Direction, queries: list[int], k: int):
    """Ids and scores by sorting everything, ties to the smaller id."""
    rows = (matrix if direction is Direction.I2T else matrix.T)[queries].astype(np.float32)
    gallery = made.items.captions if direction is Direction.I2T else made.items.images
    order = np.argsort(-rows, axis=1, kind="stable")[:, :k]
    return np.array([item.id for item in gallery])[order], np.take_along_axis(rows, order, axis=1)


def query_ids(made: PairSearch, direction: Direction, queries: list[int]) -> np.ndarray:
    side = made.items.images if direction is Direction.I2T else made.items.captions
    return np.array([side[place].id for place in queries], np.int64)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    direction=st.sampled_from(list(Direction)),
    k=st.integers(1, 6),
    ties=st.booleans(),
)
def test_all_pairs_are_ranked_by_their_scores(search, seed, direction, k, ties):
    """Best first, ties to the smaller id; every pair is told once."""
    rng = np.random.default_rng(seed)
    matrix = rng.integers(0, 4, (7, 9)) / 4 if ties else rng.random((7, 9))
    made, queries, told = search(matrix), [5, 0, 3], []

    found = made.exhaustive(direction, query_ids(made, direction, queries), k, told.append)

    ids, scores = wanted(made, matrix, direction, queries, k)
    assert found.item_ids.tolist() == ids.tolist()
    np.testing.assert_array_equal(found.similarities, scores)
    assert sum(told) == 3 * (9 if direction is Direction.I2T else 7)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    direction=st.sampled_from(list(Direction)),
    k=st.integers(1, 6),
    error=st.floats(0, 0.3),
)
def test_the_order_is_that_of_float32_though_a_lower_precision_looks_first(search, seed, direction, k, error):
    """Near scores may be off by a third of their range: the margin grows until it covers that."""
    rng = np.random.default_rng(seed)
    matrix = rng.random((20, 30))
    # The largest error shows on every query, so that what is measured is what there is.
    near = matrix + error * rng.choice([-1, 1], matrix.shape)
    made, queries = search(matrix, near), [5, 0, 3, 19]

    found = made.exhaustive(direction, query_ids(made, direction, queries), k, lambda pairs: None)

    ids, scores = wanted(made, matrix, direction, queries, k)
    assert found.item_ids.tolist() == ids.tolist()
    np.testing.assert_array_equal(found.similarities, scores)


def test_a_small_error_costs_few_exact_scores(search):
    """Where the margin covers it, only the k and the margin are scored twice."""
    rng = np.random.default_rng(0)
    matrix = rng.permutation(300).reshape(3, 100) / 300
    made = search(matrix, matrix + 1e-5 * rng.random(matrix.shape))

    made.exhaustive(Direction.I2T, query_ids(made, Direction.I2T, [0, 1, 2]), 5, lambda pairs: None)

    assert made.exact is not None and made.exact.computed == 3 * (5 + 2)
    assert made.computed == 300 + 21


@settings(max_examples=40, deadline=None)
@given(data_=st.data(), direction=st.sampled_from(list(Direction)), precise=st.booleans())
def test_candidates_are_ranked_among_themselves(search, data_, direction, precise):
    """Lists of different lengths, in several blocks; nothing else is scored."""
    matrix = np.random.default_rng(data_.draw(st.integers(0, 99))).random((8, 10))
    made = search(matrix, None if precise else np.round(matrix, 1))
    size = 10 if direction is Direction.I2T else 8
    lists = st.lists(st.integers(0, size - 1), min_size=2, max_size=size, unique=True)
    queries = data_.draw(st.lists(st.integers(0, 7), min_size=1, max_size=5, unique=True))
    candidates = [np.array(data_.draw(lists)) for _ in queries]
    told: list[int] = []

    found = made.among(direction, query_ids(made, direction, queries), candidates, 2, told.append)

    rows = (matrix if direction is Direction.I2T else matrix.T).astype(np.float32)
    gallery = made.items.captions if direction is Direction.I2T else made.items.images
    for row, (query, some) in enumerate(zip(queries, candidates, strict=True)):
        best = some[np.lexsort((some, -rows[query, some]))][:2]
        assert found.item_ids[row].tolist() == [gallery[place].id for place in best]
        np.testing.assert_array_equal(found.similarities[row], rows[query, best])
    assert sum(told) == sum(map(len, candidates)) == made.scores.computed
