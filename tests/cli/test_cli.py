"""The command line as such: help, what it loads, exit statuses, what it prints for people and for machines."""

from __future__ import annotations

import errno
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from cli_kit import fails, mitl, ok
from PIL import Image
from world_kit import copy_of

from mitl import cli
from mitl.cli import COMMANDS, SECTIONS, CommonOption, app, group, tables, usage
from mitl.cli.reference import commands
from mitl.errors import DatasetError
from mitl.progress import terminal_progress
from mitl.records import StageResult, Table
from mitl.records.forms import SET_FORMS
from mitl.settings import load

HEAVY = (
    "torch",
    "sqlalchemy",
    "boto3",
    "numpy",
    "pandas",
    "scipy",
    "alembic",
    "pyarrow",
    "PIL",
    "jinja2",
    "matplotlib",
    "starlette",
    "httpx",
)
pytest_plugins = ("desk_fixtures",)
NAMES = [name for name, _ in commands()]


def top(name: str) -> click.Command:
    """The command that `mitl NAME` runs."""
    found = group.get_command(click.Context(group), name)
    assert found is not None
    return found


def below(command: click.Command) -> list[click.Command]:
    """All its subcommands, at any depth."""
    if not isinstance(command, click.Group):
        return []
    return [found for sub in command.commands.values() for found in (sub, *below(sub))]


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


def test_help_lists_every_command_in_the_section_of_its_work():
    """Every command stands in `mitl --help` once, with what it does."""
    text = ok("--help").out

    for title, section in SECTIONS.items():
        lines = text.split(f"\n{title}:\n")[1].split("\n\n")[0].splitlines()
        assert [line.split()[0] for line in lines if line[2] != " "] == list(section)
    for name, (_, what) in COMMANDS.items():
        (line,) = re.findall(rf"(?m)^  {name}  +(.*)$", text)
        assert what.startswith(line)


@pytest.mark.parametrize("name", [name for name in COMMANDS if below(top(name))])
def test_help_of_a_group_tells_whole_what_its_commands_do(name):
    """In the order of the work, each with its first sentence, cut nowhere."""
    commands = top(name).commands

    text = " ".join(ok(name, "--help").out.split("\nCommands:\n")[1].split())

    whole = [f"{sub} {re.split(r'[.] ', ' '.join(found.help.split()))[0]}" for sub, found in commands.items()]
    starts = [text.index(line) for line in whole]
    assert starts == sorted(starts)


def test_every_command_is_registered_in_one_section():
    """No command of any module is forgotten, and none stands twice."""
    named = [name for section in SECTIONS.values() for name in section]
    modules = [importlib.import_module(f"mitl.cli.{m.name}") for m in pkgutil.iter_modules(cli.__path__)]
    made = {found for m in modules for found in vars(m).values() if isinstance(found, click.Command)}

    assert sorted(named) == sorted(COMMANDS)
    assert made - {group} <= {found for name in COMMANDS for found in (top(name), *below(top(name)))}


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("annotators",), ("init", "--help")])
def test_what_needs_no_heavy_package_loads_none(words):
    """Help, version and the list of annotators answer without torch, SQLAlchemy, boto3 and the like."""
    loaded = modules_after(*words)

    assert loaded == set()


def test_status_loads_what_it_counts_with_and_nothing_more(reviewed, tmp_path):
    """The database's packages, numpy and what renders pages, also where work waits or is to be asked again."""
    settings = copy_of(reviewed, tmp_path / "p")
    words = "--project", str(settings.project)

    waiting = ok("status", "--json", *words).json["counts"]
    loaded = modules_after("status", *words)
    numbers = map(str, ok("review", "--json", *words).json["counts"]["submissions"])
    ok("review", "drop", "--sandbox", *numbers, *words)
    again = ok("status", "--json", *words).json["counts"]

    assert waiting["queued"] > 0 and again["hits_to_ask_again"] > 0
    assert loaded | modules_after("status", *words) <= {"sqlalchemy", "numpy", "jinja2"}


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


