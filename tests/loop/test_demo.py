"""The demo: what it promises of recall and precision, and that others can load its release."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict

import pytest
from cli_kit import ok

from annotators.catalog import MINIS
from mitl.records import Direction
from mitl.stages.demo import MARK, N_IMAGES, demo

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
MIXED = ("demo", "--workers", "careful:0.8,random:0.2")
FEW_IMAGES = 120
"""So many that the promises of the full size hold, at half its time."""


@pytest.fixture(scope="module", params=[FEW_IMAGES, pytest.param(N_IMAGES, marks=pytest.mark.thorough)])
def careful(request, tmp_path_factory):
    """The demo with careful workers alone, its counts, a copy of it in which nobody has worked yet, and its size."""
    pytest.importorskip("torch")
    folder, unworked = (tmp_path_factory.mktemp("demo") / name for name in ("careful", "mixed"))

    def fork(line: str) -> None:
        if line.startswith("$ mitl propose "):
            shutil.copytree(folder, unworked)

    done = demo(folder, n_images=request.param, population="careful", say=fork)
    return folder, done.counts, unworked, request.param


def assert_told(said, folder):
    """The five numbers, and where the report is."""
    for label in (
        "pairs asked",
        "judgements",
        "positives found",
        "recall of the true positives",
        "precision",
    ):
        assert label in said
    assert str(folder / "report.html") in said


def test_careful_workers_find_three_times_the_originals_almost_without_error(careful):
    """Recall of the true positives is at least three times the original annotation's, precision at least 0.95."""
    counts = careful[1]

    assert counts["recall_after"] >= 3 * counts["recall_before"]
    assert counts["recall_of_asked"] >= 0.9
    assert counts["precision_after"] >= 0.95


@pytest.mark.thorough
@pytest.mark.parametrize("careful", [N_IMAGES], indirect=True)
def test_the_gold_rules_keep_random_workers_out(careful):
    """With one HIT in five answered at random, controls and records keep precision within 0.02 of careful work."""
    _, alone, folder, _ = careful
    assert_told(ok(*MIXED, folder).out, folder)
    mixed = ok(*MIXED, folder, "--json").json["counts"]

    assert mixed["precision_after"] >= alone["precision_after"] - 0.02
    # Two controls a page are passed by luck one time in four: alone they let through what the record keeps out.
    assert mixed["precision_hit_rule_alone"] < mixed["precision_after"]


def test_a_second_demo_in_the_same_folder_has_nothing_to_do(careful):
    """It says so without a step; where a file was changed, the steps are repeated and give the same report."""
    folder, counts, _, n_images = careful
    page = (folder / "report.html").read_bytes()
    said: list[str] = []

    again = demo(folder, n_images=n_images, population="careful", say=said.append)

    assert (again.status, again.counts, said) == ("nothing_to_do", counts, [])
    assert again.lines[-1].startswith("nothing to do: the demo is complete")

    (folder / "report.html").write_text("not the report")
    mended = demo(folder, n_images=n_images, population="careful", say=said.append)

    assert (folder / "report.html").read_bytes() == page
    assert mended.counts == counts
    assert [line.split()[2] for line in said if line.startswith("$")] == ["report"]


def test_the_release_scores_alike_in_the_reference_library(careful):
    """eccv_caption's Metrics loads the release's JSONs by path and gives each annotator our scores."""
    eccv_caption = pytest.importorskip("eccv_caption")
    import pyarrow.parquet as pq

    folder = careful[0]
    release = folder / "release"
    reference = eccv_caption.Metrics()
    reference.set_eccv_gts(str(release / "image_to_caption.json"), str(release / "caption_to_image.json"))
    ours = json.loads((folder / "runs" / "evaluation" / "scores.json").read_text())["release"]

    for name in MINIS:
        rankings: dict[str, dict[int, list[int]]] = {}
        for direction in Direction:
            (path,) = (folder / "runs" / "evaluation").glob(f"*/{name}.{direction}.parquet")
            lists = defaultdict(list)
            table = pq.read_table(path)
            for query, item in zip(table["query_id"].to_pylist(), table["item_id"].to_pylist(), strict=True):
                lists[query].append(item)
            rankings[direction.value] = lists
        theirs = reference.eccv_metrics(rankings, "all")
        for direction in Direction:
            found = {metric: one["value"] for metric, one in ours[name][direction.value].items()}
            assert found["mAP@R"] == pytest.approx(theirs["eccv_map_at_r"][direction.value], abs=1e-12)
            assert found["R-Precision"] == pytest.approx(
                theirs["eccv_rprecision"][direction.value], abs=1e-12
            )
            assert found["R@1"] == pytest.approx(theirs["eccv_r1"][direction.value], abs=1e-12)


def test_the_command_tells_the_five_numbers_and_where_the_report_is(careful):
    """`mitl demo` as a newcomer sees it, and whoever calls it again; --json gives the same numbers to machines.

    Where the mark of a complete one is gone, each step looks again, and the command tells what was made again.
    """
    folder, counts, _, n_images = careful
    same = "demo", folder, "--workers", "careful", "--n-images", n_images
    (folder / "runs" / MARK).unlink()
    (folder / "report.html").unlink()
    said = ok(*same).out
    marked = (folder / "runs" / MARK).stat().st_mtime_ns

    assert "$ mitl report" in said
    assert_told(said, folder)
    assert_told(ok(*same).out, folder)
    assert ok(*same, "--json").json["counts"] == counts
    assert (folder / "runs" / MARK).stat().st_mtime_ns == marked  # no step looked again
    assert {"pairs", "judgements", "positives", "recall_after", "precision_after"} <= counts.keys()
