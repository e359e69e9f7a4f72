"""Graded similarity: which pairs were sampled, where they stand on pages, how people rated them."""

from sqlalchemy import ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from mitl.db.base import int_pk
from mitl.db.models.items import Base
from mitl.records import Outcome
from mitl.records.similarity import Likeness, SamplingMethod, SimilarityRole


class SimilaritySample(Base):
    """A pair that was sampled to be rated, once for each order, method and encoder that chose it."""

    __tablename__ = "similarity_sample"
    __table_args__ = (UniqueConstraint("pair_id", "swapped", "method", "encoder"),)
    id: Mapped[int_pk]
    pair_id: Mapped[int] = mapped_column(ForeignKey("pair.id"))
    swapped: Mapped[bool]
    """Whether the right item chose the left one; two items of one side are one pair, the smaller number left."""
    method: Mapped[SamplingMethod]
    encoder: Mapped[str] = mapped_column(String(200))
    """Whose similarity chose it; empty where none did."""
    rank: Mapped[int | None]
    similarity: Mapped[float | None]


class SimilarityItem(Base):
    """Which pair stands at which place of a HIT; the crowd server never learns it."""

    __tablename__ = "similarity_item"
    __table_args__ = (UniqueConstraint("hit_id", "place"),)
    id: Mapped[int_pk]
    hit_id: Mapped[int] = mapped_column(ForeignKey("hit.id"))
    place: Mapped[int]
    task: Mapped[Likeness]
    role: Mapped[SimilarityRole]
    pair_id: Mapped[int] = mapped_column(ForeignKey("pair.id"), index=True)
    swapped: Mapped[bool]
    """Whether its right item is shown first."""


class SimilarityAnswer(Base):
    """One worker's rating at one place, as given."""

    __tablename__ = "similarity_answer"
    __table_args__ = (UniqueConstraint("assignment_id", "place"),)
    id: Mapped[int_pk]
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignment.id"))
    place: Mapped[int]
    outcome: Mapped[Outcome]
    score: Mapped[float | None]
    """0 to 5; None unless answered."""
    text: Mapped[str | None]
    """The worker's own words."""
    active_ms: Mapped[int | None]
