"""What people are asked and what comes back: HITs, submissions, answers, what they cost, releases."""

import datetime as dt

from sqlalchemy import ForeignKey, Index, String, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from mitl.db.models.items import AnsweredPlace, Base, Numbered
from mitl.records import Decision, Environment, HitState, JournalState, JudgementSource, Label, PairRole

_IS_OVERLAP = text("role = 'overlap'")
"""Few items are; to find out which HITs hold them would take a look at every item."""


class Round(Numbered):
    """One turn of the loop: propose, ask, learn."""

    __tablename__ = "round"
    __table_args__ = (UniqueConstraint("dataset_id", "number"),)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("dataset.id"))
    number: Mapped[int]
    environment: Mapped[Environment | None]
    """Of a round that chose what it asks; None for the one that asks every proposal, in either environment."""
    strategy: Mapped[str]
    config: Mapped[str | None]
    """JSON of what `mitl round` was asked for: budget, annotators, recipe; None where nothing chose."""
    opened_at: Mapped[dt.datetime]
    closed_at: Mapped[dt.datetime | None]
    rolled_back_at: Mapped[dt.datetime | None]
    """When a person took it back: its trained annotators and open choices are read no more, its answers stay."""


class Batch(Numbered):
    """HITs that were planned together: one template, one reward."""

    __tablename__ = "batch"
    name: Mapped[str] = mapped_column(unique=True)
    round_id: Mapped[int] = mapped_column(ForeignKey("round.id"))
    environment: Mapped[Environment]
    kind: Mapped[str] = mapped_column(String(32))
    """``pairs`` stand in ``hit_item``, ``rankings`` in ``comparison``, other kinds where they say."""
    direction: Mapped[str]
    """``i2t``, ``t2i`` or ``both``."""
    template: Mapped[str]
    reward_cents: Mapped[int]
    assignments: Mapped[int]
    seed: Mapped[int]
    pilot: Mapped[bool]
    """Whether it was posted to find out how long the work takes."""
    source: Mapped[JudgementSource]
    """``crowd`` for what was posted from here, ``import`` for past work that was read from a file."""
    estimate_s: Mapped[int | None]
    """Seconds that a HIT was expected to take when it was priced; None takes the template's own estimate."""
    server_id: Mapped[str | None]
    """Which server it was posted to, as its ``/healthz`` says; None for one that says nothing."""
    planned_at: Mapped[dt.datetime]


class Hit(Numbered):
    """One page of pairs on its way to the crowd and back."""

    __tablename__ = "hit"
    __table_args__ = (UniqueConstraint("batch_id", "number", "attempt"), Index("ix_hit_state", "state"))
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


class HitItemRow(Numbered):
    """Which pair stands at which place of a HIT; the crowd server never learns it."""

    __tablename__ = "hit_item"
    __table_args__ = (
        UniqueConstraint("hit_id", "place"),
        Index("ix_hit_item_overlap", "hit_id", sqlite_where=_IS_OVERLAP),
    )
    hit_id: Mapped[int] = mapped_column(ForeignKey("hit.id"))
    place: Mapped[int]
    pair_id: Mapped[int] = mapped_column(ForeignKey("pair.id"), index=True)
    role: Mapped[PairRole]


class Worker(Numbered):
    """Somebody who answered, as the requester API names them."""

    __tablename__ = "worker"
    __table_args__ = (UniqueConstraint("environment", "mturk_worker_id"),)
    environment: Mapped[Environment]
    mturk_worker_id: Mapped[str]
    excluded_at: Mapped[dt.datetime | None]
    capped_at: Mapped[dt.datetime | None]
    """When the worker had done as many HITs as one may; the answers count all the same."""
    note: Mapped[str | None]


class Assignment(Numbered):
    """One worker's submission of one HIT."""

    __tablename__ = "assignment"
    __table_args__ = (
        UniqueConstraint("mturk_assignment_id", "worker_id"),
        # What is counted over all submissions stands in it, so that no count reads the documents.
        Index("ix_assignment_worker", "worker_id", "decision", "status", "submitted_at", "hit_id"),
    )
    hit_id: Mapped[int] = mapped_column(ForeignKey("hit.id"), index=True)
    worker_id: Mapped[int] = mapped_column(ForeignKey("worker.id"))
    mturk_assignment_id: Mapped[str]
    accepted_at: Mapped[dt.datetime | None]
    submitted_at: Mapped[dt.datetime | None] = mapped_column(index=True)
    status: Mapped[str]
    """As the API says: Submitted, Approved, Rejected."""
    decision: Mapped[Decision] = mapped_column(index=True)
    raw_xml: Mapped[str]
    """The answer document, byte for byte."""


