"""Bad input on the command line: one line that says what to do, the right exit status, nothing half-written."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest
from cli_kit import fails, mitl, ok, use_file_annotators

NO_PROJECT = [
    ("propose",),
    ("publish", "--sandbox"),
    ("simulate",),
    ("harvest",),
    ("review",),
    ("review", "show", "1"),
    ("review", "approve", "1"),
    ("review", "settle"),
    ("workers",),
    ("status",),
    ("build-dataset", "--out", "release"),
    ("evaluate",),
    ("report",),
    ("db", "current"),
    ("db", "upgrade"),
]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    """Each test runs in an empty folder and under no setting of the machine."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A project with proposals, HITs that are out, and no answers."""
    folder = tmp_path_factory.mktemp("made")
    with chdir(folder):
        ok("init", "--dataset", "scenes", "--n-images", "20")
        use_file_annotators(folder)
        ok("propose", "--image-queries", "2", "--caption-queries", "2")
        ok("publish", "--sandbox")
    return folder


@pytest.fixture
def project(made, empty_folder) -> Path:
    """A copy of it, in the current folder."""
    shutil.copytree(made, empty_folder, dirs_exist_ok=True)
    return empty_folder


def files(folder: Path) -> set[str]:
    """What lies in a folder, without what SQLite keeps beside an open database."""
    return {path.name for path in folder.iterdir() if not path.name.endswith(("-wal", "-shm"))}


@pytest.mark.parametrize("words", NO_PROJECT, ids=" ".join)
def test_without_a_project_nothing_is_written(words, empty_folder):
    """The line names the folder that was looked in and the command that makes a project."""
    message = fails(1, *words)

    assert str(empty_folder) in message and "`mitl init`" in message
    assert files(empty_folder) == set()


def test_a_project_folder_that_is_a_file_is_named(empty_folder):
    """--project names a folder."""
    (empty_folder / "notes").write_text("x")

    assert "is not a folder" in fails(1, "status", "--project", "notes")


TABLE = "image,caption_id,caption\na,1,one\nb,2,two\n"


@pytest.mark.parametrize(
    ("status", "words", "named"),
    [
        (2, ("--dataset", "nope"), "'scenes', 'coco', 'flickr30k', 'table'"),
        (2, (), "'--dataset'"),
        (2, ("--dataset", "coco"), "--captions"),
        (2, ("--dataset", "flickr30k"), "--split-file"),
        (2, ("--dataset", "table"), "--captions pairs.csv"),
        (1, ("--dataset", "table", "--captions", "missing.csv"), "missing.csv"),
        (1, ("--dataset", "table", "--captions", "broken.csv"), "broken.csv"),
        (1, ("--dataset", "coco", "--captions", "broken.json", "--caption-ids", "ids.txt"), "broken.json"),
        (1, ("--dataset", "coco", "--captions", "coco.json", "--caption-ids", "missing.txt"), "missing.txt"),
        (1, ("--dataset", "coco", "--captions", "coco.json", "--caption-ids", "ids.txt"), "caption id 77"),
        (1, ("--dataset", "coco", "--captions", "coco.json", "--split-file", "split.json"), "split.json"),
        (
            2,
            ("--dataset", "coco", "--captions", "coco.json", "--split", "val"),
            "give --split-file dataset_coco.json",
        ),
        (
            2,
            ("--dataset", "coco", "--captions", "broken.CSV", "--split-file", "split.json"),
            "with --caption-ids FILE",
        ),
        (1, ("--dataset", "scenes", "--cxc", "missing.csv"), "missing.csv"),
        (1, ("--dataset", "scenes", "--exclude", "missing.csv"), "missing.csv"),
        (2, ("--dataset", "scenes", "--n-images", "0"), "'--n-images'"),
        (2, ("--dataset", "scenes", "--captions", "coco.json"), "--captions, which is for coco and table"),
        (2, ("--dataset", "coco", "--captions", "coco.json", "--n-images", "5"), "--n-images"),
        (1, ("--dataset", "scenes", "--db", "mysql://host/name"), "known: sqlite, postgresql"),
        (1, ("--dataset", "scenes", "--db", "nonsense"), "sqlite:///"),
        (2, ("--dataset", "scenes", "--project", "other"), "give one of them"),
    ],
)
def test_a_failed_init_leaves_no_project(status, words, named, empty_folder):
    """The line names what was wrong, and no folder, settings file or database is left behind."""
    (empty_folder / "broken.csv").write_text('image,caption\n"a,1\n')
    (empty_folder / "broken.json").write_text("{")
    (empty_folder / "ids.txt").write_text("11\n77\n")
    caption = {"id": 11, "image_id": 1, "caption": "a dog"}
    image = {"id": 1, "file_name": "1.jpg", "width": 4, "height": 4}
    (empty_folder / "coco.json").write_text(json.dumps({"images": [image], "annotations": [caption]}))
    before = files(empty_folder)

    message = fails(status, "init", "project", *words)

    assert named in message
    assert files(empty_folder) == before


