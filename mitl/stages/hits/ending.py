"""Ending HITs early, so that nobody new may take them, and deleting on the server those whose work is all decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

from mitl.campaign.posting import CREATE
from mitl.crowd.calls import Call, Operation, make_calls, require_none_refused
from mitl.crowd.client import ListedHit
from mitl.crowd.context import named
from mitl.crowd.paying import REJECTED
from mitl.db.store import answers as answer_store
from mitl.db.store import commitments, journal
from mitl.db.store import hits as hit_store
from mitl.db.store.commitments import DELETE
from mitl.errors import CrowdError
from mitl.progress import Progress, no_progress
from mitl.records import Decision, Environment, HitState, JournalState, StageResult, several
from mitl.records.results import EnvironmentCounts, printed_by
from mitl.settings import Settings
from mitl.stages.harvesting.judging import reversible_until
from mitl.stages.hits.scope import Scope, open_scope

EXPIRE = "expire"
_REVIEWABLE = ("Reviewable", "Reviewing")


@printed_by("hits expire")
class ExpireCounts(EnvironmentCounts):
    """What ending HITs counts."""

    expired: Annotated[int, "HITs that this call ended"]
    at_work: Annotated[int, "workers who had taken one of them and may finish"]
    dropped: Annotated[int, "HITs that were planned and not posted, and are no longer"]
    hits_planned: Annotated[
        int, "HITs of which an interrupted run may have posted some; `mitl publish --reconcile` tells"
    ]


@printed_by("hits delete")
class DeleteCounts(EnvironmentCounts):
    """What deleting HITs counts."""

    deleted: Annotated[int, "HITs that this call deleted on the server"]
    left_undecided: Annotated[int, "HITs that can still be taken or have undecided work"]
    left_reversible: Annotated[int, "HITs left because a rejection on them can still be reversed"]


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
        CrowdError: a call failed, or was refused and all others were made; those that succeeded are booked.
    """
    with open_scope(settings, batches, environment, progress) as scope:
        if orphans:
            hits = [(f"orphan:{hit.hit_id}", hit) for hit in scope.sweep.orphans]
        else:
            hits = [(hit.key, listed) for hit, listed in scope.out()]
        dropped = 0 if orphans else _drop_planned(scope)
        calls = _calls(scope, hits)
        operation: Operation[ListedHit, None] = Operation(EXPIRE, lambda hit: scope.client.expire(hit.hit_id))
        refusals: dict[str, CrowdError] = {}
        counts: ExpireCounts = {
            "environment": scope.context.environment.value,
            "expired": make_calls(scope.context, operation, calls, refusals=refusals),
            "at_work": sum(call.subject.n_pending for call in calls),
            "dropped": dropped,
            "hits_planned": 0 if orphans else scope.planned - dropped,
        }
        require_none_refused(refusals)
        warnings = () if orphans else scope.sweep.warnings
        here = named(scope.context.session, scope.context.environment)
    lines = []
    if not counts["expired"] and not dropped:
        lines.append("nothing to do: no such HIT can be taken")
    elif counts["expired"]:
        lines.append(f"{several(counts['expired'], 'HIT')} can no longer be taken")
    if counts["at_work"]:
        lines.append(f"{several(counts['at_work'], 'worker')} at work on them may finish, paid as usual")
    if dropped:
        lines.append(
            f"dropped: {several(dropped, 'HIT')} planned and not posted; what they were to ask is open again"
        )
    if counts["hits_planned"]:
        lines.append(
            f"{several(counts['hits_planned'], 'HIT was', 'HITs were')} being sent when a run died; `mitl publish "
            "--reconcile` finds out"
        )
    return StageResult(
        status="done" if counts["expired"] or dropped else "nothing_to_do",
        counts=counts,
        warnings=warnings,
        lines=tuple(lines),
        next=f"mitl harvest{here}, which fetches what was submitted and opens the other pairs again",
    )


def _drop_planned(scope: Scope) -> int:
    """Close what was planned and is not on the server, which frees what it promised; its pairs are open again.

    Of what was being sent that is known where the server refused it, and its list, which is whole, lacks it.
    """
    session = scope.context.session
    created = {} if scope.sweep.overlooked else journal.states(session, CREATE)
    unposted = [
        hit
        for hit in scope.hits
        if hit.state is HitState.PLANNED
        or (hit.state is HitState.SENDING and created.get(hit.key) is JournalState.FAILED)
    ]
    hit_store.set_state(session, [hit.id for hit in unposted], HitState.CLOSED)
    touched = {hit.batch_id for hit in unposted}
    for kind in {batch.kind for batch in scope.batches if batch.id in touched}:
        # The plan that they are of is no longer the one that was confirmed, and nobody is told that it was completed.
        commitments.mark_told(session, scope.context.environment, kind, scope.context.now())
    session.commit()
    return len(unposted)


