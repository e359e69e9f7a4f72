"""What a publish came to, for people and for ``--json``."""

from __future__ import annotations

from collections.abc import Sequence

from mitl.db.store.commitments import StoredPlan
from mitl.hits.pricing import format_dollars
from mitl.records import Environment, StageResult, several
from mitl.stages.hits.reconciling import Sweep
from mitl.stages.publishing.bill import Planned, Quote, Terms
from mitl.stages.publishing.campaign import Campaign
from mitl.stages.publishing.dry_run import DryRunFolder
from mitl.stages.publishing.pilot import Pilot
from mitl.stages.publishing.planning import Plan

COMPLETED = "that completes an interrupted run, and nothing was planned beside it"


def nothing_to_do(campaign: Campaign, plan: Plan, sweep: Sweep, waits_for: Pilot | None) -> StageResult:
    """Nothing is left to post now."""
    if waits_for is not None:
        why = (
            f"pilot {waits_for.batch} is out, {waits_for.out:,} of its {waits_for.hits:,} HITs are not answered and "
            "decided yet"
        )
    elif plan.interrupted:
        return completed(campaign.environment, plan.interrupted, sweep)
    elif plan.n_held_back and plan.out:
        why = limit_used_up(campaign, plan.out, "pairs")
    else:
        why = "nothing else is open" if sweep.adopted else "every proposed pair is on an open HIT or judged"
    return StageResult(
        status="done" if sweep.adopted else "nothing_to_do",
        counts={
            "environment": campaign.environment.value,
            "hits_posted": 0,
            "hits_adopted": sweep.adopted,
        },
        lines=(recognised(sweep) + why,),
        warnings=sweep.warnings,
        next=after_posting(campaign.environment),
    )


def completed(environment: Environment, interrupted: Sequence[StoredPlan], sweep: Sweep) -> StageResult:
    """All that an interrupted run planned had reached the server before."""
    found = recognised(sweep) if sweep.adopted else ""
    return StageResult(
        counts={"environment": environment.value, "hits_posted": 0, "hits_adopted": sweep.adopted},
        lines=tuple(
            f"{found}{several(plan.hits, 'HIT')} of {plan.name}, {format_dollars(plan.cents)}, all out; {COMPLETED}"
            for plan in interrupted
        ),
        warnings=sweep.warnings,
        next=f"{after_posting(environment)}; the same command again asks what is open since",
    )


def recognised(sweep: Sweep) -> str:
    """How the line begins that says why nothing is left to post."""
    if not sweep.adopted:
        return "nothing to do: "
    return f"recognised {several(sweep.adopted, 'HIT')} that had reached the server; "


def limit_used_up(campaign: Campaign, out: Sequence[StoredPlan], asked: str) -> str:
    """Why a command with a limit posts no more."""
    names = ", ".join(stored.name for stored in out)
    if campaign.pilot is not None:
        of = f"{sum(stored.hits for stored in out):,} HITs of pilot {names} are out, and --pilot {campaign.pilot:,}"
    else:
        of = f"{sum(stored.asked for stored in out):,} {asked} of {names} are out, and --limit {campaign.limit:,}"
    return f"{of} counts them until the last of these HITs is closed; run `mitl harvest` first, or raise it"


def dry(
    campaign: Campaign,
    plan: Plan,
    quote: Quote,
    largest: int,
    folder: DryRunFolder,
    warnings: tuple[str, ...],
) -> StageResult:
    """What would be posted."""
    return StageResult(
        counts={
            "environment": campaign.environment.value,
            "hits": plan.n_hits,
            "pairs": plan.n_pairs,
            **money_counts(quote),
            "requests": folder.n_requests,
            "largest_question_bytes": largest,
        },
        paths={"dry_run": str(folder.path)},
        warnings=warnings,
        lines=(
            f"dry run: {several(plan.n_hits, 'HIT')} rendered and checked, the largest question has {largest:,} of "
            f"65,535 bytes; {folder.n_requests:,} requests and their pages are in {folder.path}; "
            "no HIT was planned or posted",
        ),
    )


def posted_result(
    campaign: Campaign,
    plan: Plan,
    quote: Quote,
    *,
    posted: int,
    adopted: int,
    warnings: tuple[str, ...],
    balance: int,
    committed: int,
    batch: str | None,
    terms: Terms,
) -> StageResult:
    """What was posted."""
    pilot = campaign.pilot is not None and batch is not None
    following = after_posting(campaign.environment)
    if pilot:
        following += ", and mitl publish again, which prices the rest by the pilot's times"
    as_batch = f" as {'pilot' if pilot else 'batch'} {batch}" if batch else ""
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
            **money_counts(quote),
            "reward_cents": terms.reward_cents if batch else None,
            "estimate_s": terms.estimate.seconds if batch else None,
            "pilot": pilot,
            "committed_cents": committed,
            "balance_cents": balance,
        },
        warnings=warnings,
        lines=(f"posted {posted:,} / {several(plan.n_hits, 'HIT')}{as_batch}", *completed_lines(plan)),
        next=following,
    )


def completed_lines(plan: Planned) -> tuple[str, ...]:
    """What to know where an interrupted run's plan was completed alone."""
    return (COMPLETED,) if plan.leftover else ()


def money_counts(quote: Quote) -> dict[str, object]:
    """The bill under the keys of ``--json``."""
    return {
        "assignments": quote.submissions,
        "rewards_cents": quote.rewards_cents,
        "fees_cents": quote.fees_cents,
        "total_cents": quote.total_cents,
    }


def after_posting(environment: Environment) -> str:
    """What comes next once HITs are out."""
    people = "mitl serve for people"
    if environment is Environment.SANDBOX:
        people += ", or mitl simulate"
    return f"{people}; then mitl harvest"
