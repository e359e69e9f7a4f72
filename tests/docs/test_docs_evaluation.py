"""Every command and Python line that docs/evaluation.md shows, and what its tables name."""

from __future__ import annotations

import json
import shutil
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_kit import ok
from docs_kit import ROOT, blocks, mitl_lines
from evaluate_kit import write_coco

from mitl.metrics import METRICS

DOCUMENT = "docs/evaluation.md"
TEXT = (ROOT / DOCUMENT).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A project on eight images of the test split with every file that the page names."""
    folder = tmp_path_factory.mktemp("evaluation")
    with chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.delenv("MITL_PROJECT", raising=False)
        write_coco(folder)
        ok("init", "--dataset", "coco", "--captions", "captions.csv")
        config = Path("mitl.toml")
        files = '\n[annotators.my-model.embeddings]\nimages = "images.npz"\ncaptions = "captions.npz"\n'
        config.write_text(config.read_text() + '\n[propose]\nannotators = ["my-model"]\n' + files)
        _write_models(folder)
    return folder


def _write_models(folder: Path) -> None:
    for side in ("images", "captions"):
        (folder / f"near-{side}.npz").rename(folder / f"{side}.npz")
        far = np.load(folder / f"far-{side}.npz")
        np.save(folder / f"clip-{side}.npy", far["embedding"])
        (folder / f"clip-{side}.ids.txt").write_text("\n".join(map(str, far["ids"])) + "\n")
    images, captions = (np.load(folder / f"{side}.npz") for side in ("images", "captions"))
    similarities = images["embedding"] @ captions["embedding"].T
    ids = {"image_ids": images["ids"], "caption_ids": captions["ids"]}
    np.savez(folder / "similarities.npz", similarities=similarities, **ids)
    rankings = {
        way: {
            str(query): gallery[np.argsort(-row, kind="stable")].tolist()
            for query, row in zip(queries, table, strict=True)
        }
        for way, queries, gallery, table in (
            ("i2t", images["ids"], captions["ids"], similarities),
            ("t2i", captions["ids"], images["ids"], similarities.T),
        )
    }
    (folder / "vsrn.json").write_text(json.dumps(rankings))
    _write_parquet(folder, rankings)
    _write_release(folder)
    (folder / "objects.json").rename(folder / "instances_val2014.json")


def _write_parquet(folder: Path, rankings: dict[str, dict[str, list[int]]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for way, lists in rankings.items():
        rows = [(int(q), rank, item) for q, items in lists.items() for rank, item in enumerate(items, 1)]
        query, rank, item = zip(*rows, strict=True)
        table = pa.table({"query_id": query, "rank": rank, "item_id": item})
        pq.write_table(table, folder / f"mine.{way}.parquet")


def _write_release(folder: Path) -> None:
    forward: dict[str, list[int]] = {}
    backward: dict[str, list[int]] = {}
    for line in (folder / "captions.csv").read_text().splitlines()[1:]:
        caption, image, _ = line.split(",")
        forward.setdefault(image, []).append(int(caption))
        backward.setdefault(caption, []).append(int(image))
    (folder / "release").mkdir()
    (folder / "release" / "image_to_caption.json").write_text(json.dumps(forward))
    (folder / "release" / "caption_to_image.json").write_text(json.dumps(backward))


def test_the_commands_run(folder, tmp_path, monkeypatch):
    """In order, each with a table, the one with its own captions outside the project; one writes what it says."""
    outside = tmp_path / "outside"
    shutil.copytree(folder / "cxc", outside / "cxc")
    pd.read_csv(folder / "captions.csv").to_parquet(outside / "captions.parquet")
    monkeypatch.chdir(folder)
    lines = mitl_lines(DOCUMENT)

    assert len(lines) == 11
    for words in lines:
        if "--captions" in words:
            monkeypatch.chdir(outside)
        assert "model " in ok(*words, "--samples", "50").out, words
    assert (folder / "scores.csv").is_file() and (folder / "scores.tex").is_file()


def test_the_python_runs():
    """The metrics on arrays print what they are worked out to; the drop-in import is there."""
    first, own, second = blocks(DOCUMENT, "python")
    printed = StringIO()
    with redirect_stdout(printed):
        names: dict[str, object] = {}
        exec(first, names)
        try:
            exec(own, names)
        finally:
            METRICS.pop("MRR", None)
    exec(second, {})

    assert printed.getvalue().endswith("\n0.75\n")
    assert "'R@1': (0.5," in printed.getvalue() and "'mAP@R': (0.25," in printed.getvalue()


def test_every_set_and_metric_is_told(folder, monkeypatch):
    """Each name that the command prints stands on the page in code."""
    monkeypatch.chdir(folder)
    words = [*next(words for words in mitl_lines(DOCUMENT) if "--graded" in words), "--pseudo-labels"]
    counts = ok(*words, "--metrics", "R@1,R-Precision,mAP@R,median-rank", "--samples", "50", "--json")

    scores = counts.json["counts"]["scores"]
    for positives, by_model in scores.items():
        assert f"`{positives}`" in TEXT, positives
        for by_way in by_model.values():
            for metric in {metric for metrics in by_way.values() for metric in metrics}:
                shown = {"R@1": "R@K"}.get(
                    metric, "PMRP zeta=Z" if metric.startswith("PMRP zeta") else metric
                )
                assert f"`{shown}`" in TEXT, metric
