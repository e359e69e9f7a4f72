"""Release folders on disk: written whole or not at all, by one process at a time."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from mitl.core.whole_files import only_writer, refuse_within, sync_folder
from mitl.errors import ReleaseError
from mitl.records.enums import RELEASE_FORMATS

if TYPE_CHECKING:
    import pyarrow as pa

MANIFEST = "manifest.json"
REFERENCES = "references.json"
"""Of composed queries: query → the image that its text changes."""
FORMAT, RATINGS_FORMAT = RELEASE_FORMATS
"""Of releases of positives, and of ratings of similarity."""
_MADE_BY = {FORMAT: "mitl build-dataset", RATINGS_FORMAT: "mitl rate release"}
_READ_BY = {FORMAT: "mitl evaluate --release", RATINGS_FORMAT: "mitl evaluate --cxc"}
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class WrittenRelease(Generic[S]):
    """What was written where."""

    folder: Path
    manifest_sha256: str
    changed: bool
    """False where the folder already held exactly this release."""
    summary: S
    """Its figures."""


def file_entries(files: Mapping[str, bytes]) -> dict[str, dict[str, object]]:
    """Size and SHA-256 of each file, for the manifest."""
    return {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in sorted(files.items())
    }


def read_manifest(folder: Path, *kinds: str) -> dict[str, object]:
    """The manifest of a release folder.

    Args:
        kinds: the formats of which its manifest names one; that of positives where none is given.

    Raises:
        ReleaseError: there is no folder, or no manifest of such a release in it.
    """
    path, kinds = folder / MANIFEST, kinds or (FORMAT,)
    if not folder.is_dir():
        raise ReleaseError(
            f"no release folder at {str(folder)!r}; make one with `{_MADE_BY[kinds[0]]} --out`"
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReleaseError(f"{str(folder)!r} is not a release: it holds no {MANIFEST}") from None
    except (OSError, ValueError) as error:
        raise ReleaseError(f"{str(path)!r} cannot be read as a manifest: {error}") from error
    named = manifest.get("format") if isinstance(manifest, dict) else None
    if not isinstance(manifest, dict) or named not in kinds:
        other = ""
        if isinstance(named, str) and named in _MADE_BY:
            other = f"; `{_MADE_BY[named]}` made it, and `{_READ_BY[named]}` scores models on it"
        raise ReleaseError(f"{str(path)!r} is not a manifest of format {kinds[0]!r}{other}")
    if not isinstance(manifest.get("files"), dict):
        raise ReleaseError(f"{str(path)!r} lists no files, so the release cannot be checked")
    return manifest


def dataset_of(folder: Path) -> str | None:
    """SHA-256 over the ids and texts of the data set that a release, also one of ratings, was built on.

    None where the folder does not say it: it is no release, or one of an earlier version.
    """
    try:
        named = json.loads((folder / MANIFEST).read_bytes())["dataset_sha256"]
    except (OSError, ValueError, KeyError, TypeError):  # reading the release tells what is wrong
        return None
    return named if isinstance(named, str) else None


_SAME = "give what is of one data set, or, where ids mean the same items, a folder with the release's two JSONs alone"


def require_one_dataset(*sets: tuple[str, str | None], remedy: str = _SAME) -> None:
    """Pass where all of these sets, by name and hash, are of one data set, as far as they say it.

    Args:
        sets: the hash is that of :func:`dataset_of`, None where a set does not say it.
        remedy: what to do instead.

    Raises:
        ReleaseError: one is, so that an id may name another item there.
    """
    known = [(name, mark) for name, mark in sets if mark]
    for name, mark in known:
        first, expected = known[0]
        if mark != expected:
            raise ReleaseError(
                f"{name} is of another data set than {first}, though some ids may be the same: the SHA-256 of its ids "
                f"and texts is {mark[:12]}…, not {expected[:12]}…; {remedy}"
            )


def read_checked(folder: Path, manifest: Mapping[str, object], name: str) -> bytes:
    """One file of a release, as the manifest describes it.

    Raises:
        ReleaseError: it is missing, or its bytes are not those that were released.
    """
    files = manifest["files"]
    entry = files.get(name) if isinstance(files, dict) else None
    if not isinstance(entry, dict):
        raise ReleaseError(f"the manifest of {str(folder)!r} does not list {name!r}")
    try:
        content = (folder / name).read_bytes()
    except OSError as error:
        raise ReleaseError(
            f"{str(folder / name)!r} cannot be read ({error.strerror}); build the release again"
        ) from error
    if hashlib.sha256(content).hexdigest() != entry.get("sha256"):
        raise ReleaseError(
            f"{str(folder / name)!r} is not the file that was released; build the release again"
        )
    return content


def checked_table(
    folder: Path, manifest: Mapping[str, object], name: str, columns: Sequence[str] | None = None
) -> pa.Table:
    """One Parquet table of a release, as the manifest describes it; all its columns unless some are named.

    Raises:
        ReleaseError: it is missing, changed or no such table.
    """
    import pyarrow as pa

    content = read_checked(folder, manifest, name)
    try:
        table = parquet_table(content, columns)
        _require_kinds(table)
    except (pa.ArrowException, OSError, KeyError, TypeError) as error:
        held = f" with the columns {', '.join(columns)}" if columns else ""
        raise ReleaseError(
            f"{str(folder / name)!r} is not a table of a release{held}: {' '.join(str(error).split())[:200]}; "
            "build the release again"
        ) from error
    return table


def _require_kinds(table: pa.Table) -> None:
    """TypeError where a column that is read by its name holds something else than in a release."""
    import pyarrow.compute as pc
    from pyarrow import types as kinds

    def text(kind: pa.DataType) -> bool:
        return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_null(kind))

    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = column.type
        if name in ("image_id", "caption_id"):
            fits = not column.null_count and (text(kind) or kinds.is_integer(kind))
        elif name in ("usable", "held"):
            fits = not column.null_count and kinds.is_boolean(kind)
        elif name in ("sources", "annotators"):
            fits = kinds.is_list(kind) and text(kind.value_type) and not pc.list_flatten(column).null_count
            fits = fits and not (name == "annotators" and column.null_count)
        else:
            fits = name != "label" or text(kind)
        if not fits:
            raise TypeError(f"{name!r} of type {kind} with {column.null_count} empty cells")


def parquet_table(content: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """The table of a Parquet file; all its columns unless some are named.

    Raises:
        pa.ArrowException: it is no Parquet file.
        OSError: it is a damaged one.
        KeyError: it lacks a column that is named.
    """
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    # Not read_table: its threads may still run where an error ends the process at once, which then aborts.
    table = ParquetFile(pa.BufferReader(content)).read(columns=columns, use_threads=False)
    # Reading passes over names that the table lacks; selecting does not.
    return table if columns is None else table.select(list(columns))


def holds(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Whether the folder holds exactly these files with these bytes, by their paths in it, and no empty folder."""
    present = {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if not path.is_dir() or not any(path.iterdir())
    }
    return present == set(files) and all(
        (folder / name).is_file() and (folder / name).read_bytes() == content
        for name, content in files.items()
    )


