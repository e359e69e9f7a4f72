"""The report: collect what a project knows, render one HTML file."""

from __future__ import annotations

import json
import os
import statistics
from collections import defaultdict
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from mitl.analysis.inputs import (
    AgreementStats,
    AnnotatorProposals,
    BatchRow,
    CrowdStats,
    EvaluationScore,
    FunnelCounts,
    GoldStats,
    MoneyStats,
    Multiplicity,
    Provenance,
    ReportInput,
    WorkerRow,
    WorkerStanding,
)
from mitl.analysis.report import render_report
from mitl.analysis.tables import answer_counts, rationale_counts
from mitl.db.session import open_database, reading
from mitl.db.store import releases
from mitl.hits.templates import load_template
from mitl.judgements.aggregation import answers_by_pair
from mitl.judgements.gold_records import gold_passed
from mitl.positives.merging import Merged, MergeRules, positives_by_query
from mitl.positives.pseudonyms import pseudonym
from mitl.records import (
    Decision,
    Direction,
    Environment,
    GoldControl,
    HitState,
    Label,
    Pair,
    PairRole,
    StageResult,
)
from mitl.settings import WAGE_FLOOR_CENTS_PER_HOUR, Settings
from mitl.stages.build_dataset import active_seconds, release_input
from mitl.stages.environment import choose_environment
from mitl.stages.evaluate import SCORES_FILE
from mitl.stages.golds import GoldState, gold_state
from mitl.stages.report_examples import examples
from mitl.stages.report_truth import truth_stats
from mitl.stages.snapshot import Snapshot, snapshot
from mitl.stages.truth import has_known_truth, truth_source
from mitl.stages.workers import standing, worker_summaries

_REPORT_SALT = "<the report page>"
_STANDINGS = {
    "good": WorkerStanding.GOOD,
    "poor": WorkerStanding.POOR,
    "unproven": WorkerStanding.UNPROVEN,
    "excluded": WorkerStanding.EXCLUDED,
}


def report(settings: Settings, out: Path, environment: Environment | None = None) -> StageResult:
    """Write the report of one environment; the same data give the same bytes."""
    with open_database(settings.db_url) as session:
        chosen = choose_environment(session, environment)
        with reading(session):
            known = snapshot(session, settings, chosen)
        salt = releases.salt(session, _REPORT_SALT)
        session.commit()
    data = report_input(settings, known, salt)
    html = render_report(data)
    content = html.encode("utf-8")
    changed = not out.exists() or out.read_bytes() != content
    if changed:
        out.parent.mkdir(parents=True, exist_ok=True)
        part = out.with_name(f".{out.name}.{os.getpid()}.part")
        part.write_bytes(content)
        part.replace(out)
    return StageResult(
        status="done" if changed else "nothing_to_do",
        counts={"environment": chosen.value, "bytes": len(content), **headline(data)},
        paths={"report": str(out)},
        lines=(
            f"report: {out} ({len(content) / 1e6:.1f} MB)"
            if changed
            else f"nothing to do: {out} holds exactly this report already",
        ),
    )


def headline(data: ReportInput) -> dict[str, object]:
    """The numbers that matter: pairs, judgements, positives, and recall and precision where truth is known."""
    numbers: dict[str, object] = {
        "pairs": data.funnel.distinct,
        "judgements": data.judgements,
        "positives": data.funnel.positive,
        "positives_beyond_originals": data.funnel.beyond_originals,
    }
    if data.truth is not None:
        numbers["recall_before"] = data.truth.original.together.recall
        numbers["precision_before"] = data.truth.original.together.precision
        if data.truth.release is not None:
            numbers["recall_after"] = data.truth.release.together.recall
            numbers["precision_after"] = data.truth.release.together.precision
        if data.truth.hit_rule is not None:
            numbers["precision_hit_rule_alone"] = data.truth.hit_rule.together.precision
            numbers["recall_hit_rule_alone"] = data.truth.hit_rule.together.recall
    return numbers


def report_input(settings: Settings, known: Snapshot, salt: bytes) -> ReportInput:
    """All that the report shows."""
    state = gold_state(known.judgements)
    merged = None
    if known.judgements or known.ratings:
        merged = release_input(settings, known, _rules(known), "report", salt).merged
    truth = has_known_truth(settings) and bool(known.proposals)
    records = [row.record for row in known.judgements]
    return ReportInput(
        project=settings.project.name,
        dataset=known.dataset.name,
        environment=known.environment,
        images=len(known.images),
        captions=len(known.captions),
        image_queries=len(known.queries[Direction.I2T]),
        caption_queries=len(known.queries[Direction.T2I]),
        release=known.releases[-1].name if known.releases else None,
        judgements=len(records) or None,
        annotators=_annotators(known),
        funnel=_funnel(known),
        answers=answer_counts(records, known.proposals),
        rationale=rationale_counts(records, known.proposals),
        crowd=_crowd(known, state, salt) if known.submissions or known.hits else None,
        money=_money(settings, known) if known.batches else None,
        batches=_batches(known),
        truth=truth_stats(settings, known, merged, state) if truth else None,
        evaluation=_evaluation(settings),
        multiplicity=() if merged is None else _multiplicity(known, merged),
        examples=()
        if merged is None
        else examples(known, merged, truth_source(settings, "scenes") if truth else None),
        provenance=_provenance(settings, known),
        notes=_notes(known),
    )


