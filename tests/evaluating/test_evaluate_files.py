"""A model in files, outside any project: every form gives the same figures, which are those computed by hand."""

from __future__ import annotations

import json
import re
from importlib.metadata import EntryPoint

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_kit import fails, mitl, ok
from evaluate_kit import (
    BY_HAND,
    CAPTIONS,
    I2T,
    IMAGES,
    METRICS,
    SIMILARITIES,
    write_embeddings,
    write_rankings,
    write_release,
    write_similarities,
)
from hypothesis import given
from hypothesis import strategies as st

from mitl.datasets.assembling import assemble
from mitl.errors import MetricError
from mitl.metrics import ListRankings, Positives, score_metrics, table
from mitl.metrics.positives import QueryValues
from mitl.metrics.table import METRICS as TABLE
from mitl.metrics.table import Metric, first_rank
from mitl.records import Caption, Image
from mitl.stages.evaluating.figures import Sampling, Scored, compare, figures, rsums
from mitl.stages.evaluating.models import Block, Sides, caption_groups


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """An empty folder with a release in it: no project."""
    monkeypatch.chdir(tmp_path)
    write_release(tmp_path / "release")
    return tmp_path


def scores(*words, model):
    """What one model scores on the release, by direction and metric."""
    counts = ok("evaluate", *words, "--release", "release", *METRICS, "--json").json["counts"]
    return counts["scores"]["release"][model]


@pytest.mark.parametrize("form", ["npy", "npz", "parquet"])
@pytest.mark.parametrize("texts", [False, True])
def test_embeddings_of_every_form_score_as_by_hand(place, form, texts):
    """Ids written as texts are the integers that they spell."""
    images, captions = write_embeddings(place, form, texts=texts)

    found = scores("--image-embeddings", images, "--caption-embeddings", captions, model="embeddings")

    assert found == {way: pytest.approx(values) for way, values in BY_HAND.items()}


def average_precision(found, k):
    """Of the whole ranking: precision at each positive, averaged."""
    hits = found.hits(found.depth)
    precision = np.cumsum(hits, axis=1) / np.arange(1, found.depth + 1)
    return (precision * hits).sum(axis=1) / found.counts


OWN = {
    "MRR": (
        Metric(lambda found, k: 1 / first_rank(found), positives="first"),
        {"i2t": (1 + 1 + 1 / 4) / 3, "t2i": (1 + 1 / 3 + 1 / 2 + 1 / 3) / 4},
    ),
    "P@K": (
        Metric(lambda found, k: found.hits(k).sum(axis=1) / k, places="K"),
        {"i2t": (1 / 2 + 1 / 2 + 0) / 3, "t2i": (1 / 2 + 0 + 1 / 2 + 0) / 4},
    ),
    "AP": (
        Metric(average_precision),
        {"i2t": ((1 + 2 / 4) / 2 + 1 + 1 / 4) / 3, "t2i": (1 + 1 / 3 + 1 / 2 + 1 / 3) / 4},
    ),
}
"""Metrics of first positives anywhere, of all positives among the first K, and of all positives anywhere."""


@pytest.mark.parametrize("form", ["embeddings", "similarities", "rankings"])
@pytest.mark.parametrize("name", OWN)
def test_a_metric_put_into_the_table_is_evaluated(place, monkeypatch, form, name):
    """One entry: its figures stand in --json, the tables and the CSV, whatever the model brings."""
    metric, by_hand = OWN[name]
    monkeypatch.setitem(TABLE, name, metric)
    asked = name.replace("@K", "@2")
    files = {
        "embeddings": ["--image-embeddings", write_embeddings(place, "npz")[0]],
        "similarities": ["--similarities", write_similarities(place, "npz")],
        "rankings": ["--rankings", *write_rankings(place, "json")],
    }[form]
    if form == "embeddings":
        files += ["--caption-embeddings", place / "captions.npz"]
    call = [
        "evaluate",
        *files,
        "--release",
        "release",
        "--metrics",
        f"{asked.lower()},R@1",
        "--csv",
        "out.csv",
    ]

    counts, shown = ok(*call, "--json").json["counts"], ok(*call).out
    found = {way: values[asked] for way, values in counts["scores"]["release"][form].items()}

    assert found == pytest.approx(by_hand)
    assert asked in shown
    assert f",{asked}," in (place / "out.csv").read_text()
    assert counts["intervals"]["release"][form]["i2t"][asked]


