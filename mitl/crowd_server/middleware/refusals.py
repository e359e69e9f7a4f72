"""Answers of the outermost layer: a plain page for people, AWS's error shape for the requester API."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import partial

from starlette.responses import RedirectResponse, Response
from starlette.types import Scope

_STYLE = "body{font:1rem/1.5 system-ui,sans-serif;margin:2rem;max-width:40rem}:root{color-scheme:light dark}"
_PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; base-uri 'none'"


@dataclass(eq=False)
class RefusedError(Exception):
    """Why a request gets no further, in words for a person and as one of AWS's common errors."""

    status: int
    title: str
    text: str
    aws_type: str
    aws_message: str
    retry_after_s: float = 0.0
    close: bool = False
    """Whether the rest of the request is still on its way, so that the connection is of no more use."""
    elsewhere: str = ""
    """Where the same page may be had; forms are not led there, because what they held was sent already."""

    def response(self, scope: Scope) -> Response:
        """The answer in the shape that this caller understands."""
        headers = {"Cache-Control": "no-store"}
        if self.retry_after_s:
            headers["Retry-After"] = str(math.ceil(self.retry_after_s))
        if self.close:
            headers["Connection"] = "close"
        if self.elsewhere and scope["method"] in ("GET", "HEAD"):
            return RedirectResponse(self.elsewhere, 308, headers)
        if is_api(scope):
            # Clients written for MTurk look at the type and retry by it; Amazon sent all of these as 400.
            status = 400 if self.status < 500 else self.status
            body = json.dumps({"__type": self.aws_type, "message": self.aws_message})
            return Response(body, status, headers, media_type="application/x-amz-json-1.1")
        headers["Content-Security-Policy"] = _PAGE_POLICY
        page = (
            '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" '
            f'content="width=device-width"><title>{self.title}</title><style>{_STYLE}</style>'
            f"<main><h1>{self.title}</h1><p>{self.text}</p></main></html>"
        )
        return Response(page, self.status, headers, media_type="text/html")


def is_api(scope: Scope) -> bool:
    """Whether this is a request to the requester API."""
    return bool(scope["path"] == "/" and scope["method"] == "POST")


def too_often(wait_s: float) -> RefusedError:
    """More requests than one caller may send."""
    seconds = math.ceil(wait_s)
    return RefusedError(
        429,
        "One moment, please",
        f"Too many requests came from here at once. Wait {seconds} second{'s' if seconds > 1 else ''} and reload "
        "this page. Nothing is lost: what you entered is kept, or sent again when you reload.",
        "ThrottlingException",
        "Rate exceeded",
        retry_after_s=max(1.0, wait_s),
    )


def too_large(limit: int) -> RefusedError:
    """A body over the limit."""
    return RefusedError(
        413,
        "That was too much to send",
        f"What was sent is larger than {limit // 1024} KiB, so it was not taken. Please go back and shorten it.",
        "RequestEntityTooLargeException",
        f"The body is over {limit} bytes.",
        close=True,
    )


too_slow = partial(
    RefusedError,
    408,
    "That took too long",
    "What was sent did not arrive in time. Please check your connection, go back and send it again.",
    "RequestTimeoutException",
    "The body did not arrive in time.",
    close=True,
)
"""A body that did not arrive in time."""


too_full = partial(
    RefusedError,
    503,
    "The server is busy",
    "Wait a few seconds and reload this page. Nothing is lost: what you entered is kept, or sent again "
    "when you reload.",
    "ServiceUnavailableException",
    "The server holds too many requests; try again.",
    retry_after_s=5.0,
    close=True,
)
"""More bodies in flight than the server keeps in memory."""


no_database = partial(
    RefusedError,
    503,
    "One moment, please",
    "The server cannot reach its database. Wait a few seconds and reload this page. Nothing is lost: what you entered "
    "is kept, or sent again when you reload.",
    "ServiceUnavailableException",
    "The server cannot reach its database; try again.",
    retry_after_s=5.0,
)
"""The database is down, as while it restarts, or out of order."""


wrong_host = partial(
    RefusedError,
    421,
    "Not this server",
    "This server does not go by the name in the address. Open the link that you were given.",
    "InvalidRequestException",
    "The Host header is none of this server's names; its operator sets them by --public-url.",
)
"""The request names a host that this server does not go by."""


not_by_proxy = partial(
    RefusedError,
    403,
    "Not by this way",
    "This server is reached through its public address only. Open the link that you were given.",
    "AccessDeniedException",
    "This server is reached through its proxy only.",
)
"""A plain connection that did not come through the proxy."""


def not_encrypted(https: str) -> RefusedError:
    """A request over plain HTTP to a server whose public address is https."""
    return RefusedError(
        403,
        "Not encrypted",
        "This address works with https only. Open the link that you were given.",
        "AccessDeniedException",
        "Use https.",
        elsewhere=https,
    )


foreign_form = partial(
    RefusedError,
    403,
    "Not done",
    "Another site sent this form. Use the buttons of this one.",
    "AccessDeniedException",
    "Another site sent this.",
)
"""A form that another site's page sent."""
