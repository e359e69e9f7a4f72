"""Models as files: embeddings of both sides or of one, a similarity matrix, or rankings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annotators.inputs.embedding_files import (
    EmbeddingTable,
    id_texts,
    ids_beside,
    listed_ids,
    load_numpy,
    read_archive,
    read_embeddings,
)
from mitl.errors import MetricError
from mitl.metrics.positives import Ids
from mitl.metrics.ranks import NOTHING
from mitl.records import Direction
from mitl.stages.evaluating.models import (
    BOTH,
    Matrix,
    Modality,
    Model,
    ModelSide,
    ModelVectors,
    Ranked,
    Sides,
    strange_ids_hint,
)
from mitl.stages.evaluating.ranking_files import RankingTable, read_rankings
from mitl.stages.evaluating.request import ModelFiles, Similarity, need_file

_BLOCK = 1 << 9
"""Rows that are looked at in one go."""


def read_model(files: ModelFiles, similarity: Similarity) -> RawModel:
    """The model in these files.

    Raises:
        MetricError, AnnotatorError: a file is missing, malformed or does not fit the others.
    """
    if files.embeddings is not None:
        sides = zip(("image", "caption"), files.embeddings, strict=True)
        paths = {side: need_file(path, "embeddings") for side, path in sides if path is not None}
        ids = {"image": files.image_ids, "caption": files.caption_ids}
        embedded = {side: read_embeddings(path, ids[side], f"{side}s") for side, path in paths.items()}
        return EmbeddingModel(files.name, embedded, similarity)
    if files.similarities is not None:
        return _read_similarities(files, files.similarities)
    tables: dict[Direction, RankingTable] = {}
    for path in files.rankings:
        for direction, table in read_rankings(path).items():
            if direction in tables:
                raise MetricError(
                    f"model {files.name!r} has two files of rankings {direction}: {str(tables[direction].path)!r} and "
                    f"{str(path)!r}; keep one"
                )
            tables[direction] = table
    return RankingModel(files.name, tables)


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddingModel:
    """Embeddings of both sides, or of one alone, under the ids of their files."""

    name: str
    tables: Mapping[Modality, EmbeddingTable]
    similarity: Similarity

    def __post_init__(self) -> None:
        """MetricError if the sides differ in width."""
        widths = [table.embedding.shape[1:] for table in self.tables.values()]
        if len(set(widths)) > 1:
            images, captions = (" x ".join(map(str, width)) for width in widths)
            raise MetricError(
                f"embeddings of model {self.name!r} differ in width: images {images}, captions {captions}; take both "
                "from one model"
            )

    @property
    def sides(self) -> frozenset[Modality]:
        """Those that have embeddings."""
        return frozenset(self.tables)

    def held(self, modality: Modality) -> Sequence[str]:
        """The ids of the embeddings."""
        return list(self.tables[modality].row_of) if modality in self.tables else ()

    def fitted(self, sides: Sides, directions: Sequence[Direction]) -> Model:
        """Rows in the order of the sides, scaled to unit length for cosines; MetricError where one lacks."""
        rows = {modality: self._rows(table, sides.of(modality)) for modality, table in self.tables.items()}
        return Model(self.name, similarities=ModelVectors(rows), within_sides=True, sides=self.sides)

    def _rows(self, table: EmbeddingTable, side: ModelSide) -> NDArray[np.float32]:
        from annotators.base import unit_rows

        rows = np.asarray(table.embedding[_places(table.path, table.row_of, side)])
        if self.similarity == "cosine":
            return unit_rows(rows)
        _refuse_long(table.path, side, rows)
        return rows


@dataclass(frozen=True, slots=True, eq=False)
class SimilarityModel:
    """Similarities (I, C), higher is closer: a row an image, a column a caption; ids are external."""

    name: str
    path: Path
    image_row: Mapping[str, int]
    caption_column: Mapping[str, int]
    values: NDArray[Any]
    sides: frozenset[Modality] = BOTH

    def held(self, modality: Modality) -> Sequence[str]:
        """The ids of the rows or columns."""
        return list(self.image_row if modality == "image" else self.caption_column)

    def fitted(self, sides: Sides, directions: Sequence[Direction]) -> Model:
        """The matrix with the places of the sides' items in it."""
        rows = _places(self.path, self.image_row, sides.images)
        columns = _places(self.path, self.caption_column, sides.captions)
        return Model(self.name, similarities=Matrix(self.values, rows, columns))