def test_a_metric_gives_one_value_for_each_query(monkeypatch):
    """A bare number, or a column, is refused by the metric's name."""
    positives = Positives.from_mapping({7: [1, 2], 8: [3]})
    for shape in ((), (2, 1)):
        monkeypatch.setitem(TABLE, "flat", Metric(lambda found, k, shape=shape: np.zeros(shape)))
        with pytest.raises(MetricError, match=rf"'flat' gave {re.escape(str(shape))} for 2 queries"):
            score_metrics(ListRankings({7: [1, 2], 8: [4, 3]}), positives, ["flat"])


def test_a_metric_of_an_installed_package_is_known_and_a_broken_one_is_named(place, monkeypatch):
    """By an entry point; one that cannot be loaded is said in one line."""
    similarities = write_similarities(place, "npz")
    call = ["evaluate", "--similarities", similarities, "--release", "release", "--metrics", "first"]
    monkeypatch.setattr(table, "BAD", Metric(lambda found, k: found.no_such_thing), raising=False)
    for value, status, why in (
        ("mitl.metrics.table:OWN_FIRST", 0, ""),
        ("no_such_package:metric", 2, "cannot be loaded"),
        ("mitl.metrics.table:KS", 2, "is a tuple, not a Metric"),
        ("mitl.metrics.table:BAD", 1, "failed (AttributeError: "),
    ):
        point = EntryPoint("first", value, "mitl.metrics")
        monkeypatch.setattr(table, "entry_points", lambda group, point=point: [point])
        monkeypatch.setattr(table, "OWN_FIRST", OWN["MRR"][0], raising=False)
        TABLE.pop("first", None)
        table.load_installed.cache_clear()
        if status == 0:
            counts = ok(*call, "--json").json["counts"]
            assert counts["scores"]["release"]["similarities"]["i2t"]["first"] == pytest.approx(0.75)
        else:
            message = fails(status, *call)
            assert why in message and f"mend its entry point {value!r}" in message
    TABLE.pop("first", None)
    table.load_installed.cache_clear()


def test_a_broken_metric_that_nobody_asks_for_is_one_warning(place, monkeypatch):
    """It stops only what names it; the good metric of the next package is there all the same."""
    similarities = write_similarities(place, "npz")
    points = [
        EntryPoint("Broken@K", "no_such_package:metric", "mitl.metrics"),
        EntryPoint("first", "mitl.metrics.table:OWN_FIRST", "mitl.metrics"),
        EntryPoint("recall@k", "mitl.metrics.table:OWN_FIRST", "mitl.metrics"),
        EntryPoint("a,b", "mitl.metrics.table:OWN_FIRST", "mitl.metrics"),
    ]
    monkeypatch.setattr(table, "entry_points", lambda group: points)
    monkeypatch.setattr(table, "OWN_FIRST", OWN["MRR"][0], raising=False)
    table.load_installed.cache_clear()
    call = ["evaluate", "--similarities", similarities, "--release", "release", "--metrics"]
    try:
        warning, taken, comma = ok(*call, "R@1,first", "--json").json["warnings"]
        message = fails(2, *call, "R@1,broken@5")
    finally:
        TABLE.pop("first", None)
        table.load_installed.cache_clear()

    assert "'Broken@K' of an installed package cannot be loaded" in warning
    assert "mend its entry point 'no_such_package:metric'" in message
    assert "'recall@k' of an installed package is called as another metric" in taken
    assert "'a,b' of an installed package has a comma in its name" in comma


@pytest.mark.parametrize("form", ["npy", "npz"])
def test_similarities_of_every_form_score_as_by_hand(place, form):
    """A row is an image, a column a caption."""
    found = scores("--similarities", write_similarities(place, form), model="similarities")

    assert found == {way: pytest.approx(values) for way, values in BY_HAND.items()}


@pytest.mark.parametrize("form", ["json", "npz", "parquet"])
def test_rankings_of_every_form_score_as_by_hand(place, form):
    """Full rankings, in one file or two."""
    paths = write_rankings(place, form)

    found = scores(*[word for path in paths for word in ("--rankings", path)], model="rankings")

    assert found == {way: pytest.approx(values) for way, values in BY_HAND.items()}


def test_ids_may_lie_in_files_of_their_own(place):
    """--image-ids and --caption-ids name them."""
    images, captions = write_embeddings(place, "npy")
    for path in (images, captions):
        path.with_suffix(".ids.txt").rename(place / f"{path.stem}-ids.txt")

    words = ("--image-embeddings", images, "--caption-embeddings", captions)
    found = scores(
        *words, "--image-ids", "images-ids.txt", "--caption-ids", "captions-ids.txt", model="embeddings"
    )

    assert found["i2t"] == pytest.approx(BY_HAND["i2t"])


