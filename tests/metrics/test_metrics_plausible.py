"""Plausible matches: on paper, against the definition looped, and the files that objects and matches come from."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite_kit import examples

from mitl.datasets.objects import read_image_objects
from mitl.errors import DatasetError, MetricError
from mitl.metrics import plausible
from mitl.metrics.plausible import (
    ObjectVectors,
    listed_r_precision,
    plausible_r_precision,
    read_plausible_matches,
)
from mitl.metrics.positives import Positives
from mitl.records import Direction

IMAGES = {1: "a", 2: "a", 3: "ab", 4: "b", 5: "c", 6: ""}
CAPTIONS = {11: "a", 12: "a", 13: "ab", 14: "b", 15: "c", 16: ""}
RANKINGS = np.array(
    [
        [1, 4, 2, 3, 5, 6],  # 11: a
        [4, 5, 6, 1, 2, 3],  # 12: a
        [3, 1, 2, 4, 5, 6],  # 13: ab
        [6, 4, 1, 2, 3, 5],  # 14: b
        [4, 5, 1, 2, 3, 6],  # 15: c
        [6, 1, 2, 3, 4, 5],  # 16: nothing
    ]
)


def objects(table, classes="abc"):
    vectors = np.array([[name in names for name in classes] for names in table.values()], dtype=bool)
    return ObjectVectors(np.array(list(table)), vectors.reshape(len(table), len(classes)))


def scored(values):
    return dict(zip(values.query_ids.tolist(), values.values.tolist(), strict=True))


def on_paper(**options):
    return plausible_r_precision(np.arange(11, 17), RANKINGS, objects(CAPTIONS), objects(IMAGES), **options)


def test_equal_vectors_match_at_zeta_0():
    """Query 11 has R = 2 (images 1 and 2) and finds one; 14 finds its image first, since image 6 is left out."""
    (values,) = on_paper(zetas=(0,))

    assert scored(values) == {11: 1 / 2, 12: 0, 13: 1, 14: 1, 15: 0}
    assert (values.metric, values.left_out, values.estimate) == ("PMRP zeta=0", 1, 0.5)


def test_one_object_more_or_fewer_matches_at_zeta_1():
    """Query 11 (a) matches a, a, ab: R = 3, two among the first three; 13 (ab) matches a, a, ab, b: all of R = 4."""
    (values,) = on_paper(zetas=(1,))

    assert scored(values) == {11: 2 / 3, 12: 1 / 3, 13: 1, 14: 1 / 2, 15: 0}


def test_images_without_objects_may_be_kept():
    """Image 6 shows nothing: it matches caption 16 at ζ = 0, and all that show one object at ζ = 1."""
    zero, one, _ = on_paper(zetas=(0, 1), objectless="keep")

    assert scored(zero) == {11: 1 / 2, 12: 0, 13: 1, 14: 0, 15: 0, 16: 1}
    assert scored(one)[11] == 3 / 4
    assert (zero.left_out, len(zero)) == (0, 6)


def test_the_mean_over_the_distances_is_pmrp():
    found = on_paper()

    assert [values.metric for values in found] == ["PMRP zeta=0", "PMRP zeta=1", "PMRP zeta=2", "PMRP"]
    assert found[3].estimate == pytest.approx(np.mean([values.estimate for values in found[:3]]))


def test_r_may_be_bounded():
    """With R at most 1 only the first item counts: query 11 is right, 12 wrong, whatever else matches."""
    (values,) = on_paper(zetas=(1,), cap=1)

    assert scored(values) == {11: 1, 12: 0, 13: 1, 14: 1, 15: 0}
    assert values.metric == "PMRP zeta=1 R<=1"


def test_a_bound_lets_short_rankings_do():
    """R is at most 1 and one image may be in the way, so two places are enough."""
    whole = on_paper(zetas=(0, 1), cap=1)

    short = plausible_r_precision(
        np.arange(11, 17), RANKINGS[:, :2], objects(CAPTIONS), objects(IMAGES), zetas=(0, 1), cap=1
    )

    assert [scored(values) for values in short] == [scored(values) for values in whole]


@st.composite
def worlds(draw):
    """A gallery of a few kinds of objects, queries likewise, whole rankings."""
    kinds = st.sets(st.sampled_from("abcd")).map("".join)
    gallery = draw(st.dictionaries(st.integers(-9, 10**9), kinds, min_size=1, max_size=12))
    queries = draw(st.dictionaries(st.integers(-9, 10**9), kinds, min_size=1, max_size=6))
    rankings = [draw(st.permutations(list(gallery))) for _ in queries]
    return gallery, queries, np.array(rankings)


def naive(gallery, queries, rankings, zeta, cap, keep):
    """PCME's definition, a query at a time: distances down the ranking, the share of matches among the first R."""
    values = {}
    for (query, names), ranking in zip(queries.items(), rankings.tolist(), strict=True):
        if not names and not keep:
            continue
        near = [len(set(names) ^ set(gallery[item])) <= zeta for item in ranking if gallery[item] or keep]
        r = min(sum(near), cap or len(near))
        if r:
            values[query] = sum(near[:r]) / r
    return values


