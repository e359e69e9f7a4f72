"""QuestionForm and AnswerKey XML for tests of qualifications."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from xml.sax.saxutils import escape

import httpx
from crowd_kit import Worker

SCHEMAS = "http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/"


NEW = {"Name": "Colours", "Description": "Sees <colours>.", "QualificationTypeStatus": "Active"}


def made(client: Any, **changes: Any) -> str:
    """The id of a new type."""
    own: str = client.create_qualification_type(**NEW | changes)["QualificationType"]["QualificationTypeId"]
    return own


def ask(worker: Worker, type_id: str) -> httpx.Response:
    """Press the button that asks for a qualification; the page that follows."""
    return worker.post(f"/w/qualifications/{type_id}/request")


def form(*questions: str, overview: str = "", version: str = "2017-11-06") -> str:
    """A QuestionForm."""
    head = f"<Overview>{overview}</Overview>" if overview else ""
    return (
        f'<QuestionForm xmlns="{SCHEMAS}{version}/QuestionForm.xsd">{head}{"".join(questions)}</QuestionForm>'
    )


def question(identifier: str, answer: str, *, required: bool = True, content: str = "") -> str:
    """A Question around an answer specification."""
    return (
        f"<Question><QuestionIdentifier>{escape(identifier)}</QuestionIdentifier>"
        f"<DisplayName>About {escape(identifier)}</DisplayName>"
        f"<IsRequired>{'true' if required else 'false'}</IsRequired>"
        f"<QuestionContent>{content or '<Text>Which one?</Text>'}</QuestionContent>"
        f"<AnswerSpecification>{answer}</AnswerSpecification></Question>"
    )


def free(constraints: str = "", rest: str = "") -> str:
    """A FreeTextAnswer."""
    inner = f"<Constraints>{constraints}</Constraints>" if constraints else ""
    return f"<FreeTextAnswer>{inner}{rest}</FreeTextAnswer>"


def choice(*options: str, style: str = "radiobutton", least: int = 0, most: int = 0, other: str = "") -> str:
    """A SelectionAnswer; each option's text is its identifier."""
    counts = f"<MinSelectionCount>{least}</MinSelectionCount>" if least else ""
    counts += f"<MaxSelectionCount>{most}</MaxSelectionCount>" if most else ""
    made = "".join(
        f"<Selection><SelectionIdentifier>{escape(option)}</SelectionIdentifier>"
        f"<Text>{escape(option)}</Text></Selection>"
        for option in options
    )
    return (
        f"<SelectionAnswer>{counts}<StyleSuggestion>{style}</StyleSuggestion>"
        f"<Selections>{made}{other}</Selections></SelectionAnswer>"
    )


def key(
    scores: Mapping[str, Iterable[tuple[Iterable[str], int]]], mapping: str = "", default: int = 0
) -> str:
    """An AnswerKey: for each question the sets of options and what each counts."""
    made = ""
    for identifier, options in scores.items():
        made += f"<Question><QuestionIdentifier>{escape(identifier)}</QuestionIdentifier>"
        for chosen, score in options:
            named = "".join(f"<SelectionIdentifier>{escape(one)}</SelectionIdentifier>" for one in chosen)
            made += f"<AnswerOption>{named}<AnswerScore>{score}</AnswerScore></AnswerOption>"
        made += f"<DefaultScore>{default}</DefaultScore></Question>" if default else "</Question>"
    if mapping:
        mapping = f"<QualificationValueMapping>{mapping}</QualificationValueMapping>"
    return f'<AnswerKey xmlns="{SCHEMAS}2005-10-01/AnswerKey.xsd">{made}{mapping}</AnswerKey>'


TWO = form(
    question("colour", choice("red", "green", "blue")),
    question("shapes", choice("round", "square", "flat", style="checkbox")),
    overview="<Title>Colours</Title><Text>Look &lt;well&gt;.</Text><List><ListItem>one</ListItem></List>",
)
TWO_KEY = key(
    {"colour": [(["red"], 5)], "shapes": [(["round", "flat"], 5), (["round"], 2)]},
    "<PercentageMapping><MaximumSummedScore>10</MaximumSummedScore></PercentageMapping>",
)
"""100 for red, round and flat."""
