"""`mitl evaluate` of annotators that learnt from the answers of the release that scores them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from cli_kit import ok
from world_kit import make_world, run_propose, work_until_done

from annotators.training.files import taught_pairs_of
from mitl.settings import Settings, load
from mitl.stages.evaluating.admission import judged_pairs, trained_on_release
from mitl.stages.reporting.report import evaluation

QUICK = ("--steps", 2, "--head-steps", 1, "--batch", 6, "--keep", "last", "--sandbox")


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A project whose clip-mini-tuned learnt from the answers that its release holds."""
    settings = make_world(tmp_path_factory.mktemp("own"), n_images=20)
    run_propose(settings, image_queries=15, caption_queries=30)
    work_until_done(settings)
    where = ("--project", settings.project)
    ok("train", "clip-mini", *QUICK, *where)
    ok("build-dataset", "--out", settings.project / "release", "--sandbox", *where)
    return load(settings.project, environ={})


def evaluated(settings: Settings, *words: str):
    return ok(
        "evaluate", "--project", settings.project, *words, "--no-intervals", "--json",
        "--annotator", "clip-mini-tuned", "--annotator", "clip-mini",
    ).json  # fmt: skip


def warned(found) -> list[str]:
    return [line for line in found["warnings"] if "learnt from" in line]


def test_a_model_taught_by_the_release_is_flagged_and_its_base_is_not(taught):
    """All pairs that people answered to teach it are judged pairs of the release: so many are counted and told."""
    release = taught.project / "release"
    pairs = taught_pairs_of(taught.project / "trained" / "clip-mini-tuned.safetensors")
    answered = int((pairs["answers"] > 0).sum())
    tables = [pd.read_parquet(release / f"{name}.parquet") for name in ("positives", "negatives")]
    judged = sum(int((table["n_judgements"] > 0).sum()) for table in tables)

    found = evaluated(taught, "--release", str(release))

    assert found["counts"]["trained_on_release"] == {"clip-mini-tuned": answered}
    assert 0 < answered <= judged
    (line,) = warned(found)
    assert line.startswith(
        f"clip-mini-tuned learnt from people's answers on {answered} pairs of this release"
    )
    scores = evaluation(taught)
    flagged = {(score.annotator, score.positives, score.taught_by) for score in scores if score.taught_by}
    assert flagged == {("clip-mini-tuned", "release", answered)}
    assert {score.annotator for score in scores} == {"clip-mini-tuned", "clip-mini"}


def test_without_a_release_nothing_is_flagged(taught):
    """The originals are nobody's answers."""
    found = evaluated(taught)

    assert found["counts"]["trained_on_release"] == {}
    assert not warned(found)


def test_the_weights_tell_it_in_another_project_too(taught, tmp_path):
    """Named in mitl.toml under another name, without the database's row of the training, alone or as one of two."""
    there = make_world(tmp_path / "other", n_images=20)
    shutil.copy(
        taught.project / "trained" / "clip-mini-tuned.safetensors", there.project / "mine.safetensors"
    )
    config = there.project / "mitl.toml"
    entry = '\n[annotators.mine]\nnetwork = "clip"\nweights = "mine.safetensors"\n'
    entry += '[annotators.mean]\nnetwork = "vsrn"\nweights = ["model_coco_1.pth.tar", "mine.safetensors"]\n'
    config.write_text(config.read_text() + entry)
    settings = load(there.project, environ={})

    found = trained_on_release(settings, ("mine", "mean", "clip-mini", "near"), taught.project / "release")

    known = trained_on_release(taught, ("clip-mini-tuned",), taught.project / "release")
    assert found == dict.fromkeys(("mine", "mean"), known["clip-mini-tuned"])


def test_lists_without_judgements_count_by_their_positives(taught, tmp_path):
    """A folder of the two JSONs alone says nothing of who judged; what it lists may have taught."""
    for name in ("image_to_caption.json", "caption_to_image.json"):
        pairs = {"1": [11, 12]} if name.startswith("image") else {"11": [1], "12": [1], "13": [2]}
        (tmp_path / name).write_text(json.dumps(pairs))

    assert judged_pairs(Path(tmp_path)) == {("1", "11"), ("1", "12"), ("2", "13")}
