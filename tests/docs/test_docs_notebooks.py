"""The notebooks run as they are, and what they show is what they gave; MITL_REWRITE_GOLDEN=1 writes it anew."""

from __future__ import annotations

import os
import re
import shutil

import pytest
from docs_kit import ROOT
from world_kit import make_released

FOLDER = ROOT / "docs" / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A small project with a release, and the embeddings of a model."""
    folder = tmp_path_factory.mktemp("project")
    make_released(folder, n_images=16, image_queries=8, caption_queries=12)
    for side in ("images", "captions"):
        shutil.copy(folder / f"far-{side}.npz", folder / f"{side}.npz")
    return folder


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.thorough(but=("evaluate", "release"))
def test_a_notebook_gives_what_it_shows(project, name):
    """Every cell, in a kernel of its own; pictures may differ by a library's version and are not compared."""
    nbclient = pytest.importorskip("nbclient", reason="pip packages nbclient and ipykernel are missing")
    pytest.importorskip("ipykernel")
    import nbformat

    path = FOLDER / f"{name}.ipynb"
    shown, found = (nbformat.read(path, as_version=4) for _ in range(2))
    client = nbclient.NotebookClient(
        found,
        timeout=200,
        kernel_name="python3",
        resources={"metadata": {"path": str(project)}},
        record_timing=False,
    )
    client.execute()
    if os.environ.get("MITL_REWRITE_GOLDEN"):
        found.metadata = shown.metadata
        nbformat.write(found, path)
        return
    for before, after in zip(shown.cells, found.cells, strict=True):
        assert list(map(texts, before.get("outputs", ()))) == list(map(texts, after.get("outputs", ())))


def texts(output):
    """What an output says, in words and as HTML without its pictures."""
    data = output.get("data", {})
    html = re.sub(r"base64,[^\"]*", "", data.get("text/html", ""))
    return output.get("text"), data.get("text/plain"), html
