"""Texts that people write for items without partner, partners that they pick, and what others say of both."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from mitl.records.enums import CollectionRole, Label, Outcome

if TYPE_CHECKING:
    from mitl.records.frames import Schema  # importing it brings numpy

TEXTS = "texts"
"""The kind of campaign, as ``batch.kind`` has it."""
COLLECT_COMMAND = "mitl collect publish"
"""What asks for texts and for their reviews."""
TASKS = (CollectionRole.WRITE, CollectionRole.PICK, CollectionRole.REVIEW)
"""What a batch asks: ``batch.direction``."""
FORBIDDEN_STARTS = (
    "there is",
    "there are",
    "this is",
    "a picture of",
    "a photo of",
    "an image of",
    "picture of",
    "photo of",
    "image of",
)
"""Words that tell nothing of an image, with which no text may begin."""
EXAMPLES = (
    "A red boat with a white sail on the sea under the sun.",
    "Two people row a small red boat on calm water.",
)
"""Shown in the instructions; whoever sends one of them has copied it."""


@dataclass(frozen=True, slots=True)
class TextRules:
    """What a written text must keep to; a worker is told of it, and it is checked again when the text comes in."""

    least_words: int = 4
    most_words: int = 40
    most_characters: int = 300
    language: str = "en"
    """A language of `mitl.campaign.kinds.texts.answers`, or ``any``."""
    forbidden_starts: tuple[str, ...] = FORBIDDEN_STARTS


@dataclass(frozen=True, slots=True)
class Terms:
    """What a batch that collects was posted under, and is judged by for good."""

    rules: TextRules = field(default_factory=TextRules)
    accepts: tuple[Label, ...] = (Label.YES, Label.WEAK_YES)
    """The answers of a review with which a text or a picked item is accepted."""

    def as_json(self) -> str:
        """To be kept with the batch."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Terms:
        """As they were kept."""
        kept = json.loads(text)
        starts = tuple(kept["rules"].pop("forbidden_starts"))
        return cls(
            TextRules(**kept["rules"], forbidden_starts=starts),
            tuple(Label(label) for label in kept["accepts"]),
        )


@dataclass(frozen=True, slots=True)
class CollectionQuestion:
    """What stands at one place (from 1) of a page that collects; items by the numbers that they have on their sides."""

    place: int
    role: CollectionRole
    image: int | None
    """The image that is shown alone: to be described, or to be compared with a text; None where images are offered."""
    caption: int | None = None
    """The data set's caption that is shown: the one to pick for, the picked image's, or a control's."""
    offered: tuple[int, ...] = ()
    """The images that may be picked, in the order shown."""
    reviewed: int | None = None
    """Row of the answer that is under review."""
    text: str = ""
    """The written text that is under review."""
    matches: bool | None = None
    """Of a control: whether the caption was made for the image; None for what people are really asked."""
    rules: TextRules | None = None
    """What a text must keep to; None where none is written."""

    @property
    def shows(self) -> tuple[int, ...]:
        """The images that it shows."""
        return self.offered if self.image is None else (self.image,)


@dataclass(frozen=True, slots=True)
class GivenText:
    """What a worker wrote, picked or said at one place, as parsed."""

    place: int
    outcome: Outcome
    text: str = ""
    """What was written; empty where nothing was asked to be."""
    pick: int | None = None
    """Which of the offered items, from 1; 0 for none of them, None where nothing was offered or answered."""
    label: Label | None = None
    """A review's answer."""
    active_ms: int | None = None


COLLECTED: Schema = {
    "pair": (
        "int64",
        "packed image and text; a written text's number is that of the data set's last caption plus its answer's row",
    ),
    "image": ("int64", "number of the image on its side"),
    "text": ("str", "as written, or the data set's caption that an image was picked for"),
    "name": ("str", "the text's own id: w000001, or the caption's where it is the data set's"),
}
"""Accepted texts with their images, in the order in which they were accepted."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many items without partner were chosen, and what came of the texts and picks that people gave for them."""

    chosen: int
    """Items."""
    written: int
    """Texts in submissions that are kept."""
    picked: int
    """Answers where an image was to be picked, in submissions that are kept; some say that none matches."""
    faulty: int
    """Texts and picks that break a rule or pick nothing, and are not reviewed."""
    refused: int
    """By a second worker."""
    accepted: int

    @property
    def given(self) -> int:
        """Texts and picks."""
        return self.written + self.picked
