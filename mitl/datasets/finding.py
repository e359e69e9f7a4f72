"""What a path holds: one table, shards, or a folder in one of the layouts that data sets are handed round in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mitl.datasets.files import is_parquet, read_json, readable
from mitl.datasets.row_sources import RowSource, arrow_source, json_source, parquet_source, text_source
from mitl.datasets.shards import shard_source
from mitl.errors import DatasetError, UsageError

TEXT = (".csv", ".tsv", ".txt", ".token")
JSON = (".jsonl", ".ndjson", ".json")
METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
"""Beside the pictures of each split in the ``imagefolder`` layout of Hugging Face's ``datasets``."""
_CAPTIONS_TEXT = re.compile(r"captions?\.txt|.*token(\.txt)?", re.IGNORECASE)
_SPLIT_SHARD = re.compile(r"(.+?)-\d{5}-of-\d{5}\.parquet")
_SPLITS = ("train", "val", "valid", "validation", "dev", "test")
Kept = TypeVar("Kept")
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
        return _folder(path / chosen_split(path, {name: name for name in saved}, split), None)
    if "state.json" in names:
        files = _listed(path / "state.json", "_data_files")
        return arrow_source([path / file for file in files], path), split
    if "dataset_info.json" in names and any(name.endswith(".arrow") for name in names):
        return _prepared(path, names, split)
    metadata = [name for name in METADATA if name in names]
    if metadata:
        return _file(_only(path, metadata)), split
    shards = [path / name for name in names if ".tar" in Path(name).suffixes]
    if shards:
        return shard_source(shards, path), split
    if found := _parquet_files(path):
        if len(found) == 1 and split not in found:
            return parquet_source(next(iter(found.values())), path), split
        return parquet_source(found[chosen_split(path, {name: name for name in found}, split)], path), None
    below = {
        entry.name: entry
        for entry in sorted(path.iterdir())
        if entry.is_dir() and any((entry / name).is_file() for name in METADATA)
    }
    if below:
        return _folder(chosen_split(path, below, split), None)
    tables = [
        name
        for name in names
        if Path(name).suffix.lower() in (".csv", ".tsv", *JSON) or _CAPTIONS_TEXT.fullmatch(name)
    ]
    return _file(_only(path, tables)), split


def _prepared(path: Path, names: Sequence[str], split: str | None) -> tuple[RowSource, None]:
    """What `load_dataset` left in its cache: the splits beside each other, each in one file or in several."""
    info = read_json(path / "dataset_info.json", "the splits, as the datasets library writes them")
    known = info.get("splits") if isinstance(info, dict) else None
    if not isinstance(known, dict) or not known:
        raise DatasetError(f"{str(path / 'dataset_info.json')!r} names no splits; load the data set again")
    part = re.compile(rf".+-({'|'.join(map(re.escape, known))})(?:-\d{{5}}-of-(\d{{5}}))?\.arrow")
    splits: dict[str, list[Path]] = {}
    for match in filter(None, map(part.fullmatch, names)):
        splits.setdefault(match[1], []).append(path / match[0])
    chosen = chosen_split(path, splits or {name: [] for name in known}, split)
    of = part.fullmatch(chosen[0].name) if chosen else None
    if of is None or len(chosen) != int(of[2] or 1):
        raise DatasetError(
            f"{str(path)!r} lacks files of the split; load the data set again with the library"
        )
    return arrow_source(chosen, path), None


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
        found = f"several tables ({', '.join(names)})" if names else "no table that is known"
        remedy = f"name one of them, as {path.name}/{names[0]}" if names else f"it should hold {_WHAT}"
        raise DatasetError(f"the folder {str(path)!r} holds {found}; {remedy}")
    return path / names[0]


def _parquet_files(path: Path) -> dict[str, list[Path]]:
    """Split → its files, beside each other or in ``data``, as the hub keeps them; under ``all`` without splits."""
    files = sorted(path.glob("*.parquet")) or sorted(path.glob("data/*.parquet"))
    splits: dict[str, list[Path]] = {}
    for file in files:
        match = _SPLIT_SHARD.fullmatch(file.name)
        name = match[1] if match else file.stem if file.stem in _SPLITS else "all"
        splits.setdefault(name, []).append(file)
    return {"all": files} if "all" in splits else splits


def chosen_split(path: Path, splits: Mapping[str, Kept], wanted: str | None) -> Kept:
    """The split that is wanted, or the only one.

    Raises:
        UsageError: there are several and none is wanted, or another one is.
    """
    if wanted is None and len(splits) > 1:
        raise UsageError(f"{str(path)!r} holds the splits {', '.join(splits)}; name one with --split")
    name = wanted or next(iter(splits))
    if name not in splits:
        raise UsageError(f"{str(path)!r} has no split {name!r}; it holds {', '.join(splits)}")
    return splits[name]
