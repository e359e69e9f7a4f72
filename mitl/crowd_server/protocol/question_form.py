"""QuestionForm XML: questions with their fields, as a structure that a page renders."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import ClassVar, TypeAlias
from xml.etree.ElementTree import Element

from mitl.crowd_server.protocol import content as form_content
from mitl.crowd_server.protocol import turk_xml
from mitl.crowd_server.protocol.content import Content, Formatted, LinkedPicture, Text

MAX_TEXT = 20_000
"""The longest free text that is taken, in characters; a form may set less."""
_INT = 2**31 - 1
_STYLES = {
    "radiobutton": "radio",
    "dropdown": "dropdown",
    "checkbox": "checkbox",
    "list": "checkbox",
    "combobox": "checkbox",
    "multichooser": "checkbox",
}
"""How a selection is shown. MTurk's styles are suggestions; those for several choices become checkboxes."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression that the browser checks a text with; MTurk too left this to the browser."""

    regex: str
    message: str
    flags: str


NUMBER = Pattern(
    r"^\s*[+-]?([0-9]{1,15}([.][0-9]{0,15})?|[.][0-9]{1,15})\s*$", "Please write a number, such as 2.5.", ""
)
"""What is taken where a form asks for a number; of this one the server knows too."""


@dataclass(frozen=True, slots=True)
class FreeText:
    """A field for text, with what may be entered."""

    kind: ClassVar[str] = "text"
    lines: int = 1
    default: str = ""
    shortest: int = 0
    longest: int = MAX_TEXT
    """Both in characters, white space included."""
    numeric: bool = False
    lowest: int | None = None
    highest: int | None = None
    patterns: tuple[Pattern, ...] = ()

    @property
    def patterns_json(self) -> str:
        """The patterns as the page's script reads them; empty where any text will do."""
        patterns = [*self.patterns, *([NUMBER] if self.numeric else [])]
        return json.dumps([asdict(pattern) for pattern in patterns]) if patterns else ""


