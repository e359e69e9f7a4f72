"""Rounds: what each step of one came to, what it chose, whom it taught; and texts that people wrote for items."""

import datetime as dt

from sqlalchemy import ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from mitl.db.base import int_pk
from mitl.db.models.items import Base, points_to_item
from mitl.records import CollectionRole, Environment, Label, Outcome
from mitl.records.rounds import RoundStep


class StepOfRound(Base):
    """One step of a round, from its first try on."""

    __tablename__ = "round_step"
    __table_args__ = (UniqueConstraint("round_id", "step"),)
    id: Mapped[int_pk]
    round_id: Mapped[int] = mapped_column(ForeignKey("round.id"))
    step: Mapped[RoundStep]
    result: Mapped[str]
    """JSON of what it came to; ``{}`` until it ends."""
    started_at: Mapped[dt.datetime]
    ended_at: Mapped[dt.datetime | None]


class ChosenPair(Base):
    """A pair that a round asks, whoever ranked it."""

    __tablename__ = "chosen_pair"
    __table_args__ = (UniqueConstraint("round_id", "pair_id"), UniqueConstraint("round_id", "place"))
    id: Mapped[int_pk]
    round_id: Mapped[int] = mapped_column(ForeignKey("round.id"))
    pair_id: Mapped[int] = mapped_column(ForeignKey("pair.id"), index=True)
    place: Mapped[int]
    """In the order in which they are asked, from 1."""
    score: Mapped[float]
    strategy: Mapped[str] = mapped_column(String(64))


class TrainedAnnotator(Base):
    """An annotator that learnt from answers here; its weights lie in a file of the project."""

    __tablename__ = "trained_annotator"
    id: Mapped[int_pk]
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


class CollectionChoice(Base):
    """An item without partner for which people are asked to write or to pick one."""

    __tablename__ = "collection_choice"
    __table_args__ = (
        UniqueConstraint("environment", "side_id", "item_id"),
        points_to_item("side_id", "item_id"),
    )
    id: Mapped[int_pk]
    environment: Mapped[Environment]
    side_id: Mapped[int]
    item_id: Mapped[int]
    place: Mapped[int]
    score: Mapped[float]
    strategy: Mapped[str] = mapped_column(String(64))
    chosen_at: Mapped[dt.datetime]


class CollectionTerms(Base):
    """What a batch that collects was posted under."""

    __tablename__ = "collection_terms"
    batch_id: Mapped[int] = mapped_column(ForeignKey("batch.id"), primary_key=True, autoincrement=False)
    terms: Mapped[str]
    """JSON: what texts must keep to, and which answers of a review accept one."""


class CollectionItem(Base):
    """What stands at a place of a HIT that collects: an item to describe, or a description to review."""

    __tablename__ = "collection_item"
    __table_args__ = (UniqueConstraint("hit_id", "place"), points_to_item("side_id", "item_id"))
    id: Mapped[int_pk]
    hit_id: Mapped[int] = mapped_column(ForeignKey("hit.id"))
    place: Mapped[int]
    role: Mapped[CollectionRole]
    side_id: Mapped[int]
    item_id: Mapped[int]
    offered: Mapped[str | None]
    """JSON: the items that may be picked, in the order shown, or the caption of a control; None elsewhere."""
    reviewed_id: Mapped[int | None] = mapped_column(ForeignKey("collection_answer.id"), index=True)
    """The answer that is under review; None where one is collected."""


class CollectionAnswer(Base):
    """What one worker wrote, picked or said of another's text at one place, as given."""

    __tablename__ = "collection_answer"
    __table_args__ = (UniqueConstraint("assignment_id", "place"),)
    id: Mapped[int_pk]
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignment.id"))
    place: Mapped[int]
    outcome: Mapped[Outcome]
    text: Mapped[str | None]
    """What was written."""
    picked_id: Mapped[int | None]
    """The item that was picked, on the side that was offered."""
    label: Mapped[Label | None]
    """A review's answer."""
    active_ms: Mapped[int | None]
