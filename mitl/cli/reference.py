"""The reference of the command line as Markdown, made from the commands themselves.

``python -m mitl.cli.reference > docs/cli.md`` writes it; a test holds the file to it.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping, Sequence

import click

import mitl.campaign
import mitl.stages
from annotators.catalog import annotator_forms
from mitl.cli import COMMANDS, SECTIONS, CommonOption, group, options_of
from mitl.cli.app import common, environment_options
from mitl.records.results import PRINTED, meanings
from mitl.settings import TABLES, VARIABLES

for _package in (mitl.stages, mitl.campaign):
    for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
        importlib.import_module(_module.name)
for _name in ("mitl.cli.project", "mitl.desk.app", "mitl.explorer.app"):
    importlib.import_module(_name)

COUNTS, PATHS = (
    {command: dict(meanings(keys)) for command, keys in PRINTED[key].items()} for key in ("counts", "paths")
)


NEED_ENVIRONMENT = (
    "publish",
    "crowd invite",
    "crowd payments",
    "crowd panel add",
    "crowd study",
)
"""Commands that do nothing unless told for which environment."""

_HEAD = """\
# The command line

<!-- Made by `python -m mitl.cli.reference`; change the commands, not this file. -->

`mitl COMMAND [OPTIONS]`: options stand after the command and its subcommand. Every command can be run twice; what
is done already is not done again. `mitl COMMAND --help` shows what is below, `mitl --help` the commands and the
options that they share.

Progress bars and the log go to standard error, and only to a terminal; results go to standard output. Money on the
command line is dollars (`1.00`), in `--json` whole cents.
"""

_STATUS = """\
## Exit status

| status | means |
| --- | --- |
| 0 | done, or there was nothing to do |
| 1 | a clear error: one line on standard error that starts with `error: ` |
| 2 | wrong usage: the same |
| 130 | interrupted; what was done is kept, and the same command goes on from there |
"""

_JSON = """\
## `--json`

One object on standard output, and nothing else there; also for an error.

| key | value |
| --- | --- |
| `command` | the command with its subcommand, as `crowd invite` |
| `status` | `done`, `nothing_to_do` or `error` |
| `counts` | numbers and names, listed with each command; some of them only where they apply |
| `paths` | files and folders that were written or used |
| `warnings` | list of lines that were also written to standard error |
| `error` | the error's line, or null |
"""

_SETTINGS = """\
## Settings

An option goes before the environment, that before `mitl.toml` in the project's folder, and that before the default.
"""


def reference() -> str:
    """The whole of ``docs/cli.md``."""
    parts = [_HEAD, _overview(), _common_options(), _STATUS, _JSON, _settings(), "## Commands\n"]
    for name, command in commands():
        parts.append(_section(name, command))
    return "\n".join(parts)


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command and subcommand under its full name, in the order of the work."""
    context = click.Context(group, info_name="mitl")
    for name in COMMANDS:
        command = group.get_command(context, name)
        assert command is not None
        yield from _with_subcommands(name, command)


def _with_subcommands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield name, command
    if isinstance(command, click.Group):
        for sub, subcommand in command.commands.items():
            yield from _with_subcommands(f"{name} {sub}", subcommand)


def _overview() -> str:
    parts = []
    for title, section in SECTIONS.items():
        rows = [(_link(n), _line(_help(command))) for n, command in commands() if n.split()[0] in section]
        parts += [f"{title}:\n", _table(("command", "does"), rows)]
    return "\n".join(parts)


def _link(name: str) -> str:
    return f"[`mitl {name}`](#mitl-{name.replace(' ', '-')})"


def _common_options() -> str:
    rows = [_option_row(option) for option in options_of(common)]
    needed = ", ".join(f"`mitl {name}`" for name in NEED_ENVIRONMENT)
    environments = [_option_row(option) for option in options_of(environment_options)]
    return "\n".join(
        [
            "## Common options\n\nOf every command:\n",
            _table(("option", "means"), rows),
            f"Of the commands that speak of one environment. {needed} need one of them; the others take the only "
            "one that the project has batches in, live if it has batches in both, and the sandbox before anything is "
            "posted; releases without batches and files of past work are live:\n",
            _table(("option", "means"), environments),
        ]
    )


def _settings() -> str:
    parts = [_SETTINGS, _table(("variable", "means"), [(f"`{k}`", v) for k, v in VARIABLES.items()])]
    parts.append("`mitl.toml` (defaults in brackets):\n")
    rows = [
        (f"`[{table}]` `{key}`", setting.means)
        for table, keys in TABLES.items()
        for key, setting in keys.items()
    ]
    parts.append(_table(("setting", "means"), rows))
    parts.append(
        "`[annotators.NAME]` holds the settings of one annotator; relative paths start at the project's folder:\n"
    )
    forms = [(form, what, "; ".join(keys)) for form, (what, keys) in annotator_forms().items()]
    parts.append(_table(("name", "is", "settings"), forms))
    parts.append(
        "A folder `hit_templates/` in the project holds its own wordings for `mitl publish --template`; one of them "
        "goes before\na bundled one of the same name.\n"
    )
    return "\n".join(parts)


def _section(name: str, command: click.Command) -> str:
    shown = [p for p in command.params if isinstance(p, click.Option) and not isinstance(p, CommonOption)]
    options = [p for p in shown if p.opts[0] not in ("--sandbox", "--live")]
    has_environment = any("--sandbox" in p.opts for p in command.params)
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    words = ["mitl", name, *(a.make_metavar(click.Context(command)) for a in arguments)]
    if has_environment:
        words.append("--sandbox|--live" if name in NEED_ENVIRONMENT else "[--sandbox|--live]")
    parts = [f"### mitl {name}\n", _prose(_help(command)), f"```\n{' '.join(words)} [OPTIONS]\n```\n"]
    if options:
        parts.append(_table(("option", "means"), [_option_row(option) for option in options]))
    parts += [_keys("counts", name, COUNTS), _keys("paths", name, PATHS)]
    return "\n".join(part for part in parts if part)


def _keys(what: str, name: str, by_command: Mapping[str, Mapping[str, str]]) -> str:
    keys = by_command.get(name)
    if keys is None:
        return ""
    first = next(other for other, _ in commands() if by_command.get(other) == keys)
    if first != name:
        return f"`{what}`: as of `mitl {first}`.\n"
    return _table((what, "means"), [(f"`{key}`", text) for key, text in keys.items()])


def _option_row(option: click.Option) -> tuple[str, str]:
    context = click.Context(click.Command("none"), show_default=True)
    record = option.get_help_record(context)
    assert record is not None, f"{option.name} has no help"
    return f"`{record[0]}`", record[1]


def _help(command: click.Command) -> str:
    text = command.help or ""
    assert text, f"{command.name} has no help"
    return inspect.cleandoc(text)


def _line(text: str) -> str:
    """The first paragraph on one line."""
    return " ".join(text.split("\n\n")[0].split())


def _prose(text: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n")) + "\n"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    print(reference(), end="")
