"""The five small twins: the full-size classes and contract, determinism, and that what they learnt shows."""

from __future__ import annotations

import csv
import importlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors import safe_open

from annotators import registry
from annotators.base import Annotator
from annotators.catalog import MINIS
from annotators.clip import Clip
from annotators.minis.measure import diversity, quality
from annotators.minis.train import (
    HELD_OUT,
    TRAINING,
    LogRow,
    Training,
    pairs_of,
    recalls,
    save,
    texts_of,
    write_log,
)
from annotators.minis.twin import contrast, smooth_triplet, soft_contrast
from annotators.minis.twins import RECIPES, TWINS, TwinRecipe
from annotators.pcme import Pcme
from annotators.pvse import Pvse
from annotators.registry import WEIGHTS
from annotators.vilt import Vilt
from annotators.vsrn import Vsrn
from mitl.datasets.scenes import generate, truth_matrix, write_items
from mitl.errors import AnnotatorError
from mitl.records import AnnotatorKind, ImageItem

CLASSES = {
    "pvse-mini": (Pvse, AnnotatorKind.MULTI_VECTOR),
    "vsrn-mini": (Vsrn, AnnotatorKind.INNER_PRODUCT),
    "pcme-mini": (Pcme, AnnotatorKind.PROBABILITY),
    "vilt-mini": (Vilt, AnnotatorKind.PAIRWISE),
    "clip-mini": (Clip, AnnotatorKind.INNER_PRODUCT),
}
NAMES = sorted(CLASSES)
TOLERANCE = {"pcme-mini": 1e-5}
"""Blocks of sampled probabilities are summed in float32, in an order that follows the block."""
N_IMAGES = 30


@pytest.fixture(scope="module")
def world():
    """A small world of a split and seed that no training has seen."""
    return generate(N_IMAGES, seed=5, split="check")


