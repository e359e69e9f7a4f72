"""JSON and table files, read whole, and their cells, with one clear line for whatever is wrong with them."""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mitl.errors import DatasetError

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

T = TypeVar("T")
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
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{str(path)!r} is not in UTF-8 ({error}); it should hold {what}, saved as UTF-8"
        ) from error
    except OSError as error:
        told = str(error.strerror or error).splitlines()[0]  # pyarrow's have several
        raise DatasetError(f"{str(path)!r} cannot be read: {told}") from error


def read_json(path: Path, what: str) -> Any:
    """The values of a JSON file, also compressed (``.gz``)."""
    try:
        with readable(path, what):
            content = path.read_bytes()
            content = gzip.decompress(content) if path.suffix == ".gz" else content
        return json.loads(content, object_pairs_hook=once_each)
    except (ValueError, EOFError, zlib.error, RecursionError) as error:
        raise DatasetError(f"{str(path)!r} is not valid JSON ({error}); it should hold {what}") from error


def read_entries(value: Any, key: str, read: Callable[[Any], T], path: Path, what: str) -> list[T]:
    """What ``read`` makes of each entry of a list in a JSON object, in order.

    Raises:
        DatasetError: there is no such list; or an entry, which is named, lacks something or is of another form.
    """
    listed = value.get(key) if isinstance(value, dict) else None
    if not isinstance(listed, list):
        raise DatasetError(f"{str(path)!r} has no list {key!r}; it should hold {what}")
    made: list[T] = []
    try:
        for entry in listed:
            made.append(read(entry))
    except (KeyError, TypeError, ValueError, AttributeError, DatasetError) as error:
        entry = listed[len(made)]
        named = f" (id {entry['id']!r})" if isinstance(entry, dict) and "id" in entry else ""
        fault = f"lacks {error}" if isinstance(error, KeyError) else f"is malformed: {error}"
        raise DatasetError(
            f"entry {len(made) + 1:,}{named} of {key!r} in {str(path)!r} {fault}; it should hold {what}"
        ) from error
    return made


def once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; ValueError where it gives a key twice, of which Python would drop one unseen."""
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"an object gives {twice!r} twice")
    return values


def is_parquet(path: Path) -> bool:
    """Whether a table's name says that it is a Parquet file; CSV otherwise."""
    return path.suffix.lower() in (".parquet", ".pq")


def read_rows(path: Path, what: str, required: Sequence[str], optional: Sequence[str] = ()) -> list[Row]:
    """Rows of a CSV (UTF-8, with a header) or Parquet file, by column; only the columns asked for are read.

    Raises:
        DatasetError: the file is missing or malformed, a required column is missing, or a column holds lists,
            structures or bytes where one value is wanted.
    """
    if is_parquet(path):
        return _read_parquet(path, what, required, optional)
    header, rows = read_csv(path, what)
    columns = _wanted(path, what, header, required, optional)
    return [{column: row[column] for column in columns} for row in rows]


def read_csv(path: Path, what: str, delimiter: str = ",") -> tuple[list[str], list[dict[str, str]]]:
    """The header and the rows of a CSV file in UTF-8.

    Raises:
        DatasetError: the file is missing or malformed, two columns have one name, or a row has more or fewer cells
            than the header.
    """
    rows: list[dict[str, str]] = []
    reader: csv.DictReader[str] | None = None
    try:
        with readable(path, what), path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, strict=True, delimiter=delimiter)
            header = list(reader.fieldnames or ())
            refuse_separators(path, header)
            other = next((mark for mark in ";\t|" if mark in header[0]), None) if len(header) == 1 else None
            if other is not None and delimiter == ",":
                raise DatasetError(
                    f"the header of {str(path)!r} is separated by {other!r}; save it with commas between columns, and "
                    "with points in numbers"
                )
            refuse_doubled(path, header)
            for row in reader:
                if None in row or None in row.values():
                    raise DatasetError(
                        f"line {reader.line_num} of {str(path)!r} has more or fewer cells than the header; quote cells "
                        "that hold the separator"
                    )
                if delimiter == "\t" and any("\t" in cell and "\n" in cell for cell in row.values()):
                    raise DatasetError(
                        f"line {reader.line_num} of {str(path)!r} ends a cell that holds tabs and ends of lines, as "
                        "where a quote begins a text and none ends it; double such quotes, or take them out"
                    )
                rows.append(row)
    except csv.Error as error:
        line = 1 if reader is None else reader.reader.line_num
        raise DatasetError(
            f"{str(path)!r} is not a CSV file in UTF-8 (line {line}: {error}; is a quote at or before that line never "
            f"closed, or not doubled?); it should hold {what}"
        ) from error
    return header, rows


