"""Embeddings and rankings that were made elsewhere."""

from __future__ import annotations

import itertools
import re
from mmap import mmap

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotators import registry
from annotators.base import Annotator, RankingSource, best_inner_products, inner_products
from annotators.inputs.embedding_files import read_embeddings
from mitl.errors import AnnotatorError
from mitl.records import AnnotatorKind, CaptionItem, Direction, ImageItem
from mitl.records.forms import SET_FORMS

IMAGES = [ImageItem(1, "7"), ImageItem(2, "11"), ImageItem(3, "20")]
CAPTIONS = [CaptionItem(i, f"c{i}", 1, "a dot") for i in range(1, 5)]
GENERATOR = np.random.default_rng(3)
IMAGE_VECTORS = GENERATOR.normal(size=(3, 6)).astype(np.float32)
CAPTION_VECTORS = GENERATOR.normal(size=(4, 6)).astype(np.float32)

WATCHED = pa.proxy_memory_pool(pa.default_memory_pool())
"""Outlives the test that reads with it: Arrow's threads let go of memory after a reader has returned."""


def write_npz(path, ids, vectors):
    np.savez(path.with_suffix(".npz"), ids=np.array(ids), embedding=vectors)
    return path.with_suffix(".npz")


def write_npy(path, ids, vectors):
    np.save(path.with_suffix(".npy"), vectors)
    path.with_suffix(".ids.txt").write_text("\n".join(map(str, ids)) + "\n")
    return path.with_suffix(".npy")


def write_parquet(path, ids, vectors):
    pq.write_table(pa.table({"id": ids, "embedding": vectors.tolist()}), path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def build(tmp_path, write, **settings):
    """Embeddings in files whose order is not the items' order and which hold one image more."""
    order = [2, 0, 1]
    ids = [*(int(IMAGES[i].external_id) for i in order), 99]
    images = write(tmp_path / "images", ids, np.vstack([IMAGE_VECTORS[order], np.ones((1, 6), np.float32)]))
    captions = write(tmp_path / "captions", [item.external_id for item in CAPTIONS], CAPTION_VECTORS)
    config = {"embeddings": {"images": images.name, "captions": str(captions)}, **settings}
    return registry.build("mine", config, folder=tmp_path)


@pytest.mark.parametrize("write", [write_npz, write_npy, write_parquet])
def test_embeddings_come_back_by_external_id(tmp_path, write):
    """Every format gives each item its own row, whatever the file's order; relative paths start at the folder."""
    annotator = build(tmp_path, write)

    images, captions = annotator.encode_images(IMAGES), annotator.encode_captions(CAPTIONS)

    assert isinstance(annotator, Annotator)
    assert annotator.kind is AnnotatorKind.INNER_PRODUCT
    np.testing.assert_array_equal(images.arrays["embedding"], IMAGE_VECTORS)
    np.testing.assert_array_equal(captions.arrays["embedding"], CAPTION_VECTORS)
    expected = IMAGE_VECTORS.astype(np.float64) @ CAPTION_VECTORS.astype(np.float64).T
    np.testing.assert_allclose(annotator.similarities(images, captions), expected, rtol=1e-6)
    np.testing.assert_array_equal(
        annotator.similarities(captions, images), annotator.similarities(images, captions).T
    )


def test_ids_of_an_array_may_lie_anywhere(tmp_path):
    """image_ids and caption_ids name a text or an array; they are part of what rankings are keyed by."""
    np.save(tmp_path / "i.npy", IMAGE_VECTORS)
    np.save(tmp_path / "c.npy", CAPTION_VECTORS)
    (tmp_path / "images.txt").write_text("7\n11\n20\n")
    np.save(tmp_path / "captions.npy", np.array([item.external_id for item in CAPTIONS]))
    table = {"images": "i.npy", "captions": "c.npy", "image_ids": "images.txt", "caption_ids": "captions.npy"}

    first = registry.build("mine", {"embeddings": table}, folder=tmp_path)
    (tmp_path / "images.txt").write_text("20\n11\n7\n")
    second = registry.build("mine", {"embeddings": table}, folder=tmp_path)

    np.testing.assert_array_equal(first.encode_images(IMAGES).arrays["embedding"], IMAGE_VECTORS)
    np.testing.assert_array_equal(second.encode_images(IMAGES).arrays["embedding"], IMAGE_VECTORS[::-1])
    np.testing.assert_array_equal(first.encode_captions(CAPTIONS).arrays["embedding"], CAPTION_VECTORS)
    assert first.fingerprint != second.fingerprint


def test_an_array_in_the_items_order_stays_on_disk(tmp_path):
    """Rows that are asked for as they lie are a view of the file, so that a large one needs no memory."""
    np.save(tmp_path / "x.npy", IMAGE_VECTORS)
    (tmp_path / "x.ids.txt").write_text("7\n11\n20\n")

    found = registry.build("m", {"embeddings": {"images": "x.npy", "captions": "x.npy"}}, folder=tmp_path)

    rows = found.encode_images(IMAGES[:2]).arrays["embedding"]
    while rows.base is not None and not isinstance(rows, np.memmap):
        rows = rows.base
    assert isinstance(rows, np.memmap)


def test_other_columns_of_parquet_are_not_read(tmp_path):
    """Beside the embeddings a table of a data set often holds its pictures, which may be more than memory holds."""
    whole, pictures = pa.default_memory_pool(), pa.array([bytes(1 << 22)] * 2)
    pq.write_table(
        pa.table({"id": [1, 2], "embedding": [[1.0], [2.0]], "image": pictures}), tmp_path / "x.parquet"
    )
    pa.set_memory_pool(WATCHED)
    try:
        embedding = read_embeddings(tmp_path / "x.parquet").embedding
    finally:
        pa.set_memory_pool(whole)

    assert embedding.tolist() == [[1.0], [2.0]]
    assert 0 < WATCHED.max_memory() < 1 << 22


def test_parquet_may_hold_several_vectors_an_item(tmp_path):
    """A column of lists of lists is (N, K, D)."""
    vectors = GENERATOR.normal(size=(3, 2, 5)).astype(np.float32)
    path = write_parquet(tmp_path / "x", [7, 11, 20], vectors)

    found = registry.build("m", {"embeddings": {"images": str(path), "captions": str(path)}})

    np.testing.assert_array_equal(found.encode_images(IMAGES).arrays["embedding"], vectors)


def test_cosine_divides_by_the_lengths(tmp_path):
    """With similarity = "cosine" rows have length 1, and the fingerprint tells the two apart."""
    cosine, dot = build(tmp_path, write_npz, similarity="cosine"), build(tmp_path, write_npz)

    rows = cosine.encode_images(IMAGES).arrays["embedding"]

    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-6)
    assert cosine.fingerprint != dot.fingerprint


