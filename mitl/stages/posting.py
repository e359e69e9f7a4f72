"""Posting HITs so that none is lost and none is doubled, whenever the process dies."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy.orm import Session

from mitl.crowd.client import ListedHit, MTurkClient
from mitl.db.store import hits as hit_store
from mitl.db.store import journal
from mitl.db.store.hits import HitRow
from mitl.errors import CrowdError
from mitl.progress import Progress
from mitl.records import Environment, HitState, JournalState
from mitl.settings import LIFETIME_S
from mitl.stages.planning import annotation

CREATE = "create"

WINDOW = 16
"""HITs in flight at once: marked as sending in one commit, called together, booked in one commit."""
_THREADS = 4


def reconcile(
    session: Session,
    project_id: str,
    environment: Environment,
    list_hits: Callable[[], Iterable[ListedHit]],
) -> int:
    """Adopt the HITs that reached the server though their reply was lost; returns how many.

    They are found by their annotation in one sweep of ListHITs, which works after the 24 hours too during which
    the server remembers request tokens.
    """
    sending = hit_store.hits(session, environment, (HitState.SENDING,))
    session.rollback()
    if not sending:
        return 0
    wanted = {annotation(project_id, hit): hit for hit in sending}
    adopted = 0
    for found in list_hits():
        hit = wanted.pop(found.annotation or "", None)
        if hit is not None:
            _book(session, hit, found.hit_id)
            adopted += 1
    session.commit()
    return adopted


def post(
    session: Session,
    client: MTurkClient,
    project_id: str,
    hits: Sequence[HitRow],
    hit_type_of: Callable[[HitRow], str],
    question_of: Callable[[HitRow], str],
    assignments_of: Callable[[HitRow], int],
    progress: Progress,
    *,
    in_order: bool = False,
) -> int:
    """Create these HITs and return their number.

    Each window of HITs goes planned → sending → posted with a commit before the calls and one after them. A call
    that fails leaves its HIT in ``sending``, to be reconciled and sent again with the same token.

    Args:
        in_order: make the HITs one after the other. A server in this process gains nothing by threads, and in
            the same order its workers meet the same HITs.

    Raises:
        CrowdError: the first failure of a window, after what succeeded in it was booked.
    """
    posted = 0
    with (
        progress("post", len(hits)) as advance,
        ThreadPoolExecutor(1 if in_order else _THREADS, thread_name_prefix="post") as pool,
    ):
        for start in range(0, len(hits), WINDOW):
            window = hits[start : start + WINDOW]
            questions = {hit.id: question_of(hit) for hit in window}
            _announce(session, project_id, window)

            def create(hit: HitRow, questions: dict[int, str] = questions) -> str:
                return client.create_hit(
                    hit_type_id=hit_type_of(hit),
                    question=questions[hit.id],
                    max_assignments=assignments_of(hit),
                    lifetime_s=LIFETIME_S,
                    annotation=annotation(project_id, hit),
                    token=hit.token,
                ).hit_id

            futures = [(hit, pool.submit(create, hit)) for hit in window]
            failure: CrowdError | None = None
            for hit, future in futures:
                try:
                    mturk_hit_id = future.result()
                except CrowdError as error:
                    failure = failure or error
                    journal.mark(session, CREATE, [hit.key], JournalState.FAILED, _now(), error=str(error))
                    continue
                _book(session, hit, mturk_hit_id)
                posted += 1
                advance(1)
            session.commit()
            if failure is not None:
                raise failure
    return posted


def _announce(session: Session, project_id: str, window: Sequence[HitRow]) -> None:
    calls = [(hit.key, hit.token, json.dumps({"annotation": annotation(project_id, hit)})) for hit in window]
    journal.plan(session, CREATE, calls, _now())
    journal.mark(session, CREATE, [hit.key for hit in window], JournalState.SENDING, _now())
    hit_store.set_state(session, [hit.id for hit in window], HitState.SENDING)
    session.commit()


def _book(session: Session, hit: HitRow, mturk_hit_id: str) -> None:
    hit_store.set_posted(session, hit.id, mturk_hit_id)
    reply = json.dumps({"HITId": mturk_hit_id})
    journal.mark(session, CREATE, [hit.key], JournalState.DONE, _now(), reply=reply)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
