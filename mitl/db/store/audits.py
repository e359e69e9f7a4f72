"""Audits: what was drawn, what workers answered on it, what is still to be asked, and labels given under a bound."""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import exists, func, or_, select, update
from sqlalchemy.orm import Session, aliased

from mitl.core.arrays import Flags, Ints, places, unpack_pairs
from mitl.db.base import columns
from mitl.db.models import (
    Assignment,
    Audit,
    AuditPair,
    Batch,
    Hit,
    HitItemRow,
    JudgementRow,
    Labelling,
    MachineLabel,
    PairRow,
    Worker,
)
from mitl.db.store.hits import LIVE_STATES
from mitl.db.store.items import dataset
from mitl.db.store.proposals import pair_rows, queries
from mitl.db.store.statements import ARRIVAL, AT_PLACE, add_tuples, table_of
from mitl.records import UNDECIDED, AuditPurpose, Environment, Pair, PairRole
from mitl.records.audits import ANSWERS_EACH, AUDIT_ANSWERS, AUDITED, LISTED, AuditDesign
from mitl.records.frames import LABELS, MACHINE_LABELS, NONE, Schema, frame

if TYPE_CHECKING:
    import pandas as pd

WANTED: Schema = {
    "pair": ("int64", "packed, distinct"),
    "place": ("int64", "in the order of drawing; ascending"),
    "wanted": ("int64", "answers that are still wanted, 1 to 3"),
    "out": ("int64", "of these, how many are asked on pages that are out or wait for a decision"),
}
"""The pairs of an audit that lack answers."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One audit as it was drawn."""

    id: int
    environment: Environment
    number: int
    purpose: AuditPurpose
    design: AuditDesign
    pool_sha256: str
    drawn_at: dt.datetime


@dataclass(frozen=True, slots=True)
class LabellingRow:
    """One run that gave machine labels."""

    id: int
    audit_id: int
    config: str
    """JSON."""
    made_at: dt.datetime
    withdrawn_at: dt.datetime | None


