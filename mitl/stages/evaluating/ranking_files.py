"""Rankings made elsewhere, of any length and under their own ids: Parquet as mitl writes it, JSON of lists, or .npz."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annotators.inputs.embedding_files import id_texts, read_archive
from annotators.precomputed import directions_among
from mitl.errors import MetricError
from mitl.records import Direction
from mitl.records.forms import DIRECTION_OF
from mitl.retrieval.rankings import DATASET_KEY
from mitl.stages.evaluating.request import need_file

ENDED = -1
"""In the place of an item where a ranking has ended."""
_CELLS = 1 << 26
"""Flags that are held in one go while looking for doubled items."""
COLUMNS = ("query_id", "rank", "item_id")
_IN_NAME = re.compile(rf"(?:^|[^a-z0-9])({'|'.join(DIRECTION_OF)})(?:[^a-z0-9]|$)")


@dataclass(frozen=True, slots=True, eq=False)
class RankingTable:
    """Rankings of ``queries``: ``items[q]`` are places in ``names``, best first, ``ENDED`` after the last one."""

    path: Path
    direction: Direction
    queries: tuple[str, ...]
    names: tuple[str, ...]
    items: NDArray[np.int32]
    """(Q, depth) of the longest ranking."""
    dataset_sha256: str = ""
    """Over the ids and texts of the data set; empty where the file does not say it."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(Q,) items of each ranking."""
        return np.asarray((self.items != ENDED).sum(axis=1), dtype=np.int64)


def from_lists(path: Path, direction: Direction, lists: object) -> RankingTable:
    """Rankings of ``{query id: item ids}``, as a JSON file holds them; ids are integers or texts.

    Raises:
        MetricError: it is something else, or names a query or an item of a query twice.
    """
    if not isinstance(lists, dict):
        raise MetricError(f"{direction} in {str(path)!r} is not an object of rankings by query id")
    wrong = next((query for query, items in lists.items() if not isinstance(items, list)), None)
    if wrong is not None:
        raise MetricError(f"{str(path)!r} gives query {wrong} no list of items")
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
        twice = next(query for place, query in enumerate(table.queries) if query in table.queries[:place])
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


def read_rankings(path: Path) -> dict[Direction, RankingTable]:
    """The rankings of a file, by direction: one, or both.

    * Parquet: a row for each ``query_id``, ``rank`` (from 1) and ``item_id``, as ``mitl propose`` writes them;
    * JSON: ``{query id: [item ids, best first]}``, or ``{"i2t": {…}, "t2i": {…}}``;
    * .npz: ``query_ids`` (Q,) and ``item_ids`` (Q, depth), or ``i2t_query_ids``, ``i2t_item_ids`` and the same for t2i.

    Where the file does not say its direction, its name does: ``mine.i2t.json``. Directions may be named as any form of
    data sets does, as ``mine.a2t.json``.

    Raises:
        MetricError: missing, unreadable, of another layout, without a direction, or ids doubled.
        AnnotatorError: arrays or ids cannot be read, or one direction stands there under two names.
    """
    readers = {".parquet": _from_parquet, ".json": _from_json, ".npz": _from_npz}
    reader = readers.get(need_file(path, "rankings").suffix)
    if reader is None:
        raise MetricError(
            f"{str(path)!r} is not a file of rankings; it should end in .parquet, .json or .npz"
        )
    return reader(path)


def _named_direction(path: Path) -> Direction:
    match = _IN_NAME.search(path.stem.lower())
    if match is None:
        raise MetricError(
            f"{str(path)!r} does not say which direction it ranks; call it {path.stem + '.i2t' + path.suffix!r} "
            f"(images search captions) or {path.stem + '.t2i' + path.suffix!r}"
        )
    return DIRECTION_OF[match[1]]


def _from_json(path: Path) -> dict[Direction, RankingTable]:
    try:
        value = json.loads(path.read_bytes(), object_pairs_hook=lambda pairs: _each_once(path, pairs))
    except (ValueError, RecursionError) as error:
        raise MetricError(f"{str(path)!r} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise MetricError(f"{str(path)!r} holds no object of rankings by query id")
    if value and set(value) <= set(DIRECTION_OF):
        named = directions_among(value, repr(str(path)))
        return {direction: from_lists(path, direction, value[way]) for way, direction in named.items()}
    direction = _named_direction(path)
    return {direction: from_lists(path, direction, value)}


def _each_once(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these keys, none of them doubled: JSON readers would keep the last silently."""
    by_key = dict(pairs)
    if len(by_key) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for place, key in enumerate(keys) if key in keys[:place])
        raise MetricError(f"{str(path)!r} ranks for query {twice} twice; keep one of its rankings")
    return by_key


def _from_npz(path: Path) -> dict[Direction, RankingTable]:
    arrays = read_archive(path)
    if {"query_ids", "item_ids"} <= set(arrays):
        prefixes = {"": _named_direction(path)}
    else:
        whole = [way for way in DIRECTION_OF if {f"{way}_query_ids", f"{way}_item_ids"} <= set(arrays)]
        named = directions_among(whole, repr(str(path)))
        prefixes = {f"{way}_": direction for way, direction in named.items()}
    if not prefixes:
        raise MetricError(
            f"{str(path)!r} lacks the arrays query_ids and item_ids (or i2t_query_ids, i2t_item_ids …); "
            f"it holds {', '.join(arrays) or 'none'}"
        )
    return {
        direction: from_arrays(
            path, direction, id_texts(path, arrays[f"{prefix}query_ids"]), arrays[f"{prefix}item_ids"]
        )
        for prefix, direction in prefixes.items()
    }


def _from_parquet(path: Path) -> dict[Direction, RankingTable]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        missing = [name for name in COLUMNS if name not in file.schema_arrow.names]
        if missing:
            raise MetricError(
                f"{str(path)!r} lacks the column {missing[0]!r}; it holds {', '.join(file.schema_arrow.names)}"
            )
        said = file.schema_arrow.metadata or {}
        direction = DIRECTION_OF.get(said.get(b"direction", b"").decode()) or _named_direction(path)
        table = file.read(columns=list(COLUMNS))
        empty = [name for name in COLUMNS if table[name].null_count]
        if empty:
            raise MetricError(f"{str(path)!r} has empty cells in the column {empty[0]!r}")
        queries, items = (
            table[name].combine_chunks().dictionary_encode() for name in ("query_id", "item_id")
        )
        ids = queries.dictionary.to_pylist(), items.dictionary.to_pylist()
        ranks = table["rank"].cast(pa.int64()).to_numpy()
        dataset = said.get(DATASET_KEY, b"").decode()
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise MetricError(f"{str(path)!r} is not readable as rankings in Parquet: {reason}") from error
    places = queries.indices.to_numpy(), items.indices.to_numpy()
    rankings = from_rows(path, direction, (places[0], ids[0]), ranks, (places[1], ids[1]))
    return {direction: replace(rankings, dataset_sha256=dataset)}
