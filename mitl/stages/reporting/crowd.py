"""The report's figures of the crowd: submissions, controls, agreement, workers, money, preferences."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict

from mitl.analysis.report.inputs import (
    BatchSummary,
    CrowdStats,
    GoldStats,
    MoneyStats,
    PreferenceTable,
    WorkerStanding,
    WorkerSummary,
)
from mitl.campaign.kinds.rankings.scores import score_votes
from mitl.crowd.paying import floor_cents, paid_work
from mitl.errors import MitlError
from mitl.judgements.agreement import pair_agreement
from mitl.judgements.gold_records import GoldState
from mitl.judgements.wages import wage_figures, worker_pay
from mitl.positives.privacy import pseudonym
from mitl.records import (
    BatchKind,
    Decision,
    HitState,
    PairRole,
)
from mitl.records.frames import counts
from mitl.stages.analysing.snapshot import ProjectSnapshot
from mitl.stages.releasing.origins import pay
from mitl.stages.reviewing.evidence import CrowdConduct, usual_seconds


def crowd_stats(project: ProjectSnapshot, people: CrowdConduct, salt: bytes) -> CrowdStats:
    """Submissions by what became of them, controls, agreement and workers under pseudonyms."""
    count = Counter(row.decision for row in project.submissions)
    times = usual_seconds(project.settled, project.environment)
    pay_of = worker_pay(paid_work(project.settled, project.environment))
    hourly = {one.worker: one.hourly_cents for one in pay_of}
    return CrowdStats(
        hits_posted=sum(hit.state in (HitState.POSTED, HitState.CLOSED) for hit in project.hits),
        submitted=len(project.submissions),
        approved=count[Decision.PASS] + count[Decision.APPROVE],
        queued=count[Decision.QUEUED],
        rejected=count[Decision.REJECT],
        dropped=count[Decision.DROP] + count[Decision.APPROVE_EXCLUDE],
        gold=_gold(people.golds),
        agreement=pair_agreement(project.judgements) if counts(project.judgements).any() else None,
        workers=tuple(
            WorkerSummary(
                pseudonym=pseudonym(one.worker, salt),
                hits=one.submissions,
                golds_seen=one.record.golds,
                golds_right=one.record.passes,
                standing=WorkerStanding(one.standing),
                median_active_s=times.get(one.worker),
                earned_cents=one.earned_cents,
                hourly_cents=hourly.get(one.worker),
            )
            for one in sorted(people.workers, key=lambda one: (-one.submissions, one.worker))
        ),
    )


def _gold(state: GoldState) -> GoldStats | None:
    positive, negative = (state.by_role[role] for role in (PairRole.GOLD_POSITIVE, PairRole.GOLD_NEGATIVE))
    if not positive.golds and not negative.golds:
        return None
    return GoldStats(
        positive_seen=positive.golds,
        positive_right=positive.passes,
        negative_seen=negative.golds,
        negative_right=negative.passes,
        withdrawn=len(state.withdrawn),
    )


def money_stats(project: ProjectSnapshot) -> MoneyStats:
    """What was paid and what is held, and what an hour of work has paid beside the wage floor."""
    floor = floor_cents(project.settings, project.environment)
    paid = pay(project.settings, project.environment, project.settled)
    return MoneyStats(
        rewards_cents=project.spent.get("reward", 0),
        fees_cents=project.spent.get("fee", 0),
        bonuses_cents=project.spent.get("bonus", 0),
        held_cents=project.work.held_cents,
        wage_floor_cents=floor or None,
        wages=tuple(wage_figures(paid_work(project.settled, project.environment), floor)),
        timed_workers=0 if paid is None else paid.timed_workers,
        workers_under=0 if paid is None else paid.workers_under,
        median_hourly_cents=None if paid is None else paid.median_hourly_cents,
    )


def batch_rows(project: ProjectSnapshot) -> tuple[BatchSummary, ...]:
    """Each batch with its reward and how long its HITs took."""
    times: dict[str, list[float]] = defaultdict(list)
    for one in paid_work(project.settled, project.environment):
        if one.time.ms is not None:
            times[one.batch].append(one.time.ms / 1000)
    return tuple(
        BatchSummary(
            name=batch.name,
            template=batch.template,
            direction=batch.direction,
            hits=sum(hit.batch_id == batch.id for hit in project.hits),
            reward_cents=batch.reward_cents,
            median_active_s=statistics.median(times[batch.name]) if times[batch.name] else None,
        )
        for batch in project.batches
    )


def preference(project: ProjectSnapshot) -> PreferenceTable | None:
    """The scores as `mitl prefer scores` prints them; None where nobody was asked or nothing can be scored."""
    if not any(batch.kind == BatchKind.RANKINGS for batch in project.batches):
        return None
    try:
        found = score_votes(project.settings, project.environment)
    except MitlError as error:
        return PreferenceTable("", (), (), (str(error),))
    if not found.tables:
        return PreferenceTable("", (), (), found.lines)
    table = found.tables[0]
    return PreferenceTable(table.title, tuple(table.columns), tuple(table.rows), found.lines)
