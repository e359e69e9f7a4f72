"""Connections that do not wait for ever: uvicorn's HTTP, with a time limit for the head of a request."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_WITHIN_S = 15.0


class PatientProtocol(H11Protocol):
    """Closes a connection that opens, or begins a request, and does not finish the request's head in time.

    uvicorn limits how long a connection may be idle between requests only, so a few thousand callers that send
    one byte a minute would hold every connection.
    """

    head_within_s = HEAD_WITHIN_S
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for the first request."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer with the connection."""
        self._forget_timer()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Handle what came; a head that is not whole yet has its time running."""
        super().handle_events()
        if self.conn.their_state is not h11.IDLE:
            self._forget_timer()
        elif self._head_timer is None and self.conn.trailing_data[0]:
            self._await_head()

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_within_s, self._give_up)

    def _forget_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()