def test_several_vectors_an_item_compare_by_the_best_product(tmp_path):
    """(N, K, D) embeddings make a multi-vector annotator."""
    vectors = GENERATOR.normal(size=(3, 2, 5)).astype(np.float32)
    path = write_npz(tmp_path / "images", [7, 11, 20], vectors)

    annotator = registry.build("mine", {"embeddings": {"images": str(path), "captions": str(path)}})
    images = annotator.encode_images(IMAGES)

    assert annotator.kind is AnnotatorKind.MULTI_VECTOR
    expected = np.einsum("ikd,jld->ijkl", vectors, vectors).max(axis=(2, 3))
    np.testing.assert_allclose(annotator.similarities(images, images), expected, rtol=1e-5)


def owns_memory(array):
    """Whether it is an array of its own, and no view of a file's memory."""
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap) and array.base is not None:
        array = array.base
    return not isinstance(array, np.memmap | mmap)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_embeddings_in_half_precision_are_those_of_the_same_numbers_in_float32(similarity, tmp_path):
    """Read where they lie, in half precision; what they say of similarities are the same bytes."""
    half, found = {"i": IMAGE_VECTORS.astype(np.float16), "c": CAPTION_VECTORS.astype(np.float16)}, []
    for dtype in (np.float16, np.float32):
        for side, items in (("i", IMAGES), ("c", CAPTIONS)):
            write_npy(tmp_path / side, [item.external_id for item in items], half[side].astype(dtype))
        table = {"embeddings": {"images": "i.npy", "captions": "c.npy"}, "similarity": similarity}
        annotator = registry.build("m", table, folder=tmp_path)
        sides = annotator.encode_images(IMAGES), annotator.encode_captions(CAPTIONS)
        if similarity == "dot":
            assert all(side.arrays["embedding"].dtype == dtype for side in sides)
            assert not any(owns_memory(side.arrays["embedding"]) for side in sides)
        found.append(annotator.similarities(*sides).tobytes())

    assert found[0] == found[1]


