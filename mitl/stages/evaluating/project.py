"""A project as what is evaluated: its own annotators as models, and the captions' own words, also those of a file.

A model has rankings that are kept, or similarities from the project's encodings.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from annotators.base import Annotator, RankingSource, fingerprint, scores_pairs
from mitl.datasets.assembling import by_id
from mitl.datasets.files import read_rows
from mitl.db.session import open_database
from mitl.db.store import items as item_store
from mitl.db.store import proposals as proposal_store
from mitl.errors import DatasetError, MetricError
from mitl.metrics.positives import Ids
from mitl.progress import Progress
from mitl.records import Direction, Pair
from mitl.retrieval.topk import checked_similarities
from mitl.retrieval.vectors import VECTOR_KINDS
from mitl.settings import Settings
from mitl.stages.evaluating.models import EVERY, Model, ModelSide, Ranked, Rows, Sides, strange_ids_hint
from mitl.stages.proposing.computing import ComputeContext
from mitl.stages.proposing.ranking import (
    AnnotatorRun,
    RankingFolder,
    SearchedItems,
    annotator_runs,
    build_annotators,
    rank_with,
    read_items,
)
from mitl.stages.proposing.trained import with_trained


@dataclass(frozen=True, slots=True, eq=False)
class Project:
    """What evaluating needs of a project's database."""

    kind: str
    """Which reader made the data set: ``coco``, ``scenes`` …"""
    dataset: str
    dataset_sha256: str
    """Over its ids and texts."""
    items: SearchedItems
    queries: Mapping[Direction, Sequence[int]]
    """The queries of its runs."""
    annotators: tuple[str, ...]
    """Those of its runs, else those of ``mitl.toml``."""
    original_pairs: Sequence[Pair] = ()

    @property
    def sides(self) -> Sides:
        """Its images and captions, under their numbers of the database."""
        images = {image.external_id: image.id for image in self.items.images}
        captions = {caption.external_id: caption.id for caption in self.items.captions}
        sides = ModelSide.numbered("image", images), ModelSide.numbered("caption", captions)
        return Sides(*sides, self.items.references)

    def originals(self) -> dict[Direction, dict[str, list[str]]]:
        """The data set's own positives of the runs' queries; of all where nothing was run."""
        images = {image.id: image.external_id for image in self.items.images}
        queries = {direction: set(self.queries[direction]) for direction in Direction}
        everything = not any(queries.values())
        positives: dict[Direction, dict[str, list[str]]] = {d: defaultdict(list) for d in Direction}
        captions = {caption.id: caption.external_id for caption in self.items.captions}
        for pair in self.original_pairs:
            image, caption = images[pair.image_id], captions[pair.caption_id]
            if everything or pair.image_id in queries[Direction.I2T]:
                positives[Direction.I2T][image].append(caption)
            if everything or pair.caption_id in queries[Direction.T2I]:
                positives[Direction.T2I][caption].append(image)
        return positives


def read_project(settings: Settings) -> Project:
    """The project's items, queries and annotators; StoreError where there is no database."""
    with open_database(settings.db_url, read_only=True) as session:
        dataset, items = read_items(session, settings)
        ran = tuple(row.name for row in proposal_store.annotators(session))
        queries = proposal_store.queries(session)
        originals = item_store.originals(session, dataset.id)
    about = dataset.kind, dataset.name, dataset.content_sha256
    return Project(*about, items, queries, ran or settings.annotators, originals)


RankingNeed = tuple[Sequence[int], int]
"""The queries of a direction that are ranked, and how deep."""


