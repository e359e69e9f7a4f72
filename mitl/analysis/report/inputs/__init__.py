"""All that a report is made of, as frozen records; a field that is None or empty means "not known yet"."""

from __future__ import annotations

from dataclasses import dataclass, field

from mitl.analysis.answer_tables import AnswerCount, RationaleCount
from mitl.analysis.machines.records import MachineAnalysis
from mitl.analysis.report.inputs.gallery import (
    Dispute,
    DisputedPair,
    DisputeKind,
    ExampleItem,
    ExampleQuery,
    Frame,
)
from mitl.analysis.report.inputs.origins import Provenance, RebuildStep
from mitl.analysis.report.inputs.pairs import AnnotatorProposals, FunnelCounts, Multiplicity, ProposalPlaces
from mitl.analysis.report.inputs.people import (
    AgreementStats,
    BatchRow,
    CrowdStats,
    GoldStats,
    MoneyStats,
    WorkerRow,
    WorkerStanding,
)
from mitl.analysis.report.inputs.scores import (
    EvaluationScore,
    PreferenceTable,
    Reliability,
    ReliabilityBin,
    TruthStats,
)
from mitl.records import Environment

__all__ = [
    "AgreementStats",
    "AnnotatorProposals",
    "AnswerCount",
    "BatchRow",
    "CrowdStats",
    "Dispute",
    "DisputeKind",
    "DisputedPair",
    "EvaluationScore",
    "ExampleItem",
    "ExampleQuery",
    "Frame",
    "FunnelCounts",
    "GoldStats",
    "MoneyStats",
    "Multiplicity",
    "PreferenceTable",
    "ProposalPlaces",
    "Provenance",
    "RationaleCount",
    "RebuildStep",
    "Reliability",
    "ReliabilityBin",
    "ReportInput",
    "TruthStats",
    "WorkerRow",
    "WorkerStanding",
]


@dataclass(frozen=True, slots=True)
class ReportInput:
    """One project's data in one environment, collected by the report stage."""

    project: str
    dataset: str
    environment: Environment
    images: int
    captions: int
    image_queries: int
    caption_queries: int
    release: str | None = None
    judgements: int | None = None
    """Answers that workers gave, those on controls and repeats included."""
    annotators: tuple[AnnotatorProposals, ...] = ()
    funnel: FunnelCounts = field(default_factory=FunnelCounts)
    places: ProposalPlaces | None = None
    answers: tuple[AnswerCount, ...] = ()
    rationale: tuple[RationaleCount, ...] = ()
    crowd: CrowdStats | None = None
    money: MoneyStats | None = None
    batches: tuple[BatchRow, ...] = ()
    truth: TruthStats | None = None
    evaluation: tuple[EvaluationScore, ...] = ()
    multiplicity: tuple[Multiplicity, ...] = ()
    reliability: tuple[Reliability, ...] = ()
    examples: tuple[ExampleQuery, ...] = ()
    disputes: tuple[Dispute, ...] = ()
    preference: PreferenceTable | None = None
    """None where people were not asked which of two rankings they prefer."""
    machines: MachineAnalysis = field(default_factory=MachineAnalysis)
    provenance: Provenance = field(default_factory=Provenance)
    notes: tuple[str, ...] = ()
    """What a reader must know before believing a number, one sentence each."""
