"""Publishing a campaign of any kind: plan, price, check, ask, post."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from mitl.campaign.bill import Quote, Terms, bill_text, check_money, make_quote, require_confirmed, terms_of
from mitl.campaign.kinds import kind_of, wording_of
from mitl.campaign.kinds.protocol import CampaignKind, Plan, Request, Wording
from mitl.campaign.pages import Pages
from mitl.campaign.pictures import probe_or_warn
from mitl.campaign.posting import create_hit_type, post, token
from mitl.campaign.reconciling import NO_SWEEP, Sweep, require_free_names, sweep_to_post
from mitl.campaign.spending import SpendingLimit
from mitl.campaign.validating import DryRunFolder, DueHit, validate_requests
from mitl.core.pricing import format_dollars
from mitl.crowd.endpoint import Endpoint, open_endpoint
from mitl.crowd.environment import require_same_server
from mitl.crowd.worker_calls import exclusion_qualification
from mitl.db.locks import PUBLISH, only_one
from mitl.db.session import open_database, reading
from mitl.db.store import commitments
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store.commitments import StoredPlan
from mitl.db.store.hits import UNPOSTED, BatchRow, HitRow, NewHit
from mitl.errors import CrowdError
from mitl.progress import Progress, no_progress
from mitl.records import Environment, HitState, JudgementSource, StageResult, several
from mitl.settings import Settings

COMPLETED = "that completes an interrupted run, and nothing was planned beside it"


def publish(
    settings: Settings,
    request: Request,
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
        StoreError: nothing was proposed yet, or another publish is at work on the same database, and would ask the
            same.
        UsageError: the request cannot be meant, its bill exceeds ``max_cost_cents`` or pays less than the floor, it
            was not confirmed, or a pilot is out.
        FundsError: the balance or the ceiling does not cover the bill.
        ProposalError, RetrievalError, AnnotatorError: rankings are missing, too short, or share too few queries.
        TemplateError, PackingError, DatasetError: a page could not be shown as it is meant.
        CrowdError: a call failed; what was posted is kept and the next run goes on.
    """
    with (
        open_database(settings.db_url) as session,
        nullcontext() if dry_run else only_one(settings.db_url, PUBLISH),
        open_endpoint(settings, request.environment) as endpoint,
    ):
        run = _Run(session, settings, request, kind_of(request.kind), endpoint, progress)
        announce = announce or (lambda line: None)
        if dry_run:
            result = run.rehearse(announce, to if to is not None else settings.project / "dry-run")
        else:
            result = run.post(announce, confirm, repeats)
        if tell is not None:
            tell(result)
        if not dry_run:
            # Only now: after a kill before the command has told its end, its plan is completed once more.
            commitments.mark_told(session, request.environment, request.kind, dt.datetime.now(dt.UTC))
    return result


@dataclass(frozen=True, slots=True)
class _Job:
    """What would be posted, at what price."""

    plan: Plan
    terms: Terms
    quote: Quote
    due: Sequence[DueHit]
    """The HITs as they would be posted."""
    bill: Sequence[str]
    committed_cents: int
    """Spent and promised before."""


