"""What all commands share: common options, output for people and for machines, errors as one line."""

from __future__ import annotations

import functools
import json
import logging
import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from mitl import logs
from mitl.cli import CommonOption
from mitl.cli.failures import (
    TOO_DEEP,
    card_message,
    database_message,
    extension_message,
    memory_message,
    system_message,
    text_message,
    usage_message,
)
from mitl.cli.tables import printable, render_table, terminal_room
from mitl.errors import DatasetError, FormError, MitlError, UsageError
from mitl.interrupts import how_to_stop, interrupts_ignored
from mitl.progress import Progress, no_progress, terminal_progress
from mitl.records import Environment, StageResult, Table, Verdict
from mitl.records.forms import DIRECTION_OF, IMAGES, SetForm, in_ways, message_of_form, result_of_form
from mitl.settings import Settings, load, log_form

F = TypeVar("F", bound=Callable[..., Any])

EXIT_INTERRUPTED = 130
INTERRUPTED = "interrupted; what was done is kept, run the command again to go on"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class App:
    """One call of a command: its settings and how it talks."""

    command: str
    settings: Settings
    json: bool
    quiet: bool
    project: Path | None = None
    """The project's folder as it was named; None where the command looked for it by itself."""
    form: Callable[[], SetForm] = lambda: IMAGES
    """What the data set's sides and directions are called."""
    databases: tuple[str, ...] = ()
    """The options that named a database."""

    @property
    def progress(self) -> Progress:
        """Bars on a terminal, unless quiet; they name directions as the data set does."""
        if self.quiet:
            return no_progress
        return lambda label, total: terminal_progress(in_ways(label, self.form), total)

    def finish(self, result: StageResult, error: str | None = None) -> None:
        """Print what a stage did, and in JSON the error: one JSON object, or tables and lines."""
        # Numbers alone: what else is counted may name somebody.
        numbers = {name: count for name, count in result.counts.items() if isinstance(count, int)}
        logger.info("%s", result.status, extra={"counts": numbers})
        result = result_of_form(result, self.form)
        for warning in result.warnings:
            click.echo(f"warning: {printable(warning)}", err=True)
        if self.json:
            click.echo(json.dumps(as_json(self.command, result, error)))
            return
        if self.quiet:
            return
        self.show(result.tables, result.lines)
        if result.next:
            told = []
            if self.project is not None and "--project" not in result.next:
                told.append(f"--project {shlex.quote(str(self.project))}")
            if self.databases:  # a URL may hold a password
                set_once = " and ".join(f"MITL{of.upper()[1:].replace('-', '_')}" for of in self.databases)
                told.append(f"the same {' and '.join(self.databases)}, or {set_once} set")
            where = f" (with {' and '.join(told)})" if told else ""
            click.echo(f"next{printable(where)}: {printable(result.next)}")

    def show(self, tables: Sequence[Table], lines: Sequence[str]) -> None:
        """Print tables, and lines after them."""
        for table in tables:
            click.echo(render_table(table, terminal_room()))
        for line in lines:
            click.echo(printable(line))

    def tell_how_to_stop(self) -> None:
        """Where Ctrl-C would not end a command that goes on until it is stopped: say what does."""
        if interrupts_ignored() and (self.json or not self.quiet):
            click.echo(how_to_stop(), err=True)

    @contextmanager
    def until_stopped(self, again: str = "") -> Iterator[None]:
        """Let Ctrl-C end a command that goes on until then: no failure, and with --json all was printed before.

        Args:
            again: what starts it again.
        """
        try:
            yield
        except KeyboardInterrupt:
            click.echo(f"stopped; start it again with `{again}`" if again else "stopped", err=True)
            click.get_current_context().exit(EXIT_INTERRUPTED)

    def conclude(self, verdict: Verdict) -> int:
        """Print what a check found and, where it will not do, why; returns the exit status."""
        refusal = None if verdict.refusal is None else message_of_form(verdict.refusal, self.form)
        self.finish(verdict.result, refusal)
        if refusal is not None:
            click.echo(f"error: {printable(refusal)}", err=True)
        return int(refusal is not None)


def as_json(command: str, result: StageResult, error: str | None = None) -> dict[str, object]:
    """The one object that ``--json`` prints."""
    return {
        "command": command,
        "status": "error" if error is not None else result.status,
        "counts": result.counts,
        "paths": result.paths,
        "warnings": list(result.warnings),
        "error": error,
    }


