"""Bonuses that lift those who earned less than the wage floor to it, each sent once, whenever the process dies.

What a person confirmed is journalled whole before the first call, with amounts that never change again. What a run
that was killed left is completed alone, under the bounds that it was confirmed with; the next run proposes again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, TypedDict

from mitl.core.pricing import format_dollars
from mitl.crowd.client import ListedBonus
from mitl.crowd.context import Context, named, open_context
from mitl.crowd.endpoint import Endpoint, open_same_endpoint
from mitl.crowd.listings import is_refusal
from mitl.crowd.paying import APPROVED, floor_cents, minutes, money, paid_work, time_warnings
from mitl.db.locks import PAY, only_one
from mitl.db.session import reading
from mitl.db.store import journal, ledger
from mitl.db.store.ledger import BONUS, SettledWork
from mitl.errors import CrowdError, UsageError
from mitl.judgements.wages import WorkerPay, worker_pay
from mitl.progress import Progress, no_progress
from mitl.records import Environment, StageResult, Table, several
from mitl.records.results import EnvironmentCounts, printed_by
from mitl.settings import Settings
from mitl.stages.paying.bonuses import (
    BonusSender,
    Gift,
    PlannedBonus,
    cost_of,
    in_words,
    key_of_gift,
    marked,
    reference_of,
    unsent,
)

PREFIX = "topup"
_MOST = 1000
"""Top-ups of one worker among which a reference is looked for."""
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
    withdraw: frozenset[str] = frozenset()
    """Workers whose bonuses are taken back that the server refused."""
    dry_run: bool = False
    """Show what would be sent, and send nothing."""


class SentBonus(TypedDict):
    """One bonus as ``--json`` prints it."""

    worker: str
    assignment: str
    cents: int


@printed_by("pay top-up")
class TopUpCounts(EnvironmentCounts):
    """What a top-up counts."""

    floor_cents: Annotated[int, "least pay an hour that was aimed at"]
    sent: Annotated[int, "bonuses sent by this run; 0 with `--dry-run`"]
    resumed: Annotated[int, "those that an earlier run had confirmed and not sent"]
    bonuses_cents: Annotated[int, "what the workers get"]
    fees_cents: Annotated[int, "fees on top"]
    total_cents: Annotated[int, "both"]
    left_out: Annotated[int, "workers under the floor whom `--skip` left out"]
    withdrawn: Annotated[int, "bonuses that the server had refused and `--withdraw` took back"]
    bonuses: Annotated[list[SentBonus], "each bonus: worker, assignment, cents"]


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
        UsageError: the total exceeds ``max_cost_cents`` or was not confirmed; nobody of a skipped id was paid; no
            bonus to a worker of ``withdraw`` was refused.
        FundsError: the balance or the ceiling does not allow it.
        CrowdError: a call failed; what was sent is booked and the next run goes on.
    """
    asked = terms or TopUpTerms()
    with (
        open_context(settings, environment, progress=progress) as context,
        nullcontext() if asked.dry_run else only_one(settings.db_url, PAY),
        open_same_endpoint(context) as endpoint,
    ):
        return _Run(context, endpoint, asked, announce).go(confirm)


