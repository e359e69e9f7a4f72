"""Appendix E: what the choice of the proposing annotators does to scores, and how far from the truth they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.analysis.bias import (
    GRADES,
    GradedPairs,
    GradedScores,
    all_subsets,
    bias_by_size,
    graded_scores,
    used_by,
)
from mitl.analysis.correlations import as_matrix
from mitl.analysis.records import R_AT_1, R_PRECISION, Bias, Cell, SizeBias, SubsetScores
from mitl.analysis.report.machine_plots import bias_svg, truth_bias_svg
from mitl.core.arrays import contains, places
from mitl.errors import UsageError
from mitl.records import Direction, Label, Table
from mitl.stages.analysing.snapshot import query_and_item
from mitl.stages.analysing.table import (
    Analysis,
    AnalysisInput,
    Column,
    Findings,
    Lists,
    for_json,
    for_people,
    number,
    percent,
)

Ids = NDArray[np.int64]

ANALYSIS_FOLDER = "analysis"
"""Within the runs: rankings that were made deeper for an analysis."""

_CODES = np.array([label.code for label in Label])
_GRADE_OF_CODE = np.array([0.0, *(GRADES[label] for label in Label)])
"""Label code, from 1 → grade."""


@dataclass(frozen=True, slots=True, eq=False)
class _Scored:
    """The scores of one direction under every subset, and under the truth where it is known."""

    judged: GradedScores
    selected: GradedScores | None
    """The judged pairs with their true labels."""
    truth: GradedScores | None
    without_positive: int


def _biases(of: AnalysisInput) -> tuple[Bias, ...]:
    """Both metrics of each direction, under the positives of every subset of the annotators.

    The queries are those with a pair that people judged. A pair belongs to every annotator that proposed it, whichever
    direction found it: it would have been asked had only those annotators been there. With ``deep`` the annotators
    rank as deep as the largest R themselves, in place of the kept rankings.

    Raises:
        MetricError: nothing is judged, no rankings are kept, or there are fewer than two or too many annotators.
    """
    of.require_judgements()
    return of.by_direction(lambda direction: _of_direction(of, direction))


def _of_direction(of: AnalysisInput, direction: Direction) -> tuple[Bias, ...]:
    lists = of.judged_lists(direction, takes_two="bias")
    subsets = all_subsets(len(lists.annotators))
    # Judged pair → the annotators that proposed it, whichever direction found it, as bits.
    found = of.project.ranks[contains(of.project.answered, of.project.ranks["pair"].to_numpy())]
    bits = (
        found["annotator"]
        .astype(object)
        .map({name: 1 << place for place, name in enumerate(lists.annotators)})
    )
    # A sum, as each annotator stands once with a pair.
    proposers = bits.dropna().astype(np.int64).groupby(found["pair"]).sum()
    judged = _judged_pairs(of, direction, lists, proposers)
    true, selected = _true_pairs(of, direction, lists, proposers) if of.project.has_truth else (None, None)
    if of.options.deep:
        sets = [pairs for pairs in (judged, true) if pairs is not None]
        largest_r = max(int(np.bincount(pairs.queries).max(initial=0)) for pairs in sets)
        lists = _deeper(of, direction, lists, max(lists.depth, largest_r))
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


def _deeper(of: AnalysisInput, direction: Direction, lists: Lists, depth: int) -> Lists:
    """The same queries ranked to this depth, by the annotators as they are set up now."""
    from mitl.stages.proposing.computing import ComputeContext
    from mitl.stages.proposing.ranking import RankingFolder, annotator_runs, build_annotators, rank_with
    from mitl.stages.proposing.trained import with_trained

    settings = with_trained(of.settings, lists.annotators)
    depth = min(depth, len(of.project.gallery(direction)))
    built = build_annotators(settings, lists.annotators)
    queries = {way: lists.query_ids.tolist() if way is direction else [] for way in Direction}
    ranked, _ = rank_with(
        RankingFolder(settings.runs / ANALYSIS_FOLDER, queries, dict.fromkeys(Direction, depth)),
        annotator_runs(built, of.project.items, ComputeContext.of(settings, progress=of.progress)),
    )
    items = np.stack([named.ranking.item_ids[:, :depth] for named in ranked])
    return Lists(lists.annotators, lists.query_ids, items)


def _judged_pairs(
    of: AnalysisInput, direction: Direction, lists: Lists, proposers: pd.Series[int]
) -> GradedPairs:
    """The proposed pairs of these queries that people called a match, with their answers' grades."""
    rows, items, found = _placed(direction, lists, proposers)
    labels = of.project.answers["label"].to_numpy()[np.searchsorted(of.project.answered, found.index)]
    return _positive(rows, items, _CODES[labels], np.asarray(found, np.int64))