@dataclass(frozen=True, slots=True, eq=False)
class RankingModel:
    """Rankings of one direction or both."""

    name: str
    tables: Mapping[Direction, RankingTable]
    sides: frozenset[Modality] = BOTH

    def held(self, modality: Modality) -> Sequence[str]:
        """The ids that search or are found."""
        ids: list[str] = []
        for direction, table in self.tables.items():
            searches = (modality == "image") is (direction is Direction.I2T)
            ids += table.queries if searches else table.names
        return ids

    def fitted(self, sides: Sides, directions: Sequence[Direction]) -> Model:
        """The rankings in the sides' numbers; queries that the sides lack are left out.

        Raises:
            MetricError: a direction has no rankings, or they name an item that the gallery lacks.
        """
        missing = [direction for direction in directions if direction not in self.tables]
        if missing:
            ranked = next(iter(self.tables))
            raise MetricError(
                f"model {self.name!r} has no rankings {missing[0]}; give their file too, or --direction {ranked}"
            )
        return Model(
            self.name, {direction: self._fitted(self.tables[direction], sides) for direction in directions}
        )

    def _fitted(self, table: RankingTable, sides: Sides) -> Ranked:
        queries, gallery = sides.queries(table.direction), sides.gallery(table.direction)
        strange = [name for name in table.names if name not in gallery.number_of]
        if strange:
            raise MetricError(
                f"{str(table.path)!r} ranks {len(strange)} {gallery.plural} that are not in the gallery of "
                f"{len(gallery):,}; first: {strange[0]!r}{strange_ids_hint(gallery.ids, table.names)}"
            )
        kept = [place for place, query in enumerate(table.queries) if query in queries.number_of]
        if not kept:
            raise MetricError(
                f"{str(table.path)!r} ranks for none of the {len(queries):,} {queries.plural}"
                f"{strange_ids_hint(queries.ids, table.queries)}"
            )
        numbers = np.array([gallery.number_of[name] for name in table.names] + [NOTHING], np.int64)
        query_ids = np.array([queries.number_of[table.queries[place]] for place in kept], np.int64)
        # ENDED is -1, which reads the last number.
        return Ranked(query_ids, numbers[table.items[kept]], table.lengths[kept])


RawModel = EmbeddingModel | SimilarityModel | RankingModel
"""A model as its files have it, under their own ids."""


def read_caption_vectors(path: Path, captions: ModelSide) -> NDArray[np.float32]:
    """(C, D) the embeddings of a file in the captions' order.

    Raises:
        MetricError, AnnotatorError: the file is missing or malformed, lacks a caption or has several vectors of each.
    """
    table = read_embeddings(need_file(path, "the captions' embeddings"), what="captions")
    if table.embedding.ndim != 2:
        raise MetricError(f"{str(path)!r} has several vectors of a caption; pseudo-labels are made from one")
    return np.asarray(table.embedding[_places(table.path, table.row_of, captions)])


def _places(path: Path, place_of: Mapping[str, int], side: ModelSide) -> Ids:
    missing = [name for name in side.ids if name not in place_of]
    if missing:
        raise MetricError(
            f"{str(path)!r} lacks {len(missing):,} of {len(side):,} {side.plural}; first: {missing[0]!r}"
            f"{strange_ids_hint(side.ids, list(place_of))}"
        )
    return np.array([place_of[name] for name in side.ids], np.int64)


def _refuse_long(path: Path, side: ModelSide, rows: NDArray[Any]) -> None:
    """MetricError where an inner product may leave float32: all that do would be equal."""
    from mitl.retrieval.vectors import LONGEST

    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK].astype(np.float64)
        long = (np.linalg.norm(block, axis=-1) > LONGEST).reshape(len(block), -1).any(axis=1)
        if long.any():
            raise MetricError(
                f"the embedding of {side.modality} {side.ids[start + int(long.argmax())]} in {str(path)!r} is longer "
                f"than {LONGEST:g}, so its inner products leave float32; normalise it, or take --similarity cosine"
            )


