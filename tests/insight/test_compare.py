"""Comparing sets of positives: the paper's precision and recall, its counts, and the pairs that differ."""

from __future__ import annotations

import csv
import importlib.util
import json
from dataclasses import replace

import numpy as np
import pytest
from cli_kit import fails, mitl, ok
from hypothesis import given
from hypothesis import strategies as st
from release_kit import records, world

from mitl.datasets.objects import ImageObjects
from mitl.errors import DatasetError, ReleaseError
from mitl.metrics.plausible import matches_by_objects
from mitl.positives.loading import official_positives
from mitl.positives.merging import MergeRules
from mitl.positives.release import write_release
from mitl.positives.sources import (
    Verified,
    count,
    disagreement,
    overlap,
    quality,
    read_set,
)
from mitl.records import Direction, IdKind

I2T, T2I = Direction
needs_official = pytest.mark.skipif(
    importlib.util.find_spec("eccv_caption") is None, reason="the extra mitl[official] is not installed"
)


def verified(judged, positive):
    """Pairs written as "image caption"."""
    return Verified(*(frozenset(tuple(pair.split()) for pair in pairs) for pairs in (judged, positive)))


def test_precision_and_recall_by_hand():
    """Of image 1's three positives two were looked at and one is right; of its four verified it holds one."""
    known = verified(["1 a", "1 b", "1 d", "1 e", "1 f"], ["1 a", "1 d", "1 e", "1 f"])

    found = quality({"1": ["a", "b", "c"]}, known, ["1"], I2T)

    assert (found.precision, found.recall, found.queries, found.dropped) == (1 / 2, 1 / 4, 1, 0)


def test_a_query_none_of_whose_positives_were_looked_at_is_left_out():
    """Its precision is not defined, and its recall would say more about the proposals than about the set."""
    known = verified(["1 a", "2 b"], ["1 a", "2 b"])

    found = quality({"1": ["a"], "2": ["x"]}, known, ["1", "2"], I2T)

    assert (found.precision, found.recall, found.queries, found.dropped) == (1.0, 1.0, 1, 1)


def test_a_query_without_a_verified_positive_counts_for_precision_alone():
    """Recall of nothing is not defined; that its positive was refused is a fact."""
    known = verified(["1 a", "2 b"], ["1 a"])

    found = quality({"1": ["a"], "2": ["b"]}, known, ["1", "2"], I2T)

    assert (found.precision, found.recall) == (0.5, 1.0)


def test_without_any_query_that_counts_nothing_is_claimed():
    """No share is made up."""
    found = quality({}, verified([], []), ["1"], T2I)

    assert (found.precision, found.recall, found.dropped) == (None, None, 1)


def test_table_2_by_hand():
    """Both directions over several queries, with the rule of the paper's footnote.

    As images: of image 1's positives a, b and c people looked at a and b, and a is right, of two verified (a, d):
    1/2 and 1/2. Image 2's e was looked at and is right, of a, e and f: 1 and 1/3. Image 3's only positive was looked at
    by nobody, so it is in neither mean, though people verified g for it. As captions: a's 1 is one of the verified 1
    and 2: 1 and 1/2; b's 1 was refused and nothing else is verified for b: 0, and no recall; e's 2: 1 and 1.
    """
    known = verified(
        ["1 a", "1 b", "1 d", "2 a", "2 e", "2 f", "3 g"], ["1 a", "1 d", "2 a", "2 e", "2 f", "3 g"]
    )
    images = {"1": ["a", "b", "c"], "2": ["e"], "3": ["h"]}
    captions = {"a": ["1"], "b": ["1"], "c": ["1"], "e": ["2"], "h": ["3"]}

    forward = quality(images, known, ["1", "2", "3"], I2T)
    backward = quality(captions, known, ["a", "b", "c", "e", "g", "h"], T2I)

    assert (forward.precision, forward.recall) == pytest.approx(((1 / 2 + 1) / 2, (1 / 2 + 1 / 3) / 2))
    assert (forward.queries, forward.dropped) == (2, 1)
    assert (backward.precision, backward.recall) == pytest.approx(((1 + 0 + 1) / 3, (1 / 2 + 1) / 2))
    assert (backward.queries, backward.dropped) == (3, 3)


