"""The annotator without weights: what it finds, that it knows nothing by heart, and one line for what it cannot use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kind_worlds_kit import WITH_FILES, items_of, world_of

from annotators import registry
from annotators.signal import Signal, _terms, _unit, sound_features
from mitl.datasets.scenes.world import truth_matrix
from mitl.errors import AnnotatorError
from mitl.records import Direction, ImageItem, PartKind

pytest.importorskip("av", reason="the extra mitl[media] is missing")


@pytest.mark.parametrize("kind", WITH_FILES)
@pytest.mark.thorough(but=("sounds", "composed"))
def test_matches_come_first_in_both_directions(kind):
    """Nearly twice as often as by chance, or more, among the first five, in each generated world."""
    world, _ = world_of(kind)
    left, right = items_of(kind)
    matches = truth_matrix(world, list(world.scenes), list(world.captions)) <= 2
    signal = registry.build("signal")
    for direction, truth in ((Direction.I2T, matches), (Direction.T2I, matches.T)):
        queries = list(range(1, len(truth) + 1))
        ranking = signal.ranking(direction, left, right, queries, 5)
        found = np.mean(
            [
                truth[query - 1, items - 1].mean()
                for query, items in zip(queries, ranking.item_ids, strict=True)
            ]
        )
        assert found > 1.8 * matches.mean()
        assert (np.diff(ranking.similarities, axis=1) <= 0).all()


@pytest.mark.parametrize("most", [3_000, 70])
def test_an_items_own_texts_teach_nothing_about_it(most, monkeypatch):
    """What is foretold for them is what a fit without them foretells, also for a text that itself teaches nothing."""
    monkeypatch.setattr("annotators.signal._MOST_TEXTS", most)
    left, right = items_of("sounds")
    signal = Signal("signal", 1.0)
    features, terms = signal._features(left), _terms([caption.text for caption in right])
    own = np.array([caption.image_id == 1 for caption in right])
    learnt = np.linspace(0, len(right) - 1, min(len(right), most)).round().astype(int)
    others = learnt[~own[learnt]]
    wanted = features[[right[place].image_id - 1 for place in others]]
    kernel = terms[others] @ terms[others].T + np.eye(len(others))
    without = terms[own] @ terms[others].T @ np.linalg.solve(kernel, wanted)

    expected = _unit(features) @ _unit(without).T
    assert np.allclose(signal._similarities(left, right)[:, own], expected)


def test_features_tell_a_rising_from_a_falling_sound_and_count_onsets():
    """The three sums before the last three are rises, falls and both."""
    t = np.arange(4000) / 8000
    up = np.pad(np.sin(2 * np.pi * (300 * t + 800 * t * t)).astype(np.float32), 5000)
    rising, falling = sound_features(up), sound_features(up[::-1].copy())
    assert rising[-6] > 3 * -rising[-5] and -falling[-5] > 3 * falling[-6]


def test_what_it_cannot_use_is_one_line(tmp_path):
    """Texts, a missing file, a spoiled one, an impossible setting."""
    left, right = items_of("sounds")
    signal = registry.build("signal")
    spoiled = tmp_path / "1.wav"
    spoiled.write_bytes(b"no sound")
    for item, named in (
        (ImageItem(1, "1", None, None, ("a text",), PartKind.TEXT), "has texts on both sides"),
        (replace(left[0], path=tmp_path / "gone.wav"), "'1' has none at hand; name their folder"),
        (replace(left[0], path=spoiled), r"cannot use the file of '1': .*1\.wav' cannot be decoded"),
    ):
        with pytest.raises(AnnotatorError, match=named) as caught:
            signal.ranking(Direction.I2T, [item, *left[1:]], right, [1], 3)
        assert "\n" not in str(caught.value)
    with pytest.raises(AnnotatorError, match=r"ridge of annotator 'signal' is 0\.0"):
        registry.build("signal", {"ridge": 0.0})
