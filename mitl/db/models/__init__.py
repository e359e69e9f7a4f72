"""The pipeline's tables, one class per noun; what a column means stands below it.

Items are numbered within their side, in tie order at load, and every sort uses these numbers. The uniqueness that the
pipeline relies on is held by the database.
"""

from mitl.db.models.items import (
    Base,
    Dataset,
    DirectionOfSearch,
    ExclusionEntry,
    ItemRow,
    OriginalReview,
    PairRow,
    PartRow,
    ProposalRow,
    Query,
    RatingRow,
    RatingSource,
    Run,
    SideRow,
    StoredAnnotator,
)
from mitl.db.models.kinds import (
    CollectionAnswer,
    CollectionChoice,
    CollectionItem,
    CollectionTerms,
    ComparisonRow,
    PreferenceAnswer,
    RankingSystem,
    SimilarityAnswer,
    SimilarityItem,
    SimilaritySample,
)
from mitl.db.models.rounds import (
    Audit,
    AuditPair,
    ChosenPair,
    Labelling,
    MachineLabel,
    StepOfRound,
    TrainedAnnotator,
)
from mitl.db.models.work import (
    AnswerSheet,
    Assignment,
    Batch,
    ControlSheet,
    FindingRow,
    Hit,
    HitItemRow,
    ImportFile,
    Journal,
    JudgementRow,
    Ledger,
    Rationale,
    Round,
    StandingRow,
    StoredRelease,
    Worker,
    WorkerTally,
)
