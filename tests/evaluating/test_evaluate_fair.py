"""`mitl evaluate --fair`: a release's audit, models in files, naive and fair scores side by side."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from cli_kit import fails, ok
from release_kit import NO, audit_record, audited_world, truly_matches, world

from mitl.positives.certifying import certified
from mitl.positives.exclusions import Exclusions
from mitl.positives.loading import read_release
from mitl.positives.release import write_release
from mitl.records import IdKind, Pair
from mitl.stages.evaluating.fair import FairComparison, FairFigure
from mitl.stages.evaluating.models import Sides
from mitl.stages.evaluating.positive_sets import read_audited_release
from mitl.stages.evaluating.tables import fair_lines

WORDS = ("--release", "release", "--fair", "--samples", "20")
MODELS = ("--model", "good=good.npz", "--model", "poor=poor.npz")
COLUMNS = {
    "model",
    "direction",
    "metric",
    "queries",
    "naive",
    "horvitz_thompson",
    "expected",
    "prediction_powered",
    "low",
    "high",
    "settled",
    "holes",
}


def write_models(folder, prefix=""):
    """Similarities of six images and 30 captions: one model sees what the auditors see, the other nothing."""
    rng = np.random.default_rng(2)
    truth = np.array([[truly_matches(Pair(i, c)) for c in range(1, 31)] for i in range(1, 7)], float)
    images = np.array([f"{prefix}{10 * n:02}" for n in range(1, 7)])
    captions = np.array([f"{prefix}{100 * n}" for n in range(1, 31)])
    for name, share in (("good", 3.0), ("poor", 0.0)):
        values = share * truth + rng.normal(0, 1, truth.shape)
        np.savez(folder / f"{name}.npz", similarities=values, image_ids=images, caption_ids=captions)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder outside any project with an audited release and two models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MITL_PROJECT", raising=False)
    write_release(tmp_path / "release", audited_world())
    write_models(tmp_path)
    return tmp_path


def counts(*words):
    return ok("evaluate", *words, "--json").json["counts"]


def test_every_model_has_every_metric_by_every_method(here):
    """Both directions; ends about the value; the model that sees what the auditors see is ahead, and apart."""
    found = counts(*MODELS, *WORDS, "--metrics", "R@1,P@5,R-Precision,mAP@R")

    rows = {(row["model"], row["direction"], row["metric"]): row for row in found["fair"]}
    assert len(rows) == 2 * 2 * 4
    for row in rows.values():
        assert set(row) == COLUMNS
        assert row["low"] <= row["prediction_powered"] <= row["high"]
        assert 0 <= row["holes"] <= 1
    for direction in ("i2t", "t2i"):
        good, poor = (rows[name, direction, "mAP@R"] for name in ("good", "poor"))
        assert good["settled"] > poor["settled"]
    differences = {(row["direction"], row["metric"]): row for row in found["fair_differences"]}
    assert len(differences) == 2 * 4
    apart = differences["i2t", "mAP@R"]
    assert (apart["model"], apart["against"]) == ("good", "poor")
    assert apart["low"] > 0
    assert (apart["apart"], apart["more"]) == (True, 0)


def test_the_ranking_is_of_groups_that_the_audit_tells_apart(here):
    """Two models that are apart have a place each; a tie shares its places and says what would separate it."""
    found = counts(*MODELS, *WORDS, "--metrics", "R@1,mAP@R")

    differences = {(row["direction"], row["metric"]): row for row in found["fair_differences"]}
    groups = {}
    for row in found["fair_groups"]:
        groups.setdefault((row["direction"], row["metric"]), []).append(row)
    assert groups.keys() == differences.keys()
    assert {row["apart"] for row in differences.values()} == {True, False}
    for key, own in groups.items():
        difference = differences[key]
        assert difference["apart"] == (difference["low"] > 0 or difference["high"] < 0)
        if difference["apart"]:
            assert [(row["first"], row["last"], row["models"]) for row in own] == [
                (1, 1, ["good"]),
                (2, 2, ["poor"]),
            ]
            continue
        (tie,) = own
        assert (tie["first"], tie["last"], set(tie["models"])) == (1, 2, {"good", "poor"})
        assert tie["more_for_two"] == tie["more_for_all"] == difference["more"]
    assert counts(*MODELS, *WORDS, "--against", "poor")["fair_groups"] == []


@pytest.mark.parametrize(("high", "told"), [(0.99, False), (1.02, True)])
def test_an_end_beyond_the_metric_is_explained(high, told):
    """An interval is not cut, for its middle is right on average only as it is."""
    figure = FairFigure("good", "i2t", "mAP@R", 9, 0.8, 0.9, 0.9, 0.95, 0.88, high, 0.9, 0.1)
    lines = fair_lines(FairComparison((figure,), audited=50))
    assert any("over 100 % is an estimate that is right on average" in line for line in lines) == told


def test_tables_show_both_ranks_and_what_they_rest_on(here):
    """Naive and fair values with their places among the models."""
    outcome = ok("evaluate", *MODELS, *WORDS)

    assert "if every pair of the pool were judged" in outcome.out
    assert "#1" in outcome.out
    assert "differences of models" in outcome.out
    assert "audited pairs: naive takes unjudged pairs for no match" in outcome.out
    assert "answers of the audit miss" in outcome.out
    assert re.search(r"not told apart; (about [\d,]+ more audited pairs|no audit) would", outcome.out)
    assert "models in groups that the audit tells apart" in outcome.out
    assert "apart from all others" in outcome.out
    assert re.search(
        r"tie; (about [\d,]+ more audited pairs|no audit of this pool) would separate", outcome.out
    )
    assert "#1-2" in outcome.out


def test_twice_gives_the_same_numbers(here):
    """Nothing depends on which run it is."""
    assert counts(*MODELS, *WORDS)["fair"] == counts(*MODELS, *WORDS)["fair"]


def test_a_models_numbers_without_it_are_left_out_of_other_tables(here):
    """Without --fair the lists are empty."""
    found = counts(*MODELS, "--release", "release", "--samples", "20")

    assert found["fair"] == found["fair_differences"] == []


def test_a_lone_no_speaks_against_what_entered_the_release_after_the_draw(tmp_path):
    """Such a pair has three answers only if the first was a yes; nobody accepts any pair here."""
    data = world()
    rows = data.merged.pairs
    early = dataclasses.replace(data.merged, pairs=rows.assign(kept=rows["kept"] & (rows.index % 2 == 0)))
    record = audit_record(early, answer=lambda *_: NO)
    merged, audit = certified(record, data.merged, Exclusions(), data.proposals, ())
    lone = audit.audited["held"] & (audit.audited["second"] < 0)
    assert lone.sum() > 1
    configuration = {**data.configuration, "audit": audit.named}
    grown = dataclasses.replace(data, merged=merged, audit=audit, configuration=configuration)
    folder = write_release(tmp_path / "grown", grown).folder
    sides = Sides.named(data.image_ids.values(), data.caption_ids.values())

    release = read_audited_release(folder, read_release(folder).by_query, sides)
    assert not release.matches.any()


def test_ids_that_are_texts_are_read(here):
    """A release of string ids, models under the same ids."""
    write_release(here / "texts", audited_world(IdKind.STRING))
    write_models(here, "item-")
    found = counts(*MODELS, "--release", "texts", "--fair", "--samples", "20", "--against", "poor")

    assert {row["model"] for row in found["fair_differences"]} == {"good"}


def test_short_rankings_are_told_the_depth_or_count_as_misses(here):
    """Similarities beside them say what is searched."""
    values = np.load(here / "good.npz")
    order = np.argsort(-values["similarities"], axis=1)[:, :3]
    np.savez(here / "cut.i2t.npz", query_ids=values["image_ids"], item_ids=values["caption_ids"][order])
    words = (
        "--model",
        "good=good.npz",
        "--model",
        "cut=cut.i2t.npz",
        "--direction",
        "i2t",
        "--release",
        "release",
    )
    message = fails(1, "evaluate", *words, "--fair", "--metrics", "P@5")
    assert "--short zero" in message
    found = counts(*words, "--fair", "--short", "zero", "--metrics", "mAP@R")

    naive = {row["model"]: row["naive"] for row in found["fair"]}
    assert naive["cut"] <= naive["good"]


@pytest.mark.parametrize(
    ("status", "words", "message"),
    [
        (2, ("--official", "eccv", "--fair"), "--fair reads the audit of a release; give --release DIR"),
        (
            1,
            ("--release", "plain", "--fair"),
            "'plain' has no audit, so what its holes hide cannot be estimated",
        ),
        (1, (*WORDS, "--metrics", "median-rank"), "median rank is not known in expectation over labels"),
        (2, (*WORDS, "--against", "best"), "--against names 'best'"),
    ],
)
def test_what_does_not_go_is_one_line(here, status, words, message):
    """No release, no audit, a metric without an estimate, a strange model."""
    write_release(here / "plain", world())

    assert message in fails(status, "evaluate", *MODELS, *words)
