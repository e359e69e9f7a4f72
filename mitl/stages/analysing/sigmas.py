"""How wide a probabilistic annotator's distributions are, read off the encodings that it keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annotators.base import Encoded, Modality, draws_samples, is_reusable
from mitl.analysis.machines.uncertainty import geometric_mean, recovered_sigmas, root_mean_square
from mitl.records import Direction
from mitl.stages.analysing.material import Material
from mitl.stages.proposing.computing import Means

ROWS = 256
"""Items at a time: of 7 samples of 1,024 numbers, 15 MB each for them and their noise."""

GEOMETRIC, QUADRATIC = "geometric mean", "root mean square"


@dataclass(frozen=True, slots=True, eq=False)
class Sigmas:
    """One number for each query: ``values`` (Q,), a mean of its standard deviations."""

    measure: str
    values: NDArray[np.float64]


class SigmaReader:
    """One annotator of a project, with its kept encodings; what is missing of them is encoded."""

    def __init__(self, material: Material, name: str) -> None:
        self._material = material
        self._means = Means.of(material.settings)
        self._annotator: Any = self._means.build(name)

    def of(self, direction: Direction, queries: Sequence[int]) -> Sigmas | None:
        """The widths of these queries; None where the encodings do not tell them."""
        if not is_reusable(self._annotator):
            return None
        modality: Modality = "image" if direction is Direction.I2T else "caption"
        items = self._material.items.side(direction, gallery=False)
        encoded = self._means.encodings.encoded(
            self._annotator, modality, items, progress=self._material.progress
        )
        rows = np.searchsorted(encoded.ids, np.array(queries, np.int64))
        arrays = encoded.arrays
        if "log_sigma" in arrays:
            return Sigmas(GEOMETRIC, geometric_mean(np.exp(arrays["log_sigma"][rows].astype(np.float64))))
        if {"spread", "mean"} <= arrays.keys():
            return Sigmas(QUADRATIC, root_mean_square(arrays["spread"][rows], arrays["mean"].shape[1]))
        if "samples" in arrays and arrays["samples"].shape[1] > 1 and draws_samples(self._annotator):
            names = [items[row].external_id for row in rows]
            return Sigmas(GEOMETRIC, self._from_samples(encoded.rows(rows), names))
        return None

    def _from_samples(self, encoded: Encoded, external_ids: Sequence[str]) -> NDArray[np.float64]:
        """The noise of an item's samples follows from its id, so they tell its standard deviations."""
        from annotators.scoring import sampling

        found = np.empty(len(encoded))
        samples = encoded.arrays["samples"]
        for start in range(0, len(encoded), ROWS):
            part = slice(start, start + ROWS)
            noise = sampling.noise(
                self._annotator.seed, encoded.modality, external_ids[part], *samples.shape[1:]
            )
            found[part] = geometric_mean(recovered_sigmas(samples[part], noise))
        return found
