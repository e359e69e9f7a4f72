"""Which pairs are sampled to be rated: properties of the pure functions."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite_kit import examples

from annotators.base import Encoded, Ranking, unit_rows
from annotators.item_encoders import OneSided
from mitl.proposals.crisscross import (
    BY_IMAGES,
    BY_TEXTS,
    NEAREST,
    RATED,
    CaptionGroups,
    caption_pairs,
    co_caption_pairs,
    cross_candidates,
    group_means,
    image_pairs,
    nearest,
    original_pairs,
)
from mitl.records.frames import frame
from mitl.records.similarity import METHODS, TASKS, Likeness, SamplingMethod
from mitl.retrieval.topk import top_k

seeds = st.integers(0, 1 << 20)


@st.composite
def group_sets(draw, least: int = 0, most: int = 7) -> CaptionGroups:
    """Images with their captions, numbered as a database might."""
    sizes = draw(st.lists(st.integers(least, most), min_size=2, max_size=8))
    images = draw(st.permutations(range(3, 3 + len(sizes))))
    image_of = [image for image, size in zip(images, sizes, strict=True) for _ in range(size)]
    captions = draw(st.permutations(range(100, 100 + len(image_of))))
    return CaptionGroups.of(images, captions, image_of)


def owner(groups: CaptionGroups) -> dict[int, int]:
    return dict(zip(groups.captions.tolist(), groups.image_of.tolist(), strict=True))


def rows(pairs: pd.DataFrame) -> list[tuple[int, int]]:
    return list(zip(pairs["first"].tolist(), pairs["second"].tolist(), strict=True))


def ranking_of(vectors: np.ndarray, depth: int) -> Ranking:
    """The items among themselves by exact search."""
    items = Encoded("image", np.arange(10, 10 + len(vectors)), {"embedding": vectors.astype(np.float32)})
    return top_k(OneSided("e", "image", ""), items, items, min(depth, len(vectors)))


@st.composite
def rankings(draw) -> tuple[Ranking, int]:
    """Items among themselves, some of them equal, and how many neighbours are wanted of each."""
    n, neighbours = draw(st.integers(2, 9)), draw(st.integers(1, 5))
    numbers = draw(st.lists(st.integers(-2, 2), min_size=2 * n, max_size=2 * n))
    return ranking_of(np.array(numbers).reshape(n, 2), neighbours + 1), neighbours


@given(group_sets())
def test_groups_hold_every_caption_once_under_its_image(groups):
    """Whatever order things came in."""
    listed = [(image, caption) for image in groups.images.tolist() for caption in groups.of_image(image)]

    assert sorted(caption for _, caption in listed) == sorted(groups.captions.tolist())
    assert all(owner(groups)[caption] == image for image, caption in listed)
    assert groups.sizes.sum() == len(groups.captions)


@given(
    st.lists(st.lists(st.tuples(*[st.integers(-9, 9)] * 3), min_size=1, max_size=4), min_size=1, max_size=5)
)
def test_a_groups_vector_points_where_its_captions_do_on_average(vectors):
    """The unit mean, as numpy takes it for each group by itself; nothing where they cancel out."""
    sizes = np.array([len(group) for group in vectors])
    found = group_means(np.array([row for group in vectors for row in group], np.float32), sizes)

    for row, group in zip(found, vectors, strict=True):
        mean = np.mean(group, axis=0)
        length = np.linalg.norm(mean)
        assert row == pytest.approx(mean / length if length > 1e-9 else np.zeros(3), abs=1e-6)


@given(rankings())
def test_nearest_are_the_best_others_each_pair_once(given_ranking):
    """Nobody is near itself, no pair comes in both orders, and whoever chose is in a pair with whom it chose."""
    ranking, neighbours = given_ranking
    found = nearest(ranking, neighbours)
    unordered = Counter(frozenset(pair) for pair in rows(found))

    assert list(found) == list(NEAREST)
    assert all(len(pair) == 2 for pair in unordered) and set(unordered.values()) <= {1}
    chosen = {
        frozenset((query, item))
        for query, items in zip(ranking.query_ids.tolist(), ranking.item_ids.tolist(), strict=True)
        for item in [other for other in items if other != query][:neighbours]
    }
    assert set(unordered) == chosen
    assert found["rank"].between(1, neighbours).all()
    assert found.groupby("first").size().max() <= neighbours


def test_two_that_chose_each_other_keep_the_order_that_ranks_better():
    """0 is 2's first choice, 2 only 0's second: the pair is (2, 0)."""
    ranking = Ranking(
        np.array([0, 1, 2]),
        np.array([[0, 1, 2], [1, 0, 2], [2, 0, 1]]),
        np.array([[1, 0.9, 0.8]] * 3, np.float32),
    )

    assert rows(nearest(ranking, 2)) == [(0, 1), (1, 2), (2, 0)]


def test_an_item_with_many_doubles_need_not_be_in_its_own_list():
    """Five equal items, two neighbours: each still gets two others."""
    found = nearest(ranking_of(np.ones((5, 2)), 3), 2)

    assert Counter(found["first"].tolist() + found["second"].tolist()).keys() == {10, 11, 12, 13, 14}
    assert (found["first"] != found["second"]).all()


@settings(max_examples=examples(15))
@given(group_sets(), seeds)
def test_co_captions_make_a_cycle_through_the_captions(groups, seed):
    """Each of three or more captions is once first and once second; two make one pair, one makes none."""
    pairs = co_caption_pairs(groups, seed=seed)
    owners = owner(groups)

    assert len({frozenset(pair) for pair in rows(pairs)}) == len(pairs)
    for image in groups.images.tolist():
        captions = groups.of_image(image)
        step = {one: other for one, other in rows(pairs) if owners[one] == image}
        if len(captions) < 3:
            assert len(step) == len(captions) // 2
            continue
        place, seen = captions[0], []
        for _ in captions:
            seen.append(place)
            place = step[place]
        assert place == captions[0] and sorted(seen) == captions


def test_five_captions_have_five_of_their_ten_pairs():
    """As in CxC's files, and which five changes with the seed."""
    groups = CaptionGroups.of([1], range(5), [1] * 5)
    drawn = {frozenset(map(frozenset, rows(co_caption_pairs(groups, seed=seed)))) for seed in range(40)}

    assert {len(pairs) for pairs in drawn} == {5}
    assert len(drawn) > 6, "of twelve cycles"


