"""What was paid, by batch and by worker, and what an hour of work has paid."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from mitl.core.formats import csv_text, percent
from mitl.core.pricing import amount, format_dollars
from mitl.core.whole_files import put_file
from mitl.crowd.context import named, open_context
from mitl.crowd.paying import APPROVED, claims_line, floor_cents, minutes, money, paid_work, time_warnings
from mitl.db.store import ledger, open_work
from mitl.db.store.ledger import SettledWork
from mitl.judgements.wages import WageFigures, WorkerPay, wage_figures, worker_pay
from mitl.records import Environment, StageResult, Table
from mitl.records.results import CsvPaths, EnvironmentCounts, printed_by
from mitl.settings import Settings
from mitl.stages.paying.bonuses import PlannedBonus, unsent

_HEADER = (
    *("environment", "batch", "wording", "worker", "submitted", "approved"),
    *("rewards", "fees", "bonuses", "total", "active_seconds", "without_time"),
)


printed_by("pay", key="paths")(CsvPaths)


@printed_by("pay")
class PayCounts(EnvironmentCounts):
    """What was paid, in figures."""

    floor_cents: Annotated[int, "least pay an hour that wages are compared with; 0 is none"]
    rewards_cents: Annotated[int, "rewards booked"]
    fees_cents: Annotated[int, "fees booked"]
    bonuses_cents: Annotated[int, "bonuses booked"]
    total_cents: Annotated[int, "all three"]
    held_cents: Annotated[int, "rewards promised for work that is not decided"]
    unsent_cents: Annotated[int, "bonuses that were confirmed and not sent, with their fees"]
    workers: Annotated[int, "workers with approved work"]
    workers_under_floor: Annotated[
        int, "those who earned less than the floor over their active time, bonuses counted"
    ]
    shortfall_cents: Annotated[int, "what they lack in all"]
    by_batch: Annotated[
        list[dict[str, object]],
        "each batch: batch, wording, submitted, approved, rewards_cents, fees_cents, bonuses_cents, total_cents",
    ]
    by_worker: Annotated[
        list[dict[str, object]],
        "each worker: worker, submitted, approved, rewards_cents, fees_cents, bonuses_cents, total_cents, "
        "and over the approved work active_ms, without_time, hourly_cents, short_cents",
    ]
    wages: Annotated[
        dict[str, dict[str, object]],
        "wording → submissions, timed (those whose pages measured time), doubtful (that claimed more than can "
        "be), median_active_ms, hourly_p10_cents, hourly_median_cents, hourly_p90_cents, under_floor_share; rewards "
        "alone",
    ]


@dataclass(frozen=True, slots=True)
class Sums:
    """What was paid for some submissions."""

    submitted: int
    approved: int
    rewards_cents: int
    fees_cents: int
    bonuses_cents: int

    @property
    def total_cents(self) -> int:
        """Rewards, fees and bonuses."""
        return self.rewards_cents + self.fees_cents + self.bonuses_cents

    @property
    def money(self) -> tuple[int, int, int, int]:
        """Cents: rewards, fees, bonuses, and their total."""
        return self.rewards_cents, self.fees_cents, self.bonuses_cents, self.total_cents

    def as_json(self) -> dict[str, object]:
        """For ``--json``."""
        return {**asdict(self), "total_cents": self.total_cents}


def sum_of(settled: Sequence[SettledWork]) -> Sums:
    """Over all of these."""
    return Sums(
        submitted=len(settled),
        approved=sum(row.status == APPROVED for row in settled),
        rewards_cents=sum(row.reward_cents for row in settled),
        fees_cents=sum(row.fee_cents for row in settled),
        bonuses_cents=sum(row.bonus_cents for row in settled),
    )


def pay_report(
    settings: Settings,
    environment: Environment | None = None,
    *,
    floor: int | None = None,
    csv: Path | None = None,
) -> StageResult:
    """Rewards, fees and bonuses of an environment, and the wages by wording and by worker. No call is made.

    Args:
        floor: cents an hour to hold the wages against; None takes the configured floor.
        csv: where to write one row for each batch and worker.
    """
    with open_context(settings, environment, read_only=True) as context:
        session, chosen = context.session, context.environment
        settled = ledger.settled_work(session, chosen)
        held = open_work.open_work(session, chosen).held_cents
        planned, here = unsent(session, chosen), named(session, chosen)
    paid = _Paid(chosen, floor_cents(settings, chosen, floor), settled, held, planned)
    paths = CsvPaths()
    written: tuple[str, ...] = ()
    if csv is not None:
        write_csv(csv, chosen, settled, {done.id: done.time.ms for done in paid.work})
        paths = CsvPaths(csv=str(csv))
        written = (f"written to {csv}; it holds worker ids, so keep it in the project",)
    if not settled:
        lines = ("nothing to show: nobody has submitted work that is paid from here", *written)
        return StageResult(status="nothing_to_do", counts=paid.counts(), paths=paths, lines=lines)
    after = f"mitl pay top-up{here}" if paid.shortfall_cents or planned else ""
    return StageResult(
        counts=paid.counts(),
        paths=paths,
        warnings=time_warnings(paid.work, paid.pay, chosen),
        tables=tuple(table for table in paid.tables() if table.rows),
        lines=(*paid.lines(), *written),
        next=f"{after} --floor {amount(floor)}" if after and floor is not None else after,
    )


class _Paid:
    """What was paid in an environment, beside the least pay an hour in cents."""

    def __init__(
        self,
        environment: Environment,
        least: int,
        settled: Sequence[SettledWork],
        held_cents: int,
        planned: Sequence[PlannedBonus],
    ) -> None:
        self._environment, self._least, self._held, self._planned = environment, least, held_cents, planned
        self.work = paid_work(settled, environment)
        self.pay = worker_pay(self.work)
        self._wages = wage_figures(self.work, least)
        self._whole = sum_of(settled)
        self._short = [worker.shortfall_cents(least) for worker in self.pay]
        self._unsent = sum(bonus.cost_cents for bonus in planned)
        by_batch = _grouped(settled, lambda row: (row.batch, row.template))
        self._batches = [(group, sum_of(rows)) for group, rows in by_batch]
        pay_of = {worker.worker: worker for worker in self.pay}
        self._workers = [
            (worker, sum_of(rows), pay_of.get(worker))
            for (worker,), rows in sorted(_grouped(settled, lambda row: (row.worker,)))
        ]

    @property
    def shortfall_cents(self) -> int:
        """What those under the floor lack in all."""
        return sum(self._short)

    @property
    def _n_short(self) -> int:
        return sum(cents > 0 for cents in self._short)

    def counts(self) -> PayCounts:
        """For ``--json``."""
        return {
            "environment": self._environment.value,
            "floor_cents": self._least,
            "rewards_cents": self._whole.rewards_cents,
            "fees_cents": self._whole.fees_cents,
            "bonuses_cents": self._whole.bonuses_cents,
            "total_cents": self._whole.total_cents,
            "held_cents": self._held,
            "unsent_cents": self._unsent,
            "workers": len(self.pay),
            "workers_under_floor": self._n_short,
            "shortfall_cents": self.shortfall_cents,
            "by_batch": [
                {"batch": batch, "wording": template, **sums.as_json()}
                for (batch, template), sums in self._batches
            ],
            "by_worker": [_worker_json(*worker, self._least) for worker in self._workers],
            "wages": {wages.template: _figures_json(wages) for wages in self._wages},
        }

    def lines(self) -> list[str]:
        """What to say of it."""
        parts = zip(("rewards", "fees", "bonuses"), self._whole.money, strict=False)
        lines = [
            f"paid {format_dollars(self._whole.total_cents)}: "
            + ", ".join(f"{name} {format_dollars(cents)}" for name, cents in parts)
            + f"; {format_dollars(self._held)} held for work that is not decided",
            f"{self._n_short:,} of {len(self.pay):,} workers earned less than the floor of "
            f"{format_dollars(self._least)} an hour, {format_dollars(self.shortfall_cents)} in all"
            if self._least
            else "no wage floor is set here; --floor 12.00 shows who earned less than that",
        ]
        if self._planned:
            bonuses = f"{len(self._planned):,} bonuses of {format_dollars(self._unsent)}"
            refused = sorted({bonus.worker for bonus in self._planned if bonus.refused})
            whom = ", ".join(refused)
            again = f"; the server refused those to {whom}: a top-up tries again, or takes back with --withdraw WORKER"
            lines.append(f"{bonuses} are confirmed and not sent yet{again if refused else ''}")
        return [*lines, *claims_line(self.work, self._environment)]

    def tables(self) -> tuple[Table, ...]:
        """By batch, by wording, by worker."""
        by_batch = (
            (*group, sums.submitted, sums.approved, *map(format_dollars, sums.money))
            for group, sums in self._batches
        )
        return (
            Table(
                f"paid on {self._environment} by batch",
                ("batch", "wording", "submitted", "approved", "rewards", "fees", "bonuses", "total"),
                tuple(by_batch),
            ),
            Table(
                "rewards an hour of active time",
                (
                    *("wording", "HITs", "timed", "median min"),
                    *("10th pct", "median", "90th pct", "under the floor"),
                ),
                tuple(_wage_row(wages, self._least) for wages in self._wages),
            ),
            Table(
                f"workers: {len(self.pay):,} with approved work",
                (
                    *("worker", "submitted", "approved", "minutes"),
                    *("rewards", "bonuses", "an hour", "short of the floor"),
                ),
                tuple(_worker_row(*worker, self._least) for worker in self._workers),
            ),
        )


def write_csv(
    path: Path, environment: Environment, settled: Sequence[SettledWork], times: dict[int, int | None]
) -> None:
    """One row for each batch and worker; money as decimal dollars, time as the page's believable seconds.

    Args:
        times: milliseconds of the approved submissions, which count; None where nothing is known.
    """
    rows: list[Sequence[object]] = [_HEADER]
    for group, of_group in _grouped(settled, lambda row: (row.batch, row.template, row.worker)):
        sums, counted_ms = sum_of(of_group), [times[row.id] for row in of_group if row.id in times]
        seconds = f"{sum(ms or 0 for ms in counted_ms) / 1000:.3f}"
        counted = environment.value, *group, sums.submitted, sums.approved, *map(amount, sums.money)
        rows.append((*counted, seconds, sum(ms is None for ms in counted_ms)))
    put_file(path, csv_text(rows).encode(), mode=0o600)


def _grouped(
    settled: Sequence[SettledWork], key: Callable[[SettledWork], tuple[str, ...]]
) -> list[tuple[tuple[str, ...], list[SettledWork]]]:
    """The submissions of each key; batches in the order of their numbers."""
    groups: dict[tuple[str, ...], list[SettledWork]] = defaultdict(list)
    for row in settled:
        groups[key(row)].append(row)
    return sorted(groups.items(), key=lambda group: (len(group[0][0]), group[0]))


def _wage_row(one: WageFigures, least: int) -> tuple[object, ...]:
    return (
        one.template,
        one.submissions,
        one.measured,
        None if one.median_ms is None else minutes(one.median_ms),
        *map(money, (one.low_cents, one.median_cents, one.high_cents)),
        percent(one.under_share if least else None),
    )


def _worker_row(worker: str, sums: Sums, pay: WorkerPay | None, least: int) -> tuple[object, ...]:
    """Money over all submissions, time and wage over the approved ones; None where there are none."""
    return (
        worker,
        sums.submitted,
        sums.approved,
        None if pay is None else minutes(pay.ms),
        format_dollars(sums.rewards_cents),
        format_dollars(sums.bonuses_cents),
        None if pay is None else money(pay.hourly_cents),
        None if pay is None else money(pay.shortfall_cents(least) or None),
    )


def _worker_json(worker: str, sums: Sums, pay: WorkerPay | None, least: int) -> dict[str, object]:
    return {
        "worker": worker,
        **sums.as_json(),
        "active_ms": 0 if pay is None else pay.ms,
        "without_time": 0 if pay is None else pay.n_stand_in + pay.n_unknown,
        "hourly_cents": None if pay is None else pay.hourly_cents,
        "short_cents": 0 if pay is None else pay.shortfall_cents(least),
    }


def _figures_json(one: WageFigures) -> dict[str, object]:
    return {
        "submissions": one.submissions,
        "timed": one.measured,
        "doubtful": one.n_doubtful,
        "median_active_ms": one.median_ms,
        "hourly_p10_cents": one.low_cents,
        "hourly_median_cents": one.median_cents,
        "hourly_p90_cents": one.high_cents,
        "under_floor_share": one.under_share,
    }
