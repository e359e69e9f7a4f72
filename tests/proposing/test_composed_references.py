"""The reference of a composed query is never found by it: not ranked, not proposed, not a control."""

from __future__ import annotations

import numpy as np
import pandas as pd
from cli_kit import fails, ok

from mitl.campaign.kinds.pairs.controls import draw_controls
from mitl.db.session import open_database
from mitl.db.store import items as item_store
from mitl.db.store import proposals as proposal_store
from mitl.records import Direction, Environment, Pair
from mitl.settings import load


def proposed(folder, depth):
    """The settings of a world of 12 images, ranked to this depth."""
    ok("init", str(folder), "--dataset", "scenes", "--kind", "composed", "--n-images", "12", "--quiet")
    ok("propose", "--project", str(folder), "--top-k", "3", "--depth", depth, "--quiet")
    return load(folder, environ={})


def test_no_ranking_and_no_proposal_has_a_query_with_its_reference(tmp_path):
    """Rankings of 12 images end before the last one, which is the reference."""
    settings = proposed(tmp_path, "12")
    with open_database(settings.db_url, read_only=True) as session:
        dataset = item_store.dataset(session)
        queries = item_store.captions(session, dataset.id)
        found = set(proposal_store.candidate_pairs(session, tuple(Direction)))
    references = {(query.external_id, str(query.reference_id)) for query in queries}
    assert len(references) == 60

    (by_query,) = settings.runs.glob("*/signal.t2i.parquet")
    ranking = pd.read_parquet(by_query).astype(str)
    assert ranking.groupby("query_id").size().unique().tolist() == [11]
    assert not references & set(zip(ranking["query_id"], ranking["item_id"], strict=True))
    (by_image,) = settings.runs.glob("*/signal.i2t.parquet")
    ranking = pd.read_parquet(by_image).astype(str)
    assert not references & set(zip(ranking["item_id"], ranking["query_id"], strict=True))
    assert not {Pair(query.reference_id, query.id) for query in queries} & found


def test_no_control_has_a_query_with_its_reference(tmp_path):
    """All pairs are drawn that no ranking lists."""
    settings = proposed(tmp_path, "3")
    with open_database(settings.db_url, read_only=True) as session:
        queries = item_store.captions(session, item_store.dataset(session).id)
        _, negatives = draw_controls(session, settings, Environment.SANDBOX, 3_000)
    assert negatives and not {Pair(query.reference_id, query.id) for query in queries} & set(negatives)


def test_a_models_similarities_are_evaluated_without_references(tmp_path):
    """A model that likes the reference best and the target next finds every target first."""
    ok("init", str(tmp_path), "--dataset", "scenes", "--kind", "composed", "--n-images", "12", "--quiet")
    settings = load(tmp_path, environ={})
    with open_database(settings.db_url, read_only=True) as session:
        queries = item_store.captions(session, item_store.dataset(session).id)
    similarities = np.zeros((12, 60), np.float32)
    for column, query in enumerate(queries):
        similarities[query.image_id - 1, column] = 1
        similarities[query.reference_id - 1, column] = 2
    names = {
        "image_ids": [str(n) for n in range(1, 13)],
        "caption_ids": [query.external_id for query in queries],
    }
    np.savez(tmp_path / "model.npz", similarities=similarities, **names)
    words = (
        "--project",
        str(tmp_path),
        "--model",
        f"mine={tmp_path / 'model.npz'}",
        "--direction",
        "t2i",
        "--json",
    )
    found = ok("evaluate", *words).json

    assert found["counts"]["scores"]["original"]["mine"]["q2i"]["R@1"] == 1.0


def test_kinds_are_for_generated_worlds_alone(tmp_path):
    """An option that would be passed over is refused."""
    (tmp_path / "t.csv").write_text("image,caption\na.png,x\n")
    assert "table has no use for --kind, which is for scenes" in fails(
        2, "init", str(tmp_path / "p"), "--dataset", str(tmp_path / "t.csv"), "--kind", "sounds"
    )
    assert "say how many with --n-images" in fails(
        2, "init", str(tmp_path / "p"), "--dataset", "scenes", "--images", "40"
    )
    assert not (tmp_path / "p").exists()
