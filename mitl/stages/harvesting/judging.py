"""What the stored answers mean now: decisions, usable judgements, finished HITs. No call is made here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from sqlalchemy.orm import Session

from mitl.campaign.kinds import kinds_asked
from mitl.db.store import answer_sheets
from mitl.db.store import answers as answer_store
from mitl.db.store import desk as desk_store
from mitl.db.store import hits as hit_store
from mitl.db.store import judgements as judgement_store
from mitl.db.store import parses as parse_store
from mitl.db.store.answer_columns import NO_LABEL, OUTCOMES, AnswerColumns, answer_columns
from mitl.db.store.answers import AssignmentRow
from mitl.judgements.goldcheck import BAD_RECORD, GoldVerdict
from mitl.judgements.usability import is_usable
from mitl.records import BatchKind, Decision, Environment, Finding, HitState, Judgement, Label, Outcome, Pair
from mitl.records.gold_rule import GoldRule
from mitl.stages.harvesting.gold_answers import gold_answers
from mitl.stages.harvesting.golds import GoldState
from mitl.stages.harvesting.repeats import Again, asked_before

SAME_WORKER = "same_worker"
LATE_BAD_RECORD = "bad_record_after_approval"

_UNDECIDED = (Decision.NONE, Decision.QUEUED)
_ANSWERED = Judgement(Pair(0, 0), "", Label.YES)
"""Stands for any answered judgement of a page."""


def judge(session: Session, environment: Environment, rule: GoldRule) -> GoldState:
    """Decide about new submissions, forgive what a withdrawn control caused, mark what may be used, close HITs.

    Safe to repeat: the outcome depends on the stored answers and people's decisions alone. A submission that was
    stored and not parsed yet is left for whoever parses it.
    """
    answers = answer_columns(session, environment)
    submissions = answer_store.assignments(session, environment)
    state = gold_answers(session, answers, rule, desk_store.worker_names(session, environment)).state
    decisions = _decide(session, environment, submissions, state, rule)
    _mark_usable(session, answers, submissions, decisions, state)
    _close(session, environment, submissions, decisions)
    answer_sheets.fill(session)
    return state


def _decide(
    session: Session,
    environment: Environment,
    submissions: Sequence[AssignmentRow],
    state: GoldState,
    rule: GoldRule,
) -> dict[int, Decision]:
    """Write what follows from the controls; returns the decisions that changed."""
    asked = hit_store.other_kinds(session, environment)
    verdicts: dict[int, GoldVerdict] = {}
    for kind in kinds_asked(session, environment):
        own = [row for row in submissions if asked.get(row.hit_id, BatchKind.PAIRS) == kind.name]
        unread = kind.unparsed(session, environment)
        waiting = [row for row in own if row.decision in _UNDECIDED and row.id not in unread]
        verdicts |= kind.verdicts(session, environment, waiting, state, rule)
    changed: dict[Decision, list[int]] = defaultdict(list)
    for row in submissions:
        if row.id in verdicts and verdicts[row.id].decision is not row.decision:
            changed[verdicts[row.id].decision].append(row.id)
    parse_store.add_all_findings(session, {id_: verdict.findings for id_, verdict in verdicts.items()})
    for decision, ids in changed.items():
        answer_store.set_decision(session, ids, decision)
    return {id_: decision for decision, ids in changed.items() for id_ in ids}


def _mark_usable(
    session: Session,
    answers: AnswerColumns,
    submissions: Sequence[AssignmentRow],
    decisions: Mapping[int, Decision],
    state: GoldState,
) -> None:
    rows = {row.id: row for row in submissions}
    repeated = asked_before(answers, {row.id: turn for turn, row in enumerate(submissions)})
    special = {again.assignment_id for again in repeated}
    # Whether a page counts is said by its submission; its places are looked at only where some come again.
    pages: dict[bool, list[int]] = {True: [], False: []}
    for id_, answered, usable in _tallies(answers):
        counts = _may_count(_ANSWERED, rows[id_], decisions, state)
        if id_ not in special and usable != answered * counts:
            pages[counts].append(id_)
    places: dict[bool, list[int]] = {True: [], False: []}
    twice = {(again.assignment_id, again.place) for again in repeated}
    for mark in judgement_store.marks(session, sorted(special)):
        judgement = replace(_ANSWERED, outcome=mark.outcome, label=mark.label)
        counts = _may_count(
            judgement, rows[mark.assignment_id], decisions, state, (mark.assignment_id, mark.place) in twice
        )
        if counts != mark.usable:
            places[counts].append(mark.id)
    for counts in (True, False):
        judgement_store.use_answered(session, pages[counts], counts)
        judgement_store.set_usable(session, places[counts], counts)
    _note(session, submissions, decisions, state, repeated)


def _note(
    session: Session,
    submissions: Sequence[AssignmentRow],
    decisions: Mapping[int, Decision],
    state: GoldState,
    repeated: Sequence[Again],
) -> None:
    """Write down why answers do not count though their page passed."""
    findings: dict[int, list[Finding]] = defaultdict(list)
    for again in repeated:
        detail = f"place {again.place} was asked of this worker before"
        findings[again.assignment_id].append(Finding(SAME_WORKER, detail))
    for row in submissions:
        if decisions.get(row.id, row.decision) is Decision.PASS and state.record(row.worker).is_bad:
            findings[row.id].append(Finding(LATE_BAD_RECORD, BAD_RECORD))
    parse_store.add_all_findings(session, findings)


def _may_count(
    judgement: Judgement,
    row: AssignmentRow,
    decisions: Mapping[int, Decision],
    state: GoldState,
    same_worker: bool = False,
) -> bool:
    decision = decisions.get(row.id, row.decision)
    record = state.record(row.worker)
    return is_usable(judgement, decision, record, excluded=row.excluded, same_worker=same_worker)


def _tallies(answers: AnswerColumns) -> Iterator[tuple[int, int, int]]:
    """Each submission with an answer, how many of them were given, and how many are usable now."""
    if not len(answers):
        return iter(())
    ids, begins = np.unique(answers.assignment, return_index=True)
    answered = (answers.label != NO_LABEL) & (answers.outcome == OUTCOMES.index(Outcome.ANSWERED))
    counts = (
        np.add.reduceat(flags.astype(np.int64), begins).tolist() for flags in (answered, answers.usable)
    )
    return zip(ids.tolist(), *counts, strict=True)


def _close(
    session: Session,
    environment: Environment,
    submissions: Sequence[AssignmentRow],
    decisions: Mapping[int, Decision],
) -> None:
    """A HIT is finished when all the assignments that were paid for are decided."""
    decided: dict[int, int] = defaultdict(int)
    for row in submissions:
        decided[row.hit_id] += decisions.get(row.id, row.decision) not in _UNDECIDED
    finished = [
        hit.id
        for hit in hit_store.hits(session, environment, (HitState.POSTED,))
        if decided[hit.id] >= hit.assignments
    ]
    hit_store.set_state(session, finished, HitState.CLOSED)
