"""Retrieval metrics on plain arrays: no files, no database, no torch.

Names are imported when they are first used, so that importing this package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mitl.datasets.crisscrossed import RatedPairs
    from mitl.metrics.correlation import ScoredPairs, paired_spearman, pearson, sampled_spearman
    from mitl.metrics.crisscrossed import across_positives, image_positives, score_within, text_positives
    from mitl.metrics.embeddings import (
        EmbeddingSet,
        score_both_ways,
        score_embeddings,
        score_official_embeddings,
        score_similarities,
    )
    from mitl.metrics.graded import GradedLabels, kendall, ndcg
    from mitl.metrics.intervals import Interval, PairedTest, interval, paired
    from mitl.metrics.means import average_precision_at_r, map_at_r, r_precision, recall_at_k, score
    from mitl.metrics.official import Fold, official_sets, score_folds, score_official, split_folds
    from mitl.metrics.plausible import ObjectVectors, listed_r_precision, plausible_r_precision
    from mitl.metrics.positives import Positives, QueryValues, Statistic, locate
    from mitl.metrics.ranked import ArrayRankings, ListRankings
    from mitl.metrics.ranks import PositiveRanks
    from mitl.metrics.retrieval import score_metrics, score_queries, score_ranked
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
    "correlation": "ScoredPairs paired_spearman pearson sampled_spearman",
    "crisscrossed": "RatedPairs across_positives image_positives score_within text_positives",
    "embeddings": "EmbeddingSet score_both_ways score_embeddings score_official_embeddings score_similarities",
    "graded": "GradedLabels kendall ndcg",
    "intervals": "Interval PairedTest interval paired",
    "means": "average_precision_at_r map_at_r r_precision recall_at_k score",
    "official": "Fold official_sets score_folds score_official split_folds",
    "plausible": "ObjectVectors listed_r_precision plausible_r_precision",
    "positives": "Positives QueryValues Statistic locate",
    "ranked": "ArrayRankings ListRankings",
    "ranks": "PositiveRanks",
    "retrieval": "score_metrics score_queries score_ranked",
    "table": "METRICS Metric",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
