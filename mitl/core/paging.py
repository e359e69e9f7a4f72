"""Which page of a long list is shown, and numbers of rows in addresses.

The desk's template ``turn.html.j2`` leads to the other pages.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.convertors import IntegerConvertor, register_url_convertor


@dataclass(frozen=True, slots=True)
class ListPage:
    """A page of a long list."""

    page: int
    """From 1 to ``last``."""
    last: int
    first: int
    """Place in the list of the first row shown, from 1."""
    end: int
    """Place of the last row shown."""
    rows: int
    """In the whole list."""

    @classmethod
    def to(cls, page: int, rows: int, *, a_page: int) -> ListPage:
        """The page wanted, or the last one where there are fewer."""
        last = max(1, -(-rows // a_page))
        page = min(max(page, 1), last)
        return cls(page, last, (page - 1) * a_page + 1, min(page * a_page, rows), rows)

    @property
    def part(self) -> slice:
        """The rows shown."""
        return slice(self.first - 1, self.end)


def number_in(text: str) -> int | None:
    """The number that an address or a form gives, from 0 to the most that a row can have; None where it gives none."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 18 else 2**31
    return number if number < 2**31 else None


class RowConvertor(IntegerConvertor):
    """``{number:row}`` in a route; Starlette's own ``int`` fails at digits that Python reads as no number."""

    regex = "[0-9]{1,10}"


register_url_convertor("row", RowConvertor())
