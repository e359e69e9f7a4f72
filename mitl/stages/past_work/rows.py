"""The rows of a file by submission: which are of HITs of ours, which are of somebody else's batch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from mitl.crowd.batch_csv import Layout, Submission, submission
from mitl.crowd.result_file import ResultFile, ResultRow
from mitl.db.store import hits as hit_store
from mitl.db.store.hits import HitRow
from mitl.errors import DatasetError
from mitl.records import Environment, JudgementSource
from mitl.settings import Settings

_ANNOTATION = re.compile(r"mitl1:([^:]+):([^:]+:\d+:\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class SubmissionRow:
    """One row with what it says of its submission."""

    row: ResultRow
    cells: Mapping[str, str]
    submission: Submission


def submission_rows(file: ResultFile, layout: Layout) -> tuple[list[SubmissionRow], int]:
    """The rows that hold a submission, each submission once, and how many rows hold none.

    Raises:
        DatasetError: a row lacks one of its ids, or repeats a submission with other cells.
    """
    found: dict[tuple[str, str], SubmissionRow] = {}
    unanswered = 0
    for row in file.rows:
        cells = dict(zip(file.columns, row.cells, strict=True))
        said = submission(layout, cells)
        if not said.assignment_id and not said.worker_id:
            unanswered += 1
            continue
        _require_ids(file, layout, row, said)
        first = found.setdefault((said.assignment_id, said.worker_id), SubmissionRow(row, cells, said))
        if first.row.cells != row.cells:
            raise DatasetError(
                f"line {row.line} of {file.name!r} repeats submission {said.assignment_id} of line "
                f"{first.row.line} with other cells; keep the right one of them"
            )
    return list(found.values()), unanswered


def sort_rows(
    session: Session, settings: Settings, environment: Environment, rows: Sequence[SubmissionRow]
) -> tuple[list[tuple[HitRow, SubmissionRow]], list[SubmissionRow]]:
    """The rows of HITs of ours, each with its HIT, and the others.

    A HIT of ours is known by its annotation, else by its id on the server.

    Raises:
        DatasetError: a row is of a HIT of another environment, or of one of this project that the database lacks or
            knows by another id.
    """
    batches = hit_store.batches(session)
    crowd = {batch.id for batch in batches if batch.source is JudgementSource.CROWD}
    here = [hit for hit in hit_store.hits(session, environment) if hit.batch_id in crowd]
    by_key = {hit.key: hit for hit in here}
    by_id = {hit.mturk_hit_id: hit for hit in here if hit.mturk_hit_id}
    (other,) = (one for one in Environment if one is not environment)
    elsewhere = {hit.mturk_hit_id for hit in hit_store.hits(session, other) if hit.mturk_hit_id}
    own, foreign = [], []
    for row in rows:
        if row.submission.hit_id in elsewhere:
            raise DatasetError(
                f"line {row.row.line} is of HIT {row.submission.hit_id}, which is on {other} here; say --{other}"
            )
        annotated = _ANNOTATION.fullmatch(row.submission.annotation)
        hit = by_id.get(row.submission.hit_id)
        if annotated and annotated[1] == settings.project_id:
            hit = _of_annotation(row, annotated[2], by_key, environment)
        if hit is None:
            foreign.append(row)
        else:
            own.append((hit, row))
    return own, foreign


def _require_ids(file: ResultFile, layout: Layout, row: ResultRow, said: Submission) -> None:
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
                f"line {row.line} of {file.name!r}: {column} is {value[:80]!a}, which is no id"
            )


def _of_annotation(
    row: SubmissionRow, key: str, by_key: Mapping[str, HitRow], environment: Environment
) -> HitRow:
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
