"""The commands of docs/exports.md and the lines of docs/python.md."""

from __future__ import annotations

import numpy as np
import pytest
from cli_kit import ok
from docs_kit import blocks, mitl_lines
from hub_kit import TOKEN, running_hub
from world_kit import make_released

from mitl.settings import load

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A small project with a release."""
    folder = tmp_path_factory.mktemp("project")
    make_released(folder, n_images=12, image_queries=4, caption_queries=4)
    return folder


def test_the_exports_are_written(project, monkeypatch):
    """Each with what the page names; the run is of one of this project's annotators, and the hub a stand-in."""
    pytest.importorskip("huggingface_hub")
    monkeypatch.chdir(project)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    annotator = load(project, environ={}).annotators[0]
    with running_hub() as hub:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
        for words in mitl_lines("docs/exports.md"):
            ok(*(annotator if word == "vsrn-mini" else word for word in words))
    assert "positives.parquet" in hub.repositories["me/my-release"].files
    for name in (f"trec/runs/{annotator}.i2t.run", "beir/i2t/qrels/test.tsv", "mteb/task.py", "hf/README.md"):
        assert (project / name).stat().st_size


def test_the_python_of_the_page_runs(project, monkeypatch):
    """With embeddings of the project's items."""
    import mitl
    from mitl.stages.evaluating.project import read_project

    monkeypatch.chdir(project)
    sides = read_project(load(project, environ={})).sides
    rng = np.random.default_rng(0)
    images, captions = (
        {one: rng.normal(size=4) for one in side.ids} for side in (sides.images, sides.captions)
    )
    names = {"images": images, "captions": captions}
    for block in blocks("docs/python.md", "python"):
        exec(block, names)
    assert isinstance(names["release"], mitl.Release)
    assert set(names["scores"]["direction"]) == {"i2t", "t2i"}
