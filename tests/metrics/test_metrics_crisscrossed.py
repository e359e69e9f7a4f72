"""CxC's four retrieval tasks: which pairs are positives, retrieval without the query itself, and the CSVs."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitl.datasets.cxc import RatedPairs, read_rated_pairs
from mitl.errors import DatasetError, MetricError
from mitl.metrics import crisscrossed
from mitl.metrics.crisscrossed import (
    Task,
    across_positives,
    first_ranks_within,
    image_positives,
    pair_similarities,
    score_within,
    scored_pairs,
    text_positives,
)
from mitl.metrics.positives import Positives
from mitl.metrics.retrieval import score_queries
from mitl.records.similarity import Likeness


def rated(kind, rows):
    first, second, scores = zip(*rows, strict=True)
    return RatedPairs(kind, np.array(first), np.array(second), np.array(scores, dtype=float))


def table(positives):
    return {query: positives.of(query).tolist() for query in positives.query_ids.tolist()}


STS = rated(Likeness.STS, [(11, 12, 2.9), (12, 13, 3.0), (21, 13, 5.0), (31, 11, 0.5)])
SIS = rated(Likeness.SIS, [(1, 2, 2.5), (2, 1, 1.0), (3, 1, 2.4), (1, 3, 2.4)])
SITS = rated(Likeness.SITS, [(1, 11, 2.99), (1, 12, 5.0), (2, 12, 3.0), (3, 31, 1.0)])


def test_texts_match_from_3_on_both_ways():
    assert table(text_positives(STS)) == {12: [13], 13: [12, 21], 21: [13]}


def test_captions_of_one_image_may_match_whatever_their_score():
    """Captions 11, 12, 13 are of image 1, 21 of image 2, 31 of image 3."""
    of_images = (np.array([11, 21, 12, 31, 13]), np.array([1, 2, 1, 3, 1]))

    assert table(text_positives(STS, of_images=of_images)) == {
        11: [12, 13],
        12: [11, 13],
        13: [11, 12, 21],
        21: [13],
    }


def test_images_match_from_2_and_a_half_on_if_either_order_does():
    assert table(image_positives(SIS)) == {1: [2], 2: [1]}


def test_images_and_texts_match_from_3_on():
    found = across_positives(SITS)

    assert table(found[Task.I2T]) == {1: [12], 2: [12]}
    assert table(found[Task.T2I]) == {12: [1, 2]}


def test_original_pairs_may_match_whatever_their_score():
    found = across_positives(SITS, original=(np.array([1, 3]), np.array([11, 31])))

    assert table(found[Task.I2T]) == {1: [11, 12], 2: [12], 3: [31]}
    assert table(found[Task.T2I])[31] == [3]


def test_another_threshold_may_be_set():
    assert table(image_positives(SIS, threshold=2.4)) == {1: [2, 3], 2: [1], 3: [1]}


def test_ratings_of_another_kind_are_refused():
    with pytest.raises(MetricError, match="these are SIS ratings, but STS ratings are needed"):
        text_positives(SIS)
    with pytest.raises(MetricError, match="these are STS ratings, but SITS"):
        across_positives(STS)


def test_a_caption_without_an_image_is_said():
    with pytest.raises(MetricError, match="2 captions, but 1 images"):
        text_positives(STS, of_images=(np.array([1, 2]), np.array([1])))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(1, 2, 5.1)], "pair 1 × 2 has the score 5.1"),
        ([(1, 2, -0.1)], "scores go from 0 to 5"),
        ([(1, 2, float("nan"))], "has the score nan"),
    ],
)
def test_scores_outside_the_scale_are_said(rows, message):
    with pytest.raises(MetricError, match=message):
        rated(Likeness.SIS, rows)
    with pytest.raises(MetricError, match="one of each"):
        RatedPairs(Likeness.SIS, np.array([1]), np.array([1, 2]), np.array([1.0]))


SIX = np.array([[1.0, 0], [0.9, 0.1], [0.8, 0.2], [0, 1], [0.1, 0.9], [0.7, 0.3]])


def test_first_ranks_within_six_items_are_those_on_paper():
    """From item 10 the others are at .9, .8, 0, .1, .7: 11, 12, 15, 14, 13; 15 is third, 13 last."""
    ids = np.arange(10, 16)
    positives = Positives.from_mapping({10: [13, 15], 13: [10, 14]})

    assert first_ranks_within(ids, SIX, positives).tolist() == [3, 1]
    found = {values.metric: values.estimate for values in score_within(ids, SIX, positives, ks=(1, 3))}
    assert found == {"R@1": 0.5, "R@3": 1, "median rank": 2}


def test_of_equal_similarities_the_smaller_id_comes_first():
    """All items are alike: for query 3 the order is 1, 2, 5, so that 5 is third, and 2 second."""
    ids = np.array([5, 2, 3, 1])

    assert first_ranks_within(ids, np.ones((4, 2)), Positives.from_mapping({3: [5]})).tolist() == [3]
    assert first_ranks_within(ids, np.ones((4, 2)), Positives.from_mapping({3: [2, 5]})).tolist() == [2]


@st.composite
def worlds(draw):
    n = draw(st.integers(2, 9))
    ids = draw(st.lists(st.integers(0, 99), min_size=n, max_size=n, unique=True))
    rows = draw(st.lists(st.lists(st.integers(-2, 2), min_size=2, max_size=2), min_size=n, max_size=n))
    queries = draw(st.lists(st.sampled_from(ids), min_size=1, unique=True))
    positives = {
        query: draw(st.sets(st.sampled_from([i for i in ids if i != query]), min_size=1)) for query in queries
    }
    return np.array(ids), np.array(rows, dtype=np.float32), Positives.from_mapping(positives)


@given(worlds())
def test_embeddings_score_as_their_rankings_without_the_query(world):
    """The two ways to the same numbers: no ranking held, or whole rankings by similarity, then id."""
    ids, embeddings, positives = world
    rankings = np.array([ids[np.lexsort((ids, -row))] for row in embeddings @ embeddings.T])
    ks = tuple(k for k in (1, 3) if k < len(ids))

    ours = score_within(ids, embeddings, positives, ks=ks)
    others = rankings[rankings != ids[:, None]].reshape(len(ids), -1)
    theirs = score_queries(ids, others, positives, ks=ks, by_r=False, median_rank=True)

    by_name = {values.metric: values for values in theirs}
    for values in ours:
        assert values.query_ids.tolist() == by_name[values.metric].query_ids.tolist()
        assert values.values.tolist() == by_name[values.metric].values.tolist()
        assert values.statistic == by_name[values.metric].statistic


def test_ranks_do_not_depend_on_how_much_is_held_at_once(monkeypatch):
    positives = Positives.from_mapping({10: [13, 15], 13: [10, 14], 15: [11]})
    whole = first_ranks_within(np.arange(10, 16), SIX, positives).tolist()

    monkeypatch.setattr(crisscrossed, "_CELLS", 7)

    assert first_ranks_within(np.arange(10, 16), SIX, positives).tolist() == whole


@pytest.mark.parametrize(
    ("ids", "embeddings", "positives", "message"),
    [
        ([1, 2], np.ones((3, 2)), {1: [2]}, "but 2 ids were given"),
        (
            [1, 2, 3],
            np.array([[1.0], [np.nan], [1]]),
            {1: [2]},
            "embedding of item 2 holds something that is not a number",
        ),
        ([1, 2, 2], np.ones((3, 2)), {1: [2]}, "hold id 2 twice"),
        ([1, 2, 3], np.ones((3, 2)), {1: [4]}, "the positives name 4"),
        ([1, 2, 3], np.ones((3, 2)), {4: [1]}, "the positives name 4"),
        ([1, 2, 3], np.ones((3, 2)), {1: []}, "query 1 has no positives"),
        ([1, 2, 3], np.ones((3, 2)), {1: [1, 2]}, "query 1 is its own positive"),
    ],
)
def test_bad_input_is_said(ids, embeddings, positives, message):
    with pytest.raises(MetricError, match=message):
        score_within(np.array(ids), embeddings, Positives.from_mapping(positives))


def test_queries_without_positives_may_be_left_out():
    values = score_within(
        np.arange(3), np.ones((3, 2)), Positives.from_mapping({0: [], 1: [0]}), no_positives="leave_out"
    )

    assert values[0].query_ids.tolist() == [1]
    assert values[0].left_out == 1


def test_pairs_have_the_inner_products_of_their_embeddings():
    images = np.array([3, 2, 1]), np.array([[1.0, 1], [0, 1], [1, 0]])
    captions = np.array([11, 12, 31]), np.array([[2.0, 3], [4, 5], [6, 7]])

    assert pair_similarities(SITS, images, captions).tolist() == [2, 4, 5, 13]
    with pytest.raises(MetricError, match="2 wide, the second ones' 1"):
        pair_similarities(SITS, images, (captions[0], captions[1][:, :1]))
    with pytest.raises(MetricError, match="the ratings name 31"):
        pair_similarities(SITS, images, (captions[0][:2], captions[1][:2]))


def test_the_first_items_are_the_queries_of_the_correlation():
    pairs = scored_pairs(STS, np.array([0.1, 0.2, 0.3, 0.4]))

    assert pairs.query_ids.tolist() == [11, 12, 21, 31]
    assert pairs.scores.tolist() == STS.scores.tolist()


def test_cxcs_files_are_read_in_their_order(tmp_path):
    sts, sis, sits = (tmp_path / f"{kind}.csv" for kind in Likeness)
    sts.write_text(
        "caption1,caption2,agg_score,sampling_method\nCOCO_val2014:sentid:7,COCO_val2014:sentid:5,1.5,x\n"
    )
    name = "COCO_val2014_{:012d}.jpg".format
    sis.write_text(f"image1,image2,agg_score,sampling_method\n{name(9)},{name(8)},2.5,x\n")
    sits.write_text(f"caption,image,agg_score,sampling_method\nCOCO_val2014:sentid:7,{name(9)},4.25,x\n")

    found = [read_rated_pairs(path, kind) for path, kind in zip((sts, sis, sits), Likeness, strict=True)]

    assert [(r.kind, r.first.tolist(), r.second.tolist(), r.scores.tolist()) for r in found] == [
        (Likeness.STS, [7], [5], [1.5]),
        (Likeness.SIS, [9], [8], [2.5]),
        (Likeness.SITS, [9], [7], [4.25]),
    ]


HEADER = "caption1,caption2,agg_score\n"
PAIR = "COCO_val2014:sentid:7,COCO_val2014:sentid:5,"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("image1,image2,agg_score\n", "no column 'caption1'"),
        (HEADER, "holds no rows"),
        (
            HEADER + "7,COCO_val2014:sentid:5,1\n",
            "row 1 .* names '7' as its caption1; CxC writes captions as",
        ),
        (HEADER + PAIR + "5.5\n", "has the score '5.5', but scores go from 0 to 5"),
        (HEADER + PAIR + "high\n", "has the score 'high'"),
        (HEADER + PAIR + "1\n" + PAIR + "2\n", "7 × 5"),
    ],
)
def test_malformed_files_are_said(tmp_path, content, message):
    path = tmp_path / "sts.csv"
    path.write_text(content)

    with pytest.raises(DatasetError, match=message):
        read_rated_pairs(path, Likeness.STS)


@pytest.fixture
def cxc(shared_data):
    folder = shared_data / "cxc"
    if not folder.is_dir():
        pytest.skip("CxC's ratings are not at hand")
    return folder


@pytest.mark.shared
@pytest.mark.skipif(find_spec("eccv_caption") is None, reason="the pip package eccv_caption is missing")
def test_real_positives_across_modalities_are_those_of_the_reference_library(cxc):
    from mitl.datasets.official import official_positives

    found = across_positives(read_rated_pairs(cxc / "sits_test.csv", Likeness.SITS))
    theirs = official_positives("cxc")

    for task, expected in ((Task.I2T, theirs.image_to_caption), (Task.T2I, theirs.caption_to_image)):
        wanted = Positives.from_mapping(
            {int(q): [int(item) for item in items] for q, items in expected.items()}
        )
        assert np.array_equal(found[task].query_ids, wanted.query_ids)
        assert np.array_equal(found[task].offsets, wanted.offsets)
        assert np.array_equal(found[task].item_ids, wanted.item_ids)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("kind", "val", "test"),
    [(Likeness.STS, 44_009, 44_045), (Likeness.SIS, 42_767, 46_719), (Likeness.SITS, 44_722, 44_833)],
)
def test_the_real_files_hold_as_many_pairs_as_published(cxc, kind, val, test):
    """Table 1 of the paper's appendix."""
    counts = [len(read_rated_pairs(cxc / f"{kind}_{split}.csv", kind)) for split in ("val", "test")]

    assert counts == [val, test]
