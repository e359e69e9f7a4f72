"""What crosses the borders between the stages: enums and frozen records, standard library only.

Ids called ``image_id``, ``caption_id``, ``query_id`` or ``item_id`` in these records are the database's
surrogate integers, which are given in tie order at load (external integers by value, strings by code point).
Sorting by them is therefore the canonical order. ``external_id`` is the data set's own id, kept as text.
"""

from mitl.records.answers import (
    Finding,
    Judgement,
    Negative,
    ParsedAnswers,
    PlaceAnswer,
    Positive,
)
from mitl.records.enums import (
    AnnotatorKind,
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
)

__all__ = [
    "AnnotatorKind",
    "Caption",
    "CaptionItem",
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
    "Negative",
    "OriginalVerdict",
    "Outcome",
    "PackedHit",
    "Pair",
    "PairRole",
    "ParsedAnswers",
    "PlaceAnswer",
    "Positive",
    "PositiveSource",
    "Proposal",
    "Rating",
    "RationaleKind",
    "RetrievalSet",
    "Shortcoming",
    "StageResult",
    "Table",
    "Verdict",
]
