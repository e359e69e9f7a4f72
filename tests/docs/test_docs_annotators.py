"""docs/annotators.md is true: its settings are read, its figures are the program's, its examples run as written."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from cli_kit import fails, mitl, ok
from docs_kit import blocks, mitl_lines
from media_kit import tone
from PIL import Image
from text_kit import write_beir

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
    """The example package, laid out as by pip, is listed and proposes as the page says; its faults are named."""
    site = tmp_path_factory.mktemp("site")
    (code,) = [block for block in blocks(PAGE, "python") if "class Colours" in block]
    (about,) = [block for block in blocks(PAGE, "toml") if '"colour-annotator"' in block]
    install(site, "colour_annotator", code, tomllib.loads(about)["project"])
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "colour_annotator", raising=False)

    listed = ok("annotators")
    (words,) = [words for words in mitl_lines(PAGE) if words[0] == "propose"]
    counts = ok(*words, "--json").json["counts"]

    assert "from the installed package colour-annotator" in listed.out
    assert counts["annotators"]["colours"]["proposed"] == 50
    monkeypatch.delitem(sys.modules, "colour_annotator", raising=False)
    lines = code.splitlines()
    place = next(row for row, line in enumerate(lines) if "text.count(colour)" in line)
    lines[place] = "        raise ConnectionError('model server away')"
    (site / "colour_annotator.py").write_text("\n".join(lines))
    assert fails(1, *words).startswith(
        f"the installed package 'colour_annotator', which adds an annotator, failed in line {place + 1} of "
        f"{str(site / 'colour_annotator.py')!r}: ConnectionError: model server away; mend it"
    )
    monkeypatch.delitem(sys.modules, "colour_annotator", raising=False)


OPEN_CLIP = """
import torch

def create_model_and_transforms(name, pretrained=None):
    class Model:
        def encode_image(self, pixels):
            return pixels.flatten(1)[:, :3] + 1
        def encode_text(self, tokens):
            return tokens.float() + 1
    return Model(), None, lambda picture: torch.tensor(list(picture.resize((1, 1)).getpixel((0, 0)))).float()

def get_tokenizer(name):
    return lambda texts: torch.tensor([[text.count(letter) for letter in "abc"] for text in texts])
"""


@pytest.mark.parametrize("kind", ["sentences", "sounds", "videos", "pictures_by_a_stand_in_of_open_clip"])
def test_models_on_disk(tmp_path, monkeypatch, kind):
    """Tiny models of random weights in folders as their libraries save them; open_clip's API by a stand-in."""
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    import families_kit

    monkeypatch.chdir(tmp_path)
    dataset = LAID[kind](tmp_path)
    if kind == "sentences":
        pytest.importorskip("sentence_transformers")
        families_kit.write_sentences(tmp_path / "models" / "sentences")
    elif kind == "sounds":
        families_kit.write_clap(tmp_path / "models" / "clap")
    elif kind == "videos":
        families_kit.write_clip(tmp_path / "models" / "clip", length=64)
    else:
        kind = "pictures"
        (tmp_path / "open_clip.py").write_text(OPEN_CLIP)
        (tmp_path / "models").mkdir()
        (tmp_path / "models" / "ViT-B-32.safetensors").write_bytes(b"weights")

    parts = [block for block in blocks(PAGE, "python") if "class Encoder" in block or f"def {kind}(" in block]
    (about,) = [block for block in blocks(PAGE, "toml") if '"own-encoders"' in block]
    install(tmp_path, "own_encoders", "\n".join(parts), tomllib.loads(about)["project"])
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("own_encoders", "open_clip"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    (settings,) = [block for block in blocks(PAGE, "toml") if "[annotators.sentences]" in block]
    ok("init", "project", "--dataset", dataset)
    with (tmp_path / "project" / "mitl.toml").open("a") as file:
        file.write("\n" + settings.replace("/models", "../models"))
    words = ("--top-k", "2", "--depth", "3", "--image-queries", "4", "--project", "project")
    counts = ok("propose", "--annotator", kind, *words, "--json").json["counts"]
    assert counts["annotators"][kind]["proposed"] >= 8
    for module in ("own_encoders", "open_clip"):
        monkeypatch.delitem(sys.modules, module, raising=False)


def captioned(folder: Path, column: str, suffix: str, write) -> str:
    """Six files with a caption each."""
    (folder / "own").mkdir()
    for place in range(6):
        write(folder / "own" / f"{place}.{suffix}", place)
    rows = "".join(
        f"{place}.{suffix},caption {('one', 'two')[place % 2]} abc {place}\n" for place in range(6)
    )
    (folder / "own" / "captions.csv").write_text(f"{column},caption\n{rows}")
    return "own"


def write_video(path: Path, place: int) -> None:
    av = pytest.importorskip("av", reason="the extra mitl[media] is missing")
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libvpx", rate=10)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        for shade in range(10):
            picture = np.full((32, 32, 3), 20 * place + shade, dtype=np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))


def write_sound(path: Path, place: int) -> None:
    path.write_bytes(tone(0.5, 300.0 * (1 + place), 48_000))


def write_picture(path: Path, place: int) -> None:
    Image.new("RGB", (8, 8), (place, 100, 200)).save(path)


LAID = {
    "sentences": lambda folder: write_beir(folder / "own", 4).name,
    "sounds": lambda folder: captioned(folder, "audio", "wav", write_sound),
    "videos": lambda folder: captioned(folder, "video", "webm", write_video),
    "pictures_by_a_stand_in_of_open_clip": lambda folder: captioned(folder, "image", "png", write_picture),
}
"""A data set of each kind, in the folder ``own``."""


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