def test_a_second_world_in_a_project_is_refused_and_the_first_is_kept(project):
    """A project holds one data set."""
    before = files(project)

    message = fails(1, "init", "--dataset", "scenes", "--n-images", "21")

    assert "another" in message
    assert files(project) == before
    assert ok("status", "--json").json["counts"]["images"] == 20


@pytest.mark.parametrize(
    ("status", "words", "named"),
    [
        (1, ("--annotator", "clop"), "no annotator called 'clop'; known: clip, clip-mini"),
        (1, ("--annotator", "naer"), "no annotator called 'naer'; did you mean 'near', which mitl.toml has?"),
        (1, ("--annotator", "near", "--annotator", "near"), "named twice"),
        (1, ("--top-k", "21"), "--top-k is 21, but the gallery of t2i has 20 items"),
        (2, ("--top-k", "0"), "'--top-k'"),
        (1, ("--image-queries", "21"), "21 of 20"),
        (2, ("--image-queries", "0", "--caption-queries", "0"), "at least"),
        (1, ("--image-query-ids", "missing.txt"), "missing.txt"),
        (1, ("--caption-query-ids", "ids.txt"), "'999999'"),
        (1, ("--image-query-ids", "empty.txt"), "empty.txt"),
    ],
)
def test_propose_refuses_what_it_cannot_mean(status, words, named, project):
    """The line names the word or the file; no run is stored."""
    (project / "ids.txt").write_text("999999\n")
    (project / "empty.txt").write_text("")
    runs = files(project / "runs")

    message = fails(status, "propose", *words)

    assert named in message
    assert files(project / "runs") == runs


def test_an_annotator_whose_file_is_gone_is_named(project):
    """The line names the annotator and the file."""
    (project / "far-images.npz").unlink()

    message = fails(1, "propose", "--image-queries", "3")

    assert "'far'" in message and "far-images.npz" in message


