"""How complete the verified positives can be at most: Chao's bound from how many annotators proposed each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from mitl.analysis.report.inputs import Section
from mitl.audits.chao import Completeness, chao
from mitl.core.arrays import contains, distinct, pack_each
from mitl.core.formats import percent_at_most
from mitl.errors import AuditError, MetricError
from mitl.records import Direction, several
from mitl.stages.analysing.snapshot import query_and_item
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
)


@dataclass(frozen=True, slots=True)
class Incidence:
    """One direction: what the annotators' proposals say of the matches that none of them proposed."""

    direction: Direction
    annotators: int
    queries: int
    """Those that all of them searched: what one alone searched would look as if the others had missed it."""
    bound: Completeness
    known_missed: int
    """Original pairs of these queries that no annotator proposed in this direction: missing matches that are known."""


def incidences(of: AnalysisInput) -> tuple[Incidence, ...]:
    """One for each direction with queries that all of two annotators or more searched; by people's answers alone.

    Raises:
        MetricError: nobody has judged a pair, or no two annotators proposed for the same queries.
    """
    project = of.project
    if not len(project.positive):
        raise MetricError(
            NO_JUDGEMENTS if project.answers.empty else "people have not called any pair a match"
        )
    rows, why = [], "no annotator has proposed a pair; run `mitl propose`"
    of_chosen = project.proposals[project.proposals["annotator"].isin(of.names)]
    for way, direction in enumerate(Direction):
        proposed = of_chosen[of_chosen["direction"] == way]
        if proposed.empty:
            continue
        of_annotator = [
            query_and_item(pairs, direction)[0]
            for pairs in proposed.groupby("annotator", observed=True)["pair"].apply(np.asarray)
        ]
        queries = reduce(np.intersect1d, of_annotator)
        # Each pair stands once for each annotator of the direction.
        pairs, times = np.unique(proposed["pair"].to_numpy(), return_counts=True)
        counted = contains(project.positive, pairs) & contains(queries, query_and_item(pairs, direction)[0])
        try:
            bound = chao(times[counted], len(of_annotator))
        except AuditError as error:
            why = str(error)
            continue
        if not len(queries):
            why = "the annotators have searched for no query in common; let all of them propose for the same queries"
            continue
        originals = pack_each(project.originals)
        known = contains(pairs, originals) | (
            contains(project.answered, originals) & ~contains(project.positive, originals)
        )
        missed = contains(queries, query_and_item(originals, direction)[0]) & ~known
        rows.append(Incidence(direction, len(of_annotator), len(queries), bound, int(missed.sum())))
    if not rows:
        raise MetricError(why)
    return tuple(rows)


_whole = partial(number, digits=0)
_COLUMNS: tuple[Column[Incidence], ...] = (
    Column("direction", lambda row: row.direction.value),
    Column("annotators", lambda row: row.annotators),
    Column("queries", lambda row: row.queries),
    Column("found", lambda row: row.bound.found),
    Column("by_one", lambda row: row.bound.once, "by one"),
    Column("by_two", lambda row: row.bound.twice, "by two"),
    Column("at_least", lambda row: row.bound.total, "all, at least", _whole),
    Column("standard_error", lambda row: row.bound.standard_error, "± (s.e.)", _whole),
    Column("low", lambda row: row.bound.low, shown=_whole),
    Column("high", lambda row: row.bound.high, shown=_whole),
    Column("recall_at_most", lambda row: row.bound.at_most, "recall at most", percent_at_most),
    Column("originals_missed", lambda row: row.known_missed, "originals missed"),
)


def _show(rows: Sequence[Incidence], of: AnalysisInput) -> Findings:
    """How many annotators proposed each verified match, and what follows for those that none proposed."""
    project = of.project
    asked = distinct(project.askable["pair"].to_numpy())
    open_pairs = int((~contains(project.answered, asked)).sum())
    return Findings(
        counts={row.direction.value: for_json(_COLUMNS[1:], row) for row in rows},
        tables=(
            for_people("matches that people confirmed, by how many annotators proposed them", _COLUMNS, rows),
        ),
        lines=(
            "Chao's bound is a lower bound of the matches that there are, so the recall is at most what it says: "
            "annotators that fail on the same pairs leave more than it can see; only an audit bounds recall from below",
            *(
                f"in {row.direction} no annotator proposed {several(row.known_missed, 'original')}, more than the "
                f"{row.bound.missing:,.0f} that the bound expects"
                for row in rows
                if row.known_missed > row.bound.missing
            ),
            *(
                [
                    f"without an answer yet: {several(open_pairs, 'candidate pair')}; matches there count nowhere"
                ]
                if open_pairs
                else []
            ),
        ),
        rows={"completeness": for_files(_COLUMNS, rows)},
    )


COMPLETENESS = Analysis(
    "completeness",
    incidences,
    _show,
    section=Section("completeness", "Completeness", "How complete it can be at most", "Positives"),
)
