"""JSON and table files, read whole, with one clear line for whatever is wrong with them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mitl.errors import DatasetError

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

Row = Mapping[str, Any]


@contextmanager
def readable(path: Path, what: str) -> Iterator[None]:
    """Turn what the file system says into a DatasetError; ``what`` says what the file should hold."""
    try:
        yield
    except FileNotFoundError as error:
        raise DatasetError(f"there is no file {str(path)!r}; it should hold {what}") from error
    except IsADirectoryError as error:
        raise DatasetError(f"{str(path)!r} is a folder; a file with {what} is needed") from error
    except OSError as error:
        raise DatasetError(f"{str(path)!r} cannot be read: {error.strerror or error}") from error


def read_json(path: Path, what: str) -> Any:
    """The values of a JSON file."""
    with readable(path, what):
        content = path.read_bytes()
    try:
        return json.loads(content)
    except ValueError as error:
        raise DatasetError(f"{str(path)!r} is not valid JSON ({error}); it should hold {what}") from error


def is_parquet(path: Path) -> bool:
    """Whether a table's name says that it is a Parquet file; CSV otherwise."""
    return path.suffix.lower() in (".parquet", ".pq")


def read_rows(
    path: Path, what: str, required: Sequence[str], optional: Sequence[str] = (), *, lists: Sequence[str] = ()
) -> list[Row]:
    """Rows of a CSV (UTF-8, with a header) or Parquet file, by column; only the columns asked for are read.

    Args:
        lists: columns whose cells may hold lists in a Parquet file.

    Raises:
        DatasetError: the file is missing or malformed, a required column is missing, or a column holds lists,
            structures or bytes where one value is wanted.
    """
    if is_parquet(path):
        return _read_parquet(path, what, required, optional, lists)
    return _read_csv(path, what, required, optional)


def _read_csv(path: Path, what: str, required: Sequence[str], optional: Sequence[str]) -> list[Row]:
    rows: list[Row] = []
    try:
        with readable(path, what), path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, strict=True)
            wanted = _wanted(path, what, reader.fieldnames or (), required, optional)
            for row in reader:
                if None in row or None in row.values():
                    raise DatasetError(
                        f"line {reader.line_num} of {str(path)!r} has more or fewer cells than the header"
                    )
                rows.append({column: row[column] for column in wanted})
    except (csv.Error, UnicodeDecodeError) as error:
        raise DatasetError(
            f"{str(path)!r} is not a CSV file in UTF-8 ({error}); it should hold {what}"
        ) from error
    return rows


def _read_parquet(
    path: Path, what: str, required: Sequence[str], optional: Sequence[str], lists: Sequence[str]
) -> list[Row]:
    import pyarrow as pa

    with open_parquet(path, what) as file:
        schema = file.schema_arrow
        wanted = _wanted(path, what, schema.names, required, optional)
        for column in wanted:
            kind = schema.field(column).type
            is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
            if column in lists and is_list and not pa.types.is_nested(kind.value_type):
                continue
            if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
                raise DatasetError(
                    f"column {column!r} of {str(path)!r} holds {kind}, but {what} needs one value a cell there; "
                    "give it a row for each value, or leave the column out"
                )
        rows: list[Row] = file.read(columns=wanted).to_pylist()
    return rows


@contextmanager
def open_parquet(path: Path, what: str) -> Iterator[ParquetFile]:
    """A Parquet file to read from; DatasetError where it is none, also for what is found out while reading."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with readable(path, what), path.open("rb") as stream:
            yield pq.ParquetFile(stream)
    except pa.ArrowException as error:
        first = str(error).splitlines()[0]
        raise DatasetError(f"{str(path)!r} is not a Parquet file ({first}); it should hold {what}") from error


def _wanted(
    path: Path, what: str, present: Sequence[str], required: Sequence[str], optional: Sequence[str]
) -> list[str]:
    missing = [column for column in required if column not in present]
    if missing:
        raise DatasetError(
            f"{str(path)!r} has no column {missing[0]!r}; {what} needs the columns {', '.join(required)}"
        )
    return [*required, *(column for column in optional if column in present)]
