"""Fig. 3a and Table 3: how many positives queries have, before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from mitl.analysis.report.inputs import Multiplicity
from mitl.analysis.report.plots import multiplicity_svg
from mitl.analysis.uncertainty import CountSpread, spread
from mitl.core.arrays import contains, distinct, pack_each
from mitl.core.formats import times
from mitl.errors import MetricError
from mitl.positives.merging import listed_queries
from mitl.records import Direction, Table
from mitl.stages.analysing.snapshot import ProjectSnapshot, query_and_item
from mitl.stages.analysing.table import (
    NO_JUDGEMENTS,
    Analysis,
    AnalysisInput,
    Column,
    Findings,
    for_people,
    percent,
)


def multiplicities(project: ProjectSnapshot) -> tuple[Multiplicity, ...]:
    """Positives of each query before and after, by direction.

    Where people answered anything, of the queries with an answered candidate; else, as for CxC's ratings alone, of all.
    What withdrawn annotators alone proposed is a candidate only where it is answered: nobody will be asked about it.
    """
    after = listed_queries(project.merged, project.queries)
    rows = []
    found = project.proposals
    standing = ~found["annotator"].isin(project.withdrawn)
    stay = found[standing | contains(project.answered, found["pair"].to_numpy())]
    for way, direction in enumerate(Direction):
        candidates = distinct(stay.loc[stay["direction"] == way, "pair"].to_numpy())
        answered = candidates[contains(project.answered, candidates)]
        looked_at = set(query_and_item(answered, direction)[0].tolist())
        queries = [
            query for query in project.queries[direction] if project.answers.empty or query in looked_at
        ]
        before = Counter(query_and_item(pack_each(project.originals), direction)[0].tolist())
        if queries:
            rows.append(
                Multiplicity(
                    direction=direction,
                    before=tuple(before[query] for query in queries),
                    after=tuple(len(after[direction].get(query, ())) for query in queries),
                    queries=len(project.queries[direction]),
                    candidates=len(candidates),
                    answered=len(answered),
                )
            )
    return tuple(rows)


def _compute(of: AnalysisInput) -> tuple[Multiplicity, ...]:
    if of.project.judgements.empty and not of.project.ratings:
        raise MetricError(NO_JUDGEMENTS)
    rows = multiplicities(of.project)
    if not rows:
        raise MetricError("no query has an answered candidate; `mitl status` says what comes first")
    return rows


@dataclass(frozen=True, slots=True)
class _Row:
    """One set in one direction."""

    direction: Direction
    set: str
    spread: CountSpread
    original: CountSpread


_COLUMNS: tuple[Column[_Row], ...] = (
    Column("direction", lambda row: row.direction.value),
    Column("set", lambda row: row.set),
    Column("queries", lambda row: row.spread.queries),
    Column("positives", lambda row: row.spread.positives),
    Column("of original", lambda row: times(row.spread.positives, row.original.positives)),
    Column("mean", lambda row: row.spread.mean, shown="{:.2f}".format),
    Column("median", lambda row: row.spread.median, shown="{:g}".format),
    Column("most", lambda row: row.spread.most),
    Column("% without", lambda row: row.spread.without / row.spread.queries, shown=percent),
)


def _show(made: Sequence[Multiplicity], of: AnalysisInput) -> Findings:
    """Positives of each query in the original annotation and in what a release would hold."""
    rows = [
        _Row(multiplicity.direction, name, spread(counts), spread(multiplicity.before))
        for multiplicity in made
        for name, counts in (("original", multiplicity.before), ("release", multiplicity.after))
    ]
    counts: dict[str, dict[str, Mapping[str, object]]] = {}
    for row in rows:
        counts.setdefault(row.direction.value, {})[row.set] = asdict(row.spread)
    histogram = tuple(
        (row.direction.value, row.set, positives, queries)
        for row in rows
        for positives, queries in enumerate(row.spread.histogram)
    )
    return Findings(
        counts=counts,
        tables=(for_people("positives of a query", _COLUMNS, rows),),
        lines=(
            "release: what `mitl build-dataset` would write by the rules of the latest release, but for what an audit "
            "alone found",
            *(
                f"{multiplicity.direction}: over the {len(multiplicity.after):,} of {multiplicity.queries:,} queries "
                "that people looked at; "
                f"answered so far: {multiplicity.answered:,} of {multiplicity.candidates:,} candidate pairs"
                for multiplicity in made
                if not of.project.answers.empty and not multiplicity.complete
            ),
        ),
        rows={"multiplicity": Table("", ("direction", "set", "positives", "queries"), histogram)},
        drawings={"multiplicity": partial(multiplicity_svg, made, of.project.dataset.form)},
    )


MULTIPLICITY = Analysis("multiplicity", _compute, _show)
