"""CxC's ratings, the official positives, and exclusion lists."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mitl.datasets import official
from mitl.datasets.coco import read_compact
from mitl.datasets.cxc import positives, read_rated_pairs, read_raw_deviations, read_scored, read_sits
from mitl.datasets.exclusions import paper_exclusions, read_exclusions, resolve
from mitl.datasets.official import by_query, coco_test_ids, official_positives, read_positives
from mitl.errors import DatasetError
from mitl.records import Caption, Exclusion, ExclusionKind, IdKind, Image, Rating, RetrievalSet
from mitl.records.similarity import Likeness

needs_official = pytest.mark.skipif(
    find_spec("eccv_caption") is None, reason="the pip package eccv_caption is missing"
)
HEADER = "caption,image,agg_score,sampling_method\n"


def sits(tmp_path, *rows):
    path = tmp_path / "sits.csv"
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return path


def test_ratings_are_read_under_cocos_ids(tmp_path):
    """CxC's names become plain ids; the threshold itself is positive."""
    path = sits(
        tmp_path,
        "COCO_val2014:sentid:732091,COCO_val2014_000000365325.jpg,2.99,c2i_intrasim",
        "COCO_val2014:sentid:262300,COCO_val2014_000000369373.jpg,3.0,c2i_original",
        "COCO_val2014:sentid:21,COCO_val2014_000000000009.jpg,5,c2i_original",
    )
    ratings = read_sits(path)

    assert ratings[0] == Rating("365325", "732091", 2.99, "c2i_intrasim")
    assert positives(ratings) == [("9", "21"), ("369373", "262300")]
    assert positives(ratings, threshold=4.5) == [("9", "21")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (f"COCO_val2014:sentid:{'1' * 5000},COCO_val2014_000000365325.jpg,2,x", "CxC writes captions as"),
        (
            "732091,COCO_val2014_000000365325.jpg,2,x",
            "row 2 .* names '732091' as its caption; CxC writes captions as",
        ),
        ("COCO_val2014:sentid:1,365325.jpg,2,x", "row 2 .* names '365325.jpg'"),
        (
            "COCO_val2014:sentid:1,COCO_val2014_000000365325.jpg,5.01,x",
            "score '5.01', but scores go from 0 to 5",
        ),
        ("COCO_val2014:sentid:1,COCO_val2014_000000365325.jpg,nan,x", "score 'nan'"),
        ("COCO_val2014:sentid:1,COCO_val2014_000000365325.jpg,,x", "score ''"),
        ("COCO_val2014:sentid:9,COCO_val2014_000000000009.jpg,2,x", "pair id '9 × 9' comes twice"),
    ],
)
def test_bad_ratings_are_refused(tmp_path, row, message):
    """The row at fault is named with what it says."""
    path = sits(tmp_path, "COCO_val2014:sentid:9,COCO_val2014_000000000009.jpg,2,x", row)

    with pytest.raises(DatasetError, match=message):
        read_sits(path)


def test_ratings_of_another_kind_are_refused(tmp_path):
    """CxC's file of caption pairs is not one of image-caption pairs."""
    path = tmp_path / "sts.csv"
    path.write_text("caption1,caption2,agg_score,sampling_method\n")

    with pytest.raises(DatasetError, match="no column 'caption'"):
        read_sits(path)
    with pytest.raises(DatasetError, match="holds no rows; it should hold CxC SITS scores"):
        read_sits(sits(tmp_path))


@needs_official
@pytest.mark.shared
def test_cxc_positives_are_the_official_ones_exactly(shared_data):
    """From the public ratings: 35,585 pairs, 5,000 images, 24,972 captions, equal in both directions."""
    ours = by_query(positives(read_sits(shared_data / "cxc" / "sits_test.csv")))
    theirs = official_positives("cxc")

    assert (len(ours.pairs()), len(ours.image_to_caption), len(ours.caption_to_image)) == (35585, 5000, 24972)
    for mine, official_ones in (
        (ours.image_to_caption, theirs.image_to_caption),
        (ours.caption_to_image, theirs.caption_to_image),
    ):
        assert {query: set(items) for query, items in mine.items()} == {
            query: set(items) for query, items in official_ones.items()
        }


@needs_official
@pytest.mark.parametrize(
    ("which", "images", "captions", "i2t", "t2i"),
    [
        ("original", 5000, 25000, 25000, 25000),
        ("cxc", 5000, 24972, 35585, 35585),
        ("eccv", 1261, 1332, 22550, 11279),
    ],
)
def test_official_positives_have_the_published_counts(which, images, captions, i2t, t2i):
    """Queries and positives of each direction, as published."""
    found = official_positives(which)

    assert (len(found.image_to_caption), len(found.caption_to_image)) == (images, captions)
    assert sum(map(len, found.image_to_caption.values())) == i2t
    assert sum(map(len, found.caption_to_image.values())) == t2i


@needs_official
def test_official_caption_ids_are_the_captions_of_the_original_positives():
    """25,000 ids, each the caption of one image."""
    ids = coco_test_ids()

    assert len(ids) == 25000
    assert set(ids) == set(official_positives("original").caption_to_image)


