"""``mitl pay``."""

from __future__ import annotations

from pathlib import Path

import click

from mitl.cli import CommandGroup
from mitl.cli.app import (
    DOLLARS,
    FILE,
    YES_TOTAL,
    App,
    common,
    endpoint_option,
    environment_options,
    total_confirmed,
)
from mitl.records import Environment


@click.group("pay", cls=CommandGroup, invoke_without_command=True)
@environment_options
@click.option("--floor", type=DOLLARS, help="Compare wages with this hourly floor [default: mitl.toml].")
@click.option("--csv", type=FILE, metavar="FILE", help="Write a row for each batch and worker.")
@common
def command(app: App, environment: Environment | None, floor: int | None, csv: Path | None) -> None:
    """Show what was paid: rewards, fees and bonuses by batch and by worker, and the hourly wages.

    Time is the active time that pages measured, never more than passed between acceptance and submission.
    """
    from mitl.stages.paying.report import pay_report

    app.finish(pay_report(app.settings, environment, floor=floor, csv=csv))


@command.command("top-up")
@environment_options
@click.option("--floor", type=DOLLARS, help="Wage floor an hour [default: mitl.toml].")
@click.option("--max-cost", type=DOLLARS, help="Refuse a total above this.")
@click.option("--skip", multiple=True, metavar="WORKER", help="Leave this worker out; may be repeated.")
@click.option(
    "--withdraw",
    multiple=True,
    metavar="WORKER",
    help="Take back this worker's bonuses that the server refused; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Show the bonuses; send nothing.")
@YES_TOTAL
@endpoint_option
@common
def top_up(
    app: App,
    environment: Environment | None,
    floor: int | None,
    max_cost: int | None,
    skip: tuple[str, ...],
    withdraw: tuple[str, ...],
    dry_run: bool,
    yes_total: int | None,
) -> None:
    """Pay a bonus to everyone who earned less than the wage floor, up to the floor.

    The bonuses are shown, and on live confirmed by their total, before any is sent. Run again after an
    interruption, it sends what is missing of them, nothing twice and nothing new.
    """
    from mitl.stages.paying.top_up import TopUpTerms
    from mitl.stages.paying.top_up import top_up as stage

    confirm = total_confirmed(
        yes_total, subject="the total of the bonuses", verb="send them", undone="nothing new was sent"
    )
    result = stage(
        app.settings,
        environment,
        TopUpTerms(floor, max_cost, frozenset(skip), frozenset(withdraw), dry_run),
        confirm=confirm,
        announce=None if app.quiet else app.show,
        progress=app.progress,
    )
    app.finish(result)


@command.command("compensate")
@click.argument("worker")
@environment_options
@click.option("--amount", type=DOLLARS, required=True, help="Amount that the worker gets.")
@click.option("--reason", required=True, help="Why, in a sentence; the worker reads it.")
@YES_TOTAL
@endpoint_option
@common
def compensate(
    app: App, worker: str, environment: Environment | None, amount: int, reason: str, yes_total: int | None
) -> None:
    """Pay WORKER a bonus, e.g. for work that could not be submitted.

    It is sent once: the same amount for the same reason again sends nothing. It does not count as pay for the
    submitted work when a top-up looks at that.
    """
    from mitl.stages.paying.bonuses import Gift
    from mitl.stages.paying.bonuses import compensate as stage

    gift = Gift(worker, amount, " ".join(reason.split()))
    confirm = total_confirmed(
        yes_total, subject="the bonus with its fee", verb="send it", undone="nothing was sent"
    )
    app.finish(stage(app.settings, gift, environment, confirm=confirm, progress=app.progress))


@command.command("check")
@environment_options
@click.option("--adopt", is_flag=True, help="Book bonuses that only the server knows of.")
@endpoint_option
@common
def check(app: App, environment: Environment | None, adopt: bool) -> int:
    """Compare the ledger with the server's assignments and bonuses, submission by submission.

    The exit status is 1 where they differ. After a database was restored from a backup, run it with --adopt before
    the next top-up.
    """
    from mitl.stages.paying.check import check_pay

    return app.conclude(check_pay(app.settings, environment, adopt=adopt, progress=app.progress))
