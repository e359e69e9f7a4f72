"""A release of ratings: CxC's layout, every rating under pseudonyms, the same bytes every time, nothing lost."""

from __future__ import annotations

import csv
import dataclasses
import io
import re

import pyarrow.parquet as pq
import pytest
from rating_kit import NAMES, SALT, rated_world
from release_kit import fail_to_put_in_place, world

from mitl.datasets.cxc import positives, read_rated_pairs, read_scored, read_sits
from mitl.errors import ReleaseError
from mitl.judgements.similarity import Aggregation
from mitl.positives.folders import file_entries, read_manifest
from mitl.positives.privacy import find_leaks, pseudonym
from mitl.positives.rating_input import AskedWording, ControlRecord, coco_names, own_names
from mitl.positives.rating_release import COLUMN_NOTES, rating_files, write_ratings
from mitl.positives.release import write_release
from mitl.positives.release_input import ReleaseCard
from mitl.records.similarity import TASKS, Likeness, SimilarityRole
from mitl.stages.releasing.release_ratings import _result

FILES = {
    "sts_test.csv",
    "sis_test.csv",
    "sits_test.csv",
    "incomplete.csv",
    "ratings.parquet",
    "datasheet.md",
    "README.md",
    "croissant.json",
    "manifest.json",
}


@pytest.fixture(scope="module")
def made():
    """A release of ratings: what it is of, its files and their summary."""
    data = rated_world()
    return data, *rating_files(data)


@pytest.fixture(scope="module")
def written(made, tmp_path_factory):
    """The same in a folder."""
    return write_ratings(tmp_path_factory.mktemp("written") / "r", made[0]).folder


def table(files, name):
    """The rows of a CSV."""
    return list(csv.reader(io.StringIO(files[name].decode())))


def test_the_same_inputs_in_another_order_give_the_same_bytes(made):
    """Whatever order ratings came in, no file shows it."""
    _, files, _ = made
    again, _ = rating_files(rated_world(shuffle=3))

    assert files.keys() == FILES
    assert again == files


def test_the_layout_is_cxcs(made):
    """Its columns in its order, scores of two decimals without zeros at the end, a row for each sampled order."""
    _, files, _ = made

    assert table(files, "sts_test.csv")[0] == ["caption1", "caption2", "agg_score", "sampling_method"]
    assert table(files, "sis_test.csv")[0] == ["image1", "image2", "agg_score", "sampling_method"]
    assert table(files, "sits_test.csv")[0] == ["caption", "image", "agg_score", "sampling_method"]
    for name in ("sts_test.csv", "sis_test.csv", "sits_test.csv"):
        for row in table(files, name)[1:]:
            assert re.fullmatch(r"[0-5]\.(0|\d?[1-9])", row[2])
            assert str(float(row[2])) == row[2]
    pairs = {(row[0], row[1]): row[2] for row in table(files, "sts_test.csv")[1:]}
    assert len(pairs) == 13 and pairs["1", "13"] == pairs["13", "1"]


def test_scores_are_the_means_of_what_is_in_the_ratings(made):
    """Whoever takes the counted ratings together again finds the released scores."""
    _, files, _ = made
    ratings = pq.read_table(io.BytesIO(files["ratings.parquet"])).to_pandas()
    means = ratings[ratings["counted"]].groupby(["task", "first", "second"])["score"].mean()

    for task, columns in (("sts", (0, 1)), ("sis", (0, 1)), ("sits", (1, 0))):
        for row in table(files, f"{task}_test.csv")[1:]:
            key = (task, row[columns[0]], row[columns[1]])
            if key in means.index:  # the other order of a pair has its score and no ratings of its own
                assert float(row[2]) == round(float(means[key]), 2)


