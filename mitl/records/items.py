"""Images, captions and pairs: as read from files, and as the stages see them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mitl.records.enums import Direction, ExclusionKind, IdKind


@dataclass(frozen=True, slots=True)
class Image:
    """One image of a data set, as read."""

    external_id: str
    file: str | None = None
    """Path of the image file, absolute or relative to the project; None where there is none at hand."""
    url: str | None = None
    width: int | None = None
    height: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Caption:
    """One caption of a data set, as read; its image is its original positive."""

    external_id: str
    image_external_id: str
    text: str


@dataclass(frozen=True, slots=True)
class RetrievalSet:
    """Images and captions of one data set, both in tie order, every caption's image among the images."""

    name: str
    kind: str
    """Which reader made it: ``scenes``, ``coco``, ``flickr30k`` or ``table``."""
    id_kind: IdKind
    images: tuple[Image, ...]
    captions: tuple[Caption, ...]


@dataclass(frozen=True, slots=True)
class Rating:
    """A CxC human rating of one image-caption pair, by external ids; score from 0 to 5."""

    image_external_id: str
    caption_external_id: str
    score: float
    sampling_method: str


@dataclass(frozen=True, slots=True)
class Exclusion:
    """One entry of an exclusion list, by external ids; the fields that ``kind`` does not need are None."""

    kind: ExclusionKind
    image_external_id: str | None
    caption_external_id: str | None
    reason: str
    source: str


@dataclass(frozen=True, slots=True)
class ImageItem:
    """An image as a stage sees it."""

    id: int
    external_id: str
    path: Path | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class CaptionItem:
    """A caption as a stage sees it."""

    id: int
    external_id: str
    image_id: int
    text: str


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """An image and a caption; asked once whichever direction found it."""

    image_id: int
    caption_id: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """One annotator's proposal of one pair in one direction."""

    pair: Pair
    annotator: str
    direction: Direction
    rank: int
    similarity: float