class _Run:
    """One run of a publishing command."""

    def __init__(
        self,
        session: Session,
        settings: Settings,
        request: Request,
        kind: CampaignKind[Any, Any],
        endpoint: Endpoint,
        progress: Progress,
    ) -> None:
        self._session, self._settings, self._request, self._kind = session, settings, request, kind
        self._endpoint, self._client, self._progress = endpoint, endpoint.client(), progress
        self._environment = request.environment
        self._limit = SpendingLimit(session, settings, request.environment, charges_fee=endpoint.charges_fee)
        require_same_server(session, endpoint, request.environment)

    def rehearse(self, announce: Callable[[str], None], to: Path) -> StageResult:
        """Write what would be sent; a picture that is not served yet is looked at where it lies."""
        job = self._job(NO_SWEEP, announce)
        if isinstance(job, StageResult):
            return job
        with closing(self._pages(write=False)) as pages:
            folder = DryRunFolder(to)
            largest = self._validate(job, pages, folder)
            folder.write_pages(job.due, pages)
            folder.write_bill(job.bill)
            warnings = self._probe(pages, pages.files())
        values = {
            **self._values(job),
            "hits": job.plan.n_hits,
            "requests": folder.n_requests,
            "largest_question_bytes": largest,
        }
        return StageResult(
            counts={key: values[key] for key in self._kind.dry_keys},
            paths={"dry_run": str(folder.path)},
            warnings=warnings,
            lines=(
                f"dry run: {several(job.plan.n_hits, 'HIT')} rendered and checked, the largest question has "
                f"{largest:,} of 65,535 bytes; {folder.n_requests:,} requests and their pages are in {folder.path}; "
                "no HIT was planned or posted",
            ),
        )

    def post(
        self,
        announce: Callable[[str], None],
        confirm: Callable[[int], bool],
        repeats: Callable[[int], bool] | None,
    ) -> StageResult:
        """Plan, price and check, ask for confirmation, then store the plan and post all of it."""
        sweep = sweep_to_post(self._session, self._client, self._settings.project_id, self._environment)
        job = self._job(sweep, announce)
        if isinstance(job, StageResult):
            return job
        plan, project_id = job.plan, self._settings.project_id
        with closing(self._pages(write=True)) as pages:
            # Before anything is stored or paid: what cannot be shown or sent must not be planned.
            require_free_names(sweep, [each.hit for each in job.due], project_id)
            self._validate(job, pages)
            warnings = (*sweep.warnings, *self._probe(pages))
            require_confirmed(job.quote, confirm, repeats)
            batch = self._store(job, after=sweep.last_batch)
            posted = self._post_planned(pages)
        if posted < plan.n_hits:
            raise CrowdError(f"{posted} of {plan.n_hits} HITs were posted; run the command again to go on")
        is_pilot = self._request.pilot is not None and batch is not None
        as_batch = f" as {'pilot' if is_pilot else 'batch'} {batch}" if batch else ""
        values = {
            **self._values(job),
            "batch": batch,
            "hits_posted": posted,
            "hits_adopted": sweep.adopted,
            "hits_again": len(plan.again),
            "reward_cents": job.terms.reward_cents if batch else None,
            "estimate_s": job.terms.estimate.seconds if batch else None,
            "pilot": is_pilot,
            "committed_cents": job.committed_cents + job.quote.new_cents,
            "balance_cents": self._client.balance(),
        }
        return StageResult(
            counts={key: values[key] for key in self._kind.posted_keys},
            warnings=warnings,
            lines=(
                f"posted {posted:,} / {several(plan.n_hits, 'HIT')}{as_batch}",
                *([COMPLETED] if plan.left.hits else []),
            ),
            next=self._next()
            + (", and mitl publish again, which prices the rest by the pilot's times" if is_pilot else ""),
        )

    def _job(self, sweep: Sweep, announce: Callable[[str], None]) -> _Job | StageResult:
        """What is open, packed, priced, announced and affordable; else why nothing is left to post."""
        session, settings, request, kind = self._session, self._settings, self._request, self._kind
        balance = self._client.balance()
        with reading(session):
            template = wording_of(kind.name, request.template, settings.wordings)
            plan = kind.plan(session, settings, request, adopted=sweep.adopted)
            if plan.n_hits == 0:
                return self._nothing_to_do(plan, sweep)
            terms = terms_of(settings, request, template, kind.estimate(template, plan))
            batches = self._batches()
            wordings = self._wordings(batches)
            estimates = {id_: wording.estimate_s for id_, wording in wordings.items()}
            quote = make_quote(plan, terms, batches, estimates, charges_fee=self._endpoint.charges_fee)
            bill = [
                f"{request.environment} · {kind.headline(request, plan)} · seed {settings.seed} · {self._endpoint.url}",
                *kind.bill_lines(plan),
                *bill_text(
                    quote, self._environment, balance, self._limit, charges_fee=self._endpoint.charges_fee
                ),
            ]
            for line in bill:
                announce(line)
            check_money(settings, request, quote, balance, self._limit)
            due = self._due(
                plan, terms, batches, wordings, hit_store.next_batch_name(session, sweep.last_batch)
            )
            return _Job(plan, terms, quote, due, bill, self._limit.committed())

    def _due(
        self,
        plan: Plan,
        terms: Terms,
        batches: Mapping[int, BatchRow],
        wordings: Mapping[int, Wording],
        new_batch: str,
    ) -> list[DueHit]:
        def row(batch: str, number: int, attempt: int, assignments: int) -> HitRow:
            key = token(self._settings.project_id, batch, number, attempt)
            return HitRow(0, 0, batch, number, attempt, assignments, HitState.PLANNED, None, key)

        due = [
            DueHit(
                row(new_batch, page.number, 1, terms.assignments),
                page.items,
                terms.wording,
                terms.reward_cents,
            )
            for page in plan.fresh
        ]
        earlier = [
            (row(old.batch, old.number, again.attempt, again.assignments), old.batch_id, again.page.items)
            for again in plan.again
            for old in (again.replaces,)
        ]
        earlier += [(hit, hit.batch_id, plan.left.pages[hit.id]) for hit in plan.left.hits]
        return due + [
            DueHit(hit, items, wordings[batch_id], batches[batch_id].reward_cents)
            for hit, batch_id, items in earlier
        ]

    def _batches(self) -> dict[int, BatchRow]:
        """The batches of this kind that were posted from here, by their rows."""
        return {
            row.id: row
            for row in hit_store.batches(self._session, self._environment)
            if row.kind == self._kind.name and row.source is JudgementSource.CROWD
        }

    def _wordings(self, batches: Mapping[int, BatchRow]) -> dict[int, Wording]:
        """Batch → its wording, each template loaded once."""
        names = {row.template for row in batches.values()}
        loaded = {name: wording_of(self._kind.name, name, self._settings.wordings) for name in names}
        return {
            id_: Wording(
                loaded[row.template],
                row.estimate_s or self._kind.page_size * loaded[row.template].seconds_per_pair,
            )
            for id_, row in batches.items()
        }

    def _pages(self, *, write: bool) -> Pages:
        return Pages(self._session, self._settings, self._kind, self._progress, write=write)

    def _validate(self, job: _Job, pages: Pages, folder: DryRunFolder | None = None) -> int:
        keep = None if folder is None else folder.keep
        return validate_requests(self._kind, job.due, pages, self._settings.project_id, self._progress, keep)

    def _probe(self, pages: Pages, files: Mapping[str, Path] | None = None) -> tuple[str, ...]:
        seed = self._settings.seed
        return probe_or_warn(pages.sources, self._endpoint.url, self._request, seed=seed, files=files)

    def _store(self, job: _Job, *, after: int) -> str | None:
        """Promise the money and write the plan down in one transaction; returns the name of the new batch.

        Args:
            after: the highest number of a batch that the server knows of this project, lost here or not.

        Raises:
            FundsError: another command has promised meanwhile what the plan would cost; nothing is stored.
        """
        plan, request, project_id = job.plan, self._request, self._settings.project_id
        try:
            self._limit.require(job.quote.new_cents, "the bill")
            now = dt.datetime.now(dt.UTC)
            name = self._store_fresh(job, after, now) if plan.fresh else None
            for again in plan.again:
                old = again.replaces
                key = token(project_id, old.batch, old.number, again.attempt)
                new = NewHit(again.page, again.attempt, old.id, again.assignments, key)
                self._kind.add_items(self._session, hit_store.insert_hits(self._session, old.batch_id, [new]))
            if not plan.left.hits:
                stored = StoredPlan(
                    environment=request.environment,
                    words=request.words,
                    limited=request.limited,
                    batch=name,
                    again=[f"{a.replaces.batch}:{a.replaces.number}:{a.attempt}" for a in plan.again],
                    asked=plan.n_limited,
                    hits=len(plan.fresh) + len(plan.again),
                    cents=job.quote.total_cents,
                )
                commitments.add_plan(self._session, stored, now)
            self._session.commit()
        except BaseException:
            self._session.rollback()
            raise
        return name

    def _store_fresh(self, job: _Job, after: int, now: dt.datetime) -> str:
        session, request, terms = self._session, self._request, job.terms
        batch = hit_store.add_batch(
            session,
            round_id=hit_store.open_round(session, item_store.dataset(session).id, now),
            environment=request.environment,
            direction=str(request.direction),
            template=terms.template.name,
            reward_cents=terms.reward_cents,
            assignments=terms.assignments,
            seed=self._settings.seed,
            server_id=self._endpoint.server_id,
            now=now,
            pilot=request.pilot is not None,
            estimate_s=terms.estimate.seconds if terms.estimate.is_kept else None,
            kind=self._kind.name,
            after=after,
        )
        self._kind.add_batch(session, batch.id, job.plan)
        new = [
            NewHit(
                page,
                1,
                None,
                terms.assignments,
                token(self._settings.project_id, batch.name, page.number, 1),
            )
            for page in job.plan.fresh
        ]
        self._kind.add_items(session, hit_store.insert_hits(session, batch.id, new))
        return batch.name

    def _post_planned(self, pages: Pages) -> int:
        """Create the HITs of this kind that are planned, each under its batch's terms; returns how many."""
        session, project_id = self._session, self._settings.project_id
        due = hit_store.hits(session, self._environment, UNPOSTED, self._kind.name)
        wanted = {hit.batch_id for hit in due}
        batches = {id_: row for id_, row in self._batches().items() if id_ in wanted}
        items = self._kind.items(session, [hit.id for hit in due])
        session.rollback()
        wordings = self._wordings(batches)
        pages.prepare(items.values())
        guard = exclusion_qualification(self._client, project_id)
        types = {
            id_: create_hit_type(self._client, wordings[id_].template, row.reward_cents, guard)
            for id_, row in sorted(batches.items())
        }
        return post(
            session,
            self._client,
            project_id,
            due,
            hit_type_of=lambda hit: types[hit.batch_id],
            question_of=lambda hit: pages.question(items[hit.id], wordings[hit.batch_id]),
            in_order=self._endpoint.in_process,
            before_window=self._limit.recheck,
            progress=self._progress,
        )

    def _nothing_to_do(self, plan: Plan, sweep: Sweep) -> StageResult:
        """Why nothing is left to post now."""
        request, adopted = self._request, sweep.adopted
        recognised = f"recognised {several(adopted, 'HIT')} that had reached the server; " if adopted else ""
        counts: dict[str, object] = {
            "environment": self._environment.value,
            "hits_posted": 0,
            "hits_adopted": adopted,
        }
        if plan.left.plans and not plan.waits_for:
            return StageResult(
                counts=counts,
                lines=tuple(
                    f"{recognised}{several(stored.hits, 'HIT')} of {stored.name}, {format_dollars(stored.cents)}, all "
                    f"out; {COMPLETED}"
                    for stored in plan.left.plans
                ),
                warnings=sweep.warnings,
                next=f"{_after_posting(self._environment)}; the same command again asks what is open since",
            )
        why = plan.waits_for or self._kind.nothing_open(adopted=adopted)
        if not plan.waits_for and plan.n_held_back and plan.out:
            names = ", ".join(stored.name for stored in plan.out)
            if request.pilot is not None:
                hits = sum(stored.hits for stored in plan.out)
                out = f"{hits:,} HITs of pilot {names} are out, and --pilot {request.pilot:,}"
            else:
                asked = sum(stored.asked for stored in plan.out)
                out = f"{asked:,} {self._kind.asked} of {names} are out, and --limit {request.limit:,}"
            why = f"{out} counts them until the last of these HITs is closed; run `mitl harvest` first, or raise it"
        return StageResult(
            status="done" if adopted else "nothing_to_do",
            counts=counts,
            lines=((recognised or "nothing to do: ") + why,),
            warnings=sweep.warnings,
            next=self._next(),
        )

    def _values(self, job: _Job) -> dict[str, object]:
        """What a dry run and a posting one count alike, under the keys of ``--json``."""
        return {
            "environment": self._environment.value,
            **self._kind.facts(job.plan),
            "assignments": job.quote.submissions,
            "rewards_cents": job.quote.rewards_cents,
            "fees_cents": job.quote.fees_cents,
            "total_cents": job.quote.total_cents,
        }

    def _next(self) -> str:
        return _after_posting(self._environment) + (f", and {self._kind.scores}" if self._kind.scores else "")


def _after_posting(environment: Environment) -> str:
    """What comes next once HITs are out."""
    practice = ", or mitl simulate" if environment is Environment.SANDBOX else ""
    return f"mitl serve for people{practice}; then mitl harvest"
