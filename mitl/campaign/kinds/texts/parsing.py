"""The texts, picks and reviews of one page, place by place; what is odd becomes a finding, never an exception."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from mitl.crowd.answer_parts import (
    FindingLog,
    active_time,
    one_choice,
    outcome_beside,
    own_words,
    parse_page,
    shown,
    single,
)
from mitl.records import Label, Outcome, Parsed
from mitl.records.collection import GivenText
from mitl.records.questions import TEXT, Question

PICK = "pick"
MOST_OFFERED = 12
_FIELDS = {TEXT.name, PICK, "label", "outcome", "ms"}
_BLANKS = re.compile(r"\s+")


def parse_texts(
    xml: str | bytes, *, places: Collection[int], questions: Sequence[Question] = ()
) -> Parsed[GivenText]:
    """The answers of one assignment by rising place, with everything that was odd about them.

    Args:
        xml: QuestionFormAnswers XML.
        places: the places (from 1) of the HIT.
        questions: what a wording asks besides; pages that collect ask nothing else.

    Raises:
        AnswerError: the document cannot be read at all; the caller keeps that as a finding.
    """
    return parse_page(xml, places, _FIELDS, _answer)


def _answer(place: int, fields: dict[str, list[str]], findings: FindingLog) -> GivenText | None:
    text = _BLANKS.sub(" ", own_words(place, fields.get(TEXT.name, []), findings)).strip()
    picks = tuple(map(str, range(MOST_OFFERED + 1)))
    pick = one_choice(place, PICK, fields, picks, findings)
    label = single(place, "label", fields, Label, findings)
    has_answer = bool(text) or pick is not None or label is not None
    outcome = outcome_beside(place, fields, shown(text) if has_answer else None, findings)
    if outcome is None:
        return None
    if outcome is not Outcome.ANSWERED:
        text, pick, label = "", None, None
    return GivenText(
        place=place,
        outcome=outcome,
        text=text,
        pick=None if pick is None else int(pick),
        label=label,
        active_ms=active_time(place, fields.get("ms", []), findings),
    )
