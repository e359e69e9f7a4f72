"""Shards in WebDataset's layout: tar files in which the files of a sample share a key and lie next to each other.

The key is the path up to the base name's first dot; what follows, in lower case, names the field
(github.com/webdataset/webdataset, README). ``jpg`` and its likes are the picture, ``wav`` the sound, ``mp4`` the
video, ``txt`` the caption; the fields of ``json`` are columns, used where there is no ``txt``.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from mitl.datasets.columns import Holds, TableColumn
from mitl.datasets.files import Row, readable
from mitl.datasets.images import kind_of_name
from mitl.datasets.row_sources import RowSource
from mitl.errors import DatasetError
from mitl.records import PartKind

KEY, TEXT = "__key__", "txt"
MEDIA = {
    PartKind.IMAGE: ("image", "pictures"),
    PartKind.AUDIO: ("audio", "Audio"),
    PartKind.VIDEO: ("video", "Video"),
}
"""What a file of a sample holds → its column, and that column's kind."""
_SEVERAL = {PartKind.IMAGE: "pictures", PartKind.AUDIO: "sounds", PartKind.VIDEO: "videos"}
_WHAT = "samples in WebDataset's layout"
_END = bytes(512)


def shard_source(paths: Sequence[Path], path: Path) -> RowSource:
    """The samples of shards, in their order, as rows of key, picture, text and the fields of their JSON.

    Every shard is read through once here, so that one that ends early is known before anything is written.

    Raises:
        DatasetError: a shard is missing, no tar file, ends early, or a sample has two pictures or malformed JSON.
    """
    columns = {KEY: TableColumn(KEY, Holds.ONE, "text")}
    for row in _samples(paths, read=()):
        for name, value in row.items():
            holds = Holds.LIST if isinstance(value, list) else Holds.ONE
            if isinstance(value, dict) or (isinstance(value, list) and not all(map(_is_single, value))):
                holds = Holds.OTHER
            if value is not None:
                known = columns.setdefault(name, TableColumn(name, holds, type(value).__name__))
                if known.holds is not holds:
                    raise DatasetError(
                        f"{name!r} in {str(path)!r} mixes lists and single values, as in sample {row[KEY]!r}; "
                        "write all of them in one way"
                    )
    for name, kind in MEDIA.values():
        if name in columns:
            columns[name] = TableColumn(name, Holds.PICTURE, kind)

    def rows(wanted: Sequence[str]) -> Iterator[Row]:
        for row in _samples(paths, read=wanted):
            yield {name: row.get(name) for name in wanted}

    return RowSource(path, path if path.is_dir() else path.parent, tuple(columns.values()), rows)


def _is_single(value: object) -> bool:
    return not isinstance(value, (list, dict))


def _samples(paths: Sequence[Path], *, read: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Each sample's fields; pictures, sounds and videos that ``read`` does not name stand there by their names."""
    for path in paths:
        row: dict[str, Any] = {}
        with _opened(path) as members:
            for member, content in members:
                folder, slash, base = member.name.rpartition("/")
                stem, _, suffix = base.partition(".")
                key, field = f"{folder}{slash}{stem}".removeprefix("./"), suffix.lower()
                if row and row[KEY] != key:
                    yield row
                    row = {}
                row[KEY] = key
                media = kind_of_name(f".{field}") if "." not in field else None
                if media is not None:
                    name, _ = MEDIA[media]
                    if name in row:
                        raise DatasetError(
                            f"sample {key!r} of {str(path)!r} holds two {_SEVERAL[media]}; one a sample is needed"
                        )
                    row[name] = content() if name in read else member.name
                elif field == TEXT:
                    row[TEXT] = _decoded(content(), member.name, path)
                elif field == "json":
                    row |= _json_fields(_decoded(content(), member.name, path), member.name, path)
            if row:
                yield row


@contextmanager
def _opened(path: Path) -> Iterator[Iterator[tuple[tarfile.TarInfo, Callable[[], bytes]]]]:
    with readable(path, _WHAT):
        try:
            with tarfile.open(path) as tar:
                yield _members(tar, path)
        except (tarfile.ReadError, EOFError) as error:
            told = str(error).splitlines()[0].rstrip(":")
            what = "ends early" if isinstance(error, EOFError) or "end of data" in told else "is no tar file"
            raise DatasetError(f"shard {str(path)!r} {what} ({told}); fetch it again") from error


def _members(tar: tarfile.TarFile, path: Path) -> Iterator[tuple[tarfile.TarInfo, Callable[[], bytes]]]:
    last = "nothing"
    for member in tar:
        if member.isfile():
            yield member, partial(_content, tar, member)
            last = member.name
    # An archive that is cut between two members looks whole to tarfile; the mark of its end is a block of zeros.
    assert tar.fileobj is not None, path
    tar.fileobj.seek(tar.offset)
    if tar.fileobj.read(len(_END)) != _END:
        raise DatasetError(f"shard {str(path)!r} ends early, after {last!r}; fetch it again")


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = tar.extractfile(member)
    assert stream is not None, member.name
    return stream.read()


def _decoded(content: bytes, name: str, path: Path) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{name!r} in shard {str(path)!r} is not in UTF-8 ({error}); write it as UTF-8"
        ) from error


def _json_fields(text: str, name: str, path: Path) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise DatasetError(
            f"{name!r} in shard {str(path)!r} is not valid JSON ({error}); write it again"
        ) from error
    return {f"json.{key}": cell for key, cell in value.items()} if isinstance(value, dict) else {}
