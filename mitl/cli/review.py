"""``mitl review``."""

from __future__ import annotations

import click

from mitl.cli.app import App, common, endpoint_option, environment_options
from mitl.records import Decision, Environment


@click.group("review", invoke_without_command=True)
@environment_options
@common
def command(app: App, environment: Environment | None) -> None:
    """Decide about work whose gold controls failed. Without a subcommand, list what waits.

    Everyone who worked is paid unless a person rejects with a reason.
    """
    from mitl.stages.review import queue

    app.finish(queue(app.settings, environment))


@command.command("show")
@click.argument("number", type=int)
@environment_options
@common
def show(app: App, number: int, environment: Environment | None) -> None:
    """Show all answers of submission NUMBER beside what is known."""
    from mitl.stages.review import show as stage

    app.finish(stage(app.settings, number, environment))


def _ruling(name: str, decision: Decision, help_text: str) -> None:
    @command.command(name, help=help_text)
    @click.argument("numbers", type=int, nargs=-1, required=True)
    @environment_options
    @endpoint_option
    @common
    def call(app: App, numbers: tuple[int, ...], environment: Environment | None) -> None:
        _rule(app, numbers, decision, "", environment)


def _rule(
    app: App, numbers: tuple[int, ...], decision: Decision, reason: str, environment: Environment | None
) -> None:
    from mitl.stages.review import Ruling, rule

    rulings = [Ruling(number, decision, reason) for number in dict.fromkeys(numbers)]
    app.finish(rule(app.settings, rulings, environment, progress=app.progress))


_ruling("approve", Decision.APPROVE, "The work is good: pay it and use its answers.")
_ruling("drop", Decision.DROP, "Pay, but leave the answers out and ask again.")
_ruling(
    "exclude",
    Decision.APPROVE_EXCLUDE,
    "Pay, leave the answers out, and offer this worker nothing further (by a qualification, not a block).",
)


@command.command("reject")
@click.argument("numbers", type=int, nargs=-1, required=True)
@click.option("--reason", required=True, help="Why, in a sentence; the worker reads it.")
@environment_options
@endpoint_option
@common
def reject(app: App, numbers: tuple[int, ...], reason: str, environment: Environment | None) -> None:
    """Do not pay. Only for plain bad faith that a person has looked at."""
    _rule(app, numbers, Decision.REJECT, reason, environment)


@command.command("reverse")
@click.argument("numbers", type=int, nargs=-1, required=True)
@click.option("--use", is_flag=True, help="Use the answers too; without it the work is paid and not used.")
@environment_options
@endpoint_option
@common
def reverse(app: App, numbers: tuple[int, ...], use: bool, environment: Environment | None) -> None:
    """Pay for rejected work after all, within 30 days of its submission."""
    from mitl.stages.reversal import reverse as stage

    decision = Decision.APPROVE if use else Decision.DROP
    app.finish(
        stage(app.settings, tuple(dict.fromkeys(numbers)), decision, environment, progress=app.progress)
    )


@command.command("settle")
@environment_options
@endpoint_option
@common
def settle(app: App, environment: Environment | None) -> None:
    """Pay the whole queue, use none of it, exclude workers whose gold record is bad; rejects no one."""
    from mitl.stages.review import settle as stage

    app.finish(stage(app.settings, environment, progress=app.progress))