def common(function: F) -> F:
    """Add the common options and hand the command an ``App`` in their place."""
    option = functools.partial(click.option, cls=CommonOption)

    @option("--project", type=PLACE, help="Project folder [default: here].")
    @option("--db", metavar="URL", help="Pipeline database [default: sqlite:///PROJECT/mitl.db].")
    @option("--crowd-db", metavar="URL", help="Crowd server's database [default: PROJECT/crowd.db].")
    @option("--seed", type=int, help="Seed of every random draw [default: mitl.toml, 0].")
    @option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
    @option("-q", "--quiet", is_flag=True, help="Print errors and warnings only.")
    @option(
        "-v",
        "--verbose",
        count=True,
        show_default=False,
        help="Log more to standard error; give it twice to log everything.",
    )
    @option(
        "--log-format",
        type=click.Choice(logs.FORMATS),
        help="Log as text, or as one JSON object per line with time and run id [default: MITL_LOG_FORMAT, text].",
    )
    @functools.wraps(function)
    def wrapper(
        *args: Any,
        project: Path | None,
        db: str | None,
        crowd_db: str | None,
        seed: int | None,
        as_json: bool,
        quiet: bool,
        verbose: int,
        log_format: str | None,
        **kwargs: Any,
    ) -> Any:
        context = click.get_current_context()
        name = context.command_path.partition(" ")[2] or str(context.info_name)
        logs.set_up(name, verbose=verbose, form=log_form(log_format))
        if context.invoked_subcommand is not None:
            _refuse_options_before(context.invoked_subcommand, context)
            return None
        named = project or kwargs.get("folder")
        settings = load(
            named,
            db=db,
            crowd_db=crowd_db,
            seed=seed,
            endpoint_url=kwargs.pop("endpoint_url", None),
        )
        began = time.monotonic()
        logger.info("run %s of mitl %s begins", logs.run_id(), name)
        form = functools.cache(functools.partial(_form, settings, tuple(kwargs.values())))
        try:
            _refuse_other_ways(context, form)
            before = _times_opened_to_write(settings)
            databases = tuple(option for option, url in (("--db", db), ("--crowd-db", crowd_db)) if url)
            told = App(name, settings, as_json, quiet or as_json, named, form, databases)
            result = function(told, *args, **kwargs)
            if _times_opened_to_write(settings) > before:
                _count_for_status(settings)
            return result
        except MitlError as error:
            # Those name items as they are: of another form, or of data that are just being read.
            if not isinstance(error, FormError | DatasetError):
                error.args = (message_of_form(str(error), form),)
            raise
        except KeyboardInterrupt:
            raise click.Abort() from None  # click would print an empty line before it
        finally:
            logger.info("run %s ends after %.3f s", logs.run_id(), time.monotonic() - began)

    return cast(F, wrapper)


def _times_opened_to_write(settings: Settings) -> int:
    session = sys.modules.get("mitl.db.session")  # which a command that opens no database does not load
    times: int = 0 if session is None else session.times_opened_to_write(settings.db_url)
    return times


def _count_for_status(settings: Settings) -> None:
    """After a command that wrote to the pipeline's database: let the next `mitl status` find everything counted."""
    from mitl.campaign.standing import keep_standings

    try:
        keep_standings(settings)
    except (Exception, KeyboardInterrupt):
        # The command is done all the same, and `mitl status` counts for itself.
        logger.debug("where the project stands could not be counted", exc_info=True)


def typed(context: click.Context) -> list[click.Parameter]:
    """The options and arguments that stand on the command line."""
    return [
        parameter
        for parameter in context.command.params
        if context.get_parameter_source(str(parameter.name)) is click.core.ParameterSource.COMMANDLINE
    ]


def _refuse_options_before(subcommand: str, context: click.Context) -> None:
    if typed(context):
        path = context.command_path
        raise UsageError(f"options stand after the subcommand: {path} {subcommand} [OPTIONS]")


