"""`mitl evaluate` in a project on some of COCO's test images: annotators, files, every set, what is kept."""

from __future__ import annotations

import csv
import json
from contextlib import chdir
from pathlib import Path

import pytest
from cli_kit import ok
from evaluate_kit import write_coco

from mitl.cli.reference import COUNTS, PATHS
from mitl.records import Direction

FILES = ("--model", "filed=near-images.npz,near-captions.npz")
EVERYTHING = ("--official", "all", "--cxc", "cxc", "--objects", "objects.json", "--graded")


@pytest.fixture(scope="module")
def coco(tmp_path_factory):
    """A project of eight official images whose two annotators are files of embeddings."""
    folder = tmp_path_factory.mktemp("evaluate")
    with chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.delenv("MITL_PROJECT", raising=False)
        write_coco(folder)
        ok("init", "--dataset", "coco", "--captions", "captions.csv")
        tables = "".join(
            f"\n[annotators.{name}.embeddings]\n"
            f'images = "{name}-images.npz"\ncaptions = "{name}-captions.npz"\n'
            for name in ("near", "far")
        )
        config = Path("mitl.toml")
        config.write_text(config.read_text() + '\n[propose]\nannotators = ["near", "far"]\n' + tables)
    return folder


@pytest.fixture
def here(coco, monkeypatch):
    """The project as the current folder, without scores of other tests."""
    monkeypatch.chdir(coco)
    (coco / "runs" / "evaluation" / "scores.json").unlink(missing_ok=True)
    return coco


def counts(*words):
    return ok("evaluate", *words, "--samples", "50", "--json").json["counts"]


def kept(folder):
    return json.loads((folder / "runs" / "evaluation" / "scores.json").read_text())


def test_files_score_as_the_annotator_of_the_same_files(here):
    """Rankings of the annotator and similarities of the files give the same figures on every set."""
    found = counts("--annotator", "near", *FILES, "--official", "all")

    for positives, by_model in found["scores"].items():
        for way, values in by_model["near"].items():
            assert by_model["filed"][way] == pytest.approx(values), positives
            ends = found["intervals"][positives]
            assert ends["filed"][way] == {k: pytest.approx(one) for k, one in ends["near"][way].items()}
    assert set(found["scores"]) == {"original", "official-original", "official-cxc", "official-eccv"}


def test_the_folds_are_left_out_where_the_split_is_not_whole(here):
    """A word says so; the other official sets are scored."""
    outcome = ok("evaluate", "--official", "all", "--no-intervals")

    assert "'original-1k' needs all 5,000 images and 25,000 captions" in outcome.err


def test_every_kind_of_metric_is_taken_at_once(here):
    """CxC's four tasks and correlations, PMRP, graded labels: of annotators from files of embeddings."""
    found = counts(*EVERYTHING)

    scores = found["scores"]
    assert set(scores["cxc"]["near"]) == {"i2t", "t2i", "t2t", "i2i"}
    assert set(scores["plausible"]["near"]["i2t"]) == {
        "PMRP zeta=0",
        "PMRP zeta=1",
        "PMRP zeta=2",
        "PMRP",
        "PMRP zeta=0 R<=50",
    }
    assert set(scores["graded-cxc"]["near"]["t2i"]) == {"nDCG@10", "Kendall tau-b"}
    assert set(found["correlations"]["near"]) == {"sits", "sts", "sis"}
    for kind in found["correlations"]["near"].values():
        assert -1 <= kind["low"] <= kind["mean"] <= kind["high"] <= 1
    assert scores["cxc"]["near"]["i2t"]["R@1"] >= scores["cxc"]["far"]["i2t"]["R@1"]


def test_correlations_are_tested_against_a_model_too(here):
    """The differences of the means, in JSON and beside the correlations in the CSV."""
    found = counts("--cxc", "cxc", "--against", "near", "--csv", "scores.csv")

    tests = {one["direction"]: one for one in found["paired"] if one["metric"] == "Spearman"}
    assert set(tests) == {"sits", "sts", "sis"}
    for kind, test in tests.items():
        far, near = (found["correlations"][name][kind]["mean"] for name in ("far", "near"))
        assert test["difference"] == pytest.approx(far - near)
        assert test["low"] <= test["difference"] <= test["high"]
        assert 2 / 51 <= test["p_value"] <= 1
    with (here / "scores.csv").open() as stream:
        rows = [
            row for row in csv.DictReader(stream) if row["metric"] == "Spearman" and row["model"] == "far"
        ]
    assert {row["direction"]: float(row["p_value"]) for row in rows} == {
        kind: pytest.approx(test["p_value"]) for kind, test in tests.items()
    }


