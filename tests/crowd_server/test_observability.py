"""What operators see: logs that machines read and that tell nothing of anybody, and a status that follows the work."""

from __future__ import annotations

import json
import logging
import re
import shutil
import signal
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest
from cli_kit import fails, mitl, ok, use_file_annotators
from db_kit import content

from mitl import logs
from mitl.crowd_server import admin
from mitl.db.engine import make_engine
from mitl.settings import load

RUN = re.compile(r"[0-9a-f]{12}")


@pytest.fixture(autouse=True)
def silent_again():
    """No level stays set."""
    yield
    logs.set_up("none")


@pytest.fixture(scope="module")
def proposed(tmp_path_factory):
    """A small project with candidate pairs, made once and never changed."""
    folder = tmp_path_factory.mktemp("proposed")
    with chdir(folder):
        ok("init", "--dataset", "scenes", "--n-images", "16")
        use_file_annotators(folder)
        ok("propose", "--image-queries", "6", "--caption-queries", "8")
    return folder


@pytest.fixture
def project(proposed, tmp_path, monkeypatch):
    """A copy of it in the current folder."""
    shutil.copytree(proposed, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def objects(text):
    """The log's lines, each one JSON object; warnings to people stand between them."""
    found = [json.loads(line) for line in text.splitlines() if not line.startswith("warning: ")]
    assert all(list(one)[:6] == ["time", "level", "logger", "run", "command", "message"] for one in found)
    return found


def test_a_log_in_json_is_one_object_a_line_with_its_run_and_command(tmp_path):
    """The run is the same in all lines of a process; the time is UTC; results stay on standard output."""
    outcome = mitl(
        "init",
        tmp_path / "p",
        "--dataset",
        "scenes",
        "--n-images",
        "5",
        "-v",
        "--log-format",
        "json",
        "--json",
    )

    lines = objects(outcome.err)
    assert [line["message"].split()[0] for line in (lines[0], lines[-1])] == ["run", "run"]
    assert {line["command"] for line in lines} == {"init"}
    (run,) = {line["run"] for line in lines}
    assert RUN.fullmatch(run) and run in lines[0]["message"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["time"]) for line in lines)
    assert outcome.json["status"] == "done"


def test_the_environment_chooses_the_form_and_the_option_goes_before_it(tmp_path, monkeypatch):
    """As of every setting; an unknown form is one line."""
    monkeypatch.setenv("MITL_LOG_FORMAT", "json")
    assert objects(mitl("annotators", "-v", "--project", tmp_path).err)
    text = mitl("annotators", "-v", "--project", tmp_path, "--log-format", "text").err
    assert text.startswith("INFO mitl.cli.app: run ")

    monkeypatch.setenv("MITL_LOG_FORMAT", "xml")

    assert fails(1, "annotators", "--project", tmp_path) == "MITL_LOG_FORMAT is 'xml'; known: text, json"


def test_without_v_nothing_is_logged_but_warnings(tmp_path):
    """A clean run is silent on standard error, in either form."""
    assert mitl("annotators", "--project", tmp_path).err == ""
    assert mitl("annotators", "--project", tmp_path, "--log-format", "json").err == ""


def test_a_forked_process_has_a_run_of_its_own():
    """Lines of two processes are never taken for one run's."""
    import os

    reading, writing = os.pipe()
    own = logs.run_id()
    child = os.fork()
    if child == 0:
        os.write(writing, logs.run_id().encode())
        os._exit(0)
    os.waitpid(child, 0)

    assert own == logs.run_id() != os.read(reading, 12).decode()
    os.close(reading)
    os.close(writing)


def test_an_exception_in_json_is_still_one_line(capsys):
    """Its traceback is in the field ``error``."""
    logs.set_up("test", verbose=2, form="json")
    try:
        raise ValueError("two\nlines, and a 'quote\"")
    except ValueError:
        logging.getLogger("mitl.test").exception("it %s", "failed")

    (line,) = objects(capsys.readouterr().err)
    assert (line["level"], line["message"]) == ("error", "it failed")
    assert line["error"].endswith("ValueError: two\nlines, and a 'quote\"\n")


def test_libraries_are_heard_from_warnings_on(capsys):
    """Their debugging shows requests, answers and keys whole; -vv is about mitl."""
    logs.set_up("test", verbose=2)
    for name in ("botocore", "httpx", "urllib3", "sqlalchemy.engine", "uvicorn.error"):
        logging.getLogger(name).info("Authorization: secret")
        logging.getLogger(name).warning("attention")
    logging.getLogger("mitl.x").debug("heard")

    err = capsys.readouterr().err
    assert "secret" not in err
    assert err.count("attention") == 5 and "DEBUG mitl.x: heard" in err


