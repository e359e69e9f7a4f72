"""Plausible Match R-Precision as a task: items match where their images show nearly the same objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mitl.datasets.objects import ImageObjects
from mitl.errors import MetricError
from mitl.metrics.plausible import CAP, ZETAS, ObjectVectors, plausible_r_precision
from mitl.metrics.positives import Ids, QueryValues, Short
from mitl.metrics.retrieval import Values
from mitl.records import Direction
from mitl.stages.evaluating.models import Block, Ranked, Sides, joined, strange_ids_hint
from mitl.stages.evaluating.scoring import Running

NAME = "plausible"


@dataclass(frozen=True, slots=True, eq=False)
class PlausibleTask:
    """PMRP over all matches at each ζ and their mean, and ECCV Caption's with ζ = 0 and at most 50 matches.

    Rankings that do not hold the whole gallery get ECCV Caption's alone.
    """

    objects: Mapping[str, ObjectVectors]
    """Of the images and the captions, by modality; their numbers are the sides'."""
    name: str = NAME
    deep: bool = True

    def queries(self, direction: Direction) -> Ids:
        """Those with an object."""
        return self._vectors(direction)[0].with_objects().ids

    def depth(self, direction: Direction) -> int:
        """Anywhere: a query can have as many matches as the gallery has items."""
        return 0

    def ranked(self, direction: Direction, rankings: Ranked, short: Short) -> Values:
        """Of rankings cut to the shortest one, since items beyond an end have no objects."""
        depth = int(rankings.ends.min())
        gallery = self._vectors(direction)[1]
        asked = self.some(direction, np.sort(rankings.query_ids))
        if depth >= len(gallery):
            return self.values(direction, rankings.query_ids, rankings.items[:, :depth], asked)
        return plausible_r_precision(
            rankings.query_ids,
            rankings.items[:, :depth],
            asked,
            gallery,
            zetas=(0,),
            cap=CAP,
            short=short,
            no_positives="leave_out",
        )

    def start(self, direction: Direction) -> Running:
        """Each block is ranked and scored by itself."""
        return _PlausibleRunning(self, direction)

    def values(self, direction: Direction, query_ids: Ids, items: Ids, queries: ObjectVectors) -> Values:
        """Of rankings of the whole gallery."""
        gallery = self._vectors(direction)[1]
        found: list[QueryValues] = []
        for zetas, cap in ((ZETAS, None), ((0,), CAP)):
            found += plausible_r_precision(
                query_ids, items, queries, gallery, zetas=zetas, cap=cap, no_positives="leave_out"
            )
        return tuple(found)

    def _vectors(self, direction: Direction) -> tuple[ObjectVectors, ObjectVectors]:
        """Of the queries and of the gallery."""
        images, captions = self.objects["image"], self.objects["caption"]
        return (images, captions) if direction is Direction.I2T else (captions, images)

    def some(self, direction: Direction, query_ids: Ids) -> ObjectVectors:
        """The vectors of these queries."""
        queries = self._vectors(direction)[0]
        rows = np.searchsorted(queries.ids, query_ids)
        return ObjectVectors(queries.ids[rows], queries.vectors[rows])


@dataclass(slots=True, eq=False)
class _PlausibleRunning:
    task: PlausibleTask
    direction: Direction
    parts: list[Values] = field(default_factory=list)

    def add(self, block: Block) -> None:
        queries = self.task.some(self.direction, block.query_ids)
        self.parts.append(self.task.values(self.direction, block.query_ids, block.rankings, queries))

    def values(self) -> Values:
        return joined(self.parts)


def plausible_task(files: Sequence[ImageObjects], sides: Sides, image_of: Ids) -> PlausibleTask:
    """The task over these sides; a caption has the objects of its image.

    Args:
        files: what each file of objects tells; an image in several has the objects of all.
        image_of: (C,) the image's number of each caption of the sides.

    Raises:
        MetricError: the files do not tell of an image.
    """
    known = {one for file in files for one in file.image_ids}
    missing = [one for one in sides.images.ids if one not in known]
    if missing:
        raise MetricError(
            f"the objects are not told of {len(missing):,} of {len(sides.images):,} images; first: {missing[0]!r}"
            f"{strange_ids_hint(sides.images.ids, list(known))}"
        )
    images = ObjectVectors(sides.images.numbers, _vectors(files, sides))
    captions = images.of_captions(sides.captions.numbers, image_of)
    return PlausibleTask({"image": images, "caption": captions})


def _vectors(files: Sequence[ImageObjects], sides: Sides) -> NDArray[np.bool_]:
    """(I, C) over the classes of all files."""
    classes = sorted({name for file in files for name in file.classes})
    place_of = {name: place for place, name in enumerate(classes)}
    vectors = np.zeros((len(sides.images), len(classes)), dtype=np.bool_)
    row_of = {one: row for row, one in enumerate(sides.images.ids)}
    for file in files:
        inside = [place for place, one in enumerate(file.image_ids) if one in row_of]
        rows = np.array([row_of[file.image_ids[place]] for place in inside], np.int64)
        columns = np.array([place_of[name] for name in file.classes], np.int64)
        vectors[rows[:, None], columns] |= file.vectors[inside]
    return vectors