@settings(max_examples=examples(15))
@given(worlds(), st.sampled_from([None, 1, 2, 5]), st.booleans(), st.integers(0, 3))
def test_values_are_those_of_the_definition(world, cap, keep, zeta):
    gallery, queries, rankings = world
    expected = naive(gallery, queries, rankings, zeta, cap, keep)
    options = {
        "zetas": (zeta,),
        "cap": cap,
        "objectless": "keep" if keep else "leave_out",
        "no_positives": "leave_out",
    }
    arguments = (np.array(list(queries)), rankings, objects(queries, "abcd"), objects(gallery, "abcd"))

    if not expected:
        with pytest.raises(MetricError, match="nothing to score"):
            plausible_r_precision(*arguments, **options)
        return
    (values,) = plausible_r_precision(*arguments, **options)

    assert scored(values) == pytest.approx(expected)
    assert values.query_ids.tolist() == sorted(expected)
    assert values.left_out == len(queries) - len(expected)


@settings(max_examples=examples(15))
@given(worlds(), st.sampled_from([None, 1, 3]))
def test_listed_matches_score_as_told_ones(world, cap):
    """The files of ECCV Caption list what the vectors tell."""
    gallery, queries, rankings = world
    matches = {
        q: [i for i, other in gallery.items() if set(names) == set(other)] for q, names in queries.items()
    }
    if not any(matches.values()):
        return
    arguments = (np.array(list(queries)), rankings)

    listed = listed_r_precision(
        *arguments, Positives.from_mapping(matches), cap=cap, no_positives="leave_out"
    )
    (told,) = plausible_r_precision(
        *arguments,
        objects(queries, "abcd"),
        objects(gallery, "abcd"),
        zetas=(0,),
        cap=cap,
        objectless="keep",
        no_positives="leave_out",
    )

    assert scored(listed) == pytest.approx(scored(told))
    assert listed.metric == told.metric


def test_values_do_not_depend_on_how_much_is_held_at_once(monkeypatch):
    whole = [scored(values) for values in on_paper()]

    monkeypatch.setattr(plausible, "_CELLS", 7)

    assert [scored(values) for values in on_paper()] == whole


def test_ids_far_apart_are_found_as_well():
    """Beyond a span of ids a table would be too large; they are looked up otherwise."""
    far = {image * 10**12: names for image, names in IMAGES.items()}

    (values,) = plausible_r_precision(
        np.arange(11, 17), RANKINGS * 10**12, objects(CAPTIONS), objects(far), zetas=(0,)
    )

    assert scored(values) == scored(on_paper(zetas=(0,))[0])


def test_captions_have_the_objects_of_their_images():
    captions = objects(IMAGES).of_captions(np.array([11, 12, 13]), np.array([3, 1, 6]))

    assert captions.ids.tolist() == [11, 12, 13]
    assert captions.vectors.tolist() == [[True, True, False], [True, False, False], [False] * 3]


def test_rankings_may_hold_more_queries_than_are_scored():
    some = ObjectVectors(np.array([13, 11]), objects(CAPTIONS).vectors[[2, 0]])

    (values,) = plausible_r_precision(np.arange(11, 17), RANKINGS, some, objects(IMAGES), zetas=(0,))

    assert scored(values) == {11: 1 / 2, 13: 1}


