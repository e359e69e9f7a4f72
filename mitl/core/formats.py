"""Numbers as readers want to see them (the filters of the report's pages), CSV that no spreadsheet misreads, LaTeX."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal

MISSING = "–"


def count(value: int | None) -> str:
    """1234567 as ``1,234,567``."""
    return MISSING if value is None else f"{value:,}"


def lower_bound(value: float, digits: int = 3) -> str:
    """A lower bound, which is never rounded up: 0.0238 as ``0.023``."""
    return f"{math.floor(value * 10**digits + 1e-9) / 10**digits:.{digits}f}"


def upper_bound(value: float, digits: int = 3) -> str:
    """An upper bound, which is never rounded down: 0.0231 as ``0.024``."""
    return f"{math.ceil(value * 10**digits - 1e-9) / 10**digits:.{digits}f}"


def percent_at_most(share: float | None) -> str:
    """An upper bound of a share, which is never rounded down: 0.90712 as ``90.8 %``."""
    return MISSING if share is None else f"{upper_bound(100 * share, 1)} %"


def percent(share: float | None, digits: int = 1) -> str:
    """0.1234 as ``12.3 %``; a share that is not 0 never reads as 0, nor one below 1 as 100."""
    if share is None:
        return MISSING
    step = 10.0**-digits
    points = 100 * share
    if 0 < points < step / 2:
        return f"< {step:.{digits}f} %"
    if 100 - step / 2 <= points < 100:
        return f"> {100 - step:.{digits}f} %"
    return f"{points:.{digits}f} %"


def points(value: float | None, digits: int = 1) -> str:
    """A percentage as the papers' tables print it, without the sign."""
    return MISSING if value is None else f"{value:.{digits}f}"


def money(cents: int | None) -> str:
    """123456 as ``$1,234.56``."""
    if cents is None:
        return MISSING
    sign = "−" if cents < 0 else ""
    whole, rest = divmod(abs(cents), 100)
    return f"{sign}${whole:,}.{rest:02d}"


def duration(seconds: float | None) -> str:
    """252.4 as ``4 min 12 s``."""
    if seconds is None:
        return MISSING
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def times(after: float | None, before: float | None) -> str:
    """How many times as much, as ``×3.6``."""
    if after is None or not before:
        return MISSING
    return f"×{after / before:.2f}" if after < 10 * before else f"×{after / before:.1f}"


def csv_bytes(rows: Iterable[Sequence[object]]) -> bytes:
    """Rows as CSV with bare line feeds, every cell as it is: for programs."""
    sink = io.StringIO(newline="")
    csv.writer(sink, lineterminator="\n").writerows(rows)
    return sink.getvalue().encode()


def rounded(value: float | None) -> float | None:
    """A figure of ``--json`` and of releases, to four places."""
    return None if value is None else round(value, 4)


def words(value: str) -> str:
    """``weak_yes`` as ``weak yes``."""
    return value.replace("_", " ")


def decimals(value: float | None, digits: int = 2) -> str:
    """0.1234 as ``0.12``, with a true minus."""
    if value is None:
        return MISSING
    text = f"{value:.{digits}f}"
    if text == "nan":
        return MISSING
    return text.replace("-", "−") if float(text) else text.lstrip("-")


_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """CSV text, one line a row."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerows([csv_cell(value) for value in row] for row in rows)
    return sink.getvalue()


def csv_cell(value: object) -> str:
    """A value that no spreadsheet takes for a formula, on one line; numbers stay numbers."""
    if isinstance(value, int | float | Decimal):
        return str(value)
    text = "" if value is None else str(value)
    line = _CONTROL.sub(" ", text)
    is_formula = text.startswith(("\t", "\r", "\n")) or line.lstrip().startswith(_FORMULA)
    return f"'{line}" if is_formula else line


_TEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "ζ": r"$\zeta$",
        "τ": r"$\tau$",
        "→": r"$\rightarrow$",
        "×": r"$\times$",
        "α": r"$\alpha$",
        "≥": r"$\geq$",
        "–": "--",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "≤": r"$\leq$",
    }
)


def escape_tex(text: str) -> str:
    """The text with LaTeX's own characters escaped."""
    return text.replace("<=", "≤").translate(_TEX)
