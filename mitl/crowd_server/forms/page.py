"""A QuestionForm as the question of a HIT: shown as a page, and its answers written in the form's own terms.

The page's fields carry places instead of the requester's identifiers, and are kept as they were sent. Whoever reads
the answers by the API gets them as MTurk wrote them, with the form's identifiers.
"""

from __future__ import annotations

from functools import cache

import jinja2
from markupsafe import Markup

from mitl.crowd.answer_xml import answer_fields
from mitl.crowd_server.forms import answers as form_answers
from mitl.crowd_server.forms.answers import Answer
from mitl.crowd_server.forms.fields import FreeText
from mitl.crowd_server.forms.question_form import QuestionForm
from mitl.crowd_server.site import PAGES, template_environment

STYLES = ("style.css", "qualification.css")


def html(form: QuestionForm) -> str:
    """The form as a page that stands alone, with the marks by which a HIT's page is bound to its assignment."""
    answers = [_blank(answer) for answer in form_answers.read(form, ())]
    return _template().render(form=form, answers=answers, styles=_styles())


def answer_xml(form: QuestionForm, sent: str) -> str:
    """The QuestionFormAnswers of a form, from those of the page that ``html`` makes."""
    return form_answers.xml(form_answers.read(form, answer_fields(sent)))


def _blank(answer: Answer) -> Answer:
    """An answer not yet given, with the text that the requester put into its field."""
    field = answer.question.field
    if isinstance(field, FreeText):
        return Answer(answer.question, field.default)
    return Answer(answer.question, field.other.default if field.other else "")


@cache
def _template() -> jinja2.Template:
    return template_environment().get_template("form_hit.html.j2")


@cache
def _styles() -> Markup:
    """The server's own style sheets: a HIT's page may load none."""
    return Markup("\n").join(Markup((PAGES / name).read_text(encoding="utf-8")) for name in STYLES)  # noqa: S704
