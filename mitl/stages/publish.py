"""Publishing: plan, price, ask, post."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from sqlalchemy.orm import Session

from mitl.crowd.client import MTurkClient
from mitl.crowd.endpoint import Endpoint, open_endpoint
from mitl.db.locks import PUBLISH, only_one
from mitl.db.session import open_database, reading
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store.hits import BatchRow, HitRow, NewHit
from mitl.errors import CrowdError, UsageError
from mitl.hits.templates import load_template
from mitl.progress import Progress, no_progress
from mitl.records import Environment, HitState, StageResult
from mitl.settings import (
    ASSIGNMENT_DURATION_S,
    AUTO_APPROVAL_S,
    Settings,
)
from mitl.stages.bill import Terms, bill_text, check_money, make_bills, reward_of
from mitl.stages.environment import require_same_server
from mitl.stages.exclusion import exclusion_qualification
from mitl.stages.pages import Pages, templates_of
from mitl.stages.planning import Campaign, Plan, make_plan, token
from mitl.stages.posting import post, reconcile

__all__ = ["Campaign", "publish"]


def publish(
    settings: Settings,
    campaign: Campaign,
    *,
    confirm: Callable[[int], bool],
    announce: Callable[[str], None] | None = None,
    dry_run: bool = False,
    progress: Progress = no_progress,
) -> StageResult:
    """Post what is open in an environment and what an interrupted run left behind.

    Args:
        confirm: is shown the total in cents and says whether to go on.
        announce: is given the bill's lines before anything is posted.

    Raises:
        StoreError: another publish is at work on the same database, and would ask the same pairs.
        UsageError: the bill exceeds ``max_cost_cents``, or was not confirmed.
        FundsError: the balance does not cover the bill.
        CrowdError: a call failed; what was posted is kept and the next run goes on.
    """
    say = announce or (lambda line: None)
    environment = campaign.environment
    wording = load_template(campaign.template, settings.wordings)
    terms = Terms(wording, reward_of(campaign, wording), campaign.assignments)
    with (
        open_database(settings.db_url) as session,
        nullcontext() if dry_run else only_one(settings.db_url, PUBLISH),
        open_endpoint(settings, environment) as endpoint,
    ):
        client = endpoint.client()
        require_same_server(session, endpoint, environment)
        adopted = 0
        if not dry_run:
            adopted = reconcile(session, settings.project_id, environment, client.list_hits)
        with reading(session):
            plan = make_plan(session, settings, campaign)
            batches = {batch.id: batch for batch in hit_store.batches(session, environment)}
        if plan.n_hits == 0:
            return _nothing_to_do(adopted, environment)
        bills = make_bills(plan, terms, batches, settings.wordings, charges_fee=endpoint.charges_fee)
        total = sum(part.total_cents for _, part in bills)
        balance = client.balance()
        for line in bill_text(settings, campaign, plan, terms, bills, endpoint, balance):
            say(line)
        check_money(settings, campaign, total, balance, bills)
        pages = Pages(session, settings, progress, write=not dry_run)
        # Before anything is stored or paid: a page that cannot be shown must not be planned.
        largest = pages.measure(plan, terms.template, templates_of(batches, settings.wordings))
        if dry_run:
            return _dry(plan, total, largest)
        if not confirm(total):
            raise UsageError("the total was not confirmed; nothing was posted")
        fresh_batch = _store(session, settings, campaign, plan, terms, endpoint)
        to_post = hit_store.hits(session, environment, (HitState.PLANNED, HitState.SENDING))
        session.rollback()
        poster = _Poster(session, settings, client, pages, environment, in_order=endpoint.in_process)
        posted = poster.run(to_post, progress)
        balance = client.balance()
    return _result(plan, posted, adopted, total, balance, fresh_batch, campaign)


class _Poster:
    """Posts the HITs of one environment, each under its batch's terms."""

    def __init__(
        self,
        session: Session,
        settings: Settings,
        client: MTurkClient,
        pages: Pages,
        environment: Environment,
        *,
        in_order: bool,
    ) -> None:
        self._in_order = in_order
        self._session, self._settings, self._client, self._pages = session, settings, client, pages
        self._batches = {batch.id: batch for batch in hit_store.batches(session, environment)}
        self._types: dict[int, str] = {}
        self._templates = templates_of(self._batches, settings.wordings)
        session.rollback()

    def run(self, hits: Sequence[HitRow], progress: Progress) -> int:
        """Create these HITs; returns how many."""
        items = hit_store.hit_items(self._session, [hit.id for hit in hits])
        self._session.rollback()
        self._pages.prepare(list(items.values()))
        guard = exclusion_qualification(self._client, self._settings.project_id)
        for batch_id in sorted({hit.batch_id for hit in hits}):
            self._types[batch_id] = self._hit_type(self._batches[batch_id], guard)
        return post(
            self._session,
            self._client,
            self._settings.project_id,
            hits,
            hit_type_of=lambda hit: self._types[hit.batch_id],
            question_of=lambda hit: self._pages.question(items[hit.id], self._templates[hit.batch_id]),
            assignments_of=lambda hit: hit.assignments,
            in_order=self._in_order,
            progress=progress,
        )

    def _hit_type(self, batch: BatchRow, guard: str) -> str:
        template = self._templates[batch.id]
        return self._client.create_hit_type(
            title=template.title,
            description=template.description,
            keywords=template.keywords,
            reward_cents=batch.reward_cents,
            assignment_duration_s=ASSIGNMENT_DURATION_S,
            auto_approval_s=AUTO_APPROVAL_S,
            exclude_qualification=guard,
        )