def test_union_of_both_directions():
    """A pair counts whichever direction lists it."""
    found = official.OfficialPositives({"1": ("10", "11")}, {"12": ("1", "2")})

    assert found.pairs() == {("1", "10"), ("1", "11"), ("1", "12"), ("2", "12")}
    assert by_query([("1", "10"), ("1", "11"), ("2", "10")]) == official.OfficialPositives(
        {"1": ("10", "11"), "2": ("10",)}, {"10": ("1", "2"), "11": ("1",)}
    )


def test_missing_package_names_the_extra(monkeypatch):
    """Without eccv_caption the message says what to install."""
    monkeypatch.setattr(official, "PACKAGE", "no_such_package")

    with pytest.raises(DatasetError, match=r"pip install 'mitl\[official\]'"):
        official_positives("eccv")


def test_unknown_official_set_is_refused():
    """The known names are listed."""
    with pytest.raises(DatasetError, match="known: original, cxc, eccv"):
        official_positives("pmrp")


def test_paper_list_has_its_three_parts():
    """18 meaningless captions, 14 wrong pairs, one duplicate image."""
    entries = paper_exclusions()
    kinds = [entry.kind for entry in entries]

    assert [kinds.count(kind) for kind in ExclusionKind] == [18, 14, 0, 1]
    assert (
        Exclusion(
            ExclusionKind.CAPTION, None, "462530", "says nothing of any picture", "ECCV Caption, appendix C.1"
        )
        in entries
    )
    assert entries[-1].image_external_id == "578492"


@pytest.mark.shared
def test_paper_list_resolves_on_the_real_split(shared_data):
    """Every entry is of the test split, and wrong captions get their own image."""
    data = read_compact(shared_data / "coco_karpathy_test_captions" / "captions.parquet")
    entries = resolve(paper_exclusions(), data)
    own = {caption.external_id: caption.image_external_id for caption in data.captions}
    wrong = {e.caption_external_id: e.image_external_id for e in entries if e.kind is ExclusionKind.PAIR}

    assert len(entries) == 33
    assert wrong["359139"] == "204640"
    assert all(own[caption] == image for caption, image in wrong.items())


DATA = RetrievalSet(
    "small",
    "table",
    IdKind.INTEGER,
    (Image("1"), Image("2")),
    (Caption("10", "1", "a"), Caption("20", "2", "b")),
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"1": [2.5]}', "2.5 stands where an id should be"),
        ('{"1": [Infinity]}', "inf stands where an id should be"),
        ('{"1": "23"}', "'23' stands where a list of ids should be"),
        ('{"1": [2], "01": [3]}', "query id '1' comes twice"),
        ("[1]", "malformed .* it should hold lists of item ids by query id"),
    ],
)
def test_positives_that_would_be_read_otherwise_are_refused(tmp_path, content, message):
    """A fraction is not cut, a text is not taken for its digits, and no list hides another."""
    (tmp_path / "p.json").write_text(content)
    with pytest.raises(DatasetError, match=message):
        read_positives(tmp_path / "p.json")


def exclusions(tmp_path, *rows):
    path = tmp_path / "mine.csv"
    path.write_text("kind,image_id,caption_id,reason\n" + "".join(f"{row}\n" for row in rows))
    return path


def test_own_lists_are_read_and_resolved(tmp_path):
    """A pair may name any image; without one it means the caption's own."""
    path = exclusions(tmp_path, "caption,,10,empty", "pair,2,10,", "pair,,20,no", "image,1,,twice")
    entries = resolve(read_exclusions(path), DATA)

    assert [(e.kind, e.image_external_id, e.caption_external_id, e.reason) for e in entries] == [
        ("caption", None, "10", "empty"),
        ("pair", "2", "10", ""),
        ("pair", "2", "20", "no"),
        ("image", "1", None, "twice"),
    ]
    assert {entry.source for entry in entries} == {"mine.csv"}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["captions,,10,"], "row 1 .* has the kind 'captions'; known: caption, pair, wrong, image"),
        (["pair,2,,"], "row 1 .* is of the kind 'pair', but has no caption_id"),
        (["image,,10,"], "row 1 .* is of the kind 'image', but has no image_id"),
        (["pair,2,10,", "pair,2,10,again"], "row 2 .* repeats an earlier entry"),
        (["image,2.0,,"], "row 1 .* has image_id 2.0, a number with a fraction or power"),
        (["pair,nan,10,"], "row 1 .* has no image_id: 'nan' stands for a missing one"),
    ],
)
def test_bad_lists_are_refused(tmp_path, rows, message):
    """Each fault of a list has its line."""
    with pytest.raises(DatasetError, match=message):
        read_exclusions(exclusions(tmp_path, *rows))


def test_an_image_under_another_name_is_not_taken_for_the_captions_own(tmp_path):
    """A pair without an image means the caption's own, so one that only seems to have none is refused."""
    path = tmp_path / "list.csv"
    path.write_text("kind,image,caption_id,note\npair,2,10,x\n")
    with pytest.raises(DatasetError, match=r"row 1 .* names an image as its image; call the column image_id"):
        read_exclusions(path)


