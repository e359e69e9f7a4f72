"""What a QuestionForm shows: titles, text, lists, pictures, and XHTML of which only harmless parts are shown."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import ClassVar, TypeAlias
from xml.etree.ElementTree import Element, ParseError

import defusedxml.ElementTree
from defusedxml import DefusedXmlException
from markupsafe import Markup, escape

from mitl.crowd_server.protocol import turk_xml
from mitl.crowd_server.protocol.errors import TurkError, turk

PICTURE = re.compile(r"(https://[A-Za-z0-9.-]+(?::[0-9]{1,5})?)(?:[/?][!-~]*)?")
"""An https address without a user name; its first group, the origin, goes into a page's policy."""
_LINK = re.compile(r"https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?(?:[/?#][!-~]*)?")
MAX_DEPTH = 30
_TAGS = (
    "a b big blockquote br caption center cite code col colgroup dd del dfn div dl dt em font h1 h2 h3 "
    "h4 h5 h6 hr i img ins kbd li ol p pre q samp small span strike strong sub sup table tbody td "
    "tfoot th thead tr tt u ul var"
)
_VOID = frozenset({"br", "col", "hr", "img"})
_LOOKS = (
    "align bgcolor border cellpadding cellspacing char charoff class clear color compact face frame id "
    "lang noshade nowrap rules size span start style summary target title type valign "
    "{http://www.w3.org/XML/1998/namespace}lang"
)
"""How it looks is the server's business: these attributes are left out."""
_NUMBERS = frozenset({"colspan", "rowspan", "width", "height"})
_ENTITY = re.compile(r"&([A-Za-z][A-Za-z0-9]{1,30};)")


_KNOWN = frozenset(_TAGS.split())
_DROPPED = frozenset(_LOOKS.split())


def sanitized(xhtml: str) -> tuple[Markup, frozenset[str]]:
    """XHTML as it may be shown, and where its images lie.

    Raises:
        TurkError: XHTMLParseError, where it is malformed or holds an element or attribute that may not be.
    """
    source = _ENTITY.sub(_character, xhtml)
    try:
        root = defusedxml.ElementTree.fromstring(f"<div>{source}</div>", forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError) as error:
        raise _refusal(f"it is not well-formed: {error}") from error
    origins: set[str] = set()
    markup = _inside(root, origins, 0)
    return markup, frozenset(origins)


def origin(url: str) -> str:
    """Where a picture lies."""
    match = PICTURE.fullmatch(url)
    assert match is not None
    return match[1]


def _character(entity: re.Match[str]) -> str:
    """HTML's own entities, which XML does not know; those of XML stay."""
    if entity[1] in ("amp;", "lt;", "gt;", "quot;", "apos;"):
        return entity[0]
    return html.unescape(entity[0])


def _inside(element: Element, origins: set[str], depth: int) -> Markup:
    if depth > MAX_DEPTH:
        raise _refusal(f"its elements are nested more than {MAX_DEPTH} deep")
    markup = escape(element.text or "")
    for child in element:
        markup += _shown(child, origins, depth) + escape(child.tail or "")
    return markup


def _shown(element: Element, origins: set[str], depth: int) -> Markup:
    tag = str(element.tag)
    if tag not in _KNOWN:
        raise _refusal(f"the element {tag[:80]} may not stand there")
    values = _attributes(tag, element, origins)
    opening = Markup("<{}{}>").format(tag, values)
    if tag in _VOID:
        return opening
    return opening + _inside(element, origins, depth + 1) + Markup("</{}>").format(tag)


def _attributes(tag: str, element: Element, origins: set[str]) -> Markup:
    markup = Markup()
    for name, value in element.items():
        if tag == "img" and name == "src":
            if not PICTURE.fullmatch(value):
                raise _refusal("an image's src must be an https address without spaces")
            origins.add(origin(value))
        elif tag == "a" and name == "href":
            if not _LINK.fullmatch(value):
                raise _refusal("a link's href must be an http or https address without spaces")
        elif name in _NUMBERS:
            value = value.removesuffix("px")
            if not re.fullmatch("[0-9]{1,4}", value):
                continue
        elif name in _DROPPED:
            continue
        elif not (tag == "img" and name == "alt"):
            raise _refusal(f"the element {tag} may not have the attribute {name[:80]}")
        markup += Markup(' {}="{}"').format(name, value)
    if tag == "a":
        markup += Markup(' target="_blank" rel="noopener noreferrer"')
    if tag == "img" and element.get("alt") is None:
        markup += Markup(' alt=""')
    return markup


def _refusal(details: str) -> TurkError:
    return turk("XHTMLParseError", f"FormattedContent cannot be shown, because {details}.")


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
class LinkedPicture:
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


Content: TypeAlias = Title | Text | Bullets | LinkedPicture | Formatted
KINDS = ("Title", "Text", "List", "Binary", "EmbeddedBinary", "FormattedContent")


def read(element: Element) -> tuple[Content, ...]:
    """The contents of an Overview or a QuestionContent, in their order."""
    contents = tuple(read_one(child) for child in turk_xml.children(element, KINDS))
    if not contents:
        raise turk_xml.refusal(f"{turk_xml.name(element)} is empty.")
    return contents


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
        return Formatted(*sanitized(turk_xml.text(element, required=False)))
    return _picture(element)


def origins(contents: tuple[Content, ...]) -> frozenset[str]:
    """Where the pictures of these contents lie, for the page's policy."""
    those: set[str] = set()
    for content in contents:
        if isinstance(content, LinkedPicture):
            those.add(origin(content.url))
        elif isinstance(content, Formatted):
            those |= content.origins
    return frozenset(those)


def _picture(element: Element) -> LinkedPicture:
    embedded = turk_xml.name(element) == "EmbeddedBinary"
    mime = "EmbeddedMimeType" if embedded else "MimeType"
    size = ("Width", "Height") if embedded else ()
    parts = turk_xml.fields(element, (mime, "DataURL", "AltText", *size))
    kind = turk_xml.text(turk_xml.fields(parts[mime], ("Type",), ("SubType",))["Type"])
    if kind != "image":
        raise turk_xml.refusal(f"This server shows images in a QuestionForm, no {kind[:80]}.")
    url = turk_xml.text(parts["DataURL"])
    if not PICTURE.fullmatch(url):
        raise turk_xml.refusal(f"DataURL is {url[:80]!r}, but must be an https address without spaces.")
    width, height = (turk_xml.integer(parts[name], 1, MAX_PIXELS) for name in size) if size else (None, None)
    return LinkedPicture(url, turk_xml.text(parts["AltText"], required=False), width, height)
