"""Machine annotators, their runs, and the pairs that they proposed."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, UniqueConstraint, false, text
from sqlalchemy.orm import Mapped, mapped_column

from mitl.db.base import int_pk
from mitl.db.models.base import Base
from mitl.records import AnnotatorKind, Direction

_UNPROPOSED = text("NOT proposed")
"""Controls and past work: few beside those that were proposed."""


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
    __table_args__ = (
        UniqueConstraint("image_id", "caption_id"),
        Index("ix_pair_unproposed", "id", sqlite_where=_UNPROPOSED, postgresql_where=_UNPROPOSED),
    )
    id: Mapped[int_pk]
    image_id: Mapped[int] = mapped_column(ForeignKey("image.id"))
    caption_id: Mapped[int] = mapped_column(ForeignKey("caption.id"), index=True)
    proposed: Mapped[bool] = mapped_column(server_default=false())
    """Whether any annotator proposed it in any run; to find that out takes a look at every proposal."""


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