class ImportFile(Numbered):
    """A file of past work that was brought in, once."""

    __tablename__ = "import_file"
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


class JudgementRow(AnsweredPlace):
    """One worker's answer on one pair, as given; only ``usable`` is ours to set."""

    __tablename__ = "judgement"
    pair_id: Mapped[int] = mapped_column(ForeignKey("pair.id"), index=True)
    label: Mapped[Label | None]
    """None unless answered."""
    usable: Mapped[bool]
    """Whether aggregation may read it."""
    source: Mapped[JudgementSource]


class AnswerSheet(Base):
    """All judgements of one submission as numbers: a copy that is read fast; see `mitl.db.store.answer_sheets`.

    Triggers on ``judgement``, ``hit_item`` and ``assignment`` drop it; a revision that makes one of these tables
    again has to make them too.
    """

    __tablename__ = "answer_sheet"
    assignment_id: Mapped[int] = mapped_column(
        ForeignKey("assignment.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    content: Mapped[bytes]


class ControlSheet(Base):
    """A worker's answers on controls, judged by one record: a copy that is read fast; see
    `mitl.db.store.control_sheets`.

    Triggers on ``answer_sheet``, ``assignment`` and ``worker`` drop it (revision p0012); a revision that makes one of
    these tables again has to make them too.
    """

    __tablename__ = "control_sheet"
    worker_id: Mapped[int] = mapped_column(
        ForeignKey("worker.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    is_bad: Mapped[bool]
    """The record by which the worker's answers were last marked usable or not."""
    content: Mapped[bytes]


class WorkerTally(Base):
    """What a worker's answers come to: a copy that is read fast; see `mitl.db.store.worker_tallies`.

    It goes with the `ControlSheet`, by its foreign key. A version that counts otherwise has to empty that table in a
    revision.
    """

    __tablename__ = "worker_tally"
    worker_id: Mapped[int] = mapped_column(
        ForeignKey("control_sheet.worker_id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    answers: Mapped[int]
    """Places of pages that were read, answered or not."""
    median_s: Mapped[float | None]
    judged: Mapped[bytes]
    hits: Mapped[bytes]
    conduct: Mapped[bytes]
    first: Mapped[bytes]
    """Last, since it is the longest and the least read."""


class StandingRow(Base):
    """Where an environment stands, as JSON; see `mitl.db.store.standings`.

    Triggers on nearly every table drop it (revision p0011); a revision that makes a table, or makes one again, has to
    make them too. A version that counts otherwise has to empty the table in a revision.
    """

    __tablename__ = "standing"
    environment: Mapped[Environment] = mapped_column(primary_key=True)
    content: Mapped[str]


class Rationale(Numbered):
    """An answer to a question besides the label: one of its choices, or free text."""

    __tablename__ = "rationale"
    judgement_id: Mapped[int] = mapped_column(ForeignKey("judgement.id"), index=True)
    kind: Mapped[str] = mapped_column(String(32))
    """The question's name."""
    value: Mapped[str]


class FindingRow(Numbered):
    """Something noticed about an assignment."""

    __tablename__ = "finding"
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignment.id"), index=True)
    code: Mapped[str]
    detail: Mapped[str]


class Journal(Numbered):
    """One row for every call that costs or binds, written before the call."""

    __tablename__ = "journal"
    __table_args__ = (UniqueConstraint("kind", "key"),)
    kind: Mapped[str]
    """create, approve, reject, override, bonus, expire, extend, delete, qualification, message."""
    key: Mapped[str]
    state: Mapped[JournalState]
    token: Mapped[str | None]
    request: Mapped[str]
    """JSON."""
    reply: Mapped[str | None]
    error: Mapped[str | None]
    at: Mapped[dt.datetime]
    """When the state was entered."""
    first_sent_at: Mapped[dt.datetime | None]
    """When the call was first made; a server remembers its token for 24 hours from then."""


class Ledger(Numbered):
    """Money that an assignment has cost."""

    __tablename__ = "ledger"
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignment.id"), index=True)
    kind: Mapped[str]
    """reward, fee or bonus."""
    key: Mapped[str] = mapped_column(unique=True)
    cents: Mapped[int]


class StoredRelease(Numbered):
    """A release that was built, with the secret of its pseudonyms."""

    __tablename__ = "release"
    name: Mapped[str] = mapped_column(unique=True)
    manifest_sha256: Mapped[str | None]
    rules: Mapped[str | None]
    """JSON: how its sources were merged."""
    salt: Mapped[str]
