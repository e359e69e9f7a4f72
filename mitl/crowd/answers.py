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

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from functools import cache, lru_cache
from typing import TypeVar

from mitl.crowd.answer_xml import answer_fields, answers_xml
from mitl.crowd.crowd_form import CrowdFormError, crowd_form_fields
from mitl.hits.xmltext import xml_safe
from mitl.records import Concept, Finding, Label, Outcome, ParsedAnswers, PlaceAnswer, Shortcoming

__all__ = ["answer_fields", "answers_xml", "parse_answers"]

MAX_FINDINGS = 100
"""Of each code, from one assignment."""
MAX_TEXT = 2000
"""Characters of a free text that are kept; the page accepts 300."""
MAX_ACTIVE_MS = 24 * 60 * 60 * 1000

_FIELD = re.compile(r"p(\d\d)_(label|outcome|shortcoming|concept|text|ms)", re.ASCII)
_LONGEST_NAME = len("p01_shortcoming")
_RATIONALE_KINDS = frozenset({"shortcoming", "concept", "text"})
_HARMLESS = frozenset(
    {
        "assignmentid",
        "hitid",
        "workerid",
        "turksubmitto",
        "donotredirect",
        "doredirect",
        "submit",
        "submitbutton",
    }
)
"""Fields that platforms and workers' scripts add to any form, in lower case."""
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
    findings = _Findings()
    by_place = _sort_fields(_expanded(answer_fields(xml), findings), places, rationale, findings)
    answers = [
        answer
        for place in sorted(places)
        if (answer := _place_answer(place, by_place.get(place, {}), rationale, findings)) is not None
    ]
    return ParsedAnswers(tuple(answers), findings.all())


class _Findings:
    """Collects findings, a bounded number of each code, so that a hostile answer cannot fill the database."""

    def __init__(self) -> None:
        self._kept: list[Finding] = []
        self._counts: Counter[str] = Counter()

    def add(self, code: str, detail: str) -> None:
        self._counts[code] += 1
        if self._counts[code] <= MAX_FINDINGS:
            self._kept.append(Finding(code, detail))

    def all(self) -> tuple[Finding, ...]:
        dropped = self._counts.total() - len(self._kept)
        more = [Finding("more_findings", f"{dropped} more of the same answer")] if dropped else []
        return (*self._kept, *more)


def _shown(text: str) -> str:
    """The text quoted, in ASCII, at most 80 characters of it."""
    return ascii(text) if len(text) <= 80 else ascii(text[:80]) + "…"


def _expanded(fields: Iterable[tuple[str, str]], findings: _Findings) -> Iterator[tuple[str, str]]:
    """The fields, a crowd-form's ``taskAnswers`` taken apart into its own."""
    for name, value in fields:
        if name != "taskAnswers":
            yield name, value
            continue
        try:
            for key, item in crowd_form_fields(value):
                if item is None:
                    findings.add("bad_value", f"{_shown(key)} in taskAnswers is neither text nor choices")
                else:
                    yield key, item
        except CrowdFormError as error:
            findings.add("unreadable", f"taskAnswers is {error}")


def _sort_fields(
    fields: Iterable[tuple[str, str]], places: Collection[int], rationale: bool, findings: _Findings
) -> dict[int, dict[str, list[str]]]:
    places = frozenset(places)
    by_place: dict[int, dict[str, list[str]]] = {}
    for name, value in fields:
        place, kind = _field(name) if len(name) <= _LONGEST_NAME else (0, "")
        if not kind or (kind in _RATIONALE_KINDS and not rationale):
            if name.lower() not in _HARMLESS:
                findings.add("unknown_field", f"{_shown(name)} is not a field of the page")
        elif place not in places:
            findings.add("unknown_place", f"{name}: the page has no place {place}")
        else:
            by_place.setdefault(place, {}).setdefault(kind, []).append(value)
    return by_place


@lru_cache(maxsize=1024)
def _field(name: str) -> tuple[int, str]:
    """The place and the kind of a field of our pages; no kind for any other."""
    match = _FIELD.fullmatch(name)
    return (0, "") if match is None else (int(match[1]), match[2])


def _place_answer(
    place: int, fields: dict[str, list[str]], rationale: bool, findings: _Findings
) -> PlaceAnswer | None:
    label = _single(place, "label", fields, Label, findings)
    outcome = _single(place, "outcome", fields, Outcome, findings)
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
        text=_text(place, fields.get("text", []), findings),
        active_ms=_active_ms(place, fields.get("ms", []), findings),
    )


def _check_rationale(
    place: int,
    label: Label | None,
    shortcomings: tuple[Shortcoming, ...],
    concepts: tuple[Concept, ...],
    findings: _Findings,
) -> None:
    if label in _WEAK and not shortcomings:
        findings.add("missing_rationale", f"place {place} is {label.value} without a shortcoming")
    if label not in _WEAK and (shortcomings or concepts):
        answer = "not answered" if label is None else label.value
        findings.add("unasked_rationale", f"place {place} is {answer}, yet gives reasons")
    elif concepts and Shortcoming.DESCRIBED_WRONGLY not in shortcomings:
        findings.add("unasked_rationale", f"place {place} names concepts without described_wrongly")


def _single(
    place: int, kind: str, fields: dict[str, list[str]], enum: type[_E], findings: _Findings
) -> _E | None:
    values = [value.strip() for value in fields.get(kind, [])]
    if len(values) > 1:
        findings.add("duplicate_field", f"p{place:02d}_{kind} came {len(values)} times")
    distinct = set(values) - {""}
    if len(distinct) != 1:
        return None
    value = distinct.pop()
    try:
        return enum(value)
    except ValueError:
        pass
    findings.add("bad_value", f"p{place:02d}_{kind} is {_shown(value)}; known: {', '.join(enum)}")
    return None


def _several(
    place: int, kind: str, fields: dict[str, list[str]], enum: type[_E], findings: _Findings
) -> tuple[_E, ...]:
    """The values in the enum's own order, each once."""
    if kind not in fields:
        return ()
    values = {part.strip() for value in fields.get(kind, []) for part in value.split("|")} - {""}
    known = tuple(member for member in _members(enum) if member in values)
    for value in sorted(values.difference(known)):
        findings.add("bad_value", f"p{place:02d}_{kind} is {_shown(value)}; known: {', '.join(enum)}")
    return known


@cache
def _members(enum: type[_E]) -> tuple[_E, ...]:
    return tuple(enum)


def _text(place: int, values: list[str], findings: _Findings) -> str:
    if not values:
        return ""
    if len(values) > 1:
        findings.add("duplicate_field", f"p{place:02d}_text came {len(values)} times")
    text = xml_safe("\n".join(dict.fromkeys(value.strip() for value in values))).strip()
    if len(text) > MAX_TEXT:
        findings.add("bad_value", f"p{place:02d}_text has {len(text)} characters; {MAX_TEXT} are kept")
    return text[:MAX_TEXT]


def _active_ms(place: int, values: list[str], findings: _Findings) -> int | None:
    given = [value.strip() for value in values]
    if len(given) > 1:
        findings.add("duplicate_field", f"p{place:02d}_ms came {len(given)} times")
    times = []
    for value in given:
        if value == "":
            continue  # a browser without scripts
        if re.fullmatch(r"[0-9]{1,8}", value) and int(value) <= MAX_ACTIVE_MS:
            times.append(int(value))
        else:
            findings.add(
                "bad_value", f"p{place:02d}_ms is {_shown(value)}; milliseconds up to a day are right"
            )
    return max(times, default=None)
