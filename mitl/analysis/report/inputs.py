"""All that a report is made of, as frozen records; a field that is None or empty means "not known yet"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from mitl.analysis.answer_tables import AnswerCount, RationaleCount
from mitl.analysis.known_truth import DirectionScores, Score
from mitl.analysis.records import MachineAnalysis
from mitl.audits.chao import Completeness
from mitl.core.statistics import clopper_pearson
from mitl.judgements.agreement import PairAgreement
from mitl.judgements.calibration import Calibration
from mitl.judgements.wages import WageFigures
from mitl.records import Concept, Direction, Environment, Label, Shortcoming, StageResult, Table
from mitl.records.forms import IMAGES, SetForm
from mitl.records.questions import RATIONALE, Question


class Frame(StrEnum):
    """By what an item stands among a query's items."""

    ORIGINAL = "original"
    YES = "yes"
    WEAK_YES = "weak_yes"
    CXC = "cxc"
    """An earlier rating alone speaks for it, or another source without an answer."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class ExampleItem:
    """One gallery item of an example query: a caption or a document (``text``), or an image (``image``)."""

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
    truth: Label | None = None
    released: bool = True
    """Whether a release holds it; an original that nobody judged need not be in one."""

    @property
    def frame(self) -> Frame:
        """A refusal decides first, then the original annotation, then the answer, then the rating."""
        if self.label is not None and not self.label.is_positive:
            return Frame.REFUSED
        if self.original:
            return Frame.ORIGINAL
        if self.label is None:
            return Frame.CXC
        return Frame.YES if self.label is Label.YES else Frame.WEAK_YES


@dataclass(frozen=True, slots=True)
class ExampleQuery:
    """A query with positives and refused near misses, in the order in which they are to be shown."""

    direction: Direction
    external_id: str
    items: tuple[ExampleItem, ...]
    text: str | None = None
    image: Path | None = None
    """An image that searches, or the reference of a composed query."""
    totals: tuple[tuple[Frame, int], ...] = ()
    """How many items of each frame the query has; those shown may be fewer."""
    gained: int | None = None
    """Positives beyond the original annotation."""


class DisputeKind(StrEnum):
    """Why a pair is worth a look."""

    WORKERS = "workers"
    """Its workers do not agree whether it is a match."""
    ORIGINAL = "original"
    """People refuse it, and the original annotation holds it."""
    CXC = "cxc"
    """People and an earlier rating say the opposite."""
    MACHINES = "machines"
    """Every machine annotator proposed it, and people refuse it."""
    WRONG = "wrong"
    """People call it a match, and name a part that is wrong."""
    TRUTH = "truth"
    """The known truth says the opposite of people."""


@dataclass(frozen=True, slots=True)
class DisputedPair:
    """One pair with all that is said of it."""

    image_id: str
    """External, as the caption's."""
    caption_id: str
    text: str
    image: Path | None
    answers: tuple[Label, ...]
    """Of each worker, best first."""
    label: Label
    """The aggregated answer."""
    original: bool = False
    cxc_score: float | None = None
    found_by: tuple[tuple[str, int], ...] = ()
    """(annotator, rank) of each proposal."""
    shortcomings: tuple[Shortcoming, ...] = ()
    concepts: tuple[Concept, ...] = ()
    truth: Label | None = None
    document: str = ""
    """The beginning of the text that stands in the image's place."""
    reference: Path | None = None
    """The image that a composed query changes."""


@dataclass(frozen=True, slots=True)
class Dispute:
    """The pairs of one kind of disagreement, those most worth a look first."""

    kind: DisputeKind
    total: int
    of: int
    """Pairs on which there could have been one."""
    shown: tuple[DisputedPair, ...]


@dataclass(frozen=True, slots=True)
class FoundPair:
    """One match that people verified and the original annotation lacks, with what that holds instead."""

    pair: DisputedPair
    people: int
    """Those who answered; one may have been asked twice."""
    own_captions: tuple[str, ...]
    """All that the original annotation gives the image."""
    own_image: str
    """External id of the one image that it gives the caption; of documents all that it gives the query."""


@dataclass(frozen=True, slots=True)
class Found:
    """The false negatives of the original annotation that were found, a few of them to look at."""

    total: int = 0
    of: int = 0
    """Pairs beyond the originals with a usable answer."""
    shown: tuple[FoundPair, ...] = ()


