"""The ids that a release shows for the surrogate ids inside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import pyarrow as pa

from mitl.core.arrays import Ints, unpack_ids
from mitl.errors import ReleaseError
from mitl.records import IdKind

PAIR_COLUMNS = ("image_id", "caption_id")
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class ReleaseIds:
    """What one kind of item is called in a release.

    ``shown`` is the external id, an integer or a string. ``number`` is always an integer, as the JSONs and
    the official CSV need: the external id itself, or for strings the item's place in id order, from 1.
    """

    kind: IdKind
    shown: Mapping[int, int | str]
    number: Mapping[int, int]

    def column(self, surrogates: Ints | Sequence[int]) -> pa.Array:
        """What these items are called, of one type in every table of a data set."""
        kind = pa.int64() if self.kind is IdKind.INTEGER else pa.string()
        return by_place(self.shown).cast(kind).take(pa.array(surrogates))


Names = tuple[ReleaseIds, ReleaseIds]
"""Of images, and of captions."""


def release_ids(kind: IdKind, external_ids: Mapping[int, str], noun: str) -> ReleaseIds:
    """Names for every item of the data set.

    Raises:
        ReleaseError: an id of an integer data set is not a 64-bit integer, or two ids show as the same.
    """
    numbers = {surrogate: place for place, surrogate in enumerate(sorted(external_ids), start=1)}
    shown: Mapping[int, int | str] = external_ids
    if kind is IdKind.INTEGER:
        shown = numbers = {surrogate: _integer(text, noun) for surrogate, text in external_ids.items()}
    repeated = next((value for value, times in Counter(shown.values()).items() if times > 1), None)
    if repeated is not None:
        raise ReleaseError(f"two {noun}s are both called {repeated!r}; ids must be unique")
    return ReleaseIds(kind, shown, numbers)


def pair_columns(names: Names, rows: pd.DataFrame) -> dict[str, pa.Array]:
    """The released ids of the packed pairs in these rows."""
    both = zip(names, unpack_ids(rows["pair"].to_numpy()), strict=True)
    columns = (ids.column(surrogates) for ids, surrogates in both)
    return dict(zip(PAIR_COLUMNS, columns, strict=True))


def by_place(names: Mapping[int, int | str]) -> pa.Array:
    """What each surrogate id is called, at its place."""
    return pa.array([names.get(place) for place in range(max(names, default=-1) + 1)])


def _integer(text: str, noun: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = None
    if number is None or number not in _INT64:
        raise ReleaseError(
            f"{noun} id {text!r} is not a 64-bit integer, but the data set says its ids are integers"
        )
    return number
