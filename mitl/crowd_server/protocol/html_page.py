"""A requester's own HTML page: what it loads is checked when it is posted, and it is bound when it is shown.

Pages written for MTurk name Amazon's scripts and send their answers to Amazon. Here the server's own files answer for
those scripts, and every form that would send answers to MTurk sends them to this server. The stored page stays as it
was posted.
"""

from __future__ import annotations

import html as html_lib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from mitl.errors import SettingsError, UsageError
from mitl.records.results import listed

FRAME_SCRIPTS = ("frame.js", "externalHIT_v1.js", "crowd-html-elements.js")
"""The server's own files that run within a requester's page, under ``/w/static/``."""
VENDORED = "/w/vendored/"
CROWD_ELEMENTS = (
    "crowd-button",
    "crowd-checkbox",
    "crowd-classifier",
    "crowd-form",
    "crowd-image-classifier",
    "crowd-input",
    "crowd-instructions",
    "crowd-radio-button",
    "crowd-radio-group",
    "crowd-slider",
    "crowd-text-area",
)
MEDIA_TYPES = {
    ".css": "text/css",
    ".gif": "image/gif",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".otf": "font/otf",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".ttf": "font/ttf",
    ".webp": "image/webp",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
}
"""What may be vendored: file name endings and the types they are served as."""