def _true_pairs(
    of: AnalysisInput, direction: Direction, lists: Lists, proposers: pd.Series[int]
) -> tuple[GradedPairs, GradedPairs]:
    """In a generated world: every match of these queries, for all annotators alike, and the judged pairs' matches.

    The second holds the pairs of ``_judged_pairs`` and those that people wrongly refused, with their true labels.
    """
    truth = of.project.truth_codes(direction, lists.query_ids.tolist())  # (Q, G)
    gallery = of.project.gallery(direction)
    places = np.nonzero(truth <= Label.WEAK_YES.code)
    everyone = np.full(len(places[0]), (1 << len(lists.annotators)) - 1, np.int64)
    true = _positive(places[0].astype(np.int64), gallery[places[1]], truth[places].astype(np.int64), everyone)
    rows, items, found = _placed(direction, lists, proposers)
    codes = truth[rows, np.searchsorted(gallery, items)].astype(np.int64)
    return true, _positive(rows, items, codes, np.asarray(found, np.int64))


def _placed(direction: Direction, lists: Lists, proposers: pd.Series[int]) -> tuple[Ids, Ids, pd.Series[int]]:
    """Place of the query, and item, of each proposed pair of these queries, with who proposed it."""
    queries, items = query_and_item(proposers.index.to_numpy(), direction)
    rows = places(lists.query_ids, queries)
    return rows[rows >= 0], items[rows >= 0], proposers[rows >= 0]


def _positive(rows: Ids, items: Ids, codes: Ids, proposers: Ids) -> GradedPairs:
    grades = _GRADE_OF_CODE[codes]
    kept = grades > 0
    return GradedPairs(rows[kept], items[kept], grades[kept], proposers[kept])


_points = partial(percent, digits=2)
_SIZES: tuple[Column[SizeBias], ...] = (
    Column("size", lambda row: row.size, "annotators used"),
    Column("subsets", lambda row: row.subsets),
    Column("bias", lambda row: row.total, shown=_points),
    Column("self", lambda row: row.own, shown=_points),
    Column("non_self", lambda row: row.other, "non-self", _points),
    Column("signed", lambda row: row.shift, shown=_points),
    Column("order_tau", lambda row: row.tau, "order", partial(number, digits=2)),
)


def _show(biases: Sequence[Bias], of: AnalysisInput) -> Findings:
    """The tables of both metrics and directions, with a column of scores more for each subset that was asked for.

    Raises:
        UsageError: a subset names an annotator that is not among those analysed.
    """
    subsets = of.options.subsets
    for subset in subsets:
        stranger = next((name for name in sorted(subset) if name not in biases[0].annotators), None)
        if stranger is not None:
            names = ", ".join(biases[0].annotators)
            raise UsageError(f"--subset names {stranger!r}, which is not among the annotators: {names}")
    form, by_direction = of.project.dataset.form, dict[str, dict[str, object]]()
    for bias in biases:
        by_direction.setdefault(bias.direction.value, {})[bias.metric] = _counts(bias)
    return Findings(
        counts=by_direction,
        tables=tuple(table for bias in biases for table in _tables(bias, subsets)),
        lines=_lines(biases),
        rows={"bias-scores": _score_rows(biases), "bias-by-size": _size_rows(biases)},
        drawings={
            "bias": partial(bias_svg, biases, form),
            "bias-truth": partial(truth_bias_svg, biases, form),
        },
    )


