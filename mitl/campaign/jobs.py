"""What one publishing command would post, at what price: nothing here is stored or sent."""

from __future__ import annotations

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
from mitl.campaign.kinds.protocol import CampaignKind, Plan, PostedBatch, Request, Wording
from mitl.campaign.posting import Sweep, token
from mitl.campaign.validating import DueHit
from mitl.crowd.client import MTurkClient
from mitl.crowd.context import Context
from mitl.crowd.endpoint import Endpoint
from mitl.db.session import reading
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store.hits import StoredHit
from mitl.hits.templates import HitTemplate
from mitl.records import HitState, JudgementSource


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
        terms = terms_of(settings, request, template, kind.estimate(template, plan))
        earlier = earlier_batches(run)
        charges_fee, asked = run.endpoint.charges_fee, request.reward_cents
        quote = make_quote(plan, terms, earlier, charges_fee=charges_fee, asked_cents=asked)
        bill = [
            f"{request.environment} · {kind.headline(request, plan)} · seed {settings.seed} · {run.endpoint.url}",
            *kind.bill_lines(plan),
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
            *_fresh_hits(run, plan, terms, new_batch),
            *_hits_again(run, plan, earlier, moved),
            *_hits_left(plan, earlier),
        ]
        return PostingJob(plan, terms, quote, due, bill, run.limit.committed(), moved)


def _planned(run: PostingRun, named: tuple[str, int, int], assignments: int) -> StoredHit:
    """The row of a HIT of a batch, number and attempt, before it is stored."""
    return StoredHit(0, 0, *named, assignments, HitState.PLANNED, None, run.token(*named))


def _fresh_hits(run: PostingRun, plan: Plan, terms: PostingTerms, batch: str) -> list[DueHit]:
    return [
        DueHit(
            _planned(run, (batch, page.number, 1), terms.assignments),
            page.items,
            terms.wording,
            terms.reward_cents,
        )
        for page in plan.fresh
    ]


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


def _hits_left(plan: Plan, earlier: Mapping[int, PostedBatch]) -> list[DueHit]:
    return [
        DueHit(
            hit,
            plan.left.pages[hit.id],
            earlier[hit.batch_id].wording,
            earlier[hit.batch_id].row.reward_cents,
        )
        for hit in plan.left.hits
    ]


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