def pool_sha256(session: Session) -> str:
    """What says which pairs there are to draw from: the data set's content and the queries asked."""
    asked = {direction.value: items for direction, items in queries(session).items()}
    said = json.dumps({"dataset": dataset(session).content_sha256, "queries": asked}, sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()


def add_audit(
    session: Session,
    environment: Environment,
    design: AuditDesign,
    listed: pd.DataFrame,
    drawn: pd.DataFrame,
    now: dt.datetime,
) -> AuditRow:
    """Write down a sample of today's pool; pairs that nobody proposed get a row and stay unproposed.

    Args:
        listed: ``LISTED``.
        drawn: ``AUDITED`` without answers.
    """
    newest = session.scalar(select(func.max(Audit.number)).where(Audit.environment == environment)) or 0
    audit = Audit(
        environment=environment,
        number=newest + 1,
        purpose=design.purpose,
        design=design.to_json(),
        pool_sha256=pool_sha256(session),
        listed=frame(LISTED, {name: listed[name] for name in LISTED}).to_parquet(index=False),
        drawn_at=now,
    )
    session.add(audit)
    session.flush()
    columns = [drawn[name].tolist() for name in ("place", "stratum", "inclusion", "recheck", "known")]
    rows = pair_rows(session, drawn["pair"].to_numpy(np.int64)).tolist()
    add_tuples(
        session,
        AuditPair,
        ("audit_id", "pair_id", "place", "stratum", "inclusion", "recheck", "known"),
        ((audit.id, *row) for row in zip(rows, *columns, strict=True)),
    )
    return audits(session, environment)[-1]


def audits(session: Session, environment: Environment) -> list[AuditRow]:
    """All audits of an environment, oldest first."""
    query = select(*_AUDIT).where(Audit.environment == environment).order_by(Audit.number)
    return [_row(audit) for audit in session.execute(query).mappings()]


def current(session: Session, environment: Environment, purpose: AuditPurpose) -> AuditRow | None:
    """The newest audit of that purpose whose pool is still as it was; none where another pool has voided all."""
    pool = pool_sha256(session) if (drawn := audits(session, environment)) else ""
    valid = [audit for audit in drawn if audit.purpose is purpose and audit.pool_sha256 == pool]
    return valid[-1] if valid else None


_AUDIT = columns(AuditRow, Audit)


def _row(stored: Mapping[Any, Any]) -> AuditRow:
    return AuditRow(**{**stored, "design": AuditDesign.from_json(stored["design"])})


def listed(session: Session, audit_id: int) -> pd.DataFrame:
    """Where the listed pairs of its pool stood when an audit was drawn (``LISTED``)."""
    import pandas as pd

    content = session.execute(select(Audit.listed).where(Audit.id == audit_id)).scalar_one()
    return pd.read_parquet(io.BytesIO(content))


def drawn_pairs(session: Session, audit_id: int) -> pd.DataFrame:
    """What was drawn (``AUDITED`` without answers), in the order of drawing."""
    columns = AuditPair.place, AuditPair.stratum, AuditPair.inclusion, AuditPair.recheck, AuditPair.known
    query = (
        select(PairRow.left_id, PairRow.right_id, *columns)
        .join(PairRow, PairRow.id == AuditPair.pair_id)
        .where(AuditPair.audit_id == audit_id)
        .order_by(AuditPair.place)
    )
    drawn = table_of(session, query)
    return frame(AUDITED, {name: drawn[name] for name in ("pair", *(column.name for column in columns))})


def audit_answers(session: Session, audit_id: int, drawn: pd.DataFrame | None = None) -> pd.DataFrame:
    """The answers of an audit that count (``AUDIT_ANSWERS``): usable, each of another worker, as many as are wanted.

    Those of an audit of recall are on its own places, by nobody who answered the pair where it was asked, and after the
    draw, lest a sample be drawn for what is known of it; those of a sample for machine labels, which had no answer when
    it was drawn, are the first three that anybody gave on these candidates.

    Args:
        drawn: its ``drawn_pairs``, where they are at hand.
    """
    is_blind, _, counted = _by_worker(session, audit_id)
    drawn = drawn_pairs(session, audit_id) if drawn is None else drawn
    rows = [
        (place, pair, number, label, worker)
        for pair, place, recheck in drawn[["pair", "place", "recheck"]].itertuples(index=False, name=None)
        for number, (worker, label) in enumerate(counted[place].items(), start=1)
        if number == 1 or recheck or not is_blind or LABELS[next(iter(counted[place].values()))].is_positive
    ]
    columns = zip(*rows, strict=True) if rows else ((),) * len(AUDIT_ANSWERS)
    return frame(AUDIT_ANSWERS, dict(zip(AUDIT_ANSWERS, columns, strict=True)))


def _by_worker(
    session: Session, audit_id: int
) -> tuple[bool, dict[int, set[str]], dict[int, dict[str, int]]]:
    """Whether an audit's answers are blind; place → who answered its pair where it was asked, if so; and place → worker
    → label of the answers that count if they are wanted, at most three a place."""
    purpose = session.execute(select(Audit.purpose).where(Audit.id == audit_id)).scalar_one()
    is_blind = purpose is AuditPurpose.RECALL
    answers = session.execute(_given(audit_id)).all()
    asked: dict[int, set[str]] = defaultdict(set)
    for place, worker, _, role, *_ in answers:
        if is_blind and role.is_asked:
            asked[place].add(worker)
    counted: dict[int, dict[str, int]] = defaultdict(dict)
    for place, worker, label, role, usable, is_new, _ in answers:
        of_audit = role is PairRole.AUDIT and is_new if is_blind else role.is_asked
        counts = usable and of_audit and worker not in asked[place]
        if counts and len(counted[place]) < ANSWERS_EACH:
            counted[place].setdefault(worker, LABELS.index(label))
    return is_blind, asked, counted


def met(session: Session, environment: Environment) -> dict[tuple[Pair, PairRole], frozenset[str]]:
    """Workers' ids on the requester API of whom no further answer counts, by a pair of a valid audit and the role in
    which it is asked again; without pairs of which every answer does."""
    found = {}
    for purpose, role in ((AuditPurpose.RECALL, PairRole.AUDIT), (AuditPurpose.LABELS, PairRole.OVERLAP)):
        if (audit := current(session, environment, purpose)) is None:
            continue
        drawn = drawn_pairs(session, audit.id)
        _, asked, counted = _by_worker(session, audit.id)
        for place, pair in zip(drawn["place"].tolist(), unpack_pairs(drawn["pair"].to_numpy()), strict=True):
            if who := asked[place].union(counted[place]):
                found[pair, role] = frozenset(who)
    return found


def _given(audit_id: int) -> Any:
    """Every label on a pair of an audit, wherever it stood: place, worker, label, role, usable, whether it came after
    the draw, and whether its time says so; as they arrived.

    The former goes by times only where an earlier audit asked about the pair too: clocks that were wrong cost no answer
    else.
    """
    earlier, also = aliased(Audit), aliased(AuditPair)
    was_drawn = (
        exists()
        .where(also.pair_id == AuditPair.pair_id, also.audit_id == earlier.id)
        .where(earlier.environment == Audit.environment, earlier.number < Audit.number)
    )
    is_later = Assignment.submitted_at >= Audit.drawn_at
    return (
        select(
            AuditPair.place,
            Worker.mturk_worker_id,
            JudgementRow.label,
            HitItemRow.role,
            JudgementRow.usable,
            or_(is_later, ~was_drawn),
            is_later,
        )
        .join(JudgementRow, JudgementRow.pair_id == AuditPair.pair_id)
        .join(Assignment, Assignment.id == JudgementRow.assignment_id)
        .join(Worker, Worker.id == Assignment.worker_id)
        .join(HitItemRow, AT_PLACE)
        .join(Audit, (Audit.id == AuditPair.audit_id) & (Audit.environment == Worker.environment))
        .where(AuditPair.audit_id == audit_id, JudgementRow.label.is_not(None))
        .order_by(*ARRIVAL, JudgementRow.place)
    )


def against_design(session: Session) -> int:
    """How many strata of audits hold another number of drawn pairs, or ones drawn otherwise, than their design says.

    A design that cannot be read counts as one.
    """
    count = 0
    for stored in session.execute(select(*_AUDIT)).mappings():
        try:
            audit = _row(stored)
        except (KeyError, TypeError, ValueError):
            count += 1
            continue
        strata = audit.design.strata
        drawn = drawn_pairs(session, audit.id)
        beyond = drawn["stratum"][(drawn["stratum"] < 0) | (drawn["stratum"] >= len(strata))]
        count += beyond.nunique()
        for place, stratum in enumerate(strata):
            inclusion = drawn.loc[drawn["stratum"] == place, "inclusion"]
            count += len(inclusion) != stratum.sample or not np.allclose(inclusion, stratum.inclusion)
    return count


def has_answers(session: Session, audit_id: int) -> bool:
    """Whether anybody has answered a question of it, usably or not; what had failed before the draw answers none."""
    purpose = session.execute(select(Audit.purpose).where(Audit.id == audit_id)).scalar_one()
    is_blind = purpose is AuditPurpose.RECALL
    return any(
        role is PairRole.AUDIT and is_new if is_blind else role.is_asked and (usable or is_later)
        for *_, role, usable, is_new, is_later in session.execute(_given(audit_id))
    )


def audited(session: Session, audit_id: int) -> pd.DataFrame:
    """Each drawn pair with its answers as far as they are wanted (``AUDITED``), in the order of drawing."""
    drawn = drawn_pairs(session, audit_id)
    answers = audit_answers(session, audit_id, drawn)
    at = places(drawn["place"].to_numpy(), answers["place"].to_numpy())
    labels = np.full((len(drawn), ANSWERS_EACH), NONE, np.int8)
    labels[at, answers["number"].to_numpy() - 1] = answers["label"]
    by_turn = {"first": labels[:, 0], "second": labels[:, 1], "third": labels[:, 2]}
    return frame(AUDITED, {name: by_turn.get(name, drawn.get(name)) for name in AUDITED})


def wanted(session: Session, environment: Environment) -> pd.DataFrame:
    """What the valid audit of recall still asks of people (``WANTED``); empty where there is none.

    An answer that cannot be used is wanted again, whatever became of its page.
    """
    from mitl.audits.evidence import wanted_each  # loads the bounds, which short commands do not need

    audit = current(session, environment, AuditPurpose.RECALL)
    if audit is None:
        return frame(WANTED, dict.fromkeys(WANTED, ()))
    stands = audited(session, audit.id)
    answered = (stands[["first", "second", "third"]] != NONE).sum(axis=1).to_numpy()
    lacks = wanted_each(stands) - answered
    out = np.minimum(stands["place"].map(_out(session, audit)), lacks)
    columns = {"pair": stands["pair"], "place": stands["place"], "wanted": lacks, "out": out}
    open_ = lacks > 0
    return frame(WANTED, {name: np.asarray(column)[open_] for name, column in columns.items()})


def open_questions(session: Session, environment: Environment) -> Counter[Pair]:
    """Pair → answers that the valid audit of recall wants and that no page out there will give; by place of drawing."""
    if current(session, environment, AuditPurpose.RECALL) is None:
        return Counter()
    lacks = wanted(session, environment)
    free = (lacks["wanted"] - lacks["out"]).tolist()
    pairs = unpack_pairs(lacks["pair"].to_numpy())
    return Counter({pair: count for pair, count in zip(pairs, free, strict=True) if count})


def disputes(session: Session, environment: Environment) -> Counter[Pair]:
    """Pair → further answers that the valid sample for machine labels wants and no page out there will give.

    A first answer is disputed where it is not what is guessed of its stratum; two further workers decide, or one where
    the second agreed with the first already.
    """
    audit = current(session, environment, AuditPurpose.LABELS)
    if audit is None:
        return Counter()
    stands = audited(session, audit.id)
    answers = stands[["first", "second", "third"]].to_numpy()
    against = _against_guess(audit.design, stands)
    answered = (answers != NONE).sum(axis=1)
    lacks = np.where(against[:, 0] & (against.sum(axis=1) < 2), ANSWERS_EACH - answered, 0)
    free = lacks - stands["place"].map(_out(session, audit, PairRole.OVERLAP)).to_numpy()
    pairs = unpack_pairs(stands["pair"].to_numpy())
    return Counter({pair: count for pair, count in zip(pairs, free.tolist(), strict=True) if count > 0})


def as_guessed(design: AuditDesign, stands: pd.DataFrame) -> Flags:
    """(m,) whether the first answer on a pair of ``AUDITED`` is what was guessed of its stratum: none follows."""
    return np.asarray((stands["first"] != NONE) & ~_against_guess(design, stands)[:, 0])


def _against_guess(design: AuditDesign, stands: pd.DataFrame) -> Flags:
    """(m, 3) whether each answer is given and not what is guessed of its stratum."""
    answers = stands[["first", "second", "third"]].to_numpy()
    called = np.array([stratum.expected >= 0.5 for stratum in design.strata])[stands["stratum"]]
    matches = np.array([label.is_positive for label in LABELS] + [False])  # the last is for NONE
    return np.asarray((answers != NONE) & (matches[answers] != called[:, None]))


def _out(session: Session, audit: AuditRow, role: PairRole = PairRole.AUDIT) -> dict[int, int]:
    """Place → answers that are still to come or to be decided about, on its pages that are not closed."""
    decided = (
        select(Assignment.hit_id, func.count().label("n"))
        .where(Assignment.decision.not_in(UNDECIDED))
        .group_by(Assignment.hit_id)
        .subquery()
    )
    query = (
        select(AuditPair.place, Hit.assignments, func.coalesce(decided.c.n, 0))
        .join(HitItemRow, (HitItemRow.pair_id == AuditPair.pair_id) & (HitItemRow.role == role))
        .join(Hit, Hit.id == HitItemRow.hit_id)
        .join(Batch, Batch.id == Hit.batch_id)
        .outerjoin(decided, decided.c.hit_id == Hit.id)
        .where(
            AuditPair.audit_id == audit.id,
            Batch.environment == audit.environment,
            Hit.state.in_(list(LIVE_STATES)),
        )
    )
    still_out: Counter[int] = Counter()
    for place, assignments, n_decided in session.execute(query):
        still_out[place] += max(assignments - n_decided, 0)
    return still_out


def drawn_for_labels(session: Session, environment: Environment) -> set[Pair]:
    """The candidates that the valid sample for machine labels drew: asked before all others."""
    audit = current(session, environment, AuditPurpose.LABELS)
    return set() if audit is None else set(unpack_pairs(drawn_pairs(session, audit.id)["pair"].to_numpy()))


def worker_shares(session: Session, audit_id: int) -> dict[str, float]:
    """Worker's id on the requester API → share of the audit's answers that count, largest first."""
    counts = Counter(audit_answers(session, audit_id)["worker"])
    return {worker: count / counts.total() for worker, count in counts.most_common()}


def add_labelling(
    session: Session,
    environment: Environment,
    audit_id: int,
    config: str,
    labels: pd.DataFrame,
    now: dt.datetime,
) -> int:
    """Write down a run of machine labels under the bound of an audit; returns its row.

    Args:
        config: JSON of the bound under which they were given.
        labels: ``MACHINE_LABELS``.
    """
    labelling = Labelling(environment=environment, audit_id=audit_id, config=config, made_at=now)
    session.add(labelling)
    session.flush()
    rows = zip(
        pair_rows(session, labels["pair"].to_numpy(np.int64)).tolist(),
        (LABELS[place].value for place in labels["label"]),
        labels["probability"].tolist(),
        labels["stratum"].tolist(),
        strict=True,
    )
    names = ("labelling_id", "pair_id", "label", "probability", "stratum")
    add_tuples(session, MachineLabel, names, ((labelling.id, *row) for row in rows))
    return labelling.id


def labellings(session: Session, environment: Environment) -> list[LabellingRow]:
    """The runs of an environment, oldest first, withdrawn ones among them."""
    query = (
        select(*columns(LabellingRow, Labelling))
        .where(Labelling.environment == environment)
        .order_by(Labelling.id)
    )
    return [LabellingRow(*row) for row in session.execute(query)]


def standing(
    session: Session, environment: Environment, at: dt.datetime | None = None
) -> LabellingRow | None:
    """The newest run that is not withdrawn, whose labels alone are read, or the one that was so at a time."""
    rows = [
        row
        for row in labellings(session, environment)
        if row.withdrawn_at is None or (at is not None and row.withdrawn_at > at)
        if at is None or row.made_at <= at
    ]
    return rows[-1] if rows else None


def withdraw(session: Session, environment: Environment, now: dt.datetime) -> int:
    """Take back the labels of every run that stands; returns how many runs."""
    rows = [row.id for row in labellings(session, environment) if row.withdrawn_at is None]
    session.execute(update(Labelling).where(Labelling.id.in_(rows)).values(withdrawn_at=now))
    return len(rows)


def take_back(
    session: Session, environment: Environment, began: dt.datetime, ended: dt.datetime, now: dt.datetime
) -> tuple[int, int]:
    """Take back the labels given between these times, and any that replaced them; returns how many runs.

    Those that the first of them replaced stand again; the second number says of how many runs.
    """
    rows = labellings(session, environment)
    given = next((row for row in rows if began <= row.made_at <= ended), None)
    stand = [row.id for row in rows if given and row.id >= given.id and row.withdrawn_at is None]
    if not given or not stand:
        return 0, 0
    replaced = [
        row.id
        for row in rows
        if row.id < given.id and row.withdrawn_at and began <= row.withdrawn_at <= given.made_at
    ]
    for ids, at in ((stand, now), (replaced, None)):
        session.execute(update(Labelling).where(Labelling.id.in_(ids)).values(withdrawn_at=at))
    return len(stand), len(replaced)


def labelled_rows(session: Session, environment: Environment) -> Ints:
    """The rows of the pairs whose machine label stands."""
    run = standing(session, environment)
    rows = select(MachineLabel.pair_id).where(MachineLabel.labelling_id == (0 if run is None else run.id))
    return np.fromiter(session.scalars(rows), np.int64)


def machine_labels(session: Session, environment: Environment, at: dt.datetime | None = None) -> pd.DataFrame:
    """The labels that stand, or stood at a time (``MACHINE_LABELS``)."""
    run = standing(session, environment, at)
    query = (
        select(
            PairRow.left_id,
            PairRow.right_id,
            MachineLabel.label,
            MachineLabel.probability,
            MachineLabel.stratum,
        )
        .join(PairRow, PairRow.id == MachineLabel.pair_id)
        .where(MachineLabel.labelling_id == (0 if run is None else run.id))
        .order_by(PairRow.left_id, PairRow.right_id)
    )
    rows = table_of(session, query)
    rows["label"] = [LABELS.index(value) for value in rows["label"]]
    return frame(MACHINE_LABELS, {name: rows[name] for name in MACHINE_LABELS})
