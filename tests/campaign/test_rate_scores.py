"""`mitl rate scores`: what ratings come to, which pairs lack some, and what to do next."""

from __future__ import annotations

import csv
import io

import pytest
from cli_kit import fails, ok
from harvest_kit import in_pipeline
from similarity_kit import asked, likeness, rate, run_rate, sampled
from similarity_kit import rated as rated_by_five
from sqlalchemy import select
from world_kit import SANDBOX

from mitl.core.clock import utc_now
from mitl.db.models import Worker
from mitl.db.session import open_database
from mitl.judgements.similarity import Aggregation
from mitl.records.similarity import SimilarityRole
from mitl.stages.harvesting.harvest import harvest


@pytest.fixture(scope="module")
def rated(tmp_path_factory):
    """Sixteen pairs of captions and as many of images; nobody rated the captions of the second page but three."""
    settings = sampled(tmp_path_factory.mktemp("rated") / "p")
    run_rate(settings, "sts")
    run_rate(settings, "sis")

    def lazy(worker, item):
        """Skips pairs of captions with an even sum."""
        odd = (item.left + item.right) % 4 != 0
        return likeness(worker, item) if odd or item.role is not SimilarityRole.ASKED else None

    rate(settings, (likeness,) * 3 + (lazy,) * 2)
    harvest(settings, SANDBOX)
    return settings


def scored(*words):
    return ok("rate", "scores", "--sandbox", *words, "--json").json["counts"]


def test_what_is_a_match_is_told_as_by_a_release(tmp_path, monkeypatch):
    """Which has two decimals: a mean of 2.996 is released as 3.0."""
    settings = rated_by_five(tmp_path / "p")
    monkeypatch.chdir(settings.project)
    in_pipeline(settings, "UPDATE similarity_answer SET score = 2.996")

    released = ok("rate", "release", "--out", "ratings", "--json").json["counts"]["tasks"]["sts"]
    sts = scored()["tasks"]["sts"]
    analysed = ok("analyse", "similarity", "--json").json["counts"]

    assert released["positive_share"] == sts["positive_share"] == 1
    assert sts["by_method"]["c2c_isim"]["positive_share"] == 1
    assert analysed["analyses"]["similarity"]["scores"]["sandbox"]["sts"]["c2c_isim"]["share"] == 1


def test_without_ratings_it_says_what_comes_next(tmp_path, monkeypatch):
    """Nothing sampled, nothing posted, nothing harvested: a step each."""
    settings = sampled(tmp_path / "p")
    monkeypatch.chdir(settings.project)

    before = ok("rate", "scores")
    assert "similarity sts" in ok("rate", "publish", "--sandbox", "--dry-run").out
    run_rate(settings, "sts")
    assert "similarity sis" in ok("rate", "publish", "--sandbox", "--dry-run").out
    after = ok("rate", "scores")
    other = ok("rate", "scores", "--task", "sis")

    assert "nothing to score: no pair was posted on sandbox" in before.out
    assert "next: mitl rate publish --sandbox --task sts" in before.out
    assert "no rating counts yet" in after.out and "next: mitl harvest --sandbox" in after.out
    assert "next: mitl rate publish --sandbox --task sis" in other.out
    assert ok("rate", "scores", "--json").json["status"] == "nothing_to_do"


def test_scores_by_task_and_method(rated, monkeypatch):
    """Every figure of ``--json`` is there, and all methods agree on raters who agree."""
    monkeypatch.chdir(rated.project)
    found = scored()

    assert list(found["tasks"]) == ["sts", "sis"]
    sts = found["tasks"]["sts"]
    assert (sts["sampled"], sts["pairs"], sts["raters"], sts["unrated"]) == (16, 16, 5, 0)
    assert sts["complete"] + sts["incomplete"] == 16 and sts["incomplete"] > 0
    assert sts["ratings"] == 16 * 5 - 2 * sts["incomplete"]
    assert sts["by_method"]["c2c_isim"]["rows"] == 17
    assert sts["positive_from"] == 3.0 and found["tasks"]["sis"]["positive_from"] == 2.5
    assert 0 < sts["positive_share"] < 1 and sts["seconds"] == 15.0
    assert sts["alpha"]["low"] < sts["alpha"]["value"] <= sts["alpha"]["high"]
    for name in ("icc1", "icc1k", "icc2", "icc2k", "icc3", "icc3k"):
        assert 0.9 < sts[name]["value"] <= 1.0
    for method in Aggregation:
        other = scored("--method", method, "--task", "sts")["tasks"]
        assert list(other) == ["sts"]
        assert other["sts"]["mean"] == pytest.approx(sts["mean"], abs=0.05)


