"""Pictures of scenes, and worlds on disk."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from PIL import Image

from mitl.datasets.scenes import Background, Color, draw, generate, read_world, write_world
from mitl.datasets.scenes.drawing import FILLS
from mitl.errors import DatasetError

WORLD = generate(4, seed=11)
SCENE = WORLD.scenes["1"]


def test_drawing_is_the_same_bytes_each_time():
    """A picture is a function of the scene and the size."""
    assert draw(SCENE).tobytes() == draw(SCENE).tobytes()
    assert draw(SCENE, 64).size == (64, 64)


def test_each_object_has_its_colour_where_it_lies():
    """The middle of an object is filled with the group's colour (a crescent's lies off its middle)."""
    for scene in generate(40, seed=1).scenes.values():
        pixels = draw(scene).load()
        for group in scene.groups:
            shift = -group.radius * 0.68 if group.shape == "crescent" else 0
            for spot in group.spots:
                assert pixels[round(spot.x + shift), spot.y] == FILLS[group.color], group


def test_backgrounds_look_different():
    """No two backgrounds of one scene give nearly the same picture."""
    pictures = [
        np.asarray(draw(dataclasses.replace(SCENE, background=background), 64), dtype=float)
        for background in Background
    ]

    for i, picture in enumerate(pictures):
        assert all(np.abs(picture - other).mean() > 15 for other in pictures[:i])


def test_colours_look_different():
    """Fills of two colours lie far apart."""
    for color in Color:
        for other in Color:
            gap = np.abs(np.subtract(FILLS[color], FILLS[other])).sum()
            assert color is other or gap > 75


def test_world_survives_the_disk(tmp_path):
    """Reading gives back what was written, and each image has its picture."""
    write_world(WORLD, tmp_path)

    assert read_world(tmp_path) == WORLD
    for image in WORLD.retrieval_set.images:
        with Image.open(tmp_path / "images" / f"{image.external_id}.png") as picture:
            assert (picture.size, picture.mode) == ((256, 256), "RGB")


def test_writing_twice_changes_nothing_and_mends_what_is_missing(tmp_path):
    """A second run draws only the missing picture and leaves nothing else behind."""
    write_world(WORLD, tmp_path)
    lost = tmp_path / "images" / "2.png"
    before = lost.read_bytes()
    kept = (tmp_path / "images" / "1.png").stat().st_mtime_ns
    lost.unlink()
    write_world(WORLD, tmp_path)

    assert lost.read_bytes() == before
    assert (tmp_path / "images" / "1.png").stat().st_mtime_ns == kept
    assert len(list(tmp_path.rglob("*"))) == 6


def test_pictures_of_an_unfinished_run_are_drawn_again(tmp_path):
    """Without scenes.json nobody knows whose pictures lie there, so they are not trusted."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "1.png").write_bytes(b"of another world")
    write_world(WORLD, tmp_path)

    with Image.open(tmp_path / "images" / "1.png") as picture:
        assert picture.size == (256, 256)


def test_another_world_is_not_overwritten(tmp_path):
    """A folder that holds a world keeps it."""
    write_world(WORLD, tmp_path)

    with pytest.raises(DatasetError, match="holds another world"):
        write_world(generate(4, seed=12), tmp_path)
    assert read_world(tmp_path) == WORLD


def test_missing_world_is_named(tmp_path):
    """The message says which file is missing and what makes it."""
    with pytest.raises(DatasetError, match=r"there is no .*scenes\.json; make one with `mitl init"):
        read_world(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda value: "{", "not valid JSON"),
        (lambda value: "[" * 200_000, "not valid JSON"),
        (lambda value: json.dumps({**value, "seed": float("inf")}), "malformed"),
        (lambda value: "[1]", "'format' should be 'mitl-scenes'"),
        (lambda value: json.dumps({**value, "version": 2}), "is of version 2, but this mitl reads version 1"),
        (lambda value: json.dumps({**value, "scenes": {}}), "names image '1', which is not there"),
        (lambda value: json.dumps({**value, "captions": []}), "malformed"),
        (lambda value: json.dumps(value).replace('"shape": "', '"shape": "x'), "malformed"),
    ],
)
def test_malformed_worlds_are_refused_in_one_line(tmp_path, change, message):
    """Whatever is wrong with the file, the message is one line that names it."""
    write_world(WORLD, tmp_path)
    path = tmp_path / "scenes.json"
    path.write_text(change(json.loads(path.read_text())))

    with pytest.raises(DatasetError, match=message) as caught:
        read_world(tmp_path)
    assert "\n" not in str(caught.value)
