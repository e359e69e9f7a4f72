"""What would be released now, with its certificate, and the report's section on the audit."""

from __future__ import annotations

from dataclasses import replace

from mitl.analysis.report.inputs import AnalysisSection, Section
from mitl.core.formats import lower_bound
from mitl.crowd.context import Context
from mitl.db.store import audits as audit_store
from mitl.db.store import releases
from mitl.errors import MitlError
from mitl.positives.merging import MergeRules
from mitl.positives.release_input import ReleaseInput
from mitl.records import AuditPurpose, Direction, Table, several
from mitl.stages.analysing.snapshot import ProjectSnapshot
from mitl.stages.auditing.showing import audit_state
from mitl.stages.releasing.additions import with_certificate
from mitl.stages.releasing.build_dataset import ReleaseOptions, release_input
from mitl.stages.releasing.origins import ReleaseFacts, release_facts


def released_now(context: Context) -> tuple[ReleaseFacts, ReleaseInput, str]:
    """What would be released by the rules of the latest release, and in one line why an audit certifies nothing.

    Raises:
        ReleaseError: nobody judged or rated anything.
    """
    built = releases.built(context.session, context.environment)
    facts = release_facts(context)
    name, options = facts.dataset.name, ReleaseOptions()
    if built:
        latest = built[-1]
        name, options = (
            latest.name,
            ReleaseOptions(MergeRules(**latest.rules), humans_only=latest.humans_only),
        )
        named = {Direction(way): tuple(queries) for way, queries in latest.queries.items()}
        facts = replace(facts, queries={**facts.queries, **named})
    data = release_input(context, facts, name, options)
    return facts, *with_certificate(context, data, facts.exclusions)


def audit_section(context: Context, project: ProjectSnapshot) -> AnalysisSection | None:
    """What the audit of recall proves of a release of now, or how far it is; None where none was drawn."""
    drawn = audit_store.audits(context.session, project.environment)
    if not any(row.purpose is AuditPurpose.RECALL for row in drawn):
        return None
    section = Section("audit", "Audit", "What a random sample of all pairs proves", "Positives")
    try:
        _, data, why = released_now(context)
        state = None if data.audit is not None else audit_state(context)
    except MitlError as error:
        return AnalysisSection(section, why_not=str(error))
    if data.audit is None:
        return AnalysisSection(
            section, lines=(why, *([] if state is None else [f"audit {state.audit.number}: {state.line}"]))
        )
    audit, proof = data.audit, data.audit.certificate
    held = audit.held["stratum"].value_counts()
    rows = tuple(
        (stratum.name, stratum.size, int(held.get(place, 0)), stratum.sample)
        for place, stratum in enumerate(audit.record.design.strata)
    )
    found = int(data.merged.pairs["found"].sum())
    note = (
        f"the release also holds {several(found, 'match', 'matches')} that only the audit found, marked audit; "
        "no other section of this page counts them, except the scores on the release"
    )
    return AnalysisSection(
        section,
        tables=(Table("The parts of the sample", ("stratum", "pairs", "held as positives", "drawn"), rows),),
        lines=(*proof.lines(), *([note] if found else [])),
        highlight=f"A random sample of {several(audit.record.design.sample, 'pair')} proves, with "
        f"{proof.confidence:.12g} confidence each, a recall of at least {lower_bound(proof.measured.recall)} and a "
        f"precision of at least {lower_bound(proof.measured.precision)}.",
    )
