"""Asking more workers of HITs that are posted, or giving the HITs more time: priced, confirmed, journalled, called."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Sequence

from mitl.campaign.publish import COMPLETED
from mitl.campaign.spending import SpendingLimit
from mitl.core.pricing import format_dollars
from mitl.crowd.calls import Call, make_calls, plan_calls
from mitl.db.store import desk as desk_store
from mitl.db.store import hit_changes, journal
from mitl.db.store.hits import BatchRow
from mitl.errors import FundsError, StoreError, UsageError
from mitl.progress import Progress, no_progress
from mitl.records import Environment, JournalState, StageResult, several
from mitl.settings import Settings
from mitl.stages.hits.extend_plan import Longer, More, Wish, longer, more
from mitl.stages.hits.scope import Scope, open_scope

EXTEND = "extend"
_CUT_SHORT = (JournalState.PLANNED, JournalState.SENDING)

__all__ = ["Wish", "extend"]


def extend(
    settings: Settings,
    wish: Wish,
    environment: Environment | None = None,
    *,
    confirm: Callable[[Environment, int], bool],
    announce: Callable[[str], None] | None = None,
    progress: Progress = no_progress,
) -> StageResult:
    """Ask more workers of a batch's HITs, or give the HITs more time; again, it does what is missing.

    Args:
        confirm: is shown the total in cents and says whether to go on; not asked where nothing new is owed.
        announce: is given the bill's lines before anything is planned.

    Raises:
        UsageError: no such batch, fewer than ten workers raised to ten or more, HITs whose time is over and no
            ``days``, a bill above ``max_cost_cents`` or not confirmed.
        FundsError: the balance or the ceiling does not cover the bill.
        StoreError: the batch has HITs that are not posted yet.
        CrowdError: a call failed; those that succeeded are booked, and the next run goes on.
    """
    with open_scope(settings, [wish.batch], environment) as scope:
        [batch] = scope.batches
        if scope.planned:
            raise StoreError(
                f"batch {batch.name} has {several(scope.planned, 'HIT')} planned and not posted; "
                "run `mitl publish` first"
            )
        out, now = scope.out(), dt.datetime.now(dt.UTC)
        due = [
            one.call(scope.project_id, scope.environment)
            for one in more(batch, out, wish, charges_fee=scope.charges_fee, now=now)
        ]
        states = journal.states(scope.session, EXTEND)
        scope.session.rollback()
        # What an interrupted run left is completed alone, under the bounds that it was confirmed with.
        cut_short = [one for one in due if states.get(one.key) in _CUT_SHORT]
        due = cut_short or due
        limit = SpendingLimit(scope.session, settings, scope.environment, charges_fee=scope.charges_fee)
        fresh = [one for one in due if one.key not in states]
        total = _plan(scope, batch, wish, fresh, limit, confirm, announce or (lambda line: None))
        extended = _ask_more(scope, due, limit, progress)
        if wish.assignments is not None and wish.assignments > batch.assignments:
            hit_changes.set_batch_wanted(scope.session, batch.id, wish.assignments)
            scope.session.commit()
        prolonged = _prolong(scope, wish, now, progress)
        return _result(scope, batch, extended, prolonged, total, completed=bool(cut_short))


def _plan(
    scope: Scope,
    batch: BatchRow,
    wish: Wish,
    fresh: Sequence[Call[More]],
    limit: SpendingLimit,
    confirm: Callable[[Environment, int], bool],
    say: Callable[[str], None],
) -> int:
    """Price, confirm and journal what no earlier run has planned; returns its cost in cents."""
    total = sum(one.subject.cost_cents for one in fresh)
    if not fresh:
        return 0
    balance = scope.client.balance()
    for line in _bill(scope, batch, fresh, total, balance, limit):
        say(line)
    if wish.max_cost_cents is not None and total > wish.max_cost_cents:
        raise UsageError(
            f"the extension is {format_dollars(total)}, above --max-cost {format_dollars(wish.max_cost_cents)}; "
            "raise it, or ask fewer workers"
        )
    if total > balance:
        raise FundsError(
            f"the extension is {format_dollars(total)}, but the balance is {format_dollars(balance)}; raise the "
            "budget with `mitl crowd budget`, or ask fewer workers"
        )
    limit.require(total, "the extension")
    scope.session.rollback()
    if not confirm(scope.environment, total):
        raise UsageError("the total was not confirmed; nothing was extended")
    # Somebody else may have promised money while a person was typing.
    limit.require(total, "the extension")
    plan_calls(scope.session, EXTEND, fresh)
    scope.session.commit()
    return total


def _bill(
    scope: Scope, batch: BatchRow, fresh: Sequence[Call[More]], total: int, balance: int, limit: SpendingLimit
) -> list[str]:
    wanted = fresh[0].subject.wanted
    fees = "with the fee" if scope.charges_fee else "no fee is charged here"
    lines = [
        f"extend {batch.name} on {scope.environment}: {several(len(fresh), 'HIT')} with {wanted} workers each instead "
        f"of {min(one.subject.hit.assignments for one in fresh)}",
        f"  {several(sum(one.subject.additional for one in fresh), 'more assignment')} at "
        f"{format_dollars(batch.reward_cents)} ({fees})",
        f"  total {format_dollars(total)}; the balance is {format_dollars(balance)}",
    ]
    left = limit.left()
    scope.session.rollback()
    if left is not None:
        lines.append(f"  {format_dollars(left)} are left below the ceiling")
    return lines


def _ask_more(scope: Scope, due: Sequence[Call[More]], limit: SpendingLimit, progress: Progress) -> int:
    def call(one: More) -> bool:
        # What the server has already needs no call; after a day it would not know the token again.
        return not one.on_server and scope.client.extend(
            one.found.hit_id, one.additional, one.token(scope.project_id)
        )

    def recheck(window: Sequence[Call[More]]) -> None:
        limit.recheck()
        scope.session.rollback()

    return make_calls(
        scope.session,
        EXTEND,
        due,
        call=call,
        book=lambda one, _: hit_changes.set_wanted(scope.session, one.hit.id, one.wanted),
        progress=progress,
        before_window=recheck,
    )


def _prolong(scope: Scope, wish: Wish, now: dt.datetime, progress: Progress) -> int:
    """Give the HITs their time; those that were closed are out again since more workers are asked."""
    rows = desk_store.calls(scope.session, EXTEND, "")
    states = {row.key: row.state for row in rows}
    planned = {
        row.key: dt.datetime.fromisoformat(request["until"])
        for row, request in ((row, json.loads(row.request)) for row in rows)
        if "until" in request and row.state is not JournalState.DONE
    }
    fresh = {hit.id: hit for hit in hit_changes.latest_hits(scope.session, scope.environment)}
    scope.session.rollback()
    out = [(fresh[hit.id], found) for hit, found in scope.out()]

    def call(one: Longer) -> bool:
        return scope.client.set_expiry(one.hit.mturk_hit_id or "", one.until)

    return make_calls(
        scope.session,
        EXTEND,
        [one.call(scope.environment) for one in longer(out, wish, states, planned, now=now)],
        call=call,
        book=lambda one, _: None,
        progress=progress,
        label="prolong",
    )


def _result(
    scope: Scope, batch: BatchRow, extended: int, prolonged: int, total: int, *, completed: bool
) -> StageResult:
    lines = []
    if extended:
        lines.append(f"more workers are asked on {several(extended, 'HIT')} of batch {batch.name}")
    if completed:
        lines.append(COMPLETED)
    if prolonged:
        lines.append(f"{several(prolonged, 'HIT')} of batch {batch.name} can be taken for longer")
    if not lines:
        lines.append(f"nothing to do: batch {batch.name} asks as many workers for as long as wished")
    absent = len(scope.hits) - len(scope.out())
    if absent:
        lines.append(f"left as deleted on the server: {several(absent, 'HIT')}")
    return StageResult(
        status="done" if extended or prolonged else "nothing_to_do",
        counts={
            "batch": batch.name,
            "environment": scope.environment.value,
            "hits_extended": extended,
            "hits_prolonged": prolonged,
            "total_cents": total,
        },
        warnings=scope.sweep.warnings,
        lines=tuple(lines),
        next="mitl status, and mitl harvest when people have worked",
    )
