"""A worker's answers to a QuestionForm, read from a sent page, checked and written as XML, and its AnswerKey.

On the page a question's field is named by its place (``q1``, ``q2`` …) and a choice is the option's place, so
that the requester's identifiers, which may be any text, never become names in the page.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import TypeAlias
from xml.etree.ElementTree import Element

from mitl.crowd_server.protocol import turk_xml
from mitl.crowd_server.protocol.question_form import (
    NUMBER,
    Field,
    FormQuestion,
    FreeText,
    QuestionForm,
    Selection,
)
from mitl.protocol.answer_xml import ANSWERS_NAMESPACE, xml_ascii

OTHER = "other"


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered to one question."""

    question: FormQuestion
    text: str = ""
    """Free text, or what was written beside a selection, which counts only with ``other``."""
    chosen: tuple[int, ...] = ()
    """Places of the options, from 1."""
    other: bool = False
    unknown: bool = False
    """Whether something was sent that is not an option."""

    @property
    def given(self) -> bool:
        """Whether there is an answer."""
        return bool(self.chosen or self.other or (self.text and isinstance(self.question.field, FreeText)))

    @property
    def identifiers(self) -> tuple[str, ...]:
        """The chosen options."""
        assert isinstance(self.question.field, Selection)
        return tuple(self.question.field.options[place - 1].identifier for place in self.chosen)


def blank(form: QuestionForm) -> tuple[Answer, ...]:
    """What a form shows before it is answered: the texts that its fields start with."""
    return tuple(Answer(question, _default(question.field)) for question in form.questions)


def _default(field: Field) -> str:
    if isinstance(field, FreeText):
        return field.default
    return "" if field.other is None else field.other.default


def read(form: QuestionForm, fields: Iterable[tuple[str, str]]) -> tuple[Answer, ...]:
    """An answer for each question, from the fields of a sent page."""
    sent: dict[str, list[str]] = {}
    for name, value in fields:
        # Browsers send line ends as two characters, which would count twice against a length.
        sent.setdefault(name, []).append(value.replace("\r\n", "\n"))
    return tuple(_answer(place, question, sent) for place, question in enumerate(form.questions, 1))


def _answer(place: int, question: FormQuestion, sent: Mapping[str, list[str]]) -> Answer:
    values = sent.get(f"q{place}", [])
    if isinstance(question.field, FreeText):
        return Answer(question, values[0] if values else "")
    field = question.field
    text = sent.get(f"q{place}_other", [""])[0]
    picked = set(values) - {""}
    # A text beside a list counts without a mark of its own; beside marks, only with it.
    marked = OTHER in picked or (field.style == "dropdown" and bool(text.strip()))
    other = marked and field.other is not None
    places = {str(number): number for number in range(1, len(field.options) + 1)}
    chosen = tuple(sorted(places[value] for value in picked if value in places))
    known = places.keys() | ({OTHER} if field.other is not None else set())
    return Answer(question, text, chosen, other, not picked <= known)


def problem(answer: Answer) -> str:
    """What keeps an answer from being taken, in words for the worker; empty where nothing does."""
    if isinstance(answer.question.field, FreeText):
        return _text_problem(answer.question.field, answer.text, answer.question.required)
    return _selection_problem(answer.question.field, answer)


def _text_problem(field: FreeText, text: str, required: bool) -> str:
    if not text:
        return "Please answer this question." if required else ""
    if len(text) < field.shortest:
        return f"Please write at least {field.shortest} characters; there are {len(text)}."
    if len(text) > field.longest:
        return f"Please write at most {field.longest:,} characters; there are {len(text):,}."
    if field.numeric:
        return _number_problem(field, text.strip())
    return ""


def _number_problem(field: FreeText, text: str) -> str:
    if not re.fullmatch(NUMBER.regex, text):
        return NUMBER.message
    value = float(text)
    if field.lowest is not None and value < field.lowest:
        return f"Please write a number of at least {field.lowest}."
    if field.highest is not None and value > field.highest:
        return f"Please write a number of at most {field.highest}."
    return ""