@pytest.fixture(scope="module")
def items(world, tmp_path_factory):
    """Its images as PNG files and its captions, as a stage sees them."""
    return write_items(world, tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def encoded(items):
    """Each annotator with everything encoded once, and all similarities."""
    found = {}
    for name in NAMES:
        annotator = registry.build(name, {"device": "cpu"})
        images, captions = annotator.encode_images(items[0]), annotator.encode_captions(items[1])
        found[name] = annotator, images, captions, annotator.similarities(images, captions)
    return found


def network_of(name):
    """The full-size network's module: what builds and examines a twin."""
    return importlib.import_module(f"annotators.{name.removesuffix('-mini')}")


@pytest.mark.parametrize("name", NAMES)
def test_a_twin_is_the_full_size_class_read_by_the_full_size_code(name):
    """The shipped file fits the network's own examination and loads as its own class, at other sizes."""
    path = WEIGHTS / f"{name}.safetensors"
    module = network_of(name)

    assert module.examine(path).fits
    assert type(module.load(path).network) is CLASSES[name][0]
    assert type(registry.build(name, {})) is type(module.build(_options(name, path)))


def _options(name, path):
    from annotators.options import Options

    return Options(name, {"weights": str(path)})


@pytest.mark.parametrize("name", NAMES)
def test_similarities_have_the_shape_and_type_of_the_contract(encoded, name):
    """(Q, G) float32, finite, and with captions as queries the transpose."""
    annotator, images, captions, whole = encoded[name]

    assert isinstance(annotator, Annotator)
    assert annotator.name == name
    assert annotator.kind is CLASSES[name][1]
    assert whole.shape == (N_IMAGES, 5 * N_IMAGES)
    assert whole.dtype == np.float32
    assert np.isfinite(whole).all()
    np.testing.assert_allclose(
        annotator.similarities(captions, images), whole.T, rtol=0, atol=TOLERANCE.get(name, 0)
    )


@pytest.mark.parametrize("name", NAMES)
def test_similarities_do_not_depend_on_the_block(encoded, name):
    """Any rows and columns, in any order, are the same part of the whole, to the byte for inner products."""
    annotator, images, captions, whole = encoded[name]
    rows, columns = np.array([17, 3, 4]), np.array([149, 0, 77, 20, 21])

    part = annotator.similarities(images.rows(rows), captions.rows(columns))

    np.testing.assert_allclose(part, whole[np.ix_(rows, columns)], rtol=0, atol=TOLERANCE.get(name, 0))


@pytest.mark.parametrize("name", NAMES)
def test_encoding_does_not_depend_on_the_company(encoded, items, name):
    """Some items encoded alone get the same bytes as among all."""
    annotator, images, captions, _ = encoded[name]

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
    matches = truth_matrix(world, list(world.scenes), list(world.captions)) <= 2

    top = np.argsort(-encoded[name][3], axis=1, kind="stable")[:, :5]

    precision = np.take_along_axis(matches, top, axis=1).mean()
    assert precision > 3 * matches.mean()


def test_the_annotators_differ(encoded):
    """No two of them propose the same captions: top-5 sets overlap by less than two thirds on average."""
    tops = {}
    for name, (_, _, _, found) in encoded.items():
        order = np.argsort(-found, axis=1, kind="stable")
        tops[name] = [set(row) for row in order[:, :5].tolist()]

    for i, one in enumerate(NAMES):
        for other in NAMES[i + 1 :]:
            overlap = np.mean([len(a & b) / len(a | b) for a, b in zip(tops[one], tops[other], strict=True)])
            assert overlap < 2 / 3, (one, other)


def test_pixels_decide(encoded, tmp_path):
    """A picture turned into plain grey is no longer near its captions."""
    annotator, _, captions, found = encoded["clip-mini"]
    Image.new("RGB", (256, 256), (128, 128, 128)).save(tmp_path / "grey.png")

    grey = annotator.encode_images([ImageItem(1, "1", tmp_path / "grey.png")])

    assert annotator.similarities(grey, captions.rows(slice(0, 5))).mean() < found[0, :5].mean()


def test_committed_weights_are_small_and_say_where_they_come_from():
    """All files together are under 5 MB and each names its training: split, seed, images, steps, script."""
    assert sum((WEIGHTS / f"{name}.safetensors").stat().st_size for name in NAMES) < 5_000_000
    for name in NAMES:
        with safe_open(WEIGHTS / f"{name}.safetensors", framework="pt") as file:
            metadata = file.metadata()

        training = json.loads(metadata["training"])
        assert metadata["network"] == name.removesuffix("-mini")
        assert training["split"] == TRAINING
        assert training["trained_steps"] == training["steps"] == RECIPES[name].steps
        assert {"seed", "images", "batch", "script"} <= training.keys()


@pytest.mark.parametrize("name", NAMES)
def test_the_training_log_lies_beside_the_weights(name):
    """Steps, loss, seconds and recall on held-out scenes; it ends where the training ended, better than it began."""
    with (WEIGHTS / f"{name}.log.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))

    assert list(rows[0]) == list(LogRow.__slots__)
    assert int(rows[-1]["step"]) == RECIPES[name].steps
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])
    assert float(rows[-1]["t2i_r5"]) > float(rows[0]["t2i_r5"])


def test_images_without_pixels_are_named(encoded, tmp_path):
    """No path, no file and no picture give one line each."""
    annotator = encoded["clip-mini"][0]
    (tmp_path / "text.png").write_text("no picture")

    for path, message in (
        (None, "image '4' has no file; this annotator looks at pixels"),
        (tmp_path / "absent.png", "which is missing"),
        (tmp_path / "text.png", "is not readable as an image"),
    ):
        with pytest.raises(AnnotatorError, match=message):
            annotator.encode_images([ImageItem(4, "4", path)])


@pytest.mark.parametrize("name", NAMES)
def test_weights_of_another_network_are_refused(name):
    """A file of another of the five says what it holds."""
    other = "pvse-mini" if name != "pvse-mini" else "clip-mini"

    with pytest.raises(AnnotatorError, match=f"'{other.removesuffix('-mini')}'"):
        registry.build(name, {"weights": str(WEIGHTS / f"{other}.safetensors")})


def test_missing_weights_are_named(monkeypatch, tmp_path):
    """A package without its weights says which file it lacks."""
    monkeypatch.setattr("annotators.registry.WEIGHTS", tmp_path)

    with pytest.raises(
        AnnotatorError, match=r"'clip-mini' should be in .*, which is missing; reinstall mitl"
    ):
        registry.build("clip-mini", {})


