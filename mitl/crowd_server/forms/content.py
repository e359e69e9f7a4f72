"""What a QuestionForm shows: titles, text, lists, pictures and formatted content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias
from xml.etree.ElementTree import Element

from markupsafe import Markup

from mitl.crowd_server.forms import turk_xml, xhtml

MAX_PIXELS = 4000


@dataclass(frozen=True, slots=True)
class Title:
    """A heading."""

    kind: ClassVar[str] = "title"
    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A block of plain text."""

    kind: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of plain texts."""

    kind: ClassVar[str] = "bullets"
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """An image elsewhere, by https; its size in pixels where the form gives one."""

    kind: ClassVar[str] = "picture"
    url: str
    alt: str
    width: int | None = None
    height: int | None = None


@dataclass(frozen=True, slots=True)
class Formatted:
    """XHTML of which only harmless elements were kept."""

    kind: ClassVar[str] = "formatted"
    html: Markup
    origins: frozenset[str]
    """Where its images lie."""


Content: TypeAlias = Title | Text | Bullets | Picture | Formatted
KINDS = ("Title", "Text", "List", "Binary", "EmbeddedBinary", "FormattedContent")


def read(element: Element) -> tuple[Content, ...]:
    """The contents of an Overview or a QuestionContent, in their order."""
    found = tuple(read_one(child) for child in turk_xml.children(element, KINDS))
    if not found:
        raise turk_xml.refusal(f"{turk_xml.name(element)} is empty.")
    return found


def read_one(element: Element) -> Content:
    """One piece of content."""
    kind = turk_xml.name(element)
    if kind == "Title":
        return Title(turk_xml.text(element))
    if kind == "Text":
        return Text(turk_xml.text(element, required=False))
    if kind == "List":
        return Bullets(
            tuple(turk_xml.text(item, required=False) for item in turk_xml.children(element, ("ListItem",)))
        )
    if kind == "FormattedContent":
        return Formatted(*xhtml.sanitized(turk_xml.text(element, required=False)))
    return _picture(element)


def origins(contents: tuple[Content, ...]) -> frozenset[str]:
    """Where the pictures of these contents lie, for the page's policy."""
    found: set[str] = set()
    for content in contents:
        if isinstance(content, Picture):
            found.add(xhtml.origin(content.url))
        elif isinstance(content, Formatted):
            found |= content.origins
    return frozenset(found)


def _picture(element: Element) -> Picture:
    embedded = turk_xml.name(element) == "EmbeddedBinary"
    mime = "EmbeddedMimeType" if embedded else "MimeType"
    size = ("Width", "Height") if embedded else ()
    parts = turk_xml.fields(element, (mime, "DataURL", "AltText", *size))
    kind = turk_xml.text(turk_xml.fields(parts[mime], ("Type",), ("SubType",))["Type"])
    if kind != "image":
        raise turk_xml.refusal(f"This server shows images in a QuestionForm, no {kind[:80]}.")
    url = turk_xml.text(parts["DataURL"])
    if not xhtml.PICTURE.fullmatch(url):
        raise turk_xml.refusal(f"DataURL is {url[:80]!r}, but must be an https address without spaces.")
    width, height = (turk_xml.integer(parts[name], 1, MAX_PIXELS) for name in size) if size else (None, None)
    return Picture(url, turk_xml.text(parts["AltText"], required=False), width, height)