def twice_named():
    rankings = RANKINGS.copy()
    rankings[0, 1] = 1
    return rankings


@pytest.mark.parametrize(
    ("rankings", "queries", "gallery", "options", "message"),
    [
        (RANKINGS[:, :1], CAPTIONS, IMAGES, {}, "needs 5 ranked items, but its ranking holds 1"),
        (RANKINGS[:, 0], CAPTIONS, IMAGES, {}, "rankings are"),
        (RANKINGS + 1, CAPTIONS, IMAGES, {}, "name 7, which is not among the 6 items with objects"),
        (RANKINGS, CAPTIONS | {17: "a"}, IMAGES, {}, "query 17 has no ranking"),
        (RANKINGS, {11: "abc"}, IMAGES, {"zetas": (0,)}, "query 11 has no plausible match"),
        (RANKINGS, {16: ""}, IMAGES, {}, "no query has objects"),
        (RANKINGS, CAPTIONS, IMAGES, {"zetas": ()}, "zeta is missing"),
        (RANKINGS, CAPTIONS, IMAGES, {"zetas": (-1,)}, "zeta is -1"),
        (RANKINGS, CAPTIONS, IMAGES, {"cap": 0}, "bounded by 0"),
        (twice_named(), CAPTIONS, IMAGES, {}, "query 11 names item 1 twice"),
    ],
)
def test_bad_input_is_said(rankings, queries, gallery, options, message):
    with pytest.raises(MetricError, match=message):
        plausible_r_precision(np.arange(11, 17), rankings, objects(queries), objects(gallery), **options)


def test_missing_places_may_count_as_misses():
    """Query 11 wants three places at ζ = 1 and has one, which is right."""
    (values,) = plausible_r_precision(
        np.arange(11, 17), RANKINGS[:, :1], objects(CAPTIONS), objects(IMAGES), zetas=(1,), short="zero"
    )

    assert scored(values) == {11: 1 / 3, 12: 0, 13: 1 / 4, 14: 0, 15: 0}


def test_queries_and_gallery_have_the_same_classes():
    with pytest.raises(MetricError, match="queries have 2 object classes, but the gallery has 3"):
        plausible_r_precision(np.arange(11, 17), RANKINGS, objects(CAPTIONS, "ab"), objects(IMAGES))


def test_object_vectors_are_booleans_beside_their_ids():
    with pytest.raises(MetricError, match="2 ids were given"):
        ObjectVectors(np.arange(2), np.zeros((3, 4), dtype=bool))
    with pytest.raises(MetricError, match="give booleans"):
        ObjectVectors(np.arange(3), np.zeros((3, 4)))


def test_listed_matches_that_are_missing_or_short_are_said():
    matches = Positives.from_mapping({11: [1, 2], 12: []})

    with pytest.raises(MetricError, match="query 12 has no plausible match"):
        listed_r_precision(np.arange(11, 17), RANKINGS, matches)
    with pytest.raises(MetricError, match="query 11 needs 2 ranked items, but its ranking holds 1"):
        listed_r_precision(np.arange(11, 17), RANKINGS[:, :1], matches, no_positives="leave_out")


def test_a_table_of_object_names_is_read(tmp_path):
    table = {"42": ["dog"], "7": [], "359": ["traffic light", "dog"]}
    path = tmp_path / "objects.json"
    path.write_text(json.dumps(table))
    packed = tmp_path / "objects.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))

    for found in (read_image_objects(path), read_image_objects(packed)):
        assert found.image_ids == ("42", "7", "359")
        assert found.classes == ("dog", "traffic light")
        assert found.vectors.tolist() == [[True, False], [False, False], [True, True]]


INSTANCES = {
    "images": [{"id": 9}, {"id": 3}],
    "categories": [{"id": 18, "name": "dog"}, {"id": 2, "name": "bicycle"}],
    "annotations": [{"image_id": 3, "category_id": 2}, {"image_id": 3, "category_id": 2}],
}


