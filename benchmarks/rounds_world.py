"""A generated world as arrays: truth, what the five minis say of it, and the pairs that an exhaustive round asks."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from annotators import registry
from annotators.base import Encoded, scores_pairs
from annotators.pivot import LatentWords
from mitl.core.arrays import pack_ids, places
from mitl.datasets.scenes import generate, truth_matrix, write_items
from mitl.datasets.scenes.world import CAPTIONS_PER_IMAGE
from mitl.fusion.evidence import ANSWERED, FusionEvidence, Joint, UnitVectors, joined, of_length_1
from mitl.records import CaptionItem, Direction, ImageItem
from mitl.records.frames import PROPOSALS, frame

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

DUAL = ("pvse-mini", "vsrn-mini", "pcme-mini", "clip-mini")
JOINT = "vilt-mini"
TOP = 5
SHORTLIST = 10
"""ViLT scores pairs that another annotator has among its first so many, in either direction."""
ROWS = 500
"""Rows of a similarity matrix that are held at a time."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """A world of I images and C captions, numbered from 0; a pair is image * C + caption."""

    seed: int
    truth: NDArray[np.int8]
    """(I, C) place in Label of each pair's true label, 0 (yes) to 3 (no)."""
    vectors: Mapping[str, tuple[Floats, Floats]]
    """Of each dual mini: (I, D) and (C, D), whose inner product is its similarity; of PVSE the mean of K products."""
    baseline: Ints
    """(P,) the pairs among the first five of any mini for any query, rising."""
    top: Mapping[str, Ints]
    """Annotator and direction -> the pairs that it proposes."""
    texts: tuple[str, ...]
    """(C,)"""
    folder: Path

    @property
    def images(self) -> int:
        """I."""
        return self.truth.shape[0]

    @property
    def captions(self) -> int:
        """C."""
        return self.truth.shape[1]

    @cached_property
    def match(self) -> NDArray[np.bool_]:
        """(I, C) yes or weak yes."""
        found: NDArray[np.bool_] = self.truth < 2
        return found

    def places(self, pairs: Ints) -> NDArray[np.int8]:
        """(n,) the true labels' places."""
        return self.truth.ravel()[pairs]

    def split(self, pairs: Ints) -> tuple[Ints, Ints]:
        """Images and captions of pairs."""
        return pairs // self.captions, pairs % self.captions


def arrays(images: int, seed: int, cache: Path) -> Arrays:
    """The world of a seed; encoded once and kept under ``cache``."""
    folder = cache / f"world-{images}-{seed}"
    world = generate(images, seed=seed)
    if not (folder / "kept.npz").exists():
        _encode(*write_items(world, folder), folder)
    codes = truth_matrix(world, list(world.scenes), list(world.captions))
    with np.load(folder / "kept.npz") as kept:
        vectors = {name: (kept[f"{name} images"], kept[f"{name} captions"]) for name in DUAL}
        top = {name[4:]: kept[name] for name in kept.files if name.startswith("top ")}
    baseline = np.unique(np.concatenate(list(top.values())))
    texts = tuple(caption.text for caption in world.captions.values())
    return Arrays(seed, (codes - 1).astype(np.int8), vectors, baseline, top, texts, folder)


