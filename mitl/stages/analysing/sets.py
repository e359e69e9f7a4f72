"""Table 2: precision and recall of existing sets of positives against what people verified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from mitl.core.arrays import unpack_pairs
from mitl.datasets.cxc import POSITIVE_FROM
from mitl.errors import ReleaseError
from mitl.positives.folders import require_one_dataset
from mitl.positives.sources import ByQuery, Quality, Verified, quality, read_set
from mitl.records import Direction, Pair
from mitl.stages.analysing.snapshot import ProjectSnapshot
from mitl.stages.analysing.table import (
    Analysis,
    AnalysisInput,
    Column,
    Findings,
    for_files,
    for_people,
    percent,
)

ComparedSet = tuple[str, Direction, Quality]
"""(set, direction, its quality)."""


def _compare(of: AnalysisInput) -> dict[str, dict[Direction, Quality]]:
    """The project's originals, its CxC ratings where it has them, and the sets named, on the project's queries.

    Raises:
        MetricError: nothing is judged.
        ReleaseError: a set cannot be read, is of another data set, or lists none of the project's queries.
    """
    of.require_judgements()
    project = of.project
    images, captions = project.image_ids, project.caption_ids
    judged, positive = (
        frozenset((images[pair.image_id], captions[pair.caption_id]) for pair in unpack_pairs(pairs))
        for pairs in (project.answered, project.positive)
    )
    verified = Verified(judged, positive)
    queries = {d: [project.sides(d)[0][query] for query in project.queries[d]] for d in Direction}
    return {
        name: {d: quality(by_query.get(d, {}), verified, queries[d], d) for d in Direction if queries[d]}
        for name, by_query in _sets(project, of.options.sets, queries).items()
    }


def _sets(
    project: ProjectSnapshot, names: Sequence[str], queries: Mapping[Direction, Sequence[str]]
) -> dict[str, Mapping[Direction, ByQuery]]:
    sets: dict[str, Mapping[Direction, ByQuery]] = {"original": _by_query(project, project.originals)}
    rated = [pair for pair, score in project.ratings.items() if score >= POSITIVE_FROM]
    if rated:
        sets["cxc"] = _by_query(project, rated)
    for name in names:
        named = read_set(name, lambda: project.image_of_caption)
        this_project = "this project", project.dataset.content_sha256
        require_one_dataset(this_project, (name, named.dataset_sha256))
        sets[name] = named.positives.by_query
        if not any(set(sets[name].get(d, {})) & set(queries[d]) for d in Direction):
            raise ReleaseError(
                f"{name} lists none of this project's queries; give a set of the same data set"
            )
    return sets


def _by_query(project: ProjectSnapshot, pairs: Sequence[Pair]) -> dict[Direction, dict[str, set[str]]]:
    by_query: dict[Direction, dict[str, set[str]]] = {direction: {} for direction in Direction}
    for direction, of_direction in by_query.items():
        queries, gallery = project.sides(direction)
        for pair in pairs:
            query, item = direction.ordered(*pair)
            of_direction.setdefault(queries[query], set()).add(gallery[item])
    return by_query


QUALITIES: tuple[Column[ComparedSet], ...] = (
    Column("set", lambda row: row[0]),
    Column("direction", lambda row: row[1].value),
    Column("precision", lambda row: row[2].precision, shown=percent),
    Column("recall", lambda row: row[2].recall, shown=percent),
    Column("queries", lambda row: row[2].queries),
    Column("left_out", lambda row: row[2].dropped, "left out"),
)


def compared_sets(qualities: Mapping[str, Mapping[Direction, Quality]]) -> list[ComparedSet]:
    """A row of ``QUALITIES`` for each set and direction."""
    return [(name, d, measured) for name, by in qualities.items() for d, measured in by.items()]


def _show(qualities: Mapping[str, Mapping[Direction, Quality]], _: AnalysisInput) -> Findings:
    rows = compared_sets(qualities)
    return Findings(
        counts={
            name: {d.value: asdict(measured) for d, measured in by.items()} for name, by in qualities.items()
        },
        tables=(for_people("existing sets against the verified pairs, in percent", QUALITIES, rows),),
        lines=(
            "over the pairs that people looked at; a query is left out where they looked at none of its positives",
        ),
        rows={"sets": for_files(QUALITIES, rows)},
    )


SETS = Analysis("sets", _compare, _show)
