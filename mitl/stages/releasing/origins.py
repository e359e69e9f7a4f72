"""What a project knows of a release beside its pairs, and how the answers came to be."""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from sqlalchemy.orm import Session

from mitl.crowd.context import Context
from mitl.crowd.paying import floor_cents, paid_work
from mitl.db.store import answers as answer_store
from mitl.db.store import hits as hit_store
from mitl.db.store import imports, journal
from mitl.db.store import items as item_store
from mitl.db.store import ledger as ledger_store
from mitl.db.store import proposals as proposal_store
from mitl.db.store.answers import StoredAssignment, capped_at
from mitl.db.store.hits import BatchRow, StoredHit
from mitl.db.store.items import DatasetRow
from mitl.db.store.ledger import SettledWork
from mitl.db.store.proposals import RunRow
from mitl.judgements.gold_records import GoldState, keeps_page
from mitl.judgements.wages import figures_of, worker_pay
from mitl.positives.exclusions import Exclusions
from mitl.positives.release_input import (
    BatchPay,
    ControlKind,
    Controls,
    CrowdSummary,
    ExclusionList,
    Origins,
    PastWork,
    Pay,
    ProposalRun,
    QueryDraw,
)
from mitl.proposals.sampling import sample
from mitl.records import UNDECIDED, BatchKind, Decision, Direction, Environment, JudgementSource, PairRole
from mitl.records.frames import ROLES, is_asked, is_gold
from mitl.settings import Settings
from mitl.stages.releasing.additions import Learning

_STREAMS = {Direction.I2T: "image queries", Direction.T2I: "caption queries"}


@dataclass(frozen=True, slots=True)
class ReleaseFacts:
    """One environment of a project without its millions of judgements, by surrogate ids."""

    dataset: DatasetRow
    image_ids: Mapping[int, str]
    caption_ids: Mapping[int, str]
    references: Mapping[str, str]
    """Composed query → the image that its text changes, by external id."""
    exclusions: Exclusions
    runs: tuple[RunRow, ...]
    batches: tuple[BatchRow, ...]
    """Those of the kind that was asked for."""
    wordings: Mapping[str, list[str]]
    """Batch → the hashes of the wordings that its HITs were posted with."""
    queries: Mapping[Direction, tuple[int, ...]]
    submissions: tuple[StoredAssignment, ...]
    hits: tuple[StoredHit, ...]
    settled: tuple[SettledWork, ...]
    """The submissions on posted pages with what was paid for them."""

    @property
    def private_ids(self) -> dict[str, Collection[str]]:
        """Kind → ids that no release may hold."""
        return {
            "worker": {row.worker for row in self.submissions},
            "assignment": {row.mturk_assignment_id for row in self.submissions},
            "HIT": {hit.mturk_hit_id for hit in self.hits if hit.mturk_hit_id is not None},
        }

    @property
    def undecided(self) -> int:
        """Submissions that wait for a decision."""
        names = {batch.name for batch in self.batches}
        return sum(row.batch in names and row.decision in UNDECIDED for row in self.submissions)


def release_facts(context: Context, kind: str = BatchKind.PAIRS) -> ReleaseFacts:
    """Read it all.

    Args:
        kind: what the batches ask; work of other kinds of the same crowd is no part of a release.
    """
    session, environment = context.session, context.environment
    dataset = item_store.dataset(session)
    image_ids, caption_ids = item_store.names(session, dataset.id)
    changed = item_store.references(session, dataset.id)
    queries = proposal_store.queries(session)
    batches = [batch for batch in hit_store.batches(session, environment) if batch.kind == kind]
    names = {batch.name for batch in batches}
    return ReleaseFacts(
        dataset=dataset,
        image_ids=image_ids,
        caption_ids=caption_ids,
        references={caption_ids[query]: image_ids[image] for query, image in changed.items()},
        exclusions=item_store.excluded(session),
        runs=tuple(proposal_store.runs(session)),
        batches=tuple(batches),
        wordings=journal.wordings(session),
        queries={direction: tuple(items) for direction, items in queries.items()},
        submissions=tuple(answer_store.assignments(session, environment)),
        hits=tuple(hit_store.hits(session, environment)),
        settled=tuple(
            work for work in ledger_store.settled_work(session, environment) if work.batch in names
        ),
    )


def origins(
    context: Context, known: ReleaseFacts, golds: GoldState, answers: pd.DataFrame, learnt: Learning
) -> Origins:
    """How the answers (``JUDGEMENTS``) came to be."""
    session, settings = context.session, context.settings
    posted = {batch.name for batch in known.batches if batch.source is JudgementSource.CROWD}
    names = {Direction.I2T: known.image_ids, Direction.T2I: known.caption_ids}
    lists = Counter((row.source, row.kind) for row in item_store.exclusions(session))
    return Origins(
        kinds={row.name: row.kind for row in proposal_store.annotators(session)},
        runs=proposal_runs(session, known.dataset, names, settings.seed),
        rounds=learnt.rounds,
        trained=learnt.trained,
        controls=_controls(settings, golds, answers),
        crowd=crowd(
            context,
            [row for row in known.submissions if row.batch in posted],
            answers.loc[is_asked(answers), "worker"],
            golds,
        ),
        batches=batch_pay(known),
        pay=pay(settings, context.environment, known.settled),
        past_work=_past_work(session, known),
        rated_in=item_store.rating_files(session),
        exclusions=tuple(ExclusionList(*entry, n) for entry, n in sorted(lists.items())),
    )


