"""Models as files: embeddings of both sides, a similarity matrix, or rankings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.metrics.positives import Ids
from mitl.metrics.ranked import NOTHING
from mitl.records import Direction
from mitl.stages.evaluating.models.model import Matrix, Model, Ranked, Vectors
from mitl.stages.evaluating.models.options import ModelFiles
from mitl.stages.evaluating.models.ranking_files import read_rankings
from mitl.stages.evaluating.models.ranking_table import ENDED, RankingTable
from mitl.stages.evaluating.models.sides import Side, Sides, strange_ids_hint
from mitl.stages.evaluating.models.similarity_files import SimilarityTable, read_similarities

if TYPE_CHECKING:
    from annotators.inputs.embedding_files import EmbeddingTable

Similarity = Literal["dot", "cosine"]


class RawModel(Protocol):
    """A model as its files have it, under their own ids."""

    @property
    def name(self) -> str:
        """What the user calls it."""
        ...

    def held(self, modality: str) -> Sequence[str]:
        """The ids that the files name."""
        ...

    def fitted(self, sides: Sides, directions: Sequence[Direction]) -> Model:
        """The model on these images and captions; MetricError where it lacks one."""
        ...


def read_model(files: ModelFiles, similarity: Similarity) -> RawModel:
    """The model in these files.

    Raises:
        MetricError, AnnotatorError: a file is missing, malformed or does not fit the others.
    """
    if files.embeddings is not None:
        return _read_embeddings(files, similarity)
    if files.similarities is not None:
        table = read_similarities(files.similarities, files.image_ids, files.caption_ids)
        return SimilarityModel(files.name, table)
    return _read_rankings(files)


def _read_embeddings(files: ModelFiles, similarity: Similarity) -> EmbeddingModel:
    from annotators.inputs.embedding_files import read_embeddings

    assert files.embeddings is not None
    for path in files.embeddings:
        if not path.is_file():
            raise MetricError(f"there is no file {str(path)!r}; it should hold embeddings")
    images, captions = (
        read_embeddings(path, ids)
        for path, ids in zip(files.embeddings, (files.image_ids, files.caption_ids), strict=True)
    )
    if images.embedding.shape[1:] != captions.embedding.shape[1:]:
        raise MetricError(
            f"embeddings of model {files.name!r} differ in width: images {_width(images)}, captions "
            f"{_width(captions)}; take both from one model"
        )
    return EmbeddingModel(files.name, images, captions, similarity)


def _width(table: EmbeddingTable) -> str:
    return " x ".join(str(one) for one in table.embedding.shape[1:])


def _read_rankings(files: ModelFiles) -> RankingModel:
    found: dict[Direction, RankingTable] = {}
    for path in files.rankings:
        for direction, table in read_rankings(path).items():
            if direction in found:
                raise MetricError(
                    f"model {files.name!r} has two files of rankings {direction}: {str(found[direction].path)!r} and "
                    f"{str(path)!r}; keep one"
                )
            found[direction] = table
    return RankingModel(files.name, found)


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddingModel:
    """Embeddings of both sides."""

    name: str
    images: EmbeddingTable
    captions: EmbeddingTable
    similarity: Similarity

    def held(self, modality: str) -> Sequence[str]:
        """The ids of the embeddings."""
        return list((self.images if modality == "image" else self.captions).row_of)

    def fitted(self, sides: Sides, directions: Sequence[Direction]) -> Model:
        """Rows in the order of the sides, scaled to unit length for cosines."""
        return Model(self.name, similarities=Vectors(self._rows(sides.images), self._rows(sides.captions)))

    def _rows(self, side: Side) -> NDArray[np.float32]:
        from annotators.scoring.similarity import unit_rows

        table = self.images if side.modality == "image" else self.captions
        rows = np.asarray(table.embedding[_places(table.path, table.row_of, side)])
        if self.similarity != "cosine":
            return rows
        empty = ~rows.any(axis=-1).reshape(len(rows), -1).all(axis=1)
        if empty.any():
            raise MetricError(
                f"the embedding of {side.modality} {side.ids[int(empty.argmax())]} in {str(table.path)!r} is zero, so "
                f"it has no cosine ({int(empty.sum())} of {len(rows):,} are so); encode it again, or compare by "
                "--similarity dot"
            )
        return unit_rows(rows)


@dataclass(frozen=True, slots=True, eq=False)
class SimilarityModel:
    """A matrix of similarities."""

    name: str
    table: SimilarityTable

    def held(self, modality: str) -> Sequence[str]:
        """The ids of the rows or columns."""
        return list(self.table.image_row if modality == "image" else self.table.caption_column)

    def fitted(self, sides: Sides, directions: Sequence[Direction]) -> Model:
        """The matrix with the places of the sides' items in it."""
        rows = _places(self.table.path, self.table.image_row, sides.images)
        columns = _places(self.table.path, self.table.caption_column, sides.captions)
        return Model(self.name, similarities=Matrix(self.table.values, rows, columns))


@dataclass(frozen=True, slots=True, eq=False)
class RankingModel:
    """Rankings of one direction or both."""

    name: str
    tables: Mapping[Direction, RankingTable]

    def held(self, modality: str) -> Sequence[str]:
        """The ids that search or are found."""
        found: list[str] = []
        for direction, table in self.tables.items():
            searches = (modality == "image") is (direction is Direction.I2T)
            found += table.queries if searches else table.names
        return found

    def fitted(self, sides: Sides, directions: Sequence[Direction]) -> Model:
        """The rankings in the sides' numbers; queries that the sides lack are left out.

        Raises:
            MetricError: a direction has no rankings, or they name an item that the gallery lacks.
        """
        missing = [one for one in directions if one not in self.tables]
        if missing:
            known = next(iter(self.tables))
            raise MetricError(
                f"model {self.name!r} has no rankings {missing[0]}; give their file too, or --direction {known}"
            )
        return Model(self.name, {one: self._fitted(self.tables[one], sides) for one in directions})

    def _fitted(self, table: RankingTable, sides: Sides) -> Ranked:
        queries, gallery = sides.queries(table.direction), sides.gallery(table.direction)
        strange = [name for name in table.names if name not in gallery.number_of]
        if strange:
            raise MetricError(
                f"{str(table.path)!r} ranks {len(strange)} {gallery.plural} that are not in the gallery of "
                f"{len(gallery):,}; first: {strange[0]!r}{strange_ids_hint(gallery.ids, table.names)}"
            )
        kept = [place for place, one in enumerate(table.queries) if one in queries.number_of]
        if not kept:
            raise MetricError(
                f"{str(table.path)!r} ranks for none of the {len(queries):,} {queries.plural}"
                f"{strange_ids_hint(queries.ids, table.queries)}"
            )
        numbers = np.array([gallery.number_of[name] for name in table.names] + [NOTHING], np.int64)
        rows = table.items[kept]
        return Ranked(
            np.array([queries.number_of[table.queries[place]] for place in kept], np.int64),
            numbers[rows],  # ENDED is -1, which reads the last number
            np.asarray((rows != ENDED).sum(axis=1), np.int64),
        )


def _places(path: Path, place_of: Mapping[str, int], side: Side) -> Ids:
    missing = [one for one in side.ids if one not in place_of]
    if missing:
        raise MetricError(
            f"{str(path)!r} lacks {len(missing):,} of {len(side):,} {side.plural}; first: {missing[0]!r}"
            f"{strange_ids_hint(side.ids, list(place_of))}"
        )
    return np.array([place_of[one] for one in side.ids], np.int64)
