"""A probability for each ranked pair, and how good it is by answers that it has not read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import comb
from typing import Annotated, Any, TypedDict

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.audits.frontier import TOLERATED, share_left
from mitl.core.arrays import Ints, pack_pairs, places
from mitl.core.formats import percent
from mitl.crowd.context import Context, open_context
from mitl.db.store import audits
from mitl.fusion.answered import FOLDS
from mitl.fusion.evidence import FusionEvidence
from mitl.fusion.fusing import Fusion, check
from mitl.fusion.fusing import fuse as fuse_pairs
from mitl.fusion.models import Area, area
from mitl.fusion.parts import KeptParts
from mitl.judgements.calibration import calibration
from mitl.progress import Progress, no_progress
from mitl.records import Environment, StageResult, Table
from mitl.records.results import printed_by
from mitl.settings import Settings
from mitl.stages.fusing.gathering import answered, evidence
from mitl.stages.fusing.scores import FOLDER, KeptScores, kept_scores, sources, stamp

VERSION = 6
"""Raised when the same inputs give other probabilities, so that kept ones are not taken for them."""


class AreaCounts(TypedDict):
    """An area under the curve, as ``--json`` prints it."""

    auc: float
    low: float
    high: float


@printed_by("fuse")
class FuseCounts(TypedDict):
    """What fusing counts."""

    pairs: Annotated[int, "ranked pairs that have a probability"]
    answered: Annotated[int, "those with a usable answer in an asked role, which it was learnt from"]
    answers: Annotated[int, "these answers"]
    excluded: Annotated[int, "pairs whose answers were not read, as a sample drawn to bound machine labels"]
    positive_share: Annotated[float, "share of the answered pairs that are called a match"]
    auc: Annotated[
        float,
        "area under the curve against people's answers, of which no model read those of the pair's fold",
    ]
    auc_low: Annotated[float, "lower end of its 95 % interval, over images and captions"]
    auc_high: Annotated[float, "upper end"]
    brier: Annotated[float, "mean squared distance of probability and answer"]
    calibration_error: Annotated[float, "expected calibration error over ten bins"]
    log_loss: Annotated[float, "mean loss in nats"]
    reliability: Annotated[
        list[dict[str, float]], "bin → stated probability, observed share of matches, cases"
    ]
    annotators: Annotated[dict[str, AreaCounts], "annotator → the same area by its similarity alone"]
    still_asked: Annotated[
        list[dict[str, float]],
        "tolerance (lost, wrong) → share of pairs that people must still judge at this area, audits extra",
    ]
    models: Annotated[dict[str, int], "model → folds that chose it"]
    calibrations: Annotated[dict[str, int], "calibration → folds that chose it"]
    folds: Annotated[int, "folds"]
    features: Annotated[int, "features of a pair"]


@printed_by("fuse", key="paths")
class FusePaths(TypedDict):
    """Where the probabilities are."""

    fused: Annotated[str, "Parquet of pair, probability and fold; beside it a JSON of what it was made of"]


def fuse(
    settings: Settings,
    environment: Environment | None = None,
    *,
    progress: Progress = no_progress,
) -> StageResult:
    """Write the probabilities of all ranked pairs; nothing is done where the same were made before.

    Answers of audits, and on pairs drawn to bound machine labels, are not read.

    Raises:
        StoreError: nothing has been proposed yet.
        MetricError: there is too little to learn from.
    """
    with open_context(settings, environment, read_only=True, progress=progress) as context:
        excluded = pack_pairs(audits.drawn_for_labels(context.session, context.environment))
        answers = answered(context, excluded)
        config = _configuration(context, answers, excluded)
        kept = _place(settings, config)
        said = kept.described()
        if said is not None and "counts" in said and kept.read() is not None:
            return _again(context, kept, said)
        gathered = evidence(context, answers, check)
        parts = KeptParts.of(kept.path.parent, gathered, config)
        steps = comb(FOLDS, 2) + FOLDS
        with parts.held(), context.progress("fuse", total=steps) as advance:
            fusion = fuse_pairs(gathered, seed=context.settings.seed, parts=replace(parts, advance=advance))
            counts = _counts(gathered, fusion, excluded)
            kept.write(fusion.fused, {**config, "counts": counts, "made_at": stamp(context.now())})
        parts.remove()
        return _result(kept, counts)


def _configuration(context: Context, answers: pd.DataFrame, excluded: Ints) -> dict[str, Any]:
    """All that decides the probabilities beside the files of rankings, which the runs' names stand for."""
    table = np.stack([answers[name].to_numpy(np.float64) for name in ("yes", "no")]).tobytes()
    pairs = answers["pair"].to_numpy().tobytes()
    return {
        "version": VERSION,
        "environment": context.environment.value,
        "runs": sources(context.session),
        "answers_sha256": hashlib.sha256(pairs + table).hexdigest(),
        "excluded_sha256": hashlib.sha256(excluded.tobytes()).hexdigest(),
        "seed": context.settings.seed,
        "folds": FOLDS,
    }


