"""A small set with ids of its own, rated in CxC's layout, and models of one side: small enough to check on paper."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

IMAGES = ("bay", "hill", "dog", "cat", "car", "bus")
TEXTS = {
    "bay-1": "a calm bay below the sun",
    "bay-2": "boats in a bay",
    "hill-1": "a green hill below the sun",
    "hill-2": "sheep on a hill",
    "dog-1": "a dog runs on grass",
    "dog-2": "brown dog with a ball",
    "cat-1": "a cat sleeps on grass",
    "cat-2": "black cat with a ball",
    "car-1": "a red car on a road",
    "car-2": "parked car",
    "bus-1": "a red bus on a road",
    "bus-2": "parked bus",
}
STS = [
    *(
        (f"{image}-1", f"{image}-2", 3.0 + place / 2, "c2c_cocaption")
        for place, image in enumerate(IMAGES[:4])
    ),
    ("car-1", "car-2", 2.0, "c2c_cocaption"),
    ("bay-1", "hill-1", 3.0, "c2c_isim"),
    ("dog-1", "cat-1", 2.5, "c2c_isim"),
    ("car-1", "bus-1", 3.5, "c2c_isim"),
    ("bay-2", "bus-2", 0.0, "c2c_isim"),
]
SIS = [
    ("bay", "hill", 2.5, "i2i_csim"),
    ("hill", "dog", 1.0, "i2i_csim"),
    ("dog", "cat", 3.5, "i2i_csim"),
    ("car", "bus", 4.0, "i2i_csim"),
    ("bus", "car", 4.0, "i2i_csim"),
    ("cat", "bus", 0.25, "i2i_csim"),
]
SITS = [
    *(
        (f"{image}-{n}", image, round(5.0 - n / 10 - place / 50, 2), "c2i_original")
        for place, image in enumerate(IMAGES)
        for n in (1, 2)
    ),
    ("bay-1", "hill", 3.0, "c2i_intrasim"),
    ("dog-1", "cat", 2.0, "c2i_intrasim"),
    ("car-1", "bus", 3.25, "c2i_intrasim"),
]
HEADS = {"sts": "caption1,caption2", "sis": "image1,image2", "sits": "caption,image"}
ROWS = {"sts": STS, "sis": SIS, "sits": SITS}


def write_ratings(
    folder: Path, *, split: str = "pilot", tasks: tuple[str, ...] = ("sts", "sis", "sits")
) -> Path:
    """The CSVs of a split, of these tasks."""
    folder.mkdir(parents=True, exist_ok=True)
    for task in tasks:
        lines = [f"{HEADS[task]},agg_score,sampling_method"]
        lines += [",".join(map(str, row)) for row in ROWS[task]]
        (folder / f"{task}_{split}.csv").write_text("\n".join(lines) + "\n")
    return folder


def write_raw(folder: Path, rows: list[tuple[str, str, str, float | None, bool]]) -> None:
    """``ratings.parquet`` of (task, first, second, score, counted)."""
    task, first, second, score, counted = (list(column) for column in zip(*rows, strict=True))
    columns = {"task": task, "first": first, "second": second, "score": score, "counted": counted}
    pq.write_table(pa.table(columns), folder / "ratings.parquet")


def write_captions(path: Path) -> Path:
    """The captions with their images and texts."""
    rows = [f"{caption},{caption.split('-')[0]},{text}" for caption, text in TEXTS.items()]
    path.write_text("caption_id,image_id,text\n" + "\n".join(rows) + "\n")
    return path


def write_vectors(folder: Path, *, seed: int = 0) -> tuple[Path, Path]:
    """Embeddings of both sides: items of one pair of images (bay and hill, dog and cat, car and bus) are alike."""
    rng = np.random.default_rng(seed)
    centres = np.repeat(rng.normal(size=(3, 8)), 2, axis=0) + 0.3 * rng.normal(size=(6, 8))
    of = dict(zip(IMAGES, centres, strict=True))
    paths = folder / "images.npz", folder / "captions.npz"
    np.savez(paths[0], ids=np.array(IMAGES), embedding=centres.astype(np.float32))
    vectors = [of[caption.split("-")[0]] + 0.3 * rng.normal(size=8) for caption in TEXTS]
    np.savez(paths[1], ids=np.array(list(TEXTS)), embedding=np.array(vectors, np.float32))
    return paths
