"""The answers of one assignment, checked place by place; what is odd becomes a finding, never an exception.

The page promises nothing: workers' scripts add fields, forms are posted by hand, and the crowd checks no values.
What is odd, with the rule that holds for it:

- ``duplicate_field``: a field came more than once. Equal label or outcome values count once; differing ones
  leave the place unanswered, since nothing tells which was meant. Shortcomings and concepts are united (a
  form repeats them anyway, so they give no finding), differing texts joined by a line break, and of several
  times the longest counts.
- ``label_ignored``: a label beside the outcome ``skipped`` or ``image_failed``; the outcome counts.
- ``unasked_rationale``: a rationale with a label that the page asks no reasons for; kept as given.
- ``missing_rationale``: no shortcoming where the page asks for one.
- ``missing_answer``: the place has no usable answer; it is left out of the answers, and no other place is.
- ``unknown_field``, ``unknown_place``, ``bad_value``, ``unreadable``: left out. ``more_findings`` counts
  those over 100 of a code.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from functools import cache
from typing import TypeVar

from mitl.crowd.answer_parts import (
    MAX_ACTIVE_MS,
    MAX_FINDINGS,
    MAX_TEXT,
    Findings,
    active_time,
    expanded,
    own_words,
    shown,
    single,
    sort_fields,
)
from mitl.protocol.answer_xml import answer_fields, answers_xml
from mitl.records import Concept, Label, Outcome, ParsedAnswers, PlaceAnswer, Shortcoming

__all__ = ["MAX_ACTIVE_MS", "MAX_FINDINGS", "MAX_TEXT", "answer_fields", "answers_xml", "parse_answers"]

_KINDS = frozenset({"label", "outcome", "ms"})
_WITH_RATIONALE = _KINDS | {"shortcoming", "concept", "text"}
_WEAK = (Label.WEAK_YES, Label.WEAK_NO)

_E = TypeVar("_E", bound=StrEnum)


def parse_answers(xml: str | bytes, *, places: Collection[int], rationale: bool) -> ParsedAnswers:
    """The answers of one assignment by rising place, with everything that was odd about them.

    Args:
        xml: QuestionFormAnswers XML, with one answer per field or with a crowd-form's single ``taskAnswers``.
        places: the places (from 1) of the HIT.
        rationale: whether the page asked why.

    Raises:
        AnswerError: the document cannot be read at all; the caller keeps that as a finding.
    """
    findings = Findings()
    kinds = _WITH_RATIONALE if rationale else _KINDS
    by_place = sort_fields(expanded(answer_fields(xml), findings), places, kinds, findings)
    answers = [
        answer
        for place in sorted(places)
        if (answer := _place_answer(place, by_place.get(place, {}), rationale, findings)) is not None
    ]
    return ParsedAnswers(tuple(answers), findings.all())


def _place_answer(
    place: int, fields: dict[str, list[str]], rationale: bool, findings: Findings
) -> PlaceAnswer | None:
    label = single(place, "label", fields, Label, findings)
    outcome = single(place, "outcome", fields, Outcome, findings)
    if outcome is None and "outcome" not in fields and label is not None:
        outcome = Outcome.ANSWERED  # a label alone says as much
    if outcome is None or (outcome is Outcome.ANSWERED and label is None):
        findings.add("missing_answer", f"place {place} has no usable answer")
        return None
    if outcome is not Outcome.ANSWERED and label is not None:
        findings.add("label_ignored", f"place {place} is {outcome.value}, yet labelled {label.value}")
        label = None
    shortcomings = _several(place, "shortcoming", fields, Shortcoming, findings)
    concepts = _several(place, "concept", fields, Concept, findings)
    if rationale:
        _check_rationale(place, label, shortcomings, concepts, findings)
    return PlaceAnswer(
        place=place,
        outcome=outcome,
        label=label,
        shortcomings=shortcomings,
        concepts=concepts,
        text=own_words(place, fields.get("text", []), findings),
        active_ms=active_time(place, fields.get("ms", []), findings),
    )


def _check_rationale(
    place: int,
    label: Label | None,
    shortcomings: tuple[Shortcoming, ...],
    concepts: tuple[Concept, ...],
    findings: Findings,
) -> None:
    if label in _WEAK and not shortcomings:
        findings.add("missing_rationale", f"place {place} is {label.value} without a shortcoming")
    if label not in _WEAK and (shortcomings or concepts):
        answer = "not answered" if label is None else label.value
        findings.add("unasked_rationale", f"place {place} is {answer}, yet gives reasons")
    elif concepts and Shortcoming.DESCRIBED_WRONGLY not in shortcomings:
        findings.add("unasked_rationale", f"place {place} names concepts without described_wrongly")


def _several(
    place: int, kind: str, fields: dict[str, list[str]], enum: type[_E], findings: Findings
) -> tuple[_E, ...]:
    """The values in the enum's own order, each once."""
    if kind not in fields:
        return ()
    values = {part.strip() for value in fields.get(kind, []) for part in value.split("|")} - {""}
    known = tuple(member for member in _members(enum) if member in values)
    for value in sorted(values.difference(known)):
        findings.add("bad_value", f"p{place:02d}_{kind} is {shown(value)}; known: {', '.join(enum)}")
    return known


@cache
def _members(enum: type[_E]) -> tuple[_E, ...]:
    return tuple(enum)
