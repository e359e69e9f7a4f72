"""The questions that a page asks of each pair besides how well it matches, and which answers pass a gold control.

A template declares the questions, see `mitl.hits.templates`; parsing, storage, frames, releases, the desk and the
report iterate over what is declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mitl.records.enums import Concept, Label, PairRole, Shortcoming

Given = Mapping[str, tuple[str, ...]]
"""Name of a question → what was answered, choices in their declared order; a question without an answer is left out."""

MOST_TRIES = 3
"""Times that a text, a review or a rating may be asked in vain, as skipped or not seen: it is asked no more then."""

LABEL = "label"
"""The field of the main question; a condition may name it."""


class QuestionType(StrEnum):
    """How a question is answered."""

    CHOICE = "choice"
    CHOICES = "choices"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the answers that a question offers."""

    value: str
    """As forms send it and the database keeps it."""
    text: str
    """As the page shows it."""
    code: int
    """In the official CSV."""
    said: str = ""
    """As the desk says it; by default the value."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A question is asked where another one, or the main one, has any of these answers."""

    question: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """One question, asked at every place of a page."""

    name: str
    """Each place's field ``pNN_<name>`` holds the answer; ``rationale.kind`` keeps it."""
    type: QuestionType
    text: str
    """As the page asks it."""
    choices: tuple[Choice, ...] = ()
    when: Condition | None = None
    """None asks it of every pair."""
    required: bool = False
    """Whether the page insists on an answer where it asks."""
    column: str = ""
    """In frames and ``judgements.parquet``."""
    csv: str = ""
    """The column of ``mturk_parsed.csv``; empty for texts, which are not in it."""
    title: str = ""
    """Over tables of its answers."""
    meaning: str = ""
    """What the column holds, for those who read a release."""
    noun: str = ""
    """What is missing without an answer."""
    measured: bool = False
    """Whether the page fills it in by itself and asks nobody."""

    @property
    def values(self) -> tuple[str, ...]:
        """What may be chosen."""
        return tuple(choice.value for choice in self.choices)

    def bits(self, values: Iterable[str]) -> int:
        """A bit for each value's place among the choices."""
        order = self.values
        return sum({1 << order.index(value) for value in values})

    def chosen(self, mask: int) -> list[Choice]:
        """The choices whose bits are set."""
        return [choice for place, choice in enumerate(self.choices) if mask >> place & 1]

    def is_asked(self, label: Label | None, given: Given) -> bool:
        """Whether the page asks it of a pair with these answers."""
        if self.when is None:
            return True
        answers = (
            (() if label is None else (label,))
            if self.when.question == LABEL
            else given.get(self.when.question, ())
        )
        return not set(self.when.values).isdisjoint(answers)


def given_answers(**answers: str | Sequence[str]) -> Given:
    """Answers by question, without those that say nothing."""
    values = {
        name: (answer,) if isinstance(answer, str) else tuple(answer) for name, answer in answers.items()
    }
    return {name: value for name, value in values.items() if any(value)}


_WEAK = Condition(LABEL, (Label.WEAK_YES.value, Label.WEAK_NO.value))

SHORTCOMING = Question(
    "shortcoming",
    QuestionType.CHOICES,
    "What is wrong? The description",
    choices=tuple(
        Choice(value.value, text, value.code, said)
        for value, text, said in (
            (Shortcoming.NOT_IN_IMAGE, "names things not in the image", "describes what is not in the image"),
            (Shortcoming.NOT_DESCRIBED, "leaves out the main things", "leaves something out"),
            (
                Shortcoming.DESCRIBED_WRONGLY,
                "gets the main things wrong in some way",
                "describes something wrongly",
            ),
            (Shortcoming.GRAMMAR, "is ungrammatical or confusing", "grammar"),
        )
    ),
    when=_WEAK,
    required=True,
    column="shortcomings",
    csv="shortcoming",
    title="Shortcomings",
    meaning="What the worker found wanting in the description.",
    noun="a shortcoming",
)
"""Why a description falls short."""

_CONCEPTS = {
    Concept.COLOR: "color, material",
    Concept.SPECIES: "kind of thing",
    Concept.OTHER: "something else",
}

CONCEPT = Question(
    "concept",
    QuestionType.CHOICES,
    "In which way?",
    choices=tuple(
        Choice(concept.value, _CONCEPTS.get(concept, concept.value), concept.code) for concept in Concept
    ),
    when=Condition(SHORTCOMING.name, (Shortcoming.DESCRIBED_WRONGLY.value,)),
    column="concepts",
    csv="shortcoming2",
    title="What was described wrongly",
    meaning="What kind of thing is described wrongly.",
    noun="a concept",
)
"""What kind of thing is described wrongly."""

TEXT = Question(
    "text",
    QuestionType.TEXT,
    "Own words, if you like",
    when=_WEAK,
    column="text",
    title="Own words",
    meaning="The worker's own words, with [removed] for addresses, long numbers and ids; empty where there are none.",
    noun="a text",
)
"""In the worker's own words."""

_PLAYED = {"0": "not played", "1": "under 10 % played", "100": "played to the end"}

PLAYED = Question(
    "played",
    QuestionType.CHOICE,
    "How much of it was played",
    choices=tuple(
        Choice(value, text := _PLAYED.get(value, f"{value} % played"), code, text)
        for code, value in enumerate(("0", "1", *(f"{tens}0" for tens in range(1, 11))), 1)
    ),
    column="played",
    csv="played",
    title="How much of the sound or video was played",
    meaning="Percent of the sound or video that the worker played, rounded down to tens; 0: nothing, 1: less than ten, "
    "100: all of it, to its end.",
    noun="how much was played",
    measured=True,
)
"""How much of a sound or video the page played; without scripts nobody knows."""

RATIONALE = (SHORTCOMING, CONCEPT, TEXT)
"""What ``rationale = true`` asks of pairs; every release has the columns of the first two."""


@dataclass(frozen=True, slots=True)
class GoldRule:
    """The answers with which each kind of control passes; by default those of its own side of the scale."""

    positive: tuple[Label, ...] = (Label.YES, Label.WEAK_YES)
    negative: tuple[Label, ...] = (Label.WEAK_NO, Label.NO)

    def passes(self, role: PairRole) -> tuple[Label, ...]:
        """The answers with which a control of this role passes."""
        if not role.is_gold:
            raise ValueError(f"role is {role.value!r}, but only gold controls pass or fail")
        return self.positive if role is PairRole.GOLD_POSITIVE else self.negative

    def passed(self, role: PairRole, label: Label | None) -> bool | None:
        """Whether a control of this role was answered as expected; None where it was not answered."""
        expected = self.passes(role)
        return None if label is None else label in expected

    @property
    def text(self) -> str:
        """The rule in words."""
        either = tuple(label for label in self.positive if label in self.negative)
        positive, negative, alone = (
            " or ".join(label.value.replace("_", " ") for label in labels)
            for labels in (self.positive, self.negative, either)
        )
        rule = f"a gold positive passes with {positive}, a gold negative with {negative}"
        return f"{rule}, so that whoever answers {alone} everywhere passes every page" if alone else rule
