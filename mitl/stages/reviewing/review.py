"""Reviewing: a person decides about submissions whose controls failed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence

from sqlalchemy.orm import Session

from mitl.crowd.environment import choose_environment
from mitl.crowd.golds import gold_state
from mitl.crowd.paying import CarriedOut, has_open_calls
from mitl.db.session import open_database, reading
from mitl.db.store import answers as answer_store
from mitl.db.store import desk as desk_store
from mitl.db.store.answers import AssignmentRow
from mitl.judgements.gold_records import GoldState
from mitl.progress import Progress, no_progress
from mitl.records import Decision, Environment, StageResult, Table, several
from mitl.settings import Settings
from mitl.stages.harvesting.deadlines import approves_itself_at, reversible_until, utc
from mitl.stages.harvesting.judging import judge
from mitl.stages.reviewing.decisions import (
    Ruling,
    check_open,
    check_reasons,
    find_submissions,
    keep_one,
    tell_server,
)
from mitl.stages.reviewing.result import CHOICES, in_words, nothing_ruled, ruled

__all__ = ["CHOICES", "Ruling", "queue", "rule", "settle"]

Confirm = Callable[[Environment, int], bool]
"""Whether to go on and reject so many submissions there."""


def queue(settings: Settings, environment: Environment | None = None) -> StageResult:
    """The submissions that wait for a person, oldest first, with why and until when."""
    with open_database(settings.db_url, read_only=True) as session:
        chosen = choose_environment(session, environment)
        waiting = answer_store.assignments(session, chosen, (Decision.QUEUED,))
        findings = answer_store.findings_of(session, [row.id for row in waiting])
        state = gold_state(session, chosen, settings.gold_rule)
        unsent = desk_store.unsent(session, chosen)
    told = (
        (f"{in_words(unsent)}; `mitl harvest`, or `mitl review settle` again, carries that out",)
        if unsent
        else ()
    )
    rows = []
    for row in waiting:
        why = ", ".join(sorted({finding.code for finding in findings.get(row.id, ())}))
        record, itself = state.record(row.worker), approves_itself_at(row)
        golds = f"{record.passes} of {record.golds}"
        rows.append((row.id, row.worker, why, golds, _minutes(row), None if itself is None else utc(itself)))
    if not rows and unsent:
        return StageResult(
            counts={"environment": chosen.value, "queued": 0, "submissions": [], "calls_open": unsent},
            lines=("no submission waits for a person", *told),
            next="mitl harvest",
        )
    if not rows:
        return StageResult(
            status="nothing_to_do",
            counts={"environment": chosen.value, "queued": 0, "submissions": [], "calls_open": 0},
            lines=("nothing to do: no submission waits for a person",),
            next="mitl publish, or mitl build-dataset --out DIR",
        )
    columns = ("number", "worker", "why it waits", "golds passed", "minutes", "pays itself at")
    return StageResult(
        counts={
            "environment": chosen.value,
            "queued": len(rows),
            "submissions": [row.id for row in waiting],
            "calls_open": unsent,
        },
        tables=(Table(f"{several(len(rows), 'submission')} waiting for a person", columns, tuple(rows)),),
        lines=told,
        next="mitl review show NUMBER; then mitl review approve|drop|exclude|reject NUMBER, or mitl review settle",
    )


def settle(
    settings: Settings, environment: Environment | None = None, *, progress: Progress = no_progress
) -> StageResult:
    """Pay everyone in the queue, use none of their queued answers, and let workers of bad record go.

    The cautious choice for a queue that nobody will read: it rejects no one, costs one more asking of each page,
    and keeps out whoever the gold controls speak against.
    """
    with open_database(settings.db_url, read_only=True) as session:
        chosen = choose_environment(session, environment)
        waiting = answer_store.assignments(session, chosen, (Decision.QUEUED,))
        state = gold_state(session, chosen, settings.gold_rule)
    rulings = [Ruling(row.id, _cautious(row, state), "gold record") for row in waiting]
    return rule(settings, rulings, chosen, progress=progress)


def _cautious(row: AssignmentRow, state: GoldState) -> Decision:
    return Decision.APPROVE_EXCLUDE if state.record(row.worker).is_bad else Decision.DROP


def rule(
    settings: Settings,
    rulings: Sequence[Ruling],
    environment: Environment | None = None,
    *,
    announce: Callable[[str], None] | None = None,
    confirm: Confirm | None = None,
    progress: Progress = no_progress,
) -> StageResult:
    """Carry out what a person decided: the decision is stored first, then the calls are made.

    Args:
        announce: is given a line for each rejection before anything is stored: until when it can be reversed.
        confirm: is asked before anything is stored, where something is to be rejected.

    Raises:
        UsageError: a rejection without a reason that its worker can understand.
        StoreError: no such submission, or it is decided already in another way.
    """
    check_reasons(rulings)
    with open_database(settings.db_url) as session:
        chosen = choose_environment(session, environment)
        with reading(session):  # nobody waits for the database while a person thinks
            deadlines = _deadlines(rulings, _open(session, chosen, rulings), announce)
        if deadlines and confirm is not None and not confirm(chosen, len(deadlines)):
            return nothing_ruled("you did not confirm it")
        rows = _open(session, chosen, rulings)
        for ruling in rulings:
            keep_one(session, rows[ruling.assignment], ruling)
        session.commit()
        owed = has_open_calls(session, chosen)  # an interrupted run's calls among them
        session.rollback()
        done = tell_server(session, settings, chosen, progress) if owed else CarriedOut(0, 0, 0)
        judge(session, chosen, settings.gold_rule)
        session.commit()
        if not owed and all(rows[ruling.assignment].decision is ruling.decision for ruling in rulings):
            return nothing_ruled("that is decided already" if rulings else "no submission waits for a person")
        return ruled(session, settings, chosen, rulings, done, deadlines)


def _open(session: Session, environment: Environment, rulings: Sequence[Ruling]) -> dict[int, AssignmentRow]:
    """The submissions that these rulings are about; StoreError where one is decided already in another way."""
    rows = find_submissions(session, environment, [ruling.assignment for ruling in rulings])
    for ruling in rulings:
        check_open(rows[ruling.assignment], ruling.decision)
    return rows


def _deadlines(
    rulings: Sequence[Ruling], rows: Mapping[int, AssignmentRow], announce: Callable[[str], None] | None
) -> dict[int, dt.datetime | None]:
    """Until when each rejection that is still to be made can be reversed."""
    found = {}
    for ruling in rulings:
        row = rows[ruling.assignment]
        if ruling.decision is Decision.REJECT and row.decision is not Decision.REJECT:
            found[row.id] = reversible_until(row)
            if announce is not None:
                announce(
                    f"rejecting submission {row.id} of {row.worker}: it will not be paid; that can be reversed until "
                    f"{utc(found[row.id])}"
                )
    return found


def _minutes(row: AssignmentRow) -> float | None:
    if row.accepted_at is None or row.submitted_at is None:
        return None
    return round((row.submitted_at - row.accepted_at).total_seconds() / 60, 1)
