"""Submissions of HITs of ours that come in a file: stored, paid for in the books and judged as a harvest would."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.campaign.posting import CREATE
from mitl.crowd.batch_csv import Layout, RowSubmission, own_answers, submission
from mitl.crowd.context import Context
from mitl.crowd.paying import APPROVED, REJECTED, SUBMITTED
from mitl.crowd.result_file import KeptRows, ResultFile, ResultRow, row_document
from mitl.db.store import hits as hit_store
from mitl.db.store import journal
from mitl.db.store.hits import StoredHit
from mitl.db.store.submissions import NewSubmission
from mitl.errors import DatasetError
from mitl.records import Environment
from mitl.stages.harvesting.fetching import keep_submissions

_ANNOTATION = re.compile(r"mitl1:([^:]+):([^:]+:\d+:\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class SubmissionRow:
    """One row with what it says of its submission."""

    row: ResultRow
    cells: Mapping[str, str]
    submission: RowSubmission


def new_submission(said: RowSubmission, hit_id: int, status: str, raw_xml: str) -> NewSubmission:
    """What a row says of its submission, to be stored on this HIT."""
    return NewSubmission(
        hit_id=hit_id,
        worker=said.worker_id,
        mturk_assignment_id=said.assignment_id,
        accepted_at=said.accepted_at,
        submitted_at=said.submitted_at,
        status=status,
        raw_xml=raw_xml,
    )


def submission_rows(file: ResultFile, layout: Layout) -> tuple[list[SubmissionRow], int]:
    """The rows that hold a submission, each submission once, and how many rows hold none.

    Raises:
        DatasetError: a row lacks one of its ids, or repeats a submission with other cells.
    """
    rows: dict[tuple[str, str], SubmissionRow] = {}
    unanswered = 0
    for row in file.rows:
        cells = dict(zip(file.columns, row.cells, strict=True))
        said = submission(layout, cells)
        if not said.assignment_id and not said.worker_id:
            unanswered += 1
            continue
        _require_ids(file, layout, row, said)
        first = rows.setdefault((said.assignment_id, said.worker_id), SubmissionRow(row, cells, said))
        if first.row.cells != row.cells:
            raise DatasetError(
                f"line {row.line} of {file.name!r} repeats submission {said.assignment_id} of line "
                f"{first.row.line} with other cells; keep the right one of them, or where each row is one answer "
                "name a column that numbers the rows as assignment"
            )
    return list(rows.values()), unanswered


def sort_rows(
    context: Context, rows: Sequence[SubmissionRow]
) -> tuple[list[tuple[StoredHit, SubmissionRow]], list[SubmissionRow]]:
    """The rows of HITs of ours, each with its HIT, and the others.

    A HIT of ours is known by its annotation, else by its id on the server.

    Raises:
        DatasetError: a row is of a HIT of another environment, or of one of this project that the database lacks or
            knows by another id.
    """
    session, environment = context.session, context.environment
    crowd = {batch.id for batch in hit_store.posted_batches(session)}
    here = [hit for hit in hit_store.hits(session, environment) if hit.batch_id in crowd]
    by_key = {hit.key: hit for hit in here}
    by_id = {hit.mturk_hit_id: hit for hit in here if hit.mturk_hit_id}
    (other,) = (one for one in Environment if one is not environment)
    posted = [hit for hit in hit_store.hits(session, other) if hit.batch_id in crowd]
    elsewhere = {hit.mturk_hit_id for hit in posted if hit.mturk_hit_id}
    own, foreign = [], []
    for row in rows:
        if row.submission.hit_id in elsewhere:
            raise DatasetError(
                f"line {row.row.line} is of HIT {row.submission.hit_id}, which is on {other} here; say --{other}"
            )
        annotated = _ANNOTATION.fullmatch(row.submission.annotation)
        hit = by_id.get(row.submission.hit_id)
        if annotated and annotated[1] == context.settings.project_id:
            hit = _of_annotation(row, annotated[2], by_key, environment)
        if hit is None:
            foreign.append(row)
        else:
            own.append((hit, row))
    return own, foreign


def _require_ids(file: ResultFile, layout: Layout, row: ResultRow, said: RowSubmission) -> None:
    named = {layout.assignment: said.assignment_id, layout.worker: said.worker_id}
    if layout.hit is not None:
        named[layout.hit] = said.hit_id
    for column, value in named.items():
        if not value:
            raise DatasetError(
                f"line {row.line} of {file.name!r} has no {column}; every submission needs one"
            )
        if not value.isprintable():
            raise DatasetError(
                f"line {row.line} of {file.name!r}: {column} is {value[:80]!a}, which is not an id"
            )


def _of_annotation(
    row: SubmissionRow, key: str, by_key: Mapping[str, StoredHit], environment: Environment
) -> StoredHit:
    hit = by_key.get(key)
    if hit is None:
        raise DatasetError(
            f"line {row.row.line} is of HIT {key} of this project, but its database has none of that name on "
            f"{environment}; name the right environment with --sandbox or --live, or restore the database"
        )
    if row.submission.hit_id and hit.mturk_hit_id not in (None, row.submission.hit_id):
        raise DatasetError(
            f"line {row.row.line} says that HIT {key} is {row.submission.hit_id}, but the database knows it as "
            f"{hit.mturk_hit_id}; is the file of another server?"
        )
    return hit


def store_own(
    context: Context, file: ResultFile, layout: Layout, own: Sequence[tuple[StoredHit, SubmissionRow]]
) -> tuple[int, int]:
    """Keep the submissions that are new, raw; they are parsed once that is committed.

    Returns:
        How many, and how many that were here the server had not decided about then.
    """
    _adopt(context.session, own)
    submissions = [
        new_submission(
            row.submission,
            hit.id,
            row.submission.status if row.submission.status in (APPROVED, REJECTED) else SUBMITTED,
            row_document(
                own_answers(layout, row.cells), KeptRows(file.sha256, file.columns, (row.row.cells,))
            ),
        )
        for hit, row in own
    ]
    rows = {batch.id: batch for batch in hit_store.batches(context.session, context.environment)}
    batches = {hit.id: rows[hit.batch_id] for hit, _ in own}
    # Our crowd server says its name and charges nothing; Amazon's said none and did.
    added, decided = keep_submissions(
        context, submissions, batches, charges_fee=lambda batch: batch.server_id is None
    )
    return len(added), len(decided)


def _adopt(session: Session, own: Sequence[tuple[StoredHit, SubmissionRow]]) -> None:
    """HITs that reached the server though their reply was lost: the file says what they are called there."""
    lost = {hit: row.submission.hit_id for hit, row in own if hit.mturk_hit_id is None}
    for hit, hit_id in lost.items():
        if hit_id:
            hit_store.set_posted(session, {hit.id: hit_id})
            reply, now = json.dumps({"HITId": hit_id}), dt.datetime.now(dt.UTC)
            journal.mark_done(session, CREATE, {hit.key: reply}, now)
