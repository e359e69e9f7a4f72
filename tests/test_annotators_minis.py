"""The five small networks: contract, determinism, and that what they learnt shows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors import safe_open

from annotators import registry
from annotators.base import Annotator
from annotators.minis.build import WEIGHTS
from annotators.minis.data import SPLIT, TrainingPairs, training_pairs
from annotators.minis.losses import contrast, smooth_triplet, soft_contrast
from annotators.minis.measure import table
from annotators.minis.train import RECIPES, Recipe, train
from annotators.minis.vocabulary import END, PAD, START, UNKNOWN, Vocabulary
from annotators.minis.weights import NETWORKS, load, save
from mitl.datasets.scenes import generate, truth_matrix, write_world
from mitl.errors import AnnotatorError
from mitl.records import CaptionItem, ImageItem

NAMES = sorted(NETWORKS)
N_IMAGES = 30


@pytest.fixture(scope="module")
def world():
    """A small world of a split and seed that no training has seen."""
    return generate(N_IMAGES, seed=5, split="check")


@pytest.fixture(scope="module")
def items(world, tmp_path_factory):
    """Its images as PNG files and its captions, as a stage sees them."""
    folder = tmp_path_factory.mktemp("world")
    write_world(world, folder)
    images = [ImageItem(int(i), i, folder / "images" / f"{i}.png") for i in world.scenes]
    captions = [CaptionItem(int(i), i, int(c.image_id), c.text) for i, c in world.captions.items()]
    return images, captions


@pytest.fixture(scope="module")
def encoded(items):
    """Each annotator with everything encoded once."""
    built = {name: registry.build(name, {"device": "cpu"}) for name in NAMES}
    return {name: (a, a.encode_images(items[0]), a.encode_captions(items[1])) for name, a in built.items()}


@pytest.mark.parametrize("name", NAMES)
def test_similarities_have_the_shape_and_type_of_the_contract(encoded, name):
    """(Q, G) float32, finite, and with captions as queries the transpose, byte for byte."""
    annotator, images, captions = encoded[name]

    whole = annotator.similarities(images, captions)

    assert isinstance(annotator, Annotator)
    assert annotator.name == name
    assert annotator.kind is NETWORKS[name].kind
    assert whole.shape == (N_IMAGES, 5 * N_IMAGES)
    assert whole.dtype == np.float32
    assert np.isfinite(whole).all()
    np.testing.assert_array_equal(annotator.similarities(captions, images), whole.T)


@pytest.mark.parametrize("name", NAMES)
def test_similarities_do_not_depend_on_the_block(encoded, name):
    """Any rows and columns, in any order, have the same bytes as the same part of the whole."""
    annotator, images, captions = encoded[name]
    rows, columns = np.array([17, 3, 4]), np.array([149, 0, 77, 20, 21])

    part = annotator.similarities(images.rows(rows), captions.rows(columns))

    np.testing.assert_array_equal(part, annotator.similarities(images, captions)[np.ix_(rows, columns)])


@pytest.mark.parametrize("name", NAMES)
def test_encoding_does_not_depend_on_the_company(encoded, items, name):
    """Some items encoded alone get the same bytes as among all."""
    annotator, images, captions = encoded[name]

    few_images = annotator.encode_images(items[0][7:10])
    few_captions = annotator.encode_captions(items[1][68:140])

    assert few_images.ids.tolist() == [8, 9, 10]
    for some, whole in (
        (few_images, images.rows(slice(7, 10))),
        (few_captions, captions.rows(slice(68, 140))),
    ):
        for key, array in some.arrays.items():
            np.testing.assert_array_equal(array, whole.arrays[key])


@pytest.mark.parametrize("name", NAMES)
def test_what_was_learnt_shows_on_scenes_never_seen(encoded, world, name):
    """Among the first five captions of an image matches are several times as frequent as among all."""
    annotator, images, captions = encoded[name]
    matches = truth_matrix(world, list(world.scenes), list(world.captions)) <= 2

    top = np.argsort(-annotator.similarities(images, captions), axis=1, kind="stable")[:, :5]

    precision = np.take_along_axis(matches, top, axis=1).mean()
    assert precision > 4 * matches.mean()


def test_the_annotators_differ(encoded):
    """No two of them propose the same captions: top-5 sets overlap by less than two thirds on average."""
    tops = {}
    for name, (annotator, images, captions) in encoded.items():
        order = np.argsort(-annotator.similarities(images, captions), axis=1, kind="stable")
        tops[name] = [set(row) for row in order[:, :5].tolist()]

    for i, one in enumerate(NAMES):
        for other in NAMES[i + 1 :]:
            overlap = np.mean([len(a & b) / len(a | b) for a, b in zip(tops[one], tops[other], strict=True)])
            assert overlap < 2 / 3, (one, other)


def test_pixels_decide(encoded, items, tmp_path):
    """A picture turned into plain grey is no longer near its captions."""
    annotator, images, captions = encoded["clip-mini"]
    Image.new("RGB", (256, 256), (128, 128, 128)).save(tmp_path / "grey.png")

    grey = annotator.encode_images([ImageItem(1, "1", tmp_path / "grey.png")])

    own = captions.rows(slice(0, 5))
    before = annotator.similarities(images.rows(slice(0, 1)), own).mean()
    assert annotator.similarities(grey, own).mean() < before


def test_committed_weights_are_small_and_say_where_they_come_from():
    """Each file is under 1.5 MB and names its training: split, seed, images, steps, script."""
    for name in NAMES:
        path = WEIGHTS / f"{name}.safetensors"
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()

        assert path.stat().st_size < 1_500_000
        assert metadata["network"] == name
        assert '"split": "train"' in metadata["training"]
        for key in ("seed", "images", "steps", "batch", "script"):
            assert f'"{key}": ' in metadata["training"]


def test_images_without_pixels_are_named(encoded, tmp_path):
    """No path, no file and no picture give one line each."""
    annotator, _, _ = encoded["clip-mini"]
    (tmp_path / "text.png").write_text("no picture")

    for path, message in (
        (None, "image '4' has no file; this annotator looks at pixels"),
        (tmp_path / "absent.png", "which is missing"),
        (tmp_path / "text.png", "is not readable as an image"),
    ):
        with pytest.raises(AnnotatorError, match=message):
            annotator.encode_images([ImageItem(4, "4", path)])


def test_weights_of_another_network_are_refused(tmp_path):
    """A file of another network, and one that is no safetensors, say so."""
    (tmp_path / "x.safetensors").write_text("none")

    with pytest.raises(
        AnnotatorError, match="holds 'mitl-mini-1' weights of 'pvse-mini'; 'clip-mini' needs its"
    ):
        registry.build("clip-mini", {"weights": str(WEIGHTS / "pvse-mini.safetensors")})
    with pytest.raises(AnnotatorError, match="not readable as safetensors"):
        registry.build("clip-mini", {"weights": "x.safetensors"}, folder=tmp_path)


def test_fingerprints_follow_the_weights(encoded, tmp_path):
    """Five networks have five fingerprints, and other weights make another."""
    prints = {annotator.fingerprint for annotator, _, _ in encoded.values()}
    trained = load(WEIGHTS / "vsrn-mini.safetensors", "vsrn-mini")
    with torch.no_grad():
        trained.network.img_rnn.bias_hh_l0.add_(1)
    save(tmp_path / "w.safetensors", "vsrn-mini", trained, {})

    other = registry.build("vsrn-mini", {"weights": str(tmp_path / "w.safetensors")})

    assert len({*prints, other.fingerprint}) == 6


def test_training_draws_from_its_own_split():
    """The scenes that the networks learn from are none of a demonstration's."""
    pairs = training_pairs(3, seed=0, size=16, length=24)
    demo = generate(3, seed=0, split="demo")

    assert SPLIT != "demo"
    assert pairs.squares.shape == (3, 16, 16, 3)
    assert pairs.tokens.shape == (3, 5, 24)
    texts = [c.text for c in demo.captions.values()]
    assert (pairs.tokens.reshape(15, 24) != pairs.vocabulary.encode(texts, 24)).any(axis=1).all()