def refuse_beside(why: str, *followed: str) -> None:
    """UsageError for options on the command line besides these and the common ones: they could not be followed."""
    options = [
        parameter.opts[0]
        for parameter in typed(click.get_current_context())
        if not isinstance(parameter, CommonOption) and parameter.name not in followed
    ]
    if options:
        them = "it" if len(options) == 1 else "them"
        raise UsageError(f"{why}, so {', '.join(options)} could not be followed; leave {them} out")


def refuse_idle(names: Sequence[str], why: str) -> None:
    """UsageError for an option of these names on the command line: it would do nothing."""
    for parameter in typed(click.get_current_context()):
        if parameter.name in names:
            raise UsageError(f"{parameter.opts[0]} {why}")


def refuse_replace(replace: bool, file: Path | None, option: str) -> None:
    """UsageError for ``--replace`` where the option that names its file is left out."""
    if replace and file is None:
        raise UsageError(f"--replace is about the file of {option}; add {option} FILE")


def _form(settings: Settings, given: Sequence[object]) -> SetForm:
    """The form that a command is about, from what its options hold: folders of releases, one or several a option."""
    from mitl.stages.setup.forms import form_of

    listed = (values if isinstance(values, tuple) else (values,) for values in given)
    return form_of(settings, [path for several in listed for path in several if isinstance(path, Path)])


_TYPED_WAYS = "mitl.typed_ways"


class WayChoice(click.Choice[str]):
    """A choice among words of which some name a direction; each form's own names of directions are taken as well."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word as images and captions have it."""
        direction = DIRECTION_OF.get(value)
        if direction is None or direction == value:
            return super().convert(value, param, ctx)
        if ctx is not None:
            ctx.meta.setdefault(_TYPED_WAYS, []).append(value)
        return super().convert(str(direction), param, ctx)


def _refuse_other_ways(context: click.Context, form: Callable[[], SetForm]) -> None:
    """UsageError where a direction was typed by a name that this form does not have."""
    for way in context.meta.get(_TYPED_WAYS, ()):
        if way not in form().ways:
            left, right = form().nouns
            sides = ((left, right), (right, left))
            told = "; ".join(f"{one}: {a} search {b}" for one, (a, b) in zip(form().ways, sides, strict=True))
            raise FormError(f"this data set has no direction {way!r}; give one of its own ({told})")


class Dollars(click.ParamType[int, Any]):
    """An amount of money as 1.00 or $1,234.50; its value is whole cents."""

    name = "dollars"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Cents; a usage error that names the option where the text is not an amount."""
        from mitl.core.pricing import parse_dollars

        if isinstance(value, int):
            return value
        try:
            return parse_dollars(str(value))
        except UsageError as error:
            self.fail(str(error), param, ctx)


class Number(click.FloatRange):
    """A finite number of a range; click's own takes "nan" for one of every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; a usage error that names the option where it is none or out of range."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not in the range {self._describe_range()}", param, ctx)
        return number


FILE = click.Path(path_type=Path, dir_okay=False)
PLACE = click.Path(path_type=Path)
"""Of a file or a folder; whoever opens it says which."""
SHARE = Number(0, 1, min_open=True, max_open=True)
"""Of something, but neither none nor all of it."""
SECONDS = Number(0, 604_800, min_open=True)
"""To wait, a week at most: systems refuse to sleep for ages."""
DOLLARS = Dollars()
YES_TOTAL = click.option(
    "--yes-total", type=DOLLARS, help="On live: the exact total, fees included, instead of typing it."
)


def total_confirmed(
    yes_total: int | None, *, subject: str, verb: str, undone: str
) -> Callable[[Environment, int], bool]:
    """What asks whether a total in cents may be owed: practice money always, real money by the exact total.

    Args:
        yes_total: what was given as ``--yes-total``; else it is typed.
        subject: what the total is called: ``the bill``.
        verb: what typing it does: ``post``.
        undone: what holds where it was not confirmed: ``nothing was posted``.

    Raises:
        UsageError: on the call, where another total was given, or none and standard input is not a terminal.
    """

    def confirmed(environment: Environment, total_cents: int) -> bool:
        from mitl.core.pricing import format_dollars

        if environment is Environment.SANDBOX:
            return True
        total = format_dollars(total_cents)
        if yes_total is not None:
            if yes_total != total_cents:
                raise UsageError(
                    f"--yes-total is {format_dollars(yes_total)}, but {subject} is {total}; {undone}"
                )
            return True
        if not sys.stdin.isatty():
            raise UsageError(
                f"{subject} is {total} of real money and standard input is not a terminal; confirm it with "
                f"--yes-total {total.replace('$', '').replace(',', '')}; {undone}"
            )
        typed: int = click.prompt(
            f"this owes real money; type the total ({total}) to {verb}", type=DOLLARS, err=True
        )
        return typed == total_cents

    return confirmed


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, in the order in which help shows them."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


