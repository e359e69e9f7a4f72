"""How commands show their help, own options first and those of every command in short; what a mistyped word meant."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

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

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own options with what they mean."""
        title, rows = "Options", dict[str, list[tuple[str, str]]]()
        folded = self._folded(ctx)
        for option in _options(self.get_params(ctx)):
            if option not in folded and (row := option.get_help_record(ctx)):
                title = self.sections.get(option.opts[0], title)
                rows.setdefault(title, []).append(row)
        for title, found in rows.items():
            with formatter.section(title):
                formatter.write_dl(found)

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
                [(n, found.get_short_help_str(limit=1000)) for n, found in self.commands.items()]
            )


def usage(option: click.Option, ctx: click.Context) -> str:
    """The option with what it takes, as ``--db URL`` or ``-q/--quiet``."""
    takes = "" if option.is_flag or option.count else f" {option.make_metavar(ctx)}"
    return "/".join(option.opts) + takes


def nearest_to(error: click.NoSuchCommand | click.NoSuchOption) -> str:
    """What a mistyped command or option may have been meant as, the nearest first; "" where none is near."""
    near = error.possibilities or []
    if isinstance(error, click.NoSuchCommand) and error.ctx and isinstance(error.ctx.command, click.Group):
        known = error.ctx.command.list_commands(error.ctx)  # click knows none that is not imported
        near = difflib.get_close_matches(error.command_name.lower(), known)
    return " or ".join(map(repr, near))


def options_of(decorate: Callable[..., Any]) -> list[click.Option]:
    """The options that a decorator adds, in their order."""
    return _options(click.command("none")(decorate(lambda **kwargs: None)).params)


def _options(parameters: Sequence[click.Parameter | None]) -> list[click.Option]:
    return [parameter for parameter in parameters if isinstance(parameter, click.Option)]
