"""Reading a request's parameters under the documented limits."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import math
import re
from collections.abc import Mapping
from typing import Any

from mitl.crowd_server.errors import invalid, missing, out_of_range

_CURRENCY = re.compile(r"[0-9]+\.?[0-9]{0,2}")
_ENTITY = re.compile(r"[A-Z0-9]{1,64}")
_WORKER = re.compile(r"A[A-Z0-9]{1,63}")
MAX_CENTS = 10_000_000
"""A reward or bonus above 100,000 USD is a slip."""
_LAST_TIME = dt.datetime(9999, 1, 1, tzinfo=dt.UTC).timestamp()


class Params:
    """The JSON object of one request; every reader raises the API's own error for a bad value."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def has(self, name: str) -> bool:
        """Whether the parameter was given."""
        return self._values.get(name) is not None

    def raw(self, name: str) -> Any:
        """The value as given; None where absent."""
        return self._values.get(name)

    def text(self, name: str, *, longest: int | None = None, required: bool = False) -> str:
        """A string, empty where absent."""
        value = self._values.get(name)
        if value is None or value == "":
            if required:
                raise missing(name)
            return ""
        if not isinstance(value, str):
            raise invalid(name, "it must be a string")
        if "\0" in value or not _is_unicode(value):
            raise invalid(name, "it holds a zero character or half a surrogate pair")
        if longest is not None and len(value) > longest:
            raise out_of_range(name, f"{len(value)} characters long", f"at most {longest}")
        return value

    def integer(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """An integer between two bounds; required where there is no default."""
        value = self._values.get(name)
        if value is None:
            if default is None:
                raise missing(name)
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise invalid(name, "it must be an integer")
        if not low <= value <= high:
            raise out_of_range(name, value, f"from {low} to {high}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean."""
        value = self._values.get(name, default)
        if not isinstance(value, bool):
            raise invalid(name, "it must be true or false")
        return value

    def choice(self, name: str, allowed: tuple[str, ...], default: str | None = None) -> str:
        """One of a few words."""
        value = self._values.get(name)
        if value is None:
            if default is None:
                raise missing(name)
            return default
        if value not in allowed:
            raise invalid(name, f"it must be one of {', '.join(allowed)}")
        return str(value)

    def cents(self, name: str) -> int:
        """A CurrencyAmount in USD, as cents."""
        value = self.text(name, required=True)
        if not _CURRENCY.fullmatch(value):
            raise invalid(name, "it must be an amount such as 0.65, in USD with at most two decimals")
        whole, _, part = value.partition(".")
        if len(whole) > 9 or (cents := int(whole) * 100 + int((part + "00")[:2])) > MAX_CENTS:
            raise out_of_range(name, value, f"at most {MAX_CENTS / 100:.2f}")
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

    def time(self, name: str) -> dt.datetime:
        """A time, on the wire in seconds since 1970."""
        value = self._values.get(name)
        if value is None:
            raise missing(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise invalid(name, "it must be seconds since 1970")
        if not 0 <= value < _LAST_TIME:
            raise out_of_range(name, value, "a time from 1970 to 9999")
        return dt.datetime.fromtimestamp(value, dt.UTC)

    def token(self) -> str:
        """The UniqueRequestToken, empty where absent."""
        return self.text("UniqueRequestToken", longest=64)

    def page(self) -> tuple[int, int]:
        """The row after which a page starts, and its length (10 unless told, at most 100)."""
        size = self.integer("MaxResults", 1, 100, 10)
        token = self.text("NextToken", longest=255)
        if not token:
            return 0, size
        try:
            text = base64.urlsafe_b64decode(token.encode()).decode()
        except (binascii.Error, ValueError) as error:
            raise invalid("NextToken", "it did not come from this server") from error
        if not re.fullmatch(r"after:[0-9]{1,18}", text):
            raise invalid("NextToken", "it did not come from this server")
        return int(text.removeprefix("after:")), size


def _is_unicode(text: str) -> bool:
    """JSON escapes can spell halves of surrogate pairs, which no database takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def next_token(last_id: int) -> str:
    """The NextToken of the page that follows this row."""
    return base64.urlsafe_b64encode(f"after:{last_id}".encode()).decode()
