"""Publishing a campaign of any kind: plan, price, check, ask, post."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from mitl.campaign.bill import (
    PostingTerms,
    Quote,
    SpendingLimit,
    bill_text,
    check_money,
    make_quote,
    require_confirmed,
    reward_again,
    terms_of,
)
from mitl.campaign.kinds import fitting, kind_of, wording_of
from mitl.campaign.kinds.protocol import Plan, PostedBatch, Request, Wording
from mitl.campaign.pages import Pages, probe_pictures
from mitl.campaign.posting import (
    CREATE,
    NO_SWEEP,
    Sweep,
    create_call,
    create_hit,
    create_hit_type,
    require_free_names,
    sweep_to_post,
    token,
)
from mitl.campaign.validating import DryRunFolder, DueHit, validate_requests
from mitl.core.pricing import format_dollars
from mitl.crowd.calls import Call, Operation, make_calls
from mitl.crowd.client import exclusion_qualification
from mitl.crowd.context import Context, open_context, require_same_server
from mitl.crowd.endpoint import Endpoint, open_endpoint
from mitl.db.locks import PUBLISH, only_one
from mitl.db.session import reading
from mitl.db.store import commitments
from mitl.db.store import hits as hit_store
from mitl.db.store import items as item_store
from mitl.db.store import rounds as round_store
from mitl.db.store.commitments import StoredPlan
from mitl.db.store.hits import UNPOSTED, BatchRow, NewHit, StoredHit
from mitl.errors import CrowdError, DatasetError
from mitl.hits.templates import HitTemplate
from mitl.progress import Progress, no_progress
from mitl.records import BatchKind, Environment, HitState, JudgementSource, StageResult, several
from mitl.records.results import printed_by
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
        open_context(settings, request.environment, progress=progress) as context,
        nullcontext() if dry_run else only_one(settings.db_url, PUBLISH),
        open_endpoint(settings, request.environment) as endpoint,
    ):
        run = _Run(context, request, endpoint)
        announce = announce or (lambda line: None)
        if dry_run:
            result = run.dry_run(announce, to if to is not None else settings.project / "dry-run")
        else:
            result = run.post(announce, confirm, repeats)
        if tell is not None:
            tell(result)
        if not dry_run:
            # Only now: after a kill before the command has told its end, its plan is completed once more.
            commitments.mark_told(context.session, request.environment, request.kind, context.now())
    return result


@printed_by("publish", "prefer publish", "rate publish", "collect publish", key="paths")
class PublishPaths(TypedDict, total=False):
    """What was written."""

    dry_run: Annotated[str, "folder of the requests, the pages and the bill (`--dry-run`)"]


@dataclass(frozen=True, slots=True)
class _Job:
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


class _Run:
    """One run of a publishing command."""

    def __init__(self, context: Context, request: Request, endpoint: Endpoint) -> None:
        request = fitting(request, item_store.find_dataset(context.session), context.settings.wordings)
        context.session.rollback()
        self._context, self._request, self._endpoint = context, request, endpoint
        self._session, self._settings = context.session, context.settings
        self._kind, self._client = kind_of(request.kind), endpoint.client()
        self._limit = SpendingLimit(
            context.session, context.settings, context.environment, charges_fee=endpoint.charges_fee
        )
        require_same_server(context.session, endpoint, context.environment)

    def dry_run(self, announce: Callable[[str], None], to: Path) -> StageResult:
        """Write what would be sent; a picture that is not served yet is looked at where it lies."""
        job = self._job(NO_SWEEP, announce)
        if isinstance(job, StageResult):
            return job
        with closing(Pages(self._context, self._kind, write=False)) as pages:
            folder = DryRunFolder(to)
            largest = validate_requests(self._context, pages, job.due, folder.keep)
            folder.write_pages(job.due, pages)
            folder.write_bill(job.bill)
            warnings = self._probe(pages)
        values = {
            **self._values(job),
            "hits": job.plan.n_hits,
            "requests": folder.n_requests,
            "largest_question_bytes": largest,
        }
        return StageResult(
            counts={key: values[key] for key in self._kind.dry_keys},
            paths=PublishPaths(dry_run=str(folder.path)),
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
        sweep = sweep_to_post(self._context, self._client)
        job = self._job(sweep, announce)
        if isinstance(job, StageResult):
            return job
        plan = job.plan
        with closing(Pages(self._context, self._kind, write=True)) as pages:
            # Before anything is stored or paid: what cannot be shown or sent must not be planned.
            require_free_names(sweep, [due.hit for due in job.due], self._settings.project_id)
            validate_requests(self._context, pages, job.due)
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
                *(
                    [f"what is asked again at another reward is of batch {', '.join(job.moved.values())}"]
                    if job.moved
                    else []
                ),
                *([COMPLETED] if plan.left.hits else []),
            ),
            next=self._next()
            + (
                f", and {self._kind.command} again, which prices the rest by the pilot's times"
                if is_pilot
                else ""
            ),
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
            earlier = self._earlier()
            charges_fee, asked = self._endpoint.charges_fee, request.reward_cents
            quote = make_quote(plan, terms, earlier, charges_fee=charges_fee, asked_cents=asked)
            bill = [
                f"{request.environment} · {kind.headline(request, plan)} · seed {settings.seed} · {self._endpoint.url}",
                *kind.bill_lines(plan),
                *bill_text(quote, balance, self._limit),
            ]
            for line in bill:
                announce(line)
            check_money(settings, request, quote, balance, self._limit)
            olds = {again.replaces.batch_id: earlier[again.replaces.batch_id].row for again in plan.again}
            repriced = sorted(
                id_ for id_, row in olds.items() if reward_again(row, asked) != row.reward_cents
            )
            new_batch, *names = (
                hit_store.next_batch_name(session, sweep.last_batch, ahead)
                for ahead in range(1 + len(repriced))
            )
            moved = dict(zip(repriced, names if plan.fresh else [new_batch, *names], strict=False))
            due = self._due(plan, terms, earlier, new_batch, moved)
            return _Job(plan, terms, quote, due, bill, self._limit.committed(), moved)

    def _due(
        self,
        plan: Plan,
        terms: PostingTerms,
        earlier: dict[int, PostedBatch],
        new_batch: str,
        moved: Mapping[int, str],
    ) -> list[DueHit]:
        def row(batch: str, number: int, attempt: int, assignments: int) -> StoredHit:
            named = batch, number, attempt
            return StoredHit(0, 0, *named, assignments, HitState.PLANNED, None, self._token(*named))

        due = [
            DueHit(
                row(new_batch, page.number, 1, terms.assignments),
                page.items,
                terms.wording,
                terms.reward_cents,
            )
            for page in plan.fresh
        ]
        for again in plan.again:
            old, of = again.replaces, earlier[again.replaces.batch_id]
            batch = moved.get(old.batch_id, old.batch)
            hit = row(batch, old.number, again.attempt, again.assignments)
            reward = reward_again(of.row, self._request.reward_cents)
            due.append(DueHit(hit, again.page.items, of.wording, reward))
        for hit in plan.left.hits:
            of = earlier[hit.batch_id]
            due.append(DueHit(hit, plan.left.pages[hit.id], of.wording, of.row.reward_cents))
        return due

    def _earlier(self, wanted: set[int] | None = None) -> dict[int, PostedBatch]:
        """The batches of this kind that were posted from here, by their rows, each template loaded once.

        Args:
            wanted: leave out all others.
        """
        rows = [
            row
            for row in hit_store.batches(self._session, self._context.environment)
            if row.kind == self._kind.name and row.source is JudgementSource.CROWD
            if wanted is None or row.id in wanted
        ]
        loaded: dict[str, HitTemplate] = {}
        for name in {row.template for row in rows}:
            loaded[name] = wording_of(self._kind.name, name, self._settings.wordings)
        return {
            row.id: PostedBatch(
                row,
                Wording(
                    loaded[row.template],
                    row.estimate_s or self._kind.page_size * loaded[row.template].seconds_per_pair,
                ),
            )
            for row in rows
        }

    def _probe(self, pages: Pages) -> tuple[str, ...]:
        """Fetch some pictures; with practice money, where scripted workers see none, a failure is only a warning."""
        base, seed = self._endpoint.url, self._settings.seed
        # What is not served yet, since nothing is written, is looked at where it lies.
        files = None if pages.write else pages.files()
        try:
            probe_pictures(
                pages.sources, base, self._request.probes, seed=seed, files=files, kind=pages.medium
            )
        except DatasetError as error:
            if self._context.environment is not Environment.SANDBOX:
                raise
            return (str(error),)
        return ()

    def _store(self, job: _Job, *, after: int) -> str | None:
        """Promise the money and write the plan down in one transaction; returns the name of the new batch.

        Args:
            after: the highest number of a batch that the server knows of this project, lost here or not.

        Raises:
            FundsError: another command has promised meanwhile what the plan would cost; nothing is stored.
        """
        session, plan, request = self._session, job.plan, self._request
        try:
            self._limit.require(job.quote.new_cents, "the bill")
            now = self._context.now()
            name = self._store_fresh(job, after, now) if plan.fresh else None
            moved = {old: self._store_moved(old, job, after, now) for old in job.moved}
            keys = []
            for again in plan.again:
                old = again.replaces
                batch = moved.get(old.batch_id) or hit_store.batch(session, old.batch_id)
                named = batch.name, old.number, again.attempt
                keys.append(":".join(map(str, named)))
                new = NewHit(again.page, again.attempt, old.id, again.assignments, self._token(*named))
                self._kind.add_items(session, hit_store.insert_hits(session, batch.id, [new]))
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

    def _store_fresh(self, job: _Job, after: int, now: dt.datetime) -> str:
        session, request, terms = self._session, self._request, job.terms
        batch = hit_store.add_batch(
            session,
            hit_store.NewBatch(
                round_id=hit_store.open_round(
                    session, item_store.dataset(session).id, self._context.environment, now
                ),
                environment=request.environment,
                direction=str(request.direction),
                template=terms.template.name,
                reward_cents=terms.reward_cents,
                assignments=terms.assignments,
                seed=self._settings.seed,
                server_id=self._endpoint.server_id,
                planned_at=now,
                pilot=request.pilot is not None,
                estimate_s=terms.estimate.seconds if terms.estimate.is_kept else None,
                kind=self._kind.name,
            ),
            after=after,
        )
        self._kind.add_batch(session, batch.id, job.plan)
        new = [
            NewHit(page, 1, None, terms.assignments, self._token(batch.name, page.number, 1))
            for page in job.plan.fresh
        ]
        self._kind.add_items(session, hit_store.insert_hits(session, batch.id, new))
        return batch.name

    def _store_moved(self, old: int, job: _Job, after: int, now: dt.datetime) -> BatchRow:
        """A batch for those pages of another one that are asked again at another reward: a batch has one."""
        session = self._session
        batch = hit_store.add_batch_like(
            session,
            old,
            after,
            reward_cents=self._request.reward_cents,
            seed=self._settings.seed,
            server_id=self._endpoint.server_id,
            planned_at=now,
        )
        self._kind.add_batch(session, batch.id, job.plan, like=old)
        return batch

    def _token(self, batch: str, number: int, attempt: int) -> str:
        return token(self._settings.project_id, batch, number, attempt)

    def _post_planned(self, pages: Pages) -> int:
        """Create the HITs of this kind that are planned, each under its batch's terms; returns how many are out.

        A harvest beside this one may find and book some of them first.

        Each window of HITs goes planned → sending → posted with a commit before the calls and one after them. A HIT
        whose call fails stays in ``sending``, to be reconciled and sent again with the same token.
        """
        session, client, project_id = self._session, self._client, self._settings.project_id
        due = hit_store.hits(session, self._context.environment, UNPOSTED, self._kind.name)
        batches = self._earlier({hit.batch_id for hit in due})
        items = self._kind.items(session, [hit.id for hit in due])
        session.rollback()
        pages.prepare(items.values())
        guard = exclusion_qualification(client, project_id)
        types = {
            id_: create_hit_type(client, of.wording.template, of.row.reward_cents, guard)
            for id_, of in sorted(batches.items())
        }
        questions: dict[int, str] = {}

        def prepare(window: Sequence[Call[StoredHit]]) -> None:
            self._limit.recheck()
            session.rollback()
            hits = [call.subject for call in window]
            questions.update(
                (hit.id, pages.question(items[hit.id], batches[hit.batch_id].wording)) for hit in hits
            )
            hit_store.set_state(session, [hit.id for hit in hits], HitState.SENDING)

        def create(hit: StoredHit) -> dict[str, str]:
            return {"HITId": create_hit(client, project_id, hit, types[hit.batch_id], questions.pop(hit.id))}

        make_calls(
            self._context,
            Operation(
                CREATE,
                create,
                lambda made: hit_store.set_posted(session, {hit.id: reply["HITId"] for hit, reply in made}),
                before_window=prepare,
                not_made=lambda hit: hit_store.set_state(session, [hit.id], HitState.PLANNED),
            ),
            [create_call(project_id, hit) for hit in due],
            label="post",
            in_order=self._endpoint.in_process,
        )
        with reading(session):
            left = hit_store.hits(session, self._context.environment, UNPOSTED, self._kind.name)
        return len(due) - len({hit.id for hit in due} & {hit.id for hit in left})

    def _nothing_to_do(self, plan: Plan, sweep: Sweep) -> StageResult:
        """Why nothing is left to post now."""
        request, adopted = self._request, sweep.adopted
        recognised = f"recognised {several(adopted, 'HIT')} that had reached the server; " if adopted else ""
        counts: dict[str, object] = {
            "environment": request.environment.value,
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
                next=f"{self._harvest()}; the same command again asks what is open since",
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
            next=self._next() if self._is_any_out() else self._kind.scores or "mitl build-dataset --out DIR",
        )

    def _values(self, job: _Job) -> dict[str, Any]:
        """What a dry run and a posting one count alike, under the keys of ``--json``."""
        return {
            "environment": self._context.environment.value,
            **self._kind.facts(job.plan),
            "assignments": job.quote.submissions,
            "rewards_cents": job.quote.rewards_cents,
            "fees_cents": job.quote.fees_cents,
            "total_cents": job.quote.total_cents,
        }

    def _next(self) -> str:
        return self._harvest() + (f", and {self._kind.scores}" if self._kind.scores else "")

    def _is_any_out(self) -> bool:
        states = hit_store.state_counts(self._context.session, self._context.environment)
        return any(states[state] for state in hit_store.LIVE_STATES)

    def _harvest(self) -> str:
        """What comes next once HITs are out."""
        practice = ", or mitl simulate" if self._context.environment is Environment.SANDBOX else ""
        return f"mitl serve for people{practice}; then mitl harvest"
