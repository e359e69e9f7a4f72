"""Appendix E: what the choice of the proposing annotators does to scores, and how far from the truth they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mitl.analysis.machines.bias import all_subsets, bias_by_size, used_by
from mitl.analysis.machines.graded_matching import GradedScores, graded_scores
from mitl.analysis.machines.metric_correlation import as_matrix
from mitl.analysis.machines.records import R_AT_1, R_PRECISION, Bias, SizeBias, SubsetScores
from mitl.errors import MetricError
from mitl.records import Direction
from mitl.stages.analysing.bias_pairs import (
    judged_only,
    judged_pairs,
    most_positives,
    proposers_of,
    true_pairs,
)
from mitl.stages.analysing.material import Lists, Material

Ids = NDArray[np.int64]

ANALYSIS_FOLDER = "analysis"
"""Within the runs: rankings that were made deeper for an analysis."""


@dataclass(frozen=True, slots=True, eq=False)
class _Scored:
    """The scores of one direction under every subset, and under the truth where it is known."""

    judged: GradedScores
    selected: GradedScores | None
    """The judged pairs with their true labels."""
    truth: GradedScores | None
    without_positive: int


def bias_tables(material: Material, *, deep: bool = False) -> tuple[Bias, ...]:
    """Both metrics of each direction, under the positives of every subset of the annotators.

    The queries are those with a pair that people judged. A pair belongs to every annotator that proposed it, whichever
    direction found it: it would have been asked had only those annotators been there.

    Args:
        deep: rank as deep as the largest R by the annotators themselves, in place of the kept rankings.

    Raises:
        MetricError: nothing is judged, no rankings are kept, or there are fewer than two or too many annotators.
    """
    material.require_judgements()
    return tuple(
        bias
        for direction in material.ranked_directions
        for bias in _of_direction(material, direction, deep=deep)
    )


def _of_direction(material: Material, direction: Direction, *, deep: bool) -> tuple[Bias, ...]:
    lists = judged_only(material.lists(direction), material, direction)
    if len(lists.annotators) < 2:
        raise MetricError(
            f"bias takes two annotators, but there are {direction} rankings of {lists.annotators[0]!r} alone"
        )
    subsets = all_subsets(len(lists.annotators))
    proposers = proposers_of(material, lists.annotators)
    judged = judged_pairs(material, direction, lists, proposers)
    true, selected = true_pairs(material, direction, lists, proposers) if material.has_truth else (None, None)
    if deep:
        lists = _deeper(material, direction, lists, max(lists.depth, most_positives(judged, true)))
    scored = _Scored(
        judged=graded_scores(lists.items, judged, subsets),
        selected=None if selected is None else graded_scores(lists.items, selected, subsets),
        truth=None if true is None else graded_scores(lists.items, true, subsets[-1:]),
        without_positive=len(lists.query_ids) - len(np.unique(judged.queries)),
    )
    return tuple(_bias(direction, metric, lists, subsets, scored) for metric in (R_AT_1, R_PRECISION))


def _bias(direction: Direction, metric: str, lists: Lists, subsets: Ids, scored: _Scored) -> Bias:
    names = lists.annotators
    used = used_by(subsets, len(names))
    scores = _values(scored.judged, metric)
    deeper = 0 if scored.truth is None else scored.truth.capped
    true_scores = None
    if scored.truth is not None and (metric == R_AT_1 or not deeper):
        true_scores = _values(scored.truth, metric)[0]
    against_truth: tuple[SizeBias, ...] = ()
    against_selection: tuple[SizeBias, ...] = ()
    if true_scores is not None and scored.selected is not None:
        against_truth = bias_by_size(scores, used, true_scores)
        against_selection = bias_by_size(_values(scored.selected, metric), used, true_scores)
    return Bias(
        direction=direction,
        metric=metric,
        annotators=names,
        queries=len(lists.query_ids),
        without_positive=scored.without_positive,
        depth=lists.depth,
        capped=scored.judged.capped,
        subsets=tuple(
            SubsetScores(tuple(name for name, is_in in zip(names, row, strict=True) if is_in), values)
            for row, values in zip(used, as_matrix(scores), strict=True)
        ),
        by_size=bias_by_size(scores, used, scores[-1], sizes=range(1, len(names))),
        true_scores=None if true_scores is None else as_matrix(true_scores[None])[0],
        by_size_truth=against_truth,
        by_size_selection=against_selection,
        deeper=deeper,
    )


def _values(scores: GradedScores, metric: str) -> NDArray[np.float64]:
    return scores.recall_at_1 if metric == R_AT_1 else scores.r_precision


def _deeper(material: Material, direction: Direction, lists: Lists, depth: int) -> Lists:
    """The same queries ranked to this depth, by the annotators as they are set up now."""
    from mitl.stages.proposing.computing import Means
    from mitl.stages.proposing.ranking import build_annotators, rank_all

    settings = material.settings
    depth = min(depth, len(material.gallery(direction)))
    ranked, _ = rank_all(
        settings.runs / ANALYSIS_FOLDER,
        build_annotators(settings, lists.annotators),
        material.items,
        {one: lists.query_ids.tolist() if one is direction else [] for one in Direction},
        dict.fromkeys(Direction, depth),
        material.progress,
        Means.of(settings),
    )
    items = np.stack([one.ranking.item_ids[:, :depth] for one in ranked])
    return Lists(lists.annotators, lists.query_ids, items)
