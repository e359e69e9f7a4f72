"""What the tests of the search share: annotators of which only the kind matters, vectors of every kind, a full sort."""

from __future__ import annotations

import numpy as np

from annotators.base import Encoded, Ranking
from mitl.records import AnnotatorKind
from mitl.retrieval.rescoring import canonical_similarities

SHAPES = ("unit", "raw", "sparse", "zeros", "huge", "tiny", "mixed", "cone", "same", "negative", "grid")
"""Kinds of vectors that a search may meet."""


class Vectors:
    """An annotator of which only the kind matters."""

    name = "vectors"
    fingerprint = "0"

    def __init__(self, kind: AnnotatorKind = AnnotatorKind.INNER_PRODUCT) -> None:
        self.kind = kind

    def encode_images(self, items):
        raise NotImplementedError

    encode_captions = encode_images

    def similarities(self, queries, gallery):
        raise NotImplementedError


def encoded(array: np.ndarray, modality: str = "image", first: int = 0) -> Encoded:
    """Items with ids three apart."""
    return Encoded(modality, np.arange(len(array), dtype=np.int64) * 3 + first, {"embedding": array})


def some_vectors(seed: int, shape: tuple[int, ...], kind: str = "unit") -> np.ndarray:
    """Vectors (N, D) or (N, K, D) of one of ``SHAPES``, a third of them copies of others."""
    rng = np.random.default_rng(seed)
    array = rng.standard_normal(shape, dtype=np.float32)
    if kind == "grid":
        array = rng.integers(-1, 2, shape).astype(np.float32)
    elif kind != "raw":
        array /= np.linalg.norm(array, axis=-1, keepdims=True)
    scales = {"huge": (-3, 15), "tiny": (-40, -10), "mixed": (-30, 15)}
    if kind in scales:
        array *= (10.0 ** rng.integers(*scales[kind], (len(array), *[1] * (len(shape) - 1)))).astype(
            np.float32
        )
    elif kind == "sparse":
        array *= rng.random(shape) < 0.1
    elif kind == "zeros":
        array[rng.random(len(array)) < 0.5] = 0
    elif kind == "cone":
        array = array * np.float32(1e-3) + rng.standard_normal(shape[-1:], dtype=np.float32)
    elif kind == "same":
        array[:] = array[:1]
    elif kind == "negative":
        array = -np.abs(array)
    copies = len(array) // 3
    array[rng.integers(0, max(1, len(array)), copies)] = array[rng.integers(0, max(1, len(array)), copies)]
    return array


def full_sort(queries: Encoded, gallery: Encoded, k: int) -> Ranking:
    """Every pair's canonical similarity, sorted by (similarity falling, id)."""
    left, right = (side.arrays["embedding"] for side in (queries, gallery))
    left, right = (side.reshape(len(side), -1, side.shape[-1]) for side in (left, right))
    rows, columns = np.indices((len(left), len(right))).reshape(2, -1)
    similarities = canonical_similarities(left[rows], right[columns]).reshape(len(left), len(right))
    order = np.argsort(-similarities, axis=1, kind="stable")[:, :k]
    return Ranking(queries.ids, gallery.ids[order], np.take_along_axis(similarities, order, 1))


def same_bytes(a: Ranking, b: Ranking) -> bool:
    """Whether two rankings are equal to the last bit."""
    pairs = ((a.query_ids, b.query_ids), (a.item_ids, b.item_ids), (a.similarities, b.similarities))
    return all(x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes() for x, y in pairs)
