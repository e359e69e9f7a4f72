"""Fig. 3b: an annotator's own uncertainty of a query against how many positives the query has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from mitl.analysis.machines.records import Uncertainty
from mitl.analysis.machines.uncertainty import associate, binned
from mitl.analysis.report.plots.machines import uncertainty_svg
from mitl.errors import MetricError
from mitl.positives.merging import listed_queries
from mitl.records import AnnotatorKind, Direction, Label, Table
from mitl.stages.analysing.findings import Findings
from mitl.stages.analysing.material import NO_JUDGEMENTS, Material
from mitl.stages.analysing.shown import number
from mitl.stages.analysing.sigmas import SigmaReader, Sigmas

Values = NDArray[np.float64]

NO_UNCERTAINTY = "has no uncertainty: it places an item at a point, not in a distribution"
NO_VARIANCE = "gives probabilities, but keeps no variance of an item"


def uncertainty(material: Material) -> Findings:
    """Rank correlations and bins for every annotator that gives a variance; which of the others give none.

    Raises:
        MetricError: nothing is judged and no truth is known, or no annotator gives a variance.
    """
    if not material.answers and not material.has_truth:
        raise MetricError(NO_JUDGEMENTS)
    found: list[Uncertainty] = []
    without: dict[str, str] = {}
    for row in material.known.annotators:
        if row.name not in material.names:
            continue
        if row.kind is not AnnotatorKind.PROBABILITY:
            without[row.name] = NO_UNCERTAINTY
        else:
            measured = _of_annotator(material, row.name)
            found += measured
            if not measured:
                without[row.name] = NO_VARIANCE
    if not found:
        raise MetricError(_nobody(without))
    return Findings(
        counts={"annotators": _counts(found), "without": without},
        tables=(_table(found), _bin_table(found)),
        lines=tuple(f"{name} {reason}" for name, reason in without.items()),
        rows={"uncertainty": _bin_rows(found)},
        drawings={"uncertainty": partial(uncertainty_svg, found)},
    )


def _nobody(without: dict[str, str]) -> str:
    names = ", ".join(without) or "none has proposed anything"
    return f"no annotator here gives an uncertainty ({names}); PCME and its kin do"


def _of_annotator(material: Material, name: str) -> list[Uncertainty]:
    """Both directions, against the judged positives and the true ones; nothing where it keeps no variance."""
    found = []
    sigmas = SigmaReader(material, name)
    for direction in Direction:
        queries = material.known.queries[direction]
        measured = sigmas.of(direction, queries) if queries else None
        if measured is None:
            continue
        found += [
            _one(name, direction, against, measured, counts)
            for against, counts in _positives(material, direction, queries)
        ]
    return found


def _positives(material: Material, direction: Direction, queries: Sequence[int]) -> list[tuple[str, Values]]:
    """Positives of each query: of the release as it would be now, and true ones in a generated world."""
    found: list[tuple[str, Values]] = []
    if material.answers:
        merged = listed_queries(material.merged, material.known.queries)[direction]
        found.append(("judged", np.array([len(merged.get(query, ())) for query in queries], np.float64)))
    if material.has_truth and queries:
        codes = material.truth_codes(direction, queries)
        found.append(("truth", (codes <= Label.WEAK_YES.code).sum(1).astype(np.float64)))
    return found


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


def _counts(found: Sequence[Uncertainty]) -> list[dict[str, object]]:
    return [
        {
            "annotator": one.annotator,
            "direction": one.direction.value,
            "measure": one.measure,
            "positives": one.against,
            "queries": one.queries,
            "tau": one.tau,
            "spearman": one.spearman,
            "bins": [
                {"low": part.low, "high": part.high, "queries": part.queries, "positives": part.positives}
                for part in one.bins
            ],
        }
        for one in found
    ]


def _table(found: Sequence[Uncertainty]) -> Table:
    rows = tuple(
        (one.annotator, one.direction.value, one.against, one.queries, number(one.tau), number(one.spearman))
        for one in found
    )
    columns = ("annotator", "direction", "positives", "queries", "tau-b", "Spearman")
    return Table("uncertainty of a query and its number of positives", columns, rows)


def _bin_table(found: Sequence[Uncertainty]) -> Table:
    """From the least to the most uncertain queries, the mean number of positives."""
    width = max(len(one.bins) for one in found)
    rows = tuple(
        (
            one.annotator,
            one.direction.value,
            one.against,
            *(number(part.positives, 1) for part in one.bins),
            *(None for _ in range(width - len(one.bins))),
        )
        for one in found
    )
    heading = ("annotator", "direction", "positives", *(str(place + 1) for place in range(width)))
    return Table("mean positives by bins of rising uncertainty", heading, rows)


def _bin_rows(found: Sequence[Uncertainty]) -> Table:
    rows = tuple(
        (
            one.annotator,
            one.direction.value,
            one.against,
            place,
            *(part.low, part.high, part.queries, part.positives),
        )
        for one in found
        for place, part in enumerate(one.bins, 1)
    )
    columns = ("annotator", "direction", "positives_of", "bin", "low", "high", "queries", "positives")
    return Table("", columns, rows)