def _refuse_foreign(folder: Path, kind: str) -> None:
    """Pass where a release may be written: nowhere yet, an empty folder, or an earlier release of its kind alone.

    Raises:
        ReleaseError: something there is not a release's, and would be lost.
    """
    if folder.is_symlink():
        raise ReleaseError(
            f"{str(folder)!r} is a link, and no link is replaced; name the folder that it leads to, or another place"
        )
    if folder.exists() and not folder.is_dir():
        raise ReleaseError(f"{str(folder)!r} is not a folder; choose another place for the release")
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not (folder / MANIFEST).is_file():
        raise ReleaseError(
            f"{str(folder)!r} exists and is not a release, so it is left alone; choose another folder"
        )
    listed = read_manifest(folder, kind)["files"]
    assert isinstance(listed, dict)
    strangers = sorted({path.name for path in folder.iterdir()} - set(listed) - {MANIFEST})
    if strangers:
        raise ReleaseError(
            f"{str(folder)!r} holds {strangers[0]!r}, which is not the release's own and would be lost; "
            "move it away or choose another folder"
        )


@contextlib.contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Hold a folder's place: whoever else wants to write there waits, and what a killed writer left is cleared.

    Raises:
        ReleaseError: the place cannot be written.
    """
    with contextlib.ExitStack() as stack:
        try:
            # The folder itself is renamed away, so its parent is what can be locked.
            stack.enter_context(only_writer(folder.absolute().parent))
        except OSError as error:
            raise _unwritable(folder, error) from error
        # Put back what a killed writer had moved away, and delete what it had begun.
        for left in folder.absolute().parent.glob(f"{glob.escape(_beside(folder))}*"):
            if (left / "old").is_dir() and not folder.exists():
                with contextlib.suppress(OSError):
                    (left / "old").rename(folder)
            shutil.rmtree(left, ignore_errors=True)
        yield


def _beside(folder: Path) -> str:
    """How the folders begin in which a release is made ready."""
    return f".{folder.name}.mitl-"


def _unwritable(folder: Path, error: OSError) -> ReleaseError:
    return ReleaseError(
        f"cannot write the release to {str(folder)!r}: {error.strerror or error}; make room "
        "there or name another folder, and run the command again"
    )


def put_release(
    folder: Path, files: Mapping[str, bytes], summary: S, *, replace: bool, kind: str = FORMAT
) -> WrittenRelease[S]:
    """Make the folder hold exactly these files, whole or not at all.

    Args:
        replace: put them in place of an earlier release that the folder holds.

    Raises:
        ReleaseError: it holds another release or something that is not a release's, or lies in one; the place cannot
            be written.
    """
    refuse_within(folder)
    manifest_sha256 = hashlib.sha256(files[MANIFEST]).hexdigest()
    with one_writer(folder):
        if holds(folder, files):
            return WrittenRelease(folder, manifest_sha256, False, summary)
        _refuse_foreign(folder, kind)
        if not replace and (folder / MANIFEST).is_file():
            same = (folder / MANIFEST).read_bytes() == files[MANIFEST]
            what = (
                "this release, but with files that were changed since"
                if same
                else "another release, of other judgements, rules or settings"
            )
            raise ReleaseError(
                f"{str(folder)!r} holds {what}; nothing was overwritten; give --replace to put the new one in its "
                "place, or choose another folder"
            )
        _replace(folder, files)
    return WrittenRelease(folder, manifest_sha256, True, summary)


def _replace(folder: Path, files: Mapping[str, bytes]) -> None:
    """Put a folder with these files in place of what is there: written beside it, then renamed."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=_beside(folder), dir=folder.parent, ignore_cleanup_errors=True
        ) as beside:
            new, old = Path(beside) / "new", Path(beside) / "old"
            new.mkdir()
            # The files are to outlast a power cut before the folder gets its name.
            for name, content in files.items():
                (new / name).write_bytes(content)
            for name in files:
                with (new / name).open("rb") as written:
                    os.fsync(written.fileno())
            sync_folder(new)
            if folder.exists():
                folder.rename(old)
            try:
                new.rename(folder)
            except OSError:
                if old.exists():
                    old.rename(folder)
                raise
            sync_folder(folder.absolute().parent)
            shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
