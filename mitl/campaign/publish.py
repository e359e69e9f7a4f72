"""Publishing a campaign of any kind: plan, price, check, ask, post; and comparing what was posted with the server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Annotated, Any, TypedDict

from mitl.campaign.bill import require_confirmed
from mitl.campaign.jobs import PostingJob, PostingRun, make_job, post_planned, start_run, store_job
from mitl.campaign.kinds import kinds_asked
from mitl.campaign.kinds.protocol import Plan, Request
from mitl.campaign.pages import Pages, probe_pictures
from mitl.campaign.pilots import in_a_round
from mitl.campaign.posting import NO_SWEEP, Sweep, require_free_names, require_safe_repeat, sweep_server
from mitl.campaign.validating import DryRunFolder, validate_requests
from mitl.core.pricing import format_dollars
from mitl.crowd.context import Context, named, open_context
from mitl.crowd.endpoint import open_same_endpoint
from mitl.db.locks import PUBLISH, only_one
from mitl.db.session import reading
from mitl.db.store import answers as answer_store
from mitl.db.store import commitments
from mitl.db.store import hits as hit_store
from mitl.db.store import rounds as round_store
from mitl.errors import CrowdError, DatasetError
from mitl.progress import Progress, no_progress
from mitl.records import BatchKind, Decision, Environment, StageResult, several
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
        open_same_endpoint(context) as endpoint,
    ):
        run = start_run(context, request, endpoint)
        announce = announce or (lambda line: None)
        if dry_run:
            result = _dry_run(run, announce, to if to is not None else settings.project / "dry-run")
        else:
            result = _post(run, announce, confirm, repeats)
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


def _dry_run(run: PostingRun, announce: Callable[[str], None], to: Path) -> StageResult:
    """Write what would be sent; a picture that is not served yet is looked at where it lies."""
    job = make_job(run, NO_SWEEP, announce)
    if isinstance(job, Plan):
        return _nothing_to_do(run, job, NO_SWEEP)
    with closing(Pages(run.context, run.kind, write=False)) as pages:
        folder = DryRunFolder(to, job.bill)
        largest = validate_requests(run.context, pages, job.due, folder.keep)
        folder.write_pages(job.due, pages)
        warnings = (*job.plan.met.warnings, *_probe(run, pages))
    values = {
        **_values(run, job),
        "hits": job.plan.n_hits,
        "requests": folder.n_requests,
        "largest_question_bytes": largest,
    }
    return StageResult(
        counts={key: values[key] for key in run.kind.dry_keys},
        paths=PublishPaths(dry_run=str(folder.path)),
        warnings=warnings,
        lines=(
            f"dry run: {several(job.plan.n_hits, 'HIT')} rendered and checked, the largest question has "
            f"{largest:,} of 65,535 bytes; {folder.n_requests:,} requests and their pages are in {folder.path}; "
            "no HIT was planned or posted",
        ),
    )


def _post(
    run: PostingRun,
    announce: Callable[[str], None],
    confirm: Callable[[int], bool],
    repeats: Callable[[int], bool] | None,
) -> StageResult:
    """Plan, price and check, ask for confirmation, then store the plan and post all of it."""
    sweep = sweep_server(run.context, run.client)
    require_safe_repeat(run.context, sweep)
    job = make_job(run, sweep, announce)
    if isinstance(job, Plan):
        return _nothing_to_do(run, job, sweep)
    plan = job.plan
    with closing(Pages(run.context, run.kind, write=True)) as pages:
        # Before anything is stored or paid: what cannot be shown or sent must not be planned.
        require_free_names(sweep, [due.hit for due in job.due], run.context.settings.project_id)
        validate_requests(run.context, pages, job.due)
        warnings = (*sweep.warnings, *plan.met.warnings, *_probe(run, pages))
        require_confirmed(job.quote, confirm, repeats)
        batch = store_job(run, job, after=sweep.last_batch)
        posted = post_planned(run, pages)
    if posted < plan.n_hits:
        raise CrowdError(f"{posted} of {plan.n_hits} HITs were posted; run the command again to go on")
    is_pilot = run.request.pilot is not None and batch is not None
    some = f", {plan.n_hits - len(plan.again):,} of them" if plan.again else ""
    as_batch = f"{some} as {'pilot' if is_pilot else 'batch'} {batch}" if batch else ""
    values = {
        **_values(run, job),
        "batch": batch,
        "hits_posted": posted,
        "hits_adopted": sweep.adopted,
        "hits_again": len(plan.again),
        "reward_cents": job.terms.reward_cents if batch else None,
        "estimate_s": job.terms.estimate.seconds if batch else None,
        "pilot": is_pilot,
        "committed_cents": job.committed_cents + job.quote.new_cents,
        "balance_cents": run.client.balance(),
    }
    return StageResult(
        counts={key: values[key] for key in run.kind.posted_keys},
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
        next=_next(run)
        + (f", and {run.kind.command} again, which prices the rest by the pilot's times" if is_pilot else ""),
    )


def _probe(run: PostingRun, pages: Pages) -> tuple[str, ...]:
    """Fetch some pictures; with practice money, where scripted workers see none, a failure is only a warning."""
    base, seed = run.endpoint.url, run.context.settings.seed
    # What is not served yet, since nothing is written, is looked at where it lies.
    files = None if pages.write else pages.files()
    try:
        probe_pictures(pages.sources, base, run.request.probes, seed=seed, files=files, kind=pages.medium)
    except DatasetError as error:
        told = f"{error}{in_a_round(run.request, '--probe-images 0')}"
        if run.context.environment is not Environment.SANDBOX:
            raise DatasetError(told) from error
        return (told,)
    return ()


def _nothing_to_do(run: PostingRun, plan: Plan, sweep: Sweep) -> StageResult:
    """Why nothing is left to post now."""
    request, adopted = run.request, sweep.adopted
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
                f"posted; {COMPLETED}"
                for stored in plan.left.plans
            ),
            warnings=sweep.warnings,
            next=f"{_harvest(run)}; the same command again asks what is open since",
        )
    with reading(run.context.session):
        decisions = answer_store.decision_counts(run.context.session, request.environment)
    here = _here(run)
    review = f"mitl review{here}" if decisions.get(Decision.QUEUED) else ""
    left_out = f"; {plan.left_out}" if plan.left_out else ""
    why = plan.waits_for or run.kind.nothing_open(adopted=adopted)
    if not plan.waits_for and plan.n_held_back and plan.out:
        names = ", ".join(stored.name for stored in plan.out)
        if request.pilot is not None:
            hits = sum(stored.hits for stored in plan.out)
            out = f"{hits:,} HITs of pilot {names} are out, and --pilot {request.pilot:,}"
        else:
            asked = sum(stored.asked for stored in plan.out)
            out = f"{asked:,} {run.kind.asked} of {names} are out, and --limit {request.limit:,}"
        first = review or f"mitl harvest{here}"
        why = f"{out} counts them until the last of these HITs is closed; run `{first}` first, or raise it"
    return StageResult(
        status="done" if adopted else "nothing_to_do",
        counts=counts,
        lines=((recognised or "nothing to do: ") + why + left_out,),
        warnings=sweep.warnings,
        next=review or (_next(run) if _is_any_out(run) else _scores(run) or _follows(run, plan)),
    )


def _follows(run: PostingRun, plan: Plan) -> str:
    """What comes next where no page is out: if only a part was to be asked, the rest may be open."""
    with reading(run.context.session):
        rest = round_store.after_pages(run.context.session, run.context.environment)
    return rest if plan.waits_for else f"mitl build-dataset{_here(run)} --out DIR"


def _values(run: PostingRun, job: PostingJob) -> dict[str, Any]:
    """What a dry run and a posting one count alike, under the keys of ``--json``."""
    return {
        "environment": run.context.environment.value,
        **run.kind.facts(job.plan),
        "assignments": job.quote.submissions,
        "rewards_cents": job.quote.rewards_cents,
        "fees_cents": job.quote.fees_cents,
        "total_cents": job.quote.total_cents,
    }


def _next(run: PostingRun) -> str:
    return ", and ".join(filter(None, (_harvest(run), _scores(run))))


def _scores(run: PostingRun) -> str:
    """The command that shows what the kind's answers come to; empty where there is none."""
    return f"{run.kind.scores}{_here(run)}" if run.kind.scores else ""


