"""Annotators whose work was done elsewhere: embeddings or rankings from files, by the data set's own ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annotators.base import (
    Encoded,
    Modality,
    Ranking,
    best_inner_products,
    file_sha256,
    fingerprint,
    ids_of,
    inner_products,
    unit_rows,
)
from annotators.catalog import embedded_ids, embedded_sides
from annotators.inputs.embedding_files import EmbeddingTable, read_embeddings
from annotators.options import Options
from mitl.errors import AnnotatorError
from mitl.records import AnnotatorKind, CaptionItem, Direction, ImageItem
from mitl.records.forms import DIRECTION_OF, IMAGES

_BLOCK = 1 << 14
"""Rows that are scaled in one go, in float64."""


class PrecomputedEmbeddings:
    """Similarity is the inner product of embeddings from files; of K vectors an item, the best product."""

    reads_pictures = False

    def __init__(
        self,
        name: str,
        images: EmbeddingTable,
        captions: EmbeddingTable,
        *,
        cosine: bool,
        nouns: tuple[str, str] = ("images", "captions"),
    ) -> None:
        """Raises AnnotatorError where the widths of the two sides, called ``nouns``, differ."""
        if images.embedding.shape[1:] != captions.embedding.shape[1:]:
            raise AnnotatorError(
                f"embeddings of annotator {name!r} differ in shape: {nouns[0]} {images.embedding.shape[1:]}, "
                f"{nouns[1]} {captions.embedding.shape[1:]}"
            )
        self.name = name
        several = images.embedding.ndim == 3
        self.kind = AnnotatorKind.MULTI_VECTOR if several else AnnotatorKind.INNER_PRODUCT
        self.fingerprint = fingerprint(images=images.sha256, captions=captions.sha256, cosine=cosine)
        self._tables = {"image": images, "caption": captions}
        self._cosine, self._nouns = cosine, nouns

    def encode_images(self, items: Sequence[ImageItem]) -> Encoded:
        """The images' rows of the file; AnnotatorError where some are missing."""
        return Encoded("image", ids_of(items), {"embedding": self._rows("image", items, self._nouns[0])})

    def encode_captions(self, items: Sequence[CaptionItem]) -> Encoded:
        """The captions' rows of the file; AnnotatorError where some are missing."""
        return Encoded("caption", ids_of(items), {"embedding": self._rows("caption", items, self._nouns[1])})

    def similarities(self, queries: Encoded, gallery: Encoded) -> NDArray[np.float32]:
        """(Q, G) inner products, or the best of the K x K."""
        product = best_inner_products if self.kind is AnnotatorKind.MULTI_VECTOR else inner_products
        return product(queries.arrays["embedding"], gallery.arrays["embedding"])

    def _rows(
        self, modality: Modality, items: Sequence[ImageItem] | Sequence[CaptionItem], noun: str
    ) -> NDArray[Any]:
        """The items' embeddings, of unit length under cosine; AnnotatorError where some are missing."""
        rows = self._tables[modality].rows([item.external_id for item in items], noun)
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
        return read_ranking(path, direction, *direction.ordered(by_image, by_caption), query_ids, depth)


def build_embeddings(options: Options) -> PrecomputedEmbeddings:
    """From ``embeddings = {images = PATH, captions = PATH}`` and ``similarity = "dot"|"cosine"`` (dot).

    The table may also name ``image_ids`` and ``caption_ids``, the ids of .npy files that do not lie beside them. Other
    forms of data sets call them by their own sides, as ``documents``, ``queries``, ``document_ids``, ``query_ids``.
    """
    cosine = options.text("similarity", "dot", choices=("dot", "cosine")) == "cosine"
    table = options.values.get("embeddings")
    nouns = embedded_sides(table if isinstance(table, Mapping) else {})
    lists = embedded_ids(nouns)
    paths = options.paths("embeddings", nouns, optional=lists)
    left, right = (
        read_embeddings(paths[side], paths.get(ids), side) for side, ids in zip(nouns, lists, strict=True)
    )
    return PrecomputedEmbeddings(options.annotator, left, right, cosine=cosine, nouns=nouns)


def directions_among(names: Iterable[str], where: str) -> dict[str, Direction]:
    """Those of ``names`` that name a direction, as any form does, with what they name, in the order of ``Direction``.

    Raises:
        AnnotatorError: two of them name the same direction.
    """
    named: dict[Direction, str] = {}
    for name in names:
        if (direction := DIRECTION_OF.get(name)) is None:
            continue
        if (other := named.setdefault(direction, name)) != name:
            raise AnnotatorError(
                f"{where} has {other!r} and {name!r}, which name the same direction; leave one out"
            )
    return {named[direction]: direction for direction in Direction if direction in named}


