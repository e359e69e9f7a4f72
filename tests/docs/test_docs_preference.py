"""docs/preference.md: its commands run as shown, twice, and its table is what is printed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_kit import ok
from docs_kit import ROOT, mitl_lines

from mitl.cli import group
from mitl.cli.app import run

DOCUMENT = "docs/preference.md"
TEXT = (ROOT / DOCUMENT).read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_walk_runs_as_shown_and_a_second_time_has_nothing_to_do(tmp_path, monkeypatch, capsys):
    """On a smaller world; what only looks gives the same again."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    only_look = (["--dry-run"], ["scores"])
    walk = [words for words in mitl_lines(DOCUMENT) if "--counts" not in words]

    assert [words[0] for words in walk] == [
        "init",
        "propose",
        "prefer",
        "prefer",
        "simulate",
        "harvest",
        "prefer",
    ]
    for words in walk:
        smaller = {
            "init": ["--n-images", "60"],
            "propose": ["--image-queries", "4", "--caption-queries", "40"],
        }
        statuses = []
        for _ in range(2):
            assert run(group, [*words, *smaller.get(words[0], []), "--json"]) == 0, words
            statuses.append(json.loads(capsys.readouterr().out.splitlines()[-1])["status"])
        looks = any(set(mark) <= set(words) for mark in only_look)
        assert statuses == ["done", "done" if looks else "nothing_to_do"], words


def test_the_table_of_the_paper_is_scored_as_shown(tmp_path, monkeypatch):
    """The file that the page shows gives the lines that it shows."""
    monkeypatch.chdir(tmp_path)
    (name, body), *_ = re.findall(r"```csv (\S+)\n(.*?)```", TEXT, re.DOTALL)
    Path(name).write_text(body, encoding="utf-8")
    (command,) = [words for words in mitl_lines(DOCUMENT) if "--counts" in words]
    (shown,) = re.findall(r"```\n(  system .*?)```", TEXT, re.DOTALL)

    assert shown in ok(*command).out
    assert "with 97.5 % bootstrap intervals" in ok(*command, "--confidence", "0.975").out


def test_the_page_says_what_the_options_and_templates_are_called():
    """Every option that it names exists."""
    from mitl.cli.prefer import command

    known = {option for sub in command.commands.values() for p in sub.params for option in p.opts}
    elsewhere = {"--annotator", "--dataset", "--workers", "--pilot", "--overlap", "--seed"}
    named = set(re.findall(r"--[a-z][a-z-]+", TEXT))

    assert named - elsewhere <= known
    for name in ("rankings-plain", "rankings-reasons"):
        assert name in TEXT and (ROOT / "hit_templates" / name / "hit_type.toml").is_file()
