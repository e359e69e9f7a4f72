"""Rows of any table, with the names of what its columns hold: delimited text, JSON, Parquet and Arrow files.

A structure's fields are columns of their own, ``outer.inner``; a list of structures gives lists.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mitl.datasets.columns import Holds, TableColumn
from mitl.datasets.files import (
    Row,
    once_each,
    open_parquet,
    read_csv,
    read_json,
    readable,
    refuse_doubled,
    whole,
)
from mitl.errors import DatasetError

WHAT = "a table of pairs"
_ROWS_AT_ONCE = 64
"""Rows whose pictures are in memory together."""
_TOKEN = re.compile(r"(.+)#(\d+)\t(.*)")
"""A line of ``results_20130124.token`` and of Flickr8k's ``token.txt``, which have no header."""
_LACKS_BAR = re.compile(r"(\d+)\s+(.*)")


@dataclass(frozen=True, slots=True)
class RowSource:
    """A table, wherever its rows come from."""

    path: Path
    """What messages name."""
    folder: Path
    """Where its files' names are looked up."""
    columns: tuple[TableColumn, ...]
    rows: Callable[[Sequence[str]], Iterator[Row]]
    """The rows from the first on, with the columns asked for; a picture is bytes, or has ``bytes`` and ``path``."""
    notes: tuple[str, ...] = ()
    """What was not as it should be and was read all the same."""

    @property
    def quoted(self) -> str:
        """How messages name it."""
        return repr(str(self.path))

    def where(self, number: int) -> str:
        """How messages name a row, from 1."""
        return f"row {number} of {self.quoted}"


def text_source(path: Path) -> RowSource:
    """A table with a header, separated by commas, tabs, bars or semicolons, or a token file of Flickr's.

    Raises:
        DatasetError: the file is missing, malformed or names a column twice.
    """
    with readable(path, WHAT), path.open(encoding="utf-8-sig", errors="replace") as stream:
        first = stream.readline()
    if not first.strip():
        raise DatasetError(
            f"{str(path)!r} has no first line that names its columns; write one, as image,caption"
        )
    notes: list[str] = []
    if _TOKEN.fullmatch(first.rstrip("\r\n")):
        header, rows = ["image", "caption_id", "caption"], _token_rows(path)
    elif "|" in first and "," not in first:
        header, rows = _barred(path, notes)
    else:
        delimiter = next((mark for mark in ("\t", ",", ";") if mark in first), ",")
        header, rows = read_csv(path, WHAT, delimiter)
    refuse_doubled(path, header)
    columns = tuple(TableColumn(name, Holds.ONE, "text") for name in header)
    return RowSource(path, path.parent, columns, _picker(rows), tuple(notes))


def json_source(path: Path) -> RowSource:
    """A JSON object a line, or one JSON list of objects.

    Raises:
        DatasetError: the file is missing or malformed, or cells of a column are partly lists and partly not.
    """
    rows = [_flat(row) for row in _objects(path)]
    columns: dict[str, TableColumn] = {}
    first: dict[str, int] = {}
    for number, row in enumerate(rows, start=1):
        for name, value in row.items():
            column = _json_column(name, value)
            if column is None:
                continue
            earlier = columns.setdefault(name, column)
            if earlier.holds is not column.holds:
                raise DatasetError(
                    f"column {name!r} of {str(path)!r} mixes {earlier.kind} (row {first[name]}) and {column.kind} "
                    f"(row {number}); write all of its cells in one way"
                )
            first.setdefault(name, number)
    if not columns:
        raise DatasetError(f"{str(path)!r} holds no rows; it should hold {WHAT}, an object a row")
    return RowSource(path, path.parent, tuple(columns.values()), _picker(rows))


def parquet_source(paths: Sequence[Path], path: Path) -> RowSource:
    """The rows of Parquet files one after another; their columns must agree."""

    @contextmanager
    def opened(part: Path) -> Iterator[tuple[Any, Callable[[list[str]], Iterator[Any]]]]:
        with open_parquet(part, WHAT) as file:
            yield file.schema_arrow, lambda columns: file.iter_batches(_ROWS_AT_ONCE, columns=columns)

    return _arrow_source(paths, path, opened)


def arrow_source(paths: Sequence[Path], path: Path) -> RowSource:
    """The rows of Arrow streams one after another, as ``save_to_disk`` of the ``datasets`` library writes them."""
    import pyarrow as pa

    @contextmanager
    def opened(part: Path) -> Iterator[tuple[Any, Callable[[list[str]], Iterator[Any]]]]:
        try:
            with (
                readable(part, WHAT),
                whole(part),
                pa.OSFile(str(part)) as stream,
                pa.ipc.open_stream(stream) as reader,
            ):
                yield reader.schema, lambda columns: (batch.select(columns) for batch in reader)
        except pa.ArrowException as error:
            told = str(error).splitlines()[0]
            raise DatasetError(
                f"{str(part)!r} is no whole Arrow file ({told}); save the data set again"
            ) from error

    return _arrow_source(paths, path, opened)


