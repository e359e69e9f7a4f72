"""A copy of an SQLite file, made before something changes it for good."""

from __future__ import annotations

import filecmp
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from mitl.core.whole_files import part_name, remove_dead_parts, sync_folder
from mitl.errors import StoreError


def file_of(database: str | None) -> Path | None:
    """The file behind an SQLite URL's database; None where it is kept in memory."""
    if not database or database.startswith((":memory:", "file:")):
        return None
    return Path(database)


def keep_copy(file: Path, revision: str) -> Path:
    """Copy a database at one moment, through SQLite, so that what its journal holds is in it; others may go on.

    Returns:
        The copy, beside the file and named by the revision, its owner's alone. An earlier copy is never written over.

    Raises:
        StoreError: there is no room for it, or the folder cannot be written.
    """
    remove_dead_parts(file.parent)
    part = part_name(file)
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(part)) as target:
            source.backup(target)
            # The copy is one file from here on, not one with a journal beside it.
            target.execute("PRAGMA journal_mode=DELETE")
        kept = _name(part, file, revision)
        sync_folder(file.parent)
    except (sqlite3.Error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise StoreError(
            f"cannot keep a copy of {file.name} in {file.parent}: {reason.lower()}; nothing was changed: make room or "
            "give write access there, and run the command again"
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return kept


def _name(part: Path, file: Path, revision: str) -> Path:
    number = 1
    while True:
        suffix = "" if number == 1 else f".{number}"
        kept = file.with_name(f"{file.name}.{revision}{suffix}.backup")
        try:
            kept.hardlink_to(part)
        except FileExistsError:
            if filecmp.cmp(kept, part, shallow=False):  # of an upgrade that was killed
                return kept
            number += 1
            continue
        return kept
