"""The answers of a release as grades: nDCG@10 and Kendall's tau-b of a project's annotators."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
from cli_kit import fails, mitl, ok
from evaluate_kit import write_similarities
from world_kit import ANNOTATORS, make_world, run_build, run_propose, work_until_done

from annotators.base import inner_products
from annotators.precomputed import PrecomputedEmbeddings
from mitl.metrics.graded import FOUR_GRADES, GradedLabels, kendall


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small generated world with a release of scripted workers' answers."""
    folder = tmp_path_factory.mktemp("graded")
    settings = make_world(folder, n_images=12)
    run_propose(settings, image_queries=3, caption_queries=4)
    work_until_done(settings)
    run_build(settings)
    return folder


def test_the_answers_of_a_release_grade_annotators(folder, monkeypatch):
    """tau-b is that of the embeddings' own products with the grades, query by query."""
    monkeypatch.chdir(folder)
    words = ("evaluate", "--release", "release", "--graded", "--no-intervals", "--json")

    scores = ok(*words).json["counts"]["scores"]["graded-release"]

    assert set(scores) == set(ANNOTATORS)
    rows = [
        row
        for name in ("positives", "negatives")
        for row in pq.read_table(folder / "release" / f"{name}.parquet").to_pylist()
        if row["label"] is not None
    ]
    images, captions = (np.load(folder / f"near-{side}.npz") for side in ("images", "captions"))
    image_row, caption_row = (
        {int(one): row for row, one in enumerate(side["ids"])} for side in (images, captions)
    )
    ids = np.array([[int(row["image_id"]), int(row["caption_id"])] for row in rows])
    labels = GradedLabels.from_pairs(
        ids[:, 0], ids[:, 1], np.array([FOUR_GRADES[row["label"]] for row in rows])
    )
    table = inner_products(images["embedding"], captions["embedding"])
    similarities = [
        table[image_row[query], caption_row[item]]
        for query, item in zip(labels.query_ids[labels.rows].tolist(), labels.item_ids.tolist(), strict=True)
    ]
    expected = kendall(labels, np.array(similarities)).estimate
    assert scores["near"]["i2t"]["Kendall tau-b"] == pytest.approx(expected)
    assert 0 < scores["near"]["i2t"]["nDCG@10"] <= 1


def test_similarities_of_another_shape_are_refused_with_the_annotator(folder, monkeypatch):
    """An added annotator may get them wrong, though its vectors are right."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(
        PrecomputedEmbeddings, "similarities", lambda self, queries, gallery: np.zeros((2, 3))
    )
    words = ("evaluate", "--annotator", "near", "--release", "release", "--graded", "--no-intervals")

    assert "annotator 'near' gave similarities (2, 3) for " in fails(1, *words)


def test_a_direction_whose_queries_have_one_graded_item_each_has_no_tau(tmp_path, monkeypatch):
    """As where only images were asked about: nDCG and the other direction are scored all the same."""
    monkeypatch.chdir(tmp_path)
    ratings = tmp_path / "ratings"
    ratings.mkdir()
    rows = ("1,10,5,x", "2,10,3,x", "3,20,4,x", "4,20,1,x")
    (ratings / "sits_val.csv").write_text(
        "\n".join(("caption,image,agg_score,sampling_method", *rows)) + "\n"
    )
    model = write_similarities(tmp_path, "npz")

    found = ok(
        "evaluate", "--model", f"m={model}", "--cxc", "ratings", "--graded", "--no-intervals", "--json"
    )

    graded = found.json["counts"]["scores"]["graded-cxc"]["m"]
    assert {way: set(values) for way, values in graded.items()} == {
        "i2t": {"nDCG@10", "Kendall tau-b"},
        "t2i": {"nDCG@10"},
    }


def test_grades_need_something_graded(folder, monkeypatch):
    """Neither a release nor CxC: said in one line."""
    monkeypatch.chdir(folder)

    assert "give --release DIR or --cxc FOLDER" in mitl("evaluate", "--graded").error