PAIRS = st.sets(st.tuples(st.sampled_from("123"), st.sampled_from("abcd")))


def forward(pairs):
    return {image: [c for i, c in pairs if i == image] for image in "123"}


@given(PAIRS, PAIRS)
def test_overlap_adds_up(first, second):
    """Both sets are told apart into three parts."""
    found = overlap(forward(first), forward(second), "123")

    assert found.both + found.only_first == count(forward(first), "123") == len(first)
    assert found.both + found.only_second == len(second)


@given(PAIRS, PAIRS)
def test_a_set_against_itself_is_perfect(judged, more):
    """Precision and recall are 1 wherever they are defined."""
    known = Verified(frozenset(judged | more), frozenset(judged))

    found = quality(forward(judged), known, "123", I2T)

    assert found.precision in (None, 1.0) and found.recall in (None, 1.0)


def test_directions_may_list_different_queries():
    """A caption that is not a query need not list the image that lists it."""
    assert disagreement({"1": ["a", "b"]}, {"a": ["1"]}) is None
    assert disagreement({"1": ["b"]}, {"a": ["1"], "b": ["1"]}) == ("1", "a")
    assert disagreement({"1": ["a"], "2": ["a"]}, {"a": ["1"]}) == ("2", "a")


def test_a_release_is_compared_by_what_people_judged(tmp_path):
    """Its own positives are all right, and originals that people refused cost precision."""
    data = world()
    write_release(tmp_path / "release", data)
    found = read_set(str(tmp_path / "release"))

    assert found.verified is not None
    usable = {j.pair for j in records()[0] if j.usable and j.label is not None and not j.role.is_gold}
    assert len(found.verified.judged) == len(usable)
    assert found.verified.positive < found.verified.judged
    own = quality(found.positives.by_query[I2T], found.verified, found.positives.by_query[I2T], I2T)
    assert own.precision == 1.0


def write_jsons(folder, image_to_caption, caption_to_image):
    folder.mkdir()
    (folder / "image_to_caption.json").write_text(json.dumps(image_to_caption))
    (folder / "caption_to_image.json").write_text(json.dumps(caption_to_image))
    return folder


def test_the_command_counts_and_writes_the_differences(tmp_path):
    """The CSV names each pair that one set holds alone, with the answers that a release has on it."""
    write_release(tmp_path / "release", world())
    release = read_set(str(tmp_path / "release"))
    query, items = next(iter(release.positives.by_query[I2T].items()))
    few = write_jsons(
        tmp_path / "few", {query: [int(items[0]), 77]}, {items[0]: [int(query)], "77": [int(query)]}
    )
    out = tmp_path / "differences.csv"

    outcome = ok("compare", few, tmp_path / "release", "--differences", out, "--json").json

    rows = list(csv.DictReader(out.read_text().splitlines()))
    overlapping = outcome["counts"]["overlap"][str(few)]["i2t"]
    assert overlapping["both"] == 1 and overlapping["only_first"] == 1
    i2t = [row for row in rows if row["direction"] == "i2t"]
    assert len(i2t) == overlapping["only_first"] + overlapping["only_second"]
    assert [row["caption_id"] for row in i2t if row["in"] == str(few)] == ["77"]
    assert any(row["answers"] in ("yes", "weak_yes") and "judgement" in row["sources"] for row in i2t)


def test_differences_stand_in_the_order_of_the_data_sets_ids(tmp_path):
    """By code point where ids are texts: ``007`` and ``7`` are two of them, and never change places."""
    named = dict(zip(range(1, 7), ("8", "007", "a", "b", "10", "7"), strict=True))
    for name, rules in (("loose", MergeRules()), ("strict", MergeRules(strict=True))):
        write_release(tmp_path / name, replace(world(IdKind.STRING, rules=rules), image_ids=named))
    out = tmp_path / "differences.csv"

    ok("compare", tmp_path / "strict", tmp_path / "loose", "--differences", out)

    rows = list(csv.DictReader(out.read_text().splitlines()))
    pairs = [(row["image_id"], row["caption_id"]) for row in rows if row["direction"] == "i2t"]
    assert {"007", "7"} <= {image for image, _ in pairs}
    assert pairs == sorted(pairs)


