"""Table A.1: how differently the annotators rank."""

from __future__ import annotations

from functools import partial

import numpy as np

from mitl.analysis.diversity import Items, mutual_rank_table, tau_table
from mitl.analysis.machines.metric_correlation import as_matrix
from mitl.analysis.machines.records import Diversity
from mitl.analysis.report.plots.machines import matrix_svg
from mitl.errors import MetricError
from mitl.records import Direction, Table
from mitl.stages.analysing.findings import Findings
from mitl.stages.analysing.material import Lists, Material
from mitl.stages.analysing.shown import square


def diversity_tables(material: Material) -> tuple[Diversity, ...]:
    """One for each direction that has queries.

    Raises:
        MetricError: no rankings are kept, or there are fewer than two annotators.
    """
    return tuple(_diversity(direction, material.lists(direction)) for direction in material.ranked_directions)


def _diversity(direction: Direction, lists: Lists) -> Diversity:
    if len(lists.annotators) < 2:
        raise MetricError(
            f"diversity takes two annotators, but there are {direction} rankings of {lists.annotators[0]!r} alone"
        )
    items = list(lists.items)
    first = lists.items[:, :, :1]  # (A, Q, 1)
    held = [[float((row[:, :1] == column).any(1).mean()) for column in items] for row in first]
    return Diversity(
        direction=direction,
        annotators=lists.annotators,
        queries=len(lists.query_ids),
        depth=lists.depth,
        tau=as_matrix(tau_table(items, Items.UNION)),
        tau_common=as_matrix(tau_table(items, Items.COMMON)),
        mutual_rank=as_matrix(mutual_rank_table(items)),
        beyond=as_matrix(1 - np.array(held)),
    )


def diversity(material: Material) -> Findings:
    """The tables of both directions."""
    found = diversity_tables(material)
    return Findings(
        counts={one.direction.value: _counts(one) for one in found},
        tables=tuple(table for one in found for table in _tables(one)),
        lines=("a first item that the other's list does not hold counts as one rank behind its last",),
        rows={"diversity": _rows(found)},
        drawings={
            f"diversity-{one.direction}": partial(
                matrix_svg,
                one.annotators,
                one.tau,
                name=f"diversity-{one.direction}",
                title=f"Kendall's tau-b of the top {one.depth}, {one.direction}",
            )
            for one in found
        },
    )


def _counts(one: Diversity) -> dict[str, object]:
    names = one.annotators
    return {
        "queries": one.queries,
        "depth": one.depth,
        **{
            key: {
                row: {column: matrix[i][j] for j, column in enumerate(names) if i != j}
                for i, row in enumerate(names)
            }
            for key, matrix in (
                ("tau", one.tau),
                ("tau_common", one.tau_common),
                ("mutual_rank", one.mutual_rank),
                ("beyond", one.beyond),
            )
        },
    }


def _tables(one: Diversity) -> tuple[Table, ...]:
    over = f"{one.direction}, top {one.depth} of {one.queries:,} queries"
    return (
        square(f"Kendall's tau-b · {over}, items of either list", one.annotators, one.tau),
        square(f"Kendall's tau-b · {over}, items of both lists", one.annotators, one.tau_common),
        square(
            f"mean rank of the row's first item by the column · {over}", one.annotators, one.mutual_rank, 2
        ),
    )


def _rows(found: tuple[Diversity, ...]) -> Table:
    rows = [
        (one.direction.value, row, column, *(m[i][j] for m in _matrices(one)), one.queries, one.depth)
        for one in found
        for i, row in enumerate(one.annotators)
        for j, column in enumerate(one.annotators)
        if i != j
    ]
    columns = ("direction", "annotator", "other", "tau_b", "tau_b_common", "mutual_rank", "beyond")
    return Table("", (*columns, "queries", "depth"), tuple(rows))


def _matrices(one: Diversity) -> tuple[tuple[tuple[float | None, ...], ...], ...]:
    return one.tau, one.tau_common, one.mutual_rank, one.beyond
