"""The bias of appendix E as tables, numbers and drawings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from mitl.analysis.machines.records import R_PRECISION, Bias, Cell, SizeBias
from mitl.analysis.report.plots.machines import bias_svg, truth_bias_svg
from mitl.errors import UsageError
from mitl.records import Table
from mitl.stages.analysing.bias import bias_tables
from mitl.stages.analysing.findings import Findings
from mitl.stages.analysing.material import Material
from mitl.stages.analysing.shown import number, percent

_SIZE_COLUMNS = ("annotators used", "subsets", "bias", "self", "non-self", "signed", "order")


def bias(material: Material, *, deep: bool = False, subsets: Sequence[frozenset[str]] = ()) -> Findings:
    """The tables of both metrics and directions.

    Args:
        subsets: more columns for the table of scores, beside each annotator alone and all together.

    Raises:
        UsageError: a subset names an annotator that is not among those analysed.
    """
    found = bias_tables(material, deep=deep)
    for wanted in subsets:
        stranger = next((name for name in sorted(wanted) if name not in found[0].annotators), None)
        if stranger is not None:
            known = ", ".join(found[0].annotators)
            raise UsageError(f"--subset names {stranger!r}, which is not among the annotators: {known}")
    by_direction: dict[str, dict[str, object]] = {}
    for one in found:
        by_direction.setdefault(one.direction.value, {})[one.metric] = _counts(one)
    return Findings(
        counts=by_direction,
        tables=tuple(table for one in found for table in _tables(one, subsets)),
        lines=_lines(found),
        rows={"bias-scores": _score_rows(found), "bias-by-size": _size_rows(found)},
        drawings={"bias": partial(bias_svg, found), "bias-truth": partial(truth_bias_svg, found)},
    )


def _counts(one: Bias) -> dict[str, object]:
    return {
        "queries": one.queries,
        "without_positive": one.without_positive,
        "depth": one.depth,
        "capped": one.capped,
        "deeper": one.deeper,
        "scores": {"+".join(s.used): dict(zip(one.annotators, s.scores, strict=True)) for s in one.subsets},
        "true_scores": None
        if one.true_scores is None
        else dict(zip(one.annotators, one.true_scores, strict=True)),
        "by_size": [_size_counts(size) for size in one.by_size],
        "by_size_truth": [_size_counts(size) for size in one.by_size_truth],
        "by_size_selection": [_size_counts(size) for size in one.by_size_selection],
    }


def _size_counts(size: SizeBias) -> dict[str, object]:
    return {
        "size": size.size,
        "subsets": size.subsets,
        "bias": size.total,
        "self": size.own,
        "non_self": size.other,
        "signed": size.shift,
        "order_tau": size.tau,
    }


def _tables(one: Bias, subsets: Sequence[frozenset[str]]) -> tuple[Table, ...]:
    capped = f" with R at most {one.depth}" if one.capped and one.metric == R_PRECISION else ""
    over = f"{one.metric}{capped} · {one.direction}, {one.queries:,} queries"
    tables = [_score_table(f"{over} · in percent, by whose positives are used", one, subsets)]
    for title, sizes in (
        ("bias against all annotators' positives", one.by_size),
        ("deviation from the known truth, as judged", one.by_size_truth),
        ("deviation from the known truth, by selection alone", one.by_size_selection),
    ):
        if sizes:
            rows = tuple(_size_row(size) for size in sizes)
            tables.append(Table(f"{over} · {title}, in points", _SIZE_COLUMNS, rows))
    return tuple(tables)


def _score_table(title: str, one: Bias, subsets: Sequence[frozenset[str]]) -> Table:
    shown = [s for s in one.subsets if len(s.used) == 1 or frozenset(s.used) in subsets]
    columns: list[tuple[str, tuple[Cell, ...]]] = [("+".join(s.used), s.scores) for s in shown]
    columns.append(("all", one.together))
    if one.true_scores is not None:
        columns.append(("truth", one.true_scores))
    rows = tuple(
        (name, *(percent(scores[place]) for _, scores in columns))
        for place, name in enumerate(one.annotators)
    )
    return Table(title, ("scored", *(name for name, _ in columns)), rows)


def _size_row(size: SizeBias) -> tuple[object, ...]:
    parts = (size.total, size.own, size.other, size.shift)
    return (size.size, size.subsets, *(percent(part, 2) for part in parts), number(size.tau, 2))


def _lines(found: Sequence[Bias]) -> tuple[str, ...]:
    lines = [
        "graded matching: yes counts 1, weak yes 0.5; signed: above 0 where scores are too high; order: Kendall's "
        "tau-b of the annotators' order with the reference's"
    ]
    for one in found:
        if one.metric == R_PRECISION and one.capped:
            lines.append(
                f"{one.capped:,} of {one.queries:,} {one.direction} queries have more positives than the {one.depth} "
                f"ranked items; there R stops at {one.depth} (--deep ranks on)"
            )
        if one.metric == R_PRECISION and one.deeper:
            lines.append(
                f"R-Precision is not held against the truth: {one.deeper:,} of {one.queries:,} {one.direction} queries "
                f"have more true matches than the {one.depth} ranked items (--deep ranks on)"
            )
    return tuple(lines)


def _score_rows(found: Sequence[Bias]) -> Table:
    rows = [
        (one.direction.value, one.metric, used, len(used.split("+")), name, score)
        for one in found
        for used, scores in _columns(one)
        for name, score in zip(one.annotators, scores, strict=True)
    ]
    return Table("", ("direction", "metric", "positives_of", "size", "annotator", "score"), tuple(rows))


def _columns(one: Bias) -> list[tuple[str, tuple[Cell, ...]]]:
    columns = [("+".join(subset.used), subset.scores) for subset in one.subsets]
    return columns if one.true_scores is None else [*columns, ("truth", one.true_scores)]


def _size_rows(found: Sequence[Bias]) -> Table:
    rows = []
    for one in found:
        for reference, sizes in (
            ("all", one.by_size),
            ("truth", one.by_size_truth),
            ("truth, selection alone", one.by_size_selection),
        ):
            rows += [
                (one.direction.value, one.metric, reference, *_size_counts(size).values()) for size in sizes
            ]
    columns = ("size", "subsets", "bias", "self", "non_self", "signed", "order_tau")
    return Table("", ("direction", "metric", "reference", *columns), tuple(rows))
