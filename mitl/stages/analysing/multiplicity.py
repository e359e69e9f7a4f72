"""Fig. 3a and Table 3: how many positives queries have, before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial

from mitl.analysis.machines.multiplicity import Spread, spread
from mitl.analysis.report.plots import multiplicity_svg
from mitl.errors import MetricError
from mitl.records import Direction, Table
from mitl.stages.analysing.findings import Findings
from mitl.stages.analysing.funnel import multiplicities
from mitl.stages.analysing.material import NO_JUDGEMENTS, Material
from mitl.stages.analysing.shown import percent


def multiplicity(material: Material) -> Findings:
    """Positives of each query in the original annotation and in what a release would hold."""
    if not material.known.judgements and not material.known.ratings:
        raise MetricError(NO_JUDGEMENTS)
    found = multiplicities(material.known, material.merged, material.answers)
    if not found:
        raise MetricError(
            "no query with an answered candidate; run `mitl propose`, then `mitl publish --sandbox`"
        )
    spreads = {one.direction: {"original": spread(one.before), "release": spread(one.after)} for one in found}
    return Findings(
        counts={d.value: {name: asdict(one) for name, one in sets.items()} for d, sets in spreads.items()},
        tables=(_spread_table(spreads),),
        lines=(
            "release: what `mitl build-dataset` would write by the rules of the latest release",
            *(
                f"{one.direction}: over the {len(one.after):,} of {one.queries:,} queries that people looked at; "
                f"{one.answered:,} of {one.candidates:,} candidate pairs are answered so far"
                for one in found
                if material.answers and not one.complete
            ),
        ),
        rows={"multiplicity": _histogram_rows(spreads)},
        drawings={"multiplicity": partial(multiplicity_svg, found)},
    )


def _spread_table(spreads: Mapping[Direction, Mapping[str, Spread]]) -> Table:
    rows = [
        (
            direction.value,
            name,
            one.queries,
            one.positives,
            f"×{one.positives / sets['original'].positives:.2f}" if sets["original"].positives else None,
            f"{one.mean:.2f}",
            f"{one.median:g}",
            one.most,
            percent(one.without / one.queries),
        )
        for direction, sets in spreads.items()
        for name, one in sets.items()
    ]
    columns = (
        "direction",
        "set",
        "queries",
        "positives",
        "of original",
        "mean",
        "median",
        "most",
        "% without",
    )
    return Table("positives of a query", columns, tuple(rows))


def _histogram_rows(spreads: Mapping[Direction, Mapping[str, Spread]]) -> Table:
    rows = [
        (direction.value, name, positives, queries)
        for direction, sets in spreads.items()
        for name, one in sets.items()
        for positives, queries in enumerate(one.histogram)
    ]
    return Table("", ("direction", "set", "positives", "queries"), tuple(rows))
