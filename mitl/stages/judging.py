"""What the stored answers mean now: decisions, usable judgements, finished HITs. No call is made here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy.orm import Session

from mitl.db.store import answers as answer_store
from mitl.db.store import hits as hit_store
from mitl.db.store import judgements as judgement_store
from mitl.db.store.answers import AssignmentRow
from mitl.db.store.judgements import StoredJudgement
from mitl.judgements.goldcheck import BAD_RECORD, check_assignment, decide
from mitl.judgements.usability import is_usable
from mitl.records import Decision, Environment, Finding, HitState
from mitl.stages.golds import GoldState, gold_state

SAME_WORKER = "same_worker"
LATE_BAD_RECORD = "bad_record_after_approval"

_UNDECIDED = (Decision.NONE, Decision.QUEUED)


def judge(session: Session, environment: Environment) -> GoldState:
    """Decide about new submissions, forgive what a withdrawn control caused, mark what may be used, close HITs.

    Safe to repeat: the outcome depends on the stored answers and people's decisions alone.
    """
    rows = judgement_store.judgements(session, environment)
    submissions = answer_store.assignments(session, environment)
    state = gold_state(rows)
    by_assignment: dict[int, list[StoredJudgement]] = defaultdict(list)
    for row in rows:
        by_assignment[row.assignment_id].append(row)
    decisions = _decide(session, submissions, by_assignment, state)
    _mark_usable(session, submissions, decisions, rows, state)
    _close(session, environment, submissions, decisions)
    return state


def _decide(
    session: Session,
    submissions: Sequence[AssignmentRow],
    by_assignment: dict[int, list[StoredJudgement]],
    state: GoldState,
) -> dict[int, Decision]:
    decisions = {row.id: row.decision for row in submissions}
    changed: dict[Decision, list[int]] = defaultdict(list)
    for row in submissions:
        if row.decision not in _UNDECIDED:
            continue
        judgements = [stored.record for stored in by_assignment[row.id]]
        check = check_assignment(judgements, state.withdrawn)
        verdict = decide(check, state.record(row.worker), excluded=row.excluded)
        answer_store.add_findings(session, row.id, verdict.findings)
        if verdict.decision is not row.decision:
            changed[verdict.decision].append(row.id)
            decisions[row.id] = verdict.decision
    for decision, ids in changed.items():
        answer_store.set_decision(session, ids, decision)
    return decisions


def _mark_usable(
    session: Session,
    submissions: Sequence[AssignmentRow],
    decisions: dict[int, Decision],
    rows: Sequence[StoredJudgement],
    state: GoldState,
) -> None:
    order = {row.id: place for place, row in enumerate(submissions)}
    repeated = _asked_before(sorted(rows, key=lambda row: (order[row.assignment_id], row.place)))
    excluded = {row.id for row in submissions if row.excluded}
    changes: dict[bool, list[int]] = {True: [], False: []}
    for row in rows:
        usable = is_usable(
            row.record,
            decisions[row.assignment_id],
            state.record(row.record.worker),
            excluded=row.assignment_id in excluded,
            same_worker=row.id in repeated,
        )
        if usable != row.record.usable:
            changes[usable].append(row.id)
    for usable, ids in changes.items():
        judgement_store.set_usable(session, ids, usable)
    for row in rows:
        if row.id in repeated:
            detail = f"place {row.place} was asked of this worker before"
            answer_store.add_findings(session, row.assignment_id, [Finding(SAME_WORKER, detail)])
    for submission in submissions:
        record = state.record(submission.worker)
        if decisions[submission.id] is Decision.PASS and record.is_bad:
            finding = Finding(LATE_BAD_RECORD, BAD_RECORD)
            answer_store.add_findings(session, submission.id, [finding])


def _asked_before(rows: Sequence[StoredJudgement]) -> set[int]:
    """Judgements on a pair that the same worker judged earlier; controls are meant to come again."""
    seen: set[tuple[int, int, int]] = set()
    repeated = set()
    for row in rows:
        if row.record.role.is_gold:
            continue
        key = (row.worker_id, row.record.pair.image_id, row.record.pair.caption_id)
        if key in seen:
            repeated.add(row.id)
        seen.add(key)
    return repeated


def _close(
    session: Session,
    environment: Environment,
    submissions: Sequence[AssignmentRow],
    decisions: dict[int, Decision],
) -> None:
    """A HIT is finished when all the assignments that were paid for are decided."""
    decided: dict[int, int] = defaultdict(int)
    for row in submissions:
        decided[row.hit_id] += decisions[row.id] not in _UNDECIDED
    finished = [
        hit.id
        for hit in hit_store.hits(session, environment, (HitState.POSTED,))
        if decided[hit.id] >= hit.assignments
    ]
    hit_store.set_state(session, finished, HitState.CLOSED)
