"""Bonuses: journalled whole before the first call, sent once each, booked with their fee.

A bonus that may have been sent is looked for by its reference among those that the server lists, so that it is not sent
twice even when the server has forgotten its token.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy.orm import Session

from mitl.campaign.spending import SpendingLimit
from mitl.core.pricing import fee_cents, format_dollars
from mitl.crowd.calls import Call, make_calls
from mitl.crowd.client import MTurkClient
from mitl.crowd.endpoint import Endpoint
from mitl.db.session import reading
from mitl.db.store import journal, ledger
from mitl.db.store.commitments import COST
from mitl.db.store.ledger import BONUS, SettledWork
from mitl.errors import FundsError
from mitl.progress import Progress
from mitl.records import Environment, JournalState
from mitl.settings import Settings


@dataclass(frozen=True, slots=True)
class Planned:
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
    """What the worker gets."""
    cost_cents: int
    """That and the fee."""
    reason: str
    """The worker reads it; it ends with the reference."""
    reference: str
    """By which a bonus that was sent is found again among those that the server lists."""
    refused: bool = False
    """Whether the server refused it before."""

    @property
    def fee_cents(self) -> int:
        """What the endpoint charges on top."""
        return self.cost_cents - self.cents

    def call(self) -> Call[Planned]:
        """The call that sends it."""
        request = {
            "environment": self.environment.value,
            "worker": self.worker,
            "submission": self.submission,
            "assignment": self.assignment,
            "cents": self.cents,
            COST: self.cost_cents,
            "reason": self.reason,
            "reference": self.reference,
        }
        return Call(self.key, self, request, self.token)


def unsent(session: Session, environment: Environment) -> list[Planned]:
    """The bonuses that were confirmed and are not known to be sent; those that were refused before come last."""
    rows = [
        row for row in ledger.planned_calls(session, BONUS) if row.request["environment"] == environment.value
    ]
    found = [
        Planned(
            key=row.key,
            token=row.token or "",
            environment=environment,
            worker=row.request["worker"],
            submission=row.request["submission"],
            assignment=row.request["assignment"],
            cents=row.request["cents"],
            cost_cents=row.request[COST],
            reason=row.request["reason"],
            reference=row.request["reference"],
            refused=row.state is JournalState.FAILED,
        )
        for row in rows
    ]
    return sorted(found, key=lambda one: one.refused)


def plan_bonus(
    project_id: str,
    environment: Environment,
    key: str,
    row: SettledWork,
    cents: int,
    text: str,
    *,
    charges_fee: bool,
) -> Planned:
    """A bonus on a submission; its token and its reference derive from the project and the key.

    Args:
        text: what the worker reads; the reference is put behind it.
    """
    reference = reference_of(project_id, key)
    return Planned(
        key=key,
        token=_digest(project_id, key).hex()[:48],
        environment=environment,
        worker=row.worker,
        submission=row.id,
        assignment=row.mturk_assignment_id,
        cents=cents,
        cost_cents=cents + (fee_cents(cents, 1) if charges_fee else 0),
        reason=f"{text} {marked(reference)}",
        reference=reference,
    )


class BonusSender:
    """Checks, journals and sends the bonuses of one environment."""

    def __init__(
        self,
        session: Session,
        settings: Settings,
        environment: Environment,
        endpoint: Endpoint,
        progress: Progress,
    ) -> None:
        self._session, self._endpoint, self._progress = session, endpoint, progress
        self._client = endpoint.client()
        self._limit = SpendingLimit(session, settings, environment, charges_fee=endpoint.charges_fee)
        self.sent: dict[str, Planned] = {}
        """By key, as the server has granted them."""

    def check(self, fresh: Sequence[Planned], what: str) -> None:
        """Refuse what is above the ceiling or the balance.

        Args:
            what: as the message names the total: ``the bonus``.

        Raises:
            FundsError: it is.
        """
        total = cost_of(fresh)
        with reading(self._session):
            self._limit.require(total, what)
        balance = self._client.balance()
        if total > balance:
            raise FundsError(
                f"{what} is {format_dollars(total)}, but the balance is {format_dollars(balance)}; raise the budget "
                "with `mitl crowd budget`; nothing new was sent"
            )

    def plan(self, fresh: Sequence[Planned], what: str) -> None:
        """Journal all of what was confirmed, or nothing where the ceiling no longer allows it."""
        self._limit.require(cost_of(fresh), what)
        calls = [one.call() for one in fresh]
        journal.plan(
            self._session,
            BONUS,
            [(call.key, call.token, json.dumps(call.request)) for call in calls],
            dt.datetime.now(dt.UTC),
        )
        self._session.commit()

    def send(self, planned: Sequence[Planned]) -> None:
        """Send what is journalled, each once.

        Raises:
            FundsError: the ceiling was lowered, or reached by others, meanwhile.
            CrowdError: a call failed; what was sent is booked.
        """
        make_calls(
            self._session,
            BONUS,
            [one.call() for one in planned],
            call=lambda one: send_once(self._client, one),
            book=self._book,
            progress=self._progress,
            in_order=self._endpoint.in_process,
            before_window=lambda window: self._limit.recheck(),
        )

    def _book(self, one: Planned, cents: int) -> None:
        fee = fee_cents(cents, 1) if self._endpoint.charges_fee else 0
        journal.add_ledger(self._session, one.submission, BONUS, f"bonus:{one.key}", cents)
        if fee:
            journal.add_ledger(self._session, one.submission, "fee", f"fee:bonus:{one.key}", fee)
        self.sent[one.key] = replace(one, cents=cents, cost_cents=cents + fee)


def send_once(client: MTurkClient, one: Planned) -> int:
    """Send a bonus unless the server has it; returns the cents that it has granted."""
    known = _granted(client, one)
    if known is not None:
        return known
    if client.bonus(one.assignment, one.worker, one.cents, one.reason, token=one.token):
        return one.cents
    known = _granted(client, one)
    return one.cents if known is None else known


def _granted(client: MTurkClient, one: Planned) -> int | None:
    """What the server has granted under this bonus's reference; None where it knows none."""
    for found in client.list_bonuses(assignment_id=one.assignment):
        if found.worker_id == one.worker and marked(one.reference) in found.reason:
            return found.cents
    return None


def in_words(planned: Sequence[Planned]) -> str:
    """``3 bonuses of $4.50 in all``."""
    cents = format_dollars(sum(one.cents for one in planned))
    return f"1 bonus of {cents}" if len(planned) == 1 else f"{len(planned):,} bonuses of {cents} in all"


def cost_of(planned: Sequence[Planned]) -> int:
    """Cents of all of them, fees included."""
    return sum(one.cost_cents for one in planned)


def marked(reference: str) -> str:
    """A reference as it stands in a reason."""
    return f"(ref {reference})"


def reference_of(project_id: str, key: str) -> str:
    """Ten letters and digits by which a bonus is found again."""
    return base64.b32encode(_digest(project_id, f"reference:{key}"))[:10].decode()


def _digest(project_id: str, name: str) -> bytes:
    return hashlib.sha256(f"mitl1:{project_id}:{name}".encode()).digest()