@pytest.mark.parametrize(
    ("words", "title"), [((), "The loop"), (("crowd",), "Commands"), (("db",), "Commands")]
)
def test_a_group_without_a_command_shows_its_help_and_is_wrong_usage(words, title):
    """Exit status 2, with the commands to choose from on standard error."""
    outcome = mitl(*words)

    assert (outcome.status, outcome.out) == (2, "")
    assert f"\n{title}:\n" in outcome.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("propse", "no such command 'propse'; did you mean 'propose'?"),
        ("PROPOSE", "no such command 'PROPOSE'; did you mean 'propose'?"),
        ("repot", "no such command 'repot'; did you mean 'report' or 'export'?"),
        ("round nxt", "no such command 'nxt'; did you mean 'next'?"),
        ("db upgrad", "no such command 'upgrad'; did you mean 'upgrade'?"),
        ("crowd panel clos", "no such command 'clos'; did you mean 'close'?"),
        ("xyzzy", "no such command 'xyzzy'; see `mitl --help`"),
        ("round xyzzy", "no such command 'xyzzy'; see `mitl round --help`"),
        ("status --sandbx", "no such option '--sandbx'; did you mean '--sandbox'?"),
        ("crowd budget --live", "no such option '--live'; see `mitl crowd budget --help`"),
        (
            "--json status",
            "no such option '--json'; options stand after the command, as in `mitl COMMAND --json`",
        ),
        ("status --xyzzy", "no such option '--xyzzy'; see `mitl status --help`"),
    ],
)
def test_a_mistyped_word_is_one_line(words, message):
    """The line names the word and the nearest right ones, or where all of them are listed."""
    assert fails(2, *words.split()) == message


@pytest.mark.parametrize("name", NAMES)
def test_help_ends_with_the_options_of_every_command(name):
    """Each is named with what it takes, unbroken, below the command's own; `mitl --help` explains it."""
    own, every = ok(*name.split(), "--help").out.split(
        "Options of every command, explained by `mitl --help`:"
    )
    explained = ok("--help").out.split("Options of every command:")[1]

    shared = [p for p in dict(commands())[name].params if isinstance(p, CommonOption)]
    assert len(shared) == 8
    for option in shared:
        assert not re.search(rf"(?m)^  {', '.join(option.opts)}\b", own)
        assert re.search(rf"(?m)^  {', '.join(option.opts)}\b.*  {option.help.split()[0]} ", explained)
        assert usage(option, click.Context(group)) in every


@pytest.mark.parametrize("name", NAMES)
def test_help_shows_each_own_option_once_and_many_in_sections(name):
    """In their order; each section begins at an option that the command has."""
    command = dict(commands())[name]
    own = [
        p.opts[0] for p in command.params if isinstance(p, click.Option) and not isinstance(p, CommonOption)
    ]

    text = ok(*name.split(), "--help").out

    _, *sections = re.split(r"(?m)^\w.*:$", text.split("Options of every command")[0])
    assert re.findall(r"(?m)^  (?:-\w, )?(--[a-z-]+)", "".join(sections)) == own
    assert set(command.sections) <= set(own)
    assert all(f"\n{title}:\n" in text for title in command.sections.values())
    assert command.sections or len(own) < 16


def test_options_of_a_subcommand_may_not_stand_before_it():
    """Before it they would be read by nobody, so they are refused."""
    message = fails(2, "review", "--sandbox", "settle")

    assert message == "options stand after the subcommand: mitl review settle [OPTIONS]"


def test_the_object_of_an_error_names_the_subcommand(tmp_path):
    """Failed or not, `command` is the same."""
    outcome = mitl("crowd", "payments", "--project", tmp_path, "--json")

    assert outcome.json["command"] == "crowd payments"