@settings(max_examples=examples(15))
@given(group_sets(), rankings(), seeds)
def test_caption_pairs_stand_for_image_pairs_and_take_turns(groups, given_ranking, seed):
    """One caption of each image; of the image that chose none a second time before all were first once."""
    ranking, neighbours = given_ranking
    numbers = dict(zip(range(10, 30), groups.images.tolist(), strict=False))
    near = nearest(ranking, neighbours)
    near = near[[first in numbers and second in numbers for first, second in rows(near)]]
    near = near.assign(first=near["first"].map(numbers), second=near["second"].map(numbers))
    pairs = caption_pairs({"a": near, "b": near.iloc[::2]}, groups, seed=seed)
    owners, sizes = owner(groups), dict(zip(groups.images.tolist(), groups.sizes.tolist(), strict=True))
    by_a, by_b = (pairs[pairs["encoder"] == name] for name in "ab")

    wanted = [(one, other) for one, other in rows(near) if sizes[one] and sizes[other]]
    assert [(owners[one], owners[other]) for one, other in rows(by_a)] == wanted
    assert set(rows(by_b)) <= set(rows(by_a)), "encoders that chose the same images share their captions"
    used = Counter(by_a["first"].tolist())
    for image in groups.images.tolist():
        times = [used[caption] for caption in groups.of_image(image)]
        assert not times or max(times) - min(times) <= 1
    assert (pairs["method"] == METHODS.index(SamplingMethod.C2C_ISIM)).all()


@given(group_sets(), seeds)
def test_no_draw_depends_on_the_order_of_rows(groups, seed):
    """The same groups given backwards give the same pairs."""
    backwards = CaptionGroups.of(groups.images[::-1], groups.captions[::-1], groups.image_of[::-1])

    assert co_caption_pairs(groups, seed=seed).equals(co_caption_pairs(backwards, seed=seed))


