"""The pipeline's tables, one class per noun; what a column means stands below it.

Surrogate ids of images and captions are given in tie order at load, and every sort uses them. The uniqueness
that the pipeline relies on is held by the database.
"""

from __future__ import annotations

import datetime as dt

from sqlalchemy import ForeignKey, Index, MetaData, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from mitl.db.base import NAMING, TYPES, enum_type, int_pk
from mitl.records import (
    AnnotatorKind,
    Decision,
    Direction,
    Environment,
    ExclusionKind,
    HitState,
    IdKind,
    JournalState,
    JudgementSource,
    Label,
    Outcome,
    PairRole,
    RationaleKind,
)

_ENUMS = (
    AnnotatorKind,
    Decision,
    Direction,
    Environment,
    ExclusionKind,
    HitState,
    IdKind,
    JournalState,
    JudgementSource,
    Label,
    Outcome,
    PairRole,
    RationaleKind,
)


class Base(DeclarativeBase):
    """The pipeline's metadata."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {**TYPES, **{enum: enum_type(enum) for enum in _ENUMS}}  # noqa: RUF012


class Dataset(Base):
    """One retrieval set."""

    __tablename__ = "dataset"
    id: Mapped[int_pk]
    name: Mapped[str] = mapped_column(unique=True)
    kind: Mapped[str]
    """Which reader made it."""
    id_kind: Mapped[IdKind]
    content_sha256: Mapped[str]
    """Over ids and texts: whether files named again hold the same data set."""


class Image(Base):
    """One image of a data set."""

    __tablename__ = "image"
    __table_args__ = (UniqueConstraint("dataset_id", "external_id"),)
    id: Mapped[int_pk]
    dataset_id: Mapped[int] = mapped_column(ForeignKey("dataset.id"))
    external_id: Mapped[str]
    file: Mapped[str | None]
    """Path of the picture, absolute or relative to the project."""
    url: Mapped[str | None]
    width: Mapped[int | None]
    height: Mapped[int | None]
    sha256: Mapped[str | None]


class Caption(Base):
    """One caption; ``image_id`` is its original positive."""

    __tablename__ = "caption"
    __table_args__ = (UniqueConstraint("dataset_id", "external_id"),)
    id: Mapped[int_pk]
    dataset_id: Mapped[int] = mapped_column(ForeignKey("dataset.id"))
    external_id: Mapped[str]
    image_id: Mapped[int] = mapped_column(ForeignKey("image.id"), index=True)
    text: Mapped[str]


class Annotator(Base):
    """A machine annotator that has proposed pairs here."""

    __tablename__ = "annotator"
    id: Mapped[int_pk]
    name: Mapped[str] = mapped_column(unique=True)
    kind: Mapped[AnnotatorKind]
    config: Mapped[str]
    """JSON."""
    fingerprint: Mapped[str]
    """Hash of weights and configuration, as of its latest run."""


class Run(Base):
    """One propose configuration; its rankings lie in ``runs/<hash>/``."""

    __tablename__ = "run"
    id: Mapped[int_pk]
    hash: Mapped[str] = mapped_column(unique=True)
    config: Mapped[str]
    """JSON, everything that decides the rankings and the sample."""


class Query(Base):
    """An item that searched in a run; the other side is the gallery."""

    __tablename__ = "query"
    __table_args__ = (UniqueConstraint("run_id", "direction", "item_id"),)
    id: Mapped[int_pk]
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"))
    direction: Mapped[Direction]
    item_id: Mapped[int]
    """``image.id`` for i2t, ``caption.id`` for t2i."""


class Pair(Base):
    """An image and a caption that somebody asks about: a candidate or a gold control."""

    __tablename__ = "pair"
    __table_args__ = (UniqueConstraint("image_id", "caption_id"),)
    id: Mapped[int_pk]
    image_id: Mapped[int] = mapped_column(ForeignKey("image.id"))
    caption_id: Mapped[int] = mapped_column(ForeignKey("caption.id"), index=True)


class Proposal(Base):
    """One annotator found the pair in one direction."""

    __tablename__ = "proposal"
    __table_args__ = (UniqueConstraint("run_id", "pair_id", "annotator_id", "direction"),)
    id: Mapped[int_pk]
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"))
    pair_id: Mapped[int] = mapped_column(ForeignKey("pair.id"), index=True)
    annotator_id: Mapped[int] = mapped_column(ForeignKey("annotator.id"))
    direction: Mapped[Direction]
    rank: Mapped[int]
    """From 1."""
    similarity: Mapped[float]


class Round(Base):
    """One turn of the loop: propose, ask, learn."""

    __tablename__ = "round"
    __table_args__ = (UniqueConstraint("dataset_id", "number"),)
    id: Mapped[int_pk]
    dataset_id: Mapped[int] = mapped_column(ForeignKey("dataset.id"))
    number: Mapped[int]
    strategy: Mapped[str]
    opened_at: Mapped[dt.datetime]
    closed_at: Mapped[dt.datetime | None]


class Batch(Base):
    """HITs that were planned together: one template, one reward."""

    __tablename__ = "batch"
    id: Mapped[int_pk]
    name: Mapped[str] = mapped_column(unique=True)
    round_id: Mapped[int] = mapped_column(ForeignKey("round.id"))
    environment: Mapped[Environment]
    direction: Mapped[str]
    """``i2t``, ``t2i`` or ``both``."""
    template: Mapped[str]
    reward_cents: Mapped[int]
    assignments: Mapped[int]
    seed: Mapped[int]
    pilot: Mapped[bool]
    server_id: Mapped[str | None]
    """Which server it was posted to, as its ``/healthz`` says; None for one that says nothing."""
    planned_at: Mapped[dt.datetime]


class Hit(Base):
    """One page of pairs on its way to the crowd and back."""

    __tablename__ = "hit"
    __table_args__ = (UniqueConstraint("batch_id", "number", "attempt"), Index("ix_hit_state", "state"))
    id: Mapped[int_pk]
    batch_id: Mapped[int] = mapped_column(ForeignKey("batch.id"))
    number: Mapped[int]
    attempt: Mapped[int]
    """From 1; asking the same page's pairs again makes a new HIT with the next attempt."""
    replaces_id: Mapped[int | None] = mapped_column(ForeignKey("hit.id"))
    assignments: Mapped[int]
    """Different workers wanted; a HIT that replaces another asks for those who are missing."""
    state: Mapped[HitState]
    mturk_hit_id: Mapped[str | None] = mapped_column(unique=True)
    token: Mapped[str] = mapped_column(unique=True)
    """``UniqueRequestToken``: derived from project, batch, number and attempt."""


