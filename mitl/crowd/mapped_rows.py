"""The answers that a foreign row gives by a mapping; what is odd becomes a finding, never an exception."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from mitl.crowd.answer_parts import MAX_ACTIVE_MS, MAX_FINDINGS, MAX_TEXT, shown
from mitl.crowd.column_map import ANY, ColumnMap, Source
from mitl.protocol.answer_xml import xml_safe
from mitl.records import Finding, Label, Outcome, PairRole, PlaceAnswer
from mitl.records.questions import RATIONALE, TEXT, Question, given_answers


@dataclass(frozen=True, slots=True)
class MappedAnswer:
    """What a row says of one pair."""

    image: str
    """As the file names it."""
    caption: str
    """Its id in the file, or its text."""
    by_text: bool
    answer: PlaceAnswer | None
    """None where there is none; its place counts within the row, from 1."""
    role: PairRole = PairRole.CANDIDATE
    """A candidate, or a control of either kind."""


@dataclass(frozen=True, slots=True)
class MappedRow:
    """What a row says."""

    answers: tuple[MappedAnswer, ...] = ()
    findings: tuple[Finding, ...] = ()
    unmapped: tuple[str, ...] = ()
    """Labels that the mapping has no word for."""
    unmapped_roles: tuple[str, ...] = ()
    """Likewise roles; nobody may take a control for a candidate."""


def read_mapped(mapping: ColumnMap, cells: Mapping[str, str], places: Sequence[int]) -> MappedRow:
    """The answers of a row, place by place.

    Args:
        cells: expanded, so that fields within an answer document stand as columns.
        places: the numbers in the columns' names; (0,) where they have none.
    """
    answers: list[MappedAnswer] = []
    reading = _Reading(mapping)
    for place in places:
        for values in reading.each_place(cells, place):
            if not values["label"].strip() and not values["image"]:
                continue  # the page was shorter
            answer = reading.answer(values, len(answers) + 1)
            by_text = "caption" not in values
            caption = values["caption_text" if by_text else "caption"]
            role = reading.role(values.get("role", ""))
            answers.append(MappedAnswer(values["image"], caption, by_text, answer, role))
    findings = tuple(reading.findings[:MAX_FINDINGS])
    return MappedRow(tuple(answers), findings, tuple(reading.unmapped), tuple(reading.unmapped_roles))


@dataclass(frozen=True, slots=True)
class _Reading:
    """A row as it is read, and what was odd about it so far."""

    mapping: ColumnMap
    findings: list[Finding] = field(default_factory=list)
    unmapped: list[str] = field(default_factory=list)
    unmapped_roles: list[str] = field(default_factory=list)

    def each_place(self, cells: Mapping[str, str], place: int) -> list[dict[str, str]]:
        """Source → value, once for every part of cells that hold several places."""
        sources = self.mapping.sources
        parts = {name: _parts(source, cells, place) for name, source in sources.items()}
        split = {name: len(parts[name]) for name, source in sources.items() if source.split is not None}
        if len(set(split.values())) > 1:
            counts = ", ".join(f"{name} {count}" for name, count in split.items())
            self._note("bad_value", f"cells that belong together have different numbers of parts: {counts}")
            return []
        n_parts = next(iter(split.values()), 1)
        return [
            {name: values[number if name in split else 0] for name, values in parts.items()}
            for number in range(n_parts)
        ]

    def answer(self, values: Mapping[str, str], place: int) -> PlaceAnswer | None:
        """What was answered; None where that cannot be told."""
        cell = values["label"]
        word = self._word("labels", cell, tuple(Label))
        if word is None and not cell.strip():
            self._note("missing_answer", f"place {place} has no usable answer")
        elif word is None:
            self.unmapped.append(cell.strip())
            self._note("bad_value", f"label is {shown(cell)}; the mapping has no word for it")
        if word is None:
            return None
        label = Label(word) if word in set(Label) else None
        return PlaceAnswer(
            place=place,
            outcome=Outcome.ANSWERED if label is not None else Outcome(word),
            label=label,
            given=given_answers(
                **{q.name: self._several(q, values) for q in RATIONALE if q.choices},
                text=xml_safe(values.get(TEXT.name, "")).strip()[:MAX_TEXT],
            ),
            active_ms=self._active_ms(values.get("active_ms", "").strip()),
        )

    def role(self, cell: str) -> PairRole:
        """A candidate where the file says nothing."""
        if not cell.strip():
            return PairRole.CANDIDATE
        word = self._word("roles", cell, tuple(PairRole))
        if word is None:
            self.unmapped_roles.append(cell.strip())
        return PairRole.CANDIDATE if word is None else PairRole(word)

    def _several(self, question: Question, values: Mapping[str, str]) -> tuple[str, ...]:
        """The words of a cell that may hold several, joined by ``|``."""
        chosen = set()
        for part in filter(None, (part.strip() for part in values.get(question.name, "").split("|"))):
            word = self._word(question.column, part, question.values)
            if word is None:
                known = ", ".join(question.values)
                self._note("bad_value", f"{question.name} is {shown(part)}; known: {known}")
            else:
                chosen.add(word)
        return tuple(value for value in question.values if value in chosen)

    def _word(self, table: str, cell: str, known: Collection[str]) -> str | None:
        """Our word for the file's value: as the mapping says, else the value itself where it is one of ours."""
        text, words = cell.strip(), self.mapping.words.get(table, {})
        if text in words or ANY not in words or not text:
            return words.get(text, text if text in known else None)
        return words[ANY]

    def _active_ms(self, text: str) -> int | None:
        if re.fullmatch(r"[0-9]{1,8}(\.[0-9]+)?", text) and float(text) <= MAX_ACTIVE_MS:
            return round(float(text))
        if text:
            self._note("bad_value", f"active_ms is {shown(text)}; milliseconds up to a day are right")
        return None

    def _note(self, code: str, detail: str) -> None:
        self.findings.append(Finding(code, detail))


def _parts(source: Source, cells: Mapping[str, str], place: int) -> list[str]:
    if source.column is None:
        return [source.value or ""]
    cell = cells.get(source.column_at(place), "")
    parts = [cell] if source.split is None else source.split.split(cell)
    if len(parts) > 1 and not parts[-1]:
        parts.pop()  # what follows the last separator
    return [_matched(source, part or "") for part in parts]


def _matched(source: Source, text: str) -> str:
    match = source.pattern.search(text) if source.pattern else None
    if match is None:
        return text
    return (match[1] if match.re.groups else match[0]) or ""
