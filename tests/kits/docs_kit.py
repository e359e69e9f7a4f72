"""The commands that a document shows, and smaller worlds for them."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from mitl.positives.loading import official_positives
from mitl.records import Direction

ROOT = Path(__file__).resolve().parents[2]


_BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def blocks(document: str, language: str) -> list[str]:
    """The code blocks of one language, in order."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return [body for kind, body in _BLOCK.findall(text) if kind == language]


def mitl_lines(document: str) -> list[list[str]]:
    """The words of every `mitl …` line in the document's shell blocks, in order."""
    lines = [line for block in blocks(document, "sh") for line in block.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("mitl ")]


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
