"""The workers: how much they did, how they fared on the controls, how long it took."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass

from mitl.analysis.tables import hourly_wage_cents
from mitl.db.session import open_database
from mitl.hits.pricing import format_dollars
from mitl.judgements.gold_records import GoldRecord
from mitl.records import Environment, StageResult, Table
from mitl.settings import Settings
from mitl.stages.build_dataset import active_seconds
from mitl.stages.environment import choose_environment
from mitl.stages.golds import gold_state
from mitl.stages.snapshot import Snapshot, snapshot


@dataclass(frozen=True, slots=True)
class WorkerSummary:
    """One worker over all submissions."""

    worker: str
    hits: int
    record: GoldRecord
    excluded: bool
    median_active_s: float | None
    earned_cents: int
    hourly_cents: int | None


def worker_summaries(known: Snapshot) -> list[WorkerSummary]:
    """Every worker with a submission, busiest first."""
    state = gold_state(known.judgements)
    seconds = active_seconds(known)
    rewards = {batch.name: batch.reward_cents for batch in known.batches}
    submissions = defaultdict(list)
    for row in known.submissions:
        submissions[row.worker].append(row)
    found = []
    for worker, rows in submissions.items():
        times = [seconds[row.id] for row in rows if row.id in seconds]
        median = statistics.median(times) if times else None
        paid = [rewards[row.batch] for row in rows if row.status == "Approved"]
        reward = round(statistics.mean(rewards[row.batch] for row in rows))
        found.append(
            WorkerSummary(
                worker=worker,
                hits=len(rows),
                record=state.record(worker),
                excluded=any(row.excluded for row in rows),
                median_active_s=median,
                earned_cents=sum(paid),
                hourly_cents=hourly_wage_cents(reward, median),
            )
        )
    return sorted(found, key=lambda row: (-row.hits, row.worker))


def standing(record: GoldRecord, *, excluded: bool) -> str:
    """What a gold record allows to be said: good, poor, unproven or excluded."""
    if excluded:
        return "excluded"
    return "good" if record.is_good else "poor" if record.is_bad else "unproven"


def workers(settings: Settings, environment: Environment | None = None) -> StageResult:
    """The worker table of an environment; raw worker ids are shown here and never leave the project."""
    with open_database(settings.db_url, read_only=True) as session:
        chosen = choose_environment(session, environment)
        known = snapshot(session, settings, chosen)
    found = worker_summaries(known)
    rows = tuple(
        (
            row.worker,
            row.hits,
            f"{row.record.passes} of {row.record.golds}",
            standing(row.record, excluded=row.excluded),
            None if row.median_active_s is None else round(row.median_active_s),
            format_dollars(row.earned_cents),
            "–" if row.hourly_cents is None else format_dollars(row.hourly_cents),
        )
        for row in found
    )
    columns = ("worker", "HITs", "golds passed", "record", "median s", "earned", "an hour")
    return StageResult(
        status="done" if found else "nothing_to_do",
        counts={"environment": chosen.value, "workers": len(found)},
        tables=(Table(f"workers on {chosen}: {len(found):,}", columns, rows),) if rows else (),
        lines=() if rows else ("nothing to show: nobody has submitted work yet",),
    )
