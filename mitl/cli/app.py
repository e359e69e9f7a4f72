"""What all commands share: common options, output for people and for machines, errors as one line."""

from __future__ import annotations

import functools
import json
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from mitl.errors import MitlError
from mitl.progress import Progress, no_progress, terminal_progress
from mitl.records import StageResult, Table
from mitl.settings import Settings, load

F = TypeVar("F", bound=Callable[..., Any])

EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class App:
    """One call of a command: its settings and how it talks."""

    command: str
    settings: Settings
    json: bool
    quiet: bool

    @property
    def progress(self) -> Progress:
        """Bars on a terminal, unless quiet."""
        return no_progress if self.quiet else terminal_progress

    def finish(self, result: StageResult) -> None:
        """Print what a stage did: one JSON object, or tables and lines."""
        for warning in result.warnings:
            click.echo(f"warning: {warning}", err=True)
        if self.json:
            click.echo(json.dumps(as_json(self.command, result), ensure_ascii=False))
            return
        if self.quiet:
            return
        for table in result.tables:
            click.echo(render_table(table))
        for line in result.lines:
            click.echo(line)
        if result.next:
            click.echo(f"next: {result.next}")


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

    @click.option("--project", type=click.Path(path_type=Path), help="Project folder [default: here].")
    @click.option("--db", metavar="URL", help="Pipeline database [default: sqlite:///PROJECT/mitl.db].")
    @click.option("--crowd-db", metavar="URL", help="Crowd server's database [default: PROJECT/crowd.db].")
    @click.option("--seed", type=int, help="Seed of everything that is drawn [default: mitl.toml, 0].")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
    @click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
    @click.option("-v", "--verbose", count=True, help="Log more to standard error; twice for all.")
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
        **kwargs: Any,
    ) -> Any:
        logging.basicConfig(
            stream=sys.stderr,
            level=(logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)],
            format="%(levelname)s %(name)s: %(message)s",
        )
        context = click.get_current_context()
        settings = load(
            project or kwargs.get("folder"),
            db=db,
            crowd_db=crowd_db,
            seed=seed,
            endpoint_url=kwargs.pop("endpoint_url", None),
        )
        name = context.command_path.partition(" ")[2] or str(context.info_name)
        return function(App(name, settings, as_json, quiet or as_json), *args, **kwargs)

    return cast(F, wrapper)


def endpoint_option(function: F) -> F:
    """Add ``--endpoint-url`` to a command that talks to the requester API."""
    return click.option(
        "--endpoint-url",
        metavar="URL",
        help="Requester API to use instead of mitl's own crowd server (also AWS_ENDPOINT_URL_MTURK).",
    )(function)


def environment_options(function: F) -> F:
    """Add ``--sandbox`` and ``--live``; the command gets ``environment`` (None where neither is given)."""
    from mitl.records import Environment

    @click.option("--sandbox", "environment", flag_value="sandbox", help="Practice money.")
    @click.option("--live", "environment", flag_value="live", help="Real money.")
    @functools.wraps(function)
    def wrapper(*args: Any, environment: str | None, **kwargs: Any) -> Any:
        chosen = None if environment is None else Environment(environment)
        return function(*args, environment=chosen, **kwargs)

    return cast(F, wrapper)


def render_table(table: Table) -> str:
    """A plain aligned table; numbers to the right, whole numbers with separators."""
    rows = [[_cell(value) for value in row] for row in table.rows]
    numeric = [
        bool(table.rows) and all(_is_number(row[place]) for row in table.rows)
        for place in range(len(table.columns))
    ]
    widths = [
        max(len(column), *(len(row[place]) for row in rows), 0) if rows else len(column)
        for place, column in enumerate(table.columns)
    ]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        )
        return "  " + "  ".join(padded).rstrip()

    head = [table.title] if table.title else []
    return "\n".join([*head, line(table.columns), *(line(row) for row in rows)])


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3f}"
    return str(value)


def run(group: click.Group, args: Sequence[str] | None = None) -> int:
    """Run a group and return the exit status; a MitlError becomes one line."""
    words = list(sys.argv[1:] if args is None else args)
    wants_json = "--json" in words
    name = next((word for word in words if not word.startswith("-")), "")
    try:
        result = group.main(args=words, prog_name="mitl", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "", err=True)
        return 2
    except click.ClickException as error:
        status = error.exit_code
        message = error.format_message()
        if isinstance(error, click.UsageError) and error.ctx is not None:
            message += f"; see `{error.ctx.command_path} --help`"
        return _fail(name, message, status, wants_json=wants_json)
    except MitlError as error:
        return _fail(name, str(error), error.exit_status, wants_json=wants_json)
    except (click.Abort, KeyboardInterrupt):
        message = "interrupted; what was done is kept, run the command again to go on"
        return _fail(name, message, EXIT_INTERRUPTED, wants_json=wants_json)
    except BrokenPipeError:
        sys.stderr.close()
        return 1


def _fail(command: str, message: str, status: int, *, wants_json: bool) -> int:
    line = " ".join(message.split())
    click.echo(f"error: {line}", err=True)
    if wants_json:
        click.echo(json.dumps(as_json(command, StageResult(), line), ensure_ascii=False))
    return status
