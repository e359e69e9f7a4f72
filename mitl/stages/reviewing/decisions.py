"""What a person decided about submissions: kept first, told to the server afterwards; a rejection can be reversed."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated

from sqlalchemy.orm import Session

from mitl.crowd.context import Context, named, open_context
from mitl.crowd.endpoint import open_same_endpoint
from mitl.crowd.paying import (
    APPROVED,
    OVERRIDE,
    REJECT,
    REJECTED,
    CarriedOut,
    carry_out,
    has_open_calls,
    plan_rejection,
)
from mitl.db.store import answers as answer_store
from mitl.db.store import hits as hit_store
from mitl.db.store import journal
from mitl.db.store.answers import StoredAssignment
from mitl.db.store.journal import JournalRow
from mitl.db.store.statements import chunks
from mitl.errors import StoreError, UsageError
from mitl.progress import Progress, no_progress
from mitl.protocol.answer_xml import xml_safe
from mitl.records import UNDECIDED, Decision, Environment, JournalState, StageResult
from mitl.records.results import EnvironmentCounts, printed_by
from mitl.settings import Settings
from mitl.stages.harvesting.judging import judge, reversible_until, utc

MIN_REASON, MAX_REASON = 20, 1024
"""Characters: a rejected worker must be able to understand why, and the API takes no more."""

_DECIDED = {
    Decision.PASS: "its controls passed, so it was paid and is used",
    Decision.APPROVE: "it was paid and is used",
    Decision.DROP: "it was paid and is not used",
    Decision.APPROVE_EXCLUDE: "it was paid, is not used, and its worker is excluded",
    Decision.REJECT: "it was rejected",
}


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a person decided about one submission."""

    assignment: int
    """The number that the queue shows."""
    decision: Decision
    reason: str = ""


def keep(settings: Settings, ruling: Ruling, environment: Environment | None = None) -> None:
    """Store what a person decided about a submission that waits, and make no call; `carry_out_kept` makes them.

    What is stored is never lost: the next `mitl review` or `mitl harvest` would make the call too.

    Raises:
        UsageError: a rejection without a reason that its worker can understand.
        StoreError: no such submission, or it is decided already, in whichever way.
    """
    check_reasons([ruling])
    with open_context(settings, environment) as context:
        row = find_submission(context.session, context.environment, ruling.assignment)
        check_open(row, ruling.decision, may_repeat=False)
        keep_one(context.session, row, ruling)
        context.session.commit()


def carry_out_kept(
    settings: Settings, environment: Environment | None = None, *, progress: Progress = no_progress
) -> CarriedOut:
    """Tell the server what was decided and is not known there yet, and mark which answers may be used.

    Raises:
        EndpointError: no server answers; the decisions stay stored.
    """
    with open_context(settings, environment, progress=progress) as context:
        session = context.session
        owed = has_open_calls(session, context.environment)
        session.rollback()
        done = tell_server(context) if owed else CarriedOut(0, 0, 0)
        judge(session, context.environment, settings.gold_rule)
        session.commit()
    return done


def tell_server(context: Context) -> CarriedOut:
    """Make the calls that stored decisions ask for; EndpointError where no server answers."""
    with open_same_endpoint(context) as endpoint:
        return carry_out(context, endpoint.client(), charges_fee=endpoint.charges_fee)


def keep_one(session: Session, row: StoredAssignment, ruling: Ruling) -> None:
    """Write one decision, a rejection with its reason."""
    if ruling.decision is Decision.REJECT:
        plan_rejection(session, row, ruling.reason.strip())
    answer_store.set_decision(session, [row.id], ruling.decision)


def check_reasons(rulings: Sequence[Ruling]) -> None:
    """UsageError where a rejection has no reason that its worker can understand, or one that no server takes."""
    for ruling in rulings:
        if ruling.decision is Decision.REJECT:
            check_reason(ruling.reason, MAX_REASON, "the reason of a rejection")


def check_reason(reason: str, longest: int, what: str) -> None:
    """UsageError unless a reason is a text of 20 to so many characters; the server would refuse it for ever."""
    if not MIN_REASON <= len(reason.strip()) <= longest:
        raise UsageError(
            f"{what} has {len(reason.strip()):,} characters; {MIN_REASON} to {longest:,} are right, and the worker "
            "reads them"
        )
    if xml_safe(reason) != reason:
        raise UsageError(
            f"{what} holds what no text may, such as a control character; write it again without"
        )


def check_open(row: StoredAssignment, wanted: Decision, *, may_repeat: bool = True) -> None:
    """StoreError where the submission is decided already, unless as wanted, or was paid and cannot be rejected."""
    if row.decision not in UNDECIDED and not (may_repeat and row.decision is wanted):
        raise StoreError(
            f"submission {row.id} is decided already: {_DECIDED[row.decision]}; only what waits can be decided"
        )
    if wanted is Decision.REJECT and row.status == APPROVED:
        raise StoreError(
            f"submission {row.id} was approved by itself meanwhile, so it is paid; drop its answers instead"
        )


def find_submission(session: Session, environment: Environment, number: int) -> StoredAssignment:
    """The submission of this number; StoreError where there is none."""
    return find_submissions(session, environment, [number])[number]


