"""QuestionFormAnswers XML: a submitted form's fields written as MTurk writes them, and read back."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from xml.etree.ElementTree import Element, ParseError
from xml.sax.saxutils import escape

import defusedxml.ElementTree
from defusedxml import DefusedXmlException

from mitl.errors import AnswerError

ANSWERS_NAMESPACE = (
    "http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/2005-10-01/QuestionFormAnswers.xsd"
)

MAX_ANSWER_BYTES = 1_000_000
"""Far above any honest answer; a page of twenty pairs answers in about 10,000."""


_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r"))
_PLAIN = "[ !-%'-;=?-~]*"
"""Text in which nothing is escaped and nothing could be markup."""
_FIELD = re.compile(
    f"<Answer><QuestionIdentifier>({_PLAIN})</QuestionIdentifier><FreeText>({_PLAIN})</FreeText></Answer>"
)
_DOCUMENT = re.compile(
    '(?:<\\?xml version="1\\.0" encoding="(?:ASCII|UTF-8)"\\?>)?'
    f'<QuestionFormAnswers xmlns="{re.escape(ANSWERS_NAMESPACE)}">'
    f"(?:{_FIELD.pattern.replace('(', '(?:')})*"
    "</QuestionFormAnswers>"
)
"""The form in which MTurk and our server write fields, where no character needs escaping."""


def answers_xml(fields: Iterable[tuple[str, str]]) -> str:
    """QuestionFormAnswers XML of (name, value) fields, in their order: ASCII with character references.

    A character that XML 1.0 forbids becomes U+FFFD; everything else comes back as it was.
    """
    answers = "".join(
        f"<Answer><QuestionIdentifier>{xml_ascii(name)}</QuestionIdentifier>"
        f"<FreeText>{xml_ascii(value)}</FreeText></Answer>"
        for name, value in fields
    )
    return (
        '<?xml version="1.0" encoding="ASCII"?>'
        f'<QuestionFormAnswers xmlns="{ANSWERS_NAMESPACE}">{answers}</QuestionFormAnswers>'
    )


def answer_fields(xml: str | bytes) -> list[tuple[str, str]]:
    """The (name, value) fields of QuestionFormAnswers XML, in their order, repeated names included.

    An answer by selection or upload gives one field for each of its values, an answer without a value an
    empty one.

    Raises:
        AnswerError: this is not well-formed QuestionFormAnswers XML, declares a document type or entities, or
            has over a million bytes.
    """
    if isinstance(xml, str) and len(xml) <= MAX_ANSWER_BYTES and _DOCUMENT.fullmatch(xml):
        # Most documents are in this form to the letter, and need no parser to be read exactly as one would.
        return [(name.strip(), value) for name, value in _FIELD.findall(xml)]
    root = _parse(xml)
    if _local_name(root) != "QuestionFormAnswers":
        raise AnswerError(
            f"the answer's root is {_local_name(root)[:80]!r}, but should be 'QuestionFormAnswers'"
        )
    fields: list[tuple[str, str]] = []
    for answer in root:
        if _local_name(answer) != "Answer":
            continue
        name = ""
        values = []
        for child in answer:
            text = "".join(child.itertext()) if len(child) else child.text or ""
            if _local_name(child) == "QuestionIdentifier":
                name = text.strip()
            else:
                values.append(text)
        fields.extend((name, value) for value in values or [""])
    return fields


def _parse(xml: str | bytes) -> Element:
    try:
        data = xml.encode() if isinstance(xml, str) else xml
        if len(data) > MAX_ANSWER_BYTES:
            raise AnswerError(
                f"the answer has {len(data):,} bytes, but at most {MAX_ANSWER_BYTES:,} are read"
            )
        # A text has lost its original encoding, so its declaration no longer counts: it is handed on as text.
        source = xml.lstrip("\ufeff \t\r\n") if isinstance(xml, str) else xml.lstrip(b" \t\r\n")
        root: Element = defusedxml.ElementTree.fromstring(source, forbid_dtd=True)
    except DefusedXmlException as error:
        raise AnswerError("the answer declares a document type or entities, as no answer does") from error
    except (ParseError, ValueError, LookupError) as error:
        raise AnswerError(f"the answer is not well-formed XML: {error}") from error
    return root


def _local_name(element: Element) -> str:
    return _without_namespace(str(element.tag))


@lru_cache(maxsize=64)
def _without_namespace(tag: str) -> str:
    return tag.rpartition("}")[2]


def xml_ascii(text: str) -> str:
    """Text as it stands within an element of such XML: escaped, ASCII with character references."""
    # A bare carriage return would be read back as a newline.
    references = escape(xml_safe(text), {"\r": "&#13;"})
    return references.encode("ascii", "xmlcharrefreplace").decode("ascii")


def xml_safe(text: str) -> str:
    """The text with U+FFFD for what XML 1.0 forbids: controls, lone surrogates, U+FFFE and U+FFFF."""
    return text if _is_xml_safe(text) else _FORBIDDEN.sub("\ufffd", text)


def _is_xml_safe(text: str) -> bool:
    """Whether nothing in a text is forbidden; on a whole page an eighth of the expression's time."""
    try:
        encoded = text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    controls_gone = encoded.translate(None, _CONTROLS)
    return len(controls_gone) == len(encoded) and "\ufffe" not in text and "\uffff" not in text