def test_the_share_of_positives_is_that_of_the_scores_as_released(made):
    """A mean of 2.996 is released as 3.0, which readers take for a positive."""
    data, *_ = made
    listed = data.listed.assign(score=data.listed["score"].where(data.listed["task"] != 0, 2.996))
    files, summary = rating_files(dataclasses.replace(data, listed=listed))

    assert {row[2] for row in table(files, "sts_test.csv")[1:]} == {"3.0"}
    assert summary.counts["tasks"]["sts"]["positive_share"] == 1


def test_pairs_with_too_few_ratings_are_left_out_and_listed(made):
    """Unless fewer are asked for; with none left there is nothing to release."""
    _, files, summary = made
    fewer, _ = rating_files(rated_world(min_ratings=3))

    assert table(files, "incomplete.csv") == [
        ["task", "first", "second", "sampling_method", "ratings"],
        ["sits", "img 8, left.jpg", "16", "c2i_original", "3"],
    ]
    assert len(table(files, "sits_test.csv")) == 8 and len(table(fewer, "sits_test.csv")) == 9
    assert summary.counts["tasks"]["sits"]["incomplete"] == 1
    assert len(table(fewer, "incomplete.csv")) == 1
    with pytest.raises(ReleaseError, match=r"no sampled pair has 6 ratings .*\(the most is 5\)"):
        rating_files(rated_world(min_ratings=6))


@pytest.mark.parametrize("kind", [*Likeness])
def test_a_release_is_read_back_as_it_was_scored(made, written, kind):
    """By the readers of CxC's files, under the items' own ids."""
    data, *_ = made
    path = written / f"{kind.value}_test.csv"

    scored, pairs = read_scored(path, kind), read_rated_pairs(path, kind)

    whole = data.complete[data.complete["task"] == TASKS.index(kind)]
    first, second = (NAMES[side] for side in kind.sides)
    wanted = [
        (first[one], second[other], round(score, 2))
        for one, other, score in zip(whole["first"], whole["second"], whole["score"], strict=True)
    ]
    assert list(zip(scored["first"], scored["second"], scored["score"], strict=True)) == wanted
    assert [str(name) for name in pairs.first.tolist()] == [row[0] for row in wanted]
    assert pairs.scores.tolist() == [row[2] for row in wanted]
    if kind is Likeness.SITS:
        ratings = read_sits(path)
        high = {(row[0], row[1]) for row in wanted if row[2] >= 3}
        assert set(positives(ratings)) == high


def test_workers_appear_under_pseudonyms_alone(made, tmp_path):
    """One name for a worker in a release, another one in the next; no id, no hash of one, no salt in any file."""
    _, files, _ = made
    rows = pq.read_table(io.BytesIO(files["ratings.parquet"])).to_pylist()

    ids = {"worker": {f"AWORKER{n}" for n in (*range(5), 8, 9)}}
    assert {row["worker"] for row in rows} == {pseudonym(worker, SALT) for worker in ids["worker"]}
    assert not find_leaks(files, ids)
    assert SALT not in b"".join(files.values()) and SALT.hex().encode() not in b"".join(files.values())
    assert {row["active_ms"] % 1000 for row in rows if row["active_ms"] is not None} == {0}
    with pytest.raises(ReleaseError, match="the salt has 4 bytes"):
        rating_files(rated_world(salt=b"salt"))
    with pytest.raises(ReleaseError, match="would hold the id of a worker"):
        write_ratings(tmp_path / "r", rated_world(name="AWORKER1"), private_ids=ids)
    assert not (tmp_path / "r").exists()


def test_every_rating_is_there_as_given(made):
    """Skips without a score, unusable ones and repetitions marked, none of them counted."""
    _, files, summary = made
    rows = pq.read_table(io.BytesIO(files["ratings.parquet"])).to_pylist()

    assert set(rows[0]) == set(COLUMN_NOTES)
    assert len(rows) == summary.counts["ratings"] == 12 * 5 + 6 * 5 + 7 * 5 + 3 + 3
    [skipped] = [row for row in rows if row["outcome"] == "skipped"]
    assert skipped["score"] is None and skipped["active_ms"] is None
    [repeated] = [row for row in rows if row["repeated"]]
    [unusable] = [row for row in rows if not row["usable"]]
    assert not any(row["counted"] for row in (skipped, repeated, unusable))
    assert summary.counts["ratings_counted"] == len(rows) - 3
    order = [
        (list(Likeness).index(Likeness(row["task"])), row["worker"]) for row in rows if row["first"] == "1"
    ]
    assert order == sorted(order)


