"""How participants go back to their panel: for each end of a visit an https link, a code, or both."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from urllib.parse import quote, urlsplit

from mitl.crowd_server.models import VisitState
from mitl.errors import UsageError

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
        return _FIELD.sub(lambda found: quote(values[found[1]], safe=""), self.url)


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
            f"{option} is no address: at most {MAX_URL} characters without blanks or quotes; write others as %20"
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
