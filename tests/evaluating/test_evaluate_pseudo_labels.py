"""`mitl evaluate --pseudo-labels`: models against the likeness of captions, by query and over rated pairs."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from cli_kit import ok
from evaluate_kit import fails
from rated_kit import IMAGES, SITS, TEXTS, write_captions, write_ratings, write_vectors
from scipy.stats import kendalltau, pearsonr

MODEL = ("--model", "near=images.npz,captions.npz")
LABELS = ("--captions", "captions.csv", "--pseudo-labels", "--label-embeddings", "captions.npz")
QUICK = ("--samples", "50", "--json")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder of ratings, captions and embeddings: no project."""
    monkeypatch.chdir(tmp_path)
    write_ratings(tmp_path / "ratings")
    write_captions(tmp_path / "captions.csv")
    write_vectors(tmp_path)
    return tmp_path


def tables():
    """(I, C) similarities and labels, one by one; an image's own captions all have 1."""
    images, captions = (np.load(f"{side}.npz")["embedding"].astype(float) for side in ("images", "captions"))
    unit = captions / np.linalg.norm(captions, axis=1, keepdims=True)
    owners = [caption.split("-")[0] for caption in TEXTS]
    labels = [
        [max(unit[own] @ one for own, owner in enumerate(owners) if owner == image) for one in unit]
        for image in IMAGES
    ]
    return images @ captions.T, np.round(labels, 6)


def test_every_query_is_compared_with_its_labels():
    """The means over images and over captions of tau-b and Pearson's correlation over the whole gallery."""
    similarities, labels = tables()

    found = ok("evaluate", *MODEL, *LABELS, *QUICK).json["counts"]

    scores = found["scores"]["pseudo-labels"]["near"]
    for way, one, other in (("i2t", similarities, labels), ("t2i", similarities.T, labels.T)):
        rows = list(zip(one, other, strict=True))
        assert scores[way]["Kendall tau-b"] == pytest.approx(
            np.mean([kendalltau(*row).statistic for row in rows]), abs=1e-9
        )
        assert scores[way]["Pearson"] == pytest.approx(
            np.mean([pearsonr(*row).statistic for row in rows]), abs=1e-5
        )
        assert set(found["intervals"]["pseudo-labels"]["near"][way]) == {"Kendall tau-b", "Pearson"}
    assert found["queries"]["pseudo-labels"] == {"i2t": 6, "t2i": 12}
    assert found["pseudo_labels"] is None


def test_a_query_without_a_similarity_is_left_out(place):
    """-inf says that a pair has none; the other queries keep their values."""
    similarities, labels = tables()
    similarities[0, 1] = -np.inf
    np.savez("some.npz", similarities=similarities, image_ids=IMAGES, caption_ids=list(TEXTS))

    found = ok("evaluate", "--model", "some=some.npz", *LABELS, *QUICK).json["counts"]

    assert found["queries"]["pseudo-labels"] == {"i2t": 5, "t2i": 11}
    rows = zip(similarities[1:], labels[1:], strict=True)
    expected = np.mean([pearsonr(*row).statistic for row in rows])
    assert found["scores"]["pseudo-labels"]["some"]["i2t"]["Pearson"] == pytest.approx(expected, abs=1e-5)


def test_rated_pairs_tell_how_good_labels_and_model_are():
    """Pearson's correlations over all rated pairs of an image and a caption."""
    similarities, labels = tables()
    place_of = {caption: place for place, caption in enumerate(TEXTS)}
    cells = [(IMAGES.index(image), place_of[caption]) for caption, image, *_ in SITS]
    scores = [score for _, _, score, _ in SITS]
    near, told = ([table[cell] for cell in cells] for table in (similarities, labels))

    found = ok("evaluate", *MODEL, *LABELS, "--cxc", "ratings", *QUICK).json["counts"]["pseudo_labels"]

    assert found["pairs"] == len(SITS)
    assert found["labels_with_scores"] == pytest.approx(pearsonr(told, scores).statistic, abs=1e-5)
    assert found["models"]["near"]["with_scores"] == pytest.approx(pearsonr(near, scores).statistic, abs=1e-5)
    assert found["models"]["near"]["with_labels"] == pytest.approx(pearsonr(near, told).statistic, abs=1e-5)


def test_two_models_are_tested_on_them_and_the_file_holds_them(place):
    """As on any other set."""
    (place / "other").mkdir()
    write_vectors(place / "other", seed=3)
    other = ("--model", "far=other/images.npz,other/captions.npz")

    found = ok("evaluate", *MODEL, *other, *LABELS, "--against", "near", "--csv", "out.csv", *QUICK).json[
        "counts"
    ]

    assert {(one["direction"], one["metric"]) for one in found["paired"]} == {
        (way, metric) for way in ("i2t", "t2i") for metric in ("Kendall tau-b", "Pearson")
    }
    with (place / "out.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["model"] == "far"]
    assert {row["metric"] for row in rows} == {"Kendall tau-b", "Pearson"}
    assert all(float(row["low"]) <= float(row["value"]) <= float(row["high"]) for row in rows)


def test_rankings_alone_have_neither(place):
    """They say which item is nearer, and not how much."""
    lists = {
        "i2t": {image: list(TEXTS) for image in IMAGES},
        "t2i": {caption: list(IMAGES) for caption in TEXTS},
    }
    (place / "ranked.json").write_text(json.dumps(lists))

    outcome = ok("evaluate", *MODEL, "--model", "ranked=ranked.json", *LABELS, *QUICK).json

    assert set(outcome["counts"]["scores"]["pseudo-labels"]) == {"near"}
    assert any("ranked has rankings alone" in line for line in outcome["warnings"])


@pytest.mark.parametrize(
    ("status", "words", "named"),
    [
        (2, (*MODEL, "--pseudo-labels"), "--pseudo-labels reads the captions' words; give --captions FILE"),
        (1, (*MODEL, *LABELS[:4], "gone.npz"), "no file 'gone.npz'"),
        (1, (*MODEL, *LABELS[:4], "images.npz"), "lacks 12 of 12 captions"),
        (2, ("--pseudo-labels", "--captions", "captions.csv"), "there is no model to score"),
    ],
)
def test_what_is_missing_is_named(status, words, named):
    """In one line."""
    assert named in fails(status, *words)