@given(st.integers(1, 30), st.integers(1, 40), st.integers(1, 30), st.integers(0, 2**31))
def test_similarities_do_not_depend_on_the_block(rows, columns, cut, seed):
    """A block of rows and columns has the same bytes as the same part of the whole."""
    generator = np.random.default_rng(seed)
    queries = generator.normal(size=(rows, 2, 33)).astype(np.float32)
    gallery = generator.normal(size=(columns, 2, 33)).astype(np.float32)

    for product, q, g in (
        (inner_products, queries[:, 0], gallery[:, 0]),
        (best_inner_products, queries, gallery),
    ):
        np.testing.assert_array_equal(product(q, g)[:cut, :cut], product(q[:cut], g[:cut]))


def broken(tmp_path, ids, vectors):
    path = write_npz(tmp_path / "x", ids, vectors)
    return {"embeddings": {"images": str(path), "captions": str(path)}}


@pytest.mark.parametrize(
    ("ids", "vectors", "message"),
    [
        ([7, 7], np.ones((2, 3)), "has id '7' twice"),
        ([7], np.ones((2, 3)), "has 2 embeddings, but 1 ids"),
        (
            [7, 8],
            np.array([[1.0, np.nan], [1.0, 2.0]]),
            "of 1 of 2 images in .* are not finite; first: '7'; encode",
        ),
        ([7, 8], np.array([[1.0], [1e300]]), "not finite; first: '8'"),
        ([7, 8], np.ones(2), r"float64 of shape \(2,\); they should be numbers of shape \(N, D\)"),
        ([7, 8], np.array([["a"], ["b"]]), "they should be numbers"),
        ([7.5, 8], np.ones((2, 3)), "they should be a list of integers or texts"),
    ],
)
def test_malformed_embeddings_are_named(tmp_path, ids, vectors, message):
    """One line says what is wrong with the file."""
    with pytest.raises(AnnotatorError, match=message):
        registry.build("mine", broken(tmp_path, ids, vectors))


def test_missing_items_are_counted_and_the_first_named(tmp_path):
    """Images that the file lacks are reported when they are asked for."""
    annotator = build(tmp_path, write_npz)

    with pytest.raises(AnnotatorError, match="lacks 2 of 3 images; first: '5'"):
        annotator.encode_images([ImageItem(1, "5"), ImageItem(2, "6"), ImageItem(3, "7")])


def test_widths_of_the_two_sides_must_agree(tmp_path):
    """Embeddings of different networks do not mix."""
    images = write_npz(tmp_path / "i", [7], np.ones((1, 3)))
    captions = write_npz(tmp_path / "c", [7], np.ones((1, 4)))

    with pytest.raises(AnnotatorError, match=r"differ in shape: images \(3,\), captions \(4,\)"):
        registry.build("mine", {"embeddings": {"images": str(images), "captions": str(captions)}})


def test_an_array_with_spoiled_bytes_is_one_line(tmp_path):
    """Its head is parsed like a program's text, which can fail in other ways than a file."""
    path = tmp_path / "a.npy"
    (tmp_path / "a.ids.txt").write_text("1\n2\n")
    np.save(path, np.ones((2, 3), np.float32))
    raw, told = path.read_bytes(), 0
    for at, flip in itertools.product(range(len(raw)), (0x0F, 0xFF)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ flip]) + raw[at + 1 :])
        try:
            read_embeddings(path)
        except AnnotatorError as error:
            assert "\n" not in str(error)
            told += 1

    assert told > 10


