"""What is searched and asked about: data sets with their items, who proposed which pairs, and the declarative base."""

import datetime as dt

from sqlalchemy import (
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    MetaData,
    String,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, declared_attr, mapped_column

from mitl.db.base import NAMING, TYPES, int_pk
from mitl.records import AnnotatorKind, Direction, ExclusionKind, IdKind, OriginalVerdict, Outcome, PartKind

_UNPROPOSED = text("NOT proposed")
"""Controls and past work: few beside those that were proposed."""


class Base(DeclarativeBase):
    """The pipeline's metadata."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = TYPES


class Numbered(Base):
    """A table whose rows are numbered in the order in which they came."""

    __abstract__ = True
    id: Mapped[int_pk]


class AnsweredPlace(Numbered):
    """What one worker answered at one place of a page, as given; a kind of campaign adds what it asks."""

    __abstract__ = True
    assignment_id: Mapped[int] = mapped_column(ForeignKey("assignment.id"))
    place: Mapped[int]
    outcome: Mapped[Outcome]
    active_ms: Mapped[int | None]
    """As the page measured it; None where it measured nothing."""

    @declared_attr.directive
    def __table_args__(cls) -> tuple[UniqueConstraint, ...]:  # noqa: N805 - it is asked of the class
        return (UniqueConstraint("assignment_id", "place"),)


def points_to_item(side_id: str, item_id: str) -> ForeignKeyConstraint:
    """That these two columns name an item."""
    return ForeignKeyConstraint([side_id, item_id], ["item.side_id", "item.id"])


class Dataset(Numbered):
    """One retrieval set."""

    __tablename__ = "dataset"
    name: Mapped[str] = mapped_column(unique=True)
    kind: Mapped[str]
    """Which reader made it."""
    id_kind: Mapped[IdKind]
    content_sha256: Mapped[str]
    """Over ids and texts: whether files named again hold the same data set."""


class SideRow(Numbered):
    """One of the sides of a data set that search in each other: ``image`` and ``caption`` of one such as COCO."""

    __tablename__ = "side"
    __table_args__ = (UniqueConstraint("dataset_id", "name"),)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("dataset.id"))
    name: Mapped[str] = mapped_column(String(32))


class DirectionOfSearch(Numbered):
    """Which side asks and which side answers; both may be the same."""

    __tablename__ = "direction"
    __table_args__ = (UniqueConstraint("dataset_id", "name"),)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("dataset.id"))
    name: Mapped[str] = mapped_column(String(32))
    """``i2t`` and ``t2i`` of images and captions."""
    query_side_id: Mapped[int] = mapped_column(ForeignKey("side.id"))
    gallery_side_id: Mapped[int] = mapped_column(ForeignKey("side.id"))


class ItemRow(Base):
    """One item of a side; its parts say what it is."""

    __tablename__ = "item"
    __table_args__ = (
        UniqueConstraint("side_id", "external_id"),
        points_to_item("group_side_id", "group_id"),
        Index("ix_item_group", "group_side_id", "group_id"),
    )
    side_id: Mapped[int] = mapped_column(ForeignKey("side.id"), primary_key=True, autoincrement=False)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """Within its side, in tie order; of another data set's side of that name they go on."""
    external_id: Mapped[str]
    group_side_id: Mapped[int | None]
    group_id: Mapped[int | None]
    """The item that it was made for: a caption's image, its original positive."""


class PartRow(Base):
    """What an item is made of, in order: one text or one picture, or several of any kind."""

    __tablename__ = "part"
    __table_args__ = (points_to_item("side_id", "item_id"),)
    side_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    item_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    place: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    """From 1."""
    kind: Mapped[PartKind]
    text: Mapped[str | None]
    file: Mapped[str | None]
    """Its path, absolute or relative to the project."""
    url: Mapped[str | None]
    width: Mapped[int | None]
    height: Mapped[int | None]
    sha256: Mapped[str | None]


class RatingRow(Numbered):
    """A CxC rating of two items, of two sides or of one."""

    __tablename__ = "rating"
    __table_args__ = (
        UniqueConstraint("left_id", "right_id", "left_side_id", "right_side_id"),
        points_to_item("left_side_id", "left_id"),
        points_to_item("right_side_id", "right_id"),
    )
    left_side_id: Mapped[int]
    left_id: Mapped[int]
    right_side_id: Mapped[int]
    right_id: Mapped[int]
    score: Mapped[float]
    """0 to 5."""
    sampling_method: Mapped[str]


class RatingSource(Numbered):
    """A file that ratings were read from."""

    __tablename__ = "rating_source"
    sha256: Mapped[str] = mapped_column(unique=True)
    """Of its bytes."""
    name: Mapped[str]
    ratings: Mapped[int]
    """Those of pairs of the data set; files may rate the same pairs."""


class ExclusionEntry(Numbered):
    """One entry of an exclusion list: a pair, or an item alone on its side of pairs, the other being null."""

    __tablename__ = "exclusion"
    __table_args__ = (points_to_item("left_side_id", "left_id"), points_to_item("right_side_id", "right_id"))
    kind: Mapped[ExclusionKind]
    left_side_id: Mapped[int | None]
    left_id: Mapped[int | None]
    right_side_id: Mapped[int | None]
    right_id: Mapped[int | None]
    reason: Mapped[str]
    source: Mapped[str]


class OriginalReview(Numbered):
    """What a person said of an item that people or CxC had refused for the one that it was made for."""

    __tablename__ = "original_verdict"
    __table_args__ = (UniqueConstraint("side_id", "item_id"), points_to_item("side_id", "item_id"))
    side_id: Mapped[int]
    item_id: Mapped[int]
    verdict: Mapped[OriginalVerdict]
    at: Mapped[dt.datetime]


class StoredAnnotator(Numbered):
    """A machine annotator that has proposed pairs here."""

    __tablename__ = "annotator"
    name: Mapped[str] = mapped_column(unique=True)
    kind: Mapped[AnnotatorKind]
    config: Mapped[str]
    """JSON."""
    fingerprint: Mapped[str]
    """Hash of weights and configuration, as of its latest run."""


class Run(Numbered):
    """One propose configuration; its rankings lie in ``runs/<hash>/``."""

    __tablename__ = "run"
    hash: Mapped[str] = mapped_column(unique=True)
    config: Mapped[str]
    """JSON, everything that decides the rankings and the sample."""


class Query(Numbered):
    """An item that searched in a run; the other side is the gallery."""

    __tablename__ = "query"
    __table_args__ = (UniqueConstraint("run_id", "direction", "item_id"),)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"))
    direction: Mapped[Direction]
    item_id: Mapped[int]
    """On the side that asks in this direction."""


class PairRow(Numbered):
    """Two items that somebody asks about, an image and a caption or any others: a candidate or a gold control."""

    __tablename__ = "pair"
    __table_args__ = (
        UniqueConstraint("left_id", "right_id", "left_side_id", "right_side_id"),
        points_to_item("left_side_id", "left_id"),
        points_to_item("right_side_id", "right_id"),
        Index("ix_pair_unproposed", "id", sqlite_where=_UNPROPOSED),
    )
    left_side_id: Mapped[int]
    left_id: Mapped[int]
    """The image, where there is one."""
    right_side_id: Mapped[int]
    right_id: Mapped[int] = mapped_column(index=True)
    proposed: Mapped[bool] = mapped_column(server_default=false())
    """Whether any annotator proposed it in any run; to find that out takes a look at every proposal."""


class ProposalRow(Numbered):
    """One annotator found the pair in one direction."""

    __tablename__ = "proposal"
    __table_args__ = (UniqueConstraint("run_id", "pair_id", "annotator_id", "direction"),)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"))
    pair_id: Mapped[int] = mapped_column(ForeignKey("pair.id"), index=True)
    annotator_id: Mapped[int] = mapped_column(ForeignKey("annotator.id"))
    direction: Mapped[Direction]
    rank: Mapped[int]
    """From 1."""
    similarity: Mapped[float]
