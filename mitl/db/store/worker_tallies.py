"""What one worker's answers come to, in one row: how many, how fast, the pairs they settle, the HITs they serve, and
what is compared with other workers' answers.

It is written beside the worker's `ControlSheet`, by whoever judges, and goes with it (revision p0013): the database
drops the sheet when anything changes that the tally rests on, and the foreign key drops the tally. So where there is
one, it says what the rows say; of a worker without one, the answers are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from mitl.core.arrays import Ints, coded
from mitl.db.models import ControlSheet, Worker, WorkerTally
from mitl.db.store.answer_sheets import answers_of
from mitl.db.store.control_sheets import by_worker
from mitl.db.store.statements import add_tuples, change_among
from mitl.judgements.conduct import (
    Agreement,
    AnswerRun,
    FirstAnswers,
    first_answers,
    label_counts,
    longest_runs,
    medians_s,
)
from mitl.records import Environment, PairRole
from mitl.records.frames import LABELS, Columns, is_asked, is_labelled, is_role

_STORED = np.dtype("<i4")
_SIDE = np.dtype("<u4")
"""Twice a pair's row, and 1 more where the answer said match."""
_COUNTED = ("answers", "median_s", "judged", "hits")
_COMPARED = ("answers", "median_s", "conduct", "first")
_COLUMNS = (*_COUNTED, "conduct", "first")
Row = dict[str, Any]


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
    rows = _kept(session, environment, _COUNTED)
    stored = rows.values()
    judged = np.frombuffer(b"".join(row["judged"] for row in stored), _STORED)  # ascending for each worker
    is_first = np.diff(judged, prepend=-1) != 0
    lengths = [len(row["judged"]) // _STORED.itemsize for row in stored]
    begins = np.cumsum([0, *lengths])
    is_first[begins[begins < len(judged)]] = True
    return Tallies(
        sum(row["answers"] for row in stored),
        {worker: row["median_s"] for worker, row in rows.items() if row["median_s"] is not None},
        judged[is_first],
        np.frombuffer(b"".join(row["hits"] for row in stored), _STORED),
    )


@dataclass(frozen=True, slots=True)
class Conduct:
    """How one worker answers, whatever others answer."""

    answers: int
    """Places of pages that were read, answered or not."""
    median_s: float | None
    """Active seconds on one pair; None where nothing was measured."""
    labels: tuple[int, ...]
    """How often each label was given, in the order of `LABELS`."""
    run: AnswerRun | None
    """The longest row of one answer on a page."""
    consistency: Agreement | None
    """With the worker's own first answers; None where no pair came twice."""


def conduct_of(session: Session, environment: Environment) -> tuple[dict[int, Conduct], FirstAnswers]:
    """Worker's row → how they answer, of those who have an answer, and everybody's first answers on pairs that were
    asked, in the order of these rows."""
    rows = {worker: row for worker, row in _kept(session, environment, _COMPARED).items() if row["answers"]}
    conduct = {worker: _conduct(row) for worker, row in sorted(rows.items())}
    contents = [rows[worker]["first"] for worker in conduct]
    numbers = np.frombuffer(b"".join(contents), _SIDE)
    whose = np.repeat(np.arange(len(contents)), [len(content) // _SIDE.itemsize for content in contents])
    return conduct, FirstAnswers(whose, (numbers >> 1).astype(np.int64), (numbers & 1).astype(np.bool_))


def _conduct(row: Row) -> Conduct:
    numbers = np.frombuffer(row["conduct"], _STORED).tolist()
    labels, (length, label, same, comparisons) = numbers[: len(LABELS)], numbers[len(LABELS) :]
    return Conduct(
        row["answers"],
        row["median_s"],
        tuple(labels),
        AnswerRun(length, LABELS[label]) if length else None,
        Agreement(same, comparisons) if comparisons else None,
    )


def _kept(session: Session, environment: Environment, names: Sequence[str]) -> dict[int, Row]:
    """Worker → these columns; made of the rows where they are not kept."""
    query = (
        select(Worker.id, *(getattr(WorkerTally, name) for name in names))
        .outerjoin(ControlSheet, ControlSheet.worker_id == Worker.id)
        .outerjoin(WorkerTally, WorkerTally.worker_id == ControlSheet.worker_id)
        .where(Worker.environment == environment)
    )
    rows = {worker: dict(zip(names, row, strict=True)) for worker, *row in session.execute(query)}
    missing = sorted(worker for worker, row in rows.items() if row["answers"] is None)
    if missing:
        rows |= _rows(answers_of(session, environment, missing), missing)
    return rows


def fill(session: Session) -> None:
    """Write the tallies of judged workers who have none, as after a revision that counts otherwise."""
    for environment in Environment:
        query = (
            select(Worker.id)
            .join(ControlSheet, ControlSheet.worker_id == Worker.id)
            .outerjoin(WorkerTally, WorkerTally.worker_id == Worker.id)
            .where(Worker.environment == environment, WorkerTally.worker_id.is_(None))
            .order_by(Worker.id)
        )
        if missing := list(session.scalars(query)):
            keep(session, answers_of(session, environment, missing), missing)


def keep(session: Session, answers: Columns, workers: list[int]) -> None:
    """Write the tallies of workers whose sheets of controls were written just now.

    Args:
        answers: all answers of these workers, by submission and place.
    """
    change_among(session, delete(WorkerTally), WorkerTally.worker_id, workers)
    tallies = _rows(answers, workers).items()
    rows = ((worker, *(row[name] for name in _COLUMNS)) for worker, row in tallies)
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
        kept = {worker: dict(zip(_COLUMNS, row, strict=True)) for worker, *row in session.execute(query)}
        right = _rows(answers_of(session, environment, sorted(kept)), sorted(kept)) if kept else {}
        count += sum(row != right[worker] for worker, row in kept.items())
    return count


def _rows(answers: Columns, workers: list[int]) -> dict[int, Row]:
    """Worker → what is stored, from answers that hold all of these workers'."""
    worker, assignment, pair, hit, active_ms = (
        np.asarray(answers[name], np.int64) for name in ("worker", "assignment", "pair", "hit", "active_ms")
    )
    usable = np.asarray(answers["usable"])
    ids, code = coded(worker)
    counts = dict(zip(ids.tolist(), np.bincount(code, minlength=len(ids)).tolist(), strict=True))
    medians = {int(ids[place]): median for place, median in medians_s(code, active_ms).items()}
    asked = usable & is_asked(answers)
    served = np.flatnonzero(usable & is_role(answers, PairRole.CANDIDATE, PairRole.AUDIT))
    served = served[np.diff(assignment[served], prepend=-1) != 0]
    judged = by_worker(worker[asked], pair[asked].astype(_STORED), workers)
    hits = by_worker(worker[served], hit[served].astype(_STORED), workers)
    conduct, first = _compared(answers, ids, code, assignment, pair)
    firsts = by_worker(ids[first.worker], (2 * first.pair + first.side).astype(_SIDE), workers)
    return {
        id_: {
            "answers": counts.get(id_, 0),
            "median_s": medians.get(id_),
            "judged": judged[id_],
            "hits": hits[id_],
            "conduct": conduct.get(id_, b""),
            "first": firsts[id_],
        }
        for id_ in workers
    }


def _compared(
    answers: Columns, known: Ints, code: Ints, assignment: Ints, pair: Ints
) -> tuple[dict[int, bytes], FirstAnswers]:
    """Worker → how often each label was given, the longest row of one and which, agreement with own first answers; and
    these answers, by the workers' codes.

    Args:
        known: (workers,), rows.
        code: (answers,), places in it.
    """
    label = np.asarray(answers["label"])
    answered = is_labelled(answers) & is_asked(answers)
    first, counts = first_answers(code[answered], pair[answered], label[answered])
    runs = longest_runs(code, assignment, label)
    numbers = np.zeros((len(known), len(LABELS) + 4), _STORED)
    numbers[:, : len(LABELS)] = label_counts(code, label, len(known))
    for place, run in runs.items():
        numbers[place, -4:-2] = run.length, LABELS.index(run.label)
    for place, agreed in counts.items():
        numbers[place, -2:] = agreed.same, agreed.comparisons
    return {worker: row.tobytes() for worker, row in zip(known.tolist(), numbers, strict=True)}, first