def _encode(images: list[ImageItem], captions: list[CaptionItem], folder: Path) -> None:
    kept: dict[str, NDArray[np.generic]] = {}
    shortlist: list[Ints] = []
    for name in DUAL:
        annotator = registry.build(name)
        sides = annotator.encode_images(images), annotator.encode_captions(captions)
        similarity = np.concatenate(
            [
                annotator.similarities(sides[0].rows(slice(start, start + ROWS)), sides[1])
                for start in range(0, len(images), ROWS)
            ]
        )
        for direction, found in best(similarity, TOP).items():
            kept[f"top {name} {direction}"] = found
        shortlist += best(similarity, SHORTLIST).values()
        for side, encoded in zip(("images", "captions"), sides, strict=True):
            kept[f"{name} {side}"] = _flat(encoded)
        print(f"{name} {time.process_time():.0f} s", flush=True)
    annotator = registry.build(JOINT)
    assert scores_pairs(annotator)
    pairs = np.unique(np.concatenate(shortlist))
    sides = annotator.encode_images(images), annotator.encode_captions(captions)
    values = annotator.scores(*sides, pairs // len(captions), pairs % len(captions))
    similarity = np.full((len(images), len(captions)), -np.inf, np.float32)
    similarity.ravel()[pairs] = values
    for direction, found in best(similarity, TOP).items():
        kept[f"top {JOINT} {direction}"] = found
    kept[f"{JOINT} pairs"], kept[f"{JOINT} scores"] = pairs, values
    print(f"{JOINT} {len(pairs):,} pairs {time.process_time():.0f} s", flush=True)
    np.savez(folder / "kept.npz", **kept)


def _flat(encoded: Encoded) -> Floats:
    name = "embedding" if "embedding" in encoded.arrays else "mean"
    rows = np.asarray(encoded.arrays[name], np.float32)
    return rows.reshape(len(rows), -1)


def best(similarity: Floats, k: int) -> dict[str, Ints]:
    """Direction -> the pairs among the first ``k`` of each image and of each caption; minus infinity is never one."""
    n_images, n_captions = similarity.shape
    columns = np.argpartition(-similarity, k - 1, axis=1)[:, :k]
    by_image = (np.arange(n_images)[:, None] * n_captions + columns).ravel()
    rows = np.argpartition(-similarity, k - 1, axis=0)[:k]
    by_caption = (rows * n_captions + np.arange(n_captions)).ravel()
    flat = similarity.ravel()
    return {name: found[np.isfinite(flat[found])] for name, found in (("i2t", by_image), ("t2i", by_caption))}


def similarity(left: Floats, right: Floats, images: Ints, captions: Ints, name: str) -> Floats:
    """(n,) a mini's similarity of pairs, times ten: about the size of log-odds."""
    k = 2 if name == "pvse-mini" else 1
    a, b = (side.reshape(len(side), k, -1) for side in (left, right))
    parts = [
        np.einsum("nkd,nld->nkl", a[images[start : start + 8192]], b[captions[start : start + 8192]]).max(
            axis=(1, 2)
        )
        for start in range(0, len(images), 8192)
    ]
    found: Floats = 10 * np.concatenate(parts).astype(np.float32)
    return found


def proposals(world: Arrays) -> pd.DataFrame:
    """``PROPOSALS``: who has which candidate among its first five, and where."""
    parts = []
    for found_by, pairs in world.top.items():
        name, _, direction = found_by.rpartition(" ")
        images, captions = world.split(pairs)
        if name == JOINT:
            with np.load(world.folder / "kept.npz") as kept:
                values = kept[f"{JOINT} scores"][places(kept[f"{JOINT} pairs"], pairs)]
        else:
            values = similarity(*world.vectors[name], images, captions, name)
        queries = images if direction == Direction.I2T else captions
        order = np.lexsort((pairs, -values, queries))
        first = np.searchsorted(queries[order], queries[order])
        columns = {
            "pair": pack_ids(images, captions)[order],
            "annotator": np.full(len(pairs), name),
            "direction": np.full(len(pairs), list(Direction).index(Direction(direction))),
            "rank": np.arange(1, len(pairs) + 1) - first,
            "similarity": values[order],
        }
        parts.append(pd.DataFrame(columns))
    every = pd.concat(parts)
    return frame(PROPOSALS, {name: every[name].to_numpy() for name in PROPOSALS})


def evidence(world: Arrays, vectors: Mapping[str, tuple[Floats, Floats]] | None = None) -> FusionEvidence:
    """What `mitl fuse` reads of such a world before the first answer; a caption's sentence vector is left out.

    Args:
        vectors: of minis that learnt, in the place of the world's.
    """
    texts = LatentWords()
    texts.fit(world.texts)
    sides = np.arange(world.images), np.arange(world.captions)
    joint = tuple(
        Joint(*(UnitVectors(name, ids, _single(name, rows)) for ids, rows in zip(sides, both, strict=True)))
        for name, both in {**world.vectors, **(vectors or {})}.items()
    )
    return FusionEvidence(
        ranked=proposals(world),
        captions=sides[1],
        image_of=sides[1] // CAPTIONS_PER_IMAGE,
        answers=frame(ANSWERED, dict.fromkeys(ANSWERED, ())),
        texts=(
            UnitVectors("words", sides[1], texts.vectors(world.texts).astype(np.float32)),
            *joined("annotators", [one.captions for one in joint]),
        ),
        pictures=joined("annotators", [one.images for one in joint]),
        joint=joint,
        words=tuple(tuple(re.findall(r"\w+", text.lower())) for text in world.texts),
    )


def _single(name: str, rows: Floats) -> Floats:
    """(N, D) one unit vector an item: of PVSE the mean of its two."""
    if name != "pvse-mini":
        return of_length_1(rows)
    return of_length_1(of_length_1(rows.reshape(2 * len(rows), -1)).reshape(len(rows), 2, -1).mean(axis=1))