@pytest.mark.slow
def test_a_whole_loop_at_its_loudest_logs_nothing_of_anybody(tmp_path_factory):
    """No key, no token, no worker's or assignment's id and no caption, from init to the release, server included."""
    folder = tmp_path_factory.mktemp("loop")
    said = []

    def loud(*words):
        outcome = mitl(*words, "-vv", "--log-format", "json")
        assert outcome.status == 0, outcome
        said.append(outcome.err)

    with chdir(folder):
        loud("init", "--dataset", "scenes", "--n-images", "16")
        use_file_annotators(Path())
        loud("propose", "--image-queries", "6", "--caption-queries", "8")
        loud("publish", "--sandbox")
        loud("simulate", "--workers", "random")
        for words in (("harvest",), ("workers",), ("status",), ("pay",), ("pay", "check")):
            loud(*words)
        queued = ok("review", "--json").json["counts"]["submissions"]
        assert len(queued) > 1
        loud("review", "reject", str(queued[0]), "--reason", "both controls failed")
        loud("review", "approve", str(queued[1]))
        loud("crowd", "invite", "--sandbox")
        loud("review", "settle")
        loud("build-dataset", "--out", "release")
        loud("db", "backup", "dump")
        loud("db", "verify")
        loud("report")
        settings = load(folder, environ={})
    log = "".join(said)
    engine = make_engine(settings.crowd_db_url)
    secrets = [key for pair in admin.keys(engine).values() for key in pair]
    secrets += [admin.operator_token(engine), settings.secret().hex()]
    engine.dispose()
    server, pipeline = content(settings.crowd_db_url), content(settings.db_url)
    secrets += [row["value"] for row in server["setting"] if row["name"] != "server_id"]
    people = [row["mturk_id"] for table in ("worker", "assignment", "hit") for row in server[table]]
    captions = [row["text"] for row in pipeline["part"] if row["text"]]

    assert len(people) > 10 and len(captions) == 5 * 16
    for private in (*secrets, *people, *captions):
        assert private not in log, private[:4]
    assert '"message": "done", "counts": {"fetched": ' in log
    assert {line["command"] for line in objects(log)} >= {"publish", "simulate", "harvest", "review reject"}


def test_a_watched_status_says_each_change_once(project, start_program):
    """A line for people, an object for programs, at once and at each change; Ctrl-C ends it like a server."""
    watches = [
        start_program(
            [sys.executable, "-u", "-m", "mitl", "status", "--watch", "--every", "0.2", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for words in ((), ("--json",))
    ]
    said = [[watch.stdout.readline()] for watch in watches]
    ok("publish", "--sandbox")
    for watch, lines, unpublished in zip(watches, said, (" 0 HITs out", '"hits_out": 0'), strict=True):
        while unpublished in lines[-1]:  # publishing has states between, of which some are seen
            lines.append(watch.stdout.readline())
        watch.send_signal(signal.SIGINT)
        rest, err = watch.communicate(timeout=60)
        assert (watch.returncode, rest, err) == (130, "", "stopped\n")
        assert len(lines) == len({line.partition("UTC")[2] or line for line in lines}) > 1

    text, objects = said
    line = r"\d\d:\d\d:\d\d UTC  sandbox: [\d,]+ pairs open, 0 judged, 0 HITs out, .*\n"
    assert re.fullmatch(line, text[0])
    assert " sandbox: 0 pairs open" in text[-1]
    before, after = (json.loads(line)["counts"]["hits_out"] for line in (objects[0], objects[-1]))
    assert before == 0 < after


def test_a_watched_status_on_a_terminal_is_one_screen(project, start_program):
    """Drawn again at each change; it says when it was seen and how to end it."""
    import os
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mitl", "status", "--watch", "--every", "0.05"]
    process = start_program(command, stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    text = b""
    while b"Ctrl-C stops it" not in text:
        text += os.read(ours, 4096)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    os.close(ours)

    assert text.startswith(b"\x1b[2J\x1b[1;1H")
    assert b"data set" in text


def test_every_needs_watch(tmp_path):
    """An option that would do nothing is refused."""
    assert fails(2, "status", "--every", "2", "--project", tmp_path).startswith(
        "--every says how often --watch looks"
    )


def test_a_project_that_goes_away_while_it_is_watched_is_one_line(project):
    """The watch ends like the plain command."""
    from mitl.errors import StoreError
    from mitl.stages.reporting.status import watch

    looks = watch(
        load(project, environ={}), every_s=1, pause=lambda seconds: Path("mitl.db").unlink(missing_ok=True)
    )
    next(looks)

    with pytest.raises(StoreError, match="there is no database at"):
        next(looks)


def test_a_database_that_is_down_for_a_while_does_not_end_the_watch(project):
    """The screen stays as it was, with a warning, and is drawn again when the database is back."""
    from mitl.stages.reporting.status import line, watch

    file, whole = Path("mitl.db"), Path("mitl.db").read_bytes()
    broken = iter((b"no database any more" * 10, whole))
    looks = watch(
        load(project, environ={}), every_s=1, pause=lambda seconds: file.write_bytes(next(broken)) and None
    )
    before, down, after = next(looks), next(looks), next(looks)

    assert down.counts == before.counts
    assert line(down).startswith("cannot use mitl.db: file is not a database; restore a backup")
    assert after == before
