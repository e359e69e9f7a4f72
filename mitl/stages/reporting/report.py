"""The report: collect what a project knows, render one HTML file."""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from pathlib import Path

from mitl.analysis.report.inputs import (
    EvaluationScore,
    Provenance,
    ReportInput,
)
from mitl.analysis.report.render import render_report
from mitl.analysis.report.tables import answer_counts, rationale_counts
from mitl.db.session import open_database, reading
from mitl.db.store import releases
from mitl.hits.templates import load_template
from mitl.positives.merging import MergeRules
from mitl.records import (
    Decision,
    Direction,
    Environment,
    StageResult,
)
from mitl.settings import Settings
from mitl.stages.environment import choose_environment
from mitl.stages.releasing.evaluate import SCORES_FILE
from mitl.stages.reporting.crowd import batch_rows, crowd_stats, money_stats
from mitl.stages.reporting.examples import examples
from mitl.stages.reporting.funnel import annotator_proposals, funnel_counts, merged_records, multiplicities
from mitl.stages.reporting.snapshot import Snapshot, snapshot
from mitl.stages.reporting.truth import has_known_truth, truth_source
from mitl.stages.reporting.truth_figures import truth_stats
from mitl.stages.reviewing.evidence import Crowd, crowd
from mitl.stages.reviewing.habits import habits

_REPORT_SALT = "<the report page>"


def report(settings: Settings, out: Path, environment: Environment | None = None) -> StageResult:
    """Write the report of one environment; the same data give the same bytes."""
    with open_database(settings.db_url) as session:
        chosen = choose_environment(session, environment)
        with reading(session):
            known = snapshot(session, settings, chosen)
            people = crowd(session, chosen, habits(session, chosen, settings.gold_rule))
        salt = releases.salt(session, _REPORT_SALT)
        session.commit()
    data = report_input(settings, known, people, salt)
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
    shared = None if data.crowd is None else data.crowd.agreement
    if shared is not None:
        numbers |= {"alpha": shared.alpha, "alpha_low": shared.low, "alpha_high": shared.high}
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


def report_input(settings: Settings, known: Snapshot, people: Crowd, salt: bytes) -> ReportInput:
    """All that the report shows."""
    state = people.golds
    merged = None
    if known.judgements or known.ratings:
        merged = merged_records(known, _rules(known), state.withdrawn)
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
        annotators=annotator_proposals(known),
        funnel=funnel_counts(known),
        answers=answer_counts(records, known.proposals),
        rationale=rationale_counts(records, known.proposals),
        crowd=crowd_stats(known, settings.gold_rule, people, salt)
        if known.submissions or known.hits
        else None,
        money=money_stats(settings, known) if known.batches else None,
        batches=batch_rows(known),
        truth=truth_stats(settings, known, merged, state) if truth else None,
        evaluation=_evaluation(settings),
        multiplicity=() if merged is None else multiplicities(known, merged),
        examples=()
        if merged is None
        else examples(known, merged, truth_source(settings, "scenes") if truth else None),
        provenance=_provenance(settings, known),
        notes=_notes(known),
    )


def _rules(known: Snapshot) -> MergeRules:
    """How the latest release was merged; the paper's recipe where there is none."""
    return MergeRules(**json.loads(known.releases[-1].rules)) if known.releases else MergeRules()


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
