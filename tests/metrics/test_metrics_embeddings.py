"""Metrics straight from embeddings and similarities: the same as from full rankings, whatever the tiles are."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metrics_kit import reference
from metrics_kit import worlds as splits
from suite_kit import examples

from annotators.base import Encoded
from mitl.errors import MetricError
from mitl.metrics import (
    ArrayRankings,
    EmbeddingSet,
    Positives,
    official_sets,
    score_both_ways,
    score_embeddings,
    score_official,
    score_official_embeddings,
    score_queries,
    score_similarities,
    split_folds,
)
from mitl.metrics.official import OfficialSets
from mitl.metrics.similarity_ranks import WantedRanks, ranks_of_vectors
from mitl.records import AnnotatorKind
from mitl.retrieval.rescoring import canonical_similarities
from mitl.retrieval.topk import top_k
from mitl.retrieval.vectors import Vectors


class Space:
    """An annotator of vectors, of which the search asks no more than this."""

    name = fingerprint = "space"
    kind = AnnotatorKind.MULTI_VECTOR


@st.composite
def worlds(draw):
    """Embeddings that are random, full of ties, nearly equal, huge or zero, with one to three vectors each."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    queries, items, width = draw(st.integers(1, 9)), draw(st.integers(1, 30)), draw(st.integers(1, 5))
    several = draw(st.booleans())
    shapes = [(n, *([rng.integers(1, 4)] if several else []), width) for n in (queries, items)]
    kind = draw(st.sampled_from(["random", "ties", "near ties", "all alike", "huge"]))
    sides = []
    for shape in shapes:
        side = rng.standard_normal(shape)
        if kind == "ties":
            side = rng.integers(-1, 2, shape)
        elif kind == "near ties":
            side = 1 + 1e-7 * rng.integers(-2, 3, shape)
        elif kind == "all alike":
            side = np.full(shape, 0.1)
        elif kind == "huge":
            side *= 1e18
        sides.append(side.astype(np.float32))
    gallery_ids = rng.choice(1000, items, replace=False) - 500
    query_ids = rng.choice(1000, queries, replace=False)
    positives = {
        int(q): [*rng.choice(gallery_ids, rng.integers(1, min(items, 6) + 1), replace=False).tolist()]
        + [5000] * int(rng.random() < 0.2)
        for q in query_ids
    }
    return sides, query_ids, gallery_ids, Positives.from_mapping(positives)


def full_rankings(sides, query_ids, gallery_ids):
    """What the exact search gives when asked for everything."""
    order, back = np.argsort(gallery_ids), np.argsort(query_ids)
    queries = Encoded("image", query_ids[back], {"embedding": sides[0][back]})
    gallery = Encoded("caption", gallery_ids[order], {"embedding": sides[1][order]})
    found = top_k(Space(), queries, gallery, len(gallery_ids))
    return found.query_ids, found.item_ids


def equal(one, other):
    """The same metrics, queries and values."""
    assert [each.metric for each in one] == [each.metric for each in other]
    for mine, theirs in zip(one, other, strict=True):
        assert mine.query_ids.tolist() == theirs.query_ids.tolist()
        assert mine.values == pytest.approx(theirs.values, abs=1e-12), mine.metric
        assert mine.statistic == theirs.statistic
        assert mine.left_out == theirs.left_out