def _read_similarities(files: ModelFiles, path: Path) -> SimilarityModel:
    """The matrix of a .npz with ``similarities``, ``image_ids`` and ``caption_ids``, or of a .npy.

    A .npy stays on disk until it is used; its ids are in the files given (.npy, else a text with one a line), or
    beside it in ``NAME.image_ids.npy`` or ``.txt`` and ``NAME.caption_ids.npy`` or ``.txt``.

    Raises:
        MetricError, AnnotatorError: missing, unreadable, not (I, C) real numbers, NaN or +inf among them, ids doubled
            or of another number.
    """
    if path.suffix == ".npy":
        values = load_numpy(need_file(path, "similarities"), mmap_mode="r")
        images = listed_ids(files.image_ids or _needed_ids(path, "image_ids"))
        captions = listed_ids(files.caption_ids or _needed_ids(path, "caption_ids"))
    elif path.suffix == ".npz":
        if files.image_ids or files.caption_ids:
            raise MetricError(f"{str(path)!r} has ids of its own; leave --image-ids and --caption-ids out")
        arrays = read_archive(need_file(path, "similarities"), "similarities", "image_ids", "caption_ids")
        values = arrays["similarities"]
        images, captions = (id_texts(path, arrays[name]) for name in ("image_ids", "caption_ids"))
    else:
        raise MetricError(f"{str(path)!r} is not a file of similarities; it should end in .npy or .npz")
    return checked_similarities(files.name, path, values, images, captions)


def checked_similarities(
    name: str, path: Path, values: object, images: Sequence[str], captions: Sequence[str]
) -> SimilarityModel:
    """Similarities (I, C) with their ids; MetricError if they do not fit, or one is NaN or +inf."""
    if not isinstance(values, np.ndarray) or values.ndim != 2 or values.dtype.kind not in "fiu":
        found = f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else "no array"
        raise MetricError(
            f"similarities in {str(path)!r} are {found}; they should be real numbers of shape (images, captions)"
        )
    if values.shape != (len(images), len(captions)):
        turned = values.shape == (len(captions), len(images))
        mend = "turn the matrix: a row is an image" if turned else "give an id for each row and each column"
        raise MetricError(
            f"similarities in {str(path)!r} are {values.shape}, but {len(images)} image ids and {len(captions)} "
            f"caption ids were given; {mend}"
        )
    rows, columns = checked_ids(path, images, "image"), checked_ids(path, captions, "caption")
    _refuse_unranked(path, values, images, captions)
    return SimilarityModel(name, path, rows, columns, values)


def _refuse_unranked(
    path: Path, values: NDArray[Any], images: Sequence[str], captions: Sequence[str]
) -> None:
    if values.dtype.kind != "f":
        return
    for start in range(0, len(values), _BLOCK):
        block = values[start : start + _BLOCK]
        wrong = ~(block < np.inf)  # +inf is what an overflow leaves; -inf says that a pair has no similarity
        if wrong.any():
            row, column = (int(place[0]) for place in np.nonzero(wrong))
            value = "NaN" if np.isnan(block[row, column]) else "infinite"
            raise MetricError(
                f"the similarity of image {images[start + row]} and caption {captions[column]} in {str(path)!r} is "
                f"{value}, so neither has a rank; mend the model's output, or give -inf if the pair has no similarity"
            )


def _needed_ids(path: Path, what: str) -> Path:
    """The file of ids beside ``path``; MetricError where there is none."""
    ids_path = ids_beside(path, what)
    if ids_path is None:
        raise MetricError(
            f"{str(path)!r} has no ids beside it; write them to {path.with_suffix(f'.{what}.txt').name!r}, "
            f"one a line, or give --{what.replace('_', '-')} FILE"
        )
    return ids_path


def checked_ids(path: Path, ids: Sequence[str], modality: str) -> dict[str, int]:
    """Place of each id; MetricError where one stands there twice."""
    place_of: dict[str, int] = {}
    for place, name in enumerate(ids):
        if place_of.setdefault(name, place) != place:
            raise MetricError(f"{str(path)!r} has the {modality} id {name!r} twice; keep one row of it")
    return place_of
