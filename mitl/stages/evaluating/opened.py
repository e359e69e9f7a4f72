"""A release in Python: its tables as pandas frames, and models scored on it as `mitl evaluate` scores files.

A model is arrays with their ids, pandas frames, or files.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from annotators.inputs.embedding_files import EmbeddingTable, read_embeddings, refuse_unusable
from mitl.errors import MetricError, MitlError, ReleaseError, UsageError
from mitl.metrics.positives import Positives
from mitl.positives.exports.content import judged_pairs
from mitl.positives.folders import MANIFEST, checked_table, read_manifest
from mitl.positives.loading import read_original_images, read_references, read_release, sides_of
from mitl.progress import no_progress
from mitl.records import Direction
from mitl.records.forms import SET_FORMS, SetForm, message_of_form
from mitl.stages.evaluating.figures import Sampling, figures
from mitl.stages.evaluating.gathering import RELEASE
from mitl.stages.evaluating.model_files import (
    EmbeddingModel,
    RawModel,
    checked_ids,
    checked_similarities,
    read_model,
)
from mitl.stages.evaluating.models import Model, Sides, caption_groups
from mitl.stages.evaluating.positive_sets import beyond_gallery, located, searched
from mitl.stages.evaluating.request import ModelFiles, Similarity, need_file, parse_metrics
from mitl.stages.evaluating.scoring import best_items, score_model
from mitl.stages.evaluating.tasks import PositivesTask

Embeddings = Mapping[Any, Any] | tuple[Iterable[Any], Any] | pd.DataFrame | str | Path
"""``{id: vector}``; the ids and an array (N, D) or (N, K, D); a frame (N, D) indexed by ids; or a file with both."""
Similarities = tuple[Any, Iterable[Any], Iterable[Any]] | pd.DataFrame | str | Path
"""An array (I, C), higher is closer, with the I image ids and the C caption ids; a frame of them; or a file."""

_WANTED = "give images and captions, or similarities=(array, image ids, caption ids)"


SCORE_COLUMNS = ("direction", "metric", "value", "low", "high", "queries")
RANKING_COLUMNS = ("direction", "query_id", "rank", "item_id", "match")


@dataclass(frozen=True, slots=True)
class Scoring:
    """How a model is scored; the defaults are those of `mitl evaluate`."""

    metrics: tuple[str, ...] | str = ()
    """Such as ``("R@1", "mAP@R")`` or ``"R@1,mAP@R"``; the usual ones where none is named."""
    similarity: Similarity = "dot"
    """``dot`` or ``cosine``: how embeddings are compared."""
    samples: int = 1000
    """Resamples of the queries that an interval is made from."""
    seed: int = 0
    intervals: bool = True
    """Whether there are 95 % intervals."""

    def __post_init__(self) -> None:
        """UsageError if metrics are not texts, or samples or seed not whole numbers from 0."""
        if not isinstance(self.metrics, str) and not (
            isinstance(self.metrics, (tuple, list)) and all(isinstance(name, str) for name in self.metrics)
        ):
            raise UsageError(
                f"metrics is {self.metrics!r}; give names, such as ('R@1', 'mAP@R'), or leave it out for the usual ones"
            )
        for name, value in (("samples", self.samples), ("seed", self.seed)):
            if not isinstance(value, (int, np.integer)) or value < 0:
                raise UsageError(f"{name} is {value!r}; it should be a whole number, 0 or more")


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """The folder of a release; tables are read, and checked against the manifest, when they are asked for."""

    folder: Path

    @property
    def name(self) -> str:
        """What it is called."""
        return str(self._manifest.get("name", self.folder.name))

    @property
    def form(self) -> SetForm:
        """What searches in what: what both sides and both directions are called."""
        return SET_FORMS[sides_of(self._manifest)]

    @property
    def positives(self) -> pd.DataFrame:
        """One row a positive pair: image_id, caption_id, label, sources, annotators, n_judgements, probability.

        In a release of texts the ids are document_id and query_id; other forms likewise.
        """
        return self.table("positives")

    @property
    def negatives(self) -> pd.DataFrame:
        """One row a pair that was judged no match."""
        return self.table("negatives")

    @property
    def judgements(self) -> pd.DataFrame:
        """One row an answer, under its worker's pseudonym."""
        return self.table("judgements")

    @property
    def found(self) -> pd.DataFrame:
        """The positives that the data set did not have: its found false negatives."""
        every = self.positives
        return every[[("original" not in sources) for sources in every["sources"]]].reset_index(drop=True)

    @property
    def tables(self) -> tuple[str, ...]:
        """The names that ``table`` takes."""
        files = self._manifest.get("files")
        names = sorted(files) if isinstance(files, dict) else []
        return tuple(name.removesuffix(".parquet") for name in names if name.endswith(".parquet"))

    @property
    def _manifest(self) -> dict[str, object]:
        return read_manifest(self.folder)

    def table(self, name: str) -> pd.DataFrame:
        """One of the Parquet tables of docs/releases.md.

        Raises:
            ReleaseError: the release has no such table, or it was changed.
        """
        if name not in self.tables:
            raise ReleaseError(
                f"the release {self.name!r} has no table {name!r}; it has: {', '.join(self.tables)}"
            )
        table: pd.DataFrame = checked_table(self.folder, self._manifest, f"{name}.parquet").to_pandas()
        left, right = self.form.sides
        return table.rename(columns={"image_id": f"{left}_id", "caption_id": f"{right}_id"})

    def queries(self, direction: str) -> dict[str, tuple[str, ...]]:
        """The listed queries of a direction (``i2t`` or ``t2i``, or as ``form.ways`` has it) with their positives.

        Ids are texts.

        Raises:
            UsageError: there is no such direction.
        """
        way_of = {name: way for way, name in self.form.way_names.items()}
        if direction not in way_of:
            raise UsageError(f"there is no direction {direction!r}; it is {' or '.join(way_of)}")
        positives = read_release(self.folder).by_query[way_of[direction]]
        return {query: tuple(items) for query, items in positives.items()}

    def evaluate(
        self,
        images: Embeddings | None = None,
        captions: Embeddings | None = None,
        *,
        similarities: Similarities | None = None,
        scoring: Scoring | None = None,
        **sides: Embeddings,
    ) -> pd.DataFrame:
        """Score a model: a row each of direction and metric with ``SCORE_COLUMNS``, shares from 0 to 1.

        Args:
            images: embeddings of all images that are searched: ``{id: vector}``, ``(ids, array)`` with an array (N, D)
                or (N, K, D), a frame (N, D) indexed by ids, or a file as for `mitl evaluate`.
            captions: embeddings of all captions that are searched, of the same width.
            similarities: instead of both, ``(array, image ids, caption ids)`` with an array (I, C), higher is closer;
                a frame with the image ids as index and the caption ids as columns; or a file.
            scoring: metrics, similarity and intervals.
            sides: the embeddings of a release of another form by the names of its sides: ``documents`` and ``queries``,
                ``sounds`` and ``captions``, ``videos`` and ``captions``, ``images`` and ``queries``.

        Raises:
            UsageError: neither embeddings of both sides nor similarities are given, or all of them; sides of another
                form; an unknown metric.
            MetricError, AnnotatorError: arrays and ids do not fit, a query of the release is missing, a number is not
                finite, an embedding is all zeros.
        """
        asked = Scoring() if scoring is None else scoring
        if not isinstance(asked, Scoring):
            raise UsageError(
                f"scoring is {asked!r}; give mitl.Scoring(...), such as mitl.Scoring(similarity='cosine')"
            )
        metrics = (asked.metrics,) if isinstance(asked.metrics, str) else asked.metrics
        wanted = parse_metrics(metrics, "raise")
        embeddings = self._given(images, captions, sides)
        model, searched_items, positives = self._fitted(embeddings, similarities, asked.similarity)
        task = PositivesTask(RELEASE, positives, wanted.asked)
        rows = score_model(model, [task], searched_items, tuple(Direction), wanted.short, no_progress)
        groups = caption_groups(searched_items, read_original_images(self.folder))
        rows = [replace(row, groups=groups) if row.direction == Direction.T2I else row for row in rows]
        scores = figures(rows, Sampling(asked.samples, asked.seed, asked.intervals))
        table = pd.DataFrame([asdict(figure) for figure in scores], columns=list(SCORE_COLUMNS))
        return table.replace({"direction": self.form.way_names})

    def rankings(
        self,
        images: Embeddings | None = None,
        captions: Embeddings | None = None,
        *,
        similarities: Similarities | None = None,
        similarity: Similarity = "dot",
        depth: int = 10,
        **sides: Embeddings,
    ) -> pd.DataFrame:
        """What a model finds for the release's queries: a row a place, with ``RANKING_COLUMNS``; ids are texts.

        ``match`` is True for a positive, False for a pair that was judged no match, and missing for one that nobody
        judged. The order is the one that ``evaluate`` scores, ties included.

        Args:
            images, captions, similarities, sides: as for ``evaluate``.
            similarity: ``dot`` or ``cosine``.
            depth: places of a query, as far as the gallery goes.

        Raises:
            UsageError, MetricError: as ``evaluate``.
        """
        if not isinstance(depth, (int, np.integer)) or depth < 1:
            raise UsageError(
                f"depth is {depth!r}; it should be a whole number from 1, the places of a ranking"
            )
        embeddings = self._given(images, captions, sides)
        model, searched_items, positives = self._fitted(embeddings, similarities, similarity)
        judged = judged_pairs(self.folder, read_release(self.folder).by_query)
        best = best_items(model, searched_items, positives, depth, no_progress)
        rows = []
        for direction, ranked in best.items():
            for query, items in ranked.items():
                for rank, item in enumerate(items[:depth], start=1):
                    rows.append(
                        (
                            self.form.way_names[direction],
                            query,
                            rank,
                            item,
                            judged[direction][query].get(item),
                        )
                    )
        return pd.DataFrame(rows, columns=list(RANKING_COLUMNS)).astype({"match": "boolean"})

    def _given(
        self, left: Embeddings | None, right: Embeddings | None, named: Mapping[str, Embeddings]
    ) -> tuple[Embeddings | None, Embeddings | None]:
        """Both sides' embeddings: by place, or by the names of the release's own sides."""
        nouns = self.form.nouns
        wrong = [name for name in named if name not in nouns]
        if wrong:
            raise UsageError(
                f"there are no {wrong[0]} in this release; give {nouns[0]} and {nouns[1]}, by name or in this order"
            )
        return named.get(nouns[0], left), named.get(nouns[1], right)

    def _fitted(
        self,
        embeddings: tuple[Embeddings | None, Embeddings | None],
        similarities: Similarities | None,
        similarity: Similarity,
    ) -> tuple[Model, Sides, Mapping[Direction, Positives]]:
        """The model on the items that it holds, what queries may not find, and the positives in their numbers."""
        try:
            raw = model_of(*embeddings, similarities, similarity)
            sides = searched([raw], None, whole_split=False).with_references(read_references(self.folder))
            positives = located(RELEASE, read_release(self.folder).by_query, sides)
            if word := beyond_gallery("the release", positives, sides):
                warnings.warn(message_of_form(word, lambda: self.form), stacklevel=3)
            return raw.fitted(sides, tuple(Direction)), sides, positives
        except MitlError as error:
            error.args = (message_of_form(str(error), lambda: self.form),)
            raise

    def _counts(self) -> Iterator[tuple[str, str]]:
        counts = self._manifest.get("counts")
        numbers = counts if isinstance(counts, dict) else {}
        yield from ((key, f"{value:,}") for key, value in numbers.items() if isinstance(value, int))

    def __repr__(self) -> str:
        """One line with the numbers of the manifest."""
        return f"<release {self.name!r}: {', '.join(f'{key} {value}' for key, value in self._counts())}>"

    def _repr_html_(self) -> str:
        """A small table for notebooks: whose answers, licence, counts, tables."""
        card = self._manifest.get("card")
        named = card.get("license") if isinstance(card, dict) else None
        rows = [
            ("data set", self._manifest.get("dataset")),
            ("environment", self._manifest.get("environment")),
            ("licence", named or "not stated"),
            *self._counts(),
            ("tables", ", ".join(self.tables)),
        ]
        cells = "".join(
            f"<tr><th>{escape(key)}</th><td>{escape(str(value))}</td></tr>" for key, value in rows
        )
        return f"<table><caption>{escape(self.name)}</caption>{cells}</table>"