def find_submissions(
    session: Session, environment: Environment, numbers: Collection[int]
) -> dict[int, StoredAssignment]:
    """The submissions of these numbers; StoreError names the first that there is none of."""
    by_number = {
        row.id: row
        for chunk in chunks(sorted(numbers))
        for row in answer_store.assignments(session, environment, rows=chunk)
    }
    for number in numbers:
        if number not in by_number:
            raise StoreError(
                f"there is no submission {number} on {environment}; `mitl review{named(session, environment)}` lists "
                "what waits"
            )
    return {number: by_number[number] for number in numbers}


CHOICES = (Decision.APPROVE, Decision.DROP)


@dataclass(frozen=True, slots=True)
class Rejection:
    """A rejection and what can still be done about it."""

    reason: str
    sent: bool
    """Whether the server has been told."""
    until: dt.datetime | None
    """When it can no longer be reversed; None where the time of submission is unknown."""


def rejection_of(session: Session, row: StoredAssignment) -> Rejection | None:
    """Why a submission was rejected; None where it was not."""
    if row.decision is not Decision.REJECT:
        return None
    call = journal.find(session, REJECT, row.key)
    unknown = "made elsewhere; its reason is not known here"
    reason = unknown if call is None else str(json.loads(call.request).get("reason", ""))
    return Rejection(reason, row.status == REJECTED, reversible_until(row))


def is_imported(session: Session, row: StoredAssignment) -> bool:
    """Whether a submission came from a file of past work, so that no server of this project knows it."""
    return row.batch not in {batch.name for batch in hit_store.posted_batches(session)}


def keep_reversal(
    settings: Settings,
    number: int,
    decision: Decision,
    environment: Environment | None = None,
    *,
    now: dt.datetime,
) -> bool:
    """Store that a rejected submission is to be paid after all; False where that is stored already.

    The call is made with the next that are.

    Args:
        decision: ``APPROVE`` uses its answers, ``DROP`` does not.

    Raises:
        UsageError: another decision.
        StoreError: there is no such submission, it was not rejected, the server has not heard of the rejection
            yet, the time is over, or it came from a file of past work.
    """
    if decision not in CHOICES:
        raise UsageError(f"a rejection is reversed to approve or drop, not to {decision.value!r}")
    with open_context(settings, environment) as context:
        session = context.session
        row = find_submission(session, context.environment, number)
        tried = journal.find(session, OVERRIDE, row.key)
        if row.decision is decision and tried is not None:
            return False  # by an earlier run, whose call may still have to be made
        _check(row, tried, now, named(session, context.environment))
        if is_imported(session, row):
            raise StoreError(
                f"submission {row.id} came from a file of past work, so its rejection cannot be reversed from here"
            )
        request = json.dumps({"assignment": row.mturk_assignment_id, "was": "rejected"})
        journal.plan(session, OVERRIDE, [(row.key, None, request)], now)
        journal.mark(session, OVERRIDE, [row.key], JournalState.PLANNED, now)
        answer_store.set_decision(session, [row.id], decision)
        session.commit()
    return True


@printed_by("review reverse")
class ReversalCounts(EnvironmentCounts):
    """What became of rejections that were taken back."""

    reversed: Annotated[int, "rejections that this call reversed"]
    approved: Annotated[int, "submissions that the server approved now"]


def reverse(
    settings: Settings,
    numbers: Sequence[int],
    decision: Decision,
    environment: Environment | None = None,
    *,
    progress: Progress = no_progress,
) -> StageResult:
    """Pay these rejected submissions after all, and tell the server.

    Raises:
        StoreError: as in `keep_reversal`; those named before the one at fault are reversed all the same.
    """
    with open_context(settings, environment, read_only=True) as context:
        chosen = context.environment
    for number in numbers:
        keep_reversal(settings, number, decision, chosen, now=dt.datetime.now(dt.UTC))
    with open_context(settings, chosen, read_only=True) as context:
        rows = find_submissions(context.session, chosen, numbers)
    untold = [number for number, row in rows.items() if row.status == REJECTED]
    done = carry_out_kept(settings, chosen, progress=progress)
    with open_context(settings, chosen, read_only=True) as context:
        rows, here = find_submissions(context.session, chosen, untold), named(context.session, chosen)
    n_reversed = sum(row.decision is not Decision.REJECT for row in rows.values())
    use = "used" if decision is Decision.APPROVE else "not used"
    said = f"rejections reversed: {n_reversed:,}; the work is paid and its answers are {use}"
    return StageResult(
        status="done" if untold or done.approved else "nothing_to_do",
        counts=ReversalCounts(environment=chosen.value, reversed=n_reversed, approved=done.approved),
        warnings=done.told,
        lines=(said,) if n_reversed else () if untold else ("that is reversed already",),
        next=f"mitl status{here}",
    )


def _check(row: StoredAssignment, tried: JournalRow | None, now: dt.datetime, here: str) -> None:
    if row.decision is not Decision.REJECT:
        raise StoreError(f"submission {row.id} is not rejected, so there is nothing to reverse")
    if row.status != REJECTED:
        raise StoreError(
            f"the server has not heard of the rejection of submission {row.id} yet; reverse it when it has"
        )
    until = reversible_until(row)
    over = "" if until is None or now <= until else f"could be reversed until {utc(until)}"
    if tried is not None and tried.state is JournalState.DONE:
        over = "stands: the server takes it back no more"
    if over:
        raise StoreError(
            f"the rejection of submission {row.id} {over}; pay its worker with `mitl pay compensate{here}` instead"
        )