def test_image_pairs_name_who_chose_them():
    """Both encoders' rows are kept, each with its rank and similarity."""
    near = frame(NEAREST, {"first": [1], "second": [2], "rank": [3], "similarity": [0.5]})
    pairs = image_pairs({"a": near, "b": near})

    assert pairs["encoder"].tolist() == ["a", "b"]
    assert set(pairs["task"]) == {TASKS.index(Likeness.SIS)}
    assert pairs[["rank", "similarity"]].values.tolist() == [[3, 0.5]] * 2


@given(group_sets())
def test_originals_are_all_of_them(groups):
    """Every caption with its image, the image first."""
    pairs = original_pairs(groups)

    assert sorted(rows(pairs)) == sorted((image, caption) for caption, image in owner(groups).items())
    assert set(pairs["encoder"]) <= {""} and pairs["similarity"].isna().all()


@st.composite
def rated_pairs(draw, groups: CaptionGroups) -> pd.DataFrame:
    """Pairs of images with people's scores; some scores are equal, some pairs are of one image."""
    images = st.sampled_from(groups.images.tolist())
    pairs = draw(
        st.lists(st.tuples(images, images, st.integers(0, 4)), max_size=15, unique_by=lambda it: it[:2])
    )
    first, second, score = zip(*pairs, strict=True) if pairs else ((), (), ())
    return frame(RATED, {"first": first, "second": second, "score": score})


@settings(max_examples=examples(15))
@given(st.data(), group_sets(), st.integers(0, 25), seeds)
def test_candidates_are_the_best_rated_of_both_rankings(data, groups, n, seed):
    """No pair twice and none of an image's own; halves where both suffice; whoever is left out is rated no better."""
    by_texts, by_images = data.draw(rated_pairs(groups)), data.draw(rated_pairs(groups))
    nothing = original_pairs(groups).iloc[:0]
    found = cross_candidates(by_texts, by_images, groups, nothing, n=n, seed=seed)
    everything = cross_candidates(by_texts, by_images, groups, nothing, n=10**6, seed=seed)
    owners = owner(groups)

    assert len(set(rows(found))) == len(found) == min(n, len(everything))
    assert all(owners[caption] != image for image, caption in rows(found))
    of_texts = found[found["encoder"] == BY_TEXTS]
    of_images = found[found["encoder"] == BY_IMAGES]
    offered = {(one, other) for one, other in rows(by_texts)}
    assert all((image, owners[caption]) in offered for image, caption in rows(of_texts))
    if len(found) == n and len(of_images) >= n - n // 2 and len(of_texts) < n // 2:
        assert len(everything[everything["encoder"] == BY_TEXTS]) == len(of_texts)
    for part in (of_texts, of_images):
        assert part["similarity"].is_monotonic_decreasing and part["rank"].is_monotonic_increasing


@settings(max_examples=examples(15))
@given(st.data(), group_sets(least=1), st.integers(0, 12), st.integers(0, 12), seeds)
def test_candidates_that_are_there_count_and_are_skipped(data, groups, before, more, seed):
    """Asking for more later adds to what is there and repeats nothing."""
    by_texts, by_images = data.draw(rated_pairs(groups)), data.draw(rated_pairs(groups))
    nothing = original_pairs(groups).iloc[:0]
    known = cross_candidates(by_texts, by_images, groups, nothing, n=before, seed=seed)
    added = cross_candidates(by_texts, by_images, groups, known, n=before + more, seed=seed)

    assert not set(rows(known)) & set(rows(added))
    assert len(known) + len(added) <= max(before + more, len(known))
    again = cross_candidates(by_texts, by_images, groups, known, n=before, seed=seed)
    assert len(again) == 0 or len(known) < before


def test_the_first_half_follows_the_captions_ratings():
    """Six images in a ring, both rankings full: three by each, the best rated, what captions took is skipped."""
    groups = CaptionGroups.of(range(6), range(100, 106), range(6))
    ring = [(image, (image + 1) % 6) for image in range(6)]
    first, second = zip(*ring, strict=True)
    ratings = frame(RATED, {"first": first, "second": second, "score": [5, 4, 3, 2, 1, 0]})
    found = cross_candidates(ratings, ratings, groups, original_pairs(groups).iloc[:0], n=6, seed=0)

    assert found["encoder"].tolist() == [BY_TEXTS] * 3 + [BY_IMAGES] * 3
    assert rows(found) == [(image, 100 + (image + 1) % 6) for image in range(6)]
    assert found["rank"].tolist() == [1, 2, 3, 4, 5, 6]
    assert found["similarity"].tolist() == [5, 4, 3, 2, 1, 0]


