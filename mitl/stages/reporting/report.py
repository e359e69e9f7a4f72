"""The report: collect what a project knows, render one HTML file."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from mitl.analysis.answer_tables import answer_counts, rationale_counts
from mitl.analysis.report.inputs import FunnelCounts, ReportInput
from mitl.analysis.report.render import render_report
from mitl.core.packed import unpack_pairs
from mitl.core.whole_files import one_clear_line, whole_file
from mitl.crowd.environment import choose_environment
from mitl.crowd.truth import has_known_truth, truth_source
from mitl.db.engine import can_write
from mitl.db.session import open_database, reading
from mitl.db.store import columns, releases
from mitl.db.store import hits as hit_store
from mitl.positives.merging import Merged
from mitl.positives.origins import ProposalRun
from mitl.positives.pair_answers import majority_answers
from mitl.records import Decision, Direction, Environment, StageResult, several
from mitl.settings import Settings
from mitl.stages.analysing.for_report import analysis_for_report
from mitl.stages.analysing.funnel import (
    annotator_proposals,
    funnel_counts,
    merged_pairs,
    multiplicities,
    proposal_places,
)
from mitl.stages.analysing.pair_facts import PairFacts
from mitl.stages.analysing.snapshot import Snapshot, snapshot
from mitl.stages.releasing.origins import proposal_runs
from mitl.stages.reporting.crowd import batch_rows, crowd_stats, money_stats
from mitl.stages.reporting.disputes import disputes
from mitl.stages.reporting.examples import examples
from mitl.stages.reporting.files import report_file
from mitl.stages.reporting.headline import headline
from mitl.stages.reporting.preference import preference
from mitl.stages.reporting.provenance import provenance
from mitl.stages.reporting.reliability import reliability
from mitl.stages.reporting.scores import evaluation
from mitl.stages.reporting.truth_figures import packed_truth, truth_stats
from mitl.stages.reviewing.evidence import Crowd, crowd
from mitl.stages.reviewing.habits import habits

_REPORT_SALT = "<the report page>"


@dataclass(frozen=True, slots=True)
class Known:
    """All that the database knows for a report."""

    snapshot: Snapshot
    people: Crowd
    judgements: pd.DataFrame
    """The same judgements as the snapshot's, for what counts them all."""
    runs: tuple[ProposalRun, ...]
    salt: bytes
    """Secret of the workers' pseudonyms."""
    file: Path
    """Where the report lies unless another file is named."""
    has_other_work: bool
    """Whether the project has posted to the other environment too."""


def report(
    settings: Settings, out: Path | None = None, environment: Environment | None = None
) -> StageResult:
    """Write the report of one environment; the same data give the same bytes.

    Args:
        out: the file; None takes the environment's own, see :func:`mitl.stages.reporting.files.report_file`.
    """
    with _no_sweeps():
        known = collect(settings, environment)
        data = report_input(settings, known)
    file = out or known.file
    content = render_report(data).encode("utf-8")
    changed = _write(file, content)
    return StageResult(
        status="done" if changed else "nothing_to_do",
        counts={"environment": data.environment.value, "bytes": len(content), **headline(data)},
        paths={"report": str(file)},
        lines=(
            f"report of {data.environment.value}: {file} ({len(content) / 1e6:.1f} MB)"
            if changed
            else f"nothing to do: {file} holds exactly this report already",
        ),
        next="" if data.judgements else "mitl status, which says what comes before there is more to report",
    )