def _rules(known: Snapshot) -> MergeRules:
    """How the latest release was merged; the paper's recipe where there is none."""
    return MergeRules(**json.loads(known.releases[-1].rules)) if known.releases else MergeRules()


def _annotators(known: Snapshot) -> tuple[AnnotatorProposals, ...]:
    answers = answers_by_pair([row.record for row in known.judgements])
    places: dict[str, int] = defaultdict(int)
    pairs: dict[str, set[Pair]] = {row.name: set() for row in known.annotators}
    for proposal in known.proposals:
        places[proposal.annotator] += 1
        pairs[proposal.annotator].add(proposal.pair)
    found = known.found_by
    earlier: set[Pair] = set()
    rows = []
    for row in known.annotators:
        own = pairs[row.name]
        rows.append(
            AnnotatorProposals(
                name=row.name,
                kind=row.kind.value,
                proposed=places[row.name],
                distinct=len(own),
                new=len(own - earlier),
                overlap=sum(len(found[pair]) > 1 for pair in own),
                usable=sum(pair in answers for pair in own) if answers else None,
                positive=sum(answers[pair].label.is_positive for pair in own if pair in answers)
                if answers
                else None,
            )
        )
        earlier |= own
    return tuple(rows)


def _funnel(known: Snapshot) -> FunnelCounts:
    n_images, n_captions = len(known.images), len(known.captions)
    image_queries, caption_queries = (len(known.queries[direction]) for direction in Direction)
    candidates = {proposal.pair for proposal in known.proposals}
    out = {hit.id for hit in known.hits if hit.state in (HitState.POSTED, HitState.CLOSED)}
    asked = {
        item.pair for hit_id in out for item in known.hit_items[hit_id] if item.role is PairRole.CANDIDATE
    }
    records = [row.record for row in known.judgements if not row.record.role.is_gold]
    answers = answers_by_pair(records)
    positive = {pair for pair, answer in answers.items() if answer.label.is_positive}
    ranked = _ranked_places(known)
    return FunnelCounts(
        # A pair of an image query and a caption query belongs to both directions, and counts once.
        possible=image_queries * n_captions + caption_queries * n_images - image_queries * caption_queries,
        ranked=ranked if known.runs else None,
        proposed=len(known.proposals) if known.runs else None,
        distinct=len(candidates) if known.runs else None,
        asked=len(asked & candidates) if out else None,
        judged=len({record.pair for record in records if record.label is not None}) if records else None,
        usable=len(answers) if records else None,
        positive=len(positive) if records else None,
        beyond_originals=len(positive - set(known.originals)) if records else None,
    )


def _ranked_places(known: Snapshot) -> int:
    """Places in the kept rankings: per annotator and direction those of the run that ranked most."""
    galleries = {Direction.I2T: len(known.captions), Direction.T2I: len(known.images)}
    places: dict[tuple[str, Direction], int] = defaultdict(int)
    for run in known.runs:
        config = json.loads(run.config)
        for entry in config["annotators"]:
            for direction, gallery in galleries.items():
                count = config["queries"][direction.value]["count"] * min(config["depth"], gallery)
                key = (entry["name"], direction)
                places[key] = max(places[key], count)
    return sum(places.values())


def _crowd(known: Snapshot, state: GoldState, salt: bytes) -> CrowdStats:
    count = {d: sum(row.decision is d for row in known.submissions) for d in Decision}
    return CrowdStats(
        hits_posted=sum(hit.state in (HitState.POSTED, HitState.CLOSED) for hit in known.hits),
        submitted=len(known.submissions),
        approved=count[Decision.PASS] + count[Decision.APPROVE],
        queued=count[Decision.QUEUED],
        rejected=count[Decision.REJECT],
        dropped=count[Decision.DROP] + count[Decision.APPROVE_EXCLUDE],
        gold=_gold(known, state),
        agreement=_agreement(known),
        workers=tuple(
            WorkerRow(
                pseudonym=pseudonym(row.worker, salt),
                hits=row.hits,
                golds_seen=row.record.golds,
                golds_right=row.record.passes,
                standing=_STANDINGS[standing(row.record, excluded=row.excluded)],
                median_active_s=row.median_active_s,
                earned_cents=row.earned_cents,
            )
            for row in worker_summaries(known)
        ),
    )