def _counts(bias: Bias) -> dict[str, object]:
    return {
        "queries": bias.queries,
        "without_positive": bias.without_positive,
        "depth": bias.depth,
        "capped": bias.capped,
        "deeper": bias.deeper,
        "scores": {"+".join(s.used): dict(zip(bias.annotators, s.scores, strict=True)) for s in bias.subsets},
        "true_scores": None
        if bias.true_scores is None
        else dict(zip(bias.annotators, bias.true_scores, strict=True)),
        "by_size": [for_json(_SIZES, size) for size in bias.by_size],
        "by_size_truth": [for_json(_SIZES, size) for size in bias.by_size_truth],
        "by_size_selection": [for_json(_SIZES, size) for size in bias.by_size_selection],
    }


def _tables(bias: Bias, subsets: Sequence[frozenset[str]]) -> tuple[Table, ...]:
    capped = f" with R at most {bias.depth}" if bias.capped and bias.metric == R_PRECISION else ""
    over = f"{bias.metric}{capped} · {bias.direction}, {bias.queries:,} queries"
    tables = [_score_table(f"{over} · in percent, by whose positives are used", bias, subsets)]
    for title, sizes in (
        ("bias against all annotators' positives", bias.by_size),
        ("deviation from the known truth, as judged", bias.by_size_truth),
        ("deviation from the known truth, by selection alone", bias.by_size_selection),
    ):
        if sizes:
            tables.append(for_people(f"{over} · {title}, in points", _SIZES, sizes))
    return tuple(tables)


def _score_table(title: str, bias: Bias, subsets: Sequence[frozenset[str]]) -> Table:
    shown = [s for s in bias.subsets if len(s.used) == 1 or frozenset(s.used) in subsets]
    columns: list[tuple[str, tuple[Cell, ...]]] = [("+".join(s.used), s.scores) for s in shown]
    columns.append(("all", bias.together))
    if bias.true_scores is not None:
        columns.append(("truth", bias.true_scores))
    rows = tuple(
        (name, *(percent(scores[place]) for _, scores in columns))
        for place, name in enumerate(bias.annotators)
    )
    return Table(title, ("scored", *(name for name, _ in columns)), rows)


def _lines(biases: Sequence[Bias]) -> tuple[str, ...]:
    lines = [
        "graded matching: yes counts 1, weak yes 0.5; signed: above 0 where scores are too high; order: Kendall's "
        "tau-b of the annotators' order with the reference's"
    ]
    for bias in biases:
        if bias.metric == R_PRECISION and bias.capped:
            lines.append(
                f"the top {bias.depth} cannot hold the positives of {bias.capped:,} of {bias.queries:,} "
                f"{bias.direction} queries; there R stops at {bias.depth} (--deep ranks on)"
            )
        if bias.metric == R_PRECISION and bias.deeper:
            lines.append(
                f"R-Precision is not compared with the truth: the top {bias.depth} cannot hold the true matches of "
                f"{bias.deeper:,} of {bias.queries:,} {bias.direction} queries (--deep ranks on)"
            )
    return tuple(lines)


def _score_rows(biases: Sequence[Bias]) -> Table:
    rows = [
        (bias.direction.value, bias.metric, used, len(used.split("+")), name, score)
        for bias in biases
        for used, scores in _columns(bias)
        for name, score in zip(bias.annotators, scores, strict=True)
    ]
    return Table("", ("direction", "metric", "positives_of", "size", "annotator", "score"), tuple(rows))


def _columns(bias: Bias) -> list[tuple[str, tuple[Cell, ...]]]:
    columns = [("+".join(subset.used), subset.scores) for subset in bias.subsets]
    return columns if bias.true_scores is None else [*columns, ("truth", bias.true_scores)]


def _size_rows(biases: Sequence[Bias]) -> Table:
    rows = [
        (bias.direction.value, bias.metric, reference, *for_json(_SIZES, size).values())
        for bias in biases
        for reference, sizes in (
            ("all", bias.by_size),
            ("truth", bias.by_size_truth),
            ("truth, selection alone", bias.by_size_selection),
        )
        for size in sizes
    ]
    columns = tuple(column.key for column in _SIZES)
    return Table("", ("direction", "metric", "reference", *columns), tuple(rows))


BIAS = Analysis("bias", _biases, _show)
