"""Pairs to rate on pages: each once, sides balanced, controls as asked; for any number of pairs, task and seed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitl.campaign.kinds.similarity.packing import (
    MAX_PER_HIT,
    RatingControls,
    check_page,
    n_pages,
    pack_ratings,
)
from mitl.campaign.kinds.similarity.planning import RatePairs
from mitl.campaign.kinds.similarity.unrelated import draw_unrelated
from mitl.errors import PackingError, ProposalError, UsageError
from mitl.records import CaptionItem, Environment
from mitl.records.frames import frame
from mitl.records.similarity import METHODS, SAMPLES, TASKS, Likeness, SamplingMethod, SimilarityRole

ITEM = st.integers(1, 12)


@st.composite
def pairs_of_a_task(draw):
    """A task and distinct pairs of few items, so that items meet again."""
    task = draw(st.sampled_from(TASKS))
    found = draw(st.lists(st.tuples(ITEM, ITEM), max_size=60, unique=True))
    if task.sides[0] == task.sides[1]:
        found = sorted({(min(pair), max(pair)) for pair in found if pair[0] != pair[1]})
    return task, found


def controls(task: Likeness) -> RatingControls:
    """Controls beside the items that are asked; of an image and a caption two whose items are asked too."""
    own = [(place, place if task.sides[0] == task.sides[1] else 100 + place) for place in range(1, 13)]
    return RatingControls(own, [(50 + place, 70 + place) for place in range(8)])


@settings(max_examples=80)
@given(
    asked=pairs_of_a_task(),
    seed=st.integers(0, 9),
    per_hit=st.integers(4, MAX_PER_HIT),
    checked=st.booleans(),
)
def test_every_pair_is_asked_once_and_pages_are_as_their_kind_wants_them(asked, seed, per_hit, checked):
    """Nothing is lost or asked twice; each page has one control of each kind, or none, and the rules hold."""
    task, pairs = asked
    pages = pack_ratings(pairs, task, controls(task) if checked else None, seed=seed, per_hit=per_hit)

    items = [item for page in pages for item in page.items]
    assert sorted(item.pair for item in items if item.role is SimilarityRole.ASKED) == sorted(pairs)
    assert [page.number for page in pages] == list(
        range(1, n_pages(len(pairs), per_hit, controlled=checked) + 1)
    )
    sizes = {len(page.items) for page in pages}
    assert not sizes or (max(sizes) <= per_hit and max(sizes) - min(sizes) <= 1)
    for page in pages:
        check_page(page.items, "b1:1:1")
        roles = Counter(item.role for item in page.items)
        expected = 1 if checked else 0
        assert {roles[role] for role in SimilarityRole if role is not SimilarityRole.ASKED} == {expected}


@settings(max_examples=80)
@given(asked=pairs_of_a_task(), seed=st.integers(0, 9), per_hit=st.integers(4, 12))
def test_a_repeated_pair_comes_later_with_its_sides_exchanged(asked, seed, per_hit):
    """Never right after its first showing; an image stays before its text."""
    task, pairs = asked
    changes = task.sides[0] == task.sides[1]
    for page in pack_ratings(pairs, task, controls(task), seed=seed, per_hit=per_hit):
        (again,) = (item for item in page.items if item.role is SimilarityRole.REPEATED)
        (first,) = (
            item for item in page.items if item.role is SimilarityRole.ASKED and item.pair == again.pair
        )
        assert again.place >= first.place + 2
        assert again.swapped is (first.swapped is not changes)
        assert changes or not any(item.swapped for item in page.items)


@settings(max_examples=40)
@given(asked=pairs_of_a_task(), seed=st.integers(0, 9))
def test_either_item_of_one_side_is_shown_first_in_half_of_the_pairs(asked, seed):
    """But for one where their number is odd; the order differs by the seed alone."""
    task, pairs = asked
    pages = pack_ratings(pairs, task, None, seed=seed, per_hit=10)
    assert pages == pack_ratings(pairs, task, None, seed=seed, per_hit=10)
    swapped = sum(item.swapped for page in pages for item in page.items)
    if task.sides[0] == task.sides[1]:
        assert abs(2 * swapped - len(pairs)) <= 1
    else:
        assert swapped == 0


def test_an_item_stands_on_a_page_once_where_that_can_be():
    """A hundred pairs of neighbours in tie order would else follow each other."""
    pairs = [(place, place + 1) for place in range(1, 101)]
    pages = pack_ratings(pairs, Likeness.STS, controls(Likeness.STS), seed=0, per_hit=10)
    for page in pages[:-2]:  # the last ones take what is left
        shown = [number for item in page.items if item.role is SimilarityRole.ASKED for number in item.pair]
        assert len(shown) == len(set(shown))


def test_places_of_controls_tell_nothing():
    """Over many pages every control stands at every place that it can have."""
    pairs = [(place, 1000 + place) for place in range(700)]
    pages = pack_ratings(pairs, Likeness.STS, controls(Likeness.STS), seed=3, per_hit=10)
    for role in (SimilarityRole.IDENTICAL, SimilarityRole.RANDOM):
        assert {item.place for page in pages for item in page.items if item.role is role} == set(range(1, 11))
    repeated = {item.place for page in pages for item in page.items if item.role is SimilarityRole.REPEATED}
    assert repeated == set(range(3, 11))


@pytest.mark.parametrize(("per_hit", "checked"), [(3, True), (0, False), (MAX_PER_HIT + 1, True)])
def test_a_page_without_room_is_refused(per_hit, checked):
    """By the packing, and by the request before anything is read."""
    with pytest.raises(PackingError, match="at least one that is not a control"):
        pack_ratings(
            [(1, 2)], Likeness.STS, controls(Likeness.STS) if checked else None, seed=0, per_hit=per_hit
        )
    with pytest.raises(UsageError, match=f"--per-hit {per_hit} leaves no pair to ask"):
        RatePairs(Environment.SANDBOX, "sts", per_hit=per_hit, controls=checked)


def test_a_page_whose_controls_are_all_asked_on_it_says_so():
    """An image beside its own caption may be a pair that was sampled."""
    with pytest.raises(
        PackingError, match=r"no control is left that page 1 does not ask; .* --controls none"
    ):
        pack_ratings([(1, 2)], Likeness.SITS, RatingControls([(1, 2)], [(3, 4)]), seed=0, per_hit=10)


def test_broken_pages_are_refused():
    """Whoever packed them: a pair twice, a control too few, a repetition that follows at once."""
    (page,) = pack_ratings([(1, 2), (3, 4), (5, 6)], Likeness.STS, controls(Likeness.STS), seed=0, per_hit=10)
    items = list(page.items)
    asked = next(item for item in items if item.role is SimilarityRole.ASKED)
    again = next(item for item in items if item.role is SimilarityRole.REPEATED)
    without = [item for item in items if item.role is not SimilarityRole.RANDOM]
    for broken, message in (
        ([*items, replace(asked, place=len(items) + 1)], "shows a pair twice"),
        ([replace(item, place=place) for place, item in enumerate(without, 1)], "has 2 controls"),
        ([replace(item, task=Likeness.SIS) if item is asked else item for item in items], "mixes tasks"),
        (
            [replace(item, left=90, right=91) if item is again else item for item in items],
            "repeats what it does not ask",
        ),
    ):
        with pytest.raises(PackingError, match=message):
            check_page(broken, "b1:1:1")


def caption(number: int, image: int, text: str) -> CaptionItem:
    return CaptionItem(number, str(number), image, text)


def samples_of(*rows: tuple[SamplingMethod, int, int]) -> pd.DataFrame:
    """``SAMPLES`` with these methods and items."""
    n = len(rows)
    return frame(
        SAMPLES,
        {
            "pair": np.arange(n),
            "task": [TASKS.index(method.task) for method, _, _ in rows],
            "first": [first for _, first, _ in rows],
            "second": [second for _, _, second in rows],
            "method": [METHODS.index(method) for method, _, _ in rows],
            "encoder": [""] * n,
            "rank": np.zeros(n),
            "similarity": np.full(n, np.nan),
        },
    )


@settings(max_examples=30)
@given(seed=st.integers(0, 50), task=st.sampled_from(TASKS))
def test_random_pairs_join_nothing_that_was_sampled(seed, task):
    """Nor two captions of one image, nor an image and its own caption; and none comes twice."""
    captions = [caption(2 * image + k, image, f"word{image} thing") for image in range(1, 9) for k in (0, 1)]
    image_of = {one.id: one.image_id for one in captions}
    sampled = samples_of(
        (SamplingMethod.C2C_ISIM, 2, 4), (SamplingMethod.I2I_CSIM, 3, 4), (SamplingMethod.C2I_INTRASIM, 5, 12)
    )
    found = draw_unrelated(captions, sampled, task, n=5, seed=seed)
    assert found == draw_unrelated(captions, sampled, task, n=5, seed=seed)
    assert len(set(found)) == len(found) == 5
    for pair in found:
        ends = [
            number if side == "image" else image_of[number]
            for side, number in zip(task.sides, pair, strict=True)
        ]
        assert len(set(ends)) == 2
        assert set(ends) not in ({1, 2}, {3, 4}, {5, 6})
        assert task is Likeness.SITS or pair[0] < pair[1]


def test_of_random_pairs_that_with_the_fewest_words_in_common_is_taken():
    """A rater who looks should find nothing alike."""
    texts = {1: "a red dog runs", 2: "the red dog runs fast", 3: "two boats at sea"}
    captions = [caption(number, number, text) for number, text in texts.items()]
    found = draw_unrelated(captions, samples_of(), Likeness.STS, n=1, seed=0)
    assert found[0] in ((1, 3), (2, 3))


def test_a_data_set_of_which_everything_was_sampled_has_no_random_pair():
    """One line says what to do."""
    captions = [caption(1, 1, "a"), caption(2, 2, "b")]
    samples = samples_of((SamplingMethod.I2I_CSIM, 1, 2))
    with pytest.raises(ProposalError, match=r"no two items of sis are unrelated: .* --controls none"):
        draw_unrelated(captions, samples, Likeness.SIS, n=1, seed=0)
    with pytest.raises(ProposalError, match="; what a command without --controls can do"):
        instead = "what a command without --controls can do"
        draw_unrelated(captions, samples, Likeness.SIS, n=1, seed=0, instead=instead)
