"""Cross-fitting: each pair's probability from models, a choice and a calibration that its fold had no part in."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.core.arrays import Floats, Ints, unpack_ids
from mitl.errors import MetricError
from mitl.fusion.answered import FOLDS, AnsweredFeatures, AnsweredPairs, Said, answered_features, folds
from mitl.fusion.evidence import FusionEvidence, ranking_features
from mitl.fusion.likeness import Directions, joint_features, picture_features, text_features
from mitl.fusion.models import (
    BASES,
    CALIBRATORS,
    CHOICES,
    EXTRA,
    Calibrator,
    Examples,
    Matrix,
    Predicts,
    combined,
    fit,
    predict,
)
from mitl.fusion.parts import UNKEPT, Arrays, KeptParts
from mitl.fusion.towers import tower_features
from mitl.records import several
from mitl.records.audits import FUSED
from mitl.records.frames import frame

STATIC: Mapping[str, Callable[[FusionEvidence], tuple[list[str], Matrix]]] = {
    "annotators": ranking_features,
    "joint": joint_features,
    "texts": text_features,
    "pictures": picture_features,
}
DIRECTIONS, ANSWERS, TOWERS = "directions", "answers", "towers"
GROUPS = (*STATIC, DIRECTIONS, ANSWERS, TOWERS)
"""The groups of features; answers enter the last two alone."""
LEAST = 20
"""Pairs of each kind that the training of a fold needs."""
_BLOCK = 1 << 16
"""Pairs whose features are laid out at once."""


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
    evidence: FusionEvidence,
    *,
    seed: int,
    groups: tuple[str, ...] = GROUPS,
    count: int = FOLDS,
    parts: KeptParts = UNKEPT,
) -> Fusion:
    """A probability for each ranked pair.

    For each fold, models are fitted to the answers of the others, a model and a calibration are chosen by what they
    say of answers of each of the others in turn, and the fold's pairs, answered or not, get the outcome.

    Args:
        groups: of features; ``annotators`` at least.
        count: of folds, 3 at least.
        parts: where those of an interrupted call lie, and who is told of each: towers without each two folds, then what
            each fold came to.

    Raises:
        MetricError: too few answers of a kind, or similarities that are all the same.
    """
    pair_folds = folds(evidence.images, evidence.groups, seed, count)
    check(evidence, count)
    trained = AnsweredPairs.of(evidence)
    with _one_blas_thread():
        features = _Features.of(evidence, groups, pair_folds, trained, count, seed, parts)
    probability = np.empty(len(evidence.pairs))
    models: Counter[str] = Counter()
    calibrations: Counter[str] = Counter()

    def of_fold(fold: int) -> Arrays:
        examples = Examples(features.training(fold), trained.yes, trained.no)
        learnt = _learn(examples, pair_folds[trained.rows], fold, count)
        said = [learnt(block) for block in features.blocks(np.flatnonzero(pair_folds == fold))]
        probabilities = np.concatenate([*said, np.empty(0)])
        return {"probability": probabilities, "chosen": np.array([learnt.name, learnt.calibration])}

    def kept(fold: int) -> Arrays:
        return parts.kept(f"fold-{fold}", lambda: of_fold(fold))

    # What a fold comes to depends on itself alone, and solvers give way to each other's threads.
    with _one_blas_thread(), ThreadPoolExecutor(min(count, os.cpu_count() or 1)) as pool:
        for fold, part in enumerate(pool.map(kept, range(count))):
            probability[pair_folds == fold] = part["probability"]
            name, calibration = part["chosen"].tolist()
            models[name] += 1
            calibrations[calibration] += 1
            parts.advance(1)
    columns = {"pair": evidence.pairs, "probability": probability.clip(0, 1), "fold": pair_folds}
    return Fusion(frame(FUSED, columns), models, calibrations, features.names)


def _one_blas_thread() -> AbstractContextManager[object]:
    try:
        from threadpoolctl import threadpool_limits
    except ModuleNotFoundError as error:
        raise MetricError(EXTRA) from error
    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="blas")
    return limits


def check(evidence: FusionEvidence, count: int = FOLDS) -> None:
    """MetricError unless there are enough answers of both kinds, and similarities that differ; reads no vectors."""
    trained = AnsweredPairs.of(evidence)
    if not len(trained.rows):
        raise MetricError(
            "no ranked pair has a usable answer yet, so there is nothing to learn from; let people answer "
            "some, then run `mitl harvest`"
        )
    least = LEAST * count // (count - 1)
    kinds = {"a match": int((trained.yes > 0).sum()), "no match": int((trained.no > 0).sum())}
    for kind, n in kinds.items():
        if not n:
            raise MetricError(
                f"nobody called any of {several(len(trained.rows), 'answered pair')} {kind}, so nothing shows what "
                "tells the two kinds apart; ask about more pairs"
            )
        if n < least:
            raise MetricError(
                f"people called {n:,} of {several(len(trained.rows), 'answered pair')} {kind}, and {count} folds need "
                f"{least} at least; ask about more pairs"
            )
    similarity = evidence.ranked.groupby("annotator", observed=True)["similarity"]
    if not (similarity.max() > similarity.min()).any():
        raise MetricError(
            "each annotator gives all pairs one and the same similarity, so nothing tells them apart; propose with "
            "another annotator"
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Features:
    """The features of all ranked pairs, and of the answered ones without each fold's answers."""

    names: tuple[str, ...]
    static: Matrix
    directions: Directions | None
    answered: tuple[AnsweredFeatures, ...]
    rows: Ints
    """(a,) places of the answered pairs."""

    @classmethod
    def of(
        cls,
        evidence: FusionEvidence,
        groups: tuple[str, ...],
        pair_folds: NDArray[np.int16],
        trained: AnsweredPairs,
        count: int,
        seed: int,
        parts: KeptParts,
    ) -> _Features:
        built = [build(evidence) for name, build in STATIC.items() if name in groups]
        static = np.concatenate([block for _, block in built], axis=1)
        names = [name for names, _ in built for name in names]
        directions = Directions.of(evidence) if DIRECTIONS in groups else None
        answered: list[AnsweredFeatures] = []
        if ANSWERS in groups:
            images, captions = unpack_ids(evidence.answers["pair"].to_numpy())
            said = Said.of(evidence, folds(images, evidence.group_of(captions), seed, count))
            answered.append(answered_features(evidence, said, pair_folds, trained.rows, count))
        if TOWERS in groups:
            answered.append(tower_features(evidence, trained, pair_folds, count, seed, parts))
        for more in (directions, *answered):
            names += [] if more is None else more.names
        return cls(tuple(names), static, directions, tuple(answered), trained.rows)

    def training(self, fold: int) -> Matrix:
        """(a, F) of the answered pairs, to learn from outside a fold."""
        return self._laid_out(self.rows, [answered.training[:, fold] for answered in self.answered])

    def blocks(self, rows: Ints) -> Iterator[Matrix]:
        """Of these pairs, each without its own fold's answers, in order."""
        for start in range(0, len(rows), _BLOCK):
            some = rows[start : start + _BLOCK]
            yield self._laid_out(some, [answered.own[some] for answered in self.answered])

    def _laid_out(self, rows: Ints, said: list[Matrix]) -> Matrix:
        looked_up = [] if self.directions is None else [self.directions.rows(rows)]
        return np.concatenate([self.static[rows], *looked_up, *said], axis=1)


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
        return self.calibrate(combined(scores)[self.name])


