"""The report: collect what a project knows, render one HTML file."""

from __future__ import annotations

import gc
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeVar

import numpy as np
from sqlalchemy.orm import Session

from mitl.analysis.records import MachineAnalysis
from mitl.analysis.report.inputs import AnalysisSection, EvaluationScore, FunnelCounts, ReportInput
from mitl.analysis.report.render import render_report
from mitl.core.arrays import contains, distinct
from mitl.core.statistics import ranked_alike
from mitl.core.whole_files import put_file, refuse_within
from mitl.crowd.context import Context
from mitl.db.session import open_database
from mitl.db.store import hits as hit_store
from mitl.db.store import releases
from mitl.errors import MitlError, StoreError, UsageError
from mitl.metrics.table import USUAL
from mitl.positives.release_input import ProposalRun
from mitl.progress import Advance, Progress, no_progress
from mitl.records import UNDECIDED, Direction, Environment, StageResult, several
from mitl.records.forms import message_of_form, result_of_form
from mitl.records.results import EnvironmentCounts, printed_by
from mitl.settings import Settings
from mitl.stages.analysing.analyse import ANALYSES
from mitl.stages.analysing.answers import ANSWERS, RATIONALE
from mitl.stages.analysing.bias import BIAS
from mitl.stages.analysing.completeness import COMPLETENESS
from mitl.stages.analysing.correlations import CORRELATIONS
from mitl.stages.analysing.multiplicity import MULTIPLICITY
from mitl.stages.analysing.rankings import DIVERSITY, LABEL_ORDER
from mitl.stages.analysing.snapshot import ProjectSnapshot, read_project
from mitl.stages.analysing.table import Analysis, AnalysisInput, AnalysisOptions
from mitl.stages.evaluating.figures import kept_scores
from mitl.stages.planning.plan import plan_section
from mitl.stages.releasing.origins import proposal_runs
from mitl.stages.reporting.certified import audit_section
from mitl.stages.reporting.gallery import disputes, examples, found_pairs
from mitl.stages.reporting.provenance import provenance
from mitl.stages.reporting.sections import (
    batch_rows,
    crowd_stats,
    money_stats,
    preference,
    rounds_section,
    training_section,
)
from mitl.stages.reporting.truth import (
    annotator_proposals,
    funnel_counts,
    packed_truth,
    proposal_places,
    reliability,
    truth_stats,
)
from mitl.stages.reviewing.evidence import CrowdConduct, crowd, habits

T = TypeVar("T")

SECTIONS: tuple[Callable[[Context, ProjectSnapshot], AnalysisSection | None], ...] = (
    rounds_section,
    training_section,
    plan_section,
    audit_section,
)
"""Those that no analysis makes, in the page's order; each gives None where the project holds nothing of it."""

_OF_THE_PAGE = (ANSWERS, RATIONALE, MULTIPLICITY, COMPLETENESS, CORRELATIONS, DIVERSITY, BIAS, LABEL_ORDER)
"""The analyses that the page's own sections show."""

REPORT_FILE = "report.html"
_REPORT_SALT = "<the report page>"


class Headline(TypedDict, total=False):
    """The numbers that matter; those of the crowd and the truth only where they are known."""

    pairs: Annotated[int | None, "candidate pairs"]
    judgements: Annotated[int | None, "stored answers on pairs, controls included"]
    positives: Annotated[int | None, "candidate pairs that people called a match"]
    positives_beyond_originals: Annotated[int | None, "those that the original annotation lacks"]
    alpha: Annotated[
        float | None,
        "Krippendorff's alpha of the usable answers, ordinal; null where it cannot be estimated",
    ]
    alpha_low: Annotated[float | None, "lower end of its 95 % bootstrap interval"]
    alpha_high: Annotated[float | None, "upper end"]
    recall_before: Annotated[float | None, "original annotation against the known truth"]
    precision_before: Annotated[float | None, "the same"]
    recall_after: Annotated[float | None, "release against the known truth"]
    precision_after: Annotated[float | None, "the same"]
    recall_of_asked: Annotated[
        float | None,
        "of the true matches among the pairs that people were asked about, those that they found",
    ]
    recall_hit_rule_alone: Annotated[
        float | None, "recall by each page's own controls, without the workers' gold records"
    ]
    precision_hit_rule_alone: Annotated[float | None, "precision by that rule"]


class _File(EnvironmentCounts):
    bytes: Annotated[int, "size of the file"]


