"""What an operation is, how its parameters are read, and the table of all of MTurk's operations."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from mitl.crowd_server.protocol.errors import invalid, missing, out_of_range, unsupported
from mitl.crowd_server.protocol.html_page import AllowedSources
from mitl.crowd_server.protocol.ids import seal, unseal
from mitl.crowd_server.store.database import Books, Portion

_CURRENCY = re.compile(r"[0-9]+\.?[0-9]{0,2}")
_ENTITY = re.compile(r"[A-Z0-9]{1,64}")
_WORKER = re.compile(r"A[A-Z0-9]{1,63}")
MAX_CENTS = 10_000_000
"""A reward or bonus above 100,000 USD is a slip."""
MAX_INTEGER = 2**31 - 1
"""The model's Integer has 32 bits."""
_FIRST_TIME = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LAST_TIME = dt.datetime(9999, 1, 1, tzinfo=dt.UTC).timestamp()


class Params:
    """The JSON object of one request; every reader raises the API's own error for a bad value.

    A null counts as absent, as it does for AWS. The limits stand with each operation: botocore's model of the API has
    those of ids and tokens alone, not the lengths and ranges that MTurk documents.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def has(self, name: str) -> bool:
        """Whether the parameter was given."""
        return self._values.get(name) is not None

    def given(self, *, but: Collection[str]) -> dict[str, Any]:
        """All parameters that were given, except these."""
        return {name: value for name, value in self._values.items() if value is not None and name not in but}

    def text(
        self, name: str, *, longest: int | None = None, shortest: int = 0, required: bool = False
    ) -> str:
        """A string, empty where absent; one that was given has from ``shortest`` to ``longest`` characters."""
        value = self._values.get(name)
        if value is None or value == "":
            if required:
                raise missing(name)
            if value == "" and shortest:
                raise out_of_range(name, "empty", f"at least {shortest} characters long")
            return ""
        if not isinstance(value, str):
            raise invalid(name, "it must be a string")
        if "\0" in value or not _is_unicode(value):
            raise invalid(name, "it holds a zero character or half a surrogate pair")
        if longest is not None and not shortest <= len(value) <= longest:
            allowed = f"at most {longest}" if len(value) > longest else f"at least {shortest}"
            raise out_of_range(name, f"{len(value)} characters long", allowed)
        return value

    def _required(self, name: str, default: Any = None) -> Any:
        """The value as given, else the default; the API's error where there is neither."""
        value = self._values.get(name)
        value = default if value is None else value
        if value is None:
            raise missing(name)
        return value

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """An integer between two bounds; required where there is no default."""
        value = self._required(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise invalid(name, "it must be an integer")
        if not low <= value <= high:
            raise out_of_range(name, value, f"from {low} to {high}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean."""
        value = self._required(name, default)
        if not isinstance(value, bool):
            raise invalid(name, "it must be true or false")
        return value

    def choice(self, name: str, allowed: tuple[str, ...], default: str | None = None) -> str:
        """One of a few words."""
        value = self._required(name, default)
        if value not in allowed:
            raise invalid(name, f"it must be one of {', '.join(allowed)}")
        return str(value)

    def choices(self, name: str, allowed: Sequence[str]) -> list[str]:
        """A list of a few words, empty where absent."""
        return self._list(name, lambda value: value in allowed, ", ".join(allowed))

    def integers(self, name: str, *, longest: int) -> list[int]:
        """A list of integers of 32 bits, empty where absent."""
        values: list[int] = self._list(name, lambda value: type(value) is int, "integers", longest)
        for value in values:
            if abs(value) > MAX_INTEGER:
                raise out_of_range(name, value, f"from {-MAX_INTEGER} to {MAX_INTEGER}")
        return values

    def structures(self, name: str, *, longest: int) -> list[Params]:
        """A list of structures, empty where absent."""
        values = self._list(name, lambda value: isinstance(value, dict), "structures", longest)
        return [Params(value) for value in values]

    def _list(
        self, name: str, fits: Callable[[Any], bool], what: str, longest: int | None = None
    ) -> list[Any]:
        values = self._values.get(name)
        if values is None:
            return []
        if not isinstance(values, list) or not all(fits(value) for value in values):
            raise invalid(name, f"it must be a list of {what}")
        if longest is not None and len(values) > longest:
            raise out_of_range(name, f"{len(values)} long", f"at most {longest}")
        return values

    def cents(self, name: str) -> int:
        """A CurrencyAmount in USD, as cents."""
        value = self.text(name, required=True)
        if not _CURRENCY.fullmatch(value):
            raise invalid(name, "it must be an amount such as 0.65, in USD with at most two decimals")
        whole, _, part = value.partition(".")
        whole = whole.lstrip("0") or "0"
        if len(whole) > 9 or (cents := int(whole) * 100 + int((part + "00")[:2])) > MAX_CENTS:
            raise out_of_range(name, value[:40], f"at most {MAX_CENTS / 100:.2f}")
        return cents

    def entity(self, name: str) -> str:
        """The id of a HIT, a HIT type, an assignment or a qualification type."""
        value = self.text(name, required=True)
        if not _ENTITY.fullmatch(value):
            raise invalid(name, "it must be up to 64 capital letters and digits")
        return value

    def worker(self, name: str) -> str:
        """The id of a worker."""
        value = self.text(name, required=True)
        if not _WORKER.fullmatch(value):
            raise invalid(name, "a worker id is an A followed by capital letters and digits")
        return value

    def workers(self, name: str, *, longest: int) -> list[str]:
        """Ids of workers, at least one, each once, in their order."""
        given = self._list(name, lambda value: True, "worker ids", longest)
        if not given:
            raise missing(name)
        return list(dict.fromkeys(Params({name: own_id}).worker(name) for own_id in given))

    def time(self, name: str) -> dt.datetime:
        """A time, on the wire in seconds since 1970; one before that is as good as 1970."""
        value = self._required(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise invalid(name, "it must be seconds since 1970")
        if isinstance(value, float) and not math.isfinite(value):
            raise invalid(name, "it must be seconds since 1970")
        if value >= _LAST_TIME:
            raise out_of_range(name, "too late", "a time before the year 9999")
        return dt.datetime.fromtimestamp(value, dt.UTC) if value > 0 else _FIRST_TIME


def _is_unicode(text: str) -> bool:
    """JSON escapes can spell halves of surrogate pairs, which no database takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


Reply: TypeAlias = dict[str, Any]


class _Row(Protocol):
    @property
    def id(self) -> int: ...


RowT = TypeVar("RowT", bound=_Row)


@dataclass(frozen=True, slots=True)
class ApiCall(Books):
    """One request to the requester API, authenticated, within its transaction."""

    params: Params
    request_id: str
    operation: str
    secret: str
    """The server's own, which seals NextTokens."""
    sources: AllowedSources
    """Where scripts and styles of pages may come from."""

    def listed(
        self, name: str, rows_of: Callable[[Portion], Sequence[RowT]], shape: Callable[[RowT], Reply]
    ) -> Reply:
        """The page of a listing that is asked for (10 rows unless told, at most 100); a NextToken where more follow.

        Raises:
            TurkError: the NextToken is not one that this account got from this operation with these parameters.
        """
        size = self.params.integer("MaxResults", 1, 100, 10)
        token = self.params.text("NextToken", shortest=1, longest=MAX_NEXT_TOKEN)
        row = unseal(self.secret, self._listing(), token) if token else "0"
        if row is None:
            raise invalid(
                "NextToken",
                f"this server gave it to no {self.operation} of this account with these parameters; send it with "
                "the parameters of the call that returned it (MaxResults may differ), or leave it out for the first "
                "page",
            )
        rows = rows_of(Portion(int(row), size + 1))
        shown = rows[:size]
        reply: Reply = {"NumResults": len(shown), name: [shape(row) for row in shown]}
        if len(rows) > size:
            reply["NextToken"] = seal(self.secret, self._listing(), str(shown[-1].id))
        return reply

    def _listing(self) -> str:
        """What is listed, for whom: all parameters but those of paging."""
        chosen = self.params.given(but=("NextToken", "MaxResults"))
        return json.dumps(["page", self.environment, self.operation, chosen], sort_keys=True)


MAX_NEXT_TOKEN = 255
Handler = Callable[[ApiCall], Reply | None]


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """A handler, whether it writes, and whether it does more than refuse."""

    handler: Handler
    writes: bool
    offered: bool


OPERATIONS: dict[str, ApiOperation] = {}


def operation(name: str, *, writes: bool, offered: bool = True) -> Callable[[Handler], Handler]:
    """Enter a function in the table under the API's name for it; one that gives nothing answers ``{}``."""

    def enter(handler: Handler) -> Handler:
        OPERATIONS[name] = ApiOperation(handler, writes, offered)
        return handler

    return enter


_POLL = "poll ListHITs, whose counts tell what was submitted, or ListReviewableHITs"
_LAYOUT = "send the whole page as Question (HTMLQuestion)"
_REVIEW = (
    "list the assignments, compare their answers yourself, and call ApproveAssignment or RejectAssignment"
)
NOT_OFFERED = {
    "UpdateNotificationSettings": ("notifications", _POLL),
    "SendTestEventNotification": ("notifications", _POLL),
    "GetFileUploadURL": (
        "file uploads by workers",
        "let the page upload elsewhere and answer with the address",
    ),
    "ListReviewPolicyResultsForHIT": ("review policies", _REVIEW),
}
"""Operations that MTurk offered and this server does not: each answers one error that says what to do instead."""
_PARAMETERS_NOT_TAKEN = {
    "HITLayoutId": ("HIT layouts", _LAYOUT),
    "HITLayoutParameters": ("HIT layouts", _LAYOUT),
    "AssignmentReviewPolicy": ("review policies", _REVIEW),
    "HITReviewPolicy": ("review policies", _REVIEW),
}


def refuse_parameters(params: Params) -> None:
    """Raise the error for a HIT that asks for a layout or a review policy."""
    for name, (what, instead) in _PARAMETERS_NOT_TAKEN.items():
        if params.has(name):
            raise unsupported(what, instead)


def _refusing(what: str, instead: str) -> Handler:
    def refuse(call: ApiCall) -> Reply:
        raise unsupported(what, instead)

    refuse.__doc__ = f"This server has no {what}; {instead}."
    return refuse


for _name, (_what, _instead) in NOT_OFFERED.items():
    operation(_name, writes=False, offered=False)(_refusing(_what, _instead))
