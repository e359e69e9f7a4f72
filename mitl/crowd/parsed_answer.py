"""The answer in a row of the official ``mturk_parsed.csv``; what is odd becomes a finding, never an exception."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from mitl.records import Finding, Label, Outcome, PlaceAnswer
from mitl.records.questions import RATIONALE, Question, given_answers

ANSWER_COLUMNS = ("annotation", "shortcoming", "shortcoming2")
_NOTHING = {"", "nan", "none", "null", "na", "[]", "-"}
_CODES = re.compile(r"[\[(]?\d{1,6}(?:\.0)?(?:[|,; ] ?\d{1,6}(?:\.0)?)*[\])]?", re.ASCII)


def official_answer(cells: Mapping[str, str], place: int = 1) -> tuple[PlaceAnswer | None, list[Finding]]:
    """The answer of a judgement by one of its rows, None where it has none, and what was odd about it."""
    answer, findings = _answer(*(cells.get(column, "") for column in ANSWER_COLUMNS), place)
    return answer, list(findings)


@lru_cache(maxsize=1024)
def _answer(
    annotation: str, shortcoming: str, shortcoming2: str, place: int
) -> tuple[PlaceAnswer | None, tuple[Finding, ...]]:
    """Kept, since a file of thousands of rows has few different answers."""
    cells = dict(zip(ANSWER_COLUMNS, (annotation, shortcoming, shortcoming2), strict=True))
    findings: list[Finding] = []
    codes = _codes(cells, "annotation", findings)
    if len(codes) != 1 or not 1 <= codes[0] <= len(Label):
        findings.append(Finding("missing_answer", f"annotation is {annotation[:80]!r}; known: 1 to 4"))
        return None, tuple(findings)
    answer = PlaceAnswer(
        place=place,
        outcome=Outcome.ANSWERED,
        label=Label.from_code(codes[0]),
        given=given_answers(
            **{question.name: _chosen(cells, question, findings) for question in RATIONALE if question.csv}
        ),
    )
    return answer, tuple(findings)


def _chosen(cells: Mapping[str, str], question: Question, findings: list[Finding]) -> list[str]:
    codes = _codes(cells, question.csv, findings)
    known = {choice.code: choice.value for choice in question.choices}
    for code in codes:
        if code not in known:
            findings.append(Finding("bad_value", f"{question.csv} is {code}; known: 1 to {len(known)}"))
    return [value for code, value in known.items() if code in codes]


def _codes(cells: Mapping[str, str], column: str, findings: list[Finding]) -> list[int]:
    text = cells.get(column, "").strip()
    if text.lower() in _NOTHING:
        return []
    if not _CODES.fullmatch(text):
        findings.append(Finding("bad_value", f"{column} is {text[:80]!a}, but numbers are wanted"))
        return []
    return [int(number) for number in re.findall(r"(\d+)(?:\.0)?", text)]