def test_the_cosine_is_taken_on_request(place):
    """Image 10's embedding made ten times as long changes the order of dot products, not of cosines."""
    images, captions = write_embeddings(place, "npz")
    np.savez(images, ids=np.array(IMAGES), embedding=SIMILARITIES * np.array([[10], [1], [1]], np.float32))

    words = ("--image-embeddings", images, "--caption-embeddings", captions)
    dot = scores(*words, model="embeddings")
    cosine = scores(*words, "--similarity", "cosine", model="embeddings")
    write_embeddings(place, "npz")
    assert cosine == scores(*words, "--similarity", "cosine", model="embeddings")

    assert dot["t2i"]["R@1"] == 2 / 4
    assert cosine["i2t"] == pytest.approx(BY_HAND["i2t"])


def test_several_vectors_an_item_count_by_their_best_pair(place):
    """(N, K, D): a second vector far away changes nothing."""
    for name, ids in (("images", IMAGES), ("captions", CAPTIONS)):
        one = SIMILARITIES if name == "images" else np.eye(4, dtype=np.float32)
        far = np.full_like(one, -9.0 if name == "images" else 0.0)
        np.savez(place / f"{name}.npz", ids=np.array(ids), embedding=np.stack([one, far], axis=1))

    found = scores("--model", "pvse=images.npz,captions.npz", model="pvse")

    assert found["i2t"] == pytest.approx(BY_HAND["i2t"])


def test_a_direction_may_be_left_out_on_request(place):
    """--direction i2t needs no rankings t2i."""
    (place / "mine.i2t.json").write_text(json.dumps(I2T))

    found = scores("--rankings", "mine.i2t.json", "--direction", "i2t", model="rankings")

    assert found == {"i2t": pytest.approx(BY_HAND["i2t"])}


def test_a_short_ranking_of_a_query_that_is_not_scored_matters_to_no_k(place):
    """The others hold the whole gallery, which is smaller than K."""
    (place / "mine.i2t.json").write_text(json.dumps({**I2T, 40: [3]}))
    words = ("--rankings", "mine.i2t.json", "--direction", "i2t", "--metrics", "R@10")

    assert scores(*words, model="rankings")["i2t"]["R@10"] == 1


def test_missing_places_are_misses_on_request(place):
    """Rankings cut after one place: R of image 10 is 2, so half of its R-Precision is lost for certain."""
    (path,) = write_rankings(place, "json", depth=1)
    words = ("evaluate", "--rankings", path, "--release", "release", *METRICS)

    refused = mitl(*words)
    found = ok(*words, "--short", "zero", "--json").json["counts"]["scores"]["release"]["rankings"]

    assert "query 10" in refused.error and "--short zero" in refused.error
    assert found["i2t"]["R@2"] == pytest.approx(2 / 3)
    assert found["i2t"]["R-Precision"] == pytest.approx((1 / 2 + 1 + 0) / 3)


def test_a_query_without_positives_is_none_of_the_set(place):
    """A folder of the two JSONs may list it; it is no miss."""
    listed = place / "release" / "image_to_caption.json"
    listed.write_text(json.dumps(json.loads(listed.read_text()) | {"30": []}))
    path = write_similarities(place, "npz")

    counts = ok("evaluate", "--similarities", path, "--release", "release", *METRICS, "--json").json["counts"]

    assert counts["queries"]["release"] == {"i2t": 2, "t2i": 4}
    assert counts["scores"]["release"]["similarities"]["i2t"]["R@1"] == 1.0


def test_a_set_without_positives_is_named(place):
    """Rather than no word at all."""
    for name in ("image_to_caption.json", "caption_to_image.json"):
        (place / "release" / name).write_text(json.dumps({"10": []}))

    outcome = ok("evaluate", "--similarities", write_similarities(place, "npz"), "--release", "release")

    assert "release lists no query with a positive" in outcome.err


def test_the_median_rank_is_taken_over_all_queries(place):
    """Image 10 at 1, 20 at 1, 30 at 4; captions at 1, 3, 2, 3."""
    found = ok(
        "evaluate",
        "--similarities",
        write_similarities(place, "npz"),
        "--release",
        "release",
        "--metrics",
        "median-rank",
        "--json",
    ).json["counts"]

    assert found["scores"]["release"]["similarities"]["i2t"] == {"median rank": 1.0}
    assert found["scores"]["release"]["similarities"]["t2i"] == {"median rank": 2.5}


