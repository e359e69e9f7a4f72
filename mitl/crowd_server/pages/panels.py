"""How each panel's participants arrive and go back: names in the study link, ids, and the link or code of each end."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from urllib.parse import quote, urlsplit

from mitl.crowd_server.store.models import VisitState
from mitl.crowd_server.store.panels import FORGOTTEN, PanelRow
from mitl.errors import UsageError

SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
"""The last part of a study link."""
_PARAMETER = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
# No panel's ids hold these; a link that was pasted without being filled in does.
_PLACEHOLDER = re.compile(r"[{}%<>\[\]$]")
_ANY_ID = re.compile(rf"(?!{FORGOTTEN})[A-Za-z0-9_][A-Za-z0-9._~:=+/-]{{0,127}}")
"""But not what stands in the place of a deleted one, or nobody's could be deleted."""
MAX_ID = 128
"""Characters of an id, at most; some profiles allow fewer."""


@dataclass(frozen=True, slots=True)
class LinkParameters:
    """The names in a study link's query; empty where the panel gives none."""

    worker: str
    study: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of one kind of panel."""

    name: str
    title: str
    """As participants know it."""
    parameters: LinkParameters
    placeholders: LinkParameters
    """What the panel fills in, as written in the study link; empty where it adds the parameters by itself."""
    worker_id: re.Pattern[str]
    looks_like: str
    complete_url: str = ""
    """The way back for a completion code, with ``{code}`` in it; empty where the operator must give one."""
    is_stable: bool = False
    """Whether an id means the same person in every study; else only within one panel."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Who arrived, as the panel says."""

    worker: str
    study: str
    session: str
    """The participant's id again where the panel gives no session."""


class ArrivalError(Exception):
    """The address is not one that the panel fills in; says what is wrong in a sentence for the participant."""

    def __init__(self, text: str, *, is_bare: bool = False) -> None:
        super().__init__(text)
        self.is_bare = is_bare
        """Whether nothing was filled in, as when a panel (or the operator) tries the link."""


PROFILES: Mapping[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(
            "prolific",
            "Prolific",
            LinkParameters("PROLIFIC_PID", "STUDY_ID", "SESSION_ID"),
            LinkParameters("{{%PROLIFIC_PID%}}", "{{%STUDY_ID%}}", "{{%SESSION_ID%}}"),
            re.compile(r"[0-9a-f]{24}"),  # in capitals the same id would be another worker
            "24 digits and small letters from a to f",
            complete_url="https://app.prolific.com/submissions/complete?cc={code}",
            is_stable=True,
        ),
        Profile(
            "connect",
            "Connect",
            LinkParameters("participantId", "projectId", "assignmentId"),
            LinkParameters(""),
            # With a hyphen first it would get an apostrophe in payment files.
            re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{7,63}"),
            "8 to 64 letters, digits and hyphens",
            is_stable=True,
        ),
        Profile(
            "sona",
            "SONA",
            LinkParameters("sona_code"),
            LinkParameters("%SURVEY_CODE%"),
            re.compile(r"[0-9A-Za-z]{2,7}"),
            "2 to 7 letters and digits",
        ),
        Profile(
            "generic",
            "the panel",
            LinkParameters("worker"),
            LinkParameters("ID"),
            _ANY_ID,
            "up to 128 letters, digits and . _ ~ : = + / -",
        ),
    )
}


def read_arrival(profile: Profile, parameters: LinkParameters, query: Sequence[tuple[str, str]]) -> Arrival:
    """Who arrived by this query string; a panel without sessions gives each participant one visit.

    Raises:
        ArrivalError: an id is missing, empty, not filled in, too long, given twice or of another form.
    """
    worker = _id(parameters.worker, query, profile.worker_id, profile.looks_like)
    session = study = ""
    if parameters.session:
        session = _id(parameters.session, query, _ANY_ID, PROFILES["generic"].looks_like)
    if parameters.study and any(name == parameters.study and value for name, value in query):
        study = _id(parameters.study, query, _ANY_ID, PROFILES["generic"].looks_like)
    return Arrival(worker, study, session or worker)


def study_link(base_url: str, slug: str, profile: Profile, parameters: LinkParameters) -> str:
    """The address to paste into the panel, with its placeholders where it fills them in."""
    pairs = (
        (parameters.worker, profile.placeholders.worker),
        (parameters.study, profile.placeholders.study or "STUDY"),
        (parameters.session, profile.placeholders.session or "SESSION"),
    )
    link = f"{base_url.rstrip('/')}/p/{slug}"
    if not profile.placeholders.worker:
        return link
    return link + "?" + "&".join(f"{name}={value}" for name, value in pairs if name)


