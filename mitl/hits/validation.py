"""Whether a HIT may be posted: what stands on its page, the page itself, and the requester API's limits.

botocore checks types and little more: a question that is too long, a reward of ``1.234`` or an annotation of 300
characters would be refused by the server, one HIT at a time, after others were paid for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from xml.parsers import expat

from mitl.errors import CrowdError, PackingError, TemplateError
from mitl.hits.packing import CANDIDATES_PER_HIT, words
from mitl.hits.rendering import (
    HTML_QUESTION_NAMESPACE,
    MAX_QUESTION_BYTES,
    check_size,
    question_of,
    question_xml,
)
from mitl.protocol.answer_xml import xml_safe
from mitl.protocol.pages import bind_submission, parse_page
from mitl.records import HitItem, Label, Page, Pair, PairRole
from mitl.records.audits import ANSWERS_EACH
from mitl.records.questions import Question

_TEXTS = {
    "Title": (1, 128),
    "Description": (1, 2000),
    "Keywords": (0, 1000),
    "RequesterAnnotation": (0, 255),
    "UniqueRequestToken": (1, 64),
}
"""The least and most characters of a field."""
_NUMBERS = {
    "LifetimeInSeconds": (30, 31_536_000),
    "AssignmentDurationInSeconds": (30, 31_536_000),
    "AutoApprovalDelayInSeconds": (0, 2_592_000),
    "MaxAssignments": (1, 1_000_000_000),
}
_CURRENCY = re.compile(r"[0-9]+(\.[0-9]{2})?")
_CONTENT = f"{HTML_QUESTION_NAMESPACE} HTMLContent"


def check_request(operation: str, parameters: Mapping[str, object]) -> None:
    """Hold a request's fields against the limits that the requester API documents.

    Raises:
        CrowdError: a field is too short, too long, out of range, or no amount of money.
    """
    for name, (least, most) in _TEXTS.items():
        if name in parameters and not least <= len(str(parameters[name])) <= most:
            raise CrowdError(
                f"{operation} cannot be sent: {name} has {len(str(parameters[name])):,} characters, but {least} to "
                f"{most:,} are allowed"
            )
    for name, (low, high) in _NUMBERS.items():
        value = parameters.get(name)
        if isinstance(value, int) and not low <= value <= high:
            raise CrowdError(
                f"{operation} cannot be sent: {name} is {value:,}, but {low:,} to {high:,} are allowed"
            )
    reward = parameters.get("Reward")
    if reward is not None and not _CURRENCY.fullmatch(str(reward)):
        raise CrowdError(f"{operation} cannot be sent: Reward is {reward!r}, but an amount as 1.00 is wanted")


def check_page(items: Sequence[HitItem], name: str) -> None:
    """Hold what stands on a HIT against the packing rules, whoever packed it.

    Raises:
        PackingError: a pair occurs twice, the controls are not one of each kind, or there is nothing to ask.
    """
    twice = [pair for pair, count in Counter(item.pair for item in items).items() if count > 1]
    if twice:
        raise PackingError(f"HIT {name} shows {words(twice[0])} twice; {DEFECT}")
    roles = Counter(item.role for item in items)
    golds = (roles[PairRole.GOLD_POSITIVE], roles[PairRole.GOLD_NEGATIVE])
    if golds != (1, 1):
        raise PackingError(
            f"HIT {name} has {golds[0]} positive and {golds[1]} negative controls, but one of each is needed; {DEFECT}"
        )
    asked = len(items) - 2
    if not 1 <= asked <= CANDIDATES_PER_HIT:
        raise PackingError(f"HIT {name} asks {asked} pairs, but 1 to {CANDIDATES_PER_HIT} fit; {DEFECT}")


def check_batch(pages: Iterable[Page[HitItem]]) -> None:
    """No pair is a candidate on two HITs of a new batch, or asked for an audit on more than wants it.

    Raises:
        PackingError: one is.
    """
    seen: dict[Pair, int] = {}
    audited: Counter[Pair] = Counter()
    for page in pages:
        for item in page.items:
            if item.role is PairRole.AUDIT:
                audited[item.pair] += 1
                if audited[item.pair] > ANSWERS_EACH:
                    raise PackingError(
                        f"{words(item.pair)} is an audit question on {audited[item.pair]} HITs, but {ANSWERS_EACH} "
                        f"answers are the most that is wanted; {DEFECT}"
                    )
            if item.role is PairRole.CANDIDATE:
                before = seen.setdefault(item.pair, page.number)
                if before != page.number:
                    raise PackingError(
                        f"{words(item.pair)} is asked on HITs {before} and {page.number}; {DEFECT}"
                    )


def check_question(xml: str, html: str) -> int:
    """The question's size in bytes, once it is known that the server will read this page from it.

    Raises:
        TemplateError: it is too large, no well-formed XML, or carries another page.
    """
    size = check_size(xml)
    texts: list[str] = []
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text, parser.buffer_size = True, MAX_QUESTION_BYTES + 1  # or each line comes by itself
    parser.StartElementHandler = lambda name, _: setattr(
        parser, "CharacterDataHandler", texts.append if name == _CONTENT else None
    )
    parser.EndElementHandler = lambda _: setattr(parser, "CharacterDataHandler", None)
    try:
        parser.Parse(xml, True)
    except expat.ExpatError as error:
        raise TemplateError(f"the question is not well-formed XML: {error}; {_WORDING}") from error
    read = "".join(texts)
    if read != html and read != _as_read(html):
        raise TemplateError(f"the question does not carry its page unchanged; {_WORDING}")
    return size


def _as_read(html: str) -> str:
    """A page as XML gives it back: every line end as one, what XML cannot carry replaced."""
    return xml_safe(html).replace("\r\n", "\n").replace("\r", "\n")


Field = tuple[str, Sequence[str]]
"""A field of a place's form, and the values that it must offer."""


