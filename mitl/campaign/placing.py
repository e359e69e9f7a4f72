"""Writing down what a publishing command has planned, and then posting it: killed at any point, it goes on."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence

from mitl.campaign.jobs import PostingJob, PostingRun, earlier_batches
from mitl.campaign.pages import Pages
from mitl.campaign.posting import CREATE, HitTypes, create_call, create_hit
from mitl.crowd.calls import Call, Operation, make_calls
from mitl.db.session import reading
from mitl.db.store import commitments, journal
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import rounds as round_store
from mitl.db.store.commitments import StoredPlan
from mitl.db.store.hits import UNPOSTED, BatchRow, NewHit, StoredHit
from mitl.records import BatchKind, HitState


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
        for hit, who in zip(due, met, strict=True)
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
