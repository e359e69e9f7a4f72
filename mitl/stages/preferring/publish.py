"""Publishing a preference study: plan, price, check, ask, post, on the same rails as pages of pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from sqlalchemy.orm import Session

from mitl.crowd.endpoint import Endpoint, open_endpoint
from mitl.db.locks import PUBLISH, only_one
from mitl.db.session import open_database, reading
from mitl.progress import Progress, no_progress
from mitl.records import BatchKind, StageResult
from mitl.settings import Settings
from mitl.stages.environment import require_same_server
from mitl.stages.hits.reconciling import NO_SWEEP, require_free_names, sweep_to_post
from mitl.stages.preferring.checking import rehearse, write_pages
from mitl.stages.preferring.job import DueComparisons, Job, make_job
from mitl.stages.preferring.pages import RankingPages
from mitl.stages.preferring.posting import post_planned, store_study
from mitl.stages.preferring.result import bill_text, dry, nothing_to_do, posted_result
from mitl.stages.preferring.study import Study
from mitl.stages.publishing.bill import check_money, require_confirmed
from mitl.stages.publishing.dry_run import DryRunFolder
from mitl.stages.publishing.picture_probe import probe_or_warn
from mitl.stages.publishing.poster import require_all
from mitl.stages.publishing.purse import Purse
from mitl.stages.publishing.storing import conclude


def publish_study(
    settings: Settings,
    study: Study,
    *,
    confirm: Callable[[int], bool],
    repeats: Callable[[int], bool] | None = None,
    announce: Callable[[str], None] | None = None,
    dry_run: bool = False,
    to: Path | None = None,
    tell: Callable[[StageResult], None] | None = None,
    progress: Progress = no_progress,
) -> StageResult:
    """Post the comparisons that were not asked yet, or complete what an interrupted run left behind.

    Args:
        confirm: is shown the total in cents and says whether to go on.
        repeats: see ``require_confirmed``.
        announce: is given the bill's lines before anything is posted.
        dry_run: post and plan nothing; write every request and page to ``to`` (the project's ``dry-run``).
        tell: shows the result to whoever asked. Until it returns, the same words complete this run's plan.

    Raises:
        StoreError: nothing was proposed yet, or another publish is at work on the same database.
        UsageError: the study cannot be meant, its bill exceeds ``max_cost_cents`` or pays less than the floor, or it
            was not confirmed.
        FundsError: the balance or the ceiling does not cover the bill.
        ProposalError, RetrievalError, AnnotatorError: rankings are missing, too short, or share too few queries.
        TemplateError, DatasetError: a page could not be shown as it is meant.
        CrowdError: a call failed; what was posted is kept and the next run goes on.
    """
    with (
        open_database(settings.db_url) as session,
        nullcontext() if dry_run else only_one(settings.db_url, PUBLISH),
        open_endpoint(settings, study.environment) as endpoint,
    ):
        result = _publish(
            session, settings, study, endpoint, confirm, repeats, announce, dry_run, to, progress
        )
        conclude(session, study, BatchKind.RANKINGS, result, tell, dry_run=dry_run)
    return result


def _publish(
    session: Session,
    settings: Settings,
    study: Study,
    endpoint: Endpoint,
    confirm: Callable[[int], bool],
    repeats: Callable[[int], bool] | None,
    announce: Callable[[str], None] | None,
    dry_run: bool,
    to: Path | None,
    progress: Progress,
) -> StageResult:
    client = endpoint.client()
    require_same_server(session, endpoint, study.environment)
    sweep = NO_SWEEP if dry_run else sweep_to_post(session, client, settings.project_id, study.environment)
    purse = Purse(session, settings, study.environment, charges_fee=endpoint.charges_fee)
    balance = client.balance()
    with reading(session):
        job = make_job(session, settings, study, sweep, charges_fee=endpoint.charges_fee)
        if job.plan.n_hits == 0:
            return nothing_to_do(study, job.plan, sweep)
        bill = bill_text(settings, study, job, endpoint, balance, purse)
        if announce is not None:
            for line in bill:
                announce(line)
        check_money(settings, study.campaign, job.quote, balance, purse)
        committed = purse.committed()
    pages = RankingPages(session, settings, progress, write=not dry_run)
    due = job.due(settings.project_id)
    if dry_run:
        return _dry_run(settings, study, job, due, pages, to, bill, endpoint, progress)
    # Before anything is stored or paid: what cannot be shown or sent must not be planned.
    require_free_names(sweep, [one.hit for one in due], settings.project_id)
    rehearse(due, pages, settings.project_id, progress)
    warnings = (
        *sweep.warnings,
        *probe_or_warn(pages.sources, endpoint.url, study.campaign, seed=settings.seed),
    )
    require_confirmed(job.quote, confirm, repeats)
    batch = store_study(
        session, settings, study, job, purse, server_id=endpoint.server_id, after=sweep.last_batch
    )
    posted = post_planned(session, settings, study.environment, client, endpoint, pages, purse, progress)
    require_all(posted, job.plan.n_hits)
    return posted_result(
        study,
        job,
        posted=posted,
        adopted=sweep.adopted,
        warnings=warnings,
        balance=client.balance(),
        committed=committed + job.quote.new_cents,
        batch=batch,
    )


def _dry_run(
    settings: Settings,
    study: Study,
    job: Job,
    due: Sequence[DueComparisons],
    pages: RankingPages,
    to: Path | None,
    bill: Sequence[str],
    endpoint: Endpoint,
    progress: Progress,
) -> StageResult:
    """Write what would be sent; a picture that is not served yet is looked at where it lies."""
    folder = DryRunFolder(to if to is not None else settings.project / "dry-run")
    largest = rehearse(due, pages, settings.project_id, progress, folder.keep)
    write_pages(folder, due, pages)
    folder.write_bill(bill)
    warnings = probe_or_warn(
        pages.sources, endpoint.url, study.campaign, seed=settings.seed, files=pages.files()
    )
    return dry(study, job, largest, folder, warnings)