def annotator_models(
    settings: Settings,
    names: Sequence[str],
    project: Project,
    needs: Mapping[Direction, RankingNeed],
    progress: Progress,
    *,
    with_similarities: bool = False,
) -> tuple[list[Model], int]:
    """Every annotator with rankings as deep as needed, and how many of them had to be computed.

    Similarities of all images and captions are there, where wanted, of the annotators that encode items. Those that
    bring rankings have none, and those that score pair by pair would take every pair of the data set.

    Raises:
        AnnotatorError: an annotator is unknown, or lacks what it needs.
    """
    from annotators.pivot import WordPivot

    queries = {direction: list(wanted) for direction, (wanted, _) in needs.items()}
    depth = {
        direction: min(deep, len(project.items.side(direction, gallery=True)))
        for direction, (_, deep) in needs.items()
    }
    settings = with_trained(settings, names)
    built = build_annotators(settings, names)
    folder = settings.runs / "evaluation" / _key(queries, depth)
    compute = ComputeContext.of(settings, progress=progress)
    runs = annotator_runs(built, project.items, compute)
    rankings, computed = rank_with(RankingFolder(folder, queries, depth), runs)
    by_name: dict[str, dict[Direction, Ranked]] = {name: {} for name in names}
    for ranked in rankings:
        by_name[ranked.annotator][ranked.direction] = Ranked.whole(
            ranked.ranking.query_ids, ranked.ranking.item_ids
        )
    models = []
    for annotator, run in zip(built, runs, strict=True):
        mark = fingerprint(annotator=run.mark(), data=project.dataset_sha256)
        model = Model(run.name, by_name[run.name], cut=True, mark=mark)
        if with_similarities and not isinstance(annotator, RankingSource) and not scores_pairs(annotator):
            within = annotator.kind in VECTOR_KINDS or isinstance(annotator, WordPivot)
            model = replace(model, similarities=AnnotatorSimilarities(annotator, run), within_sides=within)
        models.append(model)
    return models, computed


def _key(queries: Mapping[Direction, Sequence[int]], depth: Mapping[Direction, int]) -> str:
    value = {d.value: [list(queries[d]), depth[d]] for d in Direction}
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, eq=False)
class AnnotatorSimilarities:
    """An annotator's similarities of images and captions; a side is encoded when it is first asked for."""

    annotator: Annotator
    run: AnnotatorRun

    def between(self, modality: Any, rows: Ids, other: Any, columns: Rows = EVERY) -> NDArray[Any]:
        """(B, G) of some items of one side with some of another, or of the same one where it compares those."""
        some, others = self.run.encoded(modality).rows(rows), self.run.encoded(other).rows(columns)
        return checked_similarities(self.annotator, some, others)


_COLUMNS = ("caption_id", "image_id", "text")
_WHAT = f"captions with the columns {', '.join(_COLUMNS)}"


@dataclass(frozen=True, slots=True, eq=False)
class CaptionTexts:
    """Captions by their own ids: what each says and which image it was written for."""

    text_of: Mapping[str, str]
    image_of: Mapping[str, str]
    source: str
    """Where they stand, for messages."""

    @classmethod
    def of_project(cls, project: Project) -> CaptionTexts:
        """Those of the project's data set."""
        images = {image.id: image.external_id for image in project.items.images}
        captions = project.items.captions
        return cls(
            {caption.external_id: caption.text for caption in captions},
            {caption.external_id: images[caption.image_id] for caption in captions},
            "the project",
        )

    @property
    def sides(self) -> Sides:
        """The captions and their images."""
        return Sides.named(self.image_of.values(), self.text_of)

    def of(self, side: ModelSide) -> list[str]:
        """The texts of a side's captions, in its order; MetricError where one has none."""
        missing = [caption_id for caption_id in side.ids if caption_id not in self.text_of]
        if missing:
            raise MetricError(
                f"{self.source} has no text of {len(missing):,} of {len(side):,} captions; first: {missing[0]!r}"
                f"{strange_ids_hint(side.ids, list(self.text_of))}"
            )
        return [self.text_of[caption_id] for caption_id in side.ids]


def read_texts(path: Path) -> CaptionTexts:
    """The captions of a Parquet or CSV file with ``caption_id``, ``image_id`` and ``text``; ids are any texts.

    Raises:
        DatasetError: the file is missing, malformed or empty, a caption has no text, or an id comes twice.
    """
    rows = read_rows(path, _WHAT, _COLUMNS)
    if not rows:
        raise DatasetError(f"{str(path)!r} holds no rows; it should hold {_WHAT}")
    ids: Sequence[str] = [str(row["caption_id"]) for row in rows]
    by_id("caption", ((id_, None) for id_ in ids), path)
    mute = next(
        (number for number, row in enumerate(rows, start=1) if not isinstance(row["text"], str)), None
    )
    if mute is not None:
        raise DatasetError(f"row {mute} of {str(path)!r} has no text")
    return CaptionTexts(
        {caption_id: row["text"] for caption_id, row in zip(ids, rows, strict=True)},
        {caption_id: str(row["image_id"]) for caption_id, row in zip(ids, rows, strict=True)},
        repr(str(path)),
    )