def test_an_options_value_asks_for_no_json(tmp_path):
    """A release may be called so; where a value may be left out, it is an option all the same."""
    named = mitl("build-dataset", "--project", tmp_path, "--out", tmp_path / "r", "--name", "--json")
    asked = mitl("report", "--project", tmp_path, "--methods", "--json")

    assert (named.status, named.out, asked.json["command"]) == (1, "", "report")


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


def test_a_closed_folder_is_named_and_not_the_file_that_was_looked_for_in_it(
    one_command, capsys, tmp_path, monkeypatch
):
    """The superuser may enter every folder, so that one is closed here by word alone."""
    closed = tmp_path / "closed"
    monkeypatch.setattr(
        "mitl.cli.failures.os.access", lambda path, mode: not Path(path).is_relative_to(closed)
    )

    def act(app):
        raise PermissionError(errno.EACCES, "Permission denied", str(closed / "deep" / "corpus.jsonl"))

    status, _, err = run_act(one_command(act), capsys)
    wanted = "permission denied; give this user the right to it and run the command again"
    assert (status, err) == (1, f"error: cannot use '{closed}': {wanted}\n")


def test_what_asks_for_too_much_memory_is_one_line(one_command, capsys):
    """The head of a file may promise an array that no machine holds; numpy says how large."""

    def act(app):
        np.empty((10**7, 10**9))

    status, _, err = run_act(one_command(act), capsys)
    assert (status, len(err.splitlines())) == (1, 1)
    assert "PiB for an array" in err and "run the command again" in err


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


def test_the_next_step_names_the_project_where_the_command_was_told_it(one_command, capsys):
    """As it is typed: in quotes where its name has spaces."""

    def act(app):
        app.finish(StageResult(next="mitl status"))

    assert run_act(one_command(act), capsys)[1] == "next: mitl status\n"
    _, out, _ = run_act(one_command(act), capsys, "--project", "my project")
    assert out == "next (with --project 'my project'): mitl status\n"
    _, out, _ = run_act(one_command(act), capsys, "--db", "sqlite:///x.db", "--crowd-db", "sqlite:///y.db")
    assert out == (
        "next (with the same --db and --crowd-db, or MITL_DB and MITL_CROWD_DB set): mitl status\n"
    )


