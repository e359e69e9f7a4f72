"""Small worlds of scenes of which every pair teaches by its known truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from annotators.training.taught import Lessons
from mitl.core.arrays import pack_ids
from mitl.datasets.scenes.files import write_items
from mitl.datasets.scenes.world import generate, truth_matrix
from mitl.records import CaptionItem, ImageItem


def taught_world(folder: Path, count: int, seed: int) -> tuple[list[ImageItem], list[CaptionItem], Lessons]:
    """Pictures in ``folder``, their captions, and all pairs of both with the grades of their true levels."""
    made = generate(count, seed=seed, split=folder.name.rstrip("0123456789"))
    images, captions = write_items(made, folder, by_place=True)
    label = truth_matrix(made, list(made.scenes), list(made.captions)) - 1
    left, right = np.indices(label.shape).reshape(2, -1)
    teaching = pd.DataFrame(
        {
            "pair": pack_ids(left, right),
            "grade": 1 - label.ravel() / 3,
            "positive": label.ravel() <= 1,
            "n": 1,
            "original": False,
        }
    )
    return images, captions, Lessons.of(teaching, images, captions)
