"""What `mitl evaluate` says about files that will not do: one clear line, exit status 1 or 2, nothing written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_kit import mitl
from evaluate_kit import (
    CAPTIONS,
    I2T,
    IMAGES,
    SIMILARITIES,
    T2I,
    fails,
    vectors,
    write_embeddings,
    write_release,
    write_similarities,
)

EMBEDDINGS = ("--image-embeddings", "images.npz", "--caption-embeddings", "captions.npz")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder with a release and sound files beside it: no project."""
    monkeypatch.chdir(tmp_path)
    write_release(tmp_path / "release")
    write_embeddings(tmp_path, "npz")
    write_embeddings(tmp_path, "npy")
    write_similarities(tmp_path, "npz")
    return tmp_path


def against_release(*words, status=1):
    return fails(status, *words, "--release", "release")


def json_rankings(way, lists):
    Path(f"x.{way}.json").write_text(json.dumps(lists))
    return ("--rankings", f"x.{way}.json", "--direction", way)


def test_an_image_without_an_embedding_is_named(place):
    """How many lack, and the first of them."""
    np.savez(place / "images.npz", ids=np.array(IMAGES[:2]), embedding=SIMILARITIES[:2])
    np.savez(place / "whole.npz", similarities=SIMILARITIES, image_ids=IMAGES, caption_ids=CAPTIONS)

    message = against_release("--model", "a=whole.npz", "--model", "b=images.npz,captions.npz")

    assert "lacks 1 of 3 images; first: '30'" in message


def test_a_doubled_id_is_named(place):
    """In embeddings, in similarities and among the queries of rankings."""
    np.savez(place / "images.npz", ids=np.array([10, 20, 20]), embedding=SIMILARITIES)
    np.savez(place / "twice.npz", similarities=SIMILARITIES, image_ids=IMAGES, caption_ids=[1, 2, 3, 3])
    np.savez(place / "x.i2t.npz", query_ids=[10, 20, 20], item_ids=[I2T[10], I2T[20], I2T[30]])

    assert "has id '20' twice" in against_release(*EMBEDDINGS)
    assert "caption id '3' twice" in against_release("--similarities", "twice.npz")
    assert "query 20" in against_release("--rankings", "x.i2t.npz", "--direction", "i2t")


def test_an_item_ranked_twice_is_named(place):
    """It would be rewarded twice."""
    assert "query 10" in (message := against_release(*json_rankings("i2t", {**I2T, 10: [1, 2, 1, 3]})))
    assert "names item 1 twice" in message


def test_a_missing_direction_is_named(place):
    """With what would do: the other file, or --direction."""
    words = json_rankings("i2t", I2T)[:2]

    assert "no rankings t2i; give their file too, or --direction i2t" in against_release(*words)


def test_a_query_without_a_ranking_is_named(place):
    """By its own id."""
    assert "query 30 has no ranking" in against_release(
        *json_rankings("i2t", {query: items for query, items in I2T.items() if query != 30})
    )


def test_a_list_shorter_than_k_or_r_is_refused_with_its_query(place):
    """The lists may differ in length: it is the short one that is named."""
    message = against_release(*json_rankings("i2t", {**I2T, 20: [3]}), "--metrics", "R@2")

    assert "query 20" in message and "--short zero" in message


def test_a_similarity_that_is_no_number_is_named(place):
    """By its image and its caption."""
    broken = SIMILARITIES.copy()
    broken[1, 2] = np.nan
    np.savez(place / "nan.npz", similarities=broken, image_ids=IMAGES, caption_ids=CAPTIONS)
    np.savez(place / "images.npz", ids=np.array(IMAGES), embedding=broken)

    assert "image 20 and caption 3" in (message := against_release("--similarities", "nan.npz"))
    assert "NaN" in message
    broken[1, 2] = np.inf
    np.savez(place / "inf.npz", similarities=broken, image_ids=IMAGES, caption_ids=CAPTIONS)
    assert "image 20 and caption 3" in (message := against_release("--similarities", "inf.npz"))
    assert "infinite" in message and "-inf if the pair has no similarity" in message
    broken[1, 2] = -np.inf
    np.savez(place / "none.npz", similarities=broken, image_ids=IMAGES, caption_ids=CAPTIONS)
    assert mitl("evaluate", "--release", "release", "--similarities", "none.npz").status == 0
    assert "not finite; first: '20'" in against_release(*EMBEDDINGS)


@pytest.mark.parametrize("several", [False, True])
def test_an_embedding_whose_products_leave_float32_is_named(place, several):
    """They would all be infinite, so that ids alone ranked them; cosines are as good as ever."""
    long = SIMILARITIES * np.array([[1.0], [1e20], [1.0]])
    captions = np.eye(SIMILARITIES.shape[1])
    for name, ids, rows in (("images.npz", IMAGES, long), ("captions.npz", CAPTIONS, captions)):
        np.savez(place / name, ids=np.array(ids), embedding=np.stack([rows, rows], 1) if several else rows)

    assert "the embedding of image 20 in 'images.npz' is longer than 1e+19" in against_release(*EMBEDDINGS)
    assert mitl("evaluate", "--release", "release", *EMBEDDINGS, "--similarity", "cosine").status == 0


