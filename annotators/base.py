"""What a machine annotator is: it encodes items once and gives blocks of similarities.

Similarities come out the same in every block size: products are summed in float64 and rounded once to float32, so
that the different summation orders of a matrix product on blocks of different shapes (relative error about 1e-15)
do not reach the result. ``fingerprint`` says whether an annotator is still the one that made a ranking.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeGuard, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mitl.progress import Progress
from mitl.records import AnnotatorKind, CaptionItem, Direction, ImageItem


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint(**parts: object) -> str:
    """SHA-256 over named parts (JSON values), whatever their order, as hex."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


Modality = Literal["image", "caption"]


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Encoded items: ``ids`` (N,) int64 ascending, and named arrays whose first axis is N.

    An inner-product annotator keeps one array ``embedding`` (N, D) float32, and its similarity *is* the inner
    product of two rows. A multi-vector annotator keeps ``embedding`` (N, K, D). Others name what they need.
    """

    modality: Modality
    ids: NDArray[np.int64]
    arrays: Mapping[str, NDArray[Any]]

    def __post_init__(self) -> None:
        for name, array in self.arrays.items():
            if len(array) != len(self.ids):
                raise ValueError(f"array {name!r} has {len(array)} rows for {len(self.ids)} ids")

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, index: slice | NDArray[np.int64]) -> Encoded:
        """The items at these positions, in that order; a slice makes views."""
        return Encoded(self.modality, self.ids[index], {k: v[index] for k, v in self.arrays.items()})


def ids_of(items: Sequence[ImageItem] | Sequence[CaptionItem]) -> NDArray[np.int64]:
    """(N,) the ids of items, as ``Encoded`` has them."""
    return np.array([item.id for item in items], dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Each query's nearest items, best first: ``query_ids`` (Q,), ``item_ids`` (Q, k), ``similarities`` (Q, k).

    Ids are int64, similarities float32. Order within a row: similarity falling, then id rising.
    """

    query_ids: NDArray[np.int64]
    item_ids: NDArray[np.int64]
    similarities: NDArray[np.float32]


@runtime_checkable
class Annotator(Protocol):
    """A machine annotator: how well does each query match each gallery item?

    It may have more, which is used where it is there: ``KeepsEncodings``, ``ReadsPictures``, ``ScoresPairs``,
    ``SearchesItself``, ``DrawsSamples`` and ``RunsOnDevice``. Each member of these stands for itself.
    """

    name: str
    kind: AnnotatorKind
    fingerprint: str
    """Hash of weights and configuration; rankings are keyed by it."""

    def encode_images(self, items: Sequence[ImageItem]) -> Encoded:
        """Encode images, given in ascending id order."""
        ...

    def encode_captions(self, items: Sequence[CaptionItem]) -> Encoded:
        """Encode captions, given in ascending id order."""
        ...

    def similarities(self, queries: Encoded, gallery: Encoded) -> NDArray[np.float32]:
        """Return (Q, G) float32; higher is closer; row q belongs to query q. Either side may be the images."""
        ...


@runtime_checkable
class RankingSource(Protocol):
    """An annotator whose rankings were made elsewhere and are read from files."""

    name: str
    kind: AnnotatorKind
    fingerprint: str

    def ranking(
        self,
        direction: Direction,
        images: Sequence[ImageItem],
        captions: Sequence[CaptionItem],
        query_ids: Sequence[int],
        depth: int,
    ) -> Ranking:
        """The ranking of these queries (surrogate ids) to ``depth``; AnnotatorError where the file lacks a query."""
        ...


# What an annotator may offer besides. All of the pipeline asks by the functions below, so that an attribute which a
# wrapper hands on counts like its own.


class KeepsEncodings(Protocol):
    """Its encodings mean the same in another process, so they are kept on disk and never made twice.

    It promises that an item's row depends on its fingerprint and the item alone, and that the arrays of all items have
    one shape. One that encodes relative to a corpus, or keeps tables that its encodings point into, must not set it.
    """

    reusable_encodings: bool
    encoding_fingerprint: str
    """The hash of what encodings depend on, where that is less than ``fingerprint``."""


class ReadsPictures(Protocol):
    """It looks at image files, so a changed file makes its encoding stale."""

    reads_pictures: bool
    """Where it says so itself, all files must be there before anything is ranked."""


class ScoresPairs(Annotator, Protocol):
    """It compares single pairs, whose scores are kept as well and can be limited to a shortlist."""

    is_exact: bool
    """Whether scores are float32 as they come; where not, the keyword ``exact`` makes them so."""

    def scores(
        self,
        images: Encoded,
        captions: Encoded,
        image_rows: NDArray[np.int64],
        caption_rows: NDArray[np.int64],
    ) -> Any:
        """(P,) float32 scores of the pairs of rows of both ``Encoded``; they do not depend on what else is asked."""
        ...


