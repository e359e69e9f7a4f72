"""What the stored answers mean now: decisions, usable judgements, finished HITs; and until when that can change.

No call is made here.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from sqlalchemy.orm import Session

from mitl.campaign.kinds import kinds_asked
from mitl.crowd.golds import gold_state
from mitl.crowd.paying import SUBMITTED
from mitl.db.store import answer_sheets
from mitl.db.store import answers as answer_store
from mitl.db.store import hits as hit_store
from mitl.db.store import judgements as judgement_store
from mitl.db.store import parses as parse_store
from mitl.db.store.answers import AssignmentRow
from mitl.db.store.columns import answer_columns
from mitl.judgements.gold_records import BAD_RECORD, GoldState, GoldVerdict, is_usable
from mitl.records import BatchKind, Decision, Environment, Finding, HitState, Judgement, Label, Pair
from mitl.records.frames import is_asked, is_labelled
from mitl.records.gold_rule import GoldRule
from mitl.settings import AUTO_APPROVAL_S

REVERSIBLE_FOR = dt.timedelta(days=30)
"""From submission on; MTurk's rule, and this server's."""


def reversible_until(row: AssignmentRow) -> dt.datetime | None:
    """The last moment at which a rejection of this submission can be reversed; None where its time is unknown."""
    return None if row.submitted_at is None else row.submitted_at + REVERSIBLE_FOR


def approves_itself_at(row: AssignmentRow) -> dt.datetime | None:
    """When the server pays a submission that waits for a decision; None where it does not, or nobody knows when."""
    if row.status != SUBMITTED or row.submitted_at is None:
        return None
    return row.submitted_at + dt.timedelta(seconds=AUTO_APPROVAL_S)


def utc(moment: dt.datetime | None) -> str:
    """A moment to the minute, in words."""
    return "an unknown time" if moment is None else f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"


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
    state = gold_state(session, environment, rule, answers)
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
    answers: pd.DataFrame,
    submissions: Sequence[AssignmentRow],
    decisions: Mapping[int, Decision],
    state: GoldState,
) -> None:
    repeated = asked_before(answers, {row.id: turn for turn, row in enumerate(submissions)})
    page_counts = {
        row.id: is_usable(
            _ANSWERED,
            decisions.get(row.id, row.decision),
            state.record(row.worker),
            excluded=row.excluded,
        )
        for row in submissions
    }
    counts = is_labelled(answers) & answers["assignment"].map(page_counts).to_numpy(np.bool_)
    counts[repeated.index] = False
    is_new = counts != answers["usable"]
    # Whether a page counts is said by its submission; its places are set one by one only where some come again.
    has_repeats = answers["assignment"].isin(repeated["assignment"])
    pages = answers.loc[is_new & ~has_repeats, "assignment"].unique().tolist()
    for usable in (True, False):
        judgement_store.use_answered(session, [id_ for id_ in pages if page_counts[id_] is usable], usable)
        places = answers.loc[is_new & has_repeats & (counts == usable)]
        for id_, on_page in places.groupby("assignment")["place"]:
            judgement_store.set_usable(session, int(id_), on_page.tolist(), usable)
    _note(session, submissions, decisions, state, repeated)


def asked_before(answers: pd.DataFrame, order: Mapping[int, int]) -> pd.DataFrame:
    """All answers but each worker's first on a pair, in the order of the work; controls are meant to come again.

    Which answers of an audit are by different workers, their own count says: an audit takes no answer from the rest.

    Args:
        order: submission → its turn.
    """
    asked = answers[is_asked(answers)]
    several = asked[asked.duplicated(["worker", "pair"], keep=False)]  # few, among millions
    in_order = several.assign(turn=several["assignment"].map(order)).sort_values(["turn", "place"])
    return in_order[in_order.duplicated(["worker", "pair"])]


def _note(
    session: Session,
    submissions: Sequence[AssignmentRow],
    decisions: Mapping[int, Decision],
    state: GoldState,
    repeated: pd.DataFrame,
) -> None:
    """Write down why answers do not count though their page passed."""
    findings: dict[int, list[Finding]] = defaultdict(list)
    for id_, place in zip(repeated["assignment"].tolist(), repeated["place"].tolist(), strict=True):
        findings[id_].append(Finding(SAME_WORKER, f"place {place} was asked of this worker before"))
    for row in submissions:
        if decisions.get(row.id, row.decision) is Decision.PASS and state.record(row.worker).is_bad:
            findings[row.id].append(Finding(LATE_BAD_RECORD, BAD_RECORD))
    parse_store.add_all_findings(session, findings)


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
