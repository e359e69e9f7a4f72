"""What machines say of their own certainty, held against people's answers.

An annotator's uncertainty of a query against how many positives the query has (Fig. 3b), and how good the newest fused
probabilities are, as they were judged when they were made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annotators.base import Encoded, Modality, draws_samples, is_reusable
from mitl.analysis.records import Uncertainty, UncertaintyBin
from mitl.analysis.report.inputs import Section
from mitl.analysis.report.machine_plots import reliability_svg, uncertainty_svg
from mitl.analysis.uncertainty import associate, binned, geometric_mean, recovered_sigmas, root_mean_square
from mitl.errors import MetricError
from mitl.judgements.calibration import Calibration
from mitl.positives.merging import listed_queries
from mitl.records import AnnotatorKind, Direction, Label, Table
from mitl.stages.analysing.snapshot import ProjectSnapshot
from mitl.stages.analysing.table import (
    NO_JUDGEMENTS,
    Analysis,
    AnalysisInput,
    Column,
    Findings,
    for_files,
    for_json,
    for_people,
    number,
    percent,
)
from mitl.stages.fusing.scores import kept_scores
from mitl.stages.proposing.computing import ComputeContext
from mitl.stages.proposing.trained import with_trained

Values = NDArray[np.float64]

NO_UNCERTAINTY = "has no uncertainty: it places an item at a point, not in a distribution"
NO_VARIANCE = "gives probabilities, but keeps no variance of an item"

ROWS = 256
"""Items at a time: of 7 samples of 1,024 numbers, 15 MB each for them and their noise."""

GEOMETRIC, QUADRATIC = "geometric mean", "root mean square"


@dataclass(frozen=True, slots=True, eq=False)
class Sigmas:
    """One number for each query: ``values`` (Q,), a mean of its standard deviations."""

    measure: str
    values: NDArray[np.float64]


class SigmaReader:
    """One annotator of a project, with its kept encodings; what is missing of them is encoded."""

    def __init__(self, of: AnalysisInput, name: str) -> None:
        self._of = of
        self._compute = ComputeContext.of(with_trained(of.settings, [name]))
        self._annotator: Any = self._compute.build(name)

    def of(self, direction: Direction, queries: Sequence[int]) -> Sigmas | None:
        """The widths of these queries; None where the encodings do not tell them."""
        if not is_reusable(self._annotator):
            return None
        modality: Modality = "image" if direction is Direction.I2T else "caption"
        items = self._of.project.items.side(direction, gallery=False)
        encoded = self._compute.encodings.encoded(
            self._annotator, modality, items, progress=self._of.progress
        )
        rows = np.searchsorted(encoded.ids, np.array(queries, np.int64))
        arrays = encoded.arrays
        if "log_sigma" in arrays:
            return Sigmas(GEOMETRIC, geometric_mean(np.exp(arrays["log_sigma"][rows].astype(np.float64))))
        if {"spread", "mean"} <= arrays.keys():
            return Sigmas(QUADRATIC, root_mean_square(arrays["spread"][rows], arrays["mean"].shape[1]))
        if "samples" in arrays and arrays["samples"].shape[1] > 1 and draws_samples(self._annotator):
            names = [items[row].external_id for row in rows]
            return Sigmas(GEOMETRIC, self._from_samples(encoded.rows(rows), names))
        return None

    def _from_samples(self, encoded: Encoded, external_ids: Sequence[str]) -> NDArray[np.float64]:
        """The noise of an item's samples follows from its id, so they tell its standard deviations."""
        from annotators import match_probability

        sigmas = np.empty(len(encoded))
        samples = encoded.arrays["samples"]
        for start in range(0, len(encoded), ROWS):
            part = slice(start, start + ROWS)
            noise = match_probability.noise(
                self._annotator.seed, encoded.modality, external_ids[part], *samples.shape[1:]
            )
            sigmas[part] = geometric_mean(recovered_sigmas(samples[part], noise))
        return sigmas


_Made = tuple[list[Uncertainty], dict[str, str]]
"""What was measured, and annotators that give none → why."""


def _compute(of: AnalysisInput) -> _Made:
    """Every annotator that gives a variance, and which of the others give none.

    Raises:
        MetricError: nothing is judged and no truth is known, or no annotator gives a variance.
    """
    if of.project.answers.empty and not of.project.has_truth:
        raise MetricError(NO_JUDGEMENTS)
    measured: list[Uncertainty] = []
    without: dict[str, str] = {}
    for row in of.project.annotators:
        if row.name not in of.names:
            continue
        if row.kind is not AnnotatorKind.PROBABILITY:
            without[row.name] = NO_UNCERTAINTY
        else:
            uncertainties = _of_annotator(of, row.name)
            measured += uncertainties
            if not uncertainties:
                without[row.name] = NO_VARIANCE
    if not measured:
        names = ", ".join(without) or "none has proposed anything"
        raise MetricError(f"no annotator here gives an uncertainty ({names}); PCME and its kin do")
    return measured, without


