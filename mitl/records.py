"""What crosses the borders between the stages: enums and frozen records, standard library only.

Ids called ``image_id``, ``caption_id``, ``query_id`` or ``item_id`` in these records are the database's
surrogate integers, which are given in tie order at load (external integers by value, strings by code point).
Sorting by them is therefore the canonical order. ``external_id`` is the data set's own id, kept as text.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class Direction(StrEnum):
    """Which side searches: image queries in captions (``i2t``) or caption queries in images (``t2i``)."""

    I2T = "i2t"
    T2I = "t2i"


class IdKind(StrEnum):
    """How a data set's own ids are to be read and ordered."""

    INTEGER = "integer"
    STRING = "string"


class AnnotatorKind(StrEnum):
    """What a machine annotator's similarity is made of; decides how it is searched."""

    INNER_PRODUCT = "inner_product"
    MULTI_VECTOR = "multi_vector"
    PROBABILITY = "probability"
    PAIRWISE = "pairwise"
    RANKING = "ranking"
    """Rankings read from files: nothing is computed."""


class Label(StrEnum):
    """The four answers, from a full match to none; on the official CSV 1, 2, 3, 4 in this order."""

    YES = "yes"
    WEAK_YES = "weak_yes"
    WEAK_NO = "weak_no"
    NO = "no"

    @property
    def is_positive(self) -> bool:
        """``yes`` and ``weak_yes`` count as a match."""
        return self in (Label.YES, Label.WEAK_YES)

    @property
    def code(self) -> int:
        """The official CSV's number, 1 to 4."""
        return list(Label).index(self) + 1

    @classmethod
    def from_code(cls, code: int) -> Label:
        """The label of the official CSV's number; ValueError outside 1..4."""
        if not 1 <= code <= 4:
            raise ValueError(f"label code is {code}, but the official codes are 1 to 4")
        return list(cls)[code - 1]


class Outcome(StrEnum):
    """What became of one pair on a submitted page."""

    ANSWERED = "answered"
    SKIPPED = "skipped"
    IMAGE_FAILED = "image_failed"


class Shortcoming(StrEnum):
    """Why a description falls short; codes 1..n in this order on the official CSV."""

    NOT_IN_IMAGE = "not_in_image"
    NOT_DESCRIBED = "not_described"
    DESCRIBED_WRONGLY = "described_wrongly"
    GRAMMAR = "grammar"

    @property
    def code(self) -> int:
        """The official CSV's number, from 1."""
        return list(Shortcoming).index(self) + 1


class Concept(StrEnum):
    """What kind of thing is described wrongly; codes 1..n in this order on the official CSV."""

    QUANTITY = "quantity"
    COLOR = "color"
    SPECIES = "species"
    GENDER = "gender"
    AGE = "age"
    ACTION = "action"
    EMOTION = "emotion"
    LOCATION = "location"
    ORIENTATION = "orientation"
    OTHER = "other"

    @property
    def code(self) -> int:
        """The official CSV's number, from 1."""
        return list(Concept).index(self) + 1


class RationaleKind(StrEnum):
    """Which follow-up question a rationale row answers."""

    SHORTCOMING = "shortcoming"
    CONCEPT = "concept"
    TEXT = "text"


class Environment(StrEnum):
    """Practice money or real money; never mixed."""

    SANDBOX = "sandbox"
    LIVE = "live"


class PairRole(StrEnum):
    """Why a pair is on a page; the worker cannot tell."""

    CANDIDATE = "candidate"
    GOLD_POSITIVE = "gold_positive"
    GOLD_NEGATIVE = "gold_negative"
    REPEAT = "repeat"
    """A pair of another HIT that fills the last page; measures agreement."""
    OVERLAP = "overlap"
    """A pair asked on purpose of a second worker."""

    @property
    def is_gold(self) -> bool:
        """Whether the answer is known beforehand and checks the worker."""
        return self in (PairRole.GOLD_POSITIVE, PairRole.GOLD_NEGATIVE)


class HitState(StrEnum):
    """Where a HIT is on its way to the crowd and back."""

    PLANNED = "planned"
    SENDING = "sending"
    POSTED = "posted"
    CLOSED = "closed"


class JournalState(StrEnum):
    """Where a call that costs or binds is."""

    PLANNED = "planned"
    SENDING = "sending"
    DONE = "done"
    FAILED = "failed"


class Decision(StrEnum):
    """What was decided about a submitted assignment.

    ``pass``: both golds right, approved by rule. ``approve``: a person found the work good; paid and used.
    ``approve_exclude``: paid, its answers left out, the worker gets no further HITs. ``drop``: paid, its
    answers left out. ``reject``: not paid, its answers left out; only ever a person's choice.
    """

    NONE = "none"
    PASS = "pass"  # noqa: S105 - a decision, not a password
    QUEUED = "queued"
    APPROVE = "approve"
    APPROVE_EXCLUDE = "approve_exclude"
    REJECT = "reject"
    DROP = "drop"

    @property
    def keeps_answers(self) -> bool:
        """Whether the answers of such an assignment may be used."""
        return self in (Decision.PASS, Decision.APPROVE)


