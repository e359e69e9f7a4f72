"""What work is paid: the calls that decide about it, the time that it took, and the wage floor beside it.

Calls that bind (approve, reject, exclude) are journalled before they are made and booked once after.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.core.clock import utc_now
from mitl.core.pricing import fee_cents, format_dollars
from mitl.crowd.calls import Call, Operation, make_calls
from mitl.crowd.client import MTurkClient, exclusion_qualification
from mitl.crowd.context import Context
from mitl.crowd.listings import is_code
from mitl.db.store import answers as answer_store
from mitl.db.store import desk as desk_store
from mitl.db.store import hits as hit_store
from mitl.db.store import journal
from mitl.db.store.answers import StoredAssignment
from mitl.db.store.hits import BatchRow
from mitl.db.store.journal import Booking
from mitl.db.store.ledger import SettledWork
from mitl.db.store.parses import add_all_findings
from mitl.errors import CrowdError
from mitl.judgements.wages import PaidWork, WorkerPay, WorkTime, slow_work, work_time
from mitl.records import Decision, Environment, Finding, several
from mitl.records.results import listed
from mitl.settings import ASSIGNMENT_DURATION_S, WAGE_FLOOR_CENTS_PER_HOUR, Settings

APPROVE, REJECT, EXCLUDE, OVERRIDE = "approve", "reject", "qualification", "override"

SUBMITTED, APPROVED, REJECTED = "Submitted", "Approved", "Rejected"
"""The API's words for work that waits for a decision, is paid, and is refused."""

APPROVED_BEFORE_REJECTION = "approved_before_rejection"
REJECTION_STANDS = "rejection_stands"

_PAID = (Decision.PASS, Decision.APPROVE, Decision.APPROVE_EXCLUDE, Decision.DROP)


@dataclass(frozen=True, slots=True)
class CarriedOut:
    """How many calls of each kind were made."""

    approved: int
    rejected: int
    excluded: int
    too_late: int = 0
    """Rejections that found the work approved already, by itself after its delay: it is paid and not used."""
    stands: int = 0
    """Rejections that were to be reversed, and that the server takes back no more."""
    offered: tuple[str, ...] = ()
    """About each excluded worker whom the server does not keep from HITs, what it says."""
    refused: tuple[str, ...] = ()
    """About decisions that the server does not take, for each kind of call, which and why not."""

    @property
    def told(self) -> tuple[str, ...]:
        """What became of it otherwise than was decided."""
        late = "came too late: the work had been approved by itself; it is paid and not used"
        stands = "cannot be reversed any more, so the server says; pay with `mitl pay compensate`"
        counts = (self.too_late, late), (self.stands, stands)
        return (
            *(f"{several(count, 'rejection')} {said}" for count, said in counts if count),
            *self.offered,
            *self.refused,
        )


def plan_rejection(session: Session, row: StoredAssignment, reason: str) -> None:
    """Keep the reason of a rejection with its intent, so that a killed run can still carry it out.

    A rejection that the server refused, or was not told of yet, is made for the new reason.
    """
    request = json.dumps({"assignment": row.mturk_assignment_id, "reason": reason})
    journal.plan(session, REJECT, [(row.key, None, request)], utc_now())
    journal.amend(session, REJECT, row.key, request)


def payment(
    session: Session,
    assignment_id: int,
    key: str,
    batch: BatchRow,
    *,
    charges_fee: bool,
    wanted: int | None = None,
) -> list[Booking]:
    """An approved submission's reward, and the fee where the endpoint takes one, as the ledger books them.

    Args:
        wanted: workers whom the submission's HIT asks for; looked up where it is not given.
    """
    bookings = [(assignment_id, "reward", f"reward:{key}", batch.reward_cents)]
    if charges_fee:
        wanted = answer_store.workers_wanted(session, assignment_id) if wanted is None else wanted
        bookings.append((assignment_id, "fee", f"fee:{key}", fee_cents(batch.reward_cents, wanted)))
    return bookings


