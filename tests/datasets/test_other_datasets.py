"""Data sets other than COCO and scenes, whose ids are texts, through the whole loop on the command line."""

from __future__ import annotations

import csv
import json
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from cli_kit import fails, ok
from PIL import Image

from mitl.cli.reference import COUNTS

ANNOTATORS = ("near", "far")
PROPOSE = ("propose", "--top-k", "3", "--depth", "4")
WHAT = (
    "a dog on a beach",
    "two cats",
    "a red bus, parked",
    "a man who cooks",
    "snow",
    'a sign that says "stop"',
)
ODD_IDS = ("007", "kitchen/1", "étage 2", "<b>&amp;", "a,b", "10#0", "O'Neil", "ω")


@dataclass(frozen=True)
class Walk:
    """A project that went through the loop, with its ids as its files have them."""

    folder: Path
    init: tuple[str, ...]
    own_image: dict[str, str]
    """Caption's id → its image's."""
    printed: dict[str, str]
    """What each command said last."""


def flickr30k(folder: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """Files in Flickr30k's official layout: Karpathy's JSON and the folder of pictures; a training image too."""
    images, own = [], {}
    (folder / "flickr30k-images").mkdir()
    for place in range(9):
        name = f"{1000092795 * (place + 1) % 9999999967}.jpg"
        Image.new("RGB", (48, 32), (25 * place, 90, 200)).save(folder / "flickr30k-images" / name)
        raw = [f"{WHAT[place % 6]} , seen from place {k} ." for k in range(5)]
        sentids = [5 * place + k for k in range(5)]
        sentences = [
            {"tokens": text.split(), "raw": text, "imgid": place, "sentid": id_}
            for text, id_ in zip(raw, sentids, strict=True)
        ]
        split = "train" if place == 8 else "test"
        entry = {"sentids": sentids, "imgid": place, "sentences": sentences, "split": split, "filename": name}
        images.append(entry)
        own |= {f"{name}#{k}": name for k in range(5) if split == "test"}
    (folder / "dataset_flickr30k.json").write_text(json.dumps({"images": images, "dataset": "flickr30k"}))
    files = ("--split-file", "dataset_flickr30k.json", "--images", "flickr30k-images")
    return ("init", "--dataset", "flickr30k", *files), own


def table(folder: Path) -> tuple[tuple[str, ...], dict[str, str]]:
    """A CSV of pairs with ids of every kind of character, and its pictures beside it."""
    own = {}
    with (folder / "pairs.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image_id", "caption_id", "caption", "file"])
        for place, image in enumerate(ODD_IDS):
            Image.new("RGB", (48, 32), (25 * place, 90, 200)).save(folder / f"{place}.png")
            for k in range(3):
                own[f"{image}:{k}"] = image
                text = f"{WHAT[place % 6]} ({k}) — “{image}”"
                writer.writerow([image, f"{image}:{k}", text, f"{place}.png"])
    return ("init", "--dataset", "table", "--captions", "pairs.csv"), own


def use_embeddings(own: dict[str, str]) -> None:
    """Two annotators from files: captions lie near their own image, in the second one with more noise."""
    images, captions = sorted(set(own.values())), sorted(own)
    draw = np.random.default_rng(0)
    base = draw.normal(size=(len(images), 12))
    lines = ["", "[propose]", f"annotators = {json.dumps(list(ANNOTATORS))}"]
    for place, name in enumerate(ANNOTATORS):
        rows = np.array([images.index(own[caption]) for caption in captions])
        near = base[rows] + draw.normal(size=(len(captions), 12)) * (0.3 + place)
        for side, ids, vectors in (("images", images, base), ("captions", captions, near)):
            np.savez(f"{name}-{side}.npz", ids=np.array(ids), embedding=vectors.astype(np.float32))
        files = f'{{images = "{name}-images.npz", captions = "{name}-captions.npz"}}'
        lines += ["", f"[annotators.{name}]", f"embeddings = {files}"]
    config = Path("mitl.toml")
    config.write_text(config.read_text(encoding="utf-8") + "\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module", params=[flickr30k, table], ids=["flickr30k", "table"])
def walk(request, tmp_path_factory) -> Walk:
    """The whole loop on one data set."""
    folder = tmp_path_factory.mktemp("project")
    printed: dict[str, str] = {}

    def mitl(*words: str) -> dict:
        found = ok(*words, "--json").json
        assert not set(found["counts"]) - set(COUNTS[found["command"]]), words
        printed[words[0]] = found["status"]
        return found

    with chdir(folder):
        init, own = request.param(folder)
        mitl(*init)
        use_embeddings(own)
        mitl(*PROPOSE)
        for _ in range(6):
            mitl("publish", "--sandbox")
            answered = mitl("simulate")
            mitl("harvest")
            if answered["status"] == mitl("review", "settle")["status"] == "nothing_to_do":
                break
        mitl("build-dataset", "--out", "release", "--check-privacy")
        mitl("build-dataset", "--out", "strict", "--strict", "--check-privacy")
        mitl("compare", "strict", "release", "--differences", "differences.csv")
        mitl("evaluate", "--release", "release")
        mitl("report")
    return Walk(folder, init, own, printed)