@pytest.mark.parametrize("name", NAMES)
def test_training_is_seeded_and_leaves_the_global_generator_alone(name):
    """Two steps from one seed give the same weights, from another seed others."""
    drawn = np.random.default_rng(0)
    pairs = TrainingPairs(
        drawn.integers(0, 255, size=(12, 64, 64, 3), dtype=np.uint8),
        Vocabulary(["a", "b"]).encode(["a", "b b", "a b", "b a", "a a"] * 12, 24).reshape(12, 5, 24),
        Vocabulary(["a", "b"]),
    )
    recipe = Recipe(steps=2, batch=8, rate=1e-3, captions=2)
    before = torch.random.get_rng_state()

    one, same, other = (train(name, pairs, recipe, seed=seed).network.state_dict() for seed in (1, 1, 2))

    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


def test_the_measure_counts_what_a_reader_can_count():
    """Two images and four captions: two annotators, one proposal a query."""
    truth = np.array([[1, 1, 0, 0], [0, 0, 0, 1]], dtype=bool)
    i2t = {
        "one": np.array([[1, 0, 0, 0], [0, 0, 1, 0]], dtype=bool),
        "two": np.array([[1, 0, 0, 0], [0, 0, 0, 1]], dtype=bool),
    }
    t2i = {
        "one": np.array([[1, 1, 0, 0], [0, 0, 1, 1]], dtype=bool),
        "two": np.array([[0, 0, 0, 0], [1, 1, 1, 1]], dtype=bool),
    }

    lines = [line.split() for line in table(truth, i2t, t2i)]

    assert lines[1] == ["one", "0.500", "0.750", "1.000"]
    assert lines[2] == ["two", "1.000", "0.250", "0.667"]
    assert lines[3][:2] == ["together", "1.000"]
    assert lines[4:] == [["overlap", "i2t", "one", "two", "0.500"], ["overlap", "t2i", "one", "two", "0.500"]]


