"""The question XML of a HIT: checked when it is posted, read when its page is shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element

from mitl.crowd_server.errors import invalid
from mitl.crowd_server.forms import html_page, question_form, turk_xml
from mitl.crowd_server.forms import page as form_page
from mitl.crowd_server.forms.question_form import QuestionForm

_BASE = "http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/"
_HTML = f"{{{_BASE}2011-11-11/HTMLQuestion.xsd}}"
_EXTERNAL = f"{{{_BASE}2006-07-14/ExternalQuestion.xsd}}"
_UNFIT = re.compile(r"[\x00-\x20\\<>\"\x7f]")


@dataclass(frozen=True, slots=True)
class Question:
    """What a worker's frame shows: a page of HTML, or the address of one elsewhere."""

    html: str | None
    url: str | None
    frame_height: int


def check(xml: str, sources: html_page.Sources) -> None:
    """Raise the API's error for a question that is too long, malformed, or that no worker could answer here."""
    question = read(xml)
    if question.url is not None and not _is_secure(question.url):
        raise invalid("Question", "ExternalURL must be an https address of a host, without spaces")
    unfit = html_page.why_unfit(question.html, sources) if question.html is not None else None
    if unfit is not None:
        raise invalid("Question", unfit)


def read(xml: str) -> Question:
    """The question of this XML."""
    with turk_xml.reading("Question"):
        return _read(xml)


def _read(xml: str) -> Question:
    root = turk_xml.parse_any("Question", xml)
    if root.tag == f"{_HTML}HTMLQuestion":
        html = root.findtext(f"{_HTML}HTMLContent") or ""
        if not html.strip():
            raise turk_xml.refusal("HTMLQuestion has no HTMLContent.")
        return Question(html, None, _height(root.findtext(f"{_HTML}FrameHeight")))
    if root.tag == f"{_EXTERNAL}ExternalQuestion":
        url = (root.findtext(f"{_EXTERNAL}ExternalURL") or "").strip()
        return Question(None, url, _height(root.findtext(f"{_EXTERNAL}FrameHeight")))
    if _is_form(root):
        return Question(form_page.html(question_form.parse(xml, "Question")), None, 0)
    raise turk_xml.refusal(
        f"A HIT's question must be an HTMLQuestion ({_HTML[1:-1]}), an ExternalQuestion ({_EXTERNAL[1:-1]}) or a "
        f"QuestionForm, not {str(root.tag)[:200]}.",
    )


def form_of(xml: str | None) -> QuestionForm | None:
    """The form of a HIT whose question is a QuestionForm; None for any other."""
    if xml is None or not _is_form(turk_xml.parse_any("Question", xml)):
        return None
    return question_form.parse(xml, "Question")


def _is_form(root: Element) -> bool:
    return str(root.tag).endswith("/QuestionForm.xsd}QuestionForm")


def _is_secure(url: str) -> bool:
    """Whether a browser takes this for a page on some host by https."""
    try:
        parts = urlsplit(url)
        # Reading the port raises where it is none.
        return parts.scheme == "https" and bool(parts.hostname) and parts.port != 0 and not _UNFIT.search(url)
    except ValueError:
        return False


def _height(text: str | None) -> int:
    """FrameHeight in pixels; 0 means as high as the window."""
    if text is None or not text.strip().isascii() or not text.strip().isdigit():
        raise turk_xml.refusal("FrameHeight is missing or no number.")
    return min(int(text.strip()[:6]), 20_000)
