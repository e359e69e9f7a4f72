"""Bonuses: journalled whole before the first call, sent once each, booked with their fee.

Some a person decides on: for work that could not be submitted, or for whatever else went wrong.

A bonus that may have been sent is looked for by its reference among those that the server lists, so that it is not sent
twice even when the server has forgotten its token.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Annotated

from sqlalchemy.orm import Session

from mitl.campaign.bill import SpendingLimit
from mitl.campaign.posting import annotation_prefix
from mitl.core.pricing import fee_cents, format_dollars
from mitl.crowd.calls import THREADS, Call, Operation, make_calls, plan_calls
from mitl.crowd.client import ListedBonus, MTurkClient
from mitl.crowd.context import Context, named, open_context
from mitl.crowd.endpoint import Endpoint, open_same_endpoint
from mitl.crowd.listings import is_code
from mitl.db.locks import PAY, only_one
from mitl.db.session import reading
from mitl.db.store import answers as answer_store
from mitl.db.store import hits as hit_store
from mitl.db.store import journal, ledger
from mitl.db.store.ledger import BONUS, COMPENSATE, SettledWork
from mitl.errors import CrowdError, StoreError, UntraceableError, UsageError
from mitl.progress import Progress, no_progress
from mitl.records import Environment, JournalState, StageResult
from mitl.records.results import EnvironmentCounts, printed_by
from mitl.settings import Settings
from mitl.stages.reviewing.decisions import check_reason

_KEPT = ("environment", "worker", "submission", "assignment", "cents", "cost_cents", "reason", "reference")
"""What the journal's request holds of a bonus."""


@dataclass(frozen=True, slots=True)
class PlannedBonus:
    """A bonus to be sent once, as the journal keeps it; its amount never changes again."""

    key: str
    """``<why>:<environment>:<worker>:<number or hash>``; names it for ever."""
    token: str
    environment: Environment
    worker: str
    submission: int
    """Row of the submission that it is booked on."""
    assignment: str
    """The API's id of that submission."""
    cents: int
    """Amount that the worker gets."""
    cost_cents: int
    """That and the fee."""
    reason: str
    """The worker reads it; it ends with the reference."""
    reference: str
    """By which a bonus that was sent is found again among those that the server lists."""
    refused: bool = False
    """Whether the server refused it before."""
    doubtful: bool = False
    """Whether it was sent before and its reply never came."""
    elsewhere: tuple[str, ...] = ()
    """Other HITs on which it may stand already, where the database was restored from before it was sent."""

    @property
    def fee_cents(self) -> int:
        """What the endpoint charges on top."""
        return self.cost_cents - self.cents

    def call(self) -> Call[PlannedBonus]:
        """The call that sends it."""
        return Call(self.key, self, {name: getattr(self, name) for name in _KEPT}, self.token)


def unsent(session: Session, environment: Environment) -> list[PlannedBonus]:
    """The bonuses that were confirmed and are not known to be sent; those that were refused before come last."""
    waiting = [
        PlannedBonus(
            row.key,
            row.token or "",
            **{name: request[name] for name in _KEPT} | {"environment": environment},
            refused=row.state is JournalState.FAILED,
            doubtful=row.state is JournalState.SENDING,
        )
        for row in journal.open_calls(session, BONUS)
        if (request := json.loads(row.request))["environment"] == environment.value
    ]
    return sorted(waiting, key=lambda bonus: bonus.refused)


