"""Which bonuses lift whom to the wage floor."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy.orm import Session

from mitl.core.pricing import format_dollars
from mitl.crowd.paying import APPROVED
from mitl.crowd.wages import minutes, money
from mitl.db.store import ledger
from mitl.db.store.ledger import BONUS, SettledWork
from mitl.judgements.wages import WorkerPay
from mitl.records import Environment, Table
from mitl.stages.paying.bonuses import Planned, marked, plan_bonus, reference_of

PREFIX = "topup"
_MOST = 1000
"""Top-ups of one worker among which a reference is looked for."""


def propose(
    session: Session,
    project_id: str,
    environment: Environment,
    settled: Sequence[SettledWork],
    pay: Sequence[WorkerPay],
    *,
    floor_cents: int,
    charges_fee: bool,
    skip: Collection[str] = (),
) -> list[Planned]:
    """A bonus for everyone whose paid work is short of the floor, on the worker's latest approved submission."""
    latest = {row.worker: row for row in settled if row.status == APPROVED}  # in order of arrival
    sent = ledger.last_numbers(session, BONUS, f"{PREFIX}:{environment}:")
    found = []
    for one in pay:
        cents = one.shortfall_cents(floor_cents)
        if not cents or one.worker in skip:
            continue
        stem = f"{PREFIX}:{environment}:{one.worker}"
        found.append(
            plan_bonus(
                project_id,
                environment,
                f"{stem}:{sent.get(stem, 0) + 1}",
                latest[one.worker],
                cents,
                _text(floor_cents),
                charges_fee=charges_fee,
            )
        )
    return found


def key_of_reference(project_id: str, environment: Environment, worker: str, reason: str) -> str | None:
    """The key of the top-up whose reference a bonus's reason carries; None where it is none of this project's."""
    for number in range(1, _MOST + 1):
        key = f"{PREFIX}:{environment}:{worker}:{number}"
        if marked(reference_of(project_id, key)) in reason:
            return key
    return None


def offer_table(environment: Environment, fresh: Sequence[Planned], pay: Sequence[WorkerPay]) -> Table:
    """The bonuses beside what their workers have earned so far."""
    known = {one.worker: one for one in pay}
    rows = []
    for one in fresh:
        paid = known[one.worker]
        rows.append(
            (
                one.worker,
                paid.submissions,
                minutes(paid.ms),
                format_dollars(paid.paid_cents),
                money(paid.hourly_cents),
                format_dollars(one.cents),
            )
        )
    columns = ("worker", "HITs", "minutes", "paid so far", "an hour", "bonus")
    return Table(f"bonuses on {environment}", columns, tuple(rows))


def _text(floor_cents: int) -> str:
    return (
        "Thank you for your work. It took longer than we had expected, so this bonus lifts what you earned to "
        f"{format_dollars(floor_cents)} for each hour of it."
    )
