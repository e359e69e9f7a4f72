"""Whether a HIT may be posted: what stands on its page, the page itself, and the requester API's limits.

botocore checks types and little more: a question that is too long, a reward of ``1.234`` or an annotation of 300
characters would be refused by the server, one HIT at a time, after others were paid for.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from xml.etree import ElementTree

from mitl.errors import CrowdError, PackingError, TemplateError
from mitl.hits.markup import check_markup
from mitl.hits.packing import CANDIDATES_PER_HIT
from mitl.hits.rendering import HTML_QUESTION_NAMESPACE, check_size
from mitl.protocol.answer_xml import xml_safe
from mitl.protocol.pages import parse_page
from mitl.records import HitItem, Label, PackedHit, Pair, PairRole

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
_CONTENT = f"{{{HTML_QUESTION_NAMESPACE}}}HTMLContent"


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
        PackingError: a place or a pair occurs twice, the controls are not one of each kind, or there is nothing to
            ask.
    """
    places = sorted(item.place for item in items)
    if places != list(range(1, len(items) + 1)):
        raise PackingError(f"HIT {name} has the places {places}, but they must count from 1; {_DEFECT}")
    twice = [pair for pair, count in Counter(item.pair for item in items).items() if count > 1]
    if twice:
        raise PackingError(f"HIT {name} shows {_words(twice[0])} twice; {_DEFECT}")
    roles = Counter(item.role for item in items)
    golds = (roles[PairRole.GOLD_POSITIVE], roles[PairRole.GOLD_NEGATIVE])
    if golds != (1, 1):
        raise PackingError(
            f"HIT {name} has {golds[0]} positive and {golds[1]} negative controls, but one of each is needed; {_DEFECT}"
        )
    asked = len(items) - 2
    if not 1 <= asked <= CANDIDATES_PER_HIT:
        raise PackingError(f"HIT {name} asks {asked} pairs, but 1 to {CANDIDATES_PER_HIT} fit; {_DEFECT}")


def check_batch(pages: Iterable[PackedHit]) -> None:
    """No pair is a candidate on two HITs of a new batch.

    Raises:
        PackingError: one is.
    """
    seen: dict[Pair, int] = {}
    for page in pages:
        for item in page.items:
            if item.role is PairRole.CANDIDATE:
                before = seen.setdefault(item.pair, page.number)
                if before != page.number:
                    raise PackingError(
                        f"{_words(item.pair)} is asked on HITs {before} and {page.number}; {_DEFECT}"
                    )


def check_question(xml: str, html: str) -> int:
    """The question's size in bytes, once it is known that the server will read this page from it.

    Raises:
        TemplateError: it is too large, no well-formed XML, or carries another page.
    """
    size = check_size(xml)
    try:
        found = ElementTree.fromstring(xml).findtext(_CONTENT)  # noqa: S314 - we made it, without a DTD
    except ElementTree.ParseError as error:
        raise TemplateError(f"the question is no well-formed XML: {error}; {_WORDING}") from error
    if found is None or (found != html and found != _as_read(html)):
        raise TemplateError(f"the question does not carry its page unchanged; {_WORDING}")
    return size


def _as_read(html: str) -> str:
    """A page as XML gives it back: every line end as one, what XML cannot carry replaced."""
    return xml_safe(html).replace("\r\n", "\n").replace("\r", "\n")


class PageChecker:
    """Checks pages as a browser would read them; pages that differ in captions and pictures only are read once."""

    def __init__(self) -> None:
        self._known: set[bytes] = set()

    def check(
        self,
        html: str,
        places: Sequence[int],
        shown: Iterable[str],
        template: str,
        *,
        kind: str = "label",
        choices: Sequence[str] = tuple(Label),
    ) -> None:
        """Hold a page against what a worker and the answers' reader need.

        Args:
            kind, choices: the field that each place must offer, and its values.
            shown: the texts that differ from page to page, as escaped on this one, in the order in which they stand.

        Raises:
            TemplateError: the page is no well-formed HTML, its form lacks the marks that bind it to an assignment, or
                a pair cannot be answered.
        """
        frame = _frame(html, shown)
        if frame in self._known:
            return
        check_markup(html, template)
        _check_form(html, places, template, kind, choices)
        self._known.add(frame)


def _frame(html: str, shown: Iterable[str]) -> bytes:
    """Stands for a page without the texts that are its own; what is escaped cannot change what surrounds it."""
    parts = []
    at = 0
    for text in shown:
        start = html.find(text, at)
        if start >= 0:
            parts.append(html[at:start])
            at = start + len(text)
    return hashlib.sha256("\0".join((*parts, html[at:])).encode(errors="surrogatepass")).digest()


def _check_form(html: str, places: Sequence[int], template: str, kind: str, choices: Sequence[str]) -> None:
    for mark in ("data-mitl-submit", "data-mitl-assignment"):
        if len(re.findall(rf"<[^<>]*\b{mark}\b", html)) != 1:
            raise TemplateError(
                f"HIT template {template!r} must have the mark {mark} on exactly one tag; {_WORDING}"
            )
    forms = [form for form in parse_page(html).forms if any(c.name == "assignmentId" for c in form.controls)]
    if len(forms) != 1 or forms[0].method != "post":
        raise TemplateError(
            f"HIT template {template!r} must have one form, sent by post, with the field assignmentId; {_WORDING}"
        )
    offered: dict[str, set[str]] = {}
    for control in forms[0].controls:
        offered.setdefault(control.name, set()).add(control.value)
    for place in places:
        name = f"p{place:02d}_{kind}"
        missing = {str(choice) for choice in choices} - offered.get(name, set())
        if missing:
            what = "pair" if kind == "label" else "search"
            raise TemplateError(
                f"HIT template {template!r} offers no field {name} with {', '.join(sorted(missing))}, so {what} "
                f"{place} could not be answered; {_WORDING}"
            )


_WORDING = "mend the wording's page.html.j2"
_DEFECT = "this is a defect of mitl, please report it"


def _words(pair: Pair) -> str:
    return f"the pair of image {pair.image_id} and caption {pair.caption_id}"