def test_directions_that_disagree_are_refused(tmp_path):
    """With the pair at fault."""
    folder = write_jsons(tmp_path / "torn", {"1": [2]}, {"2": []})

    with pytest.raises(ReleaseError, match="image 1 and caption 2 match in one and not in the other"):
        read_set(str(folder))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["official-eccv"], "comparing takes two sets or more"),
        (["x", "x"], "'x' is named twice"),
        (["nowhere", "official-eccv"], "there is no set of positives 'nowhere'; give official-original"),
        (["cxc:gone.csv", "official-eccv"], "gone.csv"),
        (["empty", "official-eccv"], "image_to_caption.json cannot be read"),
    ],
)
def test_what_cannot_be_compared_is_one_clear_line(tmp_path, monkeypatch, words, said):
    """What was found and what would be right."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()

    outcome = mitl("compare", *words)

    assert outcome.status in (1, 2) and said in outcome.error


def test_sets_of_other_kinds_of_items_are_not_compared(tmp_path):
    """Though their ids are the same numbers; each is named as what it is."""
    write_release(tmp_path / "images", world())
    write_release(tmp_path / "sounds", world(sides=("sound", "caption")))

    told = fails(2, "compare", tmp_path / "images", tmp_path / "sounds")

    assert "images is of images and captions" in told and "sounds of sounds and captions" in told


def test_directions_are_called_as_the_sets_call_them_without_a_project(tmp_path, monkeypatch):
    """In tables and in JSON, by what their manifests say."""
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        write_release(tmp_path / name, world(sides=("sound", "caption")))

    told = ok("compare", "one", "two")
    counts = ok("compare", "one", "two", "--json").json["counts"]

    assert "a2t" in told.out and "t2a" in told.out and "i2t" not in told.out and "t2i" not in told.out
    assert list(counts["queries"]) == list(counts["overlap"]["one"]) == ["a2t", "t2a"]


@needs_official
def test_sets_of_different_data_sets_have_no_query_in_common(tmp_path):
    """A release of other ids says so instead of printing zeros."""
    folder = write_jsons(tmp_path / "other", {"1": [2]}, {"2": [1]})

    assert "no query in common" in mitl("compare", folder, "official-eccv").error


@needs_official
def test_the_counts_of_the_paper():
    """Table 3: positive images and captions of the original set, of CxC and of ECCV Caption."""
    outcome = ok("compare", "official-original", "official-cxc", "official-eccv", "--json").json

    assert outcome["counts"]["queries"] == {"i2t": 1261, "t2i": 1332}
    assert outcome["counts"]["positives"] == {
        "official-original": {"i2t": 6305, "t2i": 1332},
        "official-cxc": {"i2t": 8906, "t2i": 1895},
        "official-eccv": {"i2t": 22550, "t2i": 11279},
    }
    assert outcome["warnings"] == [
        "official-eccv holds no judgements: its positives count as verified, and every pair as looked at"
    ]


@needs_official
def test_cxcs_ratings_give_the_official_cxc_positives(shared_data):
    """The CSV and the package's JSONs are the same 35,585 pairs; one of them is excluded from the release."""
    rated = read_set(f"cxc:{shared_data / 'cxc' / 'sits_test.csv'}").positives
    official = read_set("official-cxc").positives
    eccv = read_set("official-eccv").positives

    assert rated.pairs(I2T) == official.pairs(I2T) == official.pairs(T2I) and len(rated.pairs(I2T)) == 35_585
    assert ("325211", "462530") in rated.pairs(I2T) and "462530" not in eccv.by_query[I2T]["325211"]


