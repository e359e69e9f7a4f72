"""Asking more workers of HITs that are posted, or giving the HITs more time: priced, confirmed, journalled, called."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from mitl.campaign.bill import SpendingLimit
from mitl.campaign.publish import COMPLETED
from mitl.core.pricing import fee_cents, format_dollars
from mitl.crowd.calls import Call, Operation, make_calls, plan_calls, require_none_refused
from mitl.crowd.client import ListedHit
from mitl.crowd.context import named
from mitl.db.store import commitments, journal
from mitl.db.store import hits as hit_store
from mitl.db.store.commitments import EXTEND, UNTIL
from mitl.db.store.hits import BatchRow, StoredHit
from mitl.errors import CrowdError, StoreError, UsageError
from mitl.progress import Progress, no_progress
from mitl.records import Environment, HitState, JournalState, StageResult, several
from mitl.records.collection import TEXTS
from mitl.records.results import EnvironmentCounts, printed_by
from mitl.settings import Settings
from mitl.stages.hits.scope import Scope, open_scope

_CUT_SHORT = (JournalState.PLANNED, JournalState.SENDING)
MANY = 10
"""MTurk refuses to raise a HIT of fewer assignments to so many: its fee doubles there."""
_NEAR = dt.timedelta(hours=1)
"""Two runs of the same command soon after one another mean the same time."""


@dataclass(frozen=True, slots=True)
class ExtensionWish:
    """What is asked of the HITs of one batch."""

    batch: str
    assignments: int | None = None
    """Different workers per HIT in all."""
    days: int | None = None
    """From now on the HITs can be taken for so many days."""
    max_cost_cents: int | None = None

    def __post_init__(self) -> None:
        if self.assignments is None and self.days is None:
            raise UsageError(
                "say how to extend: --assignments N asks N workers of each HIT in all, --days D lets the HITs be "
                "taken for D days from now; both may be given"
            )


@printed_by("hits extend")
class ExtendCounts(EnvironmentCounts):
    """What extending a batch counts."""

    batch: Annotated[str, "the batch's name"]
    hits_extended: Annotated[int, "HITs that ask more workers since this call"]
    hits_prolonged: Annotated[int, "HITs that can be taken for longer since this call"]
    total_cents: Annotated[int, "what this call promised, fees included; 0 where an earlier one had"]


def extend(
    settings: Settings,
    wish: ExtensionWish,
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
        CrowdError: a call failed, or was refused and all others were made; those that succeeded are booked, and the
            next run goes on.
    """
    with open_scope(settings, [wish.batch], environment, progress, latest=True) as scope:
        [batch] = scope.batches
        if scope.planned:
            raise StoreError(
                f"batch {batch.name} has {several(scope.planned, 'HIT')} planned and not posted; "
                "run the command that began it again first"
            )
        run = _Run(scope, batch, wish)
        due = run.more()
        states = journal.states(scope.context.session, EXTEND)
        scope.context.session.rollback()
        # What an interrupted run left is completed alone, under the bounds that it was confirmed with.
        cut_short = [call for call in due if states.get(call.key) in _CUT_SHORT]
        n_short, due = len(due), cut_short or due
        fresh = [call for call in due if call.key not in states]
        total = run.plan(fresh, confirm, announce or (lambda line: None)) if fresh else 0
        extended = run.ask_more(due)
        if (
            len(due) == n_short
            and not run.refusals
            and (workers := wish.assignments or 0) > batch.assignments
        ):
            hit_store.set_batch_wanted(scope.context.session, batch.id, workers)
            scope.context.session.commit()
        prolonged = run.prolong()
        require_none_refused(run.refusals)
        here = named(scope.context.session, scope.context.environment)
        lines = []
        if extended:
            lines.append(f"more workers are asked on {several(extended, 'HIT')} of batch {batch.name}")
        if cut_short:
            lines.append(COMPLETED)
        if prolonged:
            lines.append(f"{several(prolonged, 'HIT')} of batch {batch.name} can be taken for longer")
        if not lines:
            lines.append(
                f"nothing to do: what is out of batch {batch.name} asks as many workers for as long as wished; closed "
                "ones are given no time, and the command that posted them asks what they lack again"
            )
        absent = len(scope.hits) - len(scope.out())
        if absent:
            lines.append(f"left as deleted on the server: {several(absent, 'HIT')}")
        counts: ExtendCounts = {
            "batch": batch.name,
            "environment": scope.context.environment.value,
            "hits_extended": extended,
            "hits_prolonged": prolonged,
            "total_cents": total,
        }
        return StageResult(
            status="done" if extended or prolonged else "nothing_to_do",
            counts=counts,
            warnings=scope.sweep.warnings,
            lines=tuple(lines),
            next=f"mitl status{here}, and mitl harvest{here} when people have worked",
        )