def test_rankings_have_what_rankings_can_have(here):
    """nDCG and ECCV Caption's PMRP, no tau, no correlation, nothing within a side; a word says so."""
    ok("evaluate", "--annotator", "near", "--metrics", "R@40", "--no-intervals")
    paths = [
        max(here.glob(f"runs/evaluation/*/near.{way}.parquet"), key=lambda p: p.stat().st_size)
        for way in ("i2t", "t2i")
    ]

    outcome = ok(
        "evaluate",
        "--model",
        f"ranked={paths[0]},{paths[1]}",
        *EVERYTHING,
        *("--short", "zero", "--samples", "50", "--json"),
    )

    found = outcome.json["counts"]
    assert set(found["scores"]["cxc"]["ranked"]) == {"i2t", "t2i"}
    assert set(found["scores"]["graded-cxc"]["ranked"]["i2t"]) == {"nDCG@10"}
    assert found["correlations"] == {}
    assert "CxC's tasks t2t and i2i are left out" in outcome.err


def test_one_direction_has_no_tasks_within_a_side_and_says_so(here):
    """CxC's t2t and i2i are neither of the two; what is left out is told."""
    outcome = ok(
        "evaluate", "--annotator", "near", *EVERYTHING, "--direction", "i2t", "--no-intervals", "--json"
    )

    assert set(outcome.json["counts"]["scores"]["cxc"]["near"]) == {"i2t"}
    assert [line for line in outcome.json["warnings"] if "t2t" in line] == [
        "CxC's tasks t2t and i2i have no direction i2t, so they are left out; without --direction they are scored"
    ]


def test_a_second_run_has_nothing_to_do(here):
    """Nothing is written again, neither scores nor files; the tables are shown all the same."""
    words = (
        "evaluate",
        "--official",
        "eccv",
        "--csv",
        "scores.csv",
        "--latex",
        "scores.tex",
        "--samples",
        "50",
    )

    ok(*words)
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*") if path.is_file()}
    again = ok(*words)

    assert "nothing to do" in again.out and "official-eccv" in again.out
    assert {path: path.stat().st_mtime_ns for path in here.rglob("*") if path.is_file()} == before


def test_scores_are_kept_with_their_intervals(here):
    """Value, low and high; a later call about one model leaves the others' scores alone."""
    counts("--official", "eccv")
    one = kept(here)["official-eccv"]["near"]["i2t"]["mAP@R"]
    assert one["low"] <= one["value"] <= one["high"]

    counts(*FILES, "--official", "eccv")
    assert set(kept(here)["official-eccv"]) == {"near", "far", "filed"}
    counts("--official", "eccv")
    assert set(kept(here)["official-eccv"]) == {"near", "far"}


def test_a_call_for_one_metric_leaves_the_others_kept(here):
    """Each figure as the whole call gave it; those of another direction too."""
    counts("--official", "eccv")
    before = kept(here)

    counts("--annotator", "near", "--official", "eccv", "--metrics", "mAP@R,P@1", "--direction", "i2t")

    after = kept(here)
    assert after["official-eccv"]["near"]["i2t"].pop("P@1")
    assert after["original"]["near"]["i2t"].pop("P@1")
    assert after == before


def test_figures_of_two_releases_never_mix(here):
    """Another content under the name of a release drops what was kept, of models that are not scored too."""
    counts("--annotator", "near", "--release", _release(here, "first", 8))
    counts("--annotator", "far", "--release", _release(here, "second", 5), "--metrics", "mAP@R")
    assert {name: set(ways["i2t"]) for name, ways in kept(here)["release"].items()} == {"far": {"mAP@R"}}

    counts("--annotator", "near", "--release", _release(here, "same", 5), "--metrics", "R@1")
    assert {name: set(ways["i2t"]) for name, ways in kept(here)["release"].items()} == {
        "far": {"mAP@R"},
        "near": {"R@1"},
    }


def test_figures_of_two_embeddings_under_one_name_never_mix(here):
    """An annotator whose files change has none of its earlier scores."""
    counts("--official", "eccv")
    path = here / "near-images.npz"
    before = path.read_bytes()
    path.write_bytes((here / "far-images.npz").read_bytes())
    try:
        counts("--annotator", "near", "--official", "eccv", "--metrics", "mAP@R")
    finally:
        path.write_bytes(before)

    found = kept(here)["official-eccv"]
    assert set(found["near"]["i2t"]) == {"mAP@R"}
    assert {"R@1", "mAP@R"} <= set(found["far"]["i2t"])