def test_embeddings_of_unequal_width_are_refused(place):
    """With both widths."""
    np.savez(place / "captions.npz", ids=np.array(CAPTIONS), embedding=np.ones((4, 3), np.float32))

    assert "differ in width: images 4, captions 3" in against_release(*EMBEDDINGS)


def test_ids_that_spell_no_id_of_the_set_are_shown_beside_one(place):
    """A file name in an integer's place: both forms are quoted."""
    names = np.array([f"COCO_val2014_{image:012d}.jpg" for image in IMAGES])
    np.savez(place / "images.npz", ids=names, embedding=SIMILARITIES)

    message = fails(1, *EMBEDDINGS, "--official", "eccv")

    assert "ids are compared as texts: the set's look like '42', the file's like 'COCO_val2014_" in message


def test_queries_of_a_release_that_the_model_lacks_are_counted(place):
    """How many, the first, and one id of each where none fits."""
    np.savez(place / "few.npz", similarities=SIMILARITIES[:2], image_ids=IMAGES[:2], caption_ids=CAPTIONS)
    np.savez(place / "named.npz", similarities=SIMILARITIES, image_ids=["a", "b", "c"], caption_ids=CAPTIONS)

    few, named = (against_release("--similarities", file) for file in ("few.npz", "named.npz"))

    assert "1 of the 3 images that release lists as queries are not among the 2 searched; first: '30'" in few
    assert "the set's look like '10', the file's like 'a'" in named


def test_rankings_of_nothing_in_the_release_are_refused(place):
    """Items under other ids would all be misses, and score 0 without a word."""
    foreign = {query: [item + 500 for item in items] for query, items in I2T.items()}

    message = against_release(*json_rankings("i2t", foreign))

    assert "ranks none of the 4 captions of the release" in message
    assert "the set's look like '1', the file's like '501'" in message


def test_a_query_that_a_json_ranks_twice_is_named(place):
    """A reader of JSON keeps the last one silently."""
    (place / "x.i2t.json").write_text('{"10": [1, 2, 3, 4], "20": [3], "10": [4, 3, 2, 1]}')

    message = against_release("--rankings", "x.i2t.json", "--direction", "i2t")

    assert "ranks for query 10 twice" in message


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_an_embedding_of_zeros_alone_is_named(place, similarity, several):
    """Under every similarity; one of several vectors of an item may be zero."""
    images, captions = (side[:, None].repeat(1 + several, axis=1) if several else side for side in vectors())
    images = images.copy()
    if several:
        images[0, 0] = 0
    images[1] = 0
    np.savez(place / "images.npz", ids=np.array(IMAGES), embedding=images)
    np.savez(place / "captions.npz", ids=np.array(CAPTIONS), embedding=captions)

    message = against_release(*EMBEDDINGS, "--similarity", similarity)

    assert "the embeddings of 1 of 3 images in 'images.npz' are all zeros; first: '20'; encode" in message


def test_ranked_items_outside_the_gallery_are_named(place):
    """Beside a model that says what the gallery is."""
    (place / "x.i2t.json").write_text(json.dumps({**I2T, 10: [1, 2, 3, 99]}))
    (place / "x.t2i.json").write_text(json.dumps(T2I))

    message = against_release("--model", "a=similarities.npz", "--model", "b=x.i2t.json,x.t2i.json", status=1)

    assert "ranks 1 captions that are not in the gallery of 4; first: '99'" in message


@pytest.mark.parametrize(
    ("status", "words", "named"),
    [
        (1, ("--image-embeddings", "gone.npy", "--caption-embeddings", "captions.npy"), "no file 'gone.npy'"),
        (1, ("--similarities", "gone.npz"), "no file 'gone.npz'"),
        (1, ("--rankings", "gone.json"), "no file 'gone.json'"),
        (1, ("--model", "a=gone.npz"), "no file 'gone.npz'"),
        (1, ("--similarities", "images.npz"), "lacks the array 'similarities'; it holds ids, embedding"),
        (1, ("--similarities", "images.npy"), "no ids beside it"),
        (1, ("--rankings", "images.npz"), "lacks the arrays query_ids and item_ids"),
        (1, ("--image-embeddings", "similarities.npz", "--caption-embeddings", "captions.npz"), "'ids'"),
        (
            2,
            ("--image-embeddings", "images.npz"),
            "--release compares images with captions, but embeddings holds images alone",
        ),
        (2, (*EMBEDDINGS, "--similarities", "similarities.npz"), "--model NAME=FILE[,FILE]"),
        (2, ("--model", "images.npz"), "'images.npz' names no model"),
        (
            2,
            ("--model", "a=images.npz"),
            "write 'a=images.npz,' for images alone, 'a=,images.npz' for captions alone",
        ),
        (2, ("--model", "a=images.npy"), "beside its .npy in NAME.image_ids.txt"),
        (2, ("--model", "a=images.npz,similarities.npz,captions.npz"), "names no model"),
        (2, ("--model", "a=similarities.npz", "--model", "a=similarities.npz"), "two models are called 'a'"),
        (2, ("--model", "a=similarities.npz", "--name", "b"), "--model names its own"),
        (2, (*EMBEDDINGS, "--metrics", "R@0"), "no metric called 'R@0'; known: R@K for any K"),
        (2, (*EMBEDDINGS, "--against", "other"), "scored are: embeddings"),
        (2, (*EMBEDDINGS, "--against", "embeddings"), "needs a second model"),
        (2, (*EMBEDDINGS, "--samples", "0"), "'--samples'"),
        (2, (*EMBEDDINGS, "--samples", "9", "--no-intervals"), "--samples is about intervals and tests"),
        (
            2,
            ("--similarities", "similarities.npz", "--similarity", "dot"),
            "--similarity is about embeddings",
        ),
        (2, (*EMBEDDINGS, "--short", "minus-one"), "'--short'"),
        (1, (*EMBEDDINGS, "--cxc", "gone"), "no folder 'gone'"),
        (1, (*EMBEDDINGS, "--cxc", "release"), "'release' is not a folder of ratings"),
        (2, (*EMBEDDINGS, "--graded"), "without grades; leave --graded out"),
    ],
)
def test_a_wrong_word_or_file_is_named(place, status, words, named):
    """The line quotes what was found and says what would be right."""
    assert named in against_release(*words, status=status)