def test_every_network_has_a_recipe():
    """The training script knows all that the registry builds."""
    assert set(RECIPES) == set(NETWORKS) == set(registry.BUILDERS)


@given(st.text(max_size=200), st.integers(2, 12))
def test_any_text_becomes_tokens(text, length):
    """Every text, however odd, starts and ends, keeps to the length and pads behind."""
    row = Vocabulary(["a", "dot"]).encode([text], length)[0].tolist()

    assert row[0] == START
    end = row.index(END)
    assert set(row[end + 1 :]) <= {PAD}
    assert all(token >= UNKNOWN for token in row[1:end])


def test_words_outside_the_vocabulary_are_unknown():
    """Case and punctuation do not matter; a strange word is <unk>."""
    vocabulary = Vocabulary.of(["A red dot.", "a Blue-green dot"])

    assert vocabulary.words == ("a", "blue", "dot", "green", "red")
    assert vocabulary.encode(["RED zebra!"], 5).tolist() == [[START, 8, UNKNOWN, END, PAD]]


def test_losses_fall_where_originals_stand_out():
    """Each loss is lower for a block whose diagonal is highest, and the hinge is zero beyond its margin."""
    clear, confused = 4 * torch.eye(6), torch.zeros(6, 6)

    assert contrast(clear) < contrast(confused)
    assert soft_contrast(clear - 2) < soft_contrast(confused)
    assert smooth_triplet(clear, 0.2, 0.08) == 0
    # log-sum-exp of five equal negatives lies 0.08 * log(5) above them.
    assert smooth_triplet(confused, 0.2, 0.08) == pytest.approx(2 * (0.2 + 0.08 * np.log(5)), abs=1e-5)