def test_a_file_of_differences_is_not_replaced_without_a_word(tmp_path):
    """The same pairs are written again without harm; another content stays until --replace is given."""
    one = write_jsons(tmp_path / "one", {"1": [11, 12]}, {"11": [1], "12": [1]})
    two = write_jsons(tmp_path / "two", {"1": [11, 13]}, {"11": [1], "13": [1]})
    out = tmp_path / "differences.csv"
    ok("compare", one, two, "--differences", out)
    written = out.read_bytes()
    ok("compare", one, two, "--differences", out)
    out.write_bytes(written + b"a note\n")

    message = fails(2, "compare", one, two, "--differences", out)

    assert message == (
        f"{str(out)!r} is there already and holds something else; nothing was overwritten; give --replace to put the "
        "new one in its place, or choose another file"
    )
    assert out.read_bytes() == written + b"a note\n"
    ok("compare", one, two, "--differences", out, "--replace")
    assert out.read_bytes() == written
    assert "add --differences FILE" in fails(2, "compare", one, two, "--replace")


def objects_file(path, objects):
    """A table of the objects of images."""
    path.write_text(json.dumps(objects))
    return path


def test_plausible_matches_by_hand():
    """Equal objects match, in whatever order; a subset does not, and an image without objects matches nothing."""
    found = matches_by_objects(
        read_image_objects_of(
            {"1": ["dog", "car"], "2": ["car", "dog"], "3": ["dog"], "4": [], "9": ["dog", "car"]}
        ),
        {"a": "1", "b": "2", "c": "3", "d": "4", "e": "1"},
    )

    assert {image: set(captions) for image, captions in found.image_to_caption.items()} == {
        "1": {"a", "b", "e"},
        "2": {"a", "b", "e"},
        "3": {"c"},
    }
    assert {caption: set(images) for caption, images in found.caption_to_image.items()} == {
        "a": {"1", "2"},
        "b": {"1", "2"},
        "e": {"1", "2"},
        "c": {"3"},
    }


def read_image_objects_of(objects):
    """The same as a file would give."""
    classes = sorted({name for names in objects.values() for name in names})
    vectors = np.array([[name in names for name in classes] for names in objects.values()], bool)
    return ImageObjects(tuple(objects), tuple(classes), vectors)


def test_an_image_without_told_objects_is_named(tmp_path):
    """A set over some of the images would look like one over all."""
    path = objects_file(tmp_path / "objects.json", {"1": ["dog"]})

    with pytest.raises(DatasetError, match="not told of 1 of 2 images; first: '2'"):
        read_set(f"plausible:{path}", lambda: {"a": "1", "b": "2"})


def test_listed_plausible_matches_are_a_set(tmp_path):
    """The two files that ECCV Caption's library reads from its extra_file_dir."""
    (tmp_path / "pm_image_to_caption.json").write_text('{"1": [10, 11], "2": ["11"]}')
    (tmp_path / "pm_caption_to_image.json").write_text('{"10": [1], "11": [1, 2]}')

    found = read_set(f"plausible:{tmp_path}").positives

    assert found.by_query[I2T] == {"1": ("10", "11"), "2": ("11",)}
    assert found.by_query[T2I] == {"10": ("1",), "11": ("1", "2")}
    with pytest.raises(DatasetError, match=r"pm_image_to_caption\.json"):
        read_set(f"plausible:{tmp_path.parent}")


@needs_official
def test_plausible_matches_stand_beside_coco_and_cxc(tmp_path):
    """Precision is the mean share of right ones among them, by a count of its own over the official queries."""
    original, eccv = (official_positives(which) for which in ("original", "eccv"))
    images = sorted({images[0] for images in original.by_query[T2I].values()}, key=int)
    objects = {image: [f"class {bit}" for bit in range(8) if int(image) >> bit & 1] for image in images}
    path = objects_file(tmp_path / "objects.json", objects)

    counts = ok(
        "compare", "official-original", "official-cxc", f"plausible:{path}", "official-eccv", "--json"
    ).json["counts"]

    found = counts["quality"][f"plausible:{path}"]["t2i"]
    same = {}
    for image in images:
        same.setdefault(tuple(objects[image]), set()).add(image)
    shares = [
        len(known & set(eccv.by_query[T2I][caption])) / len(known)
        for caption in eccv.by_query[T2I]
        if objects[original.by_query[T2I][caption][0]]
        and (known := same[tuple(objects[original.by_query[T2I][caption][0]])])
    ]
    assert found["queries"] == len(shares)
    assert found["precision"] == pytest.approx(np.mean(shares))
    assert counts["quality"]["official-original"]["t2i"]["precision"] > 0.9
