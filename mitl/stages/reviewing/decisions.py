"""What a person decided about submissions: kept first, told to the server afterwards."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.crowd.endpoint import open_endpoint
from mitl.crowd.environment import choose_environment, require_same_server
from mitl.crowd.paying import APPROVED, CarriedOut, carry_out, has_open_calls, plan_rejection
from mitl.db.session import open_database
from mitl.db.store import answers as answer_store
from mitl.db.store.answers import AssignmentRow
from mitl.db.store.bulk import chunks
from mitl.errors import StoreError, UsageError
from mitl.progress import Progress, no_progress
from mitl.records import Decision, Environment
from mitl.settings import Settings
from mitl.stages.harvesting.judging import judge

MIN_REASON = 20
"""Characters; a rejected worker must be able to understand why."""

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
    with open_database(settings.db_url) as session:
        chosen = choose_environment(session, environment)
        row = find_submission(session, chosen, ruling.assignment)
        check_open(row, Decision.QUEUED)
        keep_one(session, row, ruling)
        session.commit()


def carry_out_kept(
    settings: Settings, environment: Environment | None = None, *, progress: Progress = no_progress
) -> CarriedOut:
    """Tell the server what was decided and is not known there yet, and mark which answers may be used.

    Raises:
        EndpointError: no server answers; the decisions stay stored.
    """
    with open_database(settings.db_url) as session:
        chosen = choose_environment(session, environment)
        owed = has_open_calls(session, chosen)
        session.rollback()
        done = tell_server(session, settings, chosen, progress) if owed else CarriedOut(0, 0, 0)
        judge(session, chosen, settings.gold_rule)
        session.commit()
    return done


def tell_server(session: Session, settings: Settings, chosen: Environment, progress: Progress) -> CarriedOut:
    """Make the calls that stored decisions ask for; EndpointError where no server answers."""
    with open_endpoint(settings, chosen) as endpoint:
        require_same_server(session, endpoint, chosen)
        return carry_out(
            session,
            endpoint.client(),
            settings,
            chosen,
            charges_fee=endpoint.charges_fee,
            progress=progress,
        )


def keep_one(session: Session, row: AssignmentRow, ruling: Ruling) -> None:
    """Write one decision, a rejection with its reason."""
    if ruling.decision is Decision.REJECT:
        plan_rejection(session, row, ruling.reason)
    answer_store.set_decision(session, [row.id], ruling.decision)


def check_reasons(rulings: Sequence[Ruling]) -> None:
    """UsageError where a rejection has no reason that its worker can understand."""
    for ruling in rulings:
        if ruling.decision is Decision.REJECT and len(ruling.reason.strip()) < MIN_REASON:
            raise UsageError(
                f"a rejection needs --reason of at least {MIN_REASON} characters; its worker will read it"
            )


def check_open(row: AssignmentRow, wanted: Decision) -> None:
    """StoreError where the submission is decided already, unless as wanted, or was paid and cannot be rejected."""
    if wanted is Decision.REJECT and row.status == APPROVED:
        raise StoreError(
            f"submission {row.id} was approved by itself meanwhile, so it is paid; drop its answers instead"
        )
    if row.decision not in (Decision.QUEUED, Decision.NONE, wanted):
        raise StoreError(
            f"submission {row.id} is decided already: {_DECIDED[row.decision]}; only what waits can be decided"
        )


def find_submission(session: Session, environment: Environment, number: int) -> AssignmentRow:
    """The submission of this number; StoreError where there is none."""
    return find_submissions(session, environment, [number])[number]


def find_submissions(
    session: Session, environment: Environment, numbers: Collection[int]
) -> dict[int, AssignmentRow]:
    """The submissions of these numbers; StoreError names the first that there is none of."""
    found = {
        row.id: row
        for chunk in chunks(sorted(numbers))
        for row in answer_store.assignments(session, environment, rows=chunk)
    }
    for number in numbers:
        if number not in found:
            raise StoreError(
                f"there is no submission {number} on {environment}; `mitl review` lists what waits"
            )
    return {number: found[number] for number in numbers}
