"""What an annotator of files ranks follows from their content: a changed file under its old name is looked at again."""

from __future__ import annotations

import shutil

import pytest
from cli_kit import fails, ok

pytest.importorskip("av", reason="the extra mitl[media] is missing")


def test_a_changed_sound_is_ranked_anew_and_a_missing_one_is_named(tmp_path, monkeypatch):
    """Same names, other content: a new run with other rankings; untouched, there is nothing to do."""
    monkeypatch.chdir(tmp_path)
    ok("init", "--dataset", "scenes", "--kind", "sounds", "--n-images", "12")
    words = ("propose", "--annotator", "signal", "--top-k", "3", "--depth", "6", "--json")
    first = ok(*words).json
    assert ok(*words).json["status"] == "nothing_to_do"

    sounds = sorted((tmp_path / "dataset").rglob("*.wav"))
    shutil.copy(sounds[1], sounds[0])
    second = ok(*words).json
    assert second["status"] == "done" and second["counts"]["run"] != first["counts"]["run"]
    rankings = [(tmp_path / "runs" / one["counts"]["run"] / "signal.t2i.parquet") for one in (first, second)]
    assert rankings[0].read_bytes() != rankings[1].read_bytes()

    sounds[0].unlink()
    message = fails(1, *words[:-1])
    assert (
        "annotator 'signal' listens to sounds, but 1 of 12 sounds have none: the file of 1 is gone" in message
    )
    assert (
        "run `mitl init` with the options of the first call, and --media FOLDER if they are elsewhere"
        in message
    )