def note_too_late(session: Session, assignment_ids: Sequence[int]) -> None:
    """These were paid before their rejection arrived: they are not used, and a finding says why."""
    answer_store.set_decision(session, assignment_ids, Decision.DROP)
    finding = Finding(APPROVED_BEFORE_REJECTION, "the work had been approved by itself")
    add_all_findings(session, {id_: [finding] for id_ in assignment_ids})


def has_open_calls(session: Session, environment: Environment) -> bool:
    """Whether something was decided that the server has not heard of."""
    return desk_store.unsent(session, environment) > 0


def carry_out(context: Context, client: MTurkClient, *, charges_fee: bool) -> CarriedOut:
    """Make the calls that stored decisions ask for and that were not made yet, by this run or an earlier one.

    Raises:
        CrowdError: no server answers, or it refuses calls whatever they are about; those of other kinds were made.
    """
    session, environment = context.session, context.environment
    paid = answer_store.assignments(session, environment, _PAID, settled=False)
    rejected_here = answer_store.assignments(session, environment, (Decision.REJECT,))
    batches = {batch.name: batch for batch in hit_store.batches(session, environment)}
    session.rollback()
    too_late: set[int] = set()
    stand: set[int] = set()
    failures: list[CrowdError] = []
    refused: list[str] = []

    def run(kind: str, rows: Sequence[StoredAssignment], call: Callable[[StoredAssignment], bool]) -> int:
        book = {REJECT: book_rejections, OVERRIDE: book_reversals}.get(kind, book_approvals)
        calls = [Call(row.key, row, {"assignment": row.mturk_assignment_id}) for row in rows]
        refusals: dict[str, CrowdError] = {}
        made = 0
        try:
            made = make_calls(context, Operation(kind, call, book), calls, refusals=refusals)
        except CrowdError as error:
            if error.unclear:
                raise
            failures.append(error)  # which holds up no call of another kind
        if refusals:
            refused.append(_refused_line([row.id for row in rows if row.key in refusals], refusals))
        return made

    def book_approvals(made: Sequence[tuple[StoredAssignment, bool]]) -> None:
        answer_store.set_status(session, [row.id for row, _ in made], APPROVED)
        bookings: list[Booking] = []
        for row, _ in made:
            of = row.id, row.key, batches[row.batch]
            bookings += payment(session, *of, charges_fee=charges_fee, wanted=row.wanted)
        journal.add_ledger(session, bookings)

    def book_rejections(made: Sequence[tuple[StoredAssignment, bool]]) -> None:
        answer_store.set_status(session, [row.id for row, rejected in made if rejected], REJECTED)
        late = [(row, True) for row, rejected in made if not rejected]
        book_approvals(late)
        note_too_late(session, [row.id for row, _ in late])
        too_late.update(row.id for row, _ in late)

    def book_reversals(made: Sequence[tuple[StoredAssignment, bool]]) -> None:
        book_approvals([(row, True) for row, reversed_now in made if reversed_now])
        left = [row.id for row, reversed_now in made if not reversed_now]
        answer_store.set_decision(session, left, Decision.REJECT)
        finding = Finding(REJECTION_STANDS, "the server takes it back no more")
        add_all_findings(session, {number: [finding] for number in left})
        stand.update(left)

    approved = run(
        APPROVE,
        [row for row in paid if row.status == SUBMITTED],
        lambda row: client.approve(row.mturk_assignment_id),
    )
    approved += run(OVERRIDE, _to_override(session, paid), lambda row: _reverse(client, row))
    to_reject = [row for row in rejected_here if row.status == SUBMITTED]
    reasons = {row.key: _reason(session, row) for row in to_reject}
    rejected = run(REJECT, to_reject, lambda row: _reject(client, row, reasons[row.key]))
    to_exclude = [row for row in paid if row.decision is Decision.APPROVE_EXCLUDE and not row.excluded]
    excluded, offered = _exclude(context, client, to_exclude)
    if failures:
        raise failures[0]
    return CarriedOut(
        approved - len(stand),
        rejected - len(too_late),
        excluded,
        len(too_late),
        len(stand),
        offered,
        tuple(refused),
    )