def test_nothing_to_score_against_is_said(place):
    """Outside a project a set must be named; an unknown one is answered with the known."""
    assert "--release DIR, --official all" in fails(2, *EMBEDDINGS)
    assert "known: original, cxc, eccv, original-1k, all" in fails(2, *EMBEDDINGS, "--official", "coco")
    assert "'gone'" in fails(1, *EMBEDDINGS, "--release", "gone")
    assert "mitl init" in fails(1, "--release", "release") or "no project" in fails(1, "--release", "release")


def test_a_matrix_of_another_shape_is_refused(place):
    """A turned one with a hint."""
    np.savez(place / "turned.npz", similarities=SIMILARITIES.T, image_ids=IMAGES, caption_ids=CAPTIONS)
    np.savez(place / "flat.npz", similarities=SIMILARITIES[0], image_ids=IMAGES, caption_ids=CAPTIONS)
    np.savez(place / "words.npz", similarities=np.array([["a"]]), image_ids=[1], caption_ids=[1])

    assert "turn the matrix: a row is an image" in against_release("--similarities", "turned.npz")
    assert "of shape (4,)" in against_release("--similarities", "flat.npz")
    assert "real numbers" in against_release("--similarities", "words.npz")


def test_rankings_without_a_direction_in_file_or_name_are_refused(place):
    """The line shows a name that would do."""
    (place / "mine.json").write_text(json.dumps(I2T))

    assert "call it 'mine.i2t.json'" in against_release("--rankings", "mine.json")


def test_broken_ranking_files_are_named(place):
    """No JSON, no lists, ranks with a hole, cut-off Parquet, ids or metadata that are no UTF-8, dates, pickles."""
    (place / "a.i2t.json").write_text("{")
    (place / "j.i2t.json").write_text("[" * 100_000)
    (place / "b.i2t.json").write_text(json.dumps({10: 1}))
    (place / "c.i2t.json").write_text(json.dumps({10: [1.5]}))
    table = pa.table({"query_id": [10, 10], "rank": [1, 3], "item_id": [1, 2]})
    pq.write_table(table, place / "d.i2t.parquet")
    (place / "e.i2t.parquet").write_bytes((place / "d.i2t.parquet").read_bytes()[:-9])
    spoilt = table.set_column(0, "query_id", pa.array([b"\xff", b"1"]).view(pa.string()))
    pq.write_table(spoilt, place / "g.i2t.parquet")
    told = table.set_column(1, "rank", pa.array([1, 2])).replace_schema_metadata({b"dataset_sha256": b"\xff"})
    pq.write_table(told, place / "h.i2t.parquet")
    dated = table.set_column(0, "query_id", pa.array([10**18] * 2, pa.timestamp("us")))
    pq.write_table(dated, place / "i.i2t.parquet")
    np.save(place / "f.npy", np.array([{}], dtype=object), allow_pickle=True)
    (place / "f.npy").rename(place / "f.i2t.npz")
    named = {
        **dict.fromkeys(("a.i2t.json", "j.i2t.json"), "not valid JSON"),
        "b.i2t.json": "gives query 10 no list",
        "c.i2t.json": "holds 1.5",
        "d.i2t.parquet": "ranks of query 10",
        "e.i2t.parquet": "not readable as rankings in Parquet",
        "f.i2t.npz": "'f.i2t.npz'",
        **dict.fromkeys(
            ("g.i2t.parquet", "h.i2t.parquet", "i.i2t.parquet"), "not readable as rankings in Parquet"
        ),
    }
    for name, words in named.items():
        assert words in against_release("--rankings", name, "--direction", "i2t"), name
