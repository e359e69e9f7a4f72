"""Small forms of the server's own pages."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from mitl.crowd_server.site import Site

MAX_FORM = 4096
"""Bytes; the buttons of workers' pages send far less."""


async def read_fields(request: Request) -> dict[str, str]:
    """The fields of a small form, the first of each name; nothing where more came than our pages send."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM:
            return {}
    try:
        pairs = parse_qsl(body.decode("utf-8", "replace"), max_num_fields=20)
    except ValueError:
        return {}
    # No page of ours sends a NUL, and PostgreSQL takes none.
    return {name: value.replace("\0", "") for name, value in reversed(pairs)}


def foreign(site: Site) -> Response:
    """The page for a form that another site sent."""
    return site.notice(
        403,
        "Not done",
        "Another site sent this form. Use the buttons of this one.",
        ("/w", "Back to the list"),
    )
