"""The answers of one assignment, checked place by place; what is odd becomes a finding, never an exception.

The page promises nothing: workers' scripts add fields, forms are posted by hand, and the crowd checks no values.
What is odd, with the rule that holds for it:

- ``duplicate_field``: a field came more than once. Equal label or outcome values count once; differing ones
  leave the place unanswered, since nothing tells which was meant. Answers to a question that takes several choices
  are united (a form repeats them anyway, so they give no finding), differing texts joined by a line break, and of
  several times the longest counts.
- ``label_ignored``: a label beside the outcome ``skipped`` or ``image_failed``; the outcome counts. On a page of
  rankings it is ``answer_ignored``, for a preference.
- ``unasked_rationale``: an answer to a question that the page does not ask of this pair; kept as given.
- ``missing_rationale``: no answer where the page insists on one.
- ``missing_answer``: the place has no usable answer; it is left out of the answers, and no other place is.
- ``unknown_field``, ``unknown_place``, ``bad_value``, ``unreadable``: left out. ``more_findings`` counts
  those over 100 of a code.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache, partial
from itertools import chain

from mitl.crowd.answer_parts import (
    FindingLog,
    active_time,
    one_choice,
    outcome_beside,
    own_words,
    parse_page,
    several_choices,
    single,
)
from mitl.records import ComparisonAnswer, Label, Outcome, Parsed, PlaceAnswer, Preference
from mitl.records.questions import LABEL, Given, Question, QuestionType


def parse_answers(
    xml: str | bytes, *, places: Collection[int], questions: Sequence[Question]
) -> Parsed[PlaceAnswer]:
    """As ``parse_page``, of a page of pairs, which asks these questions besides the label."""
    meanings = _known(tuple(questions))

    def answer_of(place: int, fields: dict[str, list[str]], findings: FindingLog) -> PlaceAnswer | None:
        said = tuple((kind, *values) for kind, values in fields.items() if kind != "ms")
        meant = meanings.get(said)
        if meant is None:
            before = len(findings)
            meant = _meant(place, fields, questions, findings)
            is_short = sum(map(len, chain.from_iterable(said))) < _SHORT
            if meant and len(findings) == before and is_short and len(meanings) < _MOST:
                meanings[said] = meant
        return meant and PlaceAnswer(place, *meant, active_time(place, fields.get("ms", []), findings))

    return parse_page(xml, places=places, questions=questions, kinds=(LABEL,), answer_of=answer_of)


_Meant = tuple[Outcome, Label | None, Given]
_SHORT, _MOST = 500, 4096


@lru_cache(maxsize=64)
def _known(questions: tuple[Question, ...]) -> dict[tuple[tuple[str, ...], ...], _Meant]:
    """What the fields of a place mean, of short ones about which nothing is odd: most places say what others said."""
    return {}


def _meant(
    place: int, fields: dict[str, list[str]], questions: Sequence[Question], findings: FindingLog
) -> _Meant | None:
    label = single(place, LABEL, fields, Label, findings)
    said = None if label is None else label.value
    outcome = outcome_beside(place, fields, said, findings, ignored="label_ignored", verb="labelled")
    if outcome is None:
        return None
    if outcome is not Outcome.ANSWERED:
        label = None
    chosen = {
        question.name: values
        for question in questions
        if question.name in fields and (values := _values(place, question, fields, findings))
    }
    _check(place, label, questions, chosen, findings)
    return outcome, label, chosen


def _values(
    place: int, question: Question, fields: dict[str, list[str]], findings: FindingLog
) -> tuple[str, ...]:
    if question.type is QuestionType.TEXT:
        text = own_words(place, fields[question.name], findings, question.name)
        return (text,) if text else ()
    if question.type is QuestionType.CHOICES:
        return several_choices(place, question.name, fields, question.values, findings)
    choice = one_choice(place, question.name, fields, question.values, findings)
    return () if choice is None else (choice,)


def _check(
    place: int, label: Label | None, questions: Sequence[Question], given: Given, findings: FindingLog
) -> None:
    """Note answers that are missing, and choices that were made where nothing was asked."""
    by_name = {question.name: question for question in questions}
    unasked = []
    for question in questions:
        if question.is_asked(label, given):
            if question.required and label is not None and question.name not in given:
                findings.add("missing_rationale", f"place {place} is {label.value} without {question.noun}")
        elif question.choices and question.name in given:
            unasked.append(question)
    for question in unasked:
        root = question
        while root.when is not None and root.when.question in by_name:
            root = by_name[root.when.question]
        if not root.is_asked(label, given):
            answer = "not answered" if label is None else label.value
            findings.add("unasked_rationale", f"place {place} is {answer}, yet gives reasons")
            return
    for question in unasked:
        assert question.when is not None, "what has no condition is always asked"
        needed = " or ".join(question.when.values)
        findings.add("unasked_rationale", f"place {place} names {question.column} without {needed}")


def _comparison(place: int, fields: dict[str, list[str]], findings: FindingLog) -> ComparisonAnswer | None:
    answer = single(place, "prefer", fields, Preference, findings)
    outcome = outcome_beside(place, fields, None if answer is None else answer.value, findings)
    if outcome is None:
        return None
    return ComparisonAnswer(
        place=place,
        outcome=outcome,
        answer=answer if outcome is Outcome.ANSWERED else None,
        text=own_words(place, fields.get("text", []), findings),
        active_ms=active_time(place, fields.get("ms", []), findings),
    )


parse_comparisons = partial(parse_page, kinds=("prefer",), answer_of=_comparison)
"""As ``parse_page``, of a page of rankings; reasons in own words are all that it may ask besides."""
