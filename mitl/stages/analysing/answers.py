"""What people answered: by annotator and rank (Table B.2), why (Table B.3), and how much work each did (Table B.1).

And what became of the texts and picks that they gave for items without partner, by task and by what chose the item.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from operator import itemgetter
from typing import Any

from mitl.analysis.answer_tables import (
    LABELS,
    AnswerCount,
    AnswerShares,
    RationaleCount,
    RationaleTable,
    ShareRow,
    answer_counts,
    answer_shares,
    rationale_counts,
    rationale_shares,
)
from mitl.analysis.report.inputs import Section
from mitl.analysis.report.plots import answers_svg
from mitl.campaign.kinds.texts.standing import ItemStanding, standing, tally
from mitl.core.pricing import format_dollars
from mitl.db.session import open_database
from mitl.db.store import collection as collection_store
from mitl.errors import MetricError
from mitl.records import Direction, StageResult, Table, several
from mitl.records.forms import IMAGES
from mitl.stages.analysing.table import (
    Analysis,
    AnalysisInput,
    Column,
    Findings,
    for_files,
    for_json,
    for_people,
)
from mitl.stages.reviewing.workers import workers_by_hits

_LABEL_NAMES = tuple(label.value for label in LABELS)
_POOLED = "both"
_MEAN = "mean of annotators"


def _count_answers(of: AnalysisInput) -> tuple[AnswerCount, ...]:
    of.require_judgements()
    counts = answer_counts(of.project.judgements, of.project.proposals)
    chosen = tuple(entry for entry in counts if entry.annotator in of.names)
    if not chosen:
        raise MetricError("no judged pair was proposed by these annotators; name others, or none")
    return chosen


def _show_answers(counts: Sequence[AnswerCount], of: AnalysisInput) -> Findings:
    """Table B.2 for each direction and for both: shares of the four answers by annotator and rank."""
    tables = {
        name: answer_shares(counts, order=of.names, direction=direction)
        for name, direction in (
            (Direction.I2T, Direction.I2T),
            (Direction.T2I, Direction.T2I),
            (_POOLED, None),
        )
    }
    rows = [
        (name, annotator, rank, *_named(_LABEL_NAMES, row).values())
        for name, table in tables.items()
        for annotator, rank, row in _by_rank(table)
    ]
    return Findings(
        counts={str(name): _answers_for_json(table) for name, table in tables.items()},
        tables=tuple(_answer_table(name, table) for name, table in tables.items() if table.annotators),
        rows={"answers": Table("", ("direction", "annotator", "rank", "count", *_LABEL_NAMES), tuple(rows))},
        drawings={"answers": partial(answers_svg, tables[_POOLED])},
    )


def _by_rank(table: AnswerShares) -> Iterator[tuple[str, int | str, ShareRow]]:
    """(annotator, rank, row), each annotator's average after its ranks."""
    for annotator in table.annotators:
        for rank, row in zip(table.ranks, table.cells[annotator], strict=True):
            yield annotator, rank, row
        yield annotator, "all", table.average[annotator]


def _answers_for_json(table: AnswerShares) -> dict[str, dict[str, object]]:
    by_annotator: dict[str, dict[str, object]] = {}
    for annotator, rank, row in _by_rank(table):
        by_annotator.setdefault(annotator, {})[str(rank)] = _named(_LABEL_NAMES, row)
    return by_annotator


def _answer_table(name: str, table: AnswerShares) -> Table:
    rows = tuple((annotator, rank, row.total, *_percentages(row)) for annotator, rank, row in _by_rank(table))
    title = f"answers by annotator and rank · {name}, in percent"
    return Table(title, ("annotator", "rank", "answers", *_LABEL_NAMES), rows)


def _named(columns: Sequence[str], row: ShareRow) -> dict[str, object]:
    """The shares from 0 to 1 by column, and what they are shares of."""
    shares = row.shares or (None,) * len(columns)
    return {
        "count": row.total,
        **{name: None if share is None else share / 100 for name, share in zip(columns, shares, strict=True)},
    }


def _percentages(row: ShareRow) -> tuple[str | None, ...]:
    return (None,) * len(LABELS) if row.shares is None else tuple(f"{share:.1f}" for share in row.shares)


def _count_reasons(of: AnalysisInput) -> tuple[RationaleCount, ...]:
    of.require_judgements()
    counts = rationale_counts(of.project.judgements, of.project.proposals, of.project.questions)
    chosen = tuple(entry for entry in counts if entry.annotator in of.names)
    if not chosen:
        raise MetricError("nobody was asked why; publish with `--template pairs-rationale`")
    return chosen


