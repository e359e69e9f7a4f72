"""A release or an import whose process is killed, and two that write at once: nothing is torn, nothing is left."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from cli_kit import ok
from rating_kit import rated_world
from release_kit import world

from mitl.db.session import open_database
from mitl.db.store import imports, judgements
from mitl.errors import ReleaseError
from mitl.positives.folders import one_writer
from mitl.positives.merging import MergeRules
from mitl.positives.rating_release import rating_files, write_ratings
from mitl.positives.release import release_files, write_release
from mitl.records import Environment
from mitl.settings import load

KILL = """
import os, signal, sys
from pathlib import Path

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

{patch}
{work}
"""
WRITE = """
from mitl.positives.release import write_release
from mitl.positives.merging import MergeRules
from release_kit import world

write_release(Path({folder!r}), world(rules=MergeRules(strict=True)), replace=True)
"""
WRITE_RATINGS = """
from mitl.positives.rating_release import write_ratings
from rating_kit import rated_world

write_ratings(Path({folder!r}), rated_world(min_ratings=3), replace=True)
"""
BEFORE_RENAME = """
rename = Path.rename
Path.rename = lambda self, target: die() if self.name == {name!r} else rename(self, target)
"""
AMID_FILES = """
write = Path.write_bytes
Path.write_bytes = lambda self, content: die() if self.name == "positives.parquet" else write(self, content)
"""
BRING = """
from mitl.cli import main

sys.argv = ["mitl", "harvest", "--from", "m.csv"]
main()
"""


def killed(patch: str, work: str, folder: Path) -> None:
    """Run it in a process of its own, which kills itself where the patch says."""
    child = os.fork()
    if child == 0:
        try:
            os.chdir(folder)
            exec(KILL.format(patch=patch, work=work), {})
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "patch",
    [AMID_FILES, BEFORE_RENAME.format(name="new"), "import shutil; shutil.rmtree = die"],
    ids=["amid the files", "between old and new", "before the old one is deleted"],
)
def test_a_killed_writing_is_made_good_by_the_next(patch, tmp_path):
    """The old release or the new one is there afterwards, whole, and nothing lies beside it."""
    folder = tmp_path / "r"
    old, new = (release_files(world(rules=MergeRules(strict=strict)))[0] for strict in (False, True))
    write_release(folder, world())

    killed(patch, WRITE.format(folder=str(folder)), tmp_path)
    with one_writer(folder):
        pass

    assert content(folder) in (old, new)
    assert [path.name for path in tmp_path.iterdir()] == ["r"]
    write_release(folder, world(rules=MergeRules(strict=True)), replace=True)
    assert content(folder) == new


@pytest.mark.parametrize(
    "patch",
    [AMID_FILES.replace("positives.parquet", "ratings.parquet"), BEFORE_RENAME.format(name="new")],
    ids=["amid the files", "between old and new"],
)
@pytest.mark.thorough(but=("between old and new",))
def test_a_killed_writing_of_ratings_is_made_good_by_the_next(patch, tmp_path):
    """As one of positives is."""
    folder = tmp_path / "r"
    old, new = (rating_files(rated_world(min_ratings=least))[0] for least in (5, 3))
    write_ratings(folder, rated_world())

    killed(patch, WRITE_RATINGS.format(folder=str(folder)), tmp_path)
    with one_writer(folder):
        pass

    assert content(folder) in (old, new)
    assert [path.name for path in tmp_path.iterdir()] == ["r"]
    write_ratings(folder, rated_world(min_ratings=3), replace=True)
    assert content(folder) == new


def test_of_two_that_write_at_once_the_second_sees_the_first(tmp_path):
    """It waits, finds another release, and leaves it alone."""
    folder, said = tmp_path / "r", []

    def second() -> None:
        try:
            write_release(folder, world(rules=MergeRules(strict=True)))
        except ReleaseError as error:
            said.append(str(error))

    other = threading.Thread(target=second)
    with one_writer(folder):
        other.start()
        other.join(timeout=0.5)
        assert other.is_alive(), "it waits"
        folder.mkdir()
        for name, data in release_files(world())[0].items():
            (folder / name).write_bytes(data)
    other.join(timeout=30)

    assert said and "holds another release" in said[0]
    assert content(folder) == release_files(world())[0]


@pytest.mark.parametrize(
    ("patch", "kept"),
    [
        ("import mitl.stages.past_work.past as past; past.derive = die", False),
        ("import mitl.stages.past_work.importing as importing; importing._settle = die", True),
    ],
    ids=["before all is written", "after it is, before it is judged"],
)
def test_a_killed_import_is_made_good_by_the_next(patch, kept, tmp_path, monkeypatch):
    """All of a file or nothing is there, and the same command again brings it to its end, once."""
    monkeypatch.chdir(tmp_path)
    Path("pairs.csv").write_text("image_id,caption_id,caption\n1,7,one\n2,8,two\n", encoding="utf-8")
    header = "model,ranking,score,cid,iid,annotation,shortcoming,shortcoming2\n"
    Path("m.csv").write_text(header + "clip,1,0.5,7,1,1,,\nclip,2,0.5,8,1,3,1,\n", encoding="utf-8")
    ok("init", "--dataset", "table", "--captions", "pairs.csv")

    killed(patch, BRING, tmp_path)
    assert bool(_imported(tmp_path)) is kept
    again = ok("harvest", "--from", "m.csv", "--json").json

    assert again["status"] == ("nothing_to_do" if kept else "done")
    assert [one.record.usable for one in _judged(tmp_path)] == [True, True]
    assert "nothing to do" in ok("harvest", "--from", "m.csv").out


def _imported(folder: Path) -> object:
    with open_database(load(folder, environ={}).db_url, read_only=True) as session:
        return imports.imports(session)


def _judged(folder: Path) -> list[judgements.StoredJudgement]:
    with open_database(load(folder, environ={}).db_url, read_only=True) as session:
        return judgements.judgements(session, Environment.LIVE)


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    """Before anything is begun."""
    (tmp_path / "file").write_text("no folder")

    with pytest.raises(ReleaseError, match="; make room there or name another folder"):
        write_release(tmp_path / "file" / "r", world())
