"""Reading a dump: a folder, or the same in one ``.tar`` file, which is read where it is."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, cast

from mitl.db.migrate import Line
from mitl.errors import StoreError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

MANIFEST = "manifest.json"
FORMAT = 2
"""1 named the time and the engine too, by which two dumps of the same rows differed."""
LINES: tuple[Line, ...] = ("pipeline", "crowd")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
TRAINED = "trained"
"""Folder, in a dump as in a project, of the weights and curves of what learnt; it goes with the pipeline database."""
_TRAINED_NAME = re.compile(r"(?!\.{1,2}$)[^/\\\0]+")
"""The name of a file in that folder, whoever put it there, and no way out of it."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """One table's file."""

    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class DumpedDatabase:
    """One database's part of a dump: ``<line>/<table>.parquet`` for each table."""

    revision: str
    tables: Mapping[str, TableFile]

    @property
    def rows(self) -> int:
        """Of all tables."""
        return sum(table.rows for table in self.tables.values())


@dataclass(frozen=True, slots=True)
class Manifest:
    """A dump's contents."""

    mitl: str
    """The version that wrote it."""
    databases: Mapping[Line, DumpedDatabase]
    trained: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 by the name of a file of ``TRAINED``."""

    @property
    def bytes(self) -> int:
        """Of all tables' files."""
        return sum(table.bytes for part in self.databases.values() for table in part.tables.values())

    def same_data(self, other: Manifest) -> bool:
        """Whether both hold the same rows at the same revisions, whichever version wrote them."""
        return (self.databases, self.trained) == (other.databases, other.trained)


def file_name(line: Line, table: str) -> str:
    """Where a table lies in a dump."""
    return f"{line}/{table}.parquet"


def to_json(manifest: Manifest) -> str:
    """The text of ``manifest.json``."""
    return json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1) + "\n"


def from_json(text: bytes, where: str) -> Manifest:
    """Read ``manifest.json``.

    Raises:
        StoreError: it is none, or of a later format.
    """
    try:
        fields = json.loads(text)
        if not isinstance(fields["format"], int):
            raise StoreError(
                f"{where} is no dump of a database: its {MANIFEST} is of the format {fields['format']!r}; name what "
                "`mitl db backup` wrote, or for a new backup a place of its own"
            )
        if fields["format"] not in (1, FORMAT):
            raise StoreError(
                f"{where} is a dump of format {fields['format']!r}, but this mitl reads formats 1 and {FORMAT}; "
                "upgrade mitl"
            )
        databases = {_line(name): _database(part) for name, part in fields["databases"].items()}
        trained = {str(name): str(mark) for name, mark in fields.get(TRAINED, {}).items()}
        if strange := [name for name in trained if not _TRAINED_NAME.fullmatch(name)]:
            raise ValueError(f"no file of what learnt can be called {strange[0]!r}")
        return Manifest(str(fields["mitl"]), databases, trained)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise StoreError(
            f"{where} holds a damaged {MANIFEST} ({type(error).__name__}: {error}); take another backup"
        ) from error


def _database(part: Mapping[str, Any]) -> DumpedDatabase:
    tables = {}
    for name, file in part["tables"].items():
        # The name becomes part of a path and of SQL.
        if not _NAME.fullmatch(name):
            raise ValueError(f"no table can be called {name!r}")
        tables[name] = TableFile(int(file["rows"]), int(file["bytes"]), str(file["sha256"]))
    return DumpedDatabase(str(part["revision"]), tables)


def _line(name: str) -> Line:
    if name not in LINES:
        raise ValueError(f"no database is called {name!r}")
    return name


ARCHIVE = ".tar"
_BATCH_ROWS = 10_000


class _Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self, name: str) -> BufferedReader:
        """A file of the dump; FileNotFoundError where it is missing."""
        return (self._path / name).open("rb")

    def names(self) -> set[str]:
        return {path.relative_to(self._path).as_posix() for path in self._path.rglob("*") if path.is_file()}


class _Archive:
    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive

    def open(self, name: str) -> BufferedReader:
        file = None
        with suppress(KeyError):
            file = self._archive.extractfile(name)
        if file is None:
            raise FileNotFoundError(name)
        return cast(BufferedReader, file)

    def names(self) -> set[str]:
        return {member.name for member in self._archive if member.isfile()}


