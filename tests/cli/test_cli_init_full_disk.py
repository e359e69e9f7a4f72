"""`mitl init` on a full disk: one line, and nothing of the project is left."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys

import pytest
from cli_kit import mitl, ok

from mitl.core.whole_files import nothing_on_a_full_disk

TABLE = "file_name,caption\na.png,one\nb.png,two\n"


def init_with(limit, folder, *words):
    """`mitl init` in a process whose files may hold so many bytes: a write beyond them fails as on a full disk."""
    (folder / "t.csv").write_text(TABLE)
    return subprocess.run(
        [sys.executable, "-m", "mitl", "init", *words],
        cwd=folder,
        # Python itself would keep modules cut at the limit.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (0, ("a/b", "--dataset", "t.csv")),
        (100_000, ("a/b", "--dataset", "t.csv")),
        (100_000, ("--dataset", "t.csv")),
        (100, ("world", "--dataset", "scenes", "--n-images", "3")),
        (100_000, ("world", "--dataset", "scenes", "--n-images", "3")),
    ],
)
@pytest.mark.thorough(but=("0-*", "100-*"))
def test_a_full_disk_leaves_nothing_of_a_new_project(tmp_path, monkeypatch, limit, words):
    """Neither a database nor pictures nor a folder; what was there stays, and with room the same call works."""
    found = init_with(limit, tmp_path, *words)

    (line,) = found.stderr.splitlines()
    assert found.returncode == 1 and line.startswith("error: ") and line.endswith("run the command again")
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]

    monkeypatch.chdir(tmp_path)
    ok("init", *words)


def test_settings_that_cannot_be_written_take_the_new_database_away(tmp_path, monkeypatch):
    """The last write fails: what was made before it goes too."""
    (tmp_path / "t.csv").write_text(TABLE)
    monkeypatch.chdir(tmp_path)

    def full(source, target, **_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), source, None, target)

    monkeypatch.setattr(os, "link", full)
    found = mitl("init", "new", "--dataset", "t.csv")
    assert found.status == 1 and "the disk is full; make room" in found.error
    assert not (tmp_path / "new").exists()


def test_other_failures_and_older_files_leave_all(tmp_path):
    """What another process may have made is nobody's to take away."""
    old, new = tmp_path / "old", tmp_path / "new" / "file"
    old.write_text("kept")

    def make(error):
        with nothing_on_a_full_disk([old, new]):
            new.parent.mkdir(exist_ok=True)
            new.write_text("made")
            raise error

    with pytest.raises(ValueError, match="no disk"):
        make(ValueError("no disk"))
    assert new.exists()
    with pytest.raises(OSError, match="full"):
        make(OSError(errno.ENOSPC, "full"))
    assert new.exists() and old.read_text() == "kept", "both were there before the second call"
