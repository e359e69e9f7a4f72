"""docs/annotators.md is true: its settings are read, its figures are the program's, its examples run as written."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from cli_kit import clear_environment, mitl, ok
from docs_kit import blocks, mitl_lines

from annotators import registry
from annotators.catalog import KS, NETWORKS, PUBLISHED
from mitl.datasets.scenes.files import read_world
from mitl.records import Direction
from mitl.settings import WORLD_FOLDER

PAGE = "docs/annotators.md"
TEXT = (Path(__file__).resolve().parents[2] / PAGE).read_text(encoding="utf-8")


def settings_of(name: str) -> str:
    """The block of mitl.toml that sets up this annotator."""
    (found,) = [block for block in blocks(PAGE, "toml") if block.startswith(f"[annotators.{name}]")]
    return found


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """An empty project on a small world, in the current folder."""
    clear_environment(monkeypatch)
    monkeypatch.chdir(tmp_path)
    ok("init", "--dataset", "scenes", "--n-images", "12")
    return tmp_path


def propose(project: Path, name: str) -> dict:
    """What `mitl propose` counts with the annotator that the page sets up."""
    with (project / "mitl.toml").open("a") as file:
        file.write("\n" + settings_of(name))
    words = ("--image-queries", "5", "--caption-queries", "5", "--depth", "6")
    return ok("propose", "--annotator", name, *words, "--json").json["counts"]


def ids_of(project: Path) -> tuple[list[int], list[int]]:
    world = read_world(project / WORLD_FOLDER)
    return list(world.scenes), list(world.captions)


def test_a_local_model_of_transformers(project):
    """The worked example with a folder that save_pretrained wrote."""
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    import families_kit

    families_kit.write_clip(project / "models" / "my-clip", length=128)

    counts = propose(project, "my-clip")

    assert counts["rankings_computed"] == 2
    assert counts["annotators"]["my-clip"]["proposed"] == 50


def test_embeddings_of_ones_own(project):
    """The worked example writes .npy files beside their ids; the annotator finds its own items."""
    image_ids, caption_ids = ids_of(project)
    generator = np.random.default_rng(0)
    vectors = {
        "image_ids": image_ids,
        "caption_ids": caption_ids,
        "image_vectors": generator.normal(size=(len(image_ids), 4)),
        "caption_vectors": generator.normal(size=(len(caption_ids), 4)),
    }
    (code,) = [block for block in blocks(PAGE, "python") if "image_vectors" in block]

    exec(code, vectors)

    assert propose(project, "my-embeddings")["annotators"]["my-embeddings"]["proposed"] == 50


def test_rankings_of_ones_own(project):
    """The worked example writes one direction; the other is written the same way."""
    image_ids, caption_ids = ids_of(project)
    (code,) = [block for block in blocks(PAGE, "python") if "best_first" in block]

    for direction, queries, items in (("i2t", image_ids, caption_ids), ("t2i", caption_ids, image_ids)):
        best_first = {query: [(item, -float(n)) for n, item in enumerate(items)] for query in queries}
        exec(code.replace("mine.i2t", f"mine.{direction}"), {"best_first": best_first})

    assert propose(project, "my-rankings")["annotators"]["my-rankings"]["proposed"] == 50


def test_a_package_of_ones_own(project, tmp_path_factory, monkeypatch):
    """The example package, laid out as pip would lay it, is listed and proposes as the page says."""
    site = tmp_path_factory.mktemp("site")
    (code,) = [block for block in blocks(PAGE, "python") if "class Colours" in block]
    (about,) = [block for block in blocks(PAGE, "toml") if "entry-points" in block]
    install(site, "colour_annotator", code, tomllib.loads(about)["project"])
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "colour_annotator", raising=False)

    listed = ok("annotators")
    (words,) = [words for words in mitl_lines(PAGE) if words[0] == "propose"]
    counts = ok(*words, "--json").json["counts"]

    assert "from the installed package colour-annotator" in listed.out
    assert counts["annotators"]["colours"]["proposed"] == 50
    monkeypatch.delitem(sys.modules, "colour_annotator", raising=False)


def install(site: Path, module: str, code: str, project: dict) -> None:
    """Write a module and the metadata that an installer leaves beside it."""
    (site / f"{module}.py").write_text(code)
    folder = site / f"{module}-{project['version']}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (folder / "entry_points.txt").write_text("\n".join(groups))


def test_the_commands_exist(tmp_path, monkeypatch):
    """Every command of the page is one that the program knows; here they lack what they need and say so."""
    clear_environment(monkeypatch)
    monkeypatch.chdir(tmp_path)

    for words in mitl_lines(PAGE):
        outcome = mitl(*words)

        assert outcome.status == 1 and outcome.error


@pytest.mark.parametrize("network", NETWORKS)
def test_the_settings_of_a_network_are_those_that_the_program_shows(network):
    """The page's block holds the lines that `mitl annotators` tells, and what it tells to download stands there."""
    block = settings_of(network)

    assert set(NETWORKS[network].settings) <= set(block.splitlines())
    for word in NETWORKS[network].weights.split():
        if word.endswith((".pth", ".tar", ".ckpt", ".pt")):
            assert word in TEXT


@pytest.mark.parametrize("row", PUBLISHED)
def test_the_published_figures_are_those_that_the_program_compares(row):
    """Each row of the table: both directions at 5K, the tolerance."""
    published = PUBLISHED[row]
    (line,) = [line for line in TEXT.splitlines() if line.startswith(f"| `{row}`")]

    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:3] == [
        " / ".join(f"{value:.2f}" for value in published.five_k[direction]) for direction in Direction
    ]
    assert len(published.five_k[Direction.I2T]) == len(KS)
    assert cells[4] == str(published.tolerance)


def test_bm25_under_another_name_reads_the_settings_of_the_page():
    """Every setting that the page names is one."""
    pytest.importorskip("bm25s", reason="the extra mitl[texts] is missing")
    ((name, config),) = tomllib.loads(settings_of("shorter"))["annotators"].items()

    assert registry.build(name, config).fingerprint != registry.build("bm25").fingerprint
    from annotators.bm25 import STOPWORDS

    assert f"# {', '.join(STOPWORDS)}" in settings_of("shorter")
