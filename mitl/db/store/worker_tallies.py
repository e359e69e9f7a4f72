"""What one worker's answers come to, in one row: how many, how fast, the pairs they settle, the HITs they serve.

It is written beside the worker's `ControlSheet`, by whoever judges, and goes with it (revision p0013): the database
drops the sheet when anything changes that the tally rests on, and the foreign key drops the tally. So where there is
one, it says what the rows say; of a worker without one, the answers are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from mitl.core.packed import coded
from mitl.db.models import ControlSheet, Worker, WorkerTally
from mitl.db.store.answer_sheets import answers_of
from mitl.db.store.bulk import add_tuples, chunks
from mitl.db.store.control_sheets import by_worker
from mitl.judgements.conduct import medians_s
from mitl.records import Environment, PairRole
from mitl.records.frames import Columns, is_asked, is_role

_STORED = np.dtype("<i4")
_COLUMNS = ("answers", "median_s", "judged", "hits")
Row = tuple[int, float | None, bytes, bytes]


@dataclass(frozen=True, slots=True)
class Tallies:
    """The answers of an environment, worker by worker."""

    answers: int
    """Places of pages that were read, answered or not."""
    median_s: Mapping[int, float]
    """Worker's row → median active seconds on one pair; nobody of whom nothing was measured."""
    judged: NDArray[np.int32]
    """Rows of the pairs that were asked and have a usable answer, once for each worker."""
    hits: NDArray[np.int32]
    """Rows of the HITs of which a submission gave a usable answer on a candidate or audit question, once for each."""


def tallies_of(session: Session, environment: Environment) -> Tallies:
    """Those of all workers; the answers are read of those alone of whom something changed since they were judged."""
    query = (
        select(Worker.id, *(getattr(WorkerTally, name) for name in _COLUMNS))
        .outerjoin(ControlSheet, ControlSheet.worker_id == Worker.id)
        .outerjoin(WorkerTally, WorkerTally.worker_id == ControlSheet.worker_id)
        .where(Worker.environment == environment)
    )
    rows: dict[int, Row] = {worker: row for worker, *row in session.execute(query)}  # type: ignore[misc]
    missing = sorted(worker for worker, (answers, *_) in rows.items() if answers is None)
    if missing:
        rows |= _rows(answers_of(session, environment, missing), missing)
    found = rows.values()
    return Tallies(
        sum(answers for answers, *_ in found),
        {worker: median for worker, (_, median, *_) in rows.items() if median is not None},
        np.frombuffer(b"".join(judged for *_, judged, _ in found), _STORED),
        np.frombuffer(b"".join(hits for *_, hits in found), _STORED),
    )


def keep(session: Session, answers: Columns, workers: list[int]) -> None:
    """Write the tallies of workers whose sheets of controls were written just now.

    Args:
        answers: all answers of these workers, by submission and place.
    """
    for chunk in chunks(workers):
        session.execute(delete(WorkerTally).where(WorkerTally.worker_id.in_(chunk)))
    rows = ((worker, *row) for worker, row in _rows(answers, workers).items())
    add_tuples(session, WorkerTally, ("worker_id", *_COLUMNS), rows)


def stale(session: Session) -> int:
    """How many tallies do not say what the rows say; it looks at every answer."""
    count = 0
    for environment in Environment:
        query = (
            select(Worker.id, *(getattr(WorkerTally, name) for name in _COLUMNS))
            .join(WorkerTally, WorkerTally.worker_id == Worker.id)
            .where(Worker.environment == environment)
        )
        kept: dict[int, Row] = {
            worker: (answers, median_s, bytes(judged), bytes(hits))
            for worker, answers, median_s, judged, hits in session.execute(query)
        }
        right = _rows(answers_of(session, environment, sorted(kept)), sorted(kept)) if kept else {}
        count += sum(row != right[worker] for worker, row in kept.items())
    return count


def _rows(answers: Columns, workers: list[int]) -> dict[int, Row]:
    """Worker → what is stored, from answers that hold all of these workers'."""
    worker, assignment, pair, hit, active_ms = (
        np.asarray(answers[name], np.int64) for name in ("worker", "assignment", "pair", "hit", "active_ms")
    )
    usable = np.asarray(answers["usable"])
    known, code = coded(worker)
    counts = dict(zip(known.tolist(), np.bincount(code, minlength=len(known)).tolist(), strict=True))
    medians = {int(known[place]): median for place, median in medians_s(code, active_ms).items()}
    asked = usable & is_asked(answers)
    served = np.flatnonzero(usable & is_role(answers, PairRole.CANDIDATE, PairRole.AUDIT))
    served = served[np.diff(assignment[served], prepend=-1) != 0]
    judged = by_worker(worker[asked], pair[asked].astype(_STORED), workers)
    hits = by_worker(worker[served], hit[served].astype(_STORED), workers)
    return {id_: (counts.get(id_, 0), medians.get(id_), judged[id_], hits[id_]) for id_ in workers}