def fields_of(questions: Sequence[Question]) -> list[Field]:
    """The fields of questions; what is measured has no values."""
    return [(question.name, () if question.measured else question.values) for question in questions]


Pieces = list[int | str]
"""A question: what many share by its number, what is its own as text."""
_NO_ROOM = -1
_AROUND = len(question_of(""))


class PageChecker:
    """Checks pages as a browser and the server read them; what pages have in common is read and kept once."""

    def __init__(self, room: int = 64 * 1024 * 1024) -> None:
        """Args: room: characters of shared parts that are kept; pages beyond are each read in full."""
        self._room = room
        self._numbers: dict[str, int] = {}
        self._parts: list[str] = []
        self._sizes: list[int] = []
        self._known: set[tuple[int, ...]] = set()
        self._latest: tuple[int, ...] = ()
        """What surrounds the texts of the last page that is known: most pages have the same."""

    def check(
        self,
        html: str,
        places: Sequence[int],
        shown: Iterable[str],
        template: str,
        fields: Sequence[Field] = (("label", tuple(Label)),),
    ) -> tuple[Pieces, int]:
        """Compare a page with what a worker, the answers' reader and the server need.

        What is escaped cannot change what surrounds it, and without ``]]>`` no text ends the question's CDATA section:
        so a page whose surroundings are known reads as they did.

        Args:
            fields: what each place must offer.
            shown: the texts that differ from page to page, as escaped on this one, in the order in which they stand.

        Returns:
            the page as a question, for :meth:`joined`, and the question's size in bytes.

        Raises:
            PackingError: the places do not count from 1, or are more than 99.
            TemplateError: the page is not well-formed HTML, its form lacks the marks that bind it to an assignment,
                a pair cannot be answered, or the question is too large or cannot carry the page.
        """
        if list(places) != list(range(1, len(places) + 1)) or len(places) > _MOST_PLACES:
            raise PackingError(
                f"its places are {list(places)}, but they must count from 1 to {_MOST_PLACES} at most; {DEFECT}"
            )
        texts = list(shown)
        if not self._reads_as_before(html, texts):
            surroundings, texts = _divided(html, texts)
            frame = tuple(map(self._number, surroundings))
            is_known, is_whole = frame in self._known, _NO_ROOM in frame or "]]>" in html
            if not is_known:
                check_markup(html, template)
                _check_form(html, template, places, fields)
            if not is_known or is_whole:
                xml = question_xml(html)
                size = check_question(xml, html)
            if not is_known and _NO_ROOM not in frame:
                self._known.add(frame)
            if is_whole:
                return [xml], size
            self._latest = frame
        frame = self._latest
        together = "".join(texts)
        if together != xml_safe(together):
            texts = list(map(xml_safe, texts))
            together = "".join(texts)
        pieces: Pieces = [frame[0]]
        for text, part in zip(texts, frame[1:], strict=True):
            pieces += text, part
        size = _AROUND + sum(map(self._sizes.__getitem__, frame)) + len(together.encode())
        if size > MAX_QUESTION_BYTES:
            check_size(self.joined(pieces))
        return pieces, size

    def joined(self, pieces: Pieces) -> str:
        """A question that was checked."""
        if isinstance(pieces[0], str):
            return pieces[0]
        texts = [self._parts[piece] if isinstance(piece, int) else piece for piece in pieces]
        return question_of("".join(texts))

    def _reads_as_before(self, html: str, texts: Sequence[str]) -> bool:
        """Whether a page is the last known one with other texts, of which none helps to end the CDATA section."""
        if len(self._latest) != len(texts) + 1 or any("]" in text for text in texts):
            return False
        at = 0
        for number, text in zip(self._latest, [*texts, ""], strict=True):
            part = self._parts[number]
            if not (html.startswith(part, at) and html.startswith(text, at + len(part))):
                return False
            at += len(part) + len(text)
        return at == len(html)

    def _number(self, part: str) -> int:
        number = self._numbers.get(part, _NO_ROOM)
        if number == _NO_ROOM and len(part) <= self._room:
            self._room -= len(part)
            number = self._numbers[part] = len(self._parts)
            self._parts.append(xml_safe(part))
            self._sizes.append(len(self._parts[-1].encode()))
        return number


