"""Towers: what they learn from answers, what they must not read, and where there are none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fusion_kit import answers, evidence

from mitl.core.arrays import unpack_ids
from mitl.fusion import fusing, models, towers
from mitl.fusion.answered import AnsweredPairs, folds
from mitl.fusion.evidence import FusionEvidence, UnitVectors, of_length_1
from mitl.fusion.fusing import GROUPS, TOWERS, fuse
from mitl.fusion.models import area
from mitl.fusion.parts import KeptParts
from mitl.fusion.towers import Pairs, Towers, tower_features

pytest.importorskip("sklearn", reason="the extra mitl[fusion] is not installed")

COUNT = 3


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Small towers, and the quickest model above them."""
    monkeypatch.setattr(fusing, "BASES", {"logistic": models.BASES["logistic"]})
    monkeypatch.setattr(towers, "HIDDEN", 24)
    monkeypatch.setattr(towers, "BATCH", 64)


def agreeing(seed: int) -> tuple[FusionEvidence, np.ndarray]:
    """Evidence on which pairs match where both signs of two numbers agree, of which no cosine knows; the truth."""
    made = evidence(seed)
    rng = np.random.default_rng(seed)
    left, right = (rng.normal(size=(n, 6)).astype(np.float32) for n in (30, 60))
    images, captions = unpack_ids(made.pairs)
    match = (left[images - 1, 0] > 0) == (right[captions - 1, 1] > 0)
    made = replace(
        made,
        pictures=(UnitVectors("v", np.arange(1, 31), of_length_1(left)),),
        texts=(UnitVectors("v", made.captions, of_length_1(right)),),
        answers=answers(made.pairs, match, ~match),
    )
    return made, match


def test_they_learn_what_of_both_sides_makes_a_match():
    """Where neither rankings nor likeness know it, probabilities of other folds' answers are far better with towers."""
    made, match = agreeing(5)
    without = tuple(name for name in GROUPS if name not in (TOWERS, "answers"))
    areas = [
        area(fuse(made, seed=0, groups=groups).fused["probability"], match, made.images).value
        for groups in (without, (*without, TOWERS))
    ]

    assert areas[0] < 0.6
    assert areas[1] > 0.9


def test_no_fold_is_read_for_itself_nor_for_the_fold_that_is_learnt_for():
    """Turn a fold's answers round: its own log-odds stay, and so do those of others to learn from for this fold."""
    made, _ = agreeing(4)
    of = folds(made.images, made.groups, 0, COUNT)
    before = tower_features(made, AnsweredPairs.of(made), of, COUNT, 0)
    for fold in range(COUNT):
        said = made.answers.copy()
        said.loc[of == fold, ["yes", "no"]] = said.loc[of == fold, ["no", "yes"]].to_numpy()
        turned = replace(made, answers=said)
        after = tower_features(turned, AnsweredPairs.of(turned), of, COUNT, 0)
        outside = of != fold

        assert np.array_equal(after.own[~outside], before.own[~outside])
        assert np.array_equal(after.training[outside, fold], before.training[outside, fold])
        assert np.array_equal(after.training[~outside], before.training[~outside])
        assert (after.own[outside] != before.own[outside]).mean() > 0.9


def test_the_slope_is_that_of_the_loss(monkeypatch):
    """By differences, with nothing left out."""
    monkeypatch.setattr(towers, "DROPPED", 0.0)
    rng = np.random.default_rng(0)
    tables = rng.normal(size=(5, 3)).astype(np.float32), rng.normal(size=(6, 4)).astype(np.float32)
    pairs = Pairs(rng.integers(0, 5, 20), rng.integers(0, 6, 20), rng.normal(size=(20, 2)).astype(np.float32))
    share, weight = (rng.random(20).astype(np.float32) for _ in range(2))
    built = Towers(*tables, 2, seed=1)
    built._descend(pairs, share, weight)

    def loss() -> float:
        odds = built.log_odds(pairs)
        return float((weight * (np.logaddexp(0, odds) - share * odds)).mean())

    for place in [*rng.integers(0, len(built._flat), 40).tolist(), len(built._flat) - 1]:
        start = built._flat[place]
        ends = []
        for step in (0.01, -0.01):
            built._flat[place] = start + step
            ends.append(loss())
        built._flat[place] = start
        assert built._slope[place] == pytest.approx((ends[0] - ends[1]) / 0.02, abs=2e-4)


def test_without_vectors_of_a_side_there_are_none():
    """Fusion does without: the same probabilities as without the group."""
    made, _ = agreeing(5)
    for lacking in (replace(made, texts=()), replace(made, texts=(), pictures=(), joint=(), words=())):
        found = tower_features(
            lacking, AnsweredPairs.of(lacking), folds(made.images, made.groups, 0, 4), 4, 0
        )

        assert not found.names
        assert found.own.shape == (len(made.pairs), 0)
    without = tuple(name for name in GROUPS if name != TOWERS)

    done = []
    found = fuse(lacking, seed=0, parts=KeptParts(advance=done.append)).fused
    assert found.equals(fuse(lacking, seed=0, groups=without).fused)
    assert sum(done) == 10


def test_a_caption_is_enough_for_an_image():
    """Images without vectors of their own are read by their captions."""
    made, _ = agreeing(6)
    said = replace(made, pictures=())
    found = tower_features(said, AnsweredPairs.of(said), folds(made.images, made.groups, 0, 4), 4, 0)

    assert found.names == ("towers.log_odds",)
    assert np.isfinite(found.own).all()


def test_no_answers_teach_nothing():
    """Towers of no answers are as they began."""
    tables = np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)
    built = Towers(*tables, 0, seed=0)
    pairs = Pairs(np.array([0, 1]), np.array([1, 0]), np.empty((2, 0), np.float32))
    before = built.log_odds(pairs)
    built.learn(pairs.rows(np.empty(0, np.int64)), np.empty(0), np.empty(0))

    assert np.array_equal(built.log_odds(pairs), before)
