"""What publishing a study came to, line by line as a bill, and for ``--json``."""

from __future__ import annotations

from mitl.crowd.endpoint import Endpoint
from mitl.records import ComparisonRole, Environment, StageResult, several
from mitl.settings import Settings
from mitl.stages.hits.reconciling import Sweep
from mitl.stages.preferring.job import Job
from mitl.stages.preferring.planning import StudyPlan
from mitl.stages.preferring.study import Study
from mitl.stages.publishing.bill_text import again_lines, price_lines
from mitl.stages.publishing.dry_run import DryRunFolder
from mitl.stages.publishing.purse import Purse
from mitl.stages.publishing.result import (
    after_posting,
    completed,
    completed_lines,
    limit_used_up,
    money_counts,
    recognised,
)


def bill_text(
    settings: Settings, study: Study, job: Job, endpoint: Endpoint, balance: int, purse: Purse
) -> list[str]:
    """What would be posted, what it costs and pays, and what is left then."""
    return [
        f"{study.environment} · preferences {study.direction} · template {study.template} · seed {settings.seed} · "
        f"{endpoint.url}",
        *_pages(job.plan),
        *price_lines(job.quote, study.environment, balance, purse, charges_fee=endpoint.charges_fee),
    ]


def nothing_to_do(study: Study, plan: StudyPlan, sweep: Sweep) -> StageResult:
    """Nothing is left to post now."""
    why = "every comparison of these systems on these queries is asked"
    if plan.interrupted:
        return completed(study.environment, plan.interrupted, sweep)
    if plan.n_held_back and plan.out:
        why = limit_used_up(study.campaign, plan.out, "comparisons")
    return StageResult(
        status="done" if sweep.adopted else "nothing_to_do",
        counts={
            "environment": study.environment.value,
            "hits_posted": 0,
            "hits_adopted": sweep.adopted,
        },
        warnings=sweep.warnings,
        lines=(recognised(sweep) + why,),
        next=_after(study.environment),
    )


def dry(study: Study, job: Job, largest: int, folder: DryRunFolder, warnings: tuple[str, ...]) -> StageResult:
    """What would be posted."""
    return StageResult(
        counts={
            "environment": study.environment.value,
            "systems": [one.name for one in job.plan.systems],
            "hits": job.plan.n_hits,
            "comparisons": job.plan.n_comparisons,
            "alike": job.plan.n_alike,
            **money_counts(job.quote),
            "requests": folder.n_requests,
            "largest_question_bytes": largest,
        },
        paths={"dry_run": str(folder.path)},
        warnings=warnings,
        lines=(
            f"dry run: {_hits(job.plan.n_hits)} rendered and checked, the largest question has {largest:,} of 65,535 "
            f"bytes; {folder.n_requests:,} requests and their pages are in {folder.path}; no HIT was planned or posted",
        ),
    )


def posted_result(
    study: Study,
    job: Job,
    *,
    posted: int,
    adopted: int,
    warnings: tuple[str, ...],
    balance: int,
    committed: int,
    batch: str | None,
) -> StageResult:
    """What was posted."""
    as_batch = f" as batch {batch}" if batch else ""
    return StageResult(
        counts={
            "batch": batch,
            "environment": study.environment.value,
            "systems": [one.name for one in job.plan.systems],
            "comparisons": job.plan.n_comparisons,
            "alike": job.plan.n_alike,
            "hits_posted": posted,
            "hits_adopted": adopted,
            "hits_again": len(job.plan.again),
            **money_counts(job.quote),
            "reward_cents": job.terms.reward_cents if batch else None,
            "estimate_s": job.terms.estimate.seconds if batch else None,
            "committed_cents": committed,
            "balance_cents": balance,
        },
        warnings=warnings,
        lines=(
            f"posted {posted:,} / {several(job.plan.n_hits, 'HIT')}{as_batch}",
            *completed_lines(job.plan),
        ),
        next=_after(study.environment),
    )


def _pages(plan: StudyPlan) -> list[str]:
    sizes = {len(page) for page in plan.pages}
    controls = max(sum(item.role is ComparisonRole.CONTROL for item in page) for page in plan.pages)
    least, most = min(sizes), max(sizes)
    size = f"{most if least == most else f'{least} to {most}'} a HIT, {controls} of them controls"
    lines = [
        f"  {'systems':<14} {', '.join(one.name for one in plan.systems)}",
        f"  {'comparisons':<14} {plan.n_comparisons:>13,}  {'HITs':<14} {plan.n_hits:>13,} ({size})",
    ]
    if plan.n_alike:
        lines.append(f"  {plan.n_alike:,} are left out, since both systems give the same list")
    return lines + again_lines(len(plan.again), len(plan.leftover))


def _hits(count: int) -> str:
    return f"{count:,} HIT{'' if count == 1 else 's'}"


def _after(environment: Environment) -> str:
    return f"{after_posting(environment)}, and mitl prefer scores"