def _place(settings: Settings, config: Mapping[str, Any]) -> KeptScores:
    name = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]
    return KeptScores(settings.runs / FOLDER / f"{name}.parquet")


def _again(context: Context, kept: KeptScores, said: dict[str, Any]) -> StageResult:
    """The same as made before; where others were made since, these are the newest again."""
    kept_before = kept_scores(context.settings, context.environment, said["runs"])
    newest = next(kept_before, (None, kept))[1]
    if newest.path == kept.path:
        return _result(kept, said["counts"], "nothing_to_do")
    kept.describe({**said, "made_at": stamp(context.now())})
    return _result(kept, said["counts"])


@dataclass(frozen=True, slots=True, eq=False)
class _Judged:
    """The answered ranked pairs: where they are, what most of their workers said, and what hangs together."""

    at: Ints
    positive: NDArray[np.bool_]
    clusters: Ints
    """(2, a) the pair's image, and the one that its caption was written for."""

    @classmethod
    def of(cls, found: FusionEvidence) -> _Judged:
        at = places(found.pairs, found.answers["pair"].to_numpy())
        kept = (at >= 0) & (found.answers["yes"] != found.answers["no"]).to_numpy()
        positive = (found.answers["yes"] > found.answers["no"]).to_numpy()[kept]
        at = at[kept]
        return cls(at, positive, np.stack([found.images[at], found.groups[at]]))

    def area(self, scores: NDArray[np.floating[Any]]) -> Area:
        """Of scores of all ranked pairs."""
        return area(scores[self.at], self.positive, self.clusters)


def _counts(found: FusionEvidence, made: Fusion, excluded: Ints) -> FuseCounts:
    judged = _Judged.of(found)
    probability = made.fused["probability"].to_numpy()
    of_fused = judged.area(probability)
    reliability = calibration(probability[judged.at], judged.positive)
    share = float(judged.positive.mean())
    auc = min(max(of_fused.value, 0.5), 1.0)
    return {
        "pairs": len(found.pairs),
        "answered": len(judged.at),
        "answers": int((found.answers["yes"] + found.answers["no"]).sum()),
        "excluded": len(excluded),
        "positive_share": share,
        "auc": of_fused.value,
        "auc_low": of_fused.low,
        "auc_high": of_fused.high,
        "brier": reliability.brier,
        "calibration_error": reliability.error,
        "log_loss": reliability.log_loss,
        "reliability": [
            dict(zip(("stated", "observed", "cases"), bin_, strict=True)) for bin_ in reliability.bins
        ],
        "annotators": _annotators(found, judged),
        "still_asked": [
            {"lost": lost, "wrong": wrong, "share": share_left(auc, lost, wrong, share)}
            for lost, wrong in TOLERATED
        ],
        "models": dict(made.models),
        "calibrations": dict(made.calibrations),
        "folds": FOLDS,
        "features": len(made.features),
    }


def _annotators(found: FusionEvidence, judged: _Judged) -> dict[str, AreaCounts]:
    """Each annotator's own area by its similarity; pairs that it ranks neither way come last, all alike."""
    areas: dict[str, AreaCounts] = {}
    for name in found.ranked["annotator"].cat.categories:
        rows = found.ranked[found.ranked["annotator"] == name]
        scores = np.full(len(found.pairs), rows["similarity"].min() - 1)
        scores[places(found.pairs, rows["pair"].to_numpy())] = rows["similarity"].to_numpy()
        judged_area = judged.area(scores)
        areas[str(name)] = {"auc": judged_area.value, "low": judged_area.low, "high": judged_area.high}
    return areas


def _result(kept: KeptScores, counts: Mapping[str, Any], status: str = "done") -> StageResult:
    names = ("scored by", "AUC", "95 % from", "to")
    by_auc = sorted(counts["annotators"].items(), key=lambda of_name: -of_name[1]["auc"])
    rows = (
        ("fusion", counts["auc"], counts["auc_low"], counts["auc_high"]),
        *((name, of_name["auc"], of_name["low"], of_name["high"]) for name, of_name in by_auc),
    )
    asked = tuple(
        (f"lost ≤ {saving['lost']:.0%}, wrong ≤ {saving['wrong']:.0%}", percent(saving["share"], 0))
        for saving in counts["still_asked"]
    )
    return StageResult(
        status=status,
        counts=counts,
        paths=FusePaths(fused=str(kept.path)),
        tables=(
            Table(f"against people's answers on {counts['answered']:,} pairs", names, rows),
            Table(
                f"at this AUC, and {percent(counts['positive_share'], 0)} matches, people must still judge about",
                ("tolerated", "of the pairs"),
                asked,
            ),
        ),
        lines=(
            *(("nothing to do: the same was fused before",) if status == "nothing_to_do" else ()),
            f"Brier score {counts['brier']:.4f}, expected calibration error {counts['calibration_error']:.4f}",
            f"{counts['pairs']:,} pairs have a probability"
            + (
                f"; answers on {counts['excluded']:,} drawn pairs were not read" if counts["excluded"] else ""
            ),
        ),
    )
