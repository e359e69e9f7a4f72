"""A file of results as a table of texts, cell by cell, and the answer document that keeps a row of it word for word.

Files are CSV or the command line tools' TSV, plain or packed. The row stands behind the answers in a processing
instruction, ``<?mitl-rows {JSON}?>``, which every reader of answer documents passes over. JSON carries what XML cannot,
so no character of a cell is lost.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mitl.datasets.files import readable, refuse_separators
from mitl.errors import DatasetError
from mitl.protocol.answer_xml import answers_xml

WHAT = "results of past work"
MAX_FILE_BYTES = 1 << 30
"""Unpacked; a batch of 100,000 submissions has a tenth of it."""
_MAX_CELL = 1 << 26
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One row; cells that are missing at its end stand as empty ones."""

    line: int
    """Where it ends in the file, from 1."""
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResultFile:
    """The columns and rows of a file, and what its bytes are called."""

    name: str
    sha256: str
    """Of the unpacked bytes."""
    columns: tuple[str, ...]
    rows: tuple[ResultRow, ...]
    encoding: str
    """utf-8, utf-16, or cp1252 where it was neither."""


def read_result_file(path: Path) -> ResultFile:
    """The table in a file, every cell as it stands there.

    Raises:
        DatasetError: the file is missing, no such table, or has a row that is longer than its header.
    """
    with readable(path, WHAT):
        packed = path.read_bytes()
    data = _unpacked(packed, path)
    text, encoding = _decoded(data, path)
    header, *rows = _records(text, path) or [ResultRow(1, ())]
    columns = header.cells
    refuse_separators(path, columns)
    if not any(column.strip() for column in columns):
        raise DatasetError(f"{str(path)!r} has no header; it should hold {WHAT}")
    twice = [column for column, count in Counter(columns).items() if count > 1 and column]
    if twice:
        raise DatasetError(
            f"{str(path)!r} has the column {twice[0]!r} twice, so its cells cannot be told apart"
        )
    return ResultFile(
        path.name.encode("utf-8", "replace").decode(),
        hashlib.sha256(data).hexdigest(),
        columns,
        tuple(_whole(row, len(columns), path) for row in rows),
        encoding,
    )


def _unpacked(data: bytes, path: Path) -> bytes:
    if data.startswith(_GZIP):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
                data = stream.read(MAX_FILE_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise DatasetError(f"{str(path)!r} is a broken .gz file: {error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise DatasetError(f"{str(path)!r} holds over {MAX_FILE_BYTES:,} bytes; split it")
    return data


def _decoded(data: bytes, path: Path) -> tuple[str, str]:
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    for encoding in ("utf-16",) if wide else ("utf-8-sig", "cp1252"):
        try:
            return data.decode(encoding), encoding.removesuffix("-sig")
        except UnicodeDecodeError:
            continue
    raise DatasetError(f"{str(path)!r} is not text in UTF-8; save it as CSV in UTF-8")


def _records(text: str, path: Path) -> list[ResultRow]:
    first = re.sub(r'"[^"]*"', "", text.partition("\n")[0])
    delimiter = max(",\t;", key=first.count)
    previous = csv.field_size_limit(_MAX_CELL)  # an answer document alone may pass the usual 131,072
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        return [ResultRow(reader.line_num, tuple(cells)) for cells in reader if cells]
    except csv.Error as error:
        if delimiter == "\t":
            # The rows of a TSV whose quotes are not doubled within cells; a cell holds no tab there and no line
            # break.
            lines = ((number, line.rstrip("\r")) for number, line in enumerate(text.split("\n"), start=1))
            return [
                ResultRow(number, tuple(map(_unquoted, line.split("\t")))) for number, line in lines if line
            ]
        raise DatasetError(
            f"line {reader.line_num} of {str(path)!r} is not a CSV ({error}); quotes within a cell are to be doubled"
        ) from error
    finally:
        csv.field_size_limit(previous)


def _unquoted(cell: str) -> str:
    quoted = len(cell) >= 2 and cell.startswith('"') and cell.endswith('"')
    return cell[1:-1].replace('""', '"') if quoted else cell


def _whole(row: ResultRow, width: int, path: Path) -> ResultRow:
    if len(row.cells) > width:
        raise DatasetError(
            f"line {row.line} of {str(path)!r} has {len(row.cells)} cells, but the header names {width} columns"
        )
    return ResultRow(row.line, row.cells + ("",) * (width - len(row.cells)))


_START, _END = "<?mitl-rows ", "?>"


@dataclass(frozen=True, slots=True)
class KeptRows:
    """The rows of a file that one submission was read from."""

    sha256: str
    """Names the file."""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def cells(self) -> dict[str, str]:
        """Column → cell of the first row."""
        return dict(zip(self.columns, self.rows[0], strict=True))


def row_document(answers: str | Iterable[tuple[str, str]], kept: KeptRows) -> str:
    """The document of a submission.

    Args:
        answers: its fields, or the answer document that the row itself holds, which stays byte for byte.
    """
    # PostgreSQL stores no NUL, and no answer document holds one rightly.
    document = answers.replace("\0", "\ufffd") if isinstance(answers, str) else answers_xml(answers)
    content = json.dumps({"file": kept.sha256, "columns": kept.columns, "rows": kept.rows})
    # No cell may end the instruction or look like another one.
    safe = content.replace("<", "\\u003c").replace(">", "\\u003e")
    return f"{document}{_START}{safe}{_END}"


def kept_rows(document: str) -> KeptRows | None:
    """The rows that a document was made of; None for one that came from the requester API."""
    start = document.rfind(_START)
    if start < 0 or not document.endswith(_END):
        return None
    try:
        content = json.loads(document[start + len(_START) : -len(_END)])
        return KeptRows(content["file"], tuple(content["columns"]), tuple(map(tuple, content["rows"])))
    except (ValueError, KeyError, TypeError):
        return None  # a worker wrote something alike
