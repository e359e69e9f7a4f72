"""Everything that a release is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from mitl.judgements.aggregators import Posterior
from mitl.positives.certifying import CertifiedAudit
from mitl.positives.markdown import percent
from mitl.positives.merging import Merged, MergeRules
from mitl.positives.scrubbing import TextScan
from mitl.records import AnnotatorKind, Direction, Environment, ExclusionKind, IdKind, RatingFile
from mitl.records.collection import Tally
from mitl.records.forms import IMAGES, SET_FORMS, SetForm
from mitl.records.frames import NONE, frame
from mitl.records.questions import RATIONALE, Question
from mitl.records.rounds import CHOSEN_BY


@dataclass(frozen=True, slots=True)
class QueryDraw:
    """The queries of one direction in one run."""

    direction: Direction
    queries: int
    items: int
    """Images or captions that there are."""
    seed: int | None
    """With which they were drawn at random; None where all are asked, the makers listed them or took another seed."""


@dataclass(frozen=True, slots=True)
class ProposalRun:
    """One round of proposals."""

    annotators: tuple[str, ...]
    top_k: int
    depth: int
    draws: tuple[QueryDraw, ...]


@dataclass(frozen=True, slots=True)
class ChosenRound:
    """A round that chose what it asked."""

    number: int
    strategy: str
    pairs: int
    rolled_back: bool


@dataclass(frozen=True, slots=True)
class TrainedMachine:
    """A machine annotator that learnt here before it proposed."""

    name: str
    base: str
    """The annotator whose weights it started from."""
    round: int | None
    """Number of its round; None where it learnt outside of one."""
    weights_sha256: str
    answers: int
    """Usable answers that taught it."""
    pairs: int
    """Pairs with these answers."""
    collected: int = 0
    """Pairs that people wrote or picked, among the originals that taught it."""


@dataclass(frozen=True, slots=True)
class ControlKind:
    """The gold controls of one kind."""

    controls: int
    """Distinct pairs."""
    seen: int
    """Answers on them, those on withdrawn ones left out."""
    passed: int

    @property
    def text(self) -> str:
        """How many answers passed."""
        return f"{self.passed:,} of {self.seen:,} ({percent(self.passed, self.seen)})"


@dataclass(frozen=True, slots=True)
class Controls:
    """The gold controls and how they fared."""

    rule: str
    """Which answers pass, in words."""
    positive: ControlKind
    negative: ControlKind
    withdrawn: int


@dataclass(frozen=True, slots=True)
class CrowdSummary:
    """Who worked on pages that the project posted, and what became of their work."""

    workers: int
    """Those with a submission."""
    answering: int
    """Those of them whose answers the table of answers shows, which holds none of controls and audits."""
    busiest_share: float | None
    """Of the answers of these workers that the release shows; None where there are none."""
    excluded: int
    capped: int
    max_hits_per_worker: int | None
    submissions: int
    used: int
    paid_unused: int
    rejected: int
    undecided: int


@dataclass(frozen=True, slots=True)
class BatchPay:
    """What HITs of one batch paid."""

    wording: str
    direction: str
    hits: int
    assignments: int
    """Different workers asked for each."""
    reward_cents: int
    pilot: bool


@dataclass(frozen=True, slots=True)
class Pay:
    """What was paid, and what an hour of work has paid; times are cut to what they can have been."""

    rewards_cents: int
    bonuses_cents: int
    fees_cents: int
    bonus_workers: int
    """Workers who got a bonus."""
    floor_cents: int
    """An hour; 0 where none is set."""
    timed_workers: int
    """Workers with paid work of known time."""
    median_hourly_cents: int | None
    """Over those workers, bonuses included."""
    workers_under: int
    """Those of them who earned less than the floor."""
    timed_pages: int
    pages: int
    """Paid HITs; ``timed_pages`` of them measured active time."""
    median_page_s: float | None
    pages_under: int
    """Timed HITs whose reward alone paid less than the floor."""


@dataclass(frozen=True, slots=True)
class PastWork:
    """Work of earlier projects that was read from files into one batch."""

    batch: str
    files: tuple[tuple[str, int], ...]
    """Kind and rows of each."""
    submissions: int
    workers: int
    """As far as the files tell workers apart."""


@dataclass(frozen=True, slots=True)
class ExclusionList:
    """Entries of one source and kind."""

    source: str
    kind: ExclusionKind
    entries: int


@dataclass(frozen=True, slots=True)
class Origins:
    """All of it; what is empty or None there was not."""

    kinds: Mapping[str, AnnotatorKind] = field(default_factory=dict)
    """Of each machine annotator."""
    runs: tuple[ProposalRun, ...] = ()
    rounds: tuple[ChosenRound, ...] = ()
    """Those that chose pairs, oldest first."""
    trained: tuple[TrainedMachine, ...] = ()
    """Those of the machines that learnt here."""
    controls: Controls | None = None
    crowd: CrowdSummary | None = None
    batches: tuple[BatchPay, ...] = ()
    """Those that were posted, in order."""
    pay: Pay | None = None
    past_work: tuple[PastWork, ...] = ()
    rated_in: tuple[RatingFile, ...] = ()
    """What ratings were read from; empty where that is not known of all."""
    exclusions: tuple[ExclusionList, ...] = ()

    @property
    def nameless(self) -> bool:
        """Whether answers were read from a file that names no workers, so that two equal ones may count as one."""
        return any(kind == "mturk_parsed" for work in self.past_work for kind, _ in work.files)

    def busiest_share(self, shown: float | None) -> float | None:
        """Share of the answers that one worker gave; None where nobody knows who gave which.

        Args:
            shown: that of all answers, by the workers' names.
        """
        if self.crowd is not None:
            return self.crowd.busiest_share
        return None if self.nameless else shown


@dataclass(frozen=True, slots=True)
class LabelledPart:
    """The open pairs of one stratum when a machine labelled some of them."""

    name: str
    pairs: int
    sampled: int
    """Of them, those that people answered."""
    labelled: int
    bound: float
    """Share of the labelled pairs with a wrong label, or their mean loss, at most."""


@dataclass(frozen=True, slots=True)
class MachineBound:
    """What holds for the labels that a machine gave, of the run that gave them."""

    confidence: float
    """That the bounds of all parts hold together."""
    loss: str
    """What a wrong label costs: ``binary`` or ``ordinal``."""
    siding: float
    """Share of workers, at most, who side with the machine where it is wrong; 0 counts what asking shows alone."""
    parts: tuple[LabelledPart, ...]


@dataclass(frozen=True, slots=True)
class ReleaseCard:
    """What only the makers of a data set can say of it; what is left out is shown as not stated."""

    description: str = ""
    version: str = "1.0.0"
    license: str = ""
    """Of the judgements and positives, as an SPDX name or a URL."""
    items_license: str = ""
    """Of the images and captions, which the release names but does not hold."""
    creators: tuple[str, ...] = ()
    contact: str = ""
    url: str = ""
    citation: str = ""
    date_published: str = ""
    """ISO date chosen by the makers; never the clock's."""
    pay: str = ""
    """What workers were paid and how the time was measured."""
    ethics: str = ""
    """Consent and ethics review."""


