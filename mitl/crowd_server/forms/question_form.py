"""QuestionForm XML: the questions of a qualification's test, as a structure that a page renders."""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree.ElementTree import Element

from mitl.crowd_server.forms import content as form_content
from mitl.crowd_server.forms import fields as form_fields
from mitl.crowd_server.forms import turk_xml
from mitl.crowd_server.forms.content import Content
from mitl.crowd_server.forms.fields import Field, FreeText, Selection

VERSIONS = ("2017-11-06", "2005-10-01")


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its field."""

    identifier: str
    name: str
    required: bool
    content: tuple[Content, ...]
    field: Field


@dataclass(frozen=True, slots=True)
class QuestionForm:
    """A test."""

    overview: tuple[Content, ...]
    questions: tuple[Question, ...]

    @property
    def image_origins(self) -> list[str]:
        """Where its images lie, in order."""
        found = set(form_content.origins(self.overview))
        for question in self.questions:
            found |= form_content.origins(question.content)
            if isinstance(question.field, Selection):
                found |= form_content.origins(tuple(option.content for option in question.field.options))
        return sorted(found)


def parse(xml: str, parameter: str = "Test") -> QuestionForm:
    """The form of this XML.

    Args:
        parameter: whose XML it is, for the error that it is too long.

    Raises:
        TurkError: it is over 65,535 bytes, malformed, not of the schema, or asks for what this server does not
            show (audio, video, applications, uploads).
    """
    root = turk_xml.parse(parameter, xml, "QuestionForm", VERSIONS)
    overview: tuple[Content, ...] = ()
    questions: list[Question] = []
    for child in turk_xml.children(root, ("Overview", "Question")):
        if turk_xml.name(child) == "Overview":
            overview += form_content.read(child)
        else:
            questions.append(_question(child))
    if not questions:
        raise turk_xml.refusal("The QuestionForm has no Question.")
    turk_xml.unique("QuestionIdentifier", [question.identifier for question in questions])
    return QuestionForm(overview, tuple(questions))


def _question(element: Element) -> Question:
    parts = turk_xml.fields(
        element,
        ("QuestionIdentifier", "QuestionContent", "AnswerSpecification"),
        ("DisplayName", "IsRequired"),
    )
    field = form_fields.read(parts["AnswerSpecification"])
    required = "IsRequired" in parts and _boolean(parts["IsRequired"])
    return Question(
        identifier=turk_xml.text(parts["QuestionIdentifier"]),
        name=turk_xml.text(parts["DisplayName"], required=False) if "DisplayName" in parts else "",
        # A least length demands an answer, as MTurk's reference says.
        required=required or (isinstance(field, FreeText) and field.shortest > 0),
        content=form_content.read(parts["QuestionContent"]),
        field=field,
    )


def _boolean(element: Element) -> bool:
    found = turk_xml.text(element)
    if found not in ("true", "false", "1", "0"):
        raise turk_xml.refusal(f"{turk_xml.name(element)} is {found[:40]!r}, but must be true or false.")
    return found in ("true", "1")
