"""Annotators for tests of artifacts and engines: they count what they are asked, and need no network."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from annotators.base import Encoded
from mitl.errors import AnnotatorError
from mitl.records import AnnotatorKind, CaptionItem, ImageItem
from mitl.retrieval.engines import AnnotatorRecipe

WIDTH = 6


class Hashing:
    """An embedding an item, drawn from a hash of its picture file or its text."""

    kind = AnnotatorKind.INNER_PRODUCT
    reusable_encodings = True

    def __init__(self, name: str = "hashing", fingerprint: str = "f" * 64) -> None:
        self.name, self.fingerprint = name, fingerprint
        self.asked: list[str] = []
        """External ids of all items encoded, in order."""
        self.calls = 0

    def encode_images(self, items: Sequence[ImageItem]) -> Encoded:
        return self._encoded("image", items, [item.path.read_bytes() if item.path else b"" for item in items])

    def encode_captions(self, items: Sequence[CaptionItem]) -> Encoded:
        return self._encoded("caption", items, [item.text.encode() for item in items])

    def similarities(self, queries: Encoded, gallery: Encoded) -> np.ndarray:
        return queries.arrays["embedding"] @ gallery.arrays["embedding"].T

    def _encoded(self, modality, items, contents) -> Encoded:
        self.calls += 1
        self.asked += [item.external_id for item in items]
        rows = np.stack([vector(content) for content in contents])
        ids = np.array([item.id for item in items], np.int64)
        return Encoded(modality, ids, {"embedding": rows, "length": np.array([len(c) for c in contents])})


def full_after(writes: int, patch: pytest.MonkeyPatch) -> None:
    """The disk is full from the n-th file that is seen to the disk on."""
    left, real = writes, os.fsync

    def fsync(handle: int) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    patch.setattr(os, "fsync", fsync)


def vector(content: bytes) -> np.ndarray:
    """A unit vector that belongs to this content."""
    seed = int.from_bytes(hashlib.sha256(content).digest()[:8], "little")
    found = np.random.default_rng(seed).standard_normal(WIDTH)
    return (found / np.linalg.norm(found)).astype(np.float32)


class Jealous(Hashing):
    """An annotator that compares pairs itself; the first worker that it meets in each folder dies of it."""

    kind = AnnotatorKind.PROBABILITY

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, fingerprint="jealous")
        self.folder = folder

    def similarities(self, queries: Encoded, gallery: Encoded) -> np.ndarray:
        die_once(self.folder)
        left, right = queries.arrays["embedding"], gallery.arrays["embedding"]
        return np.abs(left[:, None] - right[None]).sum(2).astype(np.float32)

    def encode_captions(self, items):
        die_once(self.folder)
        if any("poison" in item.text for item in items):
            raise AnnotatorError("caption 'poison' cannot be read; leave it out")
        return super().encode_captions(items)

    def scores(self, images, captions, image_rows, caption_rows):
        die_once(self.folder)
        return (images.arrays["embedding"][image_rows] * captions.arrays["embedding"][caption_rows]).sum(1)


def die_once(folder: Path) -> None:
    """End this process as the kernel would, unless it is this one or another has ended so before."""
    try:
        (folder / "died").touch(exist_ok=False)
    except (FileExistsError, FileNotFoundError):
        return
    os.kill(os.getpid(), signal.SIGKILL)


class JealousRecipe(AnnotatorRecipe):
    """Builds it in a worker."""

    def build(self):
        return Jealous(self.name, self.folder)


def captions(count: int, *, first: int = 0) -> list[CaptionItem]:
    """Captions of different lengths with surrogate ids from 1."""
    return [
        CaptionItem(i - first + 1, str(100 + i), 1, f"caption {i} " + "x" * (7 * i % 11))
        for i in range(first, first + count)
    ]


def pictures(folder: Path, count: int) -> list[ImageItem]:
    """Picture files (bytes that nobody decodes) with surrogate ids from 1."""
    folder.mkdir(exist_ok=True)
    items = []
    for i in range(count):
        path = folder / f"{i}.png"
        path.write_bytes(f"picture {i}".encode())
        items.append(ImageItem(i + 1, str(500 + i), path))
    return items


class Pairing(Hashing):
    """Scores pairs one by one, as ViLT does."""

    kind = AnnotatorKind.PAIRWISE

    def __init__(self, name: str = "pairing", fingerprint: str = "a" * 64) -> None:
        super().__init__(name, fingerprint)
        self.scored: list[tuple[int, int]] = []
        """Ids of all pairs scored, in order."""

    def scores(self, images, captions, image_rows, caption_rows):
        self.scored += zip(images.ids[image_rows].tolist(), captions.ids[caption_rows].tolist(), strict=True)
        left, right = images.arrays["embedding"][image_rows], captions.arrays["embedding"][caption_rows]
        return (left.astype(np.float64) * right).sum(1).astype(np.float32)

    def similarities(self, queries: Encoded, gallery: Encoded) -> np.ndarray:
        raise AssertionError("its pairs are kept, so they are asked one by one")


def build(name: str, config=None, *, folder=None) -> Hashing:
    """In place of ``registry.build``."""
    return Pairing(name) if name.startswith("pairing") else Hashing(name)
