"""The answers of one page of rankings, checked place by place; what is odd becomes a finding, never an exception.

The findings are those of pages of pairs (see `mitl.crowd.answers`), with ``answer_ignored`` for a preference beside
the outcome ``skipped`` or ``image_failed``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mitl.crowd.answer_parts import FindingLog, active_time, outcome_beside, own_words, parse_page, single
from mitl.records import ComparisonAnswer, Outcome, Parsed, Preference
from mitl.records.questions import Question

_KINDS = frozenset({"prefer", "outcome", "ms"})


def parse_comparisons(
    xml: str | bytes, *, places: Collection[int], questions: Sequence[Question]
) -> Parsed[ComparisonAnswer]:
    """The answers of one assignment by rising place, with everything that was odd about them.

    Args:
        xml: QuestionFormAnswers XML.
        places: the places (from 1) of the HIT.
        questions: what the page asked besides; reasons in own words are all that it may.

    Raises:
        AnswerError: the document cannot be read at all; the caller keeps that as a finding.
    """
    return parse_page(xml, places, _KINDS | {question.name for question in questions}, _answer)


def _answer(place: int, fields: dict[str, list[str]], findings: FindingLog) -> ComparisonAnswer | None:
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