def test_cocos_instances_are_read_with_the_images_that_show_none(tmp_path):
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(INSTANCES))

    found = read_image_objects(path)

    assert (found.image_ids, found.classes) == (("9", "3"), ("dog", "bicycle"))
    assert found.vectors.tolist() == [[False, False], [False, True]]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "has another form"),
        ({}, "has another form"),
        ({"1": "dog"}, "has another form"),
        (
            INSTANCES | {"annotations": [{"image_id": 5, "category_id": 2}]},
            "entry 1 of 'annotations' .* lists no image 5",
        ),
        (INSTANCES | {"annotations": [{"image_id": 3, "category_id": 1}]}, "lists no category 1"),
        (INSTANCES | {"annotations": [{"image_id": 1.5, "category_id": 1}]}, "'1.5' is no whole number"),
        ({"annotations": []}, "categories"),
    ],
)
def test_a_file_of_objects_in_another_form_is_said(tmp_path, value, message):
    path = tmp_path / "objects.json"
    path.write_text(json.dumps(value))

    with pytest.raises(DatasetError, match=message):
        read_image_objects(path)


def test_a_damaged_compressed_file_is_said(tmp_path):
    path = tmp_path / "objects.json.gz"
    path.write_bytes(b"no gzip")

    with pytest.raises(DatasetError, match="cannot be read"):
        read_image_objects(path)
    path.write_bytes(gzip.compress(b'{"1": []}' * 100)[:-9])
    with pytest.raises(DatasetError, match="not valid JSON"):
        read_image_objects(path)


def test_the_reference_librarys_files_of_matches_are_read(tmp_path):
    """Keys are text in JSON; items may be as well."""
    (tmp_path / "pm_image_to_caption.json").write_text('{"5": [12, 11], "3": [11]}')
    (tmp_path / "pm_caption_to_image.json").write_text('{"11": ["5", "3"], "12": []}')

    found = read_plausible_matches(tmp_path)

    assert found[Direction.I2T].query_ids.tolist() == [3, 5]
    assert found[Direction.I2T].of(5).tolist() == [11, 12]
    assert found[Direction.T2I].of(11).tolist() == [3, 5]
    assert found[Direction.T2I].counts.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file"),
        ("[]", "holds no object of queries"),
        ('{"a": [1]}', "is malformed"),
        ('{"1": 2}', "2 stands where a list of ids should be"),
        ('{"1": [2.5]}', "2.5 stands where an id should be"),
        ('{"1": ["x"]}', "is malformed"),
    ],
)
def test_malformed_files_of_matches_are_said(tmp_path, content, message):
    if content is not None:
        (tmp_path / "pm_image_to_caption.json").write_text(content)

    with pytest.raises(DatasetError, match=message):
        read_plausible_matches(tmp_path)


@pytest.mark.shared
def test_a_ranking_by_distance_is_perfect_on_real_objects(shared_data):
    """200 images of the COCO test split ranked by how few objects tell them apart: PMRP is 1 at every ζ."""
    path = shared_data / "coco_image_objects_chair" / "test5000_objects.json.gz"
    if not path.exists():
        pytest.skip("the objects of the test images are not at hand")
    found = read_image_objects(path)
    gallery = ObjectVectors(np.array(found.image_ids, dtype=np.int64), found.vectors)
    queries = ObjectVectors(gallery.ids[:200], gallery.vectors[:200])
    distances = (queries.vectors[:, None] ^ gallery.vectors[None]).sum(axis=2)
    rankings = gallery.ids[np.argsort(distances, axis=1)]

    values = plausible_r_precision(queries.ids, rankings, queries, gallery)

    assert [each.estimate for each in values] == [1.0] * 4


def test_listed_matches_do_not_depend_on_how_much_is_held_at_once(monkeypatch):
    """Queries are scored in blocks of like need; each looks at its own ranking."""
    rng = np.random.default_rng(3)
    query_ids, items = np.arange(9), np.array([rng.permutation(12) for _ in range(9)])
    matches = Positives.from_mapping({query: range(1 + query) for query in reversed(range(9))})

    whole = listed_r_precision(query_ids, items, matches).values.tolist()
    monkeypatch.setattr(plausible, "_CELLS", 12)

    assert listed_r_precision(query_ids, items, matches).values.tolist() == whole