@pytest.mark.parametrize(
    ("status", "words", "named"),
    [
        (2, ("publish",), "--sandbox is practice (nothing is owed), --live owes real money"),
        (
            1,
            ("publish", "--sandbox", "--template", "nope"),
            "known: pairs-composed, pairs-plain, pairs-rationale",
        ),
        (2, ("publish", "--sandbox", "--reward", "abc"), "'--reward': 'abc' is not an amount of dollars"),
        (2, ("publish", "--sandbox", "--max-cost", "-1"), "'--max-cost'"),
        (2, ("publish", "--live", "--yes-total", "1.001"), "'--yes-total'"),
        (2, ("publish", "--sandbox", "--live"), "both --sandbox and --live are given"),
        (1, ("publish", "--live"), "raise the budget with `mitl crowd budget --set`"),
        (
            1,
            ("publish", "--live", "--endpoint-url", "http://127.0.0.1:9"),
            "nothing answers at http://127.0.0.1:9",
        ),
        (
            2,
            ("publish", "--sandbox", "--endpoint-url", "http://127.0.0.1:9"),
            "counts as live by [crowd] of mitl.toml, where no word of it means live, but sandbox was asked for; write",
        ),
        (1, ("publish", "--live", "--endpoint-url", "nonsense"), "'nonsense'"),
        (2, ("simulate", "--live"), "do not work for real money"),
        (2, ("simulate", "--truth", "guess"), "known: scenes, official, original, release:DIR"),
        (2, ("simulate", "--workers", "lazy"), "known: careful, hasty, yes-sayer, random"),
        (2, ("simulate", "--workers", "careful:x"), "'x'"),
        (1, ("simulate", "--truth", "release:gone"), "'gone'"),
        (1, ("harvest", "--live", "--project", "gone"), "gone"),
        (1, ("review", "show", "99"), "no submission 99"),
        (2, ("review", "show", "x"), "'x'"),
        (1, ("review", "approve", "99"), "no submission 99"),
        (2, ("review", "approve"), "missing argument 'NUMBERS...'"),
        (2, ("review", "reject", "1"), "'--reason'"),
        (2, ("review", "reject", "1", "--reason", "bad"), "20 to 1,024 are right"),
        (1, ("build-dataset", "--out", "release"), "nothing to release"),
        (2, ("build-dataset",), "'--out'"),
        (1, ("evaluate", "--release", "gone"), "'gone'"),
        (2, ("evaluate", "--official", "cocoa"), "known: original, cxc, eccv"),
        (1, ("evaluate", "--annotator", "clop"), "'clop'"),
        (2, ("evaluate", "--samples", str(10**20)), "'--samples'"),
        (1, ("report", "--out", "runs"), "runs"),
        (1, ("report", "--out", ""), "cannot write to '.': is a directory"),
        (1, ("pay", "--csv", ""), "'.': is a directory"),
        (2, ("review", "originals", "--cxc-below", "nan"), "nan is not in the range 0<=x<=5"),
        (2, ("status", "--watch", "--every", "nan"), "'--every': nan is not in the range"),
        (2, ("status", "--watch", "--every", "1e300"), "'--every': 1e+300 is not in the range"),
        (2, ("report", "--out", "report.pdf"), "the report is HTML; give a file that ends in .html"),
        (1, ("report", "--out", "mitl.toml/report.html"), "mitl.toml"),
        (1, ("crowd", "revoke", "99"), "99"),
        (1, ("crowd", "revoke", str(10**20)), str(10**20)),
        (2, ("crowd", "operator", "--base-url", "http://a b"), "in letters, digits, hyphens and points"),
        (2, ("crowd", "panel", "visits", "p", "--replace"), "the file of --out; add --out FILE"),
        (2, ("collect", "show", "--replace"), "the file of --out; add --out FILE"),
        (2, ("crowd", "keys", "--sandbox"), "--sandbox says whose pair --export writes; add --export FILE"),
        (
            2,
            ("prefer", "publish", "--sandbox", "--again", "--queries", "3"),
            "--queries means nothing beside --again",
        ),
        (1, ("status", "--db", "sqlite:///."), "cannot use .: unable to open"),
        (
            1,
            ("train", "pvse-mini+bm25"),
            "'pvse-mini+bm25' cannot learn, for it has no weights of its own; those",
        ),
        (1, ("train", "clip-mini", "--name", ""), "cannot be called ''; use letters"),
        (2, ("crowd", "budget", "--set", "lots"), "'lots'"),
        (2, ("crowd", "budget", "--set", "1,000,000,000"), "is over $999,999,999.99"),
        (2, ("crowd", "budget", "--set", "9" * 5000), "is over $999,999,999.99"),
        (2, ("crowd", "invite", "--sandbox", "--uses", str(10**20)), "'--uses'"),
        (2, ("crowd", "invite", "--sandbox", "--people", "0"), "'--people'"),
        (2, ("serve", "--port", "99999"), "'--port'"),
        (2, ("serve", "--public", "gone"), "'gone'"),
        (2, ("serve", "--host", "203.0.113.7", "--port", "0"), "--tls-cert"),
        (2, ("demo", "--db", "sqlite:///x.db"), "--db"),
        (
            2,
            ("build-dataset", "--out", "a", "--out", "b"),
            "--out takes one value and is given 2 times; give it once",
        ),
        (2, ("demo", "--workers", "lazy"), "known: careful"),
    ],
)
def test_a_wrong_word_is_named(status, words, named, project):
    """The line quotes what was found and names what would be right; the project stays as it was."""
    before = files(project)

    message = fails(status, *words)

    assert named in message
    assert files(project) == before


