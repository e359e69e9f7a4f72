"""What the stored answers mean now: decisions, usable judgements, finished HITs; and until when that can change.

No call is made here.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy.orm import Session

from mitl.campaign.kinds import kinds_asked
from mitl.campaign.kinds.protocol import HeldTo
from mitl.core.arrays import Ints, coded, distinct
from mitl.crowd.paying import SUBMITTED
from mitl.db.store import answer_sheets, control_sheets, worker_tallies
from mitl.db.store import answers as answer_store
from mitl.db.store import desk as desk_store
from mitl.db.store import hits as hit_store
from mitl.db.store import judgements as judgement_store
from mitl.db.store import parses as parse_store
from mitl.db.store.answer_sheets import answers_of
from mitl.db.store.answers import DECISIONS, StoredAssignment, SubmissionColumns
from mitl.db.store.control_sheets import gold_state
from mitl.judgements.gold_records import BAD_RECORD, GoldRecord, GoldState, GoldVerdict, keeps_page, verdict
from mitl.records import UNDECIDED, BatchKind, Decision, Environment, Finding, HitState
from mitl.records.frames import Columns, Flags, is_asked, is_labelled
from mitl.records.questions import GoldRule
from mitl.settings import AUTO_APPROVAL_S

REVERSIBLE_FOR = dt.timedelta(days=30)
"""From submission on; MTurk's rule, and this server's."""


def reversible_until(row: StoredAssignment) -> dt.datetime | None:
    """The last moment at which a rejection of this submission can be reversed; None where its time is unknown."""
    return None if row.submitted_at is None else row.submitted_at + REVERSIBLE_FOR


def approves_itself_at(row: StoredAssignment) -> dt.datetime | None:
    """When the server pays a submission that waits for a decision; None where it does not, or nobody knows when."""
    if row.status != SUBMITTED or row.submitted_at is None:
        return None
    return row.submitted_at + dt.timedelta(seconds=AUTO_APPROVAL_S)


def utc(moment: dt.datetime | None) -> str:
    """A moment to the minute, in words."""
    return "an unknown time" if moment is None else f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"


SAME_WORKER = "same_worker"
LATE_BAD_RECORD = "bad_record_after_approval"


def judge(session: Session, environment: Environment, rule: GoldRule) -> GoldState:
    """Decide about new submissions, forgive what a withdrawn control caused, mark what may be used, close HITs.

    Safe to repeat: the outcome depends on the stored answers and people's decisions alone. A submission that was
    stored and not parsed yet is left for whoever parses it. What may be used of a worker's answers follows from these
    answers, what was decided about them and the worker's record, so it is looked at where one of these changed.
    """
    state = gold_state(session, environment, rule)
    _decide(session, environment, state, rule)
    names = desk_store.worker_names(session, environment)
    records = {worker: state.record(name) for worker, name in names.items()}
    is_bad = {worker: record.is_bad for worker, record in records.items()}
    workers = control_sheets.to_judge(session, environment, is_bad)
    if workers:
        answers = answers_of(session, environment, workers)
        work = answer_store.submission_columns(session, environment, workers)
        usable = _mark_usable(session, answers, _weigh(work, records), work.id.tolist())
        answer_sheets.fill(session)
        control_sheets.keep(session, answers, {worker: is_bad[worker] for worker in workers})
        worker_tallies.keep(session, {**answers, "usable": usable}, workers)
    hit_store.set_state(session, hit_store.decided(session, environment), HitState.CLOSED)
    return state


def _decide(session: Session, environment: Environment, state: GoldState, rule: GoldRule) -> None:
    """Write what follows from the controls."""
    asked = hit_store.other_kinds(session, environment)
    undecided = answer_store.assignments(session, environment, UNDECIDED)
    verdicts: dict[int, GoldVerdict] = {}
    for kind in kinds_asked(session, environment) if undecided else ():
        of_kind = [row for row in undecided if asked.get(row.hit_id, BatchKind.PAIRS) == kind.name]
        unread = kind.submissions.unparsed(session, environment, [row.id for row in of_kind])
        waiting = [row for row in of_kind if row.id not in unread]
        findings = kind.findings(session, waiting, HeldTo(environment, rule, state.withdrawn))
        for row in waiting:
            record = state.record(row.worker)
            verdicts[row.id] = verdict(findings[row.id], record, excluded=row.excluded)
    changed: dict[Decision, list[int]] = defaultdict(list)
    for row in undecided:
        if row.id in verdicts and verdicts[row.id].decision is not row.decision:
            changed[verdicts[row.id].decision].append(row.id)
    parse_store.set_verdicts(session, {id_: decided.findings for id_, decided in verdicts.items()})
    for decision, ids in changed.items():
        answer_store.set_decision(session, ids, decision)


@dataclass(frozen=True, slots=True)
class _Weights:
    """What each submission is worth, by its row; 0 where there is none of the environment."""

    counts: Flags
    """Whether what was answered there may be used."""
    is_late: Flags
    """Whether the page passed and its worker's record has turned bad since."""
    turn: Ints
    """In the order of the work."""