def _arrow_source(paths: Sequence[Path], path: Path, opened: Callable[[Path], Any]) -> RowSource:
    schemas: list[Any] = []
    columns: list[tuple[TableColumn, ...]] = []
    for part in paths:
        with opened(part) as (schema, _):
            schemas.append(schema)
            columns.append(tuple(_arrow_columns(schema)))
    # A part in which a column is empty throughout says nothing of what it holds.
    holds = [{column.name: column.holds for column in some if column.kind != "null"} for some in columns]
    odd = next(
        (
            i
            for i, schema in enumerate(schemas)
            if schema.names != schemas[0].names
            or any(holds[0].get(name, cells) is not cells for name, cells in holds[i].items())
        ),
        None,
    )
    if odd is not None:
        raise DatasetError(
            f"{paths[odd].name!r} in {str(path)!r} has other columns than {paths[0].name!r}, or other cells in "
            "them; name one of the files"
        )
    refuse_doubled(path, schemas[0].names)

    def rows(wanted: Sequence[str]) -> Iterator[Row]:
        outer = list(
            dict.fromkeys(name if name in schemas[0].names else name.partition(".")[0] for name in wanted)
        )
        for part in paths:
            with opened(part) as (_, batches):
                for batch in batches(outer):
                    batch.validate(
                        full=True
                    )  # what is spoiled on the disk would end the program in to_pylist
                    yield from (_flat(row) for row in batch.to_pylist())

    return RowSource(path, path if path.is_dir() else path.parent, columns[0], rows)


def _arrow_columns(schema: Any) -> Iterator[TableColumn]:
    features = (schema.metadata or {}).get(b"huggingface", b"{}")
    told = json.loads(features).get("info", {}).get("features", {})
    for field in schema:
        if isinstance(told.get(field.name), dict) and told[field.name].get("_type") in ("Audio", "Video"):
            (column, *_) = _arrow_column(field.name, field.type)
            yield TableColumn(column.name, column.holds, str(told[field.name]["_type"]))
            continue
        yield from _arrow_column(field.name, field.type)


def _arrow_column(name: str, kind: Any) -> Iterator[TableColumn]:
    import pyarrow as pa

    test = pa.types
    if _is_bytes(kind) or (
        test.is_struct(kind) and "bytes" in kind.names and _is_bytes(kind.field("bytes").type)
    ):
        yield TableColumn(name, Holds.PICTURE, str(kind))
    elif test.is_struct(kind):
        for inner in kind:
            if not test.is_struct(inner.type):
                yield from _arrow_column(f"{name}.{inner.name}", inner.type)
    elif test.is_list(kind) or test.is_large_list(kind) or test.is_fixed_size_list(kind):
        value = kind.value_type
        if test.is_struct(value) and "bytes" not in value.names:
            yield from (
                TableColumn(f"{name}.{inner.name}", Holds.LIST, str(kind))
                for inner in value
                if not test.is_nested(inner.type)
            )
        else:
            nested = test.is_nested(value) or _is_bytes(value)
            yield TableColumn(name, Holds.OTHER if nested else Holds.LIST, str(kind))
    else:
        yield TableColumn(name, Holds.OTHER if test.is_nested(kind) else Holds.ONE, str(kind))


