"""The command line. Commands are loaded when they are called, so that ``mitl --help`` answers at once.

Nothing is computed here.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from mitl.cli.help import EVERY, CommandGroup, options_of

# What is done -> name -> (module of mitl.cli and what it is called there, one line of help); in the order of the work.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "The loop": {
        "init": ("project:init", "Make a project and load its images and captions."),
        "propose": (
            "propose:command",
            "Rank both directions with every annotator and store candidate pairs.",
        ),
        "plan": ("plan:command", "Estimate what further answers would bring and cost."),
        "publish": ("publish:publish", "Pack the open pairs into HITs and post them."),
        "simulate": ("hits:simulate", "Let scripted workers answer the open HITs over HTTP."),
        "harvest": ("hits:harvest", "Fetch answers, check the gold controls, approve what passes."),
        "review": ("review:review", "Decide about work whose gold controls failed."),
        "status": ("status:status", "Show pairs, HITs, answers and money on one screen."),
        "demo": ("project:demo", "Run the whole loop on a generated data set with known truth."),
    },
    "Other questions for people": {
        "prefer": ("prefer:command", "Ask people which of two rankings is better; Bradley-Terry scores."),
        "rate": ("rate:command", "Ask people how alike two items are, from 0 to 5."),
        "collect": ("collect:command", "Ask people for a missing caption or image."),
    },
    "Learning and certificates": {
        "annotators": ("annotators:command", "List the machine annotators, check weights, verify recall."),
        "fuse": ("fuse:command", "Give each ranked pair one calibrated probability of a match."),
        "train": ("train:command", "Train annotators on the answers so far."),
        "label": (
            "label:command",
            "Let the machine label the open pairs it is sure of, under an error bound.",
        ),
        "round": ("rounds:command", "Spend a budget in rounds: choose what to ask, learn, ask again."),
        "audit": ("audit:command", "Bound how complete a release is, from a random sample of the pool."),
    },
    "Releases and scores": {
        "build-dataset": (
            "releases:build_dataset",
            "Merge judgements with other sources and write a release.",
        ),
        "verify": ("releases:verify", "Check a release and recompute its certificate from its files alone."),
        "compare": (
            "releases:compare",
            "Compare sets of positives with a verified one: precision, recall, counts.",
        ),
        "evaluate": ("scores:evaluate", "Score models on a release or on the official sets, with intervals."),
        "analyse": (
            "scores:analyse",
            "Print the tables reviewers ask for: diversity, answers, bias, correlations.",
        ),
        "explore": (
            "review:explore",
            "Search and filter the pairs of a project or a release in the browser.",
        ),
        "report": ("scores:report", "Write everything into one HTML file."),
        "export": ("exports:export", "Write a release as TREC, BEIR, MTEB or Hugging Face files."),
        "push": ("exports:push", "Upload a release to the Hugging Face hub with your own token."),
    },
    "Operating": {
        "serve": ("crowd:serve", "Run the crowd server for people to work on."),
        "crowd": ("crowd:crowd", "Administer the crowd server: invitations, panels, keys, budget, payments."),
        "desk": ("review:desk", "Review workers and their work in the browser, on this machine."),
        "hits": ("hits:hits", "List, end, extend and delete posted HITs."),
        "workers": ("review:workers", "List the workers and their gold records."),
        "pay": ("pay:command", "Show payments and hourly wages; pay bonuses up to the wage floor."),
        "db": ("db:command", "Migrate the databases, back them up, check them."),
        "completion": (
            "project:completion",
            "Print the script that makes a shell complete commands and options.",
        ),
    },
}
COMMANDS = {name: found for section in SECTIONS.values() for name, found in section.items()}


class LazyGroup(CommandGroup):
    """A group that imports a command's module only when that command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the work."""
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
        """Write the lists from the table above, importing no command, and the options of every command."""
        from mitl.cli.app import common

        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])
        with formatter.section(EVERY):
            formatter.write_dl(filter(None, (option.get_help_record(ctx) for option in options_of(common))))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(package_name="mitl")
def group() -> None:
    """Repair image-caption retrieval datasets: machines propose missing matches, people verify them.

    The usual order: init, propose, publish --sandbox, harvest, review, build-dataset, evaluate, report. `mitl demo`
    runs all of them in minutes. Put options after the command; every command is safe to run twice.
    """


def main(args: Sequence[str] | None = None, *, ready: Callable[[], None] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 a clear error, 2 wrong usage, 130 interrupted.

    Args:
        ready: called once an interruption can be told in one line.
    """
    from mitl.cli.app import run

    sys.exit(run(group, args, ready=ready))
