"""What a machine annotator is: it encodes items once and gives blocks of similarities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mitl.records import AnnotatorKind, CaptionItem, Direction, ImageItem

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

    It may have more, which is used where it is there:

    * ``reusable_encodings`` (bool): an item's encoding depends on the item and ``fingerprint`` alone, so it is kept on
      disk and never made twice.
    * ``encoding_fingerprint`` (str): the hash of what encodings depend on, where that is less than ``fingerprint``.
    * ``reads_pictures`` (bool): it looks at image files, so a changed file makes its encoding stale; where it says
      so itself, all files must be there before anything is ranked.
    * ``scores(images, captions, image_rows, caption_rows, *, exact=False)`` -> (P,) float32, the similarities of single
      pairs (rows of two ``Encoded``): they are kept as well and can be limited to a shortlist. ``is_exact`` (bool) says
      whether they are float32 as they come; where not, ``exact=True`` makes them so.
    * ``device``: where its network runs.
    * ``top_k(queries, gallery, k, *, block_bytes, progress)`` -> ``Ranking``: a search of its own.
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
