"""Retrieval metrics on plain arrays: no files, no database, no torch.

Names are imported when they are first used, so that importing this package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mitl.datasets.cxc import RatedPairs as RatedPairs
    from mitl.metrics.correlation import ScoredPairs as ScoredPairs
    from mitl.metrics.correlation import paired_spearman as paired_spearman
    from mitl.metrics.correlation import pearson as pearson
    from mitl.metrics.correlation import sampled_spearman as sampled_spearman
    from mitl.metrics.crisscrossed import across_positives as across_positives
    from mitl.metrics.crisscrossed import image_positives as image_positives
    from mitl.metrics.crisscrossed import score_within as score_within
    from mitl.metrics.crisscrossed import text_positives as text_positives
    from mitl.metrics.embeddings import EmbeddingSet as EmbeddingSet
    from mitl.metrics.embeddings import score_both_ways as score_both_ways
    from mitl.metrics.embeddings import score_embeddings as score_embeddings
    from mitl.metrics.embeddings import score_official_embeddings as score_official_embeddings
    from mitl.metrics.embeddings import score_similarities as score_similarities
    from mitl.metrics.graded import GradedLabels as GradedLabels
    from mitl.metrics.graded import kendall as kendall
    from mitl.metrics.graded import ndcg as ndcg
    from mitl.metrics.intervals import Interval as Interval
    from mitl.metrics.intervals import PairedTest as PairedTest
    from mitl.metrics.intervals import QueryGroups as QueryGroups
    from mitl.metrics.intervals import interval as interval
    from mitl.metrics.intervals import paired as paired
    from mitl.metrics.official import Fold as Fold
    from mitl.metrics.official import official_sets as official_sets
    from mitl.metrics.official import score_folds as score_folds
    from mitl.metrics.official import score_official as score_official
    from mitl.metrics.official import split_folds as split_folds
    from mitl.metrics.plausible import ObjectVectors as ObjectVectors
    from mitl.metrics.plausible import listed_r_precision as listed_r_precision
    from mitl.metrics.plausible import plausible_r_precision as plausible_r_precision
    from mitl.metrics.positives import Positives as Positives
    from mitl.metrics.positives import QueryValues as QueryValues
    from mitl.metrics.positives import Statistic as Statistic
    from mitl.metrics.positives import locate as locate
    from mitl.metrics.ranks import ArrayRankings as ArrayRankings
    from mitl.metrics.ranks import ListRankings as ListRankings
    from mitl.metrics.ranks import PositiveRanks as PositiveRanks
    from mitl.metrics.retrieval import average_precision_at_r as average_precision_at_r
    from mitl.metrics.retrieval import map_at_r as map_at_r
    from mitl.metrics.retrieval import r_precision as r_precision
    from mitl.metrics.retrieval import recall_at_k as recall_at_k
    from mitl.metrics.retrieval import score as score
    from mitl.metrics.retrieval import score_metrics as score_metrics
    from mitl.metrics.retrieval import score_queries as score_queries
    from mitl.metrics.retrieval import score_ranked as score_ranked
    from mitl.metrics.table import METRICS as METRICS
    from mitl.metrics.table import Metric as Metric
    from mitl.metrics.table import first_rank as first_rank

_MODULES = {
    "correlation": "ScoredPairs paired_spearman pearson sampled_spearman",
    "crisscrossed": "RatedPairs across_positives image_positives score_within text_positives",
    "embeddings": "EmbeddingSet score_both_ways "
    "score_embeddings score_official_embeddings score_similarities",
    "graded": "GradedLabels kendall ndcg",
    "intervals": "Interval PairedTest QueryGroups interval paired",
    "official": "Fold official_sets score_folds score_official split_folds",
    "plausible": "ObjectVectors listed_r_precision plausible_r_precision",
    "positives": "Positives QueryValues Statistic locate",
    "ranks": "ArrayRankings ListRankings PositiveRanks",
    "retrieval": "average_precision_at_r map_at_r r_precision recall_at_k "
    "score score_metrics score_queries score_ranked",
    "table": "METRICS Metric first_rank",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
