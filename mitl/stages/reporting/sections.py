"""The report's sections of the loop and its figures of the crowd.

What rounds asked and found, and how annotators learnt; submissions, controls, agreement, workers, money, preferences.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import pandas as pd

from mitl.analysis.report.inputs import (
    AnalysisSection,
    BatchSummary,
    CrowdStats,
    GoldStats,
    MoneyStats,
    Section,
    WorkerStanding,
    WorkerSummary,
)
from mitl.analysis.report.loop_plots import TrainingCurve, rounds_svg, training_svg
from mitl.campaign.kinds.rankings.scores import score_votes
from mitl.core.formats import points
from mitl.crowd.context import Context
from mitl.crowd.paying import floor_cents
from mitl.db.store import rounds as round_store
from mitl.db.store.rounds import TrainedRow
from mitl.errors import MitlError
from mitl.judgements.agreement import pair_agreement
from mitl.judgements.gold_records import GoldState
from mitl.judgements.wages import PaidWork, wage_figures, worker_pay
from mitl.positives.privacy import pseudonym
from mitl.records import (
    BatchKind,
    Decision,
    Environment,
    HitState,
    JudgementSource,
    PairRole,
    StageResult,
    Table,
)
from mitl.records.frames import counts
from mitl.stages.analysing.snapshot import ProjectSnapshot
from mitl.stages.releasing.origins import pay
from mitl.stages.reviewing.evidence import CrowdConduct, usual_seconds
from mitl.stages.rounds.figures import RoundFigures, figures_of, rounds_table

_CURVE = ["step", "loss", "map_at_r"]


def rounds_section(context: Context, project: ProjectSnapshot) -> AnalysisSection | None:
    """What each round asked, cost and found, and who had proposed it; None where no round was opened."""
    rows = round_store.rounds(context.session, context.environment)
    if not rows:
        return None
    rounds = [figures_of(context, row) for row in rows]
    shares = tuple(
        (row.name, *(points(_percent(numbers["proposed_by"].get(row.name))) for numbers in rounds))
        for row in project.annotators
        if any(row.name in numbers["proposed_by"] for numbers in rounds)
    )
    who = Table(
        "Of a round's matches, the percentage that an annotator has proposed by now, whoever did first; who ranked a "
        "pair deeper did not propose it",
        ("annotator", *(f"round {numbers['round']}" for numbers in rounds)),
        shares,
    )
    return AnalysisSection(
        Section("rounds", "Rounds", "What each round asked, cost and found", "Pairs"),
        tables=(_told(rounds_table(rounds), rounds), *([who] if shares else [])),
        lines=_rounds_lines(context.environment, rounds),
        drawings={"rounds": lambda: rounds_svg(pd.DataFrame(rounds))},
        captions={
            "rounds": "Pairs that people call a match, all rounds so far; the number is the round's. Paid are all HITs "
            "of a round, those of audits and controls among them"
        },
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _told(table: Table, rounds: Sequence[RoundFigures]) -> Table:
    """With how many learnt; who they are stands beside how they learnt."""
    at = table.columns.index("learnt")
    rows = (
        (*row[:at], len(numbers["trained"]), *row[at + 1 :])
        for row, numbers in zip(table.rows, rounds, strict=True)
    )
    return Table(
        "A match is a pair of the round that people call one; new is what the original annotation lacks. Bounds are "
        "the audit's when the round was closed, AUC is that of the probabilities before it",
        table.columns,
        tuple(rows),
    )


def _rounds_lines(environment: Environment, rounds: Sequence[RoundFigures]) -> tuple[str, ...]:
    back = [str(numbers["round"]) for numbers in rounds if numbers["state"] == "rolled_back"]
    lines = []
    if environment is Environment.SANDBOX:
        lines.append("paid is practice money of the sandbox")
    if back:
        taken = "rounds" if len(back) > 1 else "round"
        lines.append(f"{taken} {', '.join(back)} taken back: the answers and what they cost stay")
    return tuple(lines)


def training_section(context: Context, project: ProjectSnapshot) -> AnalysisSection | None:
    """How each annotator learnt, by the curve that its training kept; None where none did."""
    rows = round_store.trained(context.session, withdrawn=True)
    if not rows:
        return None
    curves: dict[str, list[TrainingCurve]] = defaultdict(list)
    gone = []
    for row in rows:
        curve = _curve(project, row)
        if curve is None:
            gone.append(row.name)
        else:
            curves[row.base].append(curve)
    lost = f"no curve of {', '.join(gone)} can be read from the project's folder trained" if gone else ""
    columns = (
        "annotator|learnt from|loss|labels|judged pairs|originals|steps|kept step|before|after|ended|state"
    )
    return AnalysisSection(
        Section("training", "Training", "How annotators learnt", "Machines"),
        tables=(
            Table(
                "mAP@R of held-out queries in percent, before the first step and with the weights that were kept",
                tuple(columns.split("|")),
                tuple(_row(context, row) for row in rows),
            ),
        ),
        lines=(lost,) if lost else (),
        drawings={"training": lambda: training_svg(curves)},
        captions={
            "training": "A dot is the look whose weights were kept, a cross where training stopped since nothing was "
            "better. Each training holds out other queries: compare a line with its own start, not with another"
        },
    )


def _curve(project: ProjectSnapshot, row: TrainedRow) -> TrainingCurve | None:
    """As its CSV has it; None where that is gone or is none."""
    try:
        curve = pd.read_csv((project.settings.project / row.file).with_suffix(".csv"))[_CURVE].astype(float)
    except (OSError, ValueError, KeyError):
        return None
    outcome = row.recipe.get("outcome", {})
    return TrainingCurve(row.name, curve, int(outcome.get("best_step", 0)), bool(outcome.get("stopped")))


def _row(context: Context, row: TrainedRow) -> tuple[object, ...]:
    taught, outcome = round_store.taught(context.session, row.name)["n"], row.recipe.get("outcome", {})
    return (
        row.name,
        row.base,
        row.recipe.get("loss"),
        row.recipe.get("labels"),
        int((taught > 0).sum()),
        int((taught == 0).sum()),
        outcome.get("steps"),
        outcome.get("best_step"),
        *(points(_percent(outcome.get(when))) for when in ("before", "after")),
        "early" if outcome.get("stopped") else "at its last step",
        "in use" if row.withdrawn_at is None else "withdrawn",
    )


def crowd_stats(project: ProjectSnapshot, people: CrowdConduct, salt: bytes) -> CrowdStats:
    """Submissions by what became of them, controls, agreement and workers under pseudonyms."""
    count = Counter(row.decision for row in project.submissions)
    times = usual_seconds(project.settled, project.environment)
    pay_of = worker_pay(project.paid)
    hourly = {paid.worker: paid.hourly_cents for paid in pay_of}
    used = sum(worker.used for worker in people.workers)
    unpaid = sum(count[decision] for decision in (Decision.REJECT, Decision.QUEUED, Decision.NONE))
    return CrowdStats(
        hits_posted=sum(hit.state in (HitState.POSTED, HitState.CLOSED) for hit in project.hits),
        submitted=len(project.submissions),
        approved=used,
        queued=count[Decision.QUEUED],
        rejected=count[Decision.REJECT],
        dropped=len(project.submissions) - used - unpaid,
        gold=_gold(people.golds),
        agreement=pair_agreement(project.judgements) if counts(project.judgements).any() else None,
        workers=tuple(
            WorkerSummary(
                pseudonym=pseudonym(worker.worker, salt),
                hits=worker.submissions,
                golds_seen=worker.record.golds,
                golds_right=worker.record.passes,
                standing=WorkerStanding(worker.standing),
                median_active_s=times.get(worker.worker),
                earned_cents=worker.earned_cents,
                hourly_cents=hourly.get(worker.worker),
            )
            for worker in sorted(people.workers, key=lambda worker: (-worker.submissions, worker.worker))
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
    pairs = {batch.name: batch.source for batch in project.batches if batch.kind == BatchKind.PAIRS}
    matches = len(project.positive)
    spent = sum(
        work.reward_cents + work.fee_cents + work.bonus_cents
        for work in project.settled
        if work.batch in pairs
    )
    return MoneyStats(
        rewards_cents=project.spent.get("reward", 0),
        fees_cents=project.spent.get("fee", 0),
        bonuses_cents=project.spent.get("bonus", 0),
        held_cents=project.work.held_cents,
        wage_floor_cents=floor or None,
        wages=tuple(wage_figures(project.paid, floor)),
        timed_workers=0 if paid is None else paid.timed_workers,
        workers_under=0 if paid is None else paid.workers_under,
        median_hourly_cents=None if paid is None else paid.median_hourly_cents,
        cents_a_positive=spent / matches
        if spent and matches and JudgementSource.IMPORT not in pairs.values()
        else None,
    )


def batch_rows(project: ProjectSnapshot) -> tuple[BatchSummary, ...]:
    """Each batch with its reward and how long its HITs took."""
    work: dict[str, list[PaidWork]] = defaultdict(list)
    for submission in project.paid:
        work[submission.batch].append(submission)
    wages = {batch: wage_figures(paid, 0)[0] for batch, paid in work.items()}
    return tuple(
        BatchSummary(
            name=batch.name,
            template=batch.template,
            direction=batch.direction,
            hits=sum(hit.batch_id == batch.id for hit in project.hits),
            reward_cents=batch.reward_cents,
            wages=wages.get(batch.name),
        )
        for batch in project.batches
    )


def preference(project: ProjectSnapshot) -> StageResult | None:
    """The scores as `mitl prefer scores` prints them; None where nobody was asked or nothing can be scored."""
    if not any(batch.kind == BatchKind.RANKINGS for batch in project.batches):
        return None
    try:
        return score_votes(project.settings, project.environment)
    except MitlError as error:
        return StageResult(lines=(str(error),))