def test_items_that_are_not_searched_are_left_out_and_counted(place):
    """The first model says what the gallery is; more captions in the second are left out of it, with a word."""
    write_embeddings(place, "npz")
    more = np.vstack([np.eye(4, dtype=np.float32), np.full((1, 4), 9, np.float32)])
    np.savez(place / "more.npz", ids=np.array([*CAPTIONS, 5]), embedding=more)

    outcome = ok(
        "evaluate",
        *("--model", "one=images.npz,captions.npz", "--model", "two=images.npz,more.npz"),
        *("--release", "release", *METRICS, "--json"),
    )

    found = outcome.json["counts"]["scores"]["release"]
    assert found["two"] == found["one"]
    assert "two holds 1 captions" in outcome.err


def test_models_are_tested_against_one_of_them(place):
    """A model equal to the other differs by nothing, with p = 1."""
    write_embeddings(place, "npz")
    write_rankings(place, "parquet")

    counts = ok(
        "evaluate",
        *("--model", "one=images.npz,captions.npz"),
        *("--model", "two=mine.i2t.parquet,mine.t2i.parquet"),
        *("--release", "release", *METRICS, "--against", "one", "--samples", "50", "--json"),
    ).json["counts"]

    assert {test["model"] for test in counts["paired"]} == {"two"}
    assert len(counts["paired"]) == 8
    assert all((test["difference"], test["p_value"]) == (0.0, 1.0) for test in counts["paired"])


def test_every_figure_has_an_interval_around_it(place):
    """Ends enclose the value; --no-intervals has none; the same seed gives the same ends."""
    words = ("evaluate", "--similarities", write_similarities(place, "npz"), "--release", "release", "--json")

    counts = ok(*words, "--samples", "100").json["counts"]
    for way, metrics in counts["scores"]["release"]["similarities"].items():
        for metric, value in metrics.items():
            low, high = counts["intervals"]["release"]["similarities"][way][metric]
            assert low <= value <= high, (way, metric)
    rsum = counts["rsum"]["release"]["similarities"]
    assert rsum["low"] <= rsum["value"] <= rsum["high"]
    assert ok(*words, "--samples", "100").json["counts"] == counts
    assert ok(*words, "--no-intervals").json["counts"]["intervals"] == {}


def test_rsum_is_the_sum_of_six_recalls(place):
    """R@1, R@5 and R@10 of both directions."""
    words = ("evaluate", "--similarities", write_similarities(place, "npz"), "--release", "release", "--json")

    counts = ok(*words, "--no-intervals").json["counts"]

    recalls = [
        counts["scores"]["release"]["similarities"][way][f"R@{k}"] for way in BY_HAND for k in (1, 5, 10)
    ]
    assert counts["rsum"]["release"]["similarities"]["value"] == pytest.approx(sum(recalls))


def test_rsum_draws_an_image_with_the_captions_that_were_written_for_it():
    """What i2t and t2i of an image have in common does not average out, so that its interval is theirs together."""
    sides = Sides.named(
        [f"{number}.jpg" for number in range(60)],
        [f"{number}.jpg#{place}" for number in range(60) for place in range(5)],
    )
    images, captions = sides.images, sides.captions
    image_of = {caption: caption.split("#")[0] for caption in captions.ids}
    groups = caption_groups(sides, image_of)

    def rows(model, hits):
        hit = {f"{number}.jpg" for number in hits}
        of_images = np.array([name in hit for name in images.ids], float)
        of_captions = np.array([image_of[name] in hit for name in captions.ids], float)
        return [
            Scored(
                "set",
                model,
                way,
                tuple(QueryValues(f"R@{k}", side.numbers, values) for k in (1, 5, 10)),
                drawn,
            )
            for way, side, values, drawn in (
                ("i2t", images, of_images, None),
                ("t2i", captions, of_captions, groups),
            )
        ]

    one, other = rows("one", {*range(0, 60, 3)}), rows("other", {*range(0, 60, 3)} - {0, 30})

    (total,), (i2t, *_) = rsums(one, Sampling()), figures(one, Sampling())
    of_i2t, *_, of_sum = compare([*one, *other], "one", Sampling())

    assert total.high - total.low == pytest.approx(6 * (i2t.high - i2t.low), rel=0.1)
    assert (of_sum.model, of_sum.direction, of_sum.metric) == ("other", "both", "RSUM")
    assert of_sum.difference == pytest.approx(-6 * 2 / 60)
    assert of_sum.p_value == pytest.approx(of_i2t.p_value, abs=0.05)  # no more evidence than one direction is