def proposal_runs(
    session: Session, dataset: DatasetRow, names: Mapping[Direction, Mapping[int, str]], seed: int
) -> tuple[ProposalRun, ...]:
    """The runs, oldest first, without the rankings of past work.

    Args:
        names: direction → surrogate → external id of the side that searches.
    """
    configs = [run.config for run in proposal_store.runs(session)]
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
    """A run keeps the hash of its queries; drawing them again tells whether they were drawn."""
    count = int(asked["count"])
    drawn = None
    if count < len(names):
        listed = "\n".join(names[id_] for id_ in sample(list(names), count, seed, _STREAMS[direction]))
        drawn = seed if hashlib.sha256(listed.encode()).hexdigest() == asked["sha256"] else None
    return QueryDraw(direction, count, len(names), drawn)


def _controls(settings: Settings, state: GoldState, answers: pd.DataFrame) -> Controls | None:
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
    context: Context,
    rows: Sequence[StoredAssignment],
    answers: pd.Series[str],
    golds: GoldState | None = None,
) -> CrowdSummary | None:
    """Who worked on posted pages, from their submissions; None where nobody did.

    Args:
        answers: who gave each answer that a release shows.
        golds: the workers' records, where the pages asked for pairs.
    """
    if not rows:
        return None
    fates = Counter(
        "used"
        if keeps_page(row.decision, golds.record(row.worker) if golds else None, excluded=row.excluded)
        else row.decision
        for row in rows
    )
    rejected, undecided = fates[Decision.REJECT], fates[Decision.NONE] + fates[Decision.QUEUED]
    workers = {row.worker for row in rows}
    work = answers.value_counts(sort=False)
    theirs = work[[name in workers for name in work.index]]
    return CrowdSummary(
        workers=len(workers),
        answering=int((theirs > 0).sum()),
        busiest_share=float(theirs.max() / theirs.sum()) if theirs.sum() else None,
        excluded=len({row.worker for row in rows if row.excluded}),
        capped=len(workers & capped_at(context.session, context.environment).keys()),
        max_hits_per_worker=context.settings.max_hits_per_worker,
        submissions=len(rows),
        used=fates["used"],
        paid_unused=len(rows) - fates["used"] - rejected - undecided,
        rejected=rejected,
        undecided=undecided,
    )


def batch_pay(known: ReleaseFacts) -> tuple[BatchPay, ...]:
    """What was posted, batch by batch."""
    posted = Counter(hit.batch_id for hit in known.hits if hit.mturk_hit_id is not None)
    return tuple(
        BatchPay(
            batch.template,
            batch.direction,
            posted[batch.id],
            batch.assignments,
            batch.reward_cents,
            batch.pilot,
        )
        for batch in known.batches
        if batch.source is JudgementSource.CROWD and posted[batch.id]
    )


def pay(settings: Settings, environment: Environment, settled: Sequence[SettledWork]) -> Pay | None:
    """What was paid for posted pages; None where nothing was."""
    work = paid_work(settled, environment)
    if not work:
        return None
    floor = floor_cents(settings, environment)
    earned = [worker for worker in worker_pay(work) if worker.hourly_cents is not None]
    wages = figures_of(work, floor)
    return Pay(
        rewards_cents=sum(submission.reward_cents for submission in work),
        bonuses_cents=sum(submission.bonus_cents for submission in work),
        fees_cents=sum(submission.fee_cents for submission in work),
        bonus_workers=len({submission.worker for submission in work if submission.bonus_cents}),
        floor_cents=floor,
        timed_workers=len(earned),
        median_hourly_cents=int(statistics.median(worker.hourly_cents or 0 for worker in earned))
        if earned
        else None,
        workers_under=sum(worker.shortfall_cents(floor) > 0 for worker in earned),
        timed_pages=wages.measured,
        pages=wages.submissions,
        median_page_s=None if wages.median_ms is None else wages.median_ms / 1000,
        pages_under=wages.n_under,
    )


def _past_work(session: Session, facts: ReleaseFacts) -> tuple[PastWork, ...]:
    """What was read from files, by the batch that it was put into."""
    past = [batch for batch in facts.batches if batch.source is JudgementSource.IMPORT]
    files = imports.read_into(session, [batch.id for batch in past])
    workers: dict[str, list[str]] = defaultdict(list)
    for row in facts.submissions:
        workers[row.batch].append(row.worker)
    return tuple(
        PastWork(
            batch=batch.name,
            files=tuple((file.kind, file.rows) for file in files.get(batch.id, ())),
            submissions=len(workers[batch.name]),
            workers=len(set(workers[batch.name])),
        )
        for batch in past
    )
