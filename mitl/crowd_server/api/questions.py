"""The question XML of a HIT: checked when it is posted, read when its page is shown."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from defusedxml import ElementTree
from defusedxml.common import DefusedXmlException

from mitl.crowd_server.errors import invalid, out_of_range, turk

MAX_BYTES = 65_535
_BASE = "http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/"
_HTML = f"{{{_BASE}2011-11-11/HTMLQuestion.xsd}}"
_EXTERNAL = f"{{{_BASE}2006-07-14/ExternalQuestion.xsd}}"


@dataclass(frozen=True, slots=True)
class Question:
    """What a worker's frame shows: a page of HTML, or the address of one elsewhere."""

    html: str | None
    url: str | None
    frame_height: int


def check(xml: str) -> None:
    """Raise the API's error for a question that is too long, malformed or of a kind not offered here."""
    size = len(xml.encode())
    if size > MAX_BYTES:
        raise out_of_range("Question", f"{size} bytes long", f"at most {MAX_BYTES}")
    question = read(xml)
    if question.url is not None and urlsplit(question.url).scheme != "https":
        raise invalid("Question", "ExternalURL must be an https address")


def read(xml: str) -> Question:
    """The question of this XML."""
    try:
        root = ElementTree.fromstring(xml, forbid_dtd=True)
    except (ElementTree.ParseError, DefusedXmlException, ValueError) as error:
        raise turk(
            "XMLParseError", f"There was an error parsing the XML question or answer data: {error}."
        ) from error
    if root.tag == f"{_HTML}HTMLQuestion":
        html = root.findtext(f"{_HTML}HTMLContent") or ""
        if not html.strip():
            raise turk("XMLParseError", "HTMLQuestion has no HTMLContent.")
        return Question(html, None, _height(root.findtext(f"{_HTML}FrameHeight")))
    if root.tag == f"{_EXTERNAL}ExternalQuestion":
        url = (root.findtext(f"{_EXTERNAL}ExternalURL") or "").strip()
        return Question(None, url, _height(root.findtext(f"{_EXTERNAL}FrameHeight")))
    raise turk(
        "XMLParseError",
        "This server shows HTMLQuestion (2011-11-11) and ExternalQuestion (2006-07-14), not "
        f"{root.tag.rpartition('}')[2]}.",
    )


def _height(text: str | None) -> int:
    """FrameHeight in pixels; 0 means as high as the window."""
    if text is None or not text.strip().isascii() or not text.strip().isdigit():
        raise turk("XMLParseError", "FrameHeight is missing or no number.")
    return min(int(text.strip()[:6]), 20_000)