def test_the_command_tells_the_ratings_that_are_in_released_scores(tmp_path):
    """Those of pairs with too few are in the table and in no score."""
    data = rated_world()
    written = write_ratings(tmp_path / "r", data)
    ratings = pq.read_table(tmp_path / "r/ratings.parquet").to_pandas()
    per_pair = ratings[ratings["counted"]].groupby(["task", "first", "second"]).size()

    line = _result(data, written, 0, {}).lines[0]

    assert f"{per_pair[per_pair >= data.min_ratings].sum()} ratings in scores of" in line
    assert (per_pair < data.min_ratings).any()


def test_which_item_was_shown_first_is_told_for_both_orders():
    """``reversed`` is about the row's own first and second item, whichever of them the pair has on its left."""
    data = rated_world()
    given = data.given.assign(swapped=data.given["pair"] % 2 == 0)
    turned = data.listed.assign(
        first=data.listed["second"].where(data.listed["pair"] == 2, data.listed["first"]),
        second=data.listed["first"].where(data.listed["pair"] == 2, data.listed["second"]),
    )
    plain = pq.read_table(
        io.BytesIO(rating_files(rated_world(given=given))[0]["ratings.parquet"])
    ).to_pylist()
    other = pq.read_table(
        io.BytesIO(rating_files(rated_world(given=given, listed=turned))[0]["ratings.parquet"])
    ).to_pylist()

    assert {row["reversed"] for row in plain if (row["task"], row["first"]) == ("sts", "2")} == {True}
    assert {row["reversed"] for row in other if (row["task"], row["first"]) == ("sts", "14")} == {False}


def test_cocos_items_are_named_as_cxc_names_them():
    """By the folder in which the picture lies; val2014 where nothing tells."""
    names = coco_names(
        {1: "9", 2: "581929"},
        {1: "21", 2: "22"},
        {1: 1, 2: 2},
        {1: "/data/train2014/COCO_train2014_000000000009.jpg"},
    )

    assert names["image"] == {
        1: "COCO_train2014_000000000009.jpg",
        2: "COCO_val2014_000000581929.jpg",
    }
    assert names["caption"] == {1: "COCO_train2014:sentid:21", 2: "COCO_val2014:sentid:22"}


def test_own_ids_that_would_be_read_as_cocos_are_refused():
    """A reader would take the number in them for the id."""
    with pytest.raises(ReleaseError, match="is written as CxC names COCO's items"):
        own_names("image", {1: "COCO_val2014_000000000009.jpg"})
    assert own_names("caption", {1: "COCO_val2014_000000000009.jpg"}) == {1: "COCO_val2014_000000000009.jpg"}


def test_a_second_writing_touches_nothing(tmp_path):
    """The first run makes the folder whole with nothing beside it; the second finds it as it should be."""
    first = write_ratings(tmp_path / "deep" / "r", rated_world())
    stamps = {path.name: path.stat().st_mtime_ns for path in first.folder.iterdir()}
    second = write_ratings(first.folder, rated_world())

    assert (first.changed, second.changed) == (True, False)
    assert {path.name: path.stat().st_mtime_ns for path in first.folder.iterdir()} == stamps
    assert [path.name for path in first.folder.parent.iterdir()] == ["r"]