def test_a_port_in_use_is_named_and_no_address_is_shown(project):
    """Nothing on standard output says that a server runs."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        outcome = mitl("serve", "--port", str(port))

    assert outcome.status == 1
    assert outcome.error.startswith(f"port {port} on 127.0.0.1 is in use")
    assert outcome.out == ""


def _set_revision(database: Path, revision: str) -> None:
    connection = sqlite3.connect(database)
    with connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    connection.close()


@pytest.mark.parametrize("words", [words for words in NO_PROJECT if words != ("db", "current")], ids=" ".join)
def test_a_database_of_a_newer_version_is_left_alone(words, project):
    """The line names both revisions and says to upgrade mitl."""
    _set_revision(project / "mitl.db", "p9999")

    message = fails(1, *words)

    assert "'p9999'" in message and "newer mitl" in message


@pytest.mark.parametrize(
    "words",
    [("crowd", "keys"), ("serve", "--port", "0"), ("publish", "--sandbox"), ("db", "upgrade")],
    ids=" ".join,
)
def test_a_crowd_database_of_a_newer_version_is_left_alone(words, project):
    """As the pipeline's."""
    _set_revision(project / "crowd.db", "c9999")

    message = fails(1, *words)

    assert "'c9999'" in message and "newer mitl" in message


def test_current_shows_a_newer_revision_as_it_is(project):
    """To look is always allowed."""
    _set_revision(project / "mitl.db", "p9999")

    assert ok("db", "current", "--json").json["counts"]["pipeline"] == "p9999"


@pytest.mark.parametrize(
    "words", [("status",), ("db", "current"), ("init", "--dataset", "scenes")], ids=" ".join
)
def test_a_file_that_is_no_database_is_named(words, empty_folder):
    """The line says so, and the file is left as it is."""
    (empty_folder / "mitl.db").write_text("these are my notes, and no database at all\n" * 10)

    message = fails(1, *words)

    assert "mitl.db" in message and "not a database" in message
    assert files(empty_folder) == {"mitl.db"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("seed = ", "is not TOML"),
        ("[projects]\n", "known tables"),
        ("[propose]\ntopk = 5\n", "propose.topk"),
        ("project = 3\n", "write [project]"),
        ("database = 'postgresql://me:hunter2@host/db'\n", "write [database]"),
        ("[project]\nseed = 'x'\n", "a whole number is wanted"),
        ("[propose]\ntop_k = 0\n", "1 is the least"),
        ("[propose]\nannotators = 'clip-mini'\n", "a list of names"),
        ("[annotators]\nnear = 3\n", "write [annotators.near]"),
        ("[crowd]\nendpoint = 5\n", "text in quotes"),
        ("[crowd]\nenvironment = 'practice'\n", "known: sandbox, live"),
        ("[crowd]\nwage_floor_cents = 12.5\n", "a whole number is wanted"),
    ],
)
def test_a_malformed_settings_file_is_named(text, named, empty_folder):
    """The line names the file or the setting and what would be right, and no password."""
    (empty_folder / "mitl.toml").write_text(text)

    line = fails(1, "status")

    assert named in line and "hunter2" not in line


def test_a_bill_above_the_ceiling_posts_nothing(empty_folder, made):
    """--max-cost is checked before the first call that costs."""
    shutil.copytree(made, empty_folder, dirs_exist_ok=True)
    ok("propose", "--image-queries", "8", "--caption-queries", "8")

    outcome = mitl("publish", "--sandbox", "--max-cost", "0.50", "--json")

    assert outcome.status == 2
    assert "above --max-cost $0.50" in outcome.error
    assert ok("status", "--json").json["counts"]["hits"]["planned"] == 0