def refuse_separators(path: Path, first: Sequence[str]) -> None:
    """DatasetError where the first row of a table is no header, but the line that Excel takes its separator from."""
    if first and first[0].lower().startswith("sep="):
        raise DatasetError(
            f"the first line of {str(path)!r} tells Excel how cells are separated; delete that line"
        )


def refuse_doubled(path: Path, header: Sequence[str]) -> None:
    """DatasetError where two columns of a table have one name: which of them is read would be chance."""
    # Spreadsheets add columns without a name at the end.
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice is not None:
        raise DatasetError(f"{str(path)!r} has two columns called {twice!r}; rename one of them")


def _read_parquet(path: Path, what: str, required: Sequence[str], optional: Sequence[str]) -> list[Row]:
    import pyarrow as pa

    with open_parquet(path, what) as file:
        schema = file.schema_arrow
        refuse_doubled(path, schema.names)
        columns = _wanted(path, what, schema.names, required, optional)
        for column in columns:
            kind = schema.field(column).type
            if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
                raise DatasetError(
                    f"column {column!r} of {str(path)!r} holds {kind}, but {what} needs one value a cell there; "
                    "give it a row for each value, or leave the column out"
                )
        table = file.read(columns=columns)
        table.validate(full=True)  # of texts that are none, to_pylist may end the program
        rows: list[Row] = table.to_pylist()
    return rows


@contextmanager
def open_parquet(path: Path, what: str) -> Iterator[ParquetFile]:
    """A Parquet file to read from; DatasetError where it is none, also for what is found out while reading."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with readable(path, what), whole(path), path.open("rb") as stream:
            yield pq.ParquetFile(stream)
    except pa.ArrowException as error:
        first = str(error).splitlines()[0]
        raise DatasetError(f"{str(path)!r} is not a Parquet file ({first}); it should hold {what}") from error


_SPOILED_BYTES = (ValueError, AttributeError, KeyError, OverflowError, NotImplementedError, RecursionError)


@contextmanager
def whole(path: Path) -> Iterator[None]:
    """Turn what spoiled bytes lead pyarrow to, beside its own errors, into a DatasetError."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowException:
        raise
    except _SPOILED_BYTES as error:
        told = str(error).partition("\n")[0]
        raise DatasetError(f"{str(path)!r} is spoiled ({told}); fetch or save it again") from error


def _wanted(
    path: Path, what: str, present: Sequence[str], required: Sequence[str], optional: Sequence[str]
) -> list[str]:
    missing = [column for column in required if column not in present]
    if missing:
        raise DatasetError(
            f"{str(path)!r} has no column {missing[0]!r}; {what} needs the columns {', '.join(required)}"
        )
    return [*required, *(column for column in optional if column in present)]


