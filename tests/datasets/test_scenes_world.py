"""Generated worlds: seeds, own captions, defects, the statistics that the demo needs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mitl.datasets.scenes import Color, Defect, Relation, Shape, generate, truth_matrix
from mitl.datasets.scenes.describing import COLORS, NOUNS, RELATIONS, describe, say
from mitl.datasets.scenes.graph import CANVAS, Stream
from mitl.datasets.scenes.truth import Assertion, Meaning, RelationAssertion
from mitl.datasets.scenes.world import compose
from mitl.errors import DatasetError
from mitl.records import IdKind, Label

SEEDS = st.integers(0, 10**6)


def test_same_seed_gives_the_same_world():
    """Scenes, texts, meanings and defects are a function of the seed."""
    assert generate(20, seed=3) == generate(20, seed=3)


def test_seeds_and_splits_share_no_scene():
    """Another seed, or another split of one seed, is another stream."""
    worlds = [generate(40, seed=3), generate(40, seed=4), generate(40, seed=3, split="train")]
    scenes = [scene for world in worlds for scene in world.scenes.values()]

    assert len(set(scenes)) == 120


def test_smaller_world_is_the_start_of_the_larger():
    """Asking for more images adds to the world and changes nothing in it."""
    small, large = generate(5, seed=9), generate(12, seed=9)

    assert list(large.scenes.items())[:5] == list(small.scenes.items())
    assert list(large.captions.items())[:25] == list(small.captions.items())


@given(seed=SEEDS)
@settings(max_examples=20, deadline=None)
def test_originals_are_positive_unless_defective(seed):
    """A caption that is not flagged is yes or weak yes of its own image; a flagged one is neither."""
    world = generate(12, seed=seed, defect_share=0.2)

    for caption_id, caption in world.captions.items():
        label = world.truth(caption.image_id, caption_id).label
        assert label.is_positive == (caption.defect is None)


def test_most_originals_are_a_full_match():
    """Over nine in ten sound originals are yes; the others leave out the main object."""
    world = generate(200, seed=1, defect_share=0)
    labels = [world.truth(caption.image_id, id_).label for id_, caption in world.captions.items()]

    assert world.defects == {}
    assert labels.count(Label.YES) > 900
    assert labels.count(Label.WEAK_YES) == 1000 - labels.count(Label.YES) > 0


def test_defects_come_in_their_share_and_kinds():
    """At the default share some 15 of every 1,000 captions are defective, of both kinds."""
    world = generate(1000, seed=2)
    kinds = list(world.defects.values())

    assert 40 < len(kinds) < 115
    assert min(kinds.count(kind) for kind in Defect) > 15
    meaningless = [id_ for id_, kind in world.defects.items() if kind is Defect.MEANINGLESS]
    assert set(truth_matrix(world, list(world.scenes), meaningless).ravel()) == {Label.NO.code}


def test_positives_are_several_times_the_originals():
    """In the demo's size a query has several true positives beyond its originals, and far more negatives."""
    world = generate(300, seed=0)
    positive = truth_matrix(world, list(world.scenes), list(world.captions)) <= Label.WEAK_YES.code

    assert 100 <= np.median(positive.sum(axis=1)) <= 300
    assert 20 <= np.median(positive.sum(axis=0)) <= 60
    assert positive.mean() < 0.25


@given(seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_scenes_can_be_read(seed):
    """Shapes differ, the largest size is one group's alone, objects lie on the canvas and apart."""
    scene = compose(Stream("test", seed))
    shapes = [group.shape for group in scene.groups]
    orders = sorted(group.size.order for group in scene.groups)
    discs = [(spot, group.radius) for group in scene.groups for spot in group.spots]

    assert 1 <= len(shapes) == len(set(shapes)) <= 4
    assert orders.count(orders[-1]) == 1
    assert all(1 <= group.quantity <= 3 for group in scene.groups)
    for i, (spot, radius) in enumerate(discs):
        assert radius < min(spot.x, spot.y) and max(spot.x, spot.y) < CANVAS - radius
        for other, other_radius in discs[:i]:
            assert (spot.x - other.x) ** 2 + (spot.y - other.y) ** 2 > (0.9 * (radius + other_radius)) ** 2


@given(seed=SEEDS)
@settings(max_examples=100, deadline=None)
def test_text_tells_each_object_in_its_meaning_and_no_other(seed):
    """A sentence names every asserted shape and told colour by one of their words, and no others."""
    stream = Stream("test", seed)
    meaning = describe(stream, compose(stream))
    text = f" {say(stream, meaning).lower().rstrip('.').replace(',', ' ')} "
    named = {
        shape for shape, nouns in NOUNS.items() if any(f" {noun} " in text for pair in nouns for noun in pair)
    }
    colors = {color for color, words in COLORS.items() if any(f" {word} " in text for word in words)}
    linked = any(f" {words} " in text for link in RELATIONS.values() for words in link)

    assert named == set(meaning.shapes)
    assert colors == {told.color for told in meaning.objects if told.color}
    assert linked == bool(meaning.relations)


def test_sentence_agrees_in_number_with_its_subject():
    """Two hearts are, one star is; and a group of several is told with its number."""
    objects = (Assertion(Shape.STAR, Color.ORANGE), Assertion(Shape.HEART, quantity=2))
    meaning = Meaning(objects, (RelationAssertion(Shape.HEART, Relation.ABOVE, Shape.STAR),))
    texts = {say(Stream("text", i), meaning) for i in range(60)}

    assert not any("There is" in text for text in texts)
    assert any(text.startswith("There are") for text in texts)
    assert any("an orange star" in text or "an orange five-pointed star" in text for text in texts)


def test_captions_of_an_image_differ():
    """No image has the same sound caption twice."""
    world = generate(100, seed=0, defect_share=0)
    texts = {(caption.image_id, caption.text) for caption in world.captions.values()}

    assert len(texts) == 500


def test_retrieval_set_is_in_tie_order():
    """Ids are integers from 1 in order of value, five captions to an image, files relative to the project."""
    data = generate(12, seed=0).retrieval_set

    assert (data.name, data.kind, data.id_kind) == ("scenes", "scenes", IdKind.INTEGER)
    assert [image.external_id for image in data.images] == [str(i) for i in range(1, 13)]
    assert [caption.external_id for caption in data.captions] == [str(i) for i in range(1, 61)]
    assert data.captions[59].image_external_id == "12"
    assert data.images[11].file == "dataset/images/12.png"


def test_unknown_ids_are_named():
    """A truth that does not exist is refused by name."""
    world = generate(2, seed=0)

    with pytest.raises(DatasetError, match="no caption '11' in this world; ids run from 1 to 10"):
        world.truth("1", "11")
    with pytest.raises(DatasetError, match="no image '3'"):
        truth_matrix(world, ["1", "3"], ["1"])


@pytest.mark.parametrize(("n_images", "share"), [(0, 0.0), (10**20, 0.0), (1, -0.1), (1, 1.5)])
def test_impossible_worlds_are_refused(n_images, share):
    """A world needs an image and fits into memory, and a share lies between 0 and 1."""
    with pytest.raises(DatasetError):
        generate(n_images, seed=0, defect_share=share)
