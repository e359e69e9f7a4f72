"""What publishing a study came to, line by line as a bill, and for ``--json``."""

from __future__ import annotations

from mitl.crowd.endpoint import Endpoint
from mitl.hits.pricing import format_dollars
from mitl.records import ComparisonRole, Environment, StageResult
from mitl.settings import Settings
from mitl.stages.hits.reconciling import Sweep
from mitl.stages.preferring.job import Job
from mitl.stages.preferring.planning import StudyPlan
from mitl.stages.preferring.study import Study
from mitl.stages.publishing.bill import Quote
from mitl.stages.publishing.bill_text import part_lines
from mitl.stages.publishing.dry_run import DryRunFolder
from mitl.stages.publishing.purse import Purse


def bill_text(
    settings: Settings, study: Study, job: Job, endpoint: Endpoint, balance: int, purse: Purse
) -> list[str]:
    """What would be posted, what it costs and pays, and what is left then."""
    lines = [
        f"{study.environment} · preferences {study.direction} · template {study.template} · seed {settings.seed} · "
        f"{endpoint.url}",
        *_pages(job.plan),
    ]
    for part in job.quote.parts:
        if len(job.quote.parts) > 1:
            lines.append(f"  {part.name}: {_hits(part.bill.hits)}")
        lines += part_lines(part, charges_fee=endpoint.charges_fee)
    total = job.quote.total_cents
    after = f"{format_dollars(balance)} → {format_dollars(balance - total)}"
    if study.environment is Environment.SANDBOX:
        after = f"{format_dollars(balance)} of practice money, always"
    lines.append(f"  {'total':<14} {format_dollars(total):>13}  {'balance':<14} {after}")
    left = purse.left()
    if purse.ceiling_cents is not None and left is not None:
        lines.append(
            f"  {'ceiling':<14} {format_dollars(purse.ceiling_cents):>13}  {'left then':<14} "
            f"{format_dollars(left - job.quote.new_cents)}"
        )
    return lines


def nothing_to_do(study: Study, sweep: Sweep) -> StageResult:
    """Nothing is left to post now."""
    adopted = f"{sweep.adopted} HITs that had reached the server were recognised; "
    return StageResult(
        status="done" if sweep.adopted else "nothing_to_do",
        counts={
            "environment": study.environment.value,
            "hits_posted": 0,
            "hits_adopted": sweep.adopted,
        },
        warnings=sweep.warnings,
        lines=(
            f"{adopted if sweep.adopted else 'nothing to do: '}every comparison of these systems on these queries is "
            "asked",
        ),
        next=_after_posting(study.environment),
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
            **_money(job.quote),
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
            **_money(job.quote),
            "reward_cents": job.terms.reward_cents if batch else None,
            "estimate_s": job.terms.estimate.seconds if batch else None,
            "committed_cents": committed,
            "balance_cents": balance,
        },
        warnings=warnings,
        lines=(f"posted {posted:,} / {job.plan.n_hits:,} HITs{as_batch}",),
        next=_after_posting(study.environment),
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
    if plan.again:
        lines.append(f"  {len(plan.again):,} of the HITs ask again what could not be used")
    if plan.leftover:
        lines.append(f"  {len(plan.leftover):,} of the HITs were planned by an earlier run and not posted")
    return lines


def _hits(count: int) -> str:
    return f"{count:,} HIT{'' if count == 1 else 's'}"


def _money(quote: Quote) -> dict[str, object]:
    return {
        "assignments": quote.submissions,
        "rewards_cents": quote.rewards_cents,
        "fees_cents": quote.fees_cents,
        "total_cents": quote.total_cents,
    }


def _after_posting(environment: Environment) -> str:
    people = "mitl serve for people"
    if environment is Environment.SANDBOX:
        people += ", or mitl simulate"
    return f"{people}; then mitl harvest, and mitl prefer scores"
