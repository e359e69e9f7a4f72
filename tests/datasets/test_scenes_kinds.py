"""Worlds of sounds, videos, texts and composed queries: their files, their words and their truth."""

from __future__ import annotations

import io
import wave

import numpy as np
import pytest
from kind_worlds_kit import KINDS, world_of

from mitl.datasets.media import have_decoders, video_frames
from mitl.datasets.scenes.files import read_world, write_world
from mitl.datasets.scenes.graph import Background, Color, Group, Scene, Shape, Size, Spot
from mitl.datasets.scenes.playing import RATE, render_sound, render_video
from mitl.datasets.scenes.world import WORLD_KINDS, generate, truth_matrix
from mitl.errors import DatasetError
from mitl.records import Label

needs_decoders = pytest.mark.skipif(not have_decoders(), reason="the extra mitl[media] is missing")
ALL = [pytest.param(kind, marks=needs_decoders if kind == "videos" else ()) for kind in KINDS]


@pytest.mark.parametrize("kind", ALL)
def test_a_world_of_each_kind_is_kept_and_read_back(kind, tmp_path):
    """With the same bytes each time, and a file for each item but texts."""
    world, project = world_of(kind)
    data, form = world.retrieval_set, WORLD_KINDS[kind].form
    assert read_world(project / "dataset") == world == generate(40, seed=0, kind=kind)
    assert data.form is form and len(data.images) == 40 and len(data.captions) == 200
    for item in data.images:
        assert (project / item.file).is_file() if item.file else item.texts
    small = generate(3, seed=0, kind=kind)
    write_world(small, tmp_path)
    for name in filter(None, map(small.file_name, small.scenes)):
        assert (tmp_path / name).stat().st_size < 120_000
        if kind != "composed":
            assert (tmp_path / name).read_bytes() == (project / "dataset" / name).read_bytes()


@pytest.mark.parametrize("kind", ALL)
def test_most_captions_are_true_of_what_they_were_made_for(kind):
    """All four levels are there, and many a match was never annotated."""
    world, _ = world_of(kind)
    codes = truth_matrix(world, list(world.scenes), list(world.captions))
    own = [world.truth(caption.image_id, id_).label for id_, caption in world.captions.items()]

    assert set(np.unique(codes)) == {1, 2, 3, 4}
    assert np.mean([label is Label.YES for label in own]) > 0.85
    assert (codes <= Label.WEAK_YES.code).sum() > 3 * len(own)


def test_the_world_of_pictures_stays_what_it_was():
    """Its file does not name a kind; documents and composed queries are told of the same scenes."""
    pictures = generate(40, seed=0)
    assert pictures.kind == "images"
    assert world_of("texts")[0].scenes == world_of("composed")[0].scenes == pictures.scenes


def sound(*groups, background=Background.SNOW):
    """Groups of (shape, size, hertz, starts in canvas units)."""
    made = [
        Group(shape, Color.RED, size, hertz, tuple(Spot(x, 0, 0) for x in starts))
        for shape, size, hertz, starts in groups
    ]
    return Scene(background, 7, tuple(made))


def heard(scene):
    """(N,) samples."""
    with wave.open(io.BytesIO(render_sound(scene))) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, RATE)
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(float)


def test_a_sound_is_heard_when_and_how_its_graph_says():
    """A loud high beep, half a second of nothing, then two soft low ones."""
    samples = heard(sound((Shape.CIRCLE, Size.LARGE, 1600, [8]), (Shape.CIRCLE, Size.SMALL, 240, [64, 88])))
    first, gap, second = samples[800:2400], samples[2600:6300], samples[6400:8000]
    pitches = [
        np.fft.rfftfreq(1600, 1 / RATE)[np.abs(np.fft.rfft(part)).argmax()] for part in (first, second)
    ]

    assert pitches == pytest.approx([1600, 240], abs=10)
    assert np.abs(first).max() > 4 * np.abs(second).max() > 0
    assert not gap.any()


@needs_decoders
@pytest.mark.parametrize(
    ("background", "way"),
    [(Background.SKY, (-1, 0)), (Background.GRASS, (1, 0)), (Background.SAND, (0, -1)), (Background.WATER, (0, 1)),
     (Background.NIGHT, (0, 0))],
)  # fmt: skip
def test_a_video_moves_as_its_graph_says(tmp_path, background, way):
    """By the middle of what is red, from the first frame to the last."""
    red = Group(Shape.CIRCLE, Color.RED, Size.LARGE, 40, (Spot(128, 128, 0),))
    (tmp_path / "a.webm").write_bytes(render_video(Scene(background, 1, (red,))))
    frames = video_frames(tmp_path / "a.webm").astype(int)
    assert frames.shape == (16, 96, 96, 3)

    there = (frames[..., 0] > 180) & (frames[..., 1] < 90)
    middles = [np.argwhere(one).mean(axis=0)[::-1] for one in (there[0], there[-1])]
    assert (np.rint((middles[1] - middles[0]) / 15) == way).all()


def test_a_composed_query_keeps_what_it_shares_with_its_target():
    """The reference is another image; what is kept holds of both, what is named of the target."""
    world, _ = world_of("composed")
    for query in world.captions.values():
        assert query.reference in world.scenes and query.reference != query.image_id
        if query.meaning.objects:
            reference, target = (world.scenes[one].main for one in (query.reference, query.image_id))
            (told,) = query.meaning.objects
            assert told.shape is target.shape
            if query.text.startswith(("Keep the shape", "The same shape")):
                assert reference.shape is target.shape


def test_a_composed_query_never_looks_for_its_reference():
    """Whatever the picture shows; one pair at a time, and all at once."""
    world, _ = world_of("composed")
    images, queries = list(world.scenes), list(world.captions)
    codes = truth_matrix(world, images, queries)
    for column, query in enumerate(queries):
        reference = world.captions[query].reference
        assert codes[images.index(reference), column] == Label.NO.code
        assert world.truth(reference, query).label is Label.NO


def test_a_world_of_one_image_has_no_composed_queries():
    """There is nothing to start from."""
    with pytest.raises(DatasetError, match="1 image was asked for, but composed queries need at least 2"):
        generate(1, seed=0, kind="composed")