def _is_bytes(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with each structure's fields as columns of their own; structures with bytes are pictures and stay."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and "bytes" not in value:
            flat |= {f"{name}.{inner}": cell for inner, cell in value.items()}
        elif (
            isinstance(value, list)
            and value
            and all(isinstance(element, dict) and "bytes" not in element for element in value)
        ):
            inners = dict.fromkeys(inner for element in value for inner in element)
            flat |= {f"{name}.{inner}": [element.get(inner) for element in value] for inner in inners}
        else:
            flat[name] = value
    return flat


def _json_column(name: str, value: Any) -> TableColumn | None:
    if value is None or value == []:  # an empty list says nothing of what others hold
        return None
    if isinstance(value, list):
        nested = any(isinstance(element, (list, dict)) for element in value)
        return TableColumn(
            name, Holds.OTHER if nested else Holds.LIST, "lists of lists" if nested else "lists"
        )
    if isinstance(value, dict):
        return TableColumn(name, Holds.OTHER, "objects")
    return TableColumn(name, Holds.ONE, "single values")


def _objects(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON file: one list of them, or one a line."""
    if path.suffix.lower() == ".json":
        value = read_json(path, WHAT)
        if isinstance(value, dict) and {"videos", "sentences"} <= value.keys():
            value = _msrvtt_rows(value, path)
        if isinstance(value, dict) and {"images", "annotations"} <= value.keys():
            raise DatasetError(
                f"{str(path)!r} holds captions in COCO's layout; read it with --dataset coco "
                f"--captions {shlex.quote(str(path))}"
            )
        if isinstance(value, dict) and isinstance(value.get("images"), list):
            raise DatasetError(
                f"{str(path)!r} looks like a Karpathy split; read it with --dataset flickr30k (or coco) "
                f"--split-file {shlex.quote(str(path))}"
            )
        if not isinstance(value, list):
            raise DatasetError(
                f"{str(path)!r} holds no list of objects; write [{{…}}, {{…}}], or an object a line"
            )
        numbered = list(enumerate(value, start=1))
    else:
        numbered = list(json_lines(path))
    for number, row in numbered:
        if not isinstance(row, dict):
            raise DatasetError(
                f"row {number} of {str(path)!r} is no JSON object; write rows as "
                '{"image": "a.jpg", "caption": "a dog"}'
            )
    return [row for _, row in numbered]


def _msrvtt_rows(value: Mapping[str, Any], path: Path) -> list[dict[str, Any]]:
    """A row a sentence of MSR-VTT's JSON, with the split of its video.

    Source: ``train_val_videodatainfo.json`` and its likes (Xu et al., MSR-VTT, CVPR 2016). A video's address there is
    of the page that it was cut from, which plays something else, so it is left out.
    """
    try:
        splits = {str(video["video_id"]): video.get("split") for video in value["videos"]}
        return [
            {
                "video_id": (video := str(sentence["video_id"])),
                "sen_id": sentence["sen_id"],
                "caption": sentence["caption"],
                **({} if splits[video] is None else {"split": splits[video]}),
            }
            for sentence in value["sentences"]
        ]
    except (KeyError, TypeError) as error:
        raise DatasetError(
            f"{str(path)!r} is not in MSR-VTT's layout, whose sentences have sen_id, video_id (of one of its videos) "
            f"and caption: {error} is missing"
        ) from error


def json_lines(path: Path) -> Iterator[tuple[int, Any]]:
    """The values of a file of JSON lines with the numbers of their lines.

    Raises:
        DatasetError: the file is missing or not in UTF-8, or a line is not JSON.
    """
    with readable(path, WHAT), path.open(encoding="utf-8-sig") as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                try:
                    yield number, json.loads(line, object_pairs_hook=once_each)
                except (ValueError, RecursionError) as error:
                    raise DatasetError(
                        f"line {number} of {str(path)!r} is not valid JSON ({error}); write one object a line"
                    ) from error


def _picker(rows: Sequence[Mapping[str, Any]]) -> Callable[[Sequence[str]], Iterator[Row]]:
    return lambda columns: ({name: row.get(name) for name in columns} for row in rows)


def _token_rows(path: Path) -> list[dict[str, str]]:
    rows = []
    for number, line in enumerate(_text_lines(path), start=1):
        match = _TOKEN.fullmatch(line)
        if match is None:
            raise DatasetError(
                f"line {number} of {str(path)!r} is not <file>#<number>, a tab and a caption, as the first line is"
            )
        rows.append({"image": match[1], "caption_id": f"{match[1]}#{match[2]}", "caption": match[3]})
    return rows


def _barred(path: Path, notes: list[str]) -> tuple[list[str], list[dict[str, str]]]:
    """Flickr30k's ``results.csv``: bars, no quotes; a row that lacks the last bar is read where it is plain."""
    lines = ([cell.strip() for cell in line.split("|")] for line in _text_lines(path))
    header = next(lines)
    rows = []
    for number, cells in enumerate(lines, start=2):
        if not any(cells):
            continue
        lacks = _LACKS_BAR.fullmatch(cells[-1]) if len(cells) == len(header) - 1 else None
        if lacks:
            notes.append(f"line {number} of {str(path)!r} lacks a bar; read as {lacks[1]} | {lacks[2]}")
            cells[-1:] = lacks.groups()
        if len(cells) != len(header):
            raise DatasetError(
                f"line {number} of {str(path)!r} has more or fewer cells than the header; quote cells that hold the "
                "separator"
            )
        rows.append(dict(zip(header, cells, strict=True)))
    return header, rows


def _text_lines(path: Path) -> list[str]:
    with readable(path, WHAT):
        return path.read_text(encoding="utf-8-sig").rstrip("\n").split("\n")