@dataclass(frozen=True, slots=True)
class FormOption:
    """One of the choices of a selection."""

    identifier: str
    content: Content

    @property
    def plain(self) -> str:
        """The option without pictures and looks, for a list that can show nothing else."""
        match self.content:
            case LinkedPicture(alt=alt):
                return alt or self.identifier
            case Formatted(html=html):
                return html.striptags() or self.identifier
            case Text(text=text):
                return text or self.identifier
            case _:
                return self.identifier


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice among options; ``style`` is radio, dropdown or checkbox."""

    kind: ClassVar[str] = "selection"
    style: str
    fewest: int
    most: int
    options: tuple[FormOption, ...]
    other: FreeText | None
    """A field for an answer that is not among the options."""


Field: TypeAlias = FreeText | Selection


def read_field(element: Element) -> Field:
    """The field of an AnswerSpecification."""
    fields = turk_xml.children(element, ("FreeTextAnswer", "SelectionAnswer"))
    if len(fields) != 1:
        raise turk_xml.refusal("AnswerSpecification must hold one FreeTextAnswer or one SelectionAnswer.")
    answer = fields[0]
    return _free_text(answer) if turk_xml.name(answer) == "FreeTextAnswer" else _selection(answer)


def _free_text(element: Element) -> FreeText:
    parts = turk_xml.fields(element, (), ("Constraints", "DefaultText", "NumberOfLinesSuggestion"))
    field = _constraints(parts["Constraints"]) if "Constraints" in parts else FreeText()
    if "NumberOfLinesSuggestion" in parts:
        field = replace(field, lines=min(turk_xml.integer(parts["NumberOfLinesSuggestion"], 1, _INT), 30))
    if "DefaultText" in parts:
        default = turk_xml.text(parts["DefaultText"], required=False)
        field = replace(field, default=default[: field.longest])
    return field


def _constraints(element: Element) -> FreeText:
    """A field of which only the constraints are set."""
    numeric, lowest, highest, shortest, longest = False, None, None, 0, MAX_TEXT
    patterns: list[Pattern] = []
    for child in turk_xml.children(element, ("IsNumeric", "Length", "AnswerFormatRegex")):
        turk_xml.text(child, required=False)
        if turk_xml.name(child) == "IsNumeric":
            turk_xml.known_attributes(child, ("minValue", "maxValue"))
            numeric = True
            lowest = turk_xml.attribute(child, "minValue", -_INT - 1, _INT)
            highest = turk_xml.attribute(child, "maxValue", -_INT - 1, _INT)
        elif turk_xml.name(child) == "Length":
            turk_xml.known_attributes(child, ("minLength", "maxLength"))
            shortest = turk_xml.attribute(child, "minLength", 0, MAX_TEXT) or 0
            longest = min(turk_xml.attribute(child, "maxLength", 1, _INT) or MAX_TEXT, MAX_TEXT)
        else:
            patterns.append(_pattern(child))
    if shortest > longest or (lowest is not None and highest is not None and lowest > highest):
        raise turk_xml.refusal("Constraints set a lower bound above the upper one.")
    return FreeText(1, "", shortest, longest, numeric, lowest, highest, tuple(patterns))


def _pattern(element: Element) -> Pattern:
    turk_xml.known_attributes(element, ("regex", "errorText", "flags"))
    regex, flags = element.get("regex"), element.get("flags", "")
    if not regex:
        raise turk_xml.refusal("AnswerFormatRegex lacks the attribute regex.")
    if flags not in ("", "i"):
        raise turk_xml.refusal(f"flags of AnswerFormatRegex is {flags[:40]!r}, but may only be 'i'.")
    return Pattern(regex, element.get("errorText") or "Invalid input supplied.", flags)


def _selection(element: Element) -> Selection:
    parts = turk_xml.fields(
        element, ("Selections",), ("MinSelectionCount", "MaxSelectionCount", "StyleSuggestion")
    )
    options, other = _options(parts["Selections"])
    style = _style(parts.get("StyleSuggestion"))
    count = len(options) + (other is not None)
    # The reference gives 1 as the default, and says of the styles for several choices that this element
    # restricts them: without it they are unrestricted.
    most = count if style == "checkbox" else 1
    if "MaxSelectionCount" in parts:
        most = turk_xml.integer(parts["MaxSelectionCount"], 1, count)
    fewest = min(1, most)
    if "MinSelectionCount" in parts:
        fewest = turk_xml.integer(parts["MinSelectionCount"], 0, count)
    if fewest > most:
        raise turk_xml.refusal("MinSelectionCount is above MaxSelectionCount.")
    if style != "checkbox" and most > 1:
        style = "checkbox"
    elif style == "checkbox" and most == 1:
        style = "radio"
    return Selection(style, fewest, most, options, other)


def _style(element: Element | None) -> str:
    if element is None:
        return "radio"
    style = turk_xml.text(element)
    if style not in _STYLES:
        raise turk_xml.refusal(f"StyleSuggestion is {style[:40]!r}, but must be one of {', '.join(_STYLES)}.")
    return _STYLES[style]


def _options(element: Element) -> tuple[tuple[FormOption, ...], FreeText | None]:
    options: list[FormOption] = []
    other: FreeText | None = None
    for child in turk_xml.children(element, ("Selection", "OtherSelection")):
        if turk_xml.name(child) == "Selection":
            options.append(_option(child))
        elif other is not None:
            raise turk_xml.refusal("Selections holds OtherSelection twice.")
        else:
            other = _free_text(child)
    if not options:
        raise turk_xml.refusal("Selections holds no Selection.")
    turk_xml.unique("SelectionIdentifier", [option.identifier for option in options])
    return tuple(options), other


def _option(element: Element) -> FormOption:
    kinds = ("Text", "FormattedContent", "Binary")
    parts = turk_xml.fields(element, ("SelectionIdentifier",), kinds)
    contents = [parts[kind] for kind in kinds if kind in parts]
    if len(contents) != 1:
        raise turk_xml.refusal("A Selection must hold exactly one of Text, FormattedContent and Binary.")
    return FormOption(turk_xml.text(parts["SelectionIdentifier"]), form_content.read_one(contents[0]))


VERSIONS = ("2017-11-06", "2005-10-01")


@dataclass(frozen=True, slots=True)
class FormQuestion:
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
    questions: tuple[FormQuestion, ...]

    @property
    def image_origins(self) -> list[str]:
        """Where its images lie, in order."""
        origins = set(form_content.origins(self.overview))
        for question in self.questions:
            origins |= form_content.origins(question.content)
            if isinstance(question.field, Selection):
                origins |= form_content.origins(tuple(option.content for option in question.field.options))
        return sorted(origins)


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
    questions: list[FormQuestion] = []
    for child in turk_xml.children(root, ("Overview", "Question")):
        if turk_xml.name(child) == "Overview":
            overview += form_content.read(child)
        else:
            questions.append(_question(child))
    if not questions:
        raise turk_xml.refusal("The QuestionForm has no Question.")
    turk_xml.unique("QuestionIdentifier", [question.identifier for question in questions])
    return QuestionForm(overview, tuple(questions))


def _question(element: Element) -> FormQuestion:
    parts = turk_xml.fields(
        element,
        ("QuestionIdentifier", "QuestionContent", "AnswerSpecification"),
        ("DisplayName", "IsRequired"),
    )
    field = read_field(parts["AnswerSpecification"])
    required = "IsRequired" in parts and _boolean(parts["IsRequired"])
    return FormQuestion(
        identifier=turk_xml.text(parts["QuestionIdentifier"]),
        name=turk_xml.text(parts["DisplayName"], required=False) if "DisplayName" in parts else "",
        # A least length demands an answer, as MTurk's reference says.
        required=required or (isinstance(field, FreeText) and field.shortest > 0),
        content=form_content.read(parts["QuestionContent"]),
        field=field,
    )


def _boolean(element: Element) -> bool:
    value = turk_xml.text(element)
    if value not in ("true", "false", "1", "0"):
        raise turk_xml.refusal(f"{turk_xml.name(element)} is {value[:40]!r}, but must be true or false.")
    return value in ("true", "1")
