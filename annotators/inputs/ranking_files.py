"""Rankings made elsewhere, read from Parquet files with the data set's own ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from annotators.base import Ranking
from mitl.errors import AnnotatorError

COLUMNS = ("query_id", "rank", "item_id", "similarity")


def read_ranking(
    path: Path, queries: Mapping[str, int], items: Mapping[str, int], query_ids: Sequence[int], depth: int
) -> Ranking:
    """The first ``depth`` items of these queries from a file of (query_id, rank, item_id, similarity) rows.

    Args:
        queries, items: surrogate id by external id; ``query_ids`` are surrogate ids.

    Raises:
        AnnotatorError: a query without rows, fewer than ``depth`` items, an item that is unknown or repeated,
            ranks that do not count from 1, similarities that rise with the rank or are not finite.
    """
    external = {surrogate: name for name, surrogate in queries.items()}
    table = _read(path, [external[query] for query in query_ids])
    rows_of: dict[str, list[tuple[int, str, float]]] = {}
    for query, rank, item, similarity in zip(*(table[name] for name in COLUMNS), strict=True):
        rows_of.setdefault(str(query), []).append((rank, str(item), similarity))
    item_ids = np.empty((len(query_ids), depth), dtype=np.int64)
    similarities = np.empty((len(query_ids), depth), dtype=np.float32)
    for row, query_id in enumerate(query_ids):
        name = external[query_id]
        ids, values = _row(path, name, rows_of.get(name, []), items, depth)
        # Files may order equal similarities as they like; here the smaller id goes first.
        order = np.lexsort((ids, -values))[:depth]
        item_ids[row], similarities[row] = ids[order], values[order]
    return Ranking(np.array(query_ids, dtype=np.int64), item_ids, similarities)


def _read(path: Path, external_query_ids: Sequence[str]) -> dict[str, list[Any]]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        missing = [name for name in COLUMNS if name not in table.column_names]
        if missing:
            raise AnnotatorError(
                f"{str(path)!r} lacks the column {missing[0]!r}; it holds {', '.join(table.column_names)}"
            )
        as_text = table["query_id"].cast(pa.string())
        table = table.filter(pc.is_in(as_text, value_set=pa.array(external_query_ids, type=pa.string())))
        columns = {name: table[name] for name in COLUMNS}
        columns["rank"] = columns["rank"].cast(pa.int64())
        columns["similarity"] = columns["similarity"].cast(pa.float32())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise AnnotatorError(f"{str(path)!r} is not readable as a ranking in Parquet: {error}") from error
    null = [name for name in COLUMNS if columns[name].null_count]
    if null:
        raise AnnotatorError(f"{str(path)!r} has empty cells in the column {null[0]!r}")
    return {name: column.to_pylist() for name, column in columns.items()}


def _row(
    path: Path, query: str, rows: list[tuple[int, str, float]], items: Mapping[str, int], depth: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """One query's items and similarities by rank, all that the file has."""
    where = f"the ranking of query {query!r} in {str(path)!r}"
    if not rows:
        raise AnnotatorError(f"{str(path)!r} has no ranking of query {query!r}")
    rows.sort()
    if [rank for rank, _, _ in rows] != list(range(1, len(rows) + 1)):
        raise AnnotatorError(f"{where} has ranks that do not count 1, 2, 3 …")
    if len(rows) < depth:
        raise AnnotatorError(f"{where} has {len(rows)} items, but the depth is {depth}; ask for less")
    unknown = [item for _, item, _ in rows if item not in items]
    if unknown:
        raise AnnotatorError(f"{where} names item {unknown[0]!r}, which is not in the data set")
    if len({item for _, item, _ in rows}) != len(rows):
        raise AnnotatorError(f"{where} has an item twice")
    ids = np.array([items[item] for _, item, _ in rows], dtype=np.int64)
    values = np.array([similarity for _, _, similarity in rows], dtype=np.float32)
    if not np.isfinite(values).all():
        raise AnnotatorError(f"{where} has a similarity that is not finite")
    if (np.diff(values) > 0).any():
        raise AnnotatorError(f"{where} has similarities that rise with the rank; higher should be closer")
    return ids, values
