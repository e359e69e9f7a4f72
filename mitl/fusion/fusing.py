"""Cross-fitting: each pair's probability from models, a choice and a calibration that its fold had no part in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.core.packed import Ints, places
from mitl.errors import MetricError
from mitl.fusion.answered import AnsweredFeatures, Said, answered_features
from mitl.fusion.evidence import Evidence
from mitl.fusion.folds import FOLDS, folds
from mitl.fusion.likeness import joint_features, picture_features, text_features
from mitl.fusion.models import (
    BASES,
    CALIBRATORS,
    MEAN,
    Calibrator,
    Examples,
    Floats,
    Matrix,
    Predicts,
    fit,
    predict,
)
from mitl.fusion.rankings import ranking_features
from mitl.records.audits import FUSED
from mitl.records.frames import frame

GROUPS: Mapping[str, Callable[[Evidence], tuple[list[str], Matrix]]] = {
    "annotators": ranking_features,
    "joint": joint_features,
    "texts": text_features,
    "pictures": picture_features,
}
"""Features that no answer enters."""
ANSWERS = "answers"
LEAST = 20
"""Answers of each kind that the training of a fold needs."""


@dataclass(frozen=True, slots=True, eq=False)
class Fusion:
    """The probabilities, and how they came about."""

    fused: pd.DataFrame
    """``FUSED``."""
    models: Mapping[str, int]
    """Model → folds that chose it."""
    calibrations: Mapping[str, int]
    features: tuple[str, ...]


def fuse(
    evidence: Evidence,
    *,
    seed: int,
    groups: tuple[str, ...] = (*GROUPS, ANSWERS),
    count: int = FOLDS,
    advance: Callable[[int], None] = lambda n: None,
) -> Fusion:
    """A probability for each ranked pair.

    For each fold, models are fitted to the answers of the others, a model and a calibration are chosen by what they
    say of answers of each of the others in turn, and the fold's pairs, answered or not, get the outcome.

    Args:
        groups: of features; ``annotators`` at least.
        advance: told after each fit.

    Raises:
        MetricError: too few answers of a kind outside some fold, or similarities that are all the same.
    """
    pair_folds = folds(evidence.images, evidence.groups, seed, count)
    trained = Trained.of(evidence, pair_folds)
    _check(evidence, trained, count)
    names, static = _static(evidence, groups)
    answered = _answered(evidence, pair_folds, trained, count, seed) if ANSWERS in groups else None
    probability = np.empty(len(evidence.pairs))
    models: Counter[str] = Counter()
    calibrations: Counter[str] = Counter()
    for fold in range(count):
        said = _with_answers(static[trained.rows], None if answered is None else answered.training[:, fold])
        learnt = _learn(
            Examples(said, trained.yes, trained.no), pair_folds[trained.rows], fold, count, advance
        )
        own = np.flatnonzero(pair_folds == fold)
        probability[own] = learnt(_with_answers(static[own], None if answered is None else answered.own[own]))
        models[learnt.name] += 1
        calibrations[learnt.calibration] += 1
    columns = {"pair": evidence.pairs, "probability": probability.clip(0, 1), "fold": pair_folds}
    if answered is not None:
        names = [*names, *answered.names]
    return Fusion(frame(FUSED, columns), models, calibrations, tuple(names))


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """The ranked pairs that people answered."""

    rows: Ints
    """(a,) places among the ranked pairs."""
    yes: Floats
    no: Floats

    @classmethod
    def of(cls, evidence: Evidence, pair_folds: NDArray[np.int16]) -> Trained:
        """Those among the evidence's answers."""
        at = places(evidence.pairs, evidence.answers["pair"].to_numpy())
        ranked = at >= 0
        return cls(
            at[ranked],
            evidence.answers["yes"].to_numpy()[ranked],
            evidence.answers["no"].to_numpy()[ranked],
        )


