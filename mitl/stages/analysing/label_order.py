"""Kendall's tau between an annotator's ranking and the graded answers of people."""

from __future__ import annotations

import numpy as np

from mitl.analysis.machines.order_agreement import label_taus
from mitl.analysis.machines.records import LabelOrder
from mitl.records import Direction, Table
from mitl.stages.analysing.bias_pairs import judged_only
from mitl.stages.analysing.findings import Findings
from mitl.stages.analysing.material import Material, item_of, query_of
from mitl.stages.analysing.shown import number


def label_orders(material: Material) -> tuple[LabelOrder, ...]:
    """One for each annotator and direction; MetricError where nothing is judged or no rankings are kept."""
    material.require_judgements()
    return tuple(
        found for direction in material.ranked_directions for found in _of_direction(material, direction)
    )


def _of_direction(material: Material, direction: Direction) -> list[LabelOrder]:
    lists = judged_only(material.lists(direction), material, direction)
    place = {query: row for row, query in enumerate(lists.query_ids.tolist())}
    judged = [
        (place[query_of(pair, direction)], item_of(pair, direction), answer.label.code)
        for pair, answer in material.answers.items()
        if query_of(pair, direction) in place
    ]
    queries, items, codes = np.array(judged, np.int64).T
    found = []
    for name, ranking in zip(lists.annotators, lists.items, strict=True):
        taus = label_taus(ranking, queries, items, codes)
        known = taus[~np.isnan(taus)]
        mean = float(known.mean()) if len(known) else None
        found.append(LabelOrder(name, direction, mean, len(known), len(taus) - len(known)))
    return found


def label_order(material: Material) -> Findings:
    """The table of all annotators and directions."""
    found = label_orders(material)
    rows = tuple((one.annotator, one.direction.value, one.tau, one.queries, one.undefined) for one in found)
    counts: dict[str, dict[str, object]] = {}
    for one in found:
        by_direction = counts.setdefault(one.annotator, {})
        by_direction[one.direction.value] = {
            "tau": one.tau,
            "queries": one.queries,
            "undefined": one.undefined,
        }
    columns = ("annotator", "direction", "tau_b", "queries", "undefined")
    return Findings(
        counts=counts,
        tables=(
            Table(
                "Kendall's tau-b of rankings and graded answers, mean over queries",
                ("annotator", "direction", "tau-b", "queries", "undefined"),
                tuple((*row[:2], number(row[2]), *row[3:]) for row in rows),
            ),
        ),
        lines=(
            "over a query's judged pairs; those that a ranking does not hold stand together behind its last",
        ),
        rows={"label-order": Table("", columns, rows)},
    )