def load(folder: str | Path) -> Release:
    """Open the folder of a release.

    Raises:
        UsageError: the folder is not a path.
        ReleaseError: there is no release in it.
    """
    if not isinstance(folder, (str, PathLike)):
        raise UsageError(
            f"the folder of a release is {folder!r}; give its path, such as mitl.load('release')"
        )
    path = Path(folder)
    if path.is_dir() and not (path / MANIFEST).is_file() and (path / "image_to_caption.json").is_file():
        raise ReleaseError(
            f"{str(path)!r} holds positives alone, not a release; score it by `mitl evaluate --release`"
        )
    read_manifest(path)
    return Release(path)


def model_of(
    images: Embeddings | None,
    captions: Embeddings | None,
    similarities: Similarities | None,
    similarity: Similarity,
) -> RawModel:
    """The model, under its own ids as texts.

    Raises:
        UsageError: neither embeddings of both sides nor similarities are given, or all of them; an unknown similarity.
        MetricError, AnnotatorError: arrays and ids do not fit, a number is not finite, an embedding is all zeros, a
            file is missing or malformed.
    """
    if similarity not in get_args(Similarity):
        raise UsageError(f"no similarity called {similarity!r}; it is {' or '.join(get_args(Similarity))}")
    if similarities is not None:
        if images is not None or captions is not None:
            raise UsageError("embeddings and similarities are given; give one of the two")
        return _of_similarities(similarities, similarity)
    if images is None or captions is None:
        raise UsageError(_WANTED)
    tables = {}
    for what, embeddings in (("image", images), ("caption", captions)):
        if isinstance(embeddings, (str, Path)):
            path = need_file(Path(embeddings), "embeddings")
            tables[what] = read_embeddings(path, what=f"{what}s")
            continue
        listed, vectors = _listed(what, embeddings)
        refuse_unusable(f"{what}s", listed, vectors)
        source = Path(f"{what}s")
        tables[what] = EmbeddingTable(source, checked_ids(source, listed, what), vectors)
    return EmbeddingModel("model", tables, similarity)