class BonusSender:
    """Checks, journals and sends the bonuses of one environment."""

    def __init__(self, context: Context, endpoint: Endpoint) -> None:
        self._context, self._session, self._endpoint = context, context.session, endpoint
        self._client = endpoint.client()
        self._limit = SpendingLimit(
            context.session, context.settings, context.environment, charges_fee=endpoint.charges_fee
        )
        self.sent: dict[str, PlannedBonus] = {}
        """By key, as the server has granted them."""
        self.untraceable: set[str] = set()
        """Keys of those that may have been granted, which nobody can find out."""

    def bonus(
        self, key: str, row: SettledWork, cents: int, text: str, others: Iterable[SettledWork]
    ) -> PlannedBonus:
        """A bonus on a submission; its token and its reference derive from the project and the key.

        Args:
            text: what the worker reads; the reference is put behind it.
            others: the worker's submissions that a bonus of this key would have been put on before.
        """
        project_id = self._context.settings.project_id
        reference = reference_of(project_id, key)
        return PlannedBonus(
            key=key,
            token=_digest(project_id, key).hex()[:48],
            environment=self._context.environment,
            worker=row.worker,
            submission=row.id,
            assignment=row.mturk_assignment_id,
            cents=cents,
            cost_cents=cents + (fee_cents(cents, 1) if self._endpoint.charges_fee else 0),
            reason=f"{text} {marked(reference)}",
            reference=reference,
            elsewhere=tuple(other.mturk_hit_id for other in others if other.id != row.id),
        )

    def check(self, fresh: Sequence[PlannedBonus], what: str) -> None:
        """Refuse what is above the ceiling or the balance, or was granted on other work.

        Args:
            what: as the message names the total: ``the bonus``.

        Raises:
            FundsError: it is above.
            StoreError: the server has a bonus that the database lost.
        """
        total = cost_of(fresh)
        with reading(self._session):
            self._limit.require(total, what)
            counts = answer_store.stored_counts(self._session, self._context.environment)
            posted = hit_store.hits(self._session, self._context.environment)
            stored = {hit.mturk_hit_id: counts.get(hit.id, 0) for hit in posted}
            here = named(self._session, self._context.environment)
        self._limit.require_balance(total, self._client.balance(), what, "grant less; nothing new was sent")
        prefix = annotation_prefix(self._context.settings.project_id)
        unfetched = [
            hit.hit_id
            for hit in (self._client.list_hits() if fresh else ())
            if (hit.annotation or "").startswith(prefix) and hit.n_submitted > stored.get(hit.hit_id, 0)
        ]
        # One call for all who answered a HIT. The server's day of remembering a token may be over.
        hits = sorted({*unfetched, *(hit for bonus in fresh for hit in bonus.elsewhere)})
        known = {bonus.worker: bonus for bonus in fresh}
        with ThreadPoolExecutor(THREADS, thread_name_prefix="look") as pool:
            for hit, listed in chain.from_iterable(pool.map(partial(_bonuses_of_hit, self._client), hits)):
                bonus = known.get(listed.worker_id)
                if bonus is None or listed.assignment_id == bonus.assignment:
                    continue  # what stands on its own submission is booked, see `send_once`
                if marked(bonus.reference) in listed.reason:
                    first = (
                        f"run `mitl harvest{here}` and `mitl pay check --adopt{here}` first"
                        if hit in stored
                        else "its HIT is unknown here, so restore the newer database; `mitl pay top-up --skip "
                        f"{listed.worker_id}{here}` goes on with the others"
                    )
                    raise StoreError(
                        f"{listed.worker_id} was sent this bonus already, {format_dollars(listed.cents)} on "
                        f"submission {listed.assignment_id}, as the server says and the database does not, so it was "
                        f"restored from before; {first}; nothing new was sent"
                    )

    def plan(self, fresh: Sequence[PlannedBonus], what: str) -> None:
        """Journal all of what was confirmed, or nothing where the ceiling no longer allows it."""
        self._limit.require(cost_of(fresh), what)
        plan_calls(self._context, BONUS, [bonus.call() for bonus in fresh])
        self._session.commit()

    def send(self, planned: Sequence[PlannedBonus]) -> None:
        """Send what is journalled, each once.

        Raises:
            FundsError: the ceiling was lowered, or reached by others, meanwhile.
            CrowdError: a call failed, and what was sent is booked; or one was refused, and all others were made.
        """
        refusals: dict[str, CrowdError] = {}
        sending: Operation[PlannedBonus, int] = Operation(
            BONUS,
            lambda bonus: send_once(self._client, bonus),
            self._book,
            before_window=lambda window: self._limit.recheck(),
        )
        calls = [bonus.call() for bonus in planned]
        make_calls(self._context, sending, calls, in_order=self._endpoint.in_process, refusals=refusals)
        self.untraceable |= {key for key, error in refusals.items() if isinstance(error, UntraceableError)}
        for refusal in refusals.values():
            raise refusal

    def _book(self, made: Sequence[tuple[PlannedBonus, int]]) -> None:
        for bonus, cents in made:
            charges_fee = self._endpoint.charges_fee
            booked = book(self._session, bonus.submission, bonus.key, cents, charges_fee=charges_fee)
            self.sent[bonus.key] = replace(bonus, cents=cents, cost_cents=booked)