_HOST_NAME = re.compile(
    r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*(?::\d{1,5})?", re.I
)
_MOST_NAMED = 10
_OWN = {
    "externalhit_v1.js": ("externalHIT_v1.js", ("amazonaws.com", "mturk.com")),
    "crowd-html-elements.js": ("crowd-html-elements.js", ("crowd.aws",)),
    "crowd-html-elements-without-ce-polyfill.js": ("crowd-html-elements.js", ("crowd.aws",)),
}
_CROWD_FIELDS = {*CROWD_ELEMENTS} - {"crowd-button", "crowd-form", "crowd-instructions", "crowd-radio-group"}
_LOADS = re.compile(r"<(?:script\b[^<>]*\b(?:src|module)\b|link\b|crowd-)")
_MARK = re.compile(r"<form\b[^<>]*\bdata-mitl-submit\b")
_NAME = re.compile(r"<([a-z][^\s/>]*+)", re.IGNORECASE)
_GAP = re.compile(r"[\s/]*+")
_ATTRIBUTE = re.compile(r"[^>][^\s/>=]*+", re.DOTALL)
_EQUALS = re.compile(r"\s*+=\s*+")
_BARE = re.compile(r"[^\s>]*+")
_RAW_END = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp")
}
_STYLE_IMPORT = re.compile(r"@import(?=[\s\"'])\s*+(?:url\(\s*+)?[\"']?([^\"')\s;]+)", re.IGNORECASE)
# Bounded, so that text which imports nothing is read in one pass.
_MODULE_IMPORT = re.compile(
    r"(?:^|(?<=[;}>]))[ \t]*+(?:import|export)\b(?:[^\"'`;()]{0,300}?\bfrom)?\s*+[\"']((?:https?:)?//[^\"'\s]+)[\"']",
    re.MULTILINE,
)
_TEMPLATE_END = re.compile(r"</template(?=[\s/>])", re.IGNORECASE)
_FORM_END = re.compile(r"</(form|crowd-form)(?=[\s/>])", re.IGNORECASE)
_NOSCRIPT_END = re.compile(r"</noscript(?=[\s/>])", re.IGNORECASE)
_SCRIPT_TYPE = re.compile(
    r"module|(?:text|application)/(?:x-)?(?:java|ecma)script|text/(?:javascript1\.[0-5]|jscript|livescript)",
    re.IGNORECASE,
)
_NOWHERE = re.compile(r"(?:#.*|about:blank|javascript:.*)?", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class AllowedSources:
    """Where pages may take scripts, styles and fonts from, besides themselves."""

    hosts: tuple[str, ...] = ()
    """Names of hosts, with a port where it is not 443; reached by https alone."""
    vendored: Path | None = None
    """A folder of copies, each under its address without the scheme: ``code.jquery.com/jquery-3.7.1.min.js``."""

    def answer(self, address: str) -> str | None:
        """Where a page gets this script or style from; None where nothing answers."""
        try:
            parts = urlsplit(address.strip())
        except ValueError:
            return None
        if parts.scheme not in ("", "http", "https"):
            return None
        host = parts.netloc.lower()
        ours, owners = _OWN.get(parts.path.rpartition("/")[2].lower(), ("", ()))
        if ours and (not host or any(host == owner or host.endswith(f".{owner}") for owner in owners)):
            return f"/w/static/{ours}"
        if not host:
            return None
        if self.file(host + parts.path) is not None:
            return f"{VENDORED}{host}{quote(unquote(parts.path))}"
        if host in self.hosts:
            return f"https://{host}{parts.path}{'?' + parts.query if parts.query else ''}"
        return None

    def file(self, address: str) -> Path | None:
        """The vendored copy of what has this address (without its scheme); None for all but a plain file inside."""
        names = unquote(address).split("/")
        if self.vendored is None or any(name.startswith(".") or not name or "\0" in name for name in names):
            return None
        root = self.vendored.resolve()
        try:
            path = root.joinpath(*names).resolve()
            inside = path.is_relative_to(root) and path.suffix.lower() in MEDIA_TYPES
            return path if inside and path.is_file() else None
        except (OSError, RuntimeError):  # a name longer than any file's, or links that lead round in a circle
            return None

    def policy(self, home: str, bound: str) -> tuple[str, str]:
        """What ``script-src``, and what ``style-src`` and ``font-src``, name beside the page itself.

        Args:
            home: the server's own origin, as the worker's browser knows it.
            bound: the page as ``bind`` gives it.
        """
        remote = "".join(f" https://{host}" for host in self.hosts)
        if self.vendored is not None:
            remote += f" {home}{VENDORED}"
        every = _MARK.search(bound) is None
        names = [name for name in FRAME_SCRIPTS if every or f"/w/static/{name}" in bound]
        return "".join(f" {home}/w/static/{name}" for name in names) + remote, remote


def allow(hosts: Sequence[str], vendored: Path | None, *, configured: Sequence[str] = ()) -> AllowedSources:
    """The sources of these hosts and this folder.

    Args:
        configured: more hosts, from ``mitl.toml``.

    Raises:
        SettingsError: something in ``mitl.toml`` is not a bare host name.
        UsageError: something among ``hosts`` is not.
    """
    bare = "give a bare host name, such as cdn.jsdelivr.net, without https:// and path"
    for host in configured:
        if _HOST_NAME.fullmatch(host) is None:
            raise SettingsError(f"crowd.allowed_hosts names {host!r}; {bare}")
    for host in hosts:
        if _HOST_NAME.fullmatch(host) is None:
            raise UsageError(f"--allow-host is {host!r}; {bare}")
    return AllowedSources(tuple(sorted({host.lower() for host in (*hosts, *configured)})), vendored)


@dataclass(frozen=True, slots=True)
class _Tag:
    name: str
    attributes: dict[str, str]
    start: int
    end: int
    inert: bool
    """Whether it stands where no browser with scripts makes an element of it."""
    form: dict[str, str] | None
    """The attributes of the form or crowd-form around it, which has the key ``crowd`` where it is one."""


def why_unfit(html: str, sources: AllowedSources) -> str | None:
    """Why a worker could not do this page in its frame, in one line for its requester; None where they can."""
    if _MARK.search(html) and not _loads(html):
        return None
    tags = [tag for tag in _tags(html) if not tag.inert]
    reasons = [*_unknown_elements(tags), *_blocked(html, tags, sources), *_unsendable(tags)]
    return "; ".join(reasons) or None


@lru_cache(64)  # people do the same HITs
def _loads(html: str) -> bool:
    """Whether a page may load something: most of our own do not, and thousands are posted at a time."""
    lowered = html.lower()
    return "@import" in lowered or _LOADS.search(lowered) is not None


def bind(html: str, submit_url: str, assignment_id: str, sources: AllowedSources) -> str:
    """The page as a worker's frame shows it: its answers sent to ``submit_url`` for ``assignment_id``.

    Scripts and styles that are answered here get that address. A page with this server's own marks keeps its forms,
    which are bound by those.
    """
    is_ours = _MARK.search(html) is not None
    if is_ours and not _loads(html):
        return html
    tags = list(_tags(html))
    named = any(_names_submission(tag.attributes.get("action", "")) for tag in tags if tag.name == "form")
    pieces: list[str] = []
    done = begin = 0
    for tag in tags:
        if tag.name in ("!doctype", "html", "head") and not pieces:
            begin = tag.end
        changes = _loading(tag, sources)
        if not is_ours:
            changes |= _sending(tag, submit_url, assignment_id, named)
        if changes:
            kept = {name: value for name, value in (tag.attributes | changes).items() if value is not None}
            pieces += [html[done : tag.start], _written(tag.name, kept)]
            done = tag.end
        for imported in _imports(html, tag):
            answered = sources.answer(imported[1])
            if answered is not None and answered != imported[1]:
                pieces += [html[done : imported.start(1)], answered]
                done = imported.end(1)
    bound = "".join([*pieces, html[done:]])
    # What loads the crowd elements, where a page has some and does not load them itself.
    source = "/w/static/crowd-html-elements.js"
    loaded = any(AllowedSources().answer(tag.attributes.get("src", "")) == source for tag in tags)
    is_needed = not loaded and any(tag.name in CROWD_ELEMENTS for tag in tags)
    scripts = f'<script src="{source}"></script>' if is_needed else ""
    if not is_ours:
        about = {"src": "/w/static/frame.js", "data-submit": submit_url, "data-assignment": assignment_id}
        scripts = f"{_written('script', about)}</script>{scripts}"
    # Nothing before it was changed, so the place is the same in the bound page.
    return bound[:begin] + scripts + bound[begin:]


def _loading(tag: _Tag, sources: AllowedSources) -> dict[str, str | None]:
    """What to change in a tag that loads something which is answered elsewhere than it says."""
    name = {"script": "src", "link": "href"}.get(tag.name, "")
    address = tag.attributes.get(name)
    if address is None or (tag.name == "link" and not _is_style(tag)):
        return {}
    answered = sources.answer(address)
    if answered is None or answered == address:
        return {}
    if not answered.startswith("/w/"):
        return {name: answered}
    # The copy answers for the original, whatever sum the page expects of that.
    return {name: answered, "integrity": None, "crossorigin": None}


def _imports(html: str, tag: _Tag) -> list[re.Match[str]]:
    """The addresses, each as group 1, that the text of a style or of a module takes from elsewhere."""
    if tag.name == "style":
        pattern = _STYLE_IMPORT
    elif tag.name == "script" and _script_type(tag) == "module" and "src" not in tag.attributes:
        pattern = _MODULE_IMPORT
    else:
        return []
    end = _RAW_END[tag.name].search(html, tag.end)
    return list(pattern.finditer(html, tag.end, end.start() if end else len(html)))


def _script_type(script: _Tag) -> str:
    """As which of its types a browser runs a script; empty where it is data, or for browsers of long ago."""
    attributes = script.attributes
    language = attributes.get("language", "")
    named = attributes.get("type", f"text/{language}" if language else "").strip() or "text/javascript"
    is_old = "nomodule" in attributes and named.lower() != "module"
    return "" if is_old or _SCRIPT_TYPE.fullmatch(named) is None else named.lower()


def _sending(tag: _Tag, submit_url: str, assignment_id: str, named: bool) -> dict[str, str | None]:
    """What to change in a form that sends answers, in its field for the assignment and in its buttons."""
    attributes = tag.attributes
    if tag.name == "form" and _sends_answers(attributes, named):
        return {"action": submit_url, "method": "post", "target": None}
    if tag.name == "input" and "assignmentId" in (attributes.get("name"), attributes.get("id")):
        return {"value": assignment_id}
    if tag.name in ("button", "input") and _names_submission(attributes.get("formaction", "")):
        return {"formaction": submit_url, "formmethod": "post", "formtarget": None}
    return {}


def _sends_answers(form: dict[str, str], named: bool) -> bool:
    """Whether a form is the one that MTurk would have got; ``named`` says that some form names its address."""
    if form.get("method", "").strip().lower() == "dialog":
        return False
    action = form.get("action", "").strip()
    return _names_submission(action) if named else _NOWHERE.fullmatch(action) is not None


def _names_submission(action: str) -> bool:
    path = re.split(r"[?#]", action.strip(), maxsplit=1)[0]
    return path.rstrip("/").lower().endswith("externalsubmit")


def _unknown_elements(tags: list[_Tag]) -> Iterator[str]:
    unknown = {tag.name for tag in tags if tag.name.startswith("crowd-") and tag.name not in CROWD_ELEMENTS}
    if any(tag.name == "crowd-image-classifier" and "overlay" in tag.attributes for tag in tags):
        unknown.add("crowd-image-classifier with an overlay")
    if any(tag.name == "crowd-input" and tag.attributes.get("type", "").lower() == "file" for tag in tags):
        unknown.add('crowd-input of type "file"')
    if unknown:
        yield (
            f"its page uses {listed(sorted(unknown), _MOST_NAMED)}, which this server does not have; it has "
            f"{', '.join(CROWD_ELEMENTS)}; use these, or plain HTML fields within <crowd-form>"
        )


def _blocked(html: str, tags: list[_Tag], sources: AllowedSources) -> Iterator[str]:
    loads: dict[str, str] = {}
    for tag in tags:
        if tag.name == "script" and _script_type(tag):
            loads.setdefault(tag.attributes.get("src", ""), "script")
        elif tag.name == "link" and _is_style(tag):
            loads.setdefault(tag.attributes.get("href", ""), "style")
        for imported in _imports(html, tag):
            loads.setdefault(imported[1], tag.name)
    blocked = {
        address: kind
        for address, kind in loads.items()
        if address.strip() and sources.answer(address) is None
    }
    if not blocked:
        return
    yield (
        "workers' browsers would not load "
        + listed([f"{address[:200]} ({kind})" for address, kind in blocked.items()], _MOST_NAMED)
        + "; write it into the page"
        + _remedy(sorted({host for address in blocked if (host := _host(address))}))
    )


def _remedy(hosts: list[str]) -> str:
    if not hosts:
        return ""
    options = " ".join(f"--allow-host {host}" for host in hosts[:_MOST_NAMED])
    return (
        f", or ask the server's operator to allow what is not here (mitl serve {options}) or to keep copies "
        f"(mitl serve --vendored FOLDER, with FOLDER/{hosts[0]}/…)"
    )


def _host(address: str) -> str:
    try:
        parts = urlsplit(address.strip())
    except ValueError:
        return ""
    return parts.netloc.lower() if parts.scheme in ("", "http", "https") else ""


def _unsendable(tags: list[_Tag]) -> Iterator[str]:
    """Fields whose answers no form would send here, or that no form can send; a page without any is left alone."""
    forms = [tag.attributes for tag in tags if tag.name == "form"]
    named = any(_names_submission(form.get("action", "")) for form in forms)
    by_id = {form["id"]: form for form in reversed(forms) if form.get("id")}

    def form_of(field: _Tag) -> dict[str, str] | None:
        form_id = field.attributes.get("form")
        return field.form if form_id is None else by_id.get(form_id)

    files = [
        tag.attributes["name"][:200]
        for tag in tags
        if tag.name == "input"
        and tag.attributes.get("type", "").strip().lower() == "file"
        and tag.attributes.get("name")
        and (form := form_of(tag)) is not None
        and ("crowd" in form or _sends_answers(form, named))
    ]
    if files:
        yield (
            f'its form asks for files (input of type "file": {listed(files, _MOST_NAMED)}), which this server does not '
            "take; ask for something to type or to choose instead"
        )
    if any(tag.name == "script" and _script_type(tag) and not _is_own(tag) for tag in tags):
        return  # a script may make the form, or change it
    lost = {tag.name for tag in tags if tag.name in _CROWD_FIELDS and form_of(tag) is None}
    if lost:
        yield (
            f"its page has {listed(sorted(lost), _MOST_NAMED)} outside any form, where nothing sends it; put it into "
            "a <crowd-form>"
        )
        return
    if any(_sends_answers(form, named) for form in forms):
        return
    names = {tag.name for tag in tags}
    if "crowd-form" in names or not names & {"input", "select", "textarea", *_CROWD_FIELDS}:
        return
    if any(_names_submission(tag.attributes.get("formaction", "")) for tag in tags):
        return
    elsewhere = [form["action"][:200] for form in forms if form.get("action")]
    yield (
        "its page could not be submitted: "
        + (
            f"its forms send to {listed(elsewhere, _MOST_NAMED)}"
            if elsewhere
            else "its fields are in no form"
        )
        + "; give it a <form> whose action ends in externalSubmit, or a <crowd-form>"
    )


def _is_own(script: _Tag) -> bool:
    """Whether a script is one of those that this server answers for, which make no form of a page's fields."""
    return (AllowedSources().answer(script.attributes.get("src", "")) or "").startswith("/w/static/")


def _is_style(link: _Tag) -> bool:
    return "stylesheet" in link.attributes.get("rel", "").lower().split()


def _written(name: str, attributes: dict[str, str]) -> str:
    return (
        f"<{name}" + "".join(f' {key}="{html_lib.escape(value)}"' for key, value in attributes.items()) + ">"
    )


def _tags(html: str) -> Iterator[_Tag]:
    """The start tags and the doctype in their order, as a browser's tokenizer finds them.

    One pass, each character looked at a bounded number of times: the standard library's parser needs minutes for
    65,535 bytes of ``<a``, and who holds a requester's keys may send anything.
    html5lib does not say where in the text a tag stands, which ``bind`` has to know to leave all else as it was posted.
    """
    at = noscript_end = 0
    templates: list[bool] = []  # those that are open, and whether what is within them is inert
    form: dict[str, str] | None = None
    while (at := html.find("<", at)) >= 0:
        if html.startswith("<!--", at):
            at = _after(html, "-->", at + 2)
            continue
        name = _NAME.match(html, at)
        if name is None and html.startswith(("<!", "<?", "</"), at):
            end = _after(html, ">", at)
            if html[at : at + 9].lower() == "<!doctype":
                yield _Tag("!doctype", {}, at, end, False, None)
            elif templates and _TEMPLATE_END.match(html, at):
                templates.pop()
            elif form is not None and not (templates and templates[-1]):
                closed = _FORM_END.match(html, at)
                if closed and ("crowd" in form) == (closed[1].lower() == "crowd-form"):
                    form = None
            at = end
            continue
        if name is None:
            at += 1
            continue
        attributes, end = _attributes(html, name.end())
        if end < 0:  # a browser drops a tag that the page's end cuts off
            return
        inert = at < noscript_end or (templates != [] and templates[-1])
        tag = _Tag(name[1].lower(), attributes, at, end, inert, form)
        yield tag
        at = end
        if tag.name == "noscript" and not inert:
            close = _NOSCRIPT_END.search(html, end)
            noscript_end = close.start() if close else len(html)
        elif tag.name == "template":
            templates.append(inert or "shadowrootmode" not in attributes)
        elif tag.name in ("form", "crowd-form") and form is None and not inert:
            form = attributes | ({"crowd": ""} if tag.name == "crowd-form" else {})
        if tag.name in _RAW_END:
            close = _RAW_END[tag.name].search(html, end)
            at = close.start() + 2 if close else len(html)


def _after(html: str, text: str, at: int) -> int:
    end = html.find(text, at)
    return len(html) if end < 0 else end + len(text)


def _attributes(html: str, at: int) -> tuple[dict[str, str], int]:
    """The attributes from here, the first of each name, and where their tag ends; -1 where it never does."""
    attributes: dict[str, str] = {}
    while True:
        gap = _GAP.match(html, at)
        at = gap.end() if gap else at
        if at >= len(html):
            return attributes, -1
        name = _ATTRIBUTE.match(html, at)
        if name is None:
            return attributes, at + 1
        at, value = name.end(), ""
        if equals := _EQUALS.match(html, at):
            at = equals.end()
            mark = html[at : at + 1]
            if mark in ("'", '"'):
                end = html.find(mark, at + 1)
                if end < 0:
                    return attributes, -1
                value, at = html[at + 1 : end], end + 1
            elif bare := _BARE.match(html, at):
                value, at = bare[0], bare.end()
        attributes.setdefault(name[0].lower(), html_lib.unescape(value))
