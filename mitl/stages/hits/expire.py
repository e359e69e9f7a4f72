"""Ending HITs early: nobody new may take them, and who is at work may finish."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence

from mitl.crowd.calls import Call, make_calls
from mitl.crowd.client import ListedHit
from mitl.db.store import hits as hit_store
from mitl.db.store import journal
from mitl.progress import Progress, no_progress
from mitl.records import Environment, HitState, JournalState, StageResult
from mitl.settings import Settings
from mitl.stages.hits.scope import Scope, open_scope

EXPIRE = "expire"


def expire(
    settings: Settings,
    batches: Sequence[str],
    environment: Environment | None = None,
    *,
    orphans: bool = False,
    progress: Progress = no_progress,
) -> StageResult:
    """End the HITs of these batches, or of all batches where none is named, that can still be taken.

    Args:
        orphans: end those HITs of this project instead that are on the server and not in this database.

    Raises:
        UsageError: no such batch.
        CrowdError: a call failed; those that succeeded are booked.
    """
    with open_scope(settings, batches, environment) as scope:
        if orphans:
            hits = [(f"orphan:{hit.hit_id}", hit) for hit in scope.sweep.orphans]
        else:
            hits = [(hit.key, found) for hit, found in scope.out()]
        dropped = 0 if orphans else _drop_planned(scope)
        calls = _calls(scope, hits)
        ended = make_calls(
            scope.session,
            EXPIRE,
            calls,
            call=lambda hit: scope.client.expire(hit.hit_id),
            book=lambda hit, _: None,
            progress=progress,
        )
        at_work = sum(one.subject.n_pending for one in calls)
        return _result(scope, ended, dropped, at_work=at_work, orphans=orphans)


def _drop_planned(scope: Scope) -> int:
    """Close what was planned and never sent, which frees what it promised; its pairs are open again."""
    never_sent = [hit.id for hit in scope.hits if hit.state is HitState.PLANNED]
    hit_store.set_state(scope.session, never_sent, HitState.CLOSED)
    scope.session.commit()
    return len(never_sent)


def _calls(scope: Scope, hits: Sequence[tuple[str, ListedHit]]) -> list[Call[ListedHit]]:
    """What is still to be ended, and what an interrupted run may have ended without hearing of it.

    A HIT may be ended, given more time and ended again, so its calls are numbered.
    """
    states = journal.states(scope.session, EXPIRE)
    scope.session.rollback()
    done = Counter(key.rpartition(":")[0] for key, state in states.items() if state is JournalState.DONE)
    now = dt.datetime.now(dt.UTC)
    found = []
    for name, hit in hits:
        key = f"{name}:{done[name] + 1}"
        if _can_be_taken(hit, now) or states.get(key) is JournalState.SENDING:
            found.append(Call(key, hit, {"hit": hit.hit_id, "expires_at": hit.expires_at.isoformat()}))
    return found


def _can_be_taken(hit: ListedHit, now: dt.datetime) -> bool:
    """Now, or when somebody who is at work on it gives it back."""
    return hit.expires_at > now and hit.n_available + hit.n_pending > 0


def _result(scope: Scope, ended: int, dropped: int, *, at_work: int, orphans: bool) -> StageResult:
    lines = []
    if not ended and not dropped:
        lines.append("nothing to do: no such HIT can be taken")
    elif ended:
        lines.append(f"{ended:,} HITs can no longer be taken")
    if at_work:
        lines.append(f"{at_work:,} workers are at work on them and may finish; they are paid as usual")
    if dropped:
        lines.append(
            f"{dropped:,} HITs that were planned and never sent are dropped; their pairs are open again"
        )
    unsure = 0 if orphans else scope.planned - dropped
    if unsure:
        lines.append(f"{unsure:,} HITs were being sent when a run died; `mitl publish --reconcile` finds out")
    return StageResult(
        status="done" if ended or dropped else "nothing_to_do",
        counts={
            "environment": scope.environment.value,
            "expired": ended,
            "at_work": at_work,
            "dropped": dropped,
            "hits_planned": unsure,
        },
        warnings=scope.sweep.warnings if not orphans else (),
        lines=tuple(lines),
        next="mitl harvest, which fetches what was submitted and opens the other pairs again",
    )