class MethodsNumbers(TypedDict, total=False):
    """What `mitl report --methods` counts, in place of the report's numbers."""

    figures: Annotated[dict[str, Any], "`--methods`: the numbers that the section states, by name"]
    cited: Annotated[list[str], "`--methods`: keys of the references"]
    methods: Annotated[str, "`--methods -`: the section as Markdown"]
    bibliography: Annotated[str, "`--methods -`: the references as BibTeX"]


class _Written(_File, Headline):
    """Of the HTML file."""


@printed_by("report")
class ReportCounts(_File, Headline, MethodsNumbers):
    """What `mitl report` counts."""


class MethodsPaths(TypedDict, total=False):
    """Where `mitl report --methods` wrote."""

    methods: Annotated[str, "the section, with `--methods FILE`"]
    bibliography: Annotated[str, "its references, the same"]


@printed_by("report", key="paths")
class ReportPaths(MethodsPaths):
    """Where `mitl report` wrote."""

    report: Annotated[str, "the HTML file; not with `--methods`"]


@dataclass(frozen=True, slots=True)
class ReportSource:
    """All that the database knows for a report."""

    project: ProjectSnapshot
    people: CrowdConduct
    runs: tuple[ProposalRun, ...]
    salt: bytes
    """Secret of the workers' pseudonyms."""
    file: Path
    """Where the report lies unless another file is named."""
    sections: tuple[AnalysisSection, ...] = ()
    """That are made of the database itself: see ``SECTIONS``."""
    warnings: tuple[str, ...] = ()


