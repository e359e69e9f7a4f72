"""The drop-in ``Metrics``: equal to eccv_caption where that is right, better where it is wrong."""

from __future__ import annotations

import io
from contextlib import redirect_stderr

import numpy as np
import pytest
from hypothesis import given, settings
from metrics_kit import World, both_ways, reference, worlds
from suite_kit import examples

from mitl.errors import DatasetError, MetricError
from mitl.metrics.compat import Metrics

EVERYTHING = (
    "coco_1k_recalls",
    "coco_5k_recalls",
    "cxc_recalls",
    "eccv_map_at_r",
    "eccv_rprecision",
    "eccv_r1",
)


@pytest.fixture(scope="module")
def theirs():
    return reference().Metrics()


@pytest.fixture(scope="module")
def ours():
    reference()
    return Metrics()


def same(one, other):
    """Both tables of numbers hold the same to 1e-12."""
    assert one.keys() == other.keys()
    for key, score in one.items():
        assert score == pytest.approx(other[key], abs=1e-12), key


@settings(max_examples=examples(25, 60))
@given(worlds())
def test_every_metric_equals_the_reference_on_full_rankings(theirs, ours, world):
    """Random, degenerate and adversarial rankings; from lists and from arrays; whole call and each method."""
    world.set_on(theirs)
    world.set_on(ours)
    lists, arrays = world.rankings, world.arrays()
    with redirect_stderr(io.StringIO()):  # it shows a progress bar whatever it is told
        wanted = theirs.compute_all_metrics(lists["i2t"], lists["t2i"], EVERYTHING, (1, 2, 5))

    same(ours.compute_all_metrics(lists["i2t"], lists["t2i"], EVERYTHING, (1, 2, 5)), wanted)
    same(ours.compute_all_metrics(arrays["i2t"], arrays["t2i"], EVERYTHING, (1, 2, 5)), wanted)
    for name in ("coco_1k_recalls", "coco_5k_recalls", "cxc_recalls", "eccv_recalls"):
        for k in (1, 3):
            found = getattr(ours, name)(arrays, "all", k)
            assert found == pytest.approx(getattr(theirs, name)(lists, "all", K=k), abs=1e-12)
        assert getattr(ours, name)(arrays, "t2i", 2) == pytest.approx(
            getattr(theirs, name)(lists, "t2i", K=2)
        )
    with redirect_stderr(io.StringIO()):
        same(ours.eccv_metrics(arrays, "i2t"), theirs.eccv_metrics(lists, "i2t"))


@settings(max_examples=20)
@given(worlds())
def test_plausible_matches_equal_the_references(theirs, ours, world):
    """R-Precision on any table; under the name ``pmrp`` alone, where the package puts it under i2t and t2i."""
    world.set_on(theirs).pm_gts = world.tables["cxc_gts"]
    world.set_on(ours).pm_gts = world.tables["cxc_gts"]
    wanted = theirs.pmrp(world.rankings, "all")

    assert ours.pmrp(world.rankings, "all") == pytest.approx(wanted, abs=1e-12)
    found = ours.compute_all_metrics(world.rankings["i2t"], world.rankings["t2i"], ("pmrp",))
    assert found == {"pmrp": pytest.approx(wanted, abs=1e-12)}


@pytest.mark.thorough
def test_the_official_sets_score_as_the_reference_says():
    """All 24 numbers on the official positives, on heads of 150 in which positives come early."""
    eccv_caption = reference()
    theirs, ours = eccv_caption.Metrics(), Metrics()
    rng = np.random.default_rng(3)
    captions, images = theirs.coco_ids.astype(np.int32), np.array(sorted(theirs.coco_gts["i2t"]), np.int32)
    arrays = {
        side: (queries, heads(rng, queries, gallery, [t[side] for t in (theirs.coco_gts, theirs.eccv_gts)]))
        for side, queries, gallery in (("i2t", images, captions), ("t2i", captions, images))
    }
    lists = {s: dict(zip(q.tolist(), rows.tolist(), strict=True)) for s, (q, rows) in arrays.items()}
    with redirect_stderr(io.StringIO()):
        wanted = theirs.compute_all_metrics(lists["i2t"], lists["t2i"], EVERYTHING)

    found = ours.compute_all_metrics(arrays["i2t"], arrays["t2i"], EVERYTHING)
    same(found, wanted)
    assert len(found) == 12
    assert 0.2 < found["coco_1k_r1"]["t2i"] < 0.8