@dataclass(frozen=True, slots=True)
class More:
    """Asking more workers of one HIT."""

    hit: StoredHit
    listed: ListedHit
    wanted: int
    in_all: int
    """Workers of its page, those included whose answers on the HITs that it replaces are used."""
    cost_cents: int
    """What it adds to what the HIT promises, fees included."""
    promised_cents: int
    """How much of that an earlier run has promised, for fewer workers."""

    @property
    def additional(self) -> int:
        """Assignments that are missing on the server; none where an earlier call's reply was lost."""
        return self.wanted - self.listed.max_assignments

    def call(self, project_id: str, environment: Environment) -> Call[More]:
        """The call as it is journalled, under 48 hexadecimal digits of a hash over what names it."""
        name = f"mitl1:{project_id}:extend:{self.hit.key}:{self.wanted}"
        request = {
            "environment": environment.value,
            "hit": self.listed.hit_id,
            "additional": self.additional,
            "in_all": self.in_all,
        }
        token = hashlib.sha256(name.encode()).hexdigest()[:48]
        return Call(f"{self.hit.key}:{self.wanted}", self, request, token)


class _Run:
    """Extending one batch."""

    def __init__(self, scope: Scope, batch: BatchRow, wish: ExtensionWish) -> None:
        self._scope, self._batch, self._wish = scope, batch, wish
        self._context, self._session, self._client = scope.context, scope.context.session, scope.client
        self._environment = scope.context.environment
        self._limit = SpendingLimit(
            self._session, self._context.settings, self._environment, charges_fee=scope.charges_fee
        )
        self._now = scope.context.now()
        self.refusals: dict[str, CrowdError] = {}
        """By their keys, the calls that the server refused, which hold up no other."""

    def more(self) -> list[Call[More]]:
        """The HITs that ask fewer workers than wished, those that are done and closed included.

        Raises:
            UsageError: MTurk's rule at ten assignments, or HITs whose time is over and no ``days``.
        """
        target, batch = self._wish.assignments, self._batch
        if target is None:
            return []
        earlier = self._answered_before()
        wanted = {hit: target - earlier[hit.key] for hit, _ in self._scope.out()}
        short = [(hit, listed) for hit, listed in self._scope.out() if hit.assignments < wanted[hit]]
        few = [
            listed.max_assignments for hit, listed in short if listed.max_assignments < MANY <= wanted[hit]
        ]
        if few:
            raise UsageError(
                f"the HITs of batch {batch.name} were posted for {several(min(few), 'worker')} each, and MTurk refuses "
                f"to raise such a HIT to {MANY} or more (its fee doubles there); ask for at most {MANY - 1}, or post a "
                "new batch"
            )
        over = sum(listed.expires_at <= self._now for _, listed in short)
        if over and self._wish.days is None:
            raise UsageError(
                f"{over:,} HITs of batch {batch.name} can no longer be taken, so more assignments alone would wait "
                "for ever; add --days D"
            )
        promised = commitments.open_extensions(self._session, self._environment)
        calls = []
        for hit, listed in short:
            # What is new on top of what is promised already: a closed HIT promises nothing.
            before = hit.assignments if hit.state is HitState.POSTED else listed.n_submitted
            fee = fee_cents(batch.reward_cents, wanted[hit]) if self._scope.charges_fee else 0
            cents, begun = (
                (batch.reward_cents + fee) * max(workers - before, 0)
                for workers in (wanted[hit], min(promised.get(hit, 0), wanted[hit]))
            )
            more = More(hit, listed, wanted[hit], target, cents, begun)
            calls.append(more.call(self._context.settings.project_id, self._environment))
        return calls

    def _answered_before(self) -> dict[str, int]:
        """HIT → workers whose answers on the HITs that it replaces are used, so that it does not ask them itself."""
        base = self._batch.assignments
        earlier = {hit.key: base - hit.assignments if hit.attempt > 1 else 0 for hit in self._scope.hits}
        # Its extensions tell it also while the batch's own number is not raised yet.
        for row in journal.starting_with(self._session, EXTEND, f"{self._batch.name}:"):
            key, _, wanted = row.key.rpartition(":")
            if key in earlier:
                earlier[key] = json.loads(row.request).get("in_all", int(wanted)) - int(wanted)
        return earlier

    def plan(
        self,
        fresh: Sequence[Call[More]],
        confirm: Callable[[Environment, int], bool],
        say: Callable[[str], None],
    ) -> int:
        """Price, confirm and journal what no earlier run has planned; returns its cost in cents."""
        total = sum(call.subject.cost_cents for call in fresh)
        new = total - sum(call.subject.promised_cents for call in fresh)
        balance = self._client.balance()
        for line in self._bill(fresh, total, balance):
            say(line)
        most = self._wish.max_cost_cents
        if most is not None and total > most:
            raise UsageError(
                f"the extension is {format_dollars(total)}, above --max-cost {format_dollars(most)}; "
                "raise it, or ask fewer workers"
            )
        self._limit.require_balance(total, balance, "the extension", "ask fewer workers")
        self._limit.require(new, "the extension")
        self._session.rollback()
        if not confirm(self._environment, total):
            raise UsageError("the total was not confirmed; nothing was extended")
        # Somebody else may have promised money while a person was typing.
        self._limit.require(new, "the extension")
        plan_calls(self._context, EXTEND, fresh)
        self._session.commit()
        return total

    def _bill(self, fresh: Sequence[Call[More]], total: int, balance: int) -> Iterator[str]:
        more = [call.subject for call in fresh]
        fees = "with the fee" if self._scope.charges_fee else "no fee is charged here"
        yield (
            f"extend {self._batch.name} on {self._environment}: {several(len(more), 'HIT')} with {more[0].in_all} "
            f"workers each instead of {self._batch.assignments}"
        )
        yield (
            f"  {several(sum(extension.additional for extension in more), 'more assignment')} at "
            f"{format_dollars(self._batch.reward_cents)} ({fees})"
        )
        if self._batch.kind == TEXTS:
            yield "  an item takes one text and a text one review; what comes beyond that is paid and not used"
        yield f"  total {format_dollars(total)}; the balance is {format_dollars(balance)}"
        left = self._limit.left()
        self._session.rollback()
        if left is not None:
            yield f"  {format_dollars(left)} are left below the ceiling"

    def ask_more(self, due: Sequence[Call[More]]) -> int:
        """Make these calls; returns how many were made."""
        tokens = {call.subject.hit.id: call.token or "" for call in due}

        def call(more: More) -> bool:
            # What the server has already needs no call; after a day it would not know the token again.
            return more.additional > 0 and self._client.extend(
                more.listed.hit_id, more.additional, tokens[more.hit.id]
            )

        def recheck(window: Sequence[Call[More]]) -> None:
            self._limit.recheck()
            self._session.rollback()

        def book(made: Sequence[tuple[More, bool]]) -> None:
            for more, _ in made:
                hit_store.set_wanted(self._session, more.hit.id, more.wanted)

        operation = Operation(EXTEND, call, book, before_window=recheck)
        return make_calls(self._context, operation, due, refusals=self.refusals)

    def prolong(self) -> int:
        """Give the HITs their time; those that were closed are out again since more workers are asked."""
        requests = {
            row.key: (row.state, json.loads(row.request))
            for row in journal.starting_with(self._session, EXTEND, "")
        }
        latest = {hit.id: hit for hit in hit_store.latest_hits(self._session, self._environment)}
        self._session.rollback()
        if self._wish.days is None:
            return 0
        done = Counter(
            key.rpartition(":")[0] for key, (state, _) in requests.items() if state is JournalState.DONE
        )
        until = (self._now + dt.timedelta(days=self._wish.days)).replace(microsecond=0)
        calls = []
        for hit, listed in ((latest[hit.id], listed) for hit, listed in self._scope.out()):
            key = f"{hit.key}:{UNTIL}:{done[f'{hit.key}:{UNTIL}'] + 1}"
            begun = requests[key][1] if key in requests else None
            if hit.state is not HitState.POSTED or (begun is None and listed.expires_at >= until - _NEAR):
                continue
            # An interrupted run may have set a time of its own, which stays where it is as late as wished now.
            planned = dt.datetime.fromisoformat(begun["until"]) if begun else until
            to = max(planned if planned >= until - _NEAR else until, listed.expires_at)
            request = {
                "environment": self._environment.value,
                "hit": hit.mturk_hit_id,
                "until": to.isoformat(),
            }
            if begun not in (None, request):
                journal.amend(self._session, EXTEND, key, json.dumps(request), unclear=True)
            calls.append(Call(key, request, request))
        operation: Operation[dict[str, str | None], bool] = Operation(
            EXTEND,
            lambda to: self._client.set_expiry(to["hit"] or "", dt.datetime.fromisoformat(to["until"] or "")),
        )
        return make_calls(self._context, operation, calls, label="prolong", refusals=self.refusals)
