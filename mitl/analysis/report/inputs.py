"""All that a report is made of, as frozen records; a field that is None or empty means "not known yet"."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from mitl.analysis.known_truth import DirectionScores
from mitl.judgements.wages import WageFigures
from mitl.records import Concept, Direction, Environment, Label, RationaleKind, Shortcoming


@dataclass(frozen=True, slots=True)
class AnnotatorProposals:
    """What one machine annotator brought, both directions together; in the order of the run."""

    name: str
    kind: str
    proposed: int
    """Places in its top k, a pair found from both directions counted twice."""
    distinct: int
    """Different pairs among them."""
    new: int
    """Those that no annotator earlier in the order had proposed."""
    overlap: int
    """Those that at least one other annotator proposed too."""
    usable: int | None = None
    """Its distinct pairs with a usable judgement."""
    positive: int | None = None
    """Those judged positive."""


@dataclass(frozen=True, slots=True)
class FunnelCounts:
    """How many pairs are left after each step; None for a step not reached."""

    possible: int | None = None
    """Query x gallery pairs, both directions."""
    ranked: int | None = None
    """Places in the kept rankings (top 25), all annotators and directions."""
    proposed: int | None = None
    """Places in the top k (top 5)."""
    distinct: int | None = None
    """Different candidate pairs among these."""
    asked: int | None = None
    """Candidate pairs on a posted HIT."""
    judged: int | None = None
    """Candidate pairs with at least one judgement."""
    usable: int | None = None
    """Candidate pairs with at least one usable judgement."""
    positive: int | None = None
    """Candidate pairs judged yes or weak_yes."""
    beyond_originals: int | None = None
    """Those that the original annotation does not hold."""


@dataclass(frozen=True, slots=True)
class AnswerCount:
    """How often pairs at one rank of one annotator and direction got one label; no golds, no repeats."""

    annotator: str
    direction: Direction
    rank: int
    label: Label
    count: int


@dataclass(frozen=True, slots=True)
class RationaleCount:
    """How often one shortcoming or concept was ticked on the pairs of one annotator."""

    annotator: str
    kind: RationaleKind
    """SHORTCOMING or CONCEPT."""
    value: str
    """A value of ``Shortcoming`` or ``Concept``."""
    count: int


class WorkerStanding(StrEnum):
    """What a worker's gold record allows to be said."""

    GOOD = "good"
    UNPROVEN = "unproven"
    """Too few golds to tell."""
    POOR = "poor"
    EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker under a pseudonym, with the record on gold controls."""

    pseudonym: str
    hits: int
    golds_seen: int
    golds_right: int
    standing: WorkerStanding
    median_active_s: float | None = None
    """Active seconds a HIT."""
    earned_cents: int = 0


@dataclass(frozen=True, slots=True)
class GoldStats:
    """How the gold controls fared; withdrawn ones are not among those seen."""

    positive_seen: int
    positive_right: int
    negative_seen: int
    negative_right: int
    withdrawn: int = 0


@dataclass(frozen=True, slots=True)
class AgreementStats:
    """Pairs with usable answers of two workers or more, by overlap, repeats or several workers a HIT."""

    pairs: int
    same_label: int
    """Those on which all answers are the same."""
    same_side: int
    """Those on which all are positive or all negative."""
    alpha: float | None = None
    """Krippendorff's, ordinal: 1 is perfect, 0 what chance gives."""
    low: float | None = None
    """Lower end of the 95 % bootstrap interval; None where there is none."""
    high: float | None = None
    reason: str = ""
    """Why there is no alpha."""