def _store(
    session: Session,
    settings: Settings,
    campaign: Campaign,
    plan: Plan,
    terms: Terms,
    endpoint: Endpoint,
) -> str | None:
    """Write the plan down, all of it or nothing; returns the name of the new batch."""
    name = None
    try:
        if plan.fresh:
            now = dt.datetime.now(dt.UTC)
            dataset = item_store.dataset(session)
            batch = hit_store.add_batch(
                session,
                round_id=hit_store.open_round(session, dataset.id, now),
                environment=campaign.environment,
                direction=campaign.direction,
                template=terms.template.name,
                reward_cents=terms.reward_cents,
                assignments=terms.assignments,
                seed=settings.seed,
                server_id=endpoint.server_id,
                now=now,
            )
            name = batch.name
            rows = [
                NewHit(page, 1, None, terms.assignments, token(settings.project_id, name, page.number, 1))
                for page in plan.fresh
            ]
            hit_store.add_hits(session, batch.id, rows)
        for replacement in plan.again:
            old = replacement.replaces
            key = token(settings.project_id, old.batch, old.number, replacement.attempt)
            new = NewHit(replacement.page, replacement.attempt, old.id, replacement.assignments, key)
            hit_store.add_hits(session, old.batch_id, [new])
        session.commit()
    except BaseException:
        session.rollback()
        raise
    return name


def _after_posting(environment: Environment) -> str:
    people = "mitl serve for people"
    if environment is Environment.SANDBOX:
        people += ", or mitl simulate"
    return f"{people}; then mitl harvest"


def _nothing_to_do(adopted: int, environment: Environment) -> StageResult:
    return StageResult(
        status="done" if adopted else "nothing_to_do",
        counts={"hits_posted": 0, "hits_adopted": adopted},
        lines=(
            f"{adopted} HITs that had reached the server were recognised; nothing else is open"
            if adopted
            else "nothing to do: every proposed pair is on an open HIT or judged",
        ),
        next=_after_posting(environment),
    )


def _dry(plan: Plan, total: int, largest: int) -> StageResult:
    return StageResult(
        counts={
            "hits": plan.n_hits,
            "pairs": plan.n_pairs,
            "total_cents": total,
            "largest_question_bytes": largest,
        },
        lines=(
            f"dry run: {plan.n_hits:,} HITs rendered, the largest question has {largest:,} of 65,535 bytes; "
            "no HIT was planned or posted",
        ),
    )


def _result(
    plan: Plan,
    posted: int,
    adopted: int,
    total: int,
    balance: int,
    batch: str | None,
    campaign: Campaign,
) -> StageResult:
    if posted < plan.n_hits:
        raise CrowdError(f"{posted} of {plan.n_hits} HITs were posted; run the command again to go on")
    return StageResult(
        counts={
            "batch": batch,
            "environment": campaign.environment.value,
            "pairs": plan.n_pairs,
            "hits_posted": posted,
            "hits_adopted": adopted,
            "hits_again": len(plan.again),
            "repeats": plan.n_repeats,
            "overlap": plan.n_overlap,
            "total_cents": total,
            "balance_cents": balance,
        },
        lines=(f"posted {posted:,} / {plan.n_hits:,} HITs" + (f" as batch {batch}" if batch else ""),),
        next=_after_posting(campaign.environment),
    )
