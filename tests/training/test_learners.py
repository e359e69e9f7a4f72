"""The five networks learn, resume bit for bit, and are saved as annotators that rank as the learner did."""

from __future__ import annotations

import weakref
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from lessons_kit import taught_world

from annotators import registry
from annotators.training import training
from annotators.training.files import joined_pairs, taught_pairs_of, training_of
from annotators.training.learners import load
from annotators.training.reading import Reader, map_at_r, similarities_of
from annotators.training.recipe import LabelKind, Recipe
from annotators.training.taught import Lecturer, Lessons
from annotators.training.training import Resumable, train
from mitl.core.arrays import pack_ids, unpack_ids
from mitl.errors import TrainingError
from mitl.metrics.retrieval import average_precision_at_r

MINIS = ("pvse-mini", "vsrn-mini", "pcme-mini", "vilt-mini", "clip-mini")
QUICK = Recipe(steps=4, head_steps=2, batch=6, looks=2, patience=0)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("learners")
    return taught_world(folder, 16, seed=3)


@pytest.mark.parametrize("name", MINIS)
def test_each_network_learns_and_its_file_ranks_as_it_does(name, world, tmp_path):
    """All parameters move but for the backbone while the head learns; the saved file is an annotator."""
    images, captions, lessons = world
    learner = load(name)
    before = learner.state()
    reader = Reader(learner, images, captions)
    done = train(learner, lessons, QUICK, reader)
    rows = np.arange(len(images)), np.arange(len(captions))
    found = similarities_of(learner, reader, *rows)
    taught = pd.DataFrame({"image": ["b", "a"], "caption": ["c", "d"], "answers": [2, 0]})
    learner.save(tmp_path / "one.safetensors", {"base": name}, taught)
    learner.save(tmp_path / "two.safetensors", {"base": name}, taught)
    config = {"network": learner.network, "weights": str(tmp_path / "one.safetensors")}
    loaded = registry.build("loaded", config)
    again = loaded.similarities(loaded.encode_images(images), loaded.encode_captions(captions))

    assert [row.step for row in done.rows] == [0, 2, 4]
    assert done.best.map_at_r == max(row.map_at_r for row in done.rows)
    assert (tmp_path / "one.safetensors").read_bytes() == (tmp_path / "two.safetensors").read_bytes()
    assert before.keys() == learner.state().keys()
    if name != "pcme-mini":  # whose annotator draws samples
        scale = 0.08 if name == "vilt-mini" else 1
        np.testing.assert_allclose(scale * again, found, atol=1e-4)
    assert training_of(tmp_path / "one.safetensors") == {"base": name}
    assert taught_pairs_of(tmp_path / "one.safetensors").to_dict("list") == taught.to_dict("list")


@pytest.mark.parametrize("name", MINIS)
@pytest.mark.parametrize("loss", ["bcls", "softmax", "probabilistic"])
def test_a_gradient_reaches_head_and_backbone(name, loss, world):
    """Some of either has one that is not zero."""
    images, captions, lessons = world
    learner = load(name)
    course = training._Course(
        learner,
        Lecturer(lessons, QUICK),
        replace(QUICK, loss=loss, head_steps=0),
        Reader(learner, images, captions),
    )
    loss_value = course._backward(course.read(0))
    moved = {n for n, p in learner.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}

    assert np.isfinite(loss_value)
    assert any(learner.is_head(one) for one in moved)
    assert any(not learner.is_head(one) for one in moved)


class Killed(Exception):
    """As if the process had died."""


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.thorough(but=("float32",))
def test_a_killed_training_goes_on_bit_for_bit(precision, world, tmp_path):
    """Stopped behind the first look, then taken up by another process's learner."""
    images, captions, lessons = world
    recipe = replace(QUICK, precision=precision)
    whole = load("pvse-mini")
    train(whole, lessons, recipe, Reader(whole, images, captions))
    kept = Resumable(tmp_path / "x.checkpoint", "base", "lessons")
    first = load("pvse-mini")

    def die(steps):
        if kept.path.is_file():
            raise Killed

    with pytest.raises(Killed):
        train(first, lessons, recipe, Reader(first, images, captions), kept=kept, advance=die)
    second = load("pvse-mini")
    done = train(second, lessons, recipe, Reader(second, images, captions), kept=kept)

    assert [row.step for row in done.rows] == [0, 2, 4]
    assert all(torch.equal(tensor, second.state()[name]) for name, tensor in whole.state().items())
    with pytest.raises(TrainingError, match="other weights"):
        train(second, lessons, recipe, Reader(second, images, captions), kept=replace(kept, base="other"))
    with pytest.raises(TrainingError, match="other sentence vectors"):
        train(second, lessons, recipe, Reader(second, images, captions), kept=replace(kept, encoder="words"))
    if precision == "float32":
        anew, other = load("pvse-mini"), replace(kept, base="other", restart=True)
        begun = train(anew, lessons, recipe, Reader(anew, images, captions), kept=other)
        kept.path.write_bytes(b"damaged")
        for _ in range(2):
            with pytest.raises(TrainingError, match=r"no checkpoint of a training; give --restart"):
                train(anew, lessons, recipe, Reader(anew, images, captions), kept=kept)
            torch.save({"marks": ["of", "another", "kind"]}, kept.path)
        assert [row.step for row in begun.rows] == [0, 2, 4]
        assert all(torch.equal(tensor, anew.state()[name]) for name, tensor in whole.state().items())


