"""Workers, their submissions, and what the answers say."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from mitl.db.base import int_pk
from mitl.db.models.base import Base
from mitl.records import Decision, Environment, JudgementSource, Label, Outcome, RationaleKind


class Worker(Base):
    """Somebody who answered, as the requester API names them."""

    __tablename__ = "worker"
    __table_args__ = (UniqueConstraint("environment", "mturk_worker_id"),)
    id: Mapped[int_pk]
    environment: Mapped[Environment]
    mturk_worker_id: Mapped[str]
    excluded_at: Mapped[dt.datetime | None]
    capped_at: Mapped[dt.datetime | None]
    """When the worker had done as many HITs as one may; the answers count all the same."""
    note: Mapped[str | None]


class Assignment(Base):
    """One worker's submission of one HIT."""

    __tablename__ = "assignment"
    __table_args__ = (
        UniqueConstraint("mturk_assignment_id", "worker_id"),
        # What is counted over all submissions stands in it, so that no count reads the documents.
        Index("ix_assignment_worker", "worker_id", "decision", "status", "submitted_at", "hit_id"),
    )
    id: Mapped[int_pk]
    hit_id: Mapped[int] = mapped_column(ForeignKey("hit.id"), index=True)
    worker_id: Mapped[int] = mapped_column(ForeignKey("worker.id"))
    mturk_assignment_id: Mapped[str]
    accepted_at: Mapped[dt.datetime | None]
    submitted_at: Mapped[dt.datetime | None]
    status: Mapped[str]
    """As the API says: Submitted, Approved, Rejected."""
    decision: Mapped[Decision] = mapped_column(index=True)
    raw_xml: Mapped[str]
    """The answer document, byte for byte."""


class ImportFile(Base):
    """A file of past work that was brought in, once."""

    __tablename__ = "import_file"
    id: Mapped[int_pk]
    sha256: Mapped[str] = mapped_column(unique=True)
    """Of its bytes, unpacked: the same file is not brought in twice."""
    name: Mapped[str]
    kind: Mapped[str]
    """``batch_csv``, ``command_line``, ``assignment_list``, ``table`` or ``mturk_parsed``."""
    columns: Mapped[str | None]
    """JSON: which column means what, where a mapping was given; how many places a page has; the style of ids."""
    batch_id: Mapped[int] = mapped_column(ForeignKey("batch.id"), index=True)
    rows: Mapped[int]
    imported_at: Mapped[dt.datetime]


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


class AnswerSheet(Base):
    """All judgements of one submission as numbers: a copy that is read fast; see `mitl.db.store.answer_sheets`.

    Triggers on ``judgement``, ``hit_item`` and ``assignment`` drop it; a revision that makes one of these tables
    anew has to make them too.
    """

    __tablename__ = "answer_sheet"
    assignment_id: Mapped[int] = mapped_column(
        ForeignKey("assignment.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    content: Mapped[bytes]


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