def _weigh(work: SubmissionColumns, records: Mapping[int, GoldRecord]) -> _Weights:
    """Look at each worker's submissions of one decision together: there are few such groups among millions."""
    groups, group = coded((work.worker * len(DECISIONS) + work.decision) * 2 + work.excluded)
    counts, is_late = [], []
    for code in groups.tolist():
        worker, place = divmod(code // 2, len(DECISIONS))
        record = records[worker]
        counts.append(keeps_page(DECISIONS[place], record, excluded=bool(code % 2)))
        is_late.append(DECISIONS[place] is Decision.PASS and record.is_bad)
    rows = int(work.id.max(initial=0)) + 1
    weights = _Weights(np.zeros(rows, np.bool_), np.zeros(rows, np.bool_), np.zeros(rows, np.int64))
    weights.counts[work.id] = np.array(counts, np.bool_)[group]
    weights.is_late[work.id] = np.array(is_late, np.bool_)[group]
    weights.turn[work.id] = np.arange(len(work.id))
    return weights


def _mark_usable(session: Session, answers: Columns, weights: _Weights, submissions: Sequence[int]) -> Flags:
    """Write which answers of these submissions may be used; (answers,) whether each may."""
    assignment, place = np.asarray(answers["assignment"]), np.asarray(answers["place"])
    counts: Flags = is_labelled(answers) & weights.counts[assignment]
    repeated = answered_before(answers, counts, weights.turn)
    counts[repeated] = False
    is_new = counts != np.asarray(answers["usable"])
    # Whether a page counts is said by its submission; its places are set one by one only where some come again.
    is_again = np.zeros(len(weights.turn), np.bool_)
    is_again[assignment[repeated]] = True
    has_repeats = is_again[assignment]
    pages = distinct(assignment[is_new & ~has_repeats])
    for usable in (True, False):
        judgement_store.use_answered(session, pages[weights.counts[pages] == usable].tolist(), usable)
        single = np.flatnonzero(is_new & has_repeats & (counts == usable))
        for id_, places in _by_submission(assignment, place, single).items():
            judgement_store.set_usable(session, id_, places, usable)
    again = _by_submission(assignment, place, repeated)
    _note(session, again, np.flatnonzero(weights.is_late).tolist(), submissions)
    return counts


def _by_submission(assignment: Ints, place: Ints, at: Ints) -> dict[int, list[int]]:
    """Submission → places, of these answers."""
    places: dict[int, list[int]] = defaultdict(list)
    for id_, of_page in zip(assignment[at].tolist(), place[at].tolist(), strict=True):
        places[id_].append(of_page)
    return places


def answered_before(answers: Columns, counts: Flags, turn: Ints) -> Ints:
    """Where all answers that count stand but each worker's first on a pair; controls are meant to come again.

    A worker whose page was dropped may be the one who takes the page that asks again.

    Which answers of an audit are by different workers, their own count says: an audit takes no answer from the rest.

    Args:
        counts: (answers,) whether each would, if it were the only one.
        turn: submission → its place in the order of the work.
    """
    asked = np.flatnonzero(is_asked(answers) & counts)
    pair = np.asarray(answers["pair"])[asked]
    asked = asked[np.bincount(pair)[pair] > 1]  # few, among millions
    assignment, place, pair, worker = (
        np.asarray(answers[name])[asked] for name in ("assignment", "place", "pair", "worker")
    )
    order = np.lexsort((place, turn[assignment], pair, worker))
    again = (np.diff(pair[order]) == 0) & (np.diff(worker[order]) == 0)
    return np.sort(asked[order[1:][again]])


def _note(
    session: Session, repeated: Mapping[int, Sequence[int]], late: Sequence[int], submissions: Sequence[int]
) -> None:
    """Write down why answers of these submissions do not count though their page passed, and no longer why they did
    not before."""
    findings: dict[int, list[Finding]] = defaultdict(list)
    for id_, places in repeated.items():
        findings[id_] += [
            Finding(SAME_WORKER, f"place {place} was answered by this worker before") for place in places
        ]
    for id_ in late:
        findings[id_].append(Finding(LATE_BAD_RECORD, BAD_RECORD))
    parse_store.set_findings(session, (SAME_WORKER, LATE_BAD_RECORD), findings, submissions)
