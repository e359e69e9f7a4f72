"""Submissions of HITs of ours that come in a file: stored, paid for in the books and judged as a harvest would."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence

from sqlalchemy.orm import Session

from mitl.campaign.posting import CREATE
from mitl.crowd.batch_csv import Layout, own_answers
from mitl.crowd.paying import APPROVED, REJECTED, SUBMITTED, book_payment
from mitl.crowd.result_file import ResultFile
from mitl.crowd.row_xml import KeptRows, row_document
from mitl.db.store import answers as answer_store
from mitl.db.store import hits as hit_store
from mitl.db.store import journal
from mitl.db.store import submissions as submission_store
from mitl.db.store.hits import HitRow
from mitl.db.store.submissions import NewSubmission
from mitl.records import Environment, JournalState
from mitl.stages.past_work.rows import SubmissionRow


def store_own(
    session: Session,
    environment: Environment,
    file: ResultFile,
    layout: Layout,
    own: Sequence[tuple[HitRow, SubmissionRow]],
) -> int:
    """Keep the submissions that are new, raw; they are parsed once that is committed. Returns how many."""
    _adopt(session, own)
    given = [
        NewSubmission(
            hit_id=hit.id,
            worker=row.submission.worker_id,
            mturk_assignment_id=row.submission.assignment_id,
            accepted_at=row.submission.accepted_at,
            submitted_at=row.submission.submitted_at,
            status=row.submission.status if row.submission.status in (APPROVED, REJECTED) else SUBMITTED,
            raw_xml=row_document(
                own_answers(layout, row.cells), KeptRows(file.sha256, file.columns, (row.row.cells,))
            ),
        )
        for hit, row in own
    ]
    batches = {batch.id: batch for batch in hit_store.batches(session, environment)}
    batch_ids = {hit.id: hit.batch_id for hit, _ in own}
    added = submission_store.add_submissions(session, environment, given)
    for id_, one in added.items():
        if one.status == APPROVED:
            batch = batches[batch_ids[one.hit_id]]
            key = answer_store.submission_key(one.mturk_assignment_id, one.worker)
            # Our crowd server says its name and charges nothing; Amazon's said none and did.
            book_payment(session, id_, key, batch, charges_fee=batch.server_id is None)
    return len(added)


def _adopt(session: Session, own: Sequence[tuple[HitRow, SubmissionRow]]) -> None:
    """HITs that reached the server though their reply was lost: the file says what they are called there."""
    lost = {hit: row.submission.hit_id for hit, row in own if hit.mturk_hit_id is None}
    for hit, hit_id in lost.items():
        if hit_id:
            hit_store.set_posted(session, hit.id, hit_id)
            reply, now = json.dumps({"HITId": hit_id}), dt.datetime.now(dt.UTC)
            journal.mark(session, CREATE, [hit.key], JournalState.DONE, now, reply=reply)