def test_files_that_are_no_embeddings_are_refused(tmp_path):
    """Pickles, other suffixes, missing columns, missing ids and missing files give one line each."""
    np.save(tmp_path / "pickled.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "pickled.ids.txt").write_text("1\n")
    np.save(tmp_path / "bare.npy", np.ones((1, 2)))
    np.save(tmp_path / "scalar.npy", np.float32(1))
    (tmp_path / "scalar.ids.txt").write_text("1\n")
    np.save(tmp_path / "cut.npy", np.ones((100, 2)))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[:-1000])
    (tmp_path / "cut.ids.txt").write_text("".join(f"{n}\n" for n in range(100)))
    np.save(tmp_path / "one.npy", np.ones((1, 2)))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    np.savez(tmp_path / "archive.npz", ids=[1], embedding=np.ones((1, 2)))
    (tmp_path / "archive.npz").rename(tmp_path / "archive.npy")
    (tmp_path / "archive.ids.txt").write_text("1\n")
    np.savez(tmp_path / "other.npz", vectors=np.ones((1, 2)))
    (tmp_path / "text.npz").write_text("no archive")
    np.savez(tmp_path / "objects.npz", ids=np.array(["1"], object), embedding=np.ones((1, 2)))
    (tmp_path / "text.parquet").write_text("no table")
    pq.write_table(pa.table({"id": [1]}), tmp_path / "narrow.parquet")
    pq.write_table(pa.table({"id": [1, 2], "embedding": [[1.0], [1.0, 2.0]]}), tmp_path / "ragged.parquet")
    spoilt = pa.array([b"\xff"]).view(pa.string())
    pq.write_table(pa.table({"id": spoilt, "embedding": [[1.0]]}), tmp_path / "spoilt.parquet")
    (tmp_path / "x.csv").write_text("")
    expected = {
        "pickled.npy": "without pickles",
        "bare.npy": "has no ids beside it; write them to 'bare.ids.txt'",
        "scalar.npy": r"are float32 of shape \(\); they should be numbers",
        "cut.npy": "not readable as numpy data",
        "one.npz": "holds one array, not an archive; call it .npy",
        "archive.npy": "are a zip archive of arrays; they should be numbers",
        "other.npz": "lacks the array 'ids'; it holds vectors",
        "text.npz": "without pickles",
        "objects.npz": r"without pickles.*; save ids .* ids.astype\(str\)",
        "text.parquet": "not readable as Parquet",
        "spoilt.parquet": "not readable as Parquet",
        "narrow.parquet": "lacks the column 'embedding'; it holds id",
        "ragged.parquet": "should be lists of one length",
        "x.csv": "should end in .npy, .npz or .parquet",
        "absent.npz": "which is missing",
    }

    for name, message in expected.items():
        with pytest.raises(AnnotatorError, match=message):
            registry.build("m", {"embeddings": {"images": name, "captions": name}}, folder=tmp_path)


@pytest.mark.parametrize(
    "value", ["x.npz", {"images": "x.npz"}, {"images": "x", "captions": "x", "texts": "x"}]
)
def test_the_setting_must_name_both_sides_and_no_more(tmp_path, value):
    """A table with other keys is refused."""
    with pytest.raises(AnnotatorError, match="'embeddings' of annotator 'm'"):
        registry.build("m", {"embeddings": value}, folder=tmp_path)


ROWS = {
    "query_id": [20, 20, 20, 7, 7, 7],
    "rank": [1, 2, 3, 2, 1, 3],
    "item_id": ["c2", "c4", "c1", "c1", "c3", "c2"],
    "similarity": [0.9, 0.5, 0.5, 0.4, 0.8, -1.0],
}


def source(tmp_path, **columns):
    pq.write_table(pa.table({**ROWS, **columns}), tmp_path / "r.parquet")
    return registry.build("theirs", {"rankings": {"i2t": "r.parquet"}}, folder=tmp_path)


def test_a_ranking_comes_back_by_surrogate_id_and_in_order(tmp_path):
    """Integers and texts are looked up as external ids, rows sorted by rank, equal similarities by id."""
    rankings = source(tmp_path)

    found = rankings.ranking(Direction.I2T, IMAGES, CAPTIONS, [1, 3], 2)

    assert isinstance(rankings, RankingSource)
    assert rankings.kind is AnnotatorKind.RANKING
    assert found.query_ids.tolist() == [1, 3]
    assert found.item_ids.tolist() == [[3, 1], [2, 1]]
    np.testing.assert_array_equal(found.similarities, np.array([[0.8, 0.4], [0.9, 0.5]], np.float32))


