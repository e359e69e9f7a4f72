"""A shortlist for match probabilities: ranked by the mean squared distance, which has a closed form, then exactly.

Over all pairs of samples the squared distance has the mean |a - b|^2 + spread_a + spread_b, where a and b are the
means of the samples. For one query that ranks like the inner product of (a, 1) and (b, -|b_j|^2 / 2), one vector an
item instead of S x S products. The match probability ranks almost alike; how nearly is measured, not assumed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from annotators.devices import on_threads
from annotators.match_probability import Odds, SampleSet, blocks, match_probabilities, probabilities_of_one
from mitl.progress import Progress, no_progress

COUNT = 100
"""Items of a shortlist: it held all of the exact top 25 at small, mixed and large variances of made-up embeddings."""
RECALL = 0.999
"""Share of the exact top k that a shortlist must hold on the queries it is measured on."""
MEASURED_QUERIES = 64

BLOCK_BYTES = 64 << 20
_QUERIES = 1024
"""Queries whose shortlists are held at a time."""
_PAIR_BYTES = 24
"""Memory for each pair of a block of the first pass: its inner product, its place, what partitioning moves."""


@dataclass(frozen=True, slots=True)
class MeasuredShortlist:
    """How many items a shortlist needs, and what that was found on."""

    count: int
    recall: float
    """Share of the exact top k of the measured queries that a shortlist of ``count`` holds."""
    k: int
    queries: int
    """How many queries it was measured on."""

    def __str__(self) -> str:
        return (
            f"a shortlist of {self.count:,} holds {self.recall:.4f} of the exact top {self.k} "
            f"of {self.queries:,} queries"
        )


def shortlist(
    left: SampleSet, right: SampleSet, count: int, *, block_bytes: int = BLOCK_BYTES
) -> NDArray[np.int64]:
    """(Q, count) positions of the gallery with the smallest mean squared distances, in rising order."""
    half = right.squares.mean(1) / 2
    count = min(count, len(right))
    rows, columns = _block_shape(len(left), len(right), count, block_bytes)
    lists = np.empty((len(left), count), np.int64)
    for part in blocks(len(left), rows):
        near = np.asarray(left.mean[part], np.float32)
        best = np.full((len(near), 0), -np.inf, np.float32)
        places = np.empty((len(near), 0), np.int64)
        for other in blocks(len(right), columns):
            values = near @ np.asarray(right.mean[other], np.float32).T
            values -= half[other]
            chosen = _best(values, count)
            best = np.concatenate([best, np.take_along_axis(values, chosen, 1)], 1)
            places = np.concatenate([places, chosen + other.start], 1)
            kept = _best(best, count)
            best, places = np.take_along_axis(best, kept, 1), np.take_along_axis(places, kept, 1)
        lists[part] = np.sort(places, axis=1)
    return lists


@dataclass(frozen=True, slots=True, eq=False)
class ShortlistSearch:
    """Each query's ``k`` most probable matches among the gallery, found within shortlists."""

    queries: SampleSet
    gallery: SampleSet
    k: int
    odds: Odds

    def exact(
        self,
        count: int = COUNT,
        *,
        block_bytes: int = BLOCK_BYTES,
        threads: int | None = None,
        progress: Progress = no_progress,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The most probable matches within each query's shortlist of ``count``, exactly scored, best first.

        Returns:
            (Q, k) positions of the gallery and (Q, k) float32 probabilities; equal ones go to the smaller position.
        """
        left, right, k = self.queries, self.gallery, self.k
        assert 1 <= k <= min(count, len(right)), "a shortlist shorter than what is kept"
        positions = np.empty((len(left), k), np.int64)
        probabilities = np.empty((len(left), k), np.float32)
        local = threading.local()

        def rescore(row: int, some: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
            if not hasattr(local, "items"):
                local.items = np.empty((len(some), *right.samples.shape[1:]), np.float32)
            buffer = local.items
            if right.samples.dtype == np.float32:
                np.take(right.samples, some, axis=0, out=buffer, mode="clip")
            else:
                buffer[...] = right.samples[some]
            query = np.array(left.samples[row], np.float32)
            scores = probabilities_of_one(query, left.squares[row], buffer, right.squares[some], self.odds)
            order = np.lexsort((some, -scores))[:k]
            return some[order], scores[order]

        workers = threads or torch.get_num_threads()
        # A product of one query is too small for several threads: each query has a thread, each thread one query.
        with (
            on_threads(1),
            ThreadPoolExecutor(workers) as pool,
            progress("score shortlists", len(left)) as advance,
        ):
            for part in blocks(len(left), _QUERIES):
                places = shortlist(left.rows(part), right, count, block_bytes=block_bytes)
                scored = pool.map(rescore, range(part.start, part.stop), places)
                for row, (best, values) in enumerate(scored, start=part.start):
                    positions[row], probabilities[row] = best, values
                advance(len(places))
        return positions, probabilities

    def measured(
        self, count: int = COUNT, *, recall: float = RECALL, queries: int = MEASURED_QUERIES, seed: int = 0
    ) -> MeasuredShortlist:
        """Double ``count`` until a shortlist holds ``recall`` of the exact top k of a random sample of the queries."""
        rng = np.random.default_rng(seed)
        chosen = np.sort(rng.permutation(len(self.queries))[:queries])
        ranks = np.concatenate(list(self._ranks(self.queries.rows(chosen))))
        count = max(count, self.k)
        while count < len(self.gallery) and (ranks <= count).mean() < recall:
            count *= 2
        count = min(count, len(self.gallery))
        return MeasuredShortlist(count, float((ranks <= count).mean()), self.k, len(chosen))

    def _ranks(self, queries: SampleSet) -> Iterator[NDArray[np.int64]]:
        """The rank, from 1, by mean squared distance of each of the exact top k, a block of queries at a time."""
        half = self.gallery.squares.mean(1) / 2
        for part in blocks(len(queries), 16):
            some = queries.rows(part)
            exact = match_probabilities(some, self.gallery, self.odds)
            top = np.argsort(-exact, axis=1, kind="stable")[:, : self.k]
            values = np.asarray(some.mean, np.float32) @ np.asarray(self.gallery.mean, np.float32).T - half
            for row, best in zip(values, top, strict=True):
                yield np.searchsorted(np.sort(-row), -row[best], side="right")


def _best(values: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Columns of each row's ``count`` greatest values, in no order; all columns where there are no more."""
    width = values.shape[1]
    if count >= width:
        return np.broadcast_to(np.arange(width), values.shape)
    return np.argpartition(values, width - count, axis=1)[:, width - count :]


def _block_shape(queries: int, items: int, count: int, block_bytes: int) -> tuple[int, int]:
    """Queries and items of a block; long rather than high, since each row keeps its own best."""
    columns = max(1, min(items, max(4 * count, 1 << 15), block_bytes // _PAIR_BYTES))
    rows = max(1, min(queries, block_bytes // (_PAIR_BYTES * columns)))
    return rows, columns
