"""What certifies a release: the complete audit of the pool as it is, and the bound of its machine labels."""

from __future__ import annotations

import json
from dataclasses import replace

from mitl.crowd.context import Context
from mitl.db.store import audits as audit_store
from mitl.errors import AuditError
from mitl.positives.certifying import AuditRecord, certified
from mitl.positives.merging import Exclusions
from mitl.positives.release_input import LabelledPart, MachineBound, ReleaseInput
from mitl.records import AuditPurpose
from mitl.stages.auditing.showing import audit_record


def with_certificate(
    context: Context, data: ReleaseInput, exclusions: Exclusions
) -> tuple[ReleaseInput, str]:
    """The release with what only the audit found and its certificate; or as it was, and in one line why."""
    record, why = _record(context)
    if record is not None and data.rules.official:
        record, why = None, "the official filters reproduce files that had no audit, so it is not read"
    if record is not None:
        try:
            merged, audit = certified(record, data.merged, exclusions, data.proposals)
        except AuditError as error:
            why = str(error)
        else:
            configuration = {**data.configuration, "audit": audit.named}
            return replace(data, merged=merged, audit=audit, configuration=configuration), ""
    return data, why and f"the release has no certificate: {why}"


def _record(context: Context) -> tuple[AuditRecord | None, str]:
    """The newest valid audit of recall; or none and, where one was drawn, why none is valid."""
    session, environment = context.session, context.environment
    audit = audit_store.current(session, environment, AuditPurpose.RECALL)
    if audit is not None:
        return audit_record(context, audit), ""
    drawn = [row for row in audit_store.audits(session, environment) if row.purpose is AuditPurpose.RECALL]
    if not drawn:
        return None, ""
    return None, (
        f"the data set or the queries asked have changed since audit {drawn[-1].number} was drawn, which voids it; "
        "draw another with `mitl audit draw`"
    )


def with_machine_bound(context: Context, data: ReleaseInput) -> ReleaseInput:
    """The release with the bound under which the machine labels that stand were given."""
    labelling = audit_store.standing(context.session, context.environment)
    assert labelling is not None  # its labels are in the release
    config = json.loads(labelling.config)
    parts = (
        LabelledPart(
            part["stratum"], part["pairs"], part["sampled"], part["labelled"], part["bound_among_labelled"]
        )
        for part in config["strata"]
    )
    bound = MachineBound(config["confidence"], config["loss"], config["siding"], tuple(parts))
    return replace(data, machine=bound, configuration={**data.configuration, "machine_labels": config})
