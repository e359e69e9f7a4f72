"""Posting HITs so that none is lost and none is doubled, whenever the process dies."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from sqlalchemy.orm import Session

from mitl.crowd.client import ListedHit, MTurkClient
from mitl.db.store import hits as hit_store
from mitl.db.store import journal
from mitl.db.store.hits import HitRow
from mitl.progress import Progress
from mitl.records import BatchKind, Environment, HitState, JournalState
from mitl.stages.calls import Call, make_calls
from mitl.stages.publishing.hit_calls import create_hit
from mitl.stages.publishing.planning import annotation

CREATE = "create"

UNPOSTED = (HitState.PLANNED, HitState.SENDING)


def reconcile(
    session: Session,
    project_id: str,
    environment: Environment,
    list_hits: Callable[[], Iterable[ListedHit]],
) -> Counter[BatchKind]:
    """Adopt the HITs that reached the server though this database does not know it; returns how many of each kind.

    Their reply was lost, or the database is an older one, restored. They are found by their annotation in one sweep
    of ListHITs, which works after the 24 hours too during which the server remembers request tokens.
    """
    wanted = {
        annotation(project_id, hit): (kind, hit)
        for kind in BatchKind
        for hit in hit_store.hits(session, environment, UNPOSTED, kind)
    }
    session.rollback()
    adopted: Counter[BatchKind] = Counter()
    for listed in list_hits() if wanted else ():
        kind, hit = wanted.pop(listed.annotation or "", (None, None))
        if kind is not None and hit is not None:
            _adopt(session, project_id, hit, listed.hit_id)
            adopted[kind] += 1
    session.commit()
    return adopted


def post(
    session: Session,
    client: MTurkClient,
    project_id: str,
    hits: Sequence[HitRow],
    hit_type_of: Callable[[HitRow], str],
    question_of: Callable[[HitRow], str],
    progress: Progress,
    *,
    in_order: bool = False,
    before_window: Callable[[Sequence[HitRow]], None] | None = None,
) -> int:
    """Create these HITs and return their number.

    Each window of HITs goes planned → sending → posted with a commit before the calls and one after them. A HIT whose
    call fails stays in ``sending``, to be reconciled and sent again with the same token.

    Args:
        in_order: as in `make_calls`.
        before_window: is shown a window's HITs before they are sent and may raise to stop there.

    Raises:
        CrowdError: the first failure of a window, after what succeeded in it was booked.
    """
    questions: dict[int, str] = {}

    def prepare(window: Sequence[Call[HitRow]]) -> None:
        due = [one.subject for one in window]
        if before_window is not None:
            before_window(due)
            session.rollback()
        questions.clear()
        questions.update({hit.id: question_of(hit) for hit in due})
        hit_store.set_state(session, [hit.id for hit in due], HitState.SENDING)

    def create(hit: HitRow) -> dict[str, str]:
        return {"HITId": create_hit(client, project_id, hit, hit_type_of(hit), questions[hit.id])}

    return make_calls(
        session,
        CREATE,
        [_call(project_id, hit) for hit in hits],
        call=create,
        book=lambda hit, reply: hit_store.set_posted(session, hit.id, reply["HITId"]),
        progress=progress,
        label="post",
        in_order=in_order,
        before_window=prepare,
        not_made=lambda hit: hit_store.set_state(session, [hit.id], HitState.PLANNED),
    )


def _call(project_id: str, hit: HitRow) -> Call[HitRow]:
    return Call(hit.key, hit, {"annotation": annotation(project_id, hit)}, hit.token)


def _adopt(session: Session, project_id: str, hit: HitRow, mturk_hit_id: str) -> None:
    now = dt.datetime.now(dt.UTC)
    one = _call(project_id, hit)
    # A restored database may not have written down yet that the HIT was to be sent.
    journal.plan(session, CREATE, [(one.key, one.token, json.dumps(one.request))], now)
    hit_store.set_posted(session, hit.id, mturk_hit_id)
    journal.mark(
        session, CREATE, [hit.key], JournalState.DONE, now, reply=json.dumps({"HITId": mturk_hit_id})
    )
