"""The answers of a submission in one value: a copy of rows of `judgement` that is read many times as fast.

The database itself drops a sheet when a judgement of its submission or an item of its page changes, or the submission
gets another page, by triggers (revision p0006), whoever changes it; `judge` writes what is missing at the end of its
transaction. So a sheet says what the rows say; where there is none, the rows are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from mitl.core.arrays import Ints, contains
from mitl.db.models import AnswerSheet, Assignment, ControlSheet, Worker
from mitl.db.store.statements import add_tuples, chunks, number_columns, plain_rows
from mitl.records import Environment, PairRole
from mitl.records.frames import LABELS, NONE, OUTCOMES, ROLES

OUTCOME, LABEL, ROLE, PLACE, ACTIVE_MS = 1 << 1, 1 << 4, 1 << 8, 1 << 12, 1 << 28
"""Where each begins in the word of an answer, whose lowest bit says whether it is usable; the label is one more than
its code. Sheets hold the codes of `LABELS`, `OUTCOMES` and `ROLES`: a revision that moves one
has to empty the table."""

_STORED = np.dtype("<i8")
_NUMBERS = 2
"""On a sheet, of each answer by place: the pair's row and the word."""
_ANSWER_BYTES = _NUMBERS * _STORED.itemsize
"""Of a sheet, for each answer."""
_SHEETS = "SELECT assignment_id, content FROM answer_sheet"
_FEW = 5_000
"""Submissions whose rows are found one by one rather than by a look at all rows."""
_SOME = 10 * _FEW
"""Submissions whose sheets are found one by one."""


def answers_of(
    session: Session, environment: Environment, workers: Sequence[int] | None = None
) -> dict[str, NDArray[Any]]:
    """The columns of all answers of an environment (``ANSWERS``), by submission and place.

    HITs' and workers' rows are joined here, which takes a tenth of what it takes the database.

    Args:
        workers: rows of those whose answers alone are wanted.
    """
    query = _SUBMISSIONS.format(environment=environment.value) + of_workers(workers)
    submissions = number_columns(session, query, 3)
    submissions = submissions[:, np.argsort(submissions[0], kind="stable")]
    assignment, pair, word = _read(session, submissions[0])
    first = np.flatnonzero(np.diff(assignment, prepend=-1))  # ascending: one look-up for each submission
    lengths = np.diff(first, append=len(assignment))
    at = np.repeat(np.searchsorted(submissions[0], assignment[first]), lengths)
    return {
        "assignment": assignment,
        "hit": submissions[1][at],
        "worker": submissions[2][at],
        "pair": pair,
        "place": _part(word, PLACE, ACTIVE_MS),
        "role": _part(word, ROLE, PLACE),
        "label": _part(word, LABEL, ROLE) + NONE,
        "outcome": _part(word, OUTCOME, LABEL),
        "active_ms": word >> _bits(ACTIVE_MS),
        "usable": (word & 1).astype(np.bool_),
    }


def of_workers(workers: Sequence[int] | None) -> str:
    """What narrows a query of submissions ``a`` to these workers'; nothing for None."""
    return "" if workers is None else f" AND a.worker_id IN ({', '.join(map(str, workers)) or 'NULL'})"


def _part(word: Ints, begin: int, end: int) -> Ints:
    """What stands in the words from one bit on to before another; by shifts, as dividing takes thrice as long."""
    return (word & (end - 1)) >> _bits(begin)


def _bits(begin: int) -> int:
    return begin.bit_length() - 1


_SUBMISSIONS = """
    SELECT a.id, a.hit_id, a.worker_id FROM assignment a JOIN worker w ON w.id = a.worker_id
    WHERE w.environment = '{environment}'"""


