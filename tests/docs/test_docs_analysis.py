"""Every command that docs/analysis.md shows, and what it says that can be checked without the demo."""

from __future__ import annotations

import pytest
from cli_kit import ok
from docs_kit import ROOT, blocks, mitl_lines
from rated_kit import write_ratings
from world_kit import ANNOTATORS, make_world, run_build, run_propose, work_until_done

from mitl.analysis.correlations import read_scores
from mitl.stages.analysing.analyse import ANALYSES

DOCUMENT = "docs/analysis.md"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A small project with a release and the page's table of scores."""
    folder = tmp_path_factory.mktemp("project")
    settings = make_world(folder, n_images=12)
    run_propose(settings, image_queries=3, caption_queries=4)
    work_until_done(settings)
    run_build(settings)
    (folder / "scores.csv").write_text(blocks(DOCUMENT, "csv")[0])
    write_ratings(folder / "cxc")
    return folder


def test_the_commands_run(project, monkeypatch):
    """In order; the project's annotators stand for those that the page names."""
    monkeypatch.chdir(project)
    lines = mitl_lines(DOCUMENT)

    assert len(lines) == 7
    for words in lines:
        ok(*(",".join(ANNOTATORS) if word == "pvse-mini,pcme-mini" else word for word in words))

    assert (project / "tables" / "bias-scores.csv").is_file() and (
        project / "drawings" / "bias.svg"
    ).is_file()


def test_every_analysis_is_told_in_the_order_in_which_it_is_made():
    """And no other."""
    rows = [line for line in (ROOT / DOCUMENT).read_text(encoding="utf-8").splitlines() if line[:3] == "| `"]

    assert [row.split("`")[1] for row in rows] == list(ANALYSES)


def test_the_table_of_scores_is_the_papers():
    """Its rows are those of Tables D.2 and D.3, as the tests hold them."""
    shown = blocks(DOCUMENT, "csv")[0]
    printed = read_scores(ROOT / "tests" / "data" / "eccv_tables_d2_d3.csv")
    heading, *rows = [line.split(",") for line in shown.splitlines()]

    for model, direction, *cells in rows:
        place = printed.directions.index(direction), printed.models.index(model)
        for metric, cell in zip(heading[2:], cells, strict=True):
            assert printed.values[(*place, printed.metrics.index(metric))] == float(cell)
