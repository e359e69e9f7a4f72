"""An engine of Ray workers: an existing cluster, or one of this machine's cores for the time of a command.

Only the arrays of a unit of work travel, and only results come back: whoever gave out the work keeps them. A unit
whose worker or machine is lost is given out again. Encoding and scoring need the annotators' files (weights, pictures)
under the same paths on every machine; searching needs none.

A search is cut into tiles of queries x gallery: the top k of everything is the top k of the tiles' top k. Similarities
are canonical, so that neither the cut nor the order in which tiles arrive changes a byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from annotators.base import Annotator, Encoded, Modality, Ranking, ScoresPairs, is_reusable, searches_itself
from mitl.errors import RetrievalError
from mitl.progress import Progress, no_progress
from mitl.records import AnnotatorKind
from mitl.retrieval.encodings import Chunk
from mitl.retrieval.engines import AnnotatorRecipe, LocalEngine
from mitl.retrieval.pair_scores import ScoredUnit, Unit
from mitl.retrieval.products import Backend
from mitl.retrieval.ray_cluster import (
    Begin,
    Order,
    RayCluster,
    Ref,
    Space,
    encode_chunk,
    score_pairs,
    search_tile,
)
from mitl.retrieval.vectors import VECTOR_KINDS

TILE_QUERIES, TILE_ITEMS = 8192, 65536
"""About half a second of two cores at 512 numbers an item."""
_JOINT_SHRINK = 4
"""Both sides are so much shorter where an annotator compares pairs itself; still multiples of ``topk.BLOCK``."""


class RayEngine(LocalEngine):
    """Ray workers; to be used as a context, which connects and lets go. What they cannot do is done here."""

    name = "ray"

    def __init__(
        self,
        recipes: Mapping[str, AnnotatorRecipe],
        *,
        address: str | None = None,
        backend: Backend = "auto",
        cpus: int | None = None,
        object_store_bytes: int | None = None,
    ) -> None:
        """Args:
        recipes: how workers build the annotators, by name; one without is left to this process.
        address: ``HOST:PORT``, ``ray://HOST:PORT`` or ``auto`` of an existing cluster; None for this machine alone.
        cpus: with no address, how many cores; all by default.
        """
        super().__init__(backend)
        self._recipes = recipes
        self._cluster = RayCluster(address, cpus=cpus, object_store_bytes=object_store_bytes)

    def __enter__(self) -> Self:
        """Connect.

        Raises:
            RetrievalError: ray is missing, nothing answers at the address, or its workers are of another version.
        """
        self._cluster.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Disconnect; a cluster of this machine ends."""
        self._cluster.__exit__()

    def encode(
        self, annotator: Annotator, modality: Modality, chunks: Iterable[Chunk]
    ) -> Iterator[tuple[int, Encoded]]:
        """Chunks, by workers that hold the annotator."""
        order = self._order(annotator)
        if order is None:
            yield from super().encode(annotator, modality, chunks)
            return
        encode, cores = self._remote(encode_chunk, order)
        jobs = ((number, partial(encode.remote, order, modality, items)) for number, items in chunks)
        yield from self._cluster.results(jobs, cores)

    def score(
        self,
        annotator: ScoresPairs,
        images: Encoded,
        captions: Encoded,
        units: Iterable[Unit],
        *,
        exact: bool = False,
    ) -> Iterator[ScoredUnit]:
        """Units of pairs, by workers that hold the annotator."""
        order = self._order(annotator)
        if order is None:
            yield from super().score(annotator, images, captions, units, exact=exact)
            return
        score, cores = self._remote(score_pairs, order)

        def jobs() -> Iterator[tuple[int, Begin]]:
            for unit in units:
                image_rows, images_of = np.unique_inverse(unit.images)
                caption_rows, captions_of = np.unique_inverse(unit.captions)
                sides = _plain(images.rows(image_rows)), _plain(captions.rows(caption_rows))
                yield unit.number, partial(score.remote, order, sides, (images_of, captions_of), exact)

        for number, (scores, seconds) in self._cluster.results(jobs(), cores):
            yield ScoredUnit(number, scores, seconds)

    def rank(
        self,
        annotator: Annotator,
        sides: tuple[Encoded, Encoded],
        ks: Sequence[int],
        *,
        progress: Progress = no_progress,
    ) -> list[Ranking]:
        """Tiles of both sides, put together here; a block of the right travels once for all of its tiles."""
        asked, (left, right) = self._asked(annotator), sides
        if asked is None or not all(
            _is_searchable(gallery, k) for gallery, k in zip((right, left), ks, strict=False)
        ):
            # What only this process can do; and what cannot be done at all, which is said there.
            return super().rank(annotator, sides, ks, progress=progress)
        search, cores = self._remote(search_tile, asked)

        def jobs() -> Iterator[tuple[SearchTile, Begin]]:
            held: tuple[int, Ref] | None = None
            for tile in tiles(len(left), len(right), tile_shape(annotator.kind)):
                if held is None or held[0] != tile.gallery.start:
                    held = tile.gallery.start, self._cluster.put(_plain(right.rows(tile.gallery)))
                sizes = (part.stop - part.start for part in (tile.gallery, tile.queries))
                depths = [min(k, size) for k, size in zip(ks, sizes, strict=False)]
                block = _plain(left.rows(tile.queries))
                yield tile, partial(search.remote, asked, block, held[1], depths, self._backend)

        mergers = [Merger(queries, k) for queries, k in zip(sides, ks, strict=False)]
        label = f"rank {annotator.name} both ways" if len(ks) > 1 else f"rank {annotator.name}"
        with progress(label, total=len(left) * len(right)) as advance:
            for tile, (rankings, used) in self._cluster.results(jobs(), cores):
                self.used |= used
                for merger, seen, ranking in zip(mergers, (tile, tile.turned), rankings, strict=False):
                    merger.add(seen, ranking)
                advance(tile.pairs)
        return [merger.ranking() for merger in mergers]

    def _asked(self, annotator: Annotator) -> Order | Space | None:
        if searches_itself(annotator):
            return None  # it searches the whole gallery in a way of its own
        if annotator.kind in VECTOR_KINDS:
            return Space(annotator.name, annotator.kind, annotator.fingerprint)
        return self._order(annotator)

    def _order(self, annotator: Any) -> Order | None:
        """What workers need to build it; None where another process would build something else."""
        recipe = self._recipes.get(annotator.name)
        if recipe is None or not is_reusable(annotator):
            return None
        if str(recipe.config.get("device", "")).startswith("cuda:"):
            # The card that ray gives a worker is the only one that it sees.
            recipe = replace(recipe, config={**recipe.config, "device": "cuda"})
        return Order(recipe, annotator.fingerprint)

    def _remote(self, function: Callable[..., Any], asked: Order | Space) -> tuple[Any, int]:
        """The function as workers run it that have what it needs, and how many cores that takes."""
        has_gpu = any(node["Resources"].get("GPU", 0) >= 1 for node in self._cluster.nodes())
        if isinstance(asked, Order):
            cores, device = self._cores(asked.recipe), str(asked.recipe.config.get("device", "auto"))
            who = f"device 'cuda' of annotator {asked.recipe.name!r}"
        else:
            cores, device = 1, self._backend if self._backend in ("auto", "cuda") else "cpu"
            who = "backend 'cuda'"
        if device == "cuda" and not has_gpu:  # ray would wait for one forever
            raise RetrievalError(
                f"{who} needs a machine of the ray cluster with a GPU, and there is none; use 'auto'"
            )
        return self._cluster.remote(function, cores, gpu=has_gpu and device != "cpu"), cores

    def _cores(self, recipe: AnnotatorRecipe) -> int:
        """What an annotator's work takes: its own threads; a whole machine where none are set."""
        smallest = min(int(node["Resources"].get("CPU", 0)) or 1 for node in self._cluster.nodes())
        threads = recipe.config.get("threads", smallest)
        return max(1, min(int(threads), smallest))


