"""Reviewing: a person decides about submissions whose controls failed."""

from __future__ import annotations

from collections.abc import Sequence

from mitl.db.session import open_database
from mitl.db.store import answers as answer_store
from mitl.db.store import items as item_store
from mitl.db.store import judgements as judgement_store
from mitl.db.store import open_work
from mitl.db.store.answers import AssignmentRow
from mitl.progress import Progress, no_progress
from mitl.records import Decision, Environment, StageResult, Table
from mitl.settings import Settings
from mitl.stages.decisions import (
    Ruling,
    check_open,
    check_reasons,
    find_submission,
    keep_one,
    tell_server,
)
from mitl.stages.environment import choose_environment
from mitl.stages.golds import GoldState, gold_state
from mitl.stages.judging import judge
from mitl.stages.paying import CarriedOut, has_open_calls

__all__ = ["CHOICES", "Ruling", "queue", "rule", "settle", "show"]

CHOICES = (Decision.APPROVE, Decision.DROP, Decision.APPROVE_EXCLUDE, Decision.REJECT)


def queue(settings: Settings, environment: Environment | None = None) -> StageResult:
    """The submissions that wait for a person, oldest first, with why."""
    with open_database(settings.db_url, read_only=True) as session:
        chosen = choose_environment(session, environment)
        waiting = answer_store.assignments(session, chosen, (Decision.QUEUED,))
        findings = answer_store.findings(session, chosen)
        state = gold_state(judgement_store.judgements(session, chosen))
    rows = []
    for row in waiting:
        why = ", ".join(sorted({finding.code for finding in findings.get(row.id, ())}))
        record = state.record(row.worker)
        rows.append((row.id, row.worker, why, f"{record.passes} of {record.golds}", _minutes(row)))
    if not rows:
        return StageResult(
            status="nothing_to_do",
            counts={"queued": 0},
            lines=("nothing to do: no submission waits for a person",),
            next="mitl publish, or mitl build-dataset --out DIR",
        )
    columns = ("number", "worker", "why it waits", "golds passed", "minutes")
    return StageResult(
        counts={"environment": chosen.value, "queued": len(rows), "submissions": [row.id for row in waiting]},
        tables=(Table(f"{len(rows)} submissions wait for a person", columns, tuple(rows)),),
        next="mitl review show NUMBER; then mitl review approve|drop|exclude|reject NUMBER, or mitl review settle",
    )


def show(settings: Settings, number: int, environment: Environment | None = None) -> StageResult:
    """All answers of one submission beside what is known, its findings and its worker's record."""
    with open_database(settings.db_url, read_only=True) as session:
        chosen = choose_environment(session, environment)
        row = find_submission(session, chosen, number)
        stored = judgement_store.judgements(session, chosen)
        state = gold_state(stored)
        findings = answer_store.findings(session, chosen).get(row.id, [])
        texts = judgement_store.free_text(session, row.id)
        dataset = item_store.dataset(session)
        captions = {c.id: c for c in item_store.captions(session, dataset.id)}
        images = {i.id: i for i in item_store.images(session, dataset.id, settings.project)}
    table = []
    for judgement in stored:
        if judgement.assignment_id != row.id:
            continue
        record = judgement.record
        answer = record.outcome.value if record.label is None else record.label.value
        reasons = [*record.shortcomings, *record.concepts]
        seconds = None if record.active_ms is None else record.active_ms // 1000
        table.append(
            (
                judgement.place,
                record.role.value,
                answer,
                ", ".join(reasons),
                seconds,
                images[record.pair.image_id].external_id,
                captions[record.pair.caption_id].text,
            )
        )
    record_text = state.record(row.worker).text
    lines = [f"worker {row.worker}: {record_text}; decision: {row.decision.value}"]
    lines += [f"finding: {finding.code} {finding.detail}".rstrip() for finding in findings]
    lines += [f"place {place}: {text!r}" for place, text in sorted(texts.items())]
    columns = ("place", "role", "answer", "reasons", "seconds", "image", "description")
    return StageResult(
        counts={"assignment": row.id, "decision": row.decision.value},
        tables=(Table(f"submission {row.id} · HIT {row.batch}:{row.number}", columns, tuple(table)),),
        lines=tuple(lines),
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
        state = gold_state(judgement_store.judgements(session, chosen))
    rulings = [Ruling(row.id, _cautious(row, state), "gold record") for row in waiting]
    return rule(settings, rulings, chosen, progress=progress)


def _cautious(row: AssignmentRow, state: GoldState) -> Decision:
    return Decision.APPROVE_EXCLUDE if state.record(row.worker).is_bad else Decision.DROP


def rule(
    settings: Settings,
    rulings: Sequence[Ruling],
    environment: Environment | None = None,
    *,
    progress: Progress = no_progress,
) -> StageResult:
    """Carry out what a person decided: the decision is stored first, then the calls are made.

    Raises:
        UsageError: a rejection without a reason that its worker can understand.
        StoreError: no such submission, or it is decided already in another way.
    """
    check_reasons(rulings)
    with open_database(settings.db_url) as session:
        chosen = choose_environment(session, environment)
        rows = {ruling.assignment: find_submission(session, chosen, ruling.assignment) for ruling in rulings}
        for ruling in rulings:
            check_open(rows[ruling.assignment], ruling.decision)
            keep_one(session, rows[ruling.assignment], ruling)
        session.commit()
        owed = has_open_calls(session, chosen)  # an interrupted run's calls among them
        session.rollback()
        done = CarriedOut(0, 0, 0)
        if owed:
            done = tell_server(session, settings, chosen, progress)
        judge(session, chosen)
        session.commit()
        if not owed and all(rows[ruling.assignment].decision is ruling.decision for ruling in rulings):
            why = "that is decided already" if rulings else "no submission waits for a person"
            return StageResult(status="nothing_to_do", lines=(f"nothing to do: {why}",))
        again = len(open_work.barren_hits(session, chosen))
        left = answer_store.decision_counts(session, chosen).get(Decision.QUEUED, 0)
        out = open_work.open_work(session, chosen).hits
    return _result(chosen, rulings, done, left=left, again=again, out=out)


def _result(
    chosen: Environment, rulings: Sequence[Ruling], done: CarriedOut, *, left: int, again: int, out: int
) -> StageResult:
    counts: dict[str, object] = {"environment": chosen.value, "queued": left, "hits_to_ask_again": again}
    for decision in CHOICES:
        counts[decision.value] = sum(ruling.decision is decision for ruling in rulings)
    late = f"{done.too_late} rejections came too late: the work had been approved by itself; it is paid and not used"
    return StageResult(
        counts=counts,
        warnings=(late,) if done.too_late else (),
        lines=(
            f"{counts['approve']} approved, {counts['drop']} paid without use, "
            f"{counts['approve_exclude']} paid and their workers excluded, {counts['reject']} rejected; "
            f"{left} still wait",
        ),
        next="mitl review"
        if left
        else f"mitl publish --{chosen}, which asks again what could not be used"
        if again
        else "mitl harvest"
        if out > 0
        else "mitl build-dataset --out DIR",
    )


def _minutes(row: AssignmentRow) -> float | None:
    if row.accepted_at is None or row.submitted_at is None:
        return None
    return round((row.submitted_at - row.accepted_at).total_seconds() / 60, 1)
