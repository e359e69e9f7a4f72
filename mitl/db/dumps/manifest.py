"""``manifest.json``: what a dump holds, of which revision, and the hash of every file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

from mitl.db.migrate import Line
from mitl.errors import StoreError

MANIFEST = "manifest.json"
FORMAT = 2
"""1 named the time and the engine too, by which two dumps of the same rows differed."""
LINES: tuple[Line, ...] = ("pipeline", "crowd")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_BLOCK = 1 << 20


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

    @property
    def bytes(self) -> int:
        """Of all tables' files."""
        return sum(table.bytes for part in self.databases.values() for table in part.tables.values())

    def same_data(self, other: Manifest) -> bool:
        """Whether both hold the same rows at the same revisions, whichever version wrote them."""
        return _content(self) == _content(other)


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
        found = json.loads(text)
        if found["format"] not in (1, FORMAT):
            raise StoreError(
                f"{where} is a dump of format {found['format']!r}, but this mitl reads formats 1 and {FORMAT}; "
                "upgrade mitl"
            )
        databases = {_line(name): _database(part) for name, part in found["databases"].items()}
        return Manifest(str(found["mitl"]), databases)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{where} holds a damaged {MANIFEST} ({type(error).__name__}: {error}); take another backup"
        ) from error


def sha256(file: BinaryIO) -> str:
    """Of what is left of an open file."""
    digest = hashlib.sha256()
    while block := file.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()


def _content(manifest: Manifest) -> dict[str, Any]:
    return {line: (part.revision, part.tables) for line, part in manifest.databases.items()}


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