def _check(evidence: Evidence, trained: Trained, count: int) -> None:
    if not len(trained.rows):
        raise MetricError(
            "no ranked pair has a usable answer yet, so there is nothing to learn from; run `mitl harvest`"
        )
    yes, no = int((trained.yes > 0).sum()), int((trained.no > 0).sum())
    for kind, n in (("a match", yes), ("no match", no)):
        if not n:
            raise MetricError(
                f"all {len(trained.rows):,} answered pairs are of one kind, none is {kind}; ask about more pairs"
            )
        if n < LEAST * count // (count - 1):
            raise MetricError(
                f"{n:,} of {len(trained.rows):,} answered pairs were called {kind}, and {count} folds need "
                f"{LEAST * count // (count - 1)} at least; ask about more pairs"
            )
    similarity = evidence.ranked.groupby("annotator", observed=True)["similarity"]
    if not (similarity.max() > similarity.min()).any():
        raise MetricError(
            "each annotator gives all pairs one and the same similarity, so nothing tells them apart; "
            "propose with another annotator"
        )


def _static(evidence: Evidence, groups: tuple[str, ...]) -> tuple[list[str], Matrix]:
    made = [build(evidence) for name, build in GROUPS.items() if name in groups]
    return [name for names, _ in made for name in names], np.concatenate([block for _, block in made], axis=1)


def _answered(
    evidence: Evidence, pair_folds: NDArray[np.int16], trained: Trained, count: int, seed: int
) -> AnsweredFeatures:
    from mitl.core.packed import unpack_ids

    images, captions = unpack_ids(evidence.answers["pair"].to_numpy())
    said = Said.of(evidence, folds(images, evidence.group_of(captions), seed, count))
    return answered_features(evidence, said, pair_folds, trained.rows, count)


def _with_answers(static: Matrix, answered: Matrix | None) -> Matrix:
    return static if answered is None else np.concatenate([static, answered], axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class _Learnt:
    """A chosen, fitted and calibrated model."""

    name: str
    calibration: str
    models: Mapping[str, Predicts]
    calibrate: Calibrator

    def __call__(self, features: Matrix) -> Floats:
        """(n,) probabilities."""
        scores = {name: predict(model, features) for name, model in self.models.items()}
        return self.calibrate(_combined(scores)[self.name])


def _combined(scores: Mapping[str, Floats]) -> dict[str, Floats]:
    both: Floats = np.mean(list(scores.values()), axis=0)
    return {**scores, MEAN: both} if len(scores) > 1 else dict(scores)


def _learn(
    examples: Examples, of: NDArray[np.int16], fold: int, count: int, advance: Callable[[int], None]
) -> _Learnt:
    """What is learnt from the answers outside a fold."""
    outside = of != fold
    seen, of = examples.rows(outside), of[outside]
    inner = [other for other in range(count) if other != fold and (of == other).any()]
    scores = {name: np.zeros(len(of)) for name in BASES}
    for other in inner:
        training = seen.rows(of != other)
        for name in BASES:
            held = of == other
            scores[name][held] = predict(fit(name, training), seen.features[held])
            advance(1)
    choices = _combined(scores)
    losses = {
        (name, kind): seen.log_loss(_held_out(kind, choices[name], seen, of, inner))
        for name in choices
        for kind in CALIBRATORS
    }
    name, kind = min(losses, key=lambda key: losses[key])
    wanted = BASES if name == MEAN else (name,)
    models = {}
    for base in wanted:
        models[base] = fit(base, seen)
        advance(1)
    return _Learnt(name, kind, models, CALIBRATORS[kind](choices[name], seen.yes, seen.no))


def _held_out(kind: str, scores: Floats, seen: Examples, of: NDArray[np.int16], inner: list[int]) -> Floats:
    """(a,) probabilities by calibrations that did not read the fold's own answers."""
    found = np.empty(len(scores))
    for other in inner:
        rest = of != other
        found[~rest] = CALIBRATORS[kind](scores[rest], seen.yes[rest], seen.no[rest])(scores[~rest])
    return found
