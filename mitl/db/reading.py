"""SQLite files that this user may read and not change: a colleague's project, a mounted backup.

Our databases are in WAL mode, in which readers too want to write: the ``-shm`` file beside the database, where they
take their locks. Where that cannot be had, SQLite offers ``immutable=1``, which takes no locks at all and is right
only as long as nobody writes. So it is taken only where no journal waits to be read, and what was read counts only if
the file is afterwards as it was before. A journal made by this user would be as bad: the owner could not write it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from mitl.errors import StoreError

_WAL = b"\x02\x02"
"""What SQLite's header says at byte 18 of a database in WAL mode."""


@dataclass(frozen=True, slots=True)
class View:
    """How to open a file for reading alone."""

    file: Path
    uri: str
    stamp: tuple[int, int, int] | None
    """What of the file must stay as it is meanwhile; None where SQLite's locks see to that."""

    def require_same(self) -> None:
        """StoreError where the file was changed since."""
        if self.stamp is not None and self.stamp != _stamp(self.file):
            raise StoreError(
                f"{self.file.name} was changed by somebody else while it was read; run the command again"
            )


def obstacle(file: Path) -> str | None:
    """What keeps this user from changing the database, as a clause; None where nothing does or no file is there."""
    if not file.exists():
        return None
    if not os.access(file, os.W_OK):
        return f"{file.name} is read-only for this user"
    if not os.access(file.parent, os.W_OK) and not all(path.exists() for path in _beside(file)):
        return f"the folder of {file.name}, where SQLite writes its journal, is read-only for this user"
    return None


def require_writable(file: Path) -> None:
    """StoreError where this user may not change the database."""
    why = obstacle(file)
    if why is not None:
        raise StoreError(
            f"{why}, but this command opens it for writing: give this user write access to the file and to its folder, "
            "or work on a copy of the project, and run the command again"
        )


def view_of(file: Path) -> View | None:
    """How to read a file that this user may not change; None where they may, and nothing special is needed.

    Raises:
        StoreError: it cannot be read, or not without reading a journal in first.
    """
    if obstacle(file) is None:
        return None
    stamp = _stamp(file)
    try:
        with file.open("rb") as source:
            head = source.read(20)
    except OSError as error:
        raise StoreError(
            f"cannot read {file.name}: {(error.strerror or str(error)).lower()}; give this user read access to it and "
            "run the command again"
        ) from error
    uri = f"file:{quote(str(file.absolute()))}?mode=ro"
    if head[18:20] != _WAL:
        return View(file, uri, None)
    wal, shm = _beside(file)
    if wal.exists() and shm.exists():
        return View(file, uri, None)  # somebody has it open: their locks hold for us too
    if wal.exists() and wal.stat().st_size:
        raise StoreError(
            f"{wal.name} holds changes that were never put into {file.name}, which is read-only for this user; let a "
            "user with write access run `mitl db current` once, then run the command again"
        )
    return View(file, f"{uri}&immutable=1", stamp)


def _beside(file: Path) -> tuple[Path, Path]:
    return Path(f"{file}-wal"), Path(f"{file}-shm")


def _stamp(file: Path) -> tuple[int, int, int]:
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