def _divided(html: str, shown: Iterable[str]) -> tuple[list[str], list[str]]:
    """What surrounds the texts that are a page's own, and these texts: one fewer."""
    parts, texts = [], []
    at = 0
    for text in shown:
        start = html.find(text, at)
        if start >= 0:
            parts.append(html[at:start])
            texts.append(text)
            at = start + len(text)
    return [*parts, html[at:]], texts


def _check_form(html: str, template: str, places: Sequence[int], fields: Sequence[Field]) -> None:
    """The page has one form, which can be bound to an assignment and offers all fields at every place."""
    bound = parse_page(bind_submission(html, _TO, _ASSIGNMENT)).forms
    forms = [form for form in bound if any(c.name == "assignmentId" for c in form.controls)]
    if len(forms) != 1 or forms[0].method != "post":
        raise TemplateError(
            f"HIT template {template!r} must have one form, sent by post, with the field assignmentId; {_WORDING}"
        )
    given = [control.value for control in forms[0].controls if control.name == "assignmentId"]
    if (forms[0].action, given) != (_TO, [_ASSIGNMENT]):
        raise TemplateError(
            f"HIT template {template!r} makes a page that nobody could submit: its form needs an action and the mark "
            f"data-mitl-submit, its field assignmentId a value and the mark data-mitl-assignment; {_WORDING}"
        )
    offered: dict[str, set[str]] = {}
    for control in forms[0].controls:
        offered.setdefault(control.name, set()).add(control.value)
    for place in places:
        for field, values in fields:
            name = f"p{place:02d}_{field}"
            missing = {str(value) for value in values} - offered.get(name, set())
            if missing or name not in offered:
                choice = f" with {', '.join(sorted(missing))}" if missing else ""
                raise TemplateError(
                    f"HIT template {template!r} offers no field {name}{choice}, so place {place} could not be "
                    f"answered; {_WORDING}"
                )


_TO, _ASSIGNMENT = "/submit", "A"
"""What a page is bound to, to see that a server can."""
_WORDING = "mend the wording's page.html.j2"
DEFECT = "this is a defect of mitl, please report it"
_MOST_PLACES = 99
"""Two digits of a field's name say which place it belongs to."""


_VOID = re.compile("area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr")
_RAW = frozenset(("script", "style", "textarea", "title"))
"""Their content is text up to their own end tag."""
_OPTIONAL = re.compile("html|head|body|li|dt|dd|p|option|optgroup|thead|tbody|tfoot|tr|td|th|rt|rp")
"""HTML lets their end tags be left out."""
_TOKEN = re.compile(
    r"<!--.*?-->"
    r"|<!doctype[^<>]*>"
    r"|<(?P<end>/?)(?P<name>[a-z][a-z0-9-]*)(?P<rest>(?:\s+[^\s\"'<>/=]+(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'=<>`]+))?)*\s*)"
    r"(?P<self>/?)>"
    r"|<",
    re.IGNORECASE | re.DOTALL,
)


def check_markup(html: str, template: str) -> None:
    """Refuse a page whose tags do not match.

    Browsers mend broken pages each in its own way; a page that people are paid to read must not depend on that. A
    strict HTML5 parser would notice as much, but of an element that stays open it names the page's end, not its start.

    Raises:
        TemplateError: a tag is malformed, an end tag has no start, or an element is never closed; with its line.
    """
    opened: list[tuple[str, int]] = []
    at = 0
    while (token := _TOKEN.search(html, at)) is not None:
        at = token.end()
        name = (token["name"] or "").lower()
        if not name:
            if token[0] == "<":
                raise _broken(html, token.start(), template, "a '<' that begins no tag")
            continue
        if token["end"]:
            _close(opened, name, html, token.start(), template)
        elif not _VOID.fullmatch(name) and not token["self"]:
            opened.append((name, token.start()))
            if name in _RAW:
                end = re.compile(rf"</{name}\s*>", re.IGNORECASE).search(html, at)
                if end is None:
                    raise _broken(html, token.start(), template, f"<{name}> that is never closed")
                at = end.start()
    left = [entry for entry in opened if not _OPTIONAL.fullmatch(entry[0])]
    if left:
        raise _broken(html, left[-1][1], template, f"<{left[-1][0]}> that is never closed")


def _close(opened: list[tuple[str, int]], name: str, html: str, start: int, template: str) -> None:
    while opened and opened[-1][0] != name and _OPTIONAL.fullmatch(opened[-1][0]):
        opened.pop()
    if not opened or opened[-1][0] != name:
        inside = f" within <{opened[-1][0]}>" if opened else ""
        raise _broken(html, start, template, f"</{name}>{inside} that closes nothing")
    opened.pop()


def _broken(html: str, at: int, template: str, what: str) -> TemplateError:
    line = html.count("\n", 0, at) + 1
    begin = html.rfind("\n", 0, at) + 1
    shown = html[max(begin, at - 20) : at + 40].splitlines()[0]
    return TemplateError(
        f"HIT template {template!r} gives a page with {what}, in line {line} near {shown!r}; mend the wording"
    )