def _selection_problem(field: Selection, answer: Answer) -> str:
    if answer.unknown:
        return "Please choose among the options shown."
    count = len(answer.chosen) + answer.other
    if count == 0:
        return "Please choose an answer." if answer.question.required else ""
    if count < field.fewest:
        return f"Please choose at least {field.fewest}; {count} is chosen."
    if count > field.most:
        return "Please choose one answer only." if field.most == 1 else f"Please choose at most {field.most}."
    if answer.other and field.other is not None:
        return _text_problem(field.other, answer.text, required=True)
    return ""


def xml(answers: Iterable[Answer]) -> str:
    """QuestionFormAnswers XML of the answers that were given: ASCII with character references."""
    elements = "".join(
        f"<Answer><QuestionIdentifier>{xml_ascii(answer.question.identifier)}</QuestionIdentifier>"
        f"{_values(answer)}</Answer>"
        for answer in answers
        if answer.given
    )
    return (
        '<?xml version="1.0" encoding="ASCII"?>'
        f'<QuestionFormAnswers xmlns="{ANSWERS_NAMESPACE}">{elements}</QuestionFormAnswers>'
    )


def _values(answer: Answer) -> str:
    if isinstance(answer.question.field, FreeText):
        return f"<FreeText>{xml_ascii(answer.text)}</FreeText>"
    elements = "".join(
        f"<SelectionIdentifier>{xml_ascii(option)}</SelectionIdentifier>" for option in answer.identifiers
    )
    return elements + (
        f"<OtherSelectionText>{xml_ascii(answer.text)}</OtherSelectionText>" if answer.other else ""
    )


VERSIONS = ("2005-10-01",)
_INT = 2**31 - 1
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class KeyQuestion:
    """What a question's answers count; a selection counts only where it is exactly that of an option."""

    identifier: str
    scores: Mapping[frozenset[str], int]
    default: int


Mapped: TypeAlias = Callable[[int], int]
"""The sum of a test's scores → the qualification's value."""


@dataclass(frozen=True, slots=True)
class AnswerKey:
    """The scores of a test's questions and the way from their sum to a value."""

    questions: tuple[KeyQuestion, ...]
    mapping: Mapped

    def value(self, selections: Mapping[str, Set[str]]) -> int:
        """The qualification's value for the selections by question; rounded half away from zero, 32 bits."""
        total = sum(
            question.scores.get(frozenset(selections.get(question.identifier, ())), question.default)
            for question in self.questions
        )
        return max(-_INT, min(_INT, self.mapping(total)))


def read_key(xml: str, form: QuestionForm) -> AnswerKey:
    """The key of this XML for the questions of ``form``.

    Raises:
        TurkError: it is over 65,535 bytes, malformed, not of the schema, does not fit the form, or the form has
            free text, which no key can match.
    """
    root = turk_xml.parse("AnswerKey", xml, "AnswerKey", VERSIONS)
    _refuse_free_text(form)
    questions: list[KeyQuestion] = []
    mapping: Mapped | None = None
    for child in turk_xml.children(root, ("Question", "QualificationValueMapping")):
        if turk_xml.name(child) == "Question":
            questions.append(_question(child, form))
        elif mapping is not None:
            raise turk_xml.refusal("The AnswerKey holds QualificationValueMapping twice.")
        else:
            mapping = _mapping(child)
    if not questions:
        raise turk_xml.refusal("The AnswerKey has no Question.")
    if len({question.identifier for question in questions}) < len(questions):
        raise turk_xml.refusal("The AnswerKey has two Questions of the same QuestionIdentifier.")
    return AnswerKey(tuple(questions), mapping or int)


def _refuse_free_text(form: QuestionForm) -> None:
    for question in form.questions:
        if not isinstance(question.field, Selection) or question.field.other is not None:
            raise turk_xml.refusal(
                f"Question {question.identifier[:80]} takes free text, which an AnswerKey cannot match; "
                "leave the AnswerKey out and decide the requests."
            )


