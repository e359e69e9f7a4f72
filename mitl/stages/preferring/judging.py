"""What the controls of pages of rankings say: a page passes by rule, or goes to a person. Nothing is rejected here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from sqlalchemy.orm import Session

from mitl.db.store import answers as answer_store
from mitl.db.store import parses as parse_store
from mitl.db.store import preferences as preference_store
from mitl.db.store.answers import AssignmentRow
from mitl.judgements.gold_records import GoldRecord
from mitl.judgements.goldcheck import BAD_RECORD, EXCLUDED_WORKER
from mitl.records import Decision, Finding, Preference

CONTROL_FAILED = "comparison_control_failed"
CONTROL_MISSING = "comparison_control_missing"
NO_ANSWER = "no_preference"

Controls = Sequence[tuple[int, Preference, Preference | None]]
"""Place, right answer, given answer."""


def judge_comparisons(
    session: Session, submissions: Sequence[AssignmentRow], record_of: Callable[[str], GoldRecord]
) -> dict[int, Decision]:
    """Decide about these submissions of pages of rankings, all parsed and undecided; returns what changed.

    Args:
        record_of: a worker's record on pages of pairs.
    """
    ids = [row.id for row in submissions]
    controls = preference_store.controls(session, ids)
    given = preference_store.answers(session, ids)
    changed: dict[Decision, list[int]] = defaultdict(list)
    findings = {}
    for row in submissions:
        answered = any(answer.answer is not None for answer in given.get(row.id, ()))
        noted = check_comparisons(controls.get(row.id, ()), answered=answered)
        if record_of(row.worker).is_bad:
            noted.append(Finding(BAD_RECORD, record_of(row.worker).text))
        if row.excluded:
            noted.append(Finding(EXCLUDED_WORKER))
        findings[row.id] = noted
        decision = Decision.QUEUED if noted else Decision.PASS
        if decision is not row.decision:
            changed[decision].append(row.id)
    parse_store.add_all_findings(session, findings)
    for decision, chosen in changed.items():
        answer_store.set_decision(session, chosen, decision)
    return {id_: decision for decision, chosen in changed.items() for id_ in chosen}


def check_comparisons(controls: Controls, *, answered: bool) -> list[Finding]:
    """Why a page does not pass; nothing where every control was answered rightly and something was answered at all.

    On a control only the better side is right: that both are equal is not.
    """
    found = [] if answered else [Finding(NO_ANSWER, "no comparison was answered")]
    for place, expected, given in controls:
        if given is None:
            found.append(Finding(CONTROL_MISSING, f"place {place} is a control and was not answered"))
        elif given is not expected:
            found.append(
                Finding(CONTROL_FAILED, f"place {place}: {given.value}, though {expected.value} is better")
            )
    return found
