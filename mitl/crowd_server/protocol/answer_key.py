"""AnswerKey XML: what the answers of a test count, and which value a qualification gets for them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import TypeAlias
from xml.etree.ElementTree import Element

from mitl.crowd_server.protocol import turk_xml
from mitl.crowd_server.protocol.question_form import QuestionForm, Selection

VERSIONS = ("2005-10-01",)
_INT = 2**31 - 1
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class KeyQuestion:
    """What a question's answers count; a selection counts only where it is exactly that of an option."""

    identifier: str
    scores: Mapping[frozenset[str], int]
    default: int


@dataclass(frozen=True, slots=True)
class Percentage:
    """The value is the share of a greatest sum, in percent."""

    maximum: int


@dataclass(frozen=True, slots=True)
class Scale:
    """The value is the sum times a factor."""

    multiplier: Decimal


@dataclass(frozen=True, slots=True)
class Ranges:
    """The value is that of the range (low, high, value) in which the sum lies; both ends belong to it."""

    ranges: tuple[tuple[int, int, int], ...]
    outside: int


Mapped: TypeAlias = Percentage | Scale | Ranges


@dataclass(frozen=True, slots=True)
class AnswerKey:
    """The scores of a test's questions and the way from their sum to a value."""

    questions: tuple[KeyQuestion, ...]
    mapping: Mapped | None

    def value(self, selections: Mapping[str, Set[str]]) -> int:
        """The qualification's value for the selections by question; rounded half away from zero, 32 bits."""
        total = sum(
            question.scores.get(frozenset(selections.get(question.identifier, ())), question.default)
            for question in self.questions
        )
        return max(-_INT, min(_INT, _mapped(self.mapping, total)))


def parse(xml: str, form: QuestionForm) -> AnswerKey:
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
    return AnswerKey(tuple(questions), mapping)


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
    known = _selections(identifier, form)
    scores: dict[frozenset[str], int] = {}
    for option in options:
        chosen, score = _option(option, known)
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
    found = turk_xml.children(element, kinds)
    if len(found) != 1:
        raise turk_xml.refusal(f"QualificationValueMapping must hold exactly one of {', '.join(kinds)}.")
    own = found[0]
    if turk_xml.name(own) == "PercentageMapping":
        maximum = turk_xml.fields(own, ("MaximumSummedScore",))["MaximumSummedScore"]
        return Percentage(turk_xml.integer(maximum, 1, _INT))
    if turk_xml.name(own) == "ScaleMapping":
        text = turk_xml.text(turk_xml.fields(own, ("SummedScoreMultiplier",))["SummedScoreMultiplier"])
        if not _DECIMAL.fullmatch(text):
            raise turk_xml.refusal(
                f"SummedScoreMultiplier is {text[:40]!r}, but must be a number such as 2.5."
            )
        return Scale(Decimal(text))
    return _ranges(own)


def _ranges(element: Element) -> Ranges:
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
    return Ranges(tuple(ranges), outside)


def _mapped(mapping: Mapped | None, total: int) -> int:
    match mapping:
        case None:
            return total
        case Percentage(maximum):
            return _rounded(Decimal(total) * 100 / maximum)
        case Scale(multiplier):
            return _rounded(total * multiplier)
        case Ranges(ranges, outside):
            return next((value for low, high, value in ranges if low <= total <= high), outside)


def _rounded(value: Decimal) -> int:
    return int(value.to_integral_value(ROUND_HALF_UP))