pytestmark = pytest.mark.slow


def rows_of(folder: Path, name: str) -> list[dict]:
    return pq.read_table(folder / name).to_pylist()


@pytest.mark.thorough(but=("flickr30k",))
def test_every_step_has_something_to_do(walk):
    """And the loop ends with nothing left to ask."""
    assert walk.printed == {
        "init": "done",
        "propose": "done",
        "publish": "nothing_to_do",
        "simulate": "nothing_to_do",
        "harvest": "nothing_to_do",
        "review": "nothing_to_do",
        "build-dataset": "done",
        "compare": "done",
        "evaluate": "done",
        "report": "done",
    }
    assert (walk.folder / "report.html").stat().st_size > 10_000


def test_the_release_loads_in_pandas_under_the_data_sets_own_ids(walk):
    """Positives, negatives and judgements carry the texts that the source files have; people found originals."""
    pandas = pytest.importorskip("pandas")
    release = walk.folder / "release"
    images, captions = set(walk.own_image.values()), set(walk.own_image)

    for name in ("positives", "negatives", "judgements"):
        frame = pandas.read_parquet(release / f"{name}.parquet")
        assert len(frame), name
        assert set(frame["image_id"]) <= images and set(frame["caption_id"]) <= captions

    positives = pandas.read_parquet(release / "positives.parquet")
    right = [
        walk.own_image[caption] == image for image, caption in positives[["image_id", "caption_id"]].values
    ]
    assert sum(right) > 0.8 * len(right)
    assert json.loads((release / "manifest.json").read_text())["id_kind"] == "string"


def test_the_integers_of_the_jsons_lead_back_by_ids_parquet(walk):
    """Both JSONs and the official CSV, to exactly the pairs of the tables."""
    release = walk.folder / "release"
    ids = {(row["kind"], row["number"]): row["external_id"] for row in rows_of(release, "ids.parquet")}
    assert sorted(ids.values()) == sorted([*set(walk.own_image.values()), *walk.own_image])
    positives = {(row["image_id"], row["caption_id"]) for row in rows_of(release, "positives.parquet")}

    forward = json.loads((release / "image_to_caption.json").read_text())
    backward = json.loads((release / "caption_to_image.json").read_text())
    i2t = {(ids["image", int(q)], ids["caption", n]) for q, found in forward.items() for n in found}
    t2i = {(ids["image", n], ids["caption", int(q)]) for q, found in backward.items() for n in found}
    assert i2t == t2i == positives  # every image and every caption searched

    judged = {
        (row["image_id"], row["caption_id"])
        for row in rows_of(release, "judgements.parquet")
        if row["usable"] and row["label"] is not None
    }
    with (release / "mturk_parsed.csv").open(newline="") as file:
        named = {(ids["image", int(r["iid"])], ids["caption", int(r["cid"])]) for r in csv.DictReader(file)}
    assert named == judged


def test_comparing_names_the_ids_of_the_data_set(walk):
    """The strict release lacks what is no plain yes, and the CSV of differences says so by name."""
    strict, release = (
        {(row["image_id"], row["caption_id"]) for row in rows_of(walk.folder / name, "positives.parquet")}
        for name in ("strict", "release")
    )
    with (walk.folder / "differences.csv").open(newline="", encoding="utf-8") as file:
        differing = {(row["image_id"], row["caption_id"]) for row in csv.DictReader(file)}

    assert strict <= release
    assert differing == release - strict


def test_the_official_csv_rebuilds_the_release_elsewhere(walk, tmp_path):
    """Its integers are told from texts; positives and negatives come out the same."""
    clone = tmp_path / "elsewhere"
    with chdir(walk.folder):
        ok(*walk.init, "--project", clone)
        ok("harvest", "--from", "release/mturk_parsed.csv", "--project", clone)
        ok("build-dataset", "--out", tmp_path / "again", "--project", clone)

    for name in ("positives.parquet", "negatives.parquet"):
        before, after = (
            [(row["image_id"], row["caption_id"], row["label"]) for row in rows_of(folder, name)]
            for folder in (walk.folder / "release", tmp_path / "again")
        )
        assert before == after


def test_lists_of_queries_are_texts_too(walk, tmp_path):
    """A release lists the positives of the queries named, and a name that the data set lacks is one clear line."""
    query = sorted(walk.own_image)[0]
    (tmp_path / "captions.json").write_text(json.dumps([query]))
    (tmp_path / "wrong.txt").write_text("nowhere.jpg\n")
    with chdir(walk.folder):
        ok("build-dataset", "--out", tmp_path / "few", "--caption-query-ids", tmp_path / "captions.json")
        said = fails(1, "build-dataset", "--out", tmp_path / "x", "--image-query-ids", tmp_path / "wrong.txt")

    manifest = json.loads((tmp_path / "few" / "manifest.json").read_text())
    assert manifest["counts"]["queries_asked"]["t2i"] == 1
    assert manifest["configuration"]["query_lists"] == {"t2i": "captions.json"}
    assert "image 'nowhere.jpg' is not in the data set" in said
    assert not (tmp_path / "x").exists()
