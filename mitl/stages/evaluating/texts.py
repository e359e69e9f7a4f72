"""The captions' own words: of a project, or of a file, which then says what is searched too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mitl.datasets.assembling import check_unique
from mitl.datasets.files import read_rows
from mitl.errors import DatasetError, MetricError
from mitl.metrics.positives import Ids
from mitl.stages.evaluating.models import ModelSide, Sides, strange_ids_hint
from mitl.stages.evaluating.project import Project

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
            {one.external_id: one.text for one in captions},
            {one.external_id: images[one.image_id] for one in captions},
            "the project",
        )

    @property
    def sides(self) -> Sides:
        """The captions and their images."""
        return Sides(ModelSide.of("image", self.image_of.values()), ModelSide.of("caption", self.text_of))

    def of(self, side: ModelSide) -> list[str]:
        """The texts of a side's captions, in its order; MetricError where one has none."""
        missing = [one for one in side.ids if one not in self.text_of]
        if missing:
            raise MetricError(
                f"{self.source} has no text of {len(missing):,} of {len(side):,} captions; first: {missing[0]!r}"
                f"{strange_ids_hint(side.ids, list(self.text_of))}"
            )
        return [self.text_of[one] for one in side.ids]

    def image_numbers(self, sides: Sides) -> Ids:
        """(C,) the number of each caption's image; MetricError where the sides lack it."""
        missing = [one for one in sides.captions.ids if one not in self.image_of]
        if missing:
            raise MetricError(f"{self.source} does not say whose caption {missing[0]!r} is")
        images = [self.image_of[one] for one in sides.captions.ids]
        strange = next((one for one in images if one not in sides.images.number_of), None)
        if strange is not None:
            raise MetricError(f"{self.source} names the image {strange!r}, which is not among those searched")
        return np.array([sides.images.number_of[one] for one in images], np.int64)


def read_texts(path: Path) -> CaptionTexts:
    """The captions of a Parquet or CSV file with ``caption_id``, ``image_id`` and ``text``; ids are any texts.

    Raises:
        DatasetError: the file is missing, malformed or empty, a caption has no text, or an id comes twice.
    """
    rows = read_rows(path, _WHAT, _COLUMNS)
    if not rows:
        raise DatasetError(f"{str(path)!r} holds no rows; it should hold {_WHAT}")
    ids: Sequence[str] = [str(row["caption_id"]) for row in rows]
    check_unique("caption", ids, path)
    mute = next(
        (number for number, row in enumerate(rows, start=1) if not isinstance(row["text"], str)), None
    )
    if mute is not None:
        raise DatasetError(f"row {mute} of {str(path)!r} has no text")
    return CaptionTexts(
        {one: row["text"] for one, row in zip(ids, rows, strict=True)},
        {one: str(row["image_id"]) for one, row in zip(ids, rows, strict=True)},
        repr(str(path)),
    )