class HitItem(Base):
    """Which pair stands at which place of a HIT; the crowd server never learns it."""

    __tablename__ = "hit_item"
    __table_args__ = (UniqueConstraint("hit_id", "place"),)
    id: Mapped[int_pk]
    hit_id: Mapped[int] = mapped_column(ForeignKey("hit.id"))
    place: Mapped[int]
    pair_id: Mapped[int] = mapped_column(ForeignKey("pair.id"), index=True)
    role: Mapped[PairRole]


class Journal(Base):
    """One row for every call that costs or binds, written before the call."""

    __tablename__ = "journal"
    __table_args__ = (UniqueConstraint("kind", "key"),)
    id: Mapped[int_pk]
    kind: Mapped[str]
    """create, approve, reject, override, bonus, expire, extend, qualification, message."""
    key: Mapped[str]
    state: Mapped[JournalState]
    token: Mapped[str | None]
    request: Mapped[str]
    """JSON."""
    reply: Mapped[str | None]
    error: Mapped[str | None]
    at: Mapped[dt.datetime]
    """When the state was entered."""


class Worker(Base):
    """Somebody who answered, as the requester API names them."""

    __tablename__ = "worker"
    __table_args__ = (UniqueConstraint("environment", "mturk_worker_id"),)
    id: Mapped[int_pk]
    environment: Mapped[Environment]
    mturk_worker_id: Mapped[str]
    excluded_at: Mapped[dt.datetime | None]
    note: Mapped[str | None]