@dataclass(frozen=True, slots=True)
class CollectedText:
    """A text that a worker wrote for an image, or the caption for which one picked it; a second worker accepted it."""

    name: str
    """Its own id, as ``w000001`` by the row of the answer; the caption's of a caption."""
    answer: int
    """Row of the answer."""
    image: int
    """Surrogate id."""
    caption: int | None
    """The same of a caption; None where the text was written."""
    text: str
    writer: str
    """Raw id, as the reviewer's; the release shows pseudonyms."""
    reviewer: str
    label: str
    """The review's answer."""
    strategy: str
    """Which chose the item that lacked a partner."""
    batch: int


@dataclass(frozen=True, slots=True)
class Collecting(Tally):
    """What was asked of people for items without partner, and what came of it."""

    paid_cents: int
    """Rewards, fees and bonuses of all such pages, reviews included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeOf:
    """What every release is made of; the same input gives the same bytes, in whatever order its rows come.

    ``salt`` keys the pseudonyms; it never enters the release.
    """

    name: str
    dataset: str
    dataset_sha256: str
    """Over the ids and texts of the whole data set: what another set of the same ids is told from."""
    environment: Environment
    id_kind: IdKind
    salt: bytes
    seeds: Mapping[str, int] = field(default_factory=dict)
    configuration: Mapping[str, object] = field(default_factory=dict)
    """Whatever else decided the outcome, as JSON: annotators, batches, templates, exclusion lists."""
    origins: Origins = field(default_factory=Origins)
    """How the answers came to be, for the datasheet."""
    texts: TextScan | None = None
    """What the scan of the workers' own words found; None where they are left out."""
    card: ReleaseCard = field(default_factory=ReleaseCard)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseInput(MadeOf):
    """What a release of positives is made of, by surrogate ids.

    ``image_ids`` and ``caption_ids`` give the external id of *every* item of the data set, since string ids
    get their stand-in integers from the whole set.
    """

    image_ids: Mapping[int, str]
    caption_ids: Mapping[int, str]
    queries: Mapping[Direction, tuple[int, ...]]
    merged: Merged
    rules: MergeRules
    judgements: pd.DataFrame
    """``judgement_schema`` of the questions."""
    proposals: pd.DataFrame
    """``PROPOSALS``, in order."""
    questions: tuple[Question, ...] = RATIONALE
    """What pages asked besides the label."""
    fit: str = ""
    """How the fit of the aggregator ended; empty for the majority, which fits nothing."""
    posterior: Posterior | None = None
    """What the aggregator holds possible for each answered pair, in their order; None for the majority."""
    warnings: tuple[str, ...] = ()
    """Why its answers should be taken with care."""
    chosen: pd.DataFrame = field(default_factory=lambda: frame(CHOSEN_BY, {name: [] for name in CHOSEN_BY}))
    """``CHOSEN_BY``: the pairs that rounds chose to ask."""
    collected: tuple[CollectedText, ...] = ()
    """Originals that people gave here, by name."""
    collecting: Collecting | None = None
    """How many were asked for and given; None where no item was chosen."""
    machine: MachineBound | None = None
    """Under what bound a machine labelled pairs; None where it labelled none."""
    audit: CertifiedAudit | None = None
    """What certifies the release; None where no complete audit does."""
    sides: tuple[str, str] = IMAGES.sides
    """What stands left and right in pairs."""
    references: Mapping[str, str] = field(default_factory=dict)
    """Composed query → the image that its text changes, by external id in tie order."""

    @property
    def form(self) -> SetForm:
        """What searches in what."""
        return SET_FORMS[self.sides]

    @property
    def has_collected(self) -> bool:
        """Whether people wrote or picked anything."""
        return self.collecting is not None and bool(self.collecting.written or self.collecting.picked)

    @property
    def has_ratings(self) -> bool:
        """Whether a rating of any pair is read."""
        return bool(self.merged.pairs["score"].notna().any())

    @property
    def has_machine_labels(self) -> bool:
        """Whether a machine's label of any pair is read."""
        return bool((self.merged.pairs["machine"] != NONE).any())
