"""Bonuses that lift those who earned less than the wage floor to it, each sent once, whenever the process dies.

What a person confirmed is journalled whole before the first call, with amounts that never change again. What a run
that was killed left is completed alone, under the bounds that it was confirmed with; the next run proposes anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.core.pricing import format_dollars
from mitl.crowd.endpoint import Endpoint, open_endpoint
from mitl.crowd.environment import choose_environment, require_same_server
from mitl.crowd.wages import floor_cents, paid_work, time_warnings
from mitl.db.locks import PAY, only_one
from mitl.db.session import open_database, reading
from mitl.db.store import ledger
from mitl.errors import UsageError
from mitl.judgements.wages import WorkerPay, worker_pay
from mitl.progress import Progress, no_progress
from mitl.records import Environment, StageResult, Table, several
from mitl.settings import Settings
from mitl.stages.paying.bonuses import BonusSender, Planned, cost_of, in_words, unsent
from mitl.stages.paying.top_up_plan import offer_table, propose

_WHAT = "the total of the bonuses"

Announce = Callable[[Sequence[Table], Sequence[str]], None]
"""Is shown tables and lines before anything is sent."""


@dataclass(frozen=True, slots=True)
class TopUpTerms:
    """What a person asks of a top-up."""

    floor_cents: int | None = None
    """An hour; None takes the configured floor."""
    max_cost_cents: int | None = None
    """The most that this run may cost, fees included."""
    skip: frozenset[str] = frozenset()
    """Workers who are left out, by their ids on the requester API."""
    dry_run: bool = False
    """Show what would be sent, and send nothing."""


def top_up(
    settings: Settings,
    environment: Environment | None = None,
    terms: TopUpTerms | None = None,
    *,
    confirm: Callable[[Environment, int], bool],
    announce: Announce | None = None,
    progress: Progress = no_progress,
) -> StageResult:
    """Send what an interrupted run left unsent, or propose, confirm and send bonuses up to the floor.

    Args:
        confirm: is given the environment and the total in cents of what is new, fees included; says whether to go on.

    Raises:
        StoreError: another `mitl pay` is at work on the same database.
        UsageError: the total exceeds ``max_cost_cents`` or was not confirmed; nobody of a skipped id was paid.
        FundsError: the balance or the ceiling does not allow it.
        CrowdError: a call failed; what was sent is booked and the next run goes on.
    """
    asked = terms or TopUpTerms()
    with (
        open_database(settings.db_url) as session,
        nullcontext() if asked.dry_run else only_one(settings.db_url, PAY),
    ):
        with reading(session):
            chosen = choose_environment(session, environment)
        with open_endpoint(settings, chosen) as endpoint:
            with reading(session):
                require_same_server(session, endpoint, chosen)
            run = _Run(session, settings, chosen, endpoint, asked, announce, progress)
            return run.go(confirm)


class _Run:
    """One top-up of one environment."""

    def __init__(
        self,
        session: Session,
        settings: Settings,
        environment: Environment,
        endpoint: Endpoint,
        terms: TopUpTerms,
        announce: Announce | None,
        progress: Progress,
    ) -> None:
        self._session, self._settings, self._environment, self._terms = session, settings, environment, terms
        self._endpoint = endpoint
        self._announce, self._told = announce or _silence, announce is not None
        self._sender = BonusSender(session, settings, environment, endpoint, progress)
        self._floor = floor_cents(settings, environment, terms.floor_cents)
        self._later = 0
        """Workers short of the floor to whom the next run proposes a bonus."""

    def go(self, confirm: Callable[[Environment, int], bool]) -> StageResult:
        """Complete the interrupted run, or propose and send; what the server refused before is tried beside that."""
        with reading(self._session):
            self._check_skipped()
            open_calls = unsent(self._session, self._environment)
        earlier = [one for one in open_calls if one.worker not in self._terms.skip]
        completing = any(not one.refused for one in earlier)
        if earlier:
            total = cost_of(earlier)
            self._require_within(total)
            how = "sent, and nothing beside them" if completing else "refused then and tried again"
            self._announce((), (f"{in_words(earlier)}, confirmed by an earlier run: {how}",))
            if not self._terms.dry_run:
                self._sender.send(earlier)
        fresh, pay, warnings = self._propose()
        if completing:
            self._later, fresh = len(fresh), []
        if fresh:
            self._offer(earlier, fresh, pay, warnings)
            if not self._terms.dry_run:
                if not confirm(self._environment, cost_of(fresh)):
                    raise UsageError("the total was not confirmed; nothing new was sent")
                self._sender.plan(fresh, _WHAT)
                self._sender.send(fresh)
        return self._result(earlier, fresh, pay, warnings)

    def _check_skipped(self) -> None:
        known = {row.worker for row in ledger.settled_work(self._session, self._environment)}
        strangers = sorted(self._terms.skip - known)
        if strangers:
            raise UsageError(
                f"nobody of id {strangers[0]!r} has submitted work on {self._environment}; see `mitl pay`"
            )

    def _propose(self) -> tuple[list[Planned], list[WorkerPay], tuple[str, ...]]:
        """The new bonuses, everyone's pay, and what to know about it; nobody whose bonus still waits gets another."""
        with reading(self._session):
            settled = ledger.settled_work(self._session, self._environment)
            still = {one.worker for one in unsent(self._session, self._environment)}
            work = paid_work(settled, self._environment)
            pay = worker_pay(work)
            fresh = propose(
                self._session,
                self._settings.project_id,
                self._environment,
                settled,
                pay,
                floor_cents=self._floor,
                charges_fee=self._endpoint.charges_fee,
                skip=self._terms.skip | still,
            )
        return fresh, pay, time_warnings(work, pay, self._environment)

    def _offer(
        self,
        earlier: Sequence[Planned],
        fresh: Sequence[Planned],
        pay: Sequence[WorkerPay],
        warnings: Sequence[str],
    ) -> None:
        """Show the bonuses; refuse what is above the maximum, the ceiling or the balance."""
        self._announce(
            (offer_table(self._environment, fresh, pay),),
            (*(f"note: {warning}" for warning in warnings), self._total_line(fresh)),
        )
        self._require_within(cost_of(earlier) + cost_of(fresh))
        self._sender.check(fresh, _WHAT)

    def _require_within(self, total: int) -> None:
        most = self._terms.max_cost_cents
        if most is not None and total > most:
            raise UsageError(
                f"{_WHAT} is {format_dollars(total)}, above --max-cost {format_dollars(most)}; raise it, lower "
                "--floor, or leave workers out with --skip; nothing new was sent"
            )

    def _total_line(self, fresh: Sequence[Planned]) -> str:
        fees = sum(one.fee_cents for one in fresh)
        where = "the endpoint charges a fee" if self._endpoint.charges_fee else "this endpoint charges none"
        return (
            f"{in_words(fresh)}, up to {format_dollars(self._floor)} an hour; fee {format_dollars(fees)} "
            f"({where}); total {format_dollars(cost_of(fresh))}"
        )

    def _result(
        self,
        earlier: Sequence[Planned],
        fresh: Sequence[Planned],
        pay: Sequence[WorkerPay],
        warnings: tuple[str, ...],
    ) -> StageResult:
        every = [self._sender.sent.get(one.key, one) for one in (*earlier, *fresh)]
        left = [one for one in pay if one.worker in self._terms.skip and one.shortfall_cents(self._floor) > 0]
        counts: dict[str, object] = {
            "environment": self._environment.value,
            "floor_cents": self._floor,
            "sent": 0 if self._terms.dry_run else len(every),
            "resumed": len(earlier),
            "bonuses_cents": sum(one.cents for one in every),
            "fees_cents": sum(one.fee_cents for one in every),
            "total_cents": cost_of(every),
            "left_out": len(left),
            "bonuses": [
                {"worker": one.worker, "assignment": one.assignment, "cents": one.cents} for one in every
            ],
        }
        lines = [self._outcome(every)]
        if self._later:
            lines.append(
                "that completes an interrupted run; the next run proposes bonuses to "
                f"{several(self._later, 'worker')} short of the floor besides"
            )
        if left:
            lines.append(f"left out by --skip: {', '.join(one.worker for one in left)}")
        return StageResult(
            status="done" if every else "nothing_to_do",
            counts=counts,
            warnings=() if fresh and self._told else warnings,
            lines=tuple(lines),
            next="mitl pay" if every and not self._terms.dry_run else "",
        )

    def _outcome(self, every: Sequence[Planned]) -> str:
        if every:
            verb = "dry run: would send" if self._terms.dry_run else "sent"
            return f"{verb} {in_words(every)}"
        if not self._floor:
            return (
                f"nothing to do: no wage floor is set on {self._environment}; name one with --floor 12.00, or set "
                "wage_floor_cents in [crowd] of mitl.toml"
            )
        return f"nothing to do: nobody's paid work is below {format_dollars(self._floor)} an hour"


def _silence(tables: Sequence[Table], lines: Sequence[str]) -> None:
    pass
