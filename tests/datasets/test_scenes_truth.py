"""The truth rule of scenes, on a picture small enough to check on paper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitl.datasets.scenes import (
    Assertion,
    Background,
    Color,
    Group,
    Meaning,
    Relation,
    RelationAssertion,
    Scene,
    Shape,
    Size,
    Spot,
    Truth,
    generate,
    relation_holds,
    truth,
    truth_matrix,
)
from mitl.datasets.scenes.truth import label_codes
from mitl.records import Concept, Label, Shortcoming

STAR = Group(Shape.STAR, Color.YELLOW, Size.LARGE, 50, (Spot(70, 120, 0),))
HEARTS = Group(Shape.HEART, Color.RED, Size.SMALL, 20, (Spot(180, 100, 0), Spot(220, 100, 0)))
SCENE = Scene(Background.NIGHT, 0, (STAR, HEARTS))
"""A large yellow star left of two small red hearts at night; the hearts lie 20 higher, which is not above."""


def told(
    shape: Shape, color: Color | None = None, size: Size | None = None, quantity: int | None = None
) -> Assertion:
    return Assertion(shape, color, size, quantity)


YES = Truth(Label.YES)
NOT_DESCRIBED = Truth(Label.WEAK_YES, (Shortcoming.NOT_DESCRIBED,))


def wrong(label: Label, *concepts: Concept) -> Truth:
    return Truth(label, (Shortcoming.DESCRIBED_WRONGLY,), concepts)


STAR_AND_HEARTS = (told(Shape.STAR), told(Shape.HEART))
CASES = {
    "only the main object": (Meaning((told(Shape.STAR),)), YES),
    "everything": (
        Meaning(
            (told(Shape.STAR, Color.YELLOW, Size.LARGE, 1), told(Shape.HEART, Color.RED, Size.SMALL, 2)),
            (RelationAssertion(Shape.STAR, Relation.LEFT_OF, Shape.HEART),),
            Background.NIGHT,
        ),
        YES,
    ),
    "not the main object": (Meaning((told(Shape.HEART, Color.RED),)), NOT_DESCRIBED),
    "wrong colour": (Meaning((told(Shape.STAR, Color.BLUE),)), wrong(Label.WEAK_YES, Concept.COLOR)),
    "wrong size": (Meaning((told(Shape.STAR, size=Size.SMALL),)), wrong(Label.WEAK_YES, Concept.OTHER)),
    "wrong quantity": (
        Meaning((told(Shape.STAR), told(Shape.HEART, quantity=3))),
        wrong(Label.WEAK_YES, Concept.QUANTITY),
    ),
    "wrong relation": (
        Meaning(STAR_AND_HEARTS, (RelationAssertion(Shape.STAR, Relation.BELOW, Shape.HEART),)),
        wrong(Label.WEAK_YES, Concept.ORIENTATION),
    ),
    "wrong background": (
        Meaning((told(Shape.STAR),), background=Background.SNOW),
        wrong(Label.WEAK_YES, Concept.LOCATION),
    ),
    "wrong colour of what is not the main object": (
        Meaning((told(Shape.HEART, Color.BLUE),)),
        wrong(Label.WEAK_YES, Concept.COLOR),
    ),
    "two wrong facts": (
        Meaning((told(Shape.STAR, Color.BLUE),), background=Background.SNOW),
        wrong(Label.WEAK_NO, Concept.COLOR, Concept.LOCATION),
    ),
    "two wrong colours": (
        Meaning((told(Shape.STAR, Color.BLUE), told(Shape.HEART, Color.GREEN))),
        wrong(Label.WEAK_NO, Concept.COLOR),
    ),
    "an object that is not there": (
        Meaning((told(Shape.STAR), told(Shape.CROSS))),
        Truth(Label.WEAK_NO, (Shortcoming.NOT_IN_IMAGE,)),
    ),
    "no object that is there": (
        Meaning((told(Shape.CROSS),), background=Background.NIGHT),
        Truth(Label.NO, (Shortcoming.NOT_IN_IMAGE,)),
    ),
    "nothing": (Meaning(), Truth(Label.NO, (Shortcoming.NOT_IN_IMAGE,))),
}


@pytest.mark.parametrize("case", CASES)
def test_truth_follows_the_rule(case):
    """Each row of the rule, and each concept, on one picture."""
    meaning, expected = CASES[case]

    assert truth(SCENE, meaning) == expected


def test_relation_needs_a_distance_along_its_axis():
    """The star is left of the hearts; 20 units of height are too few for one to be above the other."""
    held = {relation for relation in Relation if relation_holds(STAR, relation, HEARTS)}

    assert held == {Relation.LEFT_OF}


@pytest.mark.parametrize("relation", Relation)
def test_relation_and_its_inverse_hold_together(relation):
    """What is left of a thing has that thing to its right."""
    above = Group(Shape.CROSS, Color.RED, Size.SMALL, 20, (Spot(70, 20, 0),))

    for a, b in ((STAR, HEARTS), (STAR, above), (above, HEARTS)):
        assert relation_holds(a, relation, b) == relation_holds(b, relation.inverse, a)


WORLD = generate(60, seed=5)
OBJECTS = st.lists(
    st.builds(
        Assertion,
        st.sampled_from(Shape),
        st.none() | st.sampled_from(Color),
        st.none() | st.sampled_from(Size),
        st.none() | st.integers(1, 3),
    ),
    max_size=4,
    unique_by=lambda assertion: assertion.shape,
)


@st.composite
def meanings(draw):
    """Any meaning that a caption could have, also such as no caption of the generator has."""
    objects = tuple(draw(OBJECTS))
    shapes = [assertion.shape for assertion in objects]
    relations = ()
    if len(shapes) >= 2:
        links = st.builds(
            RelationAssertion, st.just(shapes[0]), st.sampled_from(Relation), st.sampled_from(shapes[1:])
        )
        relations = tuple(draw(st.lists(links, max_size=2, unique=True)))
    return Meaning(objects, relations, draw(st.none() | st.sampled_from(Background)))


@given(asserted=st.lists(meanings(), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_matrix_equals_the_rule_for_any_meaning(asserted):
    """The codes of many pairs at once are those of each pair alone."""
    scenes = list(WORLD.scenes.values())
    codes = label_codes(scenes, asserted)

    assert codes.tolist() == [[truth(scene, meaning).label.code for meaning in asserted] for scene in scenes]


def test_matrix_equals_the_rule_on_a_generated_world():
    """Every pair of a world, by external ids, in the order asked for."""
    images, captions = list(WORLD.scenes)[::-1], list(WORLD.captions)
    codes = truth_matrix(WORLD, images, captions)

    expected = [[WORLD.truth(image, caption).label.code for caption in captions] for image in images]
    assert codes.dtype == np.int8
    assert codes.tolist() == expected
    assert set(np.unique(codes)) == {1, 2, 3, 4}


def test_matrix_of_no_captions_is_empty():
    """An empty side gives an empty matrix of the right shape."""
    assert truth_matrix(WORLD, ["1", "2"], []).shape == (2, 0)
