"""What was parsed from submissions, written in sets.

The raw documents of a set are stored and committed before they are parsed. So a submission without a parse is one
that a run died over, and whoever comes next parses it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from mitl.db.base import values
from mitl.db.models import (
    Assignment,
    Batch,
    CollectionAnswer,
    CollectionItem,
    ComparisonRow,
    FindingRow,
    Hit,
    HitItemRow,
    JudgementRow,
    PreferenceAnswer,
    Rationale,
    SimilarityAnswer,
    SimilarityItem,
)
from mitl.db.store.statements import add_rows, change_among, chunks, query_submissions, rows_among
from mitl.records import BatchKind, Environment, Finding, JudgementSource, Parsed, PlaceAnswer

UNREADABLE = "unreadable"
MISSING_ANSWER = "missing_answer"
UNKNOWN_ID, BAD_VALUE = "unknown_id", "bad_value"
_MARKS_OF_A_PARSE = (UNREADABLE, MISSING_ANSWER)
"""A parse without an answer has one of these findings."""
_OF_A_PARSE = (
    *_MARKS_OF_A_PARSE,
    UNKNOWN_ID,
    BAD_VALUE,
    "unknown_field",
    "unknown_place",
    "duplicate_field",
    "missing_rationale",
    "unasked_rationale",
    "more_findings",
)
"""What reading a document notes; all other findings say how it was judged and decided."""


ItemTable = type[HitItemRow] | type[ComparisonRow] | type[SimilarityItem] | type[CollectionItem]
AnswerTable = type[JudgementRow] | type[PreferenceAnswer] | type[SimilarityAnswer] | type[CollectionAnswer]


@dataclass(frozen=True, slots=True)
class RawSubmission:
    """A stored submission with its document."""

    id: int
    hit_id: int
    raw_xml: str
    """Byte for byte."""


@dataclass(frozen=True, slots=True)
class Submissions:
    """Where a kind of campaign keeps what stands on its pages and what was answered, a row for each place."""

    kind: str
    items: ItemTable
    answers: AnswerTable

    def places(self, session: Session, hit_ids: Sequence[int]) -> dict[int, tuple[int, list[int]]]:
        """HIT → its batch and the places that its page has; nothing for a HIT that asks something else."""
        items = self.items
        query = select(Hit.batch_id, items.hit_id, items.place).join(Hit, Hit.id == items.hit_id)
        places_of: dict[int, tuple[int, list[int]]] = {}
        for batch, hit, place in rows_among(session, query.order_by(items.place), items.hit_id, hit_ids):
            places_of.setdefault(hit, (batch, []))[1].append(place)
        return places_of

    def ids(self, session: Session, environment: Environment) -> list[int]:
        """The submissions to HITs posted from here, in order of their rows."""
        query = (
            query_submissions(environment, Assignment.id)
            .where(Batch.source == JudgementSource.CROWD, Batch.kind == self.kind)
            .order_by(Assignment.id)
        )
        return list(session.scalars(query))

    def unparsed(
        self, session: Session, environment: Environment, ids: Sequence[int] | None = None
    ) -> dict[int, RawSubmission]:
        """Submissions to HITs posted from here that have no parse, by id; all of them, or those among ``ids``."""
        answers = self.answers
        query = (
            query_submissions(environment, Assignment.id, Assignment.hit_id, Assignment.raw_xml)
            .where(
                Batch.source == JudgementSource.CROWD,
                Batch.kind == self.kind,
                ~select(answers.id).where(answers.assignment_id == Assignment.id).exists(),
                ~select(FindingRow.id)
                .where(FindingRow.assignment_id == Assignment.id, FindingRow.code.in_(_MARKS_OF_A_PARSE))
                .exists(),
            )
            .order_by(Assignment.id)
        )
        parts = [query] if ids is None else [query.where(Assignment.id.in_(chunk)) for chunk in chunks(ids)]
        return {row[0]: RawSubmission(*row) for part in parts for row in session.execute(part)}

    def rows(self, session: Session, ids: Iterable[int]) -> dict[int, list[Any]]:
        """Submission → its stored answers, by place; to be read only."""
        answers = self.answers
        by_assignment: dict[int, list[Any]] = defaultdict(list)
        query = select(answers).order_by(answers.assignment_id, answers.place)
        for (row,) in rows_among(session, query, answers.assignment_id, ids):
            by_assignment[row.assignment_id].append(row)
        return by_assignment

    def set_parses(self, session: Session, given: Mapping[int, Parsed[Any]]) -> None:
        """Write what was parsed from these submissions, in place of an earlier parse."""
        change_among(session, delete(self.answers), self.answers.assignment_id, given)
        add_rows(
            session,
            self.answers,
            (
                values(self.answers, at, assignment_id=id_, text=at.text or None)
                for id_, parsed in given.items()
                for at in parsed.answers
            ),
        )
        add_all_findings(session, {id_: parsed.findings for id_, parsed in given.items()})


PAIRS = Submissions(BatchKind.PAIRS, HitItemRow, JudgementRow)


def raw(session: Session, assignment_ids: Sequence[int]) -> list[RawSubmission]:
    """These submissions with their documents as received, parsed or not, in order of their rows."""
    query = select(Assignment.id, Assignment.hit_id, Assignment.raw_xml).order_by(Assignment.id)
    return [RawSubmission(*row) for row in rows_among(session, query, Assignment.id, assignment_ids)]


def set_parses(
    session: Session,
    parses: Mapping[int, Parsed[PlaceAnswer]],
    *,
    source: JudgementSource = JudgementSource.CROWD,
) -> None:
    """Write what was parsed from these submissions, in place of an earlier parse; nothing of it is usable yet."""
    for chunk in chunks(list(parses)):
        judgements = select(JudgementRow.id).where(JudgementRow.assignment_id.in_(chunk))
        session.execute(delete(Rationale).where(Rationale.judgement_id.in_(judgements)))
        session.execute(delete(JudgementRow).where(JudgementRow.assignment_id.in_(chunk)))
    pairs = _pairs(session, list(parses))
    add_rows(
        session,
        JudgementRow,
        (
            values(
                JudgementRow,
                answer,
                assignment_id=id_,
                pair_id=pairs[id_, answer.place],
                usable=False,
                source=source,
            )
            for id_, parsed in parses.items()
            for answer in parsed.answers
        ),
    )
    _add_rationale(session, parses)
    add_all_findings(session, {id_: parsed.findings for id_, parsed in parses.items()})


def forget_reading(session: Session, ids: Sequence[int]) -> None:
    """Drop what an earlier parse noticed; what a file of past work says of times and decisions stays noted."""
    of_reading = FindingRow.code.in_(_OF_A_PARSE), ~FindingRow.detail.startswith("time ")
    change_among(session, delete(FindingRow).where(*of_reading), FindingRow.assignment_id, ids)


def _pairs(session: Session, ids: Sequence[int]) -> dict[tuple[int, int], int]:
    """(Submission, place) → row of the pair that stands there."""
    query = select(Assignment.id, HitItemRow.place, HitItemRow.pair_id).join(
        HitItemRow, HitItemRow.hit_id == Assignment.hit_id
    )
    return {(id_, place): pair for id_, place, pair in rows_among(session, query, Assignment.id, ids)}


def _add_rationale(session: Session, parses: Mapping[int, Parsed[PlaceAnswer]]) -> None:
    reasons = {
        (id_, answer.place): [
            {"kind": name, "value": value} for name, values in answer.given.items() for value in values
        ]
        for id_, parsed in parses.items()
        for answer in parsed.answers
        if answer.given
    }
    query = select(JudgementRow.assignment_id, JudgementRow.place, JudgementRow.id)
    rows: list[dict[str, Any]] = []
    query = query.order_by(JudgementRow.id)
    ids = sorted({id_ for id_, _ in reasons})
    for id_, place, judgement in rows_among(session, query, JudgementRow.assignment_id, ids):
        rows += [{"judgement_id": judgement, **reason} for reason in reasons.get((id_, place), ())]
    add_rows(session, Rationale, rows)


def add_all_findings(session: Session, given: Mapping[int, Iterable[Finding]]) -> None:
    """Note something about submissions, by id; the same note is not written twice."""
    notes_of = {
        id_: {(finding.code, finding.detail) for finding in findings} for id_, findings in given.items()
    }
    notes_of = {id_: notes for id_, notes in notes_of.items() if notes}
    stored: dict[int, set[tuple[str, str]]] = defaultdict(set)
    query = select(FindingRow.assignment_id, FindingRow.code, FindingRow.detail)
    for id_, code, detail in rows_among(session, query, FindingRow.assignment_id, notes_of):
        stored[id_].add((code, detail))
    add_rows(
        session,
        FindingRow,
        (
            {"assignment_id": id_, "code": code, "detail": detail}
            for id_, notes in notes_of.items()
            for code, detail in sorted(notes - stored[id_])
        ),
    )


def set_verdicts(session: Session, given: Mapping[int, Sequence[Finding]]) -> None:
    """Note how these submissions are judged, by id, in place of how they were; what reading them noted stays."""
    query = _NOTED.where(FindingRow.code.not_in(_OF_A_PARSE))
    _replace(session, rows_among(session, query, FindingRow.assignment_id, given), given)


def set_findings(
    session: Session, codes: Collection[str], given: Mapping[int, Iterable[Finding]], ids: Iterable[int]
) -> None:
    """Note this of these kinds about submissions, by id, and nothing else that was noted of these kinds before.

    Args:
        ids: all submissions that were looked at.
    """
    looked_at = set(ids)
    noted = session.execute(_NOTED.where(FindingRow.code.in_(codes)))
    _replace(session, (row for row in noted if row.assignment_id in looked_at), given)


_NOTED = select(FindingRow.id, FindingRow.assignment_id, FindingRow.code, FindingRow.detail)


def _replace(session: Session, noted: Iterable[Any], given: Mapping[int, Iterable[Finding]]) -> None:
    """What is given stands in place of what was noted, rows of ``_NOTED``."""
    stale = [id_ for id_, of, code, detail in noted if Finding(code, detail) not in given.get(of, ())]
    change_among(session, delete(FindingRow), FindingRow.id, stale)
    add_all_findings(session, given)
