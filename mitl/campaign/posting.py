"""Posting HITs so that none is lost and none is doubled, whenever the process dies.

The two calls that post a HIT are said once: posting makes them, validation checks them and writes them down.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence

from sqlalchemy.orm import Session

from mitl.crowd.calls import Call, make_calls
from mitl.crowd.client import ListedHit, MTurkClient
from mitl.db.store import hits as hit_store
from mitl.db.store import journal
from mitl.db.store.hits import UNPOSTED, HitRow
from mitl.hits.templates import HitTemplate
from mitl.progress import Progress
from mitl.records import Environment, HitState, JournalState
from mitl.settings import ASSIGNMENT_DURATION_S, AUTO_APPROVAL_S, LIFETIME_S

CREATE = "create"


def token(project_id: str, batch: str, number: int, attempt: int) -> str:
    """The ``UniqueRequestToken`` of a HIT: 48 hexadecimal digits of a hash over what names it."""
    name = f"mitl1:{project_id}:{batch}:{number}:{attempt}"
    return hashlib.sha256(name.encode()).hexdigest()[:48]


def annotation_prefix(project_id: str) -> str:
    """How the annotations of all HITs of a project begin."""
    return f"mitl1:{project_id}:"


def annotation(project_id: str, hit: HitRow) -> str:
    """The ``RequesterAnnotation`` of a HIT, by which it is found again."""
    return annotation_prefix(project_id) + hit.key


def create_hit_type(client: MTurkClient, template: HitTemplate, reward_cents: int, guard: str) -> str:
    """The id of the HIT type of a wording at a price, which nobody sees who holds the qualification ``guard``."""
    return client.create_hit_type(
        title=template.title,
        description=template.description,
        keywords=template.keywords,
        reward_cents=reward_cents,
        assignment_duration_s=ASSIGNMENT_DURATION_S,
        auto_approval_s=AUTO_APPROVAL_S,
        exclude_qualification=guard,
    )


def create_hit(client: MTurkClient, project_id: str, hit: HitRow, hit_type_id: str, question: str) -> str:
    """Post a HIT under its own token and annotation; the id that the server gives it."""
    return client.create_hit(
        hit_type_id=hit_type_id,
        question=question,
        max_assignments=hit.assignments,
        lifetime_s=LIFETIME_S,
        annotation=annotation(project_id, hit),
        token=hit.token,
    ).hit_id


def reconcile(
    session: Session,
    project_id: str,
    environment: Environment,
    list_hits: Callable[[], Iterable[ListedHit]],
) -> int:
    """Adopt the HITs that reached the server though this database does not know it; returns how many.

    Their reply was lost, or the database is an older one, restored. They are found by their annotation in one sweep
    of ListHITs, which works after the 24 hours too during which the server remembers request tokens.
    """
    wanted = {annotation(project_id, hit): hit for hit in hit_store.hits(session, environment, UNPOSTED)}
    session.rollback()
    adopted = 0
    for listed in list_hits() if wanted else ():
        hit = wanted.pop(listed.annotation or "", None)
        if hit is not None:
            _adopt(session, project_id, hit, listed.hit_id)
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
    progress: Progress,
    *,
    in_order: bool = False,
    before_window: Callable[[], None] | None = None,
) -> int:
    """Create these HITs and return their number.

    Each window of HITs goes planned → sending → posted with a commit before the calls and one after them. A HIT whose
    call fails stays in ``sending``, to be reconciled and sent again with the same token.

    Args:
        in_order: as in `make_calls`.
        before_window: is called before a window's HITs are sent and may raise to stop there.

    Raises:
        CrowdError: the first failure of a window, after what succeeded in it was booked.
    """
    questions: dict[int, str] = {}

    def prepare(window: Sequence[Call[HitRow]]) -> None:
        due = [one.subject for one in window]
        if before_window is not None:
            before_window()
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
