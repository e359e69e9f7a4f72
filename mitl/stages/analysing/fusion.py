"""How good the newest fused probabilities are, as they were judged when they were made."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from mitl.analysis.report.inputs import Section
from mitl.analysis.report.machine_plots import reliability_svg
from mitl.errors import MetricError
from mitl.judgements.calibration import Calibration
from mitl.stages.analysing.table import (
    Analysis,
    AnalysisInput,
    Column,
    Findings,
    for_files,
    for_people,
    number,
    percent,
)
from mitl.stages.fusing.scores import kept_scores

_Row = Mapping[str, Any]

_AREAS: tuple[Column[_Row], ...] = (
    Column("scored_by", lambda row: row["name"], "scored by"),
    Column("auc", lambda row: row["auc"], "AUC", number),
    Column("low", lambda row: row["low"], "95 % from", number),
    Column("high", lambda row: row["high"], "to", number),
)
_BINS: tuple[Column[_Row], ...] = (
    Column("stated", lambda row: row["stated"], "stated", percent),
    Column("observed", lambda row: row["observed"], "found", percent),
    Column("cases", lambda row: row["cases"], "pairs"),
)


def _compute(of: AnalysisInput) -> dict[str, Any]:
    for said, _ in kept_scores(of.settings, of.project.environment, of.project.fused_from):
        counts: dict[str, Any] = said["counts"]
        return counts
    raise MetricError("no probabilities were fused from the present proposals; run `mitl fuse`")


def _show(counts: dict[str, Any], _: AnalysisInput) -> Findings:
    fused = {"name": "fusion", "auc": counts["auc"], "low": counts["auc_low"], "high": counts["auc_high"]}
    areas = [fused, *({"name": name, **one} for name, one in counts["annotators"].items())]
    bins = counts["reliability"]
    return Findings(
        counts=counts,
        tables=(
            for_people(f"area under the curve, {counts['answered']:,} answered pairs", _AREAS, areas),
            for_people("probabilities, as stated and as found (percent)", _BINS, bins),
        ),
        lines=(
            f"Brier score {counts['brier']:.4f}, expected calibration error {counts['calibration_error']:.4f}",
        ),
        rows={"fusion": for_files(_AREAS, areas), "fusion-reliability": for_files(_BINS, bins)},
        drawings={"reliability": partial(reliability_svg, _reliability(counts))},
        captions={
            "reliability": "Stated probabilities against what people found, and how many pairs lie where"
        },
    )


def _reliability(counts: Mapping[str, Any]) -> Calibration:
    stated, observed, cases = (
        np.array([one[name] for one in counts["reliability"]]) for name in ("stated", "observed", "cases")
    )
    return Calibration(
        n=counts["answered"],
        error=counts["calibration_error"],
        brier=counts["brier"],
        log_loss=counts["log_loss"],
        stated=stated,
        observed=observed,
        cases=cases,
    )


FUSION = Analysis(
    "fusion",
    _compute,
    _show,
    section=Section("fusion", "Fusion", "What annotators and answers together say of a pair", "Machines"),
    optional=True,
)