def _question(element: Element, form: QuestionForm) -> KeyQuestion:
    identifier, default, options = "", 0, []
    for child in turk_xml.children(element, ("QuestionIdentifier", "AnswerOption", "DefaultScore")):
        if turk_xml.name(child) == "QuestionIdentifier":
            identifier = turk_xml.text(child)
        elif turk_xml.name(child) == "DefaultScore":
            default = turk_xml.integer(child, -_INT, _INT)
        else:
            options.append(child)
    if not options:
        raise turk_xml.refusal(f"Question {identifier[:80]} of the AnswerKey has no AnswerOption.")
    selections = _selections(identifier, form)
    scores: dict[frozenset[str], int] = {}
    for option in options:
        chosen, score = _option(option, selections)
        if chosen in scores:
            raise turk_xml.refusal(
                f"Question {identifier[:80]} has two AnswerOptions of the same selections."
            )
        scores[chosen] = score
    return KeyQuestion(identifier, scores, default)


def _selections(identifier: str, form: QuestionForm) -> frozenset[str]:
    for question in form.questions:
        if question.identifier == identifier and isinstance(question.field, Selection):
            return frozenset(option.identifier for option in question.field.options)
    raise turk_xml.refusal(f"The Test has no Question {identifier[:80]!r}, which the AnswerKey scores.")


def _option(element: Element, known: frozenset[str]) -> tuple[frozenset[str], int]:
    chosen: set[str] = set()
    score: int | None = None
    for child in turk_xml.children(element, ("SelectionIdentifier", "AnswerScore")):
        if turk_xml.name(child) == "AnswerScore":
            score = turk_xml.integer(child, -_INT, _INT)
        else:
            chosen.add(turk_xml.text(child))
    if not chosen or score is None:
        raise turk_xml.refusal("An AnswerOption must hold SelectionIdentifiers and an AnswerScore.")
    if not chosen <= known:
        raise turk_xml.refusal(f"The Test has no Selection {min(chosen - known)[:80]!r} in that Question.")
    return frozenset(chosen), score


def _mapping(element: Element) -> Mapped:
    kinds = ("PercentageMapping", "ScaleMapping", "RangeMapping")
    mappings = turk_xml.children(element, kinds)
    if len(mappings) != 1:
        raise turk_xml.refusal(f"QualificationValueMapping must hold exactly one of {', '.join(kinds)}.")
    mapping = mappings[0]
    if turk_xml.name(mapping) == "PercentageMapping":
        maximum = turk_xml.fields(mapping, ("MaximumSummedScore",))["MaximumSummedScore"]
        most = turk_xml.integer(maximum, 1, _INT)
        return lambda total: _rounded(Decimal(total) * 100 / most)
    if turk_xml.name(mapping) == "ScaleMapping":
        text = turk_xml.text(turk_xml.fields(mapping, ("SummedScoreMultiplier",))["SummedScoreMultiplier"])
        if not _DECIMAL.fullmatch(text):
            raise turk_xml.refusal(
                f"SummedScoreMultiplier is {text[:40]!r}, but must be a number such as 2.5."
            )
        return lambda total: _rounded(total * Decimal(text))
    return _ranges(mapping)


def _ranges(element: Element) -> Mapped:
    """Both ends belong to a range."""
    names = ("InclusiveLowerBound", "InclusiveUpperBound", "QualificationValue")
    ranges: list[tuple[int, int, int]] = []
    outside: int | None = None
    for child in turk_xml.children(element, ("SummedScoreRange", "OutOfRangeQualificationValue")):
        if turk_xml.name(child) == "OutOfRangeQualificationValue":
            outside = turk_xml.integer(child, -_INT, _INT)
            continue
        parts = turk_xml.fields(child, names)
        low, high, value = (turk_xml.integer(parts[name], -_INT, _INT) for name in names)
        if low > high:
            raise turk_xml.refusal(f"A SummedScoreRange goes from {low} down to {high}.")
        ranges.append((low, high, value))
    if not ranges or outside is None:
        raise turk_xml.refusal(
            "RangeMapping must hold SummedScoreRanges and an OutOfRangeQualificationValue."
        )
    ranges.sort()
    for (_, high, _), (low, _, _) in itertools.pairwise(ranges):
        if low <= high:
            raise turk_xml.refusal(f"Two SummedScoreRanges overlap at {low}.")
    return lambda total: next((value for low, high, value in ranges if low <= total <= high), outside)


def _rounded(value: Decimal) -> int:
    return int(value.to_integral_value(ROUND_HALF_UP))
