"""Sums of what was paid, by batch and by batch and worker, and their file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mitl.core.whole_files import one_clear_line, whole_file
from mitl.crowd.paying import APPROVED
from mitl.crowd_server.operator.payout_files import amount, table
from mitl.db.store.ledger import SettledWork
from mitl.judgements.wages import PaidWork
from mitl.records import Environment

_HEADER = (
    "environment",
    "batch",
    "wording",
    "worker",
    "submitted",
    "approved",
    "rewards",
    "fees",
    "bonuses",
    "total",
    "active_seconds",
    "without_time",
)


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

    def as_json(self) -> dict[str, int]:
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


def by_batch(settled: Sequence[SettledWork]) -> list[tuple[tuple[str, ...], Sums]]:
    """(batch, wording) → its sums, batches in the order of their numbers."""
    groups = _grouped(settled, lambda row: (row.batch, row.template))
    ordered = sorted(groups, key=lambda group: (len(group[0]), group))
    return [(group, sum_of(groups[group])) for group in ordered]


def by_worker(settled: Sequence[SettledWork]) -> list[tuple[str, Sums]]:
    """Worker → their sums, by id."""
    groups = _grouped(settled, lambda row: (row.worker,))
    return [(worker, sum_of(groups[(worker,)])) for (worker,) in sorted(groups)]


def write_csv(
    path: Path, environment: Environment, settled: Sequence[SettledWork], work: Sequence[PaidWork]
) -> None:
    """One row for each batch and worker; money as decimal dollars, time as the page's believable seconds.

    Args:
        work: the approved ones of ``settled``, whose time counts.
    """
    times = {one.id: one.time.ms for one in work}
    groups = _grouped(settled, lambda row: (row.batch, row.template, row.worker))
    rows: list[Sequence[object]] = [_HEADER]
    for group in sorted(groups, key=lambda group: (len(group[0]), group)):
        found, sums = groups[group], sum_of(groups[group])
        known = [times[row.id] for row in found if row.id in times]
        cents = (sums.rewards_cents, sums.fees_cents, sums.bonuses_cents, sums.total_cents)
        rows.append(
            (
                environment.value,
                *group,
                sums.submitted,
                sums.approved,
                *map(amount, cents),
                f"{sum(ms or 0 for ms in known) / 1000:.3f}",
                sum(ms is None for ms in known),
            )
        )
    with one_clear_line(path, "nothing else was to be done"), whole_file(path) as sink:
        sink.write(table(rows).encode())


def _grouped(
    settled: Sequence[SettledWork], key: Callable[[SettledWork], tuple[str, ...]]
) -> dict[tuple[str, ...], list[SettledWork]]:
    found: dict[tuple[str, ...], list[SettledWork]] = defaultdict(list)
    for row in settled:
        found[key(row)].append(row)
    return found