def book(session: Session, submission: int, key: str, cents: int, *, charges_fee: bool) -> int:
    """Book a bonus that was granted on this submission, and its fee where one is charged; returns the cents of both."""
    bookings = [(submission, BONUS, f"bonus:{key}", cents)]
    if charges_fee:
        bookings.append((submission, "fee", f"fee:bonus:{key}", fee_cents(cents, 1)))
    journal.add_ledger(session, bookings)
    return sum(booked for *_, booked in bookings)


def send_once(client: MTurkClient, bonus: PlannedBonus) -> int:
    """Send a bonus unless the server has it; returns the cents that it has granted."""
    try:
        granted = _granted(client, bonus)
    except CrowdError as error:
        error.unclear |= bonus.doubtful  # a refusal to list it says nothing about it
        if bonus.doubtful and is_code(error, "AssignmentDoesNotExist", "HITDoesNotExist"):
            lost = UntraceableError(
                f"{bonus.worker} may have got a bonus of {format_dollars(bonus.cents)} whose reply was lost, and the "
                f"server no longer has its submission to look for it: {error}; nobody else waits for it, and it stays "
                "promised: ask the worker or the account's history whether "
                f"{marked(bonus.reference)} came; `mitl pay top-up --skip {bonus.worker} --{bonus.environment}` leaves "
                "it out"
            )
            lost.unclear = True
            raise lost from error
        raise
    if granted is not None:
        return granted
    if client.bonus(bonus.assignment, bonus.worker, bonus.cents, bonus.reason, token=bonus.token):
        return bonus.cents
    granted = _granted(client, bonus)
    return bonus.cents if granted is None else granted


def _granted(client: MTurkClient, bonus: PlannedBonus) -> int | None:
    """What the server has granted under this bonus's reference; None where it knows none."""
    for listed in client.list_bonuses(assignment_id=bonus.assignment):
        if listed.worker_id == bonus.worker and marked(bonus.reference) in listed.reason:
            return listed.cents
    return None


def _bonuses_of_hit(client: MTurkClient, hit_id: str) -> list[tuple[str, ListedBonus]]:
    """The bonuses granted on a HIT, each with it; none where the server no longer has it."""
    try:
        return [(hit_id, bonus) for bonus in client.list_bonuses(hit_id=hit_id)]
    except CrowdError as error:
        if is_code(error, "HITDoesNotExist"):
            return []
        raise


def in_words(planned: Sequence[PlannedBonus]) -> str:
    """``3 bonuses of $4.50 in all``."""
    cents = format_dollars(sum(bonus.cents for bonus in planned))
    return f"1 bonus of {cents}" if len(planned) == 1 else f"{len(planned):,} bonuses of {cents} in all"


def cost_of(planned: Sequence[PlannedBonus]) -> int:
    """Cents of all of them, fees included."""
    return sum(bonus.cost_cents for bonus in planned)


def marked(reference: str) -> str:
    """A reference as it stands in a reason."""
    return f"(ref {reference})"


def reference_of(project_id: str, key: str) -> str:
    """Ten letters and digits by which a bonus is found again."""
    return base64.b32encode(_digest(project_id, f"reference:{key}"))[:10].decode()


def _digest(project_id: str, name: str) -> bytes:
    return hashlib.sha256(f"mitl1:{project_id}:{name}".encode()).digest()


MAX_REASON = 1900
"""Characters; the API takes 2,000, and the reference needs some."""
_WHAT = "the bonus with its fee"


@printed_by("pay compensate")
class CompensateCounts(EnvironmentCounts):
    """What a single bonus counts."""

    worker: Annotated[str, "who gets it"]
    sent: Annotated[int, "1, or 0 where it was sent before"]
    bonuses_cents: Annotated[int, "what the worker gets by this run"]
    fees_cents: Annotated[int, "the fee on top"]
    total_cents: Annotated[int, "both"]


