"""How far an audit is, and what its answers prove already; whoever looks spoils nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypedDict

from mitl.audits.certificate import MOST_OF_ONE, Look, look
from mitl.campaign.standing import takes_in
from mitl.core.formats import lower_bound, percent, percent_at_most
from mitl.crowd.context import Context, open_context
from mitl.db.store import audits as audit_store
from mitl.db.store.audits import AuditRow
from mitl.errors import AuditError
from mitl.positives.certifying import AuditRecord, strata_of
from mitl.records import AuditPurpose, Environment, StageResult, Table, several
from mitl.records.audits import HELD
from mitl.records.frames import NONE, frame
from mitl.records.results import printed_by
from mitl.settings import Settings
from mitl.stages.auditing.pools import merged_now, pool_of


@dataclass(frozen=True, slots=True)
class AuditState:
    """How far the valid audit of recall is."""

    audit: AuditRow
    answers: int
    """Answers that count."""
    complete: int
    """Pairs that have all answers they want."""
    wanted: int
    """Answers that are still wanted, as far as is known now; a yes wants two more."""
    out: int
    """Of these, how many are asked on pages that are out or wait for a decision."""
    worker_share: float
    """Of the answers, by the worker who gave most."""
    bound: Look | None
    """What the answers up to the first gap prove, at any time; None where the release holds no positive of the pool, or
    one worker gave too many of the answers."""

    @property
    def line(self) -> str:
        """In one line."""
        design = self.audit.design
        said = f"{self.complete:,} of {several(design.sample, 'pair')} answered"
        if self.wanted:
            said += f", {several(self.wanted, 'answer')} wanted ({self.out:,} of them out)"
        if self.worker_share > MOST_OF_ONE:
            share = percent_at_most(self.worker_share)
            return f"{said}; they prove nothing, since one worker gave {share} of the answers"
        if self.bound is None:
            return f"{said}; no positive to bound yet"
        return (
            f"{said}; so far recall is at least {lower_bound(self.bound.recall)} and precision at least "
            f"{lower_bound(self.bound.precision)}, with {design.confidence:.12g} confidence at any time"
        )


def audit_state(context: Context) -> AuditState | None:
    """The valid audit of recall as it stands; None where there is none."""
    session, environment = context.session, context.environment
    audit = audit_store.current(session, environment, AuditPurpose.RECALL)
    if audit is None:
        return None
    record = audit_record(context, audit)
    open_pairs = audit_store.wanted(session, environment)
    shares = record.answers["worker"].value_counts(normalize=True)
    worker_share = float(shares.max()) if len(shares) else 0.0
    return AuditState(
        audit=audit,
        answers=len(record.answers),
        complete=audit.design.sample - len(open_pairs),
        wanted=int(open_pairs["wanted"].sum()),
        out=int(open_pairs["out"].sum()),
        worker_share=worker_share,
        bound=None if worker_share > MOST_OF_ONE else _look(context, record),
    )


def audit_record(context: Context, audit: AuditRow) -> AuditRecord:
    """An audit with its answers, as a release reads it."""
    session = context.session
    return AuditRecord(
        number=audit.number,
        design=audit.design,
        pool_sha256=audit.pool_sha256,
        pool=pool_of(context),
        listed=audit_store.listed(session, audit.id),
        audited=audit_store.audited(session, audit.id),
        answers=audit_store.audit_answers(session, audit.id),
    )


def _look(context: Context, record: AuditRecord) -> Look | None:
    merged = merged_now(context)
    kept = merged.where("kept")
    inside = kept[record.pool.holds(kept)]
    if not len(inside):
        return None
    held = frame(HELD, {"pair": inside, "stratum": strata_of(inside, record)})
    labels = merged.pairs.loc[merged.pairs["label"] != NONE, ["pair", "label"]]
    return look(record.audited, record.design, held, labels)


@printed_by("audit show")
class ShowCounts(TypedDict, total=False):
    """How far the audits are."""

    environment: Annotated[str, "sandbox or live"]
    audits: Annotated[int, "audits drawn, voided ones among them"]
    audit: Annotated[int, "number of the valid audit of recall"]
    pairs: Annotated[int, "pairs drawn for it"]
    complete: Annotated[int, "of them, those that have all answers they want"]
    answers: Annotated[int, "answers that count"]
    wanted: Annotated[int, "answers still wanted, as far as is known now"]
    out: Annotated[int, "of them, those asked on pages that are out or wait for a decision"]
    recall: Annotated[float, "lower bound by the answers so far, valid at any time"]
    precision: Annotated[float, "likewise of precision"]
    worst_recall: Annotated[float, "lower bound of recall whatever the workers' rates of error are"]
    worst_precision: Annotated[float, "likewise of precision"]
    worker_share: Annotated[float, "share of the answers by the worker who gave most"]


def show(settings: Settings, environment: Environment | None = None) -> StageResult:
    """Each audit, what is open, and what the answers prove so far.

    Raises:
        AuditError: none was drawn.
    """
    with open_context(settings, environment, read_only=True) as context:
        session, chosen = context.session, context.environment
        drawn = audit_store.audits(session, chosen)
        if not drawn:
            raise AuditError(f"no audit was drawn on {chosen}; see what one costs with `mitl audit plan`")
        pool = audit_store.pool_sha256(session)
        valid = {
            row.id
            for purpose in AuditPurpose
            if (row := audit_store.current(session, chosen, purpose)) is not None
        }
        state, on_their_way = audit_state(context), takes_in(session, chosen)
        shares = {} if state is None else audit_store.worker_shares(session, state.audit.id)
        tables = [_audits(context, drawn, valid, pool)]
        if state is not None:
            tables.append(_strata(context, state))
    counts: ShowCounts = {"environment": chosen.value, "audits": len(drawn)}
    if state is None:
        why = "none was drawn"
        if any(row.purpose is AuditPurpose.RECALL for row in drawn):
            why = "the data set or the queries asked changed since, which voids it"
        return StageResult(
            counts=counts,
            tables=tuple(tables),
            lines=(f"no valid audit of recall: {why}",),
            next="mitl audit draw",
        )
    counts |= {
        "audit": state.audit.number,
        "pairs": state.audit.design.sample,
        "complete": state.complete,
        "answers": state.answers,
        "wanted": state.wanted,
        "out": state.out,
        "worker_share": state.worker_share,
    }
    warnings = tuple(
        f"worker {worker!r} gave {percent_at_most(share)} of the answers so far; above "
        f"{percent(MOST_OF_ONE, 0)} an audit proves nothing: set max_hits_per_worker before more is asked"
        for worker, share in shares.items()
        if share > MOST_OF_ONE
    )
    lines = [f"audit {state.audit.number}: {state.line}"]
    if state.bound is not None:
        counts |= {
            "recall": state.bound.recall,
            "precision": state.bound.precision,
            "worst_recall": state.bound.worst_recall,
            "worst_precision": state.bound.worst_precision,
        }
        lines.append(
            f"whatever the workers' rates of error are: recall at least {lower_bound(state.bound.worst_recall)}, "
            f"precision at least {lower_bound(state.bound.worst_precision)}; read up to place "
            f"{state.bound.place:,} of the drawing"
        )
    return StageResult(
        counts=counts,
        tables=tuple(tables),
        lines=tuple(lines),
        warnings=warnings,
        next=_next(state, chosen, on_their_way, certifies=not warnings),
    )


def _next(state: AuditState, environment: Environment, on_their_way: str, *, certifies: bool) -> str:
    if state.wanted > state.out:
        return f"mitl publish --{environment.value} --drawn"
    if state.wanted:
        return on_their_way or f"mitl status --{environment}"
    return (
        f"mitl build-dataset --{environment} --out DIR{', which certifies the release' if certifies else ''}"
    )


def _audits(context: Context, drawn: list[AuditRow], valid: set[int], pool: str) -> Table:
    rows = []
    for row in drawn:
        stands = "void: another pool" if row.pool_sha256 != pool else "replaced"
        stands = "valid" if row.id in valid else stands
        # Nothing was asked of a sample that gave way; its successor may ask the same pairs.
        answers = 0 if stands == "replaced" else len(audit_store.audit_answers(context.session, row.id))
        of = f"{row.design.sample:,} of {row.design.size:,}"
        when = f"{row.drawn_at:%Y-%m-%d %H:%M}"
        rows.append((row.number, row.purpose.value, when, of, answers, stands))
    return Table("audits", ("audit", "for", "drawn", "pairs", "answers", "stands"), tuple(rows))


def _strata(context: Context, state: AuditState) -> Table:
    open_places = set(audit_store.wanted(context.session, context.environment)["place"].tolist())
    drawn = audit_store.drawn_pairs(context.session, state.audit.id)
    done = ~drawn["place"].isin(open_places)
    rows = tuple(
        (
            stratum.name,
            f"{stratum.size:,}",
            stratum.sample,
            int((done & (drawn["stratum"] == place)).sum()),
        )
        for place, stratum in enumerate(state.audit.design.strata)
    )
    return Table(f"audit {state.audit.number}", ("stratum", "pairs", "drawn", "answered"), rows)