def _is_any_out(run: PostingRun) -> bool:
    with reading(run.context.session):
        states = hit_store.state_counts(run.context.session, run.context.environment)
    return any(states[state] for state in hit_store.LIVE_STATES)


def _harvest(run: PostingRun) -> str:
    """What comes next once HITs are out."""
    here = _here(run)
    practice = f", or mitl simulate{here}" if run.context.environment is Environment.SANDBOX else ""
    return f"mitl serve for people{practice}; then mitl harvest{here}"


def _here(run: PostingRun) -> str:
    """What the commands that follow need to mean this environment."""
    with reading(run.context.session):
        return named(run.context.session, run.context.environment)


def reconcile(settings: Settings, environment: Environment, progress: Progress = no_progress) -> StageResult:
    """Compare the server's HITs with the stored ones and post nothing.

    Raises:
        StoreError: a publish is at work on the same database.
    """
    with (
        open_context(settings, environment, progress=progress) as context,
        only_one(settings.db_url, PUBLISH),
        open_same_endpoint(context) as endpoint,
    ):
        with progress("reconcile", 1) as advance:
            sweep = sweep_server(context, endpoint.client())
            advance(1)
        unposted = _unposted(context)
    nothing = not (sweep.adopted or sweep.gone or sweep.orphans or sweep.unfetched)
    return StageResult(
        status="nothing_to_do" if nothing else "done",
        counts={
            "environment": environment.value,
            "hits_adopted": sweep.adopted,
            "hits_gone": len(sweep.gone) + len(sweep.unfetched),
            "hits_orphaned": len(sweep.orphans),
            "hits_unposted": sum(unposted.values()),
        },
        warnings=sweep.warnings,
        lines=(
            "nothing to do: the server has every HIT that is posted here, and no other of this project"
            if nothing
            else f"{several(sweep.adopted, 'HIT')} adopted, {len(sweep.gone):,} closed because the server deleted "
            f"them; {len(sweep.orphans):,} of this project are not known here",
        ),
        next="; ".join(
            f"{command} --{environment}, which posts the {several(n, 'HIT')} that it planned"
            for command, n in unposted.items()
        )
        or "mitl harvest",
    )


def _unposted(context: Context) -> dict[str, int]:
    """The command that posts them → HITs that are planned and not posted."""
    session, environment = context.session, context.environment
    return {
        round_store.pairs_command(session, environment) if kind.name == BatchKind.PAIRS else kind.command: n
        for kind in kinds_asked(session, environment)
        if (n := len(hit_store.hits(session, environment, hit_store.UNPOSTED, kind.name)))
    }