def scores_of_all(annotator: ScoresPairs, queries: Encoded, gallery: Encoded) -> NDArray[np.float32]:
    """(Q, G) scores of all pairs, as ``similarities`` wants them, of an annotator that compares single ones."""
    images, captions = (queries, gallery) if queries.modality == "image" else (gallery, queries)
    rows, columns = np.divmod(np.arange(len(images) * len(captions)), max(1, len(captions)))
    scores = np.asarray(annotator.scores(images, captions, rows, columns)).reshape(len(images), len(captions))
    return scores if queries.modality == "image" else np.ascontiguousarray(scores.T)


@dataclass(frozen=True, slots=True)
class PaidPairs:
    """To what the pairs of an annotator are held that may cost money."""

    at_once: int
    """After so many their scores are kept at the latest: it is what a kill may cost."""
    most: int | None
    """How many may be asked for in all; None for any number."""


class SearchesItself(Annotator, Protocol):
    """It finds the nearest items in a way of its own."""

    def top_k(
        self, queries: Encoded, gallery: Encoded, k: int, *, block_bytes: int, progress: Progress
    ) -> Ranking:
        """Each query's ``k`` nearest items."""
        ...


class DrawsSamples(Protocol):
    """It compares samples whose noise follows from a seed and an item's id (``match_probability.noise``)."""

    seed: int


class RunsOnDevice(Protocol):
    """Its network runs on a device of torch, "cpu" or "cuda:0"."""

    device: object


def is_reusable(annotator: object) -> bool:
    """Whether encodings may be kept (``KeepsEncodings``); not unless it says so."""
    return bool(getattr(annotator, "reusable_encodings", False))


def encoding_fingerprint(annotator: Annotator | RankingSource) -> str:
    """The hash of what an annotator's encodings depend on, beside the items."""
    return str(getattr(annotator, "encoding_fingerprint", annotator.fingerprint))


def reads_pictures(annotator: object, *, unsaid: bool) -> bool:
    """Whether it looks at image files (``ReadsPictures``); ``unsaid`` where it does not say."""
    return bool(getattr(annotator, "reads_pictures", unsaid))


def scores_pairs(annotator: object) -> TypeGuard[ScoresPairs]:
    """Whether it compares single pairs."""
    return hasattr(annotator, "scores")


def is_exact(annotator: object) -> bool:
    """Whether its scores of pairs are float32 as they come; so it is unless it says otherwise."""
    return bool(getattr(annotator, "is_exact", True))


def paid_pairs(annotator: object) -> PaidPairs | None:
    """To what its pairs are held if they may cost money; None where it says nothing."""
    return getattr(annotator, "paid_pairs", None)


def searches_itself(annotator: object) -> TypeGuard[SearchesItself]:
    """Whether it has a search of its own."""
    return hasattr(annotator, "top_k")


def draws_samples(annotator: object) -> TypeGuard[DrawsSamples]:
    """Whether the noise of its samples is known."""
    return hasattr(annotator, "seed")


def device_name(annotator: object) -> str | None:
    """Where its network runs (``RunsOnDevice``); None where it has none."""
    device = getattr(annotator, "device", None)
    return None if device is None else str(device)


def measured_recall(annotator: object) -> Any:
    """What an own search measured of its shortlists, None where it measured nothing."""
    return getattr(annotator, "measured", None)


def inner_products(queries: NDArray[Any], gallery: NDArray[Any]) -> NDArray[np.float32]:
    """(Q, G) inner products of the rows of (Q, D) and (G, D)."""
    exact: NDArray[np.float64] = queries.astype(np.float64) @ gallery.astype(np.float64).T
    return exact.astype(np.float32)


class InnerProducts:
    """Annotators whose similarity is the inner product of two ``embedding``s: cosines where they are unit vectors."""

    kind = AnnotatorKind.INNER_PRODUCT

    def similarities(self, queries: Encoded, gallery: Encoded) -> NDArray[np.float32]:
        """(Q, G) inner products."""
        return inner_products(queries.arrays["embedding"], gallery.arrays["embedding"])


def best_inner_products(queries: NDArray[Any], gallery: NDArray[Any]) -> NDArray[np.float32]:
    """(Q, G) the greatest of the K x K inner products between the vectors of (Q, K, D) and (G, K, D).

    Source: Song and Soleymani, PVSE, CVPR 2019, section 3.2.
    """
    best: NDArray[np.float32] | None = None
    for i in range(queries.shape[1]):
        for j in range(gallery.shape[1]):
            block = inner_products(queries[:, i], gallery[:, j])
            best = block if best is None else np.maximum(best, block)
    assert best is not None, "no vectors per item"
    return best


def unit_rows(vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Vectors (..., D) divided by their length; a zero vector stays zero."""
    exact = vectors.astype(np.float64)
    length = np.linalg.norm(exact, axis=-1, keepdims=True)
    unit: NDArray[np.float64] = exact / np.where(length > 0, length, 1.0)
    return unit.astype(np.float32)