@dataclass(frozen=True, slots=True)
class TruthStats:
    """Positives against the known truth (yes or weak_yes), over all query x gallery pairs."""

    original: DirectionScores
    """The original annotation: before."""
    release: DirectionScores | None
    """After; None until a release is built."""
    released: int = 0
    """Pairs that it holds, those of queries that nobody was asked about among them: scores leave these out."""
    by_annotator: tuple[tuple[str, DirectionScores], ...] = ()
    """If each annotator had been the only one: its proposals that were judged positive."""
    hit_rule: DirectionScores | None = None
    """Judged positive, HITs accepted by their own two golds alone."""
    hit_rule_and_record: DirectionScores | None = None
    """The same with the worker's gold record as well."""
    asked: Score | None = None
    """Of the candidate pairs that people were asked about, those that they found; None where nobody was asked."""


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
    low: float | None = None
    """Lower end of the 95 % bootstrap interval over the queries; None where none was made."""
    high: float | None = None
    taught_by: int = 0
    """Pairs that these positives judge and on which people's answers taught the annotator."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """How far the probabilities of the answers can be trusted, compared with one yardstick."""

    against: str
    """What was taken for true, in words."""
    aggregator: str
    curve: Calibration

    @property
    def intervals(self) -> list[tuple[float, float]]:
        """The 95 % interval of each bin's share (Clopper and Pearson)."""
        return [
            clopper_pearson(round(observed * cases), cases, 0.95) for _, observed, cases in self.curve.bins
        ]


class WorkerStanding(StrEnum):
    """What a worker's gold record allows to be said."""

    GOOD = "good"
    UNPROVEN = "unproven"
    """Too few golds to tell."""
    POOR = "poor"
    EXCLUDED = "excluded"


@dataclass(frozen=True, slots=True)
class WorkerSummary:
    """One worker under a pseudonym, with the record on gold controls."""

    pseudonym: str
    hits: int
    golds_seen: int
    golds_right: int
    standing: WorkerStanding
    median_active_s: float | None = None
    """Active seconds a HIT, each cut to what it can have been; None where no page measured them."""
    earned_cents: int = 0
    hourly_cents: int | None = None
    """What an hour of paid work brought, bonuses included; None where no time is known."""


@dataclass(frozen=True, slots=True)
class GoldStats:
    """How the gold controls fared; withdrawn ones are not among those seen."""

    positive_seen: int
    positive_right: int
    negative_seen: int
    negative_right: int
    withdrawn: int = 0