def test_text_ids_are_ranked_in_their_own_order(place):
    """Ids of another data set may be any texts; ties go to the smaller by code point."""
    (place / "release" / "image_to_caption.json").unlink()
    images, captions = ["b.jpg", "a.jpg"], ["a.jpg#1", "a.jpg#0", "b.jpg#0"]
    np.savez(
        place / "text.npz",
        similarities=np.zeros((2, 3), np.float32),
        image_ids=np.array(images),
        caption_ids=np.array(captions),
    )
    from mitl.stages.evaluating.model_files import read_model
    from mitl.stages.evaluating.positive_sets import searched
    from mitl.stages.evaluating.request import ModelFiles

    raw = read_model(ModelFiles("text", similarities=place / "text.npz"), "dot")
    sides = searched([raw], None, whole_split=False)

    assert sides.captions.ids == ("a.jpg#0", "a.jpg#1", "b.jpg#0")
    assert raw.fitted(sides, ()).similarities is not None


def test_integers_beside_texts_are_ranked_as_texts_as_in_a_project(place):
    """Pictures 2 and 10 with captions 2#0 and 10#0, as a table without caption ids gives them: 10 before 2."""
    from mitl.stages.evaluating.model_files import read_model
    from mitl.stages.evaluating.positive_sets import searched
    from mitl.stages.evaluating.request import ModelFiles

    images, captions = ["2", "10"], ["2#0", "10#0"]
    held = {"image_ids": np.array([2, 10]), "caption_ids": np.array(captions)}
    np.savez(place / "mixed.npz", similarities=np.zeros((2, 2), np.float32), **held)
    project = assemble("t", "table", map(Image, images), map(Caption, captions, images, captions), source="t")

    sides = searched(
        [read_model(ModelFiles("m", similarities=place / "mixed.npz"), "dot")], None, whole_split=False
    )

    assert sides.images.ids == tuple(image.external_id for image in project.images) == ("10", "2")
    assert sides.captions.ids == tuple(caption.external_id for caption in project.captions)


@given(
    rows=st.lists(st.lists(st.integers(-2, 2), min_size=5, max_size=5), min_size=1, max_size=4),
    depth=st.integers(1, 6),
)
def test_the_head_of_a_block_is_the_head_of_its_ranking(rows, depth):
    """Ties included, which go to the smaller id."""
    similarities = np.array(rows, dtype=np.float32)
    block = Block(np.arange(len(rows)), np.array([3, 4, 7, 8, 9]), similarities)

    assert np.array_equal(block.head(depth), block.rankings[:, :depth])


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_whole_numbers_are_ranked_like_others(kind):
    """The smallest number of a type has none of the other sign in it."""
    low = np.iinfo(kind).min
    similarities = np.array([[low, low + 3, low + 1, low, low + 255]], kind)

    block = Block(np.arange(1), np.arange(5), similarities)

    assert block.rankings.tolist() == [[4, 1, 2, 0, 3]]
    assert block.head(3).tolist() == [[4, 1, 2]]


def test_parquet_rankings_may_come_in_any_order(place):
    """Rows are put in order by their ranks."""
    rows = [(q, rank, item) for q, items in I2T.items() for rank, item in enumerate(items, 1)][::-1]
    query, rank, item = zip(*rows, strict=True)
    pq.write_table(pa.table({"query_id": query, "rank": rank, "item_id": item}), place / "x.i2t.parquet")

    found = scores("--rankings", "x.i2t.parquet", "--direction", "i2t", model="rankings")

    assert found["i2t"] == pytest.approx(BY_HAND["i2t"])


def test_one_query_has_no_interval_and_no_test_and_both_are_said(place):
    """Or the figures stand without what was asked for, and nothing says why."""
    (place / "release" / "image_to_caption.json").write_text(json.dumps({IMAGES[0]: [CAPTIONS[0]]}))
    write_similarities(place, "npz")
    models = ("--model", "a=similarities.npz", "--model", "b=similarities.npz")

    warned = ok("evaluate", *models, "--against", "a", "--release", "release", "--json").json["warnings"]
    plain = ok("evaluate", *models, "--release", "release", "--no-intervals", "--json").json["warnings"]

    assert warned == ["release i2t has a value of 1 query; an interval or a paired test needs at least 2"]
    assert plain == []