def _release(folder: Path, name: str, n_images: int) -> Path:
    """The two JSONs of some of the project's images with their own captions."""
    with (folder / "captions.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    images = list(dict.fromkeys(row["image_id"] for row in rows))[:n_images]
    mine = [(row["image_id"], row["caption_id"]) for row in rows if row["image_id"] in images]
    release = folder / name
    release.mkdir(exist_ok=True)
    by_image = {image: [int(caption) for one, caption in mine if one == image] for image in images}
    (release / "image_to_caption.json").write_text(json.dumps(by_image))
    (release / "caption_to_image.json").write_text(
        json.dumps({caption: [int(image)] for image, caption in mine})
    )
    return release


def test_the_csv_holds_every_figure(here):
    """One row a figure with its interval, and the paired test beside it."""
    found = counts(*EVERYTHING, "--against", "near", "--csv", "scores.csv")

    rows = list(csv.DictReader((here / "scores.csv").read_text().splitlines()))
    figures = [
        (positives, model, way, metric)
        for positives, by_model in found["scores"].items()
        for model, by_way in by_model.items()
        for way, metrics in by_way.items()
        for metric in metrics
    ]
    listed = [(row["positives"], row["model"], row["direction"], row["metric"]) for row in rows]
    assert set(figures) <= set(listed) and len(set(listed)) == len(listed)
    tested = [row for row in rows if row["p_value"]]
    assert len(tested) == len(found["paired"]) > 0
    assert {row["model"] for row in tested} == {"far"}
    assert {row["direction"] for row in rows if row["metric"] == "Spearman"} == {"sits", "sts", "sis"}


def test_the_latex_is_escaped_and_balanced(here):
    """Names with characters of LaTeX's own; as many cells in every row as columns."""
    ok(
        "evaluate",
        *("--model", "a_b&c%=near-images.npz,near-captions.npz"),
        *("--official", "eccv", "--latex", "scores.tex", "--samples", "50"),
    )

    text = (here / "scores.tex").read_text()
    assert r"a\_b\&c\% &" in text
    rows = [line for line in text.splitlines() if line.startswith((r"a\_b", "model"))]
    assert {row.replace(r"\&", "").count("&") for row in rows} == {10}
    for word in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert text.count(word) == text.count(r"\begin{tabular}") == text.count(r"\end{tabular}")


def test_a_median_rank_of_annotators_needs_no_deep_rankings(here):
    """It comes from their similarities; the kept rankings stay as they are."""
    found = counts("--official", "eccv", "--metrics", "median-rank,R@1")

    assert found["scores"]["official-eccv"]["near"]["i2t"]["median rank"] >= 1


def test_plausible_matches_are_those_of_the_objects(here):
    """A model that ranks images of the same objects first has all of PMRP at zeta 0; left-out queries are none."""
    import numpy as np

    names = json.loads((here / "objects.json").read_text())
    images = list(names)
    captions = {
        line.split(",")[0]: line.split(",")[1]
        for line in (here / "captions.csv").read_text().splitlines()[1:]
    }
    for side, owners in (("images", {one: one for one in images}), ("captions", captions)):
        embedding = np.array([[1.0, 0.0] if len(names[one]) == 1 else [0.0, 1.0] for one in owners.values()])
        np.savez(
            here / f"objects-{side}.npz", ids=np.array([int(one) for one in owners]), embedding=embedding
        )

    found = counts("--model", "objects=objects-images.npz,objects-captions.npz", "--objects", "objects.json")

    for way in ("i2t", "t2i"):
        assert found["scores"]["plausible"]["objects"][way]["PMRP zeta=0"] == 1.0


def test_a_block_of_similarities_may_hold_no_query_with_a_plausible_match():
    """As a last block of one image without captions, of objects that no other image shows."""
    import numpy as np

    from mitl.metrics.plausible import ObjectVectors
    from mitl.stages.evaluating.models import Block
    from mitl.stages.evaluating.tasks import PlausibleTask

    images = ObjectVectors(np.arange(3), np.eye(3, dtype=np.bool_))
    task = PlausibleTask(
        {"image": images, "caption": images.of_captions(np.arange(4), np.array([0, 0, 1, 1]))}
    )
    parts = []
    for row in range(3):
        block = Block(np.array([row]), np.arange(4), np.eye(3, 4)[[row]]).of(task.queries(Direction.I2T))
        parts += [task.score(Direction.I2T, block)] if len(block.query_ids) else []

    (score, *_) = task.values(Direction.I2T, parts)
    assert score.query_ids.tolist() == [0, 1] and len(task.queries(Direction.T2I)) == 4


def test_a_short_ranking_takes_no_place_from_other_queries(here):
    """One of eight rankings is cut to two items: no metric falls by more than that query's eighth."""
    import numpy as np

    images, captions = (np.load(here / f"near-{side}.npz") for side in ("images", "captions"))
    order = np.argsort(-(images["embedding"] @ captions["embedding"].T), axis=1)
    rankings = dict(zip(images["ids"].tolist(), captions["ids"][order].tolist(), strict=True))
    for name, ends in (("whole", None), ("cut", 2)):
        rankings[min(rankings)] = rankings[min(rankings)][:ends]
        (here / f"{name}.i2t.json").write_text(json.dumps(rankings))

    models = ("--model", "whole=whole.i2t.json", "--model", "cut=cut.i2t.json", "--direction", "i2t")
    found = counts(
        *models, "--cxc", "cxc", "--graded", "--objects", "objects.json", "--short", "zero", "--no-intervals"
    )

    for name in ("graded-cxc", "plausible"):
        whole, cut = (found["scores"][name][model]["i2t"] for model in ("whole", "cut"))
        assert all(whole[metric] - 1 / 8 <= value < whole[metric] for metric, value in cut.items()), name


def test_the_keys_are_those_of_the_reference(here):
    """Whatever is asked, the same keys are printed, empty where there is nothing."""
    outcome = ok("evaluate", "--csv", "keys.csv", "--latex", "keys.tex", "--no-intervals", "--json").json

    assert set(outcome["counts"]) == set(COUNTS["evaluate"])
    assert set(outcome["paths"]) == set(PATHS["evaluate"]) - {"release"}