def test_fingerprints_follow_the_weights(encoded, tmp_path):
    """Five networks have five fingerprints, and other weights make another."""
    prints = {annotator.fingerprint for annotator, _, _, _ in encoded.values()}
    twin = TWINS["vsrn-mini"](["A red dot."])
    save(tmp_path / "w.safetensors", twin, {})

    other = registry.build("vsrn-mini", {"weights": str(tmp_path / "w.safetensors")})

    assert len({*prints, other.fingerprint}) == 6


@pytest.mark.parametrize("name", NAMES)
def test_what_is_saved_is_what_is_loaded(name, tmp_path):
    """A twin's own comparison and the annotator built from its file agree, but for half precision and sampling."""
    world = generate(6, seed=1, split=TRAINING)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        twin = TWINS[name](texts_of(world))
    twin.network.eval()
    pairs = pairs_of(world, twin)
    save(tmp_path / "w.safetensors", twin, {})

    annotator = registry.build(name, {"weights": str(tmp_path / "w.safetensors")})
    images, captions = write_items(world, tmp_path)
    found = annotator.similarities(annotator.encode_images(images), annotator.encode_captions(captions))
    with torch.inference_mode():
        own = twin.similarities(pairs.batch(np.arange(6)), pairs.captions).numpy()

    if name == "pcme-mini":
        assert np.corrcoef(found.ravel(), own.ravel())[0, 1] > 0.8
    else:
        np.testing.assert_allclose(found, own, rtol=0, atol=0.02)


@pytest.mark.parametrize("name", NAMES)
@given(text=st.text(max_size=120))
def test_any_text_becomes_tokens(name, text):
    """Every text, however odd, has a start and an end and only numbers that the network knows."""
    twin = _twin(name)

    row = twin.encode(text)

    table = max(p.shape[0] for p in twin.network.parameters() if p.ndim == 2 and p.shape[0] == _words(name))
    assert len(row) >= 2
    assert row.min() >= 0
    assert row.max() < table


_TWINS = {}


def _twin(name):
    if name not in _TWINS:
        _TWINS[name] = TWINS[name](["A red dot.", "A big plus sign, at sea."])
    return _TWINS[name]


def _words(name):
    twin = _twin(name)
    return {
        "clip-mini": lambda: twin.encoder.size,
        "vilt-mini": lambda: len(twin.wordpieces),
    }.get(name, lambda: len(twin.vocabulary))()


def test_words_of_scenes_are_one_piece_each():
    """What scenes say is known word by word, what they do not say is spelt out and never unknown."""
    vilt, clip = _twin("vilt-mini"), _twin("clip-mini")

    assert len(vilt.encode("a red dot")) == len(clip.encode("a red dot")) == 5
    unknown = vilt.lines.split("\n").index("[UNK]")
    assert unknown not in vilt.encode("Zebra, 42% off!").tolist()


def test_training_draws_from_its_own_split():
    """The scenes that the networks learn from and are watched on are none of a demonstration's."""
    assert len({TRAINING, HELD_OUT, "demo"}) == 3
    learnt, demo = (generate(3, seed=0, split=split) for split in (TRAINING, "demo"))
    assert not set(texts_of(learnt)) & set(texts_of(demo))


@pytest.mark.parametrize("name", NAMES)
def test_training_is_seeded_and_leaves_the_global_generator_alone(name):
    """Two steps from one seed give the same weights, from another seed others."""
    world = generate(8, seed=0, split=TRAINING)
    recipe = replace(RECIPES[name], steps=2, batch=6)
    before = torch.random.get_rng_state()

    states = []
    for seed in (1, 1, 2):
        training = Training(name, world, recipe, seed=seed)
        rows = training.run(training.pairs, lambda row: None)
        states.append(training.twin.state())

    one, same, other = states
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)
    assert rows[-1].step == 2


@pytest.mark.parametrize("name", NAMES)
def test_a_few_steps_lower_the_loss(name):
    """On a handful of pictures the loss of the last steps is below that of the first."""
    world = generate(8, seed=0, split=TRAINING)
    training = Training(name, world, replace(RECIPES[name], steps=10, batch=8, captions=1), seed=0)

    rows = training.run(training.pairs, lambda row: None)

    assert rows[-1].loss < rows[0].loss


