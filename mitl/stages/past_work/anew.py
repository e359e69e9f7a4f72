"""What a file brought in, named anew where its columns are said to hold other ids, times or decisions."""

from __future__ import annotations

from sqlalchemy.orm import Session

from mitl.crowd.batch_csv import RowSubmission, find_layout, submission
from mitl.crowd.column_map import ColumnMap
from mitl.crowd.result_file import KeptRows, kept_rows
from mitl.db.store import imports as import_store
from mitl.db.store import submissions as submission_store
from mitl.db.store.submissions import NewSubmission
from mitl.errors import DatasetError
from mitl.records import Environment

Rows = tuple[tuple[str, ...], ...]


def name_anew(
    session: Session, environment: Environment, sha256: str, before: ColumnMap | None, now: ColumnMap | None
) -> tuple[dict[Rows, str], dict[int, RowSubmission]]:
    """Give the submissions that a file brought in the ids and times of another mapping, lest all of them come again.

    Returns:
        Rows → token of the HIT that they stay on; and what the file says now of submissions whose status is another.

    Raises:
        DatasetError: another submission has such ids.
    """
    tokens: dict[Rows, str] = {}
    named: dict[int, NewSubmission] = {}
    changed: dict[int, RowSubmission] = {}
    for document, token in import_store.documents_of_file(session, environment, sha256):
        kept = kept_rows(document.raw_xml)
        if kept is None or kept.sha256 != sha256:
            continue
        tokens[kept.rows] = token
        was, said = _said(kept, before), _said(kept, now)
        if was is None or said is None or said == was or not (said.assignment_id and said.worker_id):
            continue
        if was.status != said.status:
            changed[document.id] = said
        named[document.id] = NewSubmission(
            hit_id=document.hit_id,
            worker=said.worker_id,
            mturk_assignment_id=said.assignment_id,
            accepted_at=said.accepted_at,
            submitted_at=said.submitted_at,
            status=said.status,
            raw_xml=document.raw_xml,
        )
    taken = submission_store.rename(session, environment, named)
    if taken is not None:
        raise DatasetError(
            f"by this mapping the file holds submission {taken.mturk_assignment_id} of worker {taken.worker}, which "
            "another file brought in; restore a backup of before that one, and bring it in last"
        )
    return tokens, changed


def _said(kept: KeptRows, mapping: ColumnMap | None) -> RowSubmission | None:
    """None for the official layout, which names nobody."""
    layout = None if mapping is None else mapping.layout(find_layout(kept.columns))
    return None if layout is None else submission(layout, kept.cells)
