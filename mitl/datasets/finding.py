"""What a path holds: one table, shards, or a folder in one of the layouts that data sets are handed round in.

Data sets that Hugging Face's ``datasets`` library has prepared on this machine are found by the name on the hub.
Shards are in WebDataset's layout: tar files in which the files of a sample share a key and lie next to each other.
The key is the path up to the base name's first dot; what follows, in lower case, names the field (its README,
github.com/webdataset/webdataset). ``jpg`` and its likes are the picture, ``wav`` the sound, ``mp4`` the video,
``txt`` the caption; the fields of ``json`` are columns, used where there is no ``txt``.
"""

from __future__ import annotations

import json
import os
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from lzma import LZMAError
from pathlib import Path
from typing import Any

from mitl.datasets.assembling import chosen_split
from mitl.datasets.columns import Holds, TableColumn
from mitl.datasets.files import Row, is_parquet, once_each, read_json, readable
from mitl.datasets.images import kind_of_name
from mitl.datasets.row_sources import RowSource, arrow_source, json_source, parquet_source, text_source
from mitl.errors import DatasetError, UsageError
from mitl.protocol.media import NOUNS
from mitl.records import PartKind
from mitl.records.results import listed

TEXT = (".csv", ".tsv", ".txt", ".token")
JSON = (".jsonl", ".ndjson", ".json")
METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
"""Beside the pictures of each split in the ``imagefolder`` layout of Hugging Face's ``datasets``."""
_CAPTIONS_TEXT = re.compile(r"captions?\.txt|.*token(\.txt)?", re.IGNORECASE)
_SHARD = re.compile(r"(.+?)-\d{5}-of-(\d{5})(?:-[0-9a-f]+)?\.(?:parquet|arrow)")
"""One of several files of a split, which says how many there are; the hub once put a hash behind."""
_SPLITS = ("train", "val", "valid", "validation", "dev", "test")
_WHAT = (
    "a table (.csv, .tsv, .jsonl, .json, .parquet), captions.txt beside the pictures, shards (.tar), or what "
    "save_to_disk of the datasets library wrote"
)


def find_source(path: Path, split: str | None = None) -> tuple[RowSource, str | None]:
    """The rows below a path, and the split where that still has to be looked for in a column.

    Raises:
        DatasetError: there is nothing at the path, or nothing that is known, or several tables.
        UsageError: there are several splits and none is named, or another one is.
    """
    if path.is_dir():
        return _folder(path, split)
    if not path.exists():
        raise DatasetError(f"there is no file {str(path)!r}; it should hold {_WHAT}")
    return _file(path), split


def _file(path: Path) -> RowSource:
    suffix = path.suffix.lower()
    if suffix in TEXT:
        return text_source(path)
    if suffix in JSON:
        return json_source(path)
    if is_parquet(path):
        return parquet_source([path], path)
    if suffix == ".arrow":
        return arrow_source([path], path)
    if ".tar" in path.suffixes:
        return shard_source([path], path)
    raise DatasetError(f"{path.name!r} is of no kind that is known; name {_WHAT}")


def _folder(path: Path, split: str | None) -> tuple[RowSource, str | None]:
    with readable(path, _WHAT):
        names = sorted(entry.name for entry in path.iterdir())
    if "dataset_dict.json" in names:
        saved = _listed(path / "dataset_dict.json", "splits")
        return _folder(path / chosen_split(path, saved, split), None)
    if "state.json" in names:
        files = _listed(path / "state.json", "_data_files")
        return arrow_source([path / file for file in files], path), split
    if "dataset_info.json" in names and any(name.endswith(".arrow") for name in names):
        return _prepared(path, names, split)
    metadata = [name for name in METADATA if name in names]
    if metadata:
        return _file(_only(path, metadata)), split
    shards = [path / name for name in names if ".tar" in Path(name).suffixes]
    parquet = sorted(path.glob("*.parquet")) or sorted(path.glob("data/*.parquet"))  # as the hub keeps them
    if shards or parquet:
        read = shard_source if shards else parquet_source
        splits = _by_split(shards or parquet)
        if len(splits) > 1 or split in splits:
            return read(_all_of(splits[chosen_split(path, splits, split)], path), path), None
        (parts,) = splits.values()
        whole = _all_of(parts, path)
        first = listed([file.name for file in whole], 3)
        notes = (f"{len(whole):,} files read as one table: {first}",) if len(whole) > 1 else ()
        return replace(read(whole, path), notes=notes), split
    below = [name for name in names if any((path / name / table).is_file() for table in METADATA)]
    if below:
        return _folder(path / chosen_split(path, below, split), None)
    tables = [
        name
        for name in names
        if Path(name).suffix.lower() in (".csv", ".tsv", *JSON) or _CAPTIONS_TEXT.fullmatch(name)
    ]
    return _file(_only(path, tables)), split


