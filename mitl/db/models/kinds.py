"""What stands on the pages of other kinds of campaign than pairs, and what was answered there.

Rankings have comparisons and preferences, similarity has samples, items and ratings, texts have chosen items, places
and answers.
"""

import datetime as dt

from sqlalchemy import ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from mitl.db.models.items import AnsweredPlace, Base, Numbered, points_to_item
from mitl.records import CollectionRole, ComparisonRole, Direction, Environment, Label, Preference
from mitl.records.similarity import Likeness, SamplingMethod, SimilarityRole


class RankingSystem(Numbered):
    """One of the ranking systems that a batch compares."""

    __tablename__ = "ranking_system"
    __table_args__ = (UniqueConstraint("batch_id", "name"),)
    batch_id: Mapped[int] = mapped_column(ForeignKey("batch.id"))
    name: Mapped[str]
    origin: Mapped[str]
    """Where its rankings come from: ``run <hash>``, or a file's name and hash."""


class ComparisonRow(Numbered):
    """Two rankings of one query at one place of a HIT; the crowd server never learns whose they are."""

    __tablename__ = "comparison"
    __table_args__ = (UniqueConstraint("hit_id", "place"),)
    hit_id: Mapped[int] = mapped_column(ForeignKey("hit.id"))
    place: Mapped[int]
    role: Mapped[ComparisonRole]
    direction: Mapped[Direction]
    query_id: Mapped[int]
    """On the side that asks in this direction."""
    left_system: Mapped[str]
    """Its name."""
    right_system: Mapped[str]
    left_items: Mapped[str]
    """JSON: items of the side that is searched, best first."""
    right_items: Mapped[str]
    expected: Mapped[Preference | None]
    """The right answer of a control."""


class PreferenceAnswer(AnsweredPlace):
    """One worker's answer on one comparison, as given."""

    __tablename__ = "preference"
    answer: Mapped[Preference | None]
    """None unless answered."""
    text: Mapped[str | None]
    """The worker's own words."""


class SimilaritySample(Numbered):
    """A pair that was sampled to be rated, once for each order, method and encoder that chose it."""

    __tablename__ = "similarity_sample"
    __table_args__ = (UniqueConstraint("pair_id", "swapped", "method", "encoder"),)
    pair_id: Mapped[int] = mapped_column(ForeignKey("pair.id"))
    swapped: Mapped[bool]
    """Whether the right item chose the left one; two items of one side are one pair, the smaller number left."""
    method: Mapped[SamplingMethod]
    encoder: Mapped[str] = mapped_column(String(200))
    """Whose similarity chose it; empty where none did."""
    rank: Mapped[int | None]
    similarity: Mapped[float | None]


class SimilarityItem(Numbered):
    """Which pair stands at which place of a HIT; the crowd server never learns it."""

    __tablename__ = "similarity_item"
    __table_args__ = (UniqueConstraint("hit_id", "place"),)
    hit_id: Mapped[int] = mapped_column(ForeignKey("hit.id"))
    place: Mapped[int]
    task: Mapped[Likeness]
    role: Mapped[SimilarityRole]
    pair_id: Mapped[int] = mapped_column(ForeignKey("pair.id"), index=True)
    swapped: Mapped[bool]
    """Whether its right item is shown first."""


class SimilarityAnswer(AnsweredPlace):
    """One worker's rating at one place, as given."""

    __tablename__ = "similarity_answer"
    score: Mapped[float | None]
    """0 to 5; None unless answered."""
    text: Mapped[str | None]
    """The worker's own words."""


class CollectionChoice(Numbered):
    """An item without partner for which people are asked to write or to pick one."""

    __tablename__ = "collection_choice"
    __table_args__ = (
        UniqueConstraint("environment", "side_id", "item_id"),
        points_to_item("side_id", "item_id"),
    )
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


class CollectionItem(Numbered):
    """What stands at a place of a HIT that collects: an item to describe, or a description to review."""

    __tablename__ = "collection_item"
    __table_args__ = (UniqueConstraint("hit_id", "place"), points_to_item("side_id", "item_id"))
    hit_id: Mapped[int] = mapped_column(ForeignKey("hit.id"))
    place: Mapped[int]
    role: Mapped[CollectionRole]
    side_id: Mapped[int]
    item_id: Mapped[int]
    offered: Mapped[str | None]
    """JSON: the items that may be picked, in the order shown, or the caption of a control; None elsewhere."""
    reviewed_id: Mapped[int | None] = mapped_column(ForeignKey("collection_answer.id"), index=True)
    """The answer that is under review; None where one is collected."""


class CollectionAnswer(AnsweredPlace):
    """What one worker wrote, picked or said of another's text at one place, as given."""

    __tablename__ = "collection_answer"
    text: Mapped[str | None]
    """What was written."""
    picked_id: Mapped[int | None]
    """The item that was picked, on the side that was offered."""
    label: Mapped[Label | None]
    """A review's answer."""
