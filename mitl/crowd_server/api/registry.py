"""What an operation is, and the table of all of MTurk's."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from mitl.crowd_server.api.params import Params
from mitl.crowd_server.protocol.errors import invalid
from mitl.crowd_server.protocol.html_page import Sources
from mitl.crowd_server.protocol.ids import seal, unseal
from mitl.records import Environment


@dataclass(frozen=True, slots=True)
class Call:
    """One request to the requester API, authenticated, within its transaction."""

    connection: Connection
    environment: Environment
    now: dt.datetime
    params: Params
    request_id: str
    operation: str
    secret: str
    """The server's own, which seals NextTokens."""
    sources: Sources
    """Where scripts and styles of pages may come from."""

    def page(self) -> tuple[int, int]:
        """The row after which a page starts, and its length (10 unless told, at most 100).

        Raises:
            TurkError: the NextToken is not one that this account got from this operation with these parameters.
        """
        size = self.params.integer("MaxResults", 1, 100, 10)
        token = self.params.text("NextToken", shortest=1, longest=MAX_NEXT_TOKEN)
        if not token:
            return 0, size
        row = unseal(self.secret, self._listing(), token)
        if row is None:
            raise invalid(
                "NextToken",
                f"this server gave it to no {self.operation} of this account with these parameters; send it with "
                "the parameters of the call that returned it (MaxResults may differ), or leave it out for the first "
                "page",
            )
        return int(row), size

    def next_token(self, last_id: int) -> str:
        """The NextToken of the page that follows this row, good for this listing alone."""
        return seal(self.secret, self._listing(), str(last_id))

    def _listing(self) -> str:
        """What is listed, for whom: all parameters but those of paging."""
        chosen = self.params.given(but=("NextToken", "MaxResults"))
        return json.dumps(["page", self.environment, self.operation, chosen], sort_keys=True)


MAX_NEXT_TOKEN = 255
Handler = Callable[[Call], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Operation:
    """A handler, whether it writes, and whether it does more than refuse."""

    handler: Handler
    writes: bool
    offered: bool


OPERATIONS: dict[str, Operation] = {}


def operation(name: str, *, writes: bool, offered: bool = True) -> Callable[[Handler], Handler]:
    """Enter a function in the table under the API's name for it."""

    def enter(handler: Handler) -> Handler:
        OPERATIONS[name] = Operation(handler, writes, offered)
        return handler

    return enter


class _Row(Protocol):
    @property
    def id(self) -> int: ...


RowT = TypeVar("RowT", bound=_Row)


def paged(
    call: Call, rows: Sequence[RowT], size: int, name: str, shape: Callable[[RowT], dict[str, Any]]
) -> dict[str, Any]:
    """A page of a listing; ``rows`` holds one more than ``size`` where another page follows."""
    shown = rows[:size]
    reply: dict[str, Any] = {"NumResults": len(shown), name: [shape(row) for row in shown]}
    if len(rows) > size:
        reply["NextToken"] = call.next_token(shown[-1].id)
    return reply
