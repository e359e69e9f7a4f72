"""Calls the real command line in this process and says what it printed and how it ended."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from world_kit import ANNOTATORS, write_embeddings

from mitl.cli import group
from mitl.cli.app import run

JSON_KEYS = ["command", "status", "counts", "paths", "warnings", "error"]


@dataclass(frozen=True)
class Outcome:
    """One call of ``mitl``."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """What ``--json`` printed: one object and nothing else."""
        (line,) = self.out.splitlines()
        found: dict[str, Any] = json.loads(line)
        assert list(found) == JSON_KEYS
        return found

    @property
    def error(self) -> str:
        """The message of a call that failed with one clear line."""
        (line,) = self.err.splitlines()
        assert line.startswith("error: ")
        return line.removeprefix("error: ")


def mitl(*words: str | Path) -> Outcome:
    """``mitl`` as a person types it, in the current folder."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run(group, [str(word) for word in words])
    return Outcome(status, out.getvalue(), err.getvalue())


def ok(*words: str | Path) -> Outcome:
    """A call that must succeed."""
    outcome = mitl(*words)
    assert outcome.status == 0, outcome
    return outcome


def fails(status: int, *words: str | Path) -> str:
    """The message of a call that must end with this exit status; with ``--json`` it says the same."""
    plain, as_json = mitl(*words), mitl(*words, "--json")
    assert plain.status == status, plain
    assert as_json.status == status, as_json
    assert as_json.json["status"] == "error"
    assert as_json.json["error"] == as_json.error == plain.error
    return plain.error


def use_file_annotators(folder: Path, names: Sequence[str] = ANNOTATORS) -> None:
    """Let a project on ``scenes`` ask two annotators whose embeddings are files, in place of trained ones."""
    write_embeddings(folder)
    config = folder / "mitl.toml"
    head, _, _ = config.read_text(encoding="utf-8").partition("[propose]")
    tables = ["[propose]", f"annotators = {json.dumps(list(names))}"]
    for name in names:
        files = f'{{images = "{name}-images.npz", captions = "{name}-captions.npz"}}'
        tables += ["", f"[annotators.{name}]", f"embeddings = {files}"]
    config.write_text(head + "\n".join(tables) + "\n", encoding="utf-8")
