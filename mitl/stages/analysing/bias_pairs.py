"""The positive pairs that bias is measured on: as people judged them, as they truly are, and all that is true."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mitl.analysis.machines.graded_matching import GRADES, GradedPairs
from mitl.errors import MetricError
from mitl.records import Direction, Label, Pair
from mitl.stages.analysing.material import Lists, Material, item_of, query_of

Ids = NDArray[np.int64]

_GRADE_OF_CODE = np.array([0.0, *(GRADES[label] for label in Label)])
"""Label code, from 1 → grade."""


def judged_only(lists: Lists, material: Material, direction: Direction) -> Lists:
    """The lists of the queries with a pair that people judged; MetricError where there is none."""
    judged = {query_of(pair, direction) for pair in material.answers}
    kept = np.isin(lists.query_ids, np.array(sorted(judged), np.int64))
    if not kept.any():
        raise MetricError(f"no {direction} query with kept rankings has a judged pair; run `mitl harvest`")
    return Lists(lists.annotators, lists.query_ids[kept], lists.items[:, kept])


def proposers_of(material: Material, names: Sequence[str]) -> dict[Pair, int]:
    """Judged pair → the annotators that proposed it, whichever direction found it, as bits."""
    bits = {name: 1 << place for place, name in enumerate(names)}
    found: dict[Pair, int] = {}
    for proposal in material.known.proposals:
        if proposal.annotator in bits and proposal.pair in material.answers:
            found[proposal.pair] = found.get(proposal.pair, 0) | bits[proposal.annotator]
    return found


def judged_pairs(
    material: Material, direction: Direction, lists: Lists, proposers: Mapping[Pair, int]
) -> GradedPairs:
    """The proposed pairs of these queries that people called a match, with their answers' grades."""
    rows, items, pairs = _placed(direction, lists, proposers)
    codes = np.array([material.answers[pair].label.code for pair in pairs], np.int64)
    bits = np.array([proposers[pair] for pair in pairs], np.int64)
    return _positive(rows, items, codes, bits)


def true_pairs(
    material: Material, direction: Direction, lists: Lists, proposers: Mapping[Pair, int]
) -> tuple[GradedPairs, GradedPairs]:
    """In a generated world: every match of these queries, for all annotators alike, and the judged pairs' matches.

    The second holds the pairs of ``judged_pairs`` and those that people wrongly refused, with their true labels.
    """
    truth = material.truth_codes(direction, lists.query_ids.tolist())  # (Q, G)
    gallery = material.gallery(direction)
    places = np.nonzero(truth <= Label.WEAK_YES.code)
    everyone = np.full(len(places[0]), (1 << len(lists.annotators)) - 1, np.int64)
    true = _positive(places[0].astype(np.int64), gallery[places[1]], truth[places].astype(np.int64), everyone)
    rows, items, pairs = _placed(direction, lists, proposers)
    codes = truth[rows, np.searchsorted(gallery, items)].astype(np.int64)
    return true, _positive(rows, items, codes, np.array([proposers[pair] for pair in pairs], np.int64))


def most_positives(*sets: GradedPairs | None) -> int:
    """The largest R of a query in any of the sets."""
    return max(int(np.bincount(pairs.queries).max(initial=0)) for pairs in sets if pairs is not None)


def _placed(direction: Direction, lists: Lists, proposers: Mapping[Pair, int]) -> tuple[Ids, Ids, list[Pair]]:
    """Place of the query, item and pair of each proposed pair of these queries."""
    place = {query: row for row, query in enumerate(lists.query_ids.tolist())}
    pairs = [pair for pair in proposers if query_of(pair, direction) in place]
    rows = np.array([place[query_of(pair, direction)] for pair in pairs], np.int64)
    return rows, np.array([item_of(pair, direction) for pair in pairs], np.int64), pairs


def _positive(rows: Ids, items: Ids, codes: Ids, proposers: Ids) -> GradedPairs:
    grades = _GRADE_OF_CODE[codes]
    kept = grades > 0
    return GradedPairs(rows[kept], items[kept], grades[kept], proposers[kept])
