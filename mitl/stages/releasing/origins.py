"""How a release's answers came to be: collected from what a project has stored."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
from sqlalchemy.orm import Session

from mitl.crowd.wages import floor_cents, paid_work
from mitl.db.store import caps, imports
from mitl.db.store import items as item_store
from mitl.db.store import proposals as proposal_store
from mitl.db.store.answers import AssignmentRow
from mitl.db.store.hits import BatchRow, HitRow
from mitl.db.store.items import DatasetRow
from mitl.db.store.ledger import SettledWork
from mitl.judgements.gold_records import GoldState
from mitl.judgements.wages import HOUR_MS, worker_pay
from mitl.positives.origins import (
    BatchPay,
    ControlKind,
    Controls,
    Crowd,
    ExclusionList,
    Machine,
    Origins,
    PastWork,
    Pay,
    ProposalRun,
    QueryDraw,
)
from mitl.proposals.sampling import sample
from mitl.records import Decision, Direction, Environment, JudgementSource, PairRole
from mitl.records.frames import ROLES, is_gold
from mitl.settings import Settings

_STREAMS = {Direction.I2T: "image queries", Direction.T2I: "caption queries"}


def machines(session: Session) -> tuple[Machine, ...]:
    """The machine annotators that proposed anything, by name."""
    found = (Machine(row.name, row.kind) for row in proposal_store.annotators(session))
    return tuple(sorted(found, key=lambda machine: machine.name))


def proposal_runs(
    session: Session, dataset: DatasetRow, names: Mapping[Direction, Mapping[int, str]], seed: int
) -> tuple[ProposalRun, ...]:
    """The runs, oldest first, without the rankings of past work.

    Args:
        names: direction → surrogate → external id of the side that searches.
    """
    configs = (json.loads(run.config) for run in proposal_store.runs(session))
    return tuple(
        ProposalRun(
            annotators=tuple(entry["name"] for entry in config["annotators"]),
            top_k=config["top_k"],
            depth=config["depth"],
            draws=tuple(
                _draw(direction, config["queries"][direction.value], names[direction], seed)
                for direction in Direction
                if config["queries"][direction.value]["count"]
            ),
        )
        for config in configs
        if config.get("annotators") and config["dataset"] == dataset.name
    )


def _draw(direction: Direction, asked: Mapping[str, Any], names: Mapping[int, str], seed: int) -> QueryDraw:
    """A run keeps the hash of its queries; drawing them anew tells whether they were drawn."""
    count = int(asked["count"])
    drawn = None
    if count < len(names):
        listed = "\n".join(names[id_] for id_ in sample(list(names), count, seed, _STREAMS[direction]))
        drawn = seed if hashlib.sha256(listed.encode()).hexdigest() == asked["sha256"] else None
    return QueryDraw(direction, count, len(names), drawn)


def controls(settings: Settings, state: GoldState, answers: pd.DataFrame) -> Controls | None:
    """The gold controls that people answered; None where there were none."""
    if not is_gold(answers).any():
        return None

    def kind(role: PairRole) -> ControlKind:
        record = state.by_role[role]
        met = answers.loc[answers["role"] == ROLES.index(role), "pair"]
        return ControlKind(controls=met.nunique(), seen=record.golds, passed=record.passes)

    return Controls(
        rule=settings.gold_rule.text,
        positive=kind(PairRole.GOLD_POSITIVE),
        negative=kind(PairRole.GOLD_NEGATIVE),
        withdrawn=len(state.withdrawn),
    )


def crowd(
    session: Session,
    settings: Settings,
    environment: Environment,
    submissions: Iterable[AssignmentRow],
    answers: pd.DataFrame,
) -> Crowd | None:
    """Who worked on posted pages, from their submissions; None where nobody did."""
    rows = list(submissions)
    if not rows:
        return None
    decided = Counter(row.decision for row in rows)
    workers = {row.worker for row in rows}
    return Crowd(
        workers=len(workers),
        busiest_share=_busiest_share(answers, workers),
        excluded=len({row.worker for row in rows if row.excluded}),
        capped=len(workers & caps.capped_at(session, environment).keys()),
        max_hits_per_worker=settings.max_hits_per_worker,
        submissions=len(rows),
        used=sum(count for decision, count in decided.items() if decision.keeps_answers),
        paid_unused=decided[Decision.DROP] + decided[Decision.APPROVE_EXCLUDE],
        rejected=decided[Decision.REJECT],
        undecided=decided[Decision.NONE] + decided[Decision.QUEUED],
    )


def _busiest_share(answers: pd.DataFrame, workers: set[str]) -> float | None:
    work = answers.loc[~is_gold(answers), "worker"].value_counts(sort=False)
    theirs = work[[name in workers for name in work.index]]
    return float(theirs.max() / theirs.sum()) if theirs.sum() else None


def batch_pay(batches: Iterable[BatchRow], hits: Iterable[HitRow]) -> tuple[BatchPay, ...]:
    """What was posted, batch by batch."""
    posted = Counter(hit.batch_id for hit in hits if hit.mturk_hit_id is not None)
    return tuple(
        BatchPay(
            batch.template,
            batch.direction,
            posted[batch.id],
            batch.assignments,
            batch.reward_cents,
            batch.pilot,
        )
        for batch in batches
        if batch.source is JudgementSource.CROWD and posted[batch.id]
    )


def pay(settings: Settings, environment: Environment, settled: Sequence[SettledWork]) -> Pay | None:
    """What was paid for posted pages; None where nothing was."""
    work = paid_work(settled, environment)
    if not work:
        return None
    floor = floor_cents(settings, environment)
    earned = [one for one in worker_pay(work) if one.hourly_cents is not None]
    timed = [(one.reward_cents, one.time.ms) for one in work if one.time.ms is not None]
    return Pay(
        rewards_cents=sum(one.reward_cents for one in work),
        bonuses_cents=sum(one.bonus_cents for one in work),
        fees_cents=sum(one.fee_cents for one in work),
        bonus_workers=len({one.worker for one in work if one.bonus_cents}),
        floor_cents=floor,
        timed_workers=len(earned),
        median_hourly_cents=int(statistics.median(one.hourly_cents or 0 for one in earned))
        if earned
        else None,
        workers_under=sum(one.shortfall_cents(floor) > 0 for one in earned),
        timed_pages=len(timed),
        pages=len(work),
        median_page_s=statistics.median(ms for _, ms in timed) / 1000 if timed else None,
        pages_under=sum(reward * HOUR_MS < floor * ms for reward, ms in timed),
    )


def past_work(
    session: Session, batches: Iterable[BatchRow], submissions: Iterable[AssignmentRow]
) -> tuple[PastWork, ...]:
    """What was read from files, by the batch that it was put into."""
    files = imports.imports(session).values()
    rows = list(submissions)
    return tuple(
        PastWork(
            batch=batch.name,
            files=tuple((file.kind, file.rows) for file in files if file.batch == batch.name),
            submissions=len(workers := [row.worker for row in rows if row.batch == batch.name]),
            workers=len(set(workers)),
        )
        for batch in batches
        if batch.source is JudgementSource.IMPORT
    )


def exclusion_lists(session: Session) -> tuple[ExclusionList, ...]:
    """How many entries each source has of each kind."""
    counts = Counter((row.source, row.kind) for row in item_store.exclusions(session))
    return tuple(
        ExclusionList(source, kind, entries)
        for (source, kind), entries in sorted(
            counts.items(), key=lambda entry: (entry[0][0], entry[0][1].value)
        )
    )


def origins(
    session: Session,
    settings: Settings,
    environment: Environment,
    *,
    dataset: DatasetRow,
    names: Mapping[Direction, Mapping[int, str]],
    batches: Sequence[BatchRow],
    hits: Sequence[HitRow],
    submissions: Sequence[AssignmentRow],
    settled: Sequence[SettledWork],
    golds: GoldState,
    answers: pd.DataFrame,
) -> Origins:
    """All of it for one environment."""
    posted = {batch.name for batch in batches if batch.source is JudgementSource.CROWD}
    return Origins(
        machines=machines(session),
        runs=proposal_runs(session, dataset, names, settings.seed),
        controls=controls(settings, golds, answers),
        crowd=crowd(session, settings, environment, [s for s in submissions if s.batch in posted], answers),
        batches=batch_pay(batches, hits),
        pay=pay(settings, environment, settled),
        past_work=past_work(session, batches, submissions),
        exclusions=exclusion_lists(session),
    )
