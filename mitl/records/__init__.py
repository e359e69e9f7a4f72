"""What crosses the borders between the stages: enums and frozen records, standard library only.

Ids called ``image_id``, ``caption_id``, ``query_id`` or ``item_id`` in these records are the numbers of items within
their side, given by the database in tie order at load (external integers by value, strings by code point).
Sorting by them is therefore the canonical order. ``external_id`` is the data set's own id, kept as text.
"""

from mitl.records.answers import (
    Comparison,
    ComparisonAnswer,
    Finding,
    GoldControl,
    HitItem,
    Judgement,
    Page,
    Parsed,
    PlaceAnswer,
    System,
    Vote,
)
from mitl.records.enums import (
    PAIRS_COMMAND,
    AnnotatorKind,
    AuditPurpose,
    BatchKind,
    CollectionRole,
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
    PartKind,
    PositiveSource,
    Preference,
    Shortcoming,
)
from mitl.records.items import (
    Caption,
    CaptionItem,
    Exclusion,
    Image,
    ImageItem,
    Item,
    ItemSet,
    Pair,
    Part,
    Proposal,
    Rating,
    RetrievalSet,
    Side,
    StoredItem,
)
from mitl.records.results import (
    StageResult,
    Table,
    Verdict,
    several,
)