LONGEST_NAME = 2_000
"""Bytes of an id, or of a file's name or address. PostgreSQL's index takes 2,700; what is longer is no name."""
LONGEST_TEXT = 10_000
"""Characters. A page holds 65,535 bytes with everything on it; longer captions are rows that ran together."""
_LIST_AS_TEXT = re.compile(r"""\[\s*(['"]).*\1\s*,?\s*\]""", re.DOTALL)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""What no page, no XML and no PostgreSQL text may hold; tabs and line ends may stand in captions."""
_MISSING = ("nan", "NaN", "null", "None", "<NA>")
"""What programs write in place of a text that is not there."""
_FLOAT = re.compile(r"-?\d+\.0+|-?\d+(\.\d+)?[eE]\+\d+")
_SEEN = re.compile("[^\\s\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
"""Anything but white space and marks without a width."""


def text_of(value: object) -> str | None:
    """The cell without white space around it; None where nothing of it can be seen, or it is not a number."""
    text = "" if value is None or value != value else str(value).strip()
    return text if _SEEN.search(text) else None


def cell_id(value: object, column: str, where: str) -> str:
    """An id; ``where`` names the row and the file.

    Raises:
        DatasetError: the cell is empty or says that something is missing, a number that was made a fraction, enormous,
            or holds control characters.
    """
    text = _name(value, column, where)
    _refuse_missing(text, column, where, "take the row out")
    if isinstance(value, float) or _FLOAT.fullmatch(text):
        raise DatasetError(
            f"{where} has {column} {text}, a number with a fraction or power; ids are whole numbers or texts: "
            "write the column as integers or texts"
        )
    if any(character in text for character in "\t\n\r"):
        raise DatasetError(
            f"{where} has a tab or line end within its {column} {text!r}; ids stand on one line"
        )
    return text


def caption_text(value: object, column: str, where: str) -> str:
    """A caption.

    Raises:
        DatasetError: the cell is empty, says that something is missing, is a list that was written as text, is
            enormous, or holds control characters.
    """
    text = _present(value, column, where)
    _refuse_missing(text, column, where, "empty it")
    _refuse_list(
        text,
        column,
        where,
        "give each caption a row of its own, or write JSON lines or a Parquet column of lists",
    )
    if len(text) > LONGEST_TEXT:
        raise DatasetError(
            f"{where} has a {column} of {len(text):,} characters, of which {LONGEST_TEXT:,} are allowed "
            f"({text[:40]!r}…); is a quote before it never closed?"
        )
    return text


def document_text(value: object, column: str, where: str) -> str:
    """A text that is searched: of any length, line ends as they are.

    Raises:
        DatasetError: it is empty, a list, or holds control characters.
    """
    text = _present(value, column, where)
    _refuse_list(text, column, where, "join its parts into one text")
    return text


def file_text(value: object, column: str, where: str) -> str | None:
    """The name or the address of a file; None where the cell is empty.

    Raises:
        DatasetError: it holds control characters or is enormous.
    """
    return None if text_of(value) is None else _name(value, column, where)


def _name(value: object, column: str, where: str) -> str:
    text = _present(value, column, where)
    if (size := len(text.encode())) > LONGEST_NAME:
        raise DatasetError(
            f"{where} has {size:,} bytes in its {column} ({text[:40]!r}…), where a name has up to {LONGEST_NAME:,}; is "
            "it a text, or a picture written as text?"
        )
    return text


def _refuse_missing(text: str, column: str, where: str, remedy: str) -> None:
    if text in _MISSING:
        raise DatasetError(
            f"{where} has no {column}: {text!r} stands for a missing one; write it, or {remedy}"
        )


def _refuse_list(text: str, column: str, where: str, remedy: str) -> None:
    if _LIST_AS_TEXT.fullmatch(text):
        raise DatasetError(f"{where} has a list written as text in {column!r} ({text[:40]!r}…); {remedy}")


def _present(value: object, column: str, where: str) -> str:
    text = text_of(value)
    if text is None:
        raise DatasetError(f"{where} has no {column}; write it, or take the row out")
    if isinstance(value, (list, dict)):
        raise DatasetError(f"{where} has several values as its {column} ({text[:40]!r}); write one")
    match = _CONTROL.search(text)
    if match:
        raise DatasetError(
            f"{where} has the control character U+{ord(match[0]):04X} in its {column} ({text[:40]!r}); take it out"
        )
    return text
