"""Publishing: plan, price, check, ask, post."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.orm import Session

from mitl.crowd.client import MTurkClient
from mitl.crowd.endpoint import Endpoint, open_endpoint
from mitl.db.locks import PUBLISH, only_one
from mitl.db.session import open_database, reading
from mitl.db.store import hits as hit_store
from mitl.db.store.hits import BatchRow
from mitl.errors import UsageError
from mitl.hits.templates import load_template
from mitl.progress import Progress, no_progress
from mitl.records import BatchKind, JudgementSource, StageResult
from mitl.settings import Settings
from mitl.stages.environment import require_same_server
from mitl.stages.hits.reconciling import NO_SWEEP, Sweep, require_free_names, sweep_to_post
from mitl.stages.publishing.bill import (
    Quote,
    Terms,
    check_money,
    make_quote,
    require_confirmed,
    terms_of,
)
from mitl.stages.publishing.bill_text import bill_text
from mitl.stages.publishing.campaign import Campaign
from mitl.stages.publishing.dry_run import DryRunFolder
from mitl.stages.publishing.pages import Pages, Wording, wordings_of
from mitl.stages.publishing.picture_probe import probe_or_warn
from mitl.stages.publishing.pilot import Pilot, estimate_of, find_pilots, pilot_out
from mitl.stages.publishing.planning import Plan, make_plan
from mitl.stages.publishing.poster import Poster, require_all
from mitl.stages.publishing.posting import UNPOSTED
from mitl.stages.publishing.purse import Purse
from mitl.stages.publishing.rehearsal import DueHit, due_hits, rehearse
from mitl.stages.publishing.result import dry, nothing_to_do, posted_result
from mitl.stages.publishing.storing import conclude, store_plan

__all__ = ["Campaign", "publish"]


@dataclass(frozen=True, slots=True)
class _Job:
    """What would be posted, at what price."""

    plan: Plan
    terms: Terms
    quote: Quote
    batches: Mapping[int, BatchRow]
    wordings: Mapping[int, Wording]
    new_batch: str
    """The name that the new batch will have."""
    waits_for: Pilot | None

    def due(self, project_id: str) -> list[DueHit]:
        """The HITs as they would be posted."""
        return due_hits(
            self.plan, self.terms, self.batches, self.wordings, project_id=project_id, batch=self.new_batch
        )


def publish(
    settings: Settings,
    campaign: Campaign,
    *,
    confirm: Callable[[int], bool],
    repeats: Callable[[int], bool] | None = None,
    announce: Callable[[str], None] | None = None,
    dry_run: bool = False,
    to: Path | None = None,
    tell: Callable[[StageResult], None] | None = None,
    progress: Progress = no_progress,
) -> StageResult:
    """Post what is open in an environment, or complete what an interrupted run left behind.

    Args:
        confirm: is shown the total in cents and says whether to go on.
        repeats: see ``require_confirmed``.
        announce: is given the bill's lines before anything is posted.
        dry_run: post and plan nothing; write every request and page to ``to`` (the project's ``dry-run``).
        tell: shows the result to whoever asked. Until it returns, the same words complete this run's plan.

    Raises:
        StoreError: another publish is at work on the same database, and would ask the same pairs.
        UsageError: the bill exceeds ``max_cost_cents`` or pays less than the floor, it was not confirmed, or a pilot is
            out.
        FundsError: the balance or the ceiling does not cover the bill.
        TemplateError, PackingError, DatasetError: a page could not be shown as it is meant.
        CrowdError: a call failed; what was posted is kept and the next run goes on.
    """
    with (
        open_database(settings.db_url) as session,
        nullcontext() if dry_run else only_one(settings.db_url, PUBLISH),
        open_endpoint(settings, campaign.environment) as endpoint,
    ):
        result = _publish(
            session, settings, campaign, endpoint, confirm, repeats, announce, dry_run, to, progress
        )
        conclude(session, campaign, BatchKind.PAIRS, result, tell, dry_run=dry_run)
    return result


def _publish(
    session: Session,
    settings: Settings,
    campaign: Campaign,
    endpoint: Endpoint,
    confirm: Callable[[int], bool],
    repeats: Callable[[int], bool] | None,
    announce: Callable[[str], None] | None,
    dry_run: bool,
    to: Path | None,
    progress: Progress,
) -> StageResult:
    client = endpoint.client()
    require_same_server(session, endpoint, campaign.environment)
    sweep = NO_SWEEP if dry_run else sweep_to_post(session, client, settings.project_id, campaign.environment)
    purse = Purse(session, settings, campaign.environment, charges_fee=endpoint.charges_fee)
    balance = client.balance()
    with reading(session):
        job = _plan(session, settings, campaign, sweep, charges_fee=endpoint.charges_fee)
        if job.plan.n_hits == 0:
            return nothing_to_do(campaign, job.plan, sweep, job.waits_for)
        bill = bill_text(settings, campaign, job.plan, job.quote, endpoint, balance, purse)
        _tell(bill, announce)
        check_money(settings, campaign, job.quote, balance, purse)
        committed = purse.committed()
    with closing(Pages(session, settings, progress, write=not dry_run)) as pages:
        if dry_run:
            return _dry_run(settings, campaign, job, pages, to, bill, endpoint, progress)
        # Before anything is stored or paid: what cannot be shown or sent must not be planned.
        require_free_names(sweep, [one.hit for one in job.due(settings.project_id)], settings.project_id)
        rehearse(job.plan, job.due(settings.project_id), pages, settings.project_id, progress)
        warnings = (
            *sweep.warnings,
            *probe_or_warn(pages.sources, endpoint.url, campaign, seed=settings.seed),
        )
        require_confirmed(job.quote, confirm, repeats)
        batch, posted = _post(
            session, settings, campaign, job, client, endpoint, pages, purse, sweep, progress
        )
    return posted_result(
        campaign,
        job.plan,
        job.quote,
        posted=posted,
        adopted=sweep.adopted,
        warnings=warnings,
        balance=client.balance(),
        committed=committed + job.quote.new_cents,
        batch=batch,
        terms=job.terms,
    )


def _post(
    session: Session,
    settings: Settings,
    campaign: Campaign,
    job: _Job,
    client: MTurkClient,
    endpoint: Endpoint,
    pages: Pages,
    purse: Purse,
    sweep: Sweep,
    progress: Progress,
) -> tuple[str | None, int]:
    """Store the plan and post all that is planned; returns the new batch's name and how many HITs were posted."""
    batch = store_plan(
        session,
        settings,
        campaign,
        job.plan,
        job.terms,
        job.quote,
        purse,
        server_id=endpoint.server_id,
        after=sweep.last_batch,
    )
    to_post = hit_store.hits(session, campaign.environment, UNPOSTED, BatchKind.PAIRS)
    session.rollback()
    poster = Poster(session, settings, client, pages, purse, in_order=endpoint.in_process)
    posted = poster.run(campaign.environment, to_post, progress)
    require_all(posted, job.plan.n_hits)
    return batch, posted


def _tell(lines: Sequence[str], announce: Callable[[str], None] | None) -> None:
    """Show the bill, where somebody looks."""
    if announce is not None:
        for line in lines:
            announce(line)


def _plan(
    session: Session, settings: Settings, campaign: Campaign, sweep: Sweep, *, charges_fee: bool
) -> _Job:
    """What is open, packed and priced.

    Raises:
        UsageError: there is something to post, but a pilot of the same wording is out.
    """
    environment = campaign.environment
    template = load_template(campaign.template, settings.wordings, asks=BatchKind.PAIRS)
    pilots = find_pilots(session, environment, template.name)
    out = pilot_out(pilots) if campaign.wait_for_pilot else None
    plan = make_plan(session, settings, campaign, hold=out is not None)
    if out is not None and campaign.pilot is None and not plan.n_hits and not sweep.adopted:
        _refuse_the_rest(session, settings, campaign, out)
    terms = terms_of(settings, campaign, template, estimate_of(pilots, template))
    batches = {
        row.id: row for row in hit_store.batches(session, environment) if row.source is JudgementSource.CROWD
    }
    wordings = wordings_of(batches, settings.wordings)
    estimates = {id_: wording.estimate_s for id_, wording in wordings.items()}
    quote = make_quote(plan, terms, batches, estimates, charges_fee=charges_fee)
    return _Job(
        plan, terms, quote, batches, wordings, hit_store.next_batch_name(session, sweep.last_batch), out
    )


def _refuse_the_rest(session: Session, settings: Settings, campaign: Campaign, out: Pilot) -> None:
    if make_plan(session, settings, campaign).n_hits:
        raise UsageError(
            f"pilot {out.batch} of template {campaign.template!r} is out: {out.out} of its {out.hits} HITs are not "
            "answered and decided yet; run `mitl harvest` (and `mitl review`) first, or post the rest without its "
            "times with --no-wait-for-pilot"
        )


def _dry_run(
    settings: Settings,
    campaign: Campaign,
    job: _Job,
    pages: Pages,
    to: Path | None,
    bill: Sequence[str],
    endpoint: Endpoint,
    progress: Progress,
) -> StageResult:
    """Write what would be sent; a picture that is not served yet is looked at where it lies."""
    folder = DryRunFolder(to if to is not None else settings.project / "dry-run")
    due = job.due(settings.project_id)
    largest = rehearse(job.plan, due, pages, settings.project_id, progress, folder.keep)
    folder.write_pages(due, pages)
    folder.write_bill(bill)
    warnings = probe_or_warn(
        pages.sources,
        endpoint.url,
        campaign,
        seed=settings.seed,
        files=pages.files(),
    )
    return dry(campaign, job.plan, job.quote, largest, folder, warnings)