def test_a_large_picture_that_can_be_opened_brings_no_line_of_pillow(tmp_path):
    """Pillow warns from 89 megapixels on, and refuses twice as many."""
    Image.new("1", (11_000, 9_000)).save(tmp_path / "large.png")
    script = (
        "from pathlib import Path\nfrom mitl.__main__ import main\nfrom mitl.core.pictures import page_jpeg\n"
        "try:\n    main()\nfinally:\n    page_jpeg(Path('large.png'))"
    )
    words = [sys.executable, "-c", script, "--version"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_texts_of_strangers_cannot_steer_the_terminal(one_command, capsys):
    """Control characters of captions, worker ids and models' names are shown as escapes, on one row."""
    hostile = "\x1b[2Jgone\r\n\u202ereversed\x9b"

    def act(app):
        app.finish(StageResult(tables=(Table(hostile, (hostile,), ((hostile,),)),), lines=(hostile,)))

    _, out, _ = run_act(one_command(act), capsys)
    assert len(out.splitlines()) == 4
    assert all(character.isprintable() for line in out.splitlines() for character in line)
    assert "\\x1b[2Jgone\\r\\n\\u202ereversed\\x9b" in out


def test_tables_align_numbers_and_money_to_the_right():
    """Whole numbers get separators, fractions three places, missing values a dash; shares stay shares near an end."""
    rows = ("ann", 1234, "$1,200.00", 0.5, "12.0 %"), ("bo", 7, "$3.50", None, "< 0.1 %")
    table = Table("", ("who", "HITs", "paid", "share", "passed"), rows)

    assert tables.render_table(table).splitlines() == [
        "  who   HITs       paid  share   passed",
        "  ann  1,234  $1,200.00  0.500   12.0 %",
        "  bo       7      $3.50      –  < 0.1 %",
    ]


def test_a_wide_table_is_folded_between_words_so_that_its_rows_stay_rows():
    """No id is cut, nothing is lost; where all fits, or nobody's terminal reads it, a row is one line."""
    link = "http://127.0.0.1:8000/link/abcdefgh"
    table = Table("", ("id", "text", "n"), ((link, "a man rides a brown horse by the sea", 7), ("b", "", 12)))

    assert tables.render_table(table, 62).splitlines() == [
        "  id                                   text                  n",
        f"  {link}  a man rides a brown   7",
        "                                       horse by the sea",
        "  b                                                         12",
    ]
    names = Table("", ("id", "name"), ((link, "my own picture.jpg"),))
    assert tables.render_table(names, 50) == tables.render_table(names)
    assert tables.render_table(table, 200) == tables.render_table(table)


def test_a_table_counts_the_columns_that_a_terminal_gives_to_signs():
    """Two to a Chinese character or an emoji, none to a combining mark; lines are folded by the same measure."""
    table = Table("", ("id", "text"), (("日本", "a"), ("🙂", "b"), ("e\u0301", "c"), ("id", "d")))

    assert tables.render_table(table).splitlines() == [
        "  id    text",
        "  日本  a",
        "  🙂    b",
        "  e\u0301     c",
        "  id    d",
    ]
    folded = Table("", ("id", "text", "n"), (("a", "하얀 배경에 빨간 동그라미 하나가 있다", 7),))
    assert tables.render_table(folded, 30).splitlines() == [
        "  id  text                   n",
        "  a   하얀 배경에 빨간       7",
        "      동그라미 하나가 있다",
    ]


def test_a_table_that_no_folding_makes_fit_shows_its_rows_as_blocks():
    """A line for each column, so that each figure stands beside its name; what goes on is set further in."""
    table = Table(
        "two models",
        ("model", "mAP@R", "95 % from", "to", "said"),
        (("near", 0.5, 0.4, 0.6, "ranks by the nearest of all"), ("far", 0.25, None, None, "")),
    )

    assert tables.render_table(table, 30).splitlines() == [
        "two models",
        "  model: near",
        "  mAP@R: 0.500",
        "  95 % from: 0.400",
        "  to: 0.600",
        "  said: ranks by the nearest",
        "    of all",
        "",
        "  model: far",
        "  mAP@R: 0.250",
        "  95 % from: –",
        "  to: –",
        "  said:",
    ]
    assert len(tables.render_table(table).splitlines()) == 4


def test_progress_is_silent_where_asked_or_no_terminal_looks(tmp_path):
    """--json and -q draw no bars."""
    quiet = app.App("act", load(tmp_path, environ={}), json=False, quiet=True)

    assert quiet.progress is app.no_progress


def test_a_bar_names_directions_as_the_data_set_does(tmp_path, monkeypatch, capsys):
    """What searches sounds does not go from an image to a text."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    sounds = next(form for form in SET_FORMS.values() if form.sides[0] == "sound")
    told = app.App("act", load(tmp_path, environ={}), json=False, quiet=False, form=lambda: sounds)

    with told.progress("rank bm25 t2i", 1) as advance:
        advance(1)

    assert "rank bm25 t2a" in capsys.readouterr().err


def test_a_bar_takes_any_name(monkeypatch, capsys):
    """An annotator's name is no markup, which could be malformed."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    with terminal_progress("rank [/i2t]", total=1) as advance:
        advance(1)

    assert "rank [/i2t]" in capsys.readouterr().err


def test_a_slow_pace_is_told_by_the_minute(monkeypatch, capsys):
    """A unit of five seconds is twelve a minute, not none a second."""
    from rich.progress import Task

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(Task, "speed", property(lambda task: 0.2))
    with terminal_progress("train", total=3) as advance:
        advance(1)

    told = capsys.readouterr().err
    assert "12/min" in told and "0/s" not in told
