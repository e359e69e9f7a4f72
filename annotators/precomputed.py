"""Annotators whose work was done elsewhere: embeddings or rankings from files, by the data set's own ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from annotators.base import Encoded, Ranking, ids_of
from annotators.fingerprint import file_sha256, fingerprint
from annotators.inputs.embedding_files import EmbeddingTable, read_embeddings
from annotators.inputs.ranking_files import read_ranking
from annotators.options import Options
from annotators.scoring.similarity import best_inner_products, inner_products, unit_rows
from mitl.errors import AnnotatorError
from mitl.records import AnnotatorKind, CaptionItem, Direction, ImageItem

_BLOCK = 1 << 14
"""Rows that are scaled in one go, in float64."""


class PrecomputedEmbeddings:
    """Similarity is the inner product of embeddings from files; of K vectors an item, the best product."""

    def __init__(self, name: str, images: EmbeddingTable, captions: EmbeddingTable, *, cosine: bool) -> None:
        """Raises AnnotatorError where the widths of the two sides differ."""
        if images.embedding.shape[1:] != captions.embedding.shape[1:]:
            raise AnnotatorError(
                f"embeddings of annotator {name!r} differ in shape: images {images.embedding.shape[1:]}, "
                f"captions {captions.embedding.shape[1:]}"
            )
        self.name = name
        several = images.embedding.ndim == 3
        self.kind = AnnotatorKind.MULTI_VECTOR if several else AnnotatorKind.INNER_PRODUCT
        self.fingerprint = fingerprint(images=images.sha256, captions=captions.sha256, cosine=cosine)
        self._tables = {"image": images, "caption": captions}
        self._cosine = cosine

    def encode_images(self, items: Sequence[ImageItem]) -> Encoded:
        """The images' rows of the file; AnnotatorError where some are missing."""
        rows = self._tables["image"].rows([item.external_id for item in items], "images")
        return Encoded("image", ids_of(items), {"embedding": self._scaled(rows)})

    def encode_captions(self, items: Sequence[CaptionItem]) -> Encoded:
        """The captions' rows of the file; AnnotatorError where some are missing."""
        rows = self._tables["caption"].rows([item.external_id for item in items], "captions")
        return Encoded("caption", ids_of(items), {"embedding": self._scaled(rows)})

    def similarities(self, queries: Encoded, gallery: Encoded) -> NDArray[np.float32]:
        """(Q, G) inner products, or the best of the K x K."""
        product = best_inner_products if self.kind is AnnotatorKind.MULTI_VECTOR else inner_products
        return product(queries.arrays["embedding"], gallery.arrays["embedding"])

    def _scaled(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        if not self._cosine:
            return rows
        scaled = np.empty(rows.shape, np.float32)
        for start in range(0, len(rows), _BLOCK):
            scaled[start : start + _BLOCK] = unit_rows(rows[start : start + _BLOCK])
        return scaled


class PrecomputedRankings:
    """Rankings from Parquet files, one a direction; a direction without a file cannot be asked."""

    kind = AnnotatorKind.RANKING

    def __init__(self, name: str, files: dict[Direction, Path]) -> None:
        self.name = name
        self.fingerprint = fingerprint(
            **{str(direction): file_sha256(path) for direction, path in files.items()}
        )
        self._files = files

    def ranking(
        self,
        direction: Direction,
        images: Sequence[ImageItem],
        captions: Sequence[CaptionItem],
        query_ids: Sequence[int],
        depth: int,
    ) -> Ranking:
        """The ranking of these queries to ``depth``; AnnotatorError where the file lacks what is asked."""
        path = self._files.get(direction)
        if path is None:
            raise AnnotatorError(
                f"annotator {self.name!r} has no ranking file for the direction {direction.value!r}"
            )
        by_image = {item.external_id: item.id for item in images}
        by_caption = {item.external_id: item.id for item in captions}
        queries, items = (by_image, by_caption) if direction is Direction.I2T else (by_caption, by_image)
        return read_ranking(path, queries, items, query_ids, depth)


def build_embeddings(options: Options) -> PrecomputedEmbeddings:
    """From ``embeddings = {images = PATH, captions = PATH}`` and ``similarity = "dot"|"cosine"`` (dot).

    The table may also name ``image_ids`` and ``caption_ids``, the ids of .npy files that do not lie beside them.
    """
    options.only("embeddings", "similarity")
    cosine = options.text("similarity", "dot", choices=("dot", "cosine")) == "cosine"
    paths = options.paths("embeddings", ("images", "captions"), optional=("image_ids", "caption_ids"))
    images = read_embeddings(paths["images"], paths.get("image_ids"))
    captions = read_embeddings(paths["captions"], paths.get("caption_ids"))
    return PrecomputedEmbeddings(options.annotator, images, captions, cosine=cosine)


def build_rankings(options: Options) -> PrecomputedRankings:
    """From ``rankings = {i2t = PATH, t2i = PATH}``, or a folder of ``NAME.i2t.parquet`` or ``i2t.parquet``."""
    options.only("rankings")
    value = options.values["rankings"]
    if isinstance(value, dict):
        wanted = [direction.value for direction in Direction if direction.value in value] or ["i2t", "t2i"]
        paths = options.paths("rankings", wanted)
        return PrecomputedRankings(options.annotator, {Direction(key): path for key, path in paths.items()})
    folder = options.path("rankings")
    files = {}
    for direction in Direction:
        names = (f"{options.annotator}.{direction}.parquet", f"{direction}.parquet")
        path = next((folder / name for name in names if (folder / name).is_file()), None)
        if path is not None:
            files[direction] = path
    if not files:
        raise AnnotatorError(
            f"{str(folder)!r} holds no ranking of annotator {options.annotator!r}; it should hold "
            f"{options.annotator + '.i2t.parquet'!r} or 'i2t.parquet', and the same for t2i"
        )
    return PrecomputedRankings(options.annotator, files)
