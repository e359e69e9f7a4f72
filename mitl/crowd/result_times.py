"""Times as result files write them."""

from __future__ import annotations

import datetime as dt
import re

_ZONES = {
    **dict.fromkeys(("UTC", "GMT", "WET"), 0),
    **dict.fromkeys(("CET", "WEST"), 1),
    **dict.fromkeys(("EET", "CEST"), 2),
    "EEST": 3,
    "EDT": -4,
    **dict.fromkeys(("EST", "CDT"), -5),
    **dict.fromkeys(("CST", "MDT"), -6),
    **dict.fromkeys(("MST", "PDT"), -7),
    **dict.fromkeys(("PST", "AKDT"), -8),
    "AKST": -9,
    "HST": -10,
}
"""Hours ahead of UTC; in such files CST is the American one."""
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# As in "Sat Oct 07 03:51:58 PDT 2017", whatever the machine's language.
_SPELLED = re.compile(
    r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d{1,2}) (\d{1,2}):(\d\d):(\d\d) ([A-Z]{1,4}) (\d{4})", re.ASCII
)
_EPOCH = re.compile(r"(\d{9,10})(\d{3})?(?:\.(\d{1,6})\d*)?", re.ASCII)


def read_time(text: str) -> dt.datetime | None:
    """The time in UTC; None where it cannot be told for sure, as without a zone.

    Read are ``Sat Oct 07 03:51:58 PDT 2017``, ISO 8601 with an offset, and seconds or milliseconds since 1970.
    """
    try:
        return _spelled(text) or _epoch(text) or _iso(text)
    except (ValueError, OverflowError):
        return None


def _spelled(text: str) -> dt.datetime | None:
    found = _SPELLED.fullmatch(text)
    if found is None or found[1] not in _MONTHS or found[6] not in _ZONES:
        return None
    month, zone = _MONTHS.index(found[1]) + 1, dt.timezone(dt.timedelta(hours=_ZONES[found[6]]))
    day, hour, minute, second, year = (int(found[place]) for place in (2, 3, 4, 5, 7))
    return dt.datetime(year, month, day, hour, minute, second, tzinfo=zone).astimezone(dt.UTC)


def _epoch(text: str) -> dt.datetime | None:
    found = _EPOCH.fullmatch(text)
    if found is None or (found[2] and found[3]):
        return None
    micros = int(found[2]) * 1000 if found[2] else int((found[3] or "0").ljust(6, "0"))
    return dt.datetime.fromtimestamp(int(found[1]), dt.UTC).replace(microsecond=micros)


def _iso(text: str) -> dt.datetime | None:
    time = dt.datetime.fromisoformat(text)
    return None if time.tzinfo is None else time.astimezone(dt.UTC)
