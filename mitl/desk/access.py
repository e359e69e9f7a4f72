"""Who may use the desk: this machine's own browser, by the link that was printed, and no foreign page."""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from mitl.addresses import names_loopback
from mitl.errors import UsageError

_HOST = re.compile(r"(?:\[([0-9a-f:]+)\]|([^:\[\]]+))(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Access:
    """The secrets of one run of the desk; they end with it."""

    name: str
    """Part of the cookie's name, since cookies are shared by all ports of a host."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """Stands in the printed link and opens a session."""
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """Value of the cookie."""
    form: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    """Stands in every form."""

    @property
    def cookie(self) -> str:
        """Name of the session's cookie."""
        return f"mitl_desk_{self.name}"

    def opens(self, token: str) -> bool:
        """Whether this is the link's token."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def knows(self, connection: HTTPConnection) -> bool:
        """Whether the browser has the session's cookie."""
        return hmac.compare_digest(connection.cookies.get(self.cookie, "").encode(), self.session.encode())

    def allows(self, connection: HTTPConnection, form_token: str) -> bool:
        """Whether a form comes from a page of this desk."""
        claimed = connection.headers.get("origin")
        if claimed is None:
            own = connection.headers.get("sec-fetch-site") == "same-origin"
        else:
            own = urlsplit(claimed).netloc == connection.headers.get("host")
        return own and hmac.compare_digest(form_token.encode(), self.form.encode())


def is_own_host(host: str) -> bool:
    """Whether a Host header names this machine's loopback, by which alone the desk may be asked for.

    The port may differ, because people reach another machine's desk through an SSH tunnel.
    """
    parts = _HOST.fullmatch(host.lower())
    return parts is not None and names_loopback(parts[1] or parts[2])


def require_loopback(host: str) -> None:
    """UsageError unless the address is one that only this machine can reach."""
    if not names_loopback(host.strip("[]")):
        raise UsageError(
            f"the desk shows who worked and spends money, so it listens on this machine alone, not on {host!r}; "
            "leave out --host, and reach it from elsewhere by: ssh -L 8766:127.0.0.1:8766 THIS-MACHINE"
        )