def parameters_of(panel: PanelRow) -> LinkParameters:
    """The names in a panel's study link."""
    return LinkParameters(panel.worker_parameter, panel.study_parameter, panel.session_parameter)


def link_of(panel: PanelRow, base_url: str) -> str:
    """What to paste into the panel."""
    return study_link(base_url, panel.slug, PROFILES[panel.profile], parameters_of(panel))


def check_parameters(parameters: LinkParameters) -> LinkParameters:
    """The same names, once they can stand in a query string.

    Raises:
        UsageError: a name is odd, the worker's is missing, or two are the same.
    """
    names = [name for name in (parameters.worker, parameters.study, parameters.session) if name]
    for name in names:
        if not _PARAMETER.fullmatch(name):
            raise UsageError(
                f"{name!r} cannot be a parameter's name in a link; use a letter, then letters, digits, _ . or -"
            )
    if not parameters.worker:
        raise UsageError("a panel needs the name of the worker's parameter: --worker-parameter NAME")
    if len(set(names)) < len(names):
        raise UsageError(f"the parameters of a link need different names, not {', '.join(names)}")
    return parameters


def _id(name: str, query: Sequence[tuple[str, str]], pattern: re.Pattern[str], looks_like: str) -> str:
    values = {value.strip() for key, value in query if key == name}
    if not values or values == {""}:
        raise ArrivalError(f"The link has no {name} in it.", is_bare=True)
    if len(values) > 1:
        raise ArrivalError(f"The link has more than one {name} in it.")
    [value] = values
    if len(value) > MAX_ID:
        raise ArrivalError(f"The {name} in the link is {len(value)} characters long, too long for an id.")
    if _PLACEHOLDER.search(value):
        raise ArrivalError(
            f"The panel has not filled in your id: {name} is still “{value}” in the link.", is_bare=True
        )
    if not pattern.fullmatch(value):
        raise ArrivalError(f"The {name} in the link is “{value}”, but it should be {looks_like}.")
    return value


ENDS = (VisitState.COMPLETED, VisitState.NO_CONSENT, VisitState.NOTHING_LEFT)
_FIELDS = ("worker", "study", "session")
_FIELD = re.compile(r"\{([^{}]*)\}")
_CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_UNSAFE = re.compile(r"[\x00-\x20\x7f-\uffff\"'<>\\^`|]")
MAX_URL = 2000


@dataclass(frozen=True, slots=True)
class End:
    """One way back; either may be empty."""

    url: str = ""
    """https, set by the operator; ``{worker}``, ``{study}`` and ``{session}`` are filled in."""
    code: str = ""

    def link(self, values: Mapping[str, str]) -> str:
        """The address for one participant; empty where there is none or an id that it needs was forgotten."""
        needed = _FIELD.findall(self.url)
        if any(not values.get(name) for name in needed):
            return ""
        return _FIELD.sub(lambda field: quote(values[field[1]], safe=""), self.url)


def write_ends(ends: Mapping[VisitState, End]) -> str:
    """The JSON kept in the panel's row."""
    return json.dumps({state.value: asdict(end) for state, end in ends.items()}, sort_keys=True)


def read_ends(text: str) -> dict[VisitState, End]:
    """The ends of a panel's row; one that was not set is empty."""
    kept = json.loads(text)
    return {state: End(**kept.get(state.value, {})) for state in ENDS}


def check_end(end: End, option: str) -> End:
    """The same end, once people may be sent there.

    Raises:
        UsageError: the address is not https, its host would come from an id, or the code is odd.
    """
    if end.code and not _CODE.fullmatch(end.code):
        raise UsageError(
            f"--{option}-code is {end.code!r}; use 1 to 64 letters, digits, _ . or -, as the panel shows it"
        )
    if end.url:
        _check_url(end.url, f"--{option}-url")
    return end


def _check_url(url: str, option: str) -> None:
    if len(url) > MAX_URL or _UNSAFE.search(url):
        raise UsageError(
            f"{option} is not an address: at most {MAX_URL} characters without blanks or quotes; write others as %20"
        )
    unknown = set(_FIELD.findall(url)) - set(_FIELDS)
    if unknown or re.search(r"[{}]", _FIELD.sub("", url)):
        raise UsageError(f"{option} is {url!r}; only {{worker}}, {{study}} and {{session}} can be filled in")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"{option} is {url!r}: {error}") from error
    if parts.scheme != "https" or not host or "@" in parts.netloc or "{" in parts.netloc:
        raise UsageError(
            f"{option} is {url!r}, but it must be an https address with a fixed host, as "
            "https://app.prolific.com/submissions/complete?cc=CODE"
        )
