"""The ratings of one page, checked place by place; what is odd becomes a finding, never an exception.

A slider that nobody touched sends nothing, or an empty text, and counts as no answer. The findings are those of pages
of pairs (see `mitl.crowd.answers`), with ``answer_ignored`` for a score beside the outcome ``skipped`` or
``image_failed``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from mitl.crowd.answer_parts import FindingLog, active_time, outcome_beside, own_words, parse_page, shown
from mitl.records import Outcome, Parsed
from mitl.records.questions import TEXT, Question
from mitl.records.similarity import HIGHEST, LOWEST, GivenRating

_SCORE = re.compile(r"(?=\.?[0-9])0{0,8}[0-9]?(\.[0-9]{1,2}0{0,8})?", re.ASCII)
"""A browser without scripts shows a field for numbers, and sends what was typed: ``.5`` and ``3.500`` too."""


def parse_ratings(
    xml: str | bytes, *, places: Collection[int], questions: Sequence[Question] = ()
) -> Parsed[GivenRating]:
    """The ratings of one assignment by rising place, with everything that was odd about them.

    Args:
        xml: QuestionFormAnswers XML.
        places: the places (from 1) of the HIT.
        questions: what the page asked besides; a comment in own words is read whether or not it did.

    Raises:
        AnswerError: the document cannot be read at all; the caller keeps that as a finding.
    """
    kinds = {"score", "outcome", "ms", TEXT.name, *(question.name for question in questions)}
    return parse_page(xml, places, kinds, _answer)


def _answer(place: int, fields: dict[str, list[str]], findings: FindingLog) -> GivenRating | None:
    score = _score(place, fields.get("score", []), findings)
    outcome = outcome_beside(place, fields, None if score is None else f"{score:.2f}", findings)
    if outcome is None:
        return None
    return GivenRating(
        place=place,
        outcome=outcome,
        score=score if outcome is Outcome.ANSWERED else None,
        text=own_words(place, fields.get(TEXT.name, []), findings),
        active_ms=active_time(place, fields.get("ms", []), findings),
    )


def _score(place: int, values: Sequence[str], findings: FindingLog) -> float | None:
    """0 to 5 in steps of 0.01; None where nothing was set, or nothing that could be meant."""
    if len(values) > 1:
        findings.add("duplicate_field", f"p{place:02d}_score came {len(values)} times")
    given = {value.strip() for value in values} - {""}
    for value in sorted(given):
        if not _SCORE.fullmatch(value) or not LOWEST <= float(value) <= HIGHEST:
            findings.add(
                "bad_value", f"p{place:02d}_score is {shown(value)}; 0.00 to 5.00 in steps of 0.01 are right"
            )
            return None
    scores = {float(value) for value in given}
    return scores.pop() if len(scores) == 1 else None