class JudgementSource(StrEnum):
    """Where a judgement came from."""

    CROWD = "crowd"
    IMPORT = "import"
    MACHINE = "machine"


class PositiveSource(StrEnum):
    """What speaks for a positive, in order of trust."""

    JUDGEMENT = "judgement"
    CXC = "cxc"
    ORIGINAL = "original"


class ExclusionKind(StrEnum):
    """What an exclusion list names."""

    CAPTION = "caption"
    """A meaningless caption: every pair with it goes."""
    PAIR = "pair"
    """A caption that is wrong for its own image: only that pair goes."""
    IMAGE = "image"
    """A duplicate image: every pair with it goes."""


@dataclass(frozen=True, slots=True)
class Image:
    """One image of a data set, as read."""

    external_id: str
    file: str | None = None
    """Path of the image file, absolute or relative to the project; None where there is none at hand."""
    url: str | None = None
    width: int | None = None
    height: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Caption:
    """One caption of a data set, as read; its image is its original positive."""

    external_id: str
    image_external_id: str
    text: str


@dataclass(frozen=True, slots=True)
class RetrievalSet:
    """Images and captions of one data set, both in tie order, every caption's image among the images."""

    name: str
    kind: str
    """Which reader made it: ``scenes``, ``coco``, ``flickr30k`` or ``table``."""
    id_kind: IdKind
    images: tuple[Image, ...]
    captions: tuple[Caption, ...]


@dataclass(frozen=True, slots=True)
class Rating:
    """A CxC human rating of one image-caption pair, by external ids; score from 0 to 5."""

    image_external_id: str
    caption_external_id: str
    score: float
    sampling_method: str


@dataclass(frozen=True, slots=True)
class Exclusion:
    """One entry of an exclusion list, by external ids; the fields that ``kind`` does not need are None."""

    kind: ExclusionKind
    image_external_id: str | None
    caption_external_id: str | None
    reason: str
    source: str


@dataclass(frozen=True, slots=True)
class ImageItem:
    """An image as a stage sees it."""

    id: int
    external_id: str
    path: Path | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class CaptionItem:
    """A caption as a stage sees it."""

    id: int
    external_id: str
    image_id: int
    text: str


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """An image and a caption; asked once whichever direction found it."""

    image_id: int
    caption_id: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """One annotator's proposal of one pair in one direction."""

    pair: Pair
    annotator: str
    direction: Direction
    rank: int
    similarity: float


@dataclass(frozen=True, slots=True)
class GoldControl:
    """A pair whose answer we know; ``role`` is gold_positive or gold_negative."""

    pair: Pair
    role: PairRole


@dataclass(frozen=True, slots=True)
class HitItem:
    """One place (from 1) of a HIT."""

    place: int
    pair: Pair
    role: PairRole


@dataclass(frozen=True, slots=True)
class PackedHit:
    """A page of pairs, not yet posted; ``number`` counts from 1 within the batch."""

    number: int
    items: tuple[HitItem, ...]


@dataclass(frozen=True, slots=True)
class PlaceAnswer:
    """What a worker gave at one place of a HIT, as parsed; ``label`` is None unless answered."""

    place: int
    outcome: Outcome
    label: Label | None
    shortcomings: tuple[Shortcoming, ...] = ()
    concepts: tuple[Concept, ...] = ()
    text: str = ""
    active_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something noticed about an assignment; never an exception, never silent."""

    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ParsedAnswers:
    """The answers of one assignment with what was odd about them."""

    answers: tuple[PlaceAnswer, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """One worker's answer on one pair, as given; merging reads it and never rewrites it."""

    pair: Pair
    worker: str
    """The worker's id within the database (``mturk_worker_id``); leaves it only as a keyed pseudonym."""
    label: Label | None
    outcome: Outcome = Outcome.ANSWERED
    role: PairRole = PairRole.CANDIDATE
    usable: bool = True
    shortcomings: tuple[Shortcoming, ...] = ()
    concepts: tuple[Concept, ...] = ()
    active_ms: int | None = None
    source: JudgementSource = JudgementSource.CROWD
    submitted_at: dt.datetime | None = None


@dataclass(frozen=True, slots=True)
class Positive:
    """A pair that counts as a match, with everything that speaks for it."""

    pair: Pair
    label: Label | None
    """The aggregated answer of people; None where no judgement speaks for it."""
    sources: tuple[PositiveSource, ...]
    annotators: tuple[str, ...] = ()
    n_judgements: int = 0
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Rows for people to read; numbers stay numbers until they are printed."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


@dataclass(frozen=True, slots=True)
class StageResult:
    """What one run of a stage did, for people and for ``--json``."""

    status: str = "done"
    """done, nothing_to_do or error."""
    counts: dict[str, object] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    """For people; never part of ``--json``."""
    lines: tuple[str, ...] = ()
    """For people, printed after the tables."""
    next: str = ""
    """What a person would do next."""
