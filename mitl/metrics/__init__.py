"""Retrieval metrics on plain arrays: no files, no database, no torch.

Names are imported when they are first used, so that importing this package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mitl.metrics.coco_folds import Fold, score_folds, split_folds
    from mitl.metrics.crisscrossed.correlation import ScoredPairs, paired_spearman, pearson, sampled_spearman
    from mitl.metrics.crisscrossed.tasks import RatedPairs, across_positives, image_positives, text_positives
    from mitl.metrics.crisscrossed.within_modality import score_within
    from mitl.metrics.graded.labels import GradedLabels
    from mitl.metrics.graded.measures import kendall, ndcg
    from mitl.metrics.intervals import Interval, PairedTest, interval, paired
    from mitl.metrics.means import average_precision_at_r, map_at_r, r_precision, recall_at_k, score
    from mitl.metrics.official import official_sets, score_official
    from mitl.metrics.plausible.object_vectors import ObjectVectors
    from mitl.metrics.plausible.r_precision import listed_r_precision, plausible_r_precision
    from mitl.metrics.positives import Positives, QueryValues, Statistic, locate
    from mitl.metrics.ranked import ArrayRankings, ListRankings
    from mitl.metrics.ranks import PositiveRanks
    from mitl.metrics.retrieval import score_metrics, score_queries, score_ranked
    from mitl.metrics.similarities.embedding_ranks import EmbeddingSet
    from mitl.metrics.similarities.from_embeddings import (
        score_both_ways,
        score_embeddings,
        score_official_embeddings,
        score_similarities,
    )
    from mitl.metrics.table import METRICS, Metric

__all__ = [
    "METRICS",
    "ArrayRankings",
    "EmbeddingSet",
    "Fold",
    "GradedLabels",
    "Interval",
    "ListRankings",
    "Metric",
    "ObjectVectors",
    "PairedTest",
    "PositiveRanks",
    "Positives",
    "QueryValues",
    "RatedPairs",
    "ScoredPairs",
    "Statistic",
    "across_positives",
    "average_precision_at_r",
    "image_positives",
    "interval",
    "kendall",
    "listed_r_precision",
    "locate",
    "map_at_r",
    "ndcg",
    "official_sets",
    "paired",
    "paired_spearman",
    "pearson",
    "plausible_r_precision",
    "r_precision",
    "recall_at_k",
    "sampled_spearman",
    "score",
    "score_both_ways",
    "score_embeddings",
    "score_folds",
    "score_metrics",
    "score_official",
    "score_official_embeddings",
    "score_queries",
    "score_ranked",
    "score_similarities",
    "score_within",
    "split_folds",
    "text_positives",
]

_MODULES = {
    "coco_folds": (
        "Fold",
        "score_folds",
        "split_folds",
    ),
    "crisscrossed.correlation": (
        "ScoredPairs",
        "paired_spearman",
        "pearson",
        "sampled_spearman",
    ),
    "crisscrossed.tasks": (
        "RatedPairs",
        "across_positives",
        "image_positives",
        "text_positives",
    ),
    "similarities.embedding_ranks": ("EmbeddingSet",),
    "similarities.from_embeddings": (
        "score_both_ways",
        "score_embeddings",
        "score_official_embeddings",
        "score_similarities",
    ),
    "graded.measures": (
        "kendall",
        "ndcg",
    ),
    "graded.labels": ("GradedLabels",),
    "intervals": (
        "Interval",
        "PairedTest",
        "interval",
        "paired",
    ),
    "plausible.object_vectors": ("ObjectVectors",),
    "official": (
        "official_sets",
        "score_official",
    ),
    "plausible.r_precision": (
        "listed_r_precision",
        "plausible_r_precision",
    ),
    "positives": (
        "Positives",
        "QueryValues",
        "Statistic",
        "locate",
    ),
    "ranked": (
        "ArrayRankings",
        "ListRankings",
        "Metric",
    ),
    "means": (
        "average_precision_at_r",
        "map_at_r",
        "r_precision",
        "recall_at_k",
        "score",
    ),
    "ranks": ("PositiveRanks",),
    "retrieval": (
        "score_metrics",
        "score_queries",
        "score_ranked",
    ),
    "table": (
        "METRICS",
        "Metric",
    ),
    "crisscrossed.within_modality": ("score_within",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
