"""The kept rankings: how differently the annotators rank (Table A.1), and how well in the order of graded answers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from mitl.analysis.correlations import as_matrix
from mitl.analysis.diversity import Items, label_taus, mutual_rank_table, tau_table
from mitl.analysis.records import Diversity, LabelOrder, Matrix
from mitl.analysis.report.machine_plots import matrix_svg
from mitl.core.arrays import places
from mitl.records import Direction, Table
from mitl.stages.analysing.snapshot import query_and_item
from mitl.stages.analysing.table import (
    Analysis,
    AnalysisInput,
    Column,
    Findings,
    Lists,
    for_files,
    for_json,
    for_people,
    number,
    off_diagonal,
    square,
)


def _diversities(of: AnalysisInput) -> tuple[Diversity, ...]:
    """One for each direction that two annotators rank; MetricError without any."""
    return of.by_direction(lambda direction: [_diversity(direction, of.lists(direction))])


def _diversity(direction: Direction, lists: Lists) -> Diversity:
    lists.require_two("diversity", direction)
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


def _matrices(diversity: Diversity) -> dict[str, Matrix]:
    return {name: getattr(diversity, name) for name in ("tau", "tau_common", "mutual_rank", "beyond")}


def _show_diversity(diversities: Sequence[Diversity], made_of: AnalysisInput) -> Findings:
    rows = [
        (of.direction.value, row, column, *(m[i][j] for m in _matrices(of).values()), of.queries, of.depth)
        for of in diversities
        for i, row in enumerate(of.annotators)
        for j, column in enumerate(of.annotators)
        if i != j
    ]
    columns = ("direction", "annotator", "other", "tau_b", "tau_b_common", "mutual_rank", "beyond")
    return Findings(
        counts={
            of.direction.value: {
                "queries": of.queries,
                "depth": of.depth,
                **{key: off_diagonal(of.annotators, matrix) for key, matrix in _matrices(of).items()},
            }
            for of in diversities
        },
        tables=tuple(table for of in diversities for table in _diversity_tables(of)),
        lines=("a first item that the other's list does not hold counts as one rank behind its last",),
        rows={"diversity": Table("", (*columns, "queries", "depth"), tuple(rows))},
        drawings={
            f"diversity-{of.direction}": partial(
                matrix_svg,
                of.annotators,
                of.tau,
                name=f"diversity-{of.direction}",
                title=f"Kendall's tau-b of the top {of.depth}, {made_of.project.dataset.ways[of.direction]}",
            )
            for of in diversities
        },
    )


def _diversity_tables(of: Diversity) -> tuple[Table, ...]:
    over = f"{of.direction}, top {of.depth} of {of.queries:,} queries"
    first = f"mean rank of the row's first item by the column · {over}"
    return (
        square(f"Kendall's tau-b · {over}, items of either list", of.annotators, of.tau),
        square(f"Kendall's tau-b · {over}, items of both lists", of.annotators, of.tau_common),
        square(first, of.annotators, of.mutual_rank, 2),
    )


def _label_orders(of: AnalysisInput) -> tuple[LabelOrder, ...]:
    """One for each annotator and direction; MetricError where nothing is judged or no rankings are kept."""
    of.require_judgements()
    return of.by_direction(lambda direction: _label_order(of, direction))


def _label_order(of: AnalysisInput, direction: Direction) -> list[LabelOrder]:
    lists = of.judged_lists(direction)
    queries, items = query_and_item(of.project.answered, direction)
    queries = places(lists.query_ids, queries)
    ranked, codes = queries >= 0, of.project.answers["label"].to_numpy(np.int64) + 1
    queries, items, codes = queries[ranked], items[ranked], codes[ranked]
    orders = []
    for name, ranking in zip(lists.annotators, lists.items, strict=True):
        taus = label_taus(ranking, queries, items, codes)
        defined = taus[~np.isnan(taus)]
        mean = float(defined.mean()) if len(defined) else None
        orders.append(LabelOrder(name, direction, mean, len(defined), len(taus) - len(defined)))
    return orders


_ORDER: tuple[Column[LabelOrder], ...] = (
    Column("annotator", lambda row: row.annotator),
    Column("direction", lambda row: row.direction.value),
    Column("tau_b", lambda row: row.tau, "tau-b", number),
    Column("queries", lambda row: row.queries),
    Column("undefined", lambda row: row.undefined),
)


def _show_label_order(orders: Sequence[LabelOrder], _: AnalysisInput) -> Findings:
    counts: dict[str, dict[str, object]] = {}
    for order in orders:
        tau, *rest = _ORDER[2:]
        by_direction = counts.setdefault(order.annotator, {})
        by_direction[order.direction.value] = {"tau": tau.value(order), **for_json(rest, order)}
    return Findings(
        counts=counts,
        tables=(
            for_people("Kendall's tau-b of rankings and graded answers, mean over queries", _ORDER, orders),
        ),
        lines=(
            "over a query's judged pairs; those that a ranking does not hold stand together behind its last",
        ),
        rows={"label-order": for_files(_ORDER, orders)},
    )


DIVERSITY = Analysis("diversity", _diversities, _show_diversity)
LABEL_ORDER = Analysis("label-order", _label_orders, _show_label_order)
