"""Similarities scored block by block, so that no full ranking of all queries is held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.metrics.positives import Ids
from mitl.progress import Progress
from mitl.records import Direction
from mitl.stages.evaluating.models.model import Similarities
from mitl.stages.evaluating.models.sides import Sides

_CELLS = 1 << 24
"""Similarities held at once: some 64 MB in float32."""


@dataclass(frozen=True, eq=False)
class Block:
    """Some queries with their similarities (B, G) to the whole gallery; ``gallery_ids`` rise."""

    query_ids: Ids
    gallery_ids: Ids
    similarities: NDArray[Any]

    @cached_property
    def rankings(self) -> Ids:
        """(B, G) the whole gallery, most similar first, ties to the smaller number."""
        return self.gallery_ids[np.argsort(-self.similarities, axis=1, kind="stable")]

    def head(self, depth: int) -> Ids:
        """(B, depth) the first places of ``rankings``; of the whole gallery where it is smaller."""
        depth = min(depth, len(self.gallery_ids))
        falling = -self.similarities
        worst = np.partition(falling, depth - 1, axis=1)[:, depth - 1, None]
        rows, columns = np.nonzero(falling <= worst)  # with all that equal the last one
        order = np.lexsort((columns, falling[rows, columns], rows))
        starts = np.searchsorted(rows, np.arange(len(falling)))
        found: Ids = self.gallery_ids[columns[order[starts[:, None] + np.arange(depth)]]]
        return found

    def of(self, query_ids: Ids) -> Block:
        """The part of it that belongs to some queries."""
        rows = np.isin(self.query_ids, query_ids)
        if rows.all():
            return self
        return Block(self.query_ids[rows], self.gallery_ids, self.similarities[rows])


def blocks(
    similarities: Similarities,
    sides: Sides,
    direction: Direction,
    query_ids: Ids,
    progress: Progress,
    label: str,
) -> Iterator[Block]:
    """The blocks of these queries, in their order.

    Raises:
        MetricError: a similarity is NaN.
    """
    queries, gallery = sides.queries(direction), sides.gallery(direction)
    size = max(1, _CELLS // max(1, len(gallery)))
    with progress(label, total=len(query_ids)) as advance:
        for start in range(0, len(query_ids), size):
            some = query_ids[start : start + size]
            found = similarities.block(direction, queries.places(some))
            wrong = np.isnan(found).any(axis=1)
            if wrong.any():
                name = queries.id_of(int(some[int(np.argmax(wrong))]))
                raise MetricError(
                    f"a similarity of {queries.modality} {name} is NaN, so its items have no order; mend the "
                    "model's output"
                )
            yield Block(some, gallery.numbers, found)
            advance(len(some))