def test_pairs_that_lack_ratings_are_listed_with_the_next_step(rated, monkeypatch):
    """By the names of their items; ratings that wait for a person come first. With fewer wanted, nothing lacks any."""
    monkeypatch.chdir(rated.project)

    told = ok("rate", "scores", "--sandbox").out
    enough = ok("rate", "scores", "--sandbox", "--min-ratings", "3").out

    assert "STS pairs with fewer than 5 ratings" in told
    assert "next: mitl review --sandbox, for what waits for a person" in told
    assert "with fewer than" not in enough
    assert "next: mitl rate release --sandbox --out ratings" in enough


def test_only_pairs_that_would_be_asked_again_lead_to_more_posting(tmp_path, monkeypatch):
    """Five were asked for each pair: that six are wanted, or that pages are still out, brings no more by itself."""
    monkeypatch.chdir(rated_by_five(tmp_path / "p").project)
    assert "next: mitl rate release" in ok("rate", "scores", "--sandbox", "--min-ratings", "6").out
    settings = asked(tmp_path / "out")
    rate(settings, [likeness] * 2)
    harvest(settings, SANDBOX)
    monkeypatch.chdir(settings.project)

    assert "next: mitl harvest --sandbox" in ok("rate", "scores", "--sandbox").out


def test_the_csv_holds_every_sampled_order(rated, monkeypatch, tmp_path):
    """Also pairs that nobody was asked; a pair sampled in both orders stands there twice with one score."""
    monkeypatch.chdir(rated.project)
    path = tmp_path / "deep" / "scores.csv"

    ok("rate", "scores", "--sandbox", "--csv", path)
    rows = list(csv.DictReader(io.StringIO(path.read_text())))

    assert len(rows) == 17 + 17 + 16
    assert {row["score"] for row in rows if row["task"] == "sits"} == {""}
    scores = {(row["first"], row["second"]): row["score"] for row in rows if row["task"] == "sts"}
    assert len([pair for pair in scores if pair[::-1] in scores]) == 2
    assert all(scores[pair] == scores.get(pair[::-1], scores[pair]) for pair in scores)
    refused = fails(2, "rate", "scores", "--sandbox", "--csv", path / "below-a-file.csv")
    assert "cannot write" in refused


def test_an_excluded_worker_no_longer_counts(tmp_path, monkeypatch):
    """Every pair lacks that rating then, and is asked again."""
    settings = rated_by_five(tmp_path / "p")
    monkeypatch.chdir(settings.project)
    before = scored()["tasks"]["sts"]
    with open_database(settings.db_url) as session:
        worker = session.scalars(select(Worker).order_by(Worker.id)).first()
        assert worker is not None
        worker.excluded_at = utc_now()
        session.commit()

    after = scored()["tasks"]["sts"]

    assert (before["raters"], before["incomplete"]) == (5, 0)
    assert (after["raters"], after["incomplete"], after["ratings"]) == (4, 16, 64)
    assert (
        "next: mitl rate publish --sandbox --task sts  (asks these pairs again)" in ok("rate", "scores").out
    )


def test_the_table_of_pairs_is_for_those_who_answered_pairs(rated, monkeypatch):
    """Raters have their own."""
    monkeypatch.chdir(rated.project)

    told = ok("workers").out

    assert "raters of likeness: 5" in told
    assert "how they go about it" not in told and "bits:" not in told