def build_rankings(options: Options) -> PrecomputedRankings:
    """From ``rankings = {i2t = PATH, t2i = PATH}``, or a folder of ``NAME.i2t.parquet`` or ``i2t.parquet``.

    Directions may be named as any form of data sets does, as ``a2t`` and ``t2a`` of sounds.
    """
    value = options.values["rankings"]
    if isinstance(value, dict):
        named = directions_among(value, f"rankings of annotator {options.annotator!r}")
        paths = options.paths("rankings", list(named) or list(IMAGES.ways))
        return PrecomputedRankings(options.annotator, {named[way]: path for way, path in paths.items()})
    folder = options.path("rankings")
    files: dict[Direction, Path] = {}
    for way, direction in DIRECTION_OF.items():
        names = (f"{options.annotator}.{way}.parquet", f"{way}.parquet")
        path = next((folder / name for name in names if (folder / name).is_file()), None)
        if path is not None:
            files.setdefault(direction, path)
    if not files:
        raise AnnotatorError(
            f"{str(folder)!r} holds no ranking of annotator {options.annotator!r}; it should hold "
            f"{options.annotator + '.i2t.parquet'!r} or 'i2t.parquet', and the same for t2i"
        )
    return PrecomputedRankings(options.annotator, files)


COLUMNS = ("query_id", "rank", "item_id", "similarity")


def read_ranking(
    path: Path,
    direction: Direction,
    queries: Mapping[str, int],
    items: Mapping[str, int],
    query_ids: Sequence[int],
    depth: int,
) -> Ranking:
    """The first ``depth`` items of these queries from a file of (query_id, rank, item_id, similarity) rows.

    Args:
        queries, items: surrogate id by external id; ``query_ids`` are surrogate ids.

    Raises:
        AnnotatorError: a query without rows, fewer than ``depth`` items, an item that is unknown or repeated,
            ranks that do not count from 1, similarities that rise with the rank or are not finite, or a file that
            `mitl propose` wrote of the other direction.
    """
    external = {surrogate: name for name, surrogate in queries.items()}
    table = _read(path, direction, [external[query] for query in query_ids])
    rows_of: dict[str, list[tuple[int, str, float]]] = {}
    for query, rank, item, similarity in zip(*(table[name] for name in COLUMNS), strict=True):
        rows_of.setdefault(str(query), []).append((rank, str(item), similarity))
    item_ids = np.empty((len(query_ids), depth), dtype=np.int64)
    similarities = np.empty((len(query_ids), depth), dtype=np.float32)
    for row, query_id in enumerate(query_ids):
        name = external[query_id]
        ids, values = _row(path, name, rows_of.get(name, []), items, depth)
        # Files may order equal similarities as they like; here the smaller id goes first.
        order = np.lexsort((ids, -values))[:depth]
        item_ids[row], similarities[row] = ids[order], values[order]
    return Ranking(np.array(query_ids, dtype=np.int64), item_ids, similarities)


def _read(path: Path, direction: Direction, external_query_ids: Sequence[str]) -> dict[str, list[Any]]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
        said = (schema.metadata or {}).get(b"direction", direction.value.encode()).decode(errors="replace")
        if said != direction.value:
            # Ids may be numbers from 1 on both sides, and then nothing else tells.
            raise AnnotatorError(
                f"{str(path)!r} says that it ranks in the direction {said}, not {direction}; give the file of "
                f"{direction}, or the other direction"
            )
        names = schema.names
        missing = [name for name in COLUMNS if name not in names]
        if missing:
            raise AnnotatorError(
                f"{str(path)!r} lacks the column {missing[0]!r}; it holds {', '.join(names)}"
            )
        table = pq.read_table(path, columns=list(COLUMNS))
        as_text = table["query_id"].cast(pa.string())
        table = table.filter(pc.is_in(as_text, value_set=pa.array(external_query_ids, type=pa.string())))
        columns = {name: table[name] for name in COLUMNS}
        columns["rank"] = columns["rank"].cast(pa.int64())
        columns["similarity"] = columns["similarity"].cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise AnnotatorError(f"{str(path)!r} is not readable as a ranking in Parquet: {error}") from error
    null = [name for name in COLUMNS if columns[name].null_count]
    if null:
        raise AnnotatorError(f"{str(path)!r} has empty cells in the column {null[0]!r}")
    return {name: column.to_pylist() for name, column in columns.items()}


def _row(
    path: Path, query: str, rows: list[tuple[int, str, float]], items: Mapping[str, int], depth: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """One query's items and similarities by rank, all that the file has, as exact as there: they order items."""
    where = f"the ranking of query {query!r} in {str(path)!r}"
    if not rows:
        raise AnnotatorError(f"{str(path)!r} has no ranking of query {query!r}")
    rows.sort()
    if [rank for rank, _, _ in rows] != list(range(1, len(rows) + 1)):
        raise AnnotatorError(f"{where} has ranks that do not count 1, 2, 3 …")
    if len(rows) < depth:
        raise AnnotatorError(f"{where} has {len(rows)} items, but the depth is {depth}; ask for less")
    unknown = [item for _, item, _ in rows if item not in items]
    if unknown:
        raise AnnotatorError(f"{where} names item {unknown[0]!r}, which is not in the data set")
    if len({item for _, item, _ in rows}) != len(rows):
        raise AnnotatorError(f"{where} has an item twice")
    ids = np.array([items[item] for _, item, _ in rows], dtype=np.int64)
    values = np.array([similarity for _, _, similarity in rows], dtype=np.float64)
    with np.errstate(over="ignore"):
        kept = values.astype(np.float32)
    if not np.isfinite(kept).all():
        raise AnnotatorError(f"{where} has a similarity that is not finite")
    if (np.diff(kept) > 0).any():
        raise AnnotatorError(f"{where} has similarities that rise with the rank; higher should be closer")
    return ids, values
