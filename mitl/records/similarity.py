"""Graded similarity of two items, within a side and across: what is rated, why it stands on a page, and the frames."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from mitl.records.enums import Outcome

if TYPE_CHECKING:
    from mitl.records.frames import Schema  # importing it brings numpy, which metrics do without

SIMILARITY = "similarity"
"""The name of this kind of campaign, as batches have it."""
RATE_COMMAND = "mitl rate publish"
"""What asks for ratings."""

LOWEST, HIGHEST = 0.0, 5.0
"""The ends of the scale; a score has steps of 0.01 between them."""


class Likeness(StrEnum):
    """What people rate from 0 to 5: the likeness of texts, of images, or of an image and a text."""

    STS = "sts"
    SIS = "sis"
    SITS = "sits"

    @property
    def positive_from(self) -> float:
        """The score from which on CxC counts a pair as a match (Parekh et al., Crisscrossed Captions, figure 4)."""
        return 2.5 if self is Likeness.SIS else 3.0

    @property
    def sides(self) -> tuple[str, str]:
        """The sides of the first and of the second item."""
        return {Likeness.STS: ("caption", "caption"), Likeness.SIS: ("image", "image")}.get(
            self, ("image", "caption")
        )


class SamplingMethod(StrEnum):
    """How a pair came to be rated, in CxC's own words (its section 2)."""

    C2C_ISIM = "c2c_isim"
    """Two captions whose images are alike."""
    C2C_COCAPTION = "c2c_cocaption"
    """Two captions of one image."""
    I2I_CSIM = "i2i_csim"
    """Two images whose captions are alike."""
    C2I_INTRASIM = "c2i_intrasim"
    """A caption and an image, from what people said of two captions or two images."""
    C2I_ORIGINAL = "c2i_original"
    """A caption and the image that it was written for."""

    @property
    def task(self) -> Likeness:
        """What is rated."""
        return {"c2c": Likeness.STS, "i2i": Likeness.SIS}.get(self.value[:3], Likeness.SITS)

    @property
    def phase(self) -> int:
        """1 within a side; 2 across, for which the ratings of phase 1 are needed."""
        return 2 if self.task is Likeness.SITS else 1


class SimilarityRole(StrEnum):
    """Why two items stand at a place of a page; the worker cannot tell."""

    ASKED = "asked"
    IDENTICAL = "identical"
    """An item beside itself, or an image beside its own caption: as like as can be."""
    RANDOM = "random"
    """Two items that nobody sampled and that have nothing to do with each other."""
    REPEATED = "repeated"
    """A pair that the page asks, once more, its sides exchanged where they can be."""


@dataclass(frozen=True, slots=True)
class SimilarityQuestion:
    """Two items at one place (from 1) of a page; their numbers are within their sides."""

    place: int
    task: Likeness
    role: SimilarityRole
    left: int
    """Of SITS the image; of two items of one side the smaller number."""
    right: int
    swapped: bool = False
    """Whether the right item is shown first."""

    @property
    def first(self) -> int:
        """The item that is shown first."""
        return self.right if self.swapped else self.left

    @property
    def second(self) -> int:
        """The item that is shown second."""
        return self.left if self.swapped else self.right

    @property
    def pair(self) -> tuple[int, int]:
        """What is compared, whichever is shown first."""
        return self.left, self.right


@dataclass(frozen=True, slots=True)
class GivenRating:
    """What a worker gave at one place, as parsed; ``score`` is None unless answered."""

    place: int
    outcome: Outcome
    score: float | None
    text: str = ""
    """The worker's own words."""
    active_ms: int | None = None


TASKS, METHODS, SIMILARITY_ROLES = tuple(Likeness), tuple(SamplingMethod), tuple(SimilarityRole)

SAMPLES: Schema = {
    "pair": ("int64", "row of the pair in the database"),
    "task": ("int8", "place in Likeness"),
    "first": ("int64", "the item that chose the other; of SITS the image"),
    "second": ("int64", "the item that was chosen; of SITS the caption"),
    "method": ("int8", "place in SamplingMethod"),
    "encoder": ("category", "whose similarity chose it; empty where none did"),
    "rank": ("int32", "of the second item among the first one's neighbours, from 1; 0 where there is none"),
    "similarity": (
        "float64",
        "the encoder's, of the items that stood for these two; NaN where there is none",
    ),
}
"""A row for each pair, order, method and encoder that sampled it; numbers of items are within their side."""

RATINGS: Schema = {
    "pair": ("int64", "row of the pair in the database"),
    "task": ("int8", "place in Likeness"),
    "worker": ("category", "id on the requester API, or a pseudonym"),
    "score": ("float64", "0 to 5; NaN unless answered"),
    "outcome": ("int8", "place in Outcome"),
    "role": ("int8", "place in SimilarityRole"),
    "swapped": ("bool", "whether the right item of the pair was shown first"),
    "hit": ("int64", "row of the HIT"),
    "assignment": ("int64", "row of the submission; ascending in the order of arrival"),
    "place": ("int64", "on the page, from 1; ascending within a submission"),
    "active_ms": ("int64", "milliseconds; 0 where nothing was measured"),
    "usable": (
        "bool",
        "whether it may count: the submission was kept, the worker is not excluded, and has not rated the pair before",
    ),
}
"""Every answer of an environment to a question of similarity, controls among them."""
