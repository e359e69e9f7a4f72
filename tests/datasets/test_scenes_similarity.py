"""How like two items of a world are: the scale's ends, what raises a score, and its agreement with the truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitl.datasets.scenes import (
    Assertion,
    Background,
    Color,
    Description,
    Group,
    Meaning,
    Relation,
    RelationAssertion,
    Scene,
    Shape,
    Size,
    Spot,
    World,
    generate,
    truth_matrix,
)
from mitl.datasets.scenes.describing import describe
from mitl.datasets.scenes.graph import Stream
from mitl.datasets.scenes.similarity import graded_similarity
from mitl.datasets.scenes.world import compose
from mitl.errors import DatasetError
from mitl.records import Label
from mitl.records.similarity import Likeness

STAR = Group(Shape.STAR, Color.YELLOW, Size.LARGE, 50, (Spot(70, 120, 0),))
HEARTS = Group(Shape.HEART, Color.RED, Size.SMALL, 20, (Spot(180, 100, 0), Spot(220, 100, 0)))
SCENE = Scene(Background.NIGHT, 0, (STAR, HEARTS))
"""A large yellow star left of two small red hearts at night."""
WORLD = generate(120, seed=1)
ONE_SIDED = (Likeness.STS, Likeness.SIS)


def pictures(*scenes: Scene) -> float:
    """How like two pictures are."""
    world = World(0, "test", 0, {str(n): scene for n, scene in enumerate(scenes)}, {})
    return float(graded_similarity(world, Likeness.SIS, ["0"], ["1"])[0])


def texts(*meanings: Meaning) -> float:
    """How like two captions are."""
    captions = {str(n): Description("0", "", meaning) for n, meaning in enumerate(meanings)}
    world = World(0, "test", 0, {"0": SCENE}, captions)
    return float(graded_similarity(world, Likeness.STS, ["0"], ["1"])[0])


def fit(scene: Scene, meaning: Meaning) -> float:
    """How well a caption fits a picture."""
    world = World(0, "test", 0, {"0": scene}, {"0": Description("0", "", meaning)})
    return float(graded_similarity(world, Likeness.SITS, ["0"], ["0"])[0])


def star(*relations: RelationAssertion, background: Background | None = None, **told: object) -> Meaning:
    """A caption of a star, and of a heart where a relation speaks of it."""
    objects = (Assertion(Shape.STAR, **told), *((Assertion(Shape.HEART),) if relations else ()))  # type: ignore[arg-type]
    return Meaning(objects, relations, background)


def ids_of(task: Likeness) -> list[str]:
    return list(WORLD.captions if task is Likeness.STS else WORLD.scenes)


@pytest.mark.parametrize("task", ONE_SIDED)
def test_equal_items_score_five_and_the_order_does_not_matter(task):
    """Every item beside itself, defective captions among them, and a thousand pairs either way round."""
    ids = ids_of(task)
    rng = np.random.default_rng(0)
    first, second = rng.choice(ids, (2, 1000)).tolist()

    assert graded_similarity(WORLD, task, ids, ids) == pytest.approx(np.full(len(ids), 5.0))
    there = graded_similarity(WORLD, task, first, second)
    assert there.tolist() == graded_similarity(WORLD, task, second, first).tolist()
    assert there.min() == 0 or task is Likeness.SIS
    assert ((there >= 0) & (there <= 5)).all()


def test_the_formula_on_paper():
    """A star (4 with its count) and a yellow star (5.5) share 4; a caption with one wrong colour is two thirds true."""
    assert texts(star(), star(color=Color.YELLOW)) == pytest.approx(5 * 2 * 4 / 9.5)
    assert texts(star(color=Color.RED), star(color=Color.YELLOW)) == pytest.approx(5 * 2 * 4 / 11)
    assert texts(star(), Meaning((Assertion(Shape.CROSS),))) == 0
    assert texts(Meaning(), star()) == fit(SCENE, Meaning()) == 0
    # The star is the larger: it is two of three parts of what is there to tell.
    assert fit(SCENE, star()) == pytest.approx(5 * (0.9 + 0.1 * 2 / 3))
    assert fit(SCENE, star(color=Color.RED)) == pytest.approx(5 * 3 / 4.5 * (0.9 + 0.1 * 2 / 3))
    assert fit(SCENE, Meaning((Assertion(Shape.CROSS),))) == 0


def test_a_bare_star_is_one_star_to_who_reads_but_may_stand_among_several():
    """Beside another caption it says one; a picture of two stars does not make it false."""
    pair = replace(STAR, spots=(Spot(70, 60, 0), Spot(70, 180, 0)))

    assert texts(star(), star(quantity=1)) == 5
    assert texts(star(), star(quantity=1)) > texts(star(), star(quantity=2)) > texts(star(), star(quantity=3))
    assert fit(Scene(Background.NIGHT, 0, (pair,)), star()) == 5


def test_a_relation_is_the_same_fact_from_either_end():
    """ "The star left of the heart" is "the heart right of the star", and the contrary of the reverse."""
    left = star(RelationAssertion(Shape.STAR, Relation.LEFT_OF, Shape.HEART))
    turned = star(RelationAssertion(Shape.HEART, Relation.RIGHT_OF, Shape.STAR))
    contrary = star(RelationAssertion(Shape.HEART, Relation.LEFT_OF, Shape.STAR))

    assert texts(left, turned) == 5
    assert texts(left, contrary) < texts(left, replace(left, relations=())) < 5
    assert fit(SCENE, left) == fit(SCENE, turned) > fit(SCENE, contrary)


CHANGES = {
    "colour": lambda group: replace(group, color=Color.BLUE if group.color is not Color.BLUE else Color.RED),
    "count": lambda group: replace(group, spots=group.spots[:1] if len(group.spots) > 1 else group.spots * 2),
    "shape": lambda group: None,
}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), change=st.sampled_from([*CHANGES, "background", "place"]))
def test_each_difference_makes_two_pictures_less_alike(seed, change):
    """One more thing that differs, from equal pictures on and from pictures that differ already."""
    scene = compose(Stream("similarity", seed))
    changed = _changed(scene, change)
    if changed is None:
        return
    other = _other_background(scene)
    assert pictures(scene, changed) < 5
    if change != "background":
        assert pictures(other, changed) < pictures(other, scene)
        assert pictures(other, changed) < pictures(scene, changed)


def _other_background(scene: Scene) -> Scene:
    other = Background.SKY if scene.background is not Background.SKY else Background.SNOW
    return replace(scene, background=other)


def _changed(scene: Scene, change: str) -> Scene | None:
    """The scene with one thing changed; None where it has no room for that."""
    if change == "background":
        return _other_background(scene)
    first, *rest = scene.groups
    if change == "place":
        if len(scene.groups) < 2:
            return None
        spots = [group.spots for group in scene.groups]
        turned = [replace(group, spots=at) for group, at in zip(scene.groups, reversed(spots), strict=True)]
        moved = replace(scene, groups=tuple(turned))
        kept = [group.quantity for group in moved.groups] == [group.quantity for group in scene.groups]
        return moved if kept and moved.groups[0].middle != first.middle else None
    if change == "shape":
        taken = {group.shape for group in scene.groups}
        return replace(scene, groups=(replace(first, shape=next(s for s in Shape if s not in taken)), *rest))
    return replace(scene, groups=(CHANGES[change](first), *rest))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), place=st.integers(0, 5))
def test_a_caption_with_one_more_wrong_fact_fits_less(seed, place):
    """A true caption fits at 4.5 or better; with a wrong background or colour less, with both less again."""
    scene = compose(Stream("fit", seed))
    meaning = describe(Stream("caption", seed, place), scene)
    wrong = replace(meaning, background=_other_background(scene).background)
    first, *rest = meaning.objects
    group = scene.group(first.shape)
    assert group is not None
    color = Color.BLUE if group.color is not Color.BLUE else Color.RED
    worse = replace(wrong, objects=(replace(first, color=color), *rest))

    assert 5 >= fit(scene, meaning) >= 4.5
    assert fit(scene, meaning) > fit(scene, wrong) > fit(scene, worse)


def test_it_agrees_with_the_four_answers():
    """Of all pairs, what is a match scores 3 or more, and what is none less, but one weak no in six or so."""
    images, captions = list(WORLD.scenes), list(WORLD.captions)
    first, second = np.repeat(images, len(captions)).tolist(), np.tile(captions, len(images)).tolist()
    score = graded_similarity(WORLD, Likeness.SITS, first, second)
    code = truth_matrix(WORLD, images, captions).ravel()

    assert (score[code == Label.YES.code] >= 4.5).all()
    assert (score[code == Label.WEAK_YES.code] >= 3).all()
    assert (score[code == Label.WEAK_NO.code] < 3).mean() > 0.8
    assert (score[code == Label.NO.code] < 2).all()
    assert ((score >= 3) == (code <= Label.WEAK_YES.code)).mean() > 0.95


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 120), st.integers(1, 120)), max_size=30), st.sampled_from(Likeness))
def test_many_pairs_at_once_score_as_each_alone(pairs, task):
    """Neither the company of a pair nor its place matters; no pairs give no scores."""
    first, second = ([str(pair[side]) for pair in pairs] for side in (0, 1))

    together = graded_similarity(WORLD, task, first, second)

    alone = [graded_similarity(WORLD, task, [a], [b])[0] for a, b in zip(first, second, strict=True)]
    assert together.tolist() == alone
    assert together.shape == (len(pairs),)


def test_more_pairs_than_a_block_holds():
    """Ten thousand pairs are scored as their repetitions are."""
    first, second = ["1", "2", "3"] * 4000, ["4", "5", "1"] * 4000

    score = graded_similarity(WORLD, Likeness.STS, first, second).reshape(4000, 3)

    assert (score == graded_similarity(WORLD, Likeness.STS, first[:3], second[:3])).all()


def test_ids_that_the_world_lacks_are_named():
    """And sides of unequal length."""
    with pytest.raises(DatasetError, match="no image '121' in this world; ids run from 1 to 120"):
        graded_similarity(WORLD, Likeness.SITS, ["121"], ["1"])
    with pytest.raises(DatasetError, match="no caption 'x' in this world"):
        graded_similarity(WORLD, Likeness.STS, ["1"], ["x"])
    with pytest.raises(DatasetError, match="1 first items and 2 second ones make no pairs"):
        graded_similarity(WORLD, Likeness.SIS, ["1"], ["1", "2"])