def _learn(examples: Examples, of: NDArray[np.int16], fold: int, count: int) -> _Learnt:
    """What is learnt from the answers outside a fold."""
    outside = of != fold
    seen, of = examples.rows(outside), of[outside]
    inner = [other for other in range(count) if (of == other).any()]
    scores = {name: np.zeros(len(of)) for name in BASES}
    for other in inner:
        held = of == other
        training = seen.rows(~held)
        for name in BASES:
            scores[name][held] = predict(fit(name, training), seen.features[held])
    choices = combined(scores)
    losses = {
        (name, kind): seen.log_loss(_held_out(kind, choices[name], seen, of, inner))
        for name in choices
        for kind in CALIBRATORS
    }
    name, kind = min(losses, key=lambda key: losses[key])
    models = {base: fit(base, seen) for base in CHOICES[name]}
    return _Learnt(name, kind, models, CALIBRATORS[kind](choices[name], seen.yes, seen.no))


def _held_out(kind: str, scores: Floats, seen: Examples, of: NDArray[np.int16], inner: list[int]) -> Floats:
    """(a,) probabilities by calibrations that did not read the fold's own answers."""
    probability = np.empty(len(scores))
    for other in inner:
        rest = of != other
        probability[~rest] = CALIBRATORS[kind](scores[rest], seen.yes[rest], seen.no[rest])(scores[~rest])
    return probability
