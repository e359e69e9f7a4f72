"""The command line. Commands are loaded when they are called, so that ``mitl --help`` answers at once.

Nothing is computed here.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

# name -> (module of mitl.cli and what it is called there, one line of help); in the order of the data's journey.
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("project:init", "Make a project and load its images and captions."),
    "annotators": ("annotators:command", "List the machine annotators, check weights, verify recall."),
    "propose": ("propose:command", "Rank both directions with every annotator and store candidate pairs."),
    "plan": ("plan:command", "What further answers bring and cost, before they are asked."),
    "publish": ("publish:publish", "Pack the open pairs into HITs and post them."),
    "simulate": ("hits:simulate", "Let scripted workers answer the open HITs over HTTP."),
    "hits": ("hits:hits", "List posted HITs, end them, extend them, delete them."),
    "harvest": ("hits:harvest", "Fetch answers, check the gold controls, approve what passes."),
    "label": (
        "label:command",
        "Let the machine label the open pairs of which it is sure enough, under a bound.",
    ),
    "prefer": ("prefer:command", "Ask people which of two rankings is better; Bradley-Terry scores."),
    "rate": ("rate:command", "Ask people how alike two items are, from 0 to 5."),
    "review": ("review:review", "Decide about work whose gold controls failed."),
    "desk": ("review:desk", "Review workers and their work in the browser, on this machine."),
    "workers": ("review:workers", "Show the workers with their gold records."),
    "pay": ("pay:command", "What was paid and what an hour paid; bonuses up to the wage floor."),
    "audit": ("audit:command", "Bound how complete a release is, by a random sample of the pool."),
    "fuse": ("fuse:command", "Give each ranked pair one calibrated probability of a match."),
    "status": ("project:status", "One screen: pairs, HITs, answers, money."),
    "build-dataset": ("releases:build_dataset", "Merge judgements with other sources and write a release."),
    "verify": ("releases:verify", "Check a release and compute its certificate from its files alone."),
    "compare": (
        "releases:compare",
        "Precision, recall and counts of sets of positives against a verified one.",
    ),
    "evaluate": ("scores:evaluate", "Score models on a release or on the official sets, with intervals."),
    "analyse": (
        "scores:analyse",
        "The tables that a reviewer asks for: diversity, answers, bias, correlations.",
    ),
    "report": ("scores:report", "Write one HTML file about all of it."),
    "serve": ("crowd:serve", "Run the crowd server for people to work on."),
    "crowd": ("crowd:crowd", "Administer the crowd server: invitations, panels, keys, budget, payments."),
    "db": ("db:command", "Migrate the databases, back them up, check them."),
    "completion": ("project:completion", "Print the lines that make a shell complete commands and options."),
    "demo": ("project:demo", "All of it on a generated world with known truth."),
}


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the data's journey."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, imported now."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(f"mitl.cli.{module}"), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Abort for Ctrl-C, also while a command is imported."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.Abort() from None  # as within a command, see `common`

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list from the table above, importing nothing."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mitl")
def group() -> None:
    """Repair image-caption retrieval datasets: machines propose missing matches, people verify them.

    The usual way: init, propose, publish --sandbox, harvest, review, build-dataset, evaluate, report.
    `mitl demo` walks it in minutes. Options stand after the command; every command can be run twice.
    """


def main(args: Sequence[str] | None = None, *, ready: Callable[[], None] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 a clear error, 2 wrong usage, 130 interrupted.

    Args:
        ready: called once an interruption can be told in one line.
    """
    from mitl.cli.app import run

    sys.exit(run(group, args, ready=ready))
