"""Files in which people may have gone on writing: replaced only where that was said."""

from __future__ import annotations

from pathlib import Path

from mitl.core.whole_files import whole_file
from mitl.errors import UsageError


def write_kept(path: Path, content: bytes, *, replace: bool) -> bool:
    """Write the file whole; returns whether it was another one before.

    Raises:
        UsageError: it holds something else and ``replace`` is false, or the place cannot be written.
    """
    try:
        if path.exists():
            if path.is_file() and path.read_bytes() == content:
                return False
            if not replace:
                raise UsageError(
                    f"{str(path)!r} is there already and holds something else; nothing was overwritten; give --replace "
                    "to put the new one in its place, or choose another file"
                )
        with whole_file(path) as sink:
            sink.write(content)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot write {str(path)!r}: {why}; choose another place") from error
    return True
