"""Rankings made elsewhere: Parquet as mitl writes it, JSON of lists, or .npz of arrays."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from mitl.errors import MetricError
from mitl.records import Direction
from mitl.stages.evaluating.models.id_files import id_texts
from mitl.stages.evaluating.models.ranking_table import RankingTable, from_arrays, from_lists, from_rows

COLUMNS = ("query_id", "rank", "item_id")
_IN_NAME = re.compile(r"(?:^|[^a-z0-9])(i2t|t2i)(?:[^a-z0-9]|$)")


def read_rankings(path: Path) -> dict[Direction, RankingTable]:
    """The rankings of a file, by direction: one, or both.

    * Parquet: a row for each ``query_id``, ``rank`` (from 1) and ``item_id``, as ``mitl propose`` writes them;
    * JSON: ``{query id: [item ids, best first]}``, or ``{"i2t": {…}, "t2i": {…}}``;
    * .npz: ``query_ids`` (Q,) and ``item_ids`` (Q, depth), or ``i2t_query_ids``, ``i2t_item_ids`` and the same for t2i.

    Where the file does not say its direction, its name does: ``mine.i2t.json``.

    Raises:
        MetricError: missing, unreadable, of another layout, without a direction, or ids doubled.
    """
    if not path.is_file():
        raise MetricError(f"there is no file {str(path)!r}; it should hold rankings")
    if path.suffix == ".parquet":
        found = _from_parquet(path)
        return {found.direction: found}
    if path.suffix == ".json":
        return _from_json(path)
    if path.suffix == ".npz":
        return _from_npz(path)
    raise MetricError(f"{str(path)!r} is no file of rankings; it should end in .parquet, .json or .npz")


def _named_direction(path: Path) -> Direction:
    found = _IN_NAME.search(path.stem.lower())
    if found is None:
        raise MetricError(
            f"{str(path)!r} does not say which direction it ranks; call it {path.stem + '.i2t' + path.suffix!r} "
            f"(images search captions) or {path.stem + '.t2i' + path.suffix!r}"
        )
    return Direction(found[1])


def _from_json(path: Path) -> dict[Direction, RankingTable]:
    try:
        value = json.loads(path.read_bytes(), object_pairs_hook=lambda pairs: _each_once(path, pairs))
    except ValueError as error:
        raise MetricError(f"{str(path)!r} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise MetricError(f"{str(path)!r} holds no object of rankings by query id")
    if value and set(value) <= set(Direction):
        return {
            direction: _lists(path, direction, value[direction])
            for direction in Direction
            if direction in value
        }
    direction = _named_direction(path)
    return {direction: _lists(path, direction, value)}


def _each_once(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these keys, none of them doubled: JSON readers would keep the last silently."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for place, key in enumerate(keys) if key in keys[:place])
        raise MetricError(f"{str(path)!r} ranks for query {twice} twice; keep one of its rankings")
    return found


def _lists(path: Path, direction: Direction, value: object) -> RankingTable:
    if not isinstance(value, dict):
        raise MetricError(f"{direction} in {str(path)!r} is no object of rankings by query id")
    wrong = next((query for query, items in value.items() if not isinstance(items, list)), None)
    if wrong is not None:
        raise MetricError(f"{str(path)!r} gives query {wrong} no list of items")
    return from_lists(path, direction, value)


def _from_npz(path: Path) -> dict[Direction, RankingTable]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise MetricError(f"{str(path)!r} is not readable as numpy data without pickles: {error}") from error
    if {"query_ids", "item_ids"} <= set(arrays):
        direction = _named_direction(path)
        return {direction: _ranked(path, direction, arrays, "")}
    found = {
        direction: _ranked(path, direction, arrays, f"{direction}_")
        for direction in Direction
        if {f"{direction}_query_ids", f"{direction}_item_ids"} <= set(arrays)
    }
    if not found:
        raise MetricError(
            f"{str(path)!r} lacks the arrays query_ids and item_ids (or i2t_query_ids, i2t_item_ids …); "
            f"it holds {', '.join(arrays) or 'none'}"
        )
    return found


def _ranked(path: Path, direction: Direction, arrays: dict[str, Any], prefix: str) -> RankingTable:
    queries = id_texts(path, arrays[f"{prefix}query_ids"])
    return from_arrays(path, direction, queries, arrays[f"{prefix}item_ids"])


def _from_parquet(path: Path) -> RankingTable:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        missing = [name for name in COLUMNS if name not in file.schema_arrow.names]
        if missing:
            raise MetricError(
                f"{str(path)!r} lacks the column {missing[0]!r}; it holds {', '.join(file.schema_arrow.names)}"
            )
        said = (file.schema_arrow.metadata or {}).get(b"direction", b"").decode()
        direction = Direction(said) if said in set(Direction) else _named_direction(path)
        table = file.read(columns=list(COLUMNS))
        empty = [name for name in COLUMNS if table[name].null_count]
        if empty:
            raise MetricError(f"{str(path)!r} has empty cells in the column {empty[0]!r}")
        queries, items = (
            table[name].combine_chunks().dictionary_encode() for name in ("query_id", "item_id")
        )
        ranks = table["rank"].cast(pa.int64()).to_numpy()
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise MetricError(f"{str(path)!r} is not readable as rankings in Parquet: {reason}") from error
    return from_rows(
        path,
        direction,
        (queries.indices.to_numpy(), queries.dictionary.to_pylist()),
        ranks,
        (items.indices.to_numpy(), items.dictionary.to_pylist()),
    )