def _refused_line(submissions: Sequence[int], refusals: Mapping[str, CrowdError]) -> str:
    named = listed([str(number) for number in submissions], _NAMED)
    # Without the address, which is another at each look of `harvest --watch` where no `mitl serve` answers.
    said = str(next(iter(refusals.values()))).partition(": ")[2]
    return f"what was decided about submission {named} is refused; each harvest tries again: {said}"


def _reverse(client: MTurkClient, row: StoredAssignment) -> bool:
    """Pay rejected work after all; False where the time is over, or the HIT deleted, and it stays rejected."""
    try:
        client.approve(row.mturk_assignment_id, override_rejection=True)
    except CrowdError as error:
        if not is_code(error, "InvalidAssignmentState"):
            raise
        return False
    return True


def _reject(client: MTurkClient, row: StoredAssignment, reason: str) -> bool:
    """Refuse a submission; False where it had been approved by itself before."""
    try:
        client.reject(row.mturk_assignment_id, reason)
    except CrowdError:
        assert row.mturk_hit_id is not None
        listed = client.list_assignments(row.mturk_hit_id)
        now = {(assignment.assignment_id, assignment.worker_id): assignment.status for assignment in listed}
        if now.get((row.mturk_assignment_id, row.worker)) != APPROVED:
            raise
        return False
    return True


def _to_override(session: Session, rows: Sequence[StoredAssignment]) -> list[StoredAssignment]:
    """Rejected work that a person decided to pay after all; never work that somebody else rejected elsewhere."""
    rejected = [row for row in rows if row.status == REJECTED and row.decision is not Decision.REJECT]
    if not rejected:
        return []
    planned = {call.key for call in journal.open_calls(session, OVERRIDE)}
    return [row for row in rejected if row.key in planned]


def _reason(session: Session, row: StoredAssignment) -> str:
    planned = journal.find(session, REJECT, row.key)
    assert planned is not None, f"submission {row.id} is to be rejected without a journalled reason"
    return str(json.loads(planned.request)["reason"])


def _exclude(
    context: Context, client: MTurkClient, rows: Sequence[StoredAssignment]
) -> tuple[int, tuple[str, ...]]:
    """Keep the workers of these submissions from further HITs by the project's own qualification.

    One whom the server refuses to keep away is excluded here all the same: their answers count no more.

    Returns:
        how many were excluded, and what is to be told of those whom it refused.
    """
    leaving = {row.worker: row for row in rows}
    if not leaving:
        return 0, ()
    session = context.session
    session.rollback()
    qualification = exclusion_qualification(client, context.settings.project_id)
    calls = [
        Call(
            f"exclude:{context.environment}:{worker}",
            row,
            {"worker": worker, "qualification": qualification},
        )
        for worker, row in leaving.items()
    ]

    def exclude(rows: Sequence[StoredAssignment]) -> None:
        for row in rows:
            answer_store.exclude_worker(session, row.worker_id, f"submission {row.id}", context.now())

    excluding: Operation[StoredAssignment, None] = Operation(
        EXCLUDE,
        lambda row: client.associate_qualification(qualification, row.worker),
        lambda made: exclude([row for row, _ in made]),
    )
    refusals: dict[str, CrowdError] = {}
    made = make_calls(context, excluding, calls, refusals=refusals)
    refused = {call.subject.worker: refusals[call.key] for call in calls if call.key in refusals}
    exclude([leaving[worker] for worker in refused])
    session.commit()
    told = (
        f"worker {worker} is excluded here, but may still be offered HITs, whose answers wait for a person: {error}"
        for worker, error in refused.items()
    )
    return made + len(refused), tuple(told)


_NAMED = 5
"""Submissions that a warning names."""