def test_nothing_else_is_overwritten(tmp_path):
    """Not another release of ratings unless asked, never one of positives nor anybody's own folder."""
    folder = write_ratings(tmp_path / "r", rated_world()).folder
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    other = rated_world(method=Aggregation.TRIMMED)
    of_positives = write_release(tmp_path / "p", world()).folder
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").write_text("keep me")

    with pytest.raises(ReleaseError, match=r"holds another release, .* give --replace"):
        write_ratings(folder, other)
    with pytest.raises(
        ReleaseError, match="`mitl build-dataset` made it, and `mitl evaluate --release` scores"
    ):
        write_ratings(of_positives, other, replace=True)
    with pytest.raises(ReleaseError, match="`mitl rate release` made it, and `mitl evaluate --cxc` scores"):
        write_release(folder, world(), replace=True)
    with pytest.raises(ReleaseError, match="is not a release, so it is left alone"):
        write_ratings(tmp_path / "notes", other, replace=True)

    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert write_ratings(folder, other, replace=True).changed


def test_a_failed_writing_leaves_the_old_release_and_no_crumbs(tmp_path, monkeypatch):
    """The new folder cannot be put in place; the old one comes back."""
    folder = write_ratings(tmp_path / "r", rated_world()).folder
    before = (folder / "manifest.json").read_bytes()
    fail_to_put_in_place(monkeypatch)
    with pytest.raises(ReleaseError, match="No space left"):
        write_ratings(folder, rated_world(min_ratings=3), replace=True)

    assert (folder / "manifest.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_the_manifest_rebuilds_and_checks_the_files(tmp_path):
    """Hashes, counts, method, encoders, seeds and versions."""
    folder = write_ratings(tmp_path / "r", rated_world(seeds={"project": 4})).folder
    manifest = read_manifest(folder, "mitl-ratings-1")

    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}
    assert manifest["files"] == file_entries(files)
    assert manifest["rules"] == {"method": "mean", "min_ratings": 5}
    assert manifest["encoders"] == {"c2c_isim": {"words": 12}, "i2i_csim": {"words": 6}}
    assert manifest["seeds"] == {"project": 4}
    assert {"python", "mitl", "numpy", "pyarrow"} == set(manifest["versions"])
    with pytest.raises(
        ReleaseError, match="is not a manifest of format 'mitl-release-1'; `mitl rate release` made it"
    ):
        read_manifest(folder)
    with pytest.raises(ReleaseError, match="cannot be written as JSON"):
        rating_files(rated_world(configuration={"what": object()}))


def test_a_split_is_part_of_a_files_name_and_no_more():
    """Nothing is written elsewhere."""
    for split in ("", "../up", "a b", ".hidden", "a..b", "te/st"):
        with pytest.raises(ReleaseError, match="would be part of file names"):
            rating_files(rated_world(split=split))
    assert "sts_dev-1.2.csv" in rating_files(rated_world(split="dev-1.2"))[0]


def test_the_datasheet_tells_how_ratings_came_to_be():
    """Encoders in place of CxC's, wording, controls, agreement, what is left out; words of others as text."""
    sheet = rating_files(
        rated_world(
            asked={
                Likeness.STS: (
                    AskedWording("similarity-texts", "How close?", ("nothing in <b>common</b>", "the same")),
                )
            },
            controls=(ControlRecord(SimilarityRole.IDENTICAL, 7, 4.8),),
            rule="an identical pair has 4 or more",
            card=ReleaseCard(license="CC-BY-4.0", ethics="none | needed"),
        )
    )[0]["datasheet.md"].decode()

    assert "| `c2c_isim` | words (12 pairs) | CxC: Graph-RISE |" in sheet
    assert "- 0: nothing in &lt;b&gt;common&lt;/b&gt;" in sheet
    assert "| an item beside itself, or an image beside its caption | 7 | mean score: 4.800 |" in sheet
    assert "Krippendorff's alpha, interval scale" in sheet
    assert "1 pair with fewer than 5 ratings is left out" in sheet
    assert "CC-BY-4.0" in sheet and "none \\| needed" in sheet
    told = {
        method: rating_files(rated_world(method=method))[0]["datasheet.md"]
        .decode()
        .partition("became scores")[2][:120]
        for method in Aggregation
    }
    assert len(set(told.values())) == 4
