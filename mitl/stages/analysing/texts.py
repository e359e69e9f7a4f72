"""What became of the texts and picks that people gave for items without partner, by task and by what chose the item."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from operator import itemgetter
from typing import Any

from mitl.analysis.report.inputs import Section
from mitl.campaign.kinds.texts.standing import ItemStanding, standing, tally
from mitl.core.pricing import format_dollars
from mitl.db.session import open_database
from mitl.db.store import collection as collection_store
from mitl.errors import MetricError
from mitl.records import several
from mitl.stages.analysing.table import Analysis, AnalysisInput, Column, Findings, for_files, for_people

_Row = dict[str, Any]
_COUNTED = ("chosen", "given", "faulty", "waiting", "refused", "accepted")


def _column(name: str, title: str = "") -> Column[_Row]:
    return Column(name, itemgetter(name), title)


_COLUMNS = (_column("task"), _column("strategy", "items by"), *map(_column, _COUNTED))


def _compute(of: AnalysisInput) -> tuple[list[_Row], int]:
    """Rows, and the cents paid for all."""
    environment = of.project.environment
    with open_database(of.settings.db_url, read_only=True) as session:
        known = standing(session, environment)
        paid = collection_store.paid_cents(session, environment)
    if not known:
        raise MetricError("no item was chosen to get a partner; run `mitl collect choose`")
    groups: dict[tuple[str, str], list[ItemStanding]] = defaultdict(list)
    for one in known:
        groups["write" if one.choice.is_image else "pick", one.choice.strategy].append(one)
    rows = [
        {
            "task": task,
            "strategy": strategy,
            **asdict(counted),
            "given": counted.given,
            "waiting": counted.waiting,
        }
        for (task, strategy), members in groups.items()
        for counted in (tally(members),)
    ]
    return rows, paid


def _show(found: tuple[list[_Row], int], _: AnalysisInput) -> Findings:
    rows, paid = found
    accepted = sum(row["accepted"] for row in rows)
    each = f", {format_dollars(round(paid / accepted))} for each accepted one" if accepted else ""
    return Findings(
        counts={
            "paid_cents": paid,
            "groups": [{column.key: column.value(row) for column in _COLUMNS} for row in rows],
        },
        tables=(for_people("texts written and images picked, by what chose the item", _COLUMNS, rows),),
        lines=(f"{several(accepted, 'text')} accepted; paid {format_dollars(paid)}, reviews included{each}",),
        rows={"texts": for_files(_COLUMNS, rows)},
    )


TEXTS = Analysis(
    "texts",
    _compute,
    _show,
    section=Section("texts", "Texts", "What people wrote and picked", "Pairs"),
    optional=True,
)