def floor_cents(settings: Settings, environment: Environment, given: int | None = None) -> int:
    """Wage floor an hour: as given, else as configured, else the environment's own; 0 is not a floor."""
    if given is not None:
        return given
    if settings.wage_floor_cents is not None:
        return settings.wage_floor_cents
    return WAGE_FLOOR_CENTS_PER_HOUR[environment]


def time_of(
    active_ms: int | None,
    accepted_at: dt.datetime | None,
    submitted_at: dt.datetime | None,
    environment: Environment,
) -> WorkTime:
    """What a page claims to have taken, cut to what it can have been.

    The sandbox owes nobody anything, so its pages' claims stand: practice with scripted workers, who answer in no time
    and claim a person's, shows what people would be paid.
    """
    trusted = environment is Environment.SANDBOX
    return work_time(active_ms, accepted_at, submitted_at, ASSIGNMENT_DURATION_S, trusted=trusted)


def paid_work(settled: Sequence[SettledWork], environment: Environment) -> list[PaidWork]:
    """The approved submissions; what waits for a decision or was refused has no wage."""
    return [
        PaidWork(
            id=row.id,
            worker=row.worker,
            batch=row.batch,
            template=row.template,
            time=time_of(row.active_ms, row.accepted_at, row.submitted_at, environment),
            reward_cents=row.reward_cents,
            fee_cents=row.fee_cents,
            bonus_cents=row.bonus_cents,
            compensation_cents=row.compensation_cents,
        )
        for row in settled
        if row.status == APPROVED
    ]


def time_warnings(
    work: Sequence[PaidWork], pay: Sequence[WorkerPay], environment: Environment
) -> tuple[str, ...]:
    """What to know about times that cannot be, are missing, or are far longer than usual."""
    # On the sandbox it is what scripted workers do, and `claims_line` says it.
    doubtful = (
        0 if environment is Environment.SANDBOX else sum(submission.time.is_doubtful for submission in work)
    )
    clockless = sum(not submission.time.has_clock for submission in work)
    stand_ins = sum(row.n_stand_in for row in pay)
    unknown = sum(row.n_unknown for row in pay)
    slow = slow_work(work)
    return tuple(
        line
        for count, line in (
            (
                doubtful,
                f"{several(doubtful, 'page')} claimed more active time than passed between acceptance and submission, "
                "or than was allowed; the shorter time counts",
            ),
            (
                clockless,
                f"{several(clockless, 'page')} came without usable times of acceptance and submission; the allowed "
                f"{ASSIGNMENT_DURATION_S // 60} minutes bound their active time",
            ),
            (
                stand_ins,
                f"{several(stand_ins, 'page')} measured no active time; the median of the same wording stands in",
            ),
            (
                unknown,
                f"{several(unknown, 'page')} have no known time at all; they add to what was paid, not to the hours",
            ),
            (len(slow), _slow_line(slow, environment)),
        )
        if count
    )


def claims_line(work: Sequence[PaidWork], environment: Environment) -> tuple[str, ...]:
    """On the sandbox, how many pages claimed a time that cannot be; nothing elsewhere or where all can."""
    doubtful = sum(submission.time.is_doubtful for submission in work)
    if not doubtful or environment is not Environment.SANDBOX:
        return ()
    return (
        f"{several(doubtful, 'page')} claimed more active time than can have passed, as scripted workers do; on the "
        "sandbox the claim counts, on live it would be cut",
    )


def _slow_line(slow: Sequence[PaidWork], environment: Environment) -> str:
    slowest = sorted(slow, key=lambda submission: -(submission.time.ms or 0))
    named = [
        f"{submission.id} ({minutes(submission.time.ms or 0)} min, {submission.worker})"
        for submission in slowest
    ]
    return (
        f"far longer than usual for the wording: submission {listed(named, _NAMED)}; look with `mitl review show "
        f"NUMBER --{environment}` before time is paid for"
    )


def minutes(ms: int) -> str:
    """``12.3``."""
    return f"{ms / 60_000:,.1f}"


def money(cents: int | None) -> str | None:
    """Dollars for a table; None stays None."""
    return None if cents is None else format_dollars(cents)