def heads(rng, queries, gallery, tables, depth=150):
    """Items in strides through the gallery, of which some give way to positives among the first twenty."""
    starts, strides = rng.integers(0, len(gallery), len(queries)), 2 * rng.integers(1, 2000, len(queries)) + 1
    strides += strides % 5 == 0  # coprime to the gallery, so that no item comes twice
    strides += 2 * (strides % 2 == 0)
    strides += 2 * (strides % 5 == 0)
    wide = gallery[(starts[:, None] + strides[:, None] * np.arange(depth + 40)) % len(gallery)].tolist()
    places = rng.integers(0, 20, (len(queries), 8)).tolist()
    rows = []
    for query, row, into in zip(queries.tolist(), wide, places, strict=True):
        right = dict.fromkeys(item for table in tables for item in table.get(query, ()))
        for item, place in zip(right, into, strict=False):
            if place < 12:
                row.insert(place, item)
        rows.append(list(dict.fromkeys(row))[:depth])
    return np.array(rows, dtype=np.int32)


@pytest.fixture
def small(ours):
    """Five images with two captions each; each query finds its own first."""
    captions = list(range(100, 110))
    coco = both_ways({(1 + (c - 100) // 2, c) for c in captions})
    world = World(np.array(captions), {"coco_gts": coco, "cxc_gts": coco, "eccv_gts": coco})
    for side, gallery in (("i2t", captions), ("t2i", [1, 2, 3, 4, 5])):
        world.rankings[side] = {
            query: right + [item for item in gallery if item not in right]
            for query, right in coco[side].items()
        }
    world.set_on(ours)
    ours.pm_gts = {}
    ours.verbose = False
    return world


def test_rprecision_alone_is_given(ours, small):
    """The package looks for a misspelt name and gives nothing; both spellings are understood."""
    for name in ("eccv_rprecision", "eccv_rpresion"):
        found = ours.compute_all_metrics(small.rankings["i2t"], small.rankings["t2i"], (name,))
        assert found == {"eccv_rprecision": {"i2t": 1.0, "t2i": 1.0}}


def test_recalls_are_given_beside_map_at_r(ours, small):
    """The package leaves ``eccv_recalls`` out when mAP@R is asked for, and R@1 when ``Ks`` lacks 1."""
    targets = ("eccv_map_at_r", "eccv_recalls", "cxc_recalls", "cxc_r1", "coco_5k_r3")
    found = ours.compute_all_metrics(small.rankings["i2t"], small.rankings["t2i"], targets, Ks=(2,))

    assert list(found) == ["coco_5k_r3", "cxc_r2", "cxc_r1", "eccv_map_at_r", "eccv_r2"]


def test_short_lists_are_refused_by_name_or_count_as_misses(ours, small):
    """The package scores R-Precision over what was retrieved; a list of one right item of two is half right here."""
    short = {side: {q: row[:1] for q, row in table.items()} for side, table in small.rankings.items()}

    with pytest.raises(MetricError, match="i2t: query 1 has 2 positives, but its ranking ends at 1"):
        ours.eccv_metrics(short, "all")
    with pytest.raises(MetricError, match="Recall@5 needs 5 ranked items"):
        ours.coco_5k_recalls(short, "i2t", K=5)
    lenient = Metrics(short="zero")
    small.set_on(lenient)
    assert lenient.eccv_metrics(short, "i2t")["eccv_rprecision"] == {"i2t": 0.5}


def test_rankings_set_before_are_scored(ours, small):
    """As in the package, ``compute_all_metrics`` without rankings takes those that were set."""
    ours.set_i2t_retrieved_items(small.arrays()["i2t"])
    ours.set_t2i_retrieved_items(small.rankings["t2i"])

    assert ours.compute_all_metrics(target_metrics=["coco_1k_r1"]) == {"coco_1k_r1": {"i2t": 1.0, "t2i": 1.0}}


def test_verbose_writes_each_number(ours, small, capsys):
    """To stderr, as the package's progress bars."""
    ours.compute_all_metrics(small.rankings["i2t"], small.rankings["t2i"], ("cxc_r1",), verbose=True)

    assert capsys.readouterr().err == "cxc_r1           i2t 1.0000 t2i 1.0000\n"


def test_one_direction_needs_the_rankings_of_one(ours, small):
    """The package asks for both for COCO 1K, and gives a bare number there."""
    one = {"t2i": small.rankings["t2i"]}

    assert ours.coco_1k_recalls(one, "t2i") == 1.0
    assert ours.eccv_recalls(one, "t2i") == {"t2i": 1.0}


def test_tables_are_replaced_but_not_edited(ours, small):
    """A table that was turned into arrays may not change behind them."""
    with pytest.raises(TypeError):
        ours.eccv_gts["i2t"][1] = [100]
    ours.eccv_gts = {"i2t": {1: [108]}, "t2i": {108: [1]}}

    assert ours.eccv_recalls(small.rankings, "i2t") == {"i2t": 0.0}


def call(**changes):
    """A call whose rankings are changed."""
    return lambda m, w: m.compute_all_metrics(
        **{f"{s}_retrieved_items": w.rankings[s] for s in w.rankings} | changes
    )


def with_ranking(side, query, ranking):
    """A call with one query's ranking replaced, or taken away."""

    def scored(m, w):
        table = {q: r for q, r in {**w.rankings[side], query: ranking}.items() if r is not None}
        return m.compute_all_metrics(
            **{f"{s}_retrieved_items": {**w.rankings, side: table}[s] for s in w.rankings}
        )

    return scored


@pytest.mark.parametrize(
    ("act", "complaint"),
    [
        (call(t2i_retrieved_items=None), "t2i_retrieved_items is missing; give both directions"),
        (call(i2t_retrieved_items=[[100]]), "i2t: rankings are a list; give a dict of lists"),
        (call(target_metrics=("coco_1k", "x")), "no metric called 'coco_1k'; known: coco_1k_r1"),
        (call(target_metrics=("eccv_recalls",), Ks=(0,)), "K is 0, but ranks start at 1"),
        (call(target_metrics=("pmrp",)), "plausible matches are not at hand; give extra_file_dir"),
        (with_ranking("i2t", 3, None), "i2t: query 3 has no ranking"),
        (with_ranking("i2t", 3, [104, 104, 105]), "i2t: the ranking of query 3 names item 104 twice"),
        (with_ranking("i2t", 1, ["100"]), "item ids must be integers, but '100' is of type str"),
        (with_ranking("i2t", 1, "100"), "is a str; give a list of item ids"),
        (
            with_ranking("i2t", 3, {104: 0.9}),
            "i2t: the ranking of query 3 is a dict; give a list of item ids",
        ),
        (with_ranking("t2i", 100, [1.0, 2.0]), "t2i: item ids must be integers, but 1.0 is of type float"),
        (call(i2t_retrieved_items={"1": [100]}), "query ids must be integers, but '1' is of type str"),
        (call(i2t_retrieved_items=(np.array(["1"]), np.array([[100]]))), "query ids must be integers"),
        (call(i2t_retrieved_items=(np.array([1]), np.array([[0.5]]))), "item ids must be integers, but 0.5"),
        (call(i2t_retrieved_items=(np.array([1, 2]), np.array([[100]]))), "but 2 query ids were given"),
        (call(i2t_retrieved_items={}), "no rankings were given"),
        (lambda m, w: m.cxc_recalls(w.rankings, "both"), "no modality 'both'; known: i2t, t2i, all"),
        (lambda m, w: m.cxc_recalls({"i2t": {}}, "all"), "retrieved_items has no 't2i'; it holds: i2t"),
        (lambda m, w: m.cxc_recalls([], "all"), "retrieved_items is a list"),
        (lambda m, w: Metrics("nowhere"), "there is no file 'nowhere/pm_image_to_caption.json'"),
        (lambda m, w: setattr(m, "eccv_gts", {"i2t": {}}), "eccv_gts needs the tables i2t and t2i"),
    ],
)
def test_bad_input_is_one_clear_line(ours, small, act, complaint):
    """What was found, and what would be right."""
    with pytest.raises(MetricError) as caught:
        act(ours, small)

    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_positions_in_place_of_ids_are_noticed(ours, small):
    """Otherwise every score would be near 0, quietly."""
    rows = {q: list(range(10)) for q in small.rankings["i2t"]}

    with pytest.raises(MetricError, match="i2t: of the first items of 5 rankings 0 are in the gallery"):
        ours.coco_5k_recalls({"i2t": rows}, "i2t")
    with pytest.raises(MetricError, match="by the data set's own ids, not by position"):
        ours.coco_1k_recalls({"i2t": rows}, "i2t")


def test_nothing_set_and_nothing_given_is_refused():
    """The message says which methods there are."""
    reference()
    with pytest.raises(MetricError, match="no i2t rankings; pass i2t_retrieved_items, or set_i2t_retrieved"):
        Metrics().compute_all_metrics()


def test_without_the_package_the_extra_is_named(monkeypatch):
    """Its data are what is missing, not a module."""
    monkeypatch.setattr("mitl.datasets.official.find_spec", lambda name: None)

    with pytest.raises(DatasetError, match=r"pip install 'mitl\[official\]'"):
        Metrics()
