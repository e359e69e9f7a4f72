"""The variance that a sample need not have met: of ranked pairs that are hardly ever drawn, yet decide a metric.

Where no audited pair is among a model's first K, the sample's own spread says that nothing can change. What the chances
of the pairs there and their inclusion probabilities foresee says how much would, over other samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mitl.metrics.partial_labels import Floats, PartialLabels
from mitl.metrics.positives import Ids
from mitl.metrics.ranks import NOTHING, Rankings
from mitl.metrics.table import Asked, precision_at_k, recall_at_k


@dataclass(frozen=True, slots=True, eq=False)
class Foreseen:
    """Doubtful pairs among a model's first K, each once."""

    rows: Ids
    items: Ids
    effects: Floats
    """(n,) the change of the mean between either label of the pair."""
    spreads: Floats
    """(n,) f (1 - f) (1 / inclusion - 1)."""

    @property
    def variance(self) -> float:
        """Of a correction over samples that hold each pair apart from the others."""
        return float(self.effects**2 @ self.spreads)

    def minus(self, other: Foreseen) -> Foreseen:
        """Of the difference of two models: what a pair changes in both cancels."""
        rows, items = np.concatenate([self.rows, other.rows]), np.concatenate([self.items, other.items])
        effects = np.concatenate([self.effects, -other.effects])
        spreads = np.concatenate([self.spreads, other.spreads])
        order = np.lexsort((items, rows))
        if not len(order):
            return self
        rows, items = rows[order], items[order]
        firsts = np.flatnonzero(np.append(True, (rows[1:] != rows[:-1]) | (items[1:] != items[:-1])))
        return Foreseen(
            rows[firsts], items[firsts], np.add.reduceat(effects[order], firsts), spreads[order][firsts]
        )


def foreseen(rankings: Rankings, labels: PartialLabels, one: Asked) -> Foreseen | None:
    """For Recall@K and P@K, where effects follow from the chances; None for metrics that look to R.

    There every pair of a query has an effect, and so the sample meets it.
    """
    if one.metric.of not in (recall_at_k, precision_at_k):
        return None
    queries = np.arange(len(labels))
    items = np.asarray(rankings.block(rankings.rows_of(labels.query_ids), 0, one.k), np.int64)
    chances, weights = labels.chances_of(queries, items), labels.weights_of(queries, items)
    effects = np.full(items.shape, 1 / one.k)
    if one.metric.of is recall_at_k:
        misses = 1 - chances
        others = [np.delete(misses, place, axis=1).prod(axis=1) for place in range(items.shape[1])]
        effects = np.stack(others, axis=1)
    at = np.nonzero((chances > 0) & (chances < 1) & (items != NOTHING))
    spreads = chances[at] * (1 - chances[at]) * (weights[at] - 1)
    return Foreseen(at[0], items[at], effects[at] / len(labels), spreads)