def test_real_money_is_owed_only_for_the_exact_total(project):
    """Without a terminal the total is given by --yes-total; any other amount posts nothing."""
    ok("crowd", "budget", "--set", "100")
    assert ok("crowd", "payments", "--live").out == "nobody is owed anything on live\n"
    dry = ok("publish", "--live", "--dry-run", "--json").json["counts"]["total_cents"]
    total = f"{dry / 100:.2f}"

    assert f"--yes-total {total}" in mitl("publish", "--live").err
    assert f"but the bill is ${total}" in mitl("publish", "--live", "--yes-total", "0.05").err
    assert ok("status", "--live", "--json").json["counts"]["hits"]["posted"] == 0
    assert ok("publish", "--live", "--yes-total", total, "--json").json["counts"]["total_cents"] == dry


@pytest.mark.parametrize("words", [("annotators",), ("annotators", "--json")], ids=" ".join)
def test_output_that_finds_no_room_is_one_line(words):
    """As in `mitl status --json > FILE` on a full disk."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mitl", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.stderr == "error: the disk is full; make room and run the command again\n"
    assert done.returncode == 1


@pytest.mark.parametrize("closed", ["<&-", "<&- >&-", "<&- >&- 2>&-"])
@pytest.mark.thorough(but=("<&- >&-*",))
def test_a_closed_stream_is_nobody_who_types_or_reads(closed, project):
    """As a program that starts a job may hand it over: nothing is confirmed, and what can be said is said."""
    ok("crowd", "budget", "--set", "100")

    done = subprocess.run(
        ["bash", "-c", f'"$0" -m mitl publish --live --limit 1 {closed}', sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert ("the bill is $1.00 of real money and standard input is not a terminal" in done.stderr) == (
        "2>&-" not in closed
    )


def test_a_locale_that_lacks_letters_ends_no_command(empty_folder):
    """What it cannot write becomes a question mark; there is no traceback."""
    (empty_folder / "pairs.csv").write_text("image,caption\na,日本\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mitl", "init", "--dataset", "pairs.csv"],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=False,
    )

    assert done.returncode == 0
    assert b"??" in done.stdout and b"Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["what?", "a%20b", "50%"])
def test_a_folders_name_is_no_part_of_a_url(name, empty_folder):
    """The databases lie in the project, whatever it is called."""
    ok("init", name, "--dataset", "scenes", "--n-images", "5")

    assert files(empty_folder) == {name}
    assert "mitl.db" in files(empty_folder / name)
    assert ok("status", "--project", name, "--json").json["counts"]["images"] == 5


def test_a_folder_whose_name_is_no_text_is_refused(empty_folder):
    """Rankings and reports could not name their files."""
    said = fails(1, "init", os.fsdecode(b"caf\xe9"), "--dataset", "scenes")

    assert "has a name that is not UTF-8; rename it" in said
    assert files(empty_folder) == set()


def test_a_text_in_another_encoding_is_one_clear_line(empty_folder):
    """As a terminal in Latin-1 sends it; nothing is made."""
    ok("init", "--dataset", "scenes", "--n-images", "5")

    said = fails(1, "crowd", "invite", "--sandbox", "--label", os.fsdecode(b"B\xfcro"))

    assert said == (
        "'B\\udcfcro' is not UTF-8; write it again in UTF-8, as a terminal in a UTF-8 locale does"
    )
    assert "0 invitations" in ok("crowd", "invitations").out


def test_a_device_is_not_replaced_by_a_file(project):
    """Where a superuser writes to a pipe, it stays one."""
    os.mkfifo("pipe")

    assert "'pipe' is a device or a pipe" in fails(2, "report", "--out", "pipe").replace(f"{project}/", "")
    assert Path("pipe").is_fifo()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("verify", "stolen"), "hundreds of levels deep"),
        (("init", "own", "--dataset", "stolen/manifest.json"), "is not valid JSON (maximum recursion depth"),
    ],
)
def test_a_file_that_nests_without_end_is_one_line(words, named, empty_folder):
    """Python's reader of JSON gives up; whoever made the file gets no traceback out of it."""
    (empty_folder / "stolen").mkdir()
    (empty_folder / "stolen" / "manifest.json").write_text("[" * 100_000 + "]" * 100_000)

    assert named in fails(1, *words)
