"""Files and folders that are there whole or not at all, also after a kill, a power cut or on a full disk."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mitl.errors import ReleaseError, RetrievalError, UsageError
from mitl.records.enums import RELEASE_FORMATS

logger = logging.getLogger(__name__)

_PART = re.compile(r"\..+\.(?P<host>[^.]+)\.(?P<pid>\d+)\.[0-9a-f]{8}\.part(?:-journal|-wal|-shm)?")
"""Also what SQLite keeps beside a file that it writes."""
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_SQLITE_FULL = re.compile("database or disk is full|disk I/O error")
_THERE = {errno.EEXIST, errno.ENOTEMPTY}
NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP}
"""How file systems without hard links refuse one."""


def part_name(path: Path) -> Path:
    """A hidden name beside ``path`` under which this process makes it; no two calls give the same."""
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return path.with_name(f".{path.name}.{_host()}.{os.getpid()}.{secrets.token_hex(4)}.part")


@contextmanager
def whole_file(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to write, put in place of the file that was there at the end.

    Args:
        mode: the file's, less what the process's mask takes away.

    Raises:
        UsageError: a device or a pipe is there, such as /dev/stdout; a superuser's file would take its place.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UsageError(f"{str(path)!r} is a device or a pipe, which a file would replace; name a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = part_name(path)
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as sink:
            yield sink
            to_disk(sink)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, put in place as ``path`` at the end; one that is there already stays."""
    part = part_name(path)
    part.mkdir(parents=True)
    try:
        yield part
        sync_folder(part)
        try:
            part.rename(path)
        except OSError as error:
            if error.errno not in _THERE:  # another run was quicker with the same content
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    sync_folder(path.parent)


@contextmanager
def nothing_on_a_full_disk(paths: Sequence[Path]) -> Iterator[None]:
    """Where the disk is full before the block ends, take away what it made of these files and folders.

    Folders around them that it made go too, if nothing else is in them. After any other failure all stays: another
    process may have made it.
    """
    around = {parent for path in paths for parent in path.parents}
    made = [path for path in (*paths, *sorted(around, reverse=True)) if not path.exists()]
    try:
        yield
    except Exception as error:
        if is_disk_full(error):
            for path in made:
                if path in around:
                    with suppress(OSError):
                        path.rmdir()
                elif path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
        raise


def is_disk_full(error: BaseException) -> bool:
    """Whether that is what failed, or what was behind it; SQLite says so in words alone."""
    behind = error.__cause__ or error.__context__
    full = error.errno in _FULL if isinstance(error, OSError) else bool(_SQLITE_FULL.search(str(error)))
    return full or (behind is not None and is_disk_full(behind))


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold a folder, made where there is none: whoever else would write in it waits. A process that dies lets it go."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def remove_folder(path: Path) -> None:
    """Take a folder away at one stroke, so that nobody meets half of it."""
    gone = part_name(path)
    try:
        path.rename(gone)
    except FileNotFoundError:
        return  # another run was quicker
    shutil.rmtree(gone, ignore_errors=True)


def to_disk(sink: BinaryIO) -> None:
    """Make what was written last through a power cut."""
    sink.flush()
    os.fsync(sink.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_dead_parts(folder: Path) -> None:
    """Remove what killed processes of this machine left half made in ``folder``."""
    for path in folder.glob(".*.part*") if folder.is_dir() else ():
        match = _PART.fullmatch(path.name)
        if match and match["host"] == _host() and not is_alive(int(match["pid"])):
            logger.info("removing %s, which a dead process left", path)
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


@contextmanager
def one_clear_line(path: Path, kept: str) -> Iterator[None]:
    """Turn what a file system refuses on writing into a RetrievalError; ``kept`` says what is safe already."""
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        reason = "the disk is full" if full else (error.strerror or str(error)).lower()
        remedy = "make room" if full else "mend that"
        raise RetrievalError(
            f"cannot write to {str(path)!r}: {reason}; {kept}; {remedy} and run the command again to go on"
        ) from error


def folder_bytes(folder: Path) -> int:
    """How much the files below a folder take, in bytes; 0 where there is none."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else 0


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()) or "here"


def is_alive(pid: int) -> bool:
    """Whether there is such a process on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def refuse_within(*paths: Path | None) -> None:
    """Pass where no folder around a file or folder is a release, which would no longer be as it was released.

    Raises:
        ReleaseError: one is.
    """
    for path in filter(None, paths):
        for around in path.resolve().parents:
            with suppress(OSError, ValueError, KeyError, TypeError):
                if json.loads((around / "manifest.json").read_bytes())["format"] in RELEASE_FORMATS:
                    raise ReleaseError(
                        f"{str(path)!r} lies in a release, which would no longer be as it was released; choose a place "
                        "outside"
                    )


def put_file(path: Path, content: bytes, *, mode: int = 0o666) -> bool:
    """Put the file in place whole, unless it holds exactly this; returns whether it was another one before.

    Args:
        mode: of a new file; 0o600 where it names people.

    Raises:
        ReleaseError: the place lies in a release.
        RetrievalError: it cannot be written.
    """
    refuse_within(path)
    if path.is_file() and path.read_bytes() == content:
        return False
    with one_clear_line(path, "nothing else was to be done"), whole_file(path, mode=mode) as sink:
        sink.write(content)
    return True


def write_kept(path: Path, content: bytes, *, replace: bool, mode: int = 0o666) -> bool:
    """Write the file whole; returns whether it was another one before.

    Args:
        mode: of the file; 0o600 where it names people.

    Raises:
        ReleaseError: it lies in a release.
        UsageError: it holds something else and ``replace`` is false, or the place cannot be written.
    """
    refuse_within(path)
    try:
        if path.exists():
            if path.is_file() and path.read_bytes() == content:
                return False
            if not replace:
                raise UsageError(
                    f"{str(path)!r} is there already and holds something else; nothing was overwritten; give --replace "
                    "to put the new one in its place, or choose another file"
                )
        with whole_file(path, mode=mode) as sink:
            sink.write(content)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot write {str(path)!r}: {why}; choose another place") from error
    return True


def write_new(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Make a file, whole or not at all; FileExistsError where there is one, ReleaseError where it lies in a release."""
    refuse_within(path)
    # Opening it exclusively and then writing would leave an empty file behind where the process dies between.
    part = part_name(path)
    try:
        _write_exclusively(part, text, mode)
        try:
            path.hardlink_to(part)
        except OSError as error:
            if error.errno not in NO_HARD_LINKS:
                raise
            _write_exclusively(path, text, mode)
    finally:
        part.unlink(missing_ok=True)


def _write_exclusively(path: Path, text: str, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as sink:
        sink.write(text.encode())
        to_disk(sink)
