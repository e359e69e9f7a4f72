"""The image that each caption was written for."""

from __future__ import annotations

import numpy as np

from mitl.errors import UsageError
from mitl.metrics.positives import Ids
from mitl.records import Direction
from mitl.stages.evaluating.models.sides import Sides
from mitl.stages.evaluating.project import Project
from mitl.stages.evaluating.sets import official_by_query


def image_of(project: Project | None, sides: Sides) -> Ids:
    """(C,) the image's number of each caption of the sides, from the project or from the official test split.

    Raises:
        UsageError: there is no project, and a caption is none of the official ones.
    """
    if project is not None:
        return np.array([caption.image_id for caption in project.items.captions], np.int64)
    originals = official_by_query("original")[Direction.T2I]
    numbers = sides.images.number_of
    try:
        return np.array([numbers[originals[one][0]] for one in sides.captions.ids], np.int64)
    except KeyError as error:
        raise UsageError(
            f"whose caption {error.args[0]} is cannot be told outside a project; work in one, or score on COCO's test "
            "split"
        ) from error