@contextmanager
def _no_sweeps() -> Iterator[None]:
    """Leave the garbage collector out of it: it would walk a million records, all in use, again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _write(file: Path, content: bytes) -> bool:
    """Put the file in place whole; returns whether it was another one before."""
    if file.exists() and file.read_bytes() == content:
        return False
    with one_clear_line(file, "nothing else was to be done"), whole_file(file) as sink:
        sink.write(content)
    return True


def collect(settings: Settings, environment: Environment | None = None) -> Known:
    """Read the database once."""
    # It writes no more than the pseudonyms' secret, and that once.
    with open_database(settings.db_url, read_only=not can_write(settings.db_url)) as session:
        chosen = choose_environment(session, environment)
        with reading(session):
            found = snapshot(session, settings, chosen)
            people = crowd(session, chosen, habits(session, chosen, settings.gold_rule))
            names = {Direction.I2T: found.image_ids, Direction.T2I: found.caption_ids}
            runs = proposal_runs(session, found.dataset, names, settings.seed)
            judgements = columns.judgement_columns(session, chosen)
            has_other_work = any(other is not chosen for other in hit_store.environments(session))
            file = report_file(session, settings.project, chosen)
        salt = releases.salt(session, _REPORT_SALT)
        session.commit()
    return Known(found, people, judgements, runs, salt, file, has_other_work)


def report_input(settings: Settings, source: Known) -> ReportInput:
    """All that the report shows."""
    known, people, salt = source.snapshot, source.people, source.salt
    state = people.golds
    rules = known.merge_rules
    merged: Merged | None = None
    if known.judgements or known.ratings:
        merged = merged_pairs(known, source.judgements, rules, state.withdrawn)
    has_truth = has_known_truth(settings) and bool(known.proposals)
    true = packed_truth(settings, known) if has_truth else None
    facts = PairFacts(
        known, majority_answers(source.judgements), truth_source(settings, "scenes") if has_truth else None
    )
    records = [row.record for row in known.judgements]
    scores = evaluation(settings, [row.name for row in known.annotators])
    funnel = funnel_counts(known, facts.answers)
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
        annotators=annotator_proposals(known, facts.answers),
        funnel=funnel,
        places=proposal_places(known),
        answers=answer_counts(records, known.proposals),
        rationale=rationale_counts(records, known.proposals),
        crowd=crowd_stats(known, source.judgements, people, salt)
        if known.submissions or known.hits
        else None,
        money=money_stats(settings, known) if known.batches else None,
        batches=batch_rows(known),
        truth=None if true is None else truth_stats(settings, known, merged, state, true, facts.answers),
        evaluation=scores,
        multiplicity=() if merged is None else multiplicities(known, merged, facts.answers),
        reliability=reliability(source.judgements, rules, state.withdrawn, true),
        examples=() if merged is None else examples(known, merged, facts),
        disputes=disputes(
            facts,
            [row.name for row in known.annotators],
            true=None if true is None else set(unpack_pairs(true)),
            cxc_threshold=rules.cxc_threshold,
        ),
        machines=analysis_for_report(settings, known),
        preference=preference(settings, known),
        provenance=provenance(settings, known, source.runs, evaluated=bool(scores)),
        notes=_notes(known, funnel, has_other_work=source.has_other_work),
    )


def _notes(known: Snapshot, funnel: FunnelCounts, *, has_other_work: bool) -> tuple[str, ...]:
    notes = []
    undecided = sum(row.decision in (Decision.NONE, Decision.QUEUED) for row in known.submissions)
    if undecided:
        waits = "waits" if undecided == 1 else "wait"
        notes.append(
            f"{several(undecided, 'submission')} {waits} for a person; their answers count nowhere yet."
        )
    if not known.submissions and not known.judgements:
        notes.append(
            f"Nobody has judged anything on {known.environment.value} yet, so most of this page is empty; "
            "`mitl status` says what comes next."
        )
    open_pairs = (funnel.distinct or 0) - (funnel.usable or 0)
    if known.submissions and open_pairs:
        notes.append(
            f"{several(open_pairs, 'candidate pair')} of {funnel.distinct:,} "
            f"{'has' if open_pairs == 1 else 'have'} no usable answer yet: positives among them are counted nowhere."
        )
    if known.environment is Environment.SANDBOX and known.submissions:
        notes.append("These answers were given in the sandbox, with practice money.")
    if has_other_work and known.releases:
        notes.append(
            "The project has work in the other environment too: the latest release and the scores on it may come of "
            "that; the release's manifest names its environment."
        )
    return tuple(notes)