@dataclass(frozen=True, slots=True)
class CrowdStats:
    """HITs and assignments of the environment, by what became of them."""

    hits_posted: int
    submitted: int
    approved: int
    """Passed by the rule or approved by a person, and their answers are used."""
    queued: int
    """Waiting for a person's decision."""
    rejected: int
    dropped: int = 0
    """Paid, answers left out: by what was decided about them or about their worker."""
    gold: GoldStats | None = None
    agreement: PairAgreement | None = None
    """None where nobody has answered."""
    workers: tuple[WorkerSummary, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """One batch of HITs with its price and its time."""

    name: str
    template: str
    direction: str
    """``i2t``, ``t2i`` or ``both``; of ratings the task."""
    hits: int
    reward_cents: int
    """For one assignment."""
    wages: WageFigures | None = None
    """Of its paid HITs; None where nothing is paid."""


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
    cents_a_positive: float | None = None
    """What HITs of pairs cost for each pair that people call a match; None where past work brought answers as well."""

    @property
    def paid_cents(self) -> int:
        """All that has left the purse."""
        return self.rewards_cents + self.fees_cents + self.bonuses_cents


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
    """How many pairs are left after each step, each a part of the one before; None for a step not reached."""

    possible: int | None = None
    """Query x gallery pairs, both directions, and the candidates beyond them that past work brought."""
    distinct: int | None = None
    """Candidate pairs: proposed by a machine annotator, or asked in past work."""
    asked: int | None = None
    """Candidate pairs on a posted HIT or in past work."""
    judged: int | None = None
    """Those with at least one judgement."""
    usable: int | None = None
    """Those with at least one usable judgement."""
    positive: int | None = None
    """Those judged yes or weak_yes."""
    beyond_originals: int | None = None
    """Those that the original annotation does not hold."""


@dataclass(frozen=True, slots=True)
class ProposalPlaces:
    """Places in lists, before a pair that stands in several of them counts once."""

    ranked: int
    """In the kept rankings (top 25), all annotators and directions."""
    proposed: int
    """In the top k (top 5)."""


@dataclass(frozen=True, slots=True)
class Multiplicity:
    """Positives per query of one direction, one number a query, before and after.

    Where people were asked about some queries' candidates only, the other queries are left out: nobody looked for
    their positives.
    """

    direction: Direction
    before: tuple[int, ...]
    after: tuple[int, ...]
    queries: int
    """All queries of the direction."""
    candidates: int
    """Candidate pairs that were proposed for them; of withdrawn annotators those with a usable answer."""
    answered: int
    """Those with a usable answer."""

    @property
    def complete(self) -> bool:
        """Whether every candidate of every query is answered."""
        return self.answered == self.candidates and len(self.after) == self.queries


@dataclass(frozen=True, slots=True)
class RebuildStep:
    """One command of the way from the data set to this file, with what it must come to."""

    command: str
    """As it is typed."""
    note: str = ""
    """What it cannot say: inputs to bring along, or what people did."""
    hashes: tuple[tuple[str, str], ...] = ()
    """(of what, SHA-256 or the run's own hash)."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """How it was made; names and values are shown as they are. No clock times: equal data, equal report."""

    steps: tuple[RebuildStep, ...] = ()
    seeds: tuple[tuple[str, str], ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    hashes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """One section of the page."""

    id: str
    word: str
    """In the navigation."""
    heading: str
    group: str
    """In the navigation, what it stands under."""


@dataclass(frozen=True, slots=True, eq=False)
class AnalysisSection:
    """A section that an analysis makes of its own tables and drawings."""

    section: Section
    tables: tuple[Table, ...] = ()
    lines: tuple[str, ...] = ()
    drawings: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    """Name → what draws the SVG."""
    captions: Mapping[str, str] = field(default_factory=dict)
    """Name → what stands under the drawing; the section's heading where there is none."""
    why_not: str = ""
    """Why there is nothing, in one line."""
    highlight: str = ""
    """One sentence of it for the top of the page."""


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
    form: SetForm = IMAGES
    """What the images and captions are."""
    release: str | None = None
    judgements: int | None = None
    """Answers that workers gave, those on controls and repeats included."""
    annotators: tuple[AnnotatorProposals, ...] = ()
    funnel: FunnelCounts = field(default_factory=FunnelCounts)
    places: ProposalPlaces | None = None
    answers: tuple[AnswerCount, ...] = ()
    rationale: tuple[RationaleCount, ...] = ()
    questions: tuple[Question, ...] = RATIONALE
    """What pages asked besides the label."""
    crowd: CrowdStats | None = None
    money: MoneyStats | None = None
    batches: tuple[BatchSummary, ...] = ()
    truth: TruthStats | None = None
    evaluation: tuple[EvaluationScore, ...] = ()
    multiplicity: tuple[Multiplicity, ...] = ()
    completeness: Mapping[Direction, Completeness] = field(default_factory=dict)
    """Of the matches that people confirmed, how many must be missing."""
    reliability: tuple[Reliability, ...] = ()
    found: Found = field(default_factory=Found)
    examples: tuple[ExampleQuery, ...] = ()
    disputes: tuple[Dispute, ...] = ()
    preference: StageResult | None = None
    """Scores as ``mitl prefer scores`` prints them; without a table where there are none. None where nobody was asked
    which of two rankings they prefer."""
    machines: MachineAnalysis = field(default_factory=MachineAnalysis)
    provenance: Provenance = field(default_factory=Provenance)
    analyses: tuple[AnalysisSection, ...] = ()
    """Those that bring a section of their own, in the table's order."""
    notes: tuple[str, ...] = ()
    """What a reader must know before believing a number, one sentence each."""

    @property
    def asks_pairs(self) -> bool:
        """Whether people judge pairs, or nothing is posted yet; else only ratings, texts or rankings are asked."""
        return bool(self.funnel.distinct or self.judgements or self.crowd is None)