@settings(max_examples=examples(40, 120))
@given(worlds(), st.sampled_from([(1, 1), (3, 8), (8, 3), (510, 2040)]), st.booleans())
def test_embeddings_score_as_their_full_rankings(world, tile, median_rank):
    """Ties and near ties included, for tiles of any size, with positives that the gallery lacks."""
    sides, query_ids, gallery_ids, positives = world
    options = {"ks": (1, 2, 5), "median_rank": median_rank, "short": "zero"}
    wanted = score_queries(*full_rankings(sides, query_ids, gallery_ids), positives, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mitl.metrics.embeddings.ranks_of_vectors", partial(ranks_of_vectors, tile=tile))
        equal(score_embeddings(*sides, query_ids, gallery_ids, positives, **options), wanted)


@settings(max_examples=examples(25, 60))
@given(worlds(), st.integers(1, 10))
def test_similarities_score_as_their_full_rankings(world, rows):
    """A matrix, and blocks of its rows."""
    sides, query_ids, gallery_ids, positives = world
    left, right = (side.reshape(len(side), -1, side.shape[-1]) for side in sides)
    row, column = np.indices((len(left), len(right))).reshape(2, -1)
    matrix = canonical_similarities(left[row], right[column]).reshape(len(left), len(right))
    options = {"ks": (1, 3), "median_rank": True, "short": "zero"}
    wanted = score_queries(*full_rankings(sides, query_ids, gallery_ids), positives, **options)

    equal(score_similarities(matrix, query_ids, gallery_ids, positives, **options), wanted)
    blocks = (matrix[start : start + rows] for start in range(0, len(matrix), rows))
    equal(score_similarities(blocks, query_ids, gallery_ids, positives, **options), wanted)


def test_both_directions_come_from_one_pass():
    """Ranks of all pairs, there and back, against sorting."""
    rng = np.random.default_rng(0)
    left, right = rng.integers(-2, 3, (40, 4)), rng.integers(-2, 3, (70, 4))
    exact = left @ right.T
    sides = [
        Vectors(Encoded("image", np.arange(len(side)), {"embedding": side.astype(np.float32)}))
        for side in (left, right)
    ]
    wanted = []
    for scores in (exact, exact.T):
        rows, columns = np.indices(scores.shape).reshape(2, -1)
        wanted.append(WantedRanks.of(rows, columns, len(scores), scores.ravel().astype(np.float32)))

    for tile in ((16, 24), (7, 9), (510, 2040)):
        for found, scores in zip(ranks_of_vectors(*sides, *wanted, tile=tile), (exact, exact.T), strict=True):
            order = np.argsort(-scores, axis=1, kind="stable")
            assert found.reshape(scores.shape).tolist() == (np.argsort(order, axis=1) + 1).tolist()


def test_sets_of_both_directions_score_as_each_alone():
    """Ids in any order, a query without positives left out, R-Precision for one set only."""
    rng = np.random.default_rng(4)
    left, right = rng.standard_normal((6, 3)), rng.standard_normal((9, 3))
    left_ids, right_ids = rng.permutation(6), rng.permutation(9)
    many = Positives.from_mapping({q: rng.choice(9, 4, replace=False) for q in range(6)})
    few = Positives.from_mapping({0: [3], 2: [], 8: [1, 5]})
    sides = EmbeddingSet(left_ids, left), EmbeddingSet(right_ids, right)
    found = score_both_ways(
        *sides,
        {("a", "i2t"): many, ("b", "t2i"): few},
        ks=(1, 2),
        by_r=("a",),
        median_rank=True,
        no_positives="leave_out",
    )

    options = {"ks": (1, 2), "median_rank": True, "no_positives": "leave_out"}
    equal(found["a", "i2t"], score_embeddings(left, right, left_ids, right_ids, many, **options))
    equal(found["b", "t2i"], score_embeddings(right, left, right_ids, left_ids, few, by_r=False, **options))


def test_many_rows_and_columns_are_counted_whole():
    """More than 255 flags of one byte, along both axes."""
    rng = np.random.default_rng(1)
    left, right = rng.standard_normal((600, 2)), rng.standard_normal((4100, 2))
    positives = Positives.from_mapping({q: [int(q)] for q in range(600)})
    found = score_embeddings(left, right, np.arange(600), np.arange(4100), positives, ks=(), median_rank=True)

    similarities = left.astype(np.float32).astype(float) @ right.astype(np.float32).astype(float).T
    ranks = 1 + (similarities > similarities[np.arange(600), np.arange(600)][:, None]).sum(axis=1)
    assert found[-1].values.tolist() == ranks.tolist()


@settings(max_examples=40)
@given(splits(), st.integers(0, 2**32), st.booleans())
@pytest.mark.thorough
def test_official_sets_from_embeddings_score_as_from_rankings(world, seed, median_rank):
    """All sets of a small test split, folds included, both directions, with ties."""
    images_of, captions_of = (
        Positives.from_mapping(world.tables["coco_gts"][side]) for side in ("t2i", "i2t")
    )
    positives = {
        (name, side): Positives.from_mapping(world.tables[table][side])
        for name, table in (("coco_5k", "coco_gts"), ("cxc", "cxc_gts"), ("eccv", "eccv_gts"))
        for side in ("i2t", "t2i")
    }
    folds = dict(zip(("i2t", "t2i"), split_folds(world.coco_ids, images_of, captions_of), strict=True))
    sets = OfficialSets(captions_of.query_ids, images_of.query_ids, positives, folds)
    rng = np.random.default_rng(seed)
    images, captions = (
        rng.integers(-2, 3, (len(ids), 4)).astype(np.float32) for ids in (sets.image_ids, sets.caption_ids)
    )
    rankings = {
        "i2t": ArrayRankings(*full_rankings((images, captions), sets.image_ids, sets.caption_ids)),
        "t2i": ArrayRankings(*full_rankings((captions, images), sets.caption_ids, sets.image_ids)),
    }
    sides = EmbeddingSet(sets.image_ids, images), EmbeddingSet(sets.caption_ids, captions)
    options = {"ks": (1, 2), "median_rank": median_rank, "short": "zero"}

    with pytest.MonkeyPatch.context() as patch:
        for module in ("official", "embeddings"):
            patch.setattr(f"mitl.metrics.{module}.official_sets", lambda: sets)
        found, wanted = score_official_embeddings(*sides, **options), score_official(rankings, **options)
    assert found.keys() == wanted.keys()
    assert len(found) == 8
    for key, values in found.items():
        equal(values, wanted[key])


def score_with(**changes):
    """Two queries, three items; one argument is another one."""
    given = {
        "queries": np.eye(2, 3, dtype=np.float32),
        "gallery": np.eye(3, dtype=np.float32),
        "query_ids": np.array([1, 2]),
        "gallery_ids": np.array([10, 20, 30]),
        "positives": Positives.from_mapping({1: [10], 2: [20, 30]}),
        "ks": (1,),
    } | changes
    return score_embeddings(**given)


def spoilt(value):
    """A gallery one of whose numbers is this."""
    gallery = np.eye(3, dtype=np.float32)
    gallery[1, 2] = value
    return gallery


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"queries": np.eye(2, 4)}, "query embeddings are 4 wide, but gallery item embeddings 3"),
        ({"gallery": spoilt(np.nan)}, "the embedding of gallery item 20 is not finite"),
        ({"gallery": spoilt(np.inf)}, "the embedding of gallery item 20 is not finite"),
        ({"gallery": np.eye(3, dtype=int)}, "gallery item embeddings are int64"),
        ({"queries": np.zeros(2)}, r"query embeddings are float32 \(2,\)"),
        ({"gallery_ids": np.array([10, 20, 20])}, "gallery item 20 stands twice among the ids; keep one"),
        ({"gallery_ids": np.array([10, 20])}, "3 embeddings were given for 2 ids"),
        ({"gallery_ids": np.array(["10", "20", "30"])}, "ids must be integers, but '10' is of type str"),
        ({"query_ids": np.array([1, 3])}, r"query 2 has no embedding \(1 of 2 have none\)"),
        ({"query_ids": np.array([1, 1])}, "query 1 stands twice among the ids"),
        ({"ks": (4,)}, "Recall@4 needs 4 ranked items, but the gallery has 3"),
        ({"ks": (0,)}, "K is 0"),
        (
            {"positives": Positives.from_mapping({1: [10, 20, 30, 40]})},
            "query 1 has 4 positives, but the gallery has 3 items",
        ),
        (
            {"positives": Positives.from_mapping({1: [40]}), "median_rank": True},
            "the gallery holds no positive of query 1",
        ),
    ],
)
def test_embeddings_that_do_not_fit_are_refused(changes, complaint):
    """Which item, what is wrong with it, what would be right."""
    with pytest.raises(MetricError, match=complaint):
        score_with(**changes)


