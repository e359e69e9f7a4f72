"""What was paid, by batch and by worker, and what an hour of work has paid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mitl.core.pricing import format_dollars
from mitl.crowd.environment import choose_environment
from mitl.crowd.wages import claims_line, floor_cents, minutes, money, paid_work, time_warnings
from mitl.crowd_server.operator.payout_files import amount
from mitl.db.session import open_database
from mitl.db.store import ledger, open_work
from mitl.db.store.ledger import SettledWork
from mitl.judgements.wages import PaidWork, WageFigures, WorkerPay, wage_figures, worker_pay
from mitl.records import Environment, StageResult, Table
from mitl.settings import Settings
from mitl.stages.paying.bonuses import Planned, unsent
from mitl.stages.paying.sums import Sums, by_batch, by_worker, sum_of, write_csv


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
    with open_database(settings.db_url, read_only=True) as session:
        chosen = choose_environment(session, environment)
        settled = ledger.settled_work(session, chosen)
        held = open_work.open_work(session, chosen).held_cents
        planned = unsent(session, chosen)
    least = floor_cents(settings, chosen, floor)
    work = paid_work(settled, chosen)
    pay = worker_pay(work)
    figures = wage_figures(work, least)
    result = _result(chosen, settled, work, pay, figures, least, held, planned)
    if result.next and floor is not None:
        result = replace(result, next=f"{result.next} --floor {amount(floor)}")
    if csv is None:
        return result
    write_csv(csv, chosen, settled, work)
    return replace(
        result,
        paths={"csv": str(csv)},
        lines=(*result.lines, f"written to {csv}; it holds worker ids, so keep it in the project"),
    )


def _result(
    chosen: Environment,
    settled: Sequence[SettledWork],
    work: Sequence[PaidWork],
    pay: Sequence[WorkerPay],
    figures: Sequence[WageFigures],
    least: int,
    held: int,
    planned: Sequence[Planned],
) -> StageResult:
    whole = sum_of(settled)
    short = [one.shortfall_cents(least) for one in pay]
    known = {one.worker: one for one in pay}
    counts: dict[str, object] = {
        "environment": chosen.value,
        "floor_cents": least,
        "rewards_cents": whole.rewards_cents,
        "fees_cents": whole.fees_cents,
        "bonuses_cents": whole.bonuses_cents,
        "total_cents": whole.total_cents,
        "held_cents": held,
        "unsent_cents": sum(one.cost_cents for one in planned),
        "workers": len(pay),
        "workers_under_floor": sum(cents > 0 for cents in short),
        "shortfall_cents": sum(short),
        "by_batch": [
            {"batch": batch, "wording": template, **sums.as_json()}
            for (batch, template), sums in by_batch(settled)
        ],
        "by_worker": [
            _worker_json(worker, sums, known.get(worker), least) for worker, sums in by_worker(settled)
        ],
        "wages": {one.template: _figures_json(one) for one in figures},
    }
    if not settled:
        lines: tuple[str, ...] = ("nothing to show: nobody has submitted work yet",)
        return StageResult(status="nothing_to_do", counts=counts, lines=lines)
    return StageResult(
        counts=counts,
        warnings=time_warnings(work, pay, chosen),
        tables=_tables(chosen, settled, pay, figures, least),
        lines=(*_lines(whole, short, least, held, planned), *claims_line(work, chosen)),
        next="mitl pay top-up" if sum(short) or planned else "",
    )


def _lines(
    whole: Sums, short: Sequence[int], least: int, held: int, planned: Sequence[Planned]
) -> tuple[str, ...]:
    parts = ("rewards", whole.rewards_cents), ("fees", whole.fees_cents), ("bonuses", whole.bonuses_cents)
    parts = ("rewards", whole.rewards_cents), ("fees", whole.fees_cents), ("bonuses", whole.bonuses_cents)
    lines = [
        f"paid {format_dollars(whole.total_cents)}: "
        + ", ".join(f"{name} {format_dollars(cents)}" for name, cents in parts)
        + f"; {format_dollars(held)} held for work that is not decided"
    ]
    under = sum(cents > 0 for cents in short)
    if least:
        lines.append(
            f"{under:,} of {len(short):,} workers earned less than the floor of {format_dollars(least)} an hour, "
            f"{format_dollars(sum(short))} in all"
        )
    else:
        lines.append("no wage floor is set here; --floor 12.00 shows who earned less than that")
    if planned:
        total = sum(one.cost_cents for one in planned)
        lines.append(f"{len(planned):,} bonuses of {format_dollars(total)} are confirmed and not sent yet")
    return tuple(lines)


def _tables(
    chosen: Environment,
    settled: Sequence[SettledWork],
    pay: Sequence[WorkerPay],
    figures: Sequence[WageFigures],
    least: int,
) -> tuple[Table, ...]:
    batches = Table(
        f"paid on {chosen} by batch",
        ("batch", "wording", "submitted", "approved", "rewards", "fees", "bonuses", "total"),
        tuple(
            (
                *group,
                sums.submitted,
                sums.approved,
                *map(
                    format_dollars,
                    (sums.rewards_cents, sums.fees_cents, sums.bonuses_cents, sums.total_cents),
                ),
            )
            for group, sums in by_batch(settled)
        ),
    )
    wages = Table(
        "rewards an hour of active time",
        ("wording", "HITs", "timed", "median min", "10th pct", "median", "90th pct", "under the floor"),
        tuple(
            (
                one.template,
                one.submissions,
                one.measured,
                None if one.median_ms is None else minutes(one.median_ms),
                *map(money, (one.low_cents, one.median_cents, one.high_cents)),
                None if one.under_share is None or not least else f"{100 * one.under_share:.1f} %",
            )
            for one in figures
        ),
    )
    known = {one.worker: one for one in pay}
    workers = Table(
        f"workers: {len(pay):,} with approved work",
        (
            "worker",
            "submitted",
            "approved",
            "minutes",
            "rewards",
            "bonuses",
            "an hour",
            "short of the floor",
        ),
        tuple(_worker_row(worker, sums, known.get(worker), least) for worker, sums in by_worker(settled)),
    )
    return tuple(found for found in (batches, wages, workers) if found.rows)


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