@dataclass(frozen=True, slots=True)
class CrowdStats:
    """HITs and assignments of the environment, by what became of them."""

    hits_posted: int
    submitted: int
    approved: int
    """Passed by the rule or approved by a person; answers used."""
    queued: int
    """Waiting for a person's decision."""
    rejected: int
    dropped: int = 0
    """Paid, answers left out (drop, approve_exclude)."""
    gold: GoldStats | None = None
    agreement: AgreementStats | None = None
    workers: tuple[WorkerRow, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One batch of HITs with its price and its time."""

    name: str
    template: str
    direction: Direction | None
    """None where both directions are in it."""
    hits: int
    reward_cents: int
    """For one assignment."""
    median_active_s: float | None = None
    """Active seconds a paid HIT, cut to what they can have been."""


@dataclass(frozen=True, slots=True)
class MoneyStats:
    """Where the money is, in cents of US dollars; on the sandbox it is practice money."""

    rewards_cents: int
    fees_cents: int
    bonuses_cents: int
    held_cents: int
    """Promised for work that is not decided or not done yet."""
    wage_floor_cents: int | None = None
    """Cents an hour."""
    wages: tuple[WageFigures, ...] = ()
    """By wording, over paid HITs."""
    timed_workers: int = 0
    """Workers with paid work of known time."""
    workers_under: int = 0
    """Those who earned less than the floor, bonuses included."""
    median_hourly_cents: int | None = None
    """Over those workers, bonuses included."""


@dataclass(frozen=True, slots=True)
class TruthStats:
    """Positives against the known truth (yes or weak_yes), over all query x gallery pairs."""

    original: DirectionScores
    """The original annotation: before."""
    release: DirectionScores | None
    """After; None until a release is built."""
    by_annotator: tuple[tuple[str, DirectionScores], ...] = ()
    """If each annotator had been the only one: its proposals that were judged positive."""
    hit_rule: DirectionScores | None = None
    """Judged positive, HITs accepted by their own two golds alone."""
    hit_rule_and_record: DirectionScores | None = None
    """The same with the worker's gold record as well."""
    precision_target: float | None = None
    """Share from 0 to 1 that precision is to reach, drawn as a line."""


@dataclass(frozen=True, slots=True)
class EvaluationScore:
    """One metric of one annotator on one set of positives."""

    annotator: str
    positives: str
    """``original``, ``release`` or the name of an official set."""
    direction: Direction
    metric: str
    """R@1, R@5, R-Precision, mAP@R."""
    value: float
    """Share from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Multiplicity:
    """Positives per query of one direction, one number a query, before and after."""

    direction: Direction
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExampleItem:
    """One gallery item of an example query: a caption (``text``) or an image (``image``)."""

    external_id: str
    text: str | None = None
    image: Path | None = None
    original: bool = False
    label: Label | None = None
    """The aggregated answer; None where nobody was asked."""
    cxc_score: float | None = None
    found_by: tuple[tuple[str, int], ...] = ()
    """(annotator, rank) of each proposal."""
    shortcomings: tuple[Shortcoming, ...] = ()
    concepts: tuple[Concept, ...] = ()
    note: str = ""
    """The worker's own words."""
    truth: Label | None = None


@dataclass(frozen=True, slots=True)
class ExampleQuery:
    """A query with positives and refused near misses, in the order in which they are to be shown."""

    direction: Direction
    external_id: str
    items: tuple[ExampleItem, ...]
    text: str | None = None
    image: Path | None = None


@dataclass(frozen=True, slots=True)
class Provenance:
    """How it was made; names and values are shown as they are. No clock times: equal data, equal report."""

    settings: tuple[tuple[str, str], ...] = ()
    seeds: tuple[tuple[str, str], ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    hashes: tuple[tuple[str, str], ...] = ()


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
    funnel: FunnelCounts = FunnelCounts()
    answers: tuple[AnswerCount, ...] = ()
    rationale: tuple[RationaleCount, ...] = ()
    crowd: CrowdStats | None = None
    money: MoneyStats | None = None
    batches: tuple[BatchRow, ...] = ()
    truth: TruthStats | None = None
    evaluation: tuple[EvaluationScore, ...] = ()
    multiplicity: tuple[Multiplicity, ...] = ()
    examples: tuple[ExampleQuery, ...] = ()
    provenance: Provenance = Provenance()
    notes: tuple[str, ...] = ()
    """What a reader must know before believing a number, one sentence each."""