def report(
    settings: Settings,
    out: Path | None = None,
    environment: Environment | None = None,
    *,
    ratings: Path | None = None,
    progress: Progress = no_progress,
) -> StageResult:
    """Write the report of one environment; the same data give the same bytes.

    Args:
        out: the file; None takes the environment's own, see :func:`report_file`.
        ratings: a folder of ratings in CxC's layout, shown beside the project's own.

    Raises:
        DatasetError: that folder cannot be read.
        UsageError: the file is named as one of another format.
        ReleaseError: it lies in a release.
    """
    if out is not None and out.suffix.lower() not in ("", ".html", ".htm"):
        raise UsageError(f"--out is {str(out)!r}, but the report is HTML; give a file that ends in .html")
    refuse_within(out)
    analyses = sum(analysis.section is not None for analysis in ANALYSES.values()) + len(_OF_THE_PAGE)
    # Reading, what is made of it, rendering.
    with _no_sweeps(), progress("report", 1 + len(SECTIONS) + analyses + 1) as advance:
        source = collect(settings, environment, advance)
        data = report_input(source, AnalysisOptions(ratings=ratings), advance)
        content = render_report(data).encode("utf-8")
        advance(1)
    file = out or source.file
    changed = put_file(file, content)
    counts: _Written = {
        "environment": data.environment.value,
        "bytes": len(content),
        **headline(data),
    }
    paths: ReportPaths = {"report": str(file)}
    return StageResult(
        status="done" if changed else "nothing_to_do",
        counts=counts,
        paths=paths,
        warnings=source.warnings,
        lines=(
            f"report of {data.environment.value}: {file} ({len(content) / 1000:,.0f} kB)"
            if changed
            else f"nothing to do: {file} holds exactly this report already",
        ),
        next="" if data.judgements else "mitl status, which names the step that brings more to report",
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


def _silent(units: int) -> None:
    """Nobody looks."""


def collect(
    settings: Settings, environment: Environment | None = None, advance: Advance = _silent
) -> ReportSource:
    """Read the database once."""
    with open_database(settings.db_url, read_only=True) as session:
        project = read_project(session, settings, environment)
        chosen = project.environment
        people = crowd(session, chosen, habits(session, chosen, settings.gold_rule))
        names = {Direction.I2T: project.image_ids, Direction.T2I: project.caption_ids}
        runs = proposal_runs(session, project.dataset, names, settings.seed)
        file = report_file(session, settings.project, chosen)
        context = Context(session, settings, chosen)
        advance(1)
        parts = []
        for section in SECTIONS:
            parts.append(section(context, project))
            advance(1)
        sections = tuple(part for part in parts if part is not None)
        salt = releases.kept_salt(session, _REPORT_SALT)
    warnings: tuple[str, ...] = ()
    if salt is None:
        salt, warnings = _new_salt(settings)
    return ReportSource(project, people, runs, salt, file, sections, warnings)


def _new_salt(settings: Settings) -> tuple[bytes, tuple[str, ...]]:
    """The pseudonyms' secret of all later reports too; of this one alone, with a warning, where it cannot be kept."""
    try:
        with open_database(settings.db_url) as session:
            salt = releases.salt(session, _REPORT_SALT)
            session.commit()
    except StoreError as error:
        return secrets.token_bytes(32), (
            f"the next report will give workers other names, for the secret of this one's could not be kept: {error}",
        )
    return salt, ()


def report_file(session: Session, project: Path, environment: Environment) -> Path:
    """The default file of an environment's report.

    The environment that a project posted to first has ``report.html``, the other one ``report-live.html`` or
    ``report-sandbox.html``: which is which never changes, so neither report is written over the other.
    """
    batches = [
        batch for present in hit_store.environments(session) for batch in hit_store.batches(session, present)
    ]
    first = min(batches, key=lambda batch: batch.id, default=None)
    if first is None or first.environment is environment:
        return project / REPORT_FILE
    return project / f"report-{environment.value}.html"


def report_input(
    source: ReportSource, options: AnalysisOptions | None = None, advance: Advance = _silent
) -> ReportInput:
    """All that the report shows."""
    project = source.project
    of = AnalysisInput.of(project, options)
    merged = project.merged if project.ratings or not project.judgements.empty else None
    true = packed_truth(project) if project.has_truth and not project.proposals.empty else None
    scores = evaluation(project.settings, [row.name for row in project.annotators], project.scored_in)
    funnel = funnel_counts(project)
    return ReportInput(
        project=project.settings.project.name,
        dataset=project.dataset.name,
        environment=project.environment,
        images=len(project.images),
        captions=len(project.captions),
        image_queries=len(project.queries[Direction.I2T]),
        caption_queries=len(project.queries[Direction.T2I]),
        release=project.releases[-1].name if project.releases else None,
        judgements=len(project.judgements) or None,
        annotators=annotator_proposals(project),
        funnel=funnel,
        places=proposal_places(project),
        answers=_made(ANSWERS, of, advance) or (),
        rationale=_made(RATIONALE, of, advance) or (),
        questions=project.questions,
        crowd=crowd_stats(project, source.people, source.salt)
        if project.submissions or project.hits
        else None,
        money=money_stats(project) if project.batches else None,
        batches=batch_rows(project),
        truth=None if true is None else truth_stats(project, merged, true),
        evaluation=scores,
        multiplicity=_made(MULTIPLICITY, of, advance) or (),
        completeness={
            incidence.direction: incidence.bound for incidence in _made(COMPLETENESS, of, advance) or ()
        },
        reliability=reliability(project, true),
        found=found_pairs(project),
        examples=() if merged is None else examples(project),
        disputes=disputes(project, true),
        machines=machine_analysis(of, advance),
        analyses=tuple(_of_form(part, project) for part in (*_sections(of, advance), *source.sections)),
        preference=preference(project),
        provenance=provenance(project, source.runs, evaluated=bool(scores)),
        form=project.dataset.form,
        notes=_notes(project, funnel),
    )


def machine_analysis(of: AnalysisInput, advance: Advance = _silent) -> MachineAnalysis:
    """Diversity, bias, correlations and label order; no network is loaded.

    What cannot be analysed is empty, and ``left_out`` says why.
    """
    left_out: dict[str, str] = {}
    correlations = _made(CORRELATIONS, of, advance, left_out)
    return MachineAnalysis(
        diversity=_made(DIVERSITY, of, advance, left_out) or (),
        bias=_made(BIAS, of, advance, left_out) or (),
        correlations=None if correlations is None else correlations[0],
        label_order=_made(LABEL_ORDER, of, advance, left_out) or (),
        left_out=left_out,
    )


def _made(
    analysis: Analysis[T], of: AnalysisInput, advance: Advance, left_out: dict[str, str] | None = None
) -> T | None:
    """What an analysis computes; None where the project holds too little for it, and why in ``left_out``."""
    try:
        return analysis.compute(of)
    except MitlError as error:
        if left_out is not None:
            left_out[analysis.name.replace("-", "_")] = message_of_form(
                str(error), lambda: of.project.dataset.form
            )
        return None
    finally:
        advance(1)


def _sections(of: AnalysisInput, advance: Advance) -> Iterator[AnalysisSection]:
    """The sections of the analyses that bring one of their own."""
    for analysis in ANALYSES.values():
        if analysis.section is None:
            continue
        try:
            shown = analysis.show(analysis.compute(of), of)
        except MitlError as error:
            if of.options.names_file_of(analysis.name):
                raise
            if not analysis.optional:
                yield AnalysisSection(analysis.section, why_not=str(error))
        else:
            yield AnalysisSection(analysis.section, shown.tables, shown.lines, shown.drawings, shown.captions)
        advance(1)


def _of_form(section: AnalysisSection, project: ProjectSnapshot) -> AnalysisSection:
    """With the directions as the data set calls them."""
    said = StageResult(tables=section.tables, lines=section.lines, warnings=(section.why_not,))
    said = result_of_form(said, lambda: project.dataset.form)
    return replace(section, tables=said.tables, lines=said.lines, why_not=said.warnings[0])


def evaluation(
    settings: Settings, order: Sequence[str] = (), environment: Environment | None = None
) -> tuple[EvaluationScore, ...]:
    """The latest scores of `mitl evaluate` by set of positives, annotator, direction and metric; empty without any.

    Before and after come first, then the other sets as the file has them. Means of the same numbers tie.

    Args:
        order: the annotators' order; others follow as the file has them.
        environment: see ``kept_scores``.
    """
    try:
        kept = kept_scores(settings.runs, environment)
    except FileNotFoundError:
        return ()
    sets = list(dict.fromkeys(("original", "release", *(score.positives for score in kept))))
    names = list(dict.fromkeys([*order, *(score.annotator for score in kept)]))
    ways = list(Direction)

    def place(score: EvaluationScore) -> tuple[int, ...]:
        of_set, of_name = sets.index(score.positives), names.index(score.annotator)
        return of_set, of_name, ways.index(score.direction), USUAL.index(score.metric)

    usual = [score for score in kept if score.metric in USUAL]
    values = ranked_alike(np.array([score.value for score in usual])).tolist()
    return tuple(sorted(map(lambda score, value: replace(score, value=value), usual, values), key=place))


def headline(data: ReportInput) -> Headline:
    """The numbers that matter: pairs, judgements, positives, and recall and precision where truth is known."""
    numbers: Headline = {
        "pairs": data.funnel.distinct,
        "judgements": data.judgements,
        "positives": data.funnel.positive,
        "positives_beyond_originals": data.funnel.beyond_originals,
    }
    shared = None if data.crowd is None else data.crowd.agreement
    if shared is not None:
        alpha = shared.alpha
        numbers |= {"alpha": alpha.alpha, "alpha_low": alpha.low, "alpha_high": alpha.high}
    if data.truth is not None:
        numbers["recall_before"] = data.truth.original.together.recall
        numbers["precision_before"] = data.truth.original.together.precision
        if data.truth.release is not None:
            numbers["recall_after"] = data.truth.release.together.recall
            numbers["precision_after"] = data.truth.release.together.precision
        if data.truth.asked is not None:
            numbers["recall_of_asked"] = data.truth.asked.recall
        if data.truth.hit_rule is not None:
            numbers["precision_hit_rule_alone"] = data.truth.hit_rule.together.precision
            numbers["recall_hit_rule_alone"] = data.truth.hit_rule.together.recall
    return numbers


def _notes(project: ProjectSnapshot, funnel: FunnelCounts) -> tuple[str, ...]:
    notes = []
    undecided = sum(row.decision in UNDECIDED for row in project.submissions)
    if undecided:
        waits = "waits" if undecided == 1 else "wait"
        notes.append(
            f"{several(undecided, 'submission')} {waits} for a person; their answers count nowhere yet."
        )
    if not project.submissions and project.judgements.empty:
        notes.append(
            f"Nobody has judged anything on {project.environment.value} yet, so most of this page is empty; "
            "`mitl status` says what comes next."
        )
    standing = distinct(project.standing["pair"].to_numpy())
    left_out = project.exclusions.name(standing) & ~contains(project.answered, standing)
    open_pairs = (funnel.distinct or 0) - (funnel.usable or 0) - int(left_out.sum())
    # Below zero where answers came from a file and nothing was proposed.
    if project.submissions and open_pairs > 0:
        notes.append(
            f"{several(open_pairs, 'candidate pair')} of {funnel.distinct:,} "
            f"{'has' if open_pairs == 1 else 'have'} no usable answer yet: positives among them are counted nowhere."
        )
    if project.environment is Environment.SANDBOX and project.submissions:
        notes.append("These answers were given in the sandbox, with practice money.")
    if any(other is not project.environment for other in project.posted_to):
        notes.append(
            "The project has work in the other environment too, which this page leaves out, as it does scores on a "
            "release of that."
        )
    return tuple(notes)
