"""What crosses the borders between the stages: enums and frozen records, standard library only.

Ids called ``image_id``, ``caption_id``, ``query_id`` or ``item_id`` in these records are the database's
surrogate integers, which are given in tie order at load (external integers by value, strings by code point).
Sorting by them is therefore the canonical order. ``external_id`` is the data set's own id, kept as text.
"""

from mitl.records.answers import (
    Finding,
    Judgement,
    ParsedAnswers,
    PlaceAnswer,
)
from mitl.records.comparisons import (
    Comparison,
    ComparisonAnswer,
    ComparisonPage,
    ParsedComparisons,
    System,
    Vote,
)
from mitl.records.enums import (
    AnnotatorKind,
    BatchKind,
    ComparisonRole,
    Concept,
    Decision,
    Direction,
    Environment,
    ExclusionKind,
    HitState,
    IdKind,
    JournalState,
    JudgementSource,
    Label,
    OriginalVerdict,
    Outcome,
    PairRole,
    PositiveSource,
    Preference,
    RationaleKind,
    Shortcoming,
)
from mitl.records.items import (
    Caption,
    CaptionItem,
    Exclusion,
    Image,
    ImageItem,
    Pair,
    Proposal,
    Rating,
    RetrievalSet,
)
from mitl.records.pages import (
    GoldControl,
    HitItem,
    PackedHit,
)
from mitl.records.results import (
    StageResult,
    Table,
    Verdict,
    several,
)

__all__ = [
    "AnnotatorKind",
    "BatchKind",
    "Caption",
    "CaptionItem",
    "Comparison",
    "ComparisonAnswer",
    "ComparisonPage",
    "ComparisonRole",
    "Concept",
    "Decision",
    "Direction",
    "Environment",
    "Exclusion",
    "ExclusionKind",
    "Finding",
    "GoldControl",
    "HitItem",
    "HitState",
    "IdKind",
    "Image",
    "ImageItem",
    "JournalState",
    "Judgement",
    "JudgementSource",
    "Label",
    "OriginalVerdict",
    "Outcome",
    "PackedHit",
    "Pair",
    "PairRole",
    "ParsedAnswers",
    "ParsedComparisons",
    "PlaceAnswer",
    "PositiveSource",
    "Preference",
    "Proposal",
    "Rating",
    "RationaleKind",
    "RetrievalSet",
    "Shortcoming",
    "StageResult",
    "System",
    "Table",
    "Verdict",
    "Vote",
    "several",
]
