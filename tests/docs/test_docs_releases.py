"""Every command, setting and figure that docs/releases.md shows."""

from __future__ import annotations

import importlib.util
import tomllib

import pyarrow.parquet as pq
import pytest
from cli_kit import ok
from docs_kit import ROOT, blocks, mitl_lines
from release_kit import FILES
from world_kit import make_world, run_propose, run_publish

from mitl.settings import load

DOCUMENT = "docs/releases.md"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A small project with judgements."""
    from mitl.records import Environment
    from mitl.stages.harvesting.harvest import harvest
    from mitl.stages.hits.simulate import simulate

    folder = tmp_path_factory.mktemp("project")
    make_world(folder, n_images=12)
    settings = load(folder, environ={})
    run_propose(settings, image_queries=4, caption_queries=4)
    run_publish(settings)
    simulate(settings, Environment.SANDBOX, population="careful")
    harvest(settings, Environment.SANDBOX)
    return folder


@pytest.mark.slow
def test_the_commands_run_with_the_settings_shown(project, monkeypatch):
    """In order, in a project whose mitl.toml says what the page shows."""
    monkeypatch.chdir(project)
    config = project / "mitl.toml"
    config.write_text(config.read_text() + "\n" + blocks(DOCUMENT, "toml")[0])

    for words in mitl_lines(DOCUMENT):
        ok(*words)

    stated = tomllib.loads(blocks(DOCUMENT, "toml")[0])["release"]
    sheet = (project / "release" / "datasheet.md").read_text()
    assert stated["license"] in sheet and stated["ethics"] in sheet and stated["creators"][0] in sheet
    assert (project / "differences.csv").exists() and (project / "exclusions.csv").exists()


@pytest.mark.slow
def test_the_commands_of_the_page_on_aggregation_run(project, monkeypatch):
    """And the model's file is there, with the columns that the page names."""
    monkeypatch.chdir(project)
    document = "docs/aggregation.md"

    for words in mitl_lines(document):
        ok(*words)

    text = (ROOT / document).read_text(encoding="utf-8")
    columns = pq.read_schema(project / "by-ordinal" / "posteriors.parquet").names
    assert not (project / "by-majority" / "posteriors.parquet").exists()
    assert all(f"`{column}`" in text for column in columns if not column.endswith("_id"))
    assert (ROOT / "docs/figures/reliability.svg").exists()


def test_every_file_of_a_release_is_told():
    """And no other."""
    text = (ROOT / DOCUMENT).read_text(encoding="utf-8")

    for name in {*FILES, "ids.parquet", "posteriors.parquet"}:
        assert f"`{name}`" in text


@pytest.mark.skipif(
    importlib.util.find_spec("eccv_caption") is None, reason="mitl[official] is not installed"
)
def test_the_counts_shown_are_those_printed():
    """The table on the page is the command's own."""
    shown = (ROOT / DOCUMENT).read_text(encoding="utf-8")
    printed = ok("compare", "official-original", "official-cxc", "official-eccv").out

    assert "\n".join(printed.splitlines()[:5]) in shown