def _prepared(path: Path, names: Sequence[str], split: str | None) -> tuple[RowSource, None]:
    """What `load_dataset` left in its cache: the splits beside each other, each in one file or in several."""
    info = read_json(path / "dataset_info.json", "the splits, as the datasets library writes them")
    declared = info.get("splits") if isinstance(info, dict) else None
    if not isinstance(declared, dict) or not declared:
        raise DatasetError(f"{str(path / 'dataset_info.json')!r} names no splits; load the data set again")
    part = re.compile(rf".+-({'|'.join(map(re.escape, declared))})(?:-\d{{5}}-of-\d{{5}})?\.arrow")
    splits: dict[str, list[Path]] = {}
    for match in filter(None, map(part.fullmatch, names)):
        splits.setdefault(match[1], []).append(path / match[0])
    chosen = splits.get(chosen_split(path, splits or declared, split), [])
    return arrow_source(_all_of(chosen, path), path), None


def _all_of(files: Sequence[Path], path: Path) -> Sequence[Path]:
    """The files of a split; DatasetError where their names tell another number of them, or there is none."""
    counted = Counter(match.groups() for match in (_SHARD.fullmatch(file.name) for file in files) if match)
    odd = next((f"{n} of {int(of)} of {name!r}" for (name, of), n in counted.items() if n != int(of)), None)
    if odd or not files:
        raise DatasetError(
            f"{str(path)!r} lacks files of the split or holds those of two versions (there: {odd or 'none'}); fetch "
            "the data set again"
        )
    return files


def _listed(path: Path, key: str) -> list[str]:
    """The names that a file of `save_to_disk` lists."""
    value = read_json(path, f"a list {key!r}, as save_to_disk writes it")
    entries = value.get(key) if isinstance(value, dict) else None
    names: list[Any] = [
        entry.get("filename") if isinstance(entry, dict) else entry for entry in entries or ()
    ]
    if not names or not all(isinstance(name, str) for name in names):
        raise DatasetError(
            f"{str(path)!r} lists no {key!r}, as save_to_disk writes it; save the data set again"
        )
    return names


def _only(path: Path, names: Sequence[str]) -> Path:
    if len(names) != 1:
        tables = f"several tables ({', '.join(names)})" if names else "no table that is known"
        remedy = f"name one of them, as {path.name}/{names[0]}" if names else f"it should hold {_WHAT}"
        raise DatasetError(f"the folder {str(path)!r} holds {tables}; {remedy}")
    return path / names[0]


def _by_split(files: Sequence[Path]) -> dict[str, Sequence[Path]]:
    """Split → its files; all of them under ``all`` where one tells no split.

    A split is known by its shards, or by a word of the files' names, as in ``flickr30k_test.parquet``.
    """
    splits: dict[str, Sequence[Path]] = {}
    for file in files:
        match = _SHARD.fullmatch(file.name)
        words = (word for word in re.split(r"[\W\d_]+", file.stem.lower()) if word in _SPLITS)
        name = match[1] if match else next(words, "all")
        splits[name] = [*splits.get(name, ()), file]
    return {"all": files} if "all" in splits else splits


