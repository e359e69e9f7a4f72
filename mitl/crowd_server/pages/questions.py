"""The question of a HIT: checked when it is posted, read when its page is shown, its answers in a form's own terms.

The fields of a QuestionForm's page carry places instead of the requester's identifiers, and are kept as they were sent.
Whoever reads the answers by the API gets them as MTurk wrote them, with the form's identifiers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from xml.etree.ElementTree import Element

import jinja2
from markupsafe import Markup
from sqlalchemy import Connection

from mitl.addresses import is_secure
from mitl.crowd_server.pages.templates import PAGES, template_environment
from mitl.crowd_server.protocol import answers as form_answers
from mitl.crowd_server.protocol import html_page, question_form, turk_xml
from mitl.crowd_server.protocol.errors import invalid
from mitl.crowd_server.protocol.question_form import QuestionForm
from mitl.crowd_server.store import hits
from mitl.protocol.answer_xml import answer_fields

_BASE = "http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/"
_HTML = f"{{{_BASE}2011-11-11/HTMLQuestion.xsd}}"
_EXTERNAL = f"{{{_BASE}2006-07-14/ExternalQuestion.xsd}}"


@dataclass(frozen=True, slots=True)
class ShownQuestion:
    """What a worker's frame shows: a page of HTML, or the address of one elsewhere."""

    html: str | None
    url: str | None
    frame_height: int


class ShownQuestions:
    """What the frames of HITs show, read once for the people who do the same HIT: a HIT's question never changes."""

    most = 200
    """HITs kept; a page has 60,000 characters."""

    def __init__(self) -> None:
        self._by_hit: dict[int, ShownQuestion] = {}

    def of(self, connection: Connection, hit_id: int) -> ShownQuestion:
        """The question of the HIT of this row."""
        question = self._by_hit.get(hit_id)
        if question is None:
            question = read(hits.question(connection, hit_id))
            if len(self._by_hit) >= self.most:
                self._by_hit.clear()
            self._by_hit[hit_id] = question
        return question


def check(xml: str, sources: html_page.AllowedSources) -> None:
    """Raise the API's error for a question that is too long, malformed, or that no worker could answer here."""
    question = read(xml)
    if question.url is not None and not is_secure(question.url):
        raise invalid("Question", "ExternalURL must be an https address of a host, without spaces")
    unfit = html_page.why_unfit(question.html, sources) if question.html is not None else None
    if unfit is not None:
        raise invalid("Question", unfit)


@turk_xml.reading("Question")
def read(xml: str) -> ShownQuestion:
    """The question of this XML."""
    root = turk_xml.parse_any("Question", xml)
    if root.tag == f"{_HTML}HTMLQuestion":
        html = root.findtext(f"{_HTML}HTMLContent") or ""
        if not html.strip():
            raise turk_xml.refusal("HTMLQuestion has no HTMLContent.")
        return ShownQuestion(html, None, _height(root.findtext(f"{_HTML}FrameHeight")))
    if root.tag == f"{_EXTERNAL}ExternalQuestion":
        url = (root.findtext(f"{_EXTERNAL}ExternalURL") or "").strip()
        return ShownQuestion(None, url, _height(root.findtext(f"{_EXTERNAL}FrameHeight")))
    if _is_form(root):
        return ShownQuestion(form_html(question_form.parse(xml, "Question")), None, 0)
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


def _height(text: str | None) -> int:
    """FrameHeight in pixels; 0 means as high as the window."""
    if text is None or not text.strip().isascii() or not text.strip().isdigit():
        raise turk_xml.refusal("FrameHeight is missing or not a number.")
    return min(int(text.strip()[:6]), 20_000)


STYLES = ("style.css", "qualification.css")


def form_html(form: QuestionForm) -> str:
    """The form as a page that stands alone, bound to its assignment as a page written for MTurk is, and drafted so."""
    return form_template().render(form=form, answers=form_answers.blank(form), styles=_styles())


def answer_xml(form: QuestionForm, sent: str) -> str:
    """The QuestionFormAnswers of a form, from those of the page that ``form_html`` makes."""
    return form_answers.xml(form_answers.read(form, answer_fields(sent)))


@cache
def form_template() -> jinja2.Template:
    """Of the page that a form becomes."""
    return template_environment().get_template("form_hit.html.j2")


@cache
def _styles() -> Markup:
    """The server's own style sheets: a HIT's page may load none."""
    return Markup("\n").join(Markup((PAGES / name).read_text(encoding="utf-8")) for name in STYLES)  # noqa: S704