def _read(session: Session, submissions: Ints) -> tuple[Ints, Ints, Ints]:
    """Submission, pair's row and word of every answer of these submissions, by submission and place; each (answers,).

    Args:
        submissions: rows, ascending.
    """
    sheets = _sheets(session, submissions)
    of_sheet, contents = zip(*sheets, strict=True) if sheets else ((), ())
    ids = np.array(of_sheet, np.int64)
    lengths = np.fromiter(map(len, contents), np.int64, len(contents))
    numbers = np.frombuffer(b"".join(contents), _STORED).reshape(-1, _NUMBERS)
    of = np.repeat(ids, lengths // _ANSWER_BYTES)
    asked = contains(submissions, ids)
    if not asked.all():
        asked_rows = np.repeat(asked, lengths // _ANSWER_BYTES)
        of, numbers = of[asked_rows], numbers[asked_rows]
    pair, word = numbers[:, 0].astype(np.int64), numbers[:, 1].astype(np.int64)
    missing = submissions[~contains(ids, submissions)]
    if not len(missing):
        return of, pair, word
    rows = np.concatenate([np.stack([of, pair, word]), *_unwritten(session, missing)], axis=1)
    rows = rows[:, np.argsort(rows[0], kind="stable")]
    return rows[0], rows[1], rows[2]


def _sheets(session: Session, submissions: Ints) -> list[tuple[Any, ...]]:
    """Submission and content of the sheets, by submission; of these submissions, or of all where these are many."""
    if len(submissions) > _SOME:
        return plain_rows(session, f"{_SHEETS} ORDER BY assignment_id")
    return [
        row
        for chunk in chunks(submissions.tolist())
        for row in plain_rows(
            session, f"{_SHEETS} WHERE assignment_id IN ({', '.join(map(str, chunk))}) ORDER BY assignment_id"
        )
    ]


def fill(session: Session) -> int:
    """Write the sheets that are missing; returns how many. Of a worker with a `ControlSheet` none is."""
    unjudged = (
        select(Worker.id)
        .outerjoin(ControlSheet, ControlSheet.worker_id == Worker.id)
        .where(ControlSheet.worker_id.is_(None))
    )
    query = (
        select(Assignment.id)
        .outerjoin(AnswerSheet, AnswerSheet.assignment_id == Assignment.id)
        .where(AnswerSheet.assignment_id.is_(None), Assignment.worker_id.in_(unjudged))
        .order_by(Assignment.id)
    )
    missing = list(session.scalars(query))
    for chunk in chunks(missing):
        add_tuples(session, AnswerSheet, ("assignment_id", "content"), _made(session, chunk))
    return len(missing)


def stale(session: Session) -> int:
    """How many sheets do not say what the rows say; it looks at every row."""
    count = 0
    for chunk in chunks(list(session.scalars(select(AnswerSheet.assignment_id)))):
        right = dict(_made(session, sorted(chunk)))
        query = select(AnswerSheet.assignment_id, AnswerSheet.content).where(
            AnswerSheet.assignment_id.in_(chunk)
        )
        count += sum(bytes(content) != right[id_] for id_, content in session.execute(query))
    return count


def _made(session: Session, submissions: Sequence[int]) -> list[tuple[int, bytes]]:
    """The contents of their sheets, from the rows; all are read before any is written.

    Args:
        submissions: rows, ascending.
    """
    rows = _rows(session, submissions)
    ends = np.searchsorted(rows[0], submissions, "right").tolist()
    begins = np.searchsorted(rows[0], submissions).tolist()
    content = rows[1:].T.astype(_STORED)
    return [
        (id_, content[begin:end].tobytes()) for id_, begin, end in zip(submissions, begins, ends, strict=True)
    ]


def _unwritten(session: Session, missing: Ints) -> Iterator[Ints]:
    if len(missing) <= _FEW:
        yield from (_rows(session, chunk) for chunk in chunks(missing.tolist()))
        return
    every = _rows(session)
    yield every[:, contains(missing, every[0])]


def _rows(session: Session, submissions: Sequence[int] | None = None) -> Ints:
    """(3, answers): submission, pair's row and word from the rows themselves, by submission and place."""
    where = "" if submissions is None else f" WHERE j.assignment_id IN ({', '.join(map(str, submissions))})"
    rows = number_columns(session, _ROWS + where, 3)
    return rows[:, np.lexsort((rows[2] % ACTIVE_MS // PLACE, rows[0]))]


def _code(column: str, values: Sequence[StrEnum], otherwise: int) -> str:
    """The place of a stored value in its enum, told by the database."""
    cases = " ".join(f"WHEN '{value}' THEN {place}" for place, value in enumerate(values))
    return f"CASE {column} {cases} ELSE {otherwise} END"


_ROWS = f"""
    SELECT j.assignment_id, j.pair_id,
        coalesce(j.active_ms, 0) * CAST({ACTIVE_MS} AS BIGINT) + j.place * {PLACE}
        + {_code("i.role", ROLES, ROLES.index(PairRole.CANDIDATE))} * {ROLE}
        + ({_code("j.label", LABELS, NONE)} + 1) * {LABEL}
        + {_code("j.outcome", OUTCOMES, 0)} * {OUTCOME} + CASE WHEN j.usable THEN 1 ELSE 0 END
    FROM judgement j JOIN assignment a ON a.id = j.assignment_id
        LEFT JOIN hit_item i ON i.hit_id = a.hit_id AND i.place = j.place"""
