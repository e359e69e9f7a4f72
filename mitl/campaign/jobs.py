"""What one publishing command posts: planned and priced, then written down, then posted.

Nothing is stored or sent before `store_job`; killed at any point after it, the command goes on.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mitl.campaign.bill import (
    PostingTerms,
    Quote,
    SpendingLimit,
    bill_text,
    check_money,
    make_quote,
    reward_again,
    terms_of,
)
from mitl.campaign.kinds import fitting, kind_of, wording_of
from mitl.campaign.kinds.protocol import CampaignKind, Met, Plan, PostedBatch, Request, Wording, kept_off
from mitl.campaign.pages import Pages
from mitl.campaign.posting import CREATE, HitTypes, Sweep, create_call, create_hit, token
from mitl.campaign.validating import DueHit
from mitl.crowd.calls import Call, Operation, make_calls
from mitl.crowd.client import MTurkClient
from mitl.crowd.context import Context
from mitl.crowd.endpoint import Endpoint
from mitl.db.session import reading
from mitl.db.store import answers as answer_store
from mitl.db.store import commitments, journal
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import rounds as round_store
from mitl.db.store.commitments import StoredPlan
from mitl.db.store.hits import UNPOSTED, BatchRow, NewHit, StoredHit
from mitl.hits.templates import HitTemplate
from mitl.records import BatchKind, HitState, JudgementSource


@dataclass(frozen=True, slots=True)
class PostingRun:
    """What the steps of one run of a publishing command work with."""

    context: Context
    endpoint: Endpoint
    request: Request
    """As it fits the items of the project."""
    kind: CampaignKind[Any, Any]
    client: MTurkClient
    limit: SpendingLimit

    def token(self, batch: str, number: int, attempt: int) -> str:
        """See ``mitl.campaign.posting.token``."""
        return token(self.context.settings.project_id, batch, number, attempt)


@dataclass(frozen=True, slots=True)
class PostingJob:
    """What would be posted, at what price."""

    plan: Plan
    terms: PostingTerms
    quote: Quote
    due: Sequence[DueHit]
    """The HITs as they would be posted."""
    bill: Sequence[str]
    committed_cents: int
    """Spent and promised before."""
    moved: Mapping[int, str]
    """Earlier batch → the new one of those of its pages that are asked again at another reward."""


def start_run(context: Context, request: Request, endpoint: Endpoint) -> PostingRun:
    """Look at the data and the server that a request is about."""
    session, settings = context.session, context.settings
    request = fitting(request, item_store.find_dataset(session), settings.wordings)
    session.rollback()
    limit = SpendingLimit(session, settings, context.environment, charges_fee=endpoint.charges_fee)
    return PostingRun(context, endpoint, request, kind_of(request.kind), endpoint.client(), limit)


def make_job(run: PostingRun, sweep: Sweep, announce: Callable[[str], None]) -> PostingJob | Plan:
    """What is open, packed, priced, announced and affordable; else the plan, which has nothing to post."""
    session, settings = run.context.session, run.context.settings
    request, kind = run.request, run.kind
    balance = run.client.balance()
    with reading(session):
        template = wording_of(kind.name, request.template, settings.wordings)
        plan: Plan = kind.plan(session, settings, request, adopted=sweep.adopted)
        if plan.n_hits == 0:
            return plan
        who = kind.who_met(session, run.context.environment, plan.pages)
        if any(map(any, who)):
            loads = answer_store.worker_loads(session, run.context.environment)
            people = {load.worker for load in loads if not (load.excluded or load.capped)}
            plan = dataclasses.replace(plan, met=Met.of(who, people))
        terms = terms_of(settings, request, template, kind.estimate(template, plan))
        earlier = earlier_batches(run)
        charges_fee, asked = run.endpoint.charges_fee, request.reward_cents
        quote = make_quote(plan, terms, earlier, charges_fee=charges_fee, asked_cents=asked)
        bill = [
            f"{request.environment} · {kind.headline(request, plan)} · seed {settings.seed} · {run.endpoint.url}",
            *kind.bill_lines(plan),
            *([f"  {plan.met.words}"] if plan.met.questions else []),
            *bill_text(quote, balance, run.limit),
        ]
        for line in bill:
            announce(line)
        check_money(settings, request, quote, balance, run.limit)
        olds = {again.replaces.batch_id: earlier[again.replaces.batch_id].row for again in plan.again}
        repriced = sorted(id_ for id_, row in olds.items() if reward_again(row, asked) != row.reward_cents)
        new_batch, *names = (
            hit_store.next_batch_name(session, sweep.last_batch, ahead) for ahead in range(1 + len(repriced))
        )
        moved = dict(zip(repriced, names if plan.fresh else [new_batch, *names], strict=False))
        due = [
            *(
                DueHit(
                    _planned(run, (new_batch, page.number, 1), terms.assignments),
                    page.items,
                    terms.wording,
                    reward,
                )
                for page in plan.fresh
                for reward in [terms.reward_cents]
            ),
            *_hits_again(run, plan, earlier, moved),
            *(
                DueHit(hit, plan.left.pages[hit.id], of.wording, of.row.reward_cents)
                for hit in plan.left.hits
                for of in [earlier[hit.batch_id]]
            ),
        ]
        return PostingJob(plan, terms, quote, due, bill, run.limit.committed(), moved)


def _planned(run: PostingRun, named: tuple[str, int, int], assignments: int) -> StoredHit:
    """The row of a HIT of a batch, number and attempt, before it is stored."""
    return StoredHit(0, 0, *named, assignments, HitState.PLANNED, None, run.token(*named))


def _hits_again(
    run: PostingRun, plan: Plan, earlier: Mapping[int, PostedBatch], moved: Mapping[int, str]
) -> list[DueHit]:
    due = []
    for again in plan.again:
        old, of = again.replaces, earlier[again.replaces.batch_id]
        named = moved.get(old.batch_id, old.batch), old.number, again.attempt
        reward = reward_again(of.row, run.request.reward_cents)
        due.append(DueHit(_planned(run, named, again.assignments), again.page.items, of.wording, reward))
    return due


def earlier_batches(run: PostingRun, wanted: set[int] | None = None) -> dict[int, PostedBatch]:
    """The batches of a run's kind that were posted from here, by their rows, each template loaded once.

    Args:
        wanted: leave out all others.
    """
    rows = [
        row
        for row in hit_store.batches(run.context.session, run.context.environment)
        if row.kind == run.kind.name and row.source is JudgementSource.CROWD
        if wanted is None or row.id in wanted
    ]
    loaded: dict[str, HitTemplate] = {}
    for name in {row.template for row in rows}:
        loaded[name] = wording_of(run.kind.name, name, run.context.settings.wordings)
    return {
        row.id: PostedBatch(
            row,
            Wording(
                loaded[row.template],
                row.estimate_s or run.kind.page_size * loaded[row.template].seconds_per_pair,
            ),
        )
        for row in rows
    }


def store_job(run: PostingRun, job: PostingJob, *, after: int) -> str | None:
    """Promise the money and write the plan down in one transaction; returns the name of the new batch.

    Args:
        after: the highest number of a batch that the server knows of this project, lost here or not.

    Raises:
        FundsError: another command has promised meanwhile what the plan would cost; nothing is stored.
    """
    session, plan, request = run.context.session, job.plan, run.request
    try:
        run.limit.require(job.quote.new_cents, "the bill")
        now = run.context.now()
        name = _store_fresh(run, job, after, now) if plan.fresh else None
        moved = {old: _store_moved(run, job, old, after, now) for old in job.moved}
        keys = []
        for again in plan.again:
            old = again.replaces
            batch = moved.get(old.batch_id) or hit_store.batch(session, old.batch_id)
            named = batch.name, old.number, again.attempt
            keys.append(":".join(map(str, named)))
            new = NewHit(again.page, again.attempt, old.id, again.assignments, run.token(*named))
            run.kind.add_items(session, hit_store.insert_hits(session, batch.id, [new]))
        if not plan.left.hits:
            under_way = round_store.open_round(session, request.environment)
            stored = StoredPlan(
                environment=request.environment,
                words=request.words,
                limited=request.limited,
                batch=name,
                again=keys,
                asked=plan.n_limited,
                hits=len(plan.fresh) + len(plan.again),
                cents=job.quote.total_cents,
                round=under_way.id if under_way is not None and request.kind == BatchKind.PAIRS else None,
            )
            commitments.add_plan(session, stored, now)
        session.commit()
    except BaseException:
        session.rollback()
        raise
    return name


def _store_fresh(run: PostingRun, job: PostingJob, after: int, now: dt.datetime) -> str:
    session, request, terms = run.context.session, run.request, job.terms
    # A round asks about pairs, and its budget pays for nothing else.
    payer = request.environment if request.kind == BatchKind.PAIRS else None
    batch = hit_store.add_batch(
        session,
        hit_store.NewBatch(
            round_id=hit_store.open_round(session, item_store.dataset(session).id, payer, now),
            environment=request.environment,
            direction=str(request.direction),
            template=terms.template.name,
            reward_cents=terms.reward_cents,
            assignments=terms.assignments,
            seed=run.context.settings.seed,
            server_id=run.endpoint.server_id,
            planned_at=now,
            pilot=request.pilot is not None,
            estimate_s=terms.estimate.seconds if terms.estimate.is_kept else None,
            kind=run.kind.name,
        ),
        after=after,
    )
    run.kind.add_batch(session, batch.id, job.plan)
    new = [
        NewHit(page, 1, None, terms.assignments, run.token(batch.name, page.number, 1))
        for page in job.plan.fresh
    ]
    run.kind.add_items(session, hit_store.insert_hits(session, batch.id, new))
    return batch.name


def _store_moved(run: PostingRun, job: PostingJob, old: int, after: int, now: dt.datetime) -> BatchRow:
    """A batch for those pages of another one that are asked again at another reward: a batch has one."""
    session = run.context.session
    batch = hit_store.add_batch_like(
        session,
        old,
        after,
        reward_cents=run.request.reward_cents,
        seed=run.context.settings.seed,
        server_id=run.endpoint.server_id,
        planned_at=now,
    )
    run.kind.add_batch(session, batch.id, job.plan, like=old)
    return batch


def post_planned(run: PostingRun, pages: Pages) -> int:
    """Create the HITs of a run's kind that are planned, each under its batch's terms; returns how many are out.

    A harvest beside this one may find and book some of them first.

    Each window of HITs goes planned → sending → posted with a commit before the calls and one after them. A HIT
    whose call fails stays in ``sending``, to be reconciled and sent again with the same token.
    """
    session, client, project_id = run.context.session, run.client, run.context.settings.project_id
    due = hit_store.hits(session, run.context.environment, UNPOSTED, run.kind.name)
    batches = earlier_batches(run, {hit.batch_id for hit in due})
    items = run.kind.items(session, [hit.id for hit in due])
    met = run.kind.who_met(session, run.context.environment, [items[hit.id] for hit in due])
    session.rollback()
    pages.prepare(items.values())
    hit_types = HitTypes(client, run.context.settings)
    types = {
        hit.id: hit_types.of(of.wording.template, of.row.reward_cents, who)
        for hit, who in zip(due, kept_off(met), strict=True)
        for of in [batches[hit.batch_id]]
    }
    questions: dict[int, str] = {}

    def prepare(window: Sequence[Call[StoredHit]]) -> None:
        run.limit.recheck()
        session.rollback()
        hits = [call.subject for call in window]
        questions.update(
            (hit.id, pages.question(items[hit.id], batches[hit.batch_id].wording)) for hit in hits
        )
        hit_store.set_state(session, [hit.id for hit in hits], HitState.SENDING)

    def create(hit: StoredHit) -> dict[str, str]:
        return {"HITId": create_hit(client, project_id, hit, types[hit.id], questions.pop(hit.id))}

    calls = [create_call(project_id, hit, batches[hit.batch_id].wording.template.content_hash) for hit in due]
    # None of these has reached the server, so what counts is the wording of now.
    begun = journal.states(session, CREATE).keys() if due else ()
    for call in calls:
        if call.key in begun:
            journal.amend(session, CREATE, call.key, json.dumps(call.request), unclear=True)
    session.commit()
    make_calls(
        run.context,
        Operation(
            CREATE,
            create,
            lambda made: hit_store.set_posted(session, {hit.id: reply["HITId"] for hit, reply in made}),
            before_window=prepare,
            not_made=lambda hit: hit_store.set_state(session, [hit.id], HitState.PLANNED),
        ),
        calls,
        label="post",
        in_order=run.endpoint.in_process,
    )
    with reading(session):
        left = hit_store.hits(session, run.context.environment, UNPOSTED, run.kind.name)
    return len(due) - len({hit.id for hit in due} & {hit.id for hit in left})
