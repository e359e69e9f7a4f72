"""Rounds and audits: what a round's steps came to, what it chose and taught; samples with known probabilities."""

import datetime as dt

from sqlalchemy import ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from mitl.db.models.items import Numbered
from mitl.records import AuditPurpose, Environment, Label
from mitl.records.rounds import RoundStep


class StepOfRound(Numbered):
    """One step of a round, from its first try on."""

    __tablename__ = "round_step"
    __table_args__ = (UniqueConstraint("round_id", "step"),)
    round_id: Mapped[int] = mapped_column(ForeignKey("round.id"))
    step: Mapped[RoundStep]
    result: Mapped[str]
    """JSON of what it came to; ``{}`` until it ends."""
    started_at: Mapped[dt.datetime]
    ended_at: Mapped[dt.datetime | None]


class ChosenPair(Numbered):
    """A pair that a round asks, whoever ranked it."""

    __tablename__ = "chosen_pair"
    __table_args__ = (UniqueConstraint("round_id", "pair_id"), UniqueConstraint("round_id", "place"))
    round_id: Mapped[int] = mapped_column(ForeignKey("round.id"))
    pair_id: Mapped[int] = mapped_column(ForeignKey("pair.id"), index=True)
    place: Mapped[int]
    """In the order in which they are asked, from 1."""
    score: Mapped[float]
    strategy: Mapped[str] = mapped_column(String(64))


class TrainedAnnotator(Numbered):
    """An annotator that learnt from answers here; its weights lie in a file of the project."""

    __tablename__ = "trained_annotator"
    name: Mapped[str] = mapped_column(unique=True)
    """As runs and ``mitl annotators`` have it."""
    round_id: Mapped[int | None] = mapped_column(ForeignKey("round.id"))
    """The round that trained it; None where `mitl train` did."""
    base: Mapped[str]
    """The annotator from whose weights it started."""
    base_fingerprint: Mapped[str] = mapped_column(String(64))
    file: Mapped[str]
    """Its weights, relative to the project."""
    weights_sha256: Mapped[str] = mapped_column(String(64))
    recipe: Mapped[str]
    """JSON: loss, labels, steps, rates, seed."""
    taught: Mapped[bytes]
    """Parquet of `mitl.records.rounds.TEACHING`: the pairs that taught it."""
    made_at: Mapped[dt.datetime]
    withdrawn_at: Mapped[dt.datetime | None]
    """When its round was rolled back; it proposes no more."""


class Audit(Numbered):
    """One random sample of a pool of pairs; nothing of it is changed after it was drawn."""

    __tablename__ = "audit"
    __table_args__ = (UniqueConstraint("environment", "number"),)
    environment: Mapped[Environment]
    number: Mapped[int]
    """Within its environment, from 1."""
    purpose: Mapped[AuditPurpose]
    design: Mapped[str]
    """JSON of `mitl.records.audits.AuditDesign`: strata, sizes, seed, how the risk is dealt."""
    pool_sha256: Mapped[str] = mapped_column(String(64))
    """Over the data set's content and the queries asked, so over which pairs there are: another one voids the audit."""
    listed: Mapped[bytes]
    """Parquet of `mitl.records.audits.LISTED`: the stratum of each pair of the pool that is not in the last one."""
    drawn_at: Mapped[dt.datetime]


class AuditPair(Numbered):
    """A pair that was drawn."""

    __tablename__ = "audit_pair"
    __table_args__ = (UniqueConstraint("audit_id", "pair_id"), UniqueConstraint("audit_id", "place"))
    audit_id: Mapped[int] = mapped_column(ForeignKey("audit.id"))
    pair_id: Mapped[int] = mapped_column(ForeignKey("pair.id"), index=True)
    place: Mapped[int]
    """In the order of drawing over all strata, from 1."""
    stratum: Mapped[int]
    """Place among the design's strata, from 0."""
    inclusion: Mapped[float]
    """Probability that the draw holds the pair, above 0."""
    recheck: Mapped[bool]
    """Whether two further workers are asked though the first says no; a yes always goes to two more."""
    known: Mapped[bool]
    """Whether it was among the positives when the sample was drawn."""


class Labelling(Numbered):
    """One run that gave machine labels, with the bound under which it did."""

    __tablename__ = "labelling"
    environment: Mapped[Environment]
    audit_id: Mapped[int] = mapped_column(ForeignKey("audit.id"))
    """The sample that bounds its error."""
    config: Mapped[str]
    """JSON: tolerated error, risk, thresholds and counts of each stratum, what scored the pairs."""
    made_at: Mapped[dt.datetime]
    withdrawn_at: Mapped[dt.datetime | None]
    """When a later run, or a person, took its labels back; they are kept and not read."""


class MachineLabel(Numbered):
    """A label that a machine gave to a pair that nobody was asked about."""

    __tablename__ = "machine_label"
    __table_args__ = (UniqueConstraint("labelling_id", "pair_id"),)
    labelling_id: Mapped[int] = mapped_column(ForeignKey("labelling.id"))
    pair_id: Mapped[int] = mapped_column(ForeignKey("pair.id"), index=True)
    label: Mapped[Label]
    probability: Mapped[float]
    """Calibrated, that the pair is a match."""
    stratum: Mapped[str] = mapped_column(String(64))
