"""What people answered, by annotator: how often what at which rank (Table B.2), and why (Table B.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from mitl.analysis.answer_tables import (
    LABELS,
    AnswerTable,
    RationaleTable,
    ShareRow,
    answer_counts,
    answer_shares,
    rationale_counts,
    rationale_shares,
)
from mitl.analysis.report.plots import answers_svg
from mitl.errors import MetricError
from mitl.records import Direction, RationaleKind, Table
from mitl.stages.analysing.findings import Findings
from mitl.stages.analysing.material import Material

_LABEL_NAMES = tuple(label.value for label in LABELS)
_POOLED = "both"
_MEAN = "mean of annotators"


def answers(material: Material) -> Findings:
    """Table B.2 for each direction and for both: shares of the four answers by annotator and rank."""
    material.require_judgements()
    counts = answer_counts([row.record for row in material.known.judgements], material.known.proposals)
    chosen = [entry for entry in counts if entry.annotator in material.names]
    if not chosen:
        raise MetricError("no judged pair was proposed by these annotators; name others, or none")
    found = {
        name: answer_shares(chosen, order=material.names, direction=direction)
        for name, direction in (
            (Direction.I2T.value, Direction.I2T),
            (Direction.T2I.value, Direction.T2I),
            (_POOLED, None),
        )
    }
    return Findings(
        counts={name: _answer_counts(table) for name, table in found.items()},
        tables=tuple(_answer_table(name, table) for name, table in found.items() if table.annotators),
        rows={"answers": _answer_rows(found)},
        drawings={"answers": partial(answers_svg, found[_POOLED])},
    )


def rationale(material: Material) -> Findings:
    """Table B.3: shortcomings, and what is described wrongly, by annotator."""
    material.require_judgements()
    counts = rationale_counts([row.record for row in material.known.judgements], material.known.proposals)
    chosen = [entry for entry in counts if entry.annotator in material.names]
    if not chosen:
        raise MetricError("nobody was asked why; publish with `--template pairs-rationale`")
    found = {
        "shortcomings": rationale_shares(chosen, RationaleKind.SHORTCOMING, order=material.names),
        "concepts": rationale_shares(chosen, RationaleKind.CONCEPT, order=material.names),
    }
    return Findings(
        counts={
            kind: {name: _named(table.columns, row) for name, row in table.rows}
            for kind, table in found.items()
        },
        tables=tuple(_rationale_table(kind, table) for kind, table in found.items() if table.rows),
        rows={"rationale": _rationale_rows(found)},
    )


def _answer_counts(table: AnswerTable) -> dict[str, object]:
    return {
        name: {
            **{
                str(rank): _named(_LABEL_NAMES, row)
                for rank, row in zip(table.ranks, table.cells[name], strict=True)
            },
            "all": _named(_LABEL_NAMES, table.average[name]),
        }
        for name in table.annotators
    }


def _named(columns: Sequence[str], row: ShareRow) -> dict[str, object]:
    """The shares from 0 to 1 by column, and what they are shares of."""
    shares = row.shares or (None,) * len(columns)
    return {
        "count": row.total,
        **{name: None if share is None else share / 100 for name, share in zip(columns, shares, strict=True)},
    }


def _answer_table(name: str, table: AnswerTable) -> Table:
    rows = [
        (annotator, rank, row.total, *_percentages(row))
        for annotator in table.annotators
        for rank, row in (
            *zip(table.ranks, table.cells[annotator], strict=True),
            ("all", table.average[annotator]),
        )
    ]
    title = f"answers by annotator and rank · {name}, in percent"
    return Table(title, ("annotator", "rank", "answers", *_LABEL_NAMES), tuple(rows))


def _rationale_table(kind: str, table: RationaleTable) -> Table:
    rows = [(name, row.total, *_percentages(row)) for name, row in table.rows]
    if table.average is not None:
        rows.append((_MEAN, None, *(f"{share:.1f}" for share in table.average)))
    return Table(f"{kind} by annotator, in percent", ("annotator", "ticks", *table.columns), tuple(rows))


def _percentages(row: ShareRow) -> tuple[str | None, ...]:
    return (None,) * len(LABELS) if row.shares is None else tuple(f"{share:.1f}" for share in row.shares)


def _answer_rows(found: Mapping[str, AnswerTable]) -> Table:
    rows = [
        (name, annotator, rank, *_named(_LABEL_NAMES, row).values())
        for name, table in found.items()
        for annotator in table.annotators
        for rank, row in (
            *zip(table.ranks, table.cells[annotator], strict=True),
            ("all", table.average[annotator]),
        )
    ]
    return Table("", ("direction", "annotator", "rank", "count", *_LABEL_NAMES), tuple(rows))


def _rationale_rows(found: Mapping[str, RationaleTable]) -> Table:
    rows = [
        (kind, name, column, row.total, None if row.shares is None else row.shares[place] / 100)
        for kind, table in found.items()
        for name, row in table.rows
        for place, column in enumerate(table.columns)
    ]
    return Table("", ("kind", "annotator", "value", "ticks", "share"), tuple(rows))
