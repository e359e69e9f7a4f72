"""Similarities of a block of queries to a block of the gallery, whatever the kind of annotator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from annotators.base import Annotator, Encoded
from mitl.errors import RetrievalError
from mitl.retrieval.products import Product
from mitl.retrieval.rescoring import canonical_similarities, error_bounds, largest_lengths

Floats = NDArray[np.float32]

_LONGEST = 1e19
"""Inner products of vectors up to this length stay within float32."""


class Buffers:
    """Memory for blocks, kept from one block to the next."""

    def __init__(self) -> None:
        self._flat: dict[str, Floats] = {}

    def get(self, name: str, shape: tuple[int, int]) -> Floats:
        """A contiguous array of this shape; its content is whatever was there."""
        needed = shape[0] * shape[1]
        flat = self._flat.get(name)
        if flat is None or len(flat) < needed:
            flat = self._flat[name] = np.empty(needed, np.float32)
        return flat[:needed].reshape(shape)


class Scorer(Protocol):
    """Similarities by block; near ones come with a bound of their error and a way to the canonical ones."""

    def error(self, queries: slice) -> NDArray[np.float64] | None:
        """How far ``block`` may be off, for each query; None where its values are canonical."""
        ...

    def block(self, queries: slice, items: slice, buffers: Buffers) -> Floats:
        """Similarities (Q, B), contiguous, valid until the next call with these buffers."""
        ...

    def rescore(self, queries: slice, query_rows: NDArray[np.int64], positions: NDArray[np.int64]) -> Floats:
        """Canonical similarities of rows within ``queries`` to positions of the gallery."""
        ...


class VectorScorer:
    """The best inner product of K x L vectors: fast in float32, canonical on request."""

    def __init__(self, queries: Encoded, gallery: Encoded, product: Product, rows_per_pass: int) -> None:
        self._queries, self._gallery = vectors(queries), vectors(gallery)
        self.width = self._queries.shape[2]
        if self._gallery.shape[2] != self.width:
            raise RetrievalError(
                f"query embeddings are {self.width} wide, but gallery embeddings {self._gallery.shape[2]}; "
                "encode both with the same annotator"
            )
        self._product = product
        passes = _lengths(self._queries, queries, rows_per_pass)
        self._lengths = np.concatenate([np.empty(0), *passes])
        self._longest = max(float(part.max()) for part in _lengths(self._gallery, gallery, rows_per_pass))

    def error(self, queries: slice) -> NDArray[np.float64]:
        """The bound of ``error_bounds`` for the longest vector of the gallery."""
        return error_bounds(self._lengths[queries], self._longest, self.width, self._product.input_error)

    def block(self, queries: slice, items: slice, buffers: Buffers) -> Floats:
        """One float32 product for each of the K x L combinations, of which the largest is kept."""
        left, right = _float32(self._queries[queries]), _float32(self._gallery[items])
        shape = (len(left), len(right))
        best = buffers.get("best", shape)
        self._product.multiply(left[:, 0], right[:, 0], best)
        combinations = [(k, m) for k in range(left.shape[1]) for m in range(right.shape[1])]
        for k, m in combinations[1:]:
            other = buffers.get("other", shape)
            self._product.multiply(left[:, k], right[:, m], other)
            np.maximum(best, other, out=best)
        return best

    def rescore(self, queries: slice, query_rows: NDArray[np.int64], positions: NDArray[np.int64]) -> Floats:
        """``canonical_similarities`` of these pairs."""
        left = _float32(self._queries[queries])
        return canonical_similarities(left, self._gallery, query_rows, positions)


class AnnotatorScorer:
    """Similarities that only the annotator itself can compute; they are canonical as they come."""

    def __init__(self, annotator: Annotator, queries: Encoded, gallery: Encoded) -> None:
        self._annotator, self._queries, self._gallery = annotator, queries, gallery

    def error(self, queries: slice) -> None:
        """None: the values are the annotator's own."""

    def block(self, queries: slice, items: slice, buffers: Buffers) -> Floats:
        """The annotator's block; RetrievalError where its shape or a value cannot be."""
        left, right = self._queries.rows(queries), self._gallery.rows(items)
        values = np.ascontiguousarray(self._annotator.similarities(left, right), np.float32)
        if values.shape != (len(left), len(right)):
            raise RetrievalError(
                f"annotator {self._annotator.name!r} gave similarities {values.shape} "
                f"for {len(left)} queries and {len(right)} gallery items"
            )
        if not np.isfinite(values).all():
            row, column = np.argwhere(~np.isfinite(values))[0]
            raise RetrievalError(
                f"annotator {self._annotator.name!r} gave {values[row, column]} for query {left.ids[row]} "
                f"and item {right.ids[column]}; similarities must be finite"
            )
        return values

    def rescore(self, queries: slice, query_rows: NDArray[np.int64], positions: NDArray[np.int64]) -> Floats:
        """Never needed."""
        raise AssertionError("an annotator's similarities are canonical")


def vectors(encoded: Encoded) -> NDArray[Any]:
    """``embedding`` as (N, K, D), float32 or float16, not copied."""
    if "embedding" not in encoded.arrays:
        raise RetrievalError(
            f"encoded {encoded.modality}s hold {sorted(encoded.arrays)}, but inner products need 'embedding'"
        )
    array = encoded.arrays["embedding"]
    if array.ndim not in (2, 3) or 0 in array.shape[1:] or array.dtype not in (np.float32, np.float16):
        raise RetrievalError(
            f"{encoded.modality} embeddings are {array.dtype} {array.shape}; "
            "expected float32 (N, D) or (N, K, D)"
        )
    return array[:, None, :] if array.ndim == 2 else array


def _lengths(array: NDArray[Any], encoded: Encoded, rows_per_pass: int) -> Iterator[NDArray[np.float64]]:
    """``largest_lengths``, some rows at a time; RetrievalError names the first vector that cannot be used."""
    for start in range(0, len(array), rows_per_pass):
        lengths = largest_lengths(_float32(array[start : start + rows_per_pass]))
        bad = np.flatnonzero(~(lengths <= _LONGEST))
        if len(bad):
            raise RetrievalError(
                f"the embedding of {encoded.modality} {encoded.ids[start + bad[0]]} is not finite or longer "
                f"than {_LONGEST:g}; normalise or encode again"
            )
        yield lengths


def _float32(array: NDArray[Any]) -> Floats:
    return np.asarray(array, np.float32)