def _show_reasons(counts: Sequence[RationaleCount], of: AnalysisInput) -> Findings:
    """Table B.3: shortcomings, what is described wrongly, and what else was asked, by annotator."""
    tables = {
        question.column: rationale_shares(counts, question, order=of.names)
        for question in of.project.questions
        if question.choices
    }
    return Findings(
        counts={
            kind: {name: _named(table.columns, row) for name, row in table.rows}
            for kind, table in tables.items()
        },
        tables=tuple(_reason_table(kind, table) for kind, table in tables.items() if table.rows),
        rows={"rationale": _reason_rows(tables)},
    )


def _reason_table(kind: str, table: RationaleTable) -> Table:
    rows: list[tuple[object, ...]] = [(name, row.total, *_percentages(row)) for name, row in table.rows]
    if table.average is not None:
        rows.append((_MEAN, None, *(f"{share:.1f}" for share in table.average)))
    return Table(f"{kind} by annotator, in percent", ("annotator", "ticks", *table.columns), tuple(rows))


def _reason_rows(tables: Mapping[str, RationaleTable]) -> Table:
    rows = [
        (kind, name, column, row.total, None if row.shares is None else row.shares[place] / 100)
        for kind, table in tables.items()
        for name, row in table.rows
        for place, column in enumerate(table.columns)
    ]
    return Table("", ("kind", "annotator", "value", "ticks", "share"), tuple(rows))


def _workers(of: AnalysisInput) -> StageResult:
    """Table B.1: workers by how many HITs they did."""
    result = workers_by_hits(of.settings, of.project.environment)
    if result.status == "nothing_to_do":
        raise MetricError("nobody has submitted a HIT yet; `mitl status` says what comes first")
    return result


def _show_workers(result: StageResult, _: AnalysisInput) -> Findings:
    rows = result.counts["rows"]
    assert isinstance(rows, list)
    return Findings(
        counts={key: value for key, value in result.counts.items() if key != "environment"},
        tables=result.tables,
        lines=result.lines,
        rows={"workers": Table("", tuple(rows[0]), tuple(tuple(row.values()) for row in rows))},
    )


_TextRow = dict[str, Any]
_TEXTS_COUNTED = ("chosen", "given", "faulty", "waiting", "refused", "accepted")


def _text_column(name: str, title: str = "") -> Column[_TextRow]:
    return Column(name, itemgetter(name), title)


_TEXT_COLUMNS = (
    _text_column("task"),
    _text_column("strategy", "items by"),
    *map(_text_column, _TEXTS_COUNTED),
)


def _count_texts(of: AnalysisInput) -> tuple[list[_TextRow], int]:
    """Rows, and the cents paid for all."""
    environment = of.project.environment
    with open_database(of.settings.db_url, read_only=True) as session:
        standings = standing(session, environment)
        paid = collection_store.paid_cents(session, environment)
    if not standings:
        if (form := of.project.dataset.form) is not IMAGES:
            raise MetricError(f"no texts are collected for {' and '.join(form.nouns)} so far")
        raise MetricError("no item was chosen to get a partner; run `mitl collect choose`")
    groups: dict[tuple[str, str], list[ItemStanding]] = defaultdict(list)
    for item in standings:
        groups["write" if item.choice.is_image else "pick", item.choice.strategy].append(item)
    rows = [
        {
            "task": task,
            "strategy": strategy,
            **asdict(counted),
            "given": counted.given,
            "waiting": sum(len(item.waiting) for item in members),
        }
        for (task, strategy), members in groups.items()
        for counted in (tally(members),)
    ]
    return rows, paid


def _show_texts(counted: tuple[list[_TextRow], int], _: AnalysisInput) -> Findings:
    rows, paid = counted
    accepted = sum(row["accepted"] for row in rows)
    price = f", {format_dollars(round(paid / accepted))} for each accepted one" if accepted else ""
    return Findings(
        counts={
            "paid_cents": paid,
            "groups": [for_json(_TEXT_COLUMNS, row) for row in rows],
        },
        tables=(for_people("texts written and images picked, by what chose the item", _TEXT_COLUMNS, rows),),
        lines=(
            f"{several(accepted, 'text')} accepted; paid {format_dollars(paid)}, reviews included{price}",
        ),
        rows={"texts": for_files(_TEXT_COLUMNS, rows)},
    )


ANSWERS = Analysis("answers", _count_answers, _show_answers)
RATIONALE = Analysis("rationale", _count_reasons, _show_reasons)
WORKERS = Analysis("workers", _workers, _show_workers)
TEXTS = Analysis(
    "texts",
    _count_texts,
    _show_texts,
    section=Section("texts", "Texts", "What people wrote and picked", "Pairs"),
    optional=True,
)