def test_similarities_that_float32_cannot_tell_apart_order_items(tmp_path):
    """Kept are float32, but the file's own numbers say who is among the best."""
    rankings = source(tmp_path, similarity=[1, 1 - 1e-9, 1 - 2e-9, 0.5, 0.6, 0.4])

    found = rankings.ranking(Direction.I2T, IMAGES, CAPTIONS, [3], 2)

    assert found.item_ids.tolist() == [[2, 4]]
    assert found.similarities.tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("columns", "query_ids", "depth", "message"),
    [
        ({}, [2], 1, "has no ranking of query '11'"),
        ({}, [1], 4, "has 3 items, but the depth is 4"),
        ({"item_id": ["c9"] * 6}, [1], 1, "names item 'c9', which is not in the data set"),
        ({"item_id": ["c1"] * 6}, [1], 1, "has an item twice"),
        ({"rank": [0, 1, 2, 0, 1, 2]}, [1], 1, "ranks that do not count 1, 2, 3"),
        ({"similarity": [0.1, 0.2, 0.3, 0.1, 0.2, 0.3]}, [3], 1, "similarities that rise with the rank"),
        ({"similarity": [np.inf] * 6}, [1], 1, "not finite"),
        ({"similarity": [None] * 6}, [1], 1, "empty cells in the column 'similarity'"),
        ({"rank": ["first"] * 6}, [1], 1, "not readable as a ranking"),
    ],
)
def test_a_ranking_that_cannot_be_is_named(tmp_path, columns, query_ids, depth, message):
    """One line says which query and what is wrong."""
    with pytest.raises(AnnotatorError, match=message):
        source(tmp_path, **columns).ranking(Direction.I2T, IMAGES, CAPTIONS, query_ids, depth)


def test_a_direction_without_a_file_cannot_be_asked(tmp_path):
    """A ranking of one direction says so when the other is asked for."""
    with pytest.raises(AnnotatorError, match="'theirs' has no ranking file for the direction 't2i'"):
        source(tmp_path).ranking(Direction.T2I, IMAGES, CAPTIONS, [1], 1)


def test_a_folder_of_rankings_is_searched_by_name(tmp_path):
    """NAME.i2t.parquet and plain t2i.parquet are both found; an empty folder is an error."""
    pq.write_table(pa.table(ROWS), tmp_path / "theirs.i2t.parquet")
    back = {"query_id": ["c1"], "rank": [1], "item_id": ["11"], "similarity": [1.0]}
    pq.write_table(pa.table(back), tmp_path / "t2i.parquet")
    (tmp_path / "empty").mkdir()

    rankings = registry.build("theirs", {"rankings": str(tmp_path)})

    assert rankings.ranking(Direction.I2T, IMAGES, CAPTIONS, [1], 1).item_ids.tolist() == [[3]]
    assert rankings.ranking(Direction.T2I, IMAGES, CAPTIONS, [1], 1).item_ids.tolist() == [[2]]
    with pytest.raises(AnnotatorError, match=r"it should hold 'theirs\.i2t\.parquet'"):
        registry.build("theirs", {"rankings": str(tmp_path / "empty")})


def test_ids_that_do_not_match_are_told_with_one_of_each_side(tmp_path):
    annotator = build(tmp_path, write_npz, similarity="dot")
    with pytest.raises(
        AnnotatorError, match="lacks 1 of 1 images; first: 'img-7'; its own ids look like '20'"
    ):
        annotator.encode_images([ImageItem(1, "img-7")])


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("k", [None, 2])
@pytest.mark.parametrize("form", SET_FORMS.values(), ids=map("-".join, SET_FORMS))
def test_items_of_zeros_alone_are_refused(tmp_path, form, k, similarity):
    """Under every similarity: file, side, how many and the first ids. One of K vectors may be zero: padding."""
    shape = (5, 6) if k is None else (5, k, 6)
    vectors = np.ones(shape, np.float32)
    if k:
        vectors[0, 0] = 0
    left, right = form.nouns
    files = {
        left: str(write_npz(tmp_path / "left", [7, 11, 20, 21, 22], vectors)),
        right: str(write_npz(tmp_path / "right", ["c1"], np.ones((1, *shape[1:]), np.float32))),
    }
    config = {"embeddings": files, "similarity": similarity}
    registry.build("mine", config)

    vectors[1:] = 0
    write_npz(tmp_path / "left", [7, 11, 20, 21, 22], vectors)
    told = f"the embeddings of 4 of 5 {left} in {files[left]!r} are all zeros; first: '11', '20', '21'; encode these"
    with pytest.raises(AnnotatorError, match=re.escape(told)):
        registry.build("mine", config)
