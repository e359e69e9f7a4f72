"""Data sets: images, captions, human ratings, exclusion lists."""

from __future__ import annotations

import datetime as dt

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from mitl.db.base import int_pk
from mitl.db.models.base import Base
from mitl.records import ExclusionKind, IdKind, OriginalVerdict


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


class OriginalReview(Base):
    """What a person said of a caption that people or CxC had refused for its own image."""

    __tablename__ = "original_verdict"
    id: Mapped[int_pk]
    caption_id: Mapped[int] = mapped_column(ForeignKey("caption.id"), unique=True)
    verdict: Mapped[OriginalVerdict]
    at: Mapped[dt.datetime]