def test_the_last_weights_are_kept_where_that_is_wanted(world):
    """Whatever held-out queries say, and without a stop; the recipe names it where it is not the usual."""
    images, captions, lessons = world
    learner, recipe = load("pvse-mini"), replace(QUICK, keep="last", rate=1.0, patience=1)
    done = train(learner, lessons, recipe, Reader(learner, images, captions))

    assert done.best.step == recipe.steps and not done.stopped
    assert recipe.as_json()["keep"] == "last" and "keep" not in QUICK.as_json()
    with pytest.raises(TrainingError, match="keep of a training is 'first'; it should be one of best, last"):
        replace(QUICK, keep="first")


def test_what_is_held_out_is_in_no_batch(world):
    """No image, no caption of it, no pair with either; labels are those of the lessons."""
    lessons = world[2]
    lecturer = Lecturer(lessons, QUICK)
    held = lecturer.held_out.images[lecturer.held_out.image_queries]
    for step in range(30):
        batch = lecturer.at(step)
        assert len(batch.images) == QUICK.batch
        assert not np.isin(batch.images, held).any()
        assert not np.isin(lessons.own[batch.captions], held).any()
        at = np.searchsorted(
            lessons.pairs, pack_ids(*np.broadcast_arrays(batch.images[:, None], batch.captions))
        )
        assert (batch.matches == lessons.positive[at]).all()
    image, caption = unpack_ids(lessons.pairs[lecturer.taught])
    assert not np.isin(image, held).any()
    assert not np.isin(lessons.own[caption], held).any()


def test_too_little_and_what_cannot_learn_is_told_in_one_line(world):
    """Few judgements, pseudo-labels without an encoder, rankings, an unknown loss, numbers that make no sense."""
    images, captions, lessons = world
    few = pd.DataFrame({"pair": [0, 1], "grade": 1.0, "positive": True, "n": 1, "original": False})

    with pytest.raises(TrainingError, match=r"2 pairs have usable answers, .* 50 are wanted"):
        Lessons.of(few, images, captions)
    with pytest.raises(TrainingError, match="need a sentence encoder"):
        Lecturer(lessons, replace(QUICK, labels=LabelKind.PSEUDO))
    with pytest.raises(TrainingError, match="cannot learn, for it has no weights of its own"):
        load("mine", {"rankings": {}})
    with pytest.raises(TrainingError, match="should be 2 or more"):
        replace(QUICK, batch=1)


def test_a_card_that_is_too_small_names_the_batch_that_fits(world, monkeypatch):
    """Halved until one fits, beside nothing of those that did not."""
    images, captions, lessons = world
    learner = load("clip-mini")
    inner = learner.images
    on_card: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()

    def full(inputs):
        activations = torch.empty(1)
        on_card.add(activations)
        if torch.is_grad_enabled() and (len(inputs) > 3 or len(on_card) > 1):
            raise torch.cuda.OutOfMemoryError("full")
        return inner(inputs)

    monkeypatch.setattr(learner, "images", full)
    with pytest.raises(TrainingError, match="too small for batches of 6 images; 3 fit: give --batch 3"):
        train(learner, lessons, QUICK, Reader(learner, images, captions))


def test_map_at_r_is_the_package_s():
    """On random similarities, against `mitl.metrics`."""
    rng = np.random.default_rng(0)
    similarities = rng.normal(size=(9, 20)).astype(np.float32)
    positives = rng.random((9, 20)) < 0.3
    positives[:, 0] = True
    wanted = [
        average_precision_at_r(np.argsort(-row, kind="stable").tolist(), set(np.flatnonzero(right).tolist()))
        for row, right in zip(similarities, positives, strict=True)
    ]

    assert map_at_r(similarities, positives) == pytest.approx(np.mean(wanted))


def test_pairs_that_taught_both_are_kept_once():
    """With the most answers."""
    one = pd.DataFrame({"image": ["a"], "caption": ["b"], "answers": [0]})
    other = pd.DataFrame({"image": ["a", "c"], "caption": ["b", "d"], "answers": [3, 1]})

    assert joined_pairs(one, other)["answers"].tolist() == [3, 1]
