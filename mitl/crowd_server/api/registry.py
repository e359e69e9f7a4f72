"""What an operation is, and the table of all of MTurk's."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from mitl.crowd_server.api.params import Params, next_token
from mitl.crowd_server.forms.html_page import Sources
from mitl.records import Environment


@dataclass(frozen=True, slots=True)
class Call:
    """One request to the requester API, authenticated, within its transaction."""

    connection: Connection
    environment: Environment
    now: dt.datetime
    params: Params
    request_id: str
    sources: Sources


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
    rows: Sequence[RowT], size: int, name: str, shape: Callable[[RowT], dict[str, Any]]
) -> dict[str, Any]:
    """A page of a listing; ``rows`` holds one more than ``size`` where another page follows."""
    shown = rows[:size]
    reply: dict[str, Any] = {"NumResults": len(shown), name: [shape(row) for row in shown]}
    if len(rows) > size:
        reply["NextToken"] = next_token(shown[-1].id)
    return reply
