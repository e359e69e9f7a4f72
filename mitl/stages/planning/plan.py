"""What to ask next: `mitl plan`, and the report's section of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypedDict

import numpy as np

from mitl.analysis.report.inputs import AnalysisSection, Section
from mitl.audits.planning import AuditPlan, plan_audit
from mitl.campaign.standing import takes_in
from mitl.core.arrays import contains
from mitl.core.whole_files import put_file
from mitl.crowd.context import Context, open_context
from mitl.db.session import reading
from mitl.db.store import audits as audit_store
from mitl.db.store import hits as hit_store
from mitl.db.store.open_work import pilot_progress
from mitl.db.store.rounds import pairs_command
from mitl.errors import AuditError, MitlError, TooFewAnswersError
from mitl.records import PAIRS_COMMAND, AuditPurpose, Environment, StageResult, several
from mitl.records.results import printed_by
from mitl.settings import Settings
from mitl.stages.analysing.snapshot import ProjectSnapshot, read_project
from mitl.stages.auditing.drawing import answer_price
from mitl.stages.auditing.pools import pool_of, strata_for_recall
from mitl.stages.planning.options import (
    Candidates,
    PlannedWays,
    PlanWish,
    candidates,
    make_plan,
    not_reachable,
)
from mitl.stages.planning.showing import (
    PlanCounts,
    about,
    audit_lines,
    budget_lines,
    counts,
    draw,
    needs_table,
    plans_table,
)

_SAME_SHARE = 0.05
"""Strata whose pairs were drawn with probabilities this close, relatively, are one sample."""


@printed_by("plan", key="paths")
class PlanPaths(TypedDict, total=False):
    """Where `mitl plan` wrote."""

    plot: Annotated[str, "the drawing, with `--plot`"]


def plan(
    settings: Settings,
    wish: PlanWish,
    environment: Environment | None = None,
    *,
    plot: Path | None = None,
    certify: float | None = None,
) -> StageResult:
    """Compare ways to go on.

    Args:
        plot: where the drawing goes, as SVG.
        certify: a recall of the whole pool whose certificate is to be priced too.

    Raises:
        AuditError: nothing is proposed or answered, or too little to plan from.
        TemplateError: there is no such wording.
    """
    with (
        open_context(settings, environment, read_only=True) as context,
        reading(context.session),
        _naming_what_asks(context),
    ):
        project = read_project(context.session, settings, context.environment)
        pool = candidates(project, random_samples(context))
        if not pool.open:
            return StageResult(
                status="nothing_to_do",
                counts=PlanCounts(
                    environment=context.environment.value,
                    candidates=len(pool.pairs),
                    answered=len(pool.answered),
                    open=0,
                ),
                lines=(f"nothing to plan: all {several(len(pool.pairs), 'candidate')} are answered",),
                next="mitl audit plan, for matches that no annotator proposed",
            )
        planned = make_plan(context, project, pool, wish)
        audit = None if certify is None else audit_cost(context, certify)
        asking = pairs_command(context.session, context.environment)
        pilot = _pilot_out(context)
        drawn = audit_store.current(context.session, context.environment, AuditPurpose.LABELS)
        has_sample = drawn is not None and audit_store.has_answers(context.session, drawn.id)
    paths: PlanPaths = {}
    if plot is not None:
        content = f'<?xml version="1.0" encoding="UTF-8"?>\n{draw(planned)}\n'.encode()
        put_file(plot, content)
        paths["plot"] = str(plot)
    return StageResult(
        counts=counts(planned, audit),
        paths=paths,
        tables=(needs_table(planned), plans_table(planned)),
        lines=(
            *about(planned),
            *_labelled(project, pool),
            *budget_lines(planned),
            *not_reachable(planned),
            *audit_lines(audit),
        ),
        next=_next(planned, pilot, has_sample=has_sample, is_labelled=bool(len(project.machine)))
        if asking == PAIRS_COMMAND
        else f"{asking} --{planned.environment}",
    )


@contextmanager
def _naming_what_asks(context: Context) -> Iterator[None]:
    """Add to what lacks answers how to get them: while a round is open, or a pilot out, ``publish`` asks no pilot."""
    try:
        yield
    except TooFewAnswersError as error:
        asking = pairs_command(context.session, context.environment)
        ask = f"ask some at random with `{PAIRS_COMMAND} --{context.environment} --pilot 10`, and run `mitl harvest`"
        if asking != PAIRS_COMMAND:
            ask = f"end the round with `{asking} --{context.environment}`, then {ask}"
        elif pilot := _pilot_out(context):
            name, command = pilot
            when = " once it is answered" if command.startswith("mitl harvest") else ""
            ask = f"pilot {name} is out: run `{command}`{when}"
        raise AuditError(f"{error}; {ask}") from error


def _pilot_out(context: Context) -> tuple[str, str] | None:
    """The name of a pilot of which HITs are out, and the command that goes on with it; None where there is none."""
    session, environment = context.session, context.environment
    for batch in hit_store.batches(session, environment):
        if batch.pilot and pilot_progress(session, batch.id)[0]:
            return batch.name, takes_in(session, environment) or "mitl status"
    return None


def audit_cost(context: Context, recall: float) -> AuditPlan | None:
    """What certifying this recall of a release of today would cost; None where it cannot be reckoned."""
    try:
        guesses = strata_for_recall(context, pool_of(context)).guesses
        return plan_audit(guesses, recall, price=answer_price(context))
    except MitlError:
        return None


def random_samples(context: Context) -> set[int]:
    """Packed pairs that were drawn for machine labels, every open candidate with the same probability."""
    pairs: set[int] = set()
    for audit in audit_store.audits(context.session, context.environment):
        shares = [stratum.inclusion for stratum in audit.design.strata if stratum.size]
        if audit.purpose is AuditPurpose.LABELS and max(shares) <= (1 + _SAME_SHARE) * min(shares):
            pairs |= set(audit_store.drawn_pairs(context.session, audit.id)["pair"].tolist())
    return pairs


def _labelled(project: ProjectSnapshot, pool: Candidates) -> list[str]:
    """How many of what every plan calls open a machine has labelled, so that nobody is asked about it now."""
    still_open = np.delete(pool.pairs, pool.answered)
    n_labelled = int(contains(np.sort(project.machine["pair"].to_numpy()), still_open).sum())
    return [
        f"a machine labelled {n_labelled:,} of the {several(pool.open, 'open candidate')}, so `{PAIRS_COMMAND}` asks "
        f"only about the other {pool.open - n_labelled:,}; plans and prices here count all of them, as after `mitl "
        "label --withdraw`"
    ] * bool(n_labelled)


def _next(planned: PlannedWays, pilot: tuple[str, str] | None, *, has_sample: bool, is_labelled: bool) -> str:
    """What to do; a sample for labels that is answered, if only in part, cannot be drawn again."""
    environment = f"--{planned.environment.value}"
    if not planned.sampled.random and pilot:
        name, command = pilot
        return f"{command}, until pilot {name} is settled, and plan again"
    if not planned.sampled.random:
        return f"mitl publish {environment} --pilot 10, and plan again on a random sample"
    bounded = planned.option("bounded_labels")
    if bounded is not None and planned.saves:
        drawing = "" if has_sample else f"mitl audit draw --for labels --size {bounded.sample}; "
        drawing = f"mitl label --withdraw; {drawing}" if drawing and is_labelled else drawing
        return (
            f"{drawing}mitl publish {environment} --drawn; mitl harvest; "
            f"mitl label --error {planned.wish.max_error:g} --siding {planned.wish.siding:g}; or, for everything, mitl "
            f"publish {environment}"
        )
    return f"mitl publish {environment}"


def plan_section(context: Context, project: ProjectSnapshot) -> AnalysisSection | None:
    """The report's section; None where nothing is open or too little is answered to plan from."""
    section = Section("plan", "What next", "What further answers would bring", "Pairs")
    try:
        pool = candidates(project, random_samples(context))
        if not pool.open:
            return None
        planned = make_plan(context, project, pool, PlanWish())
    except MitlError:
        return None
    return AnalysisSection(
        section,
        tables=(needs_table(planned), plans_table(planned)),
        lines=(*about(planned), *_labelled(project, pool), *not_reachable(planned)),
        drawings={"frontier": lambda: draw(planned)},
        captions={"frontier": "Recall of the candidates' matches by further answers, with 95 % intervals"},
    )
