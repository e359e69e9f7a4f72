"""The pipeline's tables, one class per noun; what a column means stands below it.

Surrogate ids of images and captions are given in tie order at load, and every sort uses them. The uniqueness
that the pipeline relies on is held by the database.
"""

from mitl.db.models.answers import AnswerSheet, Assignment, Finding, ImportFile, Judgement, Rationale, Worker
from mitl.db.models.base import Base
from mitl.db.models.comparisons import Comparison, PreferenceAnswer, RankingSystem
from mitl.db.models.datasets import Caption, Dataset, Exclusion, Image, OriginalReview, Rating
from mitl.db.models.hits import Batch, Hit, HitItem, Round
from mitl.db.models.money import Journal, Ledger
from mitl.db.models.proposals import Annotator, Pair, Proposal, Query, Run
from mitl.db.models.releases import Release

__all__ = [
    "Annotator",
    "AnswerSheet",
    "Assignment",
    "Base",
    "Batch",
    "Caption",
    "Comparison",
    "Dataset",
    "Exclusion",
    "Finding",
    "Hit",
    "HitItem",
    "Image",
    "ImportFile",
    "Journal",
    "Judgement",
    "Ledger",
    "OriginalReview",
    "Pair",
    "PreferenceAnswer",
    "Proposal",
    "Query",
    "RankingSystem",
    "Rating",
    "Rationale",
    "Release",
    "Round",
    "Run",
    "Worker",
]
