"""How long something lasts, as people type it."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import click

_SPAN = re.compile(r"([0-9]{1,6})\s*(m|h|d|w)", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
LONGEST = dt.timedelta(days=3650)


class Lifetime(click.ParamType[dt.timedelta, Any]):
    """``90m``, ``12h``, ``30d``, ``2w`` or a date, which is meant to its end in UTC; from now on."""

    name = "lifetime"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dt.timedelta:
        """The time from now; a usage error that names the option where the text is none."""
        if isinstance(value, dt.timedelta):
            return value
        found = _span(value) or _until(value)
        if found is None:
            self.fail(f"{value!r} is no time; use 12h, 30d or a date as 2027-01-31", param, ctx)
        if not dt.timedelta() < found <= LONGEST:
            self.fail(f"{value!r} is past, or more than ten years away", param, ctx)
        return found


def _span(text: str) -> dt.timedelta | None:
    match = _SPAN.fullmatch(text.strip().lower())
    return None if match is None else dt.timedelta(**{_UNITS[match[2]]: int(match[1])})


def _until(text: str) -> dt.timedelta | None:
    try:
        day = dt.date.fromisoformat(text.strip())
    except ValueError:
        return None
    end = dt.datetime.combine(day, dt.time.max, dt.UTC)
    return end - dt.datetime.now(dt.UTC)


LIFETIME = Lifetime()
