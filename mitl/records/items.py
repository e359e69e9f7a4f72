"""Items of any kind; images, captions and pairs, as read from files and as the stages see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from mitl.records.enums import Direction, ExclusionKind, IdKind, PartKind
from mitl.records.forms import IMAGES, SET_FORMS, SetForm
from mitl.records.results import several


def counted(sides: tuple[str, str], n_left: int, n_right: int) -> str:
    """``90 documents, 28 queries``."""
    numbers = zip((n_left, n_right), sides, SET_FORMS[sides].nouns, strict=True)
    return ", ".join(several(*number) for number in numbers)


@dataclass(frozen=True, slots=True)
class Part:
    """One part of an item: a text, or a picture, sound or video by its file or address."""

    kind: PartKind
    text: str | None = None
    """The text itself; of a picture that is an item of the other side too, the id of that item."""
    file: str | None = None
    """Its path, absolute or relative to the project."""
    url: str | None = None
    width: int | None = None
    height: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a side; a composed query has several parts, such as a picture and a text."""

    external_id: str
    parts: tuple[Part, ...]
    group: str | None = None
    """The item that it was made for, by its id on the side ``Side.made_for``: a caption's image."""


@dataclass(frozen=True, slots=True)
class Side:
    """The items, in tie order, that search or are searched together."""

    name: str
    items: tuple[Item, ...]
    made_for: str | None = None
    """The side of their groups, which comes before this one."""


@dataclass(frozen=True, slots=True)
class ItemSet:
    """A data set of any kind: images and captions, two sides of texts, one side that searches in itself."""

    name: str
    kind: str
    """Which reader made it."""
    id_kind: IdKind
    sides: tuple[Side, ...]
    directions: Mapping[str, tuple[str, str]]
    """Name → the side that asks, and the one that is searched; both may be the same."""


@dataclass(frozen=True, slots=True)
class Image:
    """One image of a data set, as read; a sound or a video in a set of those."""

    external_id: str
    file: str | None = None
    """Path of its file, absolute or relative to the project; None where there is none at hand."""
    url: str | None = None
    width: int | None = None
    height: int | None = None
    sha256: str | None = None
    texts: tuple[str, ...] = ()
    """Of a document, which has these in place of a picture: its title, if it has one, and its text."""


@dataclass(frozen=True, slots=True)
class Caption:
    """One caption of a data set, as read; its image is its original positive."""

    external_id: str
    image_external_id: str
    text: str
    reference: str | None = None
    """Of a composed query, the image that its text changes, by external id; its original positive is another one."""


@dataclass(frozen=True, slots=True)
class RetrievalSet:
    """Images and captions of one data set, both in tie order, every caption's image among the images.

    Of texts that search in texts, documents stand in the place of images and queries in that of captions; sounds,
    videos and composed queries likewise.
    """

    name: str
    kind: str
    """Which reader made it: ``scenes``, ``coco``, ``flickr30k`` or ``table``."""
    id_kind: IdKind
    images: tuple[Image, ...]
    captions: tuple[Caption, ...]
    sides: tuple[str, str] = IMAGES.sides
    """What the images' and the captions' side are called."""
    positives: tuple[tuple[str, str], ...] = ()
    """Original positives beside each caption's own image: (image's id, caption's id)."""

    @property
    def form(self) -> SetForm:
        """What searches in what."""
        return SET_FORMS[self.sides]

    def with_positives(self, pairs: Iterable[tuple[str, str]]) -> RetrievalSet:
        """The same with further original positives."""
        return replace(self, positives=tuple(pairs))

    @property
    def item_set(self) -> ItemSet:
        """The same as items of two sides."""
        media = {
            i.external_id: Part(self.form.left_part, None, i.file, i.url, i.width, i.height, i.sha256)
            for i in self.images
        }
        images = (
            Item(
                i.external_id,
                tuple(Part(PartKind.TEXT, text) for text in i.texts) or (media[i.external_id],),
            )
            for i in self.images
        )
        captions = (
            Item(
                c.external_id,
                (
                    Part(PartKind.TEXT, c.text),
                    *(() if c.reference is None else (replace(media[c.reference], text=c.reference),)),
                ),
                c.image_external_id,
            )
            for c in self.captions
        )
        left, right = self.sides
        sides = (Side(left, tuple(images)), Side(right, tuple(captions), made_for=left))
        return ItemSet(self.name, self.kind, self.id_kind, sides, self.form.searches)


@dataclass(frozen=True, slots=True)
class Rating:
    """A CxC human rating of one image-caption pair, by external ids; score from 0 to 5."""

    image_external_id: str
    caption_external_id: str
    score: float
    sampling_method: str


@dataclass(frozen=True, slots=True)
class RatingFile:
    """A file that ratings were read from."""

    name: str
    sha256: str
    """Of its bytes."""
    ratings: int
    """Its ratings of pairs of the data set."""


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
    texts: tuple[str, ...] = ()
    """Of a document, in place of a picture."""
    kind: PartKind = PartKind.IMAGE
    """What its file is: a picture, a sound or a video; of a document, a text."""


@dataclass(frozen=True, slots=True)
class CaptionItem:
    """A caption as a stage sees it."""

    id: int
    external_id: str
    image_id: int
    text: str
    reference_id: int | None = None
    """Of a composed query, the image that its text changes."""


class Pair(NamedTuple):
    """An image and a caption; asked once whichever direction found it. A tuple, for it is the key of many tables."""

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