def _calls(scope: Scope, hits: Sequence[tuple[str, ListedHit]]) -> list[Call[ListedHit]]:
    """What is still to be ended, and what an interrupted run may have ended without hearing of it.

    A HIT may be ended, given more time and ended again, so its calls are numbered.
    """
    states = journal.states(scope.context.session, EXPIRE)
    scope.context.session.rollback()
    done = Counter(key.rpartition(":")[0] for key, state in states.items() if state is JournalState.DONE)
    now = scope.context.now()
    calls = []
    for name, hit in hits:
        key = f"{name}:{done[name] + 1}"
        # Now, or when somebody who is at work on it gives it back.
        can_be_taken = hit.expires_at > now and hit.n_available + hit.n_pending > 0
        if can_be_taken or states.get(key) is JournalState.SENDING:
            calls.append(Call(key, hit, {"hit": hit.hit_id, "expires_at": hit.expires_at.isoformat()}))
    return calls


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
    rejected so lately that the rejection can still be reversed: a deleted HIT's cannot. Nothing stored here is lost.

    Args:
        orphans: delete those HITs of this project instead that are on the server and not in this database, where
            nobody can take them and all work is decided.

    Raises:
        UsageError: no such batch.
        CrowdError: a call failed, or was refused and all others were made; those that succeeded are booked.
    """
    with open_scope(settings, batches, environment, progress) as scope:
        if orphans:
            all_orphans = scope.sweep.orphans
            free = [(f"orphan:{hit.hit_id}", hit.hit_id) for hit in all_orphans if _is_decided(hit)]
            undecided, held = len(all_orphans) - len(free), 0
        else:
            free, undecided, held = _free(scope)
        refusals: dict[str, CrowdError] = {}
        deleted = make_calls(
            scope.context,
            Operation(DELETE, scope.client.delete),
            [Call(key, hit_id, {"hit": hit_id}) for key, hit_id in free],
            refusals=refusals,
        )
        require_none_refused(refusals)
        here = named(scope.context.session, scope.context.environment)
    lines = [
        f"{several(deleted, 'HIT')} deleted on the server; their answers and payments stay here"
        if deleted
        else "nothing to do: no such HIT is done with and on the server"
    ]
    if undecided:
        lines.append(
            f"left: {several(undecided, 'HIT')} that can still be taken or with work that waits for a decision"
        )
    if held:
        lines.append(
            f"left: {several(held, 'HIT')} with a rejection that can still be reversed, but not after deletion"
        )
    words = " ".join(batches) or f"{'--orphans' if orphans else '--all'} --{scope.context.environment}"
    counts: DeleteCounts = {
        "environment": scope.context.environment.value,
        "deleted": deleted,
        "left_undecided": undecided,
        "left_reversible": held,
    }
    return StageResult(
        status="done" if deleted else "nothing_to_do",
        counts=counts,
        warnings=scope.sweep.warnings,
        lines=tuple(lines),
        next=f"mitl hits expire {words}, then mitl harvest{here} and mitl review{here}"
        if undecided
        else f"mitl status{here}",
    )


def _free(scope: Scope) -> tuple[list[tuple[str, str]], int, int]:
    """The keys and ids of HITs that can go, how many are undecided, and how many are held by a rejection."""
    session, environment = scope.context.session, scope.context.environment
    stored = answer_store.stored_counts(session, environment)
    # A rejection that can still be reversed, or that is to be made, holds its HIT.
    held = set()
    for row in answer_store.assignments(session, environment):
        if row.status == REJECTED or row.decision is Decision.REJECT:
            until = reversible_until(row)
            if until is None or until > scope.context.now():
                held.add(row.hit_id)
    states = journal.states(session, DELETE)
    session.rollback()
    out = scope.out()
    done = [
        hit
        for hit, listed in out
        if hit.state is HitState.CLOSED
        and _is_decided(listed)
        and listed.n_submitted <= stored.get(hit.id, 0)
    ]
    free = [hit for hit in done if hit.id not in held]
    # Where the reply was lost, the HIT is gone from the listing and its call is still open.
    listed_too = {hit.id for hit, _ in out}
    sending = [hit for hit in scope.hits if states.get(hit.key) is JournalState.SENDING]
    lost = [hit for hit in sending if hit.id not in listed_too]
    going = [(hit.key, hit.mturk_hit_id or "") for hit in [*free, *lost]]
    return going, len(out) - len(done), len(done) - len(free)


def _is_decided(hit: ListedHit) -> bool:
    return hit.status in _REVIEWABLE and not hit.n_undecided and not hit.n_pending
