"""A worker's answers to a QuestionForm: read from a sent page, held against the form, written as XML.

On the page a question's field is named by its place (``q1``, ``q2`` …) and a choice is the option's place, so
that the requester's identifiers, which may be any text, never become names in the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mitl.crowd_server.protocol.question_form import Field, FreeText, Question, QuestionForm, Selection
from mitl.protocol.answer_xml import ANSWERS_NAMESPACE, xml_ascii

OTHER = "other"
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,15}(?:[.][0-9]{0,15})?|[.][0-9]{1,15})")


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered to one question."""

    question: Question
    text: str = ""
    """Free text, or what was written beside a selection, which counts only with ``other``."""
    chosen: tuple[int, ...] = ()
    """Places of the options, from 1."""
    other: bool = False
    unknown: bool = False
    """Whether something was sent that is no option."""

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


def _answer(place: int, question: Question, sent: Mapping[str, list[str]]) -> Answer:
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
    if not _NUMBER.fullmatch(text):
        return "Please write a number."
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
    made = "".join(
        f"<Answer><QuestionIdentifier>{xml_ascii(answer.question.identifier)}</QuestionIdentifier>"
        f"{_values(answer)}</Answer>"
        for answer in answers
        if answer.given
    )
    return (
        '<?xml version="1.0" encoding="ASCII"?>'
        f'<QuestionFormAnswers xmlns="{ANSWERS_NAMESPACE}">{made}</QuestionFormAnswers>'
    )


def _values(answer: Answer) -> str:
    if isinstance(answer.question.field, FreeText):
        return f"<FreeText>{xml_ascii(answer.text)}</FreeText>"
    made = "".join(
        f"<SelectionIdentifier>{xml_ascii(one)}</SelectionIdentifier>" for one in answer.identifiers
    )
    return made + (
        f"<OtherSelectionText>{xml_ascii(answer.text)}</OtherSelectionText>" if answer.other else ""
    )