def _of_annotator(of: AnalysisInput, name: str) -> list[Uncertainty]:
    """Both directions, against the judged positives and the true ones; nothing where it keeps no variance."""
    uncertainties = []
    sigmas = SigmaReader(of, name)
    for direction in Direction:
        queries = of.project.queries[direction]
        measured = sigmas.of(direction, queries) if queries else None
        if measured is None:
            continue
        uncertainties += [
            _one(name, direction, against, measured, counts)
            for against, counts in _positives(of.project, direction, queries)
        ]
    return uncertainties


def _positives(
    project: ProjectSnapshot, direction: Direction, queries: Sequence[int]
) -> list[tuple[str, Values]]:
    """Positives of each query: of the release as it would be now, and true ones in a generated world."""
    counts: list[tuple[str, Values]] = []
    if not project.answers.empty:
        merged = listed_queries(project.merged, project.queries)[direction]
        counts.append(("judged", np.array([len(merged.get(query, ())) for query in queries], np.float64)))
    if project.has_truth and queries:
        codes = project.truth_codes(direction, queries)
        counts.append(("truth", (codes <= Label.WEAK_YES.code).sum(1).astype(np.float64)))
    return counts


def _one(name: str, direction: Direction, against: str, measured: Sigmas, counts: Values) -> Uncertainty:
    association = associate(measured.values, counts)
    return Uncertainty(
        annotator=name,
        direction=direction,
        measure=measured.measure,
        against=against,
        queries=len(counts),
        tau=association.tau,
        spearman=association.spearman,
        bins=binned(measured.values, counts),
    )


_BIN: tuple[Column[UncertaintyBin], ...] = (
    Column("low", lambda part: part.low),
    Column("high", lambda part: part.high),
    Column("queries", lambda part: part.queries),
    Column("positives", lambda part: part.positives),
)
_WHOSE: tuple[Column[Uncertainty], ...] = (
    Column("annotator", lambda row: row.annotator),
    Column("direction", lambda row: row.direction.value),
    Column("positives_of", lambda row: row.against, "positives"),
)
_ASSOCIATION: tuple[Column[Uncertainty], ...] = (
    Column("queries", lambda row: row.queries),
    Column("tau", lambda row: row.tau, "tau-b", number),
    Column("spearman", lambda row: row.spearman, "Spearman", number),
)


def _show(made: _Made, of: AnalysisInput) -> Findings:
    """Rank correlations, and the mean number of positives from the least to the most uncertain queries."""
    measured, without = made
    width = max(len(uncertainty.bins) for uncertainty in measured)
    bins: tuple[Column[Uncertainty], ...] = tuple(
        Column(str(place + 1), partial(_positives_of_bin, place), shown=partial(number, digits=1))
        for place in range(width)
    )
    rows = [
        (*for_json(_WHOSE, uncertainty).values(), place, *for_json(_BIN, part).values())
        for uncertainty in measured
        for place, part in enumerate(uncertainty.bins, 1)
    ]
    columns = (*(column.key for column in _WHOSE), "bin", *(column.key for column in _BIN))
    return Findings(
        counts={"annotators": [_for_json(uncertainty) for uncertainty in measured], "without": without},
        tables=(
            for_people(
                "uncertainty of a query and its number of positives", (*_WHOSE, *_ASSOCIATION), measured
            ),
            for_people("mean positives by bins of rising uncertainty", (*_WHOSE, *bins), measured),
        ),
        lines=tuple(f"{name} {reason}" for name, reason in without.items()),
        rows={"uncertainty": Table("", columns, tuple(rows))},
        drawings={"uncertainty": partial(uncertainty_svg, measured, of.project.dataset.form)},
    )


def _positives_of_bin(place: int, uncertainty: Uncertainty) -> float | None:
    return uncertainty.bins[place].positives if place < len(uncertainty.bins) else None


def _for_json(uncertainty: Uncertainty) -> dict[str, object]:
    return {
        "annotator": uncertainty.annotator,
        "direction": uncertainty.direction.value,
        "measure": uncertainty.measure,
        "positives": uncertainty.against,
        **for_json(_ASSOCIATION, uncertainty),
        "bins": [for_json(_BIN, part) for part in uncertainty.bins],
    }


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


def _newest_fused(of: AnalysisInput) -> dict[str, Any]:
    for said, _ in kept_scores(of.settings, of.project.environment, of.project.fused_from):
        counts: dict[str, Any] = said["counts"]
        return counts
    raise MetricError("no probabilities were fused from the present proposals; run `mitl fuse`")


def _show_fused(counts: dict[str, Any], _: AnalysisInput) -> Findings:
    fused = {"name": "fusion", "auc": counts["auc"], "low": counts["auc_low"], "high": counts["auc_high"]}
    areas = [fused, *({"name": name, **area} for name, area in counts["annotators"].items())]
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
        drawings={"reliability": partial(reliability_svg, _as_calibration(counts))},
        captions={
            "reliability": "Stated probabilities against what people found, and how many pairs lie where"
        },
    )


def _as_calibration(counts: Mapping[str, Any]) -> Calibration:
    stated, observed, cases = (
        np.array([row[name] for row in counts["reliability"]]) for name in ("stated", "observed", "cases")
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


UNCERTAINTY = Analysis("uncertainty", _compute, _show)
FUSION = Analysis(
    "fusion",
    _newest_fused,
    _show_fused,
    section=Section("fusion", "Fusion", "What annotators and answers together say of a pair", "Machines"),
    optional=True,
)