_NAME = re.compile(r"(?:(?P<owner>[\w.-]+)/)?(?P<name>[\w.-]+)(?::(?P<config>[\w.-]+))?")
_UPPER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def cached_folder(given: str, environ: Mapping[str, str] | None = None) -> Path | None:
    """The folder with the Arrow files of ``owner/name`` or ``owner/name:configuration``; None where there is none.

    The newest where several versions were prepared.

    Args:
        environ: names the cache by HF_DATASETS_CACHE, HF_HOME or XDG_CACHE_HOME, as the library reads them; the
            process's by default.

    Raises:
        UsageError: there are several configurations and none of them is named.
        DatasetError: a folder may not be read.
    """
    match = _NAME.fullmatch(given)
    if match is None:
        return None
    # The library writes a name in lower case, with a line before each capital: My-Data as my-_data, PhotoChat as
    # photo_chat.
    name = _UPPER.sub("_", match["name"]).lower()
    folder = _cache(os.environ if environ is None else environ) / "___".join(
        filter(None, (match["owner"], name))
    )
    with readable(folder, "data sets that the datasets library prepared"):
        infos: dict[str, list[Path]] = {}
        for info in folder.glob("*/*/*/dataset_info.json"):
            if any(info.parent.glob("*.arrow")):
                infos.setdefault(info.parents[2].name, []).append(info)
    if not infos:
        return None
    config = match["config"]
    # One that was made of files that a user named has their hash behind its name.
    fits = [name for name in infos if config in (None, name)]
    fits = fits or [name for name in infos if name.startswith(f"{config}-")]
    if len(fits) != 1:
        raise UsageError(
            f"{given!r} is in the cache with the configurations {', '.join(sorted(infos))}; name one, as "
            f"{given.partition(':')[0]}:{min(infos)}"
        )
    return max(infos[fits[0]], key=lambda info: info.stat().st_mtime).parent


def _cache(environ: Mapping[str, str]) -> Path:
    if cache := environ.get("HF_DATASETS_CACHE"):
        return Path(cache).expanduser()
    home = environ.get("HF_HOME") or Path(environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(home).expanduser() / "datasets"


KEY, CAPTION = "__key__", "txt"
MEDIA = {
    PartKind.IMAGE: ("image", "pictures"),
    PartKind.AUDIO: ("audio", "Audio"),
    PartKind.VIDEO: ("video", "Video"),
}
"""What a file of a sample holds → its column, and that column's kind."""
_SAMPLES = "samples in WebDataset's layout"
_META = re.compile(r"__[^/]*__(/|$)")
"""Says something of the shard itself, as ``__meta__/info.json``."""
_END = bytes(512)
_AT_ONCE = 1 << 20
_MOST_TEXT, _MOST_MEDIA = 10_000_000, 1_000_000_000
"""Bytes of one file of a sample. Each is read whole, and few bytes of an archive can stand for many."""


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
                column = columns.setdefault(name, TableColumn(name, holds, type(value).__name__))
                if column.holds is not holds:
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
                if not (stem and suffix) or _META.match(member.name):
                    continue  # of no sample by WebDataset's own rules: README, ._0.jpg as macOS adds it
                key, field = f"{folder}{slash}{stem}".removeprefix("./"), suffix.lower()
                if row and row[KEY] != key:
                    yield row
                    row = {}
                row[KEY] = key
                media = kind_of_name(f".{field}") if "." not in field else None
                most = _MOST_TEXT if media is None else _MOST_MEDIA
                if member.size > most and (media is not None or field in (CAPTION, "json")):
                    raise DatasetError(
                        f"{member.name!r} in shard {str(path)!r} has {member.size / 1e6:,.0f} MB, but up to "
                        f"{most / 1e6:,.0f} MB are read of such a file; make it smaller, or leave its sample out"
                    )
                if media is not None:
                    name, _ = MEDIA[media]
                    if name in row:
                        raise DatasetError(
                            f"sample {key!r} of {str(path)!r} holds two {NOUNS[media]}s; one a sample is needed"
                        )
                    row[name] = content() if name in read else member.name
                elif field == CAPTION:
                    row[CAPTION] = _decoded(content(), member.name, path)
                elif field == "json":
                    row |= _json_fields(_decoded(content(), member.name, path), member.name, path)
            if row:
                yield row


@contextmanager
def _opened(path: Path) -> Iterator[Iterator[tuple[tarfile.TarInfo, Callable[[], bytes]]]]:
    with readable(path, _SAMPLES):
        try:
            with tarfile.open(path) as tar:
                yield _members(tar, path)
        except (tarfile.ReadError, EOFError, zlib.error, LZMAError) as error:
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
    while tar.fileobj.read(_AT_ONCE):
        pass  # a packed shard is checked against its sum at its very end


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = tar.extractfile(member)
    assert stream is not None, member.name
    return stream.read()


def _decoded(content: bytes, name: str, path: Path) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{name!r} in shard {str(path)!r} is not in UTF-8 ({error}); write it as UTF-8"
        ) from error


def _json_fields(text: str, name: str, path: Path) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=once_each)
    except (ValueError, RecursionError) as error:
        raise DatasetError(
            f"{name!r} in shard {str(path)!r} is not valid JSON ({error}); write it again"
        ) from error
    return {f"json.{key}": cell for key, cell in value.items()} if isinstance(value, dict) else {}