@dataclass(frozen=True, slots=True)
class Gift:
    """What somebody is to get."""

    worker: str
    """Their id on the requester API."""
    cents: int
    reason: str
    """They read it."""


def compensate(
    settings: Settings,
    gift: Gift,
    environment: Environment | None = None,
    *,
    confirm: Callable[[Environment, int], bool],
    progress: Progress = no_progress,
) -> StageResult:
    """Send a worker a bonus once; the same worker, amount and reason again send nothing.

    It is attached to the worker's latest submission, whatever became of that, for the API takes no bonus without one.
    It does not count when the pay of the submitted work is compared with the wage floor.

    Args:
        confirm: is given the environment and the total in cents, the fee included; says whether to go on.

    Raises:
        UsageError: no amount, no reason that the worker can understand, or the total was not confirmed.
        StoreError: the worker has submitted nothing, or another `mitl pay` is at work.
        FundsError: the balance or the ceiling does not allow it.
        CrowdError: the call failed; run again, it is sent once.
    """
    _check(gift)
    with (
        open_context(settings, environment, progress=progress) as context,
        only_one(settings.db_url, PAY),
    ):
        session, chosen = context.session, context.environment
        key = key_of_gift(chosen, gift)
        with reading(session):
            *others, row = _work_of(session, chosen, gift.worker)
            call, here = journal.find(session, BONUS, key), named(session, chosen)
        if call is not None and call.state is JournalState.DONE:
            return StageResult.nothing(
                f"{gift.worker} was sent {format_dollars(gift.cents)} for this reason on "
                f"{call.at:%Y-%m-%d %H:%M} UTC; give another reason to pay once more",
                _counts(chosen, gift.worker),
            )
        with open_same_endpoint(context) as endpoint:
            sender = BonusSender(context, endpoint)
            with reading(session):
                waiting = [bonus for bonus in unsent(session, chosen) if bonus.key == key]
            if not waiting:
                waiting = [sender.bonus(key, row, gift.cents, gift.reason, others)]
                sender.check(waiting, _WHAT)
                if not confirm(chosen, cost_of(waiting)):
                    raise UsageError("the total was not confirmed; nothing was sent")
                sender.plan(waiting, _WHAT)
            sender.send(waiting)
            [sent] = sender.sent.values()
    fee = f" (fee {format_dollars(sent.fee_cents)})" if sent.fee_cents else ""
    return StageResult(
        counts=_counts(chosen, gift.worker, sent),
        lines=(f"sent {sent.worker} a bonus of {format_dollars(sent.cents)}{fee}",),
        next=f"mitl pay{here}",
    )


def _check(gift: Gift) -> None:
    if gift.cents < 1:
        raise UsageError("a bonus of $0.00 is none; --amount is at least 0.01")
    check_reason(gift.reason, MAX_REASON, "the reason of a bonus")


def _work_of(session: Session, environment: Environment, worker: str) -> list[SettledWork]:
    """The worker's submissions, at least one, the latest last."""
    work = [row for row in ledger.settled_work(session, environment) if row.worker == worker]
    if not work:
        raise StoreError(
            f"nobody of id {worker!r} has submitted work on {environment} (`mitl pay{named(session, environment)}` "
            "lists who has, `mitl crowd panel visits` a panel's ids beside theirs), and a bonus needs a submission; "
            "let them submit a HIT first, or pay them outside and note it"
        )
    return work


def key_of_gift(environment: Environment, gift: Gift) -> str:
    """Names a compensation for ever."""
    what = hashlib.sha256(f"{gift.cents}:{gift.reason}".encode()).hexdigest()[:16]
    return f"{COMPENSATE}:{environment}:{gift.worker}:{what}"


def _counts(environment: Environment, worker: str, *sent: PlannedBonus) -> CompensateCounts:
    return {
        "environment": environment.value,
        "worker": worker,
        "sent": len(sent),
        "bonuses_cents": sum(bonus.cents for bonus in sent),
        "fees_cents": sum(bonus.fee_cents for bonus in sent),
        "total_cents": cost_of(sent),
    }