endpoint_option = click.option(
    "--endpoint-url",
    metavar="URL",
    help="Requester API to use instead of mitl's own crowd server (also AWS_ENDPOINT_URL_MTURK).",
)
"""Of a command that talks to the requester API."""


def environment_options(function: F) -> F:
    """Add ``--sandbox`` and ``--live``; the command gets ``environment`` (None where neither is given)."""

    @click.option("--sandbox", is_flag=True, help="Practice money.")
    @click.option("--live", is_flag=True, help="Real money.")
    @functools.wraps(function)
    def wrapper(*args: Any, sandbox: bool, live: bool, **kwargs: Any) -> Any:
        if sandbox and live:
            raise UsageError("both --sandbox and --live are given, practice and real money; give one of them")
        chosen = Environment.SANDBOX if sandbox else Environment.LIVE if live else None
        return function(*args, environment=chosen, **kwargs)

    return cast(F, wrapper)


def run(
    group: click.Group, args: Sequence[str] | None = None, *, ready: Callable[[], None] | None = None
) -> int:
    """Run a group and return the exit status; what a user can mend becomes one line.

    Args:
        ready: called first; a KeyboardInterrupt that it raises is told as one of the command's own.
    """
    words = list(sys.argv[1:] if args is None else args)

    def fail(message: str, status: int) -> int:
        logger.debug("where it failed", exc_info=True)
        name, command = _called(group, words)
        return _fail(name, message, status, wants_json=_asks_for_json(command, words))

    try:
        if ready is not None:
            ready()
        result = group.main(args=words, prog_name="mitl", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "", err=True)
        return 2
    except click.ClickException as error:
        return fail(usage_message(error), error.exit_code)
    except MitlError as error:
        return fail(str(error), error.exit_status)
    except (click.Abort, KeyboardInterrupt):
        if sys.stderr.isatty():
            click.echo(err=True)  # after the terminal's ^C
        return fail(INTERRUPTED, EXIT_INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output is gone; what is left in the buffer must not fail once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return fail(extension_message(error) or system_message(error), 1)
    except RecursionError:
        return fail(TOO_DEEP, 1)
    except MemoryError as error:
        return fail(memory_message(error), 1)
    except Exception as error:
        message = (
            database_message(error) or card_message(error) or extension_message(error) or text_message(error)
        )
        if message is None:
            raise
        return fail(message, 1)


def _called(group: click.Group, words: Sequence[str]) -> tuple[str, click.Command | None]:
    """The command that the words call, and its name with its subcommand: as in `crowd invite`."""
    name = next((word for word in words if not word.startswith("-")), "")
    command = group.get_command(click.Context(group), name)
    path, rest = [name], list(words)
    while isinstance(command, click.Group):
        within = next((word for word in rest if word in command.commands), "")
        if not within:
            break
        path.append(within)
        rest = rest[rest.index(within) + 1 :]
        command = command.commands[within]
    return " ".join(filter(None, path)), command


def _asks_for_json(command: click.Command | None, words: Sequence[str]) -> bool:
    """Whether ``--json`` is among the words, and not as the value of another option."""
    options = [one for one in (command.params if command else ()) if isinstance(one, click.Option)]
    # A value that may be left out begins with no dash.
    without = {one for one in options if one.is_flag or one.count or isinstance(one.flag_value, str)}
    taking = {name for one in options if one not in without for name in one.opts}
    return any(word == "--json" and before not in taking for before, word in pairwise(["", *words]))


def _fail(command: str, message: str, status: int, *, wants_json: bool) -> int:
    line = printable(" ".join(message.split()))
    click.echo(f"error: {line}", err=True)
    if wants_json:
        # Where it cannot be written, as on a full disk, that may be what the line above tells.
        with suppress(OSError):
            click.echo(json.dumps(as_json(command, StageResult(), line)))
    return status
