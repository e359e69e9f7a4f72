"""``mitl review``."""

from __future__ import annotations

import sys

import click

from mitl.cli import review_originals
from mitl.cli.app import App, common, endpoint_option, environment_options
from mitl.errors import UsageError
from mitl.records import Decision, Environment


@click.group("review", invoke_without_command=True)
@click.option(
    "--originals", is_flag=True, help="List refused originals instead: see `mitl review originals`."
)
@environment_options
@common
def command(app: App, originals: bool, environment: Environment | None) -> None:
    """Decide about work whose gold controls failed. Without a subcommand, list what waits.

    Everyone who worked is paid unless a person rejects with a reason.
    """
    if originals:
        from mitl.stages.releasing.originals import originals as stage

        app.finish(stage(app.settings, environment))
        return
    from mitl.stages.reviewing.review import queue

    app.finish(queue(app.settings, environment))


@command.command("show")
@click.argument("number", type=int)
@environment_options
@common
def show(app: App, number: int, environment: Environment | None) -> None:
    """Show submission NUMBER with its evidence: answers, failed controls, its worker, the deadlines."""
    from mitl.stages.reviewing.show import show as stage

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
    app: App,
    numbers: tuple[int, ...],
    decision: Decision,
    reason: str,
    environment: Environment | None,
    *,
    yes: bool = True,
) -> None:
    from mitl.stages.reviewing.review import Ruling, rule

    rulings = [Ruling(number, decision, reason) for number in dict.fromkeys(numbers)]
    result = rule(
        app.settings,
        rulings,
        environment,
        announce=None if app.quiet else click.echo,
        confirm=lambda chosen, count: yes or chosen is Environment.SANDBOX or _confirmed(count),
        progress=app.progress,
    )
    app.finish(result)


def _confirmed(count: int) -> bool:
    """Whether a person says that they mean it."""
    what = "1 submission" if count == 1 else f"{count} submissions"
    if not sys.stdin.isatty():
        raise UsageError(
            f"rejecting {what} refuses real people their pay and nobody is here to confirm it; add --yes; nothing was "
            "rejected"
        )
    return click.confirm(f"reject {what} and pay nothing for the work?", err=True)


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
@click.option("--yes", is_flag=True, help="With live work: do not ask whether you mean it.")
@environment_options
@endpoint_option
@common
def reject(
    app: App, numbers: tuple[int, ...], reason: str, yes: bool, environment: Environment | None
) -> None:
    """Do not pay. Only for plain bad faith that a person has looked at.

    Says until when it can be reversed before it is done, and after.
    """
    _rule(app, numbers, Decision.REJECT, reason, environment, yes=yes)


@command.command("reverse")
@click.argument("numbers", type=int, nargs=-1, required=True)
@click.option("--use", is_flag=True, help="Use the answers too; without it the work is paid and not used.")
@environment_options
@endpoint_option
@common
def reverse(app: App, numbers: tuple[int, ...], use: bool, environment: Environment | None) -> None:
    """Pay for rejected work after all, within 30 days of its submission."""
    from mitl.stages.reviewing.reversal import reverse as stage

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
    from mitl.stages.reviewing.review import settle as stage

    app.finish(stage(app.settings, environment, progress=app.progress))


command.add_command(review_originals.command)
command.add_command(review_originals.duplicates)
