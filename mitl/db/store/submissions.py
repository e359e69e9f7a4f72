"""Submissions as received, written in sets; see `mitl.db.store.parses` for what they say."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, case, func, select, update
from sqlalchemy.orm import Session

from mitl.db.base import values
from mitl.db.models import Assignment, Worker
from mitl.db.store.answers import submission_key
from mitl.db.store.statements import add_rows, query_by_worker, rows_among
from mitl.records import Decision, Environment


@dataclass(frozen=True, slots=True)
class NewSubmission:
    """A submission as the requester API lists it, on a HIT of ours."""

    hit_id: int
    worker: str
    """The worker's id on the requester API."""
    mturk_assignment_id: str
    accepted_at: dt.datetime | None
    submitted_at: dt.datetime | None
    status: str
    raw_xml: str

    @property
    def key(self) -> str:
        """Names the submission in the journal and the ledger."""
        return submission_key(self.mturk_assignment_id, self.worker)


@dataclass(frozen=True, slots=True)
class StoredSubmission:
    """A submission as it stands here."""

    id: int
    status: str
    """As the API said last: Submitted, Approved, Rejected."""
    decision: Decision


def worker_ids(session: Session, environment: Environment, names: Iterable[str]) -> dict[str, int]:
    """Rows of these workers by their ids on the requester API, made at first sight."""
    distinct_names = sorted(set(names))
    stored = _known_workers(session, environment, distinct_names)
    new = [name for name in distinct_names if name not in stored]
    if not new:
        return stored
    add_rows(session, Worker, ({"environment": environment, "mturk_worker_id": name} for name in new))
    return stored | _known_workers(session, environment, new)


def _known_workers(session: Session, environment: Environment, names: Sequence[str]) -> dict[str, int]:
    query = select(Worker.mturk_worker_id, Worker.id).where(Worker.environment == environment)
    return dict(rows_among(session, query, Worker.mturk_worker_id, names))


def add_submissions(
    session: Session, environment: Environment, new: Sequence[NewSubmission]
) -> dict[int, NewSubmission]:
    """Insert those that are not stored yet, with their raw documents; returns them by their new ids.

    A submission is one by its assignment's id and its worker: the id alone may come again after a return.
    """
    workers = worker_ids(session, environment, (submission.worker for submission in new))
    by_key = {(submission.mturk_assignment_id, workers[submission.worker]): submission for submission in new}
    stored = _ids(session, by_key)
    added = {key: submission for key, submission in by_key.items() if key not in stored}
    add_rows(
        session,
        Assignment,
        (
            values(
                Assignment,
                submission,
                worker_id=worker,
                # A rejection by another hand is one here too, and can be reversed.
                decision=Decision.REJECT if submission.status == "Rejected" else Decision.NONE,
            )
            for (_, worker), submission in added.items()
        ),
    )
    return {id_: added[key] for key, id_ in _ids(session, added).items()}


_RENAME = (
    update(Assignment)
    .where(Assignment.id == bindparam("own"))
    .values(
        mturk_assignment_id=bindparam("name"),
        worker_id=bindparam("who"),
        accepted_at=bindparam("accepted"),
        submitted_at=bindparam("submitted"),
    )
)


def rename(
    session: Session, environment: Environment, named: Mapping[int, NewSubmission]
) -> NewSubmission | None:
    """Give stored submissions other ids, workers and times; returns one whose ids another submission has, if any."""
    if not named:
        return None
    workers = worker_ids(session, environment, (new.worker for new in named.values()))
    keys = {(new.mturk_assignment_id, workers[new.worker]): new for new in named.values()}
    taken = [key for key, id_ in _ids(session, keys).items() if id_ not in named]
    if taken:
        return keys[taken[0]]
    rows = [
        {
            "own": id_,
            "name": new.mturk_assignment_id,
            "who": workers[new.worker],
            "accepted": new.accepted_at,
            "submitted": new.submitted_at,
        }
        for id_, new in named.items()
    ]
    # First out of each other's way: ids may change places.
    for given in ([{**row, "name": f"renamed {row['own']}"} for row in rows], rows):
        session.connection().execute(_RENAME, given)
    return None


def documents(
    session: Session, environment: Environment, names: Iterable[str]
) -> dict[tuple[str, str], tuple[int, str, str]]:
    """(Assignment's id, worker's id) → row, status and raw document, of the submissions of these assignments."""
    query = query_by_worker(
        environment,
        Assignment.mturk_assignment_id,
        Worker.mturk_worker_id,
        Assignment.id,
        Assignment.status,
        Assignment.raw_xml,
    )
    rows = rows_among(session, query, Assignment.mturk_assignment_id, names)
    return {(name, worker): (id_, status, document) for name, worker, id_, status, document in rows}


def _ids(session: Session, keys: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """(Assignment's id on the requester API, worker's row) → row, of those that are stored."""
    asked = set(keys)
    query = select(Assignment.mturk_assignment_id, Assignment.worker_id, Assignment.id)
    ids = {}
    for name, worker, id_ in rows_among(
        session, query, Assignment.mturk_assignment_id, sorted({name for name, _ in asked})
    ):
        if (name, worker) in asked:
            ids[name, worker] = id_
    return ids


def stored_submissions(session: Session, hit_ids: Sequence[int]) -> dict[str, StoredSubmission]:
    """The submissions of these HITs that are stored, by key."""
    query = select(
        Assignment.mturk_assignment_id,
        Worker.mturk_worker_id,
        Assignment.id,
        Assignment.status,
        Assignment.decision,
    ).join(Worker, Worker.id == Assignment.worker_id)
    return {
        submission_key(name, worker): StoredSubmission(id_, status, decision)
        for name, worker, id_, status, decision in rows_among(session, query, Assignment.hit_id, hit_ids)
    }


def stored_counts(session: Session, environment: Environment) -> dict[int, tuple[int, int]]:
    """HIT → how many of its submissions are stored, and how many of those the server has settled."""
    settled = func.sum(case((Assignment.status == "Submitted", 0), else_=1))
    query = query_by_worker(environment, Assignment.hit_id, func.count(), settled).group_by(Assignment.hit_id)
    return {hit_id: (stored, int(done)) for hit_id, stored, done in session.execute(query)}