def _of_similarities(given: Similarities, similarity: Similarity) -> RawModel:
    if isinstance(given, (str, Path)):
        return read_model(ModelFiles("model", similarities=Path(given)), similarity)
    if isinstance(given, pd.DataFrame):
        given = given.to_numpy(), given.index, given.columns
    if not isinstance(given, tuple) or len(given) != 3:
        raise UsageError(f"similarities are {type(given).__name__}; {_WANTED}")
    values, image_ids, caption_ids = given
    ids = _id_texts(image_ids), _id_texts(caption_ids)
    return checked_similarities("model", Path("similarities"), _array("similarities", values), *ids)


def _listed(what: str, given: Any) -> tuple[list[str], NDArray[np.float32]]:
    if isinstance(given, pd.DataFrame):
        given = given.index, given.to_numpy()
    elif isinstance(given, Mapping):
        given = list(given), list(given.values())
    if not isinstance(given, tuple) or len(given) != 2:
        raise UsageError(
            f"embeddings of {what}s are {type(given).__name__}; give {{id: vector}}, (ids, array) or a file"
        )
    listed = _id_texts(given[0])
    array = _array(f"embeddings of {what}s", given[1], np.float32)
    if array.ndim not in (2, 3) or len(array) != len(listed):
        raise MetricError(
            f"embeddings of {what}s have the shape {array.shape} for {len(listed):,} ids; they should be numbers of "
            "shape (ids, width)"
        )
    return listed, array


def _id_texts(ids: Any) -> list[str]:
    """Also of a tensor, whose items by themselves do not read as their numbers."""
    return [str(name) for name in (ids.tolist() if hasattr(ids, "tolist") else ids)]


def _in_numpy(given: Any) -> Any:
    """A tensor that learns, lies on a card or has a number format that NumPy lacks, as NumPy can read it."""
    if not hasattr(given, "detach"):
        return given
    held = given.detach().cpu()
    return held.float() if str(held.dtype) == "torch.bfloat16" else held


def _array(what: str, given: Any, dtype: type[np.float32] | None = None) -> NDArray[Any]:
    """Also of tensors."""
    try:
        array = np.asarray([_in_numpy(row) for row in given] if isinstance(given, list) else _in_numpy(given))
        if array.dtype.kind in "bc":
            raise MetricError(f"{what} are {array.dtype}; they should be real numbers, as a file's")
        return array if dtype is None else array.astype(dtype, copy=False)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise MetricError(f"{what} are no array of numbers: {reason}") from error
