"""Request bodies, read whole before any page sees them: of limited size, within limited time, in limited memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from mitl.crowd_server.api.dispatch import MAX_BODY as MAX_API_BODY
from mitl.crowd_server.middleware import refusals
from mitl.crowd_server.middleware.refusals import RefusedError, is_api

FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data")


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Sizes in bytes, times in seconds."""

    api: int = MAX_API_BODY
    form: int = 2 * 1024 * 1024
    other: int = 64 * 1024
    all_at_once: int = 128 * 1024 * 1024
    """What all requests together may hold in memory."""
    drained: int = 16 * 1024 * 1024
    """How much of a body that is too large is still read: a connection cut earlier may lose the answer."""
    chunk_within_s: float = 20.0
    whole_within_s: float = 120.0


class Bodies:
    """Reads bodies and counts what is held of them."""

    def __init__(self, limits: BodyLimits) -> None:
        self.limits = limits
        self._held = 0

    async def read(self, scope: Scope, receive: Receive) -> bytearray | None:
        """The body; None where the sender went away. The caller gives it back by ``release``.

        Raises:
            RefusedError: the body is too large, too slow, or there is no room for it.
        """
        limit = self._limit(scope)
        body = bytearray()
        size = 0
        try:
            async with asyncio.timeout(self.limits.whole_within_s):
                while True:
                    message: Message = await asyncio.wait_for(receive(), self.limits.chunk_within_s)
                    if message["type"] == "http.disconnect":
                        self.release(body)
                        return None
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    if size <= limit:
                        self._hold(len(chunk))
                        body += chunk
                    elif size > self.limits.drained:
                        break
                    if not message.get("more_body", False):
                        break
        except TimeoutError:
            self.release(body)
            raise refusals.too_slow() from None
        except RefusedError:
            self.release(body)
            raise
        if size > limit:
            self.release(body)
            raise refusals.too_large(limit)
        return body

    def release(self, body: bytearray) -> None:
        """Count a body as gone."""
        self._held -= len(body)

    def _hold(self, count: int) -> None:
        if self._held + count > self.limits.all_at_once:
            raise refusals.too_full()
        self._held += count

    def _limit(self, scope: Scope) -> int:
        if is_api(scope):
            return self.limits.api
        kind = Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()
        return self.limits.form if kind in FORM_TYPES else self.limits.other


def has_body(scope: Scope) -> bool:
    """Whether a body follows the head of this request."""
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])


def replay(body: bytearray, receive: Receive) -> Receive:
    """A ``receive`` that gives the body in one piece, then whatever else comes."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": bytes(body), "more_body": False}

    return again
