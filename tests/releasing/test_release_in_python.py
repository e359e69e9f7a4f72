"""A release in Python: frames, scores and rankings of arrays, frames and files, and what a notebook shows."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from cli_kit import ok
from release_kit import audited_world, world
from scored_kit import make, scores
from world_kit import make_world

import mitl
from mitl.errors import MitlError
from mitl.metrics import QueryGroups, QueryValues, interval
from mitl.positives.release import write_release
from mitl.records import IdKind

KINDS = pytest.mark.parametrize("kind", list(IdKind))


@KINDS
def test_a_release_in_python_scores_as_the_command_does(tmp_path, kind):
    """From dictionaries, arrays and similarities alike."""
    folder = make(tmp_path, kind)
    release, expected = mitl.load(folder / "release"), scores(folder)
    images, captions = (np.load(folder / f"{name}.npz") for name in ("images", "captions"))
    vectors = [dict(zip(one["ids"].tolist(), one["embedding"], strict=True)) for one in (images, captions)]
    matrix = images["embedding"] @ captions["embedding"].T
    plain = mitl.Scoring(intervals=False)

    for found in (
        release.evaluate(*vectors, scoring=plain),
        release.evaluate((images["ids"], images["embedding"]), (captions["ids"], captions["embedding"])),
        release.evaluate(similarities=(matrix, images["ids"], captions["ids"])),
    ):
        assert len(found) == 10
        for row in found.itertuples():
            assert row.value == expected[row.direction][row.metric]
    assert len(release.positives) and len(release.negatives) and len(release.judgements)
    assert release.queries("i2t") and "demo" in repr(release)


def test_intervals_are_those_of_the_command_and_draw_the_captions_of_an_image_together(tmp_path):
    """A model that knows either all captions of an image or none; of captions, the image is what is drawn."""
    folder = make(tmp_path)
    release = mitl.load(folder / "release")
    written = release.positives[["original" in sources for sources in release.positives["sources"]]].astype(
        str
    )
    image_of = dict(zip(written["caption_id"], written["image_id"], strict=True))
    images, captions = (np.load(folder / f"{name}.npz")["ids"] for name in ("images", "captions"))
    known = dict(zip(images[::2], np.eye(len(images)), strict=False))
    far = np.full(len(images), 0.1)
    sides = [
        {name: known.get(of(name), far) for name in ids}
        for ids, of in ((images, str), (captions, image_of.get))
    ]
    for name, side in zip(("images", "captions"), sides, strict=True):
        np.savez(folder / f"{name}.npz", ids=np.array(list(side)), embedding=np.array(list(side.values())))
    files = "m={},{}".format(*(folder / f"{name}.npz" for name in ("images", "captions")))
    told = ok("evaluate", "--release", release.folder, "--model", files, "--json").json["counts"]["intervals"]
    found = release.evaluate(*sides)
    for row in found.itertuples():
        assert [row.low, row.high] == told["release"]["m"][row.direction][row.metric]

    first = release.rankings(*sides, depth=1).set_index("query_id")["match"].fillna(False)
    queries = sorted(query for query, items in release.queries("t2i").items() if items)
    hits = QueryValues("R@1", np.arange(len(queries)), first[queries].to_numpy(float))
    groups = QueryGroups(
        hits.query_ids, np.array([int(image_of.get(query, -int(query))) for query in queries])
    )
    expected, alone = interval(hits, samples=20_000, groups=groups), interval(hits, samples=20_000)
    row = (
        release.evaluate(*sides, scoring=mitl.Scoring("R@1", samples=20_000))
        .set_index("direction")
        .loc["t2i"]
    )
    assert (row["low"], row["high"]) == pytest.approx((expected.low, expected.high), abs=0.03)
    assert row["high"] - row["low"] > 1.1 * (alone.high - alone.low)


def test_a_part_of_the_gallery_is_told(tmp_path):
    """A model that holds the queries alone is scored in a smaller gallery than others; from Python and files alike."""
    folder = make(tmp_path)
    release = mitl.load(folder / "release")
    captions = np.load(folder / "captions.npz")
    some = np.isin(captions["ids"], list(release.queries("t2i")))
    np.savez(folder / "some.npz", ids=captions["ids"][some], embedding=captions["embedding"][some])
    files = folder / "images.npz", folder / "some.npz"

    with pytest.warns(UserWarning, match="not among what is searched"):
        release.evaluate(*files)
    told = ok("evaluate", "--release", folder / "release", "--model", "m={},{}".format(*files)).err
    assert "not among what is searched" in told


def test_what_a_notebook_shows_is_escaped(tmp_path):
    """A release may be called anything."""
    write_release(tmp_path / "release", world())
    path = tmp_path / "release" / "manifest.json"
    path.write_text(path.read_text().replace('"name": "demo"', '"name": "<b>&demo"'))
    shown = mitl.load(tmp_path / "release")._repr_html_()
    assert "<b>" not in shown and "&lt;b&gt;&amp;demo" in shown


def test_importing_mitl_loads_nothing_heavy():
    """Its names come when they are used."""
    code = "import sys, mitl; sys.exit(any(name in sys.modules for name in ('numpy', 'pandas', 'torch')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def arrays(folder):
    """Both sides of the model as frames, and its similarities as one."""
    images, captions = (np.load(folder / f"{name}.npz") for name in ("images", "captions"))
    sides = [pd.DataFrame(one["embedding"], index=one["ids"]) for one in (images, captions)]
    matrix = images["embedding"] @ captions["embedding"].T
    return *sides, pd.DataFrame(matrix, index=images["ids"], columns=captions["ids"])


@KINDS
def test_frames_and_files_score_alike(tmp_path, kind):
    """Embeddings by their index, similarities by index and columns, files by their paths; cosines as well."""
    folder = make(tmp_path, kind)
    release = mitl.load(folder / "release")
    images, captions, matrix = arrays(folder)
    plain = mitl.Scoring(intervals=False)
    ids = [np.array(axis.astype(str), dtype=str) for axis in (matrix.index, matrix.columns)]
    np.savez(folder / "s.npz", similarities=matrix.to_numpy(), image_ids=ids[0], caption_ids=ids[1])
    expected = release.evaluate(images, captions, scoring=plain)

    for found in (
        release.evaluate(folder / "images.npz", str(folder / "captions.npz"), scoring=plain),
        release.evaluate(images, folder / "captions.npz", scoring=plain),
        release.evaluate(similarities=matrix, scoring=plain),
        release.evaluate(similarities=folder / "s.npz", scoring=plain),
    ):
        pd.testing.assert_frame_equal(found, expected)


def test_tensors_and_a_text_of_metrics_are_read(tmp_path):
    """Ids in a tensor are its numbers; metrics may be one text with commas, as on the command line."""
    torch = pytest.importorskip("torch")
    folder = make(tmp_path, IdKind.INTEGER)
    release = mitl.load(folder / "release")
    images, captions, matrix = arrays(folder)
    whole = [torch.tensor(axis.astype(int).to_numpy()) for axis in (matrix.index, matrix.columns)]
    expected = release.evaluate(similarities=matrix, scoring=mitl.Scoring(("R@1", "mAP@R"), intervals=False))
    found = release.evaluate(
        similarities=(torch.tensor(matrix.to_numpy()), *whole),
        scoring=mitl.Scoring("R@1,mAP@R", intervals=False),
    )

    pd.testing.assert_frame_equal(found, expected)

    # As a model leaves them: half as wide, and still bound to what it learns.
    halves = [torch.tensor(side.to_numpy()).bfloat16() for side in (images, captions)]
    rounded = [side.float().numpy() for side in halves]
    expected = release.evaluate((images.index, rounded[0]), (captions.index, rounded[1]))
    found = release.evaluate(
        (images.index, halves[0].requires_grad_()), dict(zip(captions.index, halves[1], strict=True))
    )

    pd.testing.assert_frame_equal(found, expected)


@KINDS
def test_rankings_are_those_that_are_scored(tmp_path, kind):
    """R@1 and R@5 follow from them, ties included, and each place says what people judged."""
    folder = make(tmp_path, kind)
    release, expected = mitl.load(folder / "release"), scores(folder)
    images, captions, _ = arrays(folder)
    found = release.rankings(images, captions, depth=5)

    assert found["rank"].max() == 5 and found["match"].isna().any()
    for way, rows in found.groupby("direction"):
        positives = {query: items for query, items in release.queries(way).items() if items}
        rows = rows[rows["query_id"].isin(positives)]
        for k in (1, 5):
            hits = rows[rows["rank"] <= k].groupby("query_id")["match"].any()
            assert hits.mean() == pytest.approx(expected[way][f"R@{k}"])
        refused = rows[rows["match"].eq(False).fillna(False)]
        known = release.negatives[["image_id", "caption_id"]].astype(str)
        judged = set(known.itertuples(index=False, name=None))
        pairs = refused[["query_id", "item_id"]].itertuples(index=False, name=None)
        assert len(refused) and {pair if way == "i2t" else pair[::-1] for pair in pairs} <= judged


def test_what_the_release_holds_is_named(tmp_path):
    """Its tables, and the positives that the data set did not have."""
    write_release(tmp_path / "release", audited_world())
    release = mitl.load(tmp_path / "release")

    assert {"positives", "negatives", "judgements", "audit"} <= set(release.tables)
    assert all(len(release.table(name)) for name in release.tables)
    old = [sources for sources in release.positives["sources"] if "original" in sources]
    assert 0 < len(release.found) == len(release.positives) - len(old)
    assert "not stated" in release._repr_html_() and "audit" in release._repr_html_()


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda r: r.table("nope"), "has no table 'nope'; it has: judgements, negatives, positives"),
        (lambda r: r.queries("x"), "there is no direction 'x'; it is i2t or t2i"),
        (lambda r: r.evaluate(), "give images and captions, or similarities"),
        (lambda r: r.evaluate({"1": [1.0]}, {"1": [1.0]}), "are not among the 1 searched"),
        (lambda r: r.evaluate({"1": [1.0, 2.0]}, {"1": [1.0]}), "differ in width"),
        (lambda r: r.evaluate({"1": [float("nan")]}, {"1": [1.0]}), "of 1 of 1 images are not finite"),
        (lambda r: r.evaluate({"1": [1.0]}, {"1": [0.0]}), "of 1 of 1 captions are all zeros; first: '1'"),
        (lambda r: r.evaluate({"1": "dog"}, {"1": [1.0]}), "are no array of numbers"),
        (lambda r: r.evaluate([1], [2]), "embeddings of images are list; give {id: vector}"),
        (lambda r: r.evaluate("nope.npz", "nope.npz"), "there is no file 'nope.npz'"),
        (lambda r: r.evaluate(similarities=3), "similarities are int; give images"),
        (lambda r: r.evaluate({"1": [1.0]}, similarities=(1, 2, 3)), "give one of the two"),
        (
            lambda r: r.evaluate({"1": [1j]}, {"1": [1j]}),
            "embeddings of images are complex128; they should be real",
        ),
        (
            lambda r: r.evaluate({"1": [True]}, {"1": [1.0]}),
            "embeddings of images are bool; they should be real",
        ),
        (
            lambda r: r.evaluate({"1": [1.0]}, {"1": [1.0]}, scoring=mitl.Scoring(similarity="cos")),
            "no similarity called 'cos'; it is dot or cosine",
        ),
        (
            lambda r: r.evaluate({"1": [1]}, {"1": [1]}, scoring=mitl.Scoring(seed=-1)),
            "seed is -1; it should be",
        ),
        (
            lambda r: r.evaluate({"1": [1]}, {"1": [1]}, scoring=mitl.Scoring(samples=1.5)),
            "samples is 1.5; it",
        ),
        (
            lambda r: r.evaluate({"1": [1]}, {"1": [1]}, scoring="cosine"),
            "scoring is 'cosine'; give mitl.Scoring(...), such as mitl.Scoring(similarity='cosine')",
        ),
        (lambda r: mitl.Scoring(metrics=None), "metrics is None; give names"),
        (lambda r: mitl.Scoring(metrics=("R@1", 5)), "metrics is ('R@1', 5); give names"),
        (lambda r: mitl.load(None), "the folder of a release is None; give its path"),
        (
            lambda r: r.evaluate(similarities=(np.ones((1, 2)), ["1"], ["1"])),
            "are (1, 2), but 1 image ids and 1 caption ids were given; give an id for each row",
        ),
        (lambda r: r.rankings({"1": [1.0]}, {"1": [1.0]}, depth=0), "depth is 0"),
        (
            lambda r: r.rankings({"1": [1.0]}, {"1": [1.0]}, depth=2.5),
            "depth is 2.5; it should be a whole number",
        ),
        (lambda r: mitl.show(r), "pairs are Release; give a frame"),
        (lambda r: mitl.show(r.positives, most=-1), "most is -1"),
        (lambda r: mitl.show(r.positives, "/nowhere"), "/nowhere"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(tmp_path, ask, told):
    """Every error is a MitlError."""
    write_release(tmp_path / "release", world())
    with pytest.raises(MitlError) as raised:
        ask(mitl.load(tmp_path / "release"))
    assert told in str(raised.value) and "\n" not in str(raised.value)


def test_pairs_are_shown_with_pictures_and_their_captions_escaped(tmp_path):
    """Captions are anybody's text; controls are no part of it, and what is left out is said."""
    from dataclasses import replace

    settings = make_world(tmp_path, n_images=8)
    from mitl.stages.evaluating.project import read_project

    captions = read_project(settings).items.captions
    ids = [one.external_id for one in captions]
    images = {one.id: one.external_id for one in read_project(settings).items.images}
    pairs = pd.DataFrame({"image_id": [images[one.image_id] for one in captions], "caption_id": ids})
    shown = mitl.show(pairs.assign(label="weak_yes"), tmp_path, most=3)
    hostile = "<script>alert(1)</script>\x00\u202eabc"
    html = replace(shown, texts={**shown.texts, ids[0]: hostile})._repr_html_()

    assert html.count('<img src="data:image/jpeg;base64,') == 3 and "weak_yes" in html
    assert "<script" not in html and "&lt;script&gt;" in html and "\x00" not in html and "<bdi>" in html
    assert f"3 of {len(ids)} pairs" in html and captions[0].text in repr(shown)
    ranked = pd.DataFrame(
        {
            "direction": ["i2t", "t2i"],
            "query_id": [images[captions[0].image_id], ids[0]],
            "rank": 1,
            "item_id": [ids[0], images[captions[0].image_id]],
            "match": pd.array([True, None], "boolean"),
        }
    )
    lines = repr(mitl.show(ranked, tmp_path)).splitlines()
    assert lines[0].split(" | ")[:3] == lines[1].split(" | ")[:3]
    assert lines[0].endswith("match") and lines[1].endswith("not judged")
    with pytest.raises(MitlError, match="columns rank, item_id, match; pairs have image_id and caption_id"):
        mitl.show(ranked[["rank", "item_id", "match"]], tmp_path)
