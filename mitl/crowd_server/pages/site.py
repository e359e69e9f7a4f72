"""What every page of the server needs: the database, the clock, the secrets, the templates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from mitl.core.clock import Clock
from mitl.crowd_server.pages.questions import ShownQuestions
from mitl.crowd_server.pages.templates import template_environment
from mitl.crowd_server.protocol.html_page import AllowedSources
from mitl.crowd_server.store.assignments import UsualTimes
from mitl.crowd_server.store.database import Database

_PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; form-action 'self'; "
        "frame-src 'self' https:; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Site:
    """One server's pages."""

    server_id: str
    database: Database
    clock: Clock
    secret: str
    """Seals cookies and the tokens of assignments."""
    operator_token: str
    public: Sequence[Path]
    """Folders whose images are served under ``/i/``."""
    sources: AllowedSources
    templates: jinja2.Environment = field(default_factory=template_environment)
    questions: ShownQuestions = field(default_factory=ShownQuestions)
    times: UsualTimes = field(default_factory=UsualTimes)

    def page(self, name: str, *, status: int = 200, **values: object) -> HTMLResponse:
        """A page from its template, under a policy that lets it run nothing but the server's own script."""
        text = self.templates.get_template(name).render(values)
        return HTMLResponse(text, status, dict(_PAGE_HEADERS))

    def notice(
        self, status: int, title: str, text: str, link: tuple[str, str] | None = None, **more: Any
    ) -> Response:
        """A short page that says what happened, with a way on where there is one, and more where it shows more."""
        return self.page("notice.html.j2", status=status, title=title, text=text, link=link, **more)


class NoticeError(Exception):
    """Ends a page in a notice; its arguments are those of ``Site.notice``."""


def origin(request: Request) -> str:
    """Where the browser found this server, as the start of an absolute address."""
    return f"{request.url.scheme}://{request.url.netloc}"


def keep_cookie(request: Request, response: Response, name: str, value: str, **terms: Any) -> None:
    """Set a cookie that no script reads and, where the page came encrypted, nothing carries unencrypted.

    Args:
        terms: path, samesite, and max_age where it outlives the browser's session.
    """
    response.set_cookie(name, value, secure=request.url.scheme == "https", httponly=True, **terms)


def download_headers(file: str) -> dict[str, str]:
    """Of a file to take away, which nothing on the way keeps."""
    return {
        "Content-Disposition": f'attachment; filename="{file}"',
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }


def is_foreign(request: Request) -> bool:
    """Whether a page of another origin sent this form; browsers say so in at least one of two headers."""
    claimed = request.headers.get("origin")
    if claimed is not None:
        return claimed.partition("://")[2] != request.headers.get("host")
    return request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


async def read_form(
    request: Request, most_bytes: int, most_fields: int, back: tuple[str, str]
) -> list[tuple[str, str]] | None:
    """The fields of a form in their order, repeated names included; None where there is more of it.

    Args:
        back: the way back for who came by a form of another site.
    """
    if is_foreign(request):
        raise NoticeError(403, "Not done", "Another site sent this form. Use the buttons of this one.", back)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            return None
    return parse_form(bytes(body), most_fields)


def parse_form(body: bytes, most_fields: int) -> list[tuple[str, str]] | None:
    """The fields in a URL-encoded body; None where there are more."""
    text = body.decode("utf-8", "replace")
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=most_fields, errors="replace")
    except ValueError:
        return None
