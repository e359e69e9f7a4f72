"""The words that are stored and shown: enums, each kept by its value."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

_T = TypeVar("_T")


class Direction(StrEnum):
    """Which side searches: image queries in captions (``i2t``) or caption queries in images (``t2i``)."""

    I2T = "i2t"
    T2I = "t2i"

    def ordered(self, left: _T, right: _T) -> tuple[_T, _T]:
        """What is of images and of captions as what is of queries and of items; and the other way round."""
        return (left, right) if self is Direction.I2T else (right, left)


class IdKind(StrEnum):
    """How a data set's own ids are to be read and ordered."""

    INTEGER = "integer"
    STRING = "string"


class PartKind(StrEnum):
    """What a part of an item is, and so how it is read and shown."""

    TEXT = "text"
    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"


class AnnotatorKind(StrEnum):
    """What a machine annotator's similarity is made of; decides how it is searched."""

    INNER_PRODUCT = "inner_product"
    MULTI_VECTOR = "multi_vector"
    PROBABILITY = "probability"
    PAIRWISE = "pairwise"
    RANKING = "ranking"
    """It brings its own rankings, from files or by its own search."""


class _Coded(StrEnum):
    """Words that the official CSV numbers."""

    @property
    def code(self) -> int:
        """The official CSV's number, from 1."""
        return [*type(self).__members__].index(self.name) + 1


class Label(_Coded):
    """The four answers, from a full match to none; on the official CSV 1, 2, 3, 4 in this order."""

    YES = "yes"
    WEAK_YES = "weak_yes"
    WEAK_NO = "weak_no"
    NO = "no"

    @property
    def is_positive(self) -> bool:
        """``yes`` and ``weak_yes`` count as a match."""
        return self in (Label.YES, Label.WEAK_YES)

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


class Shortcoming(_Coded):
    """Why a description falls short; codes 1..n in this order on the official CSV."""

    NOT_IN_IMAGE = "not_in_image"
    NOT_DESCRIBED = "not_described"
    DESCRIBED_WRONGLY = "described_wrongly"
    GRAMMAR = "grammar"


class Concept(_Coded):
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
    AUDIT = "audit"
    """A pair of an audit's sample: only the certificate reads what is answered here."""

    @property
    def is_asked(self) -> bool:
        """Whether an answer here speaks for its pair in all that chooses, learns or merges."""
        return self in (PairRole.CANDIDATE, PairRole.REPEAT, PairRole.OVERLAP)

    @property
    def is_gold(self) -> bool:
        """Whether the answer is known beforehand and checks the worker."""
        return self in (PairRole.GOLD_POSITIVE, PairRole.GOLD_NEGATIVE)


class CollectionRole(StrEnum):
    """Why an item stands on a page that collects texts."""

    WRITE = "write"
    """A worker describes it."""
    PICK = "pick"
    """A worker picks its match among those offered."""
    REVIEW = "review"
    """Another worker says how well what was written or picked matches it."""
    CONTROL = "control"
    """A review whose answer is known; checks the worker."""


class BatchKind(StrEnum):
    """What the HITs of a batch ask."""

    PAIRS = "pairs"
    """How well a description matches an image."""
    RANKINGS = "rankings"
    """Which of two rankings of one query is better."""


PAIRS_COMMAND = "mitl publish"
"""What asks about pairs, and asks again what could not be used of them."""
ROUND_COMMAND = "mitl round run"
"""What does so while a round is open, within its budget, and ends it."""


class Preference(StrEnum):
    """Which of two rankings, side by side, a worker finds better."""

    LEFT = "left"
    EQUAL = "equal"
    RIGHT = "right"


class ComparisonRole(StrEnum):
    """Why two rankings stand side by side; the worker cannot tell."""

    ASKED = "asked"
    CONTROL = "control"
    """One side is known to be better; checks the worker."""


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


UNDECIDED = (Decision.NONE, Decision.QUEUED)
"""Not looked at yet, or waiting for a person."""


class JudgementSource(StrEnum):
    """Where a judgement came from."""

    CROWD = "crowd"
    IMPORT = "import"
    MACHINE = "machine"


class PositiveSource(StrEnum):
    """What speaks for a positive; where they disagree, the earlier beats the later, but for an audit."""

    JUDGEMENT = "judgement"
    CXC = "cxc"
    ORIGINAL = "original"
    MACHINE = "machine"
    """A label that a machine gave under a bound, to a pair that nobody was asked about."""
    AUDIT = "audit"
    """Two of three blind answers of an audit, and nothing else: such a positive never counts as one that was held."""


class AuditPurpose(StrEnum):
    """What a random sample of pairs is drawn for."""

    RECALL = "recall"
    """To bound how complete and how right a release is: frozen, on places of the role ``audit``."""
    LABELS = "labels"
    """To bound the error of machine labels: open candidates, asked as candidates, whose answers count."""


class OriginalVerdict(StrEnum):
    """What a person says of a caption that was refused for its own image."""

    KEEP = "keep"
    """It does describe its image."""
    WRONG = "wrong"
    """It describes something else: the pair goes, other images may match it."""
    MEANINGLESS = "meaningless"
    """It describes nothing: every pair with it goes."""


class ExclusionKind(StrEnum):
    """What an exclusion list names."""

    CAPTION = "caption"
    """A meaningless caption: every pair with it goes."""
    PAIR = "pair"
    """A caption that is wrong for its own image: only that pair goes."""
    WRONG = "wrong"
    """A pair that people called a match although a part of it is wrong: only that pair goes."""
    IMAGE = "image"
    """A duplicate image: every pair with it goes."""


RELEASE_FORMATS = ("mitl-release-1", "mitl-ratings-1")
"""Of manifests: a release of positives, and of ratings of similarity."""
