"""A release in Python: its tables as pandas frames, and models scored on it as `mitl evaluate` scores files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

import pandas as pd

from mitl.errors import ReleaseError, UsageError
from mitl.positives.exports.content import judged_pairs
from mitl.positives.folders import MANIFEST, read_checked, read_manifest
from mitl.progress import no_progress
from mitl.records import Direction
from mitl.stages.evaluating.arrays import Embeddings, Similarities, model_of
from mitl.stages.evaluating.figures import Sampling, figures
from mitl.stages.evaluating.gathering import RELEASE
from mitl.stages.evaluating.model_files import RawModel
from mitl.stages.evaluating.models import Model, Sides
from mitl.stages.evaluating.positive_sets import located, release_by_query
from mitl.stages.evaluating.request import Similarity, parse_metrics
from mitl.stages.evaluating.scoring import best_items, score_model
from mitl.stages.evaluating.searching import searched
from mitl.stages.evaluating.tasks import PositivesTask

SCORE_COLUMNS = ("direction", "metric", "value", "low", "high", "queries")
RANKING_COLUMNS = ("direction", "query_id", "rank", "item_id", "match")


@dataclass(frozen=True, slots=True)
class Scoring:
    """How a model is scored; the defaults are those of `mitl evaluate`."""

    metrics: tuple[str, ...] = ()
    """Such as ``("R@1", "mAP@R")``; the usual ones where none is named."""
    similarity: Similarity = "dot"
    """``dot`` or ``cosine``: how embeddings are compared."""
    samples: int = 1000
    """Resamples of the queries that an interval is made from."""
    seed: int = 0
    intervals: bool = True
    """Whether there are 95 % intervals."""


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """The folder of a release; tables are read, and checked against the manifest, when they are asked for."""

    folder: Path

    @property
    def name(self) -> str:
        """What it is called."""
        return str(self._manifest.get("name", self.folder.name))

    @property
    def positives(self) -> pd.DataFrame:
        """One row a positive pair: image_id, caption_id, label, sources, annotators, n_judgements, probability."""
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
        return pd.read_parquet(io.BytesIO(read_checked(self.folder, self._manifest, f"{name}.parquet")))

    def queries(self, direction: str) -> dict[str, tuple[str, ...]]:
        """The listed queries of ``i2t`` or ``t2i`` with their positives; ids are texts.

        Raises:
            UsageError: there is no such direction.
        """
        if direction not in list(Direction):
            raise UsageError(f"there is no direction {direction!r}; it is i2t or t2i")
        found = release_by_query(self.folder)[Direction(direction)]
        return {query: tuple(items) for query, items in found.items()}

    def evaluate(
        self,
        images: Embeddings | None = None,
        captions: Embeddings | None = None,
        *,
        similarities: Similarities | None = None,
        scoring: Scoring | None = None,
    ) -> pd.DataFrame:
        """Score a model: a row each of direction and metric with ``SCORE_COLUMNS``, shares from 0 to 1.

        Args:
            images: embeddings of all images that are searched: ``{id: vector}``, ``(ids, array)`` with an array (N, D)
                or (N, K, D), a frame (N, D) indexed by ids, or a file as for `mitl evaluate`.
            captions: embeddings of all captions that are searched, of the same width.
            similarities: instead of both, ``(array, image ids, caption ids)`` with an array (I, C), higher is closer;
                a frame with the image ids as index and the caption ids as columns; or a file.
            scoring: metrics, similarity and intervals.

        Raises:
            UsageError: neither embeddings of both sides nor similarities are given, or all of them; an unknown metric.
            MetricError: arrays and ids do not fit, a query of the release is missing, a number is NaN.
        """
        asked = scoring or Scoring()
        wanted = parse_metrics(asked.metrics, "raise")
        model, sides = _fitted(model_of(images, captions, similarities, asked.similarity))
        task = PositivesTask(RELEASE, located(RELEASE, release_by_query(self.folder), sides), wanted)
        rows = score_model(model, [task], sides, tuple(Direction), wanted.short, no_progress)
        found = figures(rows, Sampling(asked.samples, asked.seed, asked.intervals))
        return pd.DataFrame([asdict(one) for one in found], columns=list(SCORE_COLUMNS))

    def rankings(
        self,
        images: Embeddings | None = None,
        captions: Embeddings | None = None,
        *,
        similarities: Similarities | None = None,
        similarity: Similarity = "dot",
        depth: int = 10,
    ) -> pd.DataFrame:
        """What a model finds for the release's queries: a row a place, with ``RANKING_COLUMNS``; ids are texts.

        ``match`` is True for a positive, False for a pair that was judged no match, and missing for one that nobody
        judged. The order is the one that ``evaluate`` scores, ties included.

        Args:
            images, captions, similarities: as for ``evaluate``.
            similarity: ``dot`` or ``cosine``.
            depth: places of a query, as far as the gallery goes.

        Raises:
            UsageError, MetricError: as ``evaluate``.
        """
        if depth < 1:
            raise UsageError(f"depth is {depth}, but a ranking has a place at least")
        model, sides = _fitted(model_of(images, captions, similarities, similarity))
        by_query = release_by_query(self.folder)
        best = best_items(model, sides, located(RELEASE, by_query, sides), depth, no_progress)
        rows = []
        for direction, ranked in best.items():
            judged = judged_pairs(self.folder, direction, by_query[direction])
            for query, items in ranked.items():
                for rank, item in enumerate(items[:depth], start=1):
                    rows.append((direction.value, query, rank, item, judged[query].get(item)))
        return pd.DataFrame(rows, columns=list(RANKING_COLUMNS)).astype({"match": "boolean"})

    def _counts(self) -> Iterator[tuple[str, str]]:
        counts = self._manifest.get("counts")
        known = counts if isinstance(counts, dict) else {}
        yield from ((key, f"{value:,}") for key, value in known.items() if isinstance(value, int))

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


def _fitted(raw: RawModel) -> tuple[Model, Sides]:
    """The model on the images and captions that it holds."""
    sides = searched([raw], None, whole_split=False)
    return raw.fitted(sides, tuple(Direction)), sides


def load(folder: str | Path) -> Release:
    """Open the folder of a release.

    Raises:
        ReleaseError: there is no release in it.
    """
    path = Path(folder)
    if path.is_dir() and not (path / MANIFEST).is_file() and (path / "image_to_caption.json").is_file():
        raise ReleaseError(
            f"{str(path)!r} holds positives alone, not a release; score it by `mitl evaluate --release`"
        )
    read_manifest(path)
    return Release(path)
