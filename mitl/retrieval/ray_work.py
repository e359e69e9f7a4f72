"""Units of work as a Ray worker does them: plain functions of what travels to it.

A worker builds an annotator when it first needs it and keeps it, so that the weights are read once a worker.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from importlib.metadata import version
from typing import cast

import numpy as np
from numpy.typing import NDArray

from annotators.base import Annotator, Encoded, Modality, Ranking, ScoresPairs
from mitl.errors import AnnotatorError
from mitl.records import AnnotatorKind
from mitl.retrieval.encodings import Items, encode_items
from mitl.retrieval.engines import Recipe, timed_scores
from mitl.retrieval.products import Backend
from mitl.retrieval.topk import top_k, top_k_both

_built: dict[tuple[str, str], Annotator] = {}
"""The annotator that this process has built last, by name and fingerprint."""


@dataclass(frozen=True, slots=True)
class Order:
    """Which annotator a unit of work is for, and what it must be."""

    recipe: Recipe
    fingerprint: str


@dataclass(slots=True)
class Space:
    """All that a search among vectors needs to know of an annotator."""

    name: str
    kind: AnnotatorKind
    fingerprint: str

    def encode_images(self, items: object) -> Encoded:
        """Never asked."""
        raise AssertionError("vectors are encoded already")

    encode_captions = encode_images

    def similarities(self, queries: Encoded, gallery: Encoded) -> NDArray[np.float32]:
        """Never asked."""
        raise AssertionError("vectors are multiplied by the search itself")


def greeting() -> str:
    """The version of mitl on this worker."""
    return version("mitl")


def encode_chunk(order: Order, modality: Modality, items: Items) -> Encoded:
    """The items encoded."""
    return encode_items(_annotator(order), modality, items)


def score_pairs(
    order: Order,
    images: Encoded,
    captions: Encoded,
    image_rows: NDArray[np.int64],
    caption_rows: NDArray[np.int64],
    exact: bool,
) -> tuple[NDArray[np.float32], float]:
    """The pairs' scores and the seconds they took."""
    annotator = cast(ScoresPairs, _annotator(order))
    return timed_scores(annotator, _own(images), _own(captions), image_rows, caption_rows, exact=exact)


def search_tile(
    asked: Order | Space, queries: Encoded, gallery: Encoded, k: int, backend: Backend
) -> tuple[Ranking, set[str]]:
    """The tile's top k, and what multiplied its vectors."""
    used: set[str] = set()
    if isinstance(asked, Space):
        return top_k(asked, queries, gallery, k, backend=backend, used=used), used
    return top_k(_annotator(asked), _own(queries), _own(gallery), k, backend=backend, used=used), used


def search_tile_both(
    asked: Order | Space, images: Encoded, captions: Encoded, k_i2t: int, k_t2i: int, backend: Backend
) -> tuple[tuple[Ranking, Ranking], set[str]]:
    """The tile's top k of either side for the other, and what multiplied its vectors."""
    used: set[str] = set()
    if isinstance(asked, Space):
        return top_k_both(asked, images, captions, k_i2t, k_t2i, backend=backend, used=used), used
    sides = _own(images), _own(captions)
    return top_k_both(_annotator(asked), *sides, k_i2t, k_t2i, backend=backend, used=used), used


def _annotator(order: Order) -> Annotator:
    key = (order.recipe.name, order.fingerprint)
    if key not in _built:
        _built.clear()
        made = order.recipe.build()
        if made.fingerprint != order.fingerprint:
            raise AnnotatorError(
                f"annotator {order.recipe.name!r} is another one on {socket.gethostname()}: its weights or files "
                "differ from those here; put the same files on every machine of the cluster"
            )
        _built[key] = made
    return _built[key]


def _own(encoded: Encoded) -> Encoded:
    """Arrays of this process: those that Ray shares cannot be written to, of which torch warns."""
    return Encoded(encoded.modality, encoded.ids.copy(), {k: v.copy() for k, v in encoded.arrays.items()})
