"""Rounds that train, texts that are collected, and who learnt from what, on a real PostgreSQL."""

from __future__ import annotations

import pytest
from cli_kit import fails, ok
from world_kit import SANDBOX, make_world, run_propose, run_publish

from mitl.db.session import open_database
from mitl.db.store import collection
from mitl.db.store import rounds as round_store
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate

pytestmark = pytest.mark.postgres


@pytest.mark.thorough
def test_a_round_that_trains_and_a_collection_on_postgresql(tmp_path, postgres_project_url, monkeypatch):
    """Trained, chosen, posted, harvested, asked again, taken back; written, reviewed; each twice for nothing."""
    settings = make_world(tmp_path / "p", n_images=20, db_url=postgres_project_url)
    monkeypatch.chdir(settings.project)
    run_propose(settings, image_queries=10, caption_queries=20)
    run_publish(settings, limit=90)
    simulate(settings, SANDBOX, population="careful")
    harvest(settings, SANDBOX)
    where = ("--db", postgres_project_url)
    run = (
        "round",
        "run",
        "--sandbox",
        "--train",
        "--steps",
        "3",
        "--annotators",
        "near,clip-mini",
        "--budget",
        "2.00",
    )

    counts = ok(*run, "--workers", "careful", "--json", *where).json["counts"]

    learnt = f"clip-mini-r{counts['round']}"
    assert counts["closed"] == [counts["round"]]
    assert counts["steps"]["train"]["trained"] == {"clip-mini": learnt}
    assert counts["figures"]["answered"] > 0 and 0 < counts["figures"]["paid_cents"] <= 200
    with open_database(postgres_project_url, read_only=True) as session:
        assert len(round_store.taught(session, learnt)) > 50
    assert "closed already" in fails(1, "round", "close", *where)
    again = (*run[:3], "--strategy", "doubts", "--budget", "2.00", "--workers", "careful", "--json", *where)
    doubts = ok(*again).json["counts"]
    assert doubts["figures"]["answered"] == doubts["figures"]["asked"] == 18
    assert doubts["steps"]["harvest"]["became_match"] == doubts["figures"]["positives"]
    ok("round", "rollback", *where)
    assert ok("round", "rollback", "--json", *where).json["counts"]["unlearnt"] == [learnt]

    (settings.project / "images.txt").write_text("1\n2\n3\n4\n5\n")
    ok("collect", "choose", "--count", 5, "--strategy", "random", "--items", "images.txt", *where)
    for _ in range(2):
        ok("collect", "publish", "--sandbox", *where)
        ok("simulate", "--workers", "careful", *where)
        ok("harvest", *where)
    with open_database(postgres_project_url, read_only=True) as session:
        assert len(collection.spots(session, SANDBOX)) >= 10
    release = ok("build-dataset", "--out", "release", *where)
    assert "release" in release.out and (settings.project / "release" / "collected.parquet").is_file()
    ok("verify", "release")