class _Run:
    """One top-up of one environment."""

    def __init__(
        self, context: Context, endpoint: Endpoint, terms: TopUpTerms, announce: Announce | None
    ) -> None:
        self._session, self._environment, self._terms = context.session, context.environment, terms
        self._charges_fee, self._announce = endpoint.charges_fee, announce
        self._sender = BonusSender(context, endpoint)
        self._floor = floor_cents(context.settings, context.environment, terms.floor_cents)

    def go(self, confirm: Callable[[Environment, int], bool]) -> StageResult:
        """Complete the interrupted run, or propose and send; what the server refused before is tried beside that."""
        with reading(self._session):
            self._check_skipped()
            open_calls, withdrawn = self._open_and_refused()
        if withdrawn and not self._terms.dry_run:
            journal.forget_refused(self._session, BONUS, [bonus.key for bonus in withdrawn])
            self._session.commit()
        earlier = [bonus for bonus in open_calls if bonus.worker not in self._terms.skip]
        completing = any(not bonus.refused for bonus in earlier)
        refusal: CrowdError | None = None
        if earlier:
            self._require_within(cost_of(earlier))
            how = "sent first" if completing else "refused then and tried again"
            self._show((), f"{in_words(earlier)}, confirmed by an earlier run: {how}")
            try:
                self._sender.send([] if self._terms.dry_run else earlier)
            except CrowdError as error:
                if not is_refusal(error):
                    raise
                refusal = error  # once more, which keeps nobody else from what they are due
            completing = any(
                not bonus.refused for bonus in earlier if bonus.key not in self._sender.untraceable
            )
        with reading(self._session):
            settled = ledger.settled_work(self._session, self._environment)
            work = paid_work(settled, self._environment)
            pay = worker_pay(work)
            fresh = self._propose(settled, pay, {bonus.worker for bonus in self._open_and_refused()[0]})
            here = named(self._session, self._environment)
        warnings = time_warnings(work, pay, self._environment)
        later = len(fresh) if completing else 0
        fresh = [] if completing else fresh
        if fresh:
            notes = [f"note: {warning}" for warning in warnings]
            self._show((self._offer_table(fresh, pay),), *notes, self._total_line(fresh))
            # What is above the maximum, the ceiling or the balance is refused.
            self._require_within(cost_of(earlier) + cost_of(fresh))
            self._sender.check(fresh, _WHAT)
            if not self._terms.dry_run:
                if not confirm(self._environment, cost_of(fresh)):
                    raise UsageError("the total was not confirmed; nothing new was sent")
                self._sender.plan(fresh, _WHAT)
                self._sender.send(fresh)
        if refusal is not None:
            raise refusal
        every = [self._sender.sent.get(bonus.key, bonus) for bonus in (*earlier, *fresh)]
        left_out = [
            due.worker
            for due in pay
            if due.worker in self._terms.skip and due.shortfall_cents(self._floor) > 0
        ]
        lines = [self._outcome(every)]
        if later:
            lines.append(
                "that completes an interrupted run; the next run proposes bonuses to "
                f"{several(later, 'worker')} short of the floor besides"
            )
        if withdrawn:
            verb = "would withdraw" if self._terms.dry_run else "withdrawn"
            lines.append(f"{verb}: {in_words(withdrawn)}, which the server had refused")
        if left_out:
            lines.append(f"left out by --skip: {', '.join(left_out)}")
        counts: TopUpCounts = {
            "environment": self._environment.value,
            "floor_cents": self._floor,
            "sent": 0 if self._terms.dry_run else len(every),
            "resumed": len(earlier),
            "bonuses_cents": sum(bonus.cents for bonus in every),
            "fees_cents": sum(bonus.fee_cents for bonus in every),
            "total_cents": cost_of(every),
            "left_out": len(left_out),
            "withdrawn": len(withdrawn),
            "bonuses": [
                {"worker": bonus.worker, "assignment": bonus.assignment, "cents": bonus.cents}
                for bonus in every
            ],
        }
        return StageResult(
            status="done" if every or withdrawn else "nothing_to_do",
            counts=counts,
            warnings=() if fresh and self._announce is not None else warnings,
            lines=tuple(lines),
            next=f"mitl pay{here}" if every and not self._terms.dry_run else "",
        )

    def _show(self, tables: Sequence[Table], *lines: str) -> None:
        if self._announce is not None:
            self._announce(tables, lines)

    def _check_skipped(self) -> None:
        workers = {row.worker for row in ledger.settled_work(self._session, self._environment)}
        here = named(self._session, self._environment)
        strangers = sorted(self._terms.skip - workers)
        if strangers:
            raise UsageError(
                f"nobody of id {strangers[0]!r} has submitted work on {self._environment}; see `mitl pay{here}`"
            )
        refused = {bonus.worker for bonus in unsent(self._session, self._environment) if bonus.refused}
        for worker in sorted(self._terms.withdraw - refused):
            raise UsageError(
                f"the server refused no bonus to {worker!r} on {self._environment}, so there is none to withdraw; "
                f"what was confirmed and may have been sent is completed by `mitl pay top-up{here}` without --withdraw"
            )

    def _open_and_refused(self) -> tuple[list[PlannedBonus], list[PlannedBonus]]:
        """The bonuses that are not known to be sent, without those to be withdrawn; and these."""
        waiting = unsent(self._session, self._environment)
        gone = [bonus for bonus in waiting if bonus.refused and bonus.worker in self._terms.withdraw]
        return [bonus for bonus in waiting if bonus not in gone], gone

    def _propose(
        self, settled: Sequence[SettledWork], pay: Sequence[WorkerPay], waiting: Set[str]
    ) -> list[PlannedBonus]:
        """A bonus for everyone whose paid work is short of the floor, on the worker's latest approved submission.

        Args:
            waiting: whose bonus is still to be sent: they get no other.
        """
        work: dict[str, list[SettledWork]] = defaultdict(list)  # in order of arrival
        for row in settled:
            work[row.worker].append(row)
        prefix = f"{PREFIX}:{self._environment}:"
        numbers = ledger.last_numbers(self._session, BONUS, prefix)
        text = (
            "Thank you for your work. It took longer than we had expected, so this bonus lifts what you earned to "
            f"{format_dollars(self._floor)} for each hour of it."
        )
        last_ones = ledger.booked_on(
            self._session, (f"bonus:{stem}:{last}" for stem, last in numbers.items())
        )
        proposed = []
        for worker, cents in ((due.worker, due.shortfall_cents(self._floor)) for due in pay):
            if cents and worker not in self._terms.skip | waiting:
                stem = prefix + worker
                last, own = numbers.get(stem, 0), work[worker]
                latest = [row for row in own if row.status == APPROVED][-1]
                # What was approved stays so: a next bonus is on no earlier work than the last one.
                since = last_ones.get(f"bonus:{stem}:{last}")
                start = next((place for place, row in enumerate(own) if row.id == since), 0)
                proposed.append(self._sender.bonus(f"{stem}:{last + 1}", latest, cents, text, own[start:]))
        return proposed

    def _require_within(self, total: int) -> None:
        most = self._terms.max_cost_cents
        if most is not None and total > most:
            raise UsageError(
                f"{_WHAT} is {format_dollars(total)}, above --max-cost {format_dollars(most)}; raise it, lower "
                "--floor, or leave workers out with --skip; nothing new was sent"
            )

    def _offer_table(self, fresh: Sequence[PlannedBonus], pay: Sequence[WorkerPay]) -> Table:
        """The bonuses beside what their workers have earned so far."""
        pay_of = {due.worker: due for due in pay}
        rows = tuple(
            (
                bonus.worker,
                pay_of[bonus.worker].submissions,
                minutes(pay_of[bonus.worker].ms),
                format_dollars(pay_of[bonus.worker].paid_cents),
                money(pay_of[bonus.worker].hourly_cents),
                format_dollars(bonus.cents),
            )
            for bonus in fresh
        )
        columns = ("worker", "HITs", "minutes", "paid so far", "an hour", "bonus")
        return Table(f"bonuses on {self._environment}", columns, rows)

    def _total_line(self, fresh: Sequence[PlannedBonus]) -> str:
        fees = sum(bonus.fee_cents for bonus in fresh)
        where = "the endpoint charges a fee" if self._charges_fee else "this endpoint charges none"
        return (
            f"{in_words(fresh)}, up to {format_dollars(self._floor)} an hour; fee {format_dollars(fees)} "
            f"({where}); total {format_dollars(cost_of(fresh))}"
        )

    def _outcome(self, every: Sequence[PlannedBonus]) -> str:
        if every:
            verb = "dry run: would send" if self._terms.dry_run else "sent"
            return f"{verb} {in_words(every)}"
        if not self._floor:
            return (
                f"nothing to do: no wage floor is set on {self._environment}; name one with --floor 12.00, or set "
                "wage_floor_cents in [crowd] of mitl.toml"
            )
        return f"nothing to do: nobody's paid work is below {format_dollars(self._floor)} an hour"


def key_of_reference(project_id: str, environment: Environment, bonus: ListedBonus) -> str | None:
    """The key under which a bonus was sent, by the reference in its reason; None where it is none of this project's."""
    gift = Gift(bonus.worker_id, bonus.cents, bonus.reason.rpartition(" (ref ")[0])
    top_ups = (f"{PREFIX}:{environment}:{bonus.worker_id}:{number}" for number in range(1, _MOST + 1))
    keys = chain([key_of_gift(environment, gift)], top_ups)
    return next((key for key in keys if marked(reference_of(project_id, key)) in bonus.reason), None)
