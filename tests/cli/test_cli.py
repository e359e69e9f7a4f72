"""The command line as such: help, what it loads, exit statuses, what it prints for people and for machines."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from cli_kit import fails, mitl, ok

from mitl.cli import COMMANDS, app
from mitl.cli.reference import commands
from mitl.errors import DatasetError
from mitl.records import StageResult, Table
from mitl.settings import load

HEAVY = (
    "torch",
    "sqlalchemy",
    "boto3",
    "numpy",
    "pyarrow",
    "PIL",
    "jinja2",
    "matplotlib",
    "starlette",
    "httpx",
)
NAMES = [name for name, _ in commands()]


def modules_after(*words: str) -> set[str]:
    """Which heavy packages a fresh process holds after a command."""
    script = (
        "import sys\nfrom mitl.cli import group\nfrom mitl.cli.app import run\n"
        f"status = run(group, {list(words)!r})\n"
        f"print(status, *(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    status, *loaded = done.stderr.split()
    assert status == "0"
    return set(loaded)


def test_help_lists_every_command():
    """Every command stands in `mitl --help` with what it does."""
    text = ok("--help").out

    for name, (_, what) in COMMANDS.items():
        assert f"  {name} " in text
        assert what.split()[0] in text


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("annotators",), ("init", "--help")])
def test_what_needs_no_heavy_package_loads_none(words):
    """Help, version and the list of annotators answer without torch, SQLAlchemy, boto3 and the like."""
    loaded = modules_after(*words)

    assert loaded == set()


@pytest.mark.parametrize("name", NAMES)
def test_every_command_and_every_option_has_help(name):
    """Nobody has to guess what an option means."""
    command = dict(commands())[name]

    text = ok(*name.split(), "--help").out

    assert text.startswith(f"Usage: mitl {name} ")
    assert all(option.help for option in command.params if isinstance(option, click.Option))


@pytest.mark.parametrize("name", NAMES)
def test_every_command_takes_the_common_options(name):
    """--project, --db, --crowd-db, --seed, --json, -q and -v stand after every command."""
    options = {option for parameter in dict(commands())[name].params for option in parameter.opts}

    assert {"--project", "--db", "--crowd-db", "--seed", "--json", "-q", "-v"} <= options


def test_version_names_the_package():
    """`mitl --version` says which mitl this is."""
    assert ok("--version").out.startswith("mitl, version ")


@pytest.mark.parametrize("words", [(), ("crowd",), ("db",)])
def test_a_group_without_a_command_shows_its_help_and_is_wrong_usage(words):
    """Exit status 2, with the commands to choose from on standard error."""
    outcome = mitl(*words)

    assert (outcome.status, outcome.out) == (2, "")
    assert "Commands:" in outcome.err


def test_an_unknown_command_is_one_line():
    """The line names the word and where the right ones are listed."""
    assert fails(2, "repot") == "no such command 'repot'; see `mitl --help`"


def test_an_unknown_option_names_the_command_whose_help_to_read():
    """The line ends with the help to read."""
    message = fails(2, "status", "--sandbx")

    assert "'--sandbx'" in message
    assert message.endswith("see `mitl status --help`")


def test_options_of_a_subcommand_may_not_stand_before_it():
    """Before it they would be read by nobody, so they are refused."""
    message = fails(2, "review", "--sandbox", "settle")

    assert message == "options stand after the subcommand: mitl review settle [OPTIONS]"


def test_the_object_of_an_error_names_the_subcommand(tmp_path):
    """Failed or not, `command` is the same."""
    outcome = mitl("crowd", "payments", "--project", tmp_path, "--json")

    assert outcome.json["command"] == "crowd payments"


@pytest.fixture
def one_command():
    """A group with one command that does what it is given."""

    def make(action):
        @click.group()
        def group() -> None:
            """A group."""

        @group.command("act")
        @app.common
        def act(app: app.App) -> None:
            """Act."""
            action(app)

        return group

    return make


def run_act(group, capsys, *words):
    """Exit status, standard output and standard error of the command `act`."""
    status = app.run(group, ["act", *words])
    return status, *capsys.readouterr()


def test_a_clear_error_is_one_line_and_exit_status_1(one_command, capsys):
    """Line breaks of the message do not break the line."""

    def act(app):
        raise DatasetError("there is\n  no file")

    assert run_act(one_command(act), capsys) == (1, "", "error: there is no file\n")


def test_a_bug_keeps_its_traceback(one_command, capsys):
    """What no user can mend is not dressed up as a clear error."""

    def act(app):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_act(one_command(act), capsys)


def test_what_the_file_system_says_is_one_line(one_command, capsys, tmp_path):
    """A folder where a file should be, a full disk, a missing right: the path and the reason."""

    def act(app):
        tmp_path.read_text()

    status, out, err = run_act(one_command(act), capsys)
    assert (status, out, err) == (1, "", f"error: cannot use '{tmp_path}': is a directory\n")


def test_an_interruption_is_one_line_and_exit_status_130(one_command, capsys):
    """State is kept, and the line says how to go on."""

    def act(app):
        raise KeyboardInterrupt

    assert run_act(one_command(act), capsys) == (130, "", f"error: {app.INTERRUPTED}\n")


def test_warnings_go_to_standard_error_and_into_the_object(one_command, capsys):
    """So that standard output holds the object alone."""

    def act(app):
        app.finish(StageResult(warnings=("mind the gap",)))

    status, out, err = run_act(one_command(act), capsys, "--json")
    assert (status, err) == (0, "warning: mind the gap\n")
    assert '"warnings": ["mind the gap"]' in out


def test_quiet_prints_nothing(one_command, capsys):
    """-q leaves errors and warnings only."""

    def act(app):
        app.finish(StageResult(lines=("done",), next="mitl status"))

    assert run_act(one_command(act), capsys, "-q") == (0, "", "")


def test_texts_of_strangers_cannot_steer_the_terminal(one_command, capsys):
    """Control characters of captions and worker ids are shown as escapes, on one row."""
    hostile = "\x1b[2Jgone\r\n\u202ereversed\x9b"

    def act(app):
        app.finish(StageResult(tables=(Table(hostile, ("caption",), ((hostile,),)),), lines=(hostile,)))

    _, out, _ = run_act(one_command(act), capsys)
    assert len(out.splitlines()) == 4
    assert all(character.isprintable() for line in out.splitlines() for character in line)
    assert "\\x1b[2Jgone\\r\\n\\u202ereversed\\x9b" in out


def test_tables_align_numbers_and_money_to_the_right():
    """Whole numbers get separators, fractions three places, missing values a dash."""
    table = Table(
        "", ("who", "HITs", "paid", "share"), (("ann", 1234, "$1,200.00", 0.5), ("bo", 7, "$3.50", None))
    )

    assert app.render_table(table).splitlines() == [
        "  who   HITs       paid  share",
        "  ann  1,234  $1,200.00  0.500",
        "  bo       7      $3.50      –",
    ]


def test_progress_is_silent_where_asked_or_no_terminal_looks(tmp_path):
    """--json and -q draw no bars."""
    quiet = app.App("act", load(tmp_path, environ={}), json=False, quiet=True)

    assert quiet.progress is app.no_progress
