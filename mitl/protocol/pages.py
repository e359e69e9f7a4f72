"""What a page of a HIT holds for both parties: marks to fill in, and forms, links and frames as sent without scripts.

Two bare attributes mark what binds a page to an assignment, so that a crowd server can fill it in without
running scripts: ``data-mitl-submit`` on the form, whose ``action`` is where answers go, and
``data-mitl-assignment`` on the hidden input, whose ``value`` is the assignment's id. ``bind_submission``
fills both. Without it the page's own script does the same from the query string (``assignmentId``,
``turkSubmitTo``), as MTurk passes them. A third, ``data-mitl-instructions``, is on the open ``details`` of the
instructions, which ``fold_instructions`` closes for whoever has read them. A ``fieldset`` with ``data-when="label no"``
holds what is asked where the place's field ``label`` says ``no``, or another of the values that follow it.

A page in a frame speaks with its parent by ``postMessage``, only to the origin that served the page itself:
it says ``{type: "mitl-ready"}`` until it is heard, ``{type: "mitl-draft", fields: [[name, value], ...]}`` at every
change, and ``{type: "mitl-options", options: [[name, on], ...]}`` when somebody sets one; it takes back one
``{type: "mitl-restore", fields: [[name, value], ...] or null, options: [[name, on], ...]}``.
"""

from __future__ import annotations

import html as html_lib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from html.parser import HTMLParser

_FORM = re.compile(r"<form\b[^<>]*\bdata-mitl-submit\b[^<>]*>")
_ASSIGNMENT = re.compile(r"<input\b[^<>]*\bdata-mitl-assignment\b[^<>]*>")
_INSTRUCTIONS = re.compile(r"<details open data-mitl-instructions>(.*?)</details>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FormControl:
    """One input of a form that could be sent."""

    kind: str
    """hidden, radio, checkbox, text, textarea, …; each option of a list that takes several is a checkbox."""
    name: str
    value: str
    checked: bool
    when: str = ""
    """As ``data-when`` says it; empty where there is no condition."""


@dataclass(slots=True)
class Form:
    """A form with its controls in document order."""

    action: str
    method: str
    controls: list[FormControl] = field(default_factory=list)

    def sent(self, fill: Callable[[FormControl], str | None] | None = None) -> list[tuple[str, str]]:
        """The (name, value) fields that a browser would send.

        Args:
            fill: the value to send for a control, or None to leave it out; by default what the page itself
                set.
        """
        chosen = [(control, (fill or _as_given)(control)) for control in self.controls]
        return [(control.name, value) for control, value in chosen if value is not None]


@dataclass(slots=True)
class WorkerPage:
    """What a worker can act on."""

    forms: list[Form] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    frames: list[str] = field(default_factory=list)


def parse_page(html: str) -> WorkerPage:
    """The page's forms, links and frames, addresses as written."""
    parser = _Parser()
    parser.feed(html)
    parser.close()
    return parser.page


def bind_submission(html: str, submit_url: str, assignment_id: str) -> str:
    """The page with its form posting to ``submit_url`` for ``assignment_id``; unchanged without the marks."""
    html = _FORM.sub(_with_attribute("action", submit_url), html, count=1)
    return _ASSIGNMENT.sub(_with_attribute("value", assignment_id), html, count=1)


def fold_instructions(html: str, read: str) -> str:
    """The page with its instructions closed if ``read``, another page, has the same but for numbers; else unchanged."""
    shown, known = _INSTRUCTIONS.search(html), _INSTRUCTIONS.search(read)
    if shown is None or known is None or re.sub(r"\d+", "", shown[1]) != re.sub(r"\d+", "", known[1]):
        return html
    return html.replace("<details open data-mitl-instructions>", "<details data-mitl-instructions>", 1)


def _as_given(control: FormControl) -> str | None:
    if control.kind in ("radio", "checkbox") and not control.checked:
        return None
    return control.value


def _with_attribute(name: str, value: str) -> Callable[[re.Match[str]], str]:
    old = re.compile(rf"""(?<=\s){name}\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+)""")
    new = f'{name}="{html_lib.escape(value)}"'

    def rewrite(tag: re.Match[str]) -> str:
        return old.sub(lambda _: new, tag[0], count=1)

    return rewrite


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.page = WorkerPage()
        self._form: Form | None = None
        self._list: str | None = None
        self._when: list[str] = []
        """Of each open fieldset."""
        self._unvalued: dict[str, str | None] | None = None
        """An option that sends its text, which is still to come."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "input":
            if self._form is not None:
                self._control(dict(attrs))
        elif tag == "textarea":
            self._control({**dict(attrs), "type": tag, "value": ""})
        elif tag == "select":
            attributes = dict(attrs)
            self._list = (
                attributes.get("name") if "multiple" in attributes and "disabled" not in attributes else None
            )
        elif tag == "option":
            self._option(dict(attrs))
        elif tag == "fieldset":
            self._when.append(dict(attrs).get("data-when") or "")
        elif tag == "form":
            attributes = dict(attrs)
            self._form = Form(attributes.get("action") or "", (attributes.get("method") or "get").lower())
            self.page.forms.append(self._form)
        elif tag == "a":
            self._address(self.page.links, dict(attrs).get("href"))
        elif tag == "iframe":
            self._address(self.page.frames, dict(attrs).get("src"))
        elif tag == "button" and self._form is not None:
            attributes = dict(attrs)
            if attributes.get("name") and (attributes.get("type") or "submit") == "submit":
                self._control({**attributes, "type": "hidden"})

    def handle_data(self, data: str) -> None:
        if self._unvalued is not None:
            attributes, self._unvalued = self._unvalued, None
            self._option({**attributes, "value": " ".join(data.split())})

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        elif tag == "select":
            self._list = None
        elif tag == "fieldset" and self._when:
            self._when.pop()

    def _option(self, given: dict[str, str | None]) -> None:
        if "value" not in given:
            self._unvalued = given
        elif self._list is not None:
            chosen: dict[str, str | None] = {"checked": ""} if "selected" in given else {}
            self._control({**given, **chosen, "type": "checkbox", "name": self._list})

    def _control(self, given: dict[str, str | None]) -> None:
        name, kind = given.get("name"), (given.get("type") or "text").lower()
        if (
            not name
            or "disabled" in given
            or self._form is None
            or kind in ("submit", "button", "reset", "image")
        ):
            return
        default = "on" if kind in ("radio", "checkbox") else ""
        value = given.get("value")
        when = next(filter(None, reversed(self._when)), "")
        self._form.controls.append(
            FormControl(kind, name, default if value is None else value, "checked" in given, when)
        )

    @staticmethod
    def _address(addresses: list[str], address: str | None) -> None:
        if address:
            addresses.append(address)
