"""One direction's rankings as read from a file: whatever their length, under the file's own ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.errors import MetricError
from mitl.records import Direction

ENDED = -1
"""In the place of an item where a ranking has ended."""
_CELLS = 1 << 26
"""Flags that are held in one go while looking for doubled items."""


@dataclass(frozen=True, slots=True, eq=False)
class RankingTable:
    """Rankings of ``queries``: ``items[q]`` are places in ``names``, best first, ``ENDED`` after the last one."""

    path: Path
    direction: Direction
    queries: tuple[str, ...]
    names: tuple[str, ...]
    items: NDArray[np.int32]
    """(Q, depth) of the longest ranking."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(Q,) items of each ranking."""
        return np.asarray((self.items != ENDED).sum(axis=1), dtype=np.int64)


def from_lists(path: Path, direction: Direction, lists: Mapping[str, Sequence[object]]) -> RankingTable:
    """Rankings of ``{query id: item ids}``, as a JSON file holds them; ids are integers or texts, else MetricError."""
    place_of: dict[str, int] = {}
    depth = max((len(items) for items in lists.values()), default=0)
    items = np.full((len(lists), depth), ENDED, np.int32)
    for row, (query, ranked) in enumerate(lists.items()):
        names = [_text(path, query, item) for item in ranked]
        items[row, : len(names)] = [place_of.setdefault(name, len(place_of)) for name in names]
    return checked(RankingTable(path, direction, tuple(lists), tuple(place_of), items))


def from_arrays(path: Path, direction: Direction, queries: Sequence[str], raw: NDArray[Any]) -> RankingTable:
    """Rankings of one depth from (Q, depth) ids, integers or texts."""
    if raw.ndim != 2 or raw.dtype.kind not in "iuU" or len(raw) != len(queries):
        raise MetricError(
            f"the rankings {direction} in {str(path)!r} are {raw.dtype} of shape {raw.shape} for {len(queries)} "
            "query ids; they should be item ids of shape (queries, depth)"
        )
    names, places = np.unique(raw, return_inverse=True)
    items = places.reshape(raw.shape).astype(np.int32)
    return checked(
        RankingTable(path, direction, tuple(queries), tuple(str(name) for name in names.tolist()), items)
    )


def from_rows(
    path: Path,
    direction: Direction,
    queries: tuple[NDArray[Any], Iterable[object]],
    ranks: NDArray[np.int64],
    items: tuple[NDArray[Any], Iterable[object]],
) -> RankingTable:
    """Rankings of one row a (query, rank, item); ids as (places, what the places name).

    Raises:
        MetricError: a query's ranks do not count 1, 2, 3 …, or an item is ranked twice.
    """
    query_names = tuple(str(name) for name in queries[1])
    rows = queries[0].astype(np.int64)
    lengths = np.bincount(rows, minlength=len(query_names))
    depth = int(lengths.max(initial=0))
    wrong = (ranks < 1) | (ranks > lengths[rows])
    table = np.full((len(query_names), depth), ENDED, np.int32)
    if not wrong.any():
        table[rows, ranks - 1] = items[0]
        wrong = ((table != ENDED).sum(axis=1) != lengths)[rows]
    if wrong.any():
        query = query_names[int(rows[int(np.argmax(wrong))])]
        raise MetricError(f"the ranks of query {query} in {str(path)!r} do not count 1, 2, 3 …")
    return checked(RankingTable(path, direction, query_names, tuple(str(name) for name in items[1]), table))


def checked(table: RankingTable) -> RankingTable:
    """The table, if it names each query once and no item twice for a query; else MetricError."""
    if not table.queries:
        raise MetricError(f"{str(table.path)!r} holds no ranking {table.direction}")
    if len(set(table.queries)) != len(table.queries):
        twice = next(one for place, one in enumerate(table.queries) if one in table.queries[:place])
        raise MetricError(f"{str(table.path)!r} ranks for query {twice} twice; keep one of its rankings")
    step = max(1, _CELLS // max(1, len(table.names)))
    for start in range(0, len(table.items), step):
        block = table.items[start : start + step]
        filled = block != ENDED
        seen = np.zeros((len(block), len(table.names)), dtype=np.bool_)
        seen[np.nonzero(filled)[0], block[filled]] = True
        twice_named = seen.sum(axis=1) != filled.sum(axis=1)
        if twice_named.any():
            row = int(np.argmax(twice_named))
            names, counts = np.unique(block[row][filled[row]], return_counts=True)
            item = table.names[int(names[counts > 1][0])]
            raise MetricError(
                f"the ranking of query {table.queries[start + row]} in {str(table.path)!r} names item {item} twice"
            )
    return table


def _text(path: Path, query: str, item: object) -> str:
    if isinstance(item, bool) or not isinstance(item, int | str):
        raise MetricError(
            f"the ranking of query {query} in {str(path)!r} holds {item!r}, but ids are integers or texts"
        )
    return str(item)
