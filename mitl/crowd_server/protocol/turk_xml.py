"""Reading the XML of requests strictly: no document type, no unknown element, no stray text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from xml.etree.ElementTree import Element, ParseError

import defusedxml.ElementTree
from defusedxml import DefusedXmlException

from mitl.crowd_server.protocol.errors import TurkError, out_of_range, turk

MAX_BYTES = 65_535
_SCHEMAS = "http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/"
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


def refusal(details: str) -> TurkError:
    """The API's error for XML that is malformed or not of its schema; ``reading`` adds of which parameter."""
    return turk("XMLParseError", details)


def parse(parameter: str, xml: str, root: str, versions: Collection[str]) -> Element:
    """The root element of a parameter's XML.

    Args:
        versions: the dates of the schema that are read.

    Raises:
        TurkError: the XML is too long, malformed, declares a document type, or is of another schema.
    """
    element = parse_any(parameter, xml)
    namespaces = [f"{_SCHEMAS}{version}/{root}.xsd" for version in versions]
    if element.tag not in [f"{{{namespace}}}{root}" for namespace in namespaces]:
        raise refusal(f"It must be a {root} of {' or '.join(namespaces)}, not {str(element.tag)[:200]}.")
    return element


def parse_any(parameter: str, xml: str) -> Element:
    """The root element of a parameter's XML, of whatever schema; TurkError as ``parse``."""
    size = len(xml.encode())
    if size > MAX_BYTES:
        raise out_of_range(parameter, f"{size} bytes long", f"at most {MAX_BYTES}")
    try:
        root: Element = defusedxml.ElementTree.fromstring(xml.lstrip("\ufeff \t\r\n"), forbid_dtd=True)
    except DefusedXmlException as error:
        raise refusal("It declares a document type or entities, which are not read.") from error
    except (ParseError, ValueError, LookupError) as error:
        raise refusal(f"It is not well-formed: {error}.") from error
    return root


@contextmanager
def reading(parameter: str) -> Iterator[None]:
    """Refusals of XML within the block say which parameter they are about."""
    try:
        yield
    except TurkError as error:
        if error.code is None or not error.code.endswith("ParseError"):
            raise
        raise TurkError(
            error.code, f"There was an error parsing the XML of {parameter}. {error.message}"
        ) from error


def name(element: Element) -> str:
    """An element's name without its namespace."""
    return str(element.tag).rpartition("}")[2]


def children(element: Element, allowed: Collection[str]) -> list[Element]:
    """The elements within one; TurkError where one is not ``allowed`` there or text stands between them."""
    space = str(element.tag).rpartition("}")[0]
    for child in element:
        if str(child.tag).rpartition("}")[0] != space or name(child) not in allowed:
            raise refusal(
                f"{name(element)} may hold {', '.join(allowed)} on this server, not {name(child)[:80]}."
            )
    if (element.text or "").strip() or any((child.tail or "").strip() for child in element):
        raise refusal(f"{name(element)} holds text where only elements may stand.")
    return list(element)


def fields(element: Element, required: Collection[str], optional: Collection[str] = ()) -> dict[str, Element]:
    """The elements within one by their names, each at most once."""
    parts: dict[str, Element] = {}
    for child in children(element, [*required, *optional]):
        if name(child) in parts:
            raise refusal(f"{name(element)} holds {name(child)} twice.")
        parts[name(child)] = child
    for wanted in required:
        if wanted not in parts:
            raise refusal(f"{name(element)} lacks {wanted}.")
    return parts


def text(element: Element, *, required: bool = True) -> str:
    """The text of an element that holds nothing else, without the space around it."""
    if len(element):
        raise refusal(f"{name(element)} may hold text alone.")
    value = (element.text or "").strip()
    if required and not value:
        raise refusal(f"{name(element)} is empty.")
    return value


def integer(element: Element, low: int, high: int) -> int:
    """The number that an element holds, between two bounds."""
    return number(name(element), text(element), low, high)


def number(what: str, value: str, low: int, high: int) -> int:
    """A number between two bounds, from the text of an element or an attribute."""
    if not _INTEGER.fullmatch(value) or not low <= int(value) <= high:
        raise refusal(f"{what} is {value[:40]!r}, but must be a whole number from {low} to {high}.")
    return int(value)


def attribute(element: Element, wanted: str, low: int, high: int) -> int | None:
    """The number of an attribute; None where it is absent."""
    value = element.get(wanted)
    return None if value is None else number(f"{wanted} of {name(element)}", value.strip(), low, high)


def known_attributes(element: Element, allowed: Collection[str]) -> None:
    """TurkError where an element has an attribute that this server does not read."""
    for given in element.keys():  # noqa: SIM118 - iterating an Element gives its children
        if given not in allowed:
            raise refusal(f"{name(element)} has the unknown attribute {given[:80]}.")


def unique(what: str, identifiers: list[str]) -> None:
    """TurkError where an identifier stands twice."""
    if len(set(identifiers)) < len(identifiers):
        twice = next(name for name in identifiers if identifiers.count(name) > 1)
        raise refusal(f"The {what} {twice[:80]} stands twice.")
