"""Deleting HITs on the server whose work is all decided; nothing stored here is lost."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from mitl.crowd.calls import Call, make_calls
from mitl.crowd.client import ListedHit
from mitl.crowd.paying import REJECTED
from mitl.db.store import answers as answer_store
from mitl.db.store import journal
from mitl.progress import Progress, no_progress
from mitl.records import Decision, Environment, HitState, JournalState, StageResult, several
from mitl.settings import Settings
from mitl.stages.harvesting.deadlines import reversible_until
from mitl.stages.hits.scope import Scope, open_scope

DELETE = "delete"
_REVIEWABLE = ("Reviewable", "Reviewing")


def delete(
    settings: Settings,
    batches: Sequence[str],
    environment: Environment | None = None,
    *,
    orphans: bool = False,
    progress: Progress = no_progress,
) -> StageResult:
    """Delete the HITs of these batches, or of all batches where none is named, that are done with.

    A HIT is done with when it is closed here, all its submissions are stored and decided, and none of them was
    rejected so lately that the rejection can still be reversed: a deleted HIT's cannot.

    Args:
        orphans: delete those HITs of this project instead that are on the server and not in this database, where
            nobody can take them and all work is decided.

    Raises:
        UsageError: no such batch.
        CrowdError: a call failed; those that succeeded are booked.
    """
    with open_scope(settings, batches, environment) as scope:
        if orphans:
            found = scope.sweep.orphans
            free = [(f"orphan:{hit.hit_id}", hit.hit_id) for hit in found if _is_decided(hit)]
            undecided, held = len(found) - len(free), 0
        else:
            free, undecided, held = _free(scope)
        deleted = make_calls(
            scope.session,
            DELETE,
            [Call(key, hit_id, {"hit": hit_id}) for key, hit_id in free],
            call=scope.client.delete,
            book=lambda hit_id, _: None,
            progress=progress,
        )
        return _result(scope, deleted, undecided=undecided, held=held)


def _free(scope: Scope) -> tuple[list[tuple[str, str]], int, int]:
    """The keys and ids of HITs that can go, how many are undecided, and how many are held by a rejection."""
    stored = answer_store.stored_counts(scope.session, scope.environment)
    held = _reversible(scope)
    states = journal.states(scope.session, DELETE)
    scope.session.rollback()
    out = scope.out()
    done = [
        hit
        for hit, found in out
        if hit.state is HitState.CLOSED and _is_decided(found) and found.n_submitted <= stored.get(hit.id, 0)
    ]
    free = [hit for hit in done if hit.id not in held]
    # Where the reply was lost, the HIT is gone from the listing and its call is still open.
    lost = [hit for hit in scope.hits if states.get(hit.key) is JournalState.SENDING and hit not in free]
    going = [(hit.key, hit.mturk_hit_id or "") for hit in [*free, *lost]]
    return going, len(out) - len(done), len(done) - len(free)


def _is_decided(found: ListedHit) -> bool:
    return found.status in _REVIEWABLE and not found.n_undecided and not found.n_pending


def _reversible(scope: Scope) -> set[int]:
    """HITs with a rejection that can still be reversed, or that is to be."""
    now = dt.datetime.now(dt.UTC)
    found = set()
    for row in answer_store.assignments(scope.session, scope.environment):
        if row.status == REJECTED or row.decision is Decision.REJECT:
            until = reversible_until(row)
            if until is None or until > now:
                found.add(row.hit_id)
    return found


def _result(scope: Scope, deleted: int, *, undecided: int, held: int) -> StageResult:
    lines = [
        f"{several(deleted, 'HIT')} deleted on the server; their answers and payments stay here"
        if deleted
        else "nothing to do: no such HIT is done with and on the server"
    ]
    if undecided:
        lines.append(
            f"{undecided:,} HITs are left: they can still be taken, or have work that waits for a decision"
        )
    if held:
        lines.append(
            f"{held:,} HITs are left: a rejection on them can still be reversed, but not after deletion"
        )
    return StageResult(
        status="done" if deleted else "nothing_to_do",
        counts={
            "environment": scope.environment.value,
            "deleted": deleted,
            "left_undecided": undecided,
            "left_reversible": held,
        },
        warnings=scope.sweep.warnings,
        lines=tuple(lines),
        next="mitl hits expire, then mitl harvest and mitl review" if undecided else "mitl status",
    )