class Dump:
    """An open dump."""

    def __init__(self, where: str, files: _Folder | _Archive) -> None:
        self.where = where
        self._files = files
        try:
            with files.open(MANIFEST) as file:
                self.manifest: Manifest = from_json(file.read(), where)
        except FileNotFoundError as error:
            raise StoreError(
                f"{where} holds no {MANIFEST}, so it is not a dump; name what `mitl db backup` wrote"
            ) from error

    def check(self, lines: tuple[Line, ...] = LINES) -> None:
        """Hold every file of these databases against its hash, those of what learnt with the pipeline's.

        Raises:
            StoreError: a file is missing, was changed, or does not belong here.
        """
        marks = {
            file_name(line, table): file.sha256
            for line in lines
            if line in self.manifest.databases
            for table, file in self.manifest.databases[line].tables.items()
        }
        places: tuple[str, ...] = lines
        if "pipeline" in lines:
            places = (*lines, TRAINED)
            marks |= {f"{TRAINED}/{name}": mark for name, mark in self.manifest.trained.items()}
        for name, mark in marks.items():
            try:
                with self._files.open(name) as opened:
                    actual = hashlib.file_digest(opened, "sha256").hexdigest()
            except FileNotFoundError as error:
                raise StoreError(f"{self.where} lacks {name}; take another backup") from error
            if actual != mark:
                raise StoreError(
                    f"{name} in {self.where} is not what was written there (its hash differs); take another backup"
                )
        strange = sorted(
            name
            for name in self._files.names() - set(marks)
            if name.startswith(tuple(f"{x}/" for x in places))
        )
        if strange:
            raise StoreError(f"{self.where} holds {strange[0]}, which its {MANIFEST} does not name")

    def trained(self, name: str) -> BufferedReader:
        """An open file of what learnt."""
        return self._files.open(f"{TRAINED}/{name}")

    def schema(self, line: Line, table: str) -> pa.Schema:
        """The columns of a table's file."""
        with self._parquet(line, table) as file:
            return file.schema_arrow

    def batches(self, line: Line, table: str) -> Iterator[pa.RecordBatch]:
        """The rows of a table, some thousands at a time."""
        with self._parquet(line, table) as file:
            yield from file.iter_batches(batch_size=_BATCH_ROWS)

    @contextmanager
    def _parquet(self, line: Line, table: str) -> Iterator[pq.ParquetFile]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        name = file_name(line, table)
        with self._files.open(name) as file:
            try:
                yield pq.ParquetFile(file)
            except (pa.ArrowException, OSError) as error:
                raise StoreError(
                    f"{name} in {self.where} cannot be read ({error}); take another backup"
                ) from error


@contextmanager
def open_dump(path: Path) -> Iterator[Dump]:
    """The dump at ``path``, a folder or a ``.tar`` file.

    Raises:
        StoreError: there is none.
    """
    if path.is_dir():
        yield Dump(os.fspath(path), _Folder(path))
        return
    if not path.exists():
        raise StoreError(f"there is no dump at {path}; name what `mitl db backup` wrote")
    if not path.is_file():  # to read a pipe would wait until somebody writes to it
        raise StoreError(f"{path} is not a dump: neither a folder nor a tar file (a device or a pipe)")
    with _opened(path) as archive:
        yield Dump(os.fspath(path), _Archive(archive))


def _opened(path: Path) -> tarfile.TarFile:
    try:
        archive = tarfile.open(path, "r:")  # noqa: SIM115 - the caller closes it
    except tarfile.TarError as error:
        raise StoreError(f"{path} is not a dump: neither a folder nor a tar file ({error})") from error
    try:
        archive.getmembers()  # goes through to the end, so that a file that was cut off shows here
        # Passed over by tarfile: a file that was cut off within a header.
        if path.stat().st_size < archive.offset + tarfile.BLOCKSIZE:
            raise tarfile.ReadError("it has no end")
    except tarfile.TarError as error:
        archive.close()
        raise StoreError(f"{path} is cut short or damaged ({error}); take another backup") from error
    return archive
