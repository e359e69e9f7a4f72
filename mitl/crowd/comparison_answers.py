"""The answers of one page of rankings, checked place by place; what is odd becomes a finding, never an exception.

The findings are those of pages of pairs (see `mitl.crowd.answers`), with ``answer_ignored`` for a preference beside
the outcome ``skipped`` or ``image_failed``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mitl.crowd.answer_parts import Findings, active_time, expanded, own_words, single, sort_fields
from mitl.protocol.answer_xml import answer_fields
from mitl.records import ComparisonAnswer, Outcome, ParsedComparisons, Preference
from mitl.records.questions import Question

_KINDS = frozenset({"prefer", "outcome", "ms"})


def parse_comparisons(
    xml: str | bytes, *, places: Collection[int], questions: Sequence[Question]
) -> ParsedComparisons:
    """The answers of one assignment by rising place, with everything that was odd about them.

    Args:
        xml: QuestionFormAnswers XML.
        places: the places (from 1) of the HIT.
        questions: what the page asked besides; reasons in own words are all that it may.

    Raises:
        AnswerError: the document cannot be read at all; the caller keeps that as a finding.
    """
    findings = Findings()
    kinds = _KINDS | {question.name for question in questions}
    by_place = sort_fields(expanded(answer_fields(xml), findings), places, kinds, findings)
    answers = [
        answer
        for place in sorted(places)
        if (answer := _answer(place, by_place.get(place, {}), findings)) is not None
    ]
    return ParsedComparisons(tuple(answers), findings.all())


def _answer(place: int, fields: dict[str, list[str]], findings: Findings) -> ComparisonAnswer | None:
    answer = single(place, "prefer", fields, Preference, findings)
    outcome = single(place, "outcome", fields, Outcome, findings)
    if outcome is None and "outcome" not in fields and answer is not None:
        outcome = Outcome.ANSWERED  # a preference alone says as much
    if outcome is None or (outcome is Outcome.ANSWERED and answer is None):
        findings.add("missing_answer", f"place {place} has no usable answer")
        return None
    if outcome is not Outcome.ANSWERED and answer is not None:
        findings.add("answer_ignored", f"place {place} is {outcome.value}, yet answered {answer.value}")
        answer = None
    return ComparisonAnswer(
        place=place,
        outcome=outcome,
        answer=answer,
        text=own_words(place, fields.get("text", []), findings),
        active_ms=active_time(place, fields.get("ms", []), findings),
    )