def _is_searchable(gallery: Encoded, k: int) -> bool:
    return 1 <= k <= len(gallery) and bool((np.diff(gallery.ids) > 0).all())


def _plain(encoded: Encoded) -> Encoded:
    """Contiguous arrays in memory, which travel without another copy; memory maps would be read by the row."""
    arrays: dict[str, NDArray[Any]] = {
        name: np.ascontiguousarray(np.asarray(array)) for name, array in encoded.arrays.items()
    }
    return Encoded(encoded.modality, np.ascontiguousarray(encoded.ids), arrays)


@dataclass(frozen=True, slots=True)
class SearchTile:
    """Some rows of the queries and some of the gallery."""

    queries: slice
    gallery: slice

    @property
    def pairs(self) -> int:
        """How many comparisons it takes."""
        return int((self.queries.stop - self.queries.start) * (self.gallery.stop - self.gallery.start))

    @property
    def turned(self) -> SearchTile:
        """The same tile seen from the other side."""
        return SearchTile(self.gallery, self.queries)


def tile_shape(kind: AnnotatorKind) -> tuple[int, int]:
    """Queries and items of one tile."""
    if kind in VECTOR_KINDS:
        return TILE_QUERIES, TILE_ITEMS
    return TILE_QUERIES // _JOINT_SHRINK, TILE_ITEMS // _JOINT_SHRINK


def tiles(queries: int, items: int, shape: tuple[int, int]) -> Iterator[SearchTile]:
    """All of queries x gallery, one gallery block after the other, so that its vectors travel once."""
    for first in range(0, items, shape[1]):
        for start in range(0, queries, shape[0]):
            yield SearchTile(
                slice(start, min(start + shape[0], queries)), slice(first, min(first + shape[1], items))
            )


class Merger:
    """The best k of each query over the tiles seen so far, (Q, k)."""

    def __init__(self, queries: Encoded, k: int) -> None:
        self._ids = np.asarray(queries.ids, np.int64)
        self._k = k
        self._best: dict[int, Ranking] = {}

    def add(self, tile: SearchTile, found: Ranking) -> None:
        """Take in one tile's ranking."""
        so_far = self._best.get(tile.queries.start)
        self._best[tile.queries.start] = found if so_far is None else merged(so_far, found, self._k)

    def ranking(self) -> Ranking:
        """Every query's k best, once all tiles are in."""
        parts = [self._best[start] for start in sorted(self._best)]
        if not parts:
            empty = np.empty((0, self._k))
            return Ranking(self._ids, empty.astype(np.int64), empty.astype(np.float32))
        items = np.concatenate([part.item_ids for part in parts])
        return Ranking(self._ids, items, np.concatenate([part.similarities for part in parts]))


def merged(one: Ranking, other: Ranking, k: int) -> Ranking:
    """The k best of two rankings of the same queries over different items, in canonical order."""
    items = np.concatenate([one.item_ids, other.item_ids], axis=1)
    similarities = np.concatenate([one.similarities, other.similarities], axis=1)
    order = np.lexsort((items, -similarities), axis=1)[:, :k]
    return Ranking(
        one.query_ids,
        np.take_along_axis(items, order, axis=1),
        np.take_along_axis(similarities, order, axis=1),
    )