def _gold(known: Snapshot, state: GoldState) -> GoldStats | None:
    seen = dict.fromkeys(PairRole, 0)
    right = dict.fromkeys(PairRole, 0)
    for row in known.judgements:
        record = row.record
        if not record.role.is_gold or GoldControl(record.pair, record.role) in state.withdrawn:
            continue
        passed = gold_passed(record.role, record.label)
        if passed is not None:
            seen[record.role] += 1
            right[record.role] += passed
    if not any(seen.values()):
        return None
    return GoldStats(
        positive_seen=seen[PairRole.GOLD_POSITIVE],
        positive_right=right[PairRole.GOLD_POSITIVE],
        negative_seen=seen[PairRole.GOLD_NEGATIVE],
        negative_right=right[PairRole.GOLD_NEGATIVE],
        withdrawn=len(state.withdrawn),
    )


def _agreement(known: Snapshot) -> AgreementStats | None:
    """Pairs with usable answers of two different workers; the first two by arrival count."""
    by_pair: dict[Pair, dict[str, Label]] = defaultdict(dict)
    for row in known.judgements:
        record = row.record
        if record.usable and record.label is not None and not record.role.is_gold:
            by_pair[record.pair].setdefault(record.worker, record.label)
    twice = [list(answers.values())[:2] for answers in by_pair.values() if len(answers) > 1]
    if not twice:
        return None
    same_side = sum(a.is_positive == b.is_positive for a, b in twice)
    return AgreementStats(len(twice), sum(a is b for a, b in twice), same_side)


def _money(settings: Settings, known: Snapshot) -> MoneyStats:
    floor = settings.wage_floor_cents
    if floor is None:
        floor = WAGE_FLOOR_CENTS_PER_HOUR[known.environment]
    return MoneyStats(
        rewards_cents=known.spent.get("reward", 0),
        fees_cents=known.spent.get("fee", 0),
        bonuses_cents=known.spent.get("bonus", 0),
        held_cents=known.work.held_cents,
        wage_floor_cents=floor or None,
    )


def _batches(known: Snapshot) -> tuple[BatchRow, ...]:
    seconds = active_seconds(known)
    times: dict[str, list[float]] = defaultdict(list)
    for row in known.submissions:
        if row.id in seconds:
            times[row.batch].append(seconds[row.id])
    return tuple(
        BatchRow(
            name=batch.name,
            template=batch.template,
            direction=None if batch.direction == "both" else Direction(batch.direction),
            hits=sum(hit.batch_id == batch.id for hit in known.hits),
            reward_cents=batch.reward_cents,
            median_active_s=statistics.median(times[batch.name]) if times[batch.name] else None,
        )
        for batch in known.batches
    )


def _evaluation(settings: Settings) -> tuple[EvaluationScore, ...]:
    try:
        scores = json.loads((settings.runs / SCORES_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    wanted = ("R@1", "R@5", "R-Precision", "mAP@R")
    return tuple(
        EvaluationScore(annotator, positives, Direction(direction), metric, values[metric])
        for positives, by_annotator in scores.items()
        for annotator, by_direction in by_annotator.items()
        for direction, values in by_direction.items()
        for metric in wanted
    )


def _multiplicity(known: Snapshot, merged: Merged) -> tuple[Multiplicity, ...]:
    after = positives_by_query(merged, known.queries)
    before: Mapping[Direction, dict[int, int]] = {direction: defaultdict(int) for direction in Direction}
    for pair in known.originals:
        before[Direction.I2T][pair.image_id] += 1
        before[Direction.T2I][pair.caption_id] += 1
    return tuple(
        Multiplicity(
            direction=direction,
            before=tuple(before[direction][query] for query in known.queries[direction]),
            after=tuple(len(after[direction].get(query, ())) for query in known.queries[direction]),
        )
        for direction in Direction
        if known.queries[direction]
    )


def _provenance(settings: Settings, known: Snapshot) -> Provenance:
    shown = [("data set", known.dataset.name)]
    shown += [(f"run {run.hash}", run.config) for run in known.runs]
    shown += [
        (
            f"batch {batch.name}",
            f"template {batch.template}, {batch.direction}, {batch.assignments} per HIT, seed {batch.seed}",
        )
        for batch in known.batches
    ]
    hashes = [(row.name, row.fingerprint) for row in known.annotators]
    hashes += [
        (f"template {name}", load_template(name, settings.wordings).content_hash)
        for name in sorted({batch.template for batch in known.batches})
    ]
    hashes += [(f"release {row.name}", row.manifest_sha256) for row in known.releases]
    return Provenance(
        settings=tuple(shown),
        seeds=(("project", str(settings.seed)),),
        versions=(("mitl", version("mitl")),),
        hashes=tuple(hashes),
    )


def _notes(known: Snapshot) -> tuple[str, ...]:
    notes = []
    undecided = sum(row.decision in (Decision.NONE, Decision.QUEUED) for row in known.submissions)
    if undecided:
        notes.append(f"{undecided} submissions wait for a person; their answers count nowhere yet.")
    if known.environment is Environment.SANDBOX and known.submissions:
        notes.append("These answers were given in the sandbox, with practice money.")
    return tuple(notes)