def test_a_log_is_written_row_by_row(tmp_path):
    """Names, then numbers."""
    row = LogRow(10, 2.5, 1.25, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)

    write_log(tmp_path / "x.csv", [row])

    lines = (tmp_path / "x.csv").read_text().splitlines()
    assert lines[0] == "step,loss,seconds,i2t_r1,i2t_r5,i2t_r10,t2i_r1,t2i_r5,t2i_r10"
    assert lines[1] == "10,2.5,1.25,0.1,0.2,0.3,0.4,0.5,0.6"


def test_recall_counts_what_a_reader_can_count():
    """Two images with two captions each: the first image finds its own at once, the second at the third place."""
    found = np.array([[4, 3, 2, 1], [4, 3, 2, 1]], dtype=np.float32)

    i2t_r1, i2t_r5, _, t2i_r1, t2i_r5, _ = recalls(found, 2)

    assert (i2t_r1, i2t_r5) == (0.5, 1)
    assert (t2i_r1, t2i_r5) == (0.5, 1)


def test_the_measure_counts_what_a_reader_can_count(monkeypatch):
    """Two images and four captions, two annotators, one proposal a query."""
    monkeypatch.setattr("annotators.minis.measure.K", 1)
    truth = np.array([[1, 1, 0, 0], [0, 0, 0, 1]], dtype=bool)
    found = {
        "one": np.array([[9, 8, 1, 1], [2, 2, 7, 3]], dtype=np.float32),
        "two": np.array([[9, 1, 2, 2], [1, 1, 3, 4]], dtype=np.float32),
    }

    lines = [line.split() for line in quality(truth, found, 2)]

    # One proposes (0, 0) and (1, 2) for images; (0, 0), (0, 1), (1, 2), (1, 3) for captions.
    assert lines[1][:4] == ["one", "0.500", "0.750", "1.000"]
    # Two proposes (0, 0) and (1, 3); (0, 0), (0, 1), (1, 2), (1, 3).
    assert lines[2][:4] == ["two", "1.000", "0.750", "1.000"]
    assert lines[1][4:] == ["1.000"] * 6
    assert lines[3] == ["together", "reach", "1.000", "of", "3", "true", "pairs"]


def test_the_tables_of_diversity_are_square_and_named():
    """For either direction four tables, a row and a column an annotator, a dash on the diagonal."""
    draw = np.random.default_rng(0)
    found = {name: draw.random((6, 30), dtype=np.float32) for name in ("one", "two")}

    lines = diversity(found)

    titles = [line for line in lines if "as queries" in line]
    assert len(titles) == 8
    assert titles[0].startswith("captions as queries: tau-b of the top 25, items of either list")
    place = lines.index(titles[0])
    assert lines[place + 1].split() == ["one", "two"]
    assert lines[place + 2].split()[:2] == ["one", "–"]
    assert lines[place + 2].split()[2] == lines[place + 3].split()[1]


def test_every_network_has_a_recipe():
    """The training script knows all five, and the registry builds them."""
    assert set(RECIPES) == set(CLASSES) <= set(MINIS)
    assert all(isinstance(recipe, TwinRecipe) for recipe in RECIPES.values())


def test_losses_fall_where_originals_stand_out():
    """Each loss is lower for a block whose diagonal is highest, and the hinge is zero beyond its margin."""
    clear, confused = 4 * torch.eye(6), torch.zeros(6, 6)

    assert contrast(clear) < contrast(confused)
    assert soft_contrast((clear - 2)[..., None, None]) < soft_contrast(confused[..., None, None])
    assert smooth_triplet(clear, 0.2, 0.08) == 0
    # log-sum-exp of five equal negatives lies 0.08 * log(5) above them.
    assert smooth_triplet(confused, 0.2, 0.08) == pytest.approx(2 * (0.2 + 0.08 * np.log(5)), abs=1e-5)


def test_the_soft_contrast_takes_the_mean_of_probabilities():
    """Of one pair with the samples' half log-odds 0 and 20 the probabilities are 1/2 and 1: -log(3/4)."""
    assert soft_contrast(torch.tensor([[[[0.0, 20.0]]]])).item() == pytest.approx(-np.log(0.75), abs=1e-6)
