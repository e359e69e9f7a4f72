"""The official sets outside any project: the whole test split, from embeddings."""

from __future__ import annotations

import numpy as np
import pytest
from cli_kit import ok

from mitl.metrics.embeddings import EmbeddingSet, score_official_embeddings
from mitl.metrics.official import official_sets

NAMES = {
    "coco_1k": "official-original-1k",
    "coco_5k": "official-original",
    "cxc": "official-cxc",
    "eccv": "official-eccv",
}


@pytest.mark.slow
@pytest.mark.thorough
def test_all_official_sets_are_scored_as_the_library_scores_them(tmp_path, monkeypatch):
    """COCO 1K and 5K, CxC and ECCV Caption, both directions, ids in any order and as texts on one side."""
    pytest.importorskip("eccv_caption")
    monkeypatch.chdir(tmp_path)
    sets = official_sets()
    rng = np.random.default_rng(0)
    image_ids = rng.permutation(sets.image_ids)
    originals = sets.positives["coco_5k", "t2i"]
    concepts = rng.normal(size=(len(image_ids), 6)).astype(np.float32)
    order = np.argsort(image_ids)
    owners = order[np.searchsorted(image_ids[order], originals.item_ids[originals.offsets[:-1]])]
    noise = rng.normal(size=(len(owners), 6)).astype(np.float32)
    captions = concepts[owners] + noise
    np.savez("images.npz", ids=image_ids.astype(str), embedding=concepts)
    np.savez("captions.npz", ids=sets.caption_ids, embedding=captions)

    words = ("--image-embeddings", "images.npz", "--caption-embeddings", "captions.npz")
    found = ok("evaluate", *words, "--official", "all", "--no-intervals", "--json").json["counts"]["scores"]

    theirs = score_official_embeddings(
        EmbeddingSet(image_ids, concepts), EmbeddingSet(sets.caption_ids, captions)
    )
    assert len(theirs) == 8
    for (name, side), values in theirs.items():
        ours = found[NAMES[name]]["embeddings"][side]
        for one in values:
            assert ours[one.metric] == pytest.approx(one.estimate, abs=1e-12), (name, side, one.metric)
    assert found["official-eccv"]["embeddings"]["i2t"]["R@1"] > 0.01
