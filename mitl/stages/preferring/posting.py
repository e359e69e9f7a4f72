"""Writing a study's plan down, and posting what is planned, each HIT under its batch's terms."""

from __future__ import annotations

import datetime as dt

from sqlalchemy.orm import Session

from mitl.crowd.client import MTurkClient
from mitl.crowd.endpoint import Endpoint
from mitl.db.store import commitments
from mitl.db.store import comparisons as comparison_store
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store.comparisons import NewComparisonHit
from mitl.hits.templates import load_template
from mitl.progress import Progress
from mitl.records import BatchKind, ComparisonPage, Environment
from mitl.settings import Settings
from mitl.stages.harvesting.exclusion import exclusion_qualification
from mitl.stages.preferring.job import Job
from mitl.stages.preferring.pages import RankingPages
from mitl.stages.preferring.study import Study
from mitl.stages.publishing.hit_calls import create_hit_type
from mitl.stages.publishing.planning import token
from mitl.stages.publishing.posting import UNPOSTED, post
from mitl.stages.publishing.purse import Purse
from mitl.stages.publishing.storing import plan_to_keep


def store_study(
    session: Session,
    settings: Settings,
    study: Study,
    job: Job,
    purse: Purse,
    *,
    server_id: str | None,
    after: int,
) -> str | None:
    """Promise the money and write the plan down in one transaction; returns the name of the new batch.

    Args:
        after: the highest number of a batch that the server knows of this project, lost here or not.

    Raises:
        FundsError: another command has promised meanwhile what the plan would cost; nothing is stored.
    """
    try:
        purse.require(job.quote.new_cents, "the bill")
        now = dt.datetime.now(dt.UTC)
        name = _store_fresh(session, settings, study, job, server_id, after, now) if job.plan.fresh else None
        for one in job.plan.again:
            old = one.replaces
            key = token(settings.project_id, old.batch, old.number, one.attempt)
            page = ComparisonPage(old.number, one.comparisons)
            new = NewComparisonHit(page, one.attempt, old.id, one.assignments, key)
            comparison_store.add_comparison_hits(session, old.batch_id, [new])
        if not job.plan.leftover:
            commitments.add_plan(session, plan_to_keep(study, job.plan, job.quote, name), now)
        session.commit()
    except BaseException:
        session.rollback()
        raise
    return name


def post_planned(
    session: Session,
    settings: Settings,
    environment: Environment,
    client: MTurkClient,
    endpoint: Endpoint,
    pages: RankingPages,
    purse: Purse,
    progress: Progress,
) -> int:
    """Create the HITs of studies that are planned and not posted; returns how many."""
    to_post = hit_store.hits(session, environment, UNPOSTED, BatchKind.RANKINGS)
    wanted = {hit.batch_id for hit in to_post}
    batches = {row.id: row for row in hit_store.batches(session, environment) if row.id in wanted}
    items = comparison_store.comparisons(session, [hit.id for hit in to_post])
    session.rollback()
    templates = {id_: load_template(row.template, settings.wordings) for id_, row in batches.items()}
    pages.prepare(list(items.values()))
    guard = exclusion_qualification(client, settings.project_id)
    types = {
        id_: create_hit_type(client, templates[id_], row.reward_cents, guard)
        for id_, row in sorted(batches.items())
    }
    return post(
        session,
        client,
        settings.project_id,
        to_post,
        hit_type_of=lambda hit: types[hit.batch_id],
        question_of=lambda hit: pages.question(items[hit.id], templates[hit.batch_id]),
        in_order=endpoint.in_process,
        before_window=lambda window: purse.recheck(),
        progress=progress,
    )


def _store_fresh(
    session: Session,
    settings: Settings,
    study: Study,
    job: Job,
    server_id: str | None,
    after: int,
    now: dt.datetime,
) -> str:
    dataset = item_store.dataset(session)
    batch = hit_store.add_batch(
        session,
        round_id=hit_store.open_round(session, dataset.id, now),
        environment=study.environment,
        direction=study.direction.value,
        template=job.terms.template.name,
        reward_cents=job.terms.reward_cents,
        assignments=job.terms.assignments,
        seed=settings.seed,
        server_id=server_id,
        now=now,
        estimate_s=job.terms.estimate.seconds,
        kind=BatchKind.RANKINGS,
        after=after,
    )
    comparison_store.add_systems(session, batch.id, job.plan.systems)
    rows = [
        NewComparisonHit(
            page, 1, None, job.terms.assignments, token(settings.project_id, batch.name, page.number, 1)
        )
        for page in job.plan.fresh
    ]
    comparison_store.add_comparison_hits(session, batch.id, rows)
    return batch.name