def test_neighbours_among_many_are_those_of_all_products():
    """More items than a block holds: the same neighbours as by the whole matrix of cosines."""
    vectors = unit_rows(np.random.default_rng(0).standard_normal((3000, 16)))
    products = vectors.astype(np.float64) @ vectors.T.astype(np.float64)
    np.fill_diagonal(products, -2)
    best = np.argsort(-products, axis=1)[:, :5]

    found = {frozenset(pair) for pair in rows(nearest(ranking_of(vectors, 6), 5))}

    assert found == {frozenset((10 + row, 10 + other)) for row in range(3000) for other in best[row].tolist()}


def cxc(shared_data, name: str, first: str, second: str) -> pd.DataFrame:
    """A file of CxC with COCO's numbers."""
    table = pd.read_csv(shared_data / "cxc" / name)
    number = r"(\d+)(?:\.jpg)?$"
    numbers = {
        to: table[name].str.extract(number)[0].astype("int64")
        for to, name in (("first", first), ("second", second))
    }
    return pd.DataFrame({**numbers, "score": table["agg_score"], "method": table["sampling_method"]})


@pytest.fixture(scope="module")
def coco(shared_data) -> CaptionGroups:
    """The captions of the test split under COCO's numbers."""
    table = pd.read_parquet(shared_data / "coco_karpathy_test_captions" / "captions.parquet")
    return CaptionGroups.of(
        table["image_id"].astype("int64"),
        table["caption_id"].astype("int64"),
        table["image_id"].astype("int64"),
    )


@pytest.mark.shared
def test_cxcs_caption_pairs_follow_the_same_laws(shared_data, coco):
    """Each image pair once; a caption comes first again only where an image chose more than it has captions."""
    sts = cxc(shared_data, "sts_test.csv", "caption1", "caption2")
    isim, owners = sts[sts["method"] == "c2c_isim"], owner(coco)
    pairs = [frozenset((owners[one], owners[other])) for one, other in rows(isim)]
    chosen = isim["first"].map(owners).value_counts()

    assert len(set(pairs)) == len(pairs) == 19_045
    assert int((isim["first"].value_counts() == 2).sum()) == int((chosen - 5).clip(lower=0).sum()) == 1461
    co_captions = sts[sts["method"] == "c2c_cocaption"]
    ours = co_caption_pairs(coco, seed=0)
    for one in (co_captions, ours):
        assert len({frozenset(pair) for pair in rows(one)}) == len(one) == 25_000
        assert one["first"].is_unique and one["second"].is_unique


@pytest.mark.shared
def test_cxcs_candidates_are_offered_by_its_rated_pairs(shared_data, coco):
    """A rated pair of images (j, k), or of captions of theirs, offers j with a caption of k: nearly all are so.

    The same number of ours, from CxC's own ratings, holds two thirds of CxC's pairs of an image and a caption's image.
    """
    owners = owner(coco)
    sis, sts, sits = (
        cxc(shared_data, f"{name}_test.csv", *columns)
        for name, columns in (
            ("sis", ("image1", "image2")),
            ("sts", ("caption1", "caption2")),
            ("sits", ("image", "caption")),
        )
    )
    by_texts = sts[sts["method"] == "c2c_isim"]
    by_texts = by_texts.assign(first=by_texts["first"].map(owners), second=by_texts["second"].map(owners))
    theirs = sits[sits["method"] == "c2i_intrasim"]
    wanted = {(image, owners[caption]) for image, caption in rows(theirs)}
    ours = cross_candidates(by_texts, sis, coco, original_pairs(coco).iloc[:0], n=len(theirs), seed=0)
    reached = {(image, owners[caption]) for image, caption in rows(ours)}

    assert len(ours) == len(theirs) == 19_833
    assert (ours["encoder"] == BY_TEXTS).sum() == 19_833 // 2
    assert len(wanted) == 14_244
    assert len(wanted & {*rows(by_texts), *rows(sis)}) == 14_238
    assert len(wanted & reached) > 0.66 * len(wanted)
