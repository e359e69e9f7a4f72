"""A project of 50,000 judged pairs with pictures, rankings, pay, a release and scores, for a benchmark."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from release_project import PER_HIT, PER_PAIR, make_project

from annotators.base import Ranking
from mitl.records import Direction, Environment, IdKind
from mitl.retrieval.rankings import ExternalIds, MadeBy, write_ranking
from mitl.settings import Settings, load
from mitl.stages.releasing.build_dataset import build_dataset
from mitl.stages.setup.init import ensure_config

DEPTH = 25
CAPTION_QUERIES = 1333
PICTURES = 60
_KINDS = ("man", "woman", "dog", "child", "surfer", "train", "cat", "bus")
_DEEDS = ("rides", "holds", "passes", "watches", "stands beside", "jumps over")
_THINGS = ("a red bicycle", "an open umbrella", "a wooden table", "the ocean", "a kite", "two giraffes")


def make(folder: Path, pairs: int, *, seed: int = 0) -> Settings:
    """The project's settings; numbers are drawn, so they mean nothing, but there are as many as in earnest."""
    make_project(folder, int(pairs * PER_PAIR * PER_HIT / (PER_HIT - 2)), seed=seed)
    ensure_config(folder, "measured", seed, {"dataset": {"kind": "table"}})
    settings = load(folder, environ={})
    rng = np.random.default_rng(seed)
    with sqlite3.connect(folder / "mitl.db") as connection:
        _words_and_pictures(connection, folder, rng)
        _queries_and_rankings(connection, folder, rng)
        connection.execute(
            "INSERT INTO ledger (assignment_id, kind, key, cents) "
            "SELECT id, 'reward', 'reward:' || id, 100 FROM assignment"
        )
    build_dataset(settings, folder / "release", Environment.SANDBOX)
    _scores(settings, connection, rng)
    return settings


def _words_and_pictures(connection: sqlite3.Connection, folder: Path, rng: np.random.Generator) -> None:
    (folder / "images").mkdir()
    for number in range(PICTURES):
        noise = rng.integers(0, 255, (36, 48, 3), dtype=np.uint8)
        image = Image.fromarray(noise).resize((640, 480), Image.Resampling.BICUBIC)
        ImageDraw.Draw(image).ellipse((200, 120, 420, 360), fill=(number * 4, 120, 200))
        image.save(folder / "images" / f"{number}.jpg", quality=90)
    connection.execute(
        f"UPDATE part SET file = 'images/' || (item_id % {PICTURES}) || '.jpg' WHERE side_id = 1"
    )
    captions = [row[0] for row in connection.execute("SELECT id FROM item WHERE side_id = 2")]
    texts = (
        f"A {_KINDS[n % 8]} in picture {n} {_DEEDS[n // 8 % 6]} {_THINGS[n // 48 % 6]} on a sunny afternoon."
        for n in captions
    )
    connection.executemany(
        "UPDATE part SET text = ? WHERE side_id = 2 AND item_id = ?", zip(texts, captions, strict=True)
    )


def _queries_and_rankings(connection: sqlite3.Connection, folder: Path, rng: np.random.Generator) -> None:
    names = [row[0] for row in connection.execute("SELECT name FROM annotator ORDER BY id")]
    images = dict(connection.execute("SELECT id, external_id FROM item WHERE side_id = 1"))
    captions = dict(connection.execute("SELECT id, external_id FROM item WHERE side_id = 2"))
    asked = {Direction.I2T: sorted(images), Direction.T2I: sorted(captions)[:CAPTION_QUERIES]}
    ids = {Direction.I2T: (images, captions), Direction.T2I: (captions, images)}
    config = {
        "annotators": [{"name": name, "kind": "inner_product", "fingerprint": name} for name in names],
        "dataset": "made",
        "depth": DEPTH,
        "queries": {way.value: {"count": len(found), "sha256": ""} for way, found in asked.items()},
        "top_k": 5,
    }
    connection.execute("UPDATE run SET config = ?", (json.dumps(config),))
    connection.execute("DELETE FROM query")
    connection.executemany(
        "INSERT INTO query (run_id, direction, item_id) VALUES (1, ?, ?)",
        ((way.value, query) for way, queries in asked.items() for query in queries),
    )
    for way, (queries, gallery) in ids.items():
        items = np.array(sorted(gallery))
        for name in names:
            drawn = np.stack([rng.choice(items, DEPTH, replace=False) for _ in asked[way]])
            similarity = np.sort(rng.random(drawn.shape, dtype=np.float32), axis=1)[:, ::-1]
            write_ranking(
                folder / "runs" / "made" / f"{name}.{way.value}.parquet",
                Ranking(np.array(asked[way]), drawn, similarity),
                MadeBy(name, way, name),
                ExternalIds(IdKind.INTEGER, queries, gallery),
            )


def _scores(settings: Settings, connection: sqlite3.Connection, rng: np.random.Generator) -> None:
    names = [row[0] for row in connection.execute("SELECT name FROM annotator ORDER BY id")]
    drawn: dict[str, dict[str, dict[str, dict[str, dict[str, float]]]]] = {}
    for positives in ("original", "release"):
        for name in names:
            for way in Direction:
                values = {
                    metric: {"value": value, "low": value - 0.02, "high": value + 0.02}
                    for metric in ("R@1", "R@5", "R@10", "R-Precision", "mAP@R")
                    for value in [float(rng.uniform(0.2, 0.8))]
                }
                drawn.setdefault(positives, {}).setdefault(name, {})[way.value] = values
    path = settings.runs / "evaluation" / "scores.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(drawn))
