"""A world small enough to check on paper, as a model's files in every form, outside any project."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cli_kit import mitl

IMAGES = (10, 20, 30)
CAPTIONS = (1, 2, 3, 4)
POSITIVES = {10: (1, 2), 20: (3,), 30: (4,)}
SIMILARITIES = np.array(
    [
        [0.9, 0.1, 0.8, 0.2],  # of image 10: captions 1, 3, 4, 2
        [0.3, 0.2, 0.7, 0.6],  # of image 20: captions 3, 4, 1, 2
        [0.5, 0.4, 0.6, 0.1],  # of image 30: captions 3, 1, 2, 4
    ],
    dtype=np.float32,
)
"""Rows are images. Of captions: 1: 10, 30, 20; 2: 30, 20, 10; 3: 10, 20, 30; 4: 20, 10, 30."""
I2T = {10: [1, 3, 4, 2], 20: [3, 4, 1, 2], 30: [3, 1, 2, 4]}
T2I = {1: [10, 30, 20], 2: [30, 20, 10], 3: [10, 20, 30], 4: [20, 10, 30]}
BY_HAND = {
    "i2t": {"R@1": 2 / 3, "R@2": 2 / 3, "R-Precision": (1 / 2 + 1 + 0) / 3, "mAP@R": (1 / 2 + 1 + 0) / 3},
    "t2i": {"R@1": 1 / 4, "R@2": 2 / 4, "R-Precision": 1 / 4, "mAP@R": 1 / 4},
}
METRICS = ("--metrics", "R@1,R@2,R-Precision,mAP@R")


def fails(status: int, *words: str | Path) -> str:
    """The one line of a call of `mitl evaluate` that must fail."""
    outcome = mitl("evaluate", *words)
    assert outcome.status == status, outcome
    assert "Traceback" not in outcome.err
    return outcome.error


def write_release(folder: Path) -> Path:
    """A folder of the two JSONs."""
    folder.mkdir(parents=True, exist_ok=True)
    back = {caption: [image] for image, captions in POSITIVES.items() for caption in captions}
    (folder / "image_to_caption.json").write_text(json.dumps(POSITIVES))
    (folder / "caption_to_image.json").write_text(json.dumps(back))
    return folder


def vectors() -> tuple[np.ndarray, np.ndarray]:
    """Embeddings whose inner products are the similarities: rows of the matrix, and of the identity."""
    return SIMILARITIES, np.eye(len(CAPTIONS), dtype=np.float32)


def write_embeddings(folder: Path, form: str, *, texts: bool = False) -> tuple[Path, Path]:
    """Both sides as ``npy``, ``npz`` or ``parquet``; ids as integers or as texts."""
    written = []
    for name, ids, embedding in zip(("images", "captions"), (IMAGES, CAPTIONS), vectors(), strict=True):
        shown = [str(one) for one in ids] if texts else list(ids)
        path = folder / f"{name}.{form}"
        if form == "npy":
            np.save(path, embedding)
            path.with_suffix(".ids.txt").write_text("\n".join(map(str, ids)) + "\n")
        elif form == "npz":
            np.savez(path, ids=np.array(shown), embedding=embedding)
        else:
            pq.write_table(pa.table({"id": shown, "embedding": embedding.tolist()}), path)
        written.append(path)
    return written[0], written[1]


def write_similarities(folder: Path, form: str) -> Path:
    """The matrix as ``npy`` with ids beside it, or as ``npz``."""
    path = folder / f"similarities.{form}"
    if form == "npy":
        np.save(path, SIMILARITIES)
        path.with_suffix(".image_ids.txt").write_text("\n".join(map(str, IMAGES)))
        np.save(path.with_suffix(".caption_ids.npy"), np.array(CAPTIONS))
    else:
        np.savez(path, similarities=SIMILARITIES, image_ids=np.array(IMAGES), caption_ids=np.array(CAPTIONS))
    return path


def write_rankings(folder: Path, form: str, depth: int = 4) -> list[Path]:
    """Both directions, in one JSON, in one .npz, or in two Parquet files as mitl writes them."""
    tables = {"i2t": I2T, "t2i": T2I}
    if form == "json":
        path = folder / "rankings.json"
        path.write_text(
            json.dumps(
                {way: {q: items[:depth] for q, items in lists.items()} for way, lists in tables.items()}
            )
        )
        return [path]
    if form == "npz":
        arrays = {f"{way}_query_ids": np.array(list(lists)) for way, lists in tables.items()}
        items = {
            f"{way}_item_ids": np.array([one[:depth] for one in lists.values()])
            for way, lists in tables.items()
        }
        np.savez(folder / "rankings.npz", **arrays, **items)
        return [folder / "rankings.npz"]
    paths = []
    for way, lists in tables.items():
        rows = [(q, rank, item) for q, items in lists.items() for rank, item in enumerate(items[:depth], 1)]
        query, rank, item = zip(*rows, strict=True)
        paths.append(folder / f"mine.{way}.parquet")
        table = pa.table({"query_id": query, "rank": pa.array(rank, pa.int16()), "item_id": item})
        pq.write_table(table, paths[-1])
    return paths


def write_coco(folder: Path, *, n_images: int = 8) -> list[str]:
    """Files on some of the official test images: captions, CxC's scores, objects, two models' embeddings.

    Returns the images' ids, all of them queries of ECCV Caption. The embeddings are the same up to noise.
    """
    from mitl.positives.loading import official_positives
    from mitl.records import Direction

    original = official_positives("original").by_query[Direction.I2T]
    images = sorted(official_positives("eccv").by_query[Direction.I2T], key=int)[:n_images]
    pairs = [(image, caption) for image in images for caption in original[image]]
    (folder / "captions.csv").write_text(
        "caption_id,image_id,text\n" + "".join(f"{c},{i},caption {c} of {i}\n" for i, c in pairs)
    )
    _write_cxc(folder / "cxc", images, pairs)
    names = {image: ["person"] if place % 2 else ["dog", "person"] for place, image in enumerate(images)}
    (folder / "objects.json").write_text(json.dumps(names))
    rng = np.random.default_rng(0)
    concepts = {image: rng.normal(size=16) for image in images}
    for name, noise in (("near", 0.5), ("far", 2.0)):
        for side, ids, owners in (
            ("images", images, images),
            ("captions", [c for _, c in pairs], [i for i, _ in pairs]),
        ):
            embedding = np.stack([concepts[one] + noise * rng.normal(size=16) for one in owners])
            np.savez(
                folder / f"{name}-{side}.npz",
                ids=np.array([int(one) for one in ids]),
                embedding=embedding.astype(np.float32),
            )
    return images


def _write_cxc(folder: Path, images: list[str], pairs: list[tuple[str, str]]) -> None:
    """SITS of each caption with its image and with the next one, STS of co-captions, SIS of neighbours."""
    folder.mkdir()
    after = dict(zip(images, [*images[1:], images[0]], strict=True))
    sits = [(c, i, 4.0 + (int(c) % 10) / 10) for i, c in pairs] + [
        (c, after[i], (int(c) % 7) / 2) for i, c in pairs
    ]
    sts = [
        (one, other, (int(one) + int(other)) % 50 / 10)
        for (i, one), (j, other) in itertools.pairwise(pairs)
        if i == j
    ]
    sis = [(one, other, 1.0 + place / 2) for place, (one, other) in enumerate(after.items())]
    caption, image = "COCO_val2014:sentid:{}", "COCO_val2014_{:012d}.jpg"
    for name, head, rows in (
        ("sits", "caption,image", [(caption.format(c), image.format(int(i)), s) for c, i, s in sits]),
        ("sts", "caption1,caption2", [(caption.format(a), caption.format(b), s) for a, b, s in sts]),
        ("sis", "image1,image2", [(image.format(int(a)), image.format(int(b)), s) for a, b, s in sis]),
    ):
        lines = [f"{head},agg_score,sampling_method", *(f"{a},{b},{s},x" for a, b, s in rows)]
        (folder / f"{name}_test.csv").write_text("\n".join(lines) + "\n")