@pytest.mark.parametrize(
    ("similarities", "complaint"),
    [
        ([[0.5, np.nan, 0.1]] * 2, "the similarity in row 0 and column 1 .* is NaN"),
        ([[0.5, 0.1]] * 2, "similarities are .2, 2. from row 0 on, but 2 query ids and 3 gallery ids"),
        ([[0.5, 0.1, 0.2]], "1 rows of similarities were given for 2 query ids"),
        ([[0.5, 0.1, 0.2]] * 3, "similarities are .3, 3. from row 0 on"),
        ([["a", "b", "c"]] * 2, "similarities are of type <U1"),
        ([0.5, 0.1, 0.2], "give .queries, gallery."),
    ],
)
def test_similarities_that_do_not_fit_are_refused(similarities, complaint):
    """NaN has no place in a ranking; infinities have."""
    positives = Positives.from_mapping({1: [10], 2: [20]})
    with pytest.raises(MetricError, match=complaint):
        score_similarities(
            np.array(similarities), np.array([1, 2]), np.array([10, 20, 30]), positives, ks=(1,)
        )


def test_infinite_similarities_rank_as_numbers():
    """Minus infinity is how a pair is masked."""
    matrix = np.array([[np.inf, -np.inf, 0.0], [-np.inf, -np.inf, -np.inf]])
    positives = Positives.from_mapping({1: [30], 2: [30]})
    (found,) = score_similarities(
        matrix, np.array([1, 2]), np.array([10, 20, 30]), positives, ks=(), by_r=False, median_rank=True
    )

    assert found.values.tolist() == [2, 3]


def test_an_official_item_without_embedding_is_named():
    """The whole test split is the gallery, or the number is of another test."""
    reference()
    sets = official_sets()
    images = EmbeddingSet(sets.image_ids[1:], np.ones((4999, 2), np.float32))
    captions = EmbeddingSet(sets.caption_ids, np.ones((25000, 2), np.float32))

    with pytest.raises(MetricError, match="image 42 has no embedding"):
        score_official_embeddings(images, captions)
    with pytest.raises(MetricError, match="no official set called 'coco'; known: coco_1k"):
        score_official_embeddings(images, captions, ["coco"])
