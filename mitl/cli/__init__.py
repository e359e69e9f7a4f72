"""The command line. Commands are loaded when they are called, so that ``mitl --help`` answers at once.

Here are the table of commands and the help that they show: own options first, those of every command in short, and what
a mistyped word meant. Nothing is computed here.
"""

from __future__ import annotations

import difflib
import importlib
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

# What is done -> name -> (module of mitl.cli and what it is called there, one line of help); in the order of the work.
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "The loop": {
        "init": ("project:init", "Make a project and load its images and captions."),
        "propose": (
            "propose:command",
            "Rank both directions with every annotator and store candidate pairs.",
        ),
        "plan": ("audit:plan_answers", "Estimate what further answers would bring and cost."),
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
        "annotators": ("propose:annotators", "List the machine annotators, check weights, verify recall."),
        "fuse": ("label:fuse", "Give each ranked pair one calibrated probability of a match."),
        "train": ("rounds:train", "Train annotators on the answers so far."),
        "label": (
            "label:label",
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
        "export": ("releases:export", "Write a release as TREC, BEIR, MTEB or Hugging Face files."),
        "push": ("releases:push", "Upload a release to the Hugging Face hub with your own token."),
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
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


EVERY = "Options of every command"


class CommonOption(click.Option):
    """An option of every command: `mitl --help` explains it, other help only names it."""


class Command(click.Command):
    """A command whose help folds the options of every command and may show its own in sections.

    Args:
        sections: by the option that begins a section its title; the decorators' order is the help's.
    """

    def __init__(self, *args: Any, sections: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """What click makes of the words; a usage error if an option of one value is given several.

        click takes the last of them without a word.
        """
        if not ctx.resilient_parsing:
            given = Counter(_options(self.make_parser(ctx).parse_args(list(args))[2]))
            for option, times in given.items():
                if times > 1 and not (option.multiple or option.is_flag or option.count):
                    name = max(option.opts, key=len)
                    raise click.UsageError(
                        f"{name} takes one value and is given {times} times; give it once", ctx
                    )
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options with what they mean."""
        title, rows = "Options", dict[str, list[tuple[str, str]]]()
        folded = self._folded(ctx)
        for option in _options(self.get_params(ctx)):
            if option not in folded and (row := option.get_help_record(ctx)):
                title = self.sections.get(option.opts[0], title)
                rows.setdefault(title, []).append(row)
        for title, lines in rows.items():
            with formatter.section(title):
                formatter.write_dl(lines)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """End with the names of the options of every command, each with what it takes on one line."""
        super().format_epilog(ctx, formatter)
        if folded := self._folded(ctx):
            # Blanks within an option must not break: textwrap leaves these ones.
            names = ", ".join(usage(option, ctx).replace(" ", "\xa0") for option in folded)
            with formatter.section(f"{EVERY}, explained by `mitl --help`"):
                for line in textwrap.wrap(names, formatter.width - 4, break_on_hyphens=False):
                    formatter.write(f"  {line}\n".replace("\xa0", " "))

    def _folded(self, ctx: click.Context) -> list[click.Option]:
        common = [option for option in _options(self.params) if isinstance(option, CommonOption)]
        return common + _options([self.get_help_option(ctx)]) if common else []


class CommandGroup(click.Group, Command):
    """A group whose own help and commands' help fold the options of every command."""

    command_class = Command
    group_class = type

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the subcommands in the order of the work, each with its whole first sentence."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [(n, command.get_short_help_str(limit=1000)) for n, command in self.commands.items()]
            )


def usage(option: click.Option, ctx: click.Context) -> str:
    """The option with what it takes, as ``--db URL`` or ``-q/--quiet``."""
    takes = "" if option.is_flag or option.count else f" {option.make_metavar(ctx)}"
    return "/".join(option.opts) + takes


def nearest_to(error: click.NoSuchCommand | click.NoSuchOption) -> str:
    """What a mistyped command or option may have been meant as, the nearest first; "" where none is near."""
    near: list[str] = []
    if isinstance(error, click.NoSuchOption):
        # Of those that click finds near: it takes the dashes, which all have, for something in common.
        names = [option.lstrip("-") for option in error.possibilities or ()]
        near = [f"--{name}" for name in difflib.get_close_matches(error.option_name.lstrip("-"), names)]
    elif error.ctx and isinstance(error.ctx.command, click.Group):
        names = error.ctx.command.list_commands(error.ctx)  # click knows none that is not imported
        near = difflib.get_close_matches(error.command_name.lower(), names)
    return " or ".join(map(repr, near))


def options_of(decorate: Callable[..., Any]) -> list[click.Option]:
    """The options that a decorator adds, in their order."""
    return _options(click.command("none")(decorate(lambda **kwargs: None)).params)


def _options(parameters: Sequence[click.Parameter | None]) -> list[click.Option]:
    return [parameter for parameter in parameters if isinstance(parameter, click.Option)]


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
