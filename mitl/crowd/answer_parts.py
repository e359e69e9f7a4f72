"""What the fields of any page of ours have in common: places, choices, own words, times, and what is odd about them.

An answer has the page's fields, or the one field of a crowd-form, ``taskAnswers``: a JSON array of one object.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import TypeVar

from mitl.protocol.answer_xml import answer_fields, xml_safe
from mitl.records import Finding, Outcome, Parsed
from mitl.records.questions import Question

MAX_FINDINGS = 100
"""Of each code, from one assignment."""
MAX_TEXT = 2000
"""Characters of a free text that are kept; pages of pairs set no limit of their own, others take 300."""
MAX_ACTIVE_MS = 24 * 60 * 60 * 1000

_FIELD = re.compile(r"p(\d\d)_([a-z]+)", re.ASCII)
_LONGEST_NAME = len("p01_") + 32
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

_A = TypeVar("_A")
_E = TypeVar("_E", bound=StrEnum)


class FindingLog:
    """Collects findings, a bounded number of each code, so that a hostile answer cannot fill the database."""

    def __init__(self) -> None:
        self._kept: list[Finding] = []
        self._counts: Counter[str] = Counter()

    def add(self, code: str, detail: str) -> None:
        """Note something."""
        self._counts[code] += 1
        if self._counts[code] <= MAX_FINDINGS:
            self._kept.append(Finding(code, detail))

    def __len__(self) -> int:
        """How often something was noted."""
        return self._counts.total()

    def all(self) -> tuple[Finding, ...]:
        """What was noted, with how much was dropped."""
        dropped = len(self) - len(self._kept)
        more = [Finding("more_findings", f"{dropped} more of the same answer")] if dropped else []
        return (*self._kept, *more)


def shown(text: str) -> str:
    """The text quoted, in ASCII, at most 80 characters of it."""
    return ascii(text) if len(text) <= 80 else ascii(text[:80]) + "…"


class CrowdFormError(ValueError):
    """The text of ``taskAnswers`` is not a JSON array with one object."""


def crowd_form_fields(text: str) -> Iterator[tuple[str, str | None]]:
    """The (name, value) fields within ``taskAnswers``, in their order, repeated names included.

    A choice, ``{"value": true, ...}``, gives a field for each value that is true. The value is None where it
    is neither text, a number, a list of texts nor a choice.

    Raises:
        CrowdFormError: this is not a JSON array with one object.
    """
    try:
        document = json.loads(text, object_pairs_hook=_Members)
    except (ValueError, RecursionError) as error:
        raise CrowdFormError(f"not JSON: {str(error)[:120]}") from error
    objects = document if isinstance(document, list) and not isinstance(document, _Members) else [document]
    if len(objects) != 1 or not isinstance(objects[0], _Members):
        raise CrowdFormError("not a JSON array with one object")
    for name, value in objects[0]:
        values = _values(value)
        if values is None:
            yield name, None
        else:
            yield from ((name, item) for item in values)


class _Members(list[tuple[str, object]]):
    """The members of a JSON object as pairs, so that a repeated key is seen."""


def _values(value: object) -> list[str] | None:
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [str(value)]
    if isinstance(value, _Members):
        if all(isinstance(chosen, bool) for _, chosen in value):
            return [name for name, chosen in value if chosen]
        return None
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return list(value)
    return None


def expanded(fields: Iterable[tuple[str, str]], findings: FindingLog) -> Iterator[tuple[str, str]]:
    """The fields, a crowd-form's ``taskAnswers`` taken apart into its own."""
    for name, value in fields:
        if name != "taskAnswers":
            yield name, value
            continue
        try:
            for key, item in crowd_form_fields(value):
                if item is None:
                    findings.add("bad_value", f"{shown(key)} in taskAnswers is neither text nor choices")
                else:
                    yield key, item
        except CrowdFormError as error:
            findings.add("unreadable", f"taskAnswers is {error}")


def sort_fields(
    fields: Iterable[tuple[str, str]], places: Collection[int], kinds: Collection[str], findings: FindingLog
) -> dict[int, dict[str, list[str]]]:
    """Place → kind → the values of its fields ``pNN_<kind>``; what the page does not ask is left out and noted.

    Args:
        kinds: what the page asks at each place.
    """
    places = frozenset(places)
    by_place: dict[int, dict[str, list[str]]] = {}
    for name, value in fields:
        place, kind = _field(name) if len(name) <= _LONGEST_NAME else (0, "")
        if kind not in kinds:
            if name.lower() not in _HARMLESS:
                findings.add("unknown_field", f"{shown(name)} is not a field of the page")
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


def single(
    place: int, kind: str, fields: dict[str, list[str]], enum: type[_E], findings: FindingLog
) -> _E | None:
    """The one value that a place has of a kind; None where it has none, an unknown one, or differing ones."""
    value = one_choice(place, kind, fields, tuple(enum), findings)
    return None if value is None else enum(value)