class Assignment(Base):
    """One worker's submission of one HIT."""

    __tablename__ = "assignment"
    __table_args__ = (UniqueConstraint("mturk_assignment_id", "worker_id"),)
    id: Mapped[int_pk]
    hit_id: Mapped[int] = mapped_column(ForeignKey("hit.id"), index=True)
    worker_id: Mapped[int] = mapped_column(ForeignKey("worker.id"), index=True)
    mturk_assignment_id: Mapped[str]
    accepted_at: Mapped[dt.datetime | None]
    submitted_at: Mapped[dt.datetime | None]
    status: Mapped[str]
    """As the API says: Submitted, Approved, Rejected."""
    decision: Mapped[Decision] = mapped_column(index=True)
    raw_xml: Mapped[str]
    """The answer document, byte for byte."""


class Judgement(Base):
    """One worker's answer on one pair, as given; only ``usable`` is ours to set."""

    __tablename__ = "judgement"
    __table_args__ = (UniqueConstraint("assignment_id", "place"),)
    id: Mapped[int_pk]
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignment.id"))
    place: Mapped[int]
    pair_id: Mapped[int] = mapped_column(ForeignKey("pair.id"), index=True)
    outcome: Mapped[Outcome]
    label: Mapped[Label | None]
    """None unless answered."""
    active_ms: Mapped[int | None]
    usable: Mapped[bool]
    """Whether aggregation may read it."""
    source: Mapped[JudgementSource]


class Rationale(Base):
    """A follow-up answer: a shortcoming, a wrong concept or free text."""

    __tablename__ = "rationale"
    id: Mapped[int_pk]
    judgement_id: Mapped[int] = mapped_column(ForeignKey("judgement.id"), index=True)
    kind: Mapped[RationaleKind]
    value: Mapped[str]


class Finding(Base):
    """Something noticed about an assignment."""

    __tablename__ = "finding"
    id: Mapped[int_pk]
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignment.id"), index=True)
    code: Mapped[str]
    detail: Mapped[str]


class Rating(Base):
    """A CxC rating of an image and a caption."""

    __tablename__ = "rating"
    __table_args__ = (UniqueConstraint("image_id", "caption_id"),)
    id: Mapped[int_pk]
    image_id: Mapped[int] = mapped_column(ForeignKey("image.id"))
    caption_id: Mapped[int] = mapped_column(ForeignKey("caption.id"))
    score: Mapped[float]
    """0 to 5."""
    sampling_method: Mapped[str]


class Exclusion(Base):
    """One entry of an exclusion list."""

    __tablename__ = "exclusion"
    id: Mapped[int_pk]
    kind: Mapped[ExclusionKind]
    image_id: Mapped[int | None] = mapped_column(ForeignKey("image.id"))
    caption_id: Mapped[int | None] = mapped_column(ForeignKey("caption.id"))
    reason: Mapped[str]
    source: Mapped[str]


class Ledger(Base):
    """Money that an assignment has cost."""

    __tablename__ = "ledger"
    id: Mapped[int_pk]
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignment.id"), index=True)
    kind: Mapped[str]
    """reward, fee or bonus."""
    key: Mapped[str] = mapped_column(unique=True)
    cents: Mapped[int]


class Release(Base):
    """A release that was built, with the secret of its pseudonyms."""

    __tablename__ = "release"
    id: Mapped[int_pk]
    name: Mapped[str] = mapped_column(unique=True)
    manifest_sha256: Mapped[str | None]
    rules: Mapped[str | None]
    """JSON: how its sources were merged."""
    salt: Mapped[str]