def test_entries_of_unknown_ids_are_refused_or_left_out(tmp_path):
    """A typing slip in one's own list must not pass; a published list may be of a larger data set."""
    unknown_caption = read_exclusions(exclusions(tmp_path, "caption,,99,"))
    unknown_image = read_exclusions(exclusions(tmp_path, "image,9,,"))

    with pytest.raises(DatasetError, match=r"'mine\.csv' names caption '99', which is not in 'small'"):
        resolve(unknown_caption, DATA)
    with pytest.raises(DatasetError, match="names image '9'"):
        resolve(unknown_image, DATA)
    assert resolve([*unknown_caption, *unknown_image], DATA, strict=False) == []


def test_a_release_of_other_items_is_read_under_their_own_ids(tmp_path):
    """Ids of any letters, commas among them; integers stay in the order of their values."""
    path = sits(tmp_path, 'p2 c1,"2, left.jpg",3.5,c2i_original', "p1 c9,1.jpg,2.0,c2i_intrasim")
    ratings = read_sits(path)
    plain = positives(read_sits(sits(tmp_path, "21,10,3,x", "3,9,3,x")))

    assert ratings[0] == Rating("2, left.jpg", "p2 c1", 3.5, "c2i_original")
    assert positives(ratings, 0) == [("1.jpg", "p1 c9"), ("2, left.jpg", "p2 c1")]
    assert plain == [("9", "3"), ("10", "21")]
    pairs = read_rated_pairs(path, Likeness.SITS)
    assert (pairs.first.tolist(), pairs.second.tolist()) == ([10, 9], [21, 3])
    assert pairs.first.dtype == np.int64
    texts = read_rated_pairs(sits(tmp_path, "p 1,a,3,x", "p 2,7,3,x"), Likeness.SITS)
    assert texts.first.tolist() == ["a", "7"] and texts.pairs()[1].tolist() == ["p 1", "p 2"]


@pytest.mark.parametrize("score", ["four", "nan"])
def test_single_ratings_that_are_no_numbers_are_refused(tmp_path, score):
    """Their deviations would be none, or nothing at all."""
    scores = pa.array([score, "3"]) if score == "four" else pa.array([float(score), 3.0])
    table = {"task": ["sits"] * 2, "first": ["9"] * 2, "second": ["21"] * 2, "score": scores}
    pq.write_table(pa.table(table), tmp_path / "ratings.parquet")
    scored = read_scored(sits(tmp_path, "21,9,3,x"), Likeness.SITS)
    with pytest.raises(
        DatasetError, match=f"gives '9' and '21' the score .*{score}.*; write scores as numbers"
    ):
        read_raw_deviations(tmp_path, Likeness.SITS, scored)


def test_a_row_that_names_nothing_is_refused(tmp_path):
    """Where ids are the data set's own, any name will do but none."""
    with pytest.raises(DatasetError, match=r"row 2 .* names nothing as its image"):
        read_sits(sits(tmp_path, "p1,a,3,x", "p2, ,3,x"))
    path = tmp_path / "sits.parquet"
    for column, told in (("image", "names nothing as its image"), ("agg_score", "has the score None")):
        row = {"caption": "p1", "image": "a", "agg_score": 3.0, "sampling_method": "x"}
        pq.write_table(pa.Table.from_pylist([row, row | {"caption": "p2", column: None}]), path)
        with pytest.raises(DatasetError, match=f"row 2 .* {told}"):
            read_sits(path)


@pytest.mark.shared
def test_cxcs_methods_are_read_and_count_as_published(shared_data):
    """Of each split and task; the originals' mean scores are the paper's 4.850 and 4.891."""
    counts, means = {}, {}
    for split in ("val", "test"):
        for kind in Likeness:
            scored = read_scored(shared_data / "cxc" / f"{kind}_{split}.csv", kind)
            counts |= {(split, name): len(part) for name, part in scored.groupby("method")}
            unordered = {frozenset(pair) for pair in zip(scored["first"], scored["second"], strict=True)}
            counts[split, kind.value] = len(unordered)
            means |= {(split, name): part["score"].mean() for name, part in scored.groupby("method")}

    assert counts == {
        ("val", "c2c_isim"): 19_009,
        ("val", "c2c_cocaption"): 25_000,
        ("val", "i2i_csim"): 42_767,
        ("val", "c2i_intrasim"): 19_722,
        ("val", "c2i_original"): 25_000,
        ("val", "sts"): 44_009,
        ("val", "sis"): 40_514,
        ("val", "sits"): 44_722,
        ("test", "c2c_isim"): 19_045,
        ("test", "c2c_cocaption"): 25_000,
        ("test", "i2i_csim"): 46_719,
        ("test", "c2i_intrasim"): 19_833,
        ("test", "c2i_original"): 25_000,
        ("test", "sts"): 44_045,
        ("test", "sis"): 43_856,
        ("test", "sits"): 44_833,
    }
    assert round(means["val", "c2i_original"], 3) == 4.850
    assert round(means["test", "c2i_original"], 3) == 4.891
