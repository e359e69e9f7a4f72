"""A worker's answers on controls in one value, and the record by which all their answers were last judged.

It is written at the end of `judge`, when all answer sheets of the worker are there. The database itself drops it when
an answer sheet of the worker goes, or a submission of theirs comes, goes, is decided or moved, or they are excluded,
by triggers (revision p0012), whoever does that. So where there is one, it says what the rows say, and what of the
worker's answers is usable was marked for these rows, these decisions and that record; where there is none, the
worker is to be judged again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import delete, exists, func, select
from sqlalchemy.orm import Session

from mitl.core.arrays import Ints
from mitl.db.models import AnswerSheet, Assignment, ControlSheet, Worker
from mitl.db.store import desk as desk_store
from mitl.db.store.answer_sheets import answers_of
from mitl.db.store.proposals import pairs_of_rows
from mitl.db.store.statements import add_tuples, change_among
from mitl.judgements import gold_records
from mitl.judgements.gold_records import GoldState
from mitl.records import Environment
from mitl.records.frames import NONE, Columns, is_gold
from mitl.records.questions import GoldRule

_STORED = np.dtype("<i8")
_LABEL, _ROLE, _PAIR = 0, 4, 8
"""Where each begins in the number of an answer; the label is one more than its code."""
_MASK = 15


def control_answers(session: Session, environment: Environment) -> dict[str, Ints]:
    """Worker, pair's row, role and label of every answer on a control, by worker; each (answers,)."""
    contents = _kept(session, environment)
    unjudged = to_judge(session, environment, {})
    if unjudged:
        contents |= _contents(answers_of(session, environment, unjudged), unjudged)
    workers = np.array(sorted(contents), np.int64)
    lengths = [len(contents[worker]) // _STORED.itemsize for worker in workers.tolist()]
    numbers = np.frombuffer(b"".join(contents[worker] for worker in workers.tolist()), _STORED)
    return {
        "worker": np.repeat(workers, lengths),
        "pair": (numbers >> _PAIR).astype(np.int64),
        "role": (numbers >> _ROLE & _MASK).astype(np.int64),
        "label": (numbers >> _LABEL & _MASK).astype(np.int64) + NONE,
    }


def _kept(session: Session, environment: Environment) -> dict[int, bytes]:
    """Worker → content of the sheet, as it is stored."""
    query = (
        select(ControlSheet.worker_id, ControlSheet.content)
        .join(Worker, Worker.id == ControlSheet.worker_id)
        .where(Worker.environment == environment)
    )
    return {worker: bytes(content) for worker, content in session.execute(query)}


def _contents(answers: Columns, workers: Iterable[int]) -> dict[int, bytes]:
    """Worker → content of the sheet, from answers that hold all of these workers'."""
    met = is_gold(answers)
    worker, pair, role, label = (
        np.asarray(answers[name])[met].astype(np.int64) for name in ("worker", "pair", "role", "label")
    )
    numbers = (pair << _PAIR) + (role << _ROLE) + (label - NONE << _LABEL)
    return by_worker(worker, numbers.astype(_STORED), workers)


def by_worker(worker: Ints, numbers: NDArray[np.integer], workers: Iterable[int]) -> dict[int, bytes]:
    """Worker → the bytes of their numbers, ascending; of these workers, nothing left out.

    Args:
        worker: (n,), rows.
        numbers: (n,), as they are stored.
    """
    order = np.lexsort((numbers, worker))
    worker, numbers = worker[order], numbers[order]
    ids = np.array(sorted(workers), np.int64)
    begins, ends = (np.searchsorted(worker, ids, side).tolist() for side in ("left", "right"))
    return {
        id_: numbers[begin:end].tobytes() for id_, begin, end in zip(ids.tolist(), begins, ends, strict=True)
    }


def to_judge(session: Session, environment: Environment, is_bad: Mapping[int, bool]) -> list[int]:
    """Rows of the workers without a sheet, and of those who were judged by another record; ascending.

    Args:
        is_bad: worker → whether the record is bad now.
    """
    query = (
        select(Worker.id, ControlSheet.is_bad)
        .outerjoin(ControlSheet, ControlSheet.worker_id == Worker.id)
        .where(Worker.environment == environment)
        .order_by(Worker.id)
    )
    return [
        worker
        for worker, before in session.execute(query)
        if before is None or before != is_bad.get(worker, before)
    ]


def keep(session: Session, answers: Columns, is_bad: Mapping[int, bool]) -> None:
    """Write the sheets of workers who were judged just now and whose answer sheets are all there.

    Args:
        answers: all answers of these workers.
        is_bad: worker → whether the record by which they were judged is bad.
    """
    change_among(session, delete(ControlSheet), ControlSheet.worker_id, is_bad)
    rows: Sequence[tuple[Any, ...]] = [
        (worker, is_bad[worker], content) for worker, content in _contents(answers, is_bad).items()
    ]
    add_tuples(session, ControlSheet, ("worker_id", "is_bad", "content"), rows)


def stale(session: Session) -> int:
    """How many sheets do not say what the rows say, or stand where an answer sheet is missing; it looks at all."""
    count = 0
    for environment in Environment:
        kept = _kept(session, environment)
        right = _contents(answers_of(session, environment, sorted(kept)), kept) if kept else {}
        count += sum(content != right[worker] for worker, content in kept.items())
    missing = ~exists().where(AnswerSheet.assignment_id == Assignment.id)
    without = (
        select(func.count(Assignment.worker_id.distinct()))
        .join(ControlSheet, ControlSheet.worker_id == Assignment.worker_id)
        .where(missing)
    )
    return count + (session.scalar(without) or 0)


def gold_state(session: Session, environment: Environment, rule: GoldRule) -> GoldState:
    """Records and withdrawn controls over all stored answers of an environment."""
    return gold_records.gold_state(
        control_answers(session, environment),
        rule,
        names=desk_store.worker_names(session, environment),
        pairs_of=partial(pairs_of_rows, session),
    )