def one_choice(
    place: int, kind: str, fields: dict[str, list[str]], known: Sequence[str], findings: FindingLog
) -> str | None:
    """As `single`, of values without an enum."""
    values = [value.strip() for value in fields.get(kind, [])]
    if len(values) > 1:
        findings.add("duplicate_field", f"p{place:02d}_{kind} came {len(values)} times")
    distinct = set(values) - {""}
    if len(distinct) != 1:
        return None
    value = distinct.pop()
    if value in known:
        return value
    findings.add("bad_value", f"p{place:02d}_{kind} is {shown(value)}; known: {', '.join(known)}")
    return None


def several_choices(
    place: int, kind: str, fields: dict[str, list[str]], known: Sequence[str], findings: FindingLog
) -> tuple[str, ...]:
    """The values in the order of those that are known, each once; a field may join several by ``|``."""
    values = {part.strip() for value in fields.get(kind, []) for part in value.split("|")} - {""}
    for value in sorted(values.difference(known)):
        findings.add("bad_value", f"p{place:02d}_{kind} is {shown(value)}; known: {', '.join(known)}")
    return tuple(value for value in known if value in values)


def parse_page(
    xml: str | bytes,
    *,
    places: Collection[int],
    questions: Sequence[Question] = (),
    kinds: Sequence[str],
    answer_of: Callable[[int, dict[str, list[str]], FindingLog], _A | None],
) -> Parsed[_A]:
    """The answers of one assignment by rising place, with everything that was odd about them.

    Args:
        xml: QuestionFormAnswers XML, with one answer per field or with a crowd-form's single ``taskAnswers``.
        places: the places (from 1) of the HIT.
        questions: what the page asked besides.
        kinds: what it asks at each place, besides an outcome and the time.
        answer_of: what the fields of a place say; None where that is no usable answer.

    Raises:
        AnswerError: the document cannot be read at all; the caller keeps that as a finding.
    """
    findings = FindingLog()
    parts = {*kinds, "outcome", "ms", *(question.name for question in questions)}
    by_place = sort_fields(expanded(answer_fields(xml), findings), places, parts, findings)
    answers = (answer_of(place, by_place.get(place, {}), findings) for place in sorted(places))
    return Parsed(tuple(answer for answer in answers if answer is not None), findings.all())


def outcome_beside(
    place: int,
    fields: dict[str, list[str]],
    answer: str | None,
    findings: FindingLog,
    *,
    ignored: str = "answer_ignored",
    verb: str = "answered",
) -> Outcome | None:
    """What became of a place; None, and a finding, where nothing usable was said of it.

    An answer alone says that there is one. Beside ``skipped`` or ``image_failed`` it is noted, and does not count.

    Args:
        answer: as a finding shows it; None where there is none.
        ignored, verb: the finding's code and word for an answer that does not count.
    """
    outcome = single(place, "outcome", fields, Outcome, findings)
    if outcome is None and answer is not None and not "".join(fields.get("outcome", ())).strip():
        outcome = Outcome.ANSWERED
    if outcome is None or (outcome is Outcome.ANSWERED and answer is None):
        findings.add("missing_answer", f"place {place} has no usable answer")
        return None
    if outcome is not Outcome.ANSWERED and answer is not None:
        findings.add(ignored, f"place {place} is {outcome.value}, yet {verb} {answer}")
    return outcome


def own_words(place: int, values: list[str], findings: FindingLog, kind: str = "text") -> str:
    """What the worker wrote, cut where it is very long."""
    if not values:
        return ""
    if len(values) > 1:
        findings.add("duplicate_field", f"p{place:02d}_{kind} came {len(values)} times")
    text = xml_safe("\n".join(dict.fromkeys(value.strip() for value in values))).strip()
    if len(text) > MAX_TEXT:
        findings.add("bad_value", f"p{place:02d}_{kind} has {len(text)} characters; {MAX_TEXT} are kept")
    return text[:MAX_TEXT]


def active_time(place: int, values: list[str], findings: FindingLog) -> int | None:
    """Milliseconds; None where the page measured nothing."""
    stated = [value.strip() for value in values]
    if len(stated) > 1:
        findings.add("duplicate_field", f"p{place:02d}_ms came {len(stated)} times")
    times = []
    for value in stated:
        if value == "":
            continue  # a browser without scripts
        if re.fullmatch(r"[0-9]{1,8}", value) and int(value) <= MAX_ACTIVE_MS:
            times.append(int(value))
        else:
            findings.add(
                "bad_value", f"p{place:02d}_ms is {shown(value)}; milliseconds up to a day are right"
            )
    return max(times, default=None)
